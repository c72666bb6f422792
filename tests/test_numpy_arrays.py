"""Arrays on the pool behave as arrays do: same results, any thread, any size, forks, and memory that comes back."""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from child_processes import in_child
from many_threads import SECONDS, run, until
from model import LONG

import gabion.memory
import gabion.numpy

np = pytest.importorskip("numpy")

KIB = 1 << 10


@pytest.fixture(autouse=True)
def installed(balance: None) -> Iterator[None]:
    gabion.numpy.install("64 KiB")
    yield
    gabion.numpy.uninstall()


def program(kind: Any) -> list[Any]:
    """Results of many operations on arrays of one type, from seeded numbers."""
    mine = np.random.default_rng(7)
    a = (mine.random((700, 310)) * 100 + 1).astype(kind)
    b = (mine.random((700, 310)) * 100 + 1).astype(kind)
    flat = a.ravel()
    index = mine.integers(0, flat.size, flat.size)
    results = [
        a + b, a * b + a, a - b, a / b, a > b, np.where(a > b, a, b), np.sqrt(np.abs(a)), -a, a.T.copy(),
        np.cumsum(a, axis=0), np.sort(flat), np.argsort(flat, kind="stable"), np.unique(flat), flat[index],
        np.concatenate([a, b]), np.stack([a, b]), np.tile(a, (2, 3)), np.repeat(flat, 3), np.roll(flat, 5),
        np.pad(a, 9), np.zeros_like(a), np.ones_like(a), np.full_like(a, 7), a.astype(np.complex128), a.tobytes(),
        np.nonzero(a > b), a[a > b], np.histogram(flat)[0], np.split(flat, [10, 100])[2].copy(),
        np.outer(flat[:400], flat[:400]), np.diff(flat),
        np.convolve(flat[:30_000].astype(np.float64), np.ones(5)), np.broadcast_to(flat[:50], (5000, 50)).copy(),
        np.clip(a, 2, 50), np.maximum.accumulate(flat), np.flip(a).copy(), np.char.add(flat[:9000].astype("U8"), "x"),
        np.frombuffer(a.tobytes(), kind).copy(), np.fromiter(range(100_000), np.int64), np.dot(a[:, :310].T, b).shape,
        np.array([[1, 2], [3, 4]] * 20_000), np.loadtxt([f"{i} {i + 1}" for i in range(9000)]),
        np.fft.ifft(np.fft.fft(flat.astype(np.complex128))), np.einsum("ij,ij->i", a, b), np.lexsort((flat, index)),
        np.array([b"bytes", b"x"] * 40_000), np.array(["text", 1, None] * 30_000, object),
    ]  # fmt: skip
    inplace = a.copy()
    inplace += b
    inplace[10:600] = 5
    results.append(inplace)
    return results


