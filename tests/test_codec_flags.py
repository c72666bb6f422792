"""Flags and their combinations: kept by the names of their members, whatever values these get."""

import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gabion

BEFORE = """
class Perm(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    SHARE = enum.auto()
    BOTH = READ | SHARE

class Mode(enum.IntFlag):
    READ = 1
    WRITE = 2
"""
AFTER = """
class Perm(enum.Flag):
    EXEC = enum.auto()
    SHARE = enum.auto()
    READ = enum.auto()
    WRITE = enum.auto()
    BOTH = READ | SHARE

class Mode(enum.IntFlag):
    EXEC = 1
    WRITE = 2
    READ = 4
"""


@pytest.fixture
def module() -> Iterator[ModuleType]:
    made = ModuleType("a_module_with_flags")
    made.__dict__["enum"] = enum
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def names(flags: list[Any]) -> list[set[str]]:
    return [{member.name for member in flag} for flag in flags]


def some(module: ModuleType) -> list[Any]:
    perm, mode = module.Perm, module.Mode
    return [
        perm.READ, perm.READ | perm.WRITE, perm.READ | perm.WRITE | perm.SHARE, perm.BOTH, perm.BOTH | perm.WRITE,
        mode.WRITE, mode.READ | mode.WRITE, perm(0), mode(0), ~perm.READ,
    ]  # fmt: skip


def test_combinations_come_back_as_they_are(module: ModuleType, pile: gabion.Pile) -> None:
    exec(BEFORE, module.__dict__)
    for flag in some(module):
        assert pile.get(pile.put(flag)) is flag
    flags = some(module) * 2
    assert all(one is other for one, other in zip(pile.get(pile.put(flags)), flags, strict=True))
    by_flag = {flag: flag for flag in flags}
    assert pile.get(pile.put(by_flag)) == by_flag


def test_combinations_keep_their_parts_when_the_class_is_defined_anew(module: ModuleType, pile: gabion.Pile) -> None:
    exec(BEFORE, module.__dict__)
    expected, pointers, cache = names(some(module)), pile.put_many(some(module)), gabion.Cache("16 MiB")
    cache["flags"] = some(module)
    exec(AFTER, module.__dict__)
    assert names(pile.get_many(pointers)) == expected
    assert names(cache["flags"]) == expected
    assert all(type(flag) in (module.Perm, module.Mode) for flag in pile.get_many(pointers))


def test_combinations_in_a_file_keep_their_parts(module: ModuleType, tmp_path: Path) -> None:
    exec(BEFORE, module.__dict__)
    expected = names(some(module))
    with gabion.Pile(path=tmp_path / "flags.pile") as pile:
        pointers = pile.put_many(some(module))
    exec(AFTER, module.__dict__)
    with gabion.Pile(path=tmp_path / "flags.pile", types=[module.Perm, module.Mode]) as pile:
        assert names(pile.get_many(pointers)) == expected
    with gabion.Pile(path=tmp_path / "flags.pile") as pile, pytest.raises(gabion.CodecError, match="Perm"):
        pile.get(pointers[1])


def test_a_part_that_is_gone_is_told(module: ModuleType, pile: gabion.Pile) -> None:
    exec(BEFORE, module.__dict__)
    ptr = pile.put(module.Perm.READ | module.Perm.WRITE)
    exec("class Perm(enum.Flag):\n    WRITE = 1", module.__dict__)
    with pytest.raises(gabion.CodecError, match="cannot rebuild 'READ' of"):
        pile.get(ptr)
    exec("class Perm(enum.Enum):\n    READ = 1\n    WRITE = 2\n    OTHER = 3", module.__dict__)
    with pytest.raises(gabion.CodecError, match=r"cannot rebuild 'READ\|WRITE' of"):
        pile.get(ptr)


def test_bits_that_are_nobodys_are_kept_by_value(module: ModuleType, pile: gabion.Pile) -> None:
    exec(
        "class Loose(enum.IntFlag, boundary=enum.KEEP):\n    READ = 1\n    WRITE = 2\n"
        "class Wide(enum.Flag):\n    A = 1 << 70\n    B = 1 << 90",
        module.__dict__,
    )
    loose, wide = module.Loose, module.Wide
    for flag in (loose(8), loose.READ | 8, loose.READ | loose.WRITE | 1 << 80, loose(-1), wide.A | wide.B):
        found = pile.get(pile.put(flag))
        assert found is flag or (type(found), found.value) == (type(flag), flag.value)
