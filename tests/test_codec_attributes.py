"""A `__dict__` that others lead to as well, or that is more than a dict."""

import argparse
import functools
import pickle
import types
from typing import ClassVar

import pytest

import gabion
from gabion._native import _Codec


class Thing:
    pass


class WithSlot:
    __slots__ = ("__dict__", "slot")


class ListThing(list):
    pass


class Borg:
    shared: ClassVar[dict] = {}

    def __init__(self):
        self.__dict__ = self.shared


def whole(kind):
    made = kind()
    made.x, made.y = ["x"], ("y", [])
    return made


def without_its_slot():
    return whole(WithSlot)


def with_a_slot():
    made = whole(WithSlot)
    made.slot = [1]
    return made


def of_an_odd_name():
    made = whole(Thing)
    vars(made)[5] = [5]
    return made


def of_many_kinds():
    """More sets of names than are remembered, and the last is stored by its names."""
    codec = _Codec()
    for number in range(40):
        other = Thing()
        setattr(other, f"name{number}", number)
        codec.encode(other)
    return whole(Thing), codec


def plain():
    return whole(Thing)


def through_pickle(value):
    return pickle.loads(pickle.dumps(value, 5))


MAKERS = [
    plain,
    without_its_slot,
    with_a_slot,
    of_an_odd_name,
    of_many_kinds,
    lambda: whole(types.SimpleNamespace),
    lambda: whole(argparse.Namespace),
    lambda: whole(ListThing),
]


def made_by(make):
    made = make()
    return made if isinstance(made, tuple) else (made, _Codec())


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("before", [False, True])
def test_what_is_in_the_dict_of_another_keeps_its_identity(make, before):
    for around in (lambda *parts: list(parts), lambda *parts: {"a": parts[0], "b": [parts[1]]}, lambda *parts: parts):
        made, codec = made_by(make)
        value = around(vars(made), made) if before else around(made, vars(made))
        for found in (through_pickle(value), codec.decode(codec.encode(value)), codec.decode(codec.encode(value))):
            first, second = found.values() if isinstance(found, dict) else found
            second = second[0] if isinstance(found, dict) else second
            items, owner = (first, second) if before else (second, first)
            assert type(owner) is type(made)
            assert type(items) is dict
            assert items is not vars(owner)
            assert items["x"] is owner.x
            assert items["y"] is owner.y
            assert (owner.x, owner.y) == (["x"], ("y", []))


@pytest.mark.parametrize("make", MAKERS)
def test_two_objects_of_one_dict(make):
    made, codec = made_by(make)
    if isinstance(made, types.SimpleNamespace):
        pytest.skip("its dict is its own for good")
    other = type(made)()
    other.__dict__ = made.__dict__
    for value in ([made, other], {"a": (made,), "b": [other]}):
        for found in (through_pickle(value), codec.decode(codec.encode(value))):
            one, two = found if isinstance(found, list) else (found["a"][0], found["b"][0])
            assert one is not two
            assert one.x is two.x
            assert one.y is two.y


def test_a_dict_with_others_that_leads_back():
    Borg.shared.clear()
    borg = Borg()
    borg.kids = [Borg()]
    pile = gabion.Pile(max_bytes="8 MiB")
    for found in (pile.get(pile.put(borg)), pile.get(pile.put([borg]))[0]):
        (kid,) = found.kids
        assert type(kid) is Borg
        assert kid.kids is found.kids
    assert pile.stats().used_bytes < 1000


def test_levels_that_share_are_written_once():
    value = "end"
    for _ in range(40):
        one, two = Thing(), Thing()
        one.inside = [value]
        two.__dict__ = one.__dict__
        value = (one, two)
    codec = _Codec()
    data = codec.encode(value)
    assert len(data) < 2_000
    found = codec.decode(data)
    for _ in range(40):
        one, two = found
        assert one.inside is two.inside
        (found,) = one.inside
    assert found == "end"


def test_a_known_set_of_names_is_found_by_their_text():
    """As it is where they were made at run time, and however many other sets there were since."""
    codec, names = _Codec(), [f"name_{i}" for i in range(10)]

    def thing(names):
        made = Thing()
        made.__dict__ = dict.fromkeys(names, 1)
        return made

    known = codec.encode([thing(names), thing(names)])
    for i in range(100):
        codec.encode(thing([f"other_{i}"]))
    again = [thing("".join(["na", name[2:]]) for name in names) for _ in range(2)]
    assert codec.encode(again) == known
    assert [vars(found) for found in codec.decode(known)] == [dict.fromkeys(names, 1)] * 2


