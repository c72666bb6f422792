"""Memory and the interpreter's life: cycles, resurrection, exit, threads that never end, forks, other processes."""

import gc
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from child_processes import METHODS, in_child, run_as_program
from many_threads import SECONDS, until

import gabion.memory as memory

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


class Holder:
    """Anything with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@pytest.mark.usefixtures("balance")
def test_cycles_with_buffers_and_views_are_collected() -> None:
    for size in (100, 3 << 20):
        buffer = memory.rent(size)
        holder = Holder(buffer=buffer, view=memoryview(buffer))
        holder.self = holder
        group = memory.rent_group("5 MiB", row_bytes=100)
        ring = [group, group.blocks, group.row(0), memoryview(group[1])]
        ring.append(ring)
        gone = [weakref.ref(buffer), weakref.ref(group), weakref.ref(group[0])]
        del buffer, holder, group, ring
        gc.collect()
        assert [reference() for reference in gone] == [None, None, None]


@pytest.mark.usefixtures("balance")
def test_resurrection() -> None:
    saved: list[Any] = []

    class Phoenix:
        def __init__(self) -> None:
            self.buffer = memory.rent(1000)
            self.view = memoryview(self.buffer)
            self.me = self

        def __del__(self) -> None:
            saved.append((self.buffer, self.view))

    phoenix = Phoenix()
    phoenix.view[:4] = b"fire"
    del phoenix
    gc.collect()
    ((buffer, view),) = saved
    assert bytes(view[:4]) == bytes(buffer)[:4] == b"fire"
    view.release()
    buffer.release()
    saved.clear()
    del buffer, view


@pytest.mark.usefixtures("balance")
def test_a_weak_reference_sees_the_end_after_the_views() -> None:
    seen: list[str] = []
    buffer = memory.rent(10)
    weakref.finalize(buffer, seen.append, "end")
    view = memoryview(buffer)
    del buffer
    assert seen == []
    view.release()
    assert seen == ["end"]


@pytest.mark.usefixtures("balance")
def test_a_buffer_that_another_thread_drops() -> None:
    for size in (100, 100_000, 3 << 20, 6 << 20):
        for how in ("release", "drop", "view"):
            given = [memory.rent(size)]
            if how == "view":
                given = [memoryview(given[0])]  # type: ignore[list-item]
            elif how == "release":
                given.append(given[0])

            def end(given: list[Any] = given, how: str = how) -> None:
                if how == "release":
                    given.pop().release()
                given.clear()

            thread = threading.Thread(target=end)
            thread.start()
            thread.join()


@pytest.mark.usefixtures("balance")
def test_a_thread_that_ends_while_its_buffers_live() -> None:
    kept: list[memory.Buffer] = []

    def rent() -> None:
        for size in (64, 5000, 200_000, 2 << 20, 5 << 20):
            buffer = memory.rent(size)
            memoryview(buffer)[:] = bytes([size % 251]) * size
            kept.append(buffer)

    for _ in range(20):
        thread = threading.Thread(target=rent)
        thread.start()
        thread.join()
    for buffer in kept:
        assert bytes(buffer).count(len(buffer) % 251) == len(buffer)
    kept.clear()
    del buffer


@pytest.mark.usefixtures("balance")
def test_one_shot_threads() -> None:
    def once() -> None:
        with memory.rent(30_000) as buffer:
            memoryview(buffer)[0] = 1
        memory.rent(70_000)

    for _ in range(100):
        threads = [threading.Thread(target=once) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # What their caches held has come back, and is bounded by what was in use at one time.
    assert memory.stats().mapped - memory.stats().held < 2 << 30


# --- the end of the interpreter -------------------------------------------------------------------

ENDS = {
    "globals": """
        buffer = memory.rent("1 MiB"); view = memoryview(buffer)
        group = memory.rent_group("9 MiB"); row = memoryview(group[1])
    """,
    "a cycle": """
        class Holder: pass
        holder = Holder(); holder.me = holder; holder.view = memoryview(memory.rent("5 MiB"))
    """,
    "inside with": "memory.rent(100).__enter__()",
    "capsules": """
        kept = [memory.rent(100).__dlpack__(), memory.rent(100).__dlpack__(max_version=(1, 0)),
                memory.rent(100).__arrow_c_array__()]
    """,
    "an exit function": """
        import atexit
        buffer = memory.rent("5 MiB")
        atexit.register(lambda: (bytes(buffer), memory.rent("2 MiB").release(), buffer.release(), memory.stats()))
    """,
    "a finalizer": """
        class Late:
            def __init__(self): self.buffer = memory.rent("3 MiB")
            def __del__(self): self.buffer.release(), memory.rent(1000)
        late = Late(); late.me = late
    """,
    "a daemon thread": """
        import threading, time
        def work():
            while True:
                with memory.rent("300 KiB") as buffer:
                    memoryview(buffer)[0] = 1
                memory.rent("5 MiB"), memory.rent_group("9 MiB")
        for _ in range(3): threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
    """,
    "a daemon thread that waits": """
        import threading, time
        memory.configure(total_limit="16 MiB")
        buffer = memory.rent("12 MiB")
        def wait():
            memory.rent("12 MiB", timeout=1000)
        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.2)
    """,
    "an open track": "tracking = memory.track(); tracking.__enter__(); buffer = memory.rent(10)",
    "callbacks that somebody cleared": "import gc; gc.callbacks.clear()",
    "a main thread that fails": "buffer = memory.rent(1 << 20); import sys; sys.exit(0)",
}


@pytest.mark.parametrize("how", ENDS)
def test_exit(script: Callable[..., str], how: str) -> None:
    script(f"import gabion.memory as memory\nimport textwrap\nexec(textwrap.dedent('''{ENDS[how]}'''))")


def test_the_callback_of_the_collector_goes_at_exit(script: Callable[..., str]) -> None:
    said = script(
        """
        import atexit, gc
        atexit.register(lambda: print(len(gc.callbacks)))
        import gabion.memory
        print(len(gc.callbacks))
        gc.collect()
        """
    )
    assert said.split() == ["1", "0"]


# --- signals --------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "sigwait"), reason="no such signals here")
def test_signals_that_the_program_waits_for_come_to_it(script: Callable[..., str]) -> None:
    """Not to the threads of the pool and of caches, where they would end the process."""
    script(
        """
        import os, signal
        import gabion, gabion.memory
        gabion.memory.rent("1 MiB").release()
        cache = gabion.Cache("1 MiB", ttl=60)
        cache["key"] = "value"
        own = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1}
        signal.pthread_sigmask(signal.SIG_BLOCK, own)
        for number in own:
            os.kill(os.getpid(), number)
            assert signal.sigwait(own) == number
        """
    )


# --- fork -----------------------------------------------------------------------------------------


@forks
@pytest.mark.parametrize("size", [100, 300_000, 3 << 20, 9 << 20])
def test_the_child_has_a_copy(size: int) -> None:
    buffer, group = memory.rent(size), memory.rent_group(size)
    view = memoryview(buffer)
    view[:6] = b"parent"
    memoryview(group[0])[:6] = b"parent"
    before = memory.stats()

    def child() -> None:
        assert memory.stats().in_use == before.in_use
        assert bytes(view[:6]) == b"parent"
        view[:5] = b"child"
        view.release()
        buffer.release()
        assert bytes(memoryview(group[0])[:6]) == b"parent"
        memoryview(group[0])[:5] = b"child"
        group.release()
        for _ in range(3):
            fresh = memory.rent(size, clean=True)
            assert bytes(fresh).count(0) == size
            fresh.release()
        memory.trim(all=True)
        memory.stats()
        with memory.track() as leaks:
            kept = memory.rent(10)
        assert [leak.nbytes for leak in leaks] == [10]
        kept.release()

    in_child(child)
    assert bytes(view[:6]) == b"parent"
    assert bytes(memoryview(group[0])[:6]) == b"parent"
    assert memory.stats().in_use == before.in_use


def busy(stop: threading.Event) -> None:
    with memory.track():
        while not stop.is_set():
            for size in (100, 30_000, 1 << 20, 2 << 20, 5 << 20):
                with memory.rent(size) as buffer:
                    memoryview(buffer)[0] = 1
            memory.rent_group("9 MiB").release()
            memory.stats()
            memory.trim(all=True)


@forks
def test_fork_while_other_threads_rent() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=busy, args=(stop,)) for _ in range(4)]
    for thread in threads:
        thread.start()

    def child() -> None:
        for size in (100, 30_000, 1 << 20, 2 << 20, 5 << 20):
            buffer = memory.rent(size, clean=True)
            assert bytes(buffer).count(0) == size
            memoryview(buffer)[:] = b"x" * size
            buffer.release()
        memory.rent_group("9 MiB").release()
        gc.collect()
        memory.trim(all=True)
        own = threading.Thread(target=lambda: memory.rent("3 MiB").release())
        own.start()
        own.join()

    try:
        more = until(SECONDS * 3)
        done = 0
        while more() or done < 10:
            in_child(child)
            done += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()


PROCESSES = """
import multiprocessing, sys
import gabion.memory as memory

parents = memory.rent(1 << 20)
memoryview(parents)[:6] = b"parent"

def work(number):
    with memory.rent(3 << 20, clean=True) as buffer, memoryview(buffer) as view:
        view[:] = bytes([number]) * len(view)
        return number, bytes(view).count(number), bytes(parents)[:6]

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        for number, (got, count, inherited) in enumerate(pool.map(work, range(20))):
            assert (got, count, inherited) == (number, 3 << 20, b"parent")
    try:
        with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
            pool.apply(bytes, (parents,))
    except TypeError as error:
        assert "pickle" in str(error), error
    parents.release()
    print("done")
"""


@pytest.mark.parametrize("method", METHODS)
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    run_as_program(PROCESSES, tmp_path, method)


def test_a_full_collection_asks_the_pool() -> None:
    """What the pool does then is its own matter; here: the callback is there, passes every phase, and is fast."""
    (callback,) = [each for each in gc.callbacks if getattr(each, "__name__", "") == "_after_collection"]
    for phase in ("start", "stop", "other"):
        for generation in range(3):
            assert callback(phase, {"generation": generation, "collected": 0, "uncollectable": 0}) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
