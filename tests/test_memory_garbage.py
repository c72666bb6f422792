"""What total_limit refuses may be held by garbage in reference cycles: the collector runs once before that."""

from collections.abc import Callable

import pytest

# Each program begins anew: how long ago a collection was in vain counts for the whole process.
BEGIN = """
import gc, threading, time
import gabion
import gabion.memory as memory

class Node:
    pass

def lose(make):
    node = Node()
    node.me, node.memory = node, make()

def collections():
    return sum(stats["collections"] for stats in gc.get_stats()[2:]) or gc.get_stats()[-1]["collections"]

gc.collect()
gc.set_threshold(0)  # no collection that nobody asks for
memory.configure(total_limit="32 MiB")
"""

CALLS = {
    "rent": "memory.rent('16 MiB')",
    "rent_group": "memory.rent_group('16 MiB')",
    "waiting": "memory.rent('16 MiB', timeout=60)",
    "waiting group": "memory.rent_group('16 MiB', timeout=60)",
    "new": "gabion.Image.new('L', (4096, 4096))",
    "waiting image": "gabion.Image.new('L', (4096, 4096), timeout=60)",
    "open": "gabion.Image.open(PNG)",
    "waiting open": "gabion.Image.open(PNG, timeout=60)",
    "from_bytes": "gabion.Image.from_bytes('L', (4096, 4096), BYTES)",
    "from_array": "gabion.Image.from_array(memoryview(BYTES).cast('B', (4096, 4096)))",
    "convert": "SMALL.convert('RGBA')",
    "rotate": "LARGE.rotate(90)",
    "flip": "LARGE.flip('vertical')",
    "copy": "LARGE.copy()",
    "make_contiguous": "LARGE.make_contiguous()",
    "thumbnail": "LARGE.thumbnail((3400, 2100))",
    "paste": "LARGE.paste(LARGE, (5, 5))",
    "pickle": "pickle.loads(PICKLED)",
    "dlpack": "LARGE.__dlpack__(copy=True)",
}


@pytest.mark.parametrize("call", CALLS)
def test_garbage_makes_room_before_a_refusal(script: Callable[..., str], call: str) -> None:
    said = script(
        BEGIN
        + f"""
import io, pickle
file = io.BytesIO()
BYTES = bytes(4096 * 4096)
with gabion.Image.new("L", (4096, 4096), 7) as image:
    image.save(file, format="PNG")
    PICKLED = pickle.dumps(image)
PNG = file.getvalue()
SMALL = gabion.Image.new("L", (1024, 2048)) if "SMALL" in {CALLS[call]!r} else None
LARGE = gabion.Image.new("L", (4096, 2200)) if "LARGE" in {CALLS[call]!r} else None
memory.trim(all=True)
free = (32 << 20) - memory.stats().mapped
lose(lambda: memory.rent(free - (4 << 20)))
before, begin = collections(), time.monotonic()
made = {CALLS[call]}
assert time.monotonic() - begin < 30
print(collections() - before)
"""
    )
    assert said == "1\n"


@pytest.mark.parametrize("refused", ["memory.rent(16 << 20)", "gabion.Image.new('L', (4096, 4096))"])
def test_who_is_refused_in_a_loop_does_not_collect_each_time(script: Callable[..., str], refused: str) -> None:
    said = script(
        BEGIN
        + f"""
held = memory.rent("24 MiB")
before, begin = collections(), time.monotonic()
for _ in range(500):
    try:
        {refused}
    except gabion.LimitError as error:
        assert "release buffers" in str(error)
    else:
        raise AssertionError("not refused")
most = 2 + (time.monotonic() - begin) / 0.1
assert 1 <= collections() - before <= most, (collections() - before, most)
held.release()
before = collections()
for _ in range(100):
    memory.rent("16 MiB").release()
    memory.rent("16 MiB", timeout=1).release()
assert collections() == before
print("done")
"""
    )
    assert said == "done\n"


def test_every_refusal_that_garbage_causes_is_met(script: Callable[..., str]) -> None:
    """A collection that has helped is followed by another without a rest."""
    said = script(
        BEGIN
        + """
for _ in range(50):
    lose(lambda: memory.rent("24 MiB"))
    memory.rent_group("20 MiB").release()
for _ in range(50):
    lose(lambda: gabion.Image.new("L", (4096, 6000)))
    memory.rent("20 MiB").release()
print("done")
"""
    )
    assert said == "done\n"


