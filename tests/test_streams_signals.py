"""Signals in the midst of what a stream does: they are answered, and no byte is lost or written twice."""

import _thread
import fcntl
import io
import operator
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import HANGS, eventually
from stream_files import Scripted

import gabion
from gabion import streams

DATA = bytes(i * 7 % 251 for i in range(200_000))

pytestmark = pytest.mark.usefixtures("balance")


def with_ctrl_c(call: Callable[[], Any]) -> None:
    """Calls it with an interrupt that has come and was not answered yet."""
    # Both within one call of C code: the interpreter looks between two steps of Python code.
    list(map(operator.call, [_thread.interrupt_main, call]))


class Plain(io.RawIOBase):
    """A file of Python code, in which the interpreter answers signals."""

    def __init__(self) -> None:
        self.got = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.got += bytes(data)
        return len(data)


def test_an_interrupted_close_writes_what_was_gathered(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for file in (path.open("wb", buffering=0), path.open("wb"), Plain()):
        writer = streams.Writer(file)
        writer.write(b"gathered")
        with pytest.raises(KeyboardInterrupt):
            with_ctrl_c(writer.close)
        assert (writer.closed, file.closed) == (True, True)
        assert (file.got if isinstance(file, Plain) else path.read_bytes()) == b"gathered"


def test_an_interrupted_close_tells_also_what_was_lost() -> None:
    for answer, text in (OSError(28, "full"), "full"), (None, "8 bytes of a Writer could not be written and are lost"):
        file = Scripted(answer)
        writer = streams.Writer(file)
        writer.write(b"gathered")
        with pytest.raises(KeyboardInterrupt) as interrupt:
            with_ctrl_c(writer.close)
        assert (writer.closed, file.closed) == (True, True)
        (note,) = interrupt.value.__notes__
        assert note.startswith("gabion.streams.Writer: closing it failed, too: ")
        assert text in note


def test_an_interrupted_flush_or_detach_loses_nothing() -> None:
    file = io.BytesIO()
    writer = streams.Writer(file)
    writer.write(b"gathered")
    for call in (writer.flush, writer.detach):
        with pytest.raises(KeyboardInterrupt):
            with_ctrl_c(call)
    assert writer.detach().getvalue() == b"gathered"


def test_an_interrupted_read_of_a_whole_file_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    for buffering in (0, -1):
        with streams.Reader(path.open("rb", buffering=buffering), chunk=1000) as reader:
            assert reader.read(300) == DATA[:300]
            with pytest.raises(KeyboardInterrupt):
                with_ctrl_c(reader.read)
            assert reader.tell() == 300
            assert reader.read() == DATA[300:]


def test_an_interrupted_readline_keeps_the_line() -> None:
    end, write = os.pipe()
    with streams.Reader(os.fdopen(end, "rb", buffering=0)) as reader:
        os.write(write, b"a li")
        assert reader.peek() == b"a li"
        with pytest.raises(KeyboardInterrupt):
            with_ctrl_c(reader.readline)
        os.write(write, b"ne\n")
        os.close(write)
        assert list(reader) == [b"a line\n"]


class Stuck:
    """A pipe that nobody reads, until whoever writes to it hangs. As soon as that one waits, it is interrupted once."""

    def __init__(self) -> None:
        self.end, write = os.pipe()
        self.file = os.fdopen(write, "wb", buffering=0)
        self.room = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
        self.timer = threading.Timer(HANGS, self.read)
        self.timer.start()
        threading.Thread(target=self.interrupt).start()

    def interrupt(self) -> None:
        if eventually(lambda: self.filled() == self.room):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def read(self) -> bytes:
        """All that it is given until its file is closed."""
        self.timer.cancel()
        with os.fdopen(self.end, "rb") as end:
            return end.read()

    def filled(self) -> int:
        return int.from_bytes(fcntl.ioctl(self.end, termios.FIONREAD, bytes(4)), sys.byteorder)

    def read_beside(self, work: Callable[[], Any]) -> bytes:
        """All that it is given by `work`, too."""
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(self.read()))
        reader.start()
        work()
        self.file.close()
        reader.join()
        return got[0]


def test_one_signal_ends_a_write_to_a_pipe_that_nobody_reads() -> None:
    pipe = Stuck()
    writer = streams.Writer(pipe.file, chunk=1000)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        writer.write(DATA)
    taken = interrupt.value.bytes_taken
    assert taken == pipe.filled() < len(DATA)
    assert pipe.read_beside(lambda: (writer.write(DATA[taken:]), writer.flush())) == DATA


def test_one_signal_ends_a_flush_to_a_pipe_that_nobody_reads() -> None:
    pipe = Stuck()
    writer = streams.Writer(pipe.file, chunk="1 MiB")
    writer.write(DATA)
    with pytest.raises(KeyboardInterrupt):
        writer.flush()
    assert pipe.filled() == pipe.room < len(DATA)
    assert pipe.read_beside(writer.flush) == DATA


@pytest.mark.parametrize("source", [io.BytesIO, lambda data: io.BufferedReader(io.BytesIO(data))])
def test_one_signal_ends_a_copy_to_a_pipe_that_nobody_reads(source: Any) -> None:
    pipe, src = Stuck(), source(DATA)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        streams.copy(src, pipe.file)
    assert interrupt.value.bytes_copied == pipe.filled() == src.tell() < len(DATA)
    assert pipe.read_beside(lambda: streams.copy(src, pipe.file)) == DATA


def test_one_signal_ends_the_saving_of_an_image_to_a_pipe_that_nobody_reads() -> None:
    pipe = Stuck()
    with pytest.raises(KeyboardInterrupt):
        gabion.Image.new("RGB", (300, 300)).save(pipe.file, format="BMP")
    assert pipe.filled() == pipe.room < 270_000
    pipe.read_beside(lambda: None)
