"""What leaves a with statement is what its block raised, not what came of that."""

import asyncio
import contextlib
import errno
import gc
import io
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gabion
import gabion.memory as memory
from gabion import streams


class Mine(Exception):
    pass


def buffers() -> list[Callable[[], Any]]:
    return [
        lambda: memory.rent("1 MiB"),
        lambda: memory.rent(100),
        lambda: memory.rent_group("5 MiB", row_bytes=100),
    ]


def views_of(rented: Any) -> list[memoryview]:
    """Two views of a buffer or of a group."""
    return [memoryview(rented), memoryview(rented)] if not hasattr(rented, "row") else [rented.row(0), rented.row(9)]


@pytest.mark.usefixtures("balance")
@pytest.mark.parametrize("rent", buffers())
def test_a_view_in_the_traceback_does_not_hide_the_error(rent: Callable[[], Any]) -> None:
    def work() -> None:
        with rent() as rented:
            views = views_of(rented)
            views[0][0] = 7
            raise Mine

    with pytest.raises(Mine) as told:
        work()
    assert told.value.__context__ is None
    del told
    gc.collect()


@pytest.mark.usefixtures("balance")
@pytest.mark.parametrize("rent", buffers())
def test_after_an_error_the_memory_goes_back_with_the_last_view(rent: Callable[[], Any]) -> None:
    live = memory.stats().live
    with contextlib.suppress(Mine), rent() as rented:
        one, other = views_of(rented)
        one[:5] = b"stone"
        raise Mine
    assert rented.released
    for use in (lambda: views_of(rented), lambda: len(rented), rented.__enter__):
        with pytest.raises(gabion.ClosedError):
            use()
    rented.release()
    assert bytes(one[:5]) == b"stone"
    one.release()
    assert memory.stats().live > live
    other.release()
    assert memory.stats().live == live
    rented.release()


@pytest.mark.usefixtures("balance")
@pytest.mark.parametrize("rent", buffers())
def test_an_error_without_views_releases_at_once(rent: Callable[[], Any]) -> None:
    live = memory.stats().live
    with contextlib.suppress(Mine), rent() as rented:
        raise Mine
    assert rented.released
    assert memory.stats().live == live


@pytest.mark.usefixtures("balance")
def test_a_clean_end_is_refused_while_there_are_views() -> None:
    for rent in buffers():
        with pytest.raises(BufferError, match="2 views"), rent() as rented:
            views = views_of(rented)
        assert not rented.released
        for view in views:
            view.release()
        rented.__exit__(None, None, None)
        assert rented.released


@pytest.mark.usefixtures("balance")
def test_tracked_memory_is_a_leak_until_its_last_view_is_gone() -> None:
    with memory.track() as leaks, contextlib.suppress(Mine), memory.rent(100) as buffer:
        view = memoryview(buffer)
        raise Mine
    assert leaks.nbytes == 100
    with memory.track() as leaks:
        with contextlib.suppress(Mine), memory.rent(100) as buffer:
            other = memoryview(buffer)
            raise Mine
        other.release()
    assert leaks == []
    view.release()


@pytest.mark.usefixtures("balance")
def test_an_array_interface_keeps_the_memory_until_it_is_gone() -> None:
    live = memory.stats().live
    with contextlib.suppress(Mine), memory.rent(100) as buffer:
        view = memoryview(buffer)
        interface = buffer.__array_interface__
        raise Mine
    view.release()
    assert memory.stats().live == live + 1
    with pytest.raises(gabion.ClosedError):
        _ = buffer.__array_interface__
    del interface
    assert memory.stats().live == live


@pytest.mark.usefixtures("balance")
def test_a_block_of_a_group_lets_the_error_pass() -> None:
    with memory.rent_group("5 MiB") as group:
        with pytest.raises(Mine), group[0]:
            raise Mine
        assert not group.released


@pytest.mark.usefixtures("balance")
@pytest.mark.parametrize("rent", buffers())
def test_a_cancelled_task_is_cancelled(rent: Callable[[], Any]) -> None:
    async def work() -> None:
        with rent() as rented:
            views = views_of(rented)
            await asyncio.sleep(60)
            del views

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())
    gc.collect()


@pytest.mark.usefixtures("balance")
def test_a_generator_that_is_closed_is_closed() -> None:
    def work() -> Iterator[memoryview]:
        with memory.rent(100) as buffer:
            yield memoryview(buffer)

    work_ = work()
    view = next(work_)
    work_.close()
    view.release()


class Full(io.RawIOBase):
    """A file of a full disk."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, "no space left")


def test_a_writer_that_cannot_write_tells_so_beside_the_error() -> None:
    with pytest.raises(Mine) as told, streams.Writer(Full()) as writer:
        writer.write(b"gathered")
        raise Mine
    assert writer.closed
    assert "no space left" in told.value.__notes__[0]
    with pytest.raises(OSError, match="no space left") as raised, streams.Writer(Full()) as writer:
        writer.write(bytes(1 << 20))
    assert raised.value.__context__ is None
    with pytest.raises(OSError, match="no space left"), streams.Writer(Full()) as writer:
        writer.write(b"gathered")


def test_what_is_lost_when_a_task_or_generator_ends_is_told_to_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(args.exc_value))

    def work() -> Iterator[None]:
        with streams.Writer(Full()) as writer:
            writer.write(b"gathered")
            yield

    work_ = work()
    next(work_)
    work_.close()
    assert [error.errno for error in told] == [errno.ENOSPC]


class Stuck:
    """A file that cannot be closed."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def read(self, size: int = -1) -> bytes:
        return b""

    def close(self) -> None:
        raise self._error


def test_a_reader_whose_file_cannot_be_closed() -> None:
    with pytest.raises(KeyError) as told, streams.Reader(Stuck(Mine("stuck"))):
        raise KeyError("real")
    assert "stuck" in told.value.__notes__[0]
    with pytest.raises(Mine), streams.Reader(Stuck(Mine())):
        pass


def test_an_interrupt_while_a_stream_is_closed_is_not_held_back() -> None:
    with pytest.raises(KeyboardInterrupt), streams.Reader(Stuck(KeyboardInterrupt())):
        raise Mine


def test_piles_images_and_tracks_let_errors_pass() -> None:
    with pytest.raises(Mine) as told, gabion.Pile() as pile:
        view = pile.view(pile.put(b"stone"))
        raise Mine
    assert told.value.__context__ is None
    assert bytes(view) == b"stone"
    with pytest.raises(Mine) as told, gabion.Image.new("RGB", (5, 5)) as image:
        row = image.row(0)
        raise Mine
    assert told.value.__context__ is None
    assert len(row) == 15
    with pytest.raises(Mine) as told, memory.track():
        raise Mine
    assert told.value.__context__ is None
