"""gabion.Image while several threads change it, and in processes that are forked meanwhile: nothing is lost."""

import contextlib
import io
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from child_processes import in_child
from image_files import encoded, noise
from many_threads import run

from gabion import ClosedError, Image, ImageError

pytestmark = [
    pytest.mark.usefixtures("balance"),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]

LARGE = (3000, 2000)  # 17 MiB in RGB: five blocks
RED = (255, 0, 0)


def test_a_view_that_is_made_while_rows_move_shows_the_new_place() -> None:
    moved = 0
    for turn in range(12):
        image = Image.new("RGB", LARGE)
        begun = threading.Event()

        def move(image: Image = image, begun: threading.Event = begun) -> None:
            begun.set()
            # The view may be first.
            with contextlib.suppress(BufferError):
                image.make_contiguous()

        thread = threading.Thread(target=move)
        thread.start()
        begun.wait()
        time.sleep(turn * 0.0003)
        rows = [image.row(0), next(image.rows()), image.blocks[0]]
        thread.join()
        for value, row in enumerate(rows, 77):
            row[0] = value
            assert image.row(0)[0] == value
        moved += image.is_contiguous
        image.close()
    assert moved > 0


def test_readers_are_no_reason_to_refuse() -> None:
    for _ in range(4):
        image, end = Image.new("RGB", LARGE), time.monotonic() + 0.1

        def read(image: Image = image, end: float = end) -> None:
            while time.monotonic() < end:
                assert image.resize((30, 20), reducing_gap=1.0).size == (30, 20)

        run(read, read, image.make_contiguous)
        assert image.is_contiguous
        image.close()


def test_what_is_pasted_beside_thumbnail_is_not_lost() -> None:
    red = Image.new("RGB", LARGE, RED)
    for turn in range(10):
        image = Image.new("RGB", LARGE)

        def paste(image: Image = image, turn: int = turn) -> None:
            time.sleep(turn * 0.0005)
            image.paste(red)

        run(lambda image=image: image.thumbnail(600), paste)
        assert image.size == (600, 400)
        assert image.to_bytes() == bytes(RED) * 240_000


def test_many_changes_at_once() -> None:
    image, patch, shrunk = Image.new("RGB", LARGE), Image.new("RGB", (100, 100), RED), threading.Event()

    def shrink() -> None:
        try:
            for side in range(2900, 1500, -200):
                image.thumbnail(side)
        finally:
            shrunk.set()

    def paste() -> None:
        for turn in itertools.count():
            # The last one is whole: nobody makes it smaller after this.
            last = shrunk.is_set() and turn >= 60
            image.paste(patch)
            image.paste(image, (50, 50))
            if last:
                break

    def move() -> None:
        for _ in range(20):
            with contextlib.suppress(BufferError):
                image.make_contiguous()

    def look() -> None:
        for _ in range(300):
            bytes(image.row(-1))

    run(shrink, paste, move, look)
    assert max(image.size) == 1700
    assert bytes(image.row(0)[:300]) == bytes(RED) * 100


def test_closing_beside_changes() -> None:
    for change in (lambda image: image.thumbnail(100), lambda image: image.make_contiguous()):
        for turn in range(8):
            image = Image.new("RGB", LARGE)

            def use(image: Image = image, change: Callable[[Image], object] = change) -> None:
                with contextlib.suppress(ClosedError):
                    change(image)

            def close(image: Image = image, turn: int = turn) -> None:
                time.sleep(turn * 0.001)
                image.close()

            run(use, close)
            assert image.closed
            with pytest.raises(ClosedError):
                image.row(0)


def test_another_size_ends_process_rows() -> None:
    image, calls = noise("RGB", (30, 20)), []

    def shrink(y: int, row: memoryview) -> bytes:
        calls.append(y)
        if y == 5:
            image.thumbnail(10)
        return bytes(row)

    with pytest.raises(BufferError, match="got another size before row 6"):
        image.process_rows(shrink)
    assert calls == list(range(6))


