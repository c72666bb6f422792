"""Factories left in an event loop that nobody runs any more, or that runs again later."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from many_threads import run, within
from patience import HANGS, eventually

import gabion._flights
from gabion import Cache


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gabion._flights, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(gabion._flights, "_LOOP_DEAD_SECONDS", 0.2, raising=False)


class Left:
    """A loop that rests, in which the factory of a key began, and ends as soon as it may."""

    def __init__(self, cache: Cache) -> None:
        self.loop, self.go = asyncio.new_event_loop(), False
        self.task = self.loop.create_task(cache.get_or_put("k", self._late))
        while not cache._gabion_flights.in_flight:
            self.step()
        (self.flight,) = cache._gabion_flights.in_flight.values()

    async def _late(self) -> str:
        while not self.go:
            await asyncio.sleep(0)
        return "late"

    def step(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))

    def end(self) -> str:
        self.go = True
        try:
            return self.loop.run_until_complete(asyncio.wait_for(self.task, HANGS))
        finally:
            self.loop.close()


async def soon_made() -> str:
    return "made"


async def three(cache: Cache) -> list[Any]:
    return await asyncio.gather(*[cache.get_or_put("k", soon_made) for _ in range(3)])


@pytest.mark.parametrize("how", ["another loop", "another thread", "another thread's loop"])
def test_a_factory_of_a_loop_that_rests_is_taken_over(cache: Cache, soon: None, how: str) -> None:
    """It was waited for for ever, though nobody was to run its loop again."""
    left = Left(cache)
    if how == "another loop":
        assert asyncio.run(asyncio.wait_for(three(cache), HANGS)) == ["made"] * 3
    elif how == "another thread":
        assert within(lambda: cache.get_or_put("k", lambda: "made")) == "made"
    else:
        assert within(lambda: asyncio.run(three(cache))) == ["made"] * 3
    # Its end, when it comes after all, is none of the others' business.
    assert left.end() == "late"
    assert cache["k"] == "made"
    assert not cache._gabion_flights.in_flight
    cache.discard("k")
    assert cache.get_or_put("k", lambda: "anew") == "anew"


def test_a_late_end_while_another_makes_the_value(cache: Cache, soon: None) -> None:
    left, began, go = Left(cache), threading.Event(), threading.Event()
    results: list[str] = []

    def slow() -> str:
        began.set()
        assert go.wait(HANGS)
        return "made"

    threads = [threading.Thread(target=lambda: results.append(cache.get_or_put("k", slow))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert began.wait(HANGS)
    assert left.end() == "late"
    go.set()
    for thread in threads:
        thread.join(HANGS)
    assert set(results) <= {"made", "late"}
    assert len(results) == 2
    assert cache.get_or_put("k", lambda: "anew") in ("made", "late")
    assert not cache._gabion_flights.in_flight


def test_a_loop_that_is_run_now_and_then_keeps_its_factory(cache: Cache, soon: None) -> None:
    """As a program with a main loop of its own does: it rests whenever somebody looks, and goes on between."""
    left, results = Left(cache), list[str]()
    waiter = threading.Thread(target=lambda: results.append(cache.get_or_put("k", lambda: "made")))
    waiter.start()
    assert eventually(lambda: left.flight.calls)
    begin = time.monotonic()
    while time.monotonic() - begin < 1:
        left.step()
        time.sleep(0.01)
    assert left.end() == "late"
    waiter.join(HANGS)
    assert results == ["late"]


def test_a_running_loop_is_waited_for_however_long_it_takes(cache: Cache, soon: None) -> None:
    async def slow() -> str:
        await asyncio.sleep(0.6)
        return "slow"

    async def blocking() -> str:
        time.sleep(0.6)
        return "slow"

    for factory in (slow, blocking):
        began = threading.Event()

        async def begin(factory: Any = factory, began: threading.Event = began) -> str:
            asyncio.get_running_loop().call_soon(began.set)
            return await cache.get_or_put("k", factory)

        def wait(began: threading.Event = began) -> None:
            assert began.wait(HANGS)
            assert cache.get_or_put("k", lambda: "made") == "slow"

        run(lambda begin=begin: asyncio.run(begin()), wait)
        cache.clear()
