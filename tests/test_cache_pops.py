"""pop() of values whose building meddles, fails, or goes on for long."""

from collections.abc import Iterator
from typing import Any

import pytest
from model import Unbuildable

import gabion
from gabion import Cache


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache
        cache.validate()


class Renewing:
    """Puts a new value in its place each time it is built, and may fail after that."""

    cache: Cache
    built = 0
    broken = False

    def __reduce__(self) -> Any:
        return _renew, ()


def _renew() -> str:
    Renewing.built += 1
    if Renewing.built > 100:  # for ever
        Renewing.cache.discard("k")
    elif Renewing.built < 20:
        Renewing.cache.put("k", (Renewing.built, Renewing()))
    if Renewing.broken and Renewing.built > 4:
        Renewing.cache.discard("k")
        raise RuntimeError("cannot be built any more")
    return "built"


def test_a_value_that_is_renewed_each_time_is_popped(cache: Cache) -> None:
    Renewing.cache, Renewing.built = cache, 0
    try:
        cache["k"] = (0, Renewing())
        number, built = cache.pop("k")
        assert (number, built, Renewing.built) == (4, "built", 5)
        figures = cache.stats()
        assert (figures.hits, figures.misses, figures.removed) == (1, 0, 1)
        # What was put last is newer.
        assert "k" in cache
    finally:
        del Renewing.cache


def test_a_value_that_is_renewed_and_cannot_be_built_goes_back(cache: Cache) -> None:
    Renewing.cache, Renewing.built, Renewing.broken = cache, 0, True
    try:
        cache["k"] = (0, Renewing())
        with pytest.raises(gabion.CodecError):
            cache.pop("k")
        assert Renewing.built == 5
        # One that the value puts in its own place and discards again, and no trace of the pop.
        figures = cache.stats()
        assert (figures.hits, figures.misses, figures.inserted, figures.removed, figures.entries) == (0, 0, 2, 1, 1)
        Renewing.built, Renewing.broken = 100, False
        assert cache.get("k") == (4, "built")
    finally:
        Renewing.broken = False
        del Renewing.cache


class ClosingWhenBuilt:
    """Closes its cache when it is built."""

    cache: Cache

    def __reduce__(self) -> Any:
        return _close_when_built, ()


def _close_when_built() -> str:
    ClosingWhenBuilt.cache.close()
    return "built"


def test_a_pop_from_a_cache_that_is_closed_meanwhile_says_so() -> None:
    ClosingWhenBuilt.cache = cache = Cache("1 MiB")
    cache["k"] = ClosingWhenBuilt()
    with pytest.raises(gabion.ClosedError):
        cache.pop("k", None)
    del ClosingWhenBuilt.cache


def test_a_pop_that_fails_is_no_hit(cache: Cache) -> None:
    cache["k"] = Unbuildable()
    Unbuildable.broken = True
    try:
        with pytest.raises(gabion.CodecError):
            cache.pop("k")
    finally:
        Unbuildable.broken = False
    assert cache.stats().hits == 0
    cache.pop("k")
    assert cache.pop("k", None) is None
    assert (cache.stats().hits, cache.stats().misses) == (1, 1)
