"""Dates, enums, sets, NumPy's numbers and what else is no key, as arguments of memoize()."""

import functools
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, localcontext
from enum import Enum, Flag, auto
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gabion import Cache

cache = Cache("4 MiB")

EAST, BERLIN, PARIS = timezone(timedelta(hours=1)), ZoneInfo("Europe/Berlin"), ZoneInfo("Europe/Paris")
HOURS = st.integers(0, 48).map(lambda hours: datetime(2026, 10, 24, 12) + timedelta(hours=hours))
MOMENTS = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
    HOURS,
    st.sampled_from([None, UTC, EAST, BERLIN, PARIS]),
    st.integers(0, 1),
)
# Two of one zone are equal whatever their folds are, and two of different zones where they mean the same.
NAIVE = MOMENTS.map(lambda moment: moment.replace(tzinfo=None))


def renamed() -> Any:
    return Enum("Kind", "A B")


KINDS = [member for kind in (renamed(), renamed()) for member in kind]
SIMPLE = st.one_of(
    st.integers(0, 3),
    st.sampled_from([date(2026, 1, 1), datetime(2026, 1, 1), time(1), time(1, fold=1), None, "A", *KINDS]),
    st.integers(0, 3).map(lambda days: timedelta(days=days)),
    NAIVE,
)
VALUES = st.one_of(SIMPLE, st.frozensets(SIMPLE, max_size=3))


@settings(deadline=None, database=None, derandomize=True)
@given(VALUES, VALUES)
def test_equal_arguments_have_one_key(one: Any, other: Any) -> None:
    keys = [cache._call_key((value,), {}) for value in (one, other)]
    assert (keys[0] == keys[1]) == (other in {one: 0})


@settings(deadline=None, database=None, derandomize=True)
@given(MOMENTS, MOMENTS)
def test_moments_of_zones_have_one_key_where_they_are_written_alike(one: datetime, other: datetime) -> None:
    keys = [cache._call_key((moment,), {}) for moment in (one, other)]
    fields = [
        (moment.replace(tzinfo=None, fold=0), moment.tzinfo, moment.tzinfo and moment.fold) for moment in (one, other)
    ]
    assert (keys[0] == keys[1]) == (fields[0] == fields[1])


def test_no_moment_gets_what_was_made_of_another() -> None:
    @cache.memoize
    def iso(moment: datetime) -> str:
        return moment.isoformat()

    @cache.memoize
    def since(moment: datetime) -> float:
        return moment.timestamp()

    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    folded = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    moments = [moment, moment.astimezone(BERLIN), moment.astimezone(PARIS), moment.astimezone(EAST), folded]
    moments += [folded.replace(fold=1), moment.replace(tzinfo=timezone(timedelta(0), "Z"))]
    for _ in range(2):
        assert [iso(each) for each in moments] == [each.isoformat() for each in moments]
        assert [since(each) for each in moments] == [each.timestamp() for each in moments]
    assert iso.cache_stats().hits == since.cache_stats().hits == len(moments)


def test_numbers_of_numpy_are_those_they_equal() -> None:
    numpy = pytest.importorskip("numpy")
    for value in (numpy.int64(-1), numpy.uint8(7), numpy.float32(0.1), numpy.float16(2), numpy.bool_(True)):
        assert cache._call_key((value,), {}) == cache._call_key((value.item(),), {})
    for value in (numpy.timedelta64(1, "s"), numpy.longdouble(1), numpy.array(1)):
        with pytest.raises(TypeError, match="no key"):
            cache._call_key((value,), {})


def test_what_may_compare_in_a_way_of_its_own_is_refused() -> None:
    own = {"__eq__": lambda self, other: True, "__hash__": lambda self: 1}
    day = type("Day", (date,), own)(2026, 1, 1)
    mixin = type("Mixin", (), own)
    odd = next(iter(Enum("Odd", "A", type=mixin)))
    for value in (day, odd):
        with pytest.raises(TypeError, match="no key"):
            cache._call_key((value,), {})


@dataclass(frozen=True)
class Place:
    name: str
    at: Any = 0
    note: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Slotted(Place):
    more: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Hashed:
    name: str
    note: Any = field(default=None, compare=False)

    def __hash__(self) -> int:
        return hash((self.name, repr(self.note)))


@dataclass(frozen=True)
class Unhashed:
    name: str
    number: int = field(default=0, hash=False)


