"""What is made of older facts is not kept; what a signal's handler raises leaves nothing behind."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from many_threads import SECONDS, run, until, within
from patience import HANGS

from gabion import Cache


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache


def test_what_began_before_a_change_is_not_kept(cache: Cache) -> None:
    """The value of a slow factory came back after the key was discarded, or took the place of a newer one."""

    def put() -> None:
        cache["k"] = "new"

    changes: list[Callable[[], Any]] = [
        put,
        lambda: cache.discard("k"),
        lambda: cache.pop("k", None),
        lambda: cache.remove_many(["k"]),
        lambda: cache.add("k", "new"),
        cache.clear,
    ]
    for change in changes:
        cache.clear()
        facts, began, go = ["old"], threading.Event(), threading.Event()

        def load(facts: list[str] = facts, began: threading.Event = began, go: threading.Event = go) -> str:
            row = facts[0]
            began.set()
            assert go.wait(HANGS)
            return row

        results: list[str] = []
        slow = threading.Thread(target=lambda load=load, to=results: to.append(cache.get_or_put("k", load)))
        slow.start()
        assert began.wait(HANGS)
        facts[0] = "new"
        change()
        # Who asks after the change does not wait for what began before it.
        assert within(lambda facts=facts: cache.get_or_put("k", lambda: facts[0])) == "new"
        go.set()
        slow.join(HANGS)
        assert results == ["old"]
        assert cache["k"] == "new"
    cache.validate()


def test_a_memoized_call_that_began_before_a_clear_is_not_kept(cache: Cache) -> None:
    facts, began, go = ["old"], threading.Event(), threading.Event()

    @cache.memoize
    def load(number: int) -> str:
        row = facts[0]
        began.set()
        assert go.wait(HANGS)
        return row

    slow = threading.Thread(target=load, args=(1,))
    slow.start()
    assert began.wait(HANGS)
    facts[0] = "new"
    load.cache_clear()
    go.set()
    slow.join(HANGS)
    assert load(1) == "new"


def test_a_task_that_began_before_a_change_is_not_kept(cache: Cache) -> None:
    facts = ["old"]

    async def load() -> str:
        row = facts[0]
        await asyncio.sleep(0.05)
        return row

    async def main() -> list[str]:
        slow = asyncio.create_task(cache.get_or_put("k", load))
        await asyncio.sleep(0.01)
        facts[0] = "new"
        cache.discard("k")
        return [await cache.get_or_put("k", load), await slow]

    assert asyncio.run(main()) == ["new", "old"]
    assert cache["k"] == "new"


def test_every_waiter_has_an_object_of_its_own() -> None:
    cache = Cache("1 MiB")
    began = threading.Barrier(4)

    def large() -> bytearray:
        time.sleep(0.2)
        return bytearray(2 << 20)

    results: list[bytearray] = []

    def ask() -> None:
        began.wait(HANGS)
        results.append(cache.get_or_put("k", large))

    run(*[ask] * 4)
    assert "k" not in cache
    assert len({id(result) for result in results}) == 4
    results[0][0] = 255
    assert [result[0] for result in results[1:]] == [0, 0, 0]


def test_many_threads_make_and_discard_the_same_keys(cache: Cache) -> None:
    """Without a global lock, one took another's flight off the list, and whoever waited for that one waited on."""
    facts, announced, changing = [0] * 3, [0] * 3, threading.Lock()
    goes_on = until(SECONDS)

    def change(key: int) -> None:
        with changing:
            facts[key] += 1
            cache.discard(key)
            announced[key] = facts[key]

    def work(seed: int) -> None:
        chance = random.Random(seed)
        while goes_on():
            key = chance.randrange(len(facts))
            if chance.random() < 0.3:
                change(key)
            else:
                known = announced[key]
                assert cache.get_or_put(key, lambda key=key: facts[key]) >= known

    within(lambda: run(*[lambda seed=seed: work(seed) for seed in range(6)]))
    assert not cache._gabion_flights.in_flight
    assert [cache.get_or_put(key, lambda key=key: facts[key]) for key in range(3)] == facts
    cache.validate()


class Limit(Exception):
    """What a signal's handler raises."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_a_handler_that_raises_anywhere_leaves_no_flight(cache: Cache) -> None:
    """It came between two lines that end a flight: all later callers of the key waited for ever."""

    def handler(*_: object) -> None:
        raise Limit

    interrupted, chance = 0, random.Random(7)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for number in range(3000):

            def factory(number: int = number) -> int:
                if number % 2:
                    raise ValueError
                return number

            with suppress(Limit):
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 25e-6))
                    cache.get_or_put(number, factory)
                    for _ in range(100):
                        pass
                except ValueError:
                    pass
                except Limit:
                    interrupted += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert not cache._gabion_flights.in_flight, f"call {number} is still under way"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 100
