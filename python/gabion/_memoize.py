"""Functions whose results are kept."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

from gabion._arguments import MEMOIZED
from gabion._flights import MISSING, Deadline
from gabion._making import is_asynchronous, memoized_as
from gabion._native import CacheTable, ClosedError, _import
from gabion._standins import NoKeyError

if TYPE_CHECKING:
    from gabion._native import CacheStats
    from gabion.cache import Cache, Table

_T = TypeVar("_T")

_GENERATOR = 0x20 | 0x200  # inspect.CO_GENERATOR, inspect.CO_ASYNC_GENERATOR


def check_function(function: Any) -> None:
    """Raise TypeError for what is no function whose results can be kept."""
    kind = type(function).__qualname__
    if isinstance(function, staticmethod) or (not callable(function) and hasattr(type(function), "__get__")):
        raise TypeError(f"memoize() keeps the results of a function, not of a {kind}: put @{kind} outermost")
    if not callable(function):
        raise TypeError(f"memoize() keeps the results of a function, not of {kind}; pass times by name, as in ttl=60")
    while isinstance(function, (functools.partial, MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    # A function's own code, or that of the method which calls the object.
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is not None and code.co_flags & _GENERATOR:
        raise TypeError(
            f"memoize() keeps results, and {getattr(function, '__qualname__', kind)}() returns a generator, which goes "
            "through its values once: memoize a function that returns list(...) of it"
        )


def check_settings(ttl: object, key: object, typed: bool) -> None:
    """Raise TypeError for settings of memoize() that make no sense."""
    if callable(ttl) and is_asynchronous(ttl):
        raise TypeError("memoize(ttl=...) takes a time or a plain function of the result, not a coroutine function")
    if key is not None and not callable(key):
        given = type(key).__qualname__
        raise TypeError(f"memoize(key=...) takes a function of the same arguments that returns a key, not {given}")
    if key is not None and typed:
        raise TypeError("memoize() takes typed=True or key=, not both: what key= returns may hold the types")


def with_types(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Return the key of a call whose arguments are others where their types are."""
    if not kwargs:
        return args, tuple(map(type, args))
    named = sorted(kwargs.items())
    return args, tuple(named), tuple(map(type, args)), tuple(type(value) for _, value in named)


def table_for(above: Table, function: Callable[..., Any]) -> Callable[[], Table]:
    """Return what returns a function's table, with limits as another's, and makes it where it was dropped.

    After the cache's end it raises ClosedError.
    """
    limit, ttl, idle = CacheTable._settings(above)
    root = above._gabion_root
    with root._gabion_lock:
        number = next(root._gabion_memoized)
    module = getattr(function, "__module__", None)
    called = getattr(function, "__qualname__", type(function).__qualname__)
    return functools.partial(
        root._gabion_table_like, f"{MEMOIZED}{module}.{called}:{number}", max_bytes=limit, ttl=ttl, idle=idle
    )


def memoized(
    above: Table,
    function: Callable[..., Any],
    *,
    key: Callable[..., Hashable] | None,
    as_put: dict[str, Any],
    typed: bool,
    timeout: float | None,
    stale: float,
) -> Any:
    """Return a function that keeps its results in a table of its own, by its arguments or by a ``key``.

    If ``typed``, the arguments' types are a part of the key, and there is no ``key``. A call waits for another's result
    for ``timeout`` seconds. A result is stale in its last ``stale`` seconds.
    """
    check_function(function)
    made_table = table_for(above, function)
    made = kept_in(made_table, function, key, as_put, typed, (timeout, stale))
    weakref.finalize(made, drop_memoized, weakref.ref(above._gabion_root), made_table().name).atexit = False
    return made


