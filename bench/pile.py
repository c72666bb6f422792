"""`pile`: a live object store against the ways people hold objects today, and the same store from Rust.

Three kinds of the seven-field person, one million of each; the same in files; arrays of NumPy; batches; churn; two
threads on a free-threaded interpreter; raw bytes from Rust. What a run does stands in ``pile_runs.py`` and in
``rust/``.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import build
import peers
from bars import Bar
from harness import Options, Plan, Result, Run

TITLE = "a live object store"

_GENERAL = ("native", "pickles")
_ONLY_DATACLASS = ("msgspec", "lmdb", "sqlite", "redis")
_WAYS = ("replace", "remove + put")
# No single call may take longer than the longest collector pause that the `gc` benchmark allows.
_LONGEST_OP_MS = 10.0
_QUICK_CHURN_ROUNDS = 2


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    site = "" if options.installed else str(build.site_for(sys.executable))
    _plan_kinds(made, site, 300_000 if options.quick else 1_000_000)
    _plan_file(made, site, 300_000 if options.quick else 1_000_000)
    _plan_saved(made, site, 300_000 if options.quick else 1_000_000)
    _plan_arrays(made, site, options.quick)
    _plan_batches(made, site, 300_000 if options.quick else 1_000_000)
    _plan_churn(made, site, options.quick)
    _plan_threads(made, options, 200_000 if options.quick else 2_000_000)
    _plan_rust(made, options.quick)
    made.notes += [
        "in a file: what is put is there when the process ends at any moment, not when the machine does, in all three; "
        "flush waits for the disk, and open is what the next process waits for. gabion looks at every object then.",
        "saved: what is in memory is saved to a file, which gets its name when it is on the disk, and loaded again: "
        "gabion by Pile.save and Pile(path=...), which builds no object yet, the others by pickle, with the collector "
        "on as programs have it.",
        "put and get are timed in one loop, written out in each adapter, so that nobody pays for a wrapper.",
        "native list: put builds the object and appends it (the collector's work included), get reads a reference.",
        "floor: put is id(obj), get is one random read plus one empty object; churn is the loop around empty calls; "
        "in Rust, put, get and remove are copies to and from one flat buffer.",
        "rust arithmetic: sums and products that touch no memory. Where two threads do less than twice as many of them "
        "as one, the processors are less than two whole cores, and code that keeps a core busy gains no more.",
        "bytes_per_object is growth of resident memory; the pointers that a pile's caller keeps are in "
        "bytes_per_object_with_pointers.",
        "memory_vs_start and reserved_vs_start are per live byte: the drift of the random sizes is divided out.",
    ]
    return made


def _label(name: str) -> str | None:
    try:
        return peers.label(name)
    except peers.Missing:
        return None


def _plan_kinds(made: Plan, site: str, count: int) -> None:
    for kind in ("dataclass", "slots", "dict"):
        made.runs.append(
            Run(kind, "gabion", "pile_runs:store", {"subject": "gabion", "kind": kind, "count": count}, site=site)
        )
        for name in (*_GENERAL, *(_ONLY_DATACLASS if kind == "dataclass" else ()), "floor"):
            try:
                label = peers.label(name)
            except peers.Missing as missing:
                made.missing.append(str(missing))
                continue
            made.runs.append(Run(kind, label, "pile_runs:store", {"subject": name, "kind": kind, "count": count}))
        put, get, weight = ((kind, "gabion", metric) for metric in ("put_per_s", "get_per_s", "bytes_per_object"))
        put_limit, get_limit = (10, 4) if kind == "dict" else (20, 7)
        put_floor, get_floor = (kind, "floor", "put_per_s"), (kind, "floor", "get_per_s")
        made.bars += [
            Bar(put, ">=", put_limit, (kind, "dict of pickles", "put_per_s"), put_floor),
            Bar(get, ">=", get_limit, (kind, "dict of pickles", "get_per_s"), get_floor),
            Bar(weight, "<=", 76),
            Bar(weight, "<=", 0.2, (kind, "native list", "bytes_per_object")),
        ]
        if kind == "dataclass":
            made.bars += [
                Bar(put, ">=", 1.5, (kind, "dict of msgspec", "put_per_s"), put_floor),
                Bar(get, ">=", 1.6, (kind, "dict of msgspec", "get_per_s"), get_floor),
            ]


def _plan_file(made: Plan, site: str, count: int) -> None:
    for name in ("gabion", "lmdb", "sqlite"):
        subject = f"{name} in a file"
        try:
            label = peers.label(subject)
        except peers.Missing as missing:
            made.missing.append(str(missing))
            continue
        args = {"subject": subject, "count": count}
        made.runs.append(Run("in a file", label, "pile_runs:in_file", args, site=site if name == "gabion" else ""))


def _plan_saved(made: Plan, site: str, count: int) -> None:
    for name in ("gabion", "native", "pickles"):
        subject = f"{name}, saved"
        args = {"subject": subject, "count": count}
        own = name == "gabion"
        label = name if own else peers.label(subject)
        made.runs.append(Run("saved", label, "pile_runs:saved", args, site=site if own else ""))


def _plan_arrays(made: Plan, site: str, quick: bool) -> None:
    for size, count in ((32, 200_000), (8 << 10, 4_000), (6 << 20, 10)):
        case = f"arrays of {size:,} floats"
        for name in ("gabion", "pickles", "copies"):
            label = {"gabion": "gabion", "copies": "dict of copies"}.get(name) or _label(name)
            args = {"subject": name, "size": size, "count": count // (4 if quick and count > 10 else 1)}
            made.runs.append(Run(case, label, "pile_runs:arrays", args, site=site))


def _plan_batches(made: Plan, site: str, count: int) -> None:
    made.runs.append(Run("batches", "gabion", "pile_runs:batches", {"count": count}, site=site))
    for one in ("put", "get"):
        made.bars.append(
            Bar(("batches", "gabion", f"{one}_many_per_s"), ">=", 1.3, ("batches", "gabion", f"{one}_per_s"))
        )


def _plan_churn(made: Plan, site: str, quick: bool) -> None:
    # Fewer objects would measure how coarse blocks are; a quick run saves on rounds instead.
    count, rounds = (100_000, _QUICK_CHURN_ROUNDS) if quick else (200_000, None)
    for way in _WAYS:
        case = f"churn: {way}"
        for name in ("gabion", "pickles", "floor"):
            label = "gabion" if name == "gabion" else _label(name)
            args = {"subject": name, "way": way, "count": count}
            made.runs.append(Run(case, label, "pile_runs:churn", args, site=site, rounds=rounds))
        made.bars += _churn_bars(case)


def _churn_bars(case: str) -> list[Bar]:
    return [
        Bar((case, "gabion", "memory_vs_start"), "<=", 1.15),
        Bar((case, "gabion", "used_share"), ">=", 0.85),
        Bar((case, "gabion", "longest_op"), "<=", _LONGEST_OP_MS, floor=(case, "floor", "longest_op")),
    ]


def _plan_threads(made: Plan, options: Options, count: int) -> None:
    python = os.environ.get("GABION_FT_PYTHON") or shutil.which("python3.14t") or shutil.which("python3.13t")
    if not python:
        made.missing.append("free-threaded Python (put python3.13t or later on PATH, or name it in GABION_FT_PYTHON)")
        return
    if options.installed and not build.has_gabion(python):
        made.missing.append(f"gabion in {python} (install it there, or run without --installed)")
        return
    site = "" if options.installed else str(build.site_for(python))
    for threads in (1, 2):
        for name in ("gabion", "floor"):
            args = {"subject": name, "count": count, "threads": threads}
            made.runs.append(Run(_threads_case(threads), name, "pile_runs:threads", args, python=python, site=site))
    for metric in ("put_per_s", "get_per_s"):
        two, one = (_threads_case(2), "gabion", metric), (_threads_case(1), "gabion", metric)
        made.bars.append(Bar(two, ">=", 1.7, one, floor=(two[0], "floor", metric)))


def _threads_case(threads: int) -> str:
    return f"free-threaded, {threads} thread{'s' * (threads > 1)}"


def _rust_case(count: int, order: str, threads: int) -> str:
    return f"rust 64 B, {count // 1000:,} k, {order}, {threads} thread{'s' * (threads > 1)}"


def _plan_rust(made: Plan, quick: bool) -> None:
    binary = str(build.rust_binary())
    sizes = (1_000_000,) if quick else (1_000_000, 10_000_000)
    for count in sizes:
        for order in ("sequential", "random"):
            for threads in (1, 2):
                for subject in ("gabion", "floor"):
                    command = [binary, "raw", subject, str(count), order, str(threads)]
                    made.runs.append(Run(_rust_case(count, order, threads), subject, command=command))
            one, two = (_rust_case(count, order, threads) for threads in (1, 2))
            for metric in ("put_per_s", "get_per_s", "remove_per_s"):
                made.bars += [
                    Bar((one, "gabion", metric), ">=", 15e6, floor=(one, "floor", metric)),
                    Bar((two, "gabion", metric), ">=", 1.8, (one, "gabion", metric), (two, "floor", metric)),
                ]
    for threads in (1, 2):
        case = f"rust arithmetic, {threads} thread{'s' * (threads > 1)}"
        made.runs.append(Run(case, "floor", command=[binary, "arithmetic", str(threads)]))
    for way in _WAYS:
        case = f"rust churn: {way}"
        for subject in ("gabion", "floor"):
            command = [binary, "churn", subject, str(sizes[0] // (10 if quick else 1)), way]
            made.runs.append(Run(case, subject, command=command))
        made.bars += _churn_bars(case)


def pictures(result: Result, folder: Path) -> list[Path]:
    """Bars of throughput and of weight for the dataclass. Raises ``ImportError`` without matplotlib."""
    case = "dataclass"
    subjects = [row["subject"] for row in result.rows if row["case"] == case and row["metric"] == "put_per_s"]
    if not subjects:
        return []
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 0.5 * len(subjects) + 1.2), sharey=True, layout="constrained")
    titles = {
        "put_per_s": "million puts per second",
        "get_per_s": "million random gets per second",
        "bytes_per_object": "bytes per object",
    }
    for axis, (metric, title) in zip(axes, titles.items()):
        for place, subject in enumerate(subjects):
            row = result.row((case, subject, metric))
            if row is None:
                continue
            scale = 1 if metric == "bytes_per_object" else 1e-6
            colour = "#c0392b" if subject == "gabion" else "#bdc3c7" if subject == "floor" else "#7f8c8d"
            axis.barh(place, row["median"] * scale, color=colour)
            axis.text(row["median"] * scale, place, f" {row['median'] * scale:.3g}", va="center", fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(subjects)), subjects)
    axes[0].invert_yaxis()
    path = folder / "pile.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return [path]
