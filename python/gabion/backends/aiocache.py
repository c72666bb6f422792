"""gabion.Cache as a cache of aiocache.

::

    from aiocache import Cache, cached
    from gabion.backends.aiocache import GabionCache

    cache = Cache(GabionCache, max_bytes="256 MiB", namespace="pages", ttl=300)

    @cached(cache=GabionCache, max_bytes="8 MiB", ttl=60)
    async def page(number): ...

Each function under ``@cached(cache=GabionCache)`` makes a cache of its own, of 64 MiB unless it is given ``max_bytes``.
Functions share one by an alias::

    from aiocache import caches

    caches.add("pages", {"cache": GabionCache, "max_bytes": "64 MiB"})

    @cached(alias="pages", ttl=60)
    async def part(number): ...

Settings beside aiocache's own: ``max_bytes`` ("64 MiB" unless given) and ``policy``, as for ``gabion.Cache``. Values
are stored as they are (no serializer is needed), each get builds a new object. ``set``, ``add`` and ``multi_set``
return False where there was no room for a value.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from contextvars import ContextVar
from enum import Enum
from typing import Any, Literal

from aiocache.base import BaseCache
from aiocache.serializers import NullSerializer

from gabion import Cache, PutResult

__all__ = ["GabionCache"]


# What is evicted last.
HIGHEST = 127


def _seconds(ttl: float | None) -> float:
    """aiocache's 0 and None are without end; a time that is over already is over at once."""
    return max(ttl, 0.0) if ttl else float("inf")


# Notes that there was no room for a value, for the call of add() or multi_set() that it is of: aiocache's own return
# True whatever _add() and _multi_set() return. A list, which tasks that aiocache starts for a timeout share with their
# caller.
_refusals: ContextVar[list[str] | None] = ContextVar("gabion_aiocache_refusals", default=None)


def _refuse() -> bool:
    """Note that a value was refused, for whoever asks."""
    noted = _refusals.get()
    if noted is not None:
        noted.append("refused")
    return False


async def _unless_refused(call: Awaitable[object]) -> bool:
    """What a call returns, or False if a value was refused meanwhile."""
    noted: list[str] = []
    token = _refusals.set(noted)
    try:
        return bool(await call) and not noted
    finally:
        _refusals.reset(token)


class GabionCache(BaseCache):
    """A cache of this process, bounded in bytes.

    ``max_bytes`` and ``policy`` are those of ``gabion.Cache``; other keywords are aiocache's. Its locks (RedLock,
    OptimisticLock) hold among the tasks of one event loop, as with its own memory cache: a value is compared first and
    changed then, and the loop of another thread may come between. A full cache evicts all else before them.
    """

    NAME = "gabion"

    def __init__(
        self,
        *,
        max_bytes: int | str = "64 MiB",
        policy: Literal["default", "lru", "fifo", "s3fifo"] = "default",
        serializer: Any = None,
        **settings: Any,
    ) -> None:
        """Make the cache."""
        super().__init__(serializer=serializer or NullSerializer(), **settings)
        self._cache = Cache(max_bytes, policy=policy)

    def _build_key(self, key: Any, namespace: str | None = None) -> Any:
        """Take an Enum by its value, as aiocache does where there is a namespace: it is no key of gabion's."""
        built = super()._build_key(key, namespace)
        return built.value if isinstance(built, Enum) else built

    async def _get(self, key: str, encoding: str | None = "utf-8", _conn: Any = None) -> Any:
        return self._cache.get(key)

    async def _gets(self, key: str, encoding: str | None = "utf-8", _conn: Any = None) -> Any:
        return self._cache.get(key)

    async def _multi_get(self, keys: Iterable[str], encoding: str | None = "utf-8", _conn: Any = None) -> list[Any]:
        names = list(keys)
        found = self._cache.get_many(names)
        return [found.get(key) for key in names]

    async def _set(
        self, key: str, value: Any, ttl: float | None = None, _cas_token: Any = None, _conn: Any = None
    ) -> bool | int:
        if _cas_token is not None and _cas_token != self._cache.get(key):
            return 0
        return self._cache.put(key, value, ttl=_seconds(ttl)) is not PutResult.REJECTED

    async def _multi_set(self, pairs: Iterable[tuple[str, Any]], ttl: float | None = None, _conn: Any = None) -> bool:
        each = list(pairs)
        if self._cache.put_many(each, ttl=_seconds(ttl)) < len(each):
            return _refuse()
        return True

    async def multi_set(self, *arguments: Any, **keywords: Any) -> bool:
        """Store the values of pairs. Return whether there was room for all; those that have some are stored."""
        return await _unless_refused(super().multi_set(*arguments, **keywords))

    async def _add(self, key: str, value: Any, ttl: float | None = None, _conn: Any = None) -> bool:
        # Behind those who come here without add() are aiocache's locks. They are to stay until they are released, or
        # over, however full the cache is: who waits for one that was evicted waits for nothing.
        lock = _refusals.get() is None
        added = self._cache._add(key, value, ttl=_seconds(ttl), priority=HIGHEST if lock else 0)
        if added is None:
            raise ValueError(f"Key {key} already exists, use .set to update the value")
        return added or _refuse()

    async def add(self, *arguments: Any, **keywords: Any) -> bool:
        """Store a value where there is none, or else raise ValueError. Return whether there was room for it."""
        return await _unless_refused(super().add(*arguments, **keywords))

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return key in self._cache

    async def _increment(self, key: str, delta: int, _conn: Any = None) -> int:
        def change(value: Any) -> int:
            try:
                return int(value) + delta
            except ValueError:
                raise TypeError("Value is not an integer") from None

        return int(self._cache.change(key, change, 0))

    async def _expire(self, key: str, ttl: float | None, _conn: Any = None) -> bool:
        return self._cache.touch(key, _seconds(ttl))

    async def _delete(self, key: str, _conn: Any = None) -> int:
        return int(self._cache.discard(key))

    async def _clear(self, namespace: str | None = None, _conn: Any = None) -> bool:
        if namespace:
            self._cache.remove_many([key for key in self._cache if isinstance(key, str) and key.startswith(namespace)])
        else:
            self._cache.clear()
        return True

    async def _raw(self, command: str, *args: Any, encoding: str = "utf-8", _conn: Any = None, **kwargs: Any) -> Any:
        return getattr(self._cache, command)(*args, **kwargs)

    async def _redlock_release(self, key: str, value: Any) -> int:
        return int(self._cache.get(key) == value and self._cache.discard(key))

    @classmethod
    def parse_uri_path(cls, path: str) -> dict[str, Any]:
        """Take nothing out of a URL's path."""
        return {}
