"""Objects that other threads change while they are being stored: what is stored is whole, or refused."""

import contextlib
import random
import threading
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from many_threads import LOCKED, SECONDS, run, until
from model import Plain, Slotted

import gabion


def mutations() -> dict[str, tuple[Any, list[Callable[[Any, random.Random], Any]], Callable[[Any], bool]]]:
    def drop(thing: Any, name: str) -> None:
        with contextlib.suppress(AttributeError):
            delattr(thing, name)

    texts = tuple(f"text number {i}" for i in range(50))

    def element(value: Any) -> bool:
        return value is None or type(value) is int or value in texts or (type(value) is list and len(value) <= 2)

    def new(r: random.Random) -> Any:
        return r.choice(
            (r.choice(texts), r.randrange(1 << 70), None, [r.randrange(9), "x" * 3], f"text number {r.randrange(50)}")
        )

    return {
        "list": (
            [1, 2, 3],
            [
                lambda c, r: c.append(new(r)), lambda c, r: c and c.pop(),
                lambda c, r: c.clear() if len(c) > 60 else None,
                lambda c, r: c.insert(0, new(r)), lambda c, r: c.__setitem__(slice(0, 3), [new(r)] * r.randrange(9)),
            ],
            lambda v: type(v) is list and all(map(element, v)),
        ),
        "dict": (
            {"a": 1},
            [
                lambda c, r: c.__setitem__(r.choice((r.randrange(30), f"k{r.randrange(30)}")), new(r)),
                lambda c, r: c.pop(r.randrange(30), None), lambda c, r: c.pop(f"k{r.randrange(30)}", None),
                lambda c, r: c.clear() if r.randrange(50) == 0 else None,
            ],
            lambda v: type(v) is dict and all(map(element, v.values())),
        ),
        "set": (
            {1, 2},
            [
                lambda c, r: c.add(r.randrange(100)), lambda c, r: c.discard(r.randrange(100)),
                lambda c, r: c.add(f"text {r.randrange(50)}"), lambda c, r: c.clear() if r.randrange(50) == 0 else None,
            ],
            lambda v: type(v) is set,
        ),
        "slots": (
            Slotted(1, texts[0], None),
            [
                lambda c, r: setattr(c, "number", new(r)), lambda c, r: setattr(c, "note", new(r)),
                lambda c, r: setattr(c, "first", new(r)), lambda c, r: drop(c, "note"), lambda c, r: drop(c, "first"),
            ],
            lambda v: type(v) is Slotted and all(element(getattr(v, n, None)) for n in Slotted.__slots__),
        ),
        "attributes": (
            Plain(a=1),
            [
                lambda c, r: setattr(c, r.choice("abcdefg"), new(r)), lambda c, r: drop(c, r.choice("abcdefg")),
                lambda c, r: c.__dict__ if r.randrange(100) == 0 else None,
                # CPython 3.13 without the global lock crashes by itself when __dict__ is assigned beside readers.
                lambda c, r: setattr(c, "__dict__", {"a": new(r)}) if LOCKED and r.randrange(100) == 0 else None,
            ],
            lambda v: type(v) is Plain and all(map(element, v.__dict__.values())),
        ),
        "bytearray": (
            bytearray(b"abc"),
            [
                lambda c, r: c.extend(b"x" * r.randrange(50)), lambda c, r: c.clear() if len(c) > 500 else None,
                lambda c, r: c.__delitem__(slice(0, 5)),
            ],
            lambda v: type(v) is bytearray,
        ),
        "array": (
            array("d", [1.0]),
            [
                lambda c, r: c.extend([1.5] * r.randrange(50)),
                lambda c, r: c.__delitem__(slice(0, 20)), lambda c, r: c.append(2.0),
            ],
            lambda v: type(v) is array and set(v) <= {1.0, 1.5, 2.0},
        ),
        "class of an instance": (
            Plain(a=1, b=[2]),
            [lambda c, r: setattr(c, "__class__", r.choice((Plain, Twin))), lambda c, r: setattr(c, "a", new(r))],
            lambda v: type(v) in (Plain, Twin),
        ),
    }  # fmt: skip


class Twin(Plain):
    pass


# CPython itself crashes when two threads change one of these without the global lock.
NEEDS_LOCK = ("bytearray", "array")


@pytest.mark.parametrize("kind", [kind for kind in mutations() if LOCKED or kind not in NEEDS_LOCK])
def test_an_object_changed_by_others_while_it_is_stored(kind: str) -> None:
    subject, changes, possible = mutations()[kind]
    pile = gabion.Pile()
    stop = threading.Event()

    def change(seed: int) -> None:
        mine = random.Random(seed)
        while not stop.is_set():
            # An export of the buffer that is being stored, or another thread was faster.
            with contextlib.suppress(BufferError, IndexError, TypeError):
                mine.choice(changes)(subject, mine)

    def store() -> None:
        going = until(SECONDS / 2)
        try:
            while going():
                try:
                    pointer = pile.put([subject, subject])
                except (gabion.CodecError, BufferError):
                    continue
                first, second = pile.pop(pointer)
                assert first is second
                assert possible(first), first
        finally:
            stop.set()

    run(lambda: change(1), lambda: change(2), store, store)
    assert len(pile) == 0
    pile.validate()
