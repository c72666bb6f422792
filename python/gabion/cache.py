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

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

# Not for type checkers alone, as Literal and SupportsIndex: who asks for the hints of memoize() at run time gets them.
from datetime import date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, TypeVar, cast, overload

from gabion._arguments import AS_CACHE, check_name, given_of_put, listener_of, other_settings, pairs_of, times_of_table
from gabion._flights import MISSING, Flights
from gabion._making import is_asynchronous
from gabion._memoize import check_settings, memoized, refuse_by_value
from gabion._native import CacheStats, CacheTable, ClosedError
from gabion._results import PutResult
from gabion._saving import Saver
from gabion._stale import Renewer, longer_lived, seconds_of_stale

if TYPE_CHECKING:
    from typing import ParamSpec
    from uuid import UUID

    from typing_extensions import TypeVar as TypeVar_

    from gabion._arguments import AsCache
    from gabion._protocols import HasKeys, Memoized

    _K = TypeVar_("_K", bound=str | bytes | float | date | UUID | tuple[Any, ...] | None, default=Any)
    _V = TypeVar_("_V", default=Any)
    _P = ParamSpec("_P")
    _R = TypeVar("_R")
    _C = TypeVar("_C", bound=Callable[..., object] | None)

else:
    _K, _V = TypeVar("_K"), TypeVar("_V")

__all__ = ["Cache", "CacheStats", "PutResult", "Table"]

_OFFERED = 1_000

_D = TypeVar("_D")


