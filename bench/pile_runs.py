"""The runs of the `pile` benchmark, each in its own process; see ``pile.py`` for what is compared with what."""

from __future__ import annotations

import gc
import os
import random
import tempfile
import threading
from array import array
from time import perf_counter, perf_counter_ns

import machine
import people
from peers import adapter

# Objects that exist at the same time while a store is filled: enough to amortise the clock, few enough for the cache.
CHUNK = 2_000
# Gets between two looks at the clock; the last object of each is compared with what was stored.
GETS = 1_000
# Largest payload of the churn rows, and how many times over every object is replaced.
LARGEST = 1_000
# Churn steps between two draws of random targets.
STEPS = 20_000
# Steps that took longer are noted; shorter ones are no pause.
NOTED_NS = 50_000
TIMES_OVER = 48


def _empty_keys(count: int) -> array:
    """Room for ``count`` keys that is already resident, so that keys never show in a store's growth."""
    keys = array("Q", bytes(8 * count))
    keys[:] = array("Q", range(count))
    return keys


def _warm_up(kind: type) -> None:
    """Let the interpreter's free lists and arenas grow to what one chunk needs before memory is read."""
    for _ in range(3):
        list(people.people(kind, 0, CHUNK))
    gc.collect()


def _shuffled(keys: array) -> tuple[array, array]:
    """``keys`` in random order, and the index of each."""
    order = list(range(len(keys)))
    random.Random(7).shuffle(order)
    return array("Q", map(keys.__getitem__, order)), array("Q", order)


def _fill(store, kind: type, keys: array) -> float:
    """Put one person for each key; return the seconds that the puts took."""
    seconds = 0.0
    for start in range(0, len(keys), CHUNK):
        objects = list(people.people(kind, start, min(start + CHUNK, len(keys))))
        kept: list[int] = []
        began = perf_counter()
        store.put_each(objects, kept.append)
        seconds += perf_counter() - began
        keys[start : start + len(kept)] = array("Q", kept)
    return seconds


def _read(store, kind: type, keys: array) -> float:
    """Get every key in random order, check one in ``GETS``; return the seconds that the gets took."""
    seconds = 0.0
    keys, order = _shuffled(keys)
    for start in range(0, len(keys), GETS):
        part = keys[start : start + GETS]
        began = perf_counter()
        last = store.get_each(part)
        seconds += perf_counter() - began
        if store.stores:
            people.check(last, kind, order[start + len(part) - 1])
    return seconds


def store(subject: str, kind: str, count: int) -> dict:
    """Put ``count`` people, get them all in random order, and weigh the store."""
    peer = adapter(subject)
    cls = peer.kind_for(people.KINDS[kind])
    _warm_up(cls)
    keys = _empty_keys(count)
    before = machine.resident_bytes()
    held = peer(cls, count)
    put_seconds = _fill(held, cls, keys)
    gc.collect()
    grown = machine.resident_bytes() - before + held.outside_bytes()
    if not held.stores:
        keys = array("Q", range(0, 72 * count, 72))
    get_seconds = _read(held, cls, keys)
    metrics = {"put_per_s": [count / put_seconds, "1/s"], "get_per_s": [count / get_seconds, "1/s"]}
    if held.stores:
        metrics["bytes_per_object"] = [grown / count, "B"]
        if not held.keys_inside:
            metrics["bytes_per_object_with_pointers"] = [grown / count + keys.itemsize, "B"]
    held.close()
    return {"metrics": metrics}


def in_file(subject: str, count: int) -> dict:
    """Put ``count`` people into a file, wait for the disk, open it anew, and get them all in random order."""
    cls = people.KINDS["dataclass"]
    _warm_up(cls)
    keys = _empty_keys(count)
    held = adapter(subject)(cls, count)
    put_seconds = _fill(held, cls, keys)
    began = perf_counter()
    held.flush()
    flush_seconds = perf_counter() - began
    held.shut()
    began = perf_counter()
    held.open()
    open_seconds = perf_counter() - began
    get_seconds = _read(held, cls, keys)
    metrics = {
        "put_per_s": [count / put_seconds, "1/s"],
        "get_per_s": [count / get_seconds, "1/s"],
        "flush": [1e3 * flush_seconds, "ms"],
        "open": [1e3 * open_seconds, "ms"],
        "disk_bytes_per_object": [held.disk_bytes() / count, "B"],
    }
    held.close()
    return {"metrics": metrics}


def saved(subject: str, count: int) -> dict:
    """Put ``count`` people into memory, save them to a file, load that, and get them all in random order."""
    cls = people.KINDS["dataclass"]
    _warm_up(cls)
    keys = _empty_keys(count)
    held = adapter(subject)(cls, count)
    _fill(held, cls, keys)
    with tempfile.TemporaryDirectory(prefix="bench-saved-") as folder:
        path = os.path.join(folder, "people")
        began = perf_counter()
        held.save(path)
        save_seconds = perf_counter() - began
        disk_bytes = os.stat(path).st_blocks * 512
        held.close()
        held = adapter(subject)(cls, count)
        gc.collect()
        began = perf_counter()
        held.load(path)
        load_seconds = perf_counter() - began
        get_seconds = _read(held, cls, keys)
        held.close()
    metrics = {
        "save": [1e3 * save_seconds, "ms"],
        "load": [1e3 * load_seconds, "ms"],
        "get_per_s": [count / get_seconds, "1/s"],
        "disk_bytes_per_object": [disk_bytes / count, "B"],
    }
    return {"metrics": metrics}


