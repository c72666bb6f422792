"""The three ways to keep objects that the tour compares, each with the calls that a program would write itself."""

import pickle
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import gabion


class Store(Protocol):
    """A place for objects, which are named by the order in which they were put."""

    def put(self, objects: Sequence[Any]) -> None:
        """Keep each object, behind those that are there."""

    def get(self, numbers: Sequence[int]) -> list[Any]:
        """The objects with these numbers."""

    def replace(self, numbers: Sequence[int], objects: Sequence[Any]) -> None:
        """Keep each object in the place of the one with that number."""


class PlainList:
    """The objects themselves, in a list."""

    def __init__(self) -> None:
        self._held: list[Any] = []

    def put(self, objects: Sequence[Any]) -> None:
        keep = self._held.append
        for one in objects:
            keep(one)

    def get(self, numbers: Sequence[int]) -> list[Any]:
        held = self._held
        return [held[number] for number in numbers]

    def replace(self, numbers: Sequence[int], objects: Sequence[Any]) -> None:
        held = self._held
        for number, one in zip(numbers, objects):
            held[number] = one


class PickleDict:
    """A dict from number to pickle."""

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}

    def put(self, objects: Sequence[Any]) -> None:
        held, dumps = self._held, pickle.dumps
        for number, one in enumerate(objects, len(held)):
            held[number] = dumps(one, 5)

    def get(self, numbers: Sequence[int]) -> list[Any]:
        held, loads = self._held, pickle.loads
        return [loads(held[number]) for number in numbers]

    def replace(self, numbers: Sequence[int], objects: Sequence[Any]) -> None:
        held, dumps = self._held, pickle.dumps
        for number, one in zip(numbers, objects):
            held[number] = dumps(one, 5)


class PileStore:
    """A pile, and the pointers that it gave in an array."""

    def __init__(self) -> None:
        self._pile = gabion.Pile()
        self._pointers = array("Q")

    def save(self, path: Path) -> None:
        """Save the pile to a file."""
        self._pile.save(path)

    def opened(self, path: Path, kind: type) -> "PileStore":
        """What is in the file, under the same pointers."""
        other = PileStore()
        other._pile, other._pointers = gabion.Pile(path=path, types=[kind], read_only=True), self._pointers
        return other

    def close(self) -> None:
        """Let the pile go, or its file."""
        self._pile.close()

    def put(self, objects: Sequence[Any]) -> None:
        keep, put = self._pointers.append, self._pile.put
        for one in objects:
            keep(put(one))

    def get(self, numbers: Sequence[int]) -> list[Any]:
        pointers, get = self._pointers, self._pile.get
        return [get(pointers[number]) for number in numbers]

    def replace(self, numbers: Sequence[int], objects: Sequence[Any]) -> None:
        pointers, replace = self._pointers, self._pile.replace
        for number, one in zip(numbers, objects):
            replace(pointers[number], one)


STORES: dict[str, type[Store]] = {"plain": PlainList, "pickles": PickleDict, "gabion": PileStore}
LABELS = {"plain": "plain objects in a list", "pickles": "dict of pickles", "gabion": "gabion.Pile"}
