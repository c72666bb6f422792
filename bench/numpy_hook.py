"""`numpy`: NumPy's arithmetic with ``gabion.numpy.install()`` against NumPy as it comes.

Each operation at each size and type in its own process: stock, installed, and the floor, which is the same operation
into memory that is warm. Then a mixed load, and what resident memory does. What a run does stands in ``numpy_runs.py``.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import build
from bars import Bar
from harness import Options, Plan, Result, Run
from numpy_runs import OPERATIONS

TITLE = "NumPy on the pool"

_SIZES = (0.25, 1, 4, 16, 32, 64, 256)
_QUICK_SIZES = (1, 64)
# From here on glibc gives memory back after each use, and NumPy pays for the page faults.
_FAULTING = 32
_TYPES = ("float64", "float32")
# Of the floor's gain over stock, this share at least; below, stock has nothing to lose, and this much may be lost.
_SHARE_OF_GAIN, _MAY_LOSE = 0.97, 1.02


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    try:
        stock = f"stock {metadata.version('numpy')}"
    except metadata.PackageNotFoundError:
        made.missing.append("numpy (make bench-setup)")
        return made
    site = "" if options.installed else str(build.site_for(sys.executable))
    for kind in _TYPES[:1] if options.quick else _TYPES:
        for operation in OPERATIONS:
            for size in _QUICK_SIZES if options.quick else _SIZES:
                _plan_operation(made, operation, size, kind, stock, site, 0.15 if options.quick else 0.4)
    _plan_load(made, options.quick, stock, site)
    made.notes += [
        "The size is that of one operand. gabion: gabion.numpy.install() before the operands are made.",
        "floor: the same operation with out= on one array that was written before; for where, which has no out=, stock "
        "NumPy with glibc told to keep all memory that it was ever given.",
        "Operands of gabion's runs come from the pool, too, which staggers the starts of large arrays; glibc's start "
        "at one offset within their pages. So gabion can be faster than the floor.",
        "rss: four threads compute on arrays of 0.25 to 64 MiB, then nothing for two trim periods of a second.",
    ]
    return made


def _case(operation: str, size: float, kind: str) -> str:
    return f"{operation}, {size:g} MiB, {kind}"


def _plan_operation(made: Plan, operation: str, size: float, kind: str, stock: str, site: str, seconds: float) -> None:
    case = _case(operation, size, kind)
    for subject, label in (("gabion", "gabion"), ("stock", stock), ("floor", "floor")):
        args = {"subject": subject, "operation": operation, "mib": size, "kind": kind, "seconds": seconds}
        made.runs.append(Run(case, label, "numpy_runs:operate", args, site=site if subject == "gabion" else ""))
    row, floor = (case, "gabion", "time_per_op"), (case, "floor", "time_per_op")
    if size >= _FAULTING:
        made.bars.append(Bar(row, "<=", round(1 / _SHARE_OF_GAIN, 3), floor, floor))
    else:
        made.bars.append(Bar(row, "<=", _MAY_LOSE, (case, "stock", "time_per_op"), floor))


def _plan_load(made: Plan, quick: bool, stock: str, site: str) -> None:
    case = "rss, mixed sizes, 4 threads"
    for subject, label in (("gabion", "gabion"), ("stock", stock)):
        args = {"subject": subject, "seconds": 3 if quick else 15, "period": 1.0}
        made.runs.append(Run(case, label, "numpy_runs:load", args, site=site if subject == "gabion" else ""))
    made.bars.append(Bar((case, "gabion", "idle_vs_start"), "<=", 1.1))


def pictures(result: Result, folder: Path) -> list[Path]:
    """Times stock over the sizes, one panel for each operation. Raises ``ImportError`` without matplotlib."""
    kind = _TYPES[0]
    measured = [name for name in OPERATIONS if any(row["case"].startswith(f"{name}, ") for row in result.rows)]
    if not measured:
        return []
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(3, len(measured))
    lines = -(-len(measured) // columns)
    figure, axes = pyplot.subplots(
        lines, columns, figsize=(4.2 * columns, 2.8 * lines), sharex=True, squeeze=False, layout="constrained"
    )
    for axis, operation in zip(axes.flat, measured):
        for subject, colour in (("gabion", "#c0392b"), ("floor", "#95a5a6")):
            gains = []
            for size in _SIZES:
                row, stock = (
                    result.row((_case(operation, size, kind), who, "time_per_op")) for who in (subject, "stock")
                )
                if row and stock:
                    gains.append((size, stock["median"] / row["median"]))
            axis.plot(*zip(*gains), marker="o", color=colour, label=subject)
        axis.axhline(1, color="#7f8c8d", linestyle=":", linewidth=1)
        axis.set(xscale="log", title=f"{operation}, {kind}")
        axis.set_xticks(_SIZES, [f"{size:g}" for size in _SIZES])
        axis.minorticks_off()
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("MiB an operand")
    for axis in axes[:, 0]:
        axis.set_ylabel("times as fast as stock")
    axes[0][0].legend(fontsize=8)
    path = folder / "numpy.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return [path]
