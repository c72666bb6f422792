"""gabion.Cache against keys, values and surroundings that mean no good."""

import functools
import gc
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import hostile_keys
import pytest
from child_processes import in_child
from many_threads import LOCKED, run, until
from model import LONG, Unbuildable
from patience import HANGS, eventually
from script_of_bytes import play_random

import gabion
from gabion import Cache, PutResult


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache("16 MiB") as cache:
        yield cache
        if not cache.closed:
            cache.validate()


@pytest.mark.parametrize("seed", range(10))
def test_keys_of_any_bytes_are_those_of_a_dict(seed: int) -> None:
    play_random(hostile_keys.play, seed)


def test_keys_whose_hashes_are_equal_in_python(cache: Cache) -> None:
    """All multiples of the modulus of Python's integer hash have the hash 0; a dict of them takes quadratic time."""
    modulus = sys.hash_info.modulus
    keys = [number * modulus for number in range(20_000)]
    assert len(set(map(hash, keys))) == 1
    began = time.process_time()
    cache.put_many((key, None) for key in keys)
    assert all(key in cache for key in keys)
    assert time.process_time() - began < 5


def test_keys_that_differ_in_one_bit_or_only_in_length(cache: Cache) -> None:
    keys: set[Any] = {bytes(length) for length in range(300)} | {"\0" * length for length in range(300)}
    keys |= {1 << bit for bit in range(300)} | {-(1 << bit) for bit in range(300)}
    keys |= {(0,) * length for length in range(100)} | {"é" * length for length in range(1, 200)}
    for number, key in enumerate(keys):
        assert cache.put(key, number) is PutResult.INSERTED
    assert [cache[key] for key in keys] == list(range(len(keys)))
    assert set(cache) == keys


@pytest.mark.parametrize("length", [0, 1, 62, 93, 94, 126, 127, 128, 129, 4095, 65_535, 1 << 20])
@pytest.mark.parametrize("letter", ["a", "é", "\u20ac", "\U0001f40d"])
def test_keys_of_every_length(cache: Cache, length: int, letter: str) -> None:
    key = letter * length
    cache[key] = length
    assert cache[key] == length
    assert (key + letter) not in cache
    assert list(cache) == [key]
    del cache[key]
    assert key not in cache


def test_integers_around_every_width(cache: Cache) -> None:
    keys = {sign * (1 << bits) + off for bits in range(130) for off in (-1, 0, 1) for sign in (1, -1)}
    for key in keys:
        cache[key] = key
    assert all(cache[key] == key for key in keys)
    assert len(cache) == len(keys)


def test_a_key_that_compares_in_its_own_way_is_told_so(cache: Cache) -> None:
    class Folded(str):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, str) and other.lower() == self.lower()

        def __hash__(self) -> int:
            return hash(self.lower())

    with pytest.raises(TypeError, match="Folded, which compares in a way of its own"):
        cache[Folded("a")] = 1


def test_a_key_larger_than_the_limit_is_refused_and_not_found(cache: Cache) -> None:
    key = "k" * (17 << 20)
    assert cache.put(key, None) is PutResult.REJECTED
    assert key not in cache
    assert cache.get(key, 5) == 5


def test_values_larger_than_the_limit_take_nothing_with_them(cache: Cache) -> None:
    for number in range(1000):
        cache[number] = "kept"
    before = len(cache)
    assert cache.put("large", bytes(16 << 20)) is PutResult.REJECTED
    assert cache.add("large", bytes(16 << 20)) is False
    assert len(cache) == before
    assert cache.get_or_put("large", lambda: bytes(16 << 20)) == bytes(16 << 20)


def test_a_value_that_cannot_be_stored_leaves_the_earlier_one(cache: Cache) -> None:
    cache["k"] = "earlier"
    for call in (cache.put, cache.__setitem__):
        with pytest.raises(gabion.CodecError):
            call("k", threading.Lock())
    assert cache["k"] == "earlier"


class Reentrant:
    """Uses the cache while it is stored and while it is built."""

    cache: Cache

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def __reduce__(self) -> Any:
        if self.depth:
            type(self).cache.put(f"inner {self.depth}", Reentrant(self.depth - 1))
            type(self).cache.get(f"inner {self.depth}")
        return _built, (self.depth,)


def _built(depth: int) -> Reentrant:
    Reentrant.cache.put("built", depth)
    Reentrant.cache.get("built")
    return Reentrant(depth)


