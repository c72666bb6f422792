"""What a pile must look like from outside, a dict from pointer to value, and the objects that tests fill it with."""

import enum
import os
from array import array
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import gabion

LONG = os.environ.get("GABION_LONG") == "1"

# Where an object lives depends on its size: a slot up to 1 KiB, a chunk of a block up to 1 MiB, a mapping of its own
# beyond. Both sides of each border, and what lies between.
SIZES = (
    0, 1, 7, 8, 9, 15, 16, 24, 31, 40, 63, 64, 100, 127, 200, 255, 256, 400, 511, 700, 1000, 1010, 1015, 1016, 1020,
    1023, 1024, 1025, 1040, 2000, 4095, 4096, 10_000, 65_000, 65_536, 200_000, 1_000_000, 1_048_560, 1_048_570,
    1_048_576, 1_048_580, 1_100_000, 2_097_152, 3_145_728,
)  # fmt: skip


class Slotted:
    __slots__ = ("first", "note", "number")

    def __repr__(self) -> str:
        return f"Slotted({', '.join(f'{n}={getattr(self, n)!r:.80}' for n in self.__slots__ if hasattr(self, n))})"

    def __init__(self, number: int = 0, first: str = "", note: Any = None) -> None:
        self.number, self.first, self.note = number, first, note

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slotted):
            return NotImplemented
        return (self.number, self.first, self.note) == (other.number, other.first, other.note)

    __hash__ = None  # type: ignore[assignment]


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True)
class Person:
    id: int
    first: str
    last: str
    born: datetime
    balance: float
    active: bool
    note: str | None = None
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str


class Point(NamedTuple):
    x: float
    y: float
    label: str = ""


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


def person(number: int) -> Person:
    return Person(
        number, f"Ada{number}", f"Lovelace{number % 97}", datetime(1815, 12, 10) + timedelta(days=number % 9999),
        number / 7, number % 2 == 0, None if number % 3 else "n" * (number % 31), ["a", f"b{number % 5}"],
    )  # fmt: skip


def some_of_everything() -> list[Any]:
    """Values of the kinds that programs store, each equal to its copy."""
    return [
        None, True, False, 0, -1, 2**31, -(2**63), 2**200, 0.0, -1.5, 1e308, 1 + 2j, "", "stone", "Stein – 石 🪨",
        "\ud800", b"", b"\0\xff", bytearray(b"abc"), (), (1,), [], [1, [2, [3]]], {}, {"a": {"b": [1]}}, set(), {1, 2},
        frozenset({"x"}), range(3), slice(1, 2, 3), Ellipsis, NotImplemented, int, len, date(2020, 2, 29),
        datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC), timedelta(-1, 2, 3), Decimal("1.10"), UUID(int=7), Colour.GREEN,
        array("d", [1.5, 2.5]), Point(1, 2), Slotted(1, "x", [1]), Plain(a=1, b="2"), person(5),
        Money(Decimal("0.1"), "EUR"), {(1, "a"): Plain(c=None)},
    ]  # fmt: skip


def check_against(pile: gabion.Pile, model: dict[int, Any]) -> None:
    """The pile holds exactly what the model says, and its structure is sound."""
    pile.validate()
    assert len(pile) == len(model)
    assert sorted(pile) == sorted(model)
    for pointer, value in model.items():
        assert pointer in pile
        assert pile.get(pointer) == value
    check_equations(pile)


def check_equations(pile: gabion.Pile) -> None:
    stats = pile.stats()
    assert stats.reserved_bytes == stats.used_bytes + stats.overhead_bytes
    assert stats.objects == len(pile)
    assert stats.away_objects <= stats.objects
    assert stats.large_objects <= stats.away_objects or stats.large_objects <= stats.objects
    assert stats.reserved_bytes <= stats.max_bytes
    assert stats.used_bytes == sum(pile.size_of(pointer) for pointer in pile)


class Unbuildable:
    """Can be stored, and is not built while `broken`."""

    broken = False

    def __reduce__(self) -> Any:
        return _build_or_fail, ()


def _build_or_fail() -> Unbuildable:
    if Unbuildable.broken:
        raise RuntimeError("cannot be built today")
    return Unbuildable()
