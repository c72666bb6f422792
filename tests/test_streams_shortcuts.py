"""gabion.streams.copy where no byte goes through a chunk: from memory, and where the system copies."""

import errno
import fcntl
import io
import os
import signal
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from patience import HANGS
from stream_files import Keeping, Scripted

from gabion import streams

DATA = bytes(i * 7 % 251 for i in range(3_000_001))
SMALL = DATA[:1000]

pytestmark = pytest.mark.usefixtures("balance")


# --- what a BytesIO holds ----------------------------------------------------------------------------


def written(content: bytes) -> io.BytesIO:
    """A BytesIO with room behind its content."""
    file = io.BytesIO()
    for at in range(0, len(content), 1000):
        file.write(content[at : at + 1000])
    file.seek(0)
    return file


@pytest.mark.parametrize("make", [io.BytesIO, written])
@pytest.mark.parametrize("place", [0, 1, 999, 1000, 5000])
def test_from_where_it_stands(make: Any, place: int) -> None:
    source, target = make(SMALL), io.BytesIO()
    source.seek(place)
    assert streams.copy(source, target) == len(SMALL[place:])
    assert target.getvalue() == SMALL[place:]
    assert source.tell() == max(place, 1000)
    source.write(b"more")
    assert source.getvalue() == SMALL + bytes(max(place, 1000) - 1000) + b"more"


def test_what_is_kept_stays_while_the_source_changes() -> None:
    source, target = written(SMALL), Keeping()
    streams.copy(source, target, chunk=100)
    assert len(target.kept) == 10
    source.seek(0)
    source.write(b"x" * 2000)
    source.truncate(0)
    assert target.getvalue() == SMALL


def test_a_source_that_somebody_has_a_view_of() -> None:
    source, target = written(SMALL), Keeping()
    with source.getbuffer() as view:
        assert streams.copy(source, target) == len(view) == 1000
        view[:10] = b"0123456789"
    assert target.getvalue() == SMALL
    assert source.getvalue()[:10] == b"0123456789"


def test_a_target_that_changes_the_source() -> None:
    class Target(io.BytesIO):
        def write(self, data: Any) -> int:
            source.seek(0, 2)
            source.write(b"!")
            return super().write(data)

    source, target = written(SMALL), Target()
    assert streams.copy(source, target, chunk=300) == 1000
    assert target.getvalue() == SMALL
    assert source.getvalue() == SMALL + b"!!!!"
    assert source.tell() == 1000


def test_errors_of_the_target() -> None:
    source = io.BytesIO(SMALL)
    with pytest.raises(OSError, match="full") as failed:
        streams.copy(source, Scripted(100, 30, OSError(errno.ENOSPC, "full")), chunk=100)
    assert failed.value.bytes_copied == source.tell() == 130
    with pytest.raises(BlockingIOError, match="dst takes nothing now; 20 bytes were copied") as failed:
        streams.copy(source, Scripted(20, None), chunk=100)
    assert failed.value.characters_written == 20
    assert source.tell() == 150
    with pytest.raises(ValueError, match="the same file"):
        streams.copy(source, source)
    assert source.getvalue() == SMALL


