"""Many threads on one pile: no mixtures, no losses, no crashes, with the global lock and without."""

import contextlib
import random
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from many_threads import SECONDS, run, until
from model import LONG, Plain, Slotted, check_equations
from patience import HANGS

import gabion

SIZES = (0, 5, 20, 60, 200, 700, 1000, 1030, 3000, 20_000)


def payload(chooser: random.Random, writer: int) -> Any:
    """A value in which each part tells of the others: a mixture of two would show."""
    stamp, size = chooser.randrange(1 << 40), chooser.choice(SIZES)
    fill = bytes([stamp % 256]) * size
    kind = chooser.randrange(5)
    if kind == 0:
        return (writer, stamp, fill, stamp)
    if kind == 1:
        return [writer, stamp, fill, stamp]
    if kind == 2:
        return {"writer": writer, "stamp": stamp, "fill": fill, "end": stamp}
    if kind == 3:
        return Slotted(stamp, str(stamp), fill)
    return Plain(stamp=stamp, fill=fill, end=stamp)


def check_whole(value: Any) -> None:
    if isinstance(value, (tuple, list)):
        _, stamp, fill, end = value
    elif isinstance(value, dict):
        stamp, fill, end = value["stamp"], value["fill"], value["end"]
    elif isinstance(value, Slotted):
        stamp, fill, end = value.number, value.note, int(value.first)
    else:
        assert isinstance(value, Plain)
        stamp, fill, end = value.stamp, value.fill, value.end
    assert stamp == end
    assert fill == bytes([stamp % 256]) * len(fill)


@pytest.mark.parametrize("count", [1, 12, 256] + ([4096, 1 << 17] if LONG else []))
def test_everything_at_once_on_the_same_pointers(count: int) -> None:
    pile = gabion.Pile()
    chooser = random.Random(count)
    pointers = [pile.put(payload(chooser, 0)) for _ in range(count)]
    missing = object()

    def write(seed: int) -> Callable[[], None]:
        def body() -> None:
            mine, going = random.Random(seed), until(SECONDS)
            while going():
                place = mine.randrange(count)
                action = mine.randrange(10)
                try:
                    if action < 5:
                        pile.replace(pointers[place], payload(mine, seed))
                    elif action < 7:
                        check_whole(pile.pop(pointers[place]))
                        pointers[place] = pile.put(payload(mine, seed), reserve=mine.choice((0, 0, 500, 5000)))
                    elif action < 9:
                        pile.remove(pointers[place])
                        pointers[place] = pile.put(payload(mine, seed))
                    elif mine.randrange(50) == 0:
                        pile.compact()
                except gabion.PointerError:
                    pass

        return body

    def read(seed: int) -> Callable[[], None]:
        def body() -> None:
            mine, going = random.Random(seed), until(SECONDS)
            while going():
                found = pile.get(pointers[mine.randrange(count)], missing)
                if found is not missing:
                    check_whole(found)
                if mine.randrange(20) == 0:
                    for found in pile.get_many(pointers[: mine.randrange(30)], missing):
                        if found is not missing:
                            check_whole(found)
                if mine.randrange(100) == 0:
                    assert len(list(pile)) <= count * 4 + 100
                    check_sizes(pile, pointers[mine.randrange(count)])

        return body

    run(write(1), write(2), write(3), read(4), read(5), read(6))
    pile.validate()
    for pointer in pile:
        check_whole(pile.get(pointer))
    check_equations(pile)
    pile.clear()
    pile.validate()
    assert pile.stats().used_bytes == 0
    pile.compact()
    assert pile.stats().reserved_bytes <= 64 << 10


def check_sizes(pile: gabion.Pile, pointer: int) -> None:
    with contextlib.suppress(gabion.PointerError):
        assert 0 < pile.size_of(pointer) < 30_000