T = TypeVar("T")


@dataclass(frozen=True)
class Boxed(Generic[T]):
    inside: T

    @functools.cached_property
    def doubled(self) -> list[T]:
        return [self.inside] * 2


class Pair(NamedTuple):
    one: Any
    two: Any = None


def made_again() -> list[Any]:
    return [make_dataclass("Same", ["inside"], frozen=True)(1) for _ in range(2)]


TOLD_APART = [
    *[Decimal(text) for text in ("1", "1.0", "1.00", "1E+5", "100000", "0", "-0", "0E-5", "0.001", "inf", "-inf")],
    *[Decimal("1234567890" * 9), Decimal("1234567890" * 9) + 1, Decimal((0, (0, 0, 1), -1))],
    *[Fraction(1, 2), Fraction(2, 4), Fraction(3), Fraction(-3), Fraction(1, 10**30)],
    *[time(hour, fold=fold, tzinfo=zone) for hour in (1, 2) for fold in (0, 1) for zone in (UTC, EAST, BERLIN, PARIS)],
    *[time(1, tzinfo=timezone(timedelta(0), "Z")), time(1, tzinfo=timezone(timedelta(microseconds=1)))],
    *[kind(path) for kind in (PurePosixPath, PureWindowsPath, Path) for path in ("", "a/b", "a//b", "A/b", "/a/b")],
    *[PureWindowsPath(path) for path in ("c:a", "./c:a", "c:/a", "//host/share/a", "\\a")],
    *[PurePosixPath("\udc80"), PurePath("//a/b"), UUID(int=1), UUID(int=2)],
    *[Place("a"), Place("a", 1), Place("b"), Place("a", Place("b")), Slotted(name="a")],
    *[Slotted(name="a", more=(Decimal(1), frozenset({Fraction(1, 3)}))), Boxed("a"), Boxed(Boxed("a")), *made_again()],
    *[Pair(1), Pair(1, Decimal("2.0")), Pair(Place("a")), Pair((1, None)), ("a", 0, None)],
]


def test_what_is_told_apart_has_one_key_where_it_is_written_alike() -> None:
    keys = [cache._call_key((value,), {}) for value in TOLD_APART]
    for one, key in zip(TOLD_APART, keys, strict=True):
        for other, its in zip(TOLD_APART, keys, strict=True):
            alike = one == other and type(one) is type(other) and repr(one) == repr(other)
            assert (key == its) == alike, (one, other)


@pytest.mark.parametrize("value", [*TOLD_APART[::3], {"name": Place("a")}], ids=repr)
def test_what_is_told_apart_is_remembered(value: Any) -> None:
    calls = []

    @cache.memoize
    def shown(*args: Any, **kwargs: Any) -> str:
        calls.append(args)
        return repr((args, kwargs))

    given: tuple[Any, Any] = ((), value) if isinstance(value, dict) else ((value,), {})
    assert shown(*given[0], **given[1]) == shown(*given[0], **given[1]) == repr(given)
    assert len(calls) == 1


def test_decimals_are_written_alike_in_every_context() -> None:
    key = cache._call_key((Decimal("1E+50"),), {})
    with localcontext() as context:
        context.prec, context.capitals = 2, 0
        assert cache._call_key((Decimal("1E+50"),), {}) == key
        assert cache._call_key((Decimal("123456"),), {}) != cache._call_key((Decimal("120000"),), {})


def test_a_field_that_is_not_compared_is_no_part_of_the_key() -> None:
    shown = cache.memoize(lambda place: str(place))
    places = [Place("a"), Place("a", note="b"), Place("a", note={}), Place("a", note=[object()])]
    assert len({*places}) == 1
    assert [shown(place) for place in places] == ["a"] * 4
    assert shown.cache_stats().hits == 3
    assert cache._call_key((Place("b", note="a"),), {}) != cache._call_key((Place("a", note="b"),), {})


def test_a_hash_of_its_own_may_be_of_every_field() -> None:
    one, other = Hashed("a", note="b"), Hashed("a", note="c")
    assert cache._call_key((one,), {}) == cache._call_key((Hashed("a", note="b"),), {})
    assert cache._call_key((one,), {}) != cache._call_key((other,), {})


def test_a_field_without_a_hash_is_still_compared() -> None:
    keys = [cache._call_key((Unhashed("a", number),), {}) for number in (1, 2, 2)]
    assert keys[0] != keys[1] == keys[2]


