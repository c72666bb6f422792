"""Changes of a value in one step: change() and incr()."""

import itertools
import threading
import time
from decimal import Decimal
from typing import Any

import pytest
from many_threads import run

import gabion


@pytest.fixture
def cache() -> gabion.Cache:
    return gabion.Cache("1 MiB")


def test_no_step_of_many_threads_is_lost(cache: gabion.Cache) -> None:
    began = threading.Barrier(4)

    def count() -> None:
        began.wait()
        for _ in range(300):
            cache.incr("n")
            cache.change("list", lambda seen: [*seen, len(seen)], [])

    run(*[count] * 4)
    assert cache["n"] == 1200
    assert cache["list"] == list(range(1200))
    cache.validate()


def test_where_there_is_no_value(cache: gabion.Cache) -> None:
    with pytest.raises(KeyError, match="'n'"):
        cache.change("n", lambda value: value)
    assert cache.change("n", lambda value: (value, 1), None) == (None, 1)
    assert cache.change("n", lambda value: (value, 2), default=0) == ((None, 1), 2)
    assert (cache.incr("i"), cache.incr("i", 5), cache.incr("i", -7), cache["i"]) == (1, 6, -1, -1)
    assert (cache.incr("f", 0.5, 1.0), cache.incr("d", Decimal("0.1"), Decimal(1))) == (1.5, Decimal("1.1"))
    assert cache.incr("large", 1, 1 << 80) == (1 << 80) + 1
    table = cache.table("t")
    assert (table.incr("i"), cache["i"]) == (1, -1)


def test_times_and_priority_stay(cache: gabion.Cache) -> None:
    changed = None
    while changed != 8:  # a busy machine may let it end before the change
        cache.put("n", 7, ttl=0.2, priority=3)
        changed = cache.incr("n", ttl=3600, priority=-3)
    time.sleep(0.3)
    assert "n" not in cache
    # Those of the call are for what it puts where there was none.
    assert cache.incr("n", ttl=0) == 1
    assert cache.incr("n", ttl=0) == 1
    assert cache.incr("i", idle=0.05) == 1
    time.sleep(0.1)
    assert cache.incr("i") == 1
    with pytest.raises(ValueError, match="ttl"):
        cache.incr("new", ttl=-1)
    with pytest.raises(TypeError, match="priority"):
        cache.change("new", lambda value: value, 0, priority="high")  # type: ignore[arg-type]
    assert "new" not in cache


class Unstorable:
    def __reduce__(self) -> Any:
        raise ZeroDivisionError


