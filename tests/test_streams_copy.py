"""gabion.streams.copy: every kind of file, every way in which one can fail."""

import contextlib
import errno
import io
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import HANGS
from stream_files import Keeping, OnlyRead, OnlyWrite, Scripted, Short

import gabion
from gabion import streams

DATA = bytes(i * 7 % 251 for i in range(3_000_001))
SMALL = DATA[:1000]

pytestmark = pytest.mark.usefixtures("balance")


def temporary(content: bytes, buffering: int = -1) -> Any:
    file = tempfile.TemporaryFile(buffering=buffering)  # noqa: SIM115
    file.write(content)
    file.seek(0)
    return file


SOURCES: dict[str, Callable[[bytes], Any]] = {
    "bytes": io.BytesIO,
    "file": temporary,
    "raw file": lambda content: temporary(content, 0),
    "only read": OnlyRead,
    "short": lambda content: Short(content, 50_021),
    "buffered short": lambda content: io.BufferedReader(Short(content, 50_021)),
    "reader": lambda content: streams.Reader(io.BytesIO(content)),
}
TARGETS: dict[str, Callable[[], Any]] = {
    "bytes": io.BytesIO,
    "file": lambda: temporary(b""),
    "raw file": lambda: temporary(b"", 0),
    "only write": OnlyWrite,
    "short": lambda: Short(most=70_001),
    "buffered short": lambda: io.BufferedWriter(Short(most=70_001)),
    "keeping": Keeping,
    "writer": lambda: streams.Writer(io.BytesIO()),
}


def content_of(target: Any) -> bytes:
    if hasattr(target, "flush"):
        target.flush()
    while hasattr(target, "raw"):
        target = target.raw
    if hasattr(target, "getvalue"):
        return target.getvalue()
    target.seek(0)
    return target.read()


@pytest.mark.parametrize("chunk", ["1 MiB", "256 KiB", 65_537])
@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("of", SOURCES)
def test_all_pairs(of: str, to: str, chunk: Any) -> None:
    src, dst = SOURCES[of](DATA), TARGETS[to]()
    assert streams.copy(src, dst, chunk=chunk) == len(DATA)
    assert content_of(dst) == DATA
    assert streams.copy(src, dst) == 0


@pytest.mark.parametrize("length", [0, 1, 6, 7, 8, 4095, 4096, 4097])
def test_all_lengths(length: int) -> None:
    for of, source in SOURCES.items():
        for to, target in TARGETS.items():
            dst = target()
            assert streams.copy(source(DATA[:length]), dst, chunk=4096) == length, (of, to)
            assert content_of(dst) == DATA[:length], (of, to)


def test_it_begins_where_the_files_stand(tmp_path: Path) -> None:
    for buffering in (0, -1):
        with temporary(DATA, buffering) as src, (tmp_path / "to").open("w+b", buffering=buffering) as dst:
            assert src.read(10) == DATA[:10]
            dst.write(b"head ")
            assert streams.copy(src, dst) == len(DATA) - 10
            assert (src.tell(), src.read()) == (len(DATA), b"")
            assert dst.tell() == len(DATA) - 5
            dst.write(b" tail")
            dst.seek(0)
            assert dst.read() == b"head " + DATA[10:] + b" tail"


