"""Files that behave in all the ways in which files may, for the tests of streams."""

import io
from collections.abc import Callable
from typing import Any


class Short(io.RawIOBase):
    """A raw file that gives or takes a few bytes at a time, as pipes and sockets do."""

    def __init__(self, content: bytes = b"", most: int = 7) -> None:
        self.inner, self.most = io.BytesIO(content), most

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self.inner.readinto(memoryview(buffer)[: self.most])

    def write(self, data: Any) -> int:
        return self.inner.write(bytes(data)[: self.most])

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.inner.seek(offset, whence)

    def tell(self) -> int:
        return self.inner.tell()

    def truncate(self, size: int | None = None) -> int:
        return self.inner.truncate(size)

    def getvalue(self) -> bytes:
        return self.inner.getvalue()


class OnlyRead:
    """Has read() and nothing else."""

    def __init__(self, content: bytes) -> None:
        self.inner = io.BytesIO(content)

    def read(self, size: int = -1) -> bytes:
        return self.inner.read(size)


class OnlyWrite:
    """Has write() and nothing else; it returns None, as many do."""

    def __init__(self) -> None:
        self.inner = io.BytesIO()

    def write(self, data: Any) -> None:
        self.inner.write(data)

    def getvalue(self) -> bytes:
        return self.inner.getvalue()


class Keeping:
    """Keeps what it is given, without a copy."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def write(self, data: Any) -> int:
        self.kept.append(data)
        return len(data)

    def getvalue(self) -> bytes:
        return b"".join(bytes(data) for data in self.kept)


class Scripted(io.RawIOBase):
    """A raw file whose every call does what a list says: a number of bytes, None, or an exception."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.taken = bytearray()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def next(self, length: int) -> Any:
        answer = self.answers.pop(0) if self.answers else length
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def readinto(self, buffer: Any) -> Any:
        count = self.next(0)
        if isinstance(count, int):
            memoryview(buffer)[:count] = b"x" * count
        return count

    def write(self, data: Any) -> Any:
        count = self.next(len(data))
        if isinstance(count, int):
            self.taken += bytes(data)[:count]
        return count


class Calling:
    """Calls something while it is called."""

    def __init__(self) -> None:
        self.call: Callable[[], Any] = lambda: None

    def readinto(self, buffer: Any) -> int:
        self.call()
        return 0

    def write(self, data: Any) -> int:
        self.call()
        return len(data)
