"""A cache bounded in bytes: expiry, priorities, one factory call per key.

>>> import gabion
>>> cache = gabion.Cache("64 MiB", ttl=300)
>>> cache["stone"] = {"bytes": 4194304}
>>> cache["stone"]["bytes"]
4194304
>>> cache.get("gone", "not there")
'not there'
"""

from __future__ import annotations

import asyncio
import enum
import functools
import inspect
import struct
import threading
import weakref
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import UUID

from gabion._native import CacheStats, CacheTable

__all__ = ["Cache", "CacheStats", "PutResult", "Table"]

_F = TypeVar("_F", bound=Callable[..., Any])
_MISSING: Any = object()


class PutResult(enum.Enum):
    """What became of a put."""

    INSERTED = "inserted"
    REPLACED = "replaced"
    REJECTED = "rejected"


CacheTable._results(list(PutResult))


class _Flight:
    """A factory that runs: its result to come, who runs it, and for whom each runner waits."""

    __slots__ = ("future", "runner")

    def __init__(self, runner: object) -> None:
        self.future: Future[Any] = Future()
        self.runner = runner


class _Flights:
    """The factories that run for one cache's keys."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.flying: dict[tuple[str, bytes], _Flight] = {}
        self.waiting: dict[object, _Flight] = {}

    def begin(self, key: tuple[str, bytes], runner: object) -> tuple[_Flight, bool]:
        """Return the key's flight, and whether the caller runs it; waiting that would never end is a RuntimeError."""
        with self.lock:
            flight = self.flying.get(key)
            if flight is None:
                flight = self.flying[key] = _Flight(runner)
                return flight, True
            if flight.runner == runner:
                raise RuntimeError("the factory of this key asks for the key itself: it would wait for its own end")
            behind: _Flight | None = flight
            while behind is not None:
                if behind.runner == runner:
                    raise RuntimeError("factories of several keys ask for each other's keys: each would wait for ever")
                behind = self.waiting.get(behind.runner)
            self.waiting[runner] = flight
            return flight, False

    def end(self, key: tuple[str, bytes], flight: _Flight) -> None:
        """Let the next caller run the key's factory."""
        with self.lock:
            if self.flying.get(key) is flight:
                del self.flying[key]

    def waited(self, runner: object) -> None:
        """Note that a runner waits no longer."""
        with self.lock:
            self.waiting.pop(runner, None)


def _thread() -> object:
    return ("thread", threading.get_ident())


def _task() -> object:
    return ("task", asyncio.current_task())


