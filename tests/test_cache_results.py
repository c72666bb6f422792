"""What becomes of memoized results: dropped one by one, kept for times of their own, told of when they leave."""

import asyncio
import functools
import gc
import ipaddress
import re
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from many_threads import LOCKED
from patience import HANGS, eventually

import gabion
from gabion import Cache, ClosedError

cache = Cache("16 MiB")


@pytest.mark.parametrize("of_tasks", [False, True])
@pytest.mark.parametrize("by_key", [False, True])
def test_one_result_is_dropped_and_no_other(of_tasks: bool, by_key: bool) -> None:
    calls: list[Any] = []

    def plain(number: int, *, more: object = None) -> int:
        calls.append(number)
        return number

    async def awaited(number: int, *, more: object = None) -> int:
        return plain(number)

    key = (lambda number, more=None: (number, more)) if by_key else None
    kept: Any = cache.memoize(key=key)(awaited if of_tasks else plain)

    def call(*args: Any, **kwargs: Any) -> Any:
        made = kept(*args, **kwargs)
        return asyncio.run(made) if of_tasks else made

    assert kept.cache_discard(1) is False
    assert [call(1), call(2), call(3, more=1.5)] == [1, 2, 3]
    assert kept.cache_discard(1) is True
    assert kept.cache_discard(1) is False
    assert kept.cache_discard(3) is False
    assert kept.cache_discard(3, more=1.5) is True
    assert [call(1), call(2), call(3, more=1.5)] == [1, 2, 3]
    assert calls == [1, 2, 3, 1, 3]
    assert kept.cache_stats().removed == 2


@pytest.mark.parametrize("of_tasks", [False, True])
def test_results_that_are_too_large_are_told_of_once(of_tasks: bool, caplog: pytest.LogCaptureFixture) -> None:
    small, calls = Cache("1 MiB"), []

    def plain(size: int) -> bytes:
        calls.append(size)
        return bytes(size)

    async def awaited(size: int) -> bytes:
        return plain(size)

    kept, other = small.memoize(awaited if of_tasks else plain), small.memoize(plain)

    def call(size: int) -> int:
        made: Any = kept(size)
        return len(asyncio.run(made) if of_tasks else made)

    with caplog.at_level("WARNING", "gabion.cache"):
        assert [call(1000), call(1000)] == [1000, 1000]
        assert caplog.records == []
        assert [call(2_000_000), call(2_000_000), call(3_000_000)] == [2_000_000, 2_000_000, 3_000_000]
        assert len(caplog.records) == 1
        other(2_000_000)
    assert calls == [1000, 2_000_000, 2_000_000, 3_000_000, 2_000_000]
    first, second = [record.getMessage() for record in caplog.records]
    name = "awaited" if of_tasks else "plain"
    assert re.fullmatch(
        rf"a result of {__name__}\.test_results\w+\.<locals>\.{name}\(\) takes 2,000,00\d bytes, and there is no room "
        r"for it within the limit of 1,048,576: it is made anew at each call; .*once for each function.*",
        first,
    )
    assert ".plain() takes" in second


def test_made_values_that_are_too_large_are_told_of_once_for_each_table(caplog: pytest.LogCaptureFixture) -> None:
    small = Cache("1 MiB")
    with caplog.at_level("WARNING", "gabion.cache"):
        for _ in range(2):
            small.get_or_put(("report", 7), lambda: bytes(2_000_000))
            small.table("pages", max_bytes="64 KiB").get_or_put("/", lambda: bytes(100_000), ttl=60)
        # A cache that is turned off, a value for which there is no room just now, and one that is not to be kept.
        Cache(0).get_or_put("k", lambda: bytes(2_000_000))
        full = Cache("1 MiB")
        for key in range(120):
            full.put(key, bytes(10_000), priority=1)
        full.get_or_put("k", lambda: bytes(10_000))
        assert "k" not in full
        full.get_or_put("k", lambda: bytes(2_000_000), ttl=lambda made: 0)
    told = [record.getMessage().partition(" bytes")[0] for record in caplog.records]
    assert told == ["the value of ('report', 7) takes 2,000,005", "the value of '/' takes 100,005"]


def test_a_method_s_result_is_dropped_by_its_object_and_arguments() -> None:
    class Shop:
        def __init__(self, number: int) -> None:
            self.id = number

        @cache.memoize(key=lambda self, amount: (type(self), self.id, amount))
        def price(self, amount: int) -> int:
            return amount * self.id

        @classmethod
        @cache.memoize
        def made(cls, number: int) -> str:
            return f"{cls.__name__} {number}"

    class Stall(Shop):
        """Has the ids of shops."""

        def price(self, amount: int) -> int:
            return -Shop.price(self, amount)

    shops = [Shop(1), Shop(2), Stall(1)]
    assert [shop.price(5) for shop in shops] == [5, 10, -5]
    assert Shop.price.cache_stats().entries == 3
    assert Shop.price.cache_discard(shops[0], 5) is True
    assert shops[1].price.cache_discard(shops[1], 5) is True
    assert Shop.price.cache_discard(shops[0], 5) is False
    assert [Shop.made(1), Stall.made(1), Stall.made(1)] == ["Shop 1", "Stall 1", "Stall 1"]
    assert Shop.made.cache_stats().hits == 1
    assert Shop.made.cache_discard(Stall, 1) is True


