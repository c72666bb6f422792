"""`scenegraph`: trees of small nodes, kinds of objects kept apart, and small objects that change threads.

What a run does stands in ``rust/scenegraph/``, and for C++ in ``cpp/``.
"""

from __future__ import annotations

import ctypes.util
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import build
from bars import BEST_PEER, Bar
from harness import Options, Plan, Result, Run

TITLE = "small objects"

SHAPES = {"three-sizes": "quad tree, three sizes", "one-piece": "quad tree, one piece"}
PASSES = (1, 2, 3)
WAYS = {"own": "freed by themselves", "pairs": "freed by a partner", "all-to-all": "freed by all others"}
# For each way, how many threads; all others than the maker's own thread take at least two.
THREADS = {"own": (1, 2, 16), "pairs": (2, 4, 8, 16), "all-to-all": (2, 4, 8, 16)}
_QUICK_THREADS = {"own": (2,), "pairs": (2, 16), "all-to-all": (16,)}
_LIVE = (1_000, 10_000, 100_000, 1_000_000)
_QUICK_LIVE = (1_000, 100_000)
# VulkanSceneGraph's own figures for these patterns are 38, 275 and 12,800 ns.
_NS = {"fifo_pair": 10, "random_free": 40, "churn_pair": 100}
_CHURN_BAR = 100_000
# The floor gets its memory from glibc, which leaves pages as the system makes them, or asks for huge ones.
_FLOORS = {"floor": (), "floor, huge pages": ("env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1")}


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    subjects = _Subjects(made)
    levels = 9 if options.quick else 11
    _plan_trees(made, subjects, levels)
    _plan_kinds(made, subjects, levels - 1)
    _plan_tiles(made, subjects, levels - 1)
    _plan_small(made, subjects, options.quick)
    _plan_threads(made, subjects, options.quick)
    _plan_release(made, subjects)
    _plan_cpp(made, subjects.labels["malloc"], levels, options.quick)
    made.notes += [
        "construct, traverse, destroy: nodes per second, in each of three passes of one process.",
        "gabion frees by size, as Rust does and C++ may; 'gabion, unsized free' by the pointer alone, as C does.",
        "floor: a pointer that moves on; its free does nothing, its memory comes back at once when all is free.",
        "C++: by new and delete, through gabion.hpp; every call crosses from C++ to the library. Peers replace malloc.",
        "Figures of one thread are of its CPU time, the system's part included.",
        "rss_full: growth of resident memory, first pass; rss_back: resident after the last pass, against before.",
        "objects_per_s: all threads together, waiting included; cpu_per_object: CPU time of making and freeing one.",
    ]
    return made


class _Subjects:
    """The binary and the label of each subject."""

    def __init__(self, made: Plan) -> None:
        self.made = made
        binaries = build.scenegraph_binaries(made.missing)
        own = binaries.pop("")
        allocators = {"gabion": own, "gabion-unsized": own, "malloc": own, **binaries}
        self.labels = {name: _label(binary, name) for name, binary in allocators.items()}
        self.binaries = {**allocators, "floor": own}

    def plan(self, case: str, work: str, *words: object, floor: bool = True) -> None:
        """Add the runs of all subjects in ``case``."""
        for name, label in self.labels.items():
            self.plan_one(case, work, name, label, *words)
        for label, before in _FLOORS.items() if floor else ():
            self.plan_one(case, work, "floor", label, *words, before=before)

    def plan_one(self, case: str, work: str, name: str, label: str, *words: object, before: Sequence[str] = ()) -> None:
        """Add the run of one subject."""
        command = [*before, str(self.binaries[name]), work, name, *map(str, words)]
        self.made.runs.append(Run(case, label, command=command))


def _label(binary: Path, name: str) -> str:
    done = subprocess.run([binary, "label", name], capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["label"])


class _Add(Protocol):
    """Adds the bar that gabion does a step ``limit`` times as fast as ``against``."""

    def __call__(self, step: str, limit: float, against: str = BEST_PEER) -> None: ...


def _plan_trees(made: Plan, subjects: _Subjects, levels: int) -> None:
    for shape, case in SHAPES.items():
        case = f"{case}, {levels} levels"
        subjects.plan(case, "tree", shape, levels, len(PASSES))
        for number in PASSES:
            step = _bars(made, case, number)
            step("construct", 1.1 if number == 1 else 1.5)
            if number == 1:
                step("traverse", 0.97)
            else:
                # In 1.05 times the time of the first pass.
                made.bars.append(
                    Bar((case, "gabion", f"traverse_{number}"), ">=", 1 / 1.05, (case, "gabion", "traverse_1"))
                )
                step("traverse", 3, "malloc")
            step("destroy", 2, "mimalloc 2")
            step("destroy", 2, "mimalloc 3")
        memory, floor = (case, "gabion", "rss_full"), (case, "floor", "rss_full")
        limit = 0.9 if shape == "three-sizes" else 1.0
        made.bars.append(Bar(memory, "<=", limit, (case, BEST_PEER, "rss_full"), floor))
        made.bars.append(Bar((case, "gabion", "rss_back"), "<=", 1.02))


def _bars(made: Plan, case: str, number: int) -> _Add:
    """What adds a bar on a step of one pass."""

    def add(step: str, limit: float, against: str = BEST_PEER) -> None:
        metric = f"{step}_{number}"
        made.bars.append(Bar((case, "gabion", metric), ">=", limit, (case, against, metric), (case, "floor", metric)))

    return add