class _MemoizedTable:
    """The table that a function's results lie in, or the one that was made when that was dropped, and their keys."""

    __slots__ = ("_alive", "_function", "_made_table", "_of_arguments", "key", "newest")

    def __init__(
        self,
        made_table: Callable[[], Table],
        function: Callable[..., Any],
        key: Callable[..., Hashable] | None,
        typed: bool,
    ) -> None:
        self._made_table, self._function, self._of_arguments = made_table, function, key is None
        # What returns the key of a call; None where its arguments are the key.
        self.key = with_types if typed else key
        table = made_table()
        # One object, so that no thread sees the table of one and the method of another.
        self.newest = table, table._recall

    def belong_to(self, made: Any) -> None:
        """Note the function that keeps its results here, and give it the methods that programs know."""
        self._alive = weakref.ref(made)
        made.cache_clear, made.cache_discard = self.cache_clear, self.cache_discard
        made.cache_stats, made.cache_table = self.cache_stats, self.cache_table

    def renew(self, dropped: Table) -> bool:
        """Whether there is another table in place of one that was dropped. After the cache's end this raises."""
        # Nobody needs a table who only has a method of a function that is gone, and nobody would drop it.
        if not dropped.closed or self._alive() is None:
            return False
        if self.newest[0] is dropped:
            table = self._made_table()
            self.newest = table, table._recall
        return True

    def lookup(self, asked: Any, named: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Table, Any]:
        """Return the table that is not dropped, and what it has for a call; the key is ``asked`` and ``named``.

        For a look that has raised: it is repeated where the table was dropped, and says what is wrong otherwise.
        """
        while True:
            table, recall = self.newest
            try:
                return table, recall(asked, named, MISSING)
            except ClosedError as error:
                if not self.renew(table):
                    # The look before this one has raised the same.
                    raise error from None
            except NoKeyError as error:
                raise self._refusal(error, asked, args, kwargs) from None

    def _refusal(self, error: NoKeyError, asked: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
        """The error for arguments, or for what ``key`` returned, with what to write instead."""
        # Only here: inspect takes a while to import.
        advice = _import("gabion._advice")
        if self._of_arguments:
            return TypeError(f"{error}{advice.example(self._function, args, kwargs)}")
        return TypeError(advice.returned(error, asked))

    def _of_current(self, method: Callable[[Table], _T]) -> _T:
        """Return what a table's method does, on one that was not dropped."""
        while True:
            table, _ = self.newest
            try:
                return method(table)
            except ClosedError:
                if not self.renew(table):
                    raise

    def cache_clear(self) -> int:
        """Drop the results. Return how many there were."""
        return self._of_current(lambda table: table.clear())

    def cache_discard(self, *args: Any, **kwargs: Any) -> bool:
        """Drop the result of a call with these arguments. Return whether there was one."""
        asked, named = (self.key(*args, **kwargs), None) if self.key else (args, kwargs)
        try:
            arguments = CacheTable._call_key(asked, named)
        except NoKeyError as error:
            raise self._refusal(error, asked, args, kwargs) from None
        return self._of_current(lambda table: table.discard(arguments))

    def cache_stats(self) -> CacheStats:
        """Return the figures of the results' table."""
        return self._of_current(lambda table: table.stats())

    def cache_table(self) -> Table:
        """Return the table that the results lie in."""

        def checked(table: Table) -> Table:
            table._check()
            return table

        return self._of_current(checked)

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any:
        """Refuse to be pickled with the function, as the table does."""
        return self.newest[0].__reduce_ex__(protocol)


def kept_in(
    made_table: Callable[[], Table],
    function: Callable[..., Any],
    key: Callable[..., Hashable] | None,
    as_put: dict[str, Any],
    typed: bool,
    times: tuple[float | None, float],
) -> Any:
    """Return a function that keeps its results in the table that ``made_table`` returns."""
    results = _MemoizedTable(made_table, function, key, typed)
    wrapped = _asynchronous if is_asynchronous(function) else _synchronous
    made = wrapped(results, function, as_put, times)
    results.belong_to(made)
    return made


def _deadline(timeout: float | None) -> Deadline | None:
    return None if timeout is None else Deadline(timeout)


# In both functions below, a hit calls nothing written in Python but `key`: lookup() is for what goes wrong.


def _synchronous(
    results: _MemoizedTable, function: Callable[..., Any], as_put: dict[str, Any], times: tuple[float | None, float]
) -> Any:
    key, (timeout, stale) = results.key, times

    @functools.wraps(function)
    def synchronous(*args: Any, **kwargs: Any) -> Any:
        asked, named = (key(*args, **kwargs), None) if key else (args, kwargs)
        table, recall = results.newest
        try:
            value = recall(asked, named, MISSING)
        except (ClosedError, NoKeyError):
            table, value = results.lookup(asked, named, args, kwargs)
        if value is not MISSING:
            if not stale:
                return value
            again = functools.partial(function, *args, **kwargs)
            return table._gabion_newer(CacheTable._call_key(asked, named), value, again, as_put, stale)
        making = table._making_call(asked, named, _deadline(timeout))
        # In this frame, so that a function that calls itself goes as deep as it would without.
        try:
            value = making.begin(MISSING)
            if value is MISSING:
                value = function(*args, **kwargs)
                making.keep(value, as_put)
            return value
        except Exception as error:
            making.fail(error)
            raise
        finally:
            making.end()

    return synchronous


def _asynchronous(
    results: _MemoizedTable, function: Callable[..., Any], as_put: dict[str, Any], times: tuple[float | None, float]
) -> Any:
    key, (timeout, stale) = results.key, times

    @functools.wraps(function)
    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        asked, named = (key(*args, **kwargs), None) if key else (args, kwargs)
        table, recall = results.newest
        try:
            value = recall(asked, named, MISSING)
        except (ClosedError, NoKeyError):
            table, value = results.lookup(asked, named, args, kwargs)
        if value is not MISSING and not stale:
            return value
        arguments = CacheTable._call_key(asked, named)

        async def factory() -> Any:
            return await function(*args, **kwargs)

        if value is not MISSING:
            return await table._gabion_newer_async(arguments, value, factory, as_put, stale)
        return await table._gabion_make_async(arguments, factory, as_put, _deadline(timeout))

    return asynchronous


def refuse_by_value(table: str) -> None:
    """Raise TypeError for a table that is pickled, or copied, with the memoized function that it is a part of."""
    if function := memoized_as(table):
        raise TypeError(
            f"{function}() cannot be pickled by value, as joblib and cloudpickle do with what is defined in __main__ "
            "or in another function: it is memoized, and its results are memory of this process; define it in a "
            f"module, where other processes find it by its name, or pass {function.rpartition('.')[2]}.__wrapped__, "
            "which keeps no results"
        )


def drop_memoized(root: weakref.ref[Cache], name: str) -> None:
    """Drop the table of a memoized function that is gone."""
    cache = root()
    if cache is not None and not cache.closed:
        with suppress(ClosedError):  # just now, by another thread
            CacheTable._drop_table(cache, name)
