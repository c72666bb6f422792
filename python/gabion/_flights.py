"""One factory for each key: who runs it, who waits for it, and which waits would never end.

Nothing here takes a lock, because the collector may run anybody's code between any two lines, and that code may get
here again, on the same thread. What threads share changes by single steps of dicts and lists, which are whole by
themselves.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from gabion._failures import ONE_FOR_ALL, own_error
from gabion._native import end_flight, pass_gate, stop_waiting

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task

Name: TypeAlias = tuple[str, bytes]


class _Missing:
    """No value at all, not even None; shown in signatures as what may be left out."""

    def __repr__(self) -> str:
        return "..."


MISSING: Any = _Missing()


# What each thread waits for whose event loop, if it has one, stands still meanwhile.
_blocked: dict[int, Flight] = {}

# Seconds after which whoever waits for a factory in another event loop looks whether that loop is still there.
_POLL_SECONDS = 0.5

# Seconds after which a loop that took no step meanwhile counts as left: nobody runs it, and nobody may ever do again.
_LOOP_DEAD_SECONDS = 2.0


def _get_running_loop() -> AbstractEventLoop | None:
    """Asyncio's event loop that runs in this thread; None where another framework's runs."""
    asyncio = sys.modules.get("asyncio")
    return asyncio._get_running_loop() if asyncio else None


def _running_loop() -> Callable[[], AbstractEventLoop | None] | None:
    """As _get_running_loop(), but not held by this."""
    loop = _get_running_loop()
    return None if loop is None else weakref.ref(loop)


class Deadline:
    """Until when a caller waits for a value that others make, however many of them there are."""

    __slots__ = ("_end", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def step(self) -> float:
        """Return how many seconds to wait until the next look. Raises TimeoutError when the time is over."""
        left = self._end - time.monotonic()
        if left > 0:
            return min(left, _POLL_SECONDS)
        given = f"did not end within {self._seconds:g} s" if self._seconds else "timeout=0 does not wait for it"
        raise TimeoutError(f"another call is making the value of this key, and {given}")


class Flight:
    """A factory that runs, its result to come, and what its end depends on.

    ``made`` is the result as bytes, or an exception and its traceback; `MISSING` until the end, where there is none,
    and when nobody waits for it any more. ``waiters`` are those who wait: the flights that they would begin;
    ``awaiting`` is the one that this one's caller waits for. ``lease`` ends when the key is changed meanwhile.
    ``thread`` is the thread that runs the factory, ``in_loop`` says whether its event loop does, and ``loop`` which;
    ``awaits`` are the flights that the factory waits for at this moment.
    ``outer`` is the flight whose factory this one's runs in, if there is one.
    Where the factory runs in a task of its own, that is ``task``, and ``attended`` says whether the first caller waits.
    """

    __slots__ = (
        "attended",
        "awaiting",
        "awaits",
        "calls",
        "cancel_pending",
        "cancel_requests",
        "ended",
        "gate",
        "in_loop",
        "lease",
        "loop",
        "loop_watch",
        "made",
        "outer",
        "right_to_end",
        "task",
        "thread",
        "waiters",
        "woken",
    )

    def __init__(self, in_loop: bool) -> None:
        self.made: Any = MISSING
        self.ended = False
        # `enter_flight` adds to them, `stop_waiting` takes away.
        self.waiters: list[Flight] = []
        self.awaiting: Flight | None = None
        self.lease: Any = None
        self.outer: Flight | None = None
        self.in_loop = in_loop
        # Of those who do not wait for it.
        self.loop_watch: _LoopWatch | None = None
        self.loop = _running_loop() if in_loop else None
        self.thread = threading.get_ident()
        self.awaits: list[Flight] = []
        # What is called at the end.
        self.calls: list[Callable[[], object]] = []
        # Free when the flight has ended; who waits takes it and gives it to the next.
        self.gate = threading.Lock()
        self.gate.acquire()
        # Who takes it out ends the flight, and nobody else.
        self.right_to_end = [True]
        self.task: Task[Any] | None = None
        self.attended = False
        # What wakes the first caller.
        self.woken: Future[None] | None = None
        # How often the task was to be cancelled, and whether one of these is yet to be delivered.
        self.cancel_requests = 0
        self.cancel_pending = False

    def end_if_stranded(self) -> None:
        """End a flight that cannot end by itself, because its event loop was closed under it."""
        if self.is_stranded():
            end_flight(self, MISSING)

    def is_over(self) -> bool:
        """Whether it has ended by now, for callers that do not wait: one in a loop that was closed or left is ended."""
        if self.ended or self.loop is None:
            return self.ended
        loop = self.loop()
        if loop is None or loop is not _get_running_loop():
            if self.loop_watch is None:
                self.loop_watch = _LoopWatch(self)
            self.loop_watch.end_if_left()
        return self.ended

    def is_stranded(self) -> bool:
        """Whether the event loop that runs the factory was closed, or is gone."""
        if self.loop is None or self.ended:
            return False
        loop = self.loop()
        return loop is None or loop.is_closed()

    def is_abandoned(self) -> bool:
        """Whether the factory has a task of its own, and nobody waits for it any more."""
        return not (self.task is None or self.attended or self.waiters)

    def abandon(self) -> None:
        """Have the factory's task cancelled if nobody waits for it. `stop_waiting` calls this for the last one."""
        loop = self.loop() if self.loop is not None and self.is_abandoned() else None
        if loop is None:
            return
        if _get_running_loop() is loop:
            self.cancel()
        else:
            with suppress(RuntimeError):  # closed
                loop.call_soon_threadsafe(self.cancel)

    def cancel(self, message: object = None) -> None:
        """Cancel the factory's task if nobody waits for it by now: once for each who was the last, whoever did it."""
        if self.task is not None and self.is_abandoned():
            self.cancel_requests += 1
            self._deliver_cancel(self.task, message, 0.0)

    def _deliver_cancel(self, task: Task[Any], message: object, later: float) -> None:
        """Cancel the factory's task, unless somebody else has done so."""
        if task.done() or not self.is_abandoned():
            return
        self.cancel_pending = task.cancelling() >= self.cancel_requests
        if not self.cancel_pending:
            task.cancel(message)
            return
        # asyncio.run() cancels all tasks at its end: once more, and what the factory does then to clean up is broken
        # off. But a timeout of the factory's own takes back what it has cancelled: looked at until then.
        task.get_loop().call_later(later, self._deliver_cancel, task, message, min(2 * later + 0.001, _POLL_SECONDS))

    def wake_first(self) -> None:
        """Wake the first caller, if it waits for the factory's task."""
        if self.woken is not None:
            _wake_in(self.woken.get_loop(), self.woken)

    def result(self) -> Any:
        """Return what was made, for one who waited, or raise what the factory raised."""
        made = self.made
        if type(made) is not tuple:
            return made
        error = made[0] if ONE_FOR_ALL or self.thread == threading.get_ident() else own_error(made[0])
        if error is None:
            # Then it tries itself.
            return MISSING
        try:
            # Everybody's traceback begins where the factory's ends: or one would hold the frames of all.
            raise error.with_traceback(made[1])
        finally:
            # The traceback holds this frame.
            del made, error

    def wait(self, deadline: Deadline | None) -> Any:
        """Wait, with the thread, for what is made."""
        if self.loop is None and deadline is None:
            # In one step: what a signal's handler raises between the two would leave it closed for the others.
            pass_gate(self.gate)
            return self.result()
        # Nobody is told when a loop is closed. Not by the gate, for the same reason.
        woken = threading.Lock()
        woken.acquire()
        self.calls.append(woken.release)
        watch = _LoopWatch(self)
        try:
            while not self.ended and not woken.acquire(timeout=deadline.step() if deadline else _POLL_SECONDS):
                watch.end_if_left()
        finally:
            self._recall(woken.release)
        return self.result()

    def _recall(self, call: Callable[[], object]) -> None:
        """Take away what was to be called at the end."""
        with suppress(ValueError):
            self.calls.remove(call)

    async def wait_async(self, waiter: Flight, deadline: Deadline | None) -> Any:
        """Wait, with the task of a flight not begun, for what is made.

        A waiter that is cancelled is none of the others' business. The last one ends when the factory has ended.
        """
        from asyncio import CancelledError, get_running_loop

        try:
            loop = get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "another call is making the value, and only tasks of asyncio can wait for it: hand get_or_put() with a "
                "plain function to a thread"
            ) from None
        watch = None if self.loop is None or self.loop() is loop else _LoopWatch(self)
        cancelled: tuple[Any, ...] | None = None
        # One who comes while another loop is to cancel it keeps it going.
        while not self.ended and (cancelled is None or self.is_abandoned()):
            woken = loop.create_future()
            timer = None
            if deadline is not None or watch is not None:
                timer = loop.call_later(deadline.step() if deadline else _POLL_SECONDS, _wake, woken)
            call = partial(_wake_in, loop, woken)
            self.calls.append(call)
            try:
                if not self.ended:
                    await woken
            except CancelledError as error:
                if cancelled is None:
                    stop_waiting(waiter)
                else:
                    self.abandon()
                if self.ended or not self.is_abandoned():
                    raise
                cancelled, deadline = error.args, None
            finally:
                if timer is not None:
                    timer.cancel()
                self._recall(call)
            if watch is not None:
                watch.end_if_left()
        if cancelled is not None:
            raise CancelledError(*cancelled)
        return self.result()


