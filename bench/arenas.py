"""`arenas`: Pillow's contention benchmark. Many threads make small images and convert them, all starting at a barrier.

What a run does stands in ``arenas_runs.py``; ``arenas_pool.py`` is the same at the level of the pool.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import build
from bars import Bar
from harness import Options, Plan, Result, Run

TITLE = "small images from many threads, in Python"

_WAYS = {"keep": "dropped by its thread", "hand-over": "dropped by the next thread"}
_THREADS = (1, 2, 16)
_ROUNDS, _QUICK_ROUNDS = 5, 2
# Threads that have ended may leave this much behind in all: the system's own noise.
_NOISE_MIB = 1.0


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    rounds = _QUICK_ROUNDS if options.quick else _ROUNDS
    for kind, python in _interpreters(made.missing).items():
        site = ""
        if not options.installed:
            site = str(build.site_for(python))
        elif not build.has_gabion(python):
            made.missing.append(f"gabion in {python} (install it there, or run without --installed)")
            continue
        subjects = {"gabion": "gabion"}
        if pillow := _pillow_of(python):
            subjects["pillow"] = f"Pillow {pillow}"
        else:
            made.missing.append(f"Pillow for {kind} ({Path(python).name} -m pip install pillow)")
        for way in _WAYS:
            for threads in _THREADS if way == "keep" else _THREADS[1:]:
                _plan_case(made, (kind, way, threads), subjects, python, site, rounds)
        two, many = (case_of(kind, "keep", threads) for threads in (2, 16))
        made.bars.append(Bar((many, "gabion", "cpu_per_image"), "<=", 1.15, (two, "gabion", "cpu_per_image")))
    made.notes += [
        "Each thread makes 1024 RGB images of 100×100 pixels and converts them to CMYK. Each process runs one round to "
        f"warm up and {rounds} that count; each round has new threads. round_max, round_mean and round_min are the "
        "slowest, mean and fastest thread of a round, medians over the rounds.",
        "Dropped by the next thread: each thread passes what it made through a queue to the next one in a ring, and "
        "ends while some of it is alive.",
        "bytes_left: what the pool has lent when all is over, against the first round. rss_left: resident memory, the "
        "same.",
    ]
    return made


def _plan_case(
    made: Plan, which: tuple[str, str, int], subjects: dict[str, str], python: str, site: str, rounds: int
) -> None:
    kind, way, threads = which
    case = case_of(kind, way, threads)
    for name, label in subjects.items():
        args = {"subject": name, "way": way, "threads": threads, "rounds": rounds}
        own = name == "gabion"
        made.runs.append(Run(case, label, "arenas_runs:contention", args, python=python, site=site if own else ""))
    made.bars.append(Bar((case, "gabion", "bytes_left"), "<=", 0))
    # Of what is handed over, the queues are most of the time, and the interpreter's memory for what waits in them.
    if way == "keep":
        made.bars.append(Bar((case, "gabion", "rss_left"), "<=", _NOISE_MIB))
        if threads == 16:
            made.bars.append(Bar((case, "gabion", "round_mean"), "<=", 0.2, (case, "Pillow", "round_mean")))


def _interpreters(missing: list[str]) -> dict[str, str]:
    found = {"GIL": sys.executable}
    named = os.environ.get("GABION_FT_PYTHON")
    free = shutil.which(named) if named else shutil.which("python3.14t") or shutil.which("python3.13t")
    if free:
        found["free-threaded"] = free
    else:
        missing.append("free-threaded Python (put python3.13t or later on PATH, or name it in GABION_FT_PYTHON)")
    return found


def _pillow_of(python: str) -> str:
    """The version of Pillow that ``python`` has, or nothing."""
    code = "import PIL.Image; print(PIL.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def case_of(kind: str, way: str, threads: int) -> str:
    """The name of a case."""
    return f"{kind}, {_WAYS[way]}, {threads} thread{'s' * (threads > 1)}"


def pictures(result: Result, folder: Path) -> list[Path]:
    """Slowest, mean and fastest thread of each subject at 16 threads. Raises ``ImportError`` without matplotlib."""
    every = [case_of(kind, way, 16) for way in _WAYS for kind in ("GIL", "free-threaded")]
    cases = [case for case in every if result.row((case, "gabion", "round_mean"))]
    if not cases:
        return []
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(cases), figsize=(4.2 * len(cases), 2.2), squeeze=False, sharey=True, layout="constrained"
    )
    for axis, case in zip(axes[0], cases):
        subjects = [row["subject"] for row in result.rows if row["case"] == case and row["metric"] == "round_mean"]
        for place, subject in enumerate(subjects):
            slowest, mean, fastest = (
                result.row((case, subject, metric))["median"] for metric in ("round_max", "round_mean", "round_min")
            )
            colour = "#c0392b" if subject == "gabion" else "#2980b9"
            axis.barh(place, mean, color=colour, xerr=[[mean - fastest], [slowest - mean]], ecolor="#2c3e50")
        axis.set(xlabel="ms a round, mean thread (fastest – slowest)", yticks=range(len(subjects)))
        axis.set_yticklabels(subjects)
        axis.set_title(case, fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].invert_yaxis()
    path = folder / "arenas.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return [path]
