"""The runs of the `gc` benchmark, each in its own process; see ``gc_pauses.py`` for what is compared with what."""

from __future__ import annotations

import gc
import mmap
import random
import statistics
from array import array
from collections import deque
from time import perf_counter

import machine
import people

# One request: that many objects are made, then put over as many random old ones.
BATCH = 5_000
# Plain objects that each request makes, and how many of the latest stay alive: traffic that the store never sees.
TRAFFIC, TRAFFIC_ALIVE = 1_000, 5_000
KIND = people.DataclassPerson
CHECKED = 1_000
# Different people of the scale row: few, because they are native objects that the collector walks; and how many puts
# make one reading of the rate.
SCALE_PEOPLE, SCALE_WINDOW = 10_000, 1_000_000
# Bytes that a person fills in a pile, for the floor of the scale row.
SCALE_BYTES = 68
# Pauses handed to the picture.
SHOWN = 400


class Nothing:
    """The empty process: the same requests, and nowhere to put their objects."""

    def __init__(self, count):
        pass

    def fill(self, start, objects):
        pass

    def replace(self, targets, objects):
        pass

    def get(self, index):
        return None


class Native(Nothing):
    """A list of the objects themselves."""

    def __init__(self, count):
        self.objects = []

    def fill(self, start, objects):
        self.objects.extend(objects)

    def replace(self, targets, objects):
        held = self.objects
        for target, obj in zip(targets, objects):
            held[target] = obj

    def get(self, index):
        return self.objects[index]


class Pickles(Nothing):
    """A dict of pickles."""

    def __init__(self, count):
        import pickle

        self.data, self.dumps, self.loads = {}, pickle.dumps, pickle.loads

    def fill(self, start, objects):
        self.replace(range(start, start + len(objects)), objects)

    def replace(self, targets, objects):
        data, dumps = self.data, self.dumps
        for target, obj in zip(targets, objects):
            data[target] = dumps(obj, 5)

    def get(self, index):
        return self.loads(self.data[index])


class Piled(Nothing):
    """A Pile, its pointers in an ``array('Q')``."""

    def __init__(self, count):
        import gabion

        self.pile, self.pointers = gabion.Pile(), array("Q", bytes(8 * count))

    def fill(self, start, objects):
        self.pointers[start : start + len(objects)] = self.pile.put_many(objects)

    def replace(self, targets, objects):
        pointers, replace = self.pointers, self.pile.replace
        for target, obj in zip(targets, objects):
            replace(pointers[target], obj)

    def get(self, index):
        return self.pile.get(self.pointers[index])


HOLDERS = {"empty": Nothing, "native": Native, "pickles": Pickles, "gabion": Piled}


class Pauses:
    """Every automatic collection while it is the context: when it began, its generation, how long it took."""

    def __enter__(self):
        self.seen: list[tuple[float, int, float]] = []
        self.origin = perf_counter()
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_):
        gc.callbacks.remove(self._note)

    def _note(self, phase, info):
        if phase == "start":
            self.began = perf_counter()
        else:
            self.seen.append((self.began - self.origin, info["generation"], perf_counter() - self.began))

    def longest(self) -> float:
        """Seconds of the longest pause, 0 when none started."""
        return max((pause for _, _, pause in self.seen), default=0.0)


def _fill(holder: Nothing, count: int) -> None:
    for start in range(0, count, BATCH):
        holder.fill(start, list(people.people(KIND, start, min(start + BATCH, count))))


def _collect_ms(times: int) -> float:
    spent = []
    for _ in range(times):
        began = perf_counter()
        gc.collect()
        spent.append(perf_counter() - began)
    return statistics.median(spent) * 1e3