class Table(Renewer[_K, _V]):
    """A table of a cache: its own keys, and its own limit and times if it was made with some.

    Made by ``cache.table(name)``. It has the methods of a cache, for its own keys.
    """

    _gabion_root: Cache

    def __init__(self, *_settings: Any, **_others: Any) -> None:
        """Refuse: ``cache.table(name)`` makes tables."""
        raise TypeError("a table is a part of a cache: make it with cache.table(name)")

    @property
    def max_bytes(self) -> int:
        """How many bytes the entries may take: the table's own limit, or the cache's where that is less."""
        return self.stats().max_bytes

    @property
    def ttl(self) -> float | None:
        """How many seconds a value lives if its put does not say; None is without end."""
        _limit, ttl, _idle = CacheTable._settings(self)
        return ttl

    @property
    def idle(self) -> float | None:
        """How many seconds a value lives without being asked for if its put does not say; None is without end."""
        _limit, _ttl, idle = CacheTable._settings(self)
        return idle

    def __iter__(self) -> Iterator[_K]:
        """Go through the keys that there are now."""
        return iter(dict.fromkeys(CacheTable._keys(self)))

    def _ipython_key_completions_(self) -> list[_K]:
        """Return keys that a notebook offers behind ``cache["``: some of them, where there are many."""
        return self.keys()[:_OFFERED]

    # Without it, reversed() would take the cache for a sequence and ask for the keys 0, 1, 2.
    __reversed__ = None

    def keys(self) -> list[_K]:
        """Return the keys that there are now. Takes time linear in the entries, as items() and values() do."""
        return list(self)

    def items(self) -> Iterator[tuple[_K, _V]]:
        """Go through the keys that there are now, and their values; what is removed meanwhile is left out.

        As keys() and ``in``, it counts as no use: neither as a hit, nor against an idle time. An iterator that is under
        way when the cache is closed, or the table dropped, raises ClosedError at its next step.
        """
        return self._gabion_items_of(self.keys())

    def _gabion_items_of(self, keys: list[_K]) -> Iterator[tuple[_K, _V]]:
        for key in keys:
            value = CacheTable._look(self, key, MISSING)
            if value is not MISSING:
                yield key, value

    def values(self) -> Iterator[_V]:
        """Go through the values, as items() does."""
        return (value for _, value in self.items())

    def put_many(
        self,
        mapping: HasKeys[_K, _V] | Iterable[tuple[_K, _V]],
        /,
        *,
        ttl: float | str | timedelta | None = None,
        idle: float | str | timedelta | None = None,
        expires_at: float | datetime | None = None,
        priority: int = 0,
    ) -> int:
        """Store the values of a mapping, or of pairs; keywords are those of put(). Return how many were stored.

        A mapping is what has ``keys()``, as for a dict's update(); times and priorities of another cache stay behind.
        One put() after the other: when one raises, those before it are stored, and a note of the error tells its key.
        """
        CacheTable._check(self)
        given: Any = mapping
        pairs: Iterable[tuple[Any, Any]]
        if isinstance(given, (Mapping, Table)):
            pairs = given.items()
        elif hasattr(given, "keys"):
            names = given.keys()
            pairs = ((name, given[name]) for name in names)
        else:
            pairs = pairs_of(given)
        as_put = given_of_put(ttl, idle, expires_at, priority)
        if as_put:
            CacheTable._check_put(ttl, idle, expires_at, priority)  # what is wrong with these is about no key
        put, rejected, stored = partial(self.put, **as_put) if as_put else self.put, PutResult.REJECTED, 0
        for key, value in pairs:
            try:
                if put(key, value) is not rejected:
                    stored += 1
            except Exception as error:
                CacheTable._tell_key(error, key)
                raise
        return stored

    def update(self, other: HasKeys[_K, _V] | Iterable[tuple[_K, _V]] = (), /, **values: _V) -> None:
        """Store the values of a mapping or of pairs, and keywords under their names, as a dict does. See put_many()."""
        self.put_many(other)
        self.put_many(cast("dict[_K, _V]", values))

    def setdefault(
        self,
        key: _K,
        value: _V,
        /,
        *,
        ttl: float | str | timedelta | None = None,
        idle: float | str | timedelta | None = None,
        expires_at: float | datetime | None = None,
        priority: int = 0,
    ) -> _V:
        """Return the key's value; if there is none, store and return ``value``. Keywords are those of put()."""
        found: Any = CacheTable.get(self, key, MISSING)
        if found is not MISSING:
            return found  # type: ignore[no-any-return]
        if self.add(key, value, ttl=ttl, idle=idle, expires_at=expires_at, priority=priority):
            return value
        return CacheTable._look(self, key, value)  # type: ignore[no-any-return]

    def change(
        self,
        key: _K,
        function: Callable[[Any], _V],
        /,
        default: Any = MISSING,
        *,
        ttl: float | str | timedelta | None = None,
        idle: float | str | timedelta | None = None,
        expires_at: float | datetime | None = None,
        priority: int = 0,
    ) -> _V:
        """Put ``function(value)`` in the value's place, in one step, and return it.

        No change by another thread is lost: where one comes between, ``function`` is called again, with the value that
        is there then, so it should be quick and do nothing else. It may change what it is given and return that; where
        it returns None for something else, as a function does that only changes it, that is a TypeError. What it raises
        changes nothing. Times and priority stay. Where there is no value, ``function(default)`` is put, with the
        keywords of put(); without a default that is a KeyError. As with get_or_put(), the new value is returned even if
        there is no room to keep it; then the key holds nothing, as after a refused put(). Raises RuntimeError where
        ``function`` itself puts something else under the key each time.

        >>> import gabion
        >>> cache = gabion.Cache("64 MiB")
        >>> cache.change("visitors", lambda seen: [*seen, "Ada"], [])
        ['Ada']
        >>> cache.change("visitors", lambda seen: [*seen, "Grace"], [])
        ['Ada', 'Grace']
        """
        if not callable(function):
            raise TypeError(f"change() takes a function of the value that is there, not {type(function).__qualname__}")
        while (changed := CacheTable._change(self, key, function, MISSING)) is MISSING:
            if default is MISSING:
                raise KeyError(key)
            made: _V = CacheTable._changed(function, default)
            # None: another value came between, and may be gone again.
            if (
                CacheTable._add(self, key, made, ttl=ttl, idle=idle, expires_at=expires_at, priority=priority)
                is not None
            ):
                return made
        return changed  # type: ignore[no-any-return]

    def incr(
        self,
        key: _K,
        delta: Any = 1,
        default: Any = 0,
        *,
        ttl: float | str | timedelta | None = None,
        idle: float | str | timedelta | None = None,
        expires_at: float | datetime | None = None,
        priority: int = 0,
    ) -> Any:
        """Add ``delta`` to the key's number in one step, and return the sum: change() with an addition.

        Where there is no number, ``default + delta`` is put, with the keywords of put(); that ``ttl`` runs from there,
        whatever is added later, so a count with one begins anew in each span.

        >>> import gabion
        >>> cache = gabion.Cache("64 MiB")
        >>> cache.incr("requests of 192.0.2.7", ttl=60), cache.incr("requests of 192.0.2.7", ttl=60)
        (1, 2)
        """

        def added(number: Any) -> Any:
            return number + delta

        # Nearly always there is a number: nobody looks at the keywords then.
        changed = CacheTable._change(self, key, added, MISSING)
        if changed is not MISSING:
            return changed
        return self.change(key, added, default, ttl=ttl, idle=idle, expires_at=expires_at, priority=priority)

    @overload
    def memoize(
        self,
        function: Callable[_P, _R],
        /,
        *,
        ttl: float | str | timedelta | Callable[[_R], float | str | timedelta | None] | None = None,
        stale: float | str | timedelta | None = None,
        key: Callable[..., Hashable] | None = None,
        typed: bool = False,
        idle: float | str | timedelta | None = None,
        expires_at: float | datetime | None = None,
        priority: int = 0,
        timeout: float | str | timedelta | None = None,
    ) -> Memoized[_P, _R]: ...
    @overload
    def memoize(
        self,
        /,
        *,
        ttl: float | str | timedelta | Callable[[Any], float | str | timedelta | None] | None = None,
        stale: float | str | timedelta | None = None,
        key: Callable[..., Hashable] | None = None,
        typed: bool = False,
        idle: float | str | timedelta | None = None,
        expires_at: float | datetime | None = None,
        priority: int = 0,
        timeout: float | str | timedelta | None = None,
    ) -> Callable[[Callable[_P, _R]], Memoized[_P, _R]]: ...
    def memoize(
        self,
        function: Any = MISSING,
        /,
        *,
        ttl: Any = None,
        stale: float | str | timedelta | None = None,
        key: Callable[..., Hashable] | None = None,
        typed: bool = False,
        idle: float | str | timedelta | None = None,
        expires_at: float | datetime | None = None,
        priority: int = 0,
        timeout: float | str | timedelta | None = None,
    ) -> Any:
        """Keep a function's results by its arguments; for functions and coroutine functions.

        Arguments may be what keys can be, and classes, Decimals, Fractions, datetimes, times, timedeltas, paths,
        members of an Enum, frozensets, frozen dataclasses (by the fields that are compared) and NumPy's integers and
        floats. For any others (a method's ``self``, too) pass ``key``: it is called with the arguments and returns what
        stands for them all, which is whatever an argument may be, mostly a tuple: ``key=lambda self, at=None:
        (type(self), self.id, at)``, with the defaults of the function. Calls that are spelled in another way, as f(1)
        and f(a=1), are others; with ``typed``, so are 1, 1.0 and True, as with functools.lru_cache.

        Results lie in a table of their own with times and a limit as this one's, which they do not share; the other
        keywords are those of put(), and ``timeout``, which is that of get_or_put(). ``ttl`` may also be a function of
        the result that returns one: None is the table's, and a result whose ttl is 0 is not kept. As with get_or_put(),
        only one call with equal arguments runs at a time, and those who wait have its result or its error; and for a
        time ``stale`` after its ttl, a result serves all callers but the one that makes the next.

        The function gets four methods. ``cache_clear()`` drops its results; ``cache_discard(...)``, called with the
        function's own arguments, drops that call's, and returns whether there was one. What a call returns that began
        before is not kept. ``cache_stats()`` returns the table's figures, ``cache_table()`` the table. When the
        function itself is gone, so is its table; where drop_table() took that, the next call makes a new one, with new
        figures. That end and ``cache_clear()`` take as long as drop_table(): memoize functions that last, not ones that
        are made anew for each request, or do it on a table with a limit of its own.

        >>> import gabion
        >>> cache = gabion.Cache("64 MiB")
        >>> @cache.memoize(ttl=60)
        ... def area(width, height):
        ...     return width * height
        >>> area(3, 4)
        12
        >>> area.cache_discard(3, 4), area.cache_discard(3, 4)
        (True, False)
        """
        # Now, at the function's definition: not at its first call, which may come late.
        CacheTable._check_put(ttl, idle, expires_at, priority)
        seconds = None if timeout is None else CacheTable._seconds("timeout", timeout)
        check_settings(ttl, key, typed)
        as_put, past = given_of_put(ttl, idle, expires_at, priority), seconds_of_stale(stale)
        if past:
            as_put = longer_lived(self, as_put, past)
        wrap = partial(memoized, self, key=key, as_put=as_put, typed=bool(typed), timeout=seconds, stale=past)
        return wrap if function is MISSING else wrap(function)

    def clear(self) -> int:
        """Remove all entries of the table. Return how many.

        Takes time in proportion to the table's entries if it has a limit of its own, otherwise to those of the whole
        cache, unless the table has none, or no other has any: then to the memory that they take, as Cache.clear() does.
        """
        return CacheTable._clear_table(self)

    def stats(self) -> CacheStats:
        """Return the table's figures."""
        return CacheTable._table_stats(self)

    def __reduce_ex__(self, _protocol: object, /) -> Any:
        """Refuse, for pickle and copy."""
        if not isinstance(self, Cache):
            refuse_by_value(self.name)
        kind = "Cache" if isinstance(self, Cache) else "Table"
        raise TypeError(f"a gabion.{kind} cannot be pickled or copied: it is memory of this process; make another one")

    def __repr__(self) -> str:
        """Name the table and its size; a cache's is that of all its tables."""
        named = type(self).__qualname__ if type(self) not in (Table, Cache) else f"gabion.{type(self).__name__}"
        try:
            named += f" {self.name!r}" if self.name else ""
            if self.closed:
                return f"<{named}, closed>"
            figures = self.stats()
            noun = "entry" if figures.entries == 1 else "entries"
            return f"<{named}: {figures.entries} {noun}, {figures.bytes} of {figures.max_bytes} bytes>"
        except ClosedError:  # just now, by another thread
            return f"<{named}, closed>"
        except RuntimeError:
            return f"<{named}, not set up>"


