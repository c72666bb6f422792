"""Values of some KiB up to 1 MiB, which are built from where they lie."""

import collections
import decimal
import functools
import random
import time
from array import array
from typing import Any

import codec_cases
import many_threads
import numpy as np
import pytest
from large_values import Node, Reduced, loop, told

import gabion

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
