"""Those who wait for another's factory: how its failure reaches them, and how long they wait."""

import asyncio
import gc
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from many_threads import LOCKED, run, within
from patience import HANGS, eventually

import gabion
import gabion._flights
from gabion import Cache
from gabion._failures import own_error
from gabion._flights import Flight


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache
        assert not cache._gabion_flights.in_flight


def waiting(cache: Cache) -> int:
    return sum(len(flight.waiters) for flight in list(cache._gabion_flights.in_flight.values()))


class Failed(Exception):
    pass


class Calls:
    """A function that fails when as many wait for it as are to."""

    def __init__(self, cache: Cache, waiters: int, how: Callable[[], Any]) -> None:
        self.cache, self.waiters, self.how, self.number = cache, waiters, how, 0

    def plain(self) -> Any:
        self.number += 1
        if self.number == 1:
            assert eventually(lambda: waiting(self.cache) >= self.waiters)
        return self.how()

    async def task(self) -> Any:
        self.number += 1
        while self.number == 1 and waiting(self.cache) < self.waiters:
            await asyncio.sleep(0.001)
        return self.how()


def fail() -> Any:
    raise Failed("the source is down")


def caught(call: Callable[[], Any], errors: list[Any]) -> Callable[[], None]:
    def body() -> None:
        try:
            errors.append(call())
        except Exception as error:
            errors.append(error)

    return body


def test_threads_and_tasks_have_one_failure(cache: Cache) -> None:
    for first in ("thread", "task"):
        calls = Calls(cache, 5, fail)
        errors: list[Any] = []
        ask: Any = caught(lambda calls=calls: cache.get_or_put("k", lambda: calls.plain()), errors)

        async def many(calls: Calls = calls, errors: list[Any] = errors, count: int = 3) -> None:
            errors += await asyncio.gather(
                *[cache.get_or_put("k", calls.task) for _ in range(count)], return_exceptions=True
            )

        async def alone(many: Any = many) -> None:
            await many(count=1)

        begin = ask if first == "thread" else lambda alone=alone: asyncio.run(alone())
        thread = threading.Thread(target=begin)
        thread.start()
        assert eventually(lambda: cache._gabion_flights.in_flight)
        run(ask, ask, lambda many=many: asyncio.run(many()))
        thread.join(HANGS)
        assert [type(error) for error in errors] == [Failed] * 6
        assert len({id(error) for error in errors}) == 1 or not LOCKED
        assert calls.number == 1
        # Who asks after it tries anew.
        assert cache.get_or_put("k", lambda: "made") == "made"
        cache.clear()


@pytest.mark.parametrize("kind", ["function", "by key", "coroutine function"])
def test_memoized_calls_have_one_failure(cache: Cache, kind: str) -> None:
    calls, errors = Calls(cache, 3, fail), list[Any]()

    if kind == "coroutine function":

        @cache.memoize
        async def task(number: int) -> Any:
            return await calls.task()

        async def main() -> None:
            errors.extend(await asyncio.gather(*[task(1) for _ in range(4)], return_exceptions=True))

        asyncio.run(main())
    else:

        @cache.memoize(key=(lambda number: number) if kind == "by key" else None)
        def plain(number: int) -> Any:
            return calls.plain()

        run(*[caught(lambda: plain(1), errors)] * 4)
    assert [type(error) for error in errors] == [Failed] * 4
    assert len({id(error) for error in errors}) == 1 or not LOCKED
    assert calls.number == 1


def test_a_value_that_cannot_be_stored_is_everybody_s_error(cache: Cache) -> None:
    """Each of them made another one, which could not be stored either."""
    calls, errors = Calls(cache, 3, threading.Lock), list[Any]()
    run(*[caught(lambda: cache.get_or_put("k", calls.plain), errors)] * 4)
    assert [type(error) for error in errors] == [gabion.CodecError] * 4
    assert calls.number == 1

    async def main() -> list[Any]:
        again = Calls(cache, 3, threading.Lock)
        return await asyncio.gather(*[cache.get_or_put("k", again.task) for _ in range(4)], return_exceptions=True)

    assert [type(error) for error in asyncio.run(main())] == [gabion.CodecError] * 4


