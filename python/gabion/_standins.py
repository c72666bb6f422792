"""What stands for an argument of memoize() that is no key by itself."""

from __future__ import annotations

import itertools
import sys
import weakref
from datetime import datetime, time, timedelta, timezone, tzinfo
from enum import Enum, EnumMeta, Flag
from typing import Any

_FLOATS = ("float16", "float32", "float64")
_PATHS = ("PurePosixPath", "PureWindowsPath", "PosixPath", "WindowsPath")

# Never the same for two objects, one of which may be gone: names may be, where a class is defined anew.
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_counter = itertools.count()


# The fields of dataclasses whose instances have a key, and None for others.
_fields: weakref.WeakKeyDictionary[Any, tuple[str, ...] | None] = weakref.WeakKeyDictionary()


class NoKeyError(TypeError):
    """There is no key for an argument, or for a part of it. Users are shown a TypeError that also says what to write.

    ``value`` is that argument or part, ``kind`` the name of its type, and ``of`` says that and what about it is none.
    """

    def __init__(self, value: object) -> None:
        self.value = value
        self.kind = type(value).__qualname__
        self.of = _type_of(value)
        super().__init__(
            f"memoize has no key for an argument of type {self.of}: "
            "pass key=, a function of the same arguments that returns one"
        )


def _type_of(value: Any) -> str:
    """Return the name of a value's type, and what about it is no argument, or would be."""
    class_: Any = type(value)
    name: str = class_.__qualname__
    if class_ in (datetime, time):
        return f"{name} with a tzinfo of type {type(value.tzinfo).__qualname__}"
    if isinstance(value, (str, bytes, int, float, tuple)):
        return f"{name}, which compares in a way of its own"
    params = class_.__dict__.get("__dataclass_params__")
    return f"{name}, which with @dataclass(frozen=True) would have one" if params and not params.frozen else name


def stand_for(value: Any) -> tuple[Any, ...] | list[Any] | float:
    """Return what stands for a value: a number that is equal, a tuple that is a key, or a list of other arguments.

    Values that a dict takes for equal have the same. But what is written in several ways (decimals, fractions, paths,
    times and datetimes of a zone, dataclasses) has it only where it is of one type and written alike: so no call with
    one returns what was made of another. Subclasses have nothing: they may compare in a way of their own.

    Raises NoKeyError where there is nothing.
    """
    found = _found(value)
    if found is None:
        raise NoKeyError(value)
    return found


def _found(value: Any) -> tuple[Any, ...] | list[Any] | float | None:
    class_ = type(value)
    if issubclass(class_, type):
        return ("class", _number(value)) if _is_itself(value) else None
    if class_ is datetime:
        return _of_datetime(value)
    if class_ is timedelta:
        return _of_span("timedelta", value)
    if class_ is time:
        return _of_time(value)
    if isinstance(value, Enum):
        return _of_member(value)
    if class_.__module__ == "numpy":
        return _of_numpy(value)
    if "__dataclass_params__" in class_.__dict__:
        return _of_dataclass(value)
    if class_ is _known("decimal", "Decimal"):
        return _of_decimal(value)
    if class_ is _known("fractions", "Fraction"):
        return ("fraction", value.numerator, value.denominator)
    if class_.__name__ in _PATHS and class_ is _known("pathlib", class_.__name__):
        return ("path", class_.__name__, value.drive, value.root, *value.parts)
    return None


def _known(module: str, name: str) -> Any:
    """Return a module's class; None as long as nobody has imported it, and so nobody has an instance."""
    return getattr(sys.modules.get(module), name, None)


def _of_span(kind: str, span: timedelta) -> tuple[Any, ...]:
    return (kind, span.days, span.seconds, span.microseconds)


def _of_datetime(moment: datetime) -> tuple[Any, ...] | None:
    since = moment.replace(tzinfo=None) - datetime.min
    if moment.tzinfo is None:
        return _of_span("naive", since)
    zone = _of_zone(moment.tzinfo)
    return None if zone is None else (*_of_span("in zone", since), moment.fold, zone)


def _of_time(moment: time) -> tuple[Any, ...] | None:
    known = ("time", moment.hour, moment.minute, moment.second, moment.microsecond)
    if moment.tzinfo is None:
        return known
    zone = _of_zone(moment.tzinfo)
    return None if zone is None else (*known, moment.fold, zone)


def _of_zone(zone: tzinfo) -> str | int | None:
    """Return what tells a zone from others that may show the same moment in another way."""
    if type(zone) is timezone:
        return repr(zone)
    return _number(zone) if type(zone) is _known("zoneinfo", "ZoneInfo") else None


def _of_decimal(number: Any) -> tuple[Any, ...] | None:
    sign, digits, exponent = number.as_tuple()
    return None if exponent in ("n", "N") else ("decimal", sign, "".join(map(str, digits)), exponent)


def _of_dataclass(value: Any) -> list[Any] | None:
    class_: Any = type(value)
    if not _is_itself(class_):
        return None
    try:
        names = _fields[class_]
    except KeyError:
        names = _fields[class_] = _fields_of(class_)
    try:
        return None if names is None else [_number(class_), *(getattr(value, name) for name in names)]
    except AttributeError:  # never set
        return None


def _is_itself(class_: Any) -> bool:
    """Whether a class equals no other: its own class may say otherwise."""
    metaclass: Any = type(class_)
    return metaclass.__eq__ is object.__eq__ and metaclass.__hash__ is object.__hash__


def _fields_of(class_: Any) -> tuple[str, ...] | None:
    """Return what a frozen dataclass's instances are equal by, if they are by nothing but fields.

    Fields that are not compared are left out. Where the hash is the class's own, they may be a part of it, and stay.
    """
    from dataclasses import field, fields, make_dataclass

    params, found = class_.__dataclass_params__, fields(class_)
    if not (params.frozen and params.eq and class_.__new__ is object.__new__):
        return None
    as_made = [(each.name, object, field(compare=each.compare, hash=each.hash)) for each in found]
    made = make_dataclass("Made", as_made, frozen=True)
    if _does(class_.__eq__) != _does(made.__eq__):
        return None
    is_all = _does(class_.__hash__) != _does(made.__hash__)
    return tuple(each.name for each in found if is_all or each.compare or each.hash)


def _does(function: Any) -> tuple[Any, ...] | None:
    """Return what a function does, the same for two that do the same."""
    code = getattr(function, "__code__", None)
    return code and (code.co_code, code.co_names, code.co_consts, code.co_varnames)


def _of_member(member: Enum) -> tuple[Any, ...] | None:
    class_, name = type(member), member._name_
    if class_.__eq__ is not object.__eq__ or class_.__hash__ is not Enum.__hash__ or type(class_) is not EnumMeta:
        return None
    if class_._member_map_.get(name) is member:
        return ("member", _number(class_), name)
    # Several members of a Flag, or none of them.
    is_combined = isinstance(member, Flag) and type(member._value_) is int
    return ("members", _number(class_), member._value_) if is_combined else None


def _of_numpy(value: Any) -> float | None:
    """Return what a float is equal to. NumPy's integers and bools are keys by themselves."""
    name = type(value).__name__
    return float(value) if name in _FLOATS and _known("numpy", name) is type(value) else None


def _number(owner: Any) -> int:
    try:
        return _numbers[owner]
    except KeyError:
        return _numbers.setdefault(owner, next(_counter))
