"""What a cache's key may be: equal where a dict takes it for equal, and the same when it is read back."""

from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from math import inf
from uuid import UUID, uuid4

import pytest

from gabion import Cache, PutResult


@pytest.fixture
def cache():
    with Cache("16 MiB") as cache:
        yield cache
        if not cache.closed:
            cache.validate()


class Colour(IntEnum):
    RED = 1


class Odd(str):
    def __eq__(self, other):
        return False

    __hash__ = str.__hash__


class Plain(str):
    pass


class OwnUuid(UUID):
    pass


class Tenants(UUID):
    """A UUID that is another one for another tenant."""

    __slots__ = ("tenant",)

    def __init__(self, text, tenant):
        super().__init__(text)
        object.__setattr__(self, "tenant", tenant)

    def __eq__(self, other):
        return isinstance(other, Tenants) and (self.int, self.tenant) == (other.int, other.tenant)

    def __hash__(self):
        return hash((self.int, self.tenant))


KEYS = [
    "", "text", "ünïcode \U0001f40d", "\ud800 lone", b"", b"text", 0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1,
    2**127 - 1, 2**127, -(2**127), -(2**127) - 1, 2**128 - 1, 2**128, -(2**128), 255 << 64, -(255 << 64), -(1 << 64),
    10**100, -(10**100), UUID(int=5), UUID(int=2**128 - 1), (), ("",), ("", ""), (b"",), ((),), ((1,), 1), (1, (1,)),
    ("a", 1, b"c", UUID(int=1)), None, (None,), (None, None), ((None,),), 1.5, (1.5,), -1.5, 5e-324, 0.1, inf, -inf,
    date(1, 1, 1), date(2026, 1, 2), date(9999, 12, 31), ("user", None), ("report", date(2026, 1, 2), 0.25),
]  # fmt: skip


def test_keys_are_told_apart_as_a_dict_does(cache):
    for number, key in enumerate(KEYS):
        assert cache.put(key, number) is PutResult.INSERTED, key
    for number, key in enumerate(KEYS):
        assert cache[key] == number
    assert sorted(map(repr, cache)) == sorted(map(repr, KEYS))
    assert all(type(key) in {str, bytes, int, float, date, UUID, tuple, type(None)} for key in cache)


def test_equal_keys_are_one_key(cache):
    cache[1] = "one"
    assert cache[True] == "one"
    assert cache[Colour.RED] == "one"
    cache[(True, "x")] = "tuple"
    assert cache[(1, Plain("x"))] == "tuple"
    assert cache[(Colour.RED, "x")] == "tuple"
    one = uuid4()
    cache[one] = "uuid"
    assert cache[UUID(str(one))] == "uuid"
    assert cache[OwnUuid(str(one))] == "uuid"
    cache[1.0], cache[-0.0], cache[1e300], cache[(2.0, None)] = "one more", "zero", "large", "pair"
    assert (cache[1], cache[0], cache[False], cache[int(1e300)]) == ("one more", "zero", "zero", "large")
    assert cache[(2, None)] == "pair"
    assert {type(key) for key in cache if key in (0, 1, 1e300)} == {int}
    cache[type("Half", (float,), {})(0.5)], cache[type("Day", (date,), {})(2026, 1, 2)] = "half", "day"
    assert (cache[0.5], cache[date(2026, 1, 2)]) == ("half", "day")
    assert float("nan") not in cache
    cache[float("nan")] = "nan"
    assert cache[float("nan")] == "nan"
    assert len(cache) == 9


def test_numbers_of_numpy_that_are_floats_are_keys(cache):
    numpy = pytest.importorskip("numpy")
    cache[numpy.float64(0.5)] = "half"
    assert (cache[0.5], list(cache)) == ("half", [0.5])
    with pytest.raises(TypeError, match=r"numpy\.float32"):
        cache[numpy.float32(0.5)] = "half"