def test_what_fails_changes_nothing(cache: gabion.Cache) -> None:
    cache["n"] = "text"
    with pytest.raises(TypeError, match=r"concatenate|unsupported operand"):
        cache.incr("n")
    for function in (lambda value: 1 / 0, lambda value: Unstorable()):
        with pytest.raises((ZeroDivisionError, gabion.CodecError)):
            cache.change("n", function)
        with pytest.raises((ZeroDivisionError, gabion.CodecError)):
            cache.change("new", function, 0)
    with pytest.raises(TypeError, match=r"change\(\) takes a function of the value that is there, not NoneType"):
        cache.change("n", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float"):
        cache.incr(1j)
    assert (cache["n"], len(cache)) == ("text", 1)


def test_a_function_that_returns_nothing_is_refused(cache: gabion.Cache) -> None:
    """It changed what it was given in place, and the value would be None."""
    text = r"class list returned None, so nothing was put: it must return the changed .*; put\(key, None\) stores None$"
    cache["seen"] = ["Ada"]
    for key in ("seen", "new"):
        with pytest.raises(TypeError, match=text):
            cache.change(key, lambda seen: seen.append("Grace"), [])
    assert dict(cache.items()) == {"seen": ["Ada"]}
    cache["none"] = None
    for key in ("none", "other"):
        assert cache.change(key, lambda nothing: nothing, None) is None
        assert cache[key] is None


def test_what_finds_no_room_is_returned_and_not_kept(cache: gabion.Cache) -> None:
    assert cache.change("k", lambda value: bytes(2 << 20), None) == bytes(2 << 20)
    assert "k" not in cache
    cache["k"] = b"small"
    # Once, and not again from the default, although the value that was there has gone.
    assert cache.change("k", lambda value: value * (1 << 20), b"?") == b"small" * (1 << 20)
    assert ("k" in cache, cache.stats().rejected) == (False, 2)
    cache.validate()


def test_a_function_that_goes_at_the_key_itself(cache: gabion.Cache) -> None:
    cache["n"] = 0
    calls = []

    def once(value: int) -> int:
        calls.append(value)
        if len(calls) == 1:
            cache["n"] = 10
        return value + 1

    assert (cache.change("n", once), calls) == (11, [0, 10])
    with pytest.raises(RuntimeError, match="must not put anything under the key itself"):
        cache.change("n", lambda value: cache.incr("n"))
    assert cache.change("n", lambda value: (cache.pop("n", None), value)[1], 0) == 0

    def emptied(value: int) -> int:
        cache.clear()
        return value

    assert cache.change("n", emptied, 3) == 3

    def closed(value: int) -> int:
        cache.close()
        return value

    with pytest.raises(gabion.ClosedError):
        cache.change("n", closed)
    with pytest.raises(gabion.ClosedError):
        cache.incr("n")


def test_what_is_returned_was_stored_though_another_value_came_and_went() -> None:
    """A value that was there for a moment passed for one without room, and the sum was returned and kept nowhere."""

    class Meddled(gabion.Cache):
        def add(self, key: Any, *arguments: Any, **keywords: Any) -> bool:
            self.put(key, 100)
            try:
                return super().add(key, *arguments, **keywords)
            finally:
                self.discard(key)

    with Meddled("1 MiB") as cache:
        assert (cache.incr("n"), cache.get("n")) == (1, 1)
        assert (cache.change("m", lambda value: value + 1, 5), cache.get("m")) == (6, 6)


def test_an_addition_says_why_it_was_none(cache: gabion.Cache) -> None:
    assert (cache._add("k", 1, ttl=60), cache._add("k", 2), cache["k"]) == (True, None, 1)
    assert cache._add("large", bytes(2 << 20)) is False
    assert "large" not in cache


def test_many_threads_count_what_others_discard(cache: gabion.Cache) -> None:
    """Each sum that was returned stood under the key: those that were returned as 1 began anew after a discard."""
    discarded: list[int] = []
    began: list[int] = []

    def count() -> None:
        began.extend(1 for _ in range(500) if cache.incr("n") == 1)

    def discard() -> None:
        discarded.extend(1 for _ in range(500) if cache.discard("n"))

    run(count, count, count, discard)
    assert len(began) - len(discarded) in (0, 1)


def test_a_change_counts_as_a_put_and_ends_the_lease_of_a_factory(cache: gabion.Cache) -> None:
    cache["n"] = 1
    cache.incr("n")
    figures = cache.stats()
    assert (figures.inserted, figures.replaced, figures.hits) == (1, 1, 0)

    def factory() -> int:
        cache.incr("m", 5)
        return 1

    assert cache.get_or_put("m", factory) == 1
    assert cache["m"] == 5


def test_update_takes_what_that_of_a_dict_takes(cache: gabion.Cache) -> None:
    assert cache.update({"a": 1, "b": 2}, b=3, c=4) is None  # type: ignore[func-returns-value]
    cache.update([("d", 5), (6, 7)])
    cache.update(self=8)
    cache.update()
    assert dict(cache.items()) == {"a": 1, "b": 3, "c": 4, "d": 5, 6: 7, "self": 8}
    with pytest.raises(TypeError):
        cache.update(5)  # type: ignore[arg-type]


def test_settings_can_be_read() -> None:
    cache = gabion.Cache("1 MiB", ttl="5 min")
    assert (cache.max_bytes, cache.ttl, cache.idle) == (1 << 20, 300, None)
    table = cache.table("t", max_bytes="16 KiB", ttl=None, idle=1.5)
    assert (table.max_bytes, table.ttl, table.idle) == (16 << 10, None, 1.5)
    assert cache.table("all").max_bytes == 1 << 20
    with pytest.raises(AttributeError):
        table.max_bytes = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        cache.ttl = 5  # type: ignore[misc]


def test_the_limit_can_be_set() -> None:
    cache = gabion.Cache("32 MiB")
    gone = []
    for n in range(40_000):
        cache.put(n, "x" * 200, priority=n % 2)
    table = cache.table("t")
    cache.on_evict(lambda key, value: gone.append(key))
    cache.max_bytes = "9 MiB"
    stats = cache.stats()
    assert cache.max_bytes == table.max_bytes == stats.max_bytes == 9 << 20
    assert 8 << 20 < stats.bytes <= 9 << 20
    assert stats.reserved_bytes <= 9 << 20
    # The lower priority goes first.
    assert len(gone) == len({*gone}) == stats.evicted == 40_000 - len(cache)
    assert any(key % 2 for key in gone) == (stats.evicted > 20_000)
    cache.on_evict(None)
    cache.validate()
    cache.max_bytes = 32 << 20
    for n in range(40_000):
        assert cache.put(n, "x" * 200)
    assert 9 << 20 < cache.stats().bytes <= 32 << 20
    cache.max_bytes = 0
    assert (len(cache), cache.put("k", 1)) == (0, gabion.PutResult.REJECTED)
    with pytest.raises(ValueError, match=r"max_bytes=33554433: the cache was made with 33554432 and takes no more"):
        cache.max_bytes = (32 << 20) + 1
    with pytest.raises(ValueError, match=r"max_bytes=128 counts bytes, not entries"):
        cache.max_bytes = 128
    with pytest.raises(TypeError):
        cache.max_bytes = None  # type: ignore[assignment]
    assert cache.max_bytes == 0


def test_the_limit_is_set_beside_puts() -> None:
    cache, done = gabion.Cache("16 MiB"), threading.Event()

    def put(start: int) -> None:
        for n in itertools.count(start, 2):
            cache.put(n % 50_000, bytes(n % 900))
            if done.is_set():
                return

    threads = [threading.Thread(target=put, args=(start,)) for start in range(2)]
    for thread in threads:
        thread.start()
    try:
        for mib in (16, 8, 12, 2, 16, 1):
            cache.max_bytes = f"{mib} MiB"
            for _ in range(20):
                stats = cache.stats()
                assert stats.bytes <= mib << 20
                assert stats.reserved_bytes <= max(mib, 8) << 20
                time.sleep(0.001)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    cache.validate()


def test_large_values_change_near_the_limit() -> None:
    """There is no room for the old value and the new one: the old one goes first, and counts no longer."""
    cache = gabion.Cache("10 MiB")
    for before, after in itertools.permutations((0.5, 1.5, 4, 5, 6, 7, 9), 2):
        old, new = (bytes(int(size * 2**20)) for size in (before, after))
        assert cache.put("key", old)
        assert cache.change("key", lambda found, old=old, new=new: new if found == old else b"another") == new
        assert cache.get("key") == new, (before, after)
    assert cache.stats().rejected == 0
    # What has no room at all leaves nothing, as with put().
    assert len(cache.change("key", lambda old: old * 2)) > 10 * 2**20
    assert "key" not in cache
    assert cache.stats().rejected == 1
    cache.validate()


def test_a_large_value_that_comes_between_is_not_lost() -> None:
    with gabion.Cache("10 MiB") as cache:
        cache.put("key", bytes(3 << 20))
        seen: list[int] = []

        def longer(old: bytes) -> bytes:
            if not seen:
                # The same bytes, but another value.
                cache.put("key", old)
            seen.append(len(old))
            return old + bytes(1 << 20)

        assert len(cache.change("key", longer)) == 4 << 20
        assert seen == [3 << 20] * 2
        assert len(cache["key"]) == 4 << 20
