"""Iterations over a pile: loops that change it meanwhile, signals and threads, how many are still to come."""

import operator
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gabion

SIZES = [5, 200, 900, 2_000, 100_000]


@pytest.fixture(params=["memory", "file"])
def pile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[gabion.Pile]:
    with gabion.Pile(path=None if request.param == "memory" else tmp_path / "a.pile") as made:
        yield made


def filled(pile: gabion.Pile, size: int, count: int) -> set[int]:
    """Fills a pile so that its pages have room here and there, and returns the pointers."""
    pointers = pile.put_many("x" * size for _ in range(3 * count))
    pile.remove_many([ptr for index, ptr in enumerate(pointers) if index % 3])
    return set(pile)


@pytest.mark.parametrize("size", SIZES)
def test_a_loop_does_not_see_what_it_puts(pile: gabion.Pile, size: int) -> None:
    there = filled(pile, size, 100 if size > 1_000 else 3_000)
    seen = []
    for ptr, text in pile.items():
        assert text == "x" * size
        seen.append(ptr)
        assert len(seen) <= len(there)
        pile.put("y" * size)
    assert set(seen) == there
    assert len(seen) == len(there)
    assert len(pile) == 2 * len(there)


@pytest.mark.parametrize("size", SIZES)
def test_a_loop_does_not_see_what_it_puts_in_place_of_what_it_was_given(pile: gabion.Pile, size: int) -> None:
    there = filled(pile, size, 100 if size > 1_000 else 3_000)
    seen = 0
    for ptr in pile:
        assert ptr in there
        seen += 1
        pile.remove(ptr)
        pile.put("y" * size)
    assert seen == len(pile) == len(there)
    assert set(pile.values()) == {"y" * size}


def test_put_many_of_what_a_pile_gives_puts_each_once(pile: gabion.Pile) -> None:
    there = filled(pile, 2_000, 100)
    pile.put_many(text + "!" for text in pile.values())
    assert sorted(map(len, pile.values())) == [2_000] * len(there) + [2_001] * len(there)


def test_an_iteration_begins_with_its_first_step(pile: gabion.Pile) -> None:
    values = pile.values()
    pile.put_many(["a", "b"])
    assert next(values) in ("a", "b")
    pile.put_many(["c"] * 10_000)
    assert len(list(values)) == 1
    assert list(values) == []


def test_an_iterator_tells_about_how_many_are_still_to_come(pile: gabion.Pile) -> None:
    pointers = pile.put_many(range(1_000))
    for make in (pile.values, pile.items, lambda: iter(pile)):
        iterator = make()
        assert operator.length_hint(iterator) == 1_000
        for left in range(999, -1, -1):
            next(iterator)
            assert operator.length_hint(iterator) == left
        assert next(iterator, None) is None
        assert operator.length_hint(iterator) == 0
    iterator = pile.values()
    next(iterator)
    pile.remove_many(pointers)
    assert list(iterator) == []
    assert operator.length_hint(iterator) == 0
    assert operator.length_hint(pile.values()) == 0


def gathered(pile: gabion.Pile) -> dict[str, Callable[[], object]]:
    return {
        "list(values)": lambda: list(pile.values()),
        "dict(items)": lambda: dict(pile.items()),
        "list(pile)": lambda: list(pile),
        "sum": lambda: sum(map(len, pile.values())),
    }


@pytest.mark.parametrize("how", ["list(values)", "dict(items)", "list(pile)", "sum"])
def test_a_signal_is_handled_while_a_builtin_iterates(how: str) -> None:
    pile = gabion.Pile()
    pile.put_many("x" * 30 for _ in range(300_000))
    gather = gathered(pile)[how]
    begin = time.perf_counter()
    gather()
    took = time.perf_counter() - begin

    class Interrupted(Exception):
        pass

    def handle(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for _ in range(20):  # a machine that is busy may be late
            signal.setitimer(signal.ITIMER_REAL, took / 20)
            begin = time.perf_counter()
            with pytest.raises(Interrupted):
                gather()
            if time.perf_counter() - begin < took / 2:
                break
        else:
            pytest.fail("the signal waited for the end")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_a_handler_raises_costs_the_iteration_no_object() -> None:
    pile = gabion.Pile()
    pile.put_many(range(200_000))
    values, seen, interrupts = pile.values(), [], 0

    class Interrupted(Exception):
        pass

    def handle(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handle)
    try:
        while True:
            signal.setitimer(signal.ITIMER_REAL, 0.003)
            try:
                seen.extend(values)
                signal.setitimer(signal.ITIMER_REAL, 0)
                break
            except Interrupted:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 0
    assert sorted(seen) == list(range(200_000))


def test_other_threads_run_while_a_builtin_iterates() -> None:
    pile = gabion.Pile()
    pile.put_many("x" * 30 for _ in range(300_000))
    done, ticks = threading.Event(), 0

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0)

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.001)
    try:
        thread = threading.Thread(target=tick)
        thread.start()
        while not ticks:
            time.sleep(0.001)
        start = ticks
        assert len(list(pile.values())) == 300_000
        meanwhile = ticks - start
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(before)
    assert meanwhile > 5


def test_a_collection_may_ask_an_iterator_how_many_come_that_is_asked_so(script: Callable[..., str]) -> None:
    said = script("""
        import contextlib, gc, operator
        import gabion

        class Circle:
            def __init__(self):
                self.itself = self
            def __del__(self):
                with contextlib.suppress(gabion.ClosedError):
                    operator.length_hint(iterator)

        pile = gabion.Pile()
        iterator = iter(pile)
        pile.close()
        gc.collect()
        for threshold in range(1, 60):
            gc.disable()
            for _ in range(3):
                Circle()
            gc.set_threshold(threshold, 1, 1)
            gc.enable()
            kept = []
            for _ in range(60):
                with contextlib.suppress(gabion.ClosedError):
                    kept.append([])
                    operator.length_hint(iterator)
        print("alive")
    """)
    assert said == "alive\n"
