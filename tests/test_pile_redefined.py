"""Classes and functions that are defined anew: a module loaded again, a cell of a notebook that runs again."""

import datetime
import gc
import importlib
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from many_threads import run

import gabion
from gabion._native import _Codec  # type: ignore[attr-defined]

SOURCE = """
import enum, typing
from dataclasses import dataclass, field

VERSION = 1

@dataclass
class Plain:
    name: str
    visits: int

@dataclass(slots=True)
class Slotted:
    name: str
    visits: int

@dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    visits: int

class Pair(typing.NamedTuple):
    name: str
    visits: int

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

class Reduced:
    def __init__(self, name, visits=0):
        self.name = name
    def __reduce__(self):
        return (Reduced, (self.name,))

class Outer:
    @dataclass
    class Inner:
        name: str
        visits: int

def function():
    pass
"""
NAMES = ["Plain", "Slotted", "Frozen", "Pair", "Outer.Inner"]


def walk(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "redefined_models.py").write_text(SOURCE)
    importlib.invalidate_caches()
    yield importlib.import_module("redefined_models")
    sys.modules.pop("redefined_models", None)


def reload(module: ModuleType) -> ModuleType:
    return importlib.reload(module)


def import_anew(module: ModuleType) -> ModuleType:
    """As servers do that watch their sources."""
    del sys.modules[module.__name__]
    return importlib.import_module(module.__name__)


def run_cell(module: ModuleType) -> ModuleType:
    exec(SOURCE, module.__dict__)
    return module


Renew = Callable[[ModuleType], ModuleType]
WAYS = [reload, import_anew, run_cell]


@pytest.mark.parametrize("renew", WAYS)
@pytest.mark.parametrize("name", [*NAMES, "Reduced"])
def test_get_builds_what_the_name_leads_to(pile: gabion.Pile, module: ModuleType, name: str, renew: Renew) -> None:
    for _ in range(3):
        old = walk(module, name)
        thing = old("Ada", 1)
        pointer, dumped = pile.put(thing), pickle.dumps(thing)
        several = pile.put([thing, thing, {"a": old("Bob", 2)}])
        assert type(pile.get(pointer)) is old
        module = renew(module)
        new = walk(module, name)
        assert new is not old
        for _ in range(2):
            found = pile.get(pointer)
            assert type(found) is type(pickle.loads(dumped)) is new
            assert found.name == "Ada"
            first, second, rest = pile.get(several)
            assert type(first) is type(rest["a"]) is new
            assert first is second
        pile.replace(pointer, found)
        assert type(pile.get(pointer)) is new
        if name != "Reduced":
            assert pile.fields(pointer, "name", "visits") == ("Ada", 1)


