"""What memoize() takes for the same call: the native keys against a plain model of them."""

import asyncio
import functools
import gc
import os
import sys
import threading
from collections import namedtuple
from datetime import date
from decimal import Decimal
from enum import IntEnum, StrEnum
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import HANGS

import gabion
from gabion import Cache, ClosedError

cache = Cache("16 MiB")


def model(value: Any) -> Any:
    """A key for an argument, as `arguments.rs` draws it."""
    if value is None or isinstance(value, str | bytes | int | UUID):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else pack("<d", value) + b"float"
    return ((), "tuple", tuple(model(item) for item in value))


ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=5), st.uuids()
)
ARGUMENTS = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
CALLS = st.tuples(
    st.lists(ARGUMENTS, max_size=3).map(tuple), st.dictionaries(st.text(max_size=3), ARGUMENTS, max_size=3)
)


def told_apart(key: Any) -> Any:
    """A key whose floats are bytes: one that is no number equals nothing, and has a key."""
    if isinstance(key, tuple):
        return tuple(map(told_apart, key))
    return pack("<d", key) + b"float" if isinstance(key, float) else key


def drawn(args, kwargs):
    return (tuple(map(model, args)), tuple((name, model(value)) for name, value in sorted(kwargs.items())))


# How long it takes is no matter: the machine may stand still for a moment.
@settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=not os.environ.get("GABION_LONG"),
)
@given(CALLS, CALLS)
def test_calls_have_equal_keys_exactly_when_their_arguments_are_equal(one, other):
    keys = [told_apart(cache._call_key(*call)) for call in (one, other)]
    drawings = [drawn(*call) for call in (one, other)]
    assert keys == drawings
    assert (keys[0] == keys[1]) == (drawings[0] == drawings[1])
    assert hash(keys[0]) == hash(drawings[0])


def test_a_look_finds_what_was_put_under_the_calls_key():
    calls = [((1, "a"), {}), ((), {"b": 2.5, "a": None}), ((), {}), (((1, (2,)), True), {"ö": b"x"})]
    for number, call in enumerate(calls):
        assert cache._recall(*call, "none") == "none"
        cache[cache._call_key(*call)] = number
    assert [cache._recall(*call, None) for call in calls] == [0, 1, 2, 3]
    assert cache._recall((), {"a": None, "b": 2.5}, None) == 1


class Color(IntEnum):
    RED = 1


class Name(StrEnum):
    STONE = "stone"


def test_arguments_of_subclasses():
    pair = namedtuple("pair", "a b")
    equal = [((Color.RED,), (1,)), ((Name.STONE,), ("stone",)), ((pair(1, None),), ((1, None),)), ((True,), (1.0,))]
    for one, other in equal:
        assert cache._call_key(one, {}) == cache._call_key(other, {})
    assert cache._call_key((-0.0,), {}) == cache._call_key((0,), {})
    assert cache._call_key((1e300,), {}) == cache._call_key((int(1e300),), {})
    assert cache._recall((float("nan"),), {}, None) is None
    cache[cache._call_key((float("nan"),), {})] = "nan"
    assert cache._recall((float("nan"),), {}, None) == "nan"
    # What stands for an argument is no argument of another kind.
    assert cache._call_key((int,), {}) != cache._call_key((cache._call_key((int,), {}),), {})


@pytest.mark.parametrize("wrong", [[1], {}, Decimal("nan"), bytearray(), object(), (1, [2]), 1j])
def test_arguments_without_a_key(wrong):
    @cache.memoize
    def identity(value):
        return value

    with pytest.raises(TypeError, match=r"no key for an argument of type \w+: pass key="):
        identity(wrong)
    with pytest.raises(TypeError, match=r"no key for an argument of type \w+: pass key="):
        identity(value=wrong)


def test_arguments_nested_too_deep_or_of_their_own_mind():
    nested: Any = ()
    for _ in range(1000):
        nested = (nested,)
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        cache._call_key((nested,), {})

    class Odd(str):
        def __eq__(self, other):
            return False

        __hash__ = str.__hash__

    with pytest.raises(TypeError, match="Odd, which compares in a way of its own"):
        cache._call_key((Odd("a"),), {})


def test_keys_are_asked_for_once_and_results_made_once():
    asked, made = [], []

    @cache.memoize(key=lambda number: asked.append(number) or number % 10)
    def digit(number):
        made.append(number)
        return number % 10

    assert [digit(12), digit(22), digit(32)] == [2, 2, 2]
    assert (asked, made) == ([12, 22, 32], [12])
    figures = digit.cache_stats()
    assert (figures.hits, figures.misses) == (2, 1)


