"""Functions whose results are kept."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gabion._flights import MISSING
from gabion._making import is_asynchronous
from gabion._native import CacheTable, ClosedError
from gabion._standins import NoKeyError

if TYPE_CHECKING:
    from gabion._native import CacheStats
    from gabion.cache import Cache, Table


def example(function: Callable[..., Any]) -> str:
    """What a refused argument's error ends with: a ``key`` of the function's own arguments."""
    from inspect import Parameter, signature

    try:
        found = list(signature(function).parameters.values())
    except (TypeError, ValueError):
        # Written in C, and does not tell.
        return ""
    several = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD
    if not found or any(each.kind in several or each.kind is Parameter.KEYWORD_ONLY for each in found):
        return ""
    names = [each.name for each in found]
    made = f"({names[0]}.id, {', '.join(names[1:])})" if names[1:] else f"{names[0]}.id"
    return f", such as key=lambda {', '.join(names)}: {made}"


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
    recall, call_key = table._recall, table._call_key

    def there() -> Table:
        """The table; a new one, if it was dropped."""
        nonlocal table, recall
        # Nobody needs a table who only has a method of a function that is gone, and nobody would drop it.
        if table.closed and alive() is not None:
            table = made_table()
            recall = table._recall
        return table

    if is_asynchronous(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            arguments = key(*args, **kwargs) if key else None
            try:
                try:
                    value = table.get(arguments, MISSING) if key else recall(args, kwargs, MISSING)
                except ClosedError:
                    there()
                    value = table.get(arguments, MISSING) if key else recall(args, kwargs, MISSING)
            except NoKeyError as error:
                raise TypeError(f"{error}{example(function)}") from None
            if value is not MISSING:
                return value
            if not key:
                arguments = call_key(args, kwargs)

            async def factory() -> Any:
                return await function(*args, **kwargs)

            return await table._gabion_make_async(arguments, factory, as_put)

        made: Any = asynchronous
    else:

        @functools.wraps(function)
        def synchronous(*args: Any, **kwargs: Any) -> Any:
            arguments = key(*args, **kwargs) if key else None
            try:
                try:
                    value = table.get(arguments, MISSING) if key else recall(args, kwargs, MISSING)
                except ClosedError:
                    there()
                    value = table.get(arguments, MISSING) if key else recall(args, kwargs, MISSING)
            except NoKeyError as error:
                raise TypeError(f"{error}{example(function)}") from None
            if value is not MISSING:
                return value
            making = table._making(arguments) if key else table._making_call(args, kwargs)
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

    def cache_clear() -> int:
        """Drop the results. Return how many there were."""
        return there().clear()

    def cache_stats() -> CacheStats:
        """Return the figures of the results' table."""
        return there().stats()

    alive = weakref.ref(made)
    made.cache_clear, made.cache_stats = cache_clear, cache_stats
    return made


def drop_memoized(root: weakref.ref[Cache], name: str) -> None:
    """Drop the table of a memoized function that is gone."""
    cache = root()
    if cache is not None and not cache.closed:
        with suppress(ClosedError):  # just now, by another thread
            CacheTable._drop_table(cache, name)
