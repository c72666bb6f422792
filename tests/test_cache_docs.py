"""help(gabion.Cache) is worth reading: examples that run, nothing undocumented."""

import doctest
import inspect
from typing import Any

import pytest

import gabion
import gabion.cache


def documented() -> dict[str, Any]:
    """The module, its classes, and their public methods, inherited ones among them."""
    found: dict[str, Any] = {"gabion.cache": gabion.cache}
    for owner in (gabion.Cache, gabion.Table, gabion.CacheStats, gabion.PutResult):
        found[owner.__name__] = owner
        for name in dir(owner):
            # Members of an enum are told of by their class.
            if not name.startswith("_") and not isinstance(getattr(owner, name), owner):
                found[f"{owner.__name__}.{name}"] = getattr(owner, name)
    return found


EXAMPLES = {name: thing for name, thing in documented().items() if ">>>" in (inspect.getdoc(thing) or "")}


def test_the_examples_are_found() -> None:
    assert {"gabion.cache", "Cache", "Cache.get_many", "Cache.get_or_put", "Cache.memoize"} <= EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str) -> None:
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(EXAMPLES[name]) or "", {}, name, None, 0)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples, out=said.append)
    assert said == []


def test_every_name_has_its_text() -> None:
    assert [name for name, thing in documented().items() if not inspect.getdoc(thing)] == []


@pytest.mark.parametrize("name", ["Cache", "Pile"])
def test_what_making_one_raises_is_told(name: str) -> None:
    text = inspect.getdoc(getattr(gabion, name)) or ""
    assert "MemoryError where there is no memory for a new one" in " ".join(text.split())
