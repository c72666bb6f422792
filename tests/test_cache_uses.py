"""What counts as a use of a value, when values end, and what callbacks are given."""

import asyncio
import datetime
import functools
import inspect
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gabion
from gabion import Cache


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache


def test_to_look_at_all_values_is_no_use_of_them(cache: Cache) -> None:
    """A listing counted as hits, and kept alive what nobody else asked for."""
    cache.put("idle", 1, idle=0.3)
    end = time.monotonic() + 0.6
    while time.monotonic() < end:
        assert list(cache.items()) in ([("idle", 1)], [])
        assert list(cache.values()) in ([1], [])
        time.sleep(0.02)
    assert "idle" not in cache
    assert (cache.stats().hits, cache.stats().misses) == (0, 0)


def test_a_moment_takes_the_place_of_the_caches_ttl() -> None:
    cache = Cache("16 MiB", ttl=0.2)
    cache.put("late", 1, expires_at=time.time() + 3600)
    cache.put("never", 1, ttl=float("inf"), idle=3600)
    assert cache.touch("never")
    time.sleep(0.3)
    assert "late" in cache
    assert "never" in cache
    cache, touched = Cache("16 MiB", ttl=3600), False
    while not touched:  # a busy machine may let it end before
        cache.put("soon", 1, expires_at=time.time() + 0.2)
        touched = cache.touch("soon")
    time.sleep(0.3)
    assert "soon" not in cache


def test_a_moment_that_no_clock_has(cache: Cache) -> None:
    with pytest.raises(ValueError, match=r"expires_at=.*1, 1, 1.*seconds since 1970"):
        cache.put("k", 1, expires_at=datetime.datetime.min)


def test_reasons_go_to_those_who_want_them(cache: Cache) -> None:
    told: list[Any] = []
    callbacks: list[Any] = [
        lambda key, value: told.append(key),
        lambda key, value, reason: told.append(reason),
        lambda key, value, reason=None: told.append(reason),
        lambda key, value, into=told: into.append(value),
        lambda *arguments: told.append(arguments),
    ]
    for callback in callbacks:
        cache.on_evict(callback)
        cache.put("k", "v", ttl=0)
        cache.expire()
    assert told == ["k", "expired", "expired", "v", ("k", "v", "expired")]


def test_nobody_would_await_a_callback(cache: Cache) -> None:
    async def gone(key: object, value: object) -> None:
        """Does nothing."""

    with pytest.raises(TypeError, match="coroutine"):
        cache.on_evict(gone)


def test_a_closed_cache_has_no_tables(cache: Cache) -> None:
    cache.table("one")
    cache.close()
    with pytest.raises(gabion.ClosedError):
        cache.tables()


def test_a_subclass_may_compare_in_a_way_of_its_own() -> None:
    class Named(Cache[str, int]):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and self.name == other.name

    one, other = Named("1 MiB", name="n"), Named("1 MiB", name="n")
    one["k"] = 1
    assert one == other
    assert "k" not in other


def test_any_policy_takes_any_limit() -> None:
    """One allocated a table in proportion to the limit, and the process was ended."""
    for policy in ("default", "lru", "fifo", "s3fifo"):
        with Cache(10**18, policy=policy) as cache:
            cache["k"] = "v"
            assert cache["k"] == "v"


class Alarm(Exception):
    """What a signal's handler raises."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_calls_for_many_keys_let_signals_in(cache: Cache) -> None:
    """Ctrl-C waited for the end of a call that took a second."""

    def handler(*_: object) -> None:
        raise Alarm

    keys = list(range(50_000))
    cache.put_many((key, key) for key in keys)
    # By the processor's time: that of others is no matter.
    before = signal.signal(signal.SIGPROF, handler)
    try:
        for call in (lambda: cache.get_many(keys * 40), lambda: cache.remove_many(keys * 40)):
            # The shortest of some: the system may look at such timers a hundred times a second only.
            shares = []
            for _ in range(3):
                began = time.process_time()
                call()
                whole = time.process_time() - began
                began = time.process_time()
                with pytest.raises(Alarm):
                    signal.setitimer(signal.ITIMER_PROF, whole / 10)
                    for _ in range(100):
                        call()
                shares.append((time.process_time() - began) / whole)
            assert min(shares) < 0.6
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    cache.validate()


def test_no_put_evicts_the_whole_cache() -> None:
    """The heads of all values above 1 KiB stood in one page, and all that was in it went for a page's worth of room."""
    generator, most = random.Random(7), 0
    with Cache("32 MiB") as cache:
        for _ in range(6000):
            before = cache.stats().evicted
            cache[generator.randrange(2_000_000)] = bytes(generator.randint(20_000, 100_000))
            most = max(most, cache.stats().evicted - before)
        assert len(cache) > 150
        cache.validate()
    assert most < 150, most


