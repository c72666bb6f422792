"""gabion.Cache: every method, as docs and types promise it."""

import asyncio
import gc
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from many_threads import LOCKED
from patience import HANGS, eventually

import gabion
from gabion import Cache, PutResult


@pytest.fixture
def cache():
    with Cache("16 MiB") as cache:
        yield cache
        if not cache.closed:
            cache.validate()


def test_like_a_dict(cache):
    cache["a"] = [1, {"b": 2}]
    assert cache["a"] == [1, {"b": 2}]
    assert cache["a"] is not cache["a"]
    assert "a" in cache
    assert "b" not in cache
    assert (len(cache), bool(cache), list(cache)) == (1, True, ["a"])
    assert cache.get("b") is None
    assert cache.get("b", 5) == cache.get("b", default=5) == 5
    assert cache.get("a", default=5) == cache["a"]
    with pytest.raises(KeyError, match="b"):
        cache["b"]
    with pytest.raises(KeyError):
        del cache["b"]
    del cache["a"]
    assert len(cache) == 0
    assert cache.pop("a", 7) == cache.pop("a", default=7) == 7
    with pytest.raises(KeyError):
        cache.pop("a")
    cache["a"] = 1
    assert (cache.pop("a"), "a" in cache) == (1, False)
    assert (cache.setdefault("s", 3), cache.setdefault("s", 4)) == (3, 3)
    assert dict(cache.items()) == {"s": 3}
    assert (cache.keys(), list(cache.values())) == (["s"], [3])
    with pytest.raises(TypeError, match="not reversible"):
        reversed(cache)
    with pytest.raises(TypeError, match=r"^Table\.get_or_put\(\) missing 1 required positional argument: 'factory'$"):
        cache.get_or_put("s")


def test_none_is_a_value(cache):
    cache["none"] = None
    assert "none" in cache
    assert cache["none"] is None
    assert cache.get("none", 1) is None
    assert cache.pop("none", 1) is None


def test_put_says_what_became_of_it(cache):
    assert cache.put("k", 1) is PutResult.INSERTED
    assert cache.put("k", 2) is PutResult.REPLACED
    assert cache.put("k", bytes(17 << 20)) is PutResult.REJECTED
    assert "k" not in cache
    assert cache.add("k", 3) is True
    assert cache.add("k", 4) is False
    assert cache["k"] == 3


def test_many(cache):
    assert cache.put_many({number: str(number) for number in range(100)}, ttl=50) == 100
    assert cache.get_many([1, 2, 500]) == {1: "1", 2: "2"}
    assert cache.remove_many([1, 2, 500]) == 2
    assert cache.put_many([("a", 1)]) == 1
    assert len(cache) == 99


def test_get_many_gives_each_key_its_value_however_many_there_are(cache):
    keys = [*range(60), *map("key {}".format, range(60)), *zip("t" * 40, range(40)), "ü", b"b", 1 << 70, "k" * 1000]
    cache.put_many({key: repr(key) for key in keys[::2]})
    for count in (0, 1, 7, 8, 9, 15, 16, 17, 18, 33, len(keys)):
        asked = keys[:count]
        assert cache.get_many(iter(asked)) == {key: repr(key) for key in asked if keys.index(key) % 2 == 0}
    with pytest.raises(TypeError, match="a cache's key is"):
        cache.get_many([*keys, 1j])


def test_time(cache):
    began = time.monotonic()
    cache.put("ttl", 1, ttl=0.15)
    cache.put("delta", 1, ttl=timedelta(hours=1))
    cache.put("at", 1, expires_at=datetime.now(UTC) + timedelta(seconds=0.15))
    cache.put("naive", 1, expires_at=datetime.now() + timedelta(hours=1))
    cache.put("past", 1, expires_at=time.time() - 5)
    cache.put("idle", 1, idle=0.3)
    cache.put("ever", 1, ttl=float("inf"))
    there = set(cache)
    # A busy machine may have come here late.
    if time.monotonic() - began < 0.15:
        assert there == {"ttl", "delta", "at", "naive", "idle", "ever"}
    asked = began
    while time.monotonic() - began < 0.6:
        time.sleep(0.05)
        before = time.monotonic()
        if cache.get("idle") is None:
            assert time.monotonic() - asked >= 0.3, "each get gives it its time anew"
            cache.put("idle", 1, idle=0.3)
        asked = before
    assert set(cache) - {"idle"} == {"delta", "naive", "ever"}
    assert cache.touch("delta", ttl=0.05) is True
    time.sleep(0.1)
    assert cache.touch("delta") is False
    time.sleep(0.3)
    assert {"naive", "ever"} == set(cache)
    cache.expire()
    stats = cache.stats()
    assert stats.expired == stats.inserted - 2
    for wrong in (-1, float("nan"), "soon"):
        with pytest.raises((ValueError, TypeError)):
            cache.put("k", 1, ttl=wrong)


