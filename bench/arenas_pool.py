"""`arenas-pool`: many threads that make and convert small images, at the level of the pool.

The work of Pillow's contention benchmark: each thread makes 1024 RGB images of 100×100 pixels and converts them to
CMYK, all threads starting at a barrier. What a run does stands in ``rust/src/images.rs``.
"""

from __future__ import annotations

from pathlib import Path

import allocators
import build
from bars import Bar
from harness import Options, Plan, Result

TITLE = "small images from many threads"

_WAYS = {"keep": "dropped by its thread", "hand-over": "dropped by the next thread"}
_THREADS = (1, 2, 16)
_ROUNDS, _QUICK_ROUNDS = 5, 2
# Threads that have ended, and images that changed hands, may leave this much behind in all: the system's own noise.
_NOISE_MIB = 1.0


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    binary = build.rust_binary()
    peers = allocators.peers(binary, made.missing)
    rounds = _QUICK_ROUNDS if options.quick else _ROUNDS
    for way in _WAYS:
        for threads in _THREADS if way == "keep" else _THREADS[1:]:
            command = [str(binary), "images", "{}", str(threads), way, str(rounds)]
            allocators.plan(made, _case(way, threads), command, peers)
            made.bars.append(Bar((_case(way, threads), "gabion", "rss_left"), "<=", _NOISE_MIB))
        two, many = _case(way, 2), _case(way, 16)
        row, floor = (many, "gabion", "cpu_per_image"), (many, "floor", "cpu_per_image")
        made.bars.append(Bar(row, "<=", 1.15, (two, "gabion", "cpu_per_image"), floor))
    made.notes += [
        f"Each process runs one round to warm up and {rounds} that count; each round has new threads. round_max, "
        "round_mean and round_min are the slowest, mean and fastest thread of a round, medians over the rounds.",
        "rss_left: resident memory after the last round against that after the first, when all threads have ended and "
        "each allocator was told to give its idle memory back.",
        "cpu_per_image: CPU time of the process for each image. The loops that fill and convert are the same code for "
        "every subject, and most of the time.",
    ]
    return made


def _case(way: str, threads: int) -> str:
    return f"{_WAYS[way]}, {threads} thread{'s' * (threads > 1)}"


def pictures(result: Result, folder: Path) -> list[Path]:
    """Slowest, mean and fastest thread of each subject at 16 threads. Raises ``ImportError`` without matplotlib."""
    cases = [_case(way, 16) for way in _WAYS if result.row((_case(way, 16), "gabion", "round_mean"))]
    if not cases:
        return []
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(cases), figsize=(5.5 * len(cases), 2.8), squeeze=False, layout="constrained")
    for axis, case in zip(axes[0], cases):
        subjects = [row["subject"] for row in result.rows if row["case"] == case and row["metric"] == "round_mean"]
        for place, subject in enumerate(subjects):
            slowest, mean, fastest = (
                result.row((case, subject, metric))["median"] for metric in ("round_max", "round_mean", "round_min")
            )
            colour = "#c0392b" if subject == "gabion" else "#bdc3c7" if subject == "floor" else "#7f8c8d"
            axis.barh(place, mean, color=colour, xerr=[[mean - fastest], [slowest - mean]], ecolor="#2c3e50")
        axis.set(xlabel="ms a round, mean thread (fastest – slowest)", yticks=range(len(subjects)))
        axis.set_yticklabels(subjects)
        axis.set_title(case, fontsize=10)
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    path = folder / "arenas-pool.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return [path]