def test_what_a_call_returns_that_began_before_is_not_kept() -> None:
    began, go, results = threading.Event(), threading.Event(), []

    @cache.memoize
    def slow(number: int) -> int:
        began.set()
        assert go.wait(HANGS)
        return len(results)

    thread = threading.Thread(target=lambda: results.append(slow(7)))
    thread.start()
    assert began.wait(HANGS)
    assert slow.cache_discard(7) is False
    go.set()
    thread.join(HANGS)
    assert results == [0]
    assert slow(7) == 1


def test_what_is_no_argument_is_dropped_nowhere() -> None:
    kept = cache.memoize(lambda value: 1)
    with pytest.raises(TypeError, match=r"no key for an argument of type list: .* key=lambda value: tuple\(value\)$"):
        kept.cache_discard([1])
    kept = cache.memoize(key=lambda value: value)(lambda value: 1)
    with pytest.raises(TypeError, match=r"no key for what its key= returned, of type list"):
        kept.cache_discard([1])


def test_a_table_that_was_dropped_and_a_cache_that_was_closed() -> None:
    own = Cache("1 MiB")
    kept = own.memoize(lambda number: number)
    first = kept.cache_table()
    assert (kept(1), kept.cache_table() is first, len(first)) == (1, True, 1)
    assert isinstance(first, gabion.Table)
    own.drop_table(first.name)
    assert kept.cache_discard(1) is False
    assert kept(1) == 1
    own.drop_table(first.name)
    newest = kept.cache_table()
    assert newest is not first
    assert newest.name == first.name
    assert (kept(1), len(newest), kept.cache_discard(1), len(newest)) == (1, 1, True, 0)
    own.close()
    for call in (lambda: kept.cache_discard(1), kept.cache_table):
        with pytest.raises(ClosedError, match="cache was closed"):
            call()


def test_classes_are_told_apart_by_what_they_are() -> None:
    def made() -> type:
        return type("Same", (), {})

    calls: list[int] = []
    named = cache.memoize(lambda class_: f"{class_.__name__} {len(calls)}")
    one, other = made(), made()
    assert named(one) == "Same 0"
    calls.append(1)
    assert (named(one), named(other)) == ("Same 0", "Same 1")
    assert [named(class_) for class_ in (int, bool, type, type(None))] == ["int 1", "bool 1", "type 1", "NoneType 1"]
    gone = weakref.ref(one)
    del one
    gc.collect()
    if LOCKED:
        assert gone() is None
    calls.append(1)
    # A class that takes the place of one that is gone, maybe at its very address, is another.
    for _ in range(50):
        assert named(made()) == "Same 2"


@pytest.mark.parametrize("of_tasks", [False, True])
def test_a_time_may_depend_on_the_result(of_tasks: bool) -> None:
    calls: list[Any] = []

    def plain(ttl: Any) -> Any:
        calls.append(ttl)
        return ttl

    async def awaited(ttl: Any) -> Any:
        return plain(ttl)

    table = cache.table("with a time of its own", ttl=1000)
    kept: Any = table.memoize(ttl=lambda made: made)(awaited if of_tasks else plain)

    def call(ttl: Any) -> Any:
        made = kept(ttl)
        return asyncio.run(made) if of_tasks else made

    times = {60: 60, "1 hour": 3600, timedelta(minutes=2): 120, 0.5: 0.5, None: 1000, float("inf"): float("inf")}
    for ttl, seconds in times.items():
        assert call(ttl) == call(ttl) == ttl
        left = kept.cache_table().expires_in(cache._call_key((ttl,), {}))
        assert left == seconds or seconds - 100 < left <= seconds
    before = kept.cache_stats()
    calls.clear()
    for nothing in (0, "0 s", timedelta(0), 0.0):
        assert call(nothing) == call(nothing) == nothing
    assert len(calls) == 8
    after = kept.cache_stats()
    assert (after.inserted, after.entries, after.rejected) == (before.inserted, before.entries, before.rejected)
    for wrong, error in ((-1, ValueError), (b"soon", TypeError), ("soon", ValueError)):
        with pytest.raises(error, match="what ttl returned"):
            call(wrong)