def test_expired_memory_comes_back_without_being_asked():
    cache = Cache("16 MiB", ttl=0.05)
    cache.put_many({n: n for n in range(100)})
    assert eventually(lambda: len(cache) == 0)
    assert cache.stats().bytes == 0


def test_what_became_of_a_put_is_true_when_it_is_stored(cache):
    assert cache.put("a", 1)
    assert cache.put("a", 2)
    assert not cache.put("a", bytes(100 << 20))
    assert [bool(result) for result in PutResult] == [True, True, False]


@pytest.mark.skipif(LOCKED, reason="threads take turns, so that counting costs them nothing")
def test_results_are_counted_by_nobody(cache):
    counted = [sys.getrefcount(result) for result in PutResult]
    results = [cache.put(number, number) for number in range(100)]
    results += [cache.put(number, "other") for number in range(100)]
    assert set(results) == {PutResult.INSERTED, PutResult.REPLACED}
    assert [sys.getrefcount(result) for result in PutResult] == counted
    del results
    gc.collect()
    assert [sys.getrefcount(result) for result in PutResult] == counted
    assert cache.put("k", 1) is PutResult.INSERTED


def test_priorities():
    cache = Cache(50_000)
    while cache.stats().evicted == 0:
        cache.put(uuid4(), "x" * 50, priority=5)
    assert cache.put("low", "x" * 50, priority=4) is PutResult.REJECTED
    assert cache.put("high", "x" * 50, priority=5) is PutResult.INSERTED
    with pytest.raises(ValueError, match="-128 to 127"):
        cache.put("k", 1, priority=1000)


def test_tables(cache):
    one, two = cache.table("one", ttl=60), cache.table("two", max_bytes="1 MiB")
    assert cache.table("one") is one
    one["k"], two["k"], cache["k"] = 1, 2, 3
    assert (one["k"], two["k"], cache["k"]) == (1, 2, 3)
    assert cache.tables() == ["one", "two"]
    assert (len(one), one.name, cache.stats().entries) == (1, "one", 3)
    for number in range(30_000):
        two[number] = "some text"
        assert number % 1000 or two.stats().bytes <= 1 << 20
    assert two.stats().evicted > 0
    assert one.stats().evicted == 0
    assert cache.drop_table("two") is True
    with pytest.raises(gabion.ClosedError, match="dropped"):
        two["k"]
    assert cache.table("two")
    assert "k" not in cache.table("two")
    one.clear()
    assert (len(one), cache["k"]) == (0, 3)
    cache.clear()
    assert cache.stats().entries == 0
    with pytest.raises(ValueError, match="name"):
        cache.table("")


def test_callbacks():
    cache = Cache(20_000, policy="fifo")
    gone = []
    cache.on_evict(lambda key, value, reason: gone.append((key, value, reason)))
    number = 0
    while not gone:
        cache[number] = ["value", number]
        number += 1
    assert gone[0] == (0, ["value", 0], "evicted")
    pairs = []
    cache.on_evict(lambda key, value: pairs.append((key, value)))
    cache.put("short", 1, ttl=0.01)
    time.sleep(0.1)
    cache.expire()
    assert ("short", 1) in pairs
    cache.on_evict(None)
    with pytest.raises(TypeError, match="on_evict"):
        cache.on_evict(5)


def test_memoize(cache):
    calls = []

    @cache.memoize(ttl=60)
    def add(a, b=0, *, c=None):
        calls.append((a, b, c))
        return [a, b, c]

    assert add(1, 2) == add(1, 2) == [1, 2, None]
    assert add(1, b=2) == [1, 2, None]
    assert add(1.5, (1, None, 2.5), c="x") == add(1.5, (1, None, 2.5), c="x")
    assert len(calls) == 3
    with pytest.raises(TypeError, match="key="):
        add([1])
    add.cache_clear()
    add(1, 2)
    assert len(calls) == 4

    @cache.memoize(key=len)
    def total(items):
        return sum(items)

    assert total([1, 2]) == total([3, 4]) == 3

    @cache.memoize
    def bare(number):
        calls.append(number)
        return number

    assert bare(3) == bare(3) == 3
    assert bare.cache_stats().entries == 1


