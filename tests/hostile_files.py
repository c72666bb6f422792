"""Files that do whatever bytes say, and streams over them: nothing may crash, nobody's bytes may change, and nothing
but what a file raises itself or what streams document may come out. A test plays it with random bytes, a fuzz target
with its own.
"""

import io
from collections.abc import Callable
from typing import Any

from script_of_bytes import Script

from gabion import Image, streams

# What streams raise by themselves, and what the files below raise.
ALLOWED = (
    OSError,
    TypeError,
    ValueError,
    RuntimeError,
    BufferError,
    OverflowError,
    KeyError,
    AttributeError,
    MemoryError,
)
LIES = [-1, -(1 << 40), 1 << 40, 1 << 70, "12", 1.5, b"", True, object()]


class Index:
    """A number whose __index__ does something else."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work

    def __index__(self) -> Any:
        return self.work()


class Hostile:
    """A file whose every call does what the script says; `stream` is what uses it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.stream: Any = None
        self.kept: list[tuple[Any, bytes]] = []
        self.depth = 0

    def trouble(self, data: Any) -> Any:
        """Does something that a file should not; returns what the method is to return."""
        what = self.script.below(11)
        if what == 0:
            return None
        if what == 1:
            return LIES[self.script.below(len(LIES))]
        if what == 2:
            raise KeyError("mine")
        if what == 3:
            raise OSError(5, "gone")
        if what == 4:
            error = BlockingIOError(11, "not now")
            error.characters_written = 1 << self.script.below(40)
            raise error
        if what == 5:
            return Index(lambda: self.trouble(data))
        if what == 6 and isinstance(data, memoryview):
            data.release()
            return self.script.below(5)
        if what == 7 and self.stream is not None:
            return self.stream.close()
        if what == 8 and self.stream is not None and self.depth < 3:
            self.depth += 1
            try:
                return step(self.stream, self.script)
            except ALLOWED:
                return 0
            finally:
                self.depth -= 1
        if what == 9:
            self.stream = None
        return 0

    def readinto(self, buffer: Any) -> Any:
        if self.script.below(4) == 3:
            return self.trouble(buffer)
        count = min(len(buffer), self.script.below(256) * (1 + self.script.below(9)))
        buffer[:count] = (b"0123456789\n" * (count // 11 + 1))[:count]
        if self.script.below(8) == 7:
            self.kept.append((buffer[:0], b""))
        return count

    def read(self, size: int = -1) -> Any:
        if self.script.below(4) == 3:
            return [None, b"x" * (max(size, 0) + 1), "text", bytearray(3), memoryview(b"abcdef")[::2], 5, b""][
                self.script.below(7)
            ]
        return b"0123456789\n" * self.script.below(min(40, max(1, size // 11)))

    def write(self, data: Any) -> Any:
        if self.script.below(4) == 3:
            return self.trouble(data)
        if self.script.below(3) == 2:
            self.kept.append((data, bytes(data)))
        return max(1, len(data) * self.script.below(256) // 255)

    def seek(self, place: int, whence: int = 0) -> Any:
        return place if self.script.below(4) else self.trouble(None)

    def tell(self) -> Any:
        return self.script.below(200) if self.script.below(4) else self.trouble(None)

    def truncate(self, size: Any = None) -> Any:
        return self.trouble(None)

    def seekable(self) -> Any:
        return [True, False, None, Index(lambda: 1)][self.script.below(4)]

    def flush(self) -> Any:
        return self.trouble(None)

    def close(self) -> Any:
        return self.trouble(None)

    def fileno(self) -> Any:
        return LIES[self.script.below(len(LIES))]

    def check(self) -> None:
        for view, content in self.kept:
            try:
                found = bytes(view)
            except ValueError:
                continue  # released by the file itself
            assert found == content, "bytes that a file has kept were changed"


class OnlyRead(Hostile):
    """Has no readinto()."""

    readinto = property()  # type: ignore[assignment]


def step(stream: Any, script: Script) -> Any:
    """One call of a Reader or a Writer."""
    calls = ["read", "readline", "readinto", "read1", "peek", "readlines", "next", "seek", "tell", "write", "flush"]
    calls += ["truncate", "detach", "seekable", "readinto1", "close", "closed", "own view"]
    call = calls[script.below(len(calls))]
    sizes = [0, 1, 7, 100, 5000, 1 << 20, -1, None, 1 << 60]
    if call == "next":
        return next(iter(stream), None)
    if call == "closed":
        return stream.closed
    if call in ("readinto", "readinto1"):
        return getattr(stream, call)(bytearray(min(5000, sizes[script.below(5)] or 0)))
    if call == "own view":
        kept = [view for view, _ in stream.raw.kept if not view.readonly]
        return stream.readinto(kept[0]) if kept else None
    if call == "write":
        return stream.write(
            [b"x" * 50, b"y" * 3000, memoryview(b"abc"), "text", b"", bytearray(99), 5][script.below(7)]
        )
    if call in ("read", "readline", "read1", "peek", "truncate"):
        size = sizes[script.below(9)]
        if script.below(9) == 8:
            return getattr(stream, call)(Index(lambda: stream.close()))
        # Some files never end.
        return getattr(stream, call)(100_000 if size in (-1, None, 1 << 60) else size)
    if call == "readlines":
        return stream.readlines(1000)
    if call == "seek":
        return stream.seek([0, 5, 1000, -5, 1 << 62][script.below(5)], script.below(4))
    return getattr(stream, call)()


class Ending:
    """A source that ends, whatever the one behind it does. (Python 3.13t never frees a class that a function made.)"""

    def __init__(self, source: Any) -> None:
        self.source, self.reads = source, 0

    def readinto(self, buffer: Any) -> Any:
        self.reads += 1
        return 0 if self.reads > 50 else self.source.readinto(buffer)


def picture(file: Hostile) -> None:
    """What an image reads of a file, and what it writes to it."""
    Image.open(file, max_bytes=100_000)
    Image.new("RGB", (30, 20)).save(file, format="PNG")


def play(data: bytes) -> None:
    """Do what the bytes say."""
    script = Script(data)
    files: list[Hostile] = []
    stream: Any = None
    while not script.ended and len(files) < 20:
        try:
            kind = script.below(7)
            chunk = [1, 16, 100, 4096, 1 << 20][script.below(5)]
            if kind < 3 or (kind < 5 and stream is None):
                files.append(OnlyRead(script) if script.below(4) == 3 else Hostile(script))
                stream = (streams.Reader if kind != 1 else streams.Writer)(files[-1], chunk=chunk)
                files[-1].stream = stream
            elif kind < 5:
                for _ in range(1 + script.below(12)):
                    step(stream, script)
            elif kind == 5:
                files += [Hostile(script), Hostile(script)]
                source = io.BytesIO(b"stone" * script.below(256)) if script.below(2) else files[-2]
                if isinstance(source, Hostile):
                    streams.copy(Ending(source), files[-1], chunk=chunk)
                else:
                    streams.copy(source, files[-1], chunk=chunk)
            else:
                files.append(Hostile(script))
                picture(files[-1])
        except ALLOWED:
            pass
        for file in files:
            file.check()
    for file in files:
        file.stream = None