def many_of_one_dict(kind, shared, count):
    made = [kind() for _ in range(count)]
    for each in made:
        each.__dict__ = shared
    return made


@pytest.mark.parametrize("kind", [Thing, WithSlot])
def test_a_dict_of_many_objects_is_written_once_more_at_most(kind):
    shared = {f"name{number}": [number] for number in range(200)} | {5: "five"}
    made = many_of_one_dict(kind, shared, 500)
    if kind is WithSlot:
        made[0].slot, made[7].slot = ["first"], ["seventh"]
    for value in (made, [shared, *made], tuple(made), {"a": made[0], "rest": made[1:]}):
        codec = _Codec()
        data = codec.encode(value)
        assert len(data) < 1.5 * len(pickle.dumps(value, 5))
        found, expected = codec.decode(data), through_pickle(value)
        if isinstance(value, dict):
            found, expected = [found["a"], *found["rest"]], [expected["a"], *expected["rest"]]
        if value[0] is shared if isinstance(value, list) else False:
            assert found[0] == shared
            found, expected = found[1:], expected[1:]
        assert [as_plain(each) for each in found] == [as_plain(each) for each in expected]
        first, second = vars(found[0]), vars(found[1])
        assert first is not second
        assert all(vars(each)[name] is first[name] for each in found for name in shared)
        second["name0"] = "changed"
        assert first["name0"] == [0]


@pytest.mark.parametrize("kind", [Thing, WithSlot])
def test_a_dict_of_many_objects_that_are_in_it(kind):
    """What is met in the midst of the dict gets all that is in it, too; from pickle, what was there by then."""
    shared = {f"name{number}": number for number in range(200)}
    whole, first, *made = many_of_one_dict(kind, shared, 500)
    shared |= {"first": first, "made": made, "last": "end"}
    for value in (whole, [whole], shared, [shared, *made], (whole, first)):
        codec = _Codec()
        data = codec.encode(value)
        assert len(data) < 20_000
        found = codec.decode(data)
        items = found if isinstance(found, dict) else found[0] if isinstance(found, (list, tuple)) else vars(found)
        items = items if isinstance(items, dict) else vars(items)
        assert list(items) == list(shared)
        assert len(items["made"]) == len(made)
        for each in (items["first"], *items["made"]):
            assert type(each) is kind
            assert list(vars(each).items()) == list(items.items())


class Hashed:
    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return self is other