def same(one: Any, two: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, np.ndarray):
        if one.dtype.hasobject:
            return one.dtype == two.dtype and bool((one == two).all())
        return (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
    return bool(one == two)


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("kind", ["f4", "f8", "i4", "i8", "u1", "c16"])
def test_results_are_those_of_stock_numpy_bit_for_bit(kind: str) -> None:
    gabion.numpy.uninstall()
    stock = program(kind)
    gabion.numpy.install("64 KiB")
    for _ in range(2):  # fresh, and warm
        pooled = program(kind)
        assert sum(gabion.numpy.is_pooled(each) for each in pooled if isinstance(each, np.ndarray)) > 25
        assert [same(one, two) for one, two in zip(stock, pooled, strict=True)] == [True] * len(stock)


def test_zeros_are_zero_whatever_was_there_before() -> None:
    for size in (64 * KIB, 300 * KIB, 1 << 20, 3 << 20, 4 << 20, 5 << 20, 40 << 20):
        for _ in range(3):
            array = np.zeros(size, np.uint8)
            assert gabion.numpy.is_pooled(array)
            assert not array.any()
            array.fill(0xAB)
            del array
            again = np.empty(size, np.uint8)
            again.fill(0xCD)
            del again


def test_sizes_that_cannot_be() -> None:
    for make in (np.empty, np.zeros):
        with pytest.raises((MemoryError, ValueError)):
            make((2**31, 2**31))
        with pytest.raises(MemoryError):
            make(2**46, np.uint8)


SIZES = [10, 1000, 60 * KIB, 70 * KIB, 300 * KIB, 2 << 20, 3 << 20, 5 << 20, 33 << 20]


@pytest.mark.parametrize("start", SIZES)
def test_resize_keeps_the_content_in_all_directions(start: int) -> None:
    pattern = np.resize(np.arange(251, dtype=np.uint8), max(SIZES)).copy()
    for end in SIZES:
        array = pattern[:start].copy()
        array.resize(end, refcheck=False)
        assert np.array_equal(array[: min(start, end)], pattern[: min(start, end)])
        assert not array[start:].any(), "what is new is zero"
        array.fill(1)
        array.resize(start, refcheck=False)
        assert array[: min(start, end)].all()
        if min(start, end) < 64 * KIB and start != end and start < 64 * KIB:
            assert not gabion.numpy.is_pooled(array) or end >= 64 * KIB
    small = pattern[: 2 << 20].copy()
    small.resize(100, refcheck=False)
    assert not gabion.numpy.is_pooled(small), "a small array does not keep a large piece"


def test_growing_step_by_step() -> None:
    array = np.arange(10, dtype=np.int64)
    while array.nbytes < 20 << 20:
        old = array.size
        array.resize(old * 3 // 2, refcheck=False)
        array[old:] = np.arange(old, array.size)
    assert np.array_equal(array, np.arange(array.size))


def test_resize_across_install_and_uninstall() -> None:
    pattern = np.resize(np.arange(251, dtype=np.uint8), 8 << 20).copy()
    gabion.numpy.uninstall()
    stock = [pattern[:size].copy() for size in (100, 1 << 20, 3 << 20)]
    gabion.numpy.install("64 KiB")
    pooled = [pattern[:size].copy() for size in (100, 1 << 20, 3 << 20)]
    for array in stock:
        array.resize(5 << 20, refcheck=False)
    gabion.numpy.uninstall()
    for array in (*stock, *pooled):
        kept = min(array.size, 100)
        array.resize(8 << 20, refcheck=False)
        assert np.array_equal(array[:kept], pattern[:kept])
        array.resize(50, refcheck=False)
        assert np.array_equal(array, pattern[:50])
    assert [gabion.numpy.is_pooled(array) for array in pooled] == [False] * 3


def test_a_hundred_thousand_arrays() -> None:
    for size, count in ((65 * KIB, 20_000), (300 * KIB, 50_000), (2 << 20, 20_000), (9 << 20, 10_000)):
        ring = [np.empty(0)] * 7
        for number in range(count):
            array = np.empty(size, np.uint8)
            array[0] = array[-1] = number % 251
            previous = ring[number % 7]
            if previous.size:
                assert previous[0] == previous[-1] == (number - 7) % 251
            ring[number % 7] = array
        del ring, array, previous


def test_many_arrays_alive() -> None:
    arrays = [np.full(65 * KIB, number % 251, np.uint8) for number in range(5000)]
    assert all(array[0] == array[-1] == number % 251 for number, array in enumerate(arrays))
    addresses = sorted(array.__array_interface__["data"][0] for array in arrays)
    assert all(two - one >= 65 * KIB for one, two in itertools.pairwise(addresses))


def test_arrays_across_threads() -> None:
    lanes: list[list[Any]] = [[] for _ in range(4)]
    more = until(SECONDS)

    def work(number: int) -> None:
        mine = np.random.default_rng(number)
        while more():
            size = int(mine.choice([1000, 70 * KIB, 300 * KIB, 2 << 20, 6 << 20]))
            array = np.full(size, number, np.uint8)
            array = array + 1
            lanes[(number + 1) % 4].append((number + 1, array))
            while len(lanes[number]) > 4:
                try:
                    expected, found = lanes[number].pop(0)
                except IndexError:
                    break
                assert found[0] == found[-1] == expected
                assert int(found[:: 1 + found.size // 50].sum()) == expected * len(found[:: 1 + found.size // 50])
                del found

    run(*[lambda n=n: work(n) for n in range(4)])  # type: ignore[misc]
    for lane in lanes:
        lane.clear()


def test_install_and_uninstall_while_threads_compute() -> None:
    more = until(SECONDS)

    def work(size: int) -> None:
        expected = float(size)
        while more():
            array = np.ones(size)
            array.resize(size + 10_000, refcheck=False)
            total = float((array * 1.0)[:size].sum())
            assert total == expected

    def toggle() -> None:
        while more():
            gabion.numpy.uninstall()
            gabion.numpy.install("64 KiB")
            with gabion.numpy.pooled("128 KiB"):
                np.ones(100_000)

    run(toggle, *[lambda size=size: work(size) for size in (1000, 20_000, 300_000)])  # type: ignore[misc]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_fork() -> None:
    arrays = [np.full(size, 7, np.uint8) for size in (1000, 70 * KIB, 2 << 20, 9 << 20)]
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            (np.ones(50_000) + np.ones(50_000)).sum()
            np.zeros(1_000_000)

    def child() -> None:
        for array in arrays:
            assert array.min() == array.max() == 7
            array += 1
        arrays.clear()
        for _ in range(20):
            assert float((np.ones(300_000) * 2).sum()) == 600_000.0
            assert not np.zeros(300_000).any()
        gabion.numpy.uninstall()
        assert not gabion.numpy.is_pooled(np.ones(300_000))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            in_child(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert all(array.min() == array.max() == 7 for array in arrays)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc here")
def test_resident_memory_is_bounded_and_given_back() -> None:
    mine = np.random.default_rng(1)
    np.ones(1_000_000)
    gabion.memory.trim(all=True)
    start = resident()
    gabion.memory.configure(pool_bytes="256 MiB")
    most = 0
    try:
        for number in range(300 if LONG else 80):
            arrays = [np.ones(int(size)) for size in mine.integers(10_000, 3_000_000, 5)]
            if number % 10 == 0:
                most = max(most, resident())
            del arrays
        assert most - start < (256 + 5 * 24 + 64) << 20
        gabion.memory.trim(all=True)
        assert resident() - start < 24 << 20
    finally:
        gabion.memory.configure(pool_bytes=None)


def test_tracemalloc_counts_pooled_arrays() -> None:
    import tracemalloc

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        array = np.empty(3 << 20, np.uint8)
        assert 3 << 20 <= tracemalloc.get_traced_memory()[0] - before < 4 << 20
        del array
        assert tracemalloc.get_traced_memory()[0] - before < 1 << 20
    finally:
        tracemalloc.stop()


def test_exit_with_arrays_alive(script: Callable[..., str]) -> None:
    script(
        """
        import numpy as np, gabion.numpy, threading, time
        gabion.numpy.install()
        kept = np.ones(1_000_000)
        cycle = [np.ones(1_000_000)]
        cycle.append(cycle)
        def work():
            while True:
                np.ones(1_000_000) + np.zeros(1_000_000)
        for _ in range(2): threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        """
    )