class _Copies:
    """A dict of arrays that are copied in and out."""

    def __init__(self):
        self.data = {}

    def put(self, array):
        key = len(self.data)
        self.data[key] = array.copy()
        return key

    def get(self, key):
        return self.data[key].copy()


def arrays(subject: str, size: int, count: int) -> dict:
    """Put ``count`` arrays of ``size`` floats, and get all of them in random order."""
    import numpy

    import gabion

    held = {"gabion": gabion.Pile, "pickles": _PickledBytes, "copies": _Copies}[subject]()
    made = [numpy.full(size, float(number)) for number in range(min(count, 64))]
    began = perf_counter()
    keys = [held.put(made[number % len(made)]) for number in range(count)]
    put_seconds = perf_counter() - began
    order = random.Random(7).sample(range(count), count)
    began = perf_counter()
    for number in order:
        found = held.get(keys[number])
        if found[-1] != number % len(made):
            raise AssertionError(f"array {number} came back as another")
    get_seconds = perf_counter() - began
    return {"metrics": {"put_per_s": [count / put_seconds, "1/s"], "get_per_s": [count / get_seconds, "1/s"]}}


def batches(count: int) -> dict:
    """The same objects through single calls and through ``put_many`` / ``get_many``, list for list."""
    import gabion

    cls = people.KINDS["dataclass"]
    _warm_up(cls)
    seconds = dict.fromkeys(("put", "put_many", "get", "get_many"), 0.0)
    single, many = gabion.Pile(), gabion.Pile()
    single_keys, many_keys = array("Q"), array("Q")
    for start in range(0, count, CHUNK):
        objects = list(people.people(cls, start, min(start + CHUNK, count)))
        put, kept = single.put, array("Q")
        began = perf_counter()
        for obj in objects:
            kept.append(put(obj))
        between = perf_counter()
        batch = many.put_many(objects)
        ended = perf_counter()
        seconds["put"] += between - began
        seconds["put_many"] += ended - between
        single_keys.extend(kept)
        many_keys.extend(batch)
    (single_keys, order), (many_keys, _) = _shuffled(single_keys), _shuffled(many_keys)
    for start in range(0, count, GETS):
        get, singles, batch = single.get, single_keys[start : start + GETS], many_keys[start : start + GETS]
        began = perf_counter()
        found = [get(key) for key in singles]
        between = perf_counter()
        found_many = many.get_many(batch)
        ended = perf_counter()
        seconds["get"] += between - began
        seconds["get_many"] += ended - between
        for answer in (found, found_many):
            people.check(answer[-1], cls, order[start + len(singles) - 1])
        del found, found_many, answer
    return {"metrics": {f"{name}_per_s": [count / spent, "1/s"] for name, spent in seconds.items()}}


class _PickledBytes:
    """A dict of pickled bytes with the calls that the churn uses."""

    def __init__(self):
        from pickle import dumps, loads

        self.data, self.dumps, self.loads, self.next = {}, dumps, loads, 0

    def put(self, obj):
        key = self.next = self.next + 1
        self.data[key] = self.dumps(obj, 5)
        return key

    def replace(self, key, obj):
        self.data[key] = self.dumps(obj, 5)

    def remove(self, key):
        del self.data[key]

    def get(self, key):
        return self.loads(self.data[key])


class _Nothing:
    """The floor of the churn: the same loop around calls that do nothing."""

    def put(self, obj):
        return 1

    def replace(self, key, obj):
        pass

    def remove(self, key):
        pass


def _churn_store(subject: str):
    if subject == "gabion":
        import gabion

        return gabion.Pile()
    return {"pickles": _PickledBytes, "floor": _Nothing}[subject]()


def _replace_each(held, keys: array, sizes: array, targets: array, payloads: list, new: array) -> list[int]:
    """Replace each target by a payload of the new size; return the steps over ``NOTED_NS``."""
    replace, clock, noted = held.replace, perf_counter_ns, []
    then = clock()
    for target, size in zip(targets, new):
        replace(keys[target], payloads[size])
        now = clock()
        if now - then > NOTED_NS:
            noted.append(now - then)
        then = now
        sizes[target] = size
    return noted


def _remove_and_put_each(held, keys: array, sizes: array, targets: array, payloads: list, new: array) -> list[int]:
    """Remove each target and put a payload of the new size; return the steps over ``NOTED_NS``."""
    remove, put, clock, noted = held.remove, held.put, perf_counter_ns, []
    then = clock()
    for target, size in zip(targets, new):
        remove(keys[target])
        keys[target] = put(payloads[size])
        now = clock()
        if now - then > NOTED_NS:
            noted.append(now - then)
        then = now
        sizes[target] = size
    return noted


