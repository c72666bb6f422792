"""gabion.Cache as a cache of Django.

::

    CACHES = {
        "default": {
            "BACKEND": "gabion.backends.django.GabionCache",
            "LOCATION": "pages",                       # caches of one location are one cache
            "TIMEOUT": 300,
            "OPTIONS": {"MAX_BYTES": "256 MiB", "POLICY": "default"},
        }
    }

The cache belongs to the process, as Django's own local-memory cache does, and is bounded in bytes instead of entries:
``MAX_ENTRIES`` and ``CULL_FREQUENCY`` have no meaning. Any other name in OPTIONS is ``ImproperlyConfigured``.
Where tests override the settings with other OPTIONS for a location, it is a new, empty cache from then on.
``get_or_set`` and ``aget_or_set`` run a callable once per key, however many threads and tasks ask; the asynchronous
methods answer at once, without a thread. ``caches["default"].stats()`` gives hits, misses, bytes and the other figures
of ``gabion.Cache.stats()``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pickle import PickleError
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from django.conf import settings
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from gabion import Cache, CacheStats, CodecError
from gabion._native import CacheTable

if TYPE_CHECKING:
    from gabion.typing import Policy

    # A limit and a policy, as they are written, and as they are meant.
    _Written: TypeAlias = tuple[int | str, Policy]
    _Settings: TypeAlias = tuple[int | None, str]

__all__ = ["GabionCache"]

_OPTIONS = ("MAX_BYTES", "POLICY")
# Django's own, which every cache may be given.
_IGNORED = ("MAX_ENTRIES", "CULL_FREQUENCY")


class _Store(NamedTuple):
    """The cache of a location, for the back ends of all threads, each of which has its own."""

    written: _Written
    settings: _Settings
    cache: Cache


_stores: dict[str, _Store] = {}
# Taken again by the same thread where the collector runs code of others meanwhile.
_making = threading.RLock()


def _after_fork() -> None:
    """In a child that was forked: a thread that held the lock is not here."""
    global _making
    _making = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def _meant(written: _Written) -> _Settings:
    """What settings mean: the same for those whose size is written in another way."""
    size, policy = written
    return CacheTable._settings_of(size, None, None)[0], policy


def _written(options: Mapping[str, Any]) -> _Written:
    return options.get("MAX_BYTES", "64 MiB"), options.get("POLICY", "default")


def _store(location: str, written: _Written) -> Cache:
    """Return the cache of a location, made when there is none, and anew when Django's settings are others by now."""
    with _making:
        store = _stores.get(location)
        if store is None or store.written != written:
            wanted = _meant(written)
            if store is not None and store.settings == wanted:
                cache = store.cache
            else:
                present = [] if store is None else _present(location)
                if store is not None and (store.settings in present or wanted not in present):
                    raise ImproperlyConfigured(
                        f"two caches with the LOCATION {location!r} have different OPTIONS: {store.written}, {written}"
                    )
                size, policy = written
                cache = Cache(size, name=location or "django", policy=policy)
            store = _stores[location] = _Store(written, wanted, cache)
        return store.cache


def _present(location: str) -> list[_Settings]:
    """What Django's settings, which tests may override, now say of the caches of a location."""
    if not settings.configured:
        return []
    there = [each for each in settings.CACHES.values() if each.get("LOCATION", "") == location]
    return [_meant(_written(each.get("OPTIONS", {}))) for each in there if _is_ours(each["BACKEND"])]


def _is_ours(backend: str) -> bool:
    with suppress(ImportError):
        found = import_string(backend)
        return isinstance(found, type) and issubclass(found, GabionCache)
    return False


