"""The picture of pauses over time: one lane per store, all with the same time and the same logarithmic height."""

import math
from collections.abc import Iterator, Sequence
from html import escape

from gabion.cli.tour.result import Pauses, Result
from gabion.cli.tour.stores import LABELS

BLOCKS = " ▁▂▃▄▅▆▇█"
LOWEST_MS = 0.1

WIDTH, LANE, LEFT, RIGHT, GAP = 880, 120, 64, 16, 34


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


def svg(results: Sequence[Result]) -> str:
    """All lanes as one inline SVG; its colours come from the page's style sheet."""
    seconds = max(result.pauses.seconds for result in results)
    total = len(results) * (LANE + GAP) + 28
    told = "; ".join(f"{LABELS[r.store]}: longest {duration(r.pauses.longest_ms)}" for r in results)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {total}" role="img" aria-label="Collector pauses over time. {escape(told)}">',
        *(part for place, one in enumerate(results) for part in _lane(one, place, seconds, decades(results))),
        *_time_axis(seconds, total - 28),
        "</svg>",
    ]
    return "\n".join(parts)


def _lane(result: Result, place: int, seconds: float, scale: tuple[int, int]) -> Iterator[str]:
    low, high = scale
    top, across = place * (LANE + GAP) + GAP - 8, WIDTH - LEFT - RIGHT
    floor = top + LANE
    yield f'<text class="lane" x="{LEFT}" y="{top - 9}">{escape(LABELS[result.store])}</text>'
    longest = duration(result.pauses.longest_ms)
    yield f'<text class="note" x="{WIDTH - RIGHT}" y="{top - 9}" text-anchor="end">longest {longest}</text>'
    for power in range(low, high + 1):
        y = floor - height(10.0**power, low, high) * LANE
        label = f"{10 ** (power - 3):g} s" if power >= 3 else f"{10.0**power:g} ms"
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    stems, dots = [], []
    for column, ms in enumerate(binned(result.pauses, seconds, across // 2)):
        if ms <= 0:
            continue
        x, y = LEFT + 2 * column + 1, floor - height(ms, low, high) * LANE
        stems.append(f"M{x} {floor}V{y:.1f}")
        if ms >= 10:
            dots.append(f'<circle cx="{x}" cy="{y:.1f}" r="3"><title>{duration(ms)}</title></circle>')
    end = LEFT + result.pauses.seconds / seconds * across
    yield f'<g class="{result.store}"><path d="{"".join(stems)}"/>{"".join(dots)}'
    yield f'<line class="end" x1="{end:.1f}" x2="{end:.1f}" y1="{top}" y2="{floor}"/></g>'


def _time_axis(seconds: float, top: int) -> Iterator[str]:
    across = WIDTH - LEFT - RIGHT
    step = next((s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600) if seconds / s <= 10), 3600.0)
    for count in range(int(seconds / step) + 1):
        x = LEFT + count * step / seconds * across
        yield f'<text class="tick" x="{x:.1f}" y="{top + 18}" text-anchor="middle">{count * step:g} s</text>'
