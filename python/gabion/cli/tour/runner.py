"""Runs one measurement after the other, each in a fresh process, and shows how far they are."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from gabion.cli.tour.failure import TourError
from gabion.cli.tour.measure import Plan
from gabion.cli.tour.records import Table
from gabion.cli.tour.result import Pauses, Result
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


def _measured(plan: Plan, at: Path, board: Board) -> Result:
    at.write_text(json.dumps(asdict(plan)), encoding="utf-8")
    with at.with_suffix(".stderr").open("w+", encoding="utf-8", errors="replace") as complaints:
        command = [sys.executable, "-P", "-m", "gabion.cli.tour.measure", str(at)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True, encoding="utf-8")
        assert process.stdout is not None
        result: dict[str, Any] | None = None
        try:
            for line in process.stdout:
                news = json.loads(line)
                if "phase" in news:
                    board.step(plan.store, news)
                elif "result" in news:
                    result = news["result"]
                else:
                    raise TourError(_too_little_memory(plan))
            process.wait()
        finally:
            process.kill()
            process.wait()
        if result is None:
            if process.returncode == -9:  # the system's answer to memory that is not there
                raise TourError(_too_little_memory(plan))
            complaints.seek(0)
            last = (complaints.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            raise TourError(f"the measurement of {LABELS[plan.store]} failed: {last}")
    return Result(**{**result, "pauses": Pauses(**result["pauses"])})


def _too_little_memory(plan: Plan) -> str:
    label = LABELS[plan.store]
    return f"memory ran out while {plan.objects:,} objects were kept as {label}; try --objects {plan.objects // 2}"
