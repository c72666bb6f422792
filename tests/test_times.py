"""Times are read alike wherever the package takes one: seconds, text with a unit, timedeltas; and moments."""

import math
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

import gabion
from gabion import Cache, memory


@pytest.fixture
def defaults() -> Iterator[None]:
    yield
    memory.configure(trim_period=None)


def of_trimming(span: Any) -> float:
    memory.configure(trim_period=span)
    return memory.stats().trim_period


def of_tables(span: Any) -> float:
    cache = Cache("1 MiB")
    ttl, idle = (cache.table(word, **{word: span})._settings()[at] for word, at in (("ttl", 1), ("idle", 2)))
    assert ttl == idle
    return math.inf if ttl is None else ttl


def of_caches(span: Any) -> float:
    _, ttl, _ = Cache("1 MiB", ttl=span)._settings()
    return math.inf if ttl is None else ttl


READERS = [of_trimming, of_tables, of_caches]
# Every place that takes a span; what is no span is refused by each, with the same words.
TAKERS: dict[str, Callable[[Any], Any]] = {
    "trim_period": lambda span: memory.configure(trim_period=span),
    "timeout": lambda span: memory.rent(10, timeout=span),
    "ttl": lambda span: Cache("1 MiB", ttl=span),
    "idle": lambda span: Cache("1 MiB").table("t", idle=span),
    "ttl, put": lambda span: Cache("1 MiB").put("k", 1, ttl=span),
    "idle, add": lambda span: Cache("1 MiB").add("k", 1, idle=span),
    "ttl, touch": lambda span: Cache("1 MiB").touch("k", span),
    "ttl, many": lambda span: Cache("1 MiB").put_many({"k": 1}, ttl=span),
    "idle, made": lambda span: Cache("1 MiB").get_or_put("k", lambda: 1, idle=span),
    "timeout, group": lambda span: memory.rent_group(10, timeout=span),
}


class Seconds(float):
    pass


class Count(int):
    pass


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (5, 5), (0.25, 0.25), (Seconds(7), 7), (Count(8), 8), (Fraction(1, 2), 0.5), (Decimal("1.5"), 1.5),
        (timedelta(minutes=2), 120), (timedelta(days=3, microseconds=250), 259200.00025),
        ("5 min", 300), ("5min", 300), (" 5 MIN ", 300), ("1 minute", 60), ("2 minutes", 120), ("250 ms", 0.25),
        ("10 s", 10), ("10.5s", 10.5), ("1 second", 1), ("2 seconds", 2), ("1e3 s", 1000), ("2 h", 7200),
        ("1 hour", 3600), ("5 sec", 5), ("5 secs", 5), ("2 mins", 120), ("1 hr", 3600), ("2 hrs", 7200),
        ("3 d", 259200), ("1 week", 604800), ("2 weeks", 1209600), ("60", 60), ("0.5", 0.5),
        ("1.5 hours", 5400), ("1 day", 86400), ("30 days", 2592000), ("1e300 days", math.inf),
        (math.inf, math.inf), (10**40, math.inf), (1e30, math.inf),
    ],
)  # fmt: skip
def test_what_is_a_span(read: Callable[[Any], float], given: Any, seconds: float, defaults: None) -> None:
    found = read(given)
    assert found == pytest.approx(seconds) or (seconds == math.inf and found > 1e18)


@pytest.mark.parametrize("name", TAKERS)
def test_what_is_none_is_refused_alike(name: str) -> None:
    word = name.split(",")[0]
    for given in (
        -1, -0.5, -(10**40), math.nan, -math.inf, timedelta(-1), "soon", "", "-5 min", "nan s", "inf s", "min",
        "5 m", "5 months", "5 years", "inf", "nan", "-5", "5 min 3 s", "1e999 s",
    ):  # fmt: skip
        with pytest.raises(
            ValueError,
            match=rf"^{word}=.*: not a span of time; pass seconds .*\"5 min\" \(ms; s, sec, seconds; "
            r"min, mins, minutes; h, hr, hours; d, days; weeks\), or a timedelta$",
        ):
            TAKERS[name](given)
    for given, kind in ((True, "bool"), ([], "list"), (b"5 min", "bytes"), (1j, "complex"), (object(), "object")):
        with pytest.raises(
            TypeError, match=rf"^{word} must be seconds, text such as \"5 min\", or a timedelta, not {kind}$"
        ):
            TAKERS[name](given)


def test_none_is_the_default_everywhere() -> None:
    for take in TAKERS.values():
        take(None)


@pytest.mark.parametrize("read", READERS)
def test_times_of_numpy(read: Callable[[Any], float], defaults: None) -> None:
    np = pytest.importorskip("numpy")
    for given, seconds in (
        (np.float32(1.5), 1.5), (np.int64(3), 3), (np.uint8(4), 4), (np.timedelta64(5, "m"), 300),
        (np.timedelta64(1500, "ms"), 1.5), (np.timedelta64(2_000_000_000, "ns"), 2), (np.timedelta64(1, "D"), 86400),
    ):  # fmt: skip
        assert read(given) == seconds
    for none in (np.timedelta64("NaT"), np.timedelta64(-1, "s"), np.float64("nan")):
        with pytest.raises(ValueError, match="not a span of time"):
            read(none)