@pytest.mark.parametrize("renew", WAYS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("before", [0, 1, 2, 100])
@pytest.mark.parametrize("read", [False, True])
def test_an_instance_of_the_class_before_is_refused(
    pile: gabion.Pile, module: ModuleType, name: str, renew: Renew, before: int, read: bool
) -> None:
    thing = walk(module, name)("Ada", 1)
    pointers = [pile.put(thing) for _ in range(before)]
    module = renew(module)
    if read:
        pile.get_many(pointers)
    pointer = pile.put("kept")
    for _ in range(3):
        for call in (pile.put, lambda thing: pile.put([thing]), lambda thing: pile.replace(pointer, thing)):
            with pytest.raises(gabion.CodecError, match=r"is another object by now.* make new instances of it"):
                call(thing)
        if read:
            new = pile.put(walk(module, name)("Bob", 2))
            assert pile.get(new).name == "Bob"
    assert pile.get(pointer) == "kept"


SETS_STATE = """
    def __setstate__(self, state):
        self.told = sorted(state)
        self.__dict__.update(state)
"""


@pytest.mark.parametrize("more", ["", SETS_STATE])
def test_objects_of_one_dict(pile: gabion.Pile, module: ModuleType, more: str) -> None:
    made = [module.Plain("Ada", ["x"]) for _ in range(4)]
    for each in made:
        each.__dict__ = made[0].__dict__
    pointer, dumped = pile.put(made), pickle.dumps(made)
    made[0].inside = made
    in_it = pile.put(made)
    exec(SOURCE.replace("    visits: int\n", f"    visits: int\n{more}", 1), module.__dict__)
    for _ in range(2):
        found = pile.get(pointer)
        assert [vars(each) for each in found] == [vars(each) for each in pickle.loads(dumped)]
        assert {type(each) for each in found} == {module.Plain}
        assert all(each.visits is found[0].visits for each in found)
        for each in pile.get(in_it):
            assert {type(one) for one in each.inside} == {module.Plain}
            assert vars(each) == vars(each.inside[3])
            assert ("told" in vars(each)) == bool(more)


@pytest.mark.parametrize("renew", WAYS)
def test_enums_functions_and_classes_themselves(pile: gabion.Pile, module: ModuleType, renew: Renew) -> None:
    red, function, plain = module.Colour.RED, module.function, module.Plain
    pointers = [pile.put(thing) for thing in (red, function, plain, [red], [function, plain])]
    assert pile.get_many(pointers) == [red, function, plain, [red], [function, plain]]
    module = renew(module)
    assert module.function is not function
    for _ in range(2):
        found = pile.get_many(pointers)
        assert found[:3] == [module.Colour.RED, module.function, module.Plain]
        assert found[3:] == [[module.Colour.RED], [module.function, module.Plain]]
    for old in (red, function, plain):
        for _ in range(2):
            with pytest.raises(gabion.CodecError, match="is another object by now"):
                pile.put(old)
    assert pile.get(pile.put(module.Colour.BLUE)) is module.Colour.BLUE
    assert pile.get(pile.put(module.function)) is module.function


@pytest.mark.parametrize("renew", WAYS)
def test_a_member_that_is_gone(pile: gabion.Pile, module: ModuleType, renew: Renew, tmp_path: Path) -> None:
    pointers = pile.put_many([module.Colour.BLUE, [module.Colour.BLUE], module.Colour.RED])
    source = SOURCE.replace("    BLUE = 2\n", "")
    if renew is run_cell:
        exec(source, module.__dict__)
    else:
        (tmp_path / "redefined_models.py").write_text(source)
        module = renew(module)
    told = "^cannot rebuild 'BLUE' of <enum 'Colour'>: the class was defined anew, and has no member of that name; add"
    for pointer in pointers[:2]:
        with pytest.raises(gabion.CodecError, match=told):
            pile.get(pointer)
    assert pile.get(pointers[2]) is module.Colour.RED
    exec(SOURCE, module.__dict__)
    assert pile.get(pointers[0]) is module.Colour.BLUE


def test_fields_that_come_and_go(pile: gabion.Pile, module: ModuleType) -> None:
    pointers = pile.put_many([module.Plain("Ada", 1), module.Slotted("Ada", 1)])
    exec(SOURCE.replace("    visits: int\n", "    email: str = 'none'\n    visits: int = 0\n"), module.__dict__)
    assert pile.get_many(pointers) == [module.Plain("Ada", "none", 1), module.Slotted("Ada", "none", 1)]
    exec(SOURCE.replace("    visits: int\n", "    more: list = field(default_factory=list)\n"), module.__dict__)
    assert pile.get_many(pointers) == [module.Plain("Ada", []), module.Slotted("Ada", [])]
    assert vars(pile.get(pointers[0])) == {"name": "Ada", "more": []}
    assert pile.fields(pointers[0], "visits") == pile.fields(pointers[1], "visits") == (1,)
    assert pile.get(pointers[0]).more is not pile.get(pointers[0]).more
    exec(SOURCE.replace("    visits: int\n", "    visits: int\n    new: int\n"), module.__dict__)
    plain, slotted = pile.get_many(pointers)
    assert (plain.visits, slotted.visits) == (1, 1)
    assert not hasattr(plain, "new")
    assert not hasattr(slotted, "new")
    exec(SOURCE.replace("@dataclass\n", "@dataclass(slots=True)\n"), module.__dict__)
    assert pile.get(pointers[0]) == module.Plain("Ada", 1)
    exec(SOURCE.replace("@dataclass(slots=True)\n", "@dataclass\n"), module.__dict__)
    assert pile.get(pointers[1]) == module.Slotted("Ada", 1)
    exec(SOURCE, module.__dict__)
    assert pile.get_many(pointers) == [module.Plain("Ada", 1), module.Slotted("Ada", 1)]


def test_a_named_tuple_comes_back_by_names(pile: gabion.Pile, module: ModuleType) -> None:
    pointer = pile.put(module.Pair("Ada", 1))
    exec("class Pair(typing.NamedTuple):\n    visits: int\n    name: str\n", module.__dict__)
    assert pile.get(pointer) == module.Pair(visits=1, name="Ada")
    assert pile.fields(pointer, "visits", "name") == (1, "Ada")
    exec("class Pair(typing.NamedTuple):\n    name: str\n    more: int = 0\n", module.__dict__)
    assert pile.get(pointer) == module.Pair("Ada", 0)
    assert pile.fields(pointer, "visits", "more") == (1, 0)
    exec("class Pair(typing.NamedTuple):\n    name: str\n    count: int\n", module.__dict__)
    for _ in range(2):
        with pytest.raises(gabion.CodecError, match="an item 'count' by now that was not stored, and has no default"):
            pile.get(pointer)
        assert pile.fields(pointer, "visits") == (1,)


@pytest.mark.parametrize(
    "other",
    [
        "@dataclass\nclass Pair:\n    name: str = ''\n    visits: int = 0",
        "class Pair(list): pass",
        "class Pair(dict): pass",
    ],
)
def test_a_named_tuple_is_no_other_thing(pile: gabion.Pile, module: ModuleType, other: str) -> None:
    """It would come back with nothing of what was stored, and be stored so again."""
    pointer = pile.put(module.Pair("Ada", 1))
    exec(other, module.__dict__)
    with pytest.raises(gabion.CodecError, match=r"its class .*Pair.* is no tuple by now"):
        pile.get(pointer)
    assert pile.fields(pointer, "name", "visits") == ("Ada", 1)


@pytest.mark.parametrize("base", ["list", "dict", "str", "int", "tuple", "float", "set", "bytearray"])
def test_an_object_is_no_number_text_or_container(pile: gabion.Pile, module: ModuleType, base: str) -> None:
    pointers = [pile.put(walk(module, name)("Ada", 1)) for name in ("Plain", "Slotted", "Frozen")]
    for name in ("Plain", "Slotted", "Frozen"):
        exec(f"class {name}({base}): pass", module.__dict__)
    for pointer in pointers:
        with pytest.raises(gabion.CodecError, match="a number, a text or a container by now"):
            pile.get(pointer)
        assert pile.fields(pointer, "name", "visits") == ("Ada", 1)


def test_fields_are_those_of_what_get_builds(pile: gabion.Pile, module: ModuleType) -> None:
    """Also before the first `get` finds out that the name leads to another class."""
    pair, plain, slotted = pointers = [pile.put(walk(module, name)("Ada", 1)) for name in ("Pair", "Plain", "Slotted")]
    exec("class Pair(typing.NamedTuple):\n    visits: int\n    first: str = 'none'\n", module.__dict__)
    for name in ("Plain", "Slotted"):
        exec(f"class {name}:\n    name = property(lambda self: 'made', lambda self, name: None)", module.__dict__)
    for _ in range(2):
        assert pile.fields(pair, "first", "visits", "name") == ("none", 1, "Ada")
        for pointer in (plain, slotted):
            assert pile.fields(pointer, "name", "visits") == ("made", 1)
        found = pile.get_many(pointers)
        assert (found[0].first, found[1].name, found[2].name) == ("none", "made", "made")


def test_fields_of_what_cannot_be_built_any_more(pile: gabion.Pile, module: ModuleType) -> None:
    pointers = [pile.put(walk(module, name)("Ada", 1)) for name in ("Pair", "Plain", "Slotted")]
    exec("class Pair(typing.NamedTuple):\n    other: str\n", module.__dict__)
    for name in ("Plain", "Slotted"):
        exec(f"class {name}:\n    __slots__ = ('other',)", module.__dict__)
    for _ in range(2):
        for pointer in pointers:
            assert pile.fields(pointer, "name", "visits") == ("Ada", 1)
            with pytest.raises(gabion.CodecError):
                pile.get(pointer)


@pytest.mark.parametrize("slots", ["()", "('visits',)", "('extra', 'visits')"])
def test_slots_that_become_attributes(pile: gabion.Pile, module: ModuleType, slots: str) -> None:
    whole, part = module.Slotted("Ada", 1), object.__new__(module.Slotted)
    part.visits = 7
    pointers = pile.put_many([whole, part, [whole, whole, part]])
    exec(f"class Base: pass\nclass Slotted(Base):\n    __slots__ = {slots}", module.__dict__)
    found, partly, several = pile.get_many(pointers)
    assert type(found) is type(partly) is module.Slotted
    assert (found.name, found.visits, partly.visits) == ("Ada", 1, 7)
    assert not hasattr(partly, "name")
    assert several[0] is several[1]
    assert (several[0].visits, several[2].visits) == (1, 7)
    assert ("visits" in vars(found)) is ("visits" not in slots)


@pytest.mark.parametrize(
    "other",
    [
        "class {}(dict): pass",
        "class {}(Exception): pass",
        "class {}:\n    __slots__ = ()",
        "class {}:\n    def __new__(cls): raise KeyError",
        "import abc\nclass {}(abc.ABC):\n    @abc.abstractmethod\n    def method(self): ...",
        "import enum\nclass {}(enum.Enum):\n    GREEN = 3",
        "import typing\nclass {}(typing.NamedTuple):\n    one: int",
        "from array import array as {}",
        "from decimal import Decimal as {}",
        "{} = int",
        "{} = None",
        "def {}(): pass",
        "del {}",
    ],
)
def test_quite_another_thing_of_the_name(pile: gabion.Pile, module: ModuleType, other: str) -> None:
    things = [module.Plain("Ada", 1), module.Slotted("Ada", 1), module.Pair("Ada", 1), module.Colour.RED]
    partial = object.__new__(module.Slotted)
    partial.name = "Bob"
    pointers = pile.put_many([*things, partial])
    for thing in things:
        exec(other.format(type(thing).__name__), module.__dict__)
    for _ in range(2):
        for pointer, thing in zip(pointers, [*things, partial], strict=True):
            try:
                found = pile.get(pointer)
            except gabion.CodecError:
                continue
            assert type(found).__name__ == type(thing).__name__
        for thing in things:
            with pytest.raises(gabion.CodecError):
                pile.put(thing)
    exec(SOURCE, module.__dict__)
    assert pile.get_many(pointers[:2]) == [module.Plain("Ada", 1), module.Slotted("Ada", 1)]
    assert pile.get_many(pointers[2:4]) == [("Ada", 1), module.Colour.RED]
    assert pile.get(pointers[4]).name == "Bob"
    pile.validate()


def test_a_name_that_comes_back(pile: gabion.Pile, module: ModuleType) -> None:
    old = module.Plain
    pointer = pile.put(old("Ada", 1))
    for _ in range(3):
        run_cell(module)
        new = module.Plain
        assert type(pile.get(pointer)) is new
        pile.put(new("Bob", 2))
        module.Plain = old
        assert type(pile.get(pointer)) is old
        assert type(pile.get(pile.put(old("Eve", 3)))) is old
        with pytest.raises(gabion.CodecError):
            pile.put(new("Bob", 2))


@pytest.mark.parametrize("name", [*NAMES, "Colour", "Reduced", "function"])
def test_a_name_that_goes_to_and_fro_leaves_nothing_behind(module: ModuleType, name: str) -> None:
    codec = _Codec()
    outer, _, last = name.rpartition(".")
    classes = [walk(module, name), walk(run_cell(module), name)]
    owner = walk(module, outer) if outer else module
    made = [one if name == "function" else one.RED if name == "Colour" else one("Ada", 1) for one in classes]

    def to_and_fro(times: int) -> int:
        for number in range(2 * times):
            setattr(owner, last, classes[number % 2])
            assert type(codec.decode(codec.encode([made[number % 2], classes[number % 2]]))[0]) is type(
                made[number % 2]
            )
            for data in stored:
                found, kind = codec.decode(data)
                assert kind is classes[number % 2]
                assert type(found) is type(made[number % 2])
        return len(gc.get_referents(codec))

    stored: list[bytes] = []
    for one, thing in zip(classes, made, strict=True):
        setattr(owner, last, one)
        stored.append(codec.encode([thing, one]))
    before = to_and_fro(10)
    assert to_and_fro(1000) == before


@pytest.mark.parametrize("name", ["Plain", "Slotted", "Frozen", "Pair"])
def test_a_changed_class_that_goes_to_and_fro_leaves_nothing_behind(module: ModuleType, name: str) -> None:
    codec, one = _Codec(), walk(module, name)
    data = codec.encode([one("Ada", 1)] * 2)
    exec(SOURCE.replace("    visits: int\n", "    more: int = 5\n"), module.__dict__)
    other = walk(module, name)

    def to_and_fro(times: int) -> int:
        for _ in range(times):
            for now, expected in ((one, one("Ada", 1)), (other, other("Ada", 5))):
                setattr(module, name, now)
                assert codec.decode(data) == [expected, expected]
        return len(gc.get_referents(codec))

    before = to_and_fro(10)
    assert to_and_fro(1000) == before


@pytest.mark.parametrize("name", [*NAMES, "Colour", "Reduced"])
def test_a_class_that_is_modified_when_its_name_comes_back_gets_no_more_numbers(module: ModuleType, name: str) -> None:
    codec = _Codec()
    outer, _, last = name.rpartition(".")
    first, second = walk(module, name), walk(run_cell(module), name)
    owner = walk(module, outer) if outer else module
    thing, stored = first.RED if name == "Colour" else first("Ada", 1), set()

    def to_and_fro(times: int) -> tuple[int, int, int]:
        for number in range(times):
            setattr(owner, last, first)
            first.count = number
            stored.add(codec.encode([thing, first]))
            setattr(owner, last, second)
            for data in stored:
                found, kind = codec.decode(data)
                assert kind is type(found) is second
        return len(stored), codec.type_count, len(gc.get_referents(codec))

    assert to_and_fro(5) == to_and_fro(50)


def test_other_changes_of_a_module_change_nothing(pile: gabion.Pile, module: ModuleType) -> None:
    pointer = pile.put(module.Plain("Ada", 1))
    types = pile.stats().types
    for number in range(1_000):
        module.VERSION = number
        setattr(module, f"name{number}", number)
        pile.replace(pointer, module.Plain("Ada", number))
        assert pile.get(pointer) == module.Plain("Ada", number)
    module.__dict__["".join(["Pl", "ain"])] = module.Plain
    sys.modules[module.__name__] = module
    assert pile.get(pointer) == module.Plain("Ada", 999)
    assert pile.stats().types == types


def test_a_cache_builds_what_the_name_leads_to(module: ModuleType) -> None:
    with gabion.Cache("1 MiB") as cache:
        old = module.Plain("Ada", 1)
        cache["ada"] = old
        reload(module)
        assert cache["ada"] == module.Plain("Ada", 1)
        with pytest.raises(gabion.CodecError, match="is another object by now"):
            cache["ada"] = old


@pytest.mark.skipif("t" in getattr(sys, "abiflags", ""), reason="classes are immortal there once a thread was started")
def test_a_pile_in_a_module_goes_with_it() -> None:
    module = ModuleType("redefined_gone")
    sys.modules[module.__name__] = module
    run_cell(module)
    module.pile = gabion.Pile()  # type: ignore[attr-defined]
    module.pile.put([module.Plain("Ada", 1), module.function])
    gone = weakref.ref(module.pile), weakref.ref(module.Plain)
    del sys.modules[module.__name__]
    del module
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_a_name_that_leads_to_no_class_any_more_is_told(pile: gabion.Pile, module: ModuleType) -> None:
    exec("class Stated:\n    def __getstate__(self):\n        return None", vars(module))
    stated = module.Stated
    pointer = pile.put(stated())
    module.Stated = lambda: None
    with pytest.raises(gabion.CodecError, match=r"leads to <function .*; bind it to a class again"):
        pile.get(pointer)
    module.Stated = stated
    assert type(pile.get(pointer)) is stated


ZONES = """
import datetime
class Zone(datetime.tzinfo):
    def utcoffset(self, when):
        return datetime.timedelta(hours=1)
class Made(Zone):
    def __reduce__(self):
        return make, ()
def make():
    return Made()
"""


@pytest.mark.parametrize(
    ("kind", "other", "told"),
    [
        ("Zone", "class Zone: pass", "an object of class Zone"),
        ("Made", "def make(): return None", "an object of class NoneType"),
    ],
)
def test_a_zone_whose_name_leads_to_none_any_more(
    pile: gabion.Pile, module: ModuleType, kind: str, other: str, told: str
) -> None:
    exec(ZONES, module.__dict__)
    zone = getattr(module, kind)()
    when = datetime.datetime(2020, 1, 2, 3, tzinfo=zone)
    pointers = pile.put_many([when, when.timetz(), [zone, when], {"at": when.timetz()}])
    assert pile.get(pointers[0]).utcoffset() == pile.get(pointers[2])[1].utcoffset() == datetime.timedelta(hours=1)
    exec(other, module.__dict__)
    for pointer in pointers:
        with pytest.raises(
            gabion.CodecError, match=f"leads to by now makes {told}, which is no tzinfo; bind the name to"
        ):
            pile.get(pointer)
    exec(ZONES, module.__dict__)
    assert pile.get(pointers[0]).utcoffset() == datetime.timedelta(hours=1)


def test_threads_beside_a_class_that_is_defined_anew(pile: gabion.Pile, module: ModuleType) -> None:
    pointers = pile.put_many([module.Plain("Ada", 1), module.Slotted("Ada", 1), module.Colour.RED, module.function])
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            plain, slotted, colour, function = pile.get_many(pointers)
            assert (plain.name, slotted.visits, colour.name, function.__name__) == ("Ada", 1, "RED", "function")
            with suppress(gabion.CodecError):
                pile.remove(pile.put([plain, slotted, colour, function]))

    def renew() -> None:
        for _ in range(40):
            run_cell(module)
            new = [module.Plain, module.Slotted, module.Colour.RED, module.function]
            plain, slotted, colour, function = pile.get_many(pointers)
            assert [type(plain), type(slotted), colour, function] == new
        over.set()

    run(work, work, work, renew)