def test_memoized_results_live_as_those_of_their_table():
    cache = Cache("16 MiB", ttl=0.05)
    table = cache.table("t", max_bytes="1 MiB", idle=0.05)
    for place in (cache, table):

        @place.memoize
        def double(number):
            return 2 * number

        assert double(2) == 4
        assert double.cache_stats().inserted == 1
        time.sleep(0.1)
        cache.expire()
        assert double.cache_stats().entries == 0
    assert double.cache_stats().max_bytes == 1 << 20


def test_one_factory_runs_for_many_threads(cache):
    calls, results = [], []
    barrier = threading.Barrier(16)

    def factory():
        calls.append(1)
        time.sleep(0.1)
        return {"made": "once"}

    def ask():
        barrier.wait()
        results.append(cache.get_or_put("k", factory, ttl=50))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert results == [{"made": "once"}] * 16


def test_factories_that_fail_recurse_or_wait_for_each_other(cache):
    attempts = []

    def failing():
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "made"

    for _ in range(2):
        with pytest.raises(ValueError, match="not yet"):
            cache.get_or_put("fail", failing)
    assert cache.get_or_put("fail", failing) == "made"
    with pytest.raises(RuntimeError, match="itself"):
        cache.get_or_put("r", lambda: cache.get_or_put("r", lambda: 1))
    errors, barrier = [], threading.Barrier(2)

    def crossing(own, other):
        def factory():
            barrier.wait(HANGS)
            return cache.get_or_put(other, lambda: "inner")

        try:
            cache.get_or_put(own, factory)
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=crossing, args=pair) for pair in (("x", "y"), ("y", "x"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANGS)
        assert not thread.is_alive()
    assert len(errors) >= 1


def test_asyncio(cache):
    calls = []

    async def factory():
        calls.append(1)
        await asyncio.sleep(0.05)
        return [1]

    @cache.memoize(ttl=5)
    async def square(number):
        calls.append(number)
        await asyncio.sleep(0.01)
        return number * number

    async def main():
        results = await asyncio.gather(*(cache.get_or_put("k", factory) for _ in range(50)))
        assert results == [[1]] * 50
        assert await asyncio.gather(*(square(7) for _ in range(20))) == [49] * 20
        waiting = [asyncio.create_task(cache.get_or_put("cancelled", factory)) for _ in range(3)]
        await asyncio.sleep(0.01)
        waiting[1].cancel()
        assert await waiting[0] == await waiting[2] == [1]

    asyncio.run(main())
    assert calls.count(1) == 2
    assert calls.count(7) == 1


def test_stats_add_up(cache):
    cache["a"] = 1
    cache.get("a")
    cache.get("b")
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.inserted, stats.entries) == (1, 1, 1, 1)
    assert 0 < stats.bytes <= stats.max_bytes == 16 << 20
    assert 0 < stats.index_bytes < stats.reserved_bytes
    assert stats.as_dict() == {name: getattr(stats, name) for name in stats.as_dict()}
    assert "hits=1" in repr(stats)
    for name in stats.as_dict():
        assert getattr(type(stats), name).__doc__, name


def test_each_call_counts_once(cache):
    def counted():
        stats = cache.stats()
        return stats.hits, stats.misses

    assert cache.get_or_put("k", lambda: 1) == 1
    assert counted() == (0, 1)
    assert cache.get_or_put("k", lambda: 2) == 1
    assert counted() == (1, 1)
    assert asyncio.run(cache.get_or_put("later", made_later)) == "made"
    assert counted() == (1, 2)
    assert "k" in cache
    assert cache.setdefault("s", 1) == 1
    assert counted() == (1, 3)
    double = cache.memoize(lambda number: 2 * number)
    assert double(2) == double(2) == 4
    assert counted() == (2, 4)
    slow = cache.memoize(made_later)
    assert asyncio.run(slow()) == asyncio.run(slow()) == "made"
    assert counted() == (3, 5)


async def made_later():
    return "made"


def test_a_misspelt_keyword_is_refused_before_anything_is_made(cache):
    calls = []
    for call in (cache.get_or_put, cache.setdefault):
        with pytest.raises(TypeError, match="tll"):
            call("k", lambda: calls.append(1), tll=5)
    for call in (cache.memoize, lambda **wrong: cache.put_many({}, **wrong)):
        with pytest.raises(TypeError, match="tll"):
            call(tll=5)
    assert calls == []