def test_get_or_put_takes_a_time_that_depends_on_the_value() -> None:
    own, calls = Cache("1 MiB"), []

    def ttl(value: int) -> int:
        calls.append(value)
        return value

    def factory(value: int) -> Callable[[], int]:
        return lambda: value

    async def later(value: int) -> int:
        return value

    assert own.get_or_put("a", factory(50), ttl=ttl) == own.get_or_put("a", factory(7), ttl=ttl) == 50
    assert 40 < own.expires_in("a") <= 50
    assert own.get_or_put("b", functools.partial(factory(70)), ttl=ttl) == 70
    assert 60 < own.expires_in("b") <= 70
    assert asyncio.run(own.get_or_put("c", functools.partial(later, 90), ttl=ttl)) == 90
    assert 80 < own.expires_in("c") <= 90
    assert own.get_or_put("d", factory(0), ttl=ttl) == 0
    assert "d" not in own
    assert own.stats().inserted == 3
    assert calls == [50, 70, 90, 0]
    with pytest.raises(ZeroDivisionError):
        own.get_or_put("e", factory(0), ttl=lambda value: 1 / value)
    assert own.get_or_put("e", factory(5), ttl=ttl) == 5
    for wrong in (own.put, own.add):
        with pytest.raises(TypeError, match="ttl must be seconds"):
            wrong("f", 1, ttl=ttl)


def test_who_waits_has_what_is_not_kept() -> None:
    own, began, go, results, calls = Cache("1 MiB"), threading.Event(), threading.Event(), [], []

    @own.memoize(ttl=lambda made: 0)
    def slow() -> list[int]:
        calls.append(1)
        began.set()
        assert go.wait(HANGS)
        return [1, 2]

    threads = [threading.Thread(target=lambda: results.append(slow())) for _ in range(4)]
    threads[0].start()
    assert began.wait(HANGS)
    for thread in threads[1:]:
        thread.start()
    assert eventually(lambda: any(flight.waiters for flight in list(own._gabion_flights.in_flight.values())))
    go.set()
    for thread in threads:
        thread.join(HANGS)
    assert results == [[1, 2]] * 4
    assert len(calls) < 4
    assert slow.cache_stats().entries == 0


def test_what_is_not_kept_need_not_be_storable_whoever_waits() -> None:
    own, began, go, results = Cache("1 MiB"), threading.Event(), threading.Event(), list[Any]()

    @own.memoize(ttl=lambda made: 0)
    def slow() -> Any:
        began.set()
        assert go.wait(HANGS)
        return threading.Lock()

    threads = [threading.Thread(target=lambda: results.append(slow())) for _ in range(3)]
    threads[0].start()
    assert began.wait(HANGS)
    for thread in threads[1:]:
        thread.start()
    assert eventually(lambda: any(flight.waiters for flight in list(own._gabion_flights.in_flight.values())))
    go.set()
    for thread in threads:
        thread.join(HANGS)
    assert len(set(map(id, results))) == 3, "everybody's own"


def test_a_function_may_be_given_with_keywords() -> None:
    kept = cache.memoize(lambda number: number, ttl=60, key=lambda number: number % 10)
    assert (kept(12), kept(22)) == (12, 12)


def test_types_are_told_apart_where_they_are_asked_for() -> None:
    shown = cache.memoize(typed=True)(lambda *args, **kwargs: repr((args, kwargs)))
    calls: list[Any] = [((1,), {}), ((1.0,), {}), ((True,), {}), ((), {"a": 1}), ((), {"a": True}), ((1, True), {})]
    calls += [((1,), {"a": 1}), ((1, 1), {}), ((int,), {}), ((1, int), {}), ((), {"b": 1, "a": 1.0})]
    for _ in range(2):
        for args, kwargs in calls:
            assert shown(*args, **kwargs) == repr((args, kwargs))
    assert (shown.cache_stats().hits, shown.cache_stats().entries) == (len(calls), len(calls))
    assert (shown.cache_discard(True), shown.cache_discard(True), shown.cache_discard(1.0)) == (True, False, True)
    with pytest.raises(TypeError, match=r"no key for an argument of type list: pass key="):
        shown([1])
    with pytest.raises(TypeError, match="typed=True or key=, not both"):
        cache.memoize(typed=True, key=len)


class Numbers:
    def __call__(self) -> Iterator[int]:
        yield 1

    def each(self) -> Iterator[int]:
        yield 1


async def later() -> AsyncIterator[int]:
    yield 1


GENERATORS: list[Any] = [Numbers(), Numbers.each, Numbers().each, functools.partial(Numbers.each, Numbers()), later]


@pytest.mark.parametrize("function", GENERATORS)
def test_generators_are_refused_where_they_are_defined(function: Any) -> None:
    for memoize in (cache.memoize, cache.memoize(ttl=60)):
        with pytest.raises(TypeError, match=r"returns a generator.* returns list\(\.\.\.\) of it"):
            memoize(function)


