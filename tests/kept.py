"""How the tests of what a file keeps of classes define them, and hand a registry on."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from patience import HANGS

from gabion._native import _Codec  # type: ignore[attr-defined]

SHOP = """
@dataclasses.dataclass
class Person:
    name: str
    visits: int = 0

@dataclasses.dataclass(slots=True)
class Slotted:
    name: str
    visits: int = 0

@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    visits: int = 0

class Plain:
    def __init__(self, name, visits=0):
        self.name, self.visits = name, visits
    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)
    __hash__ = None

class Base:
    __slots__ = ("name",)
    def __init__(self, name, visits=0):
        self.name, self.visits = name, visits
    def __eq__(self, other):
        return type(self) is type(other) and (self.name, self.visits) == (other.name, other.visits)
    __hash__ = None

class Heir(Base):
    __slots__ = ("visits",)

class Pair(typing.NamedTuple):
    name: str
    visits: int = 0

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

class Access(enum.Flag):
    READ = 1
    WRITE = 2

class Outer:
    class Inner(Plain):
        pass

class Failure(Exception):
    pass

def greet(name):
    return "hello " + name
"""

OBJECTS = {
    "dataclass": "Person('Ada', 3)",
    "slotted": "Slotted('Ada', 3)",
    "frozen": "Frozen('Ada', 3)",
    "plain": "Plain('Ada', 3)",
    "slots": "Heir('Ada', 3)",
    "named tuple": "Pair('Ada', 3)",
    "enum": "Colour.BLUE",
    "flag": "Access.WRITE",
    "flags": "Access.READ | Access.WRITE",
    "inner": "Outer.Inner('Ada', 3)",
    "class": "Person",
    "function": "greet",
    "method of a class": "Outer.Inner.__eq__",
}


def text(data):
    return len(data).to_bytes(4, "little") + data


def record(kind, body):
    return bytes([kind]) + text(body)


def reopened(codec: Any, types: Any = None) -> Any:
    """A codec as another process has it that opens the file."""
    fresh = _Codec(types)
    fresh.restore(codec.describe())
    return fresh


def define(source: str, name: str = "shop") -> ModuleType:
    """A module of that source in place of the one before: what the next run of a program finds."""
    module = ModuleType(name)
    sys.modules[name] = module
    exec("import collections, dataclasses, enum, typing\n" + source, module.__dict__)
    return module


@contextlib.contextmanager
def no_module(*names: str) -> Iterator[None]:
    """Without these modules, in the end as well."""
    for name in names:
        sys.modules.pop(name, None)
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture
def shop() -> Iterator[Callable[[str], ModuleType]]:
    """Defines the module `shop`, which is gone after the test."""
    with no_module("shop"):
        yield define


def run(folder: Path, program: str) -> str:
    """Runs a program that finds modules in a folder, none of them compiled by another one. Returns what it prints."""
    script = folder / "program.py"
    script.write_text(
        "import os, sys\nfrom pathlib import Path\nfrom gabion._native import CodecError, _Codec\n" + program
    )
    done = subprocess.run(
        [sys.executable, "-B", str(script)], check=False, capture_output=True, text=True, timeout=HANGS, cwd=folder
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
