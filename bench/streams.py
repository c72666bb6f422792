"""`streams`: copies through file objects, small reads and writes, images from and to file objects.

What a run does stands in ``streams_runs.py``.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import build
from bars import BEST_PEER, Bar
from harness import Options, Plan, Result, Run

TITLE = "I/O without allocation"

_SIZES = (1, 8, 64)
_QUICK_SIZES = (1, 8)
# From what to what; "object" is a class of Python's around a file, as programs have them.
_COPIES = {
    ("file", "file"): "file to file",
    ("file", "pipe"): "file to pipe",
    ("file", "socket"): "file to socket",
    ("file", "memory"): "file to BytesIO",
    ("memory", "file"): "BytesIO to file",
    ("memory", "memory"): "BytesIO to BytesIO",
    ("object", "object"): "Python object to Python object",
}
# KiB that are copied at a time; None is what is usual.
_STEPS = (64, None, 1024)
_SMALL = ("read(50)", "readline", "readinto(50)", "iteration", "write(100)")
# Format, megapixels.
_IMAGES = (("JPEG", 1.0), ("JPEG", 12.0), ("PNG", 3.0), ("BMP", 3.0), ("BMP", 21.0))
_QUICK_IMAGES = (("JPEG", 1.0), ("BMP", 3.0))
_NAIVE = "whole buffer"


@dataclass(frozen=True)
class _Planner:
    """Adds runs to a plan. ``site`` is where gabion is found, ``counter`` the library that counts calls of malloc."""

    made: Plan
    site: str
    counter: str | None

    def run(self, case: str, label: str, kind: str, **args: object) -> None:
        task = {"kind": kind, "args": args, "counter": self.counter}
        self.made.runs.append(Run(case, label, "streams_runs:run", task, site=self.site))

    def bar(self, case: str, metric: str, limit: float, against: str | None = None, floor: bool = False) -> None:
        other = (case, against, metric) if against else None
        low = (case, "floor", metric) if floor else None
        self.made.bars.append(Bar((case, "gabion", metric), "<=", limit, other, low))


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    site = "" if options.installed else str(build.site_for(sys.executable))
    planner = _Planner(made, site, build.malloc_counter(made.missing))
    _plan_copies(planner, _QUICK_SIZES if options.quick else _SIZES)
    _plan_steps(planner, 8 if options.quick else 64)
    _plan_small(planner)
    _plan_images(planner, _QUICK_IMAGES if options.quick else _IMAGES)
    _plan_rust(planner, _QUICK_IMAGES if options.quick else _IMAGES)
    made.notes += [
        "cpu_per_op: CPU time of the process, with the system's part and the reading end of a pipe or a socket.",
        "allocations: calls of malloc by one operation, once it is warm; traced_peak: what Python's own allocators "
        "held at most meanwhile, beside what they held before.",
        f"{_NAIVE}: target.write(source.read()); of images, the file is read first, or saved in memory and written.",
        "floor: the same bytes from a warm buffer, or into one, or by the system alone; of loading, decoding of bytes "
        "that are in memory; of saving by Rust, encoding into memory that is there. "
        "allocations_beside: what loading from the file allocates beside that.",
    ]
    return made


def _plan_copies(planner: _Planner, sizes: tuple[int, ...]) -> None:
    python = platform.python_version()
    subjects = {"gabion": "gabion", "copyfileobj": f"copyfileobj {python}", "naive": _NAIVE, "floor": "floor"}
    for (source, target), text in _COPIES.items():
        for size in sizes:
            case = f"copy, {text}, {size} MiB"
            for name, label in subjects.items():
                planner.run(case, label, "copy", subject=name, source=source, target=target, size=size << 20)
            planner.bar(case, "cpu_per_op", 0.25, _NAIVE, floor=True)
            planner.bar(case, "cpu_per_op", 1.0, BEST_PEER, floor=True)
            planner.bar(case, "allocations", 0)


def _plan_steps(planner: _Planner, size: int) -> None:
    for step in _STEPS:
        case = f"steps, file to BytesIO, {size} MiB, " + (f"{step} KiB at a time" if step else "as usual")
        args = {"source": "file", "target": "memory", "size": size << 20, "chunk": step and step << 10}
        planner.run(case, "gabion", "copy", subject="gabion", **args)


def _plan_small(planner: _Planner) -> None:
    for call in _SMALL:
        case = f"small, {call}"
        kind = "io.BufferedWriter" if call.startswith("write") else "io.BufferedReader"
        python = platform.python_version()
        subjects = {"gabion": "gabion", "io": f"{kind} {python}", "io-256": f"{kind} of 256 KiB {python}"}
        for name, label in subjects.items():
            planner.run(case, label, "small", subject=name, call=call)
        planner.bar(case, "cpu_per_op", 1.0, BEST_PEER)
        planner.bar(case, "allocations", 0)


def _plan_images(planner: _Planner, images: tuple[tuple[str, float], ...]) -> None:
    subjects = {"gabion": "gabion", "naive": _NAIVE}
    try:
        subjects["Pillow"] = f"Pillow {importlib.metadata.version('pillow')}"
    except importlib.metadata.PackageNotFoundError:
        planner.made.missing.append("pillow (make bench-setup)")
    for format, megapixels in images:
        for kind, place in (("load", "file"), ("load", "memory"), ("save", "file"), ("save", "memory")):
            where = "file" if place == "file" else "BytesIO"
            case = f"{kind}, {format} of {megapixels:g} MP, {where}"
            side = "source" if kind == "load" else "target"
            args = {"format": format, "megapixels": megapixels, side: place}
            for name, label in {**subjects, "floor": "floor"}.items() if kind == "load" else subjects.items():
                planner.run(case, label, kind, subject=name, **args)
            planner.bar(case, "cpu_per_op", 1.0, BEST_PEER, floor=kind == "load")
            if kind == "load":
                planner.bar(case, "allocations_beside", 0)


def _plan_rust(planner: _Planner, images: tuple[tuple[str, float], ...]) -> None:
    binary = str(build.rust_binary())
    subjects = {"gabion": "gabion", "naive": _NAIVE, "floor": "floor"}
    for format, megapixels in images:
        for way, place in (("load", "file"), ("load", "memory"), ("save", "file"), ("save", "memory")):
            side = "reader" if way == "load" else "writer"
            where = "a file" if place == "file" else "memory"
            case = f"{way}, {format} of {megapixels:g} MP, Rust {side} of {where}"
            args = {"way": way, "format": format, "megapixels": megapixels, "place": place, "binary": binary}
            for name, label in subjects.items():
                task = {**args, "subject": name}
                planner.made.runs.append(Run(case, label, "streams_runs:rust", task, site=planner.site))
            planner.bar(case, "cpu_per_op", 1.0, BEST_PEER, floor=True)


def pictures(result: Result, folder: Path) -> list[Path]:
    """Copies as shares of the naive way's time. Raises ``ImportError`` without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = [row["case"] for row in result.rows if row["subject"] == _NAIVE and row["case"].startswith("copy")]
    cases = [case for case in dict.fromkeys(cases) if case.endswith(" 8 MiB")]
    if not cases:
        return []
    figure, axes = pyplot.subplots(figsize=(9, 0.7 * len(cases) + 1))
    subjects = {"gabion": "#1f6f8b", "copyfileobj": "#c98b2b", "floor": "#b8b8b8"}
    for place, (subject, colour) in enumerate(subjects.items()):
        shares = []
        for case in cases:
            row, naive = (result.row((case, name, "cpu_per_op")) for name in (subject, _NAIVE))
            shares.append(row["median"] / naive["median"] if row and naive and naive["median"] else 0)
        axes.barh(
            [number + 0.26 * (1 - place) for number in range(len(cases))], shares, 0.24, color=colour, label=subject
        )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.axvline(0.25, color="black", linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(cases)), [case.removeprefix("copy, ").removesuffix(", 8 MiB") for case in cases])
    axes.invert_yaxis()
    axes.set_xlabel("CPU time of copying 8 MiB, as a share of target.write(source.read())")
    axes.legend(loc="lower right")
    figure.tight_layout()
    path = folder / "streams-copies.svg"
    figure.savefig(path)
    pyplot.close(figure)
    return [path]
