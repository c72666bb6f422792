"""Images below the pool's total limit: refused at once, or waiting for room with a timeout."""

import contextlib
import gc
import io
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from image_files import encoded, gradient, noise
from many_threads import run
from patience import HANGS
from stream_files import OnlyRead

import gabion
from gabion import Image, LimitError, memory

MIB = 1 << 20
# Ten megabytes of pixels, in a file of some kilobytes.
SIZE = (2560, 4096)
CONTENT = encoded(Image.new("L", SIZE, 7), "PNG")

pytestmark = pytest.mark.usefixtures("balance")


# Enough for a call that is to go on, and little where one never does.
WAITS = 60


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """Room for one of these pictures and what it takes to make it, and not for three."""
    gc.collect()
    memory.trim(all=True)
    memory.configure(total_limit=memory.stats().mapped + 40 * MIB)
    yield
    memory.configure(total_limit=None)


class Taken:
    """All blocks that the limit leaves, until they are given back."""

    def __init__(self) -> None:
        self.blocks: list[memory.Buffer] = []
        with contextlib.suppress(LimitError):
            while True:
                self.blocks.append(memory.rent(4 * MIB))

    def release(self) -> None:
        while self.blocks:
            self.blocks.pop().release()


CALLS: dict[str, Callable[[Any, Any], Image]] = {
    "open": lambda _, timeout: Image.open(CONTENT, timeout=timeout),
    "contiguous": lambda _, timeout: Image.open(CONTENT, max_size=(2560, 2000), contiguous=True, timeout=timeout),
    "file": lambda _, timeout: Image.open(io.BytesIO(CONTENT), timeout=timeout),
    "stream": lambda _, timeout: Image.open(OnlyRead(CONTENT), timeout=timeout),
    "bytearray": lambda _, timeout: Image.open(bytearray(CONTENT), timeout=timeout),
    "new": lambda _, timeout: Image.new("L", SIZE, timeout=timeout),
    "from_bytes": lambda _, timeout: Image.from_bytes("L", SIZE, bytes(SIZE[0] * SIZE[1]), timeout=timeout),
    "resize": lambda image, timeout: image.resize(SIZE, filter="box", timeout=timeout),
    "cover": lambda image, timeout: image.resize(SIZE, fit="cover", filter="nearest", timeout=timeout),
    "convert": lambda image, timeout: image.convert("RGB", timeout=timeout),
    "crop": lambda image, timeout: image.crop((0, 0, 1700, 1700), timeout=timeout),
    "copy": lambda image, timeout: image.copy(timeout=timeout),
}
# Three megabytes; three times as many as RGB.
SMALL = (1750, 1750)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_waits_until_there_is_room(call: str) -> None:
    make = CALLS[call]
    image = Image.new("L", SMALL)
    taken = Taken()
    for timeout in (None, 0):
        with pytest.raises(LimitError, match="wait with a timeout") as caught:
            make(image, timeout)
        assert caught.value.limit == "total_limit"
    began = time.monotonic()
    with pytest.raises(LimitError, match=r"not enough came back within 200ms: .*wait longer") as caught:
        make(image, "200 ms")
    assert caught.value.limit == "total_limit"
    assert 0.15 < time.monotonic() - began < WAITS / 2
    timer = threading.Timer(0.1, taken.release)
    timer.start()
    make(image, timedelta(seconds=WAITS)).close()
    timer.join()


