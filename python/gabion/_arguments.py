"""What the calls of a cache are given, as far as Python looks at it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, Literal

from gabion._native import CacheTable, ClosedError, _import

# What the names of memoized functions' tables begin with.
MEMOIZED = "memoize:"


class AsCache(enum.Enum):
    """What is left out: other than None, which means without end."""

    AS_CACHE = "as the cache"

    def __repr__(self) -> str:
        """What signatures show."""
        return f"<{self.value}>"


AS_CACHE: Literal[AsCache.AS_CACHE] = AsCache.AS_CACHE


def check_name(name: object, *, new: bool = False) -> None:
    """Refuse what is no table's name, or, when it is to be a new one's, what a program may not call a table."""
    if not isinstance(name, str):
        raise TypeError(f"a table's name is a str, not {type(name).__qualname__}")
    if new and not name:
        raise ValueError("a table needs a name; the cache itself is the one without")
    if new and name.startswith(MEMOIZED):
        raise ValueError(
            f"tables whose names begin with {MEMOIZED!r} are those of memoized functions; give it another name"
        )


def times_of_table(cache: tuple[int | None, float | None, float | None], ttl: Any, idle: Any) -> tuple[Any, Any]:
    """Return a new table's own ttl and idle time: what it was given, or else what the cache's settings are."""
    _limit, own_ttl, own_idle = cache
    return own_ttl if ttl is AS_CACHE else ttl, own_idle if idle is AS_CACHE else idle


def other_settings(table: CacheTable, cache: CacheTable, max_bytes: Any, ttl: Any, idle: Any) -> str | None:
    """Say which settings are given that are other than a table's, if there are any."""
    if max_bytes is None and ttl is AS_CACHE and idle is AS_CACHE:
        return None
    asked = CacheTable._settings_of(max_bytes, None if ttl is AS_CACHE else ttl, None if idle is AS_CACHE else idle)
    try:
        there, most = CacheTable._settings(table), CacheTable._table_stats(cache).max_bytes
    except ClosedError:  # closed or dropped just now, by another thread
        return None
    # A limit above the cache's counts as the cache's.
    limits = [most if limit is None else min(limit, most) for limit in (asked[0], there[0])]
    each = (
        ("max_bytes", max_bytes is None, *limits),
        ("ttl", ttl is AS_CACHE, asked[1], there[1]),
        ("idle", idle is AS_CACHE, asked[2], there[2]),
    )
    other = [(word, wanted, has) for word, left_out, wanted, has in each if not left_out and wanted != has]
    if not other:
        return None
    has, wanted = (", ".join(f"{word}={one[at]}" for word, *one in other) for at in (1, 0))
    return f"there is a table {table.name!r} with {has}, not {wanted}: ask for it by its name alone, or drop it first"


def pairs_of(given: Any) -> Iterator[tuple[Any, Any]]:
    """Go through what is put at one time, where it is no mapping."""
    passed = "what is put is passed as a mapping, or as pairs of a key and a value"
    try:
        items = iter(given)
    except TypeError:
        raise TypeError(f"{passed}, not {type(given).__qualname__}") from None
    for item in items:
        try:
            key, value = item
        except TypeError as error:
            raise TypeError(f"{passed}, not as {type(given).__qualname__} of {type(item).__qualname__}") from error
        except ValueError as error:
            raise ValueError(f"{passed}: {error}") from error
        yield key, value


def given_of_put(ttl: object, idle: object, expires_at: object, priority: int) -> dict[str, Any]:
    """Return the keywords of a put that are not as they are by default."""
    as_put = {"ttl": ttl, "idle": idle, "expires_at": expires_at}
    given: dict[str, Any] = {name: value for name, value in as_put.items() if value is not None}
    if priority != 0:
        given["priority"] = priority
    return given


def listener_of(callback: Callable[..., object]) -> Callable[[Any, Any, str, str], object]:
    """Return what tells a callback of on_evict() of an entry's key, value, reason and table: of those that it wants.

    TypeError for one that can be called in no way.
    """
    inspect = _import("inspect")

    try:
        # What is called, not what that wraps, which may take its arguments in another way.
        found = inspect.signature(callback, follow_wrapped=False)
    except (ValueError, TypeError):
        # Written in C, or a stand-in, and does not tell.
        return lambda key, value, reason, table: callback(key, value, reason)
    each = list(found.parameters.values())
    named = [one for one in each if one.name == "table" and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    by_place = [one for one in each if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    others = [one for one in by_place if one not in named]
    if any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in each):
        reason = True
    else:
        # One with a default may well be the callback's own: def gone(key, value, log=log).
        reason = len(others) > 2 and (others[2].default is inspect.Parameter.empty or others[2].name == "reason")
    count = 2 + reason
    # Where the table's name comes among them; None where it is a keyword.
    at = by_place.index(named[0]) if named and named[0] in by_place[: count + 1] else None

    def tell(*told: Any) -> object:
        given, table = list(told[:count]), told[3]
        if at is not None:
            given.insert(at, table)
        return callback(*given, **({"table": table} if named and at is None else {}))

    try:
        given = ["key", "value", "reason"][:count] + ["table"] * (at is not None)
        found.bind(*given, **({"table": "table"} if named and at is None else {}))
    except TypeError as error:
        text = f"on_evict takes a function of key and value, and of the reason if it wants it: {callback!r}: {error}"
        raise TypeError(text) from None
    return tell
