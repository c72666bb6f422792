"""gabion.Cache as a backend of dogpile.cache.

::

    from dogpile.cache import make_region

    region = make_region().configure("gabion", expiration_time=300, arguments={"max_bytes": "256 MiB"})

Arguments: ``max_bytes`` ("64 MiB" unless given), ``policy`` and ``ttl``; or ``cache``, a ``gabion.Cache`` or table to
be used. Any other is passed over with a ``UserWarning``. dogpile's own expiration time decides when a value is made
anew; ``ttl`` is when its memory is freed, and should be longer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from dogpile.cache.api import NO_VALUE, CacheBackend

from gabion import Cache

__all__ = ["GabionBackend"]

_ARGUMENTS = ("max_bytes", "policy", "ttl", "cache")


class GabionBackend(CacheBackend):
    """A cache of this process, bounded in bytes."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Take the cache given, or make one."""
        for name in arguments:
            if name not in _ARGUMENTS:
                known = ", ".join(_ARGUMENTS)
                warnings.warn(f"a gabion backend has no argument {name!r}; there are {known}", stacklevel=4)
        given = arguments.get("cache")
        if given is None:
            settings = {name: arguments[name] for name in ("ttl", "policy") if name in arguments}
            given = Cache(arguments.get("max_bytes", "64 MiB"), **settings)
        self._cache = given

    def get(self, key: str) -> Any:
        """Return the key's value, or NO_VALUE."""
        return self._cache.get(key, NO_VALUE)

    def get_multi(self, keys: Iterable[str]) -> list[Any]:
        """Return the value of each key, or NO_VALUE."""
        names = list(keys)
        found = self._cache.get_many(names)
        return [found.get(key, NO_VALUE) for key in names]

    def set(self, key: str, value: Any) -> None:
        """Store a value."""
        self._cache.put(key, value)

    def set_multi(self, mapping: Mapping[str, Any]) -> None:
        """Store many values."""
        self._cache.put_many(mapping)

    def delete(self, key: str) -> None:
        """Remove a key."""
        self._cache.discard(key)

    def delete_multi(self, keys: Iterable[str]) -> None:
        """Remove many keys."""
        self._cache.remove_many(keys)
