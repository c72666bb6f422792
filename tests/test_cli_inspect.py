"""`gabion inspect` from outside."""

import json
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest
from patience import HANGS

import gabion


@dataclass(slots=True)
class Person:
    name: str
    tags: list[str]


class Point(NamedTuple):
    x: int
    y: int


class Kind(Enum):
    OLD = 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "people[bold].pile"
    with gabion.Pile(path=path) as pile:
        pile.put_many([Person(f"Person {at}", []) for at in range(1000)])
        pile.put_many(
            [Point(1, 2), Kind.OLD, deque([1]), Fraction(1, 3), Person, len, None, True, {1}, b"x" * 3_000_000]
        )
        pile.root = pile.put({"a": 1})
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gabion", "inspect", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANGS)


def test_it_tells_what_is_in_a_file(path: Path) -> None:
    before = path.read_bytes()
    done = run(path)
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        f"{path} is sound", "1,011, 2.9 MiB", "1 over 1 MiB", "of objects", "of the log", ", dict",
        f"{__name__}.Person", "name, tags", f"{__name__}.Point", "x, y", "1,000",
    ):  # fmt: skip
        assert text in done.stdout, text
    assert path.read_bytes() == before
    assert done.stdout.splitlines()[-1] == f"types=[len, {__name__}.Kind, {__name__}.Person, {__name__}.Point]"


def test_it_tells_machines_the_same(path: Path) -> None:
    found = json.loads(run(path, "--json").stdout)
    assert found["objects"] == 1011
    assert found["root_kind"] == "dict"
    assert found["objects_of"] == {
        f"{__name__}.Person": 1000, f"{__name__}.Point": 1, f"{__name__}.Kind": 1, "collections.deque": 1,
        "fractions.Fraction": 1, f"{__name__}.Person itself": 1, "builtins.len itself": 1, "NoneType": 1, "bool": 1,
        "set": 1, "bytes": 1, "dict": 1,
    }  # fmt: skip
    assert sum(found["bytes_of"].values()) == found["used_bytes"]
    assert found["types_to_allow"] == ["len", f"{__name__}.Kind", f"{__name__}.Person", f"{__name__}.Point"]
    assert found["fields_of"] == {f"{__name__}.Person": ["name", "tags"], f"{__name__}.Point": ["x", "y"]}


def test_an_empty_pile(tmp_path: Path) -> None:
    gabion.Pile(path=tmp_path / "empty").close()
    done = run(tmp_path / "empty")
    assert done.returncode == 0
    assert "0, 0 B" in done.stdout
    assert "class" not in done.stdout
    assert "types=" not in done.stdout


def test_names_that_somebody_made_up_are_not_shown_as_code(tmp_path: Path) -> None:
    class Local:
        pass

    Local.__qualname__ = "Person, eval('x')"
    setattr(sys.modules[__name__], Local.__qualname__, Local)
    with gabion.Pile(path=tmp_path / "pile") as pile:
        pile.put_many([Local(), deque()])
    found = json.loads(run(tmp_path / "pile", "--json").stdout)
    assert found["types_to_allow"] == [rf'{{"{__name__}.Person, eval(\'x\')": ...}}']
    with gabion.Pile(path=tmp_path / "plain") as pile:
        pile.put_many([deque(), Fraction(1, 3), ValueError(), 5])
    assert json.loads(run(tmp_path / "plain", "--json").stdout)["types_to_allow"] == []


def test_what_cannot_be_told(path: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "missing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gabion: {tmp_path / 'missing'}: No such file or directory\n"
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (2, f"gabion: {tmp_path}: Is a directory\n")
    with gabion.Pile(path=path):
        done = run(path)
        assert done.returncode == 2
        assert "the file is open already" in done.stderr
    damaged = bytearray(path.read_bytes())
    damaged[16 << 20] ^= 1
    path.write_bytes(damaged)
    done = run(path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "is damaged at byte" in done.stderr
