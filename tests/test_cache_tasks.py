"""Under asyncio a factory runs in a task of its own: who gives up takes it from nobody else."""

import asyncio
import contextvars
from collections.abc import Iterator
from typing import Any

import pytest
from patience import HANGS
from slow_factories import Slow, played, settled

from gabion import Cache


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache
        assert not cache._gabion_flights.in_flight


@pytest.mark.parametrize("memoized", [False, True])
def test_requests_that_time_out_leave_the_factory_to_the_others(cache: Cache, memoized: bool) -> None:
    """Each took it with it, and the key was never made."""
    calls: list[int] = []

    async def slow() -> str:
        calls.append(1)
        await asyncio.sleep(0.3)
        return "made"

    ask: Any = cache.memoize(slow) if memoized else lambda: cache.get_or_put("page", slow)

    async def main() -> list[Any]:
        requests = []
        for _ in range(20):
            requests.append(asyncio.create_task(asyncio.wait_for(ask(), 0.25)))
            await asyncio.sleep(0.03)
        return await asyncio.gather(*requests, return_exceptions=True)

    results = played(main)
    assert calls == [1]
    assert isinstance(results[0], TimeoutError)
    assert results[-1] == "made"


def test_a_first_caller_that_is_cancelled_leaves_it_to_the_others(cache: Cache) -> None:
    async def main() -> None:
        slow = Slow()
        tasks = [asyncio.create_task(cache.get_or_put("k", slow)) for _ in range(3)]
        await slow.begun.wait()
        for gone in tasks[:2]:
            gone.cancel()
        assert [type(each) for each in await asyncio.gather(*tasks[:2], return_exceptions=True)] == [
            asyncio.CancelledError
        ] * 2
        slow.go.set()
        assert (await tasks[2], slow.calls, cache["k"]) == ("made", 1, "made")

    played(main)


@pytest.mark.parametrize("last", [0, 1, 2])
def test_the_last_one_ends_when_the_factory_has_ended(cache: Cache, last: int) -> None:
    async def main() -> None:
        slow = Slow()
        tasks = [asyncio.create_task(cache.get_or_put("k", slow)) for _ in range(3)]
        await slow.begun.wait()
        order = [task for number, task in enumerate(tasks) if number != last] + [tasks[last]]
        for task in order:
            assert slow.ended == 0
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (slow.calls, slow.ended) == (1, 1)
        assert not cache._gabion_flights.in_flight

    played(main)


def test_all_who_are_cancelled_at_once(cache: Cache) -> None:
    async def main() -> None:
        slow = Slow()
        tasks = [asyncio.create_task(cache.get_or_put("k", slow)) for _ in range(5)]
        await slow.begun.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert (slow.calls, slow.ended) == (1, 1)

    played(main)


def test_one_who_comes_while_the_factory_is_cancelled_makes_the_value(cache: Cache) -> None:
    async def main() -> None:
        slow = Slow()
        first = asyncio.create_task(cache.get_or_put("k", slow))
        await slow.begun.wait()
        first.cancel()
        second = asyncio.create_task(cache.get_or_put("k", slow))
        await settled()
        assert first.cancelled()
        slow.go.set()
        assert (await second, slow.calls, slow.ended) == ("made", 2, 2)

    played(main)


def test_a_task_that_is_cancelled_before_its_first_step(cache: Cache) -> None:
    async def main() -> None:
        slow = Slow()
        first = asyncio.create_task(cache.get_or_put("k", slow))
        second = asyncio.create_task(cache.get_or_put("k", slow))
        await asyncio.sleep(0)
        (flight,) = cache._gabion_flights.in_flight.values()
        assert flight.task.cancel()
        slow.go.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second, slow.calls) == ("made", 1)

    played(main)


@pytest.mark.parametrize("end", ["a value", "an error"])
def test_a_factory_that_catches_its_cancellation(cache: Cache, end: str) -> None:
    """A lone caller has what it ends with, as with a coroutine that is awaited."""

    async def stubborn() -> str:
        try:
            await asyncio.sleep(HANGS)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            if end == "an error":
                raise KeyError("its own") from None
        return "made"

    async def main() -> None:
        task = asyncio.create_task(cache.get_or_put("k", stubborn))
        await settled()
        task.cancel()
        if end == "an error":
            with pytest.raises(KeyError):
                await task
            assert "k" not in cache
        else:
            assert await task == "made" == cache["k"]

    played(main)


def test_each_cancellation_of_a_lone_caller_is_the_factory_s(cache: Cache) -> None:
    async def main() -> None:
        caught = 0

        async def stubborn() -> str:
            nonlocal caught
            for _ in range(2):
                try:
                    await asyncio.sleep(HANGS)
                except asyncio.CancelledError:
                    caught += 1
            await asyncio.sleep(HANGS)
            return "late"

        tasks = [asyncio.create_task(cache.get_or_put("k", stubborn)) for _ in range(2)]
        await settled()
        tasks[0].cancel()
        await settled()
        assert (caught, tasks[0].cancelled()) == (0, True)
        for expected in (1, 2, 2):
            tasks[1].cancel()
            await settled()
            assert caught == expected
        assert tasks[1].cancelled()

    played(main)