def test_classes_that_are_named_as_times_of_numpy_are_none() -> None:
    span, moment = type("timedelta64", (), {})(), type("datetime64", (), {})()
    with pytest.raises(TypeError, match="must be seconds, text such as"):
        Cache("1 MiB").put("k", 1, ttl=span)
    with pytest.raises(TypeError, match="must be a datetime or seconds since 1970"):
        Cache("1 MiB").put("k", 1, expires_at=moment)


def test_moments() -> None:
    cache = Cache("1 MiB")
    now = datetime.now(UTC)
    for later in (now + timedelta(hours=1), datetime.now() + timedelta(hours=1), time.time() + 3600, 10**40, math.inf):
        cache.put("k", 1, expires_at=later)
        assert "k" in cache
    for past in (now - timedelta(hours=1), time.time() - 3600, int(time.time()) - 3600, 0, -(10**40), -math.inf):
        cache.put("k", 1, expires_at=past)
        assert "k" not in cache
    for wrong in ("noon", b"", [], True, date.today(), timedelta(1)):
        with pytest.raises(TypeError, match=r"^expires_at must be a datetime or seconds since 1970, not "):
            cache.put("k", 1, expires_at=wrong)
    with pytest.raises(ValueError, match=r"^expires_at=nan: not a moment; pass a datetime or seconds since 1970$"):
        cache.put("k", 1, expires_at=math.nan)


CALLS: dict[str, Callable[[Cache, Any], Any]] = {
    "put": lambda cache, at: cache.put("k", 1, expires_at=at),
    "add": lambda cache, at: cache.add("k", 1, expires_at=at),
    "setdefault": lambda cache, at: cache.setdefault("k", 1, expires_at=at),
    "put_many": lambda cache, at: cache.put_many({"k": 1}, expires_at=at),
    "change": lambda cache, at: cache.change("k", lambda value: value, 1, expires_at=at),
    "incr": lambda cache, at: cache.incr("k", expires_at=at),
    "get_or_put": lambda cache, at: cache.get_or_put("k", lambda: 1, expires_at=at),
    "get_or_put of tasks": lambda cache, at: cache.get_or_put("k", partial(int), expires_at=at),
    "memoize": lambda cache, at: cache.memoize(expires_at=at),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_span_that_is_given_for_a_moment_is_told(call: Callable[[Cache, Any], Any]) -> None:
    """A minute was a moment of 1970: the value was over at once, and the put said INSERTED."""
    cache = Cache("1 MiB")
    for given, told in (
        (60, r"^expires_at=60 is a moment of 1970; for 60 seconds from now pass ttl=60$"),
        (0.5, r"^expires_at=0\.5 is a moment of 1970; for 0\.5 seconds from now pass ttl=0\.5$"),
        (10**8 - 1, r"^expires_at=99999999 is a moment of 1973; for 99999999 seconds from now pass ttl=99999999$"),
    ):
        with pytest.raises(ValueError, match=told):
            call(cache, given)
    assert "k" not in cache
    call(cache, 10**8)
    call(cache, datetime(1970, 1, 2, tzinfo=UTC))
    assert "k" not in cache


def test_a_span_of_numpy_that_is_given_for_a_moment_is_told() -> None:
    np = pytest.importorskip("numpy")
    cache = Cache("1 MiB")
    for given in (np.int64(60), np.float32(60)):
        with pytest.raises(ValueError, match=r"is a moment of 1970; for .*60.* seconds from now pass ttl="):
            cache.put("k", 1, expires_at=given)
    cache.put("k", 1, expires_at=np.datetime64("1970-01-02"))


def test_moments_of_numpy() -> None:
    np = pytest.importorskip("numpy")
    cache = Cache("1 MiB")
    for unit in ("D", "s", "ms", "ns"):
        cache.put("k", 1, expires_at=np.datetime64("2100-01-01").astype(f"datetime64[{unit}]"))
        assert "k" in cache
        cache.put("k", 1, expires_at=np.datetime64("2001-01-01").astype(f"datetime64[{unit}]"))
        assert "k" not in cache
    with pytest.raises(ValueError, match="not a moment"):
        cache.put("k", 1, expires_at=np.datetime64("NaT"))


def test_an_object_whose_own_code_fails_is_heard() -> None:
    class Odd:
        def total_seconds(self) -> float:
            raise ZeroDivisionError("of its own")

    for take in TAKERS.values():
        with pytest.raises(ZeroDivisionError, match="of its own"):
            take(Odd())


def test_text_works_where_time_passes() -> None:
    cache = Cache("1 MiB")
    cache.put("short", 1, ttl="1 ms")
    cache.put("long", 1, ttl="1 hour")
    while cache.get("short") is not None:
        time.sleep(0.002)
    assert cache.get("long") == 1
    assert isinstance(memory.rent(10, timeout="1 s"), memory.Buffer)
    assert gabion.Cache("1 MiB", ttl="5 min", idle="30 s")._settings() == (None, 300.0, 30.0)
