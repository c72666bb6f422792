"""What Python's own tools see of memory that is not on its heap: tracemalloc and sys.getsizeof."""

import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gabion
import gabion.memory as memory

MIB = 1 << 20
# As docs/memory.md says.
DOMAIN = 424_270

pytestmark = pytest.mark.usefixtures("balance")

MAKE: dict[str, Callable[[], Any]] = {
    "buffer": lambda: memory.rent(8 * MIB),
    "piece": lambda: memory.rent(5000),
    "group": lambda: memory.rent_group(9 * MIB),
    "image": lambda: gabion.Image.new("RGB", (2000, 1500)),
    "small image": lambda: gabion.Image.new("L", (20, 10)),
}
END: dict[str, Callable[[Any], None]] = {
    "release": lambda thing: thing.close() if isinstance(thing, gabion.Image) else thing.release(),
    "last reference": lambda thing: None,
}


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def traced() -> int:
    """What tracemalloc has of gabion's."""
    gc.collect()
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, DOMAIN)])
    return sum(trace.size for trace in snapshot.traces)


@pytest.mark.parametrize("end", END)
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.usefixtures("tracing")
def test_tracemalloc_sees_it_while_it_is_lent(kind: str, end: str) -> None:
    assert traced() == 0
    thing = MAKE[kind]()
    assert traced() == thing.nbytes
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.DomainFilter(True, DOMAIN)])
    (trace,) = snapshot.traces
    assert trace.traceback[-1].filename == __file__
    END[end](thing)
    del thing
    assert traced() == 0


@pytest.mark.parametrize("kind", ["buffer", "group", "image"])
@pytest.mark.usefixtures("tracing")
def test_views_keep_it_traced(kind: str) -> None:
    thing = MAKE[kind]()
    size, views = thing.nbytes, [memoryview(thing if kind == "buffer" else thing.blocks[0])]
    del thing
    assert traced() == size
    views.clear()
    assert traced() == 0


@pytest.mark.usefixtures("tracing")
def test_an_image_that_changes_its_place() -> None:
    image = MAKE["image"]()
    image.make_contiguous()
    assert traced() == image.nbytes
    image.thumbnail(100)
    assert traced() == image.nbytes < 1 << 16
    image.close()
    assert traced() == 0


def test_what_was_rented_before_or_ends_after() -> None:
    before = [make() for make in MAKE.values()]
    tracemalloc.start()
    inside = [make() for make in MAKE.values()]
    assert traced() == sum(thing.nbytes for thing in inside)
    before.clear()
    assert traced() == sum(thing.nbytes for thing in inside)
    tracemalloc.stop()
    tracemalloc.start()
    inside.clear()
    assert traced() == 0
    again = memory.rent(8 * MIB)
    assert traced() == 8 * MIB
    again.release()
    tracemalloc.stop()


@pytest.mark.usefixtures("tracing")
def test_arrays_are_counted_once() -> None:
    """NumPy tells of its own memory; what shares a buffer's is no memory more."""
    numpy = pytest.importorskip("numpy")
    import gabion.numpy

    with gabion.numpy.pooled():
        begin = tracemalloc.get_traced_memory()[0]
        array = numpy.ones(MIB)
        assert 7 * MIB < tracemalloc.get_traced_memory()[0] - begin < 9 * MIB
        assert gabion.numpy.is_pooled(array)
        assert traced() == 0
        buffer = memory.rent(8 * MIB)
        shared = numpy.frombuffer(buffer, dtype="u1")
        assert traced() == 8 * MIB
        assert 15 * MIB < tracemalloc.get_traced_memory()[0] - begin < 17 * MIB
        del array, shared, buffer
        assert tracemalloc.get_traced_memory()[0] - begin < MIB


@pytest.mark.usefixtures("tracing")
def test_threads_that_hand_memory_on() -> None:
    """An address may be another's as soon as it is free: nobody strikes what the next one has noted."""
    kept: list[memory.Buffer] = []

    def work() -> None:
        for turn in range(400):
            buffer = memory.rent(70_000)
            if turn % 50 == 0:
                kept.append(buffer)
            else:
                buffer.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert traced() == 70_000 * len(kept) == 70_000 * 32
    kept.clear()
    assert traced() == 0


@pytest.mark.parametrize("kind", MAKE)
def test_getsizeof_counts_what_the_object_holds(kind: str) -> None:
    thing = MAKE[kind]()
    size, length = sys.getsizeof(thing), thing.nbytes
    assert length < size < length + 1000
    END["release"](thing)
    assert sys.getsizeof(thing) == size - length


def test_getsizeof_counts_a_group_once() -> None:
    with memory.rent_group(9 * MIB) as group:
        assert sum(map(sys.getsizeof, group.blocks)) < 1000
        assert sys.getsizeof(group) > 9 * MIB
