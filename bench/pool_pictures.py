"""The pictures of the `pool` benchmark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Result

MIB = 1 << 20
_COLOURS = {
    "gabion": "#c0392b",
    "gabion, in groups": "#e59866",
    "malloc": "#2c3e50",
    "mimalloc": "#2980b9",
    "jemalloc": "#27ae60",
    "jemalloc-background": "#82c99d",
}
_PANELS = {
    "one": ("one at a time", (1, 16)),
    "several": ("several at a time", (1, 16)),
    "hand-over": ("hand-over", (2, 16)),
}


def _colour(subject: str) -> str:
    if "background" in subject:
        return _COLOURS["jemalloc-background"]
    return _COLOURS.get(subject) or _COLOURS[subject.split(" ")[0]]


def _pyplot() -> Any:
    """matplotlib's drawing calls, for files alone. Raises ``ImportError`` where it is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def rates(result: Result, folder: Path, case_of: Callable[..., str], sizes: tuple[int, ...]) -> Path | None:
    """Buffers per second as a share of the floor, over the sizes: a line for each subject, a panel for each way."""
    panels = [(way, title, threads) for way, (title, counts) in _PANELS.items() for threads in counts]
    measured = {row["case"] for row in result.rows}
    panels = [one for one in panels if any(case_of(size, one[0], "page", one[2]) in measured for size in sizes)]
    if not panels:
        return None
    pyplot = _pyplot()
    columns = 2 if len(panels) > 1 else 1
    lines = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        lines,
        columns,
        figsize=(5 * columns, 2.6 * lines),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, (way, title, threads) in zip(axes.flat, panels):
        for subject in _COLOURS:
            points = []
            for size in sizes:
                case = case_of(size, way, "page", threads)
                row, floor = (result.row((case, who, "ops_per_s")) for who in (subject, "floor"))
                if row and floor:
                    points.append((size / MIB, row["median"] / floor["median"]))
            if points:
                axis.plot(*zip(*points), marker="o", markersize=4, color=_COLOURS[subject], label=subject)
        axis.axhline(1, color="#7f8c8d", linestyle=":", linewidth=1)
        axis.set(xscale="log", yscale="log")
        axis.set_title(f"{title}, {threads} thread{'s' * (threads > 1)}", fontsize=10)
        axis.set_xticks([size / MIB for size in sizes], [f"{size / MIB:g}" for size in sizes])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("MiB a buffer")
    for axis in axes[:, 0]:
        axis.set_ylabel("share of the floor's rate")
    axes[0][0].legend(fontsize=8)
    path = folder / "pool.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def service(result: Result, folder: Path) -> Path | None:
    """Resident memory over time under the service's load, a line for each subject, and the bytes that were alive."""
    runs = {
        subject: reports[0]["readings"]
        for (case, subject), reports in result.extras.items()
        if case.startswith("rss") and "readings" in reports[0]
    }
    if not runs:
        return None
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(9.5, 4.2), layout="constrained")
    alive = runs.get("gabion") or next(iter(runs.values()))
    seconds = [reading[0] for reading in alive]
    axis.fill_between(seconds, [reading[2] / MIB for reading in alive], color="#ecf0f1", label="alive (requested)")
    for subject, readings in runs.items():
        axis.plot(
            [reading[0] for reading in readings],
            [reading[1] / MIB for reading in readings],
            color=_colour(subject),
            linewidth=1.8 if subject == "gabion" else 1.1,
            label=subject,
        )
    axis.set(xlabel="seconds", ylabel="resident memory, MiB", ylim=(0, None), xlim=(0, None))
    figure.legend(fontsize=8, loc="outside lower center", ncols=(len(runs) + 2) // 2, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    path = folder / "pool-rss.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path