class Table(CacheTable):
    """A table of a cache: its own keys, and its own limit and times if it was made with some.

    Made by ``cache.table(name)``. It has the methods of a cache, for its own keys.
    """

    _flights: _Flights
    _root: Cache

    @property
    def _space(self) -> str:
        return self.name

    def pop(self, key: Hashable, default: Any = _MISSING, /) -> Any:
        """Get and remove in one step. Without a default, a key that is not there is a KeyError."""
        found = self._pop(key)
        if found is not None:
            return found[0]
        if default is _MISSING:
            raise KeyError(key)
        return default

    def __iter__(self) -> Iterator[Any]:
        """Go through the keys that there are now."""
        return iter(dict.fromkeys(self._keys()))

    def keys(self) -> list[Any]:
        """Return the keys that there are now."""
        return list(self)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Go through keys and values; what leaves meanwhile is passed over."""
        for key in self:
            value = self.get(key, _MISSING)
            if value is not _MISSING:
                yield key, value

    def values(self) -> Iterator[Any]:
        """Go through the values."""
        return (value for _, value in self.items())

    def put_many(self, mapping: Mapping[Any, Any] | Iterable[tuple[Any, Any]], /, **as_put: Any) -> int:
        """Store many values; keywords are those of put(). Return how many were stored."""
        pairs = mapping.items() if isinstance(mapping, Mapping) else mapping
        return sum(self.put(key, value, **as_put) is not PutResult.REJECTED for key, value in pairs)

    def setdefault(self, key: Hashable, value: Any, /, **as_put: Any) -> Any:
        """Return the key's value; if there is none, store and return ``value``."""
        found = self.get(key, _MISSING)
        if found is not _MISSING:
            return found
        if self.add(key, value, **as_put):
            return value
        return self.get(key, value)

    def get_or_put(self, key: Hashable, factory: Callable[[], Any], **as_put: Any) -> Any:
        """Return the key's value, or what the factory makes of it; keywords are those of put().

        However many threads ask for a key that is not there, one factory runs; the others wait for its value, or try
        themselves when it raises. With a coroutine function as factory this returns a coroutine to be awaited, and
        tasks take the places of threads. The value is returned even when there is no room to keep it.

        A factory that asks for its own key, and factories that wait for each other, raise RuntimeError.
        """
        if inspect.iscoroutinefunction(factory):
            return self._get_or_put_async(key, factory, as_put)
        value = self.get(key, _MISSING)
        if value is not _MISSING:
            return value
        name, runner = (self._space, self._key(key)), _thread()
        while True:
            flight, runs = self._flights.begin(name, runner)
            if runs:
                return self._fly(key, name, flight, factory, as_put)
            try:
                made = flight.future.result()
            finally:
                self._flights.waited(runner)
            if made is not _MISSING:
                return self.get(key, made)

    def _fly(self, key: Any, name: Any, flight: _Flight, factory: Callable[[], Any], as_put: dict[str, Any]) -> Any:
        made = _MISSING
        try:
            # Another may have put it between the look and the begin.
            value = self.get(key, _MISSING)
            if value is _MISSING:
                value = factory()
                self.put(key, value, **as_put)
            made = value
        finally:
            self._flights.end(name, flight)
            flight.future.set_result(made)
        return made

    async def _get_or_put_async(self, key: Any, factory: Callable[[], Awaitable[Any]], as_put: dict[str, Any]) -> Any:
        value = self.get(key, _MISSING)
        if value is not _MISSING:
            return value
        name, runner = (self._space, self._key(key)), _task()
        while True:
            flight, runs = self._flights.begin(name, runner)
            if runs:
                made = _MISSING
                try:
                    value = self.get(key, _MISSING)
                    if value is _MISSING:
                        value = await factory()
                        self.put(key, value, **as_put)
                    made = value
                finally:
                    self._flights.end(name, flight)
                    flight.future.set_result(made)
                return made
            try:
                # Shielded, because a waiter that is cancelled must not cancel the others.
                made = await asyncio.shield(asyncio.wrap_future(flight.future))
            finally:
                self._flights.waited(runner)
            if made is not _MISSING:
                return self.get(key, made)

    def memoize(
        self, ttl: Any = None, *, key: Callable[..., Hashable] | None = None, **as_put: Any
    ) -> Callable[[_F], _F]:
        """Keep a function's results by its arguments; for functions and coroutine functions.

        Arguments are what keys can be, and None, floats and bools besides; ``key``, called with the arguments, makes a
        key of any others. The function's results are dropped by its ``cache_clear()``.
        """

        def wrap(function: _F) -> _F:
            table = self._root.table(f"memoize:{function.__module__}.{function.__qualname__}:{next(_numbers)}")
            make_key = key or _arguments
            if ttl is not None:
                as_put["ttl"] = ttl

            if inspect.iscoroutinefunction(function):

                @functools.wraps(function)
                async def asynchronous(*args: Any, **kwargs: Any) -> Any:
                    async def factory() -> Any:
                        return await function(*args, **kwargs)

                    return await table.get_or_put(make_key(*args, **kwargs), factory, **as_put)

                made: Any = asynchronous
            else:

                @functools.wraps(function)
                def synchronous(*args: Any, **kwargs: Any) -> Any:
                    arguments = make_key(*args, **kwargs)
                    value = table.get(arguments, _MISSING)
                    if value is not _MISSING:
                        return value
                    return table.get_or_put(arguments, lambda: function(*args, **kwargs), **as_put)

                made = synchronous
            made.cache_clear = table.clear
            made.cache_stats = table.stats
            return made  # type: ignore[no-any-return]

        return wrap

    def clear(self) -> int:
        """Remove all entries of the table. Return how many."""
        return self._clear_table()

    def stats(self) -> CacheStats:
        """Return the table's figures."""
        return self._table_stats()

    def __repr__(self) -> str:
        """Name the table and its size."""
        if self.closed:
            return f"<gabion.{type(self).__name__} {self.name!r}, closed>"
        return f"<gabion.{type(self).__name__} {self.name!r}: {len(self)} entries>"


