"""One store's measurement, in a process of its own so that each begins with a fresh heap.

`python -P -m gabion.cli.tour.measure PLAN` reads a JSON plan and prints JSON lines: progress, then the result.
"""

import gc
import json
import os
import random
import signal
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any

from gabion.cli.tour.machine import resident_bytes
from gabion.cli.tour.records import endless, record_class
from gabion.cli.tour.result import Pauses, Result, Saved
from gabion.cli.tour.stores import STORES, PileStore

# A request: this many new objects are made, then kept.
BATCH = 5_000
REPLACED_SHARE = 0.6
MOST_GETS = 200_000
PROGRESS_SECONDS = 0.1


@dataclass(frozen=True)
class Plan:
    """What one measurement is to do."""

    store: str
    objects: int
    seed: int
    columns: tuple[str, ...]
    spool: str


class PauseClock:
    """Times every run of the collector until `stop`; figures go into arrays, which the collector does not walk."""

    def __init__(self) -> None:
        self.start = self._began = perf_counter()
        self._at, self._ms = array("d"), array("d")
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        now = perf_counter()
        if phase == "start":
            self._began = now
        else:
            self._at.append(self._began - self.start)
            self._ms.append((now - self._began) * 1000)

    def longest(self) -> float:
        """Milliseconds of the longest pause so far."""
        return max(self._ms, default=0.0)

    def stop(self) -> Pauses:
        """Every pause, and the time from the start to now."""
        gc.callbacks.remove(self._note)
        return Pauses(self._at.tolist(), self._ms.tolist(), perf_counter() - self.start)


class Measurement:
    """Puts, gets, replacements, each timed by the batch; making and checking the objects is not timed."""

    def __init__(self, plan: Plan, tell: Callable[[dict[str, Any]], None]) -> None:
        self._plan, self._tell = plan, tell
        self._chance = random.Random(plan.seed)
        self._rows = endless(Path(plan.spool))
        self._class = record_class(plan.columns)
        fields = attrgetter(*plan.columns)
        self._fields = fields if len(plan.columns) > 1 else lambda one: (fields(one),)
        # What each object must be when it comes back; made first, so that it is no part of the growth.
        self._sums = array("q", bytes(8 * plan.objects))
        self._steps = plan.objects + min(plan.objects, MOST_GETS) + self._replacements()
        self._done, self._told = 0, 0.0

    def run(self) -> Result:
        """The whole measurement."""
        plan = self._plan
        self._make(min(plan.objects, BATCH))  # what the first batch leaves behind belongs to the empty process
        gc.collect()
        empty = resident_bytes()
        store = STORES[plan.store]()
        clock = PauseClock()
        put = self._timed("putting", plan.objects, clock, lambda n: self._put(store, n))
        full = resident_bytes()
        gets = min(plan.objects, MOST_GETS)
        get = self._timed("getting", gets, clock, lambda n: self._get(store, n))
        replace = self._timed("replacing", self._replacements(), clock, lambda n: self._replace(store, n))
        pauses, after = clock.stop(), resident_bytes()
        self._get(store, min(plan.objects, BATCH))
        began = perf_counter()
        gc.collect()
        collected = perf_counter() - began
        return Result(
            store=plan.store,
            objects=plan.objects,
            replaced=self._replacements(),
            put_per_s=put,
            get_per_s=get,
            replace_per_s=replace,
            bytes_per_object=(full - empty) / plan.objects,
            bytes_per_object_after=(after - empty) / plan.objects,
            collect_ms=collected * 1000,
            pauses=pauses,
            saved=self._save(store) if isinstance(store, PileStore) else None,
        )

    def _save(self, store: PileStore) -> Saved | None:
        """Save the pile, open the file, and look at some of what is there; not where the disk has no room for it."""
        path = Path(self._plan.spool).with_name("saved.pile")
        began = perf_counter()
        try:
            store.save(path)
        except OSError:
            return None
        saved = perf_counter()
        opened = store.opened(path, self._class)
        ready = perf_counter()
        self._get(opened, min(self._plan.objects, BATCH))
        opened.close()
        taken = path.stat().st_blocks * 512
        path.unlink()
        return Saved(taken, (saved - began) * 1000, (ready - saved) * 1000)

    def _replacements(self) -> int:
        return round(self._plan.objects * REPLACED_SHARE)

    def _timed(self, phase: str, count: int, clock: PauseClock, batch: Callable[[int], float]) -> float:
        """Do `count` operations in batches, and return how many a second that was."""
        seconds = 0.0
        for at in range(0, count, BATCH):
            size = min(BATCH, count - at)
            seconds += batch(size)
            self._done += size
            if perf_counter() - self._told > PROGRESS_SECONDS or self._done == self._steps:
                self._told = perf_counter()
                part = self._done / self._steps
                self._tell({"phase": phase, "part": part, "longest_ms": clock.longest()})
        return count / seconds if seconds else 0.0

    def _put(self, store: Any, count: int) -> float:
        objects = self._make(count)
        self._note_sums(range(self._done, self._done + count), objects)
        began = perf_counter()
        store.put(objects)
        return perf_counter() - began

    def _get(self, store: Any, count: int) -> float:
        numbers = self._chance.sample(range(self._plan.objects), count)
        began = perf_counter()
        objects = store.get(numbers)
        seconds = perf_counter() - began
        for number, one in zip(numbers, objects, strict=True):
            if type(one) is not self._class or self._sum(one) != self._sums[number]:
                raise AssertionError(f"{self._plan.store} gave a wrong object back for number {number}: {one!r}")
        return seconds

    def _replace(self, store: Any, count: int) -> float:
        numbers = self._chance.sample(range(self._plan.objects), count)
        objects = self._make(count)
        self._note_sums(numbers, objects)
        began = perf_counter()
        store.replace(numbers, objects)
        return perf_counter() - began

    def _make(self, count: int) -> list[Any]:
        make = self._class
        return [make(*row) for row in islice(self._rows, count)]

    def _note_sums(self, numbers: Sequence[int], objects: Sequence[Any]) -> None:
        for number, one in zip(numbers, objects, strict=True):
            self._sums[number] = self._sum(one)

    def _sum(self, one: Any) -> int:
        values = self._fields(one)
        try:
            return hash(values)
        except TypeError:  # a list or dict from JSON
            return hash(repr(values))


def main() -> int:
    """Run the plan that the command line names; a failure is told as a line of its own."""

    def tell(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts both processes; the parent ends this one
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    try:
        result = Measurement(plan, tell).run()
    except MemoryError:
        tell({"error": "memory"})
        return 1
    tell({"result": asdict(result)})
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # freeing millions of objects one by one would only take time
