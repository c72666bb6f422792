"""gabion.streams.Writer: what is gathered, what is written, and what is never lost."""

import array
import csv
import ctypes
import errno
import gc
import io
import os
import pickle
import random
import sys
import threading
import weakref
import zipfile
from pathlib import Path
from typing import Any

import pytest
from child_processes import in_child
from many_threads import run
from patience import HANGS
from stream_files import Calling, Keeping, OnlyWrite, Scripted, Short

import gabion
from gabion import streams

DATA = bytes(i * 7 % 251 for i in range(200_000))

pytestmark = pytest.mark.usefixtures("balance")


@pytest.mark.parametrize("seed", range(12))
def test_it_writes_as_bytes_do(seed: int) -> None:
    choose = random.Random(seed)
    chunk = [1, 100, 4096, 1 << 20][seed % 4]
    model, file = io.BytesIO(), io.BytesIO() if seed % 3 else Short(most=777)
    writer = streams.Writer(file, chunk=chunk)
    for step in range(300):
        call = choose.choice(["write"] * 6 + ["seek", "tell", "flush", "truncate", "writelines"])
        if call == "write":
            at = choose.randrange(len(DATA))
            part = DATA[at : at + choose.choice([0, 1, 10, 99, 100, 101, 5000])]
            results = [one.write(part) for one in (writer, model)]
        elif call == "writelines":
            results = [one.writelines([b"a", bytearray(b"bc"), memoryview(b"d")]) for one in (writer, model)]
        elif call == "seek":
            place = choose.randrange(20_000)
            results = [one.seek(place) for one in (writer, model)]
        elif call == "truncate":
            results = [one.truncate() for one in (writer, model)]
        else:
            results = [getattr(one, call)() for one in (writer, model)]
        assert results[0] == results[1], (seed, step, call)
    writer.flush()
    assert file.getvalue() == model.getvalue()


def test_chunks_are_gathered_and_large_writes_pass() -> None:
    file = Keeping()
    writer = streams.Writer(file, chunk=100)
    for _ in range(25):
        assert writer.write(b"0123456789") == 10
    assert [len(part) for part in file.kept] == [100, 100]
    large = bytes(250)
    assert writer.write(large) == 250
    assert [len(part) for part in file.kept] == [100, 100, 50, 250]
    assert file.kept[3] is large
    writer.write(b"rest")
    writer.flush()
    assert file.getvalue() == b"0123456789" * 25 + large + b"rest"


def test_everything_with_bytes_is_taken() -> None:
    file = io.BytesIO()
    writer = streams.Writer(file, chunk=16)
    numbers = array.array("i", range(20))
    for data in (b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4], numbers, b""):
        assert writer.write(data) == memoryview(data).nbytes
    writer.flush()
    assert file.getvalue() == b"abc" * 3 + numbers.tobytes()
    for wrong, error in (
        ("text", TypeError),
        (5, TypeError),
        (None, TypeError),
        (memoryview(b"abcd")[::2], BufferError),
    ):
        with pytest.raises(error):
            writer.write(wrong)
    with pytest.raises(TypeError, match="encode"):
        writer.write("text")


def test_short_writes_of_arrays_go_on_behind() -> None:
    numbers = array.array("i", range(1000))
    file = Short(most=333)
    writer = streams.Writer(file, chunk=64)
    assert writer.write(numbers) == 4000
    assert file.getvalue() == numbers.tobytes()


def test_a_failed_flush_keeps_what_was_not_written() -> None:
    file = Scripted(4, OSError(errno.ENOSPC, "full"))
    writer = streams.Writer(file, chunk=16)
    writer.write(b"0123456789")
    with pytest.raises(OSError, match="full"):
        writer.flush()
    assert bytes(file.taken) == b"0123"
    writer.write(b"ab")
    writer.flush()
    assert bytes(file.taken) == b"0123456789ab"


