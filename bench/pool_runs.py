"""The Python runs of the `pool` benchmark, each in its own process; see ``pool.py`` for what is compared with what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter, process_time

PAGE = 4096
WARM_UP = 3


def _from_gabion(size: int) -> Callable[[bytes], None]:
    from gabion.memory import rent

    def step(pattern: bytes) -> None:
        with rent(size) as buffer, memoryview(buffer) as view:
            _touch(view, pattern)

    return step


def _from_bytearray(size: int) -> Callable[[bytes], None]:
    return _step_of(lambda: memoryview(bytearray(size)))


def _from_numpy(size: int) -> Callable[[bytes], None]:
    from numpy import empty, uint8

    return _step_of(lambda: memoryview(empty(size, uint8)))


def _from_warm(size: int) -> Callable[[bytes], None]:
    warm = bytearray(size)
    return _step_of(lambda: memoryview(warm))


def _step_of(view_of_new: Callable[[], AbstractContextManager]) -> Callable[[bytes], None]:
    def step(pattern: bytes) -> None:
        with view_of_new() as view:
            _touch(view, pattern)

    return step


def _touch(view: memoryview, pattern: bytes) -> None:
    """Write one byte in each page, and read them back."""
    view[::PAGE] = pattern
    if view[::PAGE].tobytes() != pattern:
        raise AssertionError(f"a buffer of {len(view)} bytes does not hold what was written")


SUBJECTS = {"gabion": _from_gabion, "bytearray": _from_bytearray, "numpy": _from_numpy, "floor": _from_warm}


def rent(subject: str, size: int, threads: int, seconds: float) -> dict:
    """Take ``size`` bytes, touch them and give them back, again and again from each thread, for ``seconds``."""
    barrier = threading.Barrier(threads + 1)
    done: list[int] = []
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            step = SUBJECTS[subject](size)
            patterns = [bytes([number + turn & 255]) * -(-size // PAGE) for turn in range(2)]
            for turn in range(WARM_UP):
                step(patterns[turn % 2])
            barrier.wait()
            barrier.wait()
            end = perf_counter() + seconds
            count = 0
            while count < WARM_UP or perf_counter() < end:
                step(patterns[count % 2])
                count += 1
            done.append(count)
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    started = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    try:
        barrier.wait()
        began, cpu = perf_counter(), process_time()
        barrier.wait()
    except threading.BrokenBarrierError:
        pass
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]
    lasted, cpu = perf_counter() - began, process_time() - cpu
    count = sum(done)
    return {"metrics": {"ops_per_s": [count / lasted, "1/s"], "cpu_per_op": [cpu / count * 1e6, "µs"]}}
