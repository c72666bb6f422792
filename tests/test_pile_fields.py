"""Pile.fields: parts of stored objects."""

from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from model import Colour, Person, Plain, Point, Slotted, person

import gabion


class Base:
    __slots__ = ("base",)


class Mixed(Base):
    __slots__ = ("__dict__", "own")


class Unset:
    __slots__ = ("a", "b")


class WithProperty:
    def __init__(self) -> None:
        self.width, self.height = 3, 4

    @property
    def area(self) -> int:
        return self.width * self.height


class Mangled:
    __slots__ = ("__secret", "open")

    def __init__(self) -> None:
        self.__secret, self.open = "s", "o"


@dataclass
class Node:
    name: str
    other: Any = None


def test_slots(pile: gabion.Pile) -> None:
    pointer = pile.put(Slotted(5, "five", [1, [2]]))
    assert pile.fields(pointer, "number") == (5,)
    assert pile.fields(pointer, "note", "first", "number") == ([1, [2]], "five", 5)
    assert pile.fields(pointer, "first", "first") == ("five", "five")
    assert pile.fields(pointer) == ()
    whole = pile.put(person(8))
    names = ("id", "first", "last", "born", "balance", "active", "note", "tags")
    assert Person(*pile.fields(whole, *names)) == person(8)
    for name in names:
        assert pile.fields(whole, name) == (getattr(person(8), name),)


def test_attributes_named_tuples_dicts(pile: gabion.Pile) -> None:
    for value in (Plain(a=1, b="two", c=[3]), {"a": 1, "b": "two", "c": [3]}, OrderedDict(a=1, b="two", c=[3])):
        pointer = pile.put(value)
        assert pile.fields(pointer, "c", "a") == ([3], 1)
        assert pile.fields(pointer, "b") == ("two",)
    point = pile.put(Point(1.5, 2.5, "here"))
    assert pile.fields(point, "label", "x") == ("here", 1.5)
    assert pile.fields(point, "y") == (2.5,)


def test_inherited_slots_with_a_dict(pile: gabion.Pile) -> None:
    mixed = Mixed()
    mixed.base, mixed.own, mixed.free = 1, 2, 3  # type: ignore[attr-defined]
    pointer = pile.put(mixed)
    assert pile.fields(pointer, "free", "own", "base") == (3, 2, 1)
    mangled = pile.put(Mangled())
    assert pile.fields(mangled, "_Mangled__secret", "open") == ("s", "o")


def test_what_is_computed_is_read_like_an_attribute(pile: gabion.Pile) -> None:
    pointer = pile.put(WithProperty())
    assert pile.fields(pointer, "area", "width") == (12, 3)
    colour = pile.put(Colour.GREEN)
    assert pile.fields(colour, "value", "name") == (2, "GREEN")


def test_nested_and_shared_references_keep_identity(pile: gabion.Pile) -> None:
    shared = ["shared"]
    pointer = pile.put(Plain(a=shared, b=shared, c={"in": shared}))
    a, b, c = pile.fields(pointer, "a", "b", "c")
    assert a is b
    assert c["in"] is a
    loop = Node("loop")
    loop.other = loop
    cyclic = pile.put(loop)
    (other,) = pile.fields(cyclic, "other")
    assert other.other is other
    assert pile.fields(cyclic, "name") == ("loop",)
    deep: Any = None
    for i in range(50_000):
        deep = Node(str(i), deep)
    assert pile.fields(pile.put(deep), "name") == ("49999",)


def test_missing_names(pile: gabion.Pile) -> None:
    for value in (Slotted(), Plain(a=1), Point(1, 2), person(1), 5, "text", None, [1]):
        pointer = pile.put(value)
        with pytest.raises(AttributeError):
            pile.fields(pointer, "nothing_of_that_name")
        assert pile.get(pointer) == value
    for mapping in ({"a": 1}, {}, OrderedDict(a=1)):
        pointer = pile.put(mapping)
        with pytest.raises(KeyError):
            pile.fields(pointer, "b")
        with pytest.raises(KeyError):
            pile.fields(pointer, "keys")
    unset = Unset()
    unset.a = 1
    pointer = pile.put(unset)
    assert pile.fields(pointer, "a") == (1,)
    with pytest.raises(AttributeError):
        pile.fields(pointer, "b")
    with pytest.raises(AttributeError):
        pile.fields(pointer, "a", "b")


def test_names_must_be_text(pile: gabion.Pile) -> None:
    pointer = pile.put(Plain(a=1))
    for name in (1, None, b"a", ("a",)):
        with pytest.raises(TypeError):
            pile.fields(pointer, name)
    with pytest.raises(TypeError):
        pile.fields(pointer, names="a")


