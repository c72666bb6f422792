"""The object that the benchmarks store: a person with seven fields, in four kinds of class.

Every person is a function of its index, so a store's answer can be checked without keeping the original alive,
and every person owns its strings, its float and its date, as objects that come off a wire or out of a database do.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from datetime import datetime

FIELDS = ("id", "first", "last", "born", "balance", "active", "note")

# The id of person number 0: large enough that no id is one of the interpreter's shared small ints.
FIRST_ID = 1_000_000_000

_TEXT_LENGTH = 4096
_TEXT = "".join(random.Random(20).choices("abcdefghijklmnopqrstuvwxyz ", k=_TEXT_LENGTH + 64))
# Multiplying by it scatters neighbouring indices over 30 bits, which Python calculates with fastest.
_MIX = 0x9E3779B1


@dataclasses.dataclass(slots=True)
class DataclassPerson:
    """A dataclass with slots."""

    id: int
    first: str
    last: str
    born: datetime
    balance: float
    active: bool
    note: str | None


class SlotsPerson:
    """A plain class with ``__slots__``."""

    __slots__ = FIELDS

    def __init__(self, id, first, last, born, balance, active, note):
        self.id = id
        self.first = first
        self.last = last
        self.born = born
        self.balance = balance
        self.active = active
        self.note = note


class DictPerson:
    """A plain class whose instances have a ``__dict__``."""

    def __init__(self, id, first, last, born, balance, active, note):
        self.id = id
        self.first = first
        self.last = last
        self.born = born
        self.balance = balance
        self.active = active
        self.note = note


KINDS: dict[str, type] = {"dataclass": DataclassPerson, "slots": SlotsPerson, "dict": DictPerson}


def row(index: int) -> tuple:
    """The field values of person number ``index``: names of 4–11 characters, a note of 2–33 or, for one in eight, None.

    A slice of two or more characters is a new str every time; that is what gives each person its own strings.
    """
    bits = index * _MIX & 0x3FFFFFFF
    first, last, note = bits >> 18, bits >> 6 & 4095, bits >> 12 & 4095
    return (
        FIRST_ID + index,
        _TEXT[first : first + 4 + (bits >> 15 & 7)],
        _TEXT[last : last + 4 + (bits >> 20 & 7)],
        datetime(
            1950 + (bits >> 23 & 63), 1 + (bits >> 9 & 7), 1 + (bits >> 13 & 15), bits >> 17 & 15, bits >> 21 & 31
        ),
        (bits + index) / 64.0,
        bits >> 11 & 1 == 1,
        None if bits >> 27 == 0 else _TEXT[note : note + 2 + (bits >> 8 & 31)],
    )


def people(make: Callable, start: int, stop: int) -> Iterator:
    """People ``start`` to ``stop``, each made when it is asked for."""
    for index in range(start, stop):
        yield make(*row(index))


def check(person: object, kind: type, index: int) -> None:
    """Raise ``AssertionError`` unless ``person`` is an instance of ``kind`` that equals person number ``index``."""
    if type(person) is not kind:
        raise AssertionError(f"person {index} came back as {type(person).__name__}, stored as {kind.__name__}")
    found = tuple(getattr(person, name) for name in FIELDS)
    if found != row(index) or list(map(type, found)) != list(map(type, row(index))):
        raise AssertionError(f"person {index} came back as {found}, stored as {row(index)}")