class Asks:
    """Made of the number that an object has by then."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return ask, (self.number,)


def ask(thing):
    return thing.number


def test_code_in_the_midst_sees_what_is_in_a_dict_of_many():
    made = many_of_one_dict(Hashed, {"name": "x", "number": 5}, 4)
    codec = _Codec()
    assert [each.name for each in codec.decode(codec.encode(set(made)))] == ["x"] * 4
    found = codec.decode(codec.encode([made, [Asks(each) for each in made]]))
    assert found[1] == [5] * 4


@pytest.mark.parametrize(
    "later",
    [
        lambda last: {last},
        lambda last: frozenset([last]),
        lambda last: {last: 1},
        lambda last: [{last}],
        lambda last: Asks(last),
    ],
    ids=["set", "frozenset", "dict", "list", "reduced"],
)
@pytest.mark.parametrize("with_others", [False, True])
def test_code_in_the_midst_of_a_dict_sees_what_is_there_by_then(later, with_others):
    """In the dict that it has its attributes of."""
    shared = {"name": "x", "number": 5}
    whole, first, last, other = many_of_one_dict(Hashed, shared, 4)
    shared |= {"first": first, "later": later(last)}
    if with_others:
        shared |= {"other": other, "more": "yes"}
    codec = _Codec()
    found = codec.decode(codec.encode(whole))
    if isinstance(shared["later"], Asks):
        assert found.later == found.first.later == 5
        return
    for each in (found.first, *(found.later[0] if isinstance(found.later, list) else found.later)):
        assert type(each) is Hashed
        assert list(vars(each).items()) == list(vars(found).items())


class Stated:
    """Its state is its dict, which is read as any other."""

    def __getstate__(self):
        return self.__dict__


class Handed:
    def __reduce__(self):
        return Handed, (), self.__dict__


class WithBoth(list):
    __slots__ = ("__dict__", "slot")


@pytest.mark.parametrize("kind", [ListThing, Stated, Handed, WithBoth])
@pytest.mark.parametrize("more", [0, 20])
def test_a_state_that_is_in_the_midst_of_itself(kind, more):
    whole, other = Thing(), kind()
    shared = vars(other)
    whole.settings, whole.other, shared["parent"] = shared, other, vars(whole)
    if kind is WithBoth:
        other.slot = [1]
    shared |= {f"name{i}": [i] for i in range(more)}
    codec = _Codec()
    # With the dict first, pickle gives what was in it when it came to the other.
    for value in ([whole], [whole, other], (whole,), [shared, whole]):
        found = next(one for one in codec.decode(codec.encode(value)) if type(one) is Thing)
        if value[0] is whole:
            assert list(vars(through_pickle(value)[0].other)) == list(shared)
        for each in (found.other, found.settings["parent"]["other"]):
            assert list(vars(each)) == list(shared)
            assert all(vars(each)[f"name{i}"] == [i] for i in range(more))
            assert getattr(each, "slot", None) == getattr(other, "slot", None)


def test_hooks_in_a_dict_of_many():
    made = many_of_one_dict(Thing, {"__getstate__": functools.partial(dict, x=1), "y": 2}, 3)
    codec = _Codec()
    for value in (made, [vars(made[0]), *made]):
        found = codec.decode(codec.encode(value))[-3:]
        assert [as_plain(each) for each in found] == [as_plain(each) for each in through_pickle(value)[-3:]]
        assert vars(found[2]) == {"x": 1}


def test_objects_of_different_classes_and_one_dict():
    value = [*many_of_one_dict(Thing, {"x": ["x"]}, 2), WithSlot(), Hashed()]
    value[2].__dict__ = value[3].__dict__ = vars(value[0])
    value[2].slot = value
    codec = _Codec()
    found = codec.decode(codec.encode(value))
    assert [type(each) for each in found] == [Thing, Thing, WithSlot, Hashed]
    assert all(vars(each) == {"x": ["x"]} and each.x is found[0].x for each in found)
    assert found[2].slot is found


def test_who_holds_a_dict_changes_nothing():
    """A variable may, while its owner is stored."""
    codec = _Codec()
    made = whole(Thing)
    alone = codec.encode([made])
    held = vars(made)
    with_others = codec.encode([made])
    assert held is vars(made)
    assert codec.decode(alone)[0].x == codec.decode(with_others)[0].x == ["x"]
    assert _Codec().encode([made]) == with_others


class Told(dict):
    """Says what is in it in its own way."""

    def items(self):
        return iter([("x", "told"), ("more", 1)])


class Reduced(dict):
    def __reduce__(self):
        return dict, ({"x": "reduced"},)


class Ordinary(dict):
    pass


@pytest.mark.parametrize("kind", [Told, Reduced, Ordinary])
@pytest.mark.parametrize("owner", [Thing, WithSlot])
def test_a_dict_of_another_class(kind, owner):
    made = owner()
    made.__dict__ = kind(x=["x"], y=1)
    if owner is WithSlot:
        made.slot = [2]
    codec = _Codec()
    for value in (made, [made], [made, made], {"a": made, "b": (made, vars(made))}):
        for _ in range(2):
            expected, found = through_pickle(value), codec.decode(codec.encode(value))
            assert repr(as_plain(found)) == repr(as_plain(expected))
    made.__dict__["back"] = made
    if kind is Ordinary:
        found = codec.decode(codec.encode(made))
        assert found.back is found


def as_plain(value):
    if isinstance(value, dict):
        return type(value).__name__, [(key, as_plain(item)) for key, item in dict.items(value)]
    if isinstance(value, (list, tuple)):
        return [as_plain(item) for item in value]
    if isinstance(value, (Thing, WithSlot)):
        return type(value).__name__, as_plain(vars(value)), getattr(value, "slot", None)
    return value


class Small:
    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


@pytest.mark.parametrize("made", [lambda: Small(1), lambda: [Small(1)], lambda: ("a", []), lambda: {"k": {}}])
def test_what_is_far_too_long_is_not_written_to_its_end(made):
    """The end cannot be stored at all, and nobody gets there."""
    pile = gabion.Pile(max_bytes="64 KiB")
    with pytest.raises(gabion.LimitError, match="an object takes more than 65536 bytes"):
        pile.put([*(made() for _ in range(100_000)), lambda: 0])
    assert len(pile) == 0
    pile.put("still works")
