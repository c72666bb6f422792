"""help(gabion.memory.rent) and the others are worth reading: a sentence, examples that run, nothing undocumented."""

import doctest
import importlib
import inspect
from types import ModuleType
from typing import Any

import pytest

import gabion.memory
import gabion.numpy

MODULES = [gabion.memory, gabion.numpy]
DOCUMENTED = [
    "gabion.memory.rent",
    "gabion.memory.rent_group",
    "gabion.memory.configure",
    "gabion.memory.stats",
    "gabion.memory.track",
    "gabion.memory.Buffer",
    "gabion.memory.Group",
    "gabion.memory.Buffer.release",
    "gabion.numpy.install",
    "gabion.numpy.pooled",
    "gabion.memory",
    "gabion.numpy",
]


def find(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        return getattr(find(parent), name)


@pytest.mark.parametrize("path", DOCUMENTED)
def test_examples_run(path: str) -> None:
    if path.startswith("gabion.numpy"):
        pytest.importorskip("numpy")
    thing = find(path)
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", {}, path, None, 0)
    assert examples.examples, "there is no example"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=said.append)
    assert said == []


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_name_has_its_text(module: ModuleType) -> None:
    for name in module.__all__:
        thing = getattr(module, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and thing.__module__.startswith("gabion"):
            for attribute in vars(thing):
                if not attribute.startswith("_") and type(vars(thing)[attribute]).__name__ != "member_descriptor":
                    assert inspect.getdoc(getattr(thing, attribute)), f"{name}.{attribute}"


def test_signatures_are_those_of_the_contract() -> None:
    shown = {name: str(inspect.signature(getattr(gabion.memory, name))) for name in ("rent", "rent_group", "trim")}
    assert shown == {
        "rent": "(nbytes, *, clean=False, contiguous=True, timeout=None)",
        "rent_group": "(nbytes, *, row_bytes=None, clean=False, timeout=None)",
        "trim": "(all=False)",
    }
    names = list(inspect.signature(gabion.memory.configure).parameters)
    assert names == ["pool_bytes", "arenas", "trim_period", "allocation_limit", "total_limit", "trim_malloc"]


def test_figures() -> None:
    figures = gabion.memory.stats()
    shown = figures.as_dict()
    arenas = shown.pop("arenas")
    assert all(getattr(figures, name) == value for name, value in shown.items())
    assert [arena.as_dict() for arena in figures.arenas] == arenas
    assert {"in_use", "idle", "mapped", "peak", "pool_bytes", "total_limit"} <= shown.keys()
    names = {name for name in vars(type(figures)) if not name.startswith("_")}
    assert {*shown, "arenas"} == names - {"as_dict"}
    listed = ", ".join(f"{name}={value!r}" for name, value in shown.items())
    assert repr(figures) == f"MemoryStats({listed}, arenas={figures.arenas!r})"
    for arena in figures.arenas:
        assert repr(arena).startswith("ArenaStats(rented=")