class Keyed:
    """A mapping as dict.update() takes it, and nobody else: it is registered nowhere, and cannot be iterated."""

    def keys(self) -> list[str]:
        return ["ab", "cd"]

    def __getitem__(self, key: str) -> str:
        return key.upper()


def test_whatever_has_keys_is_a_mapping() -> None:
    cache, other = gabion.Cache("1 MiB"), gabion.Cache("1 MiB")
    cache.update(Keyed())
    assert dict(cache.items()) == {"ab": "AB", "cd": "CD"}
    assert other.put_many(cache) == 2
    assert other.table("t").put_many(other, ttl=60) == 2
    cache.clear()
    cache.update(other.table("t"), ef=1)
    assert dict(cache.items()) == {"ab": "AB", "cd": "CD", "ef": 1}
    cache.update(cache)
    assert dict(cache.items()) == {"ab": "AB", "cd": "CD", "ef": 1}
    # What only looks like one is told as by a dict.
    with pytest.raises(ValueError, match="not enough values"):
        cache.update(["x"])


def test_what_is_closed_raises_at_the_call() -> None:
    cache = gabion.Cache("1 MiB")
    table = cache.table("t")
    table["a"], table["b"] = 1, 2
    under_way = table.items()
    next(under_way)
    cache.drop_table("t")
    for call in (
        lambda: table.put_many({}),
        lambda: table.put_many([]),
        lambda: table.remove_many([]),
        lambda: table.get_many([]),
        table.update,
        table.items,
        table.values,
        table.keys,
        lambda: iter(table),
        lambda: next(under_way),
    ):
        with pytest.raises(gabion.ClosedError, match="table was dropped"):
            call()


def test_the_class_of_a_wrong_key_is_told_in_full() -> None:
    numpy = pytest.importorskip("numpy")
    cache = gabion.Cache("1 MiB")
    for key in (numpy.float32(1), ("a", numpy.float32(1))):
        with pytest.raises(TypeError, match=r"not .*numpy\.float32"):
            cache[key] = 1
    with pytest.raises(TypeError, match="not complex; pass"):
        cache[1j] = 1


class Encoding(str):
    """A text that encodes itself in a way of its own, and equals its characters all the same."""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> Any:
        """Give the bytes of another text."""
        return b"other"


def test_a_text_is_a_key_by_its_characters(cache: Cache) -> None:
    """One that encodes itself in a way of its own got another key's value."""
    cache["other"] = 1
    assert Encoding("mine") not in cache
    cache[Encoding("mine")] = 2
    cache["t", Encoding("\ud800")] = 3
    assert (cache["other"], cache["mine"], cache["t", "\ud800"], len(cache)) == (1, 2, 3, 3)


@pytest.mark.parametrize("wrong", [{"ttl": "bogus"}, {"idle": -1}, {"expires_at": "soon"}, {"priority": 128}])
def test_what_is_wrong_is_told_before_a_factory_runs(cache: Cache, wrong: dict[str, Any]) -> None:
    ran = []

    async def later() -> int:
        ran.append("later")
        return 1

    for factory in (functools.partial(ran.append, 1), later, lambda: ran.append(2)):
        with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
            cache.get_or_put("k", factory, **wrong)
    assert (ran, len(cache)) == ([], 0)


@pytest.mark.parametrize("large", [False, True])
def test_what_a_touch_is_given_counts_once(cache: Cache, large: bool) -> None:
    value = bytes(3 << 20 if large else 3)
    cache["plain"] = value
    cache.put("timed", value, ttl=60)
    before = cache.stats()
    # Long enough for a machine that stands still for a moment.
    assert cache.touch("plain", 2)
    assert cache.touch("timed", 2)
    assert cache.stats().bytes - before.bytes == 24
    assert cache.touch("timed")
    assert cache.touch("plain")
    time.sleep(2.1)
    assert [key in cache for key in ("plain", "timed")] == [False, True]
    cache.validate()


