"""A cache of pages under a series of requests, in a process of its own.

`python -P -m gabion.cli.tour.caches PLAN` reads a JSON plan and prints JSON lines: progress, then the result.
"""

import json
import signal
import sys
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from html import escape
from itertools import islice
from math import ceil
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal

from gabion import Cache
from gabion.cli.tour.records import Row, endless
from gabion.cli.tour.result import CacheResult, Hits

# Limits, as parts of the bytes that all pages take; the one that is looked at while threads put.
PARTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2)
WATCHED_PART = 1 / 8
LEAST_LIMIT = 4 << 10  # of any cache
POLICIES: dict[Literal["default", "lru"], str] = {"default": "recency and frequency", "lru": "exact LRU"}
THREADS = 4
FILLED_POINTS = 200
HITS_TIMED = 5_000
ASKERS, ASKED = 16, 100
# What stands for the work that a page is.
MAKING_SECONDS = 0.001


@dataclass(frozen=True)
class Plan:
    """What the measurement is to do. `numbers` is a file of 32-bit numbers of pages."""

    source: str
    numbers: str
    pages: int
    columns: tuple[str, ...]
    spool: str


def rendered(columns: Sequence[str], row: Row) -> str:
    """A record as a page that a server would send."""
    cells = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in zip(columns, row)
    )
    return f"<!doctype html><title>{escape(str(row[0]))}</title><table>{cells}</table>"


class Measurement:
    """The same requests to caches with several limits; each answer is compared with the page that it must be."""

    def __init__(self, plan: Plan, tell: Callable[[dict[str, Any]], None]) -> None:
        self._plan, self._tell = plan, tell
        rows = islice(endless(Path(plan.spool)), plan.pages)
        # Pages of a small table get blanks at the end, so that the smallest part of them is a limit that a cache takes.
        shortest = ceil(LEAST_LIMIT / min(PARTS) / max(1, plan.pages))
        self._pages = [rendered(plan.columns, row).ljust(shortest) for row in rows]
        self._keys = [f"/page/{number}" for number in range(plan.pages)]
        self._numbers = array("I", Path(plan.numbers).read_bytes())

    def run(self) -> CacheResult:
        """The whole measurement."""
        whole = Cache("64 GiB")
        for key, page in zip(self._keys, self._pages):
            whole.put(key, page)
        all_bytes = whole.stats().bytes
        hit_us = self._hit_us(whole)
        whole.close()
        hits = []
        for part in PARTS:
            self._tell({"phase": f"{len(self._numbers):,} requests, room for 1/{1 / part:.0f} of the pages"})
            limit = round(all_bytes * part)
            hits += [Hits(policy, limit, part, self._hit_rate(limit, policy)) for policy in POLICIES]
        self._tell({"phase": f"the limit, looked at by {THREADS} threads"})
        limit = round(all_bytes * WATCHED_PART)
        seen = self._watched(limit)
        self._tell({"phase": f"{ASKERS} threads ask for the same pages"})
        return CacheResult(
            source=self._plan.source,
            requests=len(self._numbers),
            pages=self._plan.pages,
            all_bytes=all_bytes,
            hits=hits,
            hit_us=hit_us,
            threads=THREADS,
            limit_bytes=limit,
            looks=sum(map(len, seen)),
            above=sum(size > limit for sizes in seen for size in sizes),
            most_bytes=max(max(sizes, default=0) for sizes in seen),
            filled=evenly(seen[0], FILLED_POINTS),
            askers=ASKERS,
            asked=ASKED,
            made=made_by_cache(),
            made_with_dict=made_around_dict(),
        )

    def _hit_us(self, cache: Cache) -> float:
        times = []
        for number in self._numbers[:HITS_TIMED]:
            key = self._keys[number]
            began = perf_counter()
            cache.get(key)
            times.append(perf_counter() - began)
        return median(times) * 1e6

    def _hit_rate(self, limit: int, policy: Literal["default", "lru"]) -> float:
        with Cache(limit, policy=policy) as cache:
            self._answer(cache, self._numbers, lambda: None)
            stats = cache.stats()
        return stats.hits / (stats.hits + stats.misses)

    def _answer(self, cache: Cache, numbers: Sequence[int], after_put: Callable[[], None]) -> None:
        """Get each page, and put it where it is not there."""
        keys, pages, get, put = self._keys, self._pages, cache.get, cache.put
        for number in numbers:
            page = get(keys[number])
            if page is None:
                put(keys[number], pages[number])
                after_put()
            elif page != pages[number]:
                raise AssertionError(f"the cache gave a wrong page for {keys[number]}: {page!r}")

    def _watched(self, limit: int) -> "list[array[int]]":
        """Threads share the requests, and each looks at the cache's bytes after every put. What each has seen."""
        seen = [array("Q") for _ in range(THREADS)]
        with Cache(limit) as cache:

            def work(place: int) -> None:
                def look() -> None:
                    seen[place].append(cache.stats().bytes)

                self._answer(cache, self._numbers[place::THREADS], look)

            run_together(THREADS, work)
        return seen


def evenly(values: Sequence[int], most: int) -> list[int]:
    """At most `most` of the values, in equal steps, the last one among them."""
    points = min(most, len(values))
    return [values[(number + 1) * len(values) // points - 1] for number in range(points)]


def made_by_cache() -> int:
    """How often pages are made when threads ask a cache for the same ones at one moment."""
    with Cache("64 MiB") as cache:
        return _made(lambda key, make: cache.get_or_put(key, make))


def made_around_dict() -> int:
    """The same around a dict, as it is often written."""
    kept: dict[str, str] = {}

    def ask(key: str, make: Callable[[], str]) -> str:
        if key not in kept:
            kept[key] = make()
        return kept[key]

    return _made(ask)


def _made(ask: Callable[[str, Callable[[], str]], str]) -> int:
    calls: list[str] = []  # an append is one step in every interpreter

    def work(_: int) -> None:
        for number in range(ASKED):
            key = f"/new/{number}"

            def make(key: str = key) -> str:
                calls.append(key)
                time.sleep(MAKING_SECONDS)
                return key

            if ask(key, make) != key:
                raise AssertionError(f"a wrong page for {key}")

    run_together(ASKERS, work)
    return len(calls)


def run_together(threads: int, work: Callable[[int], None]) -> None:
    """Run `work` with each number below `threads`, each in a thread of its own, all begun at one moment."""
    ready = threading.Barrier(threads)

    def begin(place: int) -> None:
        ready.wait()
        work(place)

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(begin, place) for place in range(threads)]:
            done.result()


def main() -> int:
    """Run the plan that the command line names."""

    def tell(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts both processes; the parent ends this one
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    tell({"result": asdict(Measurement(plan, tell).run())})
    return 0


if __name__ == "__main__":
    sys.exit(main())