def _plan_kinds(made: Plan, subjects: _Subjects, levels: int) -> None:
    case = f"nodes beside side data, {levels} levels"
    # A pointer that moves on mixes the kinds, which is no floor of walking.
    subjects.plan(case, "kinds", levels, len(PASSES), floor=False)
    for number in PASSES:
        _bars(made, case, number)("traverse", 0.97)
    made.bars.append(Bar((case, "gabion", "rss_back"), "<=", 1.02))


def _plan_tiles(made: Plan, subjects: _Subjects, levels: int) -> None:
    case = f"tiles replaced at random, {levels} levels"
    # Without its all-at-once free, the floor is no floor.
    subjects.plan(case, "tiles", levels, 4, floor=False)
    made.bars.append(Bar((case, "gabion", "traverse_aged"), ">=", 0.97, (case, BEST_PEER, "traverse_aged")))
    made.bars.append(Bar((case, "gabion", "rss_growth"), "<=", 1.1))


def _plan_small(made: Plan, subjects: _Subjects, quick: bool) -> None:
    count = 200_000 if quick else 1_000_000
    case = f"{count:,} objects of 24–96 B"
    subjects.plan(case, "batch", count)
    for metric in ("fifo_pair", "random_free"):
        made.bars.append(Bar((case, "gabion", metric), "<=", _NS[metric], floor=(case, "floor", metric)))
    for live in _QUICK_LIVE if quick else _LIVE:
        case = f"churn of 8–248 B, {live:,} live"
        subjects.plan(case, "churn", live, 1_000_000 if quick else 4_000_000, floor=False)
        if live == _CHURN_BAR:
            made.bars.append(Bar((case, "gabion", "churn_pair"), "<=", _NS["churn_pair"]))


def _plan_threads(made: Plan, subjects: _Subjects, quick: bool) -> None:
    count = 2_000_000 if quick else 8_000_000
    for way, threads in (_QUICK_THREADS if quick else THREADS).items():
        for number in threads:
            case = threads_case(way, number)
            subjects.plan(case, "threads", way, number, count, floor=False)
            for peer in ("snmalloc", "mimalloc 2", "mimalloc 3") if way != "own" else ():
                row, other = ((case, who, "cpu_per_object") for who in ("gabion", peer))
                made.bars.append(Bar(row, "<=", 1.0, other))


def threads_case(way: str, threads: int) -> str:
    """``freed by a partner, 2 threads``."""
    return f"{WAYS[way]}, {threads} thread{'s' * (threads > 1)}"


def _plan_release(made: Plan, subjects: _Subjects) -> None:
    cases = {number: f"release of an affinity, {number} levels" for number in (9, 11)}
    for number, case in cases.items():
        subjects.plan_one(case, "release", "gabion", "gabion", number)
    small, large = cases.values()
    made.bars.append(Bar((large, "gabion", "release_vs_destroy"), "<=", 0.1))
    # Sixteen times the nodes: as long for each block, if nothing but blocks counts.
    row, other = ((case, "gabion", "release_per_block") for case in (large, small))
    made.bars.append(Bar(row, "<=", 1.5, other))


# Libraries that replace malloc when they are loaded, and a package that has them.
_PRELOADED = {"mimalloc": "libmimalloc2.0", "jemalloc": "libjemalloc2", "tcmalloc_minimal": "libtcmalloc-minimal4"}


def _plan_cpp(made: Plan, malloc: str, levels: int, quick: bool) -> None:
    binaries = build.scenegraph_cpp(made.missing)
    if not binaries:
        return
    static, shared = ([str(binaries[link])] for link in ("static", "shared"))
    # Label to what starts the program and what it takes memory from.
    subjects = {
        "gabion": (static, "gabion"),
        "gabion, unsized free": (static, "gabion-unsized"),
        "gabion, shared library": (shared, "gabion"),
        malloc: (static, "new"),
    }
    for name, package in _PRELOADED.items():
        found = ctypes.util.find_library(name)
        if found:
            subjects[f"{name}, loaded as {found}"] = (["env", f"LD_PRELOAD={found}", *static], "new")
        else:
            made.missing.append(f"{name} for C++ (Debian's package {package})")

    def runs(case: str, work: str, *words: object) -> None:
        for label, (before, subject) in subjects.items():
            made.runs.append(Run(case, label, command=[*before, work, subject, *map(str, words)]))

    runs("C++, one object of 64 B made and freed", "pairs", 2_000_000 if quick else 20_000_000)
    for shape, case in SHAPES.items():
        case = f"C++, {case}, {levels} levels"
        runs(case, "tree", shape, levels, len(PASSES))
        made.bars.append(Bar((case, "gabion", "traverse_1"), ">=", 0.97, (case, BEST_PEER, "traverse_1")))
        limit = 0.9 if shape == "three-sizes" else 1.0
        made.bars.append(Bar((case, "gabion", "rss_full"), "<=", limit, (case, BEST_PEER, "rss_full")))


def pictures(result: Result, folder: Path) -> list[Path]:
    """Rates by pass, and rates by number of threads. Raises ``ImportError`` without matplotlib."""
    import scenegraph_pictures

    made = [scenegraph_pictures.passes(result, folder), scenegraph_pictures.threads(result, folder)]
    return [path for path in made if path]
