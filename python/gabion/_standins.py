"""What stands for an argument of memoize() that is no key by itself."""

from __future__ import annotations

import itertools
import sys
import weakref
from datetime import date, datetime, time, timedelta, timezone
from enum import Enum, EnumMeta
from typing import Any

_FLOATS = ("float16", "float32", "float64")

# Never the same for two objects, one of which may be gone: names may be, where a class is defined anew.
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_counter = itertools.count()


class NoKeyError(TypeError):
    """There is no key for an argument. Users are shown a TypeError that also says what to write."""


def stand_for(value: Any) -> tuple[Any, ...] | int | float:
    """Return the same for what a dict takes for equal: a number that is equal, or a tuple.

    Subclasses have nothing: they may compare in a way of their own. Raises NoKeyError where there is nothing.
    """
    found = _found(value)
    if found is None:
        raise NoKeyError(
            f"memoize has no key for an argument of type {type(value).__qualname__}: "
            "pass key=, a function of the same arguments that returns one"
        )
    return found


def _found(value: Any) -> tuple[Any, ...] | int | float | None:
    class_ = type(value)
    if class_ is date:
        return ("date", value.toordinal())
    if class_ is datetime:
        return _of_datetime(value)
    if class_ is timedelta:
        return _of_span("timedelta", value)
    if class_ is time and value.tzinfo is None:
        return ("time", value.hour, value.minute, value.second, value.microsecond)
    if isinstance(value, Enum):
        return _of_member(value)
    if class_.__module__ == "numpy":
        return _of_numpy(value)
    return None


def _of_span(kind: str, span: timedelta) -> tuple[Any, ...]:
    return (kind, span.days, span.seconds, span.microseconds)


def _of_datetime(moment: datetime) -> tuple[Any, ...] | None:
    zone, since = moment.tzinfo, moment.replace(tzinfo=None) - datetime.min
    if zone is None:
        return _of_span("naive", since)
    zoneinfo = sys.modules.get("zoneinfo")
    if type(zone) is not timezone and (zoneinfo is None or type(zone) is not zoneinfo.ZoneInfo):
        return None
    offset = zone.utcoffset(moment)
    if offset is None:
        return _of_span("naive", since)
    if offset != zone.utcoffset(moment.replace(fold=not moment.fold)):
        # Where a clock is set, a time is equal to no time of another zone, and within its own whatever its fold is.
        return (*_of_span("in zone", since), _number(zone))
    return _of_span("aware", since - offset)


def _of_member(member: Enum) -> tuple[Any, ...] | None:
    class_, name = type(member), member._name_
    compares = class_.__eq__ is object.__eq__ and class_.__hash__ is Enum.__hash__
    if compares and type(class_) is EnumMeta and class_._member_map_.get(name) is member:
        return ("member", _number(class_), name)
    return None


def _of_numpy(value: Any) -> int | float | None:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or getattr(numpy, type(value).__name__, None) is not type(value):
        return None
    if isinstance(value, numpy.integer) and not isinstance(value, numpy.timedelta64):
        return int(value)
    if isinstance(value, numpy.bool_):
        return bool(value)
    return float(value) if type(value).__name__ in _FLOATS else None


def _number(owner: Any) -> int:
    return _numbers.setdefault(owner, next(_counter))
