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

from gabion.cli.tour import arrays, caches, images
from gabion.cli.tour.failure import TourError
from gabion.cli.tour.measure import Plan
from gabion.cli.tour.photos import Photos
from gabion.cli.tour.records import Table
from gabion.cli.tour.requests import Requests
from gabion.cli.tour.result import ArraysResult, CacheResult, Hits, ImagesResult, Operation, Pauses, Result, Saved
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
        result = _part("arrays", [memory, str(seconds)], label, folder, console, "--no-arrays")
        if result is None:
            console.print("arrays: left out, because NumPy is not installed")
            return []
        operations = [Operation(**operation) for operation in result["operations"]]
        results.append(ArraysResult(**{**result, "operations": operations}))
        console.print(f"{label}: done", highlight=False)
    return results


def run_images(photos: Photos, seconds: float, folder: Path, console: Console) -> tuple[list[ImagesResult], list[Path]]:
    """Thumbnails of these pictures, made by gabion for about `seconds`, and those of the same pictures by Pillow, if it
    is there. Also returns gabion's thumbnails."""
    results: list[ImagesResult] = []
    files = [str(file.resolve()) for file in photos.files]
    for library, label in images.LABELS.items():
        target = folder / library
        target.mkdir()
        # The second one gets what the first one came to, and as long as it takes, within reason.
        most = seconds * images.PATIENCE if results else seconds
        plan = folder / "images.json"
        plan.write_text(json.dumps(asdict(images.Plan(tuple(files), str(target), images.THREADS, most))), "utf-8")
        result = _part("images", [library, str(plan)], label, folder, console, "--no-images")
        if result is None:
            console.print(f"{label}: not installed, so nothing stands beside gabion.Image")
            break
        results.append(ImagesResult(**result))
        console.print(f"{label}: {results[-1].made:,} thumbnails in {results[-1].seconds:.2f} s", highlight=False)
        files = files[: results[0].made + len(results[0].failed)]
    return results, sorted((folder / "gabion").glob(images.NUMBERED))


def run_cache(requests: Requests, table: Table, folder: Path, console: Console) -> CacheResult:
    """Pages of the table's records in a cache, under these requests."""
    numbers, at = folder / "requests.numbers", folder / "caches.json"
    numbers.write_bytes(requests.numbers.tobytes())
    plan = caches.Plan(requests.source, str(numbers), requests.pages, table.columns, str(table.spool))
    at.write_text(json.dumps(asdict(plan)), encoding="utf-8")
    result = _part("caches", [str(at)], "gabion.Cache", folder, console, "--no-cache")
    assert result is not None, "a cache needs nothing that may be missing"
    console.print("gabion.Cache: done", highlight=False)
    return CacheResult(**{**result, "hits": [Hits(**one) for one in result["hits"]]})


def _part(
    module: str, arguments: list[str], label: str, folder: Path, console: Console, without: str
) -> dict[str, Any] | None:
    """What a part's process has found, its progress in one line meanwhile; None where it misses what it needs."""
    command = [sys.executable, "-P", "-m", f"gabion.cli.tour.{module}", *arguments]
    result: dict[str, Any] | None = None
    with console.status(f"{label}: starting") as status:
        try:
            for line in _lines(command, folder / f"{module}.stderr", f"the measurement of {label}"):
                if "phase" in line:
                    status.update(f"{label}: {line['phase']}")
                else:
                    result = line.get("result")
        except Killed:
            raise TourError(f"memory ran out while {label} was measured; free some, or try {without}") from None
    return result


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
    saved = Saved(**result["saved"]) if result["saved"] else None
    return Result(**{**result, "pauses": Pauses(**result["pauses"]), "saved": saved})


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
