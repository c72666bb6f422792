"""gabion.streams.Reader beside io.BufferedReader, and where it has to be better."""

import array
import copy
import errno
import fcntl
import gc
import inspect
import io
import itertools
import os
import pickle
import random
import signal
import sys
import tempfile
import termios
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from many_threads import run
from patience import HANGS, eventually
from stream_files import Calling, OnlyRead, Scripted, Short

import gabion
from gabion import streams

LINES = b"".join(b"line %d %s\n" % (number, b"x" * (number * 37 % 211)) for number in range(2_000)) + b"no end"

pytestmark = pytest.mark.usefixtures("balance")


def random_calls(seed: int, rounds: int) -> list[tuple[str, tuple[Any, ...]]]:
    choose = random.Random(seed)
    size = lambda: choose.choice([0, 1, 5, 100, 1000, 5000, 20_000, None, -1])  # noqa: E731
    some = lambda: choose.choice([0, 1, 5, 100, 1000, 5000, 20_000])  # noqa: E731
    calls: list[tuple[str, tuple[Any, ...]]] = []
    for _ in range(rounds):
        name = choose.choice(["read", "read", "readline", "readinto", "tell", "seek", "skip", "end"])
        if name in ("read", "readline"):
            calls.append((name, (size() if choose.random() < 0.3 else some(),)))
        elif name == "readinto":
            calls.append((name, (some(),)))
        elif name == "seek":
            calls.append((name, (choose.randrange(len(LINES) + 50),)))
        elif name == "skip":
            calls.append((name, (choose.randrange(-300, 900),)))
        else:
            calls.append((name, ()))
    return calls