def test_a_subclass_is_asked_to_read() -> None:
    class Source(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            return super().readinto(buffer[:7])

        def getvalue(self) -> bytes:
            raise AssertionError

    target = io.BytesIO()
    assert streams.copy(Source(SMALL), target) == 1000
    assert target.getvalue() == SMALL


# --- what a BytesIO has already ----------------------------------------------------------------------


@pytest.mark.parametrize("buffering", [0, -1])
@pytest.mark.parametrize("there", [0, 1000, 65_536, 300_000, len(DATA), 4_000_000])
@pytest.mark.parametrize("place", [0, 1, 200_001])
def test_a_target_that_is_overwritten(buffering: int, there: int, place: int) -> None:
    old = b"old!" * (there // 4)
    with tempfile.TemporaryFile(buffering=buffering) as source:
        source.write(DATA)
        for start in (0, 7, 2_999_000):
            for make in (io.BytesIO, written):
                source.seek(start)
                assert source.read(2) == DATA[start : start + 2]
                target = make(old)
                target.seek(place)
                count = len(DATA) - start - 2
                assert streams.copy(source, target) == count
                model = io.BytesIO(old)
                model.seek(place)
                model.write(DATA[start + 2 :])
                assert target.getvalue() == model.getvalue()
                assert (source.tell(), target.tell()) == (len(DATA), place + count)
                target.write(b"more")
                assert target.getvalue()[place + count :][:4] == b"more"
    assert set(old) <= set(b"old!"), "bytes that were shared with the target stay"


def test_a_target_that_somebody_has_a_view_of() -> None:
    source, target = real(DATA), io.BytesIO(DATA[::-1])
    with target.getbuffer(), pytest.raises(BufferError):
        streams.copy(source, target)
    assert target.getvalue() == DATA[::-1]
    assert target.tell() == source.tell() == 0
    assert streams.copy(source, target) == len(DATA)
    assert target.getvalue() == DATA


def test_a_target_with_code_of_its_own_is_written_to() -> None:
    class Target(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(bytes(data).swapcase())

        def getbuffer(self) -> memoryview:
            raise AssertionError

    target = Target(bytes(100_000))
    streams.copy(real(b"stone" * 20_000), target)
    assert target.getvalue() == b"STONE" * 20_000


# --- pipes and sockets ---------------------------------------------------------------------------------


def real(content: bytes) -> Any:
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(content)
    file.seek(0)
    return file


class Drain:
    """Reads a descriptor to its end in a thread."""

    def __init__(self, descriptor: int) -> None:
        self.content = bytearray()
        self.thread = threading.Thread(target=self.read, args=(descriptor,))
        self.thread.start()

    def read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            while part := file.read(1 << 16):
                self.content += part

    def __enter__(self) -> "Drain":
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.join()


@pytest.mark.parametrize("buffering", [0, -1])
def test_to_a_pipe(buffering: int) -> None:
    read, write = os.pipe()
    with Drain(read) as drain, real(DATA) as source, os.fdopen(write, "wb", buffering=buffering) as target:
        target.write(b"before ")
        source.read(10)
        assert streams.copy(source, target) == len(DATA) - 10
        assert source.tell() == len(DATA)
        target.write(b" after")
    assert drain.content == b"before " + DATA[10:] + b" after"


@pytest.mark.parametrize("timeout", [None, HANGS])
@pytest.mark.parametrize("buffering", [0, -1])
def test_to_a_socket(buffering: int, timeout: float | None) -> None:
    here, there = socket.socketpair()
    here.settimeout(timeout)
    with Drain(there.detach()) as drain, here, real(DATA) as source, here.makefile("wb", buffering=buffering) as target:
        target.write(b"before ")
        assert streams.copy(source, target) == len(DATA)
        target.write(b" after")
        target.flush()
        here.shutdown(socket.SHUT_WR)
    assert drain.content == b"before " + DATA + b" after"


def test_a_socket_that_does_more_than_pass_bytes_on() -> None:
    """As one that encrypts: what is written to its descriptor would go past it."""

    class Shouting(socket.socket):
        def send(self, data: Any, *rest: Any) -> int:
            return super().send(bytes(data).upper(), *rest)

    here, there = socket.socketpair()
    shouting = Shouting(fileno=here.detach())
    with Drain(there.detach()) as drain, shouting, shouting.makefile("wb", buffering=0) as target:
        with real(b"stone") as source:
            assert streams.copy(source, target) == 5
        shouting.shutdown(socket.SHUT_WR)
    assert drain.content == b"STONE"


def test_nobody_reads_any_more() -> None:
    read, write = os.pipe()
    with real(DATA) as source, os.fdopen(write, "wb", buffering=0) as target:
        reader = threading.Thread(target=lambda: (os.read(read, 1000), os.close(read)))
        reader.start()
        with pytest.raises(BrokenPipeError) as failed:
            streams.copy(source, target)
        reader.join()
        assert 0 < failed.value.bytes_copied == source.tell() < len(DATA)


def interrupted_copy(source: Any, target: Any) -> int:
    """Copies until a signal comes whose handler raises; gives the number of bytes."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    old, copied = signal.signal(signal.SIGALRM, stop), 0
    try:
        while copied == 0:  # on a busy machine it may come before the first byte
            with pytest.raises(KeyboardInterrupt) as ended:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                streams.copy(source, target)
            copied = getattr(ended.value, "bytes_copied", 0)
    finally:
        signal.signal(signal.SIGALRM, old)
    return copied


def test_ctrl_c_while_the_other_end_does_not_read() -> None:
    read, write = os.pipe()
    with real(DATA) as source, os.fdopen(write, "wb", buffering=0) as target, os.fdopen(read, "rb", buffering=0) as end:
        copied = interrupted_copy(source, target)
        assert 0 < copied == source.tell() < len(DATA)
        assert end.read(len(DATA)) == DATA[:copied]


def test_ctrl_c_while_the_other_end_does_not_read_and_the_system_does_not_copy() -> None:
    here, there = socket.socketpair()
    fcntl.fcntl(here, fcntl.F_SETFL, fcntl.fcntl(here, fcntl.F_GETFL) | os.O_APPEND)  # Linux does not copy to such
    with there, there.makefile("rb") as end, real(DATA) as source:
        with here, here.makefile("wb", buffering=0) as target:
            copied = interrupted_copy(source, target)
        assert 0 < copied == source.tell() < len(DATA)
        assert end.read() == DATA[:copied]


def test_a_pipe_that_does_not_block() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with real(DATA) as source, os.fdopen(write, "wb", buffering=0) as target, os.fdopen(read, "rb", buffering=0) as end:
        with pytest.raises(BlockingIOError) as failed:
            streams.copy(source, target)
        copied = failed.value.characters_written
        assert 0 < copied == source.tell() < len(DATA)
        assert end.read(len(DATA)) == DATA[:copied]


def test_a_named_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    descriptor = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with (tmp_path / "pipe").open("wb") as target, Drain(descriptor) as drain:
        with real(DATA) as source:
            assert streams.copy(source, target) == len(DATA)
        target.close()
    assert drain.content == DATA
