"""Functions whose results are kept."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

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


def kept_in(
    made_table: Callable[[], Table],
    function: Callable[..., Any],
    key: Callable[..., Hashable] | None,
    as_put: dict[str, Any],
    typed: bool,
    times: tuple[float | None, float],
) -> Any:
    """Return a function that keeps its results in the table that ``made_table`` returns."""
    timeout, stale = times
    table = made_table()
    call_key = table._call_key
    of_arguments = key is None
    if typed:
        key = with_types
    # One object, so that no thread sees the table of one and the method of another.
    newest = table, table._recall

    def deadline() -> Deadline | None:
        return None if timeout is None else Deadline(timeout)

    def renewed(dropped: Table) -> bool:
        """Whether there is another table in place of one that was dropped. After the cache's end this raises."""
        nonlocal newest
        # Nobody needs a table who only has a method of a function that is gone, and nobody would drop it.
        if not dropped.closed or alive() is None:
            return False
        if newest[0] is dropped:
            table = made_table()
            newest = table, table._recall
        return True

    def refusal(error: NoKeyError, asked: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
        """The error for arguments, or for what ``key`` returned, with what to write instead."""
        # Only here: inspect takes a while to import.
        advice = _import("gabion._advice")
        text = f"{error}{advice.example(function, args, kwargs)}" if of_arguments else advice.returned(error, asked)
        return TypeError(text)

    if is_asynchronous(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            asked, named = (key(*args, **kwargs), None) if key else (args, kwargs)
            while True:
                table, recall = newest
                try:
                    value = recall(asked, named, MISSING)
                    break
                except ClosedError:
                    if not renewed(table):
                        raise
                except NoKeyError as error:
                    raise refusal(error, asked, args, kwargs) from None
            if value is not MISSING and not stale:
                return value
            arguments = call_key(asked, named)

            async def factory() -> Any:
                return await function(*args, **kwargs)

            if value is not MISSING:
                return await table._gabion_newer_async(arguments, value, factory, as_put, stale)
            return await table._gabion_make_async(arguments, factory, as_put, deadline())

        made: Any = asynchronous
    else:

        @functools.wraps(function)
        def synchronous(*args: Any, **kwargs: Any) -> Any:
            asked, named = (key(*args, **kwargs), None) if key else (args, kwargs)
            while True:
                table, recall = newest
                try:
                    value = recall(asked, named, MISSING)
                    break
                except ClosedError:
                    if not renewed(table):
                        raise
                except NoKeyError as error:
                    raise refusal(error, asked, args, kwargs) from None
            if value is not MISSING:
                if not stale:
                    return value
                again = functools.partial(function, *args, **kwargs)
                return table._gabion_newer(call_key(asked, named), value, again, as_put, stale)
            making = table._making_call(asked, named, deadline())
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

        made = synchronous

    def of_table(method: Callable[[Table], _T]) -> _T:
        """Return what a table's method does, on one that was not dropped."""
        while True:
            table, _ = newest
            try:
                return method(table)
            except ClosedError:
                if not renewed(table):
                    raise

    def cache_clear() -> int:
        """Drop the results. Return how many there were."""
        return of_table(lambda table: table.clear())

    def cache_discard(*args: Any, **kwargs: Any) -> bool:
        """Drop the result of a call with these arguments. Return whether there was one."""
        asked, named = (key(*args, **kwargs), None) if key else (args, kwargs)
        try:
            arguments = call_key(asked, named)
        except NoKeyError as error:
            raise refusal(error, asked, args, kwargs) from None
        return of_table(lambda table: table.discard(arguments))

    def cache_stats() -> CacheStats:
        """Return the figures of the results' table."""
        return of_table(lambda table: table.stats())

    def cache_table() -> Table:
        """Return the table that the results lie in."""

        def checked(table: Table) -> Table:
            table._check()
            return table

        return of_table(checked)

    alive = weakref.ref(made)
    made.cache_clear, made.cache_discard = cache_clear, cache_discard
    made.cache_stats, made.cache_table = cache_stats, cache_table
    return made


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
