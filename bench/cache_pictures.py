"""The pictures of the `cache` benchmark."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from cache import VALUES, hits_case
from harness import Result

_COLOURS = ("#c0392b", "#e59866", "#d4ac0d", "#2980b9", "#27ae60", "#7f8c8d", "#8e44ad")


def _pyplot() -> Any:
    """matplotlib's drawing calls, for files alone. Raises ``ImportError`` where it is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def times(result: Result, folder: Path) -> Path | None:
    """Nanoseconds for a get and a put: a bar for each subject, a panel for each kind of value."""
    panels = [
        (f"python, {value}", metric, f"{text}, {value}")
        for value in VALUES
        for metric, text in (("time_per_get", "ns a get"), ("time_per_put", "ns a put"))
    ]
    subjects = [row["subject"] for row in result.rows if row["case"] == panels[0][0] and row["metric"] == panels[0][1]]
    if not subjects:
        return None
    pyplot = _pyplot()
    size = (3.6 * len(panels), 0.4 * len(subjects) + 1.2)
    figure, axes = pyplot.subplots(1, len(panels), figsize=size, sharey=True, layout="constrained")
    for axis, (case, metric, title) in zip(axes, panels):
        rows = [(place, result.row((case, subject, metric))) for place, subject in enumerate(subjects)]
        reached = [row["median"] for _, row in rows if row]
        # What goes over the wire or to the disk takes a hundred times as long: its bar ends at the edge.
        edge = 1.1 * max((value for value in reached if value < 12 * median(reached)), default=1)
        for place, row in rows:
            if row is None:
                continue
            colour = "#c0392b" if row["subject"].startswith("gabion") else "#7f8c8d"
            axis.barh(place, min(row["median"], edge), color="#bdc3c7" if row["subject"] == "floor" else colour)
            axis.text(min(row["median"], edge), place, f" {row['median']:,.0f}", va="center", fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.margins(x=0.2)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(subjects)), subjects)
    axes[0].invert_yaxis()
    return _saved(figure, folder / "cache.png")


def hit_rates(result: Result, folder: Path, trace: str, sizes: tuple[int, ...]) -> Path | None:
    """Hit rate over the number of entries, a line for each subject."""
    cases = {entries: hits_case(trace, entries) for entries in sizes}
    measured = [row for row in result.rows if row["case"] in cases.values() and row["metric"] == "hit_rate"]
    subjects = list(dict.fromkeys(row["subject"] for row in measured))
    if not subjects:
        return None
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    for subject, colour in zip(subjects, _COLOURS):
        rates = {row["case"]: row["median"] for row in measured if row["subject"] == subject}
        points = [(entries, rates[case]) for entries, case in cases.items() if case in rates]
        width = 2.2 if subject == "gabion" else 1.2
        axis.plot(*zip(*points), marker="o", markersize=4, linewidth=width, color=colour, label=subject)
    shown = [entries for entries, case in cases.items() if any(row["case"] == case for row in measured)]
    axis.set(xscale="log", xlabel="entries", ylabel="% of requests answered", title=trace)
    axis.set_xticks(shown, [f"{entries:,}" for entries in shown])
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8)
    return _saved(figure, folder / f"cache-{trace}.png")


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    _pyplot().close(figure)
    return path
