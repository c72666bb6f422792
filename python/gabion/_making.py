"""Making the value of a key that has none: one factory at a time, by plain functions and by coroutine functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import CoroutineType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from gabion._flights import MISSING, Flight, Flights, Running, Waiting
from gabion._native import CacheTable, enter_flight, leave_flight

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
    from inspect import iscoroutinefunction

    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


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


class Maker(CacheTable[_K, _V]):
    """A table as far as factories make its values."""

    _gabion_flights: Flights

    @property
    def _gabion_space(self) -> str:
        """What tells its keys from those of the cache's other tables."""
        return self.name

    def _gabion_make(self, key: Any, factory: Callable[[], Any], as_put: dict[str, Any]) -> Any:
        """What get_or_put() does for a key that is not there. One miss is counted already; nothing more is."""
        if not callable(factory):
            given = type(factory).__qualname__
            raise TypeError(
                f"get_or_put() takes a function that makes the value, not {given}: pass lambda: ... or use setdefault()"
            )
        making = CacheTable._making(self, key)
        try:
            value = making.begin(MISSING)
            if value is MISSING:
                value = factory()
                making.keep(value, as_put)
            return value
        finally:
            # At once, and nothing else: a signal's handler may raise at any call of Python code.
            making.end()

    def _gabion_newest(self, key: Any, found: bytes) -> Any:
        """The key's value, or what another has just made for it: everybody's own object."""
        value = CacheTable._look_making(self, key, MISSING)
        return CacheTable._rebuild(self, found) if value is MISSING else value

    async def _gabion_get_or_put_async(
        self, key: Any, factory: Callable[[], Awaitable[Any]], as_put: dict[str, Any]
    ) -> Any:
        value = CacheTable.get(self, key, MISSING)
        return await self._gabion_make_async(key, factory, as_put) if value is MISSING else value

    async def _gabion_make_async(self, key: Any, factory: Callable[[], Awaitable[Any]], as_put: dict[str, Any]) -> Any:
        """As _make(), for a coroutine function."""
        name, flying, flight = (
            (self._gabion_space, CacheTable._key(self, key)),
            self._gabion_flights.flying,
            Flight(in_loop=True),
        )
        made: Any = MISSING
        try:
            while (other := enter_flight(flying, name, flight)) is not None:
                with Waiting(other, in_loop=True):
                    found = await other.arrive()
                if found is not MISSING:
                    return self._gabion_newest(key, found)
            flight.lease = lease = CacheTable._lease(self, key)
            with Running(flight):
                value = CacheTable._look_making(self, key, MISSING)
                if value is MISSING:
                    value = await factory()
                    made = CacheTable._keep(self, key, value, lease, as_put, flight.awaited) or MISSING
            return value
        finally:
            leave_flight(flying, name, flight, made)