def test_a_dict_with_keys_of_other_types(pile: gabion.Pile) -> None:
    pointer = pile.put({1: "one", "a": "A", (1, 2): "pair", None: "none"})
    assert pile.fields(pointer, "a") == ("A",)
    with pytest.raises(KeyError):
        pile.fields(pointer, "1")


def test_fields_after_replace_and_at_every_size(pile: gabion.Pile) -> None:
    pointer = pile.put(Plain(name="first", load=b""))
    for size in (0, 100, 1000, 1010, 1100, 70_000, 1_100_000, 10):
        pile.replace(pointer, Plain(name=str(size), load=b"x" * size, end=size))
        assert pile.fields(pointer, "end", "name") == (size, str(size))
    pile.replace(pointer, Slotted(7))
    assert pile.fields(pointer, "number") == (7,)
    pile.replace(pointer, Point(1, 2))
    assert pile.fields(pointer, "y") == (2,)


class Replaced(NamedTuple):
    a: int


def test_a_class_that_was_replaced_meanwhile(pile: gabion.Pile, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        __slots__ = ("a", "b")

    Old.__qualname__ = "Changing"
    Old.__module__ = __name__
    monkeypatch.setitem(globals(), "Changing", Old)
    old = Old()
    old.a, old.b = 1, 2
    pointer = pile.put(old)

    class New:
        __slots__ = ("b", "c")

    New.__qualname__ = "Changing"
    New.__module__ = __name__
    monkeypatch.setitem(globals(), "Changing", New)
    new = New()
    new.b, new.c = "new b", "new c"
    other = pile.put(new)
    assert pile.fields(pointer, "b", "a") == (2, 1)
    assert pile.fields(other, "b", "c") == ("new b", "new c")
    with pytest.raises(gabion.CodecError):
        pile.put(old)


class Same:
    """Equal to everything, with a hash of its own."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 12345


class Incomparable(Same):
    def __eq__(self, other: object) -> bool:
        raise TypeError("no comparison")

    __hash__ = Same.__hash__


def test_keys_are_found_by_their_hash_as_in_a_dict(pile: gabion.Pile) -> None:
    for key in (Same(), Incomparable()):
        pointer = pile.put({key: 1, "a": 2, 5: 3})
        assert pile.fields(pointer, "a", 5, "a") == (2, 3, 2)
    pointer = pile.put({"b": 1, 12345: 2})
    assert pile.fields(pointer, Same()) == (2,)
    with pytest.raises(TypeError):
        pile.fields(pile.put(Plain(a=1)), Same())


class Answers(dict[str, int]):
    def __getitem__(self, name: str) -> int:
        return 42


def test_dicts_that_make_what_is_missing(pile: gabion.Pile) -> None:
    for mapping in (defaultdict(list, a=1), Counter(a=1), OrderedDict(a=1)):
        pointer = pile.put(mapping)
        assert pile.fields(pointer, "a") == (1,)
        for name in ("b", ("a", "b")):
            with pytest.raises(KeyError) as missing:
                pile.fields(pointer, name)
            assert missing.value.args == (name,)
    assert pile.fields(pile.put(Answers(a=1)), "a", "b") == (42, 42)


@pytest.mark.parametrize("value", [{"a": 1}, defaultdict(list, a=1), Plain(a=1), Slotted(1), Point(1, 2), 5], ids=repr)
def test_names_in_a_list(pile: gabion.Pile, value: object) -> None:
    with pytest.raises(TypeError, match=r"^fields\(\) takes names one by one, .* a name is no list$"):
        pile.fields(pile.put(value), ["a", "b"])


class Modified:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1, 2


def test_a_slot_whose_name_becomes_a_property(pile: gabion.Pile, monkeypatch: pytest.MonkeyPatch) -> None:
    pointer = pile.put(Modified())
    assert pile.fields(pointer, "a", "b") == (1, 2)
    monkeypatch.setattr(Modified, "other", 5, raising=False)
    assert pile.fields(pointer, "a", "b") == (1, 2)
    monkeypatch.setattr(Modified, "a", property(lambda self: 99))
    assert pile.fields(pointer, "a", "b") == (pile.get(pointer).a, 2) == (99, 2)
    monkeypatch.undo()
    assert pile.fields(pointer, "a", "b") == (1, 2)
    monkeypatch.setattr(Modified, "__getattribute__", lambda self, name: name)
    assert pile.fields(pointer, "a", "b") == ("a", "b")
