"""Runs one measurement after the other, each in a fresh process, and shows how far they are."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from gabion.cli.tour import arrays
from gabion.cli.tour.failure import TourError
from gabion.cli.tour.measure import Plan
from gabion.cli.tour.records import Table
from gabion.cli.tour.result import ArraysResult, Operation, Pauses, Result
from gabion.cli.tour.stores import LABELS


class Board:
    """One line of progress per store: bars where the console is a terminal, else a line when a store is done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.fields[label]:<24}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[news]:<38}"),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )
        self._tasks = {
            store: self._bars.add_task("", total=1.0, start=False, label=label, news="waiting")
            for store, label in LABELS.items()
        }

    def __enter__(self) -> "Board":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, store: str) -> None:
        """The store's process is being started."""
        self._bars.start_task(self._tasks[store])
        self._bars.update(self._tasks[store], news="starting")

    def step(self, store: str, news: dict[str, Any]) -> None:
        """A line of progress came from the store's process."""
        text = f"{news['phase']}, longest pause {news['longest_ms']:,.1f} ms"
        self._bars.update(self._tasks[store], completed=news["part"], news=text)

    def done(self, result: Result) -> None:
        """The store's figures are complete."""
        text = f"done, longest pause {result.pauses.longest_ms:,.1f} ms"
        self._bars.update(self._tasks[result.store], completed=1.0, news=text)
        self._bars.stop_task(self._tasks[result.store])
        if not self._console.is_terminal:
            self._console.print(f"{LABELS[result.store]}: {text}, {result.pauses.seconds:.1f} s")


def run(table: Table, objects: int, seed: int, console: Console) -> list[Result]:
    """Measure every store with the same objects in the same order."""
    results = []
    with Board(console) as board:
        for store in LABELS:
            plan = Plan(store, objects, seed, table.columns, str(table.spool))
            board.begin(store)
            result = _measured(plan, table.spool.with_suffix(".json"), board)
            board.done(result)
            results.append(result)
    return results


def run_arrays(seconds: float, folder: Path, console: Console) -> list[ArraysResult]:
    """NumPy's arithmetic without the pool and with it, `seconds` per expression and size; nothing without NumPy."""
    results = []
    for memory, label in arrays.LABELS.items():
        with console.status(f"{label}: starting") as status:
            command = [sys.executable, "-P", "-m", "gabion.cli.tour.arrays", memory, str(seconds)]
            result: dict[str, Any] = {}
            try:
                for line in _lines(command, folder / "arrays.stderr", f"the arithmetic of {label}"):
                    if "missing" in line:
                        console.print("arrays: left out, because NumPy is not installed")
                        return []
                    if "phase" in line:
                        status.update(f"{label}: {line['phase']}")
                    else:
                        result = line["result"]
            except Killed:
                raise TourError("memory ran out beside arrays of 128 MiB; free some, or try --no-arrays") from None
        operations = [Operation(**operation) for operation in result["operations"]]
        results.append(ArraysResult(**{**result, "operations": operations}))
        console.print(f"{label}: done", highlight=False)
    return results


def _measured(plan: Plan, at: Path, board: Board) -> Result:
    at.write_text(json.dumps(asdict(plan)), encoding="utf-8")
    command = [sys.executable, "-P", "-m", "gabion.cli.tour.measure", str(at)]
    result: dict[str, Any] = {}
    try:
        for line in _lines(command, at.with_suffix(".stderr"), f"the measurement of {LABELS[plan.store]}"):
            if "phase" in line:
                board.step(plan.store, line)
            elif "result" in line:
                result = line["result"]
            else:
                raise TourError(_too_little_memory(plan))
    except Killed:
        raise TourError(_too_little_memory(plan)) from None
    return Result(**{**result, "pauses": Pauses(**result["pauses"])})


class Killed(Exception):
    """The system ended a process: its answer to memory that is not there."""


def _lines(command: list[str], complaints: Path, what: str) -> Iterator[dict[str, Any]]:
    """What a process prints, line by line. Its last line is a result, or TourError says what it complained about."""
    with complaints.open("w+", encoding="utf-8", errors="replace") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, encoding="utf-8")
        assert process.stdout is not None
        line: dict[str, Any] = {}
        try:
            for text in process.stdout:
                line = json.loads(text)
                yield line
            process.wait()
        finally:
            process.kill()
            process.wait()
        if process.returncode == -9:
            raise Killed
        if process.returncode != 0 or "phase" in line or not line:
            stderr.seek(0)
            last = (stderr.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            raise TourError(f"{what} failed: {last}")


def _too_little_memory(plan: Plan) -> str:
    label = LABELS[plan.store]
    return f"memory ran out while {plan.objects:,} objects were kept as {label}; try --objects {plan.objects // 2}"
