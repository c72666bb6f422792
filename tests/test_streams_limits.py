"""gabion.streams.copy(limit=): so many bytes, and none more asked of the source."""

import io
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import HANGS
from stream_files import Keeping, OnlyRead, OnlyWrite, Scripted, Short

from gabion import streams

DATA = bytes(i * 7 % 251 for i in range(700_001))

pytestmark = pytest.mark.usefixtures("balance")


def temporary(content: bytes, buffering: int = -1) -> Any:
    file = tempfile.TemporaryFile(buffering=buffering)  # noqa: SIM115
    file.write(content)
    file.seek(0)
    return file


class Piped:
    """A pipe, or a socket, that is fed by a thread; it stays open at its other end until the file is closed."""

    def __init__(self, content: bytes, buffering: int, kind: str) -> None:
        if kind == "pipe":
            read, write = os.pipe()
            self.file: Any = os.fdopen(read, "rb", buffering=buffering)
            end: Any = os.fdopen(write, "wb", buffering=0)
        else:
            here, there = socket.socketpair()
            here.settimeout(HANGS)
            self.file, end = here.makefile("rb", buffering=buffering), there.makefile("wb", buffering=0)
            here.close()
            there.close()
        self.end, self.go = end, threading.Event()
        self.feeder = threading.Thread(target=self.feed, args=(content,))
        self.feeder.start()

    def feed(self, content: bytes) -> None:
        with self.end:
            streams.copy(io.BytesIO(content), self.end)
            assert self.go.wait(HANGS)

    def close(self) -> None:
        self.go.set()
        self.file.read()
        self.feeder.join()
        self.file.close()


SOURCES: dict[str, Callable[[bytes], Any]] = {
    "bytes": io.BytesIO,
    "viewed bytes": lambda content: (file := io.BytesIO(content), VIEWS.append(file.getbuffer()))[0],
    "file": temporary,
    "raw file": lambda content: temporary(content, 0),
    "only read": OnlyRead,
    "short": lambda content: Short(content, 50_021),
    "buffered short": lambda content: io.BufferedReader(Short(content, 50_021)),
    "reader": lambda content: streams.Reader(io.BytesIO(content)),
    "reader of a file": lambda content: streams.Reader(temporary(content), chunk=5000),
}
VIEWS: list[memoryview] = []
LIMITS = [0, 1, 4096, 65_536, 262_145, 650_000, len(DATA) - 1, len(DATA), len(DATA) + 1, 1 << 63]
TARGETS: dict[str, Callable[[], Any]] = {
    "bytes": io.BytesIO,
    "bytes to be overwritten": lambda: io.BytesIO(bytes(len(DATA) - 1000)),
    "file": lambda: temporary(b""),
    "raw file": lambda: temporary(b"", 0),
    "only write": OnlyWrite,
    "short": lambda: Short(most=70_001),
    "keeping": Keeping,
    "writer": lambda: streams.Writer(io.BytesIO()),
}


def content_of(target: Any, length: int) -> bytes:
    if hasattr(target, "flush"):
        target.flush()
    while hasattr(target, "raw"):
        target = target.raw
    if hasattr(target, "getvalue"):
        return target.getvalue()[:length]
    assert target.tell() == length
    target.seek(0)
    return target.read()


@pytest.fixture(autouse=True)
def _views() -> Any:
    yield
    VIEWS.clear()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("of", SOURCES)
def test_all_pairs(of: str, to: str, limit: int) -> None:
    src, dst = SOURCES[of](DATA), TARGETS[to]()
    wanted = DATA[:limit]
    assert streams.copy(src, dst, limit=limit) == len(wanted)
    assert content_of(dst, len(wanted)) == wanted
    assert src.read(10) == DATA[limit : limit + 10]
    if hasattr(src, "tell"):
        assert src.tell() == min(len(DATA), limit + 10)


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_it_goes_on_where_it_ended(chunk: int) -> None:
    content = DATA[:10_000]
    for of, source in SOURCES.items():
        for to, target in TARGETS.items():
            src, dst = source(content), target()
            copied = [streams.copy(src, dst, limit=limit, chunk=chunk) for limit in (3, 0, 4999, 4997, 5000, 1)]
            assert copied == [3, 0, 4999, 4997, 1, 0], (of, to)
            assert content_of(dst, len(content)) == content, (of, to)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("buffering", [0, 8192])
@pytest.mark.parametrize("readers", [0, 1, 2])
@pytest.mark.parametrize("to", ["bytes", "file", "raw file", "writer"])
def test_a_connection_that_stays_open(to: str, readers: int, buffering: int, kind: str) -> None:
    """Whoever asked for more than the body waited for the next request, or took it."""
    body, following = DATA[:300_001], b"GET / HTTP/1.1\r\n"
    piped = Piped(body + following, buffering, kind)
    try:
        src, dst = piped.file, TARGETS[to]()
        for _ in range(readers):
            src = streams.Reader(src, chunk=5000)
        assert streams.copy(src, dst, limit=len(body)) == len(body)
        assert content_of(dst, len(body)) == body
        assert src.read(len(following)) == following
    finally:
        piped.close()


