"""Values that serve on when their time is over, while one caller makes newer ones."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from patience import eventually

import gabion
from gabion.testing import advance


@pytest.fixture
def cache() -> Iterator[gabion.Cache]:
    with gabion.Cache("8 MiB") as cache:
        yield cache
        assert not cache._gabion_flights.in_flight


def test_a_value_is_made_anew_when_its_own_time_is_over_and_not_before(cache):
    numbers = itertools.count()

    def ask() -> int:
        return cache.get_or_put("k", lambda: next(numbers), ttl=60, stale="10 min")

    assert [ask(), ask()] == [0, 0]
    assert 650 < cache.expires_in("k") <= 660
    advance(59)
    assert ask() == 0
    advance(2)
    assert [ask(), ask()] == [1, 1]
    assert 650 < cache.expires_in("k") <= 660
    # Beyond both it is a miss as any other.
    advance(661)
    assert "k" not in cache
    assert ask() == 2


def test_others_have_the_old_value_at_once_while_one_makes_the_next(cache):
    cache.put("k", "old", ttl=5)
    begun, go, made = threading.Event(), threading.Event(), []

    def slow() -> str:
        begun.set()
        assert go.wait(30)
        return "new"

    maker = threading.Thread(target=lambda: made.append(cache.get_or_put("k", slow, ttl=60, stale=60)))
    maker.start()
    assert begun.wait(30)
    never: Any = pytest.fail
    assert [cache.get_or_put("k", never, ttl=60, stale=60, timeout=0) for _ in range(3)] == ["old"] * 3
    assert cache["k"] == "old"
    go.set()
    maker.join()
    assert (made, cache["k"]) == (["new"], "new")
    assert cache.get_or_put("k", never, ttl=60, stale=60) == "new"


def test_who_comes_when_the_old_value_is_gone_waits_for_the_one_that_is_being_made(cache):
    cache.put("k", "old", ttl=5)
    begun, go, made = threading.Event(), threading.Event(), []

    def slow() -> str:
        begun.set()
        assert go.wait(30)
        return "new"

    def ask() -> None:
        made.append(cache.get_or_put("k", slow, ttl=60, stale=60))

    threads = [threading.Thread(target=ask)]
    threads[0].start()
    assert begun.wait(30)
    begun.clear()
    advance(6)
    threads.append(threading.Thread(target=ask))
    threads[1].start()
    assert not begun.wait(0.1)
    go.set()
    for thread in threads:
        thread.join()
    assert made == ["new"] * 2


def test_where_the_factory_fails_the_old_value_serves_and_the_log_has_the_error(cache, caplog):
    cache.put("k", "old", ttl=5)

    def down() -> str:
        raise OSError("source down")

    with caplog.at_level(logging.WARNING, "gabion.cache"):
        assert cache.get_or_put("k", down, ttl=60, stale=60) == "old"
    (record,) = caplog.records
    assert record.name == "gabion.cache"
    assert "'k'" in record.getMessage()
    assert "source down" in caplog.text
    # The next call tries again, and where there is no old value any more, it has the error.
    assert cache.get_or_put("k", lambda: "new", ttl=60, stale=60) == "new"
    cache.discard("k")
    with pytest.raises(OSError, match="source down"):
        cache.get_or_put("k", down, ttl=60, stale=60)


def test_what_is_no_error_of_the_factory_is_not_kept_from_its_caller(cache):
    cache.put("k", "old", ttl=5)

    def interrupted() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get_or_put("k", interrupted, ttl=60, stale=60)
    assert cache.get_or_put("k", lambda: "new", ttl=60, stale=60) == "new"


def test_a_value_that_was_put_or_discarded_meanwhile_is_not_written_over(cache):
    for change, left in (lambda: cache.put("k", "put"), "put"), (lambda: cache.discard("k"), None):
        cache.put("k", "old", ttl=5)

        def factory(change: Any = change) -> str:
            change()
            return "made of old facts"

        assert cache.get_or_put("k", factory, ttl=60, stale=60) == "made of old facts"
        assert cache.get("k") == left


def test_a_factory_that_asks_for_its_own_key_has_the_old_value(cache):
    cache.put("k", 1, ttl=5)

    def more() -> int:
        return cache.get_or_put("k", more, ttl=60, stale=60) + 1

    assert cache.get_or_put("k", more, ttl=60, stale=60) == 2


def test_the_time_of_its_own_may_be_the_tables_or_the_values(cache):
    table = cache.table("t", ttl=60)
    assert table.get_or_put("k", lambda: 1, stale=600) == 1
    assert 650 < table.expires_in("k") <= 660
    assert table.get_or_put("f", lambda: 30, ttl=lambda made: made, stale=600) == 30
    assert 620 < table.expires_in("f") <= 630
    assert table.get_or_put("none", lambda: 30, ttl=lambda _: None, stale=600) == 30
    assert 650 < table.expires_in("none") <= 660
    assert table.get_or_put("inf", lambda: 30, ttl=lambda _: float("inf"), stale=600) == 30
    assert table.expires_in("inf") == float("inf")
    assert table.get_or_put("0", lambda: 30, ttl=lambda _: 0, stale=600) == 30
    assert "0" not in table
    with pytest.raises(ValueError, match="what ttl returned"):
        table.get_or_put("bad", lambda: 30, ttl=lambda _: -1, stale=600)
    # Without a time to be stale in, all is as before.
    assert table.get_or_put("plain", lambda: 1, stale=0) == table.get_or_put("plain", lambda: 2, stale=None) == 1
    assert table.expires_in("plain") <= 60


@pytest.mark.parametrize("stale", [1e10, float("inf"), "80000 weeks"])
def test_a_value_that_serves_on_for_ever_is_made_anew_all_the_same(cache, stale):
    numbers = itertools.count()

    def ask() -> int:
        return cache.get_or_put("k", lambda: next(numbers), ttl=60, stale=stale)

    assert [ask(), ask()] == [0, 0]
    advance("1 h")
    assert [ask(), ask()] == [1, 1]


def test_what_has_no_end_of_its_own_is_refused(cache):
    def ask(of: Any = cache, **times: Any) -> Any:
        return of.get_or_put("k", lambda: pytest.fail("ran"), **times)

    idle = cache.table("idle", ttl=60, idle=10)
    for of, times, text in (
        (cache, {"stale": 60}, "give ttl=, or use a table that has one"),
        (cache, {"stale": 60, "ttl": float("inf")}, "give ttl="),
        (cache, {"stale": 60, "ttl": 60, "idle": 5}, "no idle time"),
        (idle, {"stale": 60}, "no idle time"),
        (cache, {"stale": 60, "expires_at": 4e9}, "not of expires_at"),
        (cache, {"stale": -1, "ttl": 60}, "stale"),
    ):
        with pytest.raises(ValueError, match=text):
            ask(of, **times)
        with pytest.raises(ValueError, match=text):
            of.memoize(**times)
    with pytest.raises(TypeError, match="stale"):
        ask(stale=[], ttl=60)


def test_tasks_have_the_old_value_while_one_of_them_makes_the_next(cache, caplog):
    async def main() -> None:
        cache.put("k", "old", ttl=5)
        go, calls = asyncio.Event(), []

        async def fetch() -> str:
            calls.append(1)
            await go.wait()
            return "new"

        async def ask() -> str:
            return await cache.get_or_put("k", fetch, ttl=60, stale=60)

        first = asyncio.create_task(ask())
        while not calls:
            await asyncio.sleep(0)
        assert await asyncio.gather(*(ask() for _ in range(10))) == ["old"] * 10
        assert not first.done()
        go.set()
        assert await first == "new"
        assert (await ask(), len(calls)) == ("new", 1)

        async def down() -> str:
            raise OSError("source down")

        cache.put("k", "old", ttl=5)
        assert await cache.get_or_put("k", down, ttl=60, stale=60) == "old"
        assert "source down" in caplog.text
        # A caller that is gone takes the making with it, and the next one does it.
        go.clear()
        leaving = asyncio.create_task(ask())
        while len(calls) < 2:
            await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        go.set()
        assert (await ask(), len(calls)) == ("new", 3)

    asyncio.run(main())


def test_memoized_functions_serve_old_results(cache):
    numbers = itertools.count()

    @cache.memoize(ttl=60, stale=600)
    def area(width: int, height: int = 1) -> tuple[int, int]:
        return width * height, next(numbers)

    assert [area(3, height=2), area(3, height=2)] == [(6, 0)] * 2
    advance(61)
    assert [area(3, height=2), area(3, height=2)] == [(6, 1)] * 2
    assert area.cache_stats().entries == 1

    @cache.memoize(ttl=60, stale=600)
    async def fetch(number: int) -> tuple[int, int]:
        return number, next(numbers)

    assert asyncio.run(fetch(1)) == asyncio.run(fetch(1)) == (1, 2)
    advance(61)
    assert asyncio.run(fetch(1)) == asyncio.run(fetch(1)) == (1, 3)


def test_threads_make_each_value_once_in_its_time(cache):
    runs, lock = [0], threading.Lock()

    def factory() -> int:
        with lock:
            runs[0] += 1
            return runs[0]

    def ask() -> None:
        seen = 0
        for _ in range(2_000):
            value = cache.get_or_put("k", factory, ttl=0.02, stale=60)
            assert value >= seen
            seen = value

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.validate()
    assert runs[0] >= 1
    assert cache["k"] == runs[0]


def test_a_newer_value_that_is_not_to_be_kept_takes_the_old_one_away(cache):
    for made in (None, 7):
        cache.put("k", "old", ttl=5)
        value = cache.get_or_put("k", lambda made=made: made, ttl=lambda made: 60 if made else 0, stale=60)
        assert (value, cache.get("k", "gone")) == (made, made or "gone")

    async def nothing() -> None:
        return None

    cache.put("k", "old", ttl=5)
    assert asyncio.run(cache.get_or_put("k", nothing, ttl=lambda _: 0, stale=60)) is None
    assert "k" not in cache


def test_mistakes_of_the_program_are_its_own(cache, caplog):
    async def coroutine() -> str:
        return "awaited"

    wrong: list[tuple[Any, Any, str]] = [
        (7, 60, "not int"),
        (lambda: coroutine(), 60, "to be awaited"),
        (lambda: "new", lambda _: "soon", "what ttl returned"),
        (lambda: threading.Lock(), 60, "lock"),
    ]
    for factory, ttl, text in wrong:
        cache.put("k", "old", ttl=5)
        with pytest.raises((TypeError, ValueError, gabion.CodecError), match=text):
            cache.get_or_put("k", factory, ttl=ttl, stale=60)
        assert cache["k"] == "old"

    async def fetch() -> Any:
        return threading.Lock()

    with pytest.raises(gabion.CodecError, match="lock"):
        asyncio.run(cache.get_or_put("k", fetch, ttl=60, stale=60))
    assert not caplog.records


@pytest.mark.parametrize("how", ["closed", "left", "gone"])
def test_one_that_is_left_in_a_loop_keeps_nobody_from_making_the_next(cache, how: str) -> None:
    cache.put("k", "old", ttl=600)

    async def hang() -> str:
        await asyncio.sleep(1000)
        return "never"

    loop = asyncio.new_event_loop()
    task = loop.create_task(cache.get_or_put("k", hang, ttl=60, stale=600))
    loop.run_until_complete(asyncio.sleep(0.01))
    if how != "left":
        loop.close()
    if how == "gone":
        task = None
        del loop
        gc.collect()

    def ask() -> bool:
        return cache.get_or_put("k", lambda: "new", ttl=60, stale=600) == "new"

    assert eventually(ask)
    assert cache["k"] == "new"
    if how == "left":
        loop.call_soon(task.cancel)
        loop.run_until_complete(asyncio.wait([task]))
        loop.close()