def churn(subject: str, way: str, count: int) -> dict:
    """Replace a random object ``TIMES_OVER * count`` times by bytes of 2 to ``LARGEST`` B; watch memory and steps."""
    steps = {"replace": _replace_each, "remove + put": _remove_and_put_each}[way]
    chance = random.Random(11)
    # The payload of each size begins with the size, so that an answer tells which one it is.
    payloads = [size.to_bytes(2, "little")[:size] + chance.randbytes(max(size - 2, 0)) for size in range(LARGEST + 1)]
    keys, sizes = _empty_keys(count), _empty_keys(count)
    _draw(chance, count, STEPS)
    before = machine.resident_bytes()
    held = _churn_store(subject)
    for index in range(count):
        sizes[index] = size = chance.randint(2, LARGEST)
        keys[index] = held.put(payloads[size])
    live_at_start = sum(sizes)
    start, start_reserved = machine.resident_bytes() - before, _reserved(held)
    noted, seconds, done = [], 0.0, 0
    while done < TIMES_OVER * count:
        targets, new = _draw(chance, count, min(STEPS, TIMES_OVER * count - done))
        began = perf_counter()
        noted += steps(held, keys, sizes, targets, payloads, new)
        seconds += perf_counter() - began
        done += len(targets)
    metrics = {
        f"{way.replace(' + ', '_')}_per_s": [done / seconds, "1/s"],
        "longest_op": [max(noted, default=NOTED_NS) / 1e6, "ms"],
        "ops_over_1_ms": [sum(step > 1e6 for step in noted), "count"],
    }
    if subject != "floor":
        # What chance itself adds or takes away is not the store's doing: memory is compared per live byte.
        drift = sum(sizes) / live_at_start
        metrics["memory_vs_start"] = [(machine.resident_bytes() - before) / start / drift, "ratio"]
        for index in chance.sample(range(count), min(count, 10_000)):
            if held.get(keys[index]) != payloads[sizes[index]]:
                raise AssertionError(f"object {index} came back different after churn")
    if subject == "gabion":
        stats = held.stats()
        held.close()
        metrics["reserved_vs_start"] = [stats.reserved_bytes / start_reserved / drift, "ratio"]
        metrics["used_share"] = [stats.used_bytes / stats.reserved_bytes, "ratio"]
    return {"metrics": metrics}


def _draw(chance: random.Random, count: int, steps: int) -> tuple[array, array]:
    """Random targets among ``count`` objects, and a random new size for each."""
    targets = array("Q", (int(chance.random() * count) for _ in range(steps)))
    return targets, array("Q", (2 + int(chance.random() * (LARGEST - 1)) for _ in range(steps)))


def _reserved(held) -> int:
    return held.stats().reserved_bytes if hasattr(held, "stats") else 0


def threads(subject: str, count: int, threads: int) -> dict:
    """``count`` puts and ``count`` random gets on one shared store, divided among ``threads`` threads.

    Each thread puts its own objects over and over, as threads that serve their own requests do, and gets pointers from
    the whole store.
    """
    cls = people.KINDS["dataclass"]
    held = adapter(subject)(cls, count)
    share = count // threads // CHUNK * CHUNK
    barrier = threading.Barrier(threads + 1)
    parts = [_empty_keys(share) for _ in range(threads)]
    wrong: list[BaseException] = []
    orders: list[array] = [array("Q")] * threads
    spans: dict[str, list[tuple[float, float]]] = {"put": [], "get": []}

    def work(place: int) -> None:
        try:
            objects = list(people.people(cls, place * CHUNK, (place + 1) * CHUNK))
            local = parts[place]
            barrier.wait()
            began = perf_counter()
            for start in range(0, share, CHUNK):
                kept = array("Q")
                held.put_each(objects, kept.append)
                local[start : start + CHUNK] = kept
            spans["put"].append((began, perf_counter()))
            barrier.wait()
            barrier.wait()
            keys = orders[place]
            began = perf_counter()
            last = held.get_each(keys)
            spans["get"].append((began, perf_counter()))
            if held.stores:
                people.check(last, cls, last.id - people.FIRST_ID)
        except BaseException as error:
            wrong.append(error)
            barrier.abort()

    workers = [threading.Thread(target=work, args=(place,)) for place in range(threads)]
    for worker in workers:
        worker.start()
    try:
        barrier.wait()
        barrier.wait()
        everything = array("Q")
        for part in parts:
            everything.extend(part)
        if not held.stores:
            everything = array("Q", range(0, 72 * share * threads, 72))
        everything, _ = _shuffled(everything)
        for place in range(threads):
            orders[place] = everything[place * share : (place + 1) * share]
        barrier.wait()
    except threading.BrokenBarrierError:
        raise wrong[0] from None
    for worker in workers:
        worker.join()
    if wrong:
        raise wrong[0]
    done = share * threads
    return {"metrics": {f"{phase}_per_s": [done / _lasted(times), "1/s"] for phase, times in spans.items()}}


def _lasted(spans: list[tuple[float, float]]) -> float:
    """From the first thread's start to the last thread's end."""
    return max(end for _, end in spans) - min(start for start, _ in spans)
