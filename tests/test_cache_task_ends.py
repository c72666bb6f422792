"""How a factory's task ends: with errors, with the program, with its loop, and with those who wait in threads."""

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from many_threads import run, within
from patience import HANGS, eventually
from slow_factories import Slow, played, settled

from gabion import Cache


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache
        assert not cache._gabion_flights.in_flight


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_is_raised_in_the_first_caller(cache: Cache, kind: type[BaseException]) -> None:
    async def ends() -> None:
        await asyncio.sleep(0)
        raise kind("its own")

    async def main() -> str:
        with pytest.raises(kind, match="its own"):
            await cache.get_or_put("k", ends)
        return "caught"

    assert asyncio.run(main()) == "caught"
    with pytest.raises(kind):
        asyncio.run(cache.get_or_put("k", ends))


def test_what_ends_the_program_where_the_first_caller_is_gone(cache: Cache) -> None:
    async def main() -> None:
        def end() -> None:
            raise SystemExit(3)

        slow = Slow(end)
        tasks = [asyncio.create_task(cache.get_or_put("k", slow)) for _ in range(2)]
        await slow.begun.wait()
        tasks[0].cancel()
        await settled()
        slow.go.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    with pytest.raises(SystemExit):
        asyncio.run(main())


def test_an_error_that_nobody_asked_for_is_not_told_of(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        def fail() -> None:
            raise ValueError("nobody's")

        # Left to one who is gone before the end, which goes on all the same.
        slow = Slow(fail)
        tasks = [asyncio.create_task(cache.get_or_put("k", slow)) for _ in range(2)]
        await slow.begun.wait()
        tasks[0].cancel()
        await settled()
        slow.go.set()
        with pytest.raises(ValueError, match="nobody's"):
            await tasks[1]
        stubborn = asyncio.create_task(cache.get_or_put("k", failing_when_cancelled))
        await settled()
        stubborn.cancel()
        with pytest.raises(ValueError, match="cancelled"):
            await stubborn
        # Thrown away before its end: its factory is cancelled, and asked by nobody.
        thrown = cache.get_or_put("k", failing_when_cancelled)
        thrown.send(None)
        thrown.close()
        await settled()

    async def failing_when_cancelled() -> None:
        try:
            await asyncio.sleep(HANGS)
        except asyncio.CancelledError:
            raise ValueError("cancelled") from None

    with caplog.at_level(logging.DEBUG, "asyncio"):
        asyncio.run(main())
        gc.collect()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_coroutine_that_is_thrown_away_ends_its_factory(cache: Cache) -> None:
    async def main() -> None:
        slow = Slow()
        thrown = cache.get_or_put("k", slow)
        thrown.send(None)
        await slow.begun.wait()
        thrown.close()
        await settled()
        assert (slow.calls, slow.ended) == (1, 1)
        assert not cache._gabion_flights.in_flight

    played(main)


@pytest.mark.parametrize("last", ["thread", "loop"])
def test_a_factory_that_others_wait_for_ends_with_the_last_of_them(cache: Cache, last: str) -> None:
    """They give up one after the other: the first caller, and one in a thread or in another loop."""
    waits, left = threading.Event(), threading.Event()

    async def never() -> None:
        raise AssertionError

    def other() -> None:
        waits.wait(HANGS)
        if last == "thread":
            with pytest.raises(TimeoutError, match="another call is making the value"):
                cache.get_or_put("k", lambda: "another's", timeout=0.2)
        else:

            async def ask() -> None:
                await asyncio.wait_for(cache.get_or_put("k", never), 0.2)

            with pytest.raises(TimeoutError):
                asyncio.run(ask())
        left.set()

    async def main() -> None:
        slow = Slow()
        first = asyncio.create_task(cache.get_or_put("k", slow))
        await slow.begun.wait()
        (flight,) = cache._gabion_flights.in_flight.values()
        waits.set()
        while not flight.waiters:
            await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert slow.ended == 0
        while not left.is_set() or cache._gabion_flights.in_flight:
            await asyncio.sleep(0.01)
        assert (slow.calls, slow.ended) == (1, 1)

    run(lambda: asyncio.run(main()), other)


def test_a_thread_has_what_the_first_caller_left(cache: Cache) -> None:
    waits, results = threading.Event(), list[str]()

    def other() -> None:
        waits.wait(HANGS)
        results.append(cache.get_or_put("k", lambda: "another's"))

    async def main() -> None:
        slow = Slow()
        first = asyncio.create_task(cache.get_or_put("k", slow))
        await slow.begun.wait()
        (flight,) = cache._gabion_flights.in_flight.values()
        waits.set()
        while not flight.waiters:
            await asyncio.sleep(0.01)
        first.cancel()
        await settled()
        slow.go.set()
        while not results:
            await asyncio.sleep(0.01)

    run(lambda: asyncio.run(main()), other)
    assert results == ["made"]


def test_a_loop_that_is_closed_under_the_task(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    """The first caller is gone, and a thread waits: it makes the value itself."""
    loop = asyncio.new_event_loop()

    async def begin() -> Any:
        first = asyncio.create_task(cache.get_or_put("k", lasting))
        await settled()
        (flight,) = cache._gabion_flights.in_flight.values()
        threads[0].start()
        while not flight.waiters:
            await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    async def lasting() -> None:
        await asyncio.sleep(HANGS)

    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(cache.get_or_put("k", lambda: "a thread's")))]
    loop.run_until_complete(begin())
    loop.close()
    threads[0].join(HANGS)
    assert results == ["a thread's"]
    del loop
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio" and record.levelno >= logging.ERROR] == []


