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
from typing import TYPE_CHECKING, Any, TypeAlias

from gabion._native import end_flight, run_flight

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Name: TypeAlias = tuple[str, bytes]


class _Missing:
    """No value at all, not even None; shown in signatures as what may be left out."""

    def __repr__(self) -> str:
        return "..."


MISSING: Any = _Missing()


# What each thread waits for whose event loop, if it has one, stands still meanwhile.
_blocked: dict[int, Flight] = {}

# Seconds after which whoever waits for a factory in another event loop looks whether that loop is still there.
_LOOK = 0.5

# Seconds after which a loop that took no step meanwhile counts as left: nobody runs it, and nobody may ever do again.
_REST = 2.0


def _running_loop() -> Callable[[], AbstractEventLoop | None] | None:
    """Asyncio's event loop that runs in this thread, not held by this; None where another framework's runs."""
    asyncio = sys.modules.get("asyncio")
    loop = asyncio._get_running_loop() if asyncio else None
    return None if loop is None else weakref.ref(loop)


class Flight:
    """A factory that runs, its result to come, and what its end depends on.

    ``made`` is the result as bytes, `MISSING` until the end and where there is none; ``awaited`` says that somebody
    waits for it; ``lease`` ends when the key is changed meanwhile. ``thread`` is the thread that runs the factory,
    ``in_loop`` says whether its event loop does, and ``loop`` which; ``awaits`` are the flights that the factory waits
    for at this moment.
    ``outer`` is the flight whose factory this one's runs in, if there is one.
    """

    __slots__ = (
        "awaited",
        "awaits",
        "calls",
        "ended",
        "gate",
        "in_loop",
        "lease",
        "loop",
        "made",
        "outer",
        "right_to_end",
        "thread",
    )

    def __init__(self, in_loop: bool) -> None:
        self.made: Any = MISSING
        self.ended = False
        self.awaited = False
        self.lease: Any = None
        self.outer: Flight | None = None
        self.in_loop = in_loop
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

    def end_if_stranded(self) -> None:
        """End a flight that cannot end by itself, because its event loop was closed under it."""
        if self.is_stranded():
            end_flight(self, MISSING)

    def is_stranded(self) -> bool:
        """Whether the event loop that runs the factory was closed, or is gone."""
        if self.loop is None or self.ended:
            return False
        loop = self.loop()
        return loop is None or loop.is_closed()

    def wait(self) -> Any:
        """Wait, with the thread, for what is made."""
        if self.loop is None:
            with self.gate:
                return self.made
        # Nobody is told when a loop is closed. Not by the gate: what a signal's handler raises right after a wait with
        # a timeout would leave it closed for the others.
        woken = threading.Lock()
        woken.acquire()
        self.calls.append(woken.release)
        looks = _Looks(self)
        while not self.ended and not woken.acquire(timeout=_LOOK):
            looks.end_if_left()
        return self.made

    async def arrive(self) -> Any:
        """Wait, with the task, for what is made. A waiter that is cancelled is none of the others' business."""
        import asyncio

        loop = asyncio.get_running_loop()
        arrived = loop.create_future()

        def wake() -> None:
            if not arrived.done():
                arrived.set_result(None)

        def call() -> None:
            # A loop that was closed: nobody waits there any more.
            with suppress(RuntimeError):
                if asyncio._get_running_loop() is loop:
                    # Nothing that sleeps is to be woken, which takes a system call.
                    wake()
                else:
                    loop.call_soon_threadsafe(wake)

        self.calls.append(call)
        if self.loop is None or self.loop() is loop:
            if not self.ended:
                await arrived
            return self.made
        looks = _Looks(self)
        while not self.ended:
            await asyncio.wait([arrived], timeout=_LOOK)
            looks.end_if_left()
        return self.made


class _Looks:
    """One waiter's looks at the event loop that runs a factory.

    A loop that rests may be one that nobody runs again, or one between two steps. So it is asked for a step, and where
    none comes for `_REST` seconds, the flight is ended. Should its factory end after all, those who waited do not hear
    of it: its value is kept if the key has got no other meanwhile.
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
        elif time.monotonic() - since >= _REST:
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

    `enter_flight` and `leave_flight` change ``flying``, each in one step that no signal's handler divides.
    """

    def __init__(self) -> None:
        self.flying: dict[Name, Flight] = {}
        _all_flights.add(self)


class Running:
    """Marks the code of a with-statement as a flight's factory."""

    __slots__ = ("_flight", "_token")

    def __init__(self, flight: Flight) -> None:
        self._flight = flight

    def __enter__(self) -> None:
        self._token = run_flight(self._flight)

    def __exit__(self, *exception: object) -> None:
        # A coroutine that is thrown away is closed in another context, which has nothing to be reset.
        with suppress(ValueError):
            _running.reset(self._token)


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
            raise RuntimeError("the factory of this key asks for the key itself: it would wait for its own end")
        if self._thread is not None:
            self._before = _blocked.get(self._thread)
        try:
            for waiter in self._waiters:
                waiter.awaits.append(self._flight)
            if self._thread is not None:
                _blocked[self._thread] = self._flight
            never = self._why_never()
            if never:
                raise RuntimeError(never)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exception: object) -> None:
        for waiter in self._waiters:
            with suppress(ValueError):
                waiter.awaits.remove(self._flight)
        if self._thread is not None:
            if self._before is None:
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


def wait_for(flight: Flight) -> Any:
    """Wait, with the thread, for what a flight makes: bytes, or `MISSING`."""
    with Waiting(flight, in_loop=False):
        return flight.wait()


def _after_fork() -> None:
    """In a child that was forked: the threads that ran factories are not here.

    A thread that forked in a signal's handler may wait for one of them: it makes the value itself.
    """
    _blocked.clear()
    mine, thread = _around(), threading.get_ident()
    for flights in list(_all_flights):
        flying, flights.flying = flights.flying, {}
        for flight in flying.values():
            if flight not in mine and flight.thread != thread and not flight.ended:
                flight.ended = True
                flight.gate.release()


os.register_at_fork(after_in_child=_after_fork)
