"""`gc`: what the collector costs a process that holds millions of objects, and what it costs with a Pile.

Each subject holds the same people and serves the same requests: objects are made, put over random old ones, and
unrelated plain objects come and go, so that collections do start. The interpreters are those of ``GABION_PYTHONS``
(paths, separated like ``PATH``), else the one that runs this. What a run does stands in ``gc_runs.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import build
import machine
from bars import Bar
from gc_runs import BATCH, TRAFFIC
from harness import Options, Plan, Result, Run

TITLE = "collector pauses beside millions of objects"

SCALE_LIMIT = 20 << 30
# What the scale row leaves to the rest of the system, when the system has less than the limit.
_LEFT_FREE = 3 << 29
_LEAST_AT_SCALE = 200_000_000
# Resident bytes of one native person while its list grows, with the object's old version beside the new one.
_NATIVE_BYTES = 480
# From this count on, peers whose fill alone takes minutes run in fewer rounds than the rest.
_HEAVY_COUNT, _HEAVY_ROUNDS = 20_000_000, 2


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    sizes = (200_000, 1_000_000) if options.quick else (1_000_000, 5_000_000, 20_000_000)
    for place, python in enumerate(_pythons()):
        if options.installed and not build.has_gabion(python):
            made.missing.append(f"gabion in {python} (install it there, or run without --installed)")
            continue
        site = "" if options.installed else str(build.site_for(python))
        version = _version(python)
        for count in sizes:
            _plan_size(made, python, site, version, count)
        if place == 0 and not options.quick:
            _plan_scale(made, python, site, version)
    made.notes += [
        f"A request makes {BATCH:,} people and puts them over random old ones; {TRAFFIC:,} plain objects come and go.",
        "longest_pause is the longest automatic collection during the requests, collect a gc.collect() after them, "
        "collect_fresh one right after the fill. Thresholds are the interpreter's own for every subject.",
        "empty process: makes and drops the same objects and holds nothing; it is the floor.",
        "scale: the floor copies as many bytes into fresh pages, so its end_vs_start is the system's own.",
    ]
    return made


def _pythons() -> list[str]:
    return [path for path in os.environ.get("GABION_PYTHONS", "").split(os.pathsep) if path] or [sys.executable]


def _version(python: str) -> str:
    code = (
        "import sys, sysconfig; print(sys.version.split()[0] + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))"
    )
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _case(count: int, version: str) -> str:
    size = f"{count // 1_000_000} M" if count >= 1_000_000 else f"{count // 1000} k"
    return f"{size} objects, Python {version}"


def _plan_size(made: Plan, python: str, site: str, version: str, count: int) -> None:
    case = _case(count, version)
    # 40 % of the objects are replaced: natively, a full collection starts at 25 %.
    batches = max(100, count * 4 // 10 // BATCH)
    for subject, name in (
        ("empty process", "empty"),
        (f"native list {version}", "native"),
        (f"dict of pickles {version}", "pickles"),
        ("gabion", "gabion"),
    ):
        needed, free = count * _NATIVE_BYTES, machine.available_bytes()
        if name == "native" and needed > free:
            made.missing.append(f"native list at {case} (needs {needed >> 20} MiB, {free >> 20} MiB are free)")
            continue
        heavy = count >= _HEAVY_COUNT and name in ("native", "pickles")
        args = {"subject": name, "count": count, "batches": batches, "collects": 1 if heavy else 5}
        found = site if name == "gabion" else ""
        rounds = _HEAVY_ROUNDS if heavy else None
        made.runs.append(Run(case, subject, "gc_runs:hold", args, python, found, rounds=rounds))
    pause, floor = (case, "gabion", "longest_pause"), (case, "empty process", "longest_pause")
    made.bars += [Bar(pause, "<=", 10, floor=floor), Bar(pause, "<=", 1.2, floor)]


def _plan_scale(made: Plan, python: str, site: str, version: str) -> None:
    limit = min(SCALE_LIMIT, machine.available_bytes() - _LEFT_FREE)
    if limit < SCALE_LIMIT:
        made.notes.append(f"scale: filled to {limit / 2**30:.1f} GiB, not 20: no more memory is free here.")
    case = f"scale, {limit / 2**30:.1f} GiB, Python {version}"
    made.runs.append(Run(case, "gabion", "gc_runs:scale", {"limit": limit}, python, site))
    made.runs.append(Run(case, "floor", "gc_runs:scale_floor", {"limit": limit}, python))
    made.bars += [
        Bar((case, "gabion", "end_vs_start"), ">=", 0.9, floor=(case, "floor", "end_vs_start")),
        Bar((case, "gabion", "objects"), ">=", _LEAST_AT_SCALE),
        Bar((case, "gabion", "longest_pause"), "<=", 10),
    ]


def pictures(result: Result, folder: Path) -> list[Path]:
    """Pauses over time, one panel for each interpreter. Raises ``ImportError`` without matplotlib."""
    cases = _largest_cases(result)
    if not cases:
        return []
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(cases), figsize=(6.5 * len(cases), 4), sharey=True, squeeze=False, layout="constrained"
    )
    colours = {"gabion": "#c0392b", "empty process": "#bdc3c7", "dict of pickles": "#2980b9", "native list": "#2c3e50"}
    for axis, case in zip(axes[0], cases):
        for (in_case, subject), reports in result.extras.items():
            if in_case != case:
                continue
            name = next(name for name in colours if subject.startswith(name))
            pauses = [pause for report in reports[:1] for pause in report["pauses"]]
            axis.scatter(
                [began for began, _, _ in pauses],
                [lasted * 1e3 for _, _, lasted in pauses],
                s=[6 + 14 * generation for _, generation, _ in pauses],
                color=colours[name],
                alpha=0.75,
                label=f"{name} ({len(pauses)} shown)",
            )
        axis.axhline(10, color="#7f8c8d", linestyle=":", linewidth=1)
        axis.set(yscale="log", title=case, xlabel="seconds of requests")
        axis.legend(fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("collector pause, ms (dots grow with the generation)")
    path = folder / "gc-pauses.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return [path]


def _largest_cases(result: Result) -> list[str]:
    """For each interpreter the case with the most objects that has native pauses, or any."""
    largest: dict[str, str] = {}
    for case, subject in result.extras:
        python = case.rpartition(", ")[2]
        if "pauses" in result.extras[case, subject][0] and (subject.startswith("native") or python not in largest):
            largest[python] = case
    return list(largest.values())
