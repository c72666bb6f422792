"""What became of a put into a cache."""

from __future__ import annotations

import enum

from gabion._native import CacheTable


class PutResult(enum.Enum):
    """What became of a put.

    INSERTED: the key had no value. REPLACED: it had one. REJECTED: there was no room, and the key holds nothing now; it
    alone is false, as in ``if not cache.put(key, value)``.
    """

    INSERTED = "inserted"
    REPLACED = "replaced"
    REJECTED = "rejected"

    def __bool__(self) -> bool:
        """Whether the value was stored."""
        return self is not PutResult.REJECTED


CacheTable._results(list(PutResult))
