"""Functions whose results are kept."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from gabion._flights import MISSING
from gabion._making import is_asynchronous

if TYPE_CHECKING:
    from gabion.cache import Table


def memoized(
    table: Table, function: Callable[..., Any], key: Callable[..., Hashable] | None, as_put: dict[str, Any]
) -> Any:
    """Return a function that keeps its results in a table, by its arguments or by what ``key`` makes of them."""
    recall, call_key = table._recall, table._call_key
    if is_asynchronous(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            arguments = key(*args, **kwargs) if key else None
            value = table.get(arguments, MISSING) if key else recall(args, kwargs, MISSING)
            if value is not MISSING:
                return value
            if not key:
                arguments = call_key(args, kwargs)

            async def factory() -> Any:
                return await function(*args, **kwargs)

            return await table._make_async(arguments, factory, as_put)

        made: Any = asynchronous
    else:

        @functools.wraps(function)
        def synchronous(*args: Any, **kwargs: Any) -> Any:
            arguments = key(*args, **kwargs) if key else None
            value = table.get(arguments, MISSING) if key else recall(args, kwargs, MISSING)
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
    made.cache_clear = table.clear
    made.cache_stats = table.stats
    return made
