"""One adapter for each cache that is measured in Python, all with one interface.

The timed loops are written as a user of that cache would write them, by call or by subscript, so that nobody pays for a
wrapper: the loop, the keys and the values are the same for all, and only the cache's own operation differs. Where a
cache can be asked both ways, it is asked the way that is faster for it.
"""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import shutil
import tempfile
import uuid
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from peers.base import Missing

TTL = 3600.0
ABSENT: Any = object()


class Subject:
    """A cache with room for that many entries of a kind; ``timed`` ones expire after `TTL`."""

    library = ""
    # What stands behind the library's name and version.
    kind = ""

    def __init__(self, entries: int, sample: tuple[Any, Any], timed: bool) -> None:
        """Make the cache; ``sample`` is a typical key and value."""

    @classmethod
    def label(cls) -> str:
        """Name and version. Raises ``Missing`` when it cannot run here."""
        try:
            importlib.import_module(cls.library)
            return f"{cls.library.replace('_', '-')} {metadata.version(cls.library)}{cls.kind}"
        except (ImportError, metadata.PackageNotFoundError) as error:
            raise Missing(f"{cls.library} (make bench-setup)") from error

    def look(self, key: Any) -> Any:
        """Return the key's value, or `ABSENT`."""
        raise NotImplementedError

    def keep(self, key: Any, value: Any) -> None:
        """Store a value."""
        raise NotImplementedError

    def get_each(self, keys: Iterable[Any]) -> Any:
        """Get every key; return the last value. Timed."""
        raise NotImplementedError

    def put_each(self, keys: Iterable[Any], values: Iterable[Any]) -> None:
        """Store every value. Timed."""
        raise NotImplementedError

    def close(self) -> None:
        """Give everything back."""


class _ByCall(Subject):
    """Asked by ``get(key)``, and given values by a method of another name in each library."""

    cache: Any
    put_name = "put"

    def look(self, key):
        return self.cache.get(key, ABSENT)

    def keep(self, key, value):
        getattr(self.cache, self.put_name)(key, value)

    def get_each(self, keys):
        # Bound here, because threads that share a method write to its count of references.
        get, value = self.cache.get, None
        for key in keys:
            value = get(key)
        return value

    def put_each(self, keys, values):
        put = getattr(self.cache, self.put_name)
        for key, value in zip(keys, values):
            put(key, value)


class _BySubscript(Subject):
    """Asked by ``cache[key]`` and ``cache[key] = value``."""

    cache: Any

    def look(self, key):
        try:
            return self.cache[key]
        except KeyError:
            return ABSENT

    def keep(self, key, value):
        self.cache[key] = value

    def get_each(self, keys):
        cache, value = self.cache, None
        for key in keys:
            value = cache[key]
        return value

    def put_each(self, keys, values):
        cache = self.cache
        for key, value in zip(keys, values):
            cache[key] = value


class Gabion(_ByCall):
    """gabion.Cache, with as many bytes as that many entries are charged."""

    policy = "default"

    def __init__(self, entries, sample, timed):
        import gabion

        settings = {"ttl": TTL if timed else None, "policy": self.policy}
        self.cache = gabion.Cache(int(entries * self._charge(sample, settings)) + 1, **settings)

    @staticmethod
    def _charge(sample, settings):
        import gabion

        with gabion.Cache("64 MiB", **settings) as cache:
            cache.put(*sample)
            return cache.stats().bytes

    @classmethod
    def label(cls):
        return f"gabion{cls.kind}"

    def close(self):
        self.cache.close()


class GabionLru(Gabion):
    """The exact LRU."""

    policy = "lru"
    kind = ", policy='lru'"


class GabionS3Fifo(Gabion):
    """The exact S3-FIFO."""

    policy = "s3fifo"
    kind = ", policy='s3fifo'"


class GabionSubscript(_BySubscript):
    """gabion.Cache asked as a dict is."""

    def __init__(self, entries, sample, timed):
        self.cache = Gabion(entries, sample, timed).cache

    @classmethod
    def label(cls):
        return "gabion, cache[key]"

    def close(self):
        self.cache.close()


class CacheboxTtl(_ByCall):
    """cachebox's cache with one TTL for all, which is first in, first out."""

    library = "cachebox"
    kind = " TTL"
    put_name = "insert"

    def __init__(self, entries, sample, timed):
        import cachebox

        self.cache = cachebox.TTLCache(entries, TTL)


class CacheboxLru(CacheboxTtl):
    """cachebox's LRU, which knows no time."""

    kind = " LRU"

    def __init__(self, entries, sample, timed):
        import cachebox

        self.cache = cachebox.LRUCache(entries)


