"""gabion.testing: time that passes at once, for tests of what expires in caches.

>>> import gabion
>>> from gabion.testing import advance
>>> cache = gabion.Cache("1 MiB", ttl="1 h")
>>> cache["session"] = "Ada"
>>> advance("1 h")
>>> "session" in cache
False

Functions: advance().
"""

from __future__ import annotations

from datetime import timedelta

from gabion import _native

__all__ = ["advance"]


def advance(seconds: float | str | timedelta, /) -> None:
    """Let this much time pass at once for all caches that there are in this process.

    ``seconds`` may also be text such as "1 h", or a timedelta. What has a time to live, an idle time or a moment
    (``expires_at``) ends as if that time had passed: gets do not return it any more, and it is removed, and told to
    ``on_evict()``, by later calls or by ``expire()``. The clock on the wall goes on by as much for these caches, so
    that a moment that is computed from ``time.time()`` after that comes so much earlier. A cache that is made later
    begins with the clock on the wall as it is.

    Made for tests: time only goes forward, for the rest of the process, and nothing but caches follows. Raises
    ValueError for a time below 0, or where that would make more than a hundred years in one process.

    >>> import datetime, gabion
    >>> from gabion.testing import advance
    >>> cache = gabion.Cache("1 MiB")
    >>> _ = cache.put("offer", "half price", expires_at=datetime.datetime.now() + datetime.timedelta(hours=1))
    >>> advance("59 min")
    >>> "offer" in cache
    True
    >>> advance("1 min")
    >>> "offer" in cache
    False
    """
    _native._advance(seconds)
