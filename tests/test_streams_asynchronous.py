"""Files whose methods are coroutines are refused, by name, and without a warning that nobody awaited them."""

import asyncio
import gc
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gabion import Image, streams


@pytest.fixture(autouse=True)
def nothing_left_unawaited() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        gc.collect()


class Reading:
    async def read(self, size: int = -1) -> bytes:
        return b"stone"


class Filling:
    async def readinto(self, buffer: memoryview) -> int:
        return 0

    async def readable(self) -> bool:
        return True


class Writing:
    async def write(self, data: bytes) -> int:
        return len(data)


class Late:
    """One whose methods do not say that they give coroutines."""

    def read(self, size: int = -1) -> Any:
        return Reading().read(size)

    def write(self, data: Any) -> Any:
        return Writing().write(data)


class Ending(io.RawIOBase):
    """One that reads and writes as others do, and ends as an asynchronous one does."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return 0

    def write(self, data: Any) -> int:
        return len(data)

    async def flush(self) -> None:  # type: ignore[override]
        pass

    async def close(self) -> None:  # type: ignore[override]
        pass

    def __del__(self) -> None:
        pass


def refused(call: Callable[[], Any], name: str) -> None:
    told = f"^{name} is an asynchronous file, which is not supported: pass a plain binary file, such as an io.BytesIO"
    with pytest.raises(TypeError, match=told):
        call()


def test_they_are_refused_before_anything_is_read_or_gathered() -> None:
    for file in (Reading(), Filling(), asyncio.StreamReader.__new__(asyncio.StreamReader)):
        refused(lambda file=file: streams.copy(file, io.BytesIO()), "src")  # type: ignore[misc]
        refused(lambda file=file: streams.Reader(file), "file")  # type: ignore[misc]
        refused(lambda file=file: Image.open(file), "file")  # type: ignore[misc]
    refused(lambda: streams.copy(io.BytesIO(b"stone"), Writing()), "dst")  # type: ignore[arg-type]
    refused(lambda: streams.Writer(Writing()), "file")  # type: ignore[arg-type]
    refused(lambda: Image.new("L", (3, 3)).save(Writing(), format="PNG"), "file")  # type: ignore[arg-type]


def test_coroutines_that_come_as_results_are_refused() -> None:
    refused(lambda: streams.copy(Late(), io.BytesIO()), "the file")
    refused(lambda: streams.Reader(Late()).read(), "the file")
    refused(lambda: streams.copy(io.BytesIO(b"stone"), Late()), "the file")
    refused(lambda: Image.open(Late()), "the file")


def test_what_should_flush_and_close_does_not_pass_for_done() -> None:
    writer = streams.Writer(Ending())
    writer.write(b"stone")
    refused(writer.flush, "the file")
    refused(writer.close, "the file")
    refused(streams.Reader(Ending()).close, "the file")
