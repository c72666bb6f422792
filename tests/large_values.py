"""Graphs with values of 1 MiB and more, in every place where one may be."""

import pickle
from array import array
from typing import Any

BIG = bytes(range(256)) * (5 << 12)  # 5 MiB
SMALL_BIG = b"s" * (1 << 20)  # just long enough


class Node:
    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class Reduced:
    """By its reducer, with state and items."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __reduce__(self) -> Any:
        return Reduced, self.args, self.__dict__


def loop(*parts: Any) -> tuple[Any, ...]:
    """A tuple with a list that leads back to it."""
    inner: list[Any] = []
    made = (*parts, inner)
    inner.append(made)
    return made


def graphs() -> dict[str, Any]:
    shared = ["shared"]
    around = (*loop(BIG), SMALL_BIG)
    node = Node(BIG)
    frozen = frozenset([node])
    node.parts = (frozen, shared, BIG)
    return {
        "bytes": BIG,
        "ascii": "a" * (2 << 20),
        "latin": "é" * (2 << 20),
        "wide": "€" * (2 << 20),
        "widest": "𝄞" * (1 << 20),
        "just below": b"x" * ((1 << 20) - 1),
        "just long enough": SMALL_BIG,
        "several": [shared, BIG, "t" * (1 << 20), shared, BIG, SMALL_BIG, shared, 1.5],
        "dict": {"k": BIG, BIG: shared, "again": shared, "nested": {"deep": [BIG, b"z" * (1 << 20)]}},
        "aligned items": [BIG[:-3], array("d", range(10)), SMALL_BIG, array("q", [1, 2])],
        "leads back": [around, loop(BIG, SMALL_BIG)],
        "leads back behind": [BIG, loop(SMALL_BIG), BIG, frozenset([Node(loop(1))]), loop(2)],
        "a set leads back": frozen,
        "objects": [Node(BIG, shared), Node(BIG, shared), node],
        "reducers": [Reduced(BIG, shared), Reduced(SMALL_BIG), shared, Reduced(BIG)],
        "buffers": [pickle.PickleBuffer(BIG), shared, pickle.PickleBuffer(bytearray(SMALL_BIG)), shared],
        "bytearray": [bytearray(BIG), SMALL_BIG],
    }


def told(obj: Any) -> bytes:
    """What a graph is, shared references and cycles included."""
    return pickle.dumps(pickle.loads(pickle.dumps(obj, 5)), 5)