def _wake(woken: Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _wake_in(loop: AbstractEventLoop, woken: Future[None]) -> None:
    # A loop that was closed: nobody waits there any more.
    with suppress(RuntimeError):
        if _get_running_loop() is loop:
            # Nothing that sleeps is to be woken, which takes a system call.
            _wake(woken)
        else:
            loop.call_soon_threadsafe(_wake, woken)


class _LoopWatch:
    """One waiter's watch over the event loop that runs a factory.

    A loop that rests may be one that nobody runs again, or one between two steps. So it is asked for a step, and where
    none comes for `_LOOP_DEAD_SECONDS`, the flight is ended. Should its factory end after all, those who waited do not
    hear of it: its value is kept if the key has got no other meanwhile.
    """

    __slots__ = ("_flight", "_since")

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        # When the loop was found at rest; None while it runs.
        self._since: float | None = None

    def end_if_left(self) -> None:
        """End the flight if its loop was closed, or was left."""
        flight = self._flight
        flight.end_if_stranded()
        loop = None if flight.loop is None else flight.loop()
        if flight.ended or loop is None:
            return
        if loop.is_running():
            self._since = None
        elif (since := self._since) is None:
            self._since = time.monotonic()
            with suppress(RuntimeError):  # closed just now
                loop.call_soon_threadsafe(self._step)
        elif time.monotonic() - since >= _LOOP_DEAD_SECONDS:
            end_flight(flight, MISSING)

    def _step(self) -> None:
        """What the loop runs when it goes on."""
        self._since = None


# The flight whose factory this code runs in, the innermost. Tasks that a factory starts inherit it, and so do functions
# that it hands to asyncio.to_thread(): what they wait for, the factory waits for. `run_flight` sets it.
_running: ContextVar[Flight | None] = ContextVar("gabion_flights", default=None)


# Whether a thread begins with a copy of its starter's context, as it does from Python 3.14 on where there is no GIL.
_INHERITS = bool(getattr(sys.flags, "thread_inherit_context", False))

# In whose factory each thread was started, if it has its context from there: found before its own factories run.
_begun = threading.local()

_here: ContextVar[object] = ContextVar("gabion_here")


def _innermost() -> Flight | None:
    """The innermost flight whose factory this code runs in, if any; it may have ended.

    A thread is no part of the factory that starts it, whatever context it begins with: the factory need not wait for
    it, and an executor's thread works for others, too. What is handed to a thread with the context is.
    """
    flight = _running.get()
    if flight is None or not _INHERITS:
        return flight
    context = getattr(threading.current_thread(), "_context", None)
    if context is None:
        return flight
    try:
        begun = _begun.flight
    except AttributeError:
        begun = context.get(_running)
        if begun is not None and begun.thread == threading.get_ident():
            begun = None
        _begun.flight = begun
    if flight is not begun:
        return flight
    # An event loop's tasks have copies of the thread's own context.
    if _running_loop() is not None:
        return None
    token = _here.set(object())
    own = context.get(_here) is _here.get()
    _here.reset(token)
    return None if own else flight


def _around() -> list[Flight]:
    """The flights whose factories this code runs in and that have not ended."""
    found, flight = [], _innermost()
    while flight is not None:
        if not flight.ended:
            found.append(flight)
        flight = flight.outer
    return found


_all_flights: weakref.WeakSet[Flights] = weakref.WeakSet()


class Flights:
    """The factories that run for one cache's keys.

    `enter_flight` and `leave_flight` change ``in_flight``, each in one step that no signal's handler divides.
    """

    def __init__(self) -> None:
        self.in_flight: dict[Name, Flight] = {}
        _all_flights.add(self)


def _refusal(why: str) -> RuntimeError:
    """An error that says something of who may not wait, and nothing of the value: `end_flight` passes it on to nobody.

    Those who wait for its factory may well make the value themselves.
    """
    error: Any = RuntimeError(why)
    error._gabion_refusal = True
    return error  # type: ignore[no-any-return]


class Waiting:
    """Notes for the time of a with-statement that its code waits for a flight, which is ended here if nobody else can.

    Raises ``RuntimeError`` when it would wait for ever. A wait is noted before it is looked at, so that of several that
    close a circle at the same moment one at least finds it closed.
    """

    __slots__ = ("_before", "_flight", "_thread", "_waiters")

    def __init__(self, flight: Flight, *, in_loop: bool) -> None:
        flight.end_if_stranded()
        self._flight = flight
        self._waiters = _around()
        self._thread = None if in_loop else threading.get_ident()
        self._before: Flight | None = None

    def __enter__(self) -> None:
        if self._flight in self._waiters:
            raise _refusal("the factory of this key asks for the key itself: it would wait for its own end")
        if self._thread is not None:
            self._before = _blocked.get(self._thread)
        try:
            for waiter in self._waiters:
                waiter.awaits.append(self._flight)
            if self._thread is not None:
                _blocked[self._thread] = self._flight
            never = self._why_never()
            if never:
                raise _refusal(never)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        for waiter in self._waiters:
            with suppress(ValueError):
                waiter.awaits.remove(self._flight)
        if self._thread is not None:
            # A handler that raised here may have left one that is over.
            if self._before is None or self._before.ended:
                _blocked.pop(self._thread, None)
            else:
                _blocked[self._thread] = self._before

    def _why_never(self) -> str:
        """Why the flight would never end if this code waited for it."""
        seen: set[Flight] = set()
        open_ones = [self._flight]
        while open_ones:
            flight = open_ones.pop()
            if flight in seen:
                continue
            # A thread that waits stands still with all factories that it runs, whichever of them it waits in.
            waits, blocking = list(flight.awaits), _blocked.get(flight.thread)
            # Asked after that: a thread whose factory has just ended may wait for another flight by now, which says
            # nothing of this one. Whoever waits for a stranded one ends it.
            if flight.ended or flight.is_stranded():
                continue
            seen.add(flight)
            if flight in self._waiters:
                return "factories of several keys ask for each other's keys: each would wait for ever"
            if flight.thread == self._thread:
                if flight.in_loop:
                    return (
                        "the key's factory runs in the event loop of this very thread, which would stand still for "
                        "ever: await get_or_put() with a coroutine function here, too"
                    )
                # Code of another context or greenlet, and the factory, which rests meanwhile, has the thread next.
                return (
                    "the key's factory rests in this very thread, which would stand still for ever: with greenlets "
                    "or nested event loops, await get_or_put() with a coroutine function, or let gevent patch threads"
                )
            open_ones += waits
            if blocking is not None:
                open_ones.append(blocking)
        return ""


def wait_for(flight: Flight, deadline: Deadline | None) -> Any:
    """Wait, with the thread, for what a flight makes: bytes, or `MISSING`. Raises what its factory did."""
    with Waiting(flight, in_loop=False):
        return flight.wait(deadline)


def _after_fork() -> None:
    """In a child that was forked: the threads that ran factories are not here.

    A thread that forked in a signal's handler may wait for one of them: it makes the value itself.
    """
    _blocked.clear()
    mine, thread = _around(), threading.get_ident()
    for flights in list(_all_flights):
        # In place: calls that go on here have the dict itself.
        left = list(flights.in_flight.values())
        flights.in_flight.clear()
        for flight in left:
            if flight not in mine and flight.thread != thread and not flight.ended:
                flight.ended = True
                flight.gate.release()
            flight.waiters[:] = [waiter for waiter in flight.waiters if waiter.thread == thread]


os.register_at_fork(after_in_child=_after_fork)
