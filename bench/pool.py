"""`pool`: renting, touching and returning memory; resident memory under a service's load; the hard limit.

What a run does stands in ``rust/src/rent.rs``, ``resident.rs`` and ``limit.rs``, and for Python in ``pool_runs.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import allocators
import build
from bars import Bar
from harness import Options, Plan, Result, Run

TITLE = "blocks and buffers"

KIB, MIB = 1 << 10, 1 << 20
_SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
_QUICK_SIZES = (64 * KIB, 4 * MIB, 64 * MIB)
_WAYS = {"one": "one at a time", "several": "several at a time", "hand-over": "hand-over"}
_TOUCHES = {"page": "a byte a page", "full": "every byte"}
# For each touch, which ways run from how many threads.
_RUNS = {
    "page": {"one": (1, 2, 16), "several": (1, 2, 16), "hand-over": (2, 16)},
    "full": {"one": (1, 16), "several": (1, 16), "hand-over": (16,)},
}
_QUICK_RUNS = {"page": {"one": (1, 16), "several": (1, 16), "hand-over": (16,)}, "full": {"several": (1,)}}
# glibc keeps the pages of a buffer that is rented and returned alone, up to 32 MiB, so at these the bar is against
# faulting, not against malloc's own warm memory.
_FAULTING = {
    "one": (64 * MIB,),
    "several": (4 * MIB, 16 * MIB, 64 * MIB),
    "hand-over": (4 * MIB, 16 * MIB, 64 * MIB),
}
# A group of more bytes than this is in parts.
_BLOCK = 4 * MIB
_LIMIT = 256 * MIB
_SERVICE_MINUTES, _QUICK_SERVICE_MINUTES = 1.0, 0.1
# Trim periods that the service's load lasts: 60 s, the default, at ten minutes.
_SERVICE_PERIODS = 10


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    binary = build.rust_binary()
    peers = allocators.peers(binary, made.missing)
    sizes = _QUICK_SIZES if options.quick else _SIZES
    milliseconds = 60 if options.quick else 200
    runs = _QUICK_RUNS if options.quick else _RUNS
    for touch, ways in runs.items():
        for way, threads_of_way in ways.items():
            for threads in threads_of_way:
                for size in sizes:
                    command = [str(binary), "rent", "{}", str(size), way, str(threads), touch, str(milliseconds)]
                    allocators.plan(made, _case(size, way, touch, threads), command, peers, groups=size > _BLOCK)
    _bar_rents(made, runs["page"], sizes)
    _plan_python(made, options, sizes, milliseconds / 1000)
    _plan_limit(made, str(binary), 1 if options.quick else 5)
    _plan_service(made, str(binary), options, peers)
    made.notes += [
        "several at a time: four buffers (of 64 MiB two) are rented, touched, and returned in the order of renting.",
        "hand-over: half of the threads rent and touch, the other half check and return.",
        "floor: the same touch on buffers that are made once and stay warm, in huge pages where they fit.",
        "gabion, in groups: the same bytes in parts of 4 MiB, as images take them; all else is one contiguous buffer.",
        "cpu_per_op: CPU time of the process for each buffer; on few cores it shows what threads cost each other.",
        "16 threads at 64 MiB: the floor loses against its own row of 1 thread, too: so much is the caches'.",
        "Below 32 MiB glibc serves a lone buffer from pages that it has kept, so there malloc is near the floor, too.",
        f"rss: {_SERVICE_PERIODS} trim periods of load, then two of idleness; one round.",
    ]
    return made


def size_name(size: int) -> str:
    """``4 MiB``."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def _case(size: int, way: str, touch: str, threads: int) -> str:
    return f"{size_name(size)}, {_WAYS[way]}, {_TOUCHES[touch]}, {_threads(threads)}"


def _threads(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


def _bar_rents(made: Plan, ways: dict[str, tuple[int, ...]], sizes: tuple[int, ...]) -> None:
    for way, faulting in _FAULTING.items():
        for size in (size for size in sizes if size in faulting):
            for threads in ways[way]:
                case = _case(size, way, "page", threads)
                row, floor = (case, "gabion", "ops_per_s"), (case, "floor", "ops_per_s")
                made.bars.append(Bar(row, ">=", 5, (case, "malloc", "ops_per_s"), floor))
    for way in ("one", "several"):
        for size in sizes:
            many, one = (_case(size, way, "page", threads) for threads in (16, 1))
            row, floor = (many, "gabion", "cpu_per_op"), (many, "floor", "cpu_per_op")
            made.bars.append(Bar(row, "<=", 1.1, (one, "gabion", "cpu_per_op"), floor))


def _plan_python(made: Plan, options: Options, sizes: tuple[int, ...], seconds: float) -> None:
    cases = {
        f"Python, {size_name(size)}, a byte a page, {_threads(threads)}": (size, threads)
        for threads in (1, 16)
        for size in sizes
    }
    if not any(map(options.wants, cases)):
        return  # a build for Python takes minutes
    site = "" if options.installed else str(build.site_for(sys.executable))
    subjects = allocators.python_subjects(made.missing)
    for case, (size, threads) in cases.items():
        for name, label in subjects.items():
            args = {"subject": name, "size": size, "threads": threads, "seconds": seconds}
            made.runs.append(Run(case, label, "pool_runs:rent", args, site=site if name == "gabion" else ""))


def _plan_limit(made: Plan, binary: str, seconds: int) -> None:
    case = f"limit of {size_name(_LIMIT)}, 16 threads"
    made.runs.append(Run(case, "gabion", command=[binary, "limit", str(_LIMIT), "16", str(seconds)]))
    made.bars += [
        Bar((case, "gabion", "over_limit_sampled"), "<=", 0),
        Bar((case, "gabion", "over_limit_peak"), "<=", 0),
        Bar((case, "gabion", "rss_vs_limit"), "<=", 1.02),
    ]


def _plan_service(made: Plan, binary: str, options: Options, peers: dict[str, str]) -> None:
    minutes = options.minutes or (_QUICK_SERVICE_MINUTES if options.quick else _SERVICE_MINUTES)
    case = f"rss, {minutes:g} min of load, 16 threads"
    seconds = minutes * 60
    command = [binary, "resident", "{}", str(seconds), str(seconds / _SERVICE_PERIODS)]
    allocators.plan(made, case, command, peers, floor=False, groups=True, background=True, rounds=1)
    made.bars.append(Bar((case, "gabion", "idle_vs_start"), "<=", 1.1))


def pictures(result: Result, folder: Path) -> list[Path]:
    """Rates as shares of the floor, and resident memory over time. Raises ``ImportError`` without matplotlib."""
    import pool_pictures

    made = [pool_pictures.rates(result, folder, _case, _SIZES), pool_pictures.service(result, folder)]
    return [path for path in made if path]