def result(file: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    if name == "readinto":
        target = bytearray(arguments[0])
        return file.readinto(target), bytes(target)
    if name == "end":
        return file.seek(0, 2)
    if name == "skip":
        return file.seek(max(0, file.tell() + arguments[0]) - file.tell(), 1)
    return getattr(file, name)(*arguments)


def real(content: bytes) -> Any:
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    file.write(content)
    file.seek(0)
    return file


@pytest.mark.parametrize("seed", range(24))
def test_it_reads_as_bytes_do(seed: int) -> None:
    chunk = [1, 100, 4096, 1 << 20][seed % 4]
    file = [io.BytesIO, lambda content: Short(content, 777), real][seed % 3](LINES)
    model, reader = io.BytesIO(LINES), streams.Reader(file, chunk=chunk)
    for step, (name, arguments) in enumerate(random_calls(seed, 300)):
        assert result(reader, name, arguments) == result(model, name, arguments), (seed, step, name, arguments)


@pytest.mark.parametrize("chunk", [1, 7, 256, 4096, 1 << 20])
@pytest.mark.parametrize("make", [io.BytesIO, OnlyRead, lambda content: Short(content, 100)])
def test_lines(make: Any, chunk: int) -> None:
    expected = io.BytesIO(LINES).readlines()
    assert list(streams.Reader(make(LINES), chunk=chunk)) == expected
    assert streams.Reader(make(LINES), chunk=chunk).readlines() == expected
    assert streams.Reader(make(LINES), chunk=chunk).readlines(500) == io.BytesIO(LINES).readlines(500)
    reader, model = streams.Reader(make(LINES), chunk=chunk), io.BytesIO(LINES)
    assert [reader.readline(9) for _ in range(30)] == [model.readline(9) for _ in range(30)]


def test_a_peek_copies_no_whole_chunk() -> None:
    content = bytes(range(256)) * 400
    reader = streams.Reader(io.BytesIO(content))
    for size in (0, 1, -1, 20_000):
        assert reader.peek(size) == content[:8192]
    assert reader.read(len(content) - 5) == content[:-5]
    assert reader.peek() == content[-5:]


def test_one_read_at_most() -> None:
    file = Short(LINES, 100)
    reader = streams.Reader(file)
    assert reader.peek() == LINES[:100]
    assert reader.peek(5) == LINES[:100]
    assert reader.read1() == LINES[:100]
    assert reader.read1(30) == LINES[100:130]
    assert reader.read1(300) == LINES[130:200]
    target = bytearray(150)
    assert reader.readinto1(target) == 100
    assert bytes(target[:100]) == LINES[200:300]
    assert reader.read(250) == LINES[300:550]
    assert file.tell() == 600
    assert reader.readinto1(target) == 50
    assert reader.tell() == 600
    assert reader.read1(0) == b""


def test_large_targets_are_filled_without_a_detour() -> None:
    class Spy(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            seen.append(buffer)
            return super().readinto(buffer)

    seen: list[Any] = []
    reader, target = streams.Reader(Spy(LINES), chunk=4096), bytearray(len(LINES) + 10)
    assert reader.readinto(target) == len(LINES)
    assert seen[0] is target
    assert target[: len(LINES)] == LINES
    seen.clear()


def test_targets_of_wider_items_are_filled_by_the_byte() -> None:
    class Plain(io.RawIOBase):
        def readinto(self, target: Any) -> int:
            part = bytes(range(256))[: len(target)]
            target[: len(part)] = part
            return len(part)

    target = array.array("I", [0]) * 100
    assert streams.Reader(Plain(), chunk=64).readinto(target) == 400
    # Straight from the file as far as one read goes, then by the chunk.
    assert target.tobytes() == bytes(range(256)) + (bytes(range(64)) * 3)[:144]


def test_a_buffered_pipe_gives_what_it_has() -> None:
    """Whoever answers a peer would wait for ever for a full chunk."""
    read, write = os.pipe()
    with open(read, "rb") as pipe, open(write, "wb", buffering=0) as peer:
        reader = streams.Reader(pipe)
        peer.write(b"one\ntwo")
        assert (reader.readline(), reader.read1()) == (b"one\n", b"two")
        peer.write(b"three")
        assert reader.read(5) == b"three"


def test_targets_that_do_not_do() -> None:
    reader = streams.Reader(io.BytesIO(LINES))
    for wrong in (b"bytes", b"", memoryview(b"bytes"), memoryview(bytearray(9))[::2], "text", 5, None):
        for read in (reader.readinto, reader.readinto1):
            with pytest.raises(TypeError, match=f"can be written is needed, not {type(wrong).__name__}"):
                read(wrong)
    assert reader.readinto(bytearray()) == 0
    assert reader.tell() == 0


def test_seeking_within_what_was_read_does_not_move_the_file() -> None:
    file = io.BytesIO(LINES)
    reader = streams.Reader(file, chunk=4096)
    assert reader.read(100) == LINES[:100]
    for place in (0, 4096, 50, 4095):
        assert reader.seek(place) == place
        assert file.tell() == 4096
    assert reader.read(1) == LINES[4095:4096]
    assert reader.seek(-96, 1) == 4000
    assert (reader.seek(4097), file.tell()) == (4097, 4097)
    assert reader.read(3) == LINES[4097:4100]
    for wrong, told in (((-1,), "before the start"), ((-9999, 1), "before the start"), ((0, 3), "whence=3")):
        with pytest.raises(ValueError, match=told):
            reader.seek(*wrong)
    assert reader.tell() == 4100


@pytest.mark.parametrize("past", ["read", "readinto", "readinto1"])
def test_seeking_back_after_a_read_that_went_past_the_chunk(past: str) -> None:
    for first, back in itertools.product((0, 3, 64), range(0, 300, 7)):
        reader, model = streams.Reader(real(LINES), chunk=64), io.BytesIO(LINES)
        for file in (reader, model):
            file.readline(first)
            file.read(64 - first if past != "read" else 0)
        if past == "read":
            assert reader.read() == model.read()
        else:
            target = bytearray(1000)
            count = getattr(reader, past)(target)
            assert bytes(target[:count]) == model.read(count)
        place = max(0, model.tell() - back)
        assert reader.seek(place) == model.seek(place)
        assert reader.read(5) == model.read(5)
        reader.close()


def test_files_that_cannot_seek() -> None:
    reader = streams.Reader(OnlyRead(LINES))
    assert not reader.seekable()
    with pytest.raises(AttributeError):
        reader.seek(0)
    assert reader.read(5) == LINES[:5]


def test_huge_sizes_take_no_memory() -> None:
    before = gabion.memory.stats().mapped
    assert streams.Reader(io.BytesIO(b"short")).read(1 << 60) == b"short"
    assert streams.Reader(io.BytesIO(b"short")).readline(1 << 60) == b"short"
    assert gabion.memory.stats().mapped - before < 64 << 20
    with pytest.raises(OverflowError):
        streams.Reader(io.BytesIO(b"short")).read(1 << 70)


def test_non_blocking_files() -> None:
    reader = streams.Reader(Scripted(None, None, None, None, None, 3, None, 2, None))
    assert reader.read() is None
    assert reader.read(5) is None
    assert reader.read1() is None
    assert reader.readinto(bytearray(5)) is None
    assert reader.peek() == b""
    assert reader.read(5) == b"xxx"
    assert reader.readline() == b"xx"


def test_lines_of_a_non_blocking_file() -> None:
    """Nothing now is not the end: a loop over the lines went to its end with it, as that of io.BufferedReader does."""
    end, write = os.pipe()
    os.set_blocking(end, False)
    reader = streams.Reader(os.fdopen(end, "rb", buffering=0))
    assert reader.readline() is None
    assert reader.readlines() is None
    with pytest.raises(BlockingIOError, match="the file has nothing to read now") as nothing:
        next(reader)
    assert (nothing.value.errno, nothing.value.characters_written) == (errno.EAGAIN, 0)
    os.write(write, b"first\nsecond\nthi")
    assert next(reader) == b"first\n"
    assert reader.readlines() == [b"second\n", b"thi"]
    assert reader.readline(0) == b""
    os.write(write, b"rd\n")
    lines = []
    with pytest.raises(BlockingIOError):
        lines.extend(reader)
    assert lines == [b"rd\n"]
    os.write(write, b"no end")
    os.close(write)
    assert (reader.readlines(), reader.readline(), list(reader)) == ([b"no end"], b"", [])
    reader.close()


def test_errors_are_passed_on_and_the_reader_goes_on() -> None:
    reader = streams.Reader(Scripted(4, OSError(errno.EIO, "gone"), 2, 0))
    assert reader.read(2) == b"xx"
    assert reader.read(2) == b"xx"
    with pytest.raises(OSError, match="gone"):
        reader.read(1)
    assert reader.read() == b"xx"


def test_what_was_gathered_before_an_error_comes_again() -> None:
    def into(reader: streams.Reader) -> bytes:
        target = bytearray(5)
        assert reader.readinto(target) == 5
        return bytes(target)

    for call in (lambda one: one.read(5), lambda one: one.read(), streams.Reader.readline, next, into):
        for error in (OSError(errno.EIO, "gone"), TimeoutError("slow"), KeyboardInterrupt()):
            reader = streams.Reader(Scripted(2, 1, error, error, 2, 0), chunk=4)
            for _ in range(2):
                with pytest.raises(type(error)):
                    call(reader)
            assert call(reader) == b"xxxxx"
    # More than a chunk is not kept.
    reader = streams.Reader(Scripted(3, 3, OSError(errno.EIO, "gone"), 2, 0), chunk=4)
    with pytest.raises(OSError, match="gone"):
        reader.read(8)
    assert reader.read(8) == b"xx"


def test_a_failed_read_leaves_the_place_where_it_was() -> None:
    class Failing(Short):
        fails = 2

        def readinto(self, buffer: Any) -> int:
            self.fails -= 1
            if self.fails == 0:
                raise OSError(errno.EIO, "gone")
            return super().readinto(buffer)

    reader = streams.Reader(Failing(LINES), chunk=100)
    assert reader.read(3) == LINES[:3]
    with pytest.raises(OSError, match="gone"):
        reader.read(20)
    assert reader.tell() == 3
    assert (reader.seek(5), reader.read(10)) == (5, LINES[5:15])
    assert (reader.seek(2), reader.read(30)) == (2, LINES[2:32])


def test_it_counts_as_a_buffered_file(tmp_path: Path) -> None:
    path = tmp_path / "text.csv"
    path.write_bytes("größe,1\nmaß,2\n".encode())
    reader = streams.Reader(path.open("rb"))
    assert isinstance(reader, io.BufferedIOBase)
    assert (reader.readable(), reader.writable(), reader.seekable(), reader.isatty()) == (True, False, True, False)
    assert (reader.name, reader.mode, reader.fileno()) == (str(path), "rb", reader.raw.fileno())
    assert repr(reader).startswith("<gabion.streams.Reader of <_io.BufferedReader")
    reader.flush()
    with pytest.raises(io.UnsupportedOperation):
        reader.write(b"no")
    with pytest.raises(io.UnsupportedOperation):
        reader.truncate(5)
    with io.TextIOWrapper(reader, encoding="utf-8") as text:
        assert list(text) == ["größe,1\n", "maß,2\n"]
    assert reader.closed
    assert reader.raw.closed


def test_pickles_and_archives_are_read_through_it() -> None:
    objects = [{"number": number, "text": "x" * number} for number in range(500)]
    file = io.BytesIO(b"".join(map(pickle.dumps, objects)))
    reader = streams.Reader(file, chunk=1000)
    assert [pickle.load(reader) for _ in objects] == objects


def closing(reader: streams.Reader) -> list[Any]:
    calls = ["read", "read1", "peek", "readline", "readlines", "tell", "detach", "flush", "readable", "fileno"]
    return [*(getattr(reader, name) for name in calls), lambda: reader.readinto(bytearray(1)), lambda: reader.seek(0)]


def test_closed_readers() -> None:
    file = io.BytesIO(LINES)
    with streams.Reader(file) as reader:
        reader.read(10)
        assert not reader.closed
    assert reader.closed
    assert repr(reader) == "<gabion.streams.Reader, closed>"
    assert file.closed
    reader.close()
    for use in [*closing(reader), lambda: next(reader), lambda: iter(reader), lambda: reader.__enter__()]:
        with pytest.raises(gabion.ClosedError, match="this Reader was closed"):
            use()


def test_the_chunk_goes_back_at_close_and_at_the_end() -> None:
    gc.collect()
    before = gabion.memory.stats().live
    kept = io.BytesIO(LINES)
    readers = [streams.Reader(io.BytesIO(LINES)) for _ in range(4)] + [streams.Reader(kept)]
    assert gabion.memory.stats().live == before
    for reader in readers:
        reader.read(1)
    assert gabion.memory.stats().live == before + 5
    readers[0].close()
    readers[1].detach()
    assert gabion.memory.stats().live == before + 3
    del reader, readers
    gc.collect()
    assert gabion.memory.stats().live == before
    assert not kept.closed


def test_detached() -> None:
    file = io.BytesIO(LINES)
    reader = streams.Reader(file, chunk=100)
    reader.read(1)
    assert reader.detach() is file
    assert (file.tell(), file.closed, reader.closed) == (100, False, True)
    assert repr(reader) == "<gabion.streams.Reader, detached>"
    for use in closing(reader):
        with pytest.raises(
            gabion.ClosedError, match=r"^this Reader was detached: use the file that detach\(\) returned"
        ):
            use()
    reader.close()
    assert not file.closed


def test_cycles_are_collected() -> None:
    class File(io.BytesIO):
        pass

    file = File(LINES)
    reader = streams.Reader(file)
    file.reader = reader  # type: ignore[attr-defined]
    reader.read(1)
    gone = weakref.ref(file)
    del file, reader
    gc.collect()
    assert gone() is None


def test_neither_pickled_nor_copied() -> None:
    for refused in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            refused(streams.Reader(io.BytesIO()))


def test_a_file_that_calls_its_own_reader() -> None:
    file = Calling()
    reader = streams.Reader(file)
    file.call = reader.read
    with pytest.raises(RuntimeError, match=r"by the file that it is just calling, .*: use the file itself there"):
        reader.read()
    file.call = lambda: None
    assert reader.read() == b""


def test_threads_take_turns() -> None:
    numbered = b"".join(b"%07d\n" % number for number in range(20_000))
    reader = streams.Reader(Short(numbered, 4321), chunk=8192)
    parts: list[list[bytes]] = [[] for _ in range(6)]
    run(*[lambda part=part: part.extend(iter(reader.readline, b"")) for part in parts])
    assert sorted(itertools.chain(*parts)) == numbered.splitlines(keepends=True)
    for part in parts:
        assert part == sorted(part)


def test_closing_beside_reading() -> None:
    for _ in range(20):
        reader = streams.Reader(Short(LINES, 5), chunk=64)
        stop = threading.Event()

        def read(reader: streams.Reader = reader, stop: threading.Event = stop) -> None:
            try:
                while reader.read(3):
                    stop.set()
            except gabion.ClosedError:
                pass

        def close(reader: streams.Reader = reader, stop: threading.Event = stop) -> None:
            stop.wait(HANGS)
            reader.close()

        run(read, read, close)
        assert reader.closed


def test_arguments() -> None:
    for wrong in (3, None, "path"):
        with pytest.raises(TypeError, match=r"file must be a binary file with readinto\(\) or read\(\)"):
            streams.Reader(wrong)
    with pytest.raises(TypeError, match="file is a text file"):
        streams.Reader(io.StringIO())
    with pytest.raises(ValueError, match="chunk=0: pass 1 to 1048576 bytes"):
        streams.Reader(io.BytesIO(), chunk=0)


@pytest.mark.parametrize("buffering", [0, -1])
def test_the_rest_of_a_real_file(tmp_path: Path, buffering: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(LINES * 40)
    with path.open("r+b", buffering=buffering) as file:
        file.read(10)
        reader = streams.Reader(file, chunk=1000)
        assert reader.read(5) == LINES[10:15]
        assert reader.read() == (LINES * 40)[15:]
        assert reader.read() == b""
        assert file.tell() == reader.tell() == len(LINES) * 40
        file.write(b"more")
        file.flush()
        assert reader.seek(-6, 2) == len(LINES) * 40 - 2
        assert reader.read() == b"ndmore"
    with open("/proc/self/status", "rb", buffering=buffering) as file:
        assert b"VmRSS" in streams.Reader(file).read()
    told = r"^file is not open for reading: open it with mode 'rb'$"
    with path.open("wb", buffering=buffering) as file, pytest.raises(io.UnsupportedOperation, match=told):
        streams.Reader(file)


@pytest.mark.skipif(not Path("/proc/sys/kernel/pid_max").exists(), reason="no such file system here")
@pytest.mark.parametrize("buffering", [0, -1])
def test_a_file_that_gives_all_to_the_first_read_and_says_that_it_has_nothing(buffering: int) -> None:
    path = Path("/proc/sys/kernel/pid_max")
    with path.open("rb", buffering=buffering) as file:
        assert streams.Reader(file).read() == path.read_bytes()
        assert file.read() == b""


def test_a_source_that_releases_what_it_was_given() -> None:
    class Releasing(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            with buffer:
                return super().readinto(buffer)

    reader = streams.Reader(Releasing(LINES), chunk=1000)
    assert reader.read(5000) == LINES[:5000]
    assert list(reader) == io.BytesIO(LINES[5000:]).readlines()
    target = io.BytesIO()
    assert streams.copy(Releasing(LINES), target, chunk=100) == len(LINES)
    assert target.getvalue() == LINES


def waiting_reader() -> tuple[streams.Reader, Any, threading.Thread]:
    """A Reader in whose read() a thread waits, the end of the pipe that it waits for, and the thread."""
    read, write = os.pipe()
    reader, end = streams.Reader(os.fdopen(read, "rb", buffering=0)), os.fdopen(write, "wb", buffering=0)
    thread = threading.Thread(target=reader.read, args=(5,))
    thread.start()
    # It takes the first bytes before it waits for the others.
    end.write(b"abc")
    assert eventually(lambda: int.from_bytes(fcntl.ioctl(read, termios.FIONREAD, bytes(4)), sys.byteorder) == 0)
    return reader, end, thread


def test_whether_it_is_closed_is_told_while_another_thread_waits() -> None:
    reader, end, thread = waiting_reader()
    assert not reader.closed
    assert repr(reader).startswith("<gabion.streams.Reader of <_io.FileIO")
    end.close()
    thread.join()
    reader.close()
    assert reader.closed


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_that_is_forked_while_another_thread_waits() -> None:
    reader, end, thread = waiting_reader()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(int(HANGS))
            reader.read(1)
        except RuntimeError as error:
            status = 0 if "make another Reader" in str(error) and not reader.closed else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    end.write(b"defgh")
    thread.join()
    assert reader.read(3) == b"fgh"
    end.close()
    reader.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_reader_goes_on_in_a_child() -> None:
    reader = streams.Reader(io.BytesIO(LINES), chunk=100)
    assert reader.read(10) == LINES[:10]
    child = os.fork()
    if child == 0:
        os._exit(0 if reader.read() == LINES[10:] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert reader.read() == LINES[10:]


def test_sizes_and_arguments_of_the_fast_calls() -> None:
    reader = streams.Reader(io.BytesIO(b"0123456789"))
    reader.peek()

    class Two:
        def __index__(self) -> int:
            return 2

    assert (reader.read(Two()), reader.read(True), reader.readline(Two()), reader.read(0)) == (b"01", b"2", b"34", b"")
    assert (reader.read(-5), reader.readline(None), reader.read(None)) == (b"56789", b"", b"")
    for wrong in ("1", 1.5, b""):
        with pytest.raises(TypeError):
            reader.read(wrong)
    for call in (lambda: reader.read(1, 2), lambda: reader.readline(1, 2), lambda: reader.readinto()):
        with pytest.raises(TypeError, match="positional arguments given"):
            call()
    with pytest.raises(TypeError, match="keyword"):
        reader.read(size=1)
    assert streams.Reader.read.__doc__.startswith("Read and return size bytes")
    assert str(inspect.signature(streams.Reader.read)) == "(self, size=-1, /)"