def test_values_whose_code_uses_the_cache(cache: Cache) -> None:
    Reentrant.cache = cache
    try:
        cache["outer"] = Reentrant(5)
        assert cache["outer"].depth == 5
        assert cache["inner 3"].depth == 2
        assert cache.pop("outer").depth == 5
    finally:
        del Reentrant.cache


class Closing:
    cache: Cache

    def __reduce__(self) -> Any:
        type(self).cache.close()
        return int, ()


def test_a_value_that_closes_the_cache_while_it_is_stored() -> None:
    for store in (Cache.__setitem__, Cache.put, Cache.add):
        Closing.cache = cache = Cache("1 MiB")
        with pytest.raises(gabion.ClosedError):
            store(cache, "k", Closing())
    del Closing.cache


def test_pop_does_not_lose_what_cannot_be_built(cache: Cache) -> None:
    cache["k"] = Unbuildable()
    Unbuildable.broken = True
    try:
        with pytest.raises(gabion.CodecError):
            cache.pop("k")
        with pytest.raises(gabion.CodecError):
            cache.get("k")
    finally:
        Unbuildable.broken = False
    assert "k" in cache
    assert type(cache.pop("k")) is Unbuildable
    assert "k" not in cache


class Meddling:
    """Puts another value in its place when it is built, one that cannot be."""

    cache: Cache

    def __reduce__(self) -> Any:
        return _put_unbuildable, ()


def _put_unbuildable() -> str:
    Unbuildable.broken = False
    Meddling.cache.put("k", Unbuildable(), ttl=60, priority=3)
    Unbuildable.broken = True
    return "built"


def test_what_comes_between_and_cannot_be_built_stays_as_it_is(cache: Cache) -> None:
    """It was removed and put again, without its times and its priority."""
    Meddling.cache = cache
    cache["k"] = Meddling()
    try:
        with pytest.raises(gabion.CodecError):
            cache.pop("k")
        figures = cache.stats()
        assert (figures.inserted, figures.replaced, figures.removed) == (1, 1, 0)
        assert "k" in cache
    finally:
        Unbuildable.broken = False
        del Meddling.cache
    assert type(cache.pop("k")) is Unbuildable


def test_one_of_many_pops_gets_the_value(cache: Cache) -> None:
    got: list[int] = []
    numbers = range(2000)

    def pop() -> None:
        got.extend(number for number in numbers if cache.pop(number, None) is not None)

    cache.put_many((number, "value") for number in numbers)
    run(*[pop] * 4)
    assert sorted(got) == list(numbers)


def test_callbacks_that_use_the_cache_and_raise(script: Any) -> None:
    out = script(
        """
        import gabion, sys
        raised = []
        sys.unraisablehook = lambda info: raised.append(info.exc_value)
        cache = gabion.Cache(100_000)
        seen = []

        @cache.on_evict
        def gone(key, value, reason):
            seen.append(key)
            if len(seen) < 50:
                cache.put(("again", key), value)
                cache.get(key)
            raise ValueError(key)

        for number in range(20_000):
            cache[number] = "x" * 40
        cache.validate()
        assert len(raised) == len(seen) > 1000, (len(raised), len(seen))
        print("done")
        """
    )
    assert out == "done\n"


@pytest.mark.parametrize("clock", ["time", "monotonic", "perf_counter"])
def test_what_python_says_of_the_time_changes_nothing(cache: Cache, clock: str, monkeypatch: Any) -> None:
    """Spans are counted by the system's steady clock; the core's tests set that clock itself forwards and backwards."""
    cache.put("long", 1, ttl=3600)
    cache.put("short", 1, ttl=0.05)
    monkeypatch.setattr(time, clock, lambda: 4e9)
    assert "long" in cache
    monkeypatch.undo()
    time.sleep(0.1)
    assert "short" not in cache
    assert "long" in cache


def test_times_at_their_ends(cache: Cache) -> None:
    assert cache.put("zero", 1, ttl=0) is PutResult.INSERTED
    assert "zero" not in cache
    for endless in (float("inf"), 1e30, 10**40, 1e17):
        cache.put("k", 1, ttl=endless, idle=endless)
        assert "k" in cache
        assert cache.touch("k", ttl=endless)
    for expires_at in (1e30, 4e18, float("inf")):
        cache.put("k", 1, expires_at=expires_at)
        assert "k" in cache
    for expires_at in (0, -1e30, float("-inf")):
        cache.put("k", 1, expires_at=expires_at)
        assert "k" not in cache
    for wrong in (-1, -(10**40), float("nan"), float("-inf")):
        with pytest.raises(ValueError, match="ttl="):
            cache.put("k", 1, ttl=wrong)
    with pytest.raises(ValueError, match="expires_at=nan"):
        cache.put("k", 1, expires_at=float("nan"))
    for priority in (128, -129, 10**30):
        with pytest.raises(ValueError, match="-128 to 127"):
            cache.put("k", 1, priority=priority)
    for wrong, error in (
        ({"ttl": "5 m"}, ValueError),
        ({"expires_at": "5"}, TypeError),
        ({"expires_at": True}, TypeError),
        ({"priority": 1.5}, TypeError),
        ({"idle": []}, TypeError),
    ):
        with pytest.raises(error):
            cache.put("k", 1, **wrong)


