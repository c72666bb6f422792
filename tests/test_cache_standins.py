"""Dates, enums, sets and NumPy's numbers as arguments of memoize(): equal ones are one, as in a dict."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from enum import Enum
from typing import Any
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


def renamed() -> Any:
    return Enum("Kind", "A B")


KINDS = [member for kind in (renamed(), renamed()) for member in kind]
SIMPLE = st.one_of(
    st.integers(0, 3),
    st.sampled_from([date(2026, 1, 1), datetime(2026, 1, 1), time(1), time(1, fold=1), None, "A", *KINDS]),
    st.integers(0, 3).map(lambda days: timedelta(days=days)),
    MOMENTS,
)
VALUES = st.one_of(SIMPLE, st.frozensets(SIMPLE, max_size=3))


@settings(deadline=None, database=None, derandomize=True)
@given(VALUES, VALUES)
def test_equal_arguments_have_one_key(one: Any, other: Any) -> None:
    keys = [cache._call_key((value,), {}) for value in (one, other)]
    assert (keys[0] == keys[1]) == (other in {one: 0})


def test_numbers_of_numpy_are_those_they_equal() -> None:
    numpy = pytest.importorskip("numpy")
    for value in (numpy.int64(-1), numpy.uint8(7), numpy.float32(0.1), numpy.float16(2), numpy.bool_(True)):
        assert cache._call_key((value,), {}) == cache._call_key((value.item(),), {})
    for value in (numpy.timedelta64(1, "s"), numpy.longdouble(1), numpy.array(1)):
        with pytest.raises(TypeError, match="no key"):
            cache._call_key((value,), {})


def test_what_may_compare_in_a_way_of_its_own_is_refused() -> None:
    day = type("Day", (date,), {})(2026, 1, 1)
    mixin = type("Mixin", (), {"__eq__": lambda self, other: True, "__hash__": lambda self: 1})
    odd = next(iter(Enum("Odd", "A", type=mixin)))
    for value in (day, odd, time(1, tzinfo=UTC)):
        with pytest.raises(TypeError, match="no key"):
            cache._call_key((value,), {})


def test_the_advice_is_known_by_its_class() -> None:
    from gabion._standins import NoKeyError

    with pytest.raises(NoKeyError, match="no key for an argument of type object: pass key="):
        cache._call_key((object(),), {})
