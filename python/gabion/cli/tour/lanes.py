"""Pauses over time: one lane per store, all with the same time and the same logarithmic height."""

import math
from collections.abc import Sequence

from gabion.cli.tour.result import Pauses, Result

BLOCKS = " ▁▂▃▄▅▆▇█"
LOWEST_MS = 0.1


def duration(ms: float) -> str:
    """Milliseconds, as a reader would say them."""
    if ms >= 1000:
        return f"{ms / 1000:,.2f} s"
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:,.1f} ms" if ms >= 10 else f"{ms:,.2f} ms"


def binned(pauses: Pauses, seconds: float, bins: int) -> list[float]:
    """The longest pause in each of `bins` equal parts of `seconds`; 0 where there was none."""
    longest = [0.0] * bins
    for at, ms in zip(pauses.at, pauses.ms, strict=True):
        place = min(bins - 1, int(at / seconds * bins))
        longest[place] = max(longest[place], ms)
    return longest


def decades(results: Sequence[Result]) -> tuple[int, int]:
    """Powers of ten, in milliseconds, that hold every pause worth drawing."""
    longest = max(result.pauses.longest_ms for result in results)
    lowest = round(math.log10(LOWEST_MS))
    return lowest, max(lowest + 2, math.ceil(math.log10(max(longest, LOWEST_MS))))


def height(ms: float, low: int, high: int) -> float:
    """Where a pause stands between the lowest and the highest line, 0 to 1."""
    return min(1.0, max(0.0, (math.log10(ms) - low) / (high - low))) if ms > 0 else 0.0


def text_lane(pauses: Pauses, seconds: float, width: int, low: int, high: int) -> str:
    """One lane in block characters."""
    tall = len(BLOCKS) - 1
    columns = binned(pauses, seconds, width)
    return "".join(BLOCKS[max(1, round(height(ms, low, high) * tall)) if ms > 0 else 0] for ms in columns)
