"""What one run of the `cache` benchmark does in Python. Functions are called by `child.py`, each in a fresh process."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

import people
from cache_peers import ABSENT, SUBJECTS, Subject
from cache_traces import requests

# Values are made in lots of this size, and only the storing of a lot is timed.
LOT = 2000
# What an entry takes beside key and value is averaged over values of 1 to so many bytes, since slots come in steps.
_METADATA_SIZES = 150
_TEXT = bytes(range(48, 123))


def _small(index: int) -> bytes:
    """75 bytes that tell the index."""
    return b"%08d" % index + _TEXT[8:]


_KINDS: dict[str, Callable[[int], Any]] = {
    "75 B": _small,
    "person": lambda index: people.DataclassPerson(*people.row(index)),
}


def _keys(count: int) -> list[str]:
    return [f"user:{index:07d}" for index in range(count)]


def _put_all(cache: Subject, keys: list[str], make: Callable[[int], Any]) -> float:
    """Store a value under each key. Return the seconds that the storing took."""
    took = 0.0
    for start in range(0, len(keys), LOT):
        lot = keys[start : start + LOT]
        values = [make(index) for index in range(start, start + len(lot))]
        began = perf_counter()
        cache.put_each(lot, values)
        took += perf_counter() - began
    return took


def speed(subject: str, value: str, count: int) -> dict:
    """Nanoseconds for a put of a new key, a get of a random key, and the same with keys that were made anew."""
    make, keys = _KINDS[value], _keys(count)
    cache = SUBJECTS[subject](2 * count, (keys[0], make(0)), True)
    took = {"put": _put_all(cache, keys, make)}
    random.Random(5).shuffle(keys)
    began = perf_counter()
    last = cache.get_each(keys)
    took["get"] = perf_counter() - began
    _check(last, keys[-1], make)
    took["get_fresh_key"] = 0.0
    for start in range(0, count, LOT):
        fresh = [_made_anew(key) for key in keys[start : start + LOT]]
        began = perf_counter()
        last = cache.get_each(fresh)
        took["get_fresh_key"] += perf_counter() - began
    _check(last, keys[-1], make)
    cache.close()
    return {"metrics": {f"time_per_{what}": [seconds / count * 1e9, "ns"] for what, seconds in took.items()}}


def _made_anew(key: str) -> str:
    """An equal text that nobody has seen, as it comes out of a request."""
    return key[:1] + key[1:]


def _check(found: Any, key: str, make: Callable[[int], Any]) -> None:
    wanted = make(int(key.removeprefix("user:")))
    if type(found) is not type(wanted) or found != wanted:
        raise AssertionError(f"{key} came back as {found!r}")


def eviction(subject: str, value: str, count: int) -> dict:
    """Nanoseconds for a put of a new key into a cache that is full, with room for a tenth of the keys."""
    make, keys = _KINDS[value], _keys(count)
    room = count // 10
    cache = SUBJECTS[subject](room, (keys[0], make(0)), True)
    cache.put_each(keys[:room], map(make, range(room)))
    took = 0.0
    for start in range(room, count, LOT):
        lot = keys[start : start + LOT]
        values = [make(index) for index in range(start, start + len(lot))]
        began = perf_counter()
        cache.put_each(lot, values)
        took += perf_counter() - began
    cache.close()
    return {"metrics": {"time_per_evicting_put": [took / (count - room) * 1e9, "ns"]}}


def threads(subject: str, value: str, count: int, threads: int) -> dict:
    """Gets of random keys and puts over random keys, on one shared cache, divided among threads; all threads' rate."""
    make, keys = _KINDS[value], _keys(count)
    cache = SUBJECTS[subject](2 * count, (keys[0], make(0)), True)
    _put_all(cache, keys, make)
    shares = []
    for place in range(threads):
        own = keys.copy()
        random.Random(place).shuffle(own)
        # Objects of the thread's own: threads that share them write to their counts of references.
        order = [_made_anew(key) for key in own[: count // threads]]
        shares.append((order, [make(index) for index in range(LOT)]))

    def get(order: list[str], values: list[Any]) -> None:
        cache.get_each(order)

    def put(order: list[str], values: list[Any]) -> None:
        for start in range(0, len(order), LOT):
            cache.put_each(order[start : start + LOT], values)

    metrics = {}
    for name, work in (("gets_per_s", get), ("puts_per_s", put)):
        done = sum(len(order) for order, _ in shares)
        metrics[name] = [done / _side_by_side(work, shares) / 1e6, "M/s"]
    cache.close()
    return {"metrics": metrics}


def _side_by_side(work: Callable[..., None], shares: list[tuple[Any, ...]]) -> float:
    """Seconds from the first thread's start to the last one's end."""
    spans: list[tuple[float, float]] = []
    barrier = threading.Barrier(len(shares))

    def run(*share: Any) -> None:
        barrier.wait()
        began = perf_counter()
        work(*share)
        spans.append((began, perf_counter()))

    workers = [threading.Thread(target=run, args=share) for share in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if len(spans) != len(shares):
        raise AssertionError("a thread failed")
    return max(end for _, end in spans) - min(start for start, _ in spans)


def hit_rate(subject: str, trace: str, entries: int, most: int | None = None) -> dict:
    """The share of a trace's requests that are answered by a cache with room for that many entries."""
    asked = requests(trace, most)
    cache = SUBJECTS[subject](entries, (asked[0], asked[0]), False)
    # Of generated requests, those that fill the cache do not count.
    counted_from = len(asked) // 2 if trace.startswith("zipf") else 0
    _through(cache, asked[:counted_from])
    counted = asked[counted_from:]
    hits = _through(cache, counted)
    cache.close()
    return {"metrics": {"hit_rate": [100 * hits / len(counted), "%"]}}


def _through(cache: Subject, keys: Iterable[int]) -> int:
    look, keep, hits = cache.look, cache.keep, 0
    for key in keys:
        if look(key) is ABSENT:
            keep(key, key)
        else:
            hits += 1
    return hits


def limit(seconds: float, mib: int) -> dict:
    """How far the bytes of a cache are over its limit, ever, while threads put values of all sizes and priorities."""
    import gabion

    cache = gabion.Cache(mib << 20)
    table = cache.table("part", max_bytes=(mib << 20) // 4)
    over, table_over, looked, puts = 0, 0, 0, [0, 0, 0]
    end = time.monotonic() + seconds

    def put(place: int) -> None:
        chance = random.Random(place)
        while time.monotonic() < end:
            for _ in range(100):
                target = table if chance.random() < 0.3 else cache
                size = int(2 ** chance.uniform(0, 16))
                target.put(chance.randrange(1 << 20), bytes(size), ttl=chance.uniform(0.01, 60), priority=place % 2)
                puts[place] += 1

    workers = [threading.Thread(target=put, args=(place,)) for place in range(len(puts))]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        stats = cache.stats()
        over = max(over, stats.bytes - stats.max_bytes, stats.reserved_bytes - stats.max_bytes)
        part = table.stats()
        table_over = max(table_over, part.bytes - part.max_bytes)
        looked += 1
    cache.validate()
    return {
        "metrics": {
            "bytes_over_limit": [over, "B"],
            "bytes_over_table_limit": [table_over, "B"],
            "index_per_entry": [_index_per_entry(mib), "B"],
            "metadata_per_entry": [_metadata_per_entry(), "B"],
            "puts": [sum(puts), "calls"],
            "looks": [looked, "calls"],
        }
    }


def _index_per_entry(mib: int) -> float:
    """Bytes of the index for each entry of a full cache."""
    import gabion

    with gabion.Cache(mib << 20) as cache:
        number = 0
        while cache.stats().evicted == 0:
            cache.put_many((key, _small(key)) for key in range(number, number + 1000))
            number += 1000
        stats = cache.stats()
        return stats.index_bytes / stats.entries


def _metadata_per_entry() -> float:
    """Bytes that an entry is charged beyond its key and its value as they are stored, over values of many sizes."""
    import gabion

    metadata = []
    with gabion.Cache(64 << 20) as cache, gabion.Pile() as pile:
        # An ASCII text is a key as it stands; what a pile stores of an object is its encoding, without any header.
        for key, size in zip(_keys(_METADATA_SIZES), range(1, _METADATA_SIZES + 1)):
            value = bytes(size)
            cache[key] = value
            metadata.append(cache.size_of(key) - len(key) - pile.size_of(pile.put(value)))
    return sum(metadata) / len(metadata)