def test_a_write_whose_chunk_cannot_be_emptied_takes_nothing() -> None:
    file = Scripted(OSError(errno.ENOSPC, "full"))
    writer = streams.Writer(file, chunk=16)
    writer.write(b"0123456789")
    with pytest.raises(OSError, match="full") as failed:
        writer.write(b"abcdefghij")
    assert failed.value.bytes_taken == 0
    assert failed.value.__notes__ == ["gabion.streams.Writer: 0 of 10 bytes of this write() were taken"]
    writer.write(b"ABCDEFGHIJ")
    writer.flush()
    assert bytes(file.taken) == b"0123456789ABCDEFGHIJ"


def test_a_large_write_that_fails_halfway_says_how_far_it_came() -> None:
    file = Scripted(30, 20, OSError(errno.EIO, "gone"))
    writer = streams.Writer(file, chunk=16)
    with pytest.raises(OSError, match="gone") as failed:
        writer.write(DATA[:100])
    assert failed.value.bytes_taken == 50
    assert writer.write(DATA[50:100]) == 50
    assert bytes(file.taken) == DATA[:100]


@pytest.mark.parametrize("error", [ValueError("shut"), RuntimeError("odd"), KeyboardInterrupt()])
def test_whatever_a_file_raises_says_how_far_the_write_came(error: BaseException) -> None:
    writer = streams.Writer(Scripted(30, error), chunk=16)
    with pytest.raises(type(error)) as failed:
        writer.write(DATA[:100])
    assert failed.value is error
    assert failed.value.bytes_taken == 30


def test_non_blocking_files() -> None:
    file = Scripted(10, None, None)
    writer = streams.Writer(file, chunk=16)
    with pytest.raises(BlockingIOError, match="10 of 40 bytes were written") as failed:
        writer.write(DATA[:40])
    assert (failed.value.errno, failed.value.characters_written) == (errno.EAGAIN, 10)
    writer.write(b"abc")
    with pytest.raises(BlockingIOError, match="3 bytes wait") as failed:
        writer.flush()
    writer.flush()
    assert bytes(file.taken) == DATA[:10] + b"abc"


def test_a_pipe_that_is_full_loses_nothing() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    writer = streams.Writer(os.fdopen(write_end, "wb", buffering=0), chunk=4096)
    taken = 0
    while taken < len(DATA):
        try:
            taken += writer.write(DATA[taken : taken + 1000])
        except BlockingIOError:
            break
    read = bytearray()
    while len(read) < taken:
        read += os.read(read_end, 1 << 20)
        try:
            writer.flush()
        except BlockingIOError:
            continue
    assert bytes(read) == DATA[:taken]
    writer.close()
    os.close(read_end)


def test_it_counts_as_a_buffered_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    writer = streams.Writer(path.open("wb"))
    assert isinstance(writer, io.BufferedIOBase)
    assert (writer.readable(), writer.writable(), writer.seekable(), writer.isatty()) == (False, True, True, False)
    assert (writer.name, writer.mode, writer.fileno()) == (str(path), "wb", writer.raw.fileno())
    assert repr(writer).startswith("<gabion.streams.Writer of <_io.BufferedWriter")
    with pytest.raises(io.UnsupportedOperation):
        writer.read()
    with io.TextIOWrapper(writer, encoding="utf-8", newline="") as text:
        csv.writer(text).writerows([["größe", 1], ["maß", 2]])
    assert path.read_bytes() == "größe,1\r\nmaß,2\r\n".encode()


def test_pickles_and_archives_are_written_through_it() -> None:
    file = io.BytesIO()
    writer = streams.Writer(file, chunk=1000)
    with zipfile.ZipFile(writer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", DATA)
    writer.flush()
    assert zipfile.ZipFile(file).read("data") == DATA
    file = io.BytesIO()
    writer = streams.Writer(file, chunk=1000)
    pickle.dump([DATA, list(range(3000))], writer)
    writer.flush()
    assert pickle.loads(file.getvalue()) == [DATA, list(range(3000))]


def test_closed_writers() -> None:
    file = io.BytesIO()
    with streams.Writer(file) as writer:
        writer.write(b"gathered")
        assert file.getvalue() == b""
        writer.flush()
        assert file.getvalue() == b"gathered"
    assert writer.closed
    assert file.closed
    writer.close()
    for use in (
        lambda: writer.write(b"x"),
        lambda: writer.writelines([b"x"]),
        writer.flush,
        writer.tell,
        lambda: writer.seek(0),
        writer.truncate,
        writer.detach,
        writer.writable,
        writer.fileno,
        lambda: writer.__enter__(),
    ):
        with pytest.raises(gabion.ClosedError, match="this Writer was closed"):
            use()


def test_close_closes_the_file_also_when_it_is_full() -> None:
    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "full")

    file = Full()
    writer = streams.Writer(file)
    writer.write(b"x")
    with pytest.raises(OSError, match="full"):
        writer.close()
    assert writer.closed
    assert file.closed


