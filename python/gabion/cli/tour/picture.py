"""The pauses over time, as a picture."""

from collections.abc import Sequence
from typing import Any

from gabion.cli.tour import drawing
from gabion.cli.tour.lanes import LOWEST_MS, binned, decades, duration
from gabion.cli.tour.result import Result
from gabion.cli.tour.stores import LABELS

COLUMNS = 400
NOTABLE_MS = 10.0
STORES = {"plain": drawing.PLAIN, "pickles": drawing.PICKLES, "gabion": drawing.GABION}


def svg(results: Sequence[Result]) -> str:
    """One lane per store."""
    told = "; ".join(f"{LABELS[one.store]}: longest {duration(one.pauses.longest_ms)}" for one in results)
    return drawing.svg(lambda: _drawn(results), f"Collector pauses over time. {told}")


def _drawn(results: Sequence[Result]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 1.75 * len(results) + 0.3), layout="constrained")
    lanes = figure.subplots(len(results), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    seconds = max(result.pauses.seconds for result in results)
    low, high = decades(results)
    for result, lane in zip(results, lanes, strict=True):
        _lane(lane, result, seconds)
        lane.set(xlim=(0, seconds), ylim=(10.0**low, 10.0**high))
    lanes[-1].xaxis.set_major_formatter(lambda value, _: f"{value:g} s")
    return figure


def _lane(lane: Any, result: Result, seconds: float) -> None:
    colour, pauses = STORES[result.store], result.pauses
    at = [(column + 0.5) * seconds / COLUMNS for column in range(COLUMNS)]
    shown = [(x, ms) for x, ms in zip(at, binned(pauses, seconds, COLUMNS), strict=True) if ms > 0]
    lane.set_yscale("log")
    lane.vlines([x for x, _ in shown], LOWEST_MS, [ms for _, ms in shown], colors=colour, linewidth=1.5)
    notable = [(x, ms) for x, ms in shown if ms >= NOTABLE_MS]
    lane.scatter([x for x, _ in notable], [ms for _, ms in notable], s=14, color=colour, zorder=3)
    lane.axvline(pauses.seconds, color=colour, linewidth=0.8, linestyle=(0, (4, 4)))
    lane.set_title(LABELS[result.store], loc="left", color=drawing.INK, fontweight="bold", fontsize=10)
    lane.set_title(f"longest {duration(pauses.longest_ms)}", loc="right", color=drawing.SOFT, fontsize=9)
    lane.yaxis.set_major_formatter(lambda ms, _: f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms")
    lane.grid(axis="y", color=drawing.LINE, linewidth=0.6)
    drawing.plain_axes(lane)
