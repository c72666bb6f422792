"""Names that take as much room as what they stand for: a file describes them in records, none of which may be too long
for its log."""

import collections
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kept import reopened

import gabion
from gabion._native import _Codec

NAMES = [f"a_name_of_thirty_letters_{number:07}" for number in range(130_000)]


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    made = sys.modules["long_names"] = types.ModuleType("long_names")
    yield made
    del sys.modules["long_names"]


def as_slots(module: types.ModuleType) -> Any:
    kind = type("Slots", (), {"__slots__": NAMES, "__module__": module.__name__})
    made = kind()
    for number, name in enumerate(NAMES):
        setattr(made, name, number)
    return made


def as_attributes(module: types.ModuleType) -> Any:
    made = type("Attributes", (), {"__module__": module.__name__})()
    vars(made).update(zip(NAMES, range(len(NAMES)), strict=True))
    return made


def as_named_tuple(module: types.ModuleType) -> Any:
    return collections.namedtuple("Items", NAMES, module=module.__name__)(*range(len(NAMES)))


def as_dataclass(module: types.ModuleType) -> Any:
    # Its fields have defaults, and no instance has a value of its own.
    fields = [(name, int, dataclasses.field(default=0, repr=False, compare=False)) for name in NAMES[:40_000]]
    kind = type("Declaring", (), {"__module__": module.__name__, "__annotations__": {}})
    for name, of, field in fields:
        kind.__annotations__[name] = of
        setattr(kind, name, field)
    kind.__annotations__["long" * 1_000_000] = int
    setattr(kind, "long" * 1_000_000, 1)
    kind = dataclasses.dataclass(init=False, repr=False, eq=False)(kind)
    return kind()


def parts(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [getattr(made, name) for name in NAMES[:40_000]]


MAKERS = [as_slots, as_attributes, as_named_tuple, as_dataclass]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_an_object_of_many_names_leaves_its_pile_as_good(
    tmp_path: Path, module: types.ModuleType, make: Callable[[types.ModuleType], Any]
) -> None:
    made = make(module)
    kind = type(made)
    setattr(module, kind.__name__, kind)
    with gabion.Pile(path=tmp_path / "pile") as pile:
        pointer = pile.put(made)
        two, other = pile.put(2), pile.put(gabion.CodecError)
        first = parts(pile.get(pointer))
        assert first == parts(made)
    with gabion.Pile(path=tmp_path / "pile", types="*") as pile:
        assert parts(pile.get(pointer)) == first
        assert (pile.get(two), pile.get(other)) == (2, gabion.CodecError)
        assert pile.get(pile.replace(pointer, made) or pointer).__class__ is kind
        pile.validate()


def test_many_classes_of_long_names_are_described(tmp_path: Path, module: types.ModuleType) -> None:
    made = []
    for number in range(4000):
        kind = type(f"of_a_long_name_{number:01900}", (), {"__slots__": ("a",), "__module__": module.__name__})
        setattr(module, kind.__name__, kind)
        made.append(kind())
        made[-1].a = number
    with gabion.Pile(path=tmp_path / "pile") as pile:
        pointer = pile.put(made)
        two = pile.put(2)
        pile.save(tmp_path / "saved")
    for name in ("pile", "saved"):
        with gabion.Pile(path=tmp_path / name, types="*") as pile:
            assert [(type(one), one.a) for one in pile.get(pointer)] == [(type(one), one.a) for one in made]
            assert pile.get(two) == 2


def test_a_class_of_a_name_that_no_file_describes_is_refused(tmp_path: Path, module: types.ModuleType) -> None:
    kind = type("long" * 1_100_000, (), {"__slots__": ("a",), "__module__": module.__name__})
    setattr(module, kind.__name__, kind)
    with gabion.Pile(path=tmp_path / "pile") as pile:
        for made in (kind, kind()):
            with pytest.raises(gabion.CodecError, match="its name is too long") as error:
                pile.put(made)
            assert len(str(error.value)) < 1000
        assert pile.get(pile.put(Path("a"))) == Path("a")


def test_names_up_to_a_length_are_described_once(module: types.ModuleType) -> None:
    module.Some = kind = type("Some", (), {"__module__": module.__name__})  # type: ignore[attr-defined]
    for count, once in ((1500, True), (2500, False)):
        made = kind()
        vars(made).update(dict.fromkeys(NAMES[:count], 1))
        codec = _Codec()
        codec.encode(made)
        assert (len(codec.encode(made)) < 2 * count) is once
        assert vars(reopened(codec, [kind]).decode(codec.encode(made))) == vars(made)