def test_nothing_is_asked_of_a_source_beyond_the_limit() -> None:
    class Asked(io.RawIOBase):
        def __init__(self) -> None:
            self.asked: list[int] = []

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:
            self.asked.append(len(buffer))
            return min(3, len(buffer))

    class AskedToRead(OnlyRead):
        asked: list[int]

        def read(self, size: int = -1) -> bytes:
            self.asked.append(size)
            return super().read(size)

    src: Any = Asked()
    assert streams.copy(src, io.BytesIO(), limit=10) == 10
    assert src.asked == [10, 7, 4, 1]
    src = AskedToRead(DATA)
    src.asked = []
    assert streams.copy(src, io.BytesIO(), limit=10, chunk=4) == 10
    assert src.asked == [4, 4, 2]
    assert streams.copy(src, io.BytesIO(), limit=0) == 0
    assert src.asked == [4, 4, 2]


def test_from_a_file_to_a_pipe_and_to_a_socket() -> None:
    """The system copies by itself, and no further."""
    read, write = os.pipe()
    here, there = socket.socketpair()
    with temporary(DATA) as src, here, there:
        assert src.read(5) == DATA[:5]
        with os.fdopen(write, "wb", buffering=0) as dst, os.fdopen(read, "rb") as end:
            assert streams.copy(src, dst, limit=1000) == 1000
            assert end.read(1000) == DATA[5:1005]
        with here.makefile("wb") as dst, there.makefile("rb") as end:
            assert streams.copy(src, dst, limit="1 KiB") == 1024
            dst.write(b"behind")
            dst.flush()
            assert end.read(1030) == DATA[1005:2029] + b"behind"
        assert (src.tell(), src.read(3)) == (2029, DATA[2029:2032])


def test_files_of_the_system_that_say_no_length() -> None:
    with open("/proc/self/status", "rb") as src, temporary(b"") as dst:
        assert streams.copy(src, dst, limit=10) == 10
        dst.seek(0)
        assert dst.read() == b"Name:\t" + Path("/proc/self/comm").read_bytes()[:4]


def test_files_that_do_not_block() -> None:
    with pytest.raises(BlockingIOError, match="src has nothing to read now; 30 bytes were copied") as failed:
        streams.copy(Scripted(10, 20, None), io.BytesIO(), limit=31)
    assert failed.value.characters_written == 30
    assert streams.copy(Scripted(10, 20, None), io.BytesIO(), limit=30) == 30
    src = io.BytesIO(DATA)
    with pytest.raises(BlockingIOError, match="dst takes nothing now; 10 bytes were copied"):
        streams.copy(src, Scripted(10, None), limit=20)
    assert src.tell() == 10


@pytest.mark.parametrize("of", ["bytes", "file", "short"])
def test_an_error_sets_the_source_behind_what_was_taken(of: str) -> None:
    src, dst = SOURCES[of](DATA), Scripted(100, OSError("full"))
    with pytest.raises(OSError, match="full") as failed:
        streams.copy(src, dst, limit=1000)
    assert failed.value.bytes_copied == src.tell() == 100


def test_more_than_is_read_at_a_time_is_at_fault() -> None:
    class Long(OnlyRead):
        def read(self, size: int = -1) -> bytes:
            return bytes(size + 1)

    with pytest.raises(OSError, match=r"read\(5\) returned 6 bytes"):
        streams.copy(Long(b""), io.BytesIO(), limit=5)


@pytest.mark.parametrize(
    ("limit", "error", "told"),
    [
        (-1, ValueError, "limit=-1: not a size"),
        (1 << 64, ValueError, "limit=18446744073709551616: more bytes than any machine can address"),
        ("much", ValueError, "limit='much': not a size"),
        (1.5, TypeError, "limit must be an int"),
        (True, TypeError, "limit must be an int"),
        (b"1", TypeError, "limit must be an int"),
    ],
)
def test_what_is_no_limit(limit: Any, error: type[Exception], told: str) -> None:
    src = io.BytesIO(DATA)
    with pytest.raises(error, match=told):
        streams.copy(src, io.BytesIO(), limit=limit)
    assert src.tell() == 0


def test_limits_as_they_are_written() -> None:
    for limit in ("1 KiB", 1024, (1024.0).__int__(), "1_024"):
        assert streams.copy(io.BytesIO(DATA), io.BytesIO(), limit=limit) == 1024
    assert streams.copy(io.BytesIO(DATA), io.BytesIO(), limit=None) == len(DATA)


def test_a_third_argument_by_its_place_is_refused() -> None:
    """shutil.copyfileobj takes its length there; as a limit, it would cut off what is longer."""
    src: Any = io.BytesIO(DATA)
    with pytest.raises(TypeError, match=r"chunk= is how many bytes .* shutil.copyfileobj\(\), limit= how many are"):
        streams.copy(src, io.BytesIO(), 65_536)  # type: ignore[misc]
    with pytest.raises(TypeError, match="takes no third argument"):
        streams.copy(src, io.BytesIO(), 65_536, limit=5)  # type: ignore[misc]
    assert src.tell() == 0