def test_the_first_use_of_all_in_a_thread_with_the_smallest_stack() -> None:
    """Whatever is made once for a process must not be large on the stack of the thread that makes it."""
    source = """
import threading, gabion, pickle
value = {"name": [1, (2, b"x" * 9000)]}
pickle.loads(pickle.dumps(value))
pile, got = gabion.Pile(), []
for least in (32 << 10, 64 << 10):  # the interpreter's own least: 52 KiB from 3.14 on
    try:
        threading.stack_size(least)
        break
    except ValueError:
        pass
thread = threading.Thread(target=lambda: got.append(pile.get(pile.put(value))))
thread.start()
thread.join()
assert got == [value]
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=HANGS)
    assert (done.returncode, done.stderr) == (0, "")


def test_of_many_threads_that_pop_one_gets_the_object() -> None:
    pile = gabion.Pile()
    for _ in range(20 if LONG else 3):
        pointers = pile.put_many(range(2000))
        found: list[int] = []

        def body(pointers: array = pointers, found: list[int] = found) -> None:  # type: ignore[type-arg]
            for pointer in pointers:
                value = pile.pop(pointer, None)
                if value is not None:
                    found.append(value)

        run(*[body] * 5)
        assert sorted(found) == list(range(2000))
        assert len(pile) == 0
    for _ in range(3):
        pointers = pile.put_many(range(2000))
        removed: list[int] = []
        run(*[lambda p=pointers, r=removed: r.append(pile.remove_many(p))] * 4)
        assert sum(removed) == 2000
    pile.validate()


def test_views_beside_writers_never_change() -> None:
    pile = gabion.Pile()
    sizes = (0, 8, 100, 900, 1020, 5000, 70_000, 1_100_000)
    pointers = [pile.put(bytes([1]) * size) for size in sizes for _ in range(3)]

    def write(seed: int) -> None:
        mine, going = random.Random(seed), until(SECONDS)
        while going():
            place = mine.randrange(len(pointers))
            fill = bytes([mine.randrange(256)]) * mine.choice(sizes[:7])
            try:
                if mine.randrange(4):
                    pile.replace(pointers[place], fill)
                else:
                    pile.remove(pointers[place])
                    pointers[place] = pile.put(fill)
            except gabion.PointerError:
                pass

    def look(seed: int) -> None:
        mine, going = random.Random(seed), until(SECONDS)
        held: list[tuple[memoryview, bytes]] = []
        while going():
            try:
                view = pile.view(pointers[mine.randrange(len(pointers))])
            except gabion.PointerError:
                continue
            first = bytes(view)
            assert first == first[:1] * len(first)
            held.append((view, first))
            if len(held) > 30:
                old, was = held.pop(mine.randrange(30))
                assert old == was
                old.release()
        assert all(view == was for view, was in held)

    run(*(lambda seed=seed: write(seed) for seed in range(2)), *(lambda seed=seed: look(seed) for seed in (8, 9, 10)))
    pile.validate()
    pile.clear()
    pile.validate()
    assert pile.stats().used_bytes == 0


def test_threads_that_put_and_read_back_their_own() -> None:
    pile = gabion.Pile()
    per_thread = 20_000 if LONG else 2000

    def body(seed: int) -> None:
        mine = random.Random(seed)
        own: dict[int, Any] = {}
        for _ in range(per_thread):
            value = payload(mine, seed)
            pointer = pile.put(value)
            assert pointer not in own
            own[pointer] = value
            if mine.randrange(3) == 0:
                pointer, value = own.popitem()
                assert pile.pop(pointer) == value
        every.update(own)

    every: dict[int, Any] = {}
    run(*(lambda seed=seed: body(seed) for seed in range(6)))
    pile.validate()
    assert len(pile) == len(every)
    assert all(pile.get(pointer) == value for pointer, value in every.items())


def fresh_classes(number: int) -> list[type]:
    made = []
    for i in range(number):
        source = (
            f"class Fresh{i}:\n    __slots__ = ('a', 'b')\n"
            if i % 2
            else f"class Fresh{i}:\n    def __init__(self): pass\n"
        )
        exec(source, globals())
        made.append(globals()[f"Fresh{i}"])
    return made


def test_a_class_met_first_by_many_threads_at_once() -> None:
    for _ in range(10 if LONG else 2):
        pile = gabion.Pile()
        classes = fresh_classes(200)

        def body(seed: int, pile: gabion.Pile = pile, classes: list[type] = classes) -> None:
            order = list(range(200))
            random.Random(seed % 2).shuffle(order)
            for i in order:
                thing = classes[i]()
                thing.a, thing.b = i, [seed]  # type: ignore[attr-defined]
                pointer = pile.put(thing)
                found = pile.get(pointer)
                assert type(found) is classes[i]
                assert (found.a, found.b) == (i, [seed])

        run(*(lambda seed=seed: body(seed) for seed in range(6)))
        pile.validate()
        assert len(pile) == 1200
        for pointer in pile:
            found = pile.get(pointer)
            assert type(found).__name__ == f"Fresh{found.a}"


def test_shapes_met_first_by_many_threads_at_once() -> None:
    pile = gabion.Pile()

    def body(seed: int) -> None:
        mine = random.Random(seed)
        for i in range(1500):
            names = mine.sample("abcdefghij", mine.randrange(1, 8))
            thing = Plain(**{name: (seed, i, name) for name in names})
            found = pile.get(pile.put(thing))
            assert list(found.__dict__.items()) == list(thing.__dict__.items())

    run(*(lambda seed=seed: body(seed) for seed in range(5)))
    pile.validate()


@pytest.mark.parametrize("end", ["clear", "close"])
def test_ending_beside_readers_and_writers(end: str) -> None:
    for attempt in range(60 if LONG else 8):
        pile = gabion.Pile()
        chooser = random.Random(attempt)
        pointers = [pile.put(payload(chooser, 0)) for _ in range(300)]
        viewed = pile.put(b"v" * 100)
        view = pile.view(viewed)
        finished = threading.Event()

        def work(
            seed: int,
            pile: gabion.Pile = pile,
            pointers: list[int] = pointers,
            viewed: int = viewed,
            done: Any = finished,
        ) -> None:
            mine = random.Random(seed)
            try:
                while not done.is_set():
                    pointer = mine.choice(pointers)
                    action = mine.randrange(8)
                    try:
                        if action < 3:
                            check_whole(pile.get(pointer))
                        elif action == 3:
                            pile.replace(pointer, payload(mine, seed))
                        elif action == 4:
                            pointers.append(pile.put(payload(mine, seed)))
                        elif action == 5:
                            for _, found in zip(range(50), pile):
                                if found != viewed:
                                    check_whole(pile.get(found, (0, 0, b"", 0)))
                        elif action == 6:
                            pile.get_many(pointers[-5:], None)
                        else:
                            pile.stats()
                            len(pile)
                    except gabion.PointerError:
                        pass
            except gabion.ClosedError:
                assert end == "close"

        def finish(pile: gabion.Pile = pile, done: Any = finished) -> None:
            for _ in range(5):
                time.sleep(0.004)
                getattr(pile, end)()
            done.set()

        run(*(lambda seed=seed: work(seed) for seed in range(4)), finish)
        assert bytes(view) == b"v" * 100
        if end == "clear":
            pile.validate()
            for pointer in pile:
                check_whole(pile.get(pointer))
        else:
            assert repr(pile) == "<gabion.Pile, closed>"


def test_iterators_shared_and_side_by_side() -> None:
    pile = gabion.Pile()
    stay = set(pile.put_many(range(3000)))
    stop = threading.Event()

    def churn() -> None:
        mine = random.Random(5)
        own: list[int] = []
        while not stop.is_set():
            own.append(pile.put("x" * mine.randrange(2000)))
            if len(own) > 100:
                pile.remove(own.pop(mine.randrange(100)))

    def alone() -> None:
        try:
            for _ in range(10):
                seen = list(pile)
                assert len(seen) == len(set(seen))
                assert stay <= set(seen)
        finally:
            stop.set()

    shared = iter(pile)
    parts: list[list[int]] = []
    run(churn, alone, alone, lambda: parts.append(list(shared)), lambda: parts.append(list(shared)))
    together = [pointer for part in parts for pointer in part]
    assert len(together) == len(set(together))
    assert stay <= set(together)
    pile.validate()


def test_the_limit_with_many_threads() -> None:
    pile = gabion.Pile(max_bytes="6 MiB")
    limit = pile.stats().max_bytes
    refused = [0]

    def body(seed: int) -> None:
        mine, going = random.Random(seed), until(SECONDS)
        own: list[int] = []
        while going():
            try:
                own.append(pile.put(b"x" * mine.choice((50, 900, 5000, 300_000))))
            except gabion.LimitError:
                refused[0] += 1
                for _ in range(len(own) // 2):
                    pile.remove(own.pop(mine.randrange(len(own))))
            assert pile.stats().reserved_bytes <= limit

    run(*(lambda seed=seed: body(seed) for seed in range(4)))
    assert refused[0] > 0
    pile.validate()
    check_equations(pile)
    pile.clear()
    pile.put(b"y" * 4_000_000)


def test_piles_made_and_dropped_by_many_threads() -> None:
    def body() -> None:
        going = until(SECONDS / 2)
        while going():
            pile = gabion.Pile()
            pointer = pile.put("mine")
            others.append((pile, pointer))
            other, foreign = others[0]
            assert (foreign in pile) == (other is pile)
            if len(others) > 20:
                del others[:10]

    others: list[tuple[gabion.Pile, int]] = []
    run(body, body, body)
    for pile, pointer in others:
        assert pile.get(pointer) == "mine"