class Money(float):
    """A float that is another amount in another currency."""

    def __new__(cls, value: float, currency: str) -> "Money":
        money = super().__new__(cls, value)
        money.currency = currency
        return money

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and float(self) == float(other) and self.currency == other.currency

    def __hash__(self) -> int:
        return hash((float(self), self.currency))


class Version(tuple):
    """A tuple that compares in a way of its own."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Plain(float):
    """A float as all others."""


def test_what_compares_in_a_way_of_its_own_is_no_key():
    """Amounts of two currencies were one argument."""

    @cache.memoize
    def shown(value):
        return str(value)

    own_uuid = type("OwnUUID", (UUID,), {"__eq__": Version.__eq__})
    hashed = type("HashedUUID", (UUID,), {"__eq__": Version.__eq__, "__hash__": Version.__hash__})
    uuids = own_uuid(int=7), hashed(int=7), (hashed(int=7),)
    for value in (Money(1.5, "EUR"), Version((1, 2)), (Money(2, "EUR"),), *uuids):
        with pytest.raises(TypeError, match="key="):
            shown(value)
    assert shown(Plain(1.5)) == shown(1.5) == "1.5"
    numpy = pytest.importorskip("numpy")
    assert shown(numpy.float64(1.5)) == "1.5"
    assert shown.cache_stats().hits == 2


def test_the_table_goes_with_the_function():
    """Tables of functions that were gone took memory outside of any limit, until no more could be made."""
    with Cache("16 MiB") as own:
        for number in range(300):
            local = own.memoize(lambda x, number=number: (x, number))
            assert local(1) == (1, number)
            stats = local.cache_stats
        assert len(own.tables()) == 1
        del local
        assert own.tables() == []
        with pytest.raises(ClosedError):
            stats()
        own.validate()
        left = own.memoize(str)
    # Its cache is closed by now.
    del left


def test_a_function_in_a_cycle_and_a_cache_that_is_gone():
    own = Cache("16 MiB")
    cycle = [own.memoize(str)]
    cycle.append(cycle)
    cycle[0](7)
    kept = own.memoize(repr)
    del cycle
    gc.collect()
    assert len(own.tables()) == 1
    del own
    assert kept(7) == "7"
    del kept
    gc.collect()


def test_a_function_that_calls_itself_goes_as_deep_as_behind_other_caches():
    """Two frames for each call, its own among them; four ended it at a quarter of the limit."""

    @cache.memoize
    def depth(number):
        return 0 if number == 0 else 1 + depth(number - 1)

    @cache.memoize(key=lambda number: number)
    def by_key(number):
        return 0 if number == 0 else 1 + by_key(number - 1)

    def put(number):
        return cache.get_or_put(("deep", number), lambda: 0 if number == 0 else 1 + put(number - 1))

    enough = int(sys.getrecursionlimit() * 0.3)
    for deep in (depth, by_key, put):
        assert deep(enough) == enough


@pytest.mark.parametrize("by_key", [False, True])
def test_a_table_that_was_dropped_is_made_anew(by_key: bool) -> None:
    cache, calls = gabion.Cache("1 MiB"), []
    part = cache.table("part", max_bytes="64 KiB", ttl=60)

    @part.memoize(key=(lambda number: number) if by_key else None)
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    @part.memoize
    async def half(number: int) -> float:
        calls.append(number)
        return number / 2

    def drop() -> None:
        assert [cache.drop_table(name) for name in cache.tables() if name != "part"] == [True] * 2

    names = sorted(cache.tables())
    for turn in (1, 2):
        assert [double(4), double(4), asyncio.run(half(4)), asyncio.run(half(4))] == [8, 8, 2, 2]
        assert calls == [4] * 2 * turn
        figures = double.cache_stats()
        assert (figures.entries, figures.hits, figures.misses) == (1, 1, 1)
        assert figures.max_bytes == 64 << 10
        assert sorted(cache.tables()) == names
        drop()
    assert (double.cache_clear(), double.cache_stats().entries) == (0, 0)
    cache.drop_table("part")
    drop_all = [cache.drop_table(name) for name in cache.tables()]
    assert drop_all == [True]
    assert double(4) == 8
    cache.close()
    with pytest.raises(gabion.ClosedError, match="cache was closed"):
        double(4)


def test_a_table_that_is_dropped_meanwhile_costs_no_result():
    """What a call returned was lost to ClosedError."""
    own = Cache("16 MiB")

    def drop() -> None:
        for name in own.tables():
            own.drop_table(name)

    @own.memoize
    def double(number: int) -> int:
        drop()
        return 2 * number

    @own.memoize(key=str)
    async def half(number: int) -> float:
        await asyncio.sleep(0)
        drop()
        return number / 2

    async def twice() -> list[float]:
        return await asyncio.gather(half(3), half(3))

    assert (double(3), double(3)) == (6, 6)
    assert asyncio.run(twice()) == [1.5, 1.5]
    assert asyncio.run(half(4)) == 2
    table = own.table("t")
    assert table.get_or_put("k", lambda: own.drop_table("t")) is True
    assert table.closed
    assert len(own.table("t")) == 0

    @own.memoize
    def closing(number: int) -> int:
        own.close()
        return number

    with pytest.raises(ClosedError, match="cache was closed"):
        closing(1)


def test_who_waits_for_a_table_that_is_dropped_gets_the_result():
    own = Cache("16 MiB")
    began, go, results = threading.Event(), threading.Event(), []

    @own.memoize
    def slow(number: int) -> int:
        began.set()
        assert go.wait(HANGS)
        return number

    (name,) = own.tables()
    threads = [threading.Thread(target=lambda: results.append(slow(7))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert began.wait(HANGS)
    own.drop_table(name)
    go.set()
    for thread in threads:
        thread.join(HANGS)
    assert results == [7] * 4
    own.validate()


def test_a_classmethod_says_what_to_put_where():
    with pytest.raises(TypeError, match="put @classmethod outermost"):
        cache.memoize(classmethod(lambda cls, number: number))


@pytest.mark.parametrize("call", ["a call", "a task", "cache_clear", "cache_stats"])
def test_a_table_may_be_dropped_each_time_that_it_is_made(call: str) -> None:
    left = [5]

    class Dropping(Cache):
        def _gabion_table_like(self, name: str, **settings: Any) -> Any:
            table = super()._gabion_table_like(name, **settings)
            if left[0]:
                left[0] -= 1
                self.drop_table(name)
            return table

    own = Dropping("1 MiB")

    async def slow(number: int) -> int:
        return number

    function: Any = own.memoize(slow if call == "a task" else lambda number: number)
    results = {
        "a call": lambda: function(7),
        "a task": lambda: asyncio.run(function(7)),
        "cache_clear": lambda: function.cache_clear(),
        "cache_stats": lambda: function.cache_stats().entries,
    }
    assert results[call]() == (7 if call in ("a call", "a task") else 0)
    assert left == [0]
    own.close()
    with pytest.raises(ClosedError, match="cache was closed"):
        results[call]()


def asked() -> Any:
    return others[0]["k"]


class Asking:
    """A value that asks another cache when it is built."""

    def __reduce__(self) -> Any:
        return asked, ()


others: list[Cache] = []


def test_a_closed_error_of_another_cache_is_nobody_s_drop() -> None:
    """A value's own code may raise it: that is told, and not tried for ever."""
    others[:] = [Cache("1 MiB")]
    function = Cache("1 MiB").memoize(lambda: Asking())
    function()
    others[0].close()
    with pytest.raises((ClosedError, gabion.CodecError), match="cache was closed"):
        function()