def test_a_class_that_calls_itself_a_float_of_numpy_is_none(cache):
    class Own(float):
        def __eq__(self, other):
            return False

        __hash__ = float.__hash__

    Own.__module__, Own.__qualname__ = "numpy", "float64"
    with pytest.raises(TypeError, match="which compares in a way of its own"):
        cache[Own(0.5)] = "half"


def test_integers_and_bools_of_numpy_are_the_ints_that_they_equal(cache):
    numpy = pytest.importorskip("numpy")
    names = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    kinds = [getattr(numpy, name) for name in [*names, "longlong", "ulonglong", "intc", "uintc"]]
    numbers = [kind(value) for kind in kinds for value in (0, 1, numpy.iinfo(kind).min, numpy.iinfo(kind).max)]
    for number in [*numbers, numpy.True_, numpy.False_]:
        # So does a dict, which is what a key goes by.
        assert (number == int(number), hash(number)) == (True, hash(int(number)))
        cache[int(number)] = "int"
        assert (cache[number], number in cache, cache.get(number)) == ("int", True, "int")
        assert cache.put(("of a tuple", number), 1) is cache.put(("another", int(number)), 1) is PutResult.INSERTED
        assert cache.discard(("of a tuple", int(number)))
        assert cache.discard(("another", number))
        assert cache.discard(number)
    cache[numpy.uint64(2**64 - 1)], cache[numpy.True_] = "last", "one"
    assert {key: type(key) for key in cache} == {2**64 - 1: int, 1: int}
    assert cache.get_many(numpy.array([1, 2], dtype="uint8")) == {1: "one"}
    assert [cache.incr(numpy.int64(5)), cache.incr(5)] == [1, 2]


def test_other_numbers_of_numpy_are_no_keys(cache):
    numpy = pytest.importorskip("numpy")

    class Own(numpy.int64):
        def __eq__(self, other):
            return False

        __hash__ = numpy.int64.__hash__

    others = [numpy.timedelta64(1, "s"), numpy.datetime64(1, "s"), numpy.float16(1), numpy.longdouble(1), Own(1)]
    for other in [*others, numpy.array(1), numpy.array([1])]:
        with pytest.raises(TypeError, match="key is a str"):
            cache[other] = 1


def test_a_uuid_that_compares_in_a_way_of_its_own_is_no_key(cache):
    """Its methods were looked up by the same code as those of UUID, and it was taken for the plain one."""
    one = uuid4()
    cache[one] = "uuid"
    cache[(one, 1)] = "tuple"
    mine = Tenants(str(one), "mine")
    for key in (mine, (mine, 1), ((mine,), 1)):
        for call in (cache.get, cache.__contains__, cache.discard):
            with pytest.raises(TypeError, match="Tenants, which compares in a way of its own"):
                call(key)
    assert (cache[one], cache[(one, 1)]) == ("uuid", "tuple")


@pytest.mark.parametrize(
    "key",
    [
        1j,
        Decimal(1),
        Fraction(1, 2),
        datetime(2026, 1, 1),
        [],
        {},
        set(),
        object(),
        ("a", [1]),
        Odd("a"),
        bytearray(b"a"),
    ],
)
def test_other_keys_are_type_errors(cache, key):
    for call in (cache.get, cache.__contains__, cache.discard, cache.touch):
        with pytest.raises(TypeError, match="key is a str"):
            call(key)
    with pytest.raises(TypeError):
        cache[key] = 1


def test_deep_and_giant_keys(cache):
    deep = ()
    for _ in range(100):
        deep = (deep,)
    with pytest.raises(ValueError, match="nested"):
        cache[deep] = 1
    giant = "x" * 3_000_000
    cache[giant] = "found"
    assert cache[giant] == "found"
    assert giant + "y" not in cache


def test_a_key_with_an_item_that_is_no_key_is_told_so(cache):
    for key in ((1j,), ("a", (b"b", [])), (None, frozenset())):
        with pytest.raises(TypeError, match=r"not a tuple with an item of type (complex|list|frozenset); pass one"):
            cache[key] = 1
