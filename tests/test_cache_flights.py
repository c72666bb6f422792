"""One factory for each key: failing, recursive, crossing, cancelled, in threads, in event loops, in forked children."""

import asyncio
import contextvars
import functools
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from child_processes import in_child, status_of
from many_threads import LOCKED, run, within
from patience import HANGS, eventually

from gabion import Cache
from gabion._flights import Flight


class Held:
    """What a context leads to."""


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache


def test_an_executor_that_is_handed_the_context_is_the_factory(cache: Cache) -> None:
    """Without it, nobody knows whom the thread works for: the two wait for each other."""
    with ThreadPoolExecutor(1) as executor:

        def factory() -> Any:
            context = contextvars.copy_context()
            return executor.submit(context.run, cache.get_or_put, "k", lambda: "inner").result(HANGS)

        with pytest.raises(RuntimeError, match="asks for the key itself"):
            cache.get_or_put("k", factory)
    assert "k" not in cache


def test_a_cache_is_gone_with_its_last_reference_whatever_was_made() -> None:
    """Each miss left its references to PyO3, which gave them back at some later call."""
    mine, key = Cache("1 MiB"), contextvars.ContextVar[object]("key")
    request = key.set(Held())
    gone, told = weakref.ref(mine), weakref.ref(key.get())
    gc.disable()
    try:
        assert mine.get_or_put("k", lambda: "made") == "made"
        with pytest.raises(ZeroDivisionError):
            mine.get_or_put("no", lambda: 1 // 0)
        key.reset(request)
        del mine, request
        assert gone() is None
        assert told() is None
    finally:
        gc.enable()


def test_who_waits_has_the_failure_and_who_asks_later_tries(cache: Cache) -> None:
    """Those who waited tried themselves, one after the other: the tenth knew after ten times as long."""
    attempts: list[int] = []
    errors: list[Exception] = []

    def factory() -> str:
        attempts.append(1)
        # All wait by now.
        assert eventually(lambda: sum(len(flight.waiters) for flight in cache._gabion_flights.in_flight.values()) == 7)
        raise ValueError("not yet")

    def ask() -> None:
        try:
            cache.get_or_put("k", factory)
        except ValueError as error:
            errors.append(error)

    run(*[ask] * 8)
    assert (len(attempts), len(errors)) == (1, 8)
    assert len({id(error) for error in errors}) == (1 if LOCKED else 8)
    assert cache.get_or_put("k", lambda: "made") == "made"


def test_waiters_try_themselves_when_one_is_interrupted(cache: Cache) -> None:
    """What ends more than a factory says nothing of the value: one after the other tries."""
    attempts: list[int] = []
    errors: list[BaseException] = []

    class Interrupt(BaseException):
        pass

    def factory() -> str:
        attempts.append(1)
        time.sleep(0.01)
        if len(attempts) < 4:
            raise Interrupt
        return "made"

    def ask() -> None:
        try:
            assert cache.get_or_put("k", factory) == "made"
        except Interrupt as error:
            errors.append(error)

    run(*[ask] * 8)
    assert (len(attempts), len({id(error) for error in errors})) == (4, 3)


def test_an_awaitable_from_a_plain_function_is_refused(cache: Cache, recwarn: pytest.WarningsRecorder) -> None:
    async def later() -> int:
        return 1

    with pytest.raises(TypeError, match="coroutine function itself"):
        cache.get_or_put("k", lambda: later())
    assert not recwarn.list
    assert "k" not in cache


def test_everything_that_gives_a_coroutine_is_awaited(cache: Cache) -> None:
    class Called:
        async def __call__(self) -> str:
            return "called"

        async def method(self, word: str) -> str:
            return word

    async def main() -> None:
        assert await cache.get_or_put("object", Called()) == "called"
        assert await cache.get_or_put("partial", functools.partial(Called().method, "bound")) == "bound"

    asyncio.run(main())


def test_tasks_and_threads_make_a_value_once_between_them(cache: Cache) -> None:
    calls: list[str] = []

    def slow() -> str:
        calls.append("thread")
        time.sleep(0.05)
        return "made"

    async def also_slow() -> str:
        calls.append("task")
        await asyncio.sleep(0.05)
        return "made"

    def in_loop() -> None:
        async def main() -> None:
            assert set(await asyncio.gather(*(cache.get_or_put("k", also_slow) for _ in range(20)))) == {"made"}

        asyncio.run(main())

    def in_thread() -> None:
        assert cache.get_or_put("k", slow) == "made"

    run(in_loop, in_loop, *[in_thread] * 6)
    assert len(calls) == 1


def test_a_factory_that_is_cancelled_lets_another_run(cache: Cache) -> None:
    """By itself, or by whatever it waits for; its callers are not."""
    calls: list[int] = []

    async def slow() -> int:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.sleep(0.02)
            raise asyncio.CancelledError
        await asyncio.sleep(0.05)
        return len(calls)

    async def main() -> None:
        first = asyncio.create_task(cache.get_or_put("k", slow))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(cache.get_or_put("k", slow))
        assert await asyncio.wait_for(second, HANGS) == 2
        assert first.cancelled()

    asyncio.run(main())


def test_a_coroutine_that_is_never_awaited_or_thrown_away_blocks_nobody(cache: Cache) -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        cache.get_or_put("k", slow).close()
        asyncio.get_running_loop().create_task(cache.get_or_put("k", slow))
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert within(lambda: cache.get_or_put("k", lambda: "made")) == "made"


def test_a_cache_that_keeps_the_error_of_a_factory_is_collected() -> None:
    """From the error a traceback leads to the frames of the call, and from them to the cache."""

    class Careful(Cache):
        last_error: Exception

    def fail(*_: object) -> int:
        raise OSError

    def made(call: Callable[[Careful], Any]) -> weakref.ref[Careful]:
        cache = Careful("1 MiB")
        try:
            call(cache)
        except OSError as error:
            cache.last_error = error
        return weakref.ref(cache)

    calls: list[Callable[[Careful], Any]] = [
        lambda cache: cache.memoize(fail)(1),
        lambda cache: cache.memoize(fail, key=lambda x: x)(1),
        lambda cache: cache.get_or_put("k", fail, ttl=5),
        lambda cache: cache.table("t").get_or_put("k", fail, ttl=5),
    ]
    for call in calls:
        cache = made(call)
        gc.collect()
        assert cache() is None


def test_tasks_that_start_each_other_for_ever_keep_nothing(cache: Cache) -> None:
    """Each runs in what its starter's factory ran in, and that one's starter's, long after they have ended."""

    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []

        async def factory(number: int) -> int:
            if number < 300:
                tasks.append(asyncio.create_task(step(number + 1)))
            await asyncio.sleep(0)
            return number

        async def step(number: int) -> None:
            assert await cache.get_or_put(number, functools.partial(factory, number)) == number

        await step(0)
        while len(tasks) < 300 or not tasks[-1].done():
            await asyncio.sleep(0)
        del tasks[:-1]
        gc.collect()
        assert sum(type(each) is Flight for each in gc.get_objects()) < 10

    asyncio.run(main())


def test_an_interrupt_in_a_factory_lets_others_run(cache: Cache) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get_or_put("k", interrupted)
    assert cache.get_or_put("k", lambda: "made") == "made"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_does_not_wait_for_threads_of_its_parent(cache: Cache) -> None:
    began, end = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        end.wait(HANGS)
        return "parent's"

    thread = threading.Thread(target=cache.get_or_put, args=("k", slow))
    thread.start()
    began.wait(HANGS)

    def child() -> None:
        assert cache.get_or_put("k", lambda: "child's") == "child's"

    try:
        in_child(child)
    finally:
        end.set()
        thread.join(HANGS)
    assert cache["k"] == "parent's"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_signal_handler_that_forks_while_its_thread_waits(cache: Cache) -> None:
    began, end = threading.Event(), threading.Event()
    children: list[int] = []

    def slow() -> str:
        began.set()
        time.sleep(0.05)
        # To that thread: who is sent to the process may be heard by another, while that one waits on.
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
        end.wait(HANGS)
        return "parent's"

    def fork(*_: object) -> None:
        children.append(os.fork())
        if children != [0]:
            end.set()

    def of_child() -> str:
        with ThreadPoolExecutor(1) as executor:
            beside = executor.submit(cache.get_or_put, "k", lambda: "beside", timeout=0)
            return "child's" if isinstance(beside.exception(HANGS), TimeoutError) else "two at a time"

    thread = threading.Thread(target=cache.get_or_put, args=("k", slow))
    before = signal.signal(signal.SIGALRM, fork)
    thread.start()
    began.wait(HANGS)
    try:
        made = cache.get_or_put("k", of_child)
        if children == [0]:
            os._exit(made != "child's")
    finally:
        signal.signal(signal.SIGALRM, before)
    thread.join(HANGS)
    assert made == "parent's"
    assert status_of(children[0]) == 0


def test_values_that_find_no_room_are_given_to_all_who_wait() -> None:
    cache = Cache("1 MiB")
    calls: list[int] = []

    def large() -> bytes:
        calls.append(1)
        time.sleep(0.05)
        return bytes(2 << 20)

    run(*[lambda: cache.get_or_put("k", large)] * 8)
    assert 1 <= len(calls) <= 8
    assert "k" not in cache


def never_ending(cache: Cache, key: str) -> tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]:
    """A loop in which a factory began that needs an hour, and its task."""

    async def factory() -> str:
        await asyncio.sleep(3600)
        return "late"

    loop = asyncio.new_event_loop()
    task = loop.create_task(cache.get_or_put(key, factory))
    while not cache._gabion_flights.in_flight:
        loop.run_until_complete(asyncio.sleep(0))
    return loop, task


