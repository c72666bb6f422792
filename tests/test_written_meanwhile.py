"""Bytes that somebody writes while they are read: each is read as it was or as it gets, and no harm comes of it."""

import ctypes
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from image_files import encoded, gradient, noise
from many_threads import LOCKED

from gabion import Image, ImageError, streams

pytestmark = pytest.mark.usefixtures("balance")


@contextmanager
def written(target: bytearray | memoryview, one: bytes, other: bytes, *, locked: bool = False) -> Iterator[None]:
    """Another thread writes the one and the other into it in turns, beside the interpreter's lock or holding it."""
    place = (ctypes.c_char * len(target)).from_buffer(target)
    end = threading.Event()

    def write() -> None:
        while not end.is_set():
            for content in (one, other):
                if locked:
                    target[: len(content)] = content
                else:
                    ctypes.memmove(place, content, len(content))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        end.set()
        writer.join()


def padded(*files: bytes) -> list[bytes]:
    """The files, each with zeros behind it to the length of the longest."""
    longest = max(map(len, files))
    return [file.ljust(longest, b"\0") for file in files]


FILES = [
    ("JPEG", {}),
    ("JPEG", {"progressive": True}),
    ("PNG", {"compression": "fast"}),
    ("WebP", {"lossless": True}),
    ("WebP", {}),
    ("TIFF", {}),
    ("BMP", {}),
]


@pytest.mark.parametrize("kind", FILES, ids=str)
def test_the_bytes_of_a_file(kind: tuple[str, dict[str, object]]) -> None:
    size = (200, 150)
    format, options = kind
    one, other = padded(*(encoded(make("RGB", size), format, **options) for make in (noise, gradient)))
    data = bytearray(one)
    opened = 0
    with written(data, one, other):
        for turn in range(40):
            source = data if turn % 2 else memoryview(data).toreadonly()
            try:
                image = Image.open(source, max_size=(None, 50)[turn % 3 == 0], partial=turn % 5 == 0)
            except ImageError:
                continue
            assert len(image.to_bytes()) == image.width * image.height * 3
            opened += 1
    data[:] = one
    assert Image.open(data).size == size


@pytest.mark.skipif(not LOCKED, reason="without the interpreter's lock nothing keeps a copy in one piece")
def test_the_bytes_of_a_file_are_those_of_one_moment() -> None:
    """The decoder works without the interpreter, on what was there when it began."""
    whole = [encoded(Image.new("RGB", (900, 700), color), "BMP") for color in (10, 200)]
    data = bytearray(whole[0])
    with written(data, *whole, locked=True):
        for _ in range(40):
            assert set(Image.open(data).to_bytes()) in ({10}, {200})


def test_an_array() -> None:
    data = bytearray(600 * 400 * 3)
    arrays = [memoryview(data).cast("B", (400, 600, 3)), memoryview(data).cast("B", (400, 1800))]
    with written(data, b"\x0a" * len(data), b"\xc8" * len(data)):
        for turn in range(40):
            assert set(Image.from_array(arrays[turn % 2]).to_bytes()) <= {0, 10, 200}
    for array in arrays:
        array.release()


PICTURE_WORK: dict[str, Callable[[Image], Image]] = {
    "PNG": lambda image: Image.open(encoded(image, "PNG", compression="fast")),
    "WebP": lambda image: Image.open(encoded(image, "WebP", lossless=True)),
    "BMP": lambda image: Image.open(encoded(image, "BMP")),
    "TIFF": lambda image: Image.open(encoded(image, "TIFF")),
    "JPEG": lambda image: Image.open(encoded(image, "JPEG", quality=95)).resize((1, 1)),
    "nearest": lambda image: image.resize((50, 40), filter="nearest"),
    "lanczos": lambda image: image.resize((1, 1)),
    "convert": lambda image: image.convert("L").convert("RGB"),
    "crop": lambda image: image.crop((10, 10, 200, 90)),
    "rotate": lambda image: image.rotate(90),
    "copy": lambda image: image.copy(),
    "paste": lambda image: pasted(image),
    "bytes": lambda image: Image.from_array(memoryview(image.to_bytes()).cast("B", (300, 400, 3))),
    "thumbnail": lambda image: image.copy().thumbnail((30, 30), filter="nearest"),
}


def pasted(image: Image) -> Image:
    """A part of it, after it was pasted over a part of itself."""
    image.paste(image, (7, 9))
    below = Image.new("RGB", (100, 100), 10)
    below.paste(image, (-50, -50))
    return below


@pytest.mark.parametrize("kind", PICTURE_WORK)
def test_a_picture(kind: str) -> None:
    """Its codecs and filters work on a copy where somebody sees the bytes."""
    image = Image.new("RGB", (400, 300), 10)
    blocks = list(image.blocks)
    assert len(blocks) == 1
    with written(blocks[0], b"\x0a" * len(blocks[0]), b"\xc8" * len(blocks[0])):
        for _ in range(15):
            made = PICTURE_WORK[kind](image)
            assert made.size != (0, 0)
            found = set(made.to_bytes())
            if kind in ("JPEG", "lanczos", "convert"):
                assert 5 <= min(found) <= max(found) <= 205, "means of both"
            else:
                assert found <= {10, 200}
    blocks[0].release()


def test_views_that_come_while_a_picture_is_read() -> None:
    """Those who read it have its bytes to themselves until they have done; nobody waits for ever."""
    image = Image.new("RGB", (500, 400), 10)
    end = threading.Event()

    def show() -> None:
        while not end.is_set():
            with image.row(0) as row:
                row[:3] = b"\xc8\xc8\xc8"
            with memoryview(image) as whole:
                assert whole.shape == (400, 500, 3)

    viewers = [threading.Thread(target=show) for _ in range(2)]
    for viewer in viewers:
        viewer.start()
    try:
        for _ in range(15):
            assert set(Image.open(encoded(image, "PNG", compression="fast")).to_bytes()) <= {10, 200}
            assert set(image.resize((50, 40), filter="nearest").to_bytes()) <= {10, 200}
            image.paste(Image.new("RGB", (20, 20), 200), (100, 100))
    finally:
        end.set()
        for viewer in viewers:
            viewer.join()


def test_what_is_written_to_a_stream() -> None:
    data = bytearray(5000)
    file = io.BytesIO()
    with written(data, b"\x0a" * len(data), b"\xc8" * len(data)):
        writer = streams.Writer(file, chunk=12_000)
        for turn in range(300):
            writer.write(data if turn % 2 else memoryview(data)[1:])
        writer.flush()
    assert len(file.getvalue()) == 300 * 5000 - 150
    assert set(file.getvalue()) <= {0, 10, 200}


class Keeping(io.RawIOBase):
    """Gives a file's bytes, and keeps the views that it was given, to write into them later."""

    def __init__(self, content: bytes) -> None:
        self.file = io.BytesIO(content)
        self.views: list[memoryview] = []

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        self.views.append(buffer)
        for view in self.views:
            view[:40] = bytes(40)
        return self.file.readinto(buffer)


def test_a_file_that_writes_into_what_it_has_given() -> None:
    image = noise("RGB", (400, 300))
    file = Keeping(encoded(image, "BMP"))
    end = threading.Event()

    def write() -> None:
        while not end.is_set():
            for view in list(file.views):
                view[-20_000:] = b"\x07" * len(view[-20_000:])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            file.file.seek(0)
            try:
                found = Image.open(file)
            except ImageError:
                continue
            assert found.size == image.size
    finally:
        end.set()
        writer.join()
        file.views.clear()
