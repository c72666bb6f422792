"""Factories that wait for each other: circles are refused, and nothing else is."""

import asyncio
import contextvars
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from many_threads import run, within
from patience import HANGS, eventually

import gabion
from gabion import Cache
from gabion._flights import Flight

needs_inheritance = pytest.mark.skipif(sys.version_info < (3, 14), reason="threads begin with a context of their own")


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache


def test_a_chain_of_factories_is_no_circle(cache: Cache) -> None:
    """A waiter that was not yet woken up does not count as waiting for what has ended."""
    for turn in range(200):
        began, answers = threading.Event(), []

        def outer(turn: int = turn, began: threading.Event = began) -> str:
            return cache.get_or_put(("k2", turn), lambda: began.set() or cache.get_or_put(("a", turn), lambda: "late"))

        def slow(began: threading.Event = began) -> str:
            began.wait(HANGS)
            return "a"

        waiter = threading.Thread(target=lambda outer=outer, answers=answers: answers.append(outer()))
        waiter.start()
        assert cache.get_or_put(("a", turn), slow) in ("a", "late")
        assert cache.get_or_put(("k2", turn), lambda: "own") in ("a", "late", "own")
        waiter.join(HANGS)
        assert len(answers) == 1


def test_what_a_thread_waits_for_after_its_factory_is_no_part_of_a_circle(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The factory ends, and its thread waits for another, while somebody looks whether the two make a circle."""
    main, go = threading.get_ident(), threading.Event()

    class Looked(dict[int, Flight]):
        def get(self, thread: int, default: Any = None) -> Any:
            if thread == main != threading.get_ident():
                go.set()
                assert eventually(lambda: main in self)
            return super().get(thread, default)

    monkeypatch.setattr(gabion._flights, "_blocked", Looked())
    answers: list[str] = []

    def second() -> str:
        return cache.get_or_put("first", lambda: "late")

    def first() -> str:
        other = threading.Thread(target=lambda: answers.append(cache.get_or_put("second", second)))
        other.start()
        others.append(other)
        assert go.wait(HANGS)
        return "made"

    others: list[threading.Thread] = []
    assert cache.get_or_put("first", first) == "made"
    assert cache.get_or_put("second", lambda: "own") == "made"
    others[0].join(HANGS)
    assert answers == ["made"]


def test_a_circle_of_three_threads_is_refused_somewhere(cache: Cache) -> None:
    barrier, errors = threading.Barrier(3), []

    def crossing(own: str, other: str) -> Callable[[], None]:
        def factory() -> Any:
            barrier.wait(HANGS)
            return cache.get_or_put(other, lambda: "inner")

        def body() -> None:
            try:
                cache.get_or_put(own, factory)
            except (RuntimeError, threading.BrokenBarrierError) as error:
                errors.append(error)

        return body

    run(crossing("x", "y"), crossing("y", "z"), crossing("z", "x"))
    assert errors
    assert cache.get_or_put("x", lambda: 1) is not None


def test_a_circle_through_two_caches_is_refused_somewhere(cache: Cache) -> None:
    other, barrier, errors = Cache("1 MiB"), threading.Barrier(2), []

    def crossing(own: Cache, next_one: Cache) -> Callable[[], None]:
        def factory() -> Any:
            barrier.wait(HANGS)
            return next_one.get_or_put("k", lambda: "inner")

        def body() -> None:
            try:
                own.get_or_put("k", factory)
            except (RuntimeError, threading.BrokenBarrierError) as error:
                errors.append(error)

        return body

    for _ in range(20):
        run(crossing(cache, other), crossing(other, cache))
        assert errors
        errors.clear()
        cache.clear()
        other.clear()


class Asking:
    """A value that asks for its own key while it is stored."""

    cache: Cache

    def __reduce__(self) -> Any:
        return str, (type(self).cache.get_or_put("k", lambda: "inner"),)


def test_a_value_that_asks_for_its_own_key_while_it_is_stored(cache: Cache) -> None:
    Asking.cache = cache
    try:
        with pytest.raises(gabion.CodecError) as caught:
            within(lambda: cache.get_or_put("k", Asking))
        assert isinstance(caught.value.__cause__, RuntimeError)
    finally:
        del Asking.cache


def test_nested_factories_of_other_keys_are_fine(cache: Cache) -> None:
    def fibonacci(number: int) -> int:
        if number < 2:
            return number
        return cache.get_or_put(number - 1, lambda: fibonacci(number - 1)) + cache.get_or_put(
            number - 2, lambda: fibonacci(number - 2)
        )

    assert fibonacci(60) == 1548008755920


def test_a_task_that_asks_for_its_own_key(cache: Cache) -> None:
    async def recursive() -> Any:
        return await cache.get_or_put("k", recursive)

    async def in_a_task_of_its_own() -> Any:
        return (await asyncio.gather(cache.get_or_put("g", in_a_task_of_its_own)))[0]

    async def in_a_thread() -> Any:
        return await asyncio.to_thread(cache.get_or_put, "t", lambda: 1)

    async def main() -> None:
        for key, factory in (("k", recursive), ("g", in_a_task_of_its_own), ("t", in_a_thread)):
            with pytest.raises(RuntimeError, match="itself"):
                await asyncio.wait_for(cache.get_or_put(key, factory), HANGS)

    within(lambda: asyncio.run(main()))


def test_tasks_that_wait_for_each_other(cache: Cache) -> None:
    async def main() -> None:
        both = asyncio.Barrier(2)

        async def crossing(other: str) -> Any:
            await both.wait()
            return await cache.get_or_put(other, instead)

        async def instead() -> str:
            return "inner"

        results = await asyncio.gather(
            cache.get_or_put("x", functools.partial(crossing, "y")),
            cache.get_or_put("y", functools.partial(crossing, "x")),
            return_exceptions=True,
        )
        assert any(isinstance(result, RuntimeError) for result in results)

    within(lambda: asyncio.run(main()))


def test_a_thread_does_not_wait_for_its_own_event_loop(cache: Cache) -> None:
    async def slow() -> str:
        await asyncio.sleep(0.05)
        return "slow"

    async def main() -> None:
        task = asyncio.create_task(cache.get_or_put("k", slow))
        await asyncio.sleep(0.01)
        with pytest.raises(RuntimeError, match="event loop"):
            cache.get_or_put("k", lambda: "now")
        assert await task == "slow"
        assert cache.get_or_put("k", lambda: "now") == "slow"

    within(lambda: asyncio.run(main()))


def test_a_loop_that_stands_still_for_a_thread_that_needs_it(cache: Cache) -> None:
    """The loop's thread waits for T's factory, which asks for a key that a task of that loop makes."""
    ready, entered = threading.Event(), threading.Event()
    errors: list[RuntimeError] = []

    def in_thread() -> Any:
        entered.set()
        ready.wait(HANGS)
        # The loop's thread waits by now, or is about to.
        assert eventually(lambda: any(flight.waiters for flight in cache._gabion_flights.in_flight.values()))
        time.sleep(0.05)
        try:
            return cache.get_or_put("task's", lambda: "inner")
        except RuntimeError as error:
            errors.append(error)
            return "refused"

    async def slow() -> str:
        await asyncio.sleep(0.01)
        return "made by the task"

    async def main() -> None:
        task = asyncio.create_task(cache.get_or_put("task's", slow))
        await asyncio.sleep(0)
        thread = threading.Thread(target=cache.get_or_put, args=("thread's", in_thread))
        thread.start()
        entered.wait(HANGS)
        ready.set()
        assert cache.get_or_put("thread's", lambda: "never") == "refused"
        assert await task == "made by the task"
        thread.join(HANGS)

    within(lambda: asyncio.run(main()))
    assert len(errors) == 1


def test_a_factory_of_the_very_thread_is_not_waited_for(cache: Cache) -> None:
    """As greenlets run it: code of another context, while the factory of the same thread rests."""

    def outer() -> str:
        with pytest.raises(RuntimeError, match="this very thread"):
            contextvars.Context().run(cache.get_or_put, "k", lambda: "never")
        with pytest.raises(RuntimeError, match="this very thread"):
            contextvars.Context().run(cache.get_or_put, "other", lambda: cache.get_or_put("k", lambda: "never"))
        return contextvars.Context().run(cache.get_or_put, "a key of its own", lambda: "made")

    assert within(lambda: cache.get_or_put("k", outer)) == "made"
    assert cache["k"] == "made"
    assert "other" not in cache


def test_a_thread_that_waits_in_another_context_counts_as_waiting(cache: Cache) -> None:
    """Two threads: each has a factory that rests, and asks in another context for the key of the other's."""
    meet = threading.Barrier(2)

    def ask(own: str, other: str) -> str:
        def factory() -> str:
            meet.wait(HANGS)
            try:
                return contextvars.Context().run(cache.get_or_put, other, lambda: "made anew")
            except RuntimeError:
                return "refused"

        return cache.get_or_put(own, factory)

    found: list[str] = []
    run(lambda: found.append(ask("a", "b")), lambda: found.append(ask("b", "a")))
    assert "refused" in found


INHERITED = """
import asyncio, contextvars, threading
from concurrent.futures import ThreadPoolExecutor
import gabion
cache, answers = gabion.Cache("16 MiB"), []
go, workers = threading.Event(), ThreadPoolExecutor(1)

def waits():
    answers.append(cache.get_or_put("key", lambda: "own"))

def waits_in_a_task():
    async def body():
        return await asyncio.create_task(cache.get_or_put("key", other))
    async def other():
        return "own"
    answers.append(asyncio.run(body()))

def nested():
    answers.append(cache.get_or_put("inner", lambda: cache.get_or_put("key", lambda: "own")))

def factory():
    threads.extend(threading.Thread(target=each) for each in (waits, waits_in_a_task, nested))
    [each.start() for each in threads]
    # A thread of the executor that is made here, and works for somebody else as well.
    futures.append(workers.submit(waits))
    # What has the factory's context is a part of it, in whatever thread it runs.
    handed = contextvars.copy_context()
    try:
        ThreadPoolExecutor(1).submit(handed.run, cache.get_or_put, "key", lambda: "own").result(10)
    except RuntimeError as error:
        answers.append(str(error)[:38])
    return "made"

threads, futures = [], []
answers.append(cache.get_or_put("key", factory))
[each.join(20) for each in threads]
[each.result(20) for each in futures]
print(sorted(answers))
"""


@pytest.mark.parametrize("inherits", [False, pytest.param(True, marks=needs_inheritance)])
def test_a_thread_is_no_part_of_the_factory_that_starts_it(script: Callable[..., str], inherits: bool) -> None:
    """From Python 3.14 on a thread may begin with its starter's context, and was refused what it may well wait for."""
    options = ["-X", "thread_inherit_context=1"] if inherits else []
    refused = "the factory of this key asks for the k"
    assert script(INHERITED, *options) == f"{sorted(['made'] * 5 + [refused])}\n"