def test_detached() -> None:
    file = io.BytesIO()
    writer = streams.Writer(file)
    writer.write(b"gathered")
    assert writer.detach() is file
    assert (file.getvalue(), file.closed, writer.closed) == (b"gathered", False, True)
    assert repr(writer) == "<gabion.streams.Writer, detached>"
    for use in (lambda: writer.write(b"x"), writer.flush, writer.tell, writer.detach, writer.__enter__):
        with pytest.raises(
            gabion.ClosedError, match=r"^this Writer was detached: use the file that detach\(\) returned"
        ):
            use()
    writer.close()
    assert not file.closed


def test_a_writer_that_goes_hands_over_what_it_has() -> None:
    gc.collect()
    before = gabion.memory.stats().live
    file = OnlyWrite()
    writer = streams.Writer(file)
    writer.write(b"gathered")
    assert gabion.memory.stats().live == before + 1
    del writer
    gc.collect()
    assert file.getvalue() == b"gathered"
    assert gabion.memory.stats().live == before


def test_a_writer_that_goes_and_cannot_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    for answer in (OSError(errno.ENOSPC, "full"), None):
        writer = streams.Writer(Scripted(answer))
        writer.write(b"gathered")
        try:
            raise KeyError("on its way")
        except KeyError:
            del writer
    gc.collect()
    assert [type(one.exc_value) for one in told] == [OSError, BlockingIOError]
    assert "8 bytes of a Writer could not be written" in str(told[1].exc_value)
    told.clear()


def test_a_file_that_keeps_its_views() -> None:
    file = Keeping()
    writer = streams.Writer(file, chunk=1000)
    for start in range(0, len(DATA), 100):
        writer.write(DATA[start : start + 100])
    writer.flush()
    assert file.getvalue() == DATA


def test_a_file_that_calls_its_own_writer() -> None:
    file = Calling()
    writer = streams.Writer(file)
    writer.write(b"x")
    file.call = writer.flush
    with pytest.raises(RuntimeError, match=r"by the file that it is just calling, .*: use the file itself there"):
        writer.flush()
    file.call = lambda: None
    writer.flush()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_is_forked_while_another_thread_writes_does_not_write_the_same() -> None:
    """Its references stay for ever, as nobody clears what a thread that is not there has: here the test does."""
    read_end, write_end = os.pipe()
    parent, inside, go_on = os.getpid(), threading.Event(), threading.Event()

    class Slow:
        def write(self, data: Any) -> int:
            if os.getpid() == parent:
                inside.set()
                go_on.wait(HANGS)
            return os.write(write_end, data)

    writer = streams.Writer(Slow())
    writer.write(b"gathered")
    thread = threading.Thread(target=writer.flush)
    thread.start()
    assert inside.wait(HANGS)

    def in_the_child() -> None:
        nonlocal writer
        gone, address = weakref.ref(writer), id(writer)
        with pytest.raises(RuntimeError, match="another thread used this Writer"):
            writer.close()
        del writer
        while gone() is not None:
            ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(address))

    in_child(in_the_child)
    go_on.set()
    thread.join()
    os.close(write_end)
    with os.fdopen(read_end, "rb") as end:
        assert end.read() == b"gathered"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_what_was_gathered_before_a_fork_is_the_childs_too(tmp_path: Path) -> None:
    for make in (streams.Writer, io.BufferedWriter):
        path = tmp_path / "file"
        writer = make(path.open("wb", buffering=0))
        writer.write(b"gathered ")
        in_child(writer.flush)
        writer.close()
        assert path.read_bytes() == b"gathered gathered "


