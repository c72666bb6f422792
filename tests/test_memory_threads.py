"""Threads that export, release and drop the same memory at the same time."""

import contextlib
import gc
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from many_threads import SECONDS, run, until

import gabion
import gabion.memory as memory

pytestmark = pytest.mark.usefixtures("balance")


EXPORTS: dict[str, Callable[[memory.Buffer], Any]] = {
    "memoryview": lambda buffer: memoryview(buffer)[:8],
    "dlpack": lambda buffer: buffer.__dlpack__(max_version=(1, 0)),
    "arrow": lambda buffer: buffer.__arrow_c_array__(),
}


@pytest.mark.parametrize("way", EXPORTS)
@pytest.mark.parametrize("size", [64, 100_000, 3 << 20])
def test_release_against_export(way: str, size: int) -> None:
    """Either the export fails with ClosedError, or the release with BufferError; never both succeed at a time."""
    rounds = 400
    place: list[memory.Buffer] = [memory.rent(size)]
    start, end = threading.Barrier(3), threading.Barrier(3)
    outcome = {"exported": 0, "released": 0}

    def renew() -> None:
        for _ in range(rounds):
            place[0] = memory.rent(size)
            memoryview(place[0])[:8] = b"original"
            start.wait()
            end.wait()

    def export() -> None:
        for _ in range(rounds):
            start.wait()
            try:
                user = EXPORTS[way](place[0])
            except gabion.ClosedError:
                pass
            else:
                outcome["exported"] += 1
                assert not place[0].released, "an export is alive"
                if way == "memoryview":
                    assert bytes(user) == b"original"
                del user
            end.wait()

    def release() -> None:
        for _ in range(rounds):
            start.wait()
            try:
                place[0].release()
            except BufferError:
                pass
            else:
                outcome["released"] += 1
                with memory.rent(size) as other, memoryview(other) as view:
                    view[:8] = b"stranger"
            end.wait()

    run(renew, export, release)
    assert outcome["released"] > 0
    place.clear()


@pytest.mark.parametrize("size", [64, 3 << 20])
def test_several_threads_release_the_same_buffer(size: int) -> None:
    buffers = [memory.rent(size) for _ in range(200)]
    before = memory.stats().live

    def release() -> None:
        for buffer in buffers:
            buffer.release()

    run(*[release] * 4)
    assert memory.stats().live == before - 200


def test_handing_over() -> None:
    """Rented here, written there, released elsewhere; what one wrote, nobody else changes."""
    lanes: list[list[tuple[int, Any]]] = [[] for _ in range(4)]
    more = until(SECONDS)

    def work(number: int) -> None:
        mine = random.Random(number)
        serial = number << 32
        while more():
            serial += 1
            size = mine.choice((64, 1000, 40_000, 300_000, 1 << 20, 5 << 20))
            buffer = memory.rent(size)
            with memoryview(buffer) as view:
                view[:8] = view[-8:] = serial.to_bytes(8, "little")
            lanes[mine.randrange(4)].append((serial, buffer))
            while len(lanes[number]) > 3:
                try:
                    mark, found = lanes[number].pop(0)
                except IndexError:
                    break
                with memoryview(found) as view:
                    assert bytes(view[:8]) == bytes(view[-8:]) == mark.to_bytes(8, "little")
                if mine.random() < 0.5:
                    found.release()
                del found

    run(*[lambda n=n: work(n) for n in range(4)])  # type: ignore[misc]
    for lane in lanes:
        lane.clear()


def test_groups_rows_and_blocks_from_all_sides() -> None:
    more = until(SECONDS)
    place = [memory.rent_group("9 MiB", row_bytes=1000)]

    def read(number: int) -> None:
        mine = random.Random(number)
        while more():
            group = place[0]
            try:
                row = group.row(mine.randrange(9000))
                row[0] = 1
                block = memoryview(mine.choice(group.blocks))
                block[-1] = 2
                assert not group.released
                del row, block
            except gabion.ClosedError:
                pass
            del group

    def renew() -> None:
        while more():
            old, place[0] = place[0], memory.rent_group("9 MiB", row_bytes=1000)
            with contextlib.suppress(BufferError):
                old.release()
            del old

    run(renew, lambda: read(1), lambda: read(2), lambda: read(3))
    place.clear()


def test_settings_and_figures_beside_rents() -> None:
    more = until(SECONDS)

    def rent() -> None:
        while more():
            for size in (100, 200_000, 3 << 20, 6 << 20):
                memory.rent(size).release()

    def change() -> None:
        while more():
            for pool_bytes in (0, "8 MiB", None):
                memory.configure(pool_bytes=pool_bytes)
                memory.trim(all=True)

    def look() -> None:
        while more():
            figures = memory.stats()
            assert figures.in_use >= 0
            assert repr(figures)
            with memory.track():
                pass
            gc.collect()

    try:
        run(rent, rent, change, look)
    finally:
        memory.configure(pool_bytes=None)
