"""The runs of the `numpy` benchmark, each in its own process; see ``numpy_hook.py`` for what is compared with what."""

from __future__ import annotations

import ctypes
import random
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from types import ModuleType
from typing import Any

import machine

MIB = 1 << 20
LEAST_TIMED = 5
WARM_UP = 2
# Length of a transform; the operand is cut into as many as it holds.
FFT = 1024
# The mixed load: threads, the sizes that they draw from, and how many results each keeps.
LOAD_THREADS, LOAD_MIB, LOAD_KEPT = 4, (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64), 3
# A tenth of a period, for the trimmer's own steps.
IDLE_PERIODS = 2.1


@dataclass
class Operands:
    """Two arrays of one size, and a mask."""

    a: Any
    b: Any
    mask: Any


# Each operation on fresh memory, and into memory that is there (None where NumPy has no way to say so).
Operation = tuple[Callable[[ModuleType, Operands], Any], Callable[[ModuleType, Operands, Any], None] | None]


def _multiply_add(np: ModuleType, of: Operands, out: Any) -> None:
    np.multiply(of.a, of.b, out=out)
    np.add(out, of.a, out=out)


OPERATIONS: dict[str, Operation] = {
    "a+b": (lambda np, of: of.a + of.b, lambda np, of, out: np.add(of.a, of.b, out=out)),
    "a*b+a": (lambda np, of: of.a * of.b + of.a, _multiply_add),
    "sqrt": (lambda np, of: np.sqrt(of.a), lambda np, of, out: np.sqrt(of.a, out=out)),
    "exp": (lambda np, of: np.exp(of.a), lambda np, of, out: np.exp(of.a, out=out)),
    "where": (lambda np, of: np.where(of.mask, of.a, of.b), None),
    "rfft": (
        lambda np, of: np.fft.rfft(of.a.reshape(-1, FFT)),
        lambda np, of, out: np.fft.rfft(of.a.reshape(-1, FFT), out=out),
    ),
}


def _numpy_of(subject: str) -> ModuleType:
    import numpy as np

    if subject == "gabion":
        import gabion.numpy
        from gabion import memory

        gabion.numpy.install()
        before = memory.stats().in_use
        array = np.empty(4 * MIB, np.uint8)
        if memory.stats().in_use < before + array.nbytes:
            raise AssertionError("gabion.numpy is installed, and an array does not come from the pool")
    return np


def _keep_all_memory() -> None:
    """Tell glibc never to use mappings of their own, and never to give memory back."""
    trim_threshold, most_mappings = -1, -4
    libc = ctypes.CDLL(None)
    if not (libc.mallopt(most_mappings, 0) and libc.mallopt(trim_threshold, -1)):
        raise AssertionError("the system's malloc takes no such orders, so there is no floor of this operation")


def _operands(np: ModuleType, mib: float, kind: str) -> Operands:
    chance = np.random.default_rng(5)
    count = int(mib * MIB) // np.dtype(kind).itemsize
    a, b = (chance.random(count, kind) + np.dtype(kind).type(0.5) for _ in range(2))
    # Runs of equal choices, as masks have them; a random mask would time the processor's wrong guesses.
    return Operands(a, b, np.arange(count) % (2 * FFT) < FFT)


def operate(subject: str, operation: str, mib: float, kind: str, seconds: float) -> dict:
    """Do one operation again and again for ``seconds``, dropping each result before the next one is made."""
    if subject == "floor" and OPERATIONS[operation][1] is None:
        _keep_all_memory()
    np = _numpy_of(subject)
    fresh, into = OPERATIONS[operation]
    of = _operands(np, mib, kind)
    expected = fresh(np, of)
    if subject == "floor" and into is not None:
        out = np.zeros_like(expected)
        out[:] = 1
        check = out

        def step() -> None:
            into(np, of, out)
    else:
        check = None

        def step() -> None:
            fresh(np, of)

    spent: list[float] = []
    for _ in range(WARM_UP):
        step()
    end = perf_counter() + seconds
    while len(spent) < LEAST_TIMED or perf_counter() < end:
        began = perf_counter()
        step()
        spent.append(perf_counter() - began)
    _compare(np, operation, of, expected, fresh(np, of) if check is None else check)
    return {"metrics": {"time_per_op": [statistics.median(spent) * 1e3, "ms"]}}


def _compare(np: ModuleType, operation: str, of: Operands, first: Any, last: Any) -> None:
    """The first and the last result must be equal, bit for bit, and what small pieces give."""
    if first.tobytes() != last.tobytes():
        raise AssertionError(f"{operation}: the last result differs from the first")
    piece = 16 * FFT
    start = len(of.a) // piece // 2 * piece
    part = slice(start, start + piece)
    small = OPERATIONS[operation][0](np, Operands(of.a[part], of.b[part], of.mask[part]))
    scale = FFT if first.ndim > 1 else 1
    same = last[start // scale : (start + piece) // scale]
    if not np.allclose(small, same, rtol=1e-6 if same.dtype.itemsize < 8 else 1e-12):
        raise AssertionError(f"{operation}: a piece of the result is not what the piece alone gives")


def load(subject: str, seconds: float, period: float) -> dict:
    """Compute on arrays of many sizes from several threads, then stay idle for two trim periods."""
    np = _numpy_of(subject)
    if subject == "gabion":
        from gabion import memory

        memory.configure(trim_period=period)
        memory.trim(all=True)
    failed: list[BaseException] = []
    barrier = threading.Barrier(LOAD_THREADS + 1)

    def work(number: int) -> None:
        chance = random.Random(number)
        try:
            _compute(np, chance, LEAST_TIMED)
            barrier.wait()
            barrier.wait()
            end = perf_counter() + seconds
            while perf_counter() < end:
                _compute(np, chance, None)
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    started = [threading.Thread(target=work, args=(number,)) for number in range(LOAD_THREADS)]
    for thread in started:
        thread.start()
    barrier.wait()
    start = machine.resident_bytes()
    barrier.wait()
    peak = start
    while any(thread.is_alive() for thread in started):
        peak = max(peak, machine.resident_bytes())
        time.sleep(0.02)
    time.sleep(IDLE_PERIODS * period)
    if failed:
        raise failed[0]
    idle = machine.resident_bytes()
    metrics = {
        "start_rss": [start / MIB, "MiB"],
        "peak_rss": [peak / MIB, "MiB"],
        "idle_rss": [idle / MIB, "MiB"],
        "idle_vs_start": [idle / start, "ratio"],
    }
    return {"metrics": metrics}


def _compute(np: ModuleType, chance: random.Random, small: int | None) -> None:
    """A few results of random size, kept a while; with ``small``, so many on arrays too small to count."""
    kept: list[Any] = []
    for _ in range(small or 20):
        count = 1000 if small else int(chance.choice(LOAD_MIB) * MIB / 8)
        a = np.full(count, 1.5)
        result = np.sqrt(a * a + a)
        if result[0] != result[-1] or not 1.93 < result[0] < 1.94:
            raise AssertionError("sqrt(1.5² + 1.5) is not what it should be")
        kept = [*kept[-LOAD_KEPT + 1 :], result]
