"""Classes and functions that get another name, or another module, while what is found by the name before is stored."""

import gc
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import gabion
from gabion._native import _Codec  # type: ignore[attr-defined]

SOURCES = {
    "attributes": """
class Thing:
    def __init__(self, name="Ada"):
        self.name = name
""",
    "slots": """
class Thing:
    __slots__ = ("name",)
    def __init__(self, name="Ada"):
        self.name = name
""",
    "named tuple": """
import typing
class Thing(typing.NamedTuple):
    name: str = "Ada"
""",
    "enum": """
import enum
class Thing(enum.Enum):
    RED = 1
""",
    "reduced": """
class Thing(list):
    pass
""",
}


@pytest.fixture
def module() -> Iterator[ModuleType]:
    names = ["renamed_models", "renamed_elsewhere"]
    modules = [ModuleType(name) for name in names]
    sys.modules.update(zip(names, modules, strict=True))
    yield modules[0]
    for name in names:
        del sys.modules[name]


def define(module: ModuleType, kind: str) -> Any:
    exec(SOURCES[kind], vars(module))
    return module.Thing


def make(cls: Any) -> Any:
    return cls.RED if hasattr(cls, "RED") else cls()


def rename(thing: Any, name: str) -> None:
    thing.__name__ = thing.__qualname__ = name
    setattr(sys.modules[thing.__module__], name, thing)


def move(thing: Any, name: str) -> None:
    """To another module, where it has the name that it had."""
    thing.__module__ = "renamed_elsewhere"
    setattr(sys.modules[thing.__module__], thing.__name__, thing)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("change", [rename, move])
@pytest.mark.parametrize("new_at", ["once", "after a put", "after a get", "never"])
def test_a_class_that_gets_another_name(
    pile: gabion.Pile, module: ModuleType, kind: str, change: Any, new_at: str
) -> None:
    old = define(module, kind)
    before = [pile.put(make(old)), pile.put([make(old), old])]
    dumped = pickle.dumps(make(old))
    change(old, "Other")
    if new_at == "once":
        define(module, kind)
    elif new_at == "never":
        del module.Thing
    after = [pile.put(make(old)), pile.put([make(old), old])]
    if new_at == "after a get":
        assert type(pile.get(after[0])) is old
    if new_at != "never":
        new = define(module, kind)
        for _ in range(2):
            assert type(pile.get(before[0])) is type(pickle.loads(dumped)) is new
            assert [type(pile.get(before[1])[0]), pile.get(before[1])[1]] == [new, new]
            for cls in (new, old):
                assert type(pile.get(pile.put(make(cls)))) is type(pickle.loads(pickle.dumps(make(cls)))) is cls
                assert pile.get(pile.put([make(cls), cls]))[1] is cls
    for _ in range(2):
        assert type(pile.get(after[0])) is old
        assert [type(pile.get(after[1])[0]), pile.get(after[1])[1]] == [old, old]


def test_a_class_inside_a_class_that_gets_another_name(pile: gabion.Pile, module: ModuleType) -> None:
    module.Outer = type("Outer", (), {"__module__": module.__name__})  # type: ignore[attr-defined]
    old = module.Outer.Thing = define(module, "slots")
    old.__qualname__ = "Outer.Thing"
    before = pile.put_many([old(), old()])[0]
    rename(old, "Thing")
    after = pile.put(old())
    new = type("Thing", (), {"__module__": module.__name__, "__qualname__": "Outer.Thing", "name": "none"})
    module.Outer.Thing = new
    assert [type(found) for found in pile.get_many([before, after])] == [new, old]
    assert type(pile.get(pile.put(new()))) is new


def test_a_name_that_comes_back_takes_no_more_memory(module: ModuleType) -> None:
    for kind in SOURCES:
        codec = _Codec()
        cls = define(module, kind)

        def there_and_back(times: int, cls: Any = cls, codec: Any = codec) -> tuple[int, int]:
            for number in range(2 * times):
                # Another text of the same letters each time.
                rename(cls, "".join(["Th", "ing"] if number % 2 else ["Oth", "er"]))
                found, same = codec.decode(codec.encode([make(cls), cls]))
                assert (type(found), same) == (cls, cls)
            return codec.type_count, len(gc.get_referents(codec))

        assert there_and_back(3) == there_and_back(300)