def test_a_static_method_is_told_what_to_put_where() -> None:
    """It was told of it when it was called."""
    for memoize in (cache.memoize, cache.memoize(ttl=60)):
        with pytest.raises(TypeError, match="not of a staticmethod: put @staticmethod outermost"):
            memoize(staticmethod(len))
    with pytest.raises(TypeError, match="not a coroutine function"):
        cache.memoize(ttl=later_seconds)


async def later_seconds(made: object) -> int:
    return 1


ADVISED: dict[str, tuple[Any, str]] = {
    "a range": (range(1, 9, 2), "(x.start, x.stop, x.step)"),
    "a builtin": (len, "(x.__module__, x.__qualname__)"),
    "an address": (ipaddress.ip_address("192.0.2.7"), "repr(x)"),
    "a network": (ipaddress.ip_network("192.0.2.0/24"), "repr(x)"),
    "a pattern": (re.compile("a" * 500), "(x.pattern, x.flags)"),
    "a zone": (ZoneInfo("Europe/Berlin"), "x.key"),
    "a slice": (slice(1, None), "(x.start, x.stop, x.step)"),
    "a complex": (1 + 2j, "(x.real, x.imag)"),
    "a list of one's own": (type("Row", (list,), {})([1]), "tuple(x)"),
}


@pytest.mark.parametrize("case", ADVISED.values(), ids=ADVISED)
def test_what_has_no_id_is_told_of_something_else(case: tuple[Any, str]) -> None:
    value, code = case
    with pytest.raises(TypeError, match=rf"such as key=lambda x: {re.escape(code)}$"):
        cache.memoize(lambda x: 1)(value)
    kept = cache.memoize(key=eval(f"lambda x: {code}"))(lambda x: str(x))
    assert kept(value) == kept(value) == str(value)
    assert kept.cache_stats().hits == 1


class Odd:
    @property
    def id(self) -> int:
        raise RuntimeError("not yet")


@pytest.mark.parametrize("value", [Odd(), type("Nameless", (), {})()])
def test_objects_that_lack_an_id_are_told_what_it_would_be(value: Any) -> None:
    name = type(value).__name__
    told = rf"key=lambda x, y: \(type\(x\), x\.id, y\), where id is what tells one {name} from another$"
    with pytest.raises(TypeError, match=told):
        cache.memoize(lambda x, y: 1)(value, 1)


@pytest.mark.parametrize("value", [lambda: 1, object(), {1: 2, "a": 3}, [[1]]])
def test_nothing_is_told_where_nobody_can_tell(value: Any) -> None:
    with pytest.raises(TypeError, match=r"a function of the same arguments that returns one$"):
        cache.memoize(lambda x: 1)(value)


def test_callbacks_learn_whose_entry_left() -> None:
    own, told = Cache("1 MiB"), []
    one, other = own.memoize(ttl=0)(lambda number: 1), own.memoize(ttl=0)(lambda number: 2)

    class Log:
        def gone(self, key: Any, value: Any, *, table: str) -> None:
            told.append((table, value))

    callbacks: list[Any] = [
        lambda key, value, table: told.append((table, value)),
        lambda key, value, *, table: told.append((table, value)),
        lambda key, value, reason, table: told.append((table, value)),
        lambda key, value, table, reason: told.append((table, value)),
        lambda table, key, value: told.append((table, value)),
        lambda key, value, log=told, table="?": log.append((table, value)),
        lambda *args, table: told.append((table, args[1])),
        Log().gone,
    ]
    for callback in callbacks:
        assert own.on_evict(callback) is callback
        one(25), other(25), own.put("k", 3, ttl=0)
        own.expire()
        assert sorted(told) == [("", 3), (one.cache_table().name, 1), (other.cache_table().name, 2)], callback
        told.clear()
    own.on_evict(lambda key, value, table, reason: told.append(reason))
    own.put("k", 3, ttl=0)
    own.expire()
    assert told == ["expired"]
    own.on_evict(lambda key, value, table, /: told.append(table))  # by its place, it is the reason
    own.put("k", 3, ttl=0)
    own.expire()
    assert told == ["expired"] * 2
    for wrong in (lambda key, table: None, lambda key, value, *, tables: None):
        with pytest.raises(TypeError, match="on_evict takes a function of key and value"):
            own.on_evict(wrong)


def test_a_callback_whose_end_sets_another_leaves_that_one() -> None:
    cache = Cache("1 MiB")
    told: list[Any] = []

    class Before:
        def __call__(self, key: Any, value: Any) -> None:
            raise AssertionError

        def __del__(self) -> None:
            cache.on_evict(lambda key, value: told.append(key))

    cache.on_evict(Before())
    cache.on_evict(None)
    gc.collect()
    cache.put("key", 1, ttl=0)
    cache.expire()
    assert told == ["key"]