def test_files_that_append(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before ")
    with path.open("ab") as dst, temporary(SMALL) as src:
        assert streams.copy(src, dst) == len(SMALL)
        dst.write(b" after")
    assert path.read_bytes() == b"before " + SMALL + b" after"


def test_a_buffered_file_that_was_written_is_read(tmp_path: Path) -> None:
    with (tmp_path / "both").open("w+b") as src, temporary(b"") as dst:
        src.write(SMALL)
        src.seek(4)
        src.write(b"new")
        src.seek(2)
        assert streams.copy(src, dst) == len(SMALL) - 2
        assert content_of(dst) == SMALL[2:4] + b"new" + SMALL[7:]


def test_files_of_the_system_that_say_no_length() -> None:
    with open("/proc/self/status", "rb") as src, temporary(b"") as dst:
        assert streams.copy(src, dst) > 100
        assert b"VmRSS" in content_of(dst)


def test_pipes_and_sockets() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as src, os.fdopen(write_end, "wb") as end:
        feeder = threading.Thread(target=lambda: (streams.copy(io.BytesIO(DATA), end), end.close()))
        feeder.start()
        target = io.BytesIO()
        assert streams.copy(src, target) == len(DATA)
        feeder.join()
    assert target.getvalue() == DATA
    here, there = socket.socketpair()
    with here, there, here.makefile("wb") as dst, there.makefile("rb") as src:
        feeder = threading.Thread(target=lambda: (streams.copy(temporary(DATA), dst), dst.flush(), here.shutdown(1)))
        feeder.start()
        target = io.BytesIO()
        assert streams.copy(src, target) == len(DATA)
        feeder.join()
    assert target.getvalue() == DATA


@pytest.mark.parametrize("readers", [0, 1, 2])
def test_a_pipe_is_passed_on_as_it_comes(readers: int) -> None:
    read_end, write_end = os.pipe()
    came = threading.Event()

    class Target:
        def write(self, data: memoryview) -> int:
            assert bytes(data) == b"now"
            came.set()
            return len(data)

    with contextlib.ExitStack() as files:
        src: Any = files.enter_context(os.fdopen(read_end, "rb"))
        for _ in range(readers):
            src = files.enter_context(streams.Reader(src))
        copier = threading.Thread(target=streams.copy, args=(src, Target()))
        copier.start()
        os.write(write_end, b"now")
        assert came.wait(HANGS)
        os.close(write_end)
        copier.join()


def test_more_than_two_gibibytes() -> None:
    class Long(io.RawIOBase):
        left = (2 << 30) + 12_345

        def readinto(self, buffer: memoryview) -> int:
            count = min(len(buffer), self.left)
            self.left -= count
            return count

    class Count:
        total = 0

        def write(self, data: memoryview) -> int:
            self.total += len(data)
            return len(data)

    dst = Count()
    assert streams.copy(Long(), dst) == dst.total == (2 << 30) + 12_345


def test_holes_beyond_two_gibibytes(tmp_path: Path) -> None:
    """The end of a sparse file: offsets are 64-bit."""
    with (tmp_path / "sparse").open("w+b") as src, temporary(b"") as dst:
        src.seek((3 << 30) - 3)
        src.write(b"end")
        src.seek((3 << 30) - 5)
        assert streams.copy(src, dst) == 5
        assert content_of(dst) == b"\0\0end"
        assert src.tell() == 3 << 30


# --- what is kept by the other side ---------------------------------------------------------------


def test_what_a_target_keeps_stays_as_it_is() -> None:
    dst = Keeping()
    streams.copy(io.BytesIO(DATA), dst, chunk="64 KiB")
    assert len(dst.kept) == -(-len(DATA) // 65_536)
    assert all(view.readonly for view in dst.kept)
    assert dst.getvalue() == DATA


def test_a_target_that_keeps_a_slice() -> None:
    class Slices(Keeping):
        def write(self, data: memoryview) -> int:
            self.kept.append(data[:1])
            return len(data)

    dst = Slices()
    streams.copy(io.BytesIO(b"".join(bytes([i]) * 4096 for i in range(50))), dst, chunk=4096)
    assert dst.getvalue() == bytes(range(50))


def test_a_source_that_keeps_the_view_cannot_reach_freed_memory() -> None:
    views: list[memoryview] = []

    class Source(io.BytesIO):
        def readinto(self, buffer: memoryview) -> int:
            views.append(buffer)
            return super().readinto(buffer)

    streams.copy(Source(SMALL), io.BytesIO())
    # The second view was offered at the file's end, of another chunk: what is in it is anybody's.
    first, last = views
    with gabion.memory.rent(first.nbytes) as other, memoryview(other) as stranger:
        stranger[:] = bytes(len(stranger))
        assert bytes(first[: len(SMALL)]) == SMALL
        last[:3] = b"abc"
        assert bytes(stranger[:3]) == bytes(3)
    # Some interpreters never let go of what a class's methods refer to.
    views.clear()


# --- failures -------------------------------------------------------------------------------------


def test_a_write_error_halfway_says_how_far_it_came() -> None:
    src, dst = io.BytesIO(DATA), Scripted(4096, 4096, 100, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OSError, match="No space left") as failed:
        streams.copy(src, dst, chunk=4096)
    assert failed.value.errno == errno.ENOSPC
    assert failed.value.bytes_copied == len(dst.taken) == 8292
    assert failed.value.__notes__ == ["gabion.streams.copy: 8292 bytes were copied before"]
    assert src.tell() == 8292
    rest = io.BytesIO()
    streams.copy(src, rest)
    assert bytes(dst.taken) + rest.getvalue() == DATA


def test_a_source_that_cannot_go_back_says_what_is_lost() -> None:
    with pytest.raises(OSError, match="full") as failed:
        streams.copy(OnlyRead(DATA), Scripted(4096, OSError("full")), chunk=4096)
    assert failed.value.bytes_copied == 4096
    assert failed.value.__notes__[0] == "4096 bytes more were read from src, which is not seekable: they are lost"


def test_a_full_device() -> None:
    with open("/dev/full", "wb", buffering=0) as dst, temporary(DATA) as src:
        with pytest.raises(OSError, match="No space left") as failed:
            streams.copy(src, dst)
        assert failed.value.errno == errno.ENOSPC
        assert failed.value.bytes_copied == 0
        assert src.tell() == 0


def test_a_real_file_that_becomes_too_large(script: Callable[..., str]) -> None:
    """Between real files: the system's own error, its number, and both files behind what was copied."""
    script("""
        import errno, resource, signal, tempfile
        from gabion import streams
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with tempfile.TemporaryFile() as src, tempfile.TemporaryFile() as dst:
            src.write(bytes(1 << 20)); src.seek(0)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
            try:
                streams.copy(src, dst)
            except OSError as error:
                assert error.errno == errno.EFBIG, error
                assert error.bytes_copied == 300_000 == src.tell() == dst.tell(), (error.bytes_copied, src.tell())
            else:
                raise AssertionError
    """)


def test_a_read_error_halfway() -> None:
    dst = io.BytesIO()
    with pytest.raises(OSError, match="gone") as failed:
        streams.copy(Scripted(50, 60, OSError(errno.EIO, "gone")), dst)
    assert failed.value.bytes_copied == 110
    assert dst.getvalue() == b"x" * 110


def test_non_blocking_files() -> None:
    dst = io.BytesIO()
    with pytest.raises(BlockingIOError, match="src has nothing to read now; 30 bytes were copied") as failed:
        streams.copy(Scripted(10, 20, None), dst)
    assert (failed.value.errno, failed.value.characters_written) == (errno.EAGAIN, 30)
    assert dst.getvalue() == b"x" * 30
    src, raw = io.BytesIO(SMALL), Scripted(10, None)
    with pytest.raises(BlockingIOError, match="dst takes nothing now; 10 bytes were copied") as failed:
        streams.copy(src, raw)
    assert failed.value.characters_written == failed.value.bytes_copied == src.tell() == 10


def test_a_real_pipe_that_is_full() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with os.fdopen(read_end, "rb"):
        for buffering in (0, 8192):
            src = io.BytesIO(DATA)
            dst = os.fdopen(os.dup(write_end), "wb", buffering=buffering)
            with pytest.raises(BlockingIOError) as failed:
                streams.copy(src, dst, chunk="64 KiB")
            assert failed.value.characters_written == failed.value.bytes_copied == src.tell()
            if buffering:
                with pytest.raises(BlockingIOError):
                    dst.close()
            else:
                dst.close()
    os.close(write_end)


class Bad:
    def __init__(self, result: Any) -> None:
        self.result = result

    def readinto(self, buffer: Any) -> Any:
        return self.result

    write = readinto


@pytest.mark.parametrize(
    ("result", "error", "told"),
    [
        (-1, OSError, r"readinto\(\) returned -1 where 0 to 262144"),
        (1 << 21, OSError, "returned 2097152 where 0 to 262144"),
        (1 << 80, OSError, "the file is at fault"),
        ("5", TypeError, r"readinto\(\) returned str, not a number"),
        (b"abc", TypeError, "returned bytes"),
    ],
)
def test_sources_that_answer_nonsense(result: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        streams.copy(Bad(result), io.BytesIO())


@pytest.mark.parametrize(
    ("result", "error", "told"),
    [
        (-1, OSError, r"write\(\) returned -1 where 0 to 1000"),
        (1001, OSError, "returned 1001"),
        (0, OSError, r"write\(\) returned 0"),
        ("5", TypeError, r"write\(\) returned str"),
    ],
)
def test_targets_that_answer_nonsense(result: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        streams.copy(io.BytesIO(SMALL), Bad(result))


def test_reads_that_give_too_much_or_text() -> None:
    class Long(OnlyRead):
        def read(self, size: int = -1) -> Any:
            return bytes(size + 1)

    class Text(OnlyRead):
        def read(self, size: int = -1) -> Any:
            return "text"

    with pytest.raises(OSError, match=r"read\(4096\) returned 4097 bytes"):
        streams.copy(Long(b""), io.BytesIO(), chunk=4096)
    with pytest.raises(TypeError, match="binary mode"):
        streams.copy(Text(b""), io.BytesIO())


def test_what_is_no_file() -> None:
    for wrong in ("path.bin", Path("path.bin"), 3, None, b"bytes"):
        with pytest.raises(TypeError, match=r"src must be a binary file with readinto\(\) or read\(\), not "):
            streams.copy(wrong, io.BytesIO())
        with pytest.raises(TypeError, match=r"dst must be a binary file with write\(\), not "):
            streams.copy(io.BytesIO(), wrong)
    with pytest.raises(TypeError, match=r"src is a text file: open it in binary mode, or pass its \.buffer"):
        streams.copy(io.StringIO("text"), io.BytesIO())
    with pytest.raises(TypeError, match="dst is a text file"):
        streams.copy(io.BytesIO(), io.StringIO())


def test_chunks(tmp_path: Path) -> None:
    for wrong in (0, "2 MiB", 1 << 40):
        with pytest.raises(ValueError, match=r"pass 1 to 1048576 bytes"):
            streams.copy(io.BytesIO(), io.BytesIO(), chunk=wrong)
    with pytest.raises(TypeError, match="chunk must be an int"):
        streams.copy(io.BytesIO(), io.BytesIO(), chunk=1.5)
    dst = Keeping()
    assert streams.copy(io.BytesIO(b"abc"), dst, chunk=1) == 3
    assert [bytes(data) for data in dst.kept] == [b"a", b"b", b"c"]


def test_closed_files(tmp_path: Path) -> None:
    path = tmp_path / "closed"
    for closed in (io.BytesIO(SMALL), path.open("w+b"), path.open("rb", buffering=0)):
        closed.close()
        with pytest.raises(gabion.ClosedError, match="src is a closed file"):
            streams.copy(closed, io.BytesIO())
        with pytest.raises(gabion.ClosedError, match="dst is a closed file"):
            streams.copy(io.BytesIO(SMALL), closed)
        for stream in (streams.Reader, streams.Writer):
            with pytest.raises(gabion.ClosedError, match="file is a closed file"):
                stream(closed)


def test_files_of_the_wrong_direction(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(SMALL)
    for buffering in (0, -1):
        reading, writing = path.open("rb", buffering=buffering), (tmp_path / "w").open("wb", buffering=buffering)
        with reading, writing, temporary(SMALL) as other:
            with pytest.raises(io.UnsupportedOperation, match=r"^dst is not open for writing: open it with mode 'wb'$"):
                streams.copy(other, reading)
            with pytest.raises(io.UnsupportedOperation, match=r"^src is not open for reading: open it with mode 'rb'$"):
                streams.copy(writing, other)
            assert (other.tell(), reading.tell(), writing.tell()) == (0, 0, 0)
            with pytest.raises(io.UnsupportedOperation, match=r"^dst is not open for writing"):
                streams.copy(other, streams.Reader(reading))
            with pytest.raises(io.UnsupportedOperation, match=r"^src is not open for reading"):
                streams.copy(streams.Writer(writing), other)


def test_a_file_that_cannot_say_its_direction_is_used() -> None:
    class Unsaid(io.BytesIO):
        def readable(self) -> bool:
            raise OSError("not known")

        writable = True  # type: ignore[assignment]

    class Inherited(io.RawIOBase):
        """Knows nothing of the questions, which io.IOBase answers with no."""

        def __init__(self) -> None:
            self.taken = bytearray()

        def readinto(self, buffer: Any) -> int:
            return 0

        def write(self, data: Any) -> int:
            self.taken += data
            return len(data)

    inherited = Inherited()
    assert streams.copy(io.BytesIO(SMALL), inherited) == len(inherited.taken) == len(SMALL)
    assert streams.copy(inherited, io.BytesIO()) == 0
    with streams.Writer(inherited) as writer:
        writer.write(b"x")
    assert streams.Reader(Inherited()).read() == b""
    target = Unsaid()
    assert streams.copy(Unsaid(SMALL), target) == len(SMALL)
    assert target.getvalue() == SMALL
    assert streams.Reader(Unsaid(SMALL)).read() == SMALL
    with streams.Writer(target) as writer:
        writer.write(SMALL)
        writer.flush()
        assert target.getvalue() == SMALL * 2


def test_an_interrupt_is_no_answer() -> None:
    class Interrupted(io.BytesIO):
        def readable(self) -> bool:
            raise KeyboardInterrupt

        writable = readable

    for use in (streams.Reader, streams.Writer, lambda file: streams.copy(file, io.BytesIO())):
        with pytest.raises(KeyboardInterrupt):
            use(Interrupted())


def test_one_file_onto_itself(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(SMALL)
    with path.open("rb") as src, path.open("ab") as dst, pytest.raises(ValueError, match="the same file"):
        streams.copy(src, dst)
    assert path.read_bytes() == SMALL


def test_any_object_onto_itself(tmp_path: Path) -> None:
    class Memory(io.BytesIO):
        pass

    with (tmp_path / "file").open("w+b") as file, temporary(SMALL) as other:
        for one in (Memory(SMALL), file, other):
            with pytest.raises(ValueError, match="the same file"):
                streams.copy(one, one)


def test_ctrl_c_between_files_in_memory() -> None:
    """Files written in C never come back to the interpreter's loop; copy() looks for signals itself."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with open("/dev/zero", "rb", buffering=0) as src, open("/dev/null", "wb", buffering=0) as dst:
        old, copied = signal.signal(signal.SIGALRM, stop), 0
        try:
            while copied == 0:  # on a busy machine it may come before the first byte
                with pytest.raises(KeyboardInterrupt) as ended:
                    signal.setitimer(signal.ITIMER_REAL, 0.05)
                    streams.copy(src, dst)
                copied = getattr(ended.value, "bytes_copied", 0)
        finally:
            signal.signal(signal.SIGALRM, old)


def test_limits_hold() -> None:
    gabion.memory.configure(allocation_limit="64 KiB")
    try:
        with pytest.raises(gabion.LimitError):
            streams.copy(Short(SMALL), io.BytesIO())
        assert streams.copy(Short(SMALL), io.BytesIO(), chunk="64 KiB") == 1000
    finally:
        gabion.memory.configure(allocation_limit=None)


def test_threads_copy_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "src").write_bytes(DATA)

    def work(number: int) -> None:
        for turn in range(5):
            with (tmp_path / "src").open("rb") as src, (tmp_path / f"{number}").open("wb") as dst:
                assert (streams.copy if turn % 2 else shutil.copyfileobj)(src, dst) in (None, len(DATA))
            memory = io.BytesIO()
            streams.copy(Short((tmp_path / f"{number}").read_bytes(), 300_007), memory)
            assert memory.getvalue() == DATA

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("of_memory", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_copy_to_a_writer_that_fails_goes_on_where_it_ended(of_memory: bool, depth: int) -> None:
    raw = Scripted(100, OSError(errno.ENOSPC, "full"))
    target: Any = raw
    for _ in range(depth):
        target = streams.Writer(target, chunk=16)
    source = io.BytesIO(SMALL) if of_memory else temporary(SMALL)
    with source, pytest.raises(OSError, match="full") as failed:
        streams.copy(source, target)
    assert failed.value.bytes_taken == failed.value.bytes_copied == 100
    assert all(" 100 " in note for note in failed.value.__notes__)


@pytest.mark.parametrize("of_memory", [False, True])
def test_nothing_is_copied_twice_to_a_writer(of_memory: bool) -> None:
    raw = Scripted(100, OSError(errno.ENOSPC, "full"))
    writer = streams.Writer(raw, chunk=16)
    with io.BytesIO(SMALL) if of_memory else temporary(SMALL) as source:
        with pytest.raises(OSError, match="full"):
            streams.copy(source, writer)
        assert source.tell() == 100
        assert streams.copy(source, writer) == 900
        writer.flush()
    assert bytes(raw.taken) == SMALL


def test_what_was_gathered_before_is_not_counted_as_copied() -> None:
    raw = Scripted(BlockingIOError(errno.EAGAIN, "later", 3))
    writer = streams.Writer(raw, chunk=16)
    writer.write(b"0123456789")
    with io.BytesIO(SMALL) as source:
        with pytest.raises(BlockingIOError, match="later") as failed:
            streams.copy(source, writer)
        assert failed.value.bytes_copied == source.tell() == 0