def test_a_dataclass_keeps_its_key_when_it_knows_more() -> None:
    boxed = Boxed(1)
    key = cache._call_key((boxed,), {})
    assert boxed.doubled == [1, 1]
    assert cache._call_key((boxed,), {}) == key


@dataclass
class Thawed:
    number: int = 1


@dataclass(frozen=True)
class Own:
    number: int = 1

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 1


@dataclass(frozen=True, eq=False)
class Identical:
    number: int = 1


@dataclass(frozen=True)
class Filled(list[int]):
    number: int = 1


class Below(Place):
    pass


def filled() -> Filled:
    made = Filled()
    made.append(1)
    return made


class Meta(type):
    """A class that says itself what it equals."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return 1


REFUSED = {
    "decimal's nan": Decimal("nan"),
    "decimal's signalling nan": Decimal("snan"),
    "a decimal's subclass": type("Money", (Decimal,), {})(1),
    "a fraction's subclass": type("Part", (Fraction,), {})(1),
    "a path's subclass": type("Own", (PurePosixPath,), {})("a"),
    "a time's zone of its own": time(1, tzinfo=type("Zone", (type(UTC).__base__,), {})()),
    "mutable": Thawed(),
    "mutable inside": Place("a", Thawed()),
    "a list inside": Place("a", []),
    "beside what compares, and a hash of its own": Hashed("a", note=[]),
    "its own equality": Own(),
    "its identity": Identical(),
    "a list's items": filled(),
    "a dataclass's subclass": Below("a"),
    "a class that says itself what it equals": type(
        "Meta", (type,), {"__eq__": lambda *_: True, "__hash__": lambda *_: 1}
    )("Odd", (), {}),
    "a pair of its own": type("Odd", (Pair,), {"__eq__": lambda self, other: True, "__hash__": lambda self: 1})(1),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_has_no_key_is_told_of_the_memoized_function(value: Any) -> None:
    @cache.memoize
    def area(place: Any, height: int = 1) -> None:
        raise AssertionError

    advice = r"memoize has no key for an argument of type \w+.*: pass key=, a function of the same arguments"
    with pytest.raises(TypeError, match=advice) as caught:
        area(value)
    assert caught.type is TypeError
    # Where the table is made anew, too.
    cache.drop_table(next(name for name in cache.tables() if ".area:" in name))
    with pytest.raises(TypeError, match=advice):
        area(value)


class Perm(Flag):
    R = auto()
    W = auto()
    X = auto()
    RW = R | W


class Other(Flag):
    R = auto()
    W = auto()


def test_members_of_a_flag_are_arguments_combined_or_not() -> None:
    """A combined one has no name of its own."""
    values = [*Perm, Perm(0), Perm.R | Perm.X, Perm.RW, ~Perm.R, Other(0), Other.R, Other.R | Other.W]
    keys = [cache._call_key((value,), {}) for value in values]
    for one, key in zip(values, keys, strict=True):
        assert [other is one for other in values] == [its == key for its in keys]
    assert cache._call_key((Perm.R | Perm.W,), {}) == cache._call_key((Perm.RW,), {})
    assert cache._call_key((Perm.W | Perm.X,), {}) == cache._call_key((~Perm.R,), {})


def test_a_zone_of_its_own_is_named() -> None:
    zone = type(
        "Zone", (tzinfo,), {"utcoffset": lambda self, moment: timedelta(hours=1), "__str__": lambda self: "Z"}
    )()
    shown = cache.memoize(repr)
    for value in (datetime(2026, 1, 1, tzinfo=zone), time(1, tzinfo=zone)):
        told = rf"an argument of type {type(value).__name__} with a tzinfo of type Zone: pass key="
        with pytest.raises(TypeError, match=told) as caught:
            shown(value)
        kept = cache.memoize(key=eval(str(caught.value).split("such as key=")[1]))(repr)
        assert kept(value) == kept(value) == repr(value)
        assert kept.cache_stats().hits == 1


def test_a_dataclass_that_holds_itself_is_nested_too_deep() -> None:
    loop = Place("loop")
    object.__setattr__(loop, "at", loop)
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        cache._call_key((loop,), {})


def test_the_advice_is_known_by_its_class() -> None:
    from gabion._standins import NoKeyError

    with pytest.raises(NoKeyError, match="no key for an argument of type object: pass key="):
        cache._call_key((object(),), {})
