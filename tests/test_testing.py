"""Time that passes for tests of what expires."""

import datetime
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import gabion
from gabion import Cache
from gabion.testing import advance


def ends() -> dict[str, dict[str, Any]]:
    """One hour, however it is said."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "ttl": {"ttl": 3600},
        "idle": {"idle": "1 h"},
        "seconds": {"expires_at": time.time() + 3600},
        "datetime": {"expires_at": now + timedelta(hours=1)},
        "both": {"ttl": "2 h", "idle": timedelta(hours=1)},
        "table": {},
        "never": {"ttl": float("inf")},
    }


def test_what_ends_has_ended_when_its_time_has_passed() -> None:
    cache = Cache("1 MiB", ttl="1 h")
    table = cache.table("t", idle="1 h", ttl=None)
    for key, given in ends().items():
        cache.put(key, 1, **given)
    table["k"] = 1
    advance("59 min")
    assert set(cache) == set(ends())
    assert 0 < cache.expires_in("ttl") <= 60
    assert "k" in table
    advance(timedelta(minutes=1))
    assert [key for key in ends() if key in cache] == ["never"]
    assert "k" not in table
    assert cache.get("ttl") is None
    cache.expire()
    assert cache.stats().expired == 7
    assert cache.stats().entries == 1
    cache.validate()


def test_a_use_puts_the_end_of_an_idle_time_off() -> None:
    cache = Cache("1 MiB", idle=60)
    cache["k"] = cache["other"] = 1
    for _ in range(5):
        advance(50)
        assert cache["k"] == 1
    assert "other" not in cache
    cache.put("touched", 1, ttl=100)
    advance(55)
    assert cache.touch("touched")
    advance(55)
    assert cache.touch("touched")


def test_those_who_listen_are_told() -> None:
    cache = Cache("1 MiB", ttl=60)
    told: list[Any] = []
    cache.on_evict(lambda key, value, reason: told.append((key, value, reason)))
    cache["k"] = ["value"]
    advance(60)
    assert told == []
    assert cache.expire() == 1
    assert told == [("k", ["value"], "expired")]


def test_functions_run_again() -> None:
    cache, calls = Cache("1 MiB"), []

    @cache.memoize(ttl="1 h")
    def area(width: int) -> int:
        calls.append(width)
        return width * width

    assert [area(3), area(3)] == [9, 9]
    advance("1 h")
    assert (area(3), calls) == (9, [3, 3])
    assert cache.get_or_put("k", lambda: 1, ttl=60) == 1
    advance(60)
    assert cache.get_or_put("k", lambda: 2, ttl=60) == 2


def test_a_new_cache_begins_with_the_clock_on_the_wall() -> None:
    old = Cache("1 MiB")
    advance("10 days")
    new = Cache("1 MiB")
    soon = time.time() + 3600
    for cache in (old, new):
        cache.put("k", 1, expires_at=soon)
    assert "k" not in old
    assert 3500 < new.expires_in("k") <= 3600


def test_time_passes_for_other_threads() -> None:
    cache = Cache("1 MiB", ttl=60)
    cache["k"] = 1
    seen: list[bool] = []
    advance(60)
    thread = threading.Thread(target=lambda: seen.append("k" in cache))
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_long_time() -> None:
    cache = Cache("1 MiB")
    cache["never"] = 1
    cache.put("k", 1, ttl="200 weeks")
    advance(timedelta(days=36_524))
    assert [key in cache for key in ("never", "k")] == [True, False]
    cache.put("k", 1, ttl=60)
    advance(59)
    assert "k" in cache
    assert cache.expire() == 0
    advance(1)
    assert "k" not in cache
    cache.validate()


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        (-1, ValueError, "seconds=-1"),
        (float("nan"), ValueError, "seconds=nan"),
        ("soon", ValueError, "not a span of time"),
        (float("inf"), ValueError, "a hundred years"),
        ("6000 weeks", ValueError, "a hundred years"),
        (None, TypeError, "seconds must be seconds"),
        (True, TypeError, "seconds must be"),
    ],
)
def test_what_is_no_time(given: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        advance(given)


def test_zero_passes_nothing() -> None:
    cache = Cache("1 MiB")
    cache.put("k", 1, ttl=5)
    advance(0)
    assert "k" in cache


def test_it_comes_at_its_first_use(script: Callable[..., str]) -> None:
    source = """
        import sys, gabion
        print("gabion.testing" in sys.modules, gabion.testing.advance(0), "testing" in dir(gabion))
    """
    assert script(source).split() == ["False", "None", "True"]
    assert gabion.testing.__all__ == ["advance"]