def test_what_can_never_be_had_does_not_wait() -> None:
    began = time.monotonic()
    with pytest.raises(LimitError, match="more than total_limit") as caught:
        Image.new("L", (16384, (memory.stats().total_limit or 0) // 16384 + 1), timeout=WAITS)
    assert caught.value.limit == "total_limit"
    assert caught.value.asked is not None
    assert caught.value.allowed is not None
    assert caught.value.asked > caught.value.allowed
    with pytest.raises(LimitError, match="more than max_pixels=5 allows"):
        Image.open(CONTENT, max_pixels=5, timeout=WAITS)
    assert time.monotonic() - began < WAITS / 2


def test_many_threads_share_what_there_is() -> None:
    """There is room for some of their pictures at a time: none of them ever waits with one in its hands."""
    content = encoded(gradient("RGB", (1400, 900)), "PNG")

    def work() -> None:
        for _ in range(3):
            with Image.open(content, timeout=WAITS) as image:
                size = image.size
            with Image.open(content, upright=True, max_size=(700, 450), timeout=WAITS) as small:
                assert (size, small.size) == ((1400, 900), (700, 450))

    run(*[work] * 6)


def test_two_that_wait_for_each_other_end() -> None:
    """The callers hold a picture each, and want one more."""
    ended = []
    both = threading.Barrier(2, timeout=WAITS)

    def work() -> None:
        with Image.new("L", (4096, 3584), timeout=WAITS) as image:
            both.wait()
            try:
                image.copy(timeout=0.3).close()
            except LimitError:
                ended.append("refused")
            else:
                ended.append("made")

    run(work, work)
    assert len(ended) == 2
    assert "refused" in ended


def test_a_file_that_waited_is_read_as_a_whole() -> None:
    image = noise("L", (1200, 900))
    content = encoded(image, "BMP")
    taken = Taken()
    file = io.BytesIO(b"before" + content)
    file.seek(6)
    timer = threading.Timer(0.1, taken.release)
    timer.start()
    assert Image.open(file, timeout=WAITS) == image
    timer.join()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_signals_end_the_wait() -> None:
    taken = Taken()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for make in (CALLS["open"], CALLS["new"]):
            # Again and again: what is raised while the collector runs others' callbacks is lost, as anywhere.
            signal.setitimer(signal.ITIMER_REAL, 0.1, 1)
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                make(None, WAITS)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert time.monotonic() - began < WAITS / 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        taken.release()


def test_others_go_on_meanwhile() -> None:
    taken = Taken()
    waiting = threading.Thread(target=lambda: Image.open(CONTENT, timeout=WAITS).close())
    waiting.start()
    began, turns = time.monotonic(), 0
    while time.monotonic() - began < 0.2:
        turns += 1
    taken.release()
    waiting.join(HANGS)
    assert not waiting.is_alive()
    assert turns > 1000


def test_timeouts_that_make_no_sense() -> None:
    image = Image.new("L", (4, 4))
    for make in CALLS.values():
        with pytest.raises(ValueError, match="timeout"):
            make(image, -1)
        with pytest.raises(TypeError, match="timeout"):
            make(image, [1])
    assert gabion.memory.stats().total_limit


# Six megabytes in which it is decoded, and half a megabyte in rows of many lengths.
ALONE = encoded(gradient("RGB", (1600, 1200)), "WEBP")


@pytest.mark.parametrize("timeout", [None, WAITS])
def test_one_picture_needs_little_more_than_it_takes(timeout: int | None, script: Callable[..., str]) -> None:
    # In a process that holds nothing else: below a larger limit, each size takes a block of its own.
    said = script(f"""
        from image_files import encoded, gradient
        from gabion import Image, memory

        alone = encoded(gradient("RGB", (1600, 1200)), "WEBP")
        memory.trim(all=True)
        memory.configure(total_limit=memory.stats().mapped + 20 * 2**20)
        with Image.open(alone, max_size=400, timeout={timeout}) as image:
            print(image.size)
    """)
    assert said == "(400, 300)\n"


def test_what_is_refused_again_whenever_there_is_room_ends_with_the_timeout() -> None:
    memory.configure(total_limit=memory.stats().mapped + 11 * MIB)
    start = time.monotonic()
    with pytest.raises(LimitError, match="not enough came back within 300ms"):
        Image.open(ALONE, timeout=0.3)
    assert 0.3 <= time.monotonic() - start < 30