def test_a_wait_that_was_refused_is_nobody_else_s_error(cache: Cache) -> None:
    """It says that the factory's own caller must not wait, and nothing of the value."""
    began, results = threading.Event(), list[Any]()

    def circle() -> Any:
        began.set()
        assert eventually(lambda: waiting(cache))
        return cache.get_or_put("k", lambda: "never")

    def first() -> None:
        with pytest.raises(RuntimeError, match="itself"):
            cache.get_or_put("k", circle)

    def second() -> None:
        assert began.wait(HANGS)
        results.append(cache.get_or_put("k", lambda: "made"))

    run(first, second)
    assert results == ["made"]


def test_each_traceback_begins_where_the_factory_s_ends(cache: Cache) -> None:
    """One that grows with each who raises it would hold the frames of all."""
    calls, lines = Calls(cache, 5, fail), list[str]()

    def ask() -> None:
        try:
            cache.get_or_put("k", calls.plain)
        except Failed as error:
            with told:
                lines.append("".join(traceback.format_tb(error.__traceback__)))

    told = threading.Lock()
    run(*[ask] * 6)
    assert all("in fail\n" in each for each in lines)
    assert max(each.count("\n  File ") for each in lines) < 20
    assert len(lines) == 6


@pytest.mark.parametrize("waiters", [0, 1, 4])
def test_a_failure_is_let_go_of(cache: Cache, waiters: int) -> None:
    """From the error a traceback leads to the frames that ran the factory: none of them may lead back to it."""

    @cache.memoize
    def call(number: int) -> Any:
        return calls.plain()

    each: list[Callable[[], Any]] = [
        lambda: cache.get_or_put("k", lambda: calls.plain()),
        lambda: cache.get_or_put("k", calls.plain),
        lambda: cache.get_or_put("k", lambda: calls.plain(), timeout=HANGS),
        lambda: call(1),
    ]
    for ask in each:
        calls, found = Calls(cache, waiters, fail), list[weakref.ref[Failed]]()

        def body(ask: Callable[[], Any] = ask, found: list[weakref.ref[Failed]] = found) -> None:
            try:
                ask()
            except Failed as error:
                found.append(weakref.ref(error))

        gc.collect()
        gc.disable()
        try:
            run(*[body] * (waiters + 1))
            assert len(found) == waiters + 1
            assert all(reference() is None for reference in found)
        finally:
            gc.enable()
    gc.collect()
    assert sum(type(one) is Flight for one in gc.get_objects()) == 0


def test_many_threads_raise_one_error_at_a_time(cache: Cache) -> None:
    """Each sets its traceback while others do."""

    def deep(number: int, ask: Callable[[], Any]) -> Any:
        return ask() if number == 0 else deep(number - 1, ask)

    def ask() -> None:
        for _ in range(30):
            with pytest.raises(Failed):
                deep(20, lambda: cache.get_or_put("k", slowly))
            both.wait(HANGS)

    def slowly() -> Any:
        eventually(lambda: waiting(cache) == 7, 0.5)
        return fail()

    both = threading.Barrier(8)
    within(lambda: run(*[ask] * 8))


class Told(Exception):
    """One whose __init__ takes other arguments than it hands on."""

    def __init__(self, status: int, *, url: str) -> None:
        super().__init__(f"{url} answered {status}")
        self.status = status


class Slotted(Exception):
    __slots__ = ("at",)

    def __init__(self, at: int) -> None:
        super().__init__("slotted")
        self.at = at

    def __str__(self) -> str:
        return f"at {self.at}"


class Full(OSError):
    pass


class Strange(OSError):
    def __init__(self, number: int) -> None:
        super().__init__(number, "strange", number)