def hold(subject: str, count: int, batches: int, collects: int) -> dict:
    """Hold ``count`` objects, serve ``batches`` requests beside them, and report what the collector did."""
    before = machine.resident_bytes()
    holder = HOLDERS[subject](count)
    if subject != "empty":
        _fill(holder, count)
    fresh = _collect_ms(collects)
    grown = machine.resident_bytes() - before
    chance = random.Random(17)
    alive: deque = deque(maxlen=TRAFFIC_ALIVE)
    last_put: dict[int, int] = {}
    slowest = 0.0
    following = count
    with Pauses() as pauses:
        for _ in range(batches):
            targets = array("Q", (int(chance.random() * count) for _ in range(BATCH)))
            began = perf_counter()
            alive.extend([index, {"request": index}] for index in range(TRAFFIC))
            objects = list(people.people(KIND, following, following + BATCH))
            holder.replace(targets, objects)
            slowest = max(slowest, perf_counter() - began)
            for place, target in enumerate(targets):
                if target < CHECKED:
                    last_put[target] = following + place
            following += BATCH
            del objects
        lasted = perf_counter() - pauses.origin
    after = _collect_ms(collects)
    if subject != "empty":
        for index in range(min(CHECKED, count)):
            people.check(holder.get(index), KIND, last_put.get(index, index))
    shown = sorted(sorted(pauses.seen, key=lambda pause: -pause[2])[:SHOWN])
    metrics = {
        "longest_pause": [pauses.longest() * 1e3, "ms"],
        "collect": [after, "ms"],
        "collect_fresh": [fresh, "ms"],
        "gc_share": [sum(pause for _, _, pause in pauses.seen) / lasted, "ratio"],
        "collections": [len(pauses.seen), "count"],
        "slowest_request": [slowest * 1e3, "ms"],
        "replaced_per_s": [batches * BATCH / lasted, "1/s"],
    }
    if subject != "empty":
        metrics["bytes_per_object"] = [grown / count, "B"]
    return {"metrics": metrics, "lasted": lasted, "pauses": shown}


def scale(limit: int) -> dict:
    """Put people into one Pile until the process holds ``limit`` bytes; compare the last puts with the first.

    Only the puts are timed. Making hundreds of millions of people would take most of the run, so ``SCALE_PEOPLE`` are
    made and put again and again, each time under a new id; the pile keeps a full copy of every one. One pointer in a
    thousand is kept, to check the answers.
    """
    import gabion

    kept = array("Q")
    rates: list[float] = []
    count = 0
    made = list(people.people(KIND, 0, SCALE_PEOPLE))
    with gabion.Pile() as pile, Pauses() as pauses:
        before = machine.resident_bytes()
        while machine.resident_bytes() < limit:
            spent = 0.0
            for start in range(0, SCALE_WINDOW, BATCH):
                place = start % SCALE_PEOPLE
                objects = made[place : place + BATCH]
                for number, person in enumerate(objects, people.FIRST_ID + count):
                    person.id = number
                began = perf_counter()
                pointers = pile.put_many(objects)
                spent += perf_counter() - began
                kept.extend(pointers[::1000])
                count += len(objects)
            rates.append(SCALE_WINDOW / spent)
        grown = machine.resident_bytes() - before
        if len(pile) != count:
            raise AssertionError(f"{count} people were put, the pile counts {len(pile)}")
        for place in random.Random(19).sample(range(len(kept)), min(20_000, len(kept))):
            person = pile.get(kept[place])
            assert person.id == people.FIRST_ID + place * 1000, f"person {place * 1000} came back with id {person.id}"
            person.id = people.FIRST_ID + place * 1000 % SCALE_PEOPLE
            people.check(person, KIND, place * 1000 % SCALE_PEOPLE)
        collect = _collect_ms(3)
    return {
        "metrics": {
            "objects": [count, "objects"],
            **_ends_of(rates),
            "bytes_per_object": [grown / count, "B"],
            "longest_pause": [pauses.longest() * 1e3, "ms"],
            "collect": [collect, "ms"],
        }
    }


def scale_floor(limit: int) -> dict:
    """What the system itself takes for that memory: the same bytes, copied into fresh pages block by block."""
    block = 4 << 20
    per_window = SCALE_WINDOW * SCALE_BYTES // block
    source = random.Random(23).randbytes(block)
    held: list[mmap.mmap] = []
    rates: list[float] = []
    while machine.resident_bytes() < limit:
        began = perf_counter()
        for _ in range(per_window):
            pages = mmap.mmap(-1, block)
            pages.madvise(mmap.MADV_HUGEPAGE)
            pages[:] = source
            held.append(pages)
        rates.append(per_window * block / SCALE_BYTES / (perf_counter() - began))
    return {"metrics": _ends_of(rates)}


def _ends_of(rates: list[float]) -> dict:
    """The rate in the first and in the last tenth, without the first window, which also warms up the interpreter."""
    ends = max(1, len(rates) // 10)
    first, last = statistics.median(rates[1 : 1 + ends] or rates), statistics.median(rates[-ends:])
    return {
        "put_per_s_start": [first, "1/s"],
        "put_per_s_end": [last, "1/s"],
        "end_vs_start": [last / first, "ratio"],
    }