def test_an_error_of_a_task_holds_nothing(cache: Cache) -> None:
    """From an error a traceback leads to all frames that it came through: none of them may lead back."""

    class Failed(Exception):
        pass

    async def main(waiters: int) -> weakref.ref[Failed]:
        def fail() -> None:
            raise Failed

        slow = Slow(fail)
        tasks = [asyncio.create_task(cache.get_or_put("k", slow)) for _ in range(1 + waiters)]
        await slow.begun.wait()
        await settled()
        slow.go.set()
        await asyncio.wait(tasks)
        errors = {task.exception() for task in tasks}
        assert len(errors) == 1
        return weakref.ref(errors.pop())  # type: ignore[arg-type]

    for waiters in (0, 1, 3):
        gc.collect()
        gc.disable()
        try:
            assert asyncio.run(main(waiters))() is None, waiters
        finally:
            gc.enable()


def test_a_task_is_held(cache: Cache) -> None:
    """A loop holds its tasks weakly."""

    async def main() -> None:
        slow = Slow()
        tasks = [asyncio.create_task(cache.get_or_put("k", slow)) for _ in range(2)]
        await slow.begun.wait()
        tasks[0].cancel()
        await settled()
        gc.collect()
        assert sum(each.get_coro().__name__ == "_gabion_run_factory" for each in asyncio.all_tasks()) == 1
        slow.go.set()
        assert await tasks[1] == "made"

    played(main)


def test_a_waiter_of_another_loop_that_is_cancelled(cache: Cache) -> None:
    """Its being cancelled is no business of the loop in which the factory runs."""
    went, results = threading.Event(), list[Any]()

    async def made() -> str:
        results.append(await asyncio.to_thread(went.wait, HANGS))
        return "made"

    async def ask() -> None:
        task = asyncio.create_task(cache.get_or_put("k", made))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        went.set()

    def first() -> None:
        results.append(asyncio.run(cache.get_or_put("k", made)))

    thread = threading.Thread(target=first)
    thread.start()
    assert eventually(lambda: cache._gabion_flights.in_flight)
    time.sleep(0.05)
    within(lambda: asyncio.run(ask()))
    thread.join(HANGS)
    assert results == [True, "made"]


def test_tasks_that_wait_at_the_interpreter_s_end() -> None:
    program = """
import asyncio, gabion
cache = gabion.Cache("1 MiB")
async def slow():
    await asyncio.sleep(600)
async def main():
    tasks = [asyncio.create_task(cache.get_or_put("k", slow)) for _ in range(3)]
    await asyncio.sleep(0.01)
asyncio.new_event_loop().run_until_complete(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANGS, check=True)
    assert "ImportError" not in ended.stderr