class CachetoolsTtl(_BySubscript):
    """cachetools' LRU with one TTL for all."""

    library = "cachetools"
    kind = " TTL"

    def __init__(self, entries, sample, timed):
        import cachetools

        self.cache = cachetools.TTLCache(entries, TTL)


class CachetoolsLru(_BySubscript):
    """cachetools' LRU, which knows no time."""

    library = "cachetools"
    kind = " LRU"

    def __init__(self, entries, sample, timed):
        import cachetools

        self.cache = cachetools.LRUCache(entries)


class Theine(_ByCall):
    """theine, W-TinyLFU."""

    library = "theine"

    def __init__(self, entries, sample, timed):
        from datetime import timedelta

        import theine

        self.cache = theine.Cache(entries)
        self.ttl = timedelta(seconds=TTL) if timed else None

    def look(self, key):
        value, found = self.cache.get(key)
        return value if found else ABSENT

    def keep(self, key, value):
        self.cache.set(key, value, self.ttl)

    def get_each(self, keys):
        get, value = self.cache.get, None
        for key in keys:
            value, _ = get(key)
        return value

    def put_each(self, keys, values):
        put, ttl = self.cache.set, self.ttl
        for key, value in zip(keys, values):
            put(key, value, ttl)

    def close(self):
        self.cache.close()


class Moka(_ByCall):
    """moka-py, W-TinyLFU."""

    library = "moka_py"
    put_name = "set"

    def __init__(self, entries, sample, timed):
        import moka_py

        self.cache = moka_py.Moka(entries, ttl=TTL) if timed else moka_py.Moka(entries)

    def look(self, key):
        value = self.cache.get(key)
        return ABSENT if value is None else value


class Diskcache(_BySubscript):
    """diskcache, on disk."""

    library = "diskcache"

    def __init__(self, entries, sample, timed):
        import diskcache

        self.folder = tempfile.mkdtemp(prefix="bench-diskcache-")
        self.cache = diskcache.Cache(self.folder)

    def close(self):
        self.cache.close()
        shutil.rmtree(self.folder)


class Redis(Subject):
    """Redis with pickles, one request at a time. Runs only when ``GABION_REDIS_URL`` names a server to write to."""

    def __init__(self, entries, sample, timed):
        import redis

        self.client = redis.Redis.from_url(os.environ["GABION_REDIS_URL"])
        self.prefix = f"bench-{uuid.uuid4()}:"

    @classmethod
    def label(cls):
        from peers.redis_pickle import RedisPickle

        return RedisPickle.label().replace(" pipelined", "")

    def get_each(self, keys):
        get, prefix, value = self.client.get, self.prefix, None
        for key in keys:
            value = pickle.loads(get(prefix + key))
        return value

    def put_each(self, keys, values):
        put, prefix = self.client.set, self.prefix
        for key, value in zip(keys, values):
            put(prefix + key, pickle.dumps(value, pickle.HIGHEST_PROTOCOL), ex=int(TTL))

    def close(self):
        for keys in _batches(self.client.scan_iter(self.prefix + "*", count=1000), 1000):
            self.client.unlink(*keys)
        self.client.close()


def _batches(items, size):
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class LruCache(Subject):
    """functools.lru_cache: a value is made where it is asked for."""

    def __init__(self, entries, sample, timed):
        self.waiting: Any = iter(())

        @functools.lru_cache(maxsize=entries)
        def cached(key):
            return next(self.waiting)

        self.cached = cached

    @classmethod
    def label(cls):
        return "functools.lru_cache"

    def get_each(self, keys):
        cached, value = self.cached, None
        for key in keys:
            value = cached(key)
        return value

    def put_each(self, keys, values):
        self.waiting, cached = iter(values), self.cached
        for key in keys:
            cached(key)


class Floor(_BySubscript):
    """A dict: no limit, no time, no copy."""

    def __init__(self, entries, sample, timed):
        self.cache: dict[Any, Any] = {}

    @classmethod
    def label(cls):
        return "floor"


SUBJECTS: dict[str, type[Subject]] = {
    "gabion": Gabion,
    "gabion-subscript": GabionSubscript,
    "gabion-lru": GabionLru,
    "gabion-s3fifo": GabionS3Fifo,
    "cachebox": CacheboxTtl,
    "cachebox-lru": CacheboxLru,
    "cachetools": CachetoolsTtl,
    "cachetools-lru": CachetoolsLru,
    "theine": Theine,
    "moka": Moka,
    "diskcache": Diskcache,
    "redis": Redis,
    "functools": LruCache,
    "floor": Floor,
}