def test_the_end_of_asyncio_run_breaks_off_no_cleaning_up(cache: Cache) -> None:
    """It cancels all tasks, the factory's too: the caller must not do so once more."""
    cleaned, held = list[str](), list[Any]()

    async def careful() -> None:
        try:
            await asyncio.sleep(HANGS)
        finally:
            for step in "abc":
                await asyncio.sleep(0.01)
                cleaned.append(step)

    async def main() -> None:
        held.extend(asyncio.create_task(cache.get_or_put("k", careful)) for _ in range(3))
        await settled()

    played(main)
    assert cleaned == ["a", "b", "c"]


@pytest.mark.parametrize("cleans_up", [False, True])
@pytest.mark.parametrize("end", ["at once", "late", "an error"])
def test_a_lone_caller_that_is_cancelled_at_the_moment_of_a_timeout_in_the_factory(
    cache: Cache, end: str, cleans_up: bool
) -> None:
    """What the timeout has cancelled it takes back: the caller's cancellation is another, and counts."""

    async def impatient() -> Any:
        try:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                try:
                    await asyncio.sleep(HANGS)
                finally:
                    await asyncio.sleep(0.02 if cleans_up else 0)
        except TimeoutError:
            if end == "an error":
                raise
            await asyncio.sleep(HANGS if end == "late" else 0)
        return "instead"

    async def main() -> None:
        task = asyncio.create_task(cache.get_or_put("k", impatient))
        await settled()
        # As a timer that is due in the same step.
        limits[0].reschedule(0)
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    limits = list[asyncio.Timeout]()
    played(main)


def test_the_factory_has_a_copy_of_its_first_caller_s_context(cache: Cache) -> None:
    variable = contextvars.ContextVar("variable", default="nothing")

    async def factory() -> Any:
        found = variable.get()
        variable.set("the factory's")
        return found, asyncio.current_task() is not caller

    async def main() -> None:
        nonlocal caller
        caller = asyncio.current_task()
        variable.set("the caller's")
        assert await cache.get_or_put("k", factory) == ("the caller's", True)
        assert variable.get() == "the caller's"

    caller: Any = None
    played(main)


def test_no_loop_no_task(cache: Cache) -> None:
    """Driven by hand, as other frameworks do: the factory runs where it is awaited."""

    class Step:
        def __await__(self) -> Any:
            return (yield "step")

    async def factory() -> Any:
        return await Step()

    coroutine, context = cache.get_or_put("k", factory), contextvars.copy_context()
    assert context.run(coroutine.send, None) == "step"
    with pytest.raises(RuntimeError, match="only tasks of asyncio can wait for it"):
        cache.get_or_put("k", factory).send(None)
    with pytest.raises(StopIteration) as ended:
        context.run(coroutine.send, "made")
    assert ended.value.value == "made" == cache["k"]
    left = cache.get_or_put("left", factory)
    left.send(None)
    left.close()

    async def by_hand() -> None:
        # In a loop, but in no task of it.
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def step() -> None:
            coroutine = cache.get_or_put("h", factory)
            assert coroutine.send(None) == "step"
            coroutine.close()
            ended.set()

        loop.call_soon(step)
        await ended.wait()

    played(by_hand)


def test_a_factory_that_was_left_waits_for_whom_it_was_begun(cache: Cache) -> None:
    """The outer factory gave up waiting for the inner one, which waits for the outer one: that is no circle."""

    async def main() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def inner() -> Any:
            begun.set()
            await go.wait()
            return await cache.get_or_put("outer", inner)

        async def outer() -> str:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(cache.get_or_put("inner", inner), 0.05)
            go.set()
            await settled()
            return "made without"

        first = asyncio.create_task(cache.get_or_put("outer", outer))
        await begun.wait()
        second = asyncio.create_task(cache.get_or_put("inner", inner))
        assert await asyncio.gather(first, second) == ["made without"] * 2

    played(main)


def test_tasks_that_begin_at_once(cache: Cache) -> None:
    factory = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        pytest.skip("from Python 3.12 on")

    async def at_once() -> str:
        return "at once"

    async def fails() -> str:
        raise ValueError("at once")

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        assert await cache.get_or_put("now", at_once) == "at once"
        with pytest.raises(ValueError, match="at once"):
            await cache.get_or_put("fails", fails)
        slow = Slow()
        tasks = [asyncio.create_task(cache.get_or_put("k", slow)) for _ in range(3)]
        tasks[0].cancel()
        await settled()
        slow.go.set()
        assert (await tasks[1], await tasks[2], slow.calls) == ("made", "made", 1)
        with pytest.raises(SystemExit):
            await cache.get_or_put("ends", ends)

    async def ends() -> None:
        raise SystemExit

    played(main)


def test_a_miss_that_waits_for_nothing_takes_few_steps(cache: Cache) -> None:
    async def at_once() -> int:
        return 1

    async def main() -> None:
        steps, loop, done = 0, asyncio.get_running_loop(), False

        def count() -> None:
            nonlocal steps
            if not done:
                steps += 1
                loop.call_soon(count)

        count()
        await cache.get_or_put("k", at_once)
        done = True
        assert steps <= 3

    played(main)


def test_a_coroutine_in_place_of_its_function_is_told_what_to_pass(cache: Cache) -> None:
    async def page(number: int = 0) -> str:
        return f"page {number}"

    async def main() -> str:
        asked: Any = page()
        with pytest.raises(TypeError, match=r"not coroutine, .* pass the coroutine function itself, with arguments as"):
            cache.get_or_put("page", asked)
        return await cache.get_or_put("page", page)

    assert asyncio.run(main()) == "page 0"