def test_a_large_value_changes_in_its_place() -> None:
    """Nearly all others went for it, and came back for nobody."""
    cache = Cache("32 MiB")
    cache["large"] = bytes(18 << 20)
    number = 0
    while cache.stats().bytes < 31 << 20:
        cache[number] = bytes(50_000)
        number += 1
    cache.change("large", lambda value: value[:-1] + b"x")
    cache["large"] = bytes(17 << 20)
    assert cache.touch("large", 60)
    figures = cache.stats()
    assert (figures.evicted, figures.entries) == (0, number + 1)
    assert cache["large"] == bytes(17 << 20)
    cache.validate()


def test_a_table_takes_over_the_times_that_it_is_not_given() -> None:
    cache = Cache("1 MiB", ttl="5 min", idle=60)
    times = {
        "both": ({}, (300, 60)),
        "own ttl": ({"ttl": 5}, (5, 60)),
        "own idle": ({"idle": "2 s"}, (300, 2)),
        "no ttl": ({"ttl": None}, (None, 60)),
        "no idle": ({"idle": None}, (300, None)),
        "no end": ({"ttl": None, "idle": None}, (None, None)),
        "inf": ({"ttl": float("inf"), "idle": float("inf")}, (None, None)),
    }
    for name, (given, expected) in times.items():
        table = cache.table(name, **given)  # type: ignore[arg-type]
        assert (table.ttl, table.idle) == expected, name
        table["k"] = 1
        left = table.expires_in("k")
        least = min((span for span in expected if span is not None), default=float("inf"))
        assert left == least or least - 2 < left < least, name
    free = Cache("1 MiB").table("t")
    assert (free.ttl, free.idle) == (None, None)
    shown = inspect.signature(cache.table).parameters
    assert str(shown["ttl"]).endswith("= <as the cache>")


def test_a_table_that_is_there_keeps_its_settings() -> None:
    """Others that were asked for were dropped without a word."""
    cache = Cache("1 MiB", ttl="5 min")
    table = cache.table("p", ttl=5, max_bytes="64 KiB")
    table["k"] = 1
    same: list[dict[str, Any]] = [
        {}, {"ttl": 5}, {"ttl": "5 s"}, {"max_bytes": 65536}, {"idle": None}, {"idle": float("inf")},
        {"ttl": datetime.timedelta(seconds=5), "max_bytes": "64 KiB", "idle": None}, {"max_bytes": None},
    ]  # fmt: skip
    for given in same:
        assert cache.table("p", **given) is table, given
    other: dict[str, dict[str, Any]] = {
        r"'p' with ttl=5.0, not ttl=500.0: ask": {"ttl": 500},
        "ttl=5.0, not ttl=None": {"ttl": None},
        "max_bytes=65536, not max_bytes=131072": {"max_bytes": "128 KiB", "ttl": 5},
        "idle=None, not idle=3.0": {"idle": 3},
        "ttl=5.0, idle=None, not ttl=6.0, idle=1.0": {"ttl": 6, "idle": 1},
        "max_bytes=1000 counts bytes": {"max_bytes": 1000},
        "ttl='soon'": {"ttl": "soon"},
    }
    for text, given in other.items():
        with pytest.raises(ValueError, match=text):
            cache.table("p", **given)
    assert (table.ttl, table["k"]) == (5, 1)
    # One that nobody holds is there all the same.
    del table
    with pytest.raises(ValueError, match=r"ttl=5.0, not ttl=6.0"):
        cache.table("p", ttl=6)
    assert cache.drop_table("p")
    assert cache.table("p", ttl=6).ttl == 6
    # More than the cache has is as much as the cache has.
    whole = cache.table("whole")
    for limit in ("1 MiB", "1 GiB"):
        assert cache.table("whole", max_bytes=limit) is whole
    with pytest.raises(ValueError, match="max_bytes=1048576, not max_bytes=4096"):
        cache.table("whole", max_bytes=4096)
    for ttl in (0.1, 1 / 3, 1e10 / 7, "0.3 weeks"):
        own = cache.table(str(ttl), ttl=ttl)
        assert cache.table(str(ttl), ttl=ttl) is cache.table(str(ttl), ttl=own.ttl) is own