def test_wrong_calls_say_what_to_write(cache: Cache) -> None:
    for call, text in (
        (lambda: cache.get(), r"get\(key, default=None\)"),
        (lambda: cache.get(1, 2, 3), r"get\(key, default=None\)"),
        (lambda: cache.get(1, 2, default=3), "default once"),
        (lambda: cache.get(1, fallback=3), "fallback.*takes default"),
        (lambda: cache.put(1), r"put\(key, value"),
        (lambda: cache.put(1, 2, 3), r"put\(key, value"),
        (lambda: cache.put(1, 2, tll=3), "tll.*ttl, idle"),
        (lambda: cache.add(1, 2, reserve=3), "reserve.*ttl, idle"),
        (lambda: cache.discard(), r"discard\(key\)"),
        (lambda: gabion.Table("1 MiB"), r"cache\.table\(name\)"),
    ):
        with pytest.raises(TypeError, match=text):
            call()


class Owner:
    def __init__(self) -> None:
        self.cache = Cache("1 MiB")
        self.table = self.cache.table("t")
        self.cache.on_evict(self.gone)

        @self.cache.memoize
        def double(number: int) -> int:
            return 2 * number + 0 * id(self)

        self.double = double

    def gone(self, key: Any, value: Any) -> None:
        pass


def test_a_cache_that_there_is_no_memory_for(script: Any) -> None:
    """Address space is short: a large cache is refused, whichever of its tables comes first, and others live on."""
    pytest.importorskip("resource")
    said = script(
        """
        import resource, gabion
        first = gabion.Cache("8 GiB")
        first["key"] = "value"
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        refused = 0
        for mib in range(1, 60):
            resource.setrlimit(resource.RLIMIT_AS, (used + (mib << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
            caches = []
            try:
                for _ in range(20):
                    caches.append(gabion.Cache("8 GiB"))
            except MemoryError as error:
                assert type(error) is MemoryError
                # Without a text, the interpreter had none for the object itself.
                assert not error.args or str(error).startswith("no new cache: the operating system "), error
            else:
                continue
            refused += 1
        assert refused > 9, refused
        assert first["key"] == "value"
        first.validate()
        print("done")
        """
    )
    assert said == "done\n"


@pytest.mark.parametrize("policy", ["default", "lru", "fifo", "s3fifo"])
def test_a_full_cache_makes_room_where_the_system_has_none(script: Any, policy: str) -> None:
    """Values of a new size need pages of their own: others leave them, as they do where the cache's limit is met."""
    pytest.importorskip("resource")
    said = script(
        f"""
        import resource, gabion
        cache = gabion.Cache("2 GiB", policy={policy!r})
        cache.put("first", 0)
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        allowed = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), allowed[1]))
        for number in range(150_000):
            cache.put(number, b"x" * 1000)
        before = cache.stats()
        assert before.evicted > 10_000 and not before.rejected, before
        for _ in range(3):
            for size in (1, 10, 100, 300, 700, 900):
                assert cache.put(("key", size), b"y" * size), size
                assert cache[("key", size)] == b"y" * size
        after = cache.stats()
        assert after.entries > before.entries * 0.8, (before, after)
        # What lacks a block of its own is refused, and costs nobody his place.
        assert not cache.put("large", bytes(64 << 10))
        assert cache.stats().evicted == after.evicted
        resource.setrlimit(resource.RLIMIT_AS, allowed)
        cache.validate()
        print("done")
        """
    )
    assert said == "done\n"


def test_a_cache_in_a_cycle_is_collected() -> None:
    owner = Owner()
    owner.cache["k"], owner.table["k"] = owner.double(2), Reentrant
    died = weakref.ref(owner), weakref.ref(owner.cache), weakref.ref(owner.table)
    del owner
    gc.collect()
    assert [reference() for reference in died] == [None] * 3


