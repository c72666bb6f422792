"""Runs of a benchmark: every round runs every subject once, each in a fresh process.

A benchmark module offers

- ``TITLE``, one line;
- ``plan(options) -> Plan``: the runs, the bars that they are held to, and the peers that are missing;
- ``pictures(result, folder) -> list[Path]``.

A run names a function (``"module:function"``) that a fresh interpreter calls with ``args``, or a command; both print
JSON, ``{"metrics": {name: [value, unit]}}``, with anything else that the pictures want beside it.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bars import Bar, find_row, judge

BENCH = Path(__file__).resolve().parent
DEFAULT_ROUNDS, MOST_ROUNDS = 5, 15


@dataclass
class Options:
    """What the command line asked for; ``minutes`` is how long a service is loaded, ``photos`` a folder of images."""

    quick: bool = False
    rounds: int = DEFAULT_ROUNDS
    most_rounds: int = MOST_ROUNDS
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
        return find_row(self.rows, key)


def run_rounds(plan: Plan, options: Options) -> tuple[list[dict], list[str], dict]:
    """Run the plan round by round; return rows, failures, and what runs reported beside their metrics.

    After ``options.rounds`` come further ones, of the cases whose bars the rounds so far do not decide, whether they
    look met or missed, until ``options.most_rounds``.
    """
    rounds = _Rounds([run for run in plan.runs if options.wants(run.case)])
    for turn in range(options.rounds):
        rounds.take([run for run in rounds.runs if turn < (run.rounds or options.rounds)], turn, options.rounds)
    for turn in range(options.rounds, options.most_rounds):
        again = rounds.undecided(plan.bars)
        if not again:
            break
        rounds.take(again, turn, options.most_rounds)
    _progress("")
    return rounds.rows(), list(rounds.failed.values()), rounds.extras


class _Rounds:
    """What the rounds so far have brought."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs
        self.extras: dict[tuple[str, str], list[dict]] = {}
        self.failed: dict[int, str] = {}
        self._found: dict[tuple[str, str, str, str], list[float]] = {}
        self._began = time.monotonic()

    def take(self, runs: list[Run], turn: int, of: int) -> None:
        """Run each of ``runs`` once."""
        for run in _in_another_order(runs, turn):
            if id(run) in self.failed:
                continue
            spent = time.monotonic() - self._began
            _progress(f"round {turn + 1}/{of}  {spent:5.0f} s  {run.case}: {run.subject}")
            try:
                report = run.execute()
            except RunFailed as error:
                self.failed[id(run)] = str(error)
                continue
            for metric, (value, unit) in report.pop("metrics").items():
                self._found.setdefault((run.case, run.subject, metric, unit), []).append(value)
            if report:
                self.extras.setdefault((run.case, run.subject), []).append(report)

    def rows(self) -> list[dict]:
        """A row for each metric, in the order of the plan."""
        order = {(run.case, run.subject): place for place, run in enumerate(self.runs)}
        found = sorted(self._found.items(), key=lambda item: order[item[0][:2]])
        return [_row(key, values) for key, values in found]

    def undecided(self, bars: list[Bar]) -> list[Run]:
        """All runs of the cases that need further rounds.

        None of those that have a number of rounds of their own, nor where a run failed, which has no further ones.
        """
        rows, fixed = self.rows(), {run.case for run in self.runs if run.rounds or id(run) in self.failed}
        outcomes = (judge(bar, rows) for bar in bars if not bar.cases() & fixed)
        cases = set().union(*(outcome.bar.cases() for outcome in outcomes if not outcome.decided))
        return [run for run in self.runs if run.case in cases]


def _in_another_order(runs: list[Run], turn: int) -> Iterable[Run]:
    """The runs case by case, those of a case in an order that is the round's own, and the same whenever it is made.

    Where a case's first subject was always the first, it would always find what the last one of the case before has
    left behind: free huge pages, say, or none.
    """
    chance = random.Random(turn)
    for _, of_case in itertools.groupby(runs, key=lambda run: run.case):
        subjects = list(of_case)
        yield from chance.sample(subjects, len(subjects))


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
        "values": values,
    }


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
