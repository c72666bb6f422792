"""What a file could have NumPy's reducers say that NumPy itself believes, for test_codec_hostile_arrays.py."""

import pickle
import random
import warnings
from typing import Any

import numpy as np
from kept import reopened

from gabion._native import CodecError, _Codec

RECONSTRUCT = np.array([None], dtype=object).__reduce__()[0]
SCALAR = np.datetime64("2020-01-01").__reduce__()[0]
FROM_BUFFER = np.array(["a"]).__reduce_ex__(5)[0]


class Forged:
    """Is stored as whatever its maker likes."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


def reread(obj: Any) -> Any:
    codec = _Codec()
    data = codec.encode(obj)
    return reopened(codec).decode(data)


def array(shape: Any, dtype: Any, items: Any, columns: Any = False, kind: type = np.ndarray) -> Forged:
    return Forged(RECONSTRUCT, (kind, (0,), b"b"), (1, shape, dtype, columns, items))


def structure(size: int, base: str, fields: Any, order: str = "|") -> Forged:
    return Forged(np.dtype, (base, False, True), (3, order, None, tuple(fields), fields, size, 1, 0))


def cases() -> dict[str, Any]:
    objects, pairs = np.dtype("O"), np.dtype([("a", "O"), ("b", "O")])
    records = np.dtype((np.record, [("a", "O")]))
    inside = Forged(np.dtype, ("V16", False, True), (3, "|", (objects, (2,)), None, None, 16, 1, 0))
    unit = lambda *of: Forged(np.dtype, ("M8", False, True), (4, "<", None, None, None, 8, 8, 0, (None, of)))  # noqa: E731
    deep: Any = np.dtype([("a", "i4")])
    for _ in range(70):
        deep = np.dtype([("a", deep)])
    found = {
        "no items": array((40,), objects, []),
        "too few items": array((3,), objects, [1]),
        "too many items": array((1,), objects, [1, 2]),
        "a tuple of items": array((1,), objects, (1,)),
        "too few pairs": array((3,), pairs, [(1, 2)]),
        "a pair of one": array((1,), pairs, [(1,)]),
        "a pair that is a list": array((1,), pairs, [[1, 2]]),
        "too few records": array((2,), records, [], kind=np.recarray),
        "bytes of objects": array((1,), objects, b"A" * 8),
        "a list of numbers": array((1,), np.dtype("i8"), [1]),
        "too few bytes": array((2,), np.dtype("i8"), b"A" * 8),
        "too many bytes": array((2,), np.dtype("i8"), b"A" * 24),
        "a side below zero": array((-1, -1), np.dtype("i8"), b"A" * 8),
        "sides that are more than all": array((1 << 32, 1 << 32), np.dtype("i8"), b""),
        "no items of many sides": array((0, 1 << 62, 1 << 62), np.dtype("i8"), b""),
        "more items of nothing": array((1 << 60,), np.dtype("V0"), b""),
        "too many sides": array((1,) * 100, np.dtype("i8"), b"A" * 8),
        "a shape that is a list": array([1], np.dtype("i8"), b"A" * 8),
        "arrays as items": array((1,), inside, [(1, 2)]),
        "another version": Forged(RECONSTRUCT, (np.ndarray, (0,), b"b"), (2, (1,), objects, False, [1])),
        "no version": Forged(RECONSTRUCT, (np.ndarray, (0,), b"b"), ((40,), objects, False, [])),
        "an item that is none": Forged(SCALAR, (pairs,)),
        "an array that is none": Forged(SCALAR, (inside,)),
        "two items": Forged(SCALAR, (np.dtype("i4"), b"AAAA", b"AAAA")),
        "an item of more bytes": Forged(SCALAR, (np.dtype("i4"), b"A" * 5)),
        "an item of an array": Forged(SCALAR, (pairs, np.zeros(1, pairs))),
        "an item of a forged array": Forged(SCALAR, (pairs, array((), pairs, []))),
        "an object": Forged(SCALAR, (objects, 5)),
        "objects in bytes": structure(8, "S8", {"name": (objects, 0)}),
        "objects in a text": structure(8, "U2", {"name": (objects, 0)}, "<"),
        "objects in a number": structure(-1, "i8", {"name": (objects, 0)}, "<"),
        "numbers in an object": structure(-1, "O", {"name": (np.dtype("i8"), 0)}),
        "objects over each other": structure(12, "V12", {"a": (objects, 0), "b": (objects, 4)}),
        "an object over a number": structure(8, "V8", {"a": (objects, 0), "b": (np.dtype("i8"), 0)}),
        "a field behind the end": structure(4, "V4", {"a": (np.dtype("i4"), 0x7FFF_FFFF)}),
        "a field before the start": structure(8, "V8", {"a": (np.dtype("i4"), -4)}),
        "an object behind the end": structure(4, "V4", {"a": (objects, 0)}),
        "a large array as an item": Forged(
            np.dtype, ("V8", False, True), (3, "|", (np.dtype("i8"), (1 << 30, 8)), None, None, 8, 1, 0)
        ),
        "a shape that is a type": Forged(
            np.dtype, ("V8", False, True), (3, "|", (np.dtype("S8"), objects), None, None, 8, 1, 0)
        ),
        "a wrong unit": unit(b"q", 1, 1, 1),
        "no time": unit(b"s", 0, 1, 1),
        "types in each other": deep,
        "a buffer of objects": Forged(FROM_BUFFER, (b"A" * 16, pairs, (1,), "C")),
        "a short buffer": Forged(FROM_BUFFER, (b"A" * 16, np.dtype("i8"), (3,), "C")),
    }  # fmt: skip
    if hasattr(np, "dtypes") and hasattr(np.dtypes, "StringDType"):
        strings = np.dtypes.StringDType()
        found |= {
            "too few strings": array((30,), strings, ["x"]),
            "lists of strings": array((2,), strings, [["a", "b"]] * 2),
            "strings in bytes": structure(16, "S16", {"a": (strings, 0)}),
            "strings in items": structure(16, "V16", {"a": (strings, 0)}),
            "arrays of strings": np.dtype("(2,)T"),
            "arrays of strings by a state": Forged(
                np.dtype, ("V32", False, True), (3, "|", (strings, (2,)), None, None, 32, 1, 0)
            ),
            "a string's item": Forged(SCALAR, (strings, b"A" * 16)),
        }
    return found


def check_cases() -> None:
    for name, case in cases().items():
        try:
            made = reread(case)
        except CodecError:
            continue
        raise AssertionError((name, made))


# --- at random ------------------------------------------------------------------------------------

TYPES = [np.dtype(text) for text in ("O", "i8", ">i4", "S5", "U3", "V7", "M8[D]", "?", "g")] + [
    np.dtype([("a", "O"), ("b", "O")]),
    np.dtype([("a", "i4"), ("o", "O"), ("s", [("t", "S3"), ("u", "O", (2,))])]),
    np.dtype((np.record, [("a", "O"), ("b", "i2")])),
    np.dtype(("i4", [("low", "i2"), ("high", "i2")])),
    np.dtype([]),
    np.dtype({"names": ["a"], "formats": ["O"], "offsets": [8], "itemsize": 24}),
]
VALUES = [0, 1, -1, 3, 8, 64, 0x80, 0x7FFF_FFFF, 1 << 31, 1 << 62, 1 << 64, None, True, b"", b"b", b"A" * 8, b"A" * 24,
          "", "O8", "V8", "S8", "U2", "C", "K", "|", "<", ">", (), (0,), (3,), (2, 2), (-1,), (1 << 40,), (1,) * 70, [],
          [1], [(1, 2)] * 3, [[1, 2], [3]], {}, {"a": (np.dtype("O"), 0)}, {"a": (np.dtype("i8"), 100)}, ("a",),
          np.array(None, dtype=object), np.float64(1), (np.dtype("O"), (2,)), (None, (b"s", 25, 1, 1)), np.recarray,
          np.record, *TYPES]  # fmt: skip


def mutated(obj: Any, rng: random.Random) -> Forged:
    left, likely = rng.choice((1, 1, 2)), rng.choice((0.05, 0.2, 0.5))

    def walk(value: Any) -> Any:
        nonlocal left
        if isinstance(value, pickle.PickleBuffer):
            value = bytes(value.raw())
        if left and rng.random() < likely:
            left -= 1
            if isinstance(value, (tuple, list, bytes)) and rng.random() < 0.5:
                return value[:-1] if rng.random() < 0.5 else value + value[-1:]
            return rng.choice(VALUES)
        if isinstance(value, np.dtype):
            parts = value.__reduce__()
            return Forged(parts[0], *map(walk, parts[1:])) if rng.random() < 0.6 else value
        if isinstance(value, (tuple, list)):
            return type(value)(map(walk, value))
        return {key: walk(item) for key, item in value.items()} if type(value) is dict else value

    parts = obj.__reduce_ex__(rng.choice((2, 5)))
    return Forged(parts[0], *map(walk, parts[1:3]))


def use(made: Any) -> None:
    for call in (
        repr,
        lambda made: made.tolist(),
        lambda made: made.copy(),
        lambda made: [repr(made[name]) for name in made.dtype.names],
        lambda made: np.zeros(2, made),
        lambda made: pickle.dumps(made),
    ):
        try:
            call(made)
        except Exception:
            continue


def check_at_random(seed: int, turns: int) -> None:
    warnings.simplefilter("ignore")
    rng, refused = random.Random(seed), 0
    objects: list[Any] = [*TYPES, np.zeros((), TYPES[9])[()], np.datetime64("2020-01-01")]
    objects += [np.zeros(shape, dtype) for dtype in TYPES for shape in ((), (3,), (2, 2), (0, 3))]
    for _ in range(turns):
        forged = mutated(rng.choice(objects), rng)
        try:
            use(reread(forged))
        except (CodecError, MemoryError):
            refused += 1
    assert turns // 10 < refused < turns, refused