def test_a_property_is_told_what_to_put_where() -> None:
    """It was told of ttl."""
    for kind in (property, functools.cached_property):
        for memoize in (cache.memoize, cache.memoize(ttl=60)):
            with pytest.raises(TypeError, match=rf"not of a {kind.__name__}: put @{kind.__name__} outermost"):
                memoize(kind(lambda self: 1))

    class Shop:
        id = 5

        @property
        @cache.memoize(key=lambda self: self.id)
        def price(self) -> float:
            return 1.5

    assert Shop().price == Shop().price == 1.5


@pytest.mark.parametrize("by_key", [False, True])
def test_a_plain_function_that_returns_an_awaitable_is_told_so(by_key: bool, recwarn: pytest.WarningsRecorder) -> None:
    """It was told of a factory, and of functools.partial."""

    async def later() -> int:
        return 1

    @cache.memoize(key=(lambda: 1) if by_key else None)
    def now() -> Any:
        return later()

    with pytest.raises(
        TypeError, match=r"^the memoized function returned something to be awaited: .* async def"
    ) as caught:
        now()
    assert "factory" not in str(caught.value)
    with pytest.raises(TypeError, match=r"^the factory returned something to be awaited: .*functools\.partial"):
        cache.get_or_put("k", functools.partial(lambda: later()))
    assert not recwarn.list


def test_arguments_may_be_what_keys_may_be() -> None:
    class Day(date):
        """Compares as a date does."""

    class Folded(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return isinstance(other, str) and self.lower() == other.lower()

        def __hash__(self) -> int:
            return hash(self.lower())

    @cache.memoize
    def shown(value: Any) -> str:
        return repr(value)

    assert shown(Day(2026, 1, 1)) == shown(date(2026, 1, 1))
    with pytest.raises(TypeError, match="key="):
        shown(Folded("A"))
