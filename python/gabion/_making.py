"""Making the value of a key that has none: one factory at a time, by plain functions and by coroutine functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from gabion._arguments import MEMOIZED
from gabion._attending import Raised, attend, begin_task, loop_of_task
from gabion._flights import MISSING, Deadline, Flight, Flights, Waiting
from gabion._native import CacheTable, ClosedError, _import, enter_flight, leave_flight, reset_current, run_flight

if TYPE_CHECKING:
    from datetime import date
    from uuid import UUID

_K = TypeVar("_K", bound="str | bytes | float | date | UUID | tuple[Any, ...] | None")
_V = TypeVar("_V")

_COROUTINE = 0x80  # inspect.CO_COROUTINE


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether calling a function gives a coroutine: a coroutine function, or an object that is called like one."""
    if type(function) is FunctionType and not function.__dict__:
        # Plain functions at once: inspect takes a microsecond.
        return bool(function.__code__.co_flags & _COROUTINE)
    asks = _import("inspect").iscoroutinefunction
    return bool(asks(function) or asks(type(function).__call__))


def refuse_awaitable(made: object, memoized: bool) -> None:
    """Raise ``TypeError`` for what a plain function, memoized or a factory, returned to be awaited."""
    if not hasattr(type(made), "__await__"):
        return
    if isinstance(made, CoroutineType):
        made.close()
    if memoized:
        raise TypeError(
            "the memoized function returned something to be awaited: define it with async def, and await it there"
        )
    raise TypeError(
        "the factory returned something to be awaited: pass the coroutine function itself, "
        "with arguments as functools.partial(fetch, 7)"
    )


def memoized_as(table: str) -> str | None:
    """Return module and name of the function whose results are in a table of a name; None for any other."""
    return table.removeprefix(MEMOIZED).rpartition(":")[0] if table.startswith(MEMOIZED) else None


def tell_of_refusal(table: str, key: object, size: int, limit: int) -> None:
    """Tell the log of a value that was made and that there is no room to keep."""
    function = memoized_as(table)
    what, who = (f"a result of {function}()", "function") if function else (f"the value of {key!r:.100}", "table")
    # Only here: it takes a while to import.
    _import("logging").getLogger("gabion.cache").warning(
        "%s takes %s bytes, and there is no room for it within the limit of %s: it is made anew at each call; raise "
        "the limit, or have less kept (told once for each %s)",
        what,
        f"{size:,}",
        f"{limit:,}",
        who,
    )


def check_factory(factory: object) -> None:
    """Raise ``TypeError`` for what makes no value."""
    if not callable(factory):
        given = type(factory).__qualname__
        if hasattr(type(factory), "__await__"):
            if isinstance(factory, CoroutineType):
                factory.close()
            raise TypeError(
                f"get_or_put() takes a function that makes the value, not {given}, which it returned to be awaited: "
                "pass the coroutine function itself, with arguments as functools.partial(fetch, 7)"
            )
        raise TypeError(
            f"get_or_put() takes a function that makes the value, not {given}: pass lambda: ... or use setdefault()"
        )


class Maker(CacheTable[_K, _V]):
    """A table as far as factories make its values."""

    _gabion_flights: Flights

    @property
    def _gabion_space(self) -> str:
        """What tells its keys from those of the cache's other tables."""
        return self.name

    def _gabion_is_fresh(self, key: Any, stale: float) -> bool:
        """Whether a key has a value whose own time is not over: it has more than ``stale`` seconds left."""
        try:
            return CacheTable.expires_in(self, key, 0.0) > stale
        except ClosedError:  # dropped just now, by another thread: it is for the making to say
            return False

    def _gabion_newest(self, key: Any, found: bytes) -> Any:
        """The key's value, or what another has just made for it: everybody's own object."""
        value = CacheTable._look_making(self, key, MISSING)
        return CacheTable._rebuild(self, found) if value is MISSING else value

    async def _gabion_make_async(
        self,
        key: Any,
        factory: Callable[[], Awaitable[Any]],
        as_put: dict[str, Any],
        deadline: Deadline | None,
        *,
        own_task: bool = True,
        old: Any = MISSING,
        stale: float = 0.0,
    ) -> Any:
        """As _make(), for a coroutine function. One that awaits nothing needs no task of its own.

        Where there is an ``old`` value this waits for no other call, and makes one that has more than ``stale`` seconds
        to live.
        """
        name, in_flight, flight = (
            (self._gabion_space, CacheTable._key(self, key)),
            self._gabion_flights.in_flight,
            Flight(in_loop=True),
        )
        begun = False
        try:
            while (other := enter_flight(in_flight, name, flight)) is not None:
                if old is not MISSING:
                    if other.is_over():
                        continue
                    return old
                with Waiting(other, in_loop=True):
                    found = await other.wait_async(flight, deadline)
                if found is not MISSING:
                    return self._gabion_newest(key, found)
            leave = partial(leave_flight, in_flight, name, flight)
            loop = loop_of_task() if own_task else None
            making = self._gabion_run_factory(key, factory, as_put, (flight, leave, loop is not None), stale)
            if loop is not None:
                # Nobody but attend() holds the task: what it ends with may be an error, and lead back to this frame.
                making, begun = attend(flight, begin_task(loop, flight, making, leave)), True
            return await making
        finally:
            if not begun:
                leave_flight(in_flight, name, flight, MISSING)

    async def _gabion_run_factory(
        self,
        key: Any,
        factory: Callable[[], Awaitable[Any]],
        as_put: dict[str, Any],
        flown: tuple[Flight, Callable[[object], None], bool],
        stale: float,
    ) -> Any:
        """Make a key's value, and end the flight.

        In a task of its own this returns what was raised: where the first caller is gone, asyncio would say that nobody
        retrieved it.
        """
        (flight, leave, in_task), made = flown, MISSING
        try:
            flight.lease = lease = CacheTable._lease(self, key)
            token = run_flight(flight)
            try:
                value = CacheTable._look_making(self, key, MISSING)
                if value is MISSING or (stale and not self._gabion_is_fresh(key, stale)):
                    value = await factory()
                    made = CacheTable._keep(self, key, value, lease, as_put, bool(flight.waiters)) or MISSING
            finally:
                reset_current(token)
            return value
        except Exception as error:
            made = error, error.__traceback__
            if not in_task:
                raise
            return Raised(error)
        except (KeyboardInterrupt, SystemExit) as error:
            if not flight.attended:
                raise
            return Raised(error)
        finally:
            leave(made)
            # Now, and not by the task's callbacks: it has ended when the first caller takes its next step.
            flight.wake_first()
            # An error's traceback holds this frame.
            del made
