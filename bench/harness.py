"""Runs of a benchmark: every round runs every subject once, each in a fresh process.

A benchmark module offers

- ``TITLE``, one line;
- ``plan(options) -> Plan``: the runs, the bars that they are held to, and the peers that are missing;
- ``pictures(result, folder) -> list[Path]``.

A run names a function (``"module:function"``) that a fresh interpreter calls with ``args``, or a command; both print
JSON, ``{"metrics": {name: [value, unit]}}``, with anything else that the pictures want beside it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

BENCH = Path(__file__).resolve().parent
DEFAULT_ROUNDS = 5
# The other side of a bar that is against all peers; see `Bar`.
BEST_PEER = "best peer"


@dataclass
class Options:
    """What the command line asked for; ``minutes`` is how long a service is loaded, ``photos`` a folder of images."""

    quick: bool = False
    rounds: int = DEFAULT_ROUNDS
    installed: bool = False
    cases: list[str] = field(default_factory=list)
    minutes: float | None = None
    photos: str | None = None

    def wants(self, case: str) -> bool:
        """Whether ``case`` is to run."""
        return not self.cases or any(text in case for text in self.cases)


@dataclass
class Run:
    """One subject in one case; ``rounds`` of None means as many as the command line says."""

    case: str
    subject: str
    task: str = ""
    args: dict = field(default_factory=dict)
    python: str = sys.executable
    site: str = ""
    command: list[str] = field(default_factory=list)
    rounds: int | None = None

    def execute(self) -> dict:
        """Run once in a fresh process and return what it reported."""
        command = self.command or [self.python, str(BENCH / "child.py"), self.task, json.dumps(self.args)]
        paths = [path for path in (self.site, os.environ.get("PYTHONPATH")) if path]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        if paths:
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
            raise RunFailed(f"{self.case}, {self.subject}: {how}\n{done.stderr.strip()[-2000:]}")
        return json.loads(done.stdout.strip().splitlines()[-1])


class RunFailed(Exception):
    """A run crashed or gave a wrong answer; its message ends with what it wrote to stderr."""


@dataclass(frozen=True)
class Bar:
    """``row / against`` must be at least (or at most) ``limit``; without ``against``, the row itself must.

    A side is ``(case, subject, metric)``; a subject matches when a row's subject starts with it, so that a peer is
    named without its version. ``BEST_PEER`` on the other side is whichever peer does best there. ``floor`` is the row
    that shows what is possible.
    """

    row: tuple[str, str, str]
    sense: str
    limit: float
    against: tuple[str, str, str] | None = None
    floor: tuple[str, str, str] | None = None


@dataclass
class Plan:
    """What a benchmark will do."""

    runs: list[Run]
    bars: list[Bar]
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Result:
    """What a benchmark found. ``rows`` and ``machine`` go to JSON; the rest feeds the table and the pictures."""

    name: str
    title: str
    rows: list[dict]
    machine: dict
    bars: list[Bar]
    missing: list[str]
    notes: list[str]
    failures: list[str]
    extras: dict[tuple[str, str], list[dict]]

    def row(self, key: tuple[str, str, str]) -> dict | None:
        """The row of ``(case, subject, metric)``, where the subject may lack its version."""
        case, subject, metric = key
        for row in self.rows:
            if row["case"] == case and row["metric"] == metric and row["subject"].startswith(subject):
                return row
        return None

    def other_side(self, bar: Bar) -> dict | None:
        """The row that ``bar`` is against."""
        if bar.against is None or bar.against[1] != BEST_PEER:
            return self.row(bar.against) if bar.against else None
        case, _, metric = bar.against
        peers = [
            row
            for row in self.rows
            if (row["case"], row["metric"]) == (case, metric) and not row["subject"].startswith(("gabion", "floor"))
        ]
        # A bar from below is on something that is better when larger.
        best = max if bar.sense == ">=" else min
        return best(peers, key=lambda row: row["median"], default=None)


def run_rounds(plan: Plan, options: Options) -> tuple[list[dict], list[str], dict]:
    """Run the plan round by round; return rows, failures, and what runs reported beside their metrics."""
    wanted = [run for run in plan.runs if options.wants(run.case)]
    found: dict[tuple[str, str, str, str], list[float]] = {}
    extras: dict[tuple[str, str], list[dict]] = {}
    failed: dict[int, str] = {}
    began = time.monotonic()
    for turn in range(options.rounds):
        # Each round starts one subject further on, so that none always runs after the same neighbour.
        for run in _rotated(wanted, turn):
            if id(run) in failed or turn >= (run.rounds or options.rounds):
                continue
            _progress(
                f"round {turn + 1}/{options.rounds}  {time.monotonic() - began:5.0f} s  {run.case}: {run.subject}"
            )
            try:
                report = run.execute()
            except RunFailed as error:
                failed[id(run)] = str(error)
                continue
            for metric, (value, unit) in report.pop("metrics").items():
                found.setdefault((run.case, run.subject, metric, unit), []).append(value)
            if report:
                extras.setdefault((run.case, run.subject), []).append(report)
    _progress("")
    order = {(run.case, run.subject): place for place, run in enumerate(wanted)}
    rows = [_row(key, values) for key, values in sorted(found.items(), key=lambda item: order[item[0][:2]])]
    return rows, list(failed.values()), extras


def _rotated(runs: list[Run], turn: int) -> Iterable[Run]:
    start = turn % len(runs) if runs else 0
    return runs[start:] + runs[:start]


def _row(key: tuple[str, str, str, str], values: list[float]) -> dict:
    case, subject, metric, unit = key
    return {
        "case": case,
        "subject": subject,
        "metric": metric,
        "unit": unit,
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "rounds": len(values),
    }


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
