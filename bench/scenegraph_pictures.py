"""The pictures of the `scenegraph` benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness import Result
from scenegraph import PASSES, SHAPES, THREADS, WAYS, threads_case

_COLOURS = {
    "gabion": "#c0392b",
    "malloc": "#2c3e50",
    "mimalloc 2": "#2980b9",
    "mimalloc 3": "#7fb3d5",
    "jemalloc": "#27ae60",
    "snmalloc": "#8e44ad",
    "floor": "#bdc3c7",
}
_STEPS = ("construct", "traverse", "destroy")


def _pyplot() -> Any:
    """matplotlib's drawing calls, for files alone. Raises ``ImportError`` where it is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def passes(result: Result, folder: Path) -> Path | None:
    """Nodes per second in each pass: a group of bars for each pass, a panel for each step and shape."""
    cases = [row["case"] for row in result.rows]
    found = [next((case for case in cases if case.startswith(shape)), None) for shape in SHAPES.values()]
    shapes = [case for case in found if case]
    if not shapes:
        return None
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(
        len(_STEPS), len(shapes), figsize=(5.2 * len(shapes), 2.4 * len(_STEPS)), squeeze=False, layout="constrained"
    )
    for line, step in zip(axes, _STEPS):
        for axis, case in zip(line, shapes):
            width = 0.8 / len(_COLOURS)
            for place, (subject, colour) in enumerate(_COLOURS.items()):
                rows = [result.row((case, subject, f"{step}_{number}")) for number in PASSES]
                at = [number + (place - len(_COLOURS) / 2 + 0.5) * width for number, row in zip(PASSES, rows) if row]
                rates = [row["median"] / 1e6 for row in rows if row]
                axis.bar(at, rates, width, color=colour, label=subject)
            axis.set_xticks(PASSES, [f"pass {number}" for number in PASSES])
            axis.set_title(f"{step}: {case}", fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel("million nodes/s")
    figure.legend(*axes[0][0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=len(_COLOURS))
    return _saved(figure, folder / "scenegraph.png")


def threads(result: Result, folder: Path) -> Path | None:
    """CPU time for each object over the number of threads: a line for each subject, a panel for each way."""
    measured = {row["case"] for row in result.rows}
    ways = [way for way, counts in THREADS.items() if any(threads_case(way, count) in measured for count in counts)]
    if not ways:
        return None
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(1, len(ways), figsize=(4.2 * len(ways), 3), squeeze=False, layout="constrained")
    for axis, way in zip(axes[0], ways):
        for subject, colour in _COLOURS.items():
            rows = {count: result.row((threads_case(way, count), subject, "cpu_per_object")) for count in THREADS[way]}
            points = [(count, row["median"]) for count, row in rows.items() if row]
            if points:
                axis.plot(*zip(*points), marker="o", markersize=4, color=colour, label=subject)
        axis.set(xscale="log", ylim=(0, None), xlabel="threads")
        axis.set_xticks(THREADS[way], [str(count) for count in THREADS[way]])
        axis.minorticks_off()
        axis.set_title(WAYS[way], fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("ns of CPU time, an object")
    figure.legend(*axes[0][0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=len(_COLOURS))
    return _saved(figure, folder / "scenegraph-threads.png")


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    _pyplot().close(figure)
    return path