def test_threads_take_turns() -> None:
    file = io.BytesIO()
    writer = streams.Writer(file, chunk=1000)

    def work(name: int) -> None:
        for number in range(2000):
            writer.write(b"%d:%05d\n" % (name, number))

    run(*[lambda name=name: work(name) for name in range(6)])
    writer.flush()
    lines = file.getvalue().splitlines()
    assert len(lines) == 12_000
    for name in range(6):
        assert [line for line in lines if line.startswith(b"%d:" % name)] == [
            b"%d:%05d" % (name, number) for number in range(2000)
        ]


def test_limits_hold_and_nothing_is_lost() -> None:
    file = io.BytesIO()
    writer = streams.Writer(file)
    gabion.memory.configure(allocation_limit="64 KiB")
    try:
        with pytest.raises(gabion.LimitError):
            writer.write(b"x")
    finally:
        gabion.memory.configure(allocation_limit=None)
    writer.write(b"y")
    writer.flush()
    assert file.getvalue() == b"y"


@pytest.mark.parametrize("buffering", [0, -1])
def test_a_file_that_is_open_for_reading_is_refused_at_once(tmp_path: Path, buffering: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"kept")
    with path.open("rb", buffering=buffering) as file:
        for given in (file, streams.Reader(file)):
            with pytest.raises(
                io.UnsupportedOperation, match=r"^file is not open for writing: open it with mode 'wb'$"
            ):
                streams.Writer(given)
    with path.open("r+b", buffering=buffering) as file, streams.Writer(file) as writer:
        writer.write(b"new ")
    assert path.read_bytes() == b"new "


def test_arguments() -> None:
    for wrong in (3, None, "path"):
        with pytest.raises(TypeError, match=r"file must be a binary file with write\(\)"):
            streams.Writer(wrong)
    with pytest.raises(TypeError, match="file is a text file"):
        streams.Writer(io.StringIO())
    with pytest.raises(ValueError, match="pass 1 to 1048576 bytes"):
        streams.Writer(io.BytesIO(), chunk="4 MiB")


def test_a_writer_in_a_cycle_with_its_file_hands_over_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    class File:
        def __init__(self, taken: list[bytes]) -> None:
            self.taken = taken

        def write(self, data: Any) -> int:
            self.taken.append(bytes(data))
            return len(data)

    taken: list[bytes] = []
    file = File(taken)
    file.writer = streams.Writer(file)  # type: ignore[attr-defined]
    file.writer.write(b"gathered")
    del file
    gc.collect()
    assert (taken, told) == ([b"gathered"], [])


def test_what_a_cycle_cannot_hand_over_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: told.append(type(one.exc_value)))
    file = Scripted(OSError(errno.ENOSPC, "full"))
    file.writer = streams.Writer(file)  # type: ignore[attr-defined]
    file.writer.write(b"gathered")
    del file
    gc.collect()
    assert told == [OSError]


def test_short_writes_of_everything_with_bytes() -> None:
    file = io.BytesIO()
    with streams.Writer(file, chunk=100) as writer:
        parts = [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], array.array("B", b"gh"), b"", b"i" * 99, b"j" * 100]
        assert [writer.write(part) for part in parts] == [2, 2, 2, 2, 0, 99, 100]
        for call in (lambda: writer.write(), lambda: writer.write(b"", b"")):
            with pytest.raises(TypeError, match="positional arguments given"):
                call()
        writer.flush()
        assert file.getvalue() == b"abcdefgh" + b"i" * 99 + b"j" * 100


def test_a_file_that_counts_items_gets_bytes() -> None:
    """Its len() of an array of four-byte items was taken for so many bytes, and the rest came once more."""

    class Counting(io.RawIOBase):
        got = b""

        def write(self, data: Any) -> int:
            self.got += bytes(data)
            return len(data)

    file, data = Counting(), array.array("I", range(100))
    writer = streams.Writer(file, chunk=64)
    assert writer.write(data) == 400
    writer.flush()
    assert file.got == data.tobytes()
