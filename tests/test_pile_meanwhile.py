"""Long calls let other threads run and signals in, and survive what these do to the pile."""

import gc
import signal
import sys
import threading
import time
from array import array
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pytest

import gabion

MANY = 1_000_000
alarms = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")


class Alarm(Exception):
    pass


def ring() -> None:
    raise Alarm


@contextmanager
def alarm(handle: Callable[[], None] = ring, after: float = 0.01) -> Iterator[list[int]]:
    """Has a signal come, whose handler calls `handle`; gives a list that then has an item."""
    came: list[int] = []

    def handler(*_: object) -> None:
        came.append(1)
        handle()

    before = signal.signal(signal.SIGALRM, handler)
    # What a handler raises inside a callback of the collector's is lost, and a plugin has one.
    gc.disable()
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        yield came
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.enable()
        signal.signal(signal.SIGALRM, before)


@alarms
def test_a_put_many_that_is_interrupted_is_undone(pile: gabion.Pile) -> None:
    kept = pile.put_many(range(100))
    for values in ([("ab", 1.5)] * MANY, range(2 * MANY)):
        with pytest.raises(Alarm), alarm():
            pile.put_many(values)
        assert sorted(pile) == sorted(kept)
        pile.validate()


class Endless:
    """Reduced to what iterators without Python code give, for ever."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts

    def __reduce_ex__(self, protocol: object) -> Any:
        return dict, (), None, *self.parts


@alarms
@pytest.mark.parametrize("parts", [(repeat(1.5),), (repeat([]),), (None, repeat((1, 2.5))), (None, repeat((1, [])))])
def test_an_endless_iterator_is_interrupted(parts: tuple[object, ...]) -> None:
    pile = gabion.Pile(max_bytes="64 MiB")
    with pytest.raises(Alarm) as raised, alarm():
        pile.put(Endless(*parts))
    # Not once the limit had ended the call.
    assert raised.value.__context__ is None
    assert len(pile) == 0
    pile.validate()


class Slow:
    """Stored and rebuilt by code that takes its time."""

    def __getstate__(self) -> object:
        return self.wait()

    def __setstate__(self, state: object) -> None:
        self.wait()

    @staticmethod
    def wait() -> int:
        return sum(range(3000))


@alarms
@pytest.mark.parametrize("error", [Alarm, TimeoutError])
def test_what_a_handler_raises_within_an_objects_own_code_arrives(pile: gabion.Pile, error: type[Exception]) -> None:
    def late() -> None:
        raise error("time is up")

    with pytest.raises(error), alarm(late):
        pile.put([Slow() for _ in range(MANY // 100)])
    with pytest.raises(error), alarm(late):
        pile.put_many(Slow() for _ in range(MANY))
    assert len(pile) == 0
    pointer = pile.put([Slow() for _ in range(2000)])
    for call in (pile.get, lambda pointer: pile.get_many([pointer] * 1000), lambda pointer: pile.fields(pointer, "x")):
        with pytest.raises(error) as raised, alarm(late):
            while True:
                call(pointer)
        assert not isinstance(raised.value, gabion.GabionError)


@alarms
def test_large_values_of_a_put_many_count_by_their_bytes(pile: gabion.Pile) -> None:
    """They are copied from where they lie, and a hundred of them were no more to it than a hundred numbers."""
    stored: list[int] = []
    with alarm(lambda: stored.append(len(pile)), after=0.001):
        pile.put_many([bytes(5 << 20)] * 100)
    assert stored[0] < 100


@alarms
def test_a_get_many_and_a_remove_many_that_are_interrupted(pile: gabion.Pile) -> None:
    pointers = pile.put_many([("ab", 1.5)] * MANY)
    for form in (pointers, list(pointers)):
        with pytest.raises(Alarm), alarm():
            pile.get_many(form)
    left = MANY
    while left == MANY:  # on a busy machine it may ring before the call has begun
        with pytest.raises(Alarm), alarm(after=0.002):
            pile.remove_many(pointers)
        left = len(pile)
    assert left > 0
    assert pile.remove_many(pointers) == left


@alarms
def test_an_interrupt_during_the_undoing_keeps_what_was_before_it(pile: gabion.Pile) -> None:
    def values() -> Iterator[Any]:
        yield from range(2 * MANY)
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        yield threading.Lock()

    undoing = False
    while not undoing:  # on a busy machine it may ring before that has begun
        with pytest.raises(Alarm) as told, alarm(after=1000):
            pile.put_many(values())
        undoing = isinstance(told.value.__context__, gabion.CodecError)
        assert len(pile) == 0


@alarms
def test_handlers_that_change_what_is_worked_on() -> None:
    with gabion.Pile() as pile:
        pointers = array("Q")
        while not pointers:  # on a busy machine it may ring before the call has begun
            values: list[Any] = ["ab"] * MANY
            with alarm(values.clear) as came:
                pointers = pile.put_many(values)
            assert came
        assert len(pointers) < MANY
        assert pile.get_many(pointers) == ["ab"] * len(pointers)
    for call in ("put_many", "get_many", "remove_many"):
        begun = False
        while not begun:
            pile, begun = gabion.Pile(), True
            given: Any = range(MANY) if call == "put_many" else pile.put_many(range(MANY))
            with alarm(pile.close, 0.002) as came:
                try:
                    result = getattr(pile, call)(given)
                except gabion.ClosedError:
                    begun = call != "remove_many"  # that tells what it has removed, once it has begun
                else:
                    assert call == "remove_many"
                    assert result < MANY
            assert came
    with gabion.Pile() as pile:
        pointers = pile.put_many(range(MANY))
        with alarm(pile.clear):
            assert "gone" in pile.get_many(pointers, "gone")


@alarms
def test_nobody_sees_the_list_that_is_being_filled(pile: gabion.Pile) -> None:
    pointers = pile.put_many([("ab", 1.5)] * MANY)
    seen: list[int] = []

    def look() -> None:
        seen.append(sum(type(thing) is list and len(thing) == MANY for thing in gc.get_objects()))

    with alarm(look):
        found = pile.get_many(pointers)
    assert seen == [0]
    assert gc.is_tracked(found)
    assert found == [("ab", 1.5)] * MANY


LENGTH = 77
Row = namedtuple("Row", [f"f{i}" for i in range(LENGTH)])


class Peek:
    """Looks, when it is made anew, for what it is a part of, and keeps what it finds."""

    found: list[Any] = []  # noqa: RUF012

    @staticmethod
    def look() -> str:
        for thing in gc.get_objects():
            if type(thing) in (list, tuple, Row):
                if len(thing) == LENGTH:
                    Peek.found.append(type(thing))
            elif type(thing) is frozenset and not thing.isdisjoint(range(1000, 1000 + LENGTH)):
                Peek.found.append(thing)
        return "looked"

    def __reduce__(self) -> tuple[Any, ...]:
        return Peek.look, ()


@pytest.mark.parametrize("shared", [None, [1]], ids=["plain", "with references"])
@pytest.mark.parametrize("place", [0, LENGTH // 2, LENGTH - 1])
def test_nobody_sees_what_is_being_filled_inside_of_an_object(pile: gabion.Pile, place: int, shared: Any) -> None:
    """Places that nothing was put in yet are no objects: who reads them ends the process."""

    def items(there: object) -> Iterator[Any]:
        return (there if number == place else 1000 + number for number in range(LENGTH))

    kinds: list[Callable[[Iterator[Any]], Any]] = [list, tuple, Row._make, frozenset]
    for kind in kinds:
        ptr = pile.put([kind(items(Peek())), shared, shared])
        Peek.found.clear()
        found = pile.get(ptr)
        assert Peek.found == []
        assert found == [kind(items("looked")), shared, shared]
        assert gc.is_tracked(found[0])
        del found


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="without a GIL nobody waits for it")
def test_other_threads_run_meanwhile(pile: gabion.Pile) -> None:
    beats, over = 0, False

    def beat() -> None:
        nonlocal beats
        while not over:
            time.sleep(0.0001)
            beats += 1

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        pointers = pile.put_many([("ab", 1.5)] * MANY)
        for call in (pile.get_many, pile.remove_many, pile.put_many):
            given: Any = [("ab", 1.5)] * MANY if call == pile.put_many else [*pointers, *pointers]
            # The processor's time: what goes to other processes is nobody's fault.
            started, before = time.process_time(), beats
            call(given)
            # A thread that waits for the lock gets it after 5 ms. It may come late for three of four.
            assert beats - before >= (time.process_time() - started) / 0.02
    finally:
        over = True
        thread.join()
