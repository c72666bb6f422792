"""Values of every kind that the codec has a form for, and the classes that they need."""

import enum
from array import array
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID


class Slotted:
    __slots__ = ("a", "number")


class Plain:
    pass


class Both(Plain):
    __slots__ = ("slot",)


class Stateful:
    def __getstate__(self):
        return {"a": 1}

    def __setstate__(self, state):
        self.state = state


class Reduced:
    def __init__(self, *arguments):
        self.arguments = arguments

    def __reduce__(self):
        return Reduced, self.arguments, {"more": [1]}


class WithKeywords:
    def __new__(cls, *, a=1):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"a": 2}


class Listed(list):
    pass


class Mapped(dict):
    pass


class Colour(enum.Enum):
    RED = 1


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Point(NamedTuple):
    a: int
    number: object


@dataclass(frozen=True, slots=True)
class Frozen:
    a: int
    number: str


def make(kind, **attributes):
    made = kind()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def values():
    shared = ["shared"]
    one_dict = [make(Plain, a=1, number=[2]), Plain(), make(Both, slot=1), Both()]
    for each in one_dict[1:]:
        each.__dict__ = one_dict[0].__dict__
    in_it = [Plain(), Both(), Plain()]
    for each in in_it:
        each.__dict__ = in_it[0].__dict__
    in_it[0].__dict__ |= {"a": in_it, "number": (in_it[0].__dict__, in_it[1])}
    loop = [1]
    loop.append({"loop": loop})
    point = Point([], None)
    point.a.append(point)
    zone = timezone(timedelta(hours=1), "here")
    listed = Listed([1, 2])
    listed.attribute = 1
    yield from (0, -1, 30, 31, 255, -(2**31), 2**62, 2**200, -(2**200), 1.5, 0.01, float("nan"), 1j, True, None)
    yield from ("", "x", "text", "n" * 70, "é", "石", "🪨", "\ud800", b"", b"bytes", bytearray(b"more"), ...)
    yield from ([], [1, [2, [3]]], list(range(40)), (), (1, (2,)), tuple(range(20)), {}, {"a": 1, "number": [2]})
    yield from ({i: str(i) for i in range(20)}, {1, "x"}, frozenset([2, (3,)]), range(1, 9, 2), slice(1, None, 2))
    yield from (
        datetime(2020, 1, 2),
        datetime(2020, 1, 2, 3, 4, 5, 6),
        datetime(2020, 1, 2, tzinfo=zone),
        date(1, 1, 1),
    )
    yield from (time(1, 2, 3), time(1, tzinfo=UTC), timedelta(-1, 2, 3), UTC, zone, timezone(timedelta(1 / 9)))
    yield from (
        Decimal("1.50"),
        Decimal("NaN"),
        UUID(int=5),
        array("d", [1, 2]),
        array("b", b"abc"),
        Colour.RED,
        Bits(3),
    )
    yield from (int, len, type(None), Plain, Point(1, "two"), NotImplemented, complex, Frozen(1, "two"))
    yield from (
        make(Slotted, a=1, number="two"),
        make(Slotted, a=1),
        make(Plain, a=1, number=[2]),
        make(Both, slot=1, a=2),
    )
    yield from (Stateful(), Reduced(1, [2]), WithKeywords(), listed, Mapped(a=1), deque([1, 2], 5), OrderedDict(a=1))
    yield from (loop, point, [shared, shared, (shared,)], [make(Plain, **{f"name{i}": i}) for i in range(5)])
    yield from (one_dict, in_it, in_it[1], in_it[0].__dict__, [one_dict[0].__dict__, *one_dict])
    yield {"deep": [make(Plain, a=(Point(1, make(Slotted, a=[zone])), frozenset([Colour.RED])), number=Decimal(3))] * 3}
