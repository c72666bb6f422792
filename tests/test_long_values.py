"""Values of some KiB up to 1 MiB, which are written straight to where they stay, and built from where they lie."""

import collections
import decimal
import functools
import pickle
import random
import sys
import time
import weakref
from array import array
from collections.abc import Callable
from typing import Any

import codec_cases
import many_threads
import numpy as np
import pytest
from large_values import Node, Reduced, loop, told

import gabion
from gabion._native import _Codec

SIZES = [4000, 4096, 8100, 8192, 9000, 16_385, 100_003, (1 << 20) - 2000]
Named = collections.namedtuple("Named", "name content")
Named.__module__ = __name__


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def shapes(size: int) -> dict[str, Any]:
    """Objects with a long value of about `size` bytes in every place where one may be."""
    blob, text, rest = content(size), "long " * (size // 5), content(size // 3)
    floats = np.arange(size // 8, dtype=np.float64)
    read_only = floats.copy()
    read_only.flags.writeable = False
    return {
        "bytes": blob,
        "text": text,
        "latin": "é" * size,
        "bytearray": bytearray(blob),
        "array.array": array("d", floats),
        "array": floats,
        "columns": np.asfortranarray(floats[: size // 16 * 2].reshape(2, -1)),
        "many sides": floats[: size // 8].reshape((1,) * 20 + (-1,)),
        "read only": read_only,
        "every other": floats[::2],
        "record": {"id": 7, "content": blob, "name": "a record", "more": [1, 2.5, None]},
        "first": (blob, 1, "x"),
        "last": ["x", (1, {"deep": [None, blob]})],
        "key": {blob: "of it", "k": floats},
        "two": [blob, rest, text, floats, blob[:-1]],
        "aligned": ["abc", blob, array("d", [1.5]), floats, b"x", array("q", range(9)), text, array("d", [2.5])],
        "late": [*range(70), blob],
        "never": [b"short"] * (size // 8),
        "named": Named("n", blob),
        "class": codec_cases.Plain(blob, floats),
        "frozen": codec_cases.Frozen(text, blob),
        "attributes": Node(blob, text),
        "reduced": Reduced(blob, [text]),
        "reduced before": [decimal.Decimal("1.5"), Reduced(1), blob],
        "shared": [blob, blob, [blob]],
        "loop": loop(blob, 1),
        "sets": [{1, 2}, frozenset([blob])],
        "dates": [codec_cases.Person(1, "a", "b", codec_cases.dt.datetime(2020, 1, 1), 2.5, True, None), blob],
    }


@pytest.mark.parametrize("size", SIZES)
def test_what_comes_back_is_what_went_in(size: int) -> None:
    with gabion.Pile() as pile, gabion.Cache("64 MiB") as cache:
        table = cache.table("long keys")
        for name, obj in shapes(size).items():
            pointer = pile.put(obj)
            cache[name] = table["k" * 600 + name] = obj
            for copy in (pile.get(pointer), pile.pop(pointer), cache[name], table.get("k" * 600 + name)):
                assert told(copy) == told(obj), name
            assert told(cache.get_many([name])) == told({name: obj}), name
            assert told(cache.pop(name)) == told(obj), name
            assert told(pile.get_many([pile.put(obj)])) == told([obj]), name
        assert cache.stats().hits == 4 * len(shapes(size))
        pile.validate()
        cache.validate()


def ways(pile: gabion.Pile) -> dict[str, Callable[[Any], int]]:
    """Every way into a pile; each returns the pointer."""
    small, short = pile.put("small"), pile.put(content(20_000))

    def replaced(pointer: int, obj: Any) -> int:
        pile.replace(pointer, obj)
        return pointer

    return {
        "put": pile.put,
        "reserve": lambda obj: pile.put(obj, reserve=5000),
        "put_many": lambda obj: pile.put_many([1, obj, 2])[1],
        "replace": lambda obj: replaced(pile.put(obj), obj),
        "replace what is small": lambda obj: replaced(small, obj),
        "replace what is long": lambda obj: replaced(short, obj),
    }


@pytest.mark.parametrize("size", [*SIZES, 1016, 8191, 8193])
def test_every_way_in_stores_the_same_bytes(size: int) -> None:
    with gabion.Pile() as pile:
        codec, by = _Codec(), ways(pile)
        for name, obj in shapes(size).items():
            encoded = len(codec.encode(obj))
            for way, put in by.items():
                pointer = put(obj)
                assert told(pile.get(pointer)) == told(obj), (name, way)
                assert pile.size_of(pointer) == encoded, (name, way)
            pile.validate()
        pile.compact()
        pile.validate()


def test_a_long_value_has_its_reserve() -> None:
    with gabion.Pile(max_bytes="1 MiB") as pile:
        pointer = pile.put(content(50_000), reserve="100 KiB")
        fill = []
        while True:
            try:
                fill.append(pile.put(content(9000)))
            except gabion.LimitError:
                break
        pile.replace(pointer, content(150_000))
        assert pile.get(pointer) == content(150_000)
        with pytest.raises(gabion.LimitError):
            pile.replace(fill[0], content(150_000))
        assert pile.get(fill[0]) == content(9000)
        pile.validate()


class Meddler:
    """Runs code of its own while what comes after it is still to be stored."""

    def __init__(self, do: Callable[[], object]) -> None:
        self.do = do

    def __reduce__(self) -> Any:
        self.do()
        return int, (7,)


class Scratch:
    """Shows itself by memory that the next one uses, too."""

    memory = np.zeros(100_000, dtype=np.uint8)

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        self.memory[:] = self.number
        return list, ([self.memory[:], pickle.PickleBuffer(self.memory[:50_000])],)


@pytest.mark.parametrize("kind", ["pile", "cache"])
def test_what_changes_meanwhile_is_stored_as_it_was(kind: str) -> None:
    def stored(obj: Any) -> Any:
        if kind == "pile":
            with gabion.Pile() as pile:
                return pile.get(pile.put(obj))
        with gabion.Cache("8 MiB") as cache:
            cache["k"] = obj
            return cache["k"]

    numbers, own, items = np.zeros(50_000), bytearray(50_000), array("q", [0]) * 10_000

    def meddle() -> None:
        numbers[:] = 1
        own[:] = b"changed"
        items[:] = array("q", [1])

    first, second, third, seven = stored([numbers, own, items, Meddler(meddle)])
    assert not first.any()
    assert (len(first), second, third, seven) == (50_000, bytearray(50_000), array("q", [0]) * 10_000, 7)
    for number, (whole, part) in enumerate(stored([Scratch(number) for number in range(5)])):
        assert set(whole.tolist()) == set(part) == {number}
        assert (len(whole), len(part)) == (100_000, 50_000)


def test_callbacks_may_change_what_is_being_stored() -> None:
    numbers, told_of = np.zeros(60_000), []
    with gabion.Cache("8 MiB") as cache:

        @cache.on_evict
        def gone(key: int, value: Any) -> None:
            told_of.append(key)
            numbers[:] = key
            cache.get(key + 1)

        for key in range(200):
            cache.put(key, [key, numbers, "long " * 5000])
            got = cache.get(key)
            if got is not None:
                assert (got[0], len(got[1]), len(set(got[1].tolist()))) == (key, 60_000, 1)
            cache.validate()
    assert told_of


@pytest.mark.parametrize("size", [9000, 300_000])
def test_nothing_is_held_once_it_is_stored(size: int) -> None:
    blob, text, numbers = content(size), "t" * size, np.zeros(size, dtype=np.uint8)
    obj = [blob, text, numbers, {"again": blob}]
    counts = [sys.getrefcount(one) for one in (blob, text, numbers)]
    with gabion.Pile(max_bytes="16 MiB") as pile, gabion.Cache("32 MiB") as cache:
        for put in (*ways(pile).values(), functools.partial(cache.put, "k"), lambda obj: cache.update({"k": obj})):
            put(obj)
            with pytest.raises(gabion.CodecError):
                put([obj, blob, sys._getframe()])
            with pytest.raises(gabion.CodecError):
                put([obj, Meddler(lambda: None), sys._getframe()])
        with pytest.raises(gabion.LimitError):
            pile.put([obj, *(blob[1:] for _ in range((17 << 20) // size))])
        assert [sys.getrefcount(one) for one in (blob, text, numbers)] == counts
        seen = weakref.ref(numbers)
        obj.clear()
        del numbers, put
        assert seen() is None
        pile.validate()
        cache.validate()


def test_piles_do_what_a_dictionary_does() -> None:
    chance = random.Random(seed := time.time_ns())
    print(f"seed {seed}")
    with gabion.Pile(max_bytes="24 MiB") as pile, gabion.Cache("24 MiB") as cache:
        model: dict[int, Any] = {}
        for step in range(400):
            size = chance.choice([10, 900, 1100, 8000, 8192, 9000, 30_000, 70_000, 400_000, (1 << 20) + 5])
            obj = chance.choice(list(shapes(size).values()))
            try:
                if model and chance.random() < 0.4:
                    pile.replace(pointer := chance.choice(list(model)), obj)
                else:
                    pointer = pile.put(obj, reserve=chance.choice([0, 0, 100, 20_000]))
                model[pointer] = obj
            except gabion.LimitError:
                pointer = chance.choice(list(model))
                pile.remove(pointer)
                del model[pointer]
            if cache.put(step % 50, obj):
                assert told(cache[step % 50]) == told(obj)
            if step % 40 == 0:
                pile.compact()
                cache.validate()
                pile.validate()
                for pointer, expected in model.items():
                    assert told(pile.get(pointer)) == told(expected)
        assert len(pile) == len(model)


def test_arrays_are_as_they_were() -> None:
    objects = shapes(50_000)
    with gabion.Pile() as pile:
        for name in ("array", "columns", "many sides", "read only"):
            copy = pile.get(pile.put(objects[name]))
            assert copy.dtype == objects[name].dtype
            assert (copy == objects[name]).all()
            assert copy.flags.f_contiguous == objects[name].flags.f_contiguous
            assert copy.flags.writeable == objects[name].flags.writeable
        first, second = (pile.get(pile.put(objects["two"])) for _ in range(2))
        first[3][:] = -1
        assert (second[3] == objects["array"]).all()


def test_shared_values_stay_shared() -> None:
    with gabion.Pile() as pile:
        first, second, [third] = pile.get(pile.put(shapes(50_000)["shared"]))
        assert first is second is third
        made = pile.get(pile.put(loop(content(50_000), 1)))
        assert made[-1][0] is made


def test_a_value_is_gone_with_its_last_reference() -> None:
    with gabion.Pile() as pile:
        pointer = pile.put({"content": np.zeros(10_000), "n": 1})
        kept = pile.get(pointer)["content"]
        assert kept.flags.owndata
        pile.remove(pointer)
        assert not kept.any()


def seen_whole(seen: Any) -> None:
    """All parts are of the same version."""
    version, blob, text, numbers = seen
    assert blob == bytes([version]) * len(blob)
    assert text == str(version) * (len(text) // len(str(version)))
    assert (numbers == version).all()


def versions(version: int, size: int) -> tuple[int, bytes, str, np.ndarray]:
    return version, bytes([version]) * size, str(version) * (size // 5), np.full(size // 16, version)


@pytest.mark.parametrize("kind", ["pile", "cache"])
def test_readers_beside_writers_see_one_version(kind: str) -> None:
    pile, cache = gabion.Pile(), gabion.Cache("8 MiB")
    pointers = [pile.put(versions(1, 9000)) for _ in range(4)]
    end = time.monotonic() + many_threads.SECONDS
    seed = time.time_ns()
    print(f"seed {seed}")

    def write(number: int) -> None:
        chance = random.Random(seed + number)
        while time.monotonic() < end:
            obj = versions(chance.randrange(256), chance.choice([5000, 9000, 9000, 30_000]))
            at = chance.randrange(4)
            if kind == "pile":
                pile.replace(pointers[at], obj)
            elif chance.random() < 0.1:
                cache.discard(at)
            else:
                cache[at] = obj

    def read(number: int) -> None:
        chance = random.Random(seed + number)
        while time.monotonic() < end:
            at = chance.randrange(4)
            seen = pile.get(pointers[at]) if kind == "pile" else cache.get(at)
            if seen is not None:
                seen_whole(seen)

    many_threads.run(*(functools.partial(body, n) for n, body in enumerate([write, read, read])))
    pile.validate()
    cache.validate()