def test_a_closed_cache_refuses(cache):
    table = cache.table("t")
    cache.close()
    cache.close()
    for call in (lambda: cache["a"], lambda: cache.put("a", 1), lambda: len(table), cache.stats):
        with pytest.raises(gabion.ClosedError):
            call()
    assert "closed" in repr(cache)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="max_bytes"):
        Cache()
    for settings in ((), ("1 MiB",), ("much",)):
        with pytest.raises(TypeError, match=r"cache\.table"):
            gabion.cache.Table(*settings)
    with pytest.raises(ValueError, match="policy"):
        Cache("1 MiB", policy="magic")
    with pytest.raises(gabion.CodecError):
        Cache("1 MiB")["k"] = threading.Lock()


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"ttl": "soon"}, ValueError, "ttl='soon': not a span of time; pass seconds"),
        ({"idle": -1}, ValueError, "idle=-1: not a span of time; pass seconds"),
        ({"ttl": float("nan")}, ValueError, "ttl=nan: not a span of time; pass"),
        ({"ttl": "s" * 1000}, ValueError, r"^ttl='s{56}\.\.\.: not a span"),
        ({"expires_at": "noon"}, TypeError, "expires_at must be a datetime or seconds since 1970, not 'noon'"),
        ({"expires_at": float("nan")}, ValueError, "expires_at=nan: not a moment; pass a datetime"),
        ({"priority": 128}, ValueError, "priority=128: pass a whole number from -128 to 127"),
        ({"priority": "high"}, TypeError, "priority='high': pass a whole number"),
        ({"tll": 5}, TypeError, "unexpected keyword argument 'tll'; it takes ttl, idle, expires_at and priority"),
    ],
)
def test_what_a_put_refuses_it_names(cache, wrong, error, text):
    for call in (cache.put, cache.add):
        with pytest.raises(error, match=text):
            call("k", 1, **wrong)
    assert "k" not in cache


def test_a_share_of_hits(cache):
    assert cache.stats().hit_rate == 0.0
    cache["a"] = 1
    assert [cache.get(key) for key in ("a", "a", "a", "b")] == [1, 1, 1, None]
    assert cache.stats().hit_rate == 0.75
    assert cache.stats().as_dict()["hit_rate"] == 0.75
    assert repr(cache.stats()).endswith(", hit_rate=0.75)")


def test_mistakes_are_told_where_they_are_made(cache):
    with pytest.raises(TypeError, match=r"get_or_put\(\) takes a function that makes the value, not int: pass lambda"):
        cache.get_or_put("k", 5)
    for wrong in ({"ttl": "soon"}, {"idle": -1}, {"expires_at": "tomorrow"}, {"priority": 1000}):
        with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
            cache.memoize(**wrong)
    with pytest.raises(TypeError, match="name must be a str, not int"):
        Cache("1 MiB", name=5)
    with pytest.raises(TypeError, match="a table's name is a str, not int"):
        cache.table(5)

    class Shop:
        @cache.memoize
        def price(self, number):
            return number

    with pytest.raises(TypeError, match=r"an argument of type .*Shop: pass key=, .* key=lambda self, number"):
        Shop().price(5)


def test_a_table_s_limit_is_at_most_the_cache_s():
    with Cache("1 MiB") as cache:
        table = cache.table("t", max_bytes="1 GiB")
        assert table.max_bytes == table.stats().max_bytes == cache.max_bytes == 1 << 20
        assert cache.table("part", max_bytes="64 KiB").stats().max_bytes == 64 << 10
        assert repr(table).endswith(" of 1048576 bytes>")


def test_what_is_shown_counts_the_same_entries_and_bytes():
    with Cache("1 MiB") as cache:
        table = cache.table("t", max_bytes="64 KiB")
        table.update(one=1, two=2)
        assert repr(cache) == f"<gabion.Cache: 2 entries, {cache.stats().bytes} of 1048576 bytes>"
        assert repr(table) == f"<gabion.Table 't': 2 entries, {table.stats().bytes} of 65536 bytes>"
        del table["one"]
        assert repr(cache).startswith("<gabion.Cache: 1 entry, ")


def test_names_of_memoized_functions_tables_are_theirs(cache: Cache) -> None:
    with pytest.raises(ValueError, match="names begin with 'memoize:' are those of memoized functions"):
        cache.table("memoize:mine")
    kept = cache.memoize(lambda x: x)
    assert kept(1) == 1
    assert [name.startswith("memoize:") for name in cache.tables()] == [True]