# --- forks ----------------------------------------------------------------------------------------

WORK: dict[str, Callable[[Image, Image, Path], object]] = {
    "paste": lambda image, other, _: image.paste(other),
    "resize": lambda image, _, __: image.resize((300, 200), reducing_gap=2.0),
    "save": lambda image, _, folder: image.save(folder / "image.bmp"),
    "save to a file": lambda image, _, __: image.save(io.BytesIO(), format="BMP"),
    "to_bytes": lambda image, _, __: image.to_bytes(),
    "copy": lambda image, _, __: image.copy(),
    "thumbnail": lambda image, other, __: other.copy().thumbnail(300),
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("name", WORK)
def test_a_child_may_use_what_another_thread_was_using(name: str, tmp_path: Path) -> None:
    image, other = Image.new("RGB", LARGE), Image.new("RGB", LARGE, 3)
    stop = threading.Event()

    def work(image: Image, other: Image) -> None:
        while not stop.is_set():
            WORK[name](image, other, tmp_path)

    def child() -> None:
        for picture in (image, other):
            picture.paste(Image.new("RGB", (10, 10), RED))
            assert bytes(picture.row(0)[:3]) == bytes(RED)
            assert len(picture.to_bytes()) == picture.nbytes
            picture.make_contiguous()
            assert picture.thumbnail(100).size == (100, 67)

    # By arguments: a variable that the child shares with a thread may be locked for ever there, where the interpreter
    # has no lock of its own.
    threads = [threading.Thread(target=work, args=(image, other)) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(5):
            time.sleep(0.003 * turn)
            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


# --- arguments that ask for more than there is -------------------------------------------------------

HUGE = """
import gabion
gabion.memory.configure(total_limit="3 GiB")
image = gabion.Image.new("L", (4, 4))
for size in ((2_000_000_000, 1), ((1 << 31) - 1, 1), ((1 << 31) - 1, (1 << 31) - 1)):
    for filter in ("nearest", "box", "bilinear", "bicubic", "lanczos3"):
        for gap in (None, 2.0):
            try:
                image.resize(size, filter=filter, reducing_gap=gap)
            except MemoryError:
                print("refused")
print(image.resize((2, 2)).size)
"""


def test_a_side_that_needs_more_memory_than_there_is(script: Callable[..., str]) -> None:
    told = script(HUGE)
    assert told.splitlines() == ["refused"] * 30 + ["(2, 2)"]


def test_a_side_beyond_every_image() -> None:
    image = Image.new("L", (4, 4))
    told = r"a side of [0-9]+ pixels; an image has sides of 2147483647 at most"
    for side in (1 << 31, 1 << 40):
        with pytest.raises(ValueError, match=f"size: {told}"):
            image.resize((side, 1))
        with pytest.raises(ValueError, match=f"size: {told}"):
            image.thumbnail(side)
        with pytest.raises(ValueError, match=f"max_size: {told}"):
            Image.open(encoded(image, "PNG"), max_size=side)
    with pytest.raises(ValueError, match="max_size: a side of 0 pixels; an image has at least 1 × 1"):
        Image.open(encoded(image, "PNG"), max_size=(5, 0))
    assert Image.open(encoded(image, "PNG"), max_size=(1 << 31) - 1).size == (4, 4)


def test_a_bitmap_that_would_be_too_wide_is_not_written() -> None:
    wide = Image.new("L", (65_536, 1), 7)
    with pytest.raises(
        ImageError, match=r"BMP holds sides of up to 65535 pixels, not 65536 × 1: make .*another format"
    ):
        encoded(wide, "BMP")
    assert Image.open(encoded(wide.crop((0, 0, 65_535, 1)), "BMP")).size == (65_535, 1)


def test_a_call_without_meaning_says_what_to_call() -> None:
    for arguments in ((), ("photo.jpg",)):
        with pytest.raises(TypeError, match=r"Image\(\) makes no image: call Image.open\(source\), Image.new"):
            Image(*arguments)
