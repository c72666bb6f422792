"""Thumbnails of a list of pictures by one library, in a process of its own.

`python -P -m gabion.cli.tour.images gabion|pillow PLAN` reads a JSON plan and prints JSON lines: progress, then the
result.
"""

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from gabion.cli.tour.machine import forget_peak, peak_resident_bytes, resident_bytes
from gabion.cli.tour.result import ImagesResult

LABELS = {"gabion": "gabion.Image", "pillow": "Pillow"}
SIDE = 150
QUALITY = 80
# As in a service: more threads than a desk has processors.
THREADS = max(8, os.cpu_count() or 1)
# How much longer than the first library the second one may take for the same pictures.
PATIENCE = 10.0
# Of a thumbnail's name; that of the first picture, which only warms, has no number.
NUMBERED = "[0-9]*.jpg"
PROGRESS_SECONDS = 0.1

Make = Callable[[Path, Path], None]


@dataclass(frozen=True)
class Plan:
    """What one measurement is to do; after `seconds` no other picture is begun."""

    files: tuple[str, ...]
    target: str
    threads: int
    seconds: float


def with_gabion() -> Make:
    """What a program writes to make a thumbnail with gabion."""
    import gabion

    def make(source: Path, target: Path) -> None:
        with gabion.Image.open(source, max_size=SIDE, mode="RGB", metadata=False) as image:
            image.save(target, quality=QUALITY)

    return make


def with_pillow() -> Make:
    """The same with Pillow, which decodes a JPEG smaller, too, where it is asked for a thumbnail."""
    from PIL import Image, ImageOps

    def make(source: Path, target: Path) -> None:
        with Image.open(source) as image:
            image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS, reducing_gap=2.0)
            ImageOps.exif_transpose(image, in_place=True)
            image.convert("RGB").save(target, quality=QUALITY)

    return make


LIBRARIES = {"gabion": with_gabion, "pillow": with_pillow}


class Measurement:
    """Threads that take one picture after the other from a list, until it or the time is over."""

    def __init__(self, plan: Plan, make: Make, tell: Callable[[dict[str, Any]], None]) -> None:
        self._plan, self._make, self._tell = plan, make, tell
        self._lock = threading.Lock()
        self._told = 0.0
        self._taken = self._made = self._read = 0
        self._failed: list[str] = []

    def run(self, library: str) -> ImagesResult:
        """The whole measurement."""
        plan = self._plan
        self._try(Path(plan.files[0]), Path(plan.target, "first.jpg"))  # loads what is loaded at the first use
        self._made = self._read = 0
        self._failed.clear()
        forget_peak()
        before, cpu, began = resident_bytes(), _cpu_seconds(), perf_counter()
        with ThreadPoolExecutor(plan.threads) as pool:
            work = [pool.submit(self._work, began + plan.seconds) for _ in range(plan.threads)]
        seconds, cpu, peak = perf_counter() - began, _cpu_seconds() - cpu, peak_resident_bytes()
        for one in work:
            one.result()
        return ImagesResult(
            library=library,
            made=self._made,
            failed=sorted(self._failed),
            read_bytes=self._read,
            threads=plan.threads,
            seconds=seconds,
            cpu_seconds=cpu,
            peak_bytes=max(0, peak - before),
        )

    def _work(self, end: float) -> None:
        for number in self._numbers(end):
            self._try(Path(self._plan.files[number]), Path(self._plan.target, f"{number:06}.jpg"))

    def _numbers(self, end: float) -> Iterator[int]:
        total = len(self._plan.files)
        while True:
            with self._lock:
                now = perf_counter()
                if self._taken == total or (now > end and self._taken):
                    return
                number, self._taken = self._taken, self._taken + 1
                if now - self._told > PROGRESS_SECONDS:
                    self._told = now
                    self._tell({"phase": f"{number:,} of {total:,} pictures"})
            yield number

    def _try(self, source: Path, target: Path) -> None:
        try:
            self._make(source, target)
            size = source.stat().st_size
        except Exception as error:  # a folder may hold anything, and each library has its own errors
            reason = str(error).removeprefix(f"{source}: ") or type(error).__name__
            with self._lock:
                self._failed.append(f"{source.name}: {reason}")
        else:
            with self._lock:
                self._made += 1
                self._read += size


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure what the command line names; without the library, say so."""

    def tell(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts both processes; the parent ends this one
    library = sys.argv[1]
    plan = Plan(**json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
    try:
        make = LIBRARIES[library]()
    except ImportError:
        tell({"missing": library})
        return 0
    tell({"result": asdict(Measurement(plan, make, tell).run(library))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
