"""What handlers of signals raise while a cache calls code of the program."""

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import gabion
from gabion import Cache


class Moody:
    """Cannot be built once."""

    fails: Exception | None = None

    def __reduce__(self) -> Any:
        return moody, ()


def moody() -> Moody:
    error, Moody.fails = Moody.fails, None
    if error is not None:
        raise error
    return Moody()


class Limit(Exception):
    """A task queue's, raised by a signal's handler."""


@pytest.mark.parametrize("error", [Limit, TimeoutError, RuntimeError])
def test_what_a_handler_raises_while_a_value_is_rebuilt_passes(tmp_path: Path, error: Any) -> None:
    """It was taken for an entry that cannot be built, which was left out of the new file."""
    path, cache = tmp_path / "cache.pile", Cache("1 MiB")
    cache["k"], cache["moody"] = 1, Moody()
    assert cache.save(path) == 2
    expected = gabion.CodecError if error is RuntimeError else error
    for call in (lambda: cache.save(path), lambda: Cache("1 MiB").load(path, types=[moody])):
        Moody.fails = error("time is over")
        with pytest.raises(expected, match="time is over"):
            call()
    assert Cache("1 MiB").load(path, types=[moody]) == 2


def test_ctrl_c_in_a_callback_ends_the_program(monkeypatch: Any) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: ignored.append(info.exc_type))
    cache, kept = Cache(100_000), []

    @cache.on_evict
    def gone(key: int, value: bytes) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        for number in range(20_000):
            cache[number] = bytes(100)
            kept.append(number)
    assert set(ignored) == {KeyboardInterrupt}
    assert 0 < len(kept) < 2000
    cache.on_evict(None)
    assert cache[kept[-1]] == bytes(100)
    cache.validate()


def test_sys_exit_in_a_callback_ends_the_program(monkeypatch: Any) -> None:
    """A service whose handler of SIGTERM calls it went on."""
    monkeypatch.setattr(sys, "unraisablehook", lambda info: None)
    cache, kept = Cache(100_000), []
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))

    @cache.on_evict
    def gone(key: int, value: bytes) -> None:
        signal.raise_signal(signal.SIGTERM)

    try:
        with pytest.raises(SystemExit, match="7"):
            for number in range(20_000):
                cache[number] = bytes(100)
                kept.append(number)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert 0 < len(kept) < 2000
    cache.on_evict(lambda key, value: sys.exit(8))
    thread = threading.Thread(target=lambda: cache.put_many(dict.fromkeys(range(5000), bytes(100))))
    thread.start()
    thread.join()
    cache.on_evict(None)
    assert cache.stats().evicted > 4000, "another thread's work is done, and the main thread has heard of nothing"