def test_what_an_entry_takes(cache: Cache) -> None:
    table = cache.table("t", ttl=60)
    for number in range(120):
        table["k" * number] = cache["k" * number, 7] = b"x" * (number * number * number // 20)
    cache.put("timed", 1, ttl=5, idle=3)
    cache["long"] = b"x" * 2_000_000
    sizes = [each.size_of(key) for each in (cache, table) for key in each]
    assert sum(sizes) == cache.stats().bytes
    assert sum(map(table.size_of, table)) == table.stats().bytes
    assert 2_000_000 < cache.size_of("long") < 2_100_000
    cache.put("over", 1, ttl=0)
    for key in ("over", "never", ("t", 5)):
        with pytest.raises(KeyError):
            cache.size_of(key)
    with pytest.raises(TypeError, match="complex"):
        cache.size_of(1j)
    assert cache.stats().hits == cache.stats().misses == 0
    cache.drop_table("t")
    with pytest.raises(gabion.ClosedError):
        table.size_of("k")


def test_how_long_a_value_lives_on(cache: Cache) -> None:
    forever = float("inf")
    table = cache.table("t", ttl=100)
    cache["ever"] = table["timed"] = 1
    cache.put("idle", 1, ttl="1 hour", idle=50)
    cache.put("at", 1, expires_at=datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=70))
    cache.put("over", 1, ttl=0)
    before = cache.stats()
    assert cache.expires_in("ever") == forever
    left = table.expires_in("timed"), cache.expires_in("idle"), cache.expires_in("at")
    for seconds, most in zip(left, (100, 50, 70), strict=True):
        assert type(seconds) is float
        assert most - 30 < seconds <= most
    for missing in "over", "timed":
        with pytest.raises(KeyError, match=missing):
            cache.expires_in(missing)
        assert cache.expires_in(missing, None) is None
        assert cache.expires_in(missing, default=-2) == -2
    assert cache.expires_in("ever", 5) == forever
    assert cache.touch("ever", ttl=10)
    assert cache.expires_in("ever") <= 10
    time.sleep(0.05)
    assert cache.expires_in("idle") < 50, "it is no use"
    with pytest.raises(TypeError):
        cache.expires_in(1j)
    with pytest.raises(TypeError):
        cache.expires_in()  # type: ignore[call-overload]
    after = cache.stats()
    assert (after.hits, after.misses) == (before.hits, before.misses)
    cache.drop_table("t")
    with pytest.raises(gabion.ClosedError):
        table.expires_in("timed", None)


def test_a_coroutine_function_with_arguments_goes_as_a_partial(cache: Cache) -> None:
    async def fetch(number: int) -> int:
        return number

    async def asked() -> int:
        with pytest.raises(TypeError, match=r"functools\.partial\(fetch, 7\)"):
            await cache.get_or_put("key", lambda: fetch(7))
        return await cache.get_or_put("key", functools.partial(fetch, 7))

    assert asyncio.run(asked()) == 7


def test_what_cannot_be_called_with_a_key_and_a_value_is_refused(cache: Cache) -> None:
    """Each eviction would have gone to sys.unraisablehook."""
    for wrong in (lambda key: None, lambda key, value, reason, more: None, lambda key, value, *, more: None):
        with pytest.raises(TypeError, match="takes a function of key and value, and of the reason if it wants it"):
            cache.on_evict(wrong)  # type: ignore[arg-type]
    wrapped = functools.wraps(lambda both: None)(lambda *both: None)
    for right in (
        wrapped,
        print,
        lambda *any_: None,
        lambda key, value, *, more=1: None,
        functools.partial(print, "left:"),
    ):
        cache.on_evict(right)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="the system does not tell")
def test_the_thread_for_what_expires_ends_with_the_last_cache_that_needs_it(script: Callable[..., str]) -> None:
    script(
        """
        import os, time
        from pathlib import Path
        import gabion

        def name_of(task):
            try:
                return Path(f"/proc/self/task/{task}/comm").read_text().strip()
            except OSError:  # a thread that has ended meanwhile
                return ""

        def runs():
            return "gabion-sweeper" in map(name_of, os.listdir("/proc/self/task"))

        def wait(condition):
            for _ in range(2000):
                if condition():
                    return
                time.sleep(0.01)
            raise AssertionError

        for _ in range(2):
            endless, timed = gabion.Cache("1 MiB"), gabion.Cache("1 MiB", ttl=0.5)
            endless["key"] = 1
            timed["key"] = 1
            wait(runs)
            wait(lambda: not timed.stats().entries)
            timed["key"] = 1
            timed.close()
            del timed
            wait(lambda: not runs())
            assert endless["key"] == 1
        """
    )