class Cache(Saver, Table[_K, _V]):
    """A cache of at most ``max_bytes`` (int, or text such as "64 MiB"), keys, headers, index and pages included.

    ``max_bytes`` counts bytes, not entries: from 4 KiB up, or 0 for a cache that refuses every put. ``ttl`` is how
    long values live, ``idle`` how long they live without being asked for: seconds, text such as "5 min", or a
    timedelta; by default without end. ``name`` is shown by repr(). ``policy`` says what is evicted when room is
    needed: "default" (what was used least recently and least often), or the exact "lru", "fifo" and "s3fifo", which
    keep one order over the whole cache and have one lock for writers.

    Keys are str, bytes, int, float, date, UUID, None and tuples of them, equal where a dict takes them for equal: True,
    1.0 and NumPy's int64(1) are 1, and come back as 1. Values are whatever a Pile can store; each get builds a new
    object. ``cache[key] = value`` keeps nothing, without telling, when there is no room; put() tells.

    An entry costs its encoded key and value, 25 bytes, rounding, and 24 bytes of the index; one of more than 1 KiB
    about 40 bytes more. A time limit costs another 24 bytes, 8 more if its put was given a ``ttl``, and 8 more if it
    stands beside an idle time. Gets and puts take time linear in the value, however many entries there are.

    Raises ValueError or TypeError for settings that make no sense, MemoryError where there is no memory for a new one.
    Other calls raise KeyError when there is no value (``cache[key]``, ``del``, and pop() without a default), TypeError
    for a key of another type, CodecError for a value that cannot be stored, or not built again, and ClosedError after
    close().

    All methods may be called from any thread at any time. len() also counts what has expired and was not yet removed.
    A subclass may have an ``__init__`` of other parameters, which calls this one first; calls before that raise
    RuntimeError. ``Cache[str, Page]`` names the types of keys and values for type checkers.

    >>> import gabion
    >>> cache = gabion.Cache("64 MiB")
    >>> cache.put("key", [1, 2, 3], ttl=60)
    <PutResult.INSERTED: 'inserted'>
    >>> cache.get_or_put("other", lambda: "made once")
    'made once'
    """

    _gabion_title: str | None = None

    def __init__(
        self,
        max_bytes: SupportsIndex | str,
        *,
        ttl: float | str | timedelta | None = None,
        idle: float | str | timedelta | None = None,
        name: str | None = None,
        policy: Literal["default", "lru", "fifo", "s3fifo"] = "default",
    ) -> None:
        """Set up the cache, once."""
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a str, not {type(name).__qualname__}")
        CacheTable._set_up(self, max_bytes, ttl, idle, policy)
        self._gabion_flights = Flights()
        self._gabion_title = name
        # Weak, so that a cache nobody holds is gone at once; what a table holds stays without its handle.
        self._gabion_tables: weakref.WeakValueDictionary[str, Table] = weakref.WeakValueDictionary()
        # Taken again by the same thread where the collector runs code of others meanwhile.
        self._gabion_lock = threading.RLock()
        self._gabion_memoized = itertools.count(1)
        # Tables that load() has made, until somebody asks for them.
        self._gabion_loaded: set[str] = set()
        self._gabion_number = next(_numbers)
        _caches[id(self)] = self

    @property
    def name(self) -> str:
        """What the cache was named, or an empty text."""
        return self._gabion_title or ""

    @property
    def max_bytes(self) -> int:
        """How many bytes the cache may take; can be set, to what it was made with or less.

        What is more is evicted before that returns, the lowest priority first and as the policy has it, in time linear
        in what goes. Other threads go on meanwhile, but not while on_evict() has a callback, which hears of all of it.
        ValueError for more than the cache was made with: make it with the most that it may ever take, and set less at
        once.
        """
        return self.stats().max_bytes

    @max_bytes.setter
    def max_bytes(self, value: SupportsIndex | str) -> None:
        CacheTable._set_max_bytes(self, value)

    @property
    def _gabion_space(self) -> str:
        return ""

    @property
    def _gabion_root(self) -> Cache:  # type: ignore[override]
        return self

    def table(
        self,
        name: str,
        *,
        max_bytes: SupportsIndex | str | None = None,
        ttl: float | str | timedelta | AsCache | None = AS_CACHE,
        idle: float | str | timedelta | AsCache | None = AS_CACHE,
    ) -> Table:
        """Return the table of a name, made with these settings when there is none.

        It shares the cache's budget; ``max_bytes`` (4 KiB or more, or 0) limits it to a part, by default to all of it.
        ``ttl`` and ``idle`` are those of the cache unless they are given; None means without end. A table that exists
        keeps its settings: others that are given are a ValueError. A cache has at most 65,535 tables at one time,
        dropped ones that are still held included; one more is an OverflowError. Names that begin with ``memoize:`` are
        those of memoized functions' tables, and refused here.

        Tables hold other types than the cache; ``pages: gabion.Table[int, Page] = cache.table("pages")`` names them for
        type checkers.
        """
        check_name(name, new=True)
        return self._gabion_table_like(name, max_bytes=max_bytes, ttl=ttl, idle=idle)

    def _gabion_table_like(self, name: str, *, max_bytes: Any, ttl: Any, idle: Any) -> Table:
        """Return the table of a name; ValueError when it has other settings than these."""
        CacheTable._check(self)
        with self._gabion_lock:
            table = self._gabion_table(name, max_bytes, ttl, idle)
            wrong = other_settings(table, self, max_bytes, ttl, idle)
            if wrong and name not in self._gabion_loaded:
                raise ValueError(wrong)
            self._gabion_loaded.discard(name)
            if wrong:
                CacheTable._drop_table(self, name)
                table = self._gabion_table(name, max_bytes, ttl, idle)
            return table

    def _gabion_table(self, name: str, max_bytes: Any = None, ttl: Any = AS_CACHE, idle: Any = AS_CACHE) -> Table:
        """Return the table of a name, with the settings that it has."""
        with self._gabion_lock:
            table = self._gabion_tables.get(name)
            if table is None or table.closed:
                table = Table.__new__(Table)
                times = times_of_table(CacheTable._settings(self), ttl, idle)
                CacheTable._set_up_in(table, self, name, max_bytes, *times)
                table._gabion_flights, table._gabion_root = self._gabion_flights, self
                self._gabion_tables[name] = table
            return table

    def tables(self) -> list[str]:
        """Return the names of the tables, without the cache's own."""
        CacheTable._check(self)
        return [name for name in CacheTable._table_names(self) if name]

    def drop_table(self, name: str) -> bool:
        """Drop a table with all that is in it; who still holds it gets ClosedError. Return whether there was one.

        Takes time as Table.clear(): if it has entries and others have some, in proportion to those of the whole cache,
        or to its own if it has a limit of its own. Other threads go on meanwhile, but not while on_evict() has a
        callback: then the GIL is held over it.
        """
        CacheTable._check(self)
        check_name(name)
        with self._gabion_lock:
            self._gabion_tables.pop(name, None)
        return CacheTable._drop_table(self, name)

    def clear(self) -> int:
        """Remove all entries of all tables. Return how many.

        Takes time in proportion to the memory that they take, not to their number.
        """
        return CacheTable._clear_all(self)

    def expire(self) -> int:
        """Remove the entries whose time is over. Return how many.

        Nobody needs to call it: gets never return what is over, puts remove a few such entries on the way, and a thread
        looks once a second.
        """
        return CacheTable._expire(self)

    def stats(self) -> CacheStats:
        """Return the figures of all tables, summed, and of the memory that they share. Takes no look at the entries."""
        return CacheTable._total_stats(self)

    def on_evict(self, callback: _C) -> _C:
        """Have ``callback(key, value)`` called with each entry that is evicted or expires; None ends it.

        A callback that needs three arguments, or has a parameter ``reason`` as its third, is also given the reason,
        "evicted" or "expired"; one with a parameter ``table``, wherever it stands, the name of the entry's table: ""
        for the cache's own, ``f.cache_table().name`` for a memoized function's. It runs on the thread whose call made
        the entry leave, with no lock held; what it raises goes to sys.unraisablehook, and Ctrl-C, as SystemExit in
        the main thread, is raised once more when that call is over. Entries that callers remove or replace are not told
        of. A callback that puts the same entry back into a full cache makes others leave, and is called with each of
        those, too. While there is a callback, no thread looks for what has expired: later calls find it, and expire().
        Can be used as a decorator.
        """
        if callback is None:
            CacheTable._on_evict(self, None)
        elif not callable(callback):
            raise TypeError(f"on_evict takes a function of key and value, or None, not {callback!r}")
        elif is_asynchronous(callback):
            raise TypeError("on_evict takes a plain function: nobody would await what a coroutine function returns")
        else:
            CacheTable._on_evict(self, listener_of(callback))
        return callback

    def close(self) -> None:
        """Remove everything and refuse every further call with ClosedError. Closing twice does nothing."""
        CacheTable._close(self)

    def __enter__(self) -> Self:
        """Close the cache at the end of the with-statement."""
        CacheTable._check(self)
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the cache."""
        self.close()


# By their identity: a subclass may compare in a way of its own, and have no hash.
_caches: weakref.WeakValueDictionary[int, Cache] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def _after_fork() -> None:
    """In a child that was forked: threads that held a cache's lock are not here."""
    for cache in list(_caches.values()):
        cache._gabion_lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
