"""`Pile.change`: what another thread puts in between is not lost."""

import gc
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from many_threads import run

import gabion

# Stored in a slot, away from it, in a chunk and in a run.
SIZES = [0, 300, 2_000, 100_000, 3 << 20]


def grown(pile: gabion.Pile[Any], pointer: int, size: int) -> None:
    """Count one up, and let the rest be of this size, or a byte more."""

    def function(value: tuple[int, bytes]) -> tuple[int, bytes]:
        count, _ = value
        return count + 1, bytes([count % 251]) * (size + count % 2)

    pile.change(pointer, function)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_no_change_is_lost(size: int, kind: str, tmp_path: Path) -> None:
    times = 400 if size < 3_000 else 60 if size < 1 << 20 else 15
    with gabion.Pile(path=tmp_path / "a.pile" if kind == "file" else None) as pile:
        pointer, others = pile.put((0, b"")), pile.put_many(range(100))

        def count() -> None:
            for _ in range(times):
                grown(pile, pointer, size)

        def disturb() -> None:
            for number in range(times):
                pile.replace(others[number % 100], b"x" * (number * 7 % 3_000))
                pile.compact() if number % 50 == 0 else None

        run(count, count, count, disturb)
        assert pile.get(pointer)[0] == 3 * times
        pile.validate()


def test_the_function_is_called_again_with_what_is_there_then(pile: gabion.Pile) -> None:
    for size in SIZES:
        pointer, seen = pile.put(["first", b"x" * size]), []

        def function(value: list[Any], pointer: int = pointer, seen: list[Any] = seen) -> list[Any]:
            seen.append(value[0])
            if len(seen) == 1:
                run(lambda: pile.replace(pointer, ["other", value[1]]))
            return [*value, "more"]

        assert pile.change(pointer, function) == ["other", b"x" * size, "more"]
        assert (pile.get(pointer), seen) == (["other", b"x" * size, "more"], ["first", "other"])


def test_what_was_replaced_by_the_same_is_unchanged(pile: gabion.Pile) -> None:
    pointer, calls = pile.put([1]), []

    def function(value: list[int]) -> list[int]:
        calls.append(1)
        pile.replace(pointer, [2])
        pile.replace(pointer, [1])
        value.append(2)
        return value

    assert pile.change(pointer, function) == [1, 2]
    assert (pile.get(pointer), len(calls)) == ([1, 2], 1)


def test_what_goes_wrong_changes_nothing(pile: gabion.Pile) -> None:
    pointer = pile.put([1])
    with pytest.raises(ZeroDivisionError):
        pile.change(pointer, lambda value: value[0] / 0)
    with pytest.raises(gabion.CodecError):
        pile.change(pointer, lambda value: [*value, threading.Lock()])
    with pytest.raises(TypeError, match="takes a function of the object that is stored, not int"):
        pile.change(pointer, 5)  # type: ignore[arg-type]
    with pytest.raises(gabion.LimitError):
        pile.max_bytes = 1 << 20
        pile.change(pointer, lambda _: b"x" * (2 << 20))
    assert pile.get(pointer) == [1]
    with pytest.raises(RuntimeError, match="it must not replace it itself"):
        pile.change(pointer, lambda value: (pile.replace(pointer, [value[0] + 1]), value))
    pile.validate()


def test_who_is_gone_is_not_changed(pile: gabion.Pile, tmp_path: Path) -> None:
    dead = pile.put(1)
    pile.remove(dead)
    for pointer in (dead, 0, -1, 1 << 80):
        with pytest.raises(gabion.PointerError):
            pile.change(pointer, lambda value: value)
    pointer = pile.put(1)
    with pytest.raises(gabion.PointerError):
        pile.change(pointer, lambda value: (pile.remove(pointer), value))
    assert len(pile) == 0
    pointer = pile.put(bytes(2 << 20))
    with pytest.raises(gabion.ClosedError):
        pile.change(pointer, lambda value: (pile.close(), value))
    path = tmp_path / "a.pile"
    with gabion.Pile(path=path) as filed:
        pointer = filed.put(bytes(2 << 20))
        with pytest.raises(gabion.ClosedError):
            filed.change(pointer, lambda value: (filed.close(), value))
    gc.collect()
    with gabion.Pile(path=path, read_only=True) as reading:  # nobody holds the file
        with pytest.raises(gabion.GabionError, match="read_only"):
            reading.change(pointer, lambda value: value)
        assert reading.get(pointer) == bytes(2 << 20)


def test_a_function_that_returns_nothing_is_refused(pile: gabion.Pile) -> None:
    """It changed what it was given in place, and the object would be None."""
    pointer = pile.put({"visits": 1})
    text = (
        "the function that change() called with an object of class dict returned None, so nothing was put: it must "
        "return the changed object, and not only change what it is given; replace(ptr, None) stores None"
    )
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        pile.change(pointer, lambda page: page.update(visits=2))
    assert pile.get(pointer) == {"visits": 1}
    pile.replace(pointer, None)
    assert pile.change(pointer, lambda nothing: nothing) is None
    assert pile.change(pointer, lambda nothing: [nothing]) == [None]


def test_changes_nest(pile: gabion.Pile) -> None:
    one, two = pile.put([1]), pile.put([2])

    def inner(value: list[int]) -> list[int]:
        return [*value, *pile.get(one)]

    def outer(value: list[int]) -> list[int]:
        return value + pile.change(two, inner)

    assert pile.change(one, outer) == [1, 2, 1]
    assert (pile.get(one), pile.get(two)) == ([1, 2, 1], [2, 1])


def test_an_object_that_becomes_of_another_class_is_described(tmp_path: Path) -> None:
    path = tmp_path / "a.pile"
    with gabion.Pile(path=path) as pile:
        pile.root = pile.put(1)
        pile.change(pile.root, lambda number: Stone(number + 1))
    with gabion.Pile(path=path, types=[Stone]) as pile:
        assert pile.get(pile.root).weight == 2


class Stone:
    def __init__(self, weight: int) -> None:
        self.weight = weight