@pytest.mark.skipif(
    not LOCKED and sys.version_info < (3, 14), reason="classes are immortal there once a thread was started"
)
def test_a_closed_cache_lets_go_of_classes() -> None:
    def made(number: int) -> Any:
        name = f"Made{number}"
        globals()[name] = made = type(name, (), {"__module__": __name__})
        return made

    cache, dies = Cache("4 MiB"), []
    for number in range(20):
        class_ = made(number)
        cache[number] = class_()
        assert type(cache[number]) is class_
        dies.append(weakref.ref(class_))
        del globals()[class_.__name__], class_
    cache.close()
    if not LOCKED:
        # There the classes go with the cache itself.
        del cache
    gc.collect()
    assert [reference() for reference in dies] == [None] * 20


def test_a_table_keeps_its_cache() -> None:
    cache = Cache("1 MiB")
    table = cache.table("t")
    alive = weakref.ref(cache)
    del cache
    gc.collect()
    table["k"] = "v"
    assert (table["k"], alive() is not None) == ("v", True)
    del table
    gc.collect()
    assert alive() is None


def test_no_references_leak(cache: Cache) -> None:
    value, key, default = ["value"], "a key of its own", object()
    before = [sys.getrefcount(thing) for thing in (value, key, default)]
    for _ in range(100):
        cache.put(key, value, ttl=5)
        cache.put(key, value)
        cache[key] = value
        cache.add(key, value)
        cache.get(key)
        cache.get("absent", default)
        cache.get_or_put("x", lambda: value)
        assert key in cache
        cache.discard(key)
        with pytest.raises(KeyError):
            cache[key]
        with pytest.raises(TypeError):
            cache.get(key, default, 3)
    gc.collect()
    assert [sys.getrefcount(thing) for thing in (value, key, default)] == before


def test_values_are_never_stale_nor_mixed_beside_writers(cache: Cache) -> None:
    """Each value names its key and version; a reader sees versions of the key it asked for, never an earlier one."""
    keys = [f"key {number}" for number in range(50)]
    going = until(20 if LONG else 1)

    def write(place: int) -> None:
        chance, version = random.Random(place), 0
        own = keys[place::8]
        while going():
            key = chance.choice(own)
            version += 1
            filler = "x" * chance.choice((0, 5, 100, 5000))
            if chance.random() < 0.1:
                cache.discard(key)
            else:
                cache.put(key, (key, version, filler), ttl=chance.choice((None, 0.001, 50)))

    def read() -> None:
        latest: dict[str, int] = {}
        while going():
            for key in keys:
                found = cache.get(key)
                if found is not None:
                    assert found[0] == key
                    assert found[1] >= latest.get(key, 0)
                    assert set(found[2]) <= {"x"}
                    latest[key] = found[1]

    run(*[functools.partial(write, place) for place in range(8)], *[read] * 8)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
class TestForks:
    def test_the_child_has_a_copy_of_its_own(self, cache: Cache) -> None:
        cache.put_many({number: str(number) for number in range(1000)})

        def child() -> None:
            assert cache[7] == "7"
            cache.clear()
            cache["child"] = 1
            cache.validate()
            assert list(cache) == ["child"]

        in_child(child)
        assert len(cache) == 1000
        assert "child" not in cache

    def test_a_thread_that_is_making_a_table_holds_up_no_child(self, cache: Cache) -> None:
        begun, end = threading.Event(), threading.Event()

        def hold() -> None:
            with cache._gabion_lock:
                begun.set()
                end.wait(HANGS)

        thread = threading.Thread(target=hold)
        thread.start()
        begun.wait(HANGS)

        def child() -> None:
            cache.table("child")["key"] = 1
            assert cache.memoize()(abs)(-1) == 1

        try:
            in_child(child)
        finally:
            end.set()
            thread.join(HANGS)

    def test_what_expires_in_a_child_comes_back(self) -> None:
        cache = Cache("1 MiB", ttl=0.05)
        cache["parent"] = 1

        def child() -> None:
            cache["child"] = 1
            assert eventually(lambda: len(cache) == 0)

        in_child(child)

    def test_forks_beside_threads_that_use_the_cache(self, cache: Cache) -> None:
        def use(cache: Cache, stop: threading.Event) -> None:
            number = 0
            while not stop.is_set():
                number += 1
                cache.put(number % 5000, "x" * (number % 500), ttl=0.05)
                cache.get(number * 7 % 5000)

        # By arguments: a variable that the child shares with a thread may be locked for ever there, where the
        # interpreter has no lock of its own.
        stop = threading.Event()
        threads = [threading.Thread(target=use, args=(cache, stop)) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                in_child(lambda: (cache.put("child", 1), cache.validate(), cache.clear()))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