@pytest.mark.parametrize("how", ["same thread", "another thread", "another loop"])
@pytest.mark.parametrize("closed", ["before", "meanwhile"])
def test_a_factory_of_a_closed_loop_is_taken_over(cache: Cache, how: str, closed: str) -> None:
    """By who asks later and by whoever waits already: it can never end."""
    loop, task = never_ending(cache, "key")

    async def factory() -> str:
        return "made"

    async def alone() -> Any:
        return await asyncio.gather(*[cache.get_or_put("key", factory) for _ in range(3)])

    def ask() -> None:
        if how == "another loop":
            assert asyncio.run(alone()) == ["made"] * 3
        else:
            assert cache.get_or_put("key", lambda: "made") == "made"

    (flight,) = cache._gabion_flights.in_flight.values()
    if closed == "before":
        loop.close()
        ask() if how == "same thread" else run(ask, ask)
    elif how == "same thread":
        with pytest.raises(RuntimeError, match="of this very thread"):
            ask()
        loop.close()
        ask()
    else:

        def close() -> None:
            assert eventually(lambda: len(flight.calls) >= 2)
            loop.close()

        run(ask, ask, close)
    assert not cache._gabion_flights.in_flight
    # What is left of it is thrown away, and is none of the others' business.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    assert cache["key"] == "made"


def test_a_circle_is_not_closed_by_a_factory_of_a_closed_loop(cache: Cache) -> None:
    """A thread asks for a key whose factory waits for a stranded one, which began in this very thread."""
    loop, task = never_ending(cache, "stranded")
    began = threading.Event()

    def waits() -> str:
        began.set()
        return cache.get_or_put("stranded", lambda: "made")

    (flight,) = cache._gabion_flights.in_flight.values()
    waiter = threading.Thread(target=lambda: cache.get_or_put("outer", waits))
    waiter.start()
    assert began.wait(HANGS)
    assert eventually(lambda: flight.calls)
    loop.close()
    assert cache.get_or_put("outer", lambda: "own") in ("made", "own")
    waiter.join(HANGS)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