class Cache(Table):
    """A cache of at most ``max_bytes``, counted with keys, headers, rounding and index.

    ``ttl`` and ``idle`` (seconds or timedelta) are how long values live, and how long they live unasked for. Keys are
    str, bytes, int, UUID and tuples of them, equal where a dict takes them for equal: True is 1. Values are whatever a
    Pile can store; each get builds a new object. ``policy`` says who goes when room is needed: "default" (recency and
    frequency), or the exact "lru", "fifo" and "s3fifo".

    All methods may be called from any thread at any time. len() also counts what has expired and was not yet removed.

    >>> import gabion
    >>> cache = gabion.Cache("64 MiB")
    >>> cache.put("key", [1, 2, 3], ttl=60)
    <PutResult.INSERTED: 'inserted'>
    >>> cache.get_or_put("other", lambda: "made once")
    'made once'
    """

    def __init__(
        self,
        max_bytes: int | str,
        *,
        ttl: Any = None,
        idle: Any = None,
        name: str | None = None,
        policy: str = "default",
    ) -> None:
        """Set up what the tables share; the arguments are read by __new__."""
        self._flights = _Flights()
        self._title = name
        # Weak, so that a cache nobody holds is gone at once; what a table holds stays without its handle.
        self._tables: weakref.WeakValueDictionary[str, Table] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """What the cache was named, or an empty text."""
        return self._title or ""

    @property
    def _space(self) -> str:
        return ""

    @property
    def _root(self) -> Cache:  # type: ignore[override]
        return self

    def table(self, name: str, *, max_bytes: int | str | None = None, ttl: Any = None, idle: Any = None) -> Table:
        """Return the table of a name, made with these settings when there is none.

        It shares the cache's budget; ``max_bytes`` limits it to a part. The settings of a table that is there stay.
        """
        with self._lock:
            table = self._tables.get(name)
            if table is None or table.closed:
                if not name:
                    raise ValueError("a table needs a name; the cache itself is the one without")
                table = Table(max_bytes, ttl=ttl, idle=idle, name=name, parent=self)
                table._flights, table._root = self._flights, self
                self._tables[name] = table
            return table

    def tables(self) -> list[str]:
        """Return the names of the tables, without the cache's own."""
        return [name for name in self._table_names if name]

    def drop_table(self, name: str) -> bool:
        """Drop a table with all that is in it; who still holds it gets ClosedError. Return whether there was one."""
        with self._lock:
            self._tables.pop(name, None)
            return self._drop_table(name)

    def clear(self) -> int:
        """Remove all entries of all tables. Return how many."""
        return self._clear_all()

    def expire(self) -> int:
        """Remove all entries whose time is over. Return how many.

        Nobody needs to call it: gets look at the time, puts remove a little on the way, and a thread looks each second.
        """
        return self._expire()

    def stats(self) -> CacheStats:
        """Return the figures of all tables, summed, and of the memory that they share."""
        return self._total_stats()

    def on_evict(self, callback: Callable[..., object] | None) -> Any:
        """Have ``callback(key, value)`` called with each entry that is evicted or expires; None ends it.

        A callback with three parameters is also given the reason, "evicted" or "expired". It runs on the thread whose
        call made the entry leave, with no lock held; what it raises goes to sys.unraisablehook. Entries that callers
        remove or replace are not told of. Can be used as a decorator.
        """
        if callback is None:
            self._on_evict(None)
        elif _takes_three(callback):
            self._on_evict(callback)
        else:
            self._on_evict(lambda key, value, reason: callback(key, value))
        return callback

    def close(self) -> None:
        """Remove everything and refuse every further call with ClosedError. Closing twice does nothing."""
        self._close()

    def __enter__(self) -> Cache:
        """Close the cache at the end of the with-statement."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the cache."""
        self.close()


_numbers = iter(range(1 << 62))


def _takes_three(callback: Callable[..., object]) -> bool:
    try:
        inspect.signature(callback).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _argument(value: Any) -> Any:
    """Make a key of an argument, so that equal arguments are equal keys and no others."""
    if isinstance(value, str | bytes | int | UUID):
        return value
    if value is None:
        return ((), "none")
    if isinstance(value, float):
        return int(value) if value.is_integer() else ((), "float", struct.pack("<d", value))
    if isinstance(value, tuple):
        return ((), "tuple", tuple(_argument(item) for item in value))
    raise TypeError(f"memoize has no key for an argument of type {type(value).__qualname__}: pass key=")


def _arguments(*args: Any, **kwargs: Any) -> Any:
    named = tuple((name, _argument(value)) for name, value in sorted(kwargs.items()))
    return (tuple(_argument(value) for value in args), named)