@pytest.mark.parametrize(
    ("error", "faithful"),
    [
        (ValueError("a", 1), True),
        (KeyError("k"), True),
        (Told(503, url="here"), True),
        (Slotted(5), True),
        (Full(28, "full", "a/file"), True),
        (ImportError("none", name="module", path="path"), True),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"), True),
        (gabion.CodecError("of gabion's"), True),
        (Strange(5), False),
    ],
)
def test_without_a_gil_each_thread_has_an_error_of_its_own(error: Exception, faithful: bool) -> None:
    """There the interpreter crashes when many threads raise one object."""
    error.__cause__ = Failed()
    error.add_note("a note")
    made = own_error(error)
    if not faithful:
        assert made is None
        return
    assert made is not error
    assert type(made) is type(error)
    assert (made.args, str(made), vars(made)) == (error.args, str(error), vars(error))
    assert (made.__cause__, made.__suppress_context__) == (error.__cause__, True)
    assert made.__notes__ is not error.__notes__
    for name in "filename", "errno", "name", "path", "reason", "status":
        assert getattr(made, name, None) == getattr(error, name, None)


def test_an_error_without_a_faithful_copy(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits in another thread tries itself then."""
    monkeypatch.setattr(gabion._flights, "ONE_FOR_ALL", False)

    def strange() -> None:
        raise Strange(5)

    calls, errors = Calls(cache, 2, strange), list[Any]()
    run(*[caught(lambda: cache.get_or_put("k", calls.plain), errors)] * 3)
    assert [type(error) for error in errors] == [Strange] * 3
    assert calls.number == 3
    calls = Calls(cache, 2, fail)
    errors.clear()
    run(*[caught(lambda: cache.get_or_put("k", calls.plain), errors)] * 3)
    assert (len({id(error) for error in errors}), calls.number) == (3, 1)


@pytest.mark.parametrize("timeout", [0, 0.05, "0.05 s", timedelta(milliseconds=50)])
def test_a_wait_has_an_end(cache: Cache, timeout: Any) -> None:
    go = threading.Event()

    def slow() -> str:
        assert go.wait(HANGS)
        return "made"

    @cache.memoize(timeout=timeout)
    def memoized(number: int) -> str:
        return slow()

    @cache.memoize(timeout=timeout)
    async def awaited(number: int) -> str:
        while not go.is_set():
            await asyncio.sleep(0.001)
        return "made"

    async def task() -> str:
        return await awaited(2)

    def elsewhere(call: Callable[[], Any]) -> threading.Thread:
        before = len(cache._gabion_flights.in_flight)
        thread = threading.Thread(target=call)
        thread.start()
        assert eventually(lambda: len(cache._gabion_flights.in_flight) > before)
        return thread

    threads = [
        # Its own factory is not bounded.
        elsewhere(lambda: cache.get_or_put("k", slow, timeout=timeout)),
        elsewhere(lambda: memoized(1)),
        elsewhere(lambda: asyncio.run(task())),
    ]
    expected = "timeout=0 does not wait" if timeout == 0 else r"did not end within 0\.05 s"
    bounded: list[Callable[[], Any]] = [
        lambda: cache.get_or_put("k", slow, timeout=timeout),
        lambda: cache.get_or_put("k", str, timeout=timeout),
        lambda: cache.get_or_put(key="k", factory=slow, timeout=timeout),
        lambda: memoized(1),
        lambda: asyncio.run(cache.get_or_put("k", task, timeout=timeout)),
        lambda: asyncio.run(awaited(2)),
    ]
    for call in bounded:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=f"^another call is making the value of this key, and {expected}"):
            call()
        assert time.monotonic() - began < 30
    assert waiting(cache) == 0
    assert all(not flight.calls for flight in cache._gabion_flights.in_flight.values())
    go.set()
    for thread in threads:
        thread.join(HANGS)
    assert [cache.get_or_put("k", slow, timeout=timeout), memoized(1)] == ["made"] * 2


def test_a_wait_that_is_long_enough(cache: Cache) -> None:
    for timeout in (None, HANGS, float("inf"), 10**30, "4 min"):
        cache.clear()
        calls, results = Calls(cache, 3, lambda: "made"), list[Any]()
        run(*[caught(lambda t=timeout, c=calls: cache.get_or_put("k", lambda: c.plain(), timeout=t), results)] * 4)
        assert (results, calls.number) == (["made"] * 4, 1)

        async def main(timeout: Any = timeout) -> Any:
            calls = Calls(cache, 3, lambda: "made")
            return await asyncio.gather(*[cache.get_or_put("a", calls.task, timeout=timeout) for _ in range(4)])

        assert asyncio.run(main()) == ["made"] * 4


def test_timeouts_that_make_no_sense(cache: Cache) -> None:
    async def task() -> None: ...

    for wrong, error in ((-1, ValueError), (float("nan"), ValueError), ("5 m", ValueError), ([], TypeError)):
        for call in (
            lambda wrong=wrong: cache.get_or_put("k", lambda: 1, timeout=wrong),
            lambda wrong=wrong: cache.get_or_put("k", str, timeout=wrong),
            lambda wrong=wrong: cache.get_or_put("k", task, timeout=wrong),
            lambda wrong=wrong: cache.memoize(timeout=wrong),
        ):
            with pytest.raises(error, match="timeout"):
                call()
    assert "k" not in cache
    with pytest.raises(TypeError, match="ttl, stale, idle, expires_at, priority and timeout"):
        cache.get_or_put("k", lambda: 1, wait=1)


def test_the_time_counts_over_all_who_make_it(cache: Cache) -> None:
    """One after the other is interrupted: who waits for them all waits no longer for that."""

    class Interrupt(BaseException):
        pass

    def slow() -> None:
        time.sleep(0.1)
        raise Interrupt

    def ask() -> None:
        while not end.is_set():
            with pytest.raises(Interrupt):
                cache.get_or_put("k", slow)

    def bounded() -> None:
        assert eventually(lambda: cache._gabion_flights.in_flight)
        try:
            while True:
                with pytest.raises(Interrupt):
                    cache.get_or_put("k", slow, timeout=0.25)
        except TimeoutError:
            pass
        finally:
            end.set()

    end = threading.Event()
    within(lambda: run(ask, ask, ask, bounded))


def test_a_circle_is_told_of_whatever_the_timeout(cache: Cache) -> None:
    for timeout in (0, 5):
        with pytest.raises(RuntimeError, match="itself"):
            cache.get_or_put("k", lambda t=timeout: cache.get_or_put("k", lambda: 1, timeout=t))


def test_a_hit_asks_for_no_wait(cache: Cache) -> None:
    cache["k"] = 1
    assert cache.get_or_put("k", lambda: 2, timeout=0) == 1
    assert cache.get_or_put("other", lambda: 2, timeout=0) == 2


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
@pytest.mark.parametrize("timeout", [None, HANGS])
def test_a_wait_that_a_handler_breaks_off_is_nobody_else_s_end(cache: Cache, timeout: float | None) -> None:
    go, results = threading.Event(), list[Any]()

    class Limit(BaseException):
        pass

    def handler(*_: object) -> None:
        raise Limit

    def slow() -> str:
        assert go.wait(HANGS)
        return "made"

    threads = []
    for _ in range(3):
        threads.append(threading.Thread(target=lambda: results.append(cache.get_or_put("k", slow, timeout=timeout))))
        threads[-1].start()
        assert eventually(lambda: cache._gabion_flights.in_flight)
    assert eventually(lambda: waiting(cache) == 2)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for number in range(20):
            with pytest.raises(Limit):
                signal.setitimer(signal.ITIMER_REAL, 0.005 + number / 10_000)
                cache.get_or_put("k", lambda: "never", timeout=timeout)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert waiting(cache) == 2
    go.set()
    for thread in threads:
        thread.join(HANGS)
    assert results == ["made"] * 3


def test_a_task_is_woken_by_whom_a_handler_breaks_off(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    wake, broken, results = gabion._flights._wake_in, list[bool](), list[Any]()

    def once_broken(*arguments: Any) -> None:
        if not broken:
            broken.append(True)
            raise KeyboardInterrupt
        wake(*arguments)

    async def never() -> str:
        return "never"

    def slow() -> str:
        assert eventually(lambda: waiting(cache) == 1)
        return "made"

    def in_loop() -> None:
        assert eventually(lambda: cache._gabion_flights.in_flight)
        results.append(asyncio.run(cache.get_or_put("k", never)))

    monkeypatch.setattr(gabion._flights, "_wake_in", once_broken)
    thread = threading.Thread(target=in_loop, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        cache.get_or_put("k", slow)
    thread.join(20)
    assert (results, broken) == (["made"], [True])
