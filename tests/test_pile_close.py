"""A pile that is closed lets go of the classes that it knew, beside calls that are in the midst of using them."""

import contextlib
import gc
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model import Plain
from patience import HANGS

import gabion

pytestmark = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="calls are counted under the global lock only"
)


def make_class(name: str = "Made") -> Any:
    """A class that the module holds by name only until it is taken away."""
    made = type(name, (Plain,), {"__module__": __name__})
    globals()[name] = made
    return made


class Closing:
    """Closes a pile while it is stored, or rebuilt."""

    pile: gabion.Pile
    wait: Callable[[], object]

    def __init__(self, *others: Any) -> None:
        self.others = others

    def __getstate__(self) -> Any:
        self.wait()
        return {"others": self.others}

    def __setstate__(self, state: Any) -> None:
        self.others = state["others"]
        self.wait()


def test_a_closed_pile_lets_go_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    def close_and_forget() -> None:
        pile.close()
        globals().pop("Made", None)
        gc.collect()

    for call in ("close", "with", "put", "get", "put_many", "fields"):
        monkeypatch.setattr(Closing, "wait", lambda *_: None, raising=False)
        pile, made = gabion.Pile(), make_class()
        dies = weakref.ref(made)
        pointer = pile.put([Closing(), made(a=1), [made(b=2)] * 2])
        pile.get(pointer)
        assert pile.stats().types > 0
        values = [made(c=3), Closing(), [made(d=4)]]
        del made
        if call in ("close", "with"):
            del values
            with pile if call == "with" else contextlib.nullcontext():
                pass
        else:
            monkeypatch.setattr(Closing, "wait", lambda *_: close_and_forget())
            with contextlib.suppress(gabion.ClosedError, gabion.CodecError, AttributeError):
                getattr(pile, call)(values if call.startswith("put") else pointer, *["x"] * (call == "fields"))
            values = []
        close_and_forget()
        assert dies() is None, call
        assert pile.closed


def test_closing_beside_calls_of_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = threading.Semaphore(0), threading.Event()

    def wait(_: object) -> None:
        inside.release()
        go_on.wait(20)

    pile, made = gabion.Pile(), make_class()
    dies = weakref.ref(made)
    monkeypatch.setattr(Closing, "wait", lambda *_: None, raising=False)
    pointer = pile.put([Closing(), made(a=1)])
    monkeypatch.setattr(Closing, "wait", wait)
    results: list[Any] = []

    def call(work: Callable[[], Any]) -> None:
        try:
            results.append(work())
        except gabion.ClosedError as error:
            results.append(type(error))

    value = [Closing(), made(b=1)]
    work = [lambda: pile.get(pointer)[1].a, lambda: pile.put(value)]
    threads = [threading.Thread(target=call, args=(each,)) for each in work]
    del made
    for thread in threads:
        thread.start()
    for _ in threads:
        assert inside.acquire(timeout=HANGS)
    pile.close()
    gc.collect()
    assert dies() is not None
    go_on.set()
    for thread in threads:
        thread.join(HANGS)
    assert sorted(results, key=str) == sorted([1, gabion.ClosedError], key=str)
    del globals()["Made"], work, threads, thread
    value.clear()
    gc.collect()
    assert dies() is None


class Closes:
    """An object of more than a block, which closes its pile while it is built."""

    close: Callable[[], object]

    def __init__(self) -> None:
        self.long = bytes(5_000_000)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.long = state["long"]
        Closes.close()


@pytest.mark.parametrize("call", ["get", "pop", "change", "fields", "get_many", "values"])
def test_a_file_is_free_after_a_call_in_which_its_pile_was_closed(tmp_path: Path, call: str) -> None:
    path = tmp_path / "pile"
    with gabion.Pile(path=path) as pile:
        pile.root = pile.put(Plain(a=Closes()))
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: pile.get(pointer),
        "pop": lambda: pile.pop(pointer),
        "change": lambda: pile.change(pointer, lambda found: found),
        "fields": lambda: pile.fields(pointer, "a"),
        "get_many": lambda: pile.get_many([pointer]),
        "values": lambda: list(pile.values()),
    }
    pile = gabion.Pile(path=path, types=[Closes, Plain])
    pointer = pile.root
    Closes.close = pile.close  # type: ignore[method-assign]
    with contextlib.suppress(ValueError, gabion.CodecError):
        calls[call]()
    # Its own lock is gone, although the closed pile is still there, and nobody asks it again.
    gabion.Pile(path=path).close()
    assert "closed" in repr(pile)


def test_an_int_of_its_own_that_closes_the_pile_removes_nothing(tmp_path: Path) -> None:
    class Number:
        def __index__(self) -> int:
            pile.close()
            return pointer

    path = tmp_path / "pile"
    for call in ("remove", "discard", "pop"):
        with gabion.Pile(path=path) as pile:
            pointer = pile.put(b"kept" * 10)
            view = pile.view(pointer)
            with pytest.raises(ValueError, match="closed"):
                getattr(pile, call)(Number())
        del view
        with gabion.Pile(path=path) as pile:
            assert pile.get(pointer) == b"kept" * 10


@pytest.mark.parametrize("call", ["size_of", "view", "get", "fields", "__contains__"])
def test_an_int_of_its_own_that_closes_the_pile_finds_nothing(call: str) -> None:
    class Number:
        def __index__(self) -> int:
            pile.close()
            return pointer

    pile = gabion.Pile()
    pointer = pile.put(b"kept" * 10)
    with pytest.raises(ValueError, match="closed"):
        getattr(pile, call)(Number())


def test_no_more_is_removed_from_a_pile_that_a_handler_closes(tmp_path: Path) -> None:
    path, many, removed = tmp_path / "pile", 1_000_000, 0
    with gabion.Pile(path=path) as pile:
        pointers = pile.put_many([b"one"] * many)
    while not removed:  # it may ring before the call has begun
        pile = gabion.Pile(path=path)
        # Keeps the file mapped after it is closed.
        view = pile.view(pointers[-1])
        before = signal.signal(signal.SIGALRM, lambda *_, pile=pile: pile.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            with contextlib.suppress(ValueError):
                removed = pile.remove_many(pointers)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        pile.close()
        del view
    assert removed < many
    with gabion.Pile(path=path) as pile:
        assert len(pile) == many - removed


def test_a_file_that_is_closed_beside_clear_is_let_go(tmp_path: Path) -> None:
    """What clear() was just unmapping was taken for what somebody reads, and the file stayed locked."""
    path = tmp_path / "large.pile"

    def clear(pile: gabion.Pile[bytes]) -> None:
        with contextlib.suppress(gabion.ClosedError):
            pile.clear()

    for delay in (0, 0.0002, 0.0005, 0.001, 0.002):
        pile: gabion.Pile[bytes] = gabion.Pile(path=path)
        pile.put_many(bytes(1_200_000) for _ in range(16))
        thread = threading.Thread(target=clear, args=(pile,))
        thread.start()
        time.sleep(delay)
        pile.close()
        thread.join()
        gabion.Pile(path=path).close()
