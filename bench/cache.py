"""`cache`: how fast a cache answers, in Rust and in Python, and how often it has what is asked for.

What a run does stands in ``rust/cache/src/main.rs`` and in ``cache_runs.py``; the peers in ``cache_peers.py``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from pathlib import Path

import build
import cache_traces
from bars import BEST_PEER, Bar
from cache_peers import SUBJECTS
from harness import Options, Plan, Result, Run
from peers.base import Missing

TITLE = "a cache bounded in bytes"

_RUST_CASES = {
    "hits": "hits",
    "hits-tenth": "hits, a tenth of the keys",
    "through": "read-through at a tenth of the keys",
}
_THREADS = (1, 2, 4)
_QUICK_THREADS = (1, 2)
_RUST_PEERS = ("quick_cache", "moka")
# Million answers a second that one thread is to get.
_LEAST = {"hits": 20.0, "hits-tenth": 20.0, "through": 10.0}

VALUES = ("75 B", "person")
# What is measured at a million keys, and what is too slow for that.
_FAST = ("gabion", "gabion-subscript", "cachebox", "cachetools", "theine", "moka", "functools", "floor")
_SLOW = ("diskcache", "redis")
_EVICTING = ("gabion", "cachebox", "cachetools", "theine", "moka", "functools")
_THREADED = ("gabion", "cachebox", "theine", "moka", "floor")
# Time of gabion over that of cachebox's TTLCache, at most.
_MOST = {"75 B": 0.85, "person": 1.2}
_MOST_PUT, _MOST_EVICTING = 1.0, 1.2

HIT_SUBJECTS = ("gabion", "gabion-lru", "gabion-s3fifo", "theine", "moka", "cachebox-lru")
# Least hit rate in %, by trace and size.
_HITS = {("OLTP", 1000): 39.0, ("OLTP", 5000): 55.2, ("web12", 1500): 72.5, ("orm-busy", 5000): 85.3}
_ZIPF_KEYS = 1_000_000
_ZIPF_HITS = {0.01: 49.5, 0.1: 69.0}
_QUICK_SIZES = (1000, 1500, 5000)
_MOST_METADATA = 48.0


def plan(options: Options) -> Plan:
    """All runs of the benchmark, with their bars."""
    made = Plan([], [])
    _plan_rust(made, options)
    site = "" if options.installed else str(build.site_for(sys.executable))
    labels = _labels(made)
    _plan_speed(made, labels, site, 200_000 if options.quick else 1_000_000)
    _plan_threads(made, labels, site, options)
    _plan_free_threaded(made, options)
    _plan_hits(made, labels, site, options.quick)
    limit = {"seconds": 2 if options.quick else 20, "mib": 64}
    made.runs.append(Run("limit", "gabion", "cache_runs:limit", limit, site=site, rounds=1 if options.quick else None))
    made.bars += [
        Bar(("limit", "gabion", metric), "<=", 0) for metric in ("bytes_over_limit", "bytes_over_table_limit")
    ]
    made.bars.append(Bar(("limit", "gabion", "metadata_per_entry"), "<=", _MOST_METADATA))
    made.notes += [
        "Rust: keys are numbers of 4 bytes, drawn by a Zipf law (0.99) from a million, or from a tenth of it; values "
        "have 75 bytes and are copied out. The peers keep a number as it is, gabion takes any bytes for a key. "
        "gabion's limit is in bytes and counts its index, the peers' in entries, so shares of hits differ a little.",
        "Python: entries live for an hour, where the cache knows such a thing. gabion builds a new object at every "
        "get, as diskcache and Redis do; the others give the one that was put.",
        "floor: in Rust a hash map that nobody locks, without limit or time, values copied out: what memory gives for "
        "hits. In Python a dict, which has no limit, knows no time and copies nothing.",
    ]
    return made


def _labels(made: Plan) -> dict[str, str]:
    """The subjects that can run here; the others are named as missing."""
    labels = {}
    for name, cls in SUBJECTS.items():
        try:
            labels[name] = cls.label()
        except Missing as missing:
            made.missing.append(str(missing))
    return labels


def _plan_rust(made: Plan, options: Options) -> None:
    absent: list[str] = []
    binary = build.cache_binary(absent)
    made.missing += absent
    lock = tomllib.loads((build.ROOT / "Cargo.lock").read_text())
    versions = {package["name"]: package["version"] for package in lock["package"]}
    subjects = {"gabion": "gabion"}
    if not absent:
        subjects |= {peer: f"{peer} {versions[peer]}" for peer in _RUST_PEERS}
    for what, text in _RUST_CASES.items():
        for threads in _QUICK_THREADS if options.quick else _THREADS:
            floor = {} if what == "through" else {"floor": "floor"}
            for name, label in (subjects | floor).items():
                made.runs.append(Run(_rust_case(text, threads), label, command=[str(binary), name, what, str(threads)]))
        one, two = ((_rust_case(text, threads), "gabion", "gets_per_s") for threads in (1, 2))
        memory = None if what == "through" else (one[0], "floor", "gets_per_s")
        made.bars += [Bar(one, ">=", _LEAST[what], floor=memory), Bar(two, ">=", 1.0, one)]
        made.bars.append(Bar(one, ">=", 1.0, (one[0], BEST_PEER, "gets_per_s")))


def _rust_case(text: str, threads: int) -> str:
    return f"rust, {text}, {_threads_text(threads)}"


def _threads_text(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)}"


def _plan_speed(made: Plan, labels: dict[str, str], site: str, count: int) -> None:
    for value in VALUES:
        case, full = f"python, {value}", f"python, {value}, full"
        for name in (*_FAST, *_SLOW):
            if name in labels:
                args = {"subject": name, "value": value, "count": count // 50 if name in _SLOW else count}
                made.runs.append(Run(case, labels[name], "cache_runs:speed", args, site=site))
        for name in _EVICTING:
            if name in labels:
                args = {"subject": name, "value": value, "count": count}
                made.runs.append(Run(full, labels[name], "cache_runs:eviction", args, site=site))
        limits = {"time_per_get": _MOST[value], "time_per_get_fresh_key": _MOST[value], "time_per_put": _MOST_PUT}
        for metric, most in limits.items():
            made.bars.append(_against_cachebox(case, metric, most, (case, "floor", metric)))
        made.bars.append(_against_cachebox(full, "time_per_evicting_put", _MOST_EVICTING, None))


def _against_cachebox(case: str, metric: str, most: float, floor: tuple[str, str, str] | None) -> Bar:
    return Bar((case, "gabion", metric), "<=", most, (case, "cachebox", metric), floor)


def _plan_threads(made: Plan, labels: dict[str, str], site: str, options: Options) -> None:
    for threads in _QUICK_THREADS if options.quick else _THREADS:
        for name in _THREADED:
            if name in labels:
                args = {"subject": name, "value": VALUES[0], "count": 200_000, "threads": threads}
                made.runs.append(
                    Run(f"python, {_threads_text(threads)}", labels[name], "cache_runs:threads", args, site=site)
                )


def _plan_free_threaded(made: Plan, options: Options) -> None:
    python = os.environ.get("GABION_FT_PYTHON") or shutil.which("python3.14t") or shutil.which("python3.13t")
    if not python:
        made.missing.append("free-threaded Python (put python3.13t or later on PATH, or name it in GABION_FT_PYTHON)")
        return
    if options.installed and not build.has_gabion(python):
        made.missing.append(f"gabion in {python} (install it there, or run without --installed)")
        return
    site = "" if options.installed else str(build.site_for(python))
    for value in VALUES:
        for threads in (1, 2):
            for name in ("gabion", "floor"):
                args = {"subject": name, "value": value, "count": 200_000, "threads": threads}
                case = _free_case(value, threads)
                made.runs.append(Run(case, name, "cache_runs:threads", args, python=python, site=site))
        for metric in ("gets_per_s", "puts_per_s"):
            one, two = ((_free_case(value, threads), "gabion", metric) for threads in (1, 2))
            made.bars.append(Bar(two, ">=", 1.7, one, (two[0], "floor", metric)))


def _free_case(value: str, threads: int) -> str:
    return f"free-threaded, {value}, {_threads_text(threads)}"


def hits_case(trace: str, entries: int) -> str:
    """The case of a trace at a size in entries."""
    return f"hits, {trace}, {entries:,} entries"


def _plan_hits(made: Plan, labels: dict[str, str], site: str, quick: bool) -> None:
    subjects = [name for name in HIT_SUBJECTS if name in labels]
    traces = cache_traces.available()
    if cache_traces.GENERATED in traces:
        made.missing.append("recorded traces (GABION_DATA names a folder with traces/; a generated one stands in)")
    for trace, sizes in traces.items():
        for entries in sizes:
            if quick and entries not in _QUICK_SIZES:
                continue
            for name in subjects:
                args = {"subject": name, "trace": trace, "entries": entries, "most": 1_000_000 if quick else None}
                # gabion's hash has another key in each process; the rest is the same in each round.
                rounds = None if name == "gabion" and (trace, entries) in _HITS else 1
                run = Run(
                    hits_case(trace, entries), labels[name], "cache_runs:hit_rate", args, site=site, rounds=rounds
                )
                made.runs.append(run)
            if (trace, entries) in _HITS and not (quick and trace == "orm-busy"):
                made.bars.append(Bar((hits_case(trace, entries), "gabion", "hit_rate"), ">=", _HITS[trace, entries]))
    keys = _ZIPF_KEYS // 10 if quick else _ZIPF_KEYS
    for share, least in _ZIPF_HITS.items():
        case = f"hits, Zipf 0.9, room for {share:.0%} of {keys:,} keys"
        for name in subjects:
            args = {"subject": name, "trace": f"zipf-0.9-{keys}", "entries": int(share * keys)}
            made.runs.append(Run(case, labels[name], "cache_runs:hit_rate", args, site=site, rounds=1))
        if not quick:
            made.bars.append(Bar((case, "gabion", "hit_rate"), ">=", least))


def pictures(result: Result, folder: Path) -> list[Path]:
    """Times of gets and puts, and a picture of hit rates for each trace. Raises ``ImportError`` without matplotlib."""
    from cache_pictures import hit_rates, times

    made = [times(result, folder)]
    made += [hit_rates(result, folder, trace, sizes) for trace, sizes in cache_traces.available().items()]
    return [path for path in made if path]
