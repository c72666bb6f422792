"""Bars: what gabion is to reach, and whether a run decides it."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

# The other side of a bar that is against all peers; see `Bar`.
BEST_PEER = "best peer"
# How sure a verdict must be before rounds end early.
_CONFIDENCE = 0.9
# With fewer, no interval of their values is that sure: that all of four lie on one side of the median happens in two of
# sixteen runs.
FEWEST_ROUNDS = 5


@dataclass(frozen=True)
class Bar:
    """``row / against`` must be at least (or at most) ``limit``; without ``against``, the row itself must.

    A side is ``(case, subject, metric)``; a subject matches when a row's subject starts with it, so that a peer is
    named without its version. ``BEST_PEER`` on the other side is whichever peer does best there. ``floor`` is the row
    that shows what is possible.
    """

    row: tuple[str, str, str]
    sense: str
    limit: float
    against: tuple[str, str, str] | None = None
    floor: tuple[str, str, str] | None = None

    def cases(self) -> set[str]:
        """The cases that both sides stand in."""
        return {self.row[0], *([self.against[0]] if self.against else [])}

    def is_met(self, value: float) -> bool:
        """Whether ``value`` is enough."""
        return value >= self.limit if self.sense == ">=" else value <= self.limit


@dataclass
class Outcome:
    """A bar after the run: its value, and whether that is enough; ``value`` is None when a side was not measured.

    ``decided``: whether the rounds are enough to tell on which side of the limit the value lies, which fewer than
    ``FEWEST_ROUNDS`` never are.
    """

    bar: Bar
    value: float | None
    met: bool
    decided: bool
    rounds: int


def find_row(rows: list[dict], key: tuple[str, str, str]) -> dict | None:
    """The row of ``(case, subject, metric)``, where the subject may lack its version."""
    case, subject, metric = key
    for row in rows:
        if row["case"] == case and row["metric"] == metric and row["subject"].startswith(subject):
            return row
    return None


def other_side(bar: Bar, rows: list[dict]) -> dict | None:
    """The row that ``bar`` is against."""
    if bar.against is None or bar.against[1] != BEST_PEER:
        return find_row(rows, bar.against) if bar.against else None
    case, _, metric = bar.against
    peers = [
        row
        for row in rows
        if (row["case"], row["metric"]) == (case, metric) and not row["subject"].startswith(("gabion", "floor"))
    ]
    # A bar from below is on something that is better when larger.
    best = max if bar.sense == ">=" else min
    return best(peers, key=lambda row: row["median"], default=None)


def judge(bar: Bar, rows: list[dict]) -> Outcome:
    """Hold ``bar`` against what was measured."""
    row = find_row(rows, bar.row)
    against = other_side(bar, rows)
    if row is None or (bar.against and against is None):
        return Outcome(bar, None, False, True, 0)
    value = _ratio(row["median"], against["median"]) if against else row["median"]
    values = [_ratio(*pair) for pair in zip(row["values"], against["values"])] if against else row["values"]
    least, most = _interval(values)
    decided = len(values) >= FEWEST_ROUNDS and bar.is_met(least) == bar.is_met(most)
    return Outcome(bar, value, bar.is_met(value), decided, len(values))


def _ratio(own: float, other: float) -> float:
    if other == 0:
        # Only pauses can be zero: equal when both are, else infinitely worse.
        return 1.0 if own == 0 else float("inf")
    return own / other


def _interval(values: list[float]) -> tuple[float, float]:
    """Between which of its ``values`` the true median lies, by the sign test; all of them when they are few.

    The chance that the median lies outside the k-th value from either end is twice that of fewer than k heads among
    as many coins (Conover, Practical Nonparametric Statistics, 3.2).
    """
    ordered, count = sorted(values), len(values)
    outside, place = 0.0, 0
    while place + 1 <= count // 2:
        outside += 2 * comb(count, place) / 2**count
        if outside > 1 - _CONFIDENCE:
            break
        place += 1
    inner = max(place - 1, 0)
    return ordered[inner], ordered[count - 1 - inner]