class GabionCache(BaseCache):
    """A cache of this process, bounded in bytes."""

    def __init__(self, name: str, params: dict[str, Any]) -> None:
        """Find or make the cache that the location names."""
        super().__init__(params)
        options = params.get("OPTIONS", {})
        for option in options:
            if option not in _OPTIONS + _IGNORED:
                raise ImproperlyConfigured(
                    f"{type(self).__name__} has no option {option!r} in OPTIONS; there are {' and '.join(_OPTIONS)}"
                )
        self._cache = _store(name, _written(options))

    def _seconds(self, timeout: float | None) -> float:
        if timeout is DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        return float("inf") if timeout is None else max(timeout, 0)

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """Return the key's value, or the default."""
        return self._cache.get(self.make_and_validate_key(key, version=version), default)

    def set(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        """Store a value."""
        key = self.make_and_validate_key(key, version=version)
        with _PickleErrors():
            self._cache.put(key, value, ttl=self._seconds(timeout))

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Store a value if the key has none."""
        key = self.make_and_validate_key(key, version=version)
        with _PickleErrors():
            return self._cache.add(key, value, ttl=self._seconds(timeout))

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Give a value another timeout."""
        return self._cache.touch(self.make_and_validate_key(key, version=version), self._seconds(timeout))

    def delete(self, key: Any, version: int | None = None) -> bool:
        """Remove a key."""
        return self._cache.discard(self.make_and_validate_key(key, version=version))

    def has_key(self, key: Any, version: int | None = None) -> bool:
        """Whether the key has a value."""
        return self.make_and_validate_key(key, version=version) in self._cache

    def get_or_set(self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> Any:
        """Return the key's value, or the default stored; a callable runs once, however many threads ask.

        If another value is set under the key while the callable runs, that is what is returned.
        """
        made = False

        def factory() -> Any:
            nonlocal made
            made = True
            return default() if callable(default) else default

        key = self.make_and_validate_key(key, version=version)
        with _PickleErrors():
            value = self._cache.get_or_put(key, factory, ttl=self._seconds(timeout))
        # What was set while the callable ran is newer, and was kept in its place.
        return self._cache._look(key, value) if made else value

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        """Return the values of those keys that have one, by the keys as they were given."""
        made = {key: self.make_and_validate_key(key, version=version) for key in keys}
        found = self._cache.get_many(made.values())
        return {key: found[name] for key, name in made.items() if name in found}

    def set_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        """Store the values of a mapping. Return the keys for whose values there was no room."""
        ttl = self._seconds(timeout)
        with _PickleErrors():
            stored = [
                (key, self._cache.put(self.make_and_validate_key(key, version=version), value, ttl=ttl))
                for key, value in data.items()
            ]
        return [key for key, result in stored if not result]

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        """Remove many keys."""
        self._cache.remove_many([self.make_and_validate_key(key, version=version) for key in keys])

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> Any:
        """Add to a number, which keeps its timeout."""
        try:
            return self._cache.change(self.make_and_validate_key(key, version=version), lambda value: value + delta)
        except KeyError:
            raise ValueError(f"Key '{key}' not found") from None

    def clear(self) -> None:
        """Remove everything."""
        self._cache.clear()

    def stats(self) -> CacheStats:
        """Return the cache's figures: hits, misses, entries, bytes and more."""
        return self._cache.stats()

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        """As get()."""
        return self.get(key, default, version)

    async def aset(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        """As set()."""
        self.set(key, value, timeout, version)

    async def aadd(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """As add()."""
        return self.add(key, value, timeout, version)

    async def atouch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """As touch()."""
        return self.touch(key, timeout, version)

    async def adelete(self, key: Any, version: int | None = None) -> bool:
        """As delete()."""
        return self.delete(key, version)

    async def ahas_key(self, key: Any, version: int | None = None) -> bool:
        """As has_key()."""
        return self.has_key(key, version)

    async def aget_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """As get_or_set(), with a plain callable: the loop goes on only while another thread's runs."""
        made = False

        async def factory() -> Any:
            nonlocal made
            made = True
            return default() if callable(default) else default

        key = self.make_and_validate_key(key, version=version)
        as_put = {"ttl": self._seconds(timeout)}
        with _PickleErrors():
            # In this task: between its steps, get_or_set() in this thread could not wait for it.
            value = await self._cache._gabion_get_or_put_async(key, factory, as_put, None, own_task=False)
        return self._cache._look(key, value) if made else value

    async def aget_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        """As get_many()."""
        return self.get_many(keys, version)

    async def aset_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        """As set_many()."""
        return self.set_many(data, timeout, version)

    async def adelete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        """As delete_many()."""
        self.delete_many(keys, version)

    async def aincr(self, key: Any, delta: int = 1, version: int | None = None) -> Any:
        """As incr()."""
        return self.incr(key, delta, version)

    async def aclear(self) -> None:
        """As clear()."""
        self.clear()


class _PickleErrors:
    """Lets through what an object's own pickling raises, as Django's other caches do."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CodecError) and isinstance(error.__cause__, PickleError):
            raise error.__cause__
