"""Functions whose results are kept."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from gabion._flights import MISSING
from gabion._making import is_asynchronous
from gabion._native import CacheTable, ClosedError
from gabion._standins import NoKeyError

if TYPE_CHECKING:
    from gabion._native import CacheStats
    from gabion.cache import Cache, Table

_T = TypeVar("_T")


def memoized(
    made_table: Callable[[], Table],
    function: Callable[..., Any],
    key: Callable[..., Hashable] | None,
    as_put: dict[str, Any],
) -> Any:
    """Return a function that keeps its results in a table, by its arguments or by what ``key`` makes of them.

    ``made_table`` returns the table, and makes it where it was dropped; after the cache's end it raises ClosedError.
    """
    table = made_table()
    call_key = table._call_key
    # One object, so that no thread sees the table of one and the method of another.
    newest = table, table._recall

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

    def refusal(error: NoKeyError, asked: Any, named: dict[str, Any] | None) -> TypeError:
        """The error for arguments, or for what ``key`` returned, with what to write instead."""
        # Only here: inspect takes a while to import.
        from gabion._advice import example, returned

        told = returned(error, asked) if named is None else f"{error}{example(function, asked, named)}"
        return TypeError(told)

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
                    raise refusal(error, asked, named) from None
            if value is not MISSING:
                return value
            arguments = call_key(asked, named)

            async def factory() -> Any:
                return await function(*args, **kwargs)

            return await table._gabion_make_async(arguments, factory, as_put)

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
                    raise refusal(error, asked, named) from None
            if value is not MISSING:
                return value
            making = table._making_call(asked, named)
            # In this frame, so that a function that calls itself goes as deep as it would without.
            try:
                value = making.begin(MISSING)
                if value is MISSING:
                    value = function(*args, **kwargs)
                    making.keep(value, as_put)
                return value
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

    def cache_stats() -> CacheStats:
        """Return the figures of the results' table."""
        return of_table(lambda table: table.stats())

    alive = weakref.ref(made)
    made.cache_clear, made.cache_stats = cache_clear, cache_stats
    return made


def drop_memoized(root: weakref.ref[Cache], name: str) -> None:
    """Drop the table of a memoized function that is gone."""
    cache = root()
    if cache is not None and not cache.closed:
        with suppress(ClosedError):  # just now, by another thread
            CacheTable._drop_table(cache, name)