def test_arrays_are_garbage_like_other_memory(script: Callable[..., str]) -> None:
    pytest.importorskip("numpy")
    said = script(
        BEGIN
        + """
import numpy as np
import gabion.numpy
gabion.numpy.install()
lose(lambda: np.ones(3 << 20))
memory.rent("16 MiB").release()
lose(lambda: np.ones(3 << 20))
try:
    np.ones(2 << 20)  # NumPy's functions run no Python code
except MemoryError:
    gc.collect()
    np.ones(2 << 20)
    print("done")
"""
    )
    assert said == "done\n"


def test_no_collection_where_the_program_has_switched_it_off(script: Callable[..., str]) -> None:
    said = script(
        BEGIN
        + """
gc.disable()
lose(lambda: memory.rent("24 MiB"))
for timeout in (None, 0, 0.2):
    try:
        memory.rent("16 MiB", timeout=timeout)
    except gabion.LimitError:
        print("refused")
gc.enable()
time.sleep(0.2)
memory.rent("16 MiB").release()
"""
    )
    assert said == "refused\n" * 3


def test_finalizers_that_rent_do_not_collect_within_a_collection(script: Callable[..., str]) -> None:
    said = script(
        BEGIN
        + """
class Late(Node):
    def __del__(self):
        for timeout in (None, 0.06):
            try:
                memory.rent("30 MiB", timeout=timeout)
            except gabion.LimitError:
                refused.append(collections())

refused = []
for times in range(3):
    node = Late()
    node.me = node
    del node
    lose(lambda: memory.rent("20 MiB"))
    before = collections()
    if times == 0:
        gc.collect()
    else:
        memory.rent("16 MiB", timeout=times - 1).release()
    assert len(refused) == 2 * times + 2, refused
    assert collections() == before + 1
print("done")
"""
    )
    assert said == "done\n"


def test_threads_that_are_refused_at_one_time(script: Callable[..., str]) -> None:
    said = script(
        BEGIN
        + """
def work():
    for number in range(40):
        lose(lambda: memory.rent("3 MiB", timeout=60))
        memory.rent("6 MiB", timeout=60).release()

threads = [threading.Thread(target=work) for _ in range(4)]
begin = time.monotonic()
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert time.monotonic() - begin < 50
gc.collect()
assert memory.stats().in_use == 0, memory.stats()
print("done")
"""
    )
    assert said == "done\n"


def test_crumbs_that_come_back_are_no_reason_for_another_collection(script: Callable[..., str]) -> None:
    """Two threads that wait for each other, and leave a small buffer in a cycle each time."""
    said = script(
        BEGIN
        + """
spent = 0.0
def told(phase, info):
    global spent
    spent += time.perf_counter() if phase == "stop" else -time.perf_counter()
big = [[number] for number in range(200_000)]
gc.collect()
gc.callbacks.append(told)
end = time.monotonic() + 3
def work():
    while time.monotonic() < end:
        with memory.rent("20 MiB", timeout=60):
            lose(lambda: memory.rent(64))
            time.sleep(0.005)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert spent < 1, spent
print("done")
"""
    )
    assert said == "done\n"


def test_what_streams_had_comes_back_and_is_no_reason_for_a_rest(script: Callable[..., str]) -> None:
    said = script(
        BEGIN
        + """
import io
from gabion import streams
for _ in range(4):
    files = []
    while memory.stats().in_use < 20 << 20:
        files.append(io.BytesIO())
        writer = streams.Writer(files[-1])
        writer.write(b"some")
        lose(lambda: writer)
    del writer
    memory.rent("20 MiB").release()
print("done")
"""
    )
    assert said == "done\n"


def test_another_threads_collection_is_waited_for(script: Callable[..., str]) -> None:
    said = script(
        BEGIN
        + """
class Slow:
    def __del__(self):
        started.set()
        time.sleep(0.2)

gc.collect()
gc.freeze()
started = threading.Event()
memory.configure(total_limit=memory.stats().mapped + 32 * 2**20)
slow = Slow()
slow.me = slow
del slow
thread = threading.Thread(target=gc.collect)
thread.start()
started.wait()
# The collector has looked already, and is busy with finalizers.
for _ in range(20):
    lose(lambda: memory.rent("4 MiB"))
thread.join()
print("served")
"""
    )
    assert said == "served\n"


def test_who_waits_leaves_nothing_that_keeps_the_names_of_the_program(script: Callable[..., str]) -> None:
    """Without a global lock a wait calls a function that does nothing: it had the globals of `__main__`."""
    script(
        """
        import gc, threading, types
        import gabion.memory as memory
        memory.configure(total_limit="8 MiB")
        held = memory.rent("8 MiB")
        threading.Timer(0.1, held.release).start()
        memory.rent("8 MiB", timeout=60)
        functions = [found for found in gc.get_objects() if type(found) is types.FunctionType]
        assert [found for found in functions if found.__globals__ is globals() and found.__name__ == "<lambda>"] == []
        """
    )
