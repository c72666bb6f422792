"""Limits, waiting and no memory: refused before anything is touched, with numbers, and nothing is lost by it."""

import gc
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from many_threads import run
from patience import HANGS

import gabion
import gabion.memory as memory

MIB = 1 << 20


@pytest.fixture(autouse=True)
def defaults() -> Iterator[None]:
    gc.collect()
    memory.trim(all=True)
    yield
    memory.configure(pool_bytes=None, trim_period=None, allocation_limit=None, total_limit=None, trim_malloc=None)


def room(megabytes: int) -> int:
    """A total limit that leaves so much beside what is mapped and cannot be given back."""
    memory.trim(all=True)
    return memory.stats().mapped + megabytes * MIB


def test_a_request_over_the_allocation_limit_is_refused() -> None:
    memory.configure(allocation_limit="8 MiB")
    before = memory.stats()
    for rent in (memory.rent, memory.rent_group):
        with pytest.raises(gabion.LimitError, match=rf"{8 * MIB + 1} bytes.*{8 * MIB} .*allocation_limit"):
            rent(8 * MIB + 1)
        rent(8 * MIB).release()
    assert memory.stats().in_use == before.in_use
    assert memory.stats().allocation_limit == 8 * MIB
    for none in (None, 0):
        memory.configure(allocation_limit=none)
        assert memory.stats().allocation_limit is None
        memory.rent(8 * MIB + 1).release()


@pytest.mark.parametrize("rent", [memory.rent, memory.rent_group])
def test_a_request_over_the_total_limit_is_refused(rent: Callable[..., Any]) -> None:
    limit = room(32)
    memory.configure(total_limit=limit)
    held = rent(20 * MIB)
    before = memory.stats()
    with pytest.raises(gabion.LimitError) as caught:
        rent(20 * MIB)
    assert isinstance(caught.value, MemoryError)
    numbers = {int(number) for number in re.findall(r"\d+", str(caught.value))}
    assert {20 * MIB, limit} <= numbers
    assert "total_limit" in str(caught.value)
    after = memory.stats()
    assert after.mapped <= limit
    assert (after.in_use, after.live) == (before.in_use, before.live)
    assert after.refused > before.refused
    held.release()
    rent(20 * MIB).release()


def test_idle_memory_makes_room_before_anything_is_refused() -> None:
    memory.configure(total_limit=room(40), pool_bytes="1 GiB")
    for _ in range(3):
        memory.rent(30 * MIB).release()
        memory.rent_group(30 * MIB).release()
        blocks = [memory.rent(3 * MIB) for _ in range(9)]
        del blocks
        memory.rent(35 * MIB).release()


def test_mapped_never_exceeds_the_total_limit() -> None:
    limit = room(64)
    memory.configure(total_limit=limit)
    stop = threading.Event()
    seen: list[int] = []

    def work(size: int) -> None:
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            try:
                with memory.rent(size) as buffer:
                    memoryview(buffer)[::4096] = bytes(len(range(0, size, 4096)))
            except gabion.LimitError:
                pass

    def watch() -> None:
        while not stop.is_set() or not seen:
            seen.append(memory.stats().mapped)

    watcher = threading.Thread(target=watch)
    watcher.start()
    run(*[lambda size=size: work(size) for size in (MIB, 3 * MIB, 9 * MIB, 17 * MIB, 30 * MIB)])  # type: ignore[misc]
    stop.set()
    watcher.join()
    assert max(seen) <= limit
    assert memory.stats().mapped <= limit


def test_pool_bytes_bounds_what_is_kept() -> None:
    memory.configure(pool_bytes=0)
    before = memory.stats()
    for size in (3 * MIB, 9 * MIB, 33 * MIB):
        memory.rent(size).release()
        memory.rent_group(size).release()
    assert memory.stats().idle <= before.idle + 4 * MIB
    memory.configure(pool_bytes="64 MiB")
    assert memory.stats().pool_bytes == 64 * MIB
    for size in (3 * MIB, 9 * MIB, 33 * MIB, 60 * MIB):
        kept = [memory.rent(size) for _ in range(3)]
        del kept
        figures = memory.stats()
        assert figures.in_use + figures.idle == figures.mapped
        assert figures.idle <= 64 * MIB
    memory.configure(pool_bytes="8 MiB")
    assert memory.stats().idle <= 8 * MIB


def test_trim_gives_back_what_is_idle() -> None:
    for _ in range(20):
        memory.rent(32 * MIB).release()
        before = memory.stats()
        given = memory.trim(all=True)
        after = memory.stats()
        if given >= 32 * MIB:  # where the machine is short of memory, the pool itself may have been first
            break
    assert before.idle >= 32 * MIB
    assert given >= 32 * MIB
    assert after.mapped <= before.mapped - 32 * MIB
    assert memory.trim() >= 0


# --- configure ------------------------------------------------------------------------------------


def test_what_is_left_out_stays() -> None:
    memory.configure(pool_bytes="100 MiB", trim_period=5, total_limit="2 GiB", trim_malloc=False)
    memory.configure(allocation_limit="1 GiB")
    memory.configure()
    memory.configure(pool_bytes=...)  # type: ignore[arg-type]
    figures = memory.stats()
    assert (figures.pool_bytes, figures.trim_period, figures.trim_malloc) == (100 * MIB, 5.0, False)
    assert (figures.allocation_limit, figures.total_limit) == (1 << 30, 2 << 30)
    memory.configure(pool_bytes=None, trim_period=None, allocation_limit=None, total_limit=None, trim_malloc=None)
    figures = memory.stats()
    assert (figures.trim_period, figures.trim_malloc) == (60.0, True)
    assert figures.allocation_limit is figures.total_limit is None
    assert figures.pool_bytes > 0


def test_the_contract_as_it_is_written() -> None:
    memory.configure(pool_bytes=None, arenas=None, trim_period=60.0, allocation_limit=None, total_limit=None)
    memory.configure(trim_period=timedelta(minutes=2))
    assert memory.stats().trim_period == 120.0


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ({"pool_bytes": -1}, ValueError),
        ({"pool_bytes": "much"}, ValueError),
        ({"pool_bytes": 1.5}, TypeError),
        ({"arenas": 3}, ValueError),
        ({"arenas": 0}, ValueError),
        ({"arenas": 10**6}, ValueError),
        ({"arenas": -1}, ValueError),
        ({"arenas": 10**40}, ValueError),
        ({"arenas": True}, TypeError),
        ({"arenas": 2.0}, TypeError),
        ({"arenas": "4 KiB"}, TypeError),
        ({"trim_period": 0}, ValueError),
        ({"trim_period": -1}, ValueError),
        ({"trim_malloc": "no"}, TypeError),
        ({"trim_period": float("nan")}, ValueError),
        ({"trim_period": "60 m"}, ValueError),
        ({"trim_period": b"60"}, TypeError),
        ({"trim_period": True}, TypeError),
        ({"allocation_limit": -1}, ValueError),
        ({"total_limit": [1]}, TypeError),
        ({"unknown": 1}, TypeError),
    ],
)
def test_nonsense_changes_nothing(setting: dict[str, Any], error: type[Exception]) -> None:
    before = memory.stats()
    with pytest.raises(error):
        memory.configure(**setting)
    with pytest.raises(error):
        memory.configure(**{"total_limit": "7 GiB", "pool_bytes": 12345, **setting})
    after = memory.stats()
    for name in ("pool_bytes", "trim_period", "allocation_limit", "total_limit"):
        assert getattr(before, name) == getattr(after, name)


@pytest.mark.parametrize("arenas", [-1, 0, 3, 257, 512, 10**40, True, 2.0, "4 KiB"])
def test_what_is_refused_as_a_number_of_arenas_is_shown_beside_what_is_allowed(arenas: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as refused:
        memory.configure(arenas=arenas)
    text = str(refused.value)
    assert text.startswith(f"arenas={arenas!r}: ")
    assert text.endswith("a power of two from 1 to 256")


# --- waiting --------------------------------------------------------------------------------------


def test_by_default_and_with_zero_nobody_waits() -> None:
    memory.configure(total_limit=room(16))
    held = memory.rent(12 * MIB)
    for timeout in (None, 0, 0.0, timedelta(0)):
        for rent in (memory.rent, memory.rent_group):
            took = []
            for _ in range(10):
                begin = time.monotonic()
                with pytest.raises(gabion.LimitError):
                    rent(12 * MIB, timeout=timeout)
                took.append(time.monotonic() - begin)
            # Whoever waits looks again after 50 ms; a busy machine may take that long now and then, but not each time.
            assert min(took) < 0.04
    held.release()


@pytest.mark.parametrize("rent", [memory.rent, memory.rent_group])
@pytest.mark.parametrize("timeout", [0.3, timedelta(seconds=0.3)])
def test_a_wait_ends_with_its_time(rent: Callable[..., Any], timeout: Any) -> None:
    memory.configure(total_limit=room(16))
    held = memory.rent(12 * MIB)
    begin = time.monotonic()
    with pytest.raises(gabion.LimitError, match="total_limit"):
        rent(12 * MIB, timeout=timeout)
    assert time.monotonic() - begin >= 0.28
    held.release()
    rent(12 * MIB, timeout=timeout).release()


@pytest.mark.parametrize("timeout", [HANGS, float("inf"), 10**400, timedelta.max])
def test_a_wait_ends_with_a_return_and_others_run_meanwhile(timeout: Any) -> None:
    memory.configure(total_limit=room(16))
    held = [memory.rent(12 * MIB)]
    ticks = 0

    def wait() -> None:
        memory.rent(12 * MIB, timeout=timeout).release()

    def let_go() -> None:
        nonlocal ticks
        while memory.stats().waited == waited:
            time.sleep(0.001)
        end = time.monotonic() + 0.15
        while time.monotonic() < end or ticks <= 10:
            ticks += 1
            time.sleep(0.001)
        # Not clear(): without a global lock, what another thread made goes when that one runs again, and it waits.
        held.pop().release()

    waited = memory.stats().waited
    run(wait, let_go)
    assert memory.stats().waited == waited + 1


def test_who_waits_is_served_in_order() -> None:
    memory.configure(total_limit=room(16))
    held = [memory.rent(12 * MIB)]
    order: list[int] = []

    def wait(number: int) -> None:
        with memory.rent(12 * MIB, timeout=HANGS):
            order.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(6)]
    for thread in threads:
        waited = memory.stats().waited
        thread.start()
        while memory.stats().waited == waited:
            time.sleep(0.001)
    time.sleep(0.12)  # longer than the pause after which signals are looked at
    held.clear()
    for thread in threads:
        thread.join()
    assert order == sorted(order)


def test_who_would_wait_does_not_pass_who_waits() -> None:
    """Warm memory went to whoever came."""
    memory.configure(total_limit=room(8))
    # Half of a block is free, and nothing else.
    half, block = memory.rent(2 * MIB), memory.rent(4 * MIB)
    memory.rent(2 * MIB, timeout=0.05).release()
    waited = memory.stats().waited
    waiting = threading.Thread(target=lambda: memory.rent(4 * MIB, timeout=HANGS).release())
    waiting.start()
    while memory.stats().waited == waited:
        time.sleep(0.001)
    try:
        with pytest.raises(gabion.LimitError, match="came before it still waited"):
            memory.rent(2 * MIB, timeout=0.05)
        for timeout in (None, 0):  # who does not wait does not queue
            memory.rent(2 * MIB, timeout=timeout).release()
    finally:
        half.release()
        block.release()
        waiting.join()


@pytest.mark.parametrize("rent", [memory.rent, memory.rent_group])
def test_who_does_not_wait_is_told_that_a_wait_may_help(rent: Callable[..., Any]) -> None:
    """The call with 0 said that not enough had come back within 0ns."""
    memory.configure(total_limit=room(16))
    held = memory.rent(12 * MIB)
    told = set()
    for timeout in (None, 0, "0 s"):
        with pytest.raises(gabion.LimitError, match="in use: release buffers, wait with a timeout") as caught:
            rent(12 * MIB, timeout=timeout)
        told.add(str(caught.value))
    assert len(told) == 1
    held.release()


def test_a_refusal_speaks_of_blocks_only_where_these_are_why(script: Callable[..., str]) -> None:
    """Where all idle memory together would not do, it does not matter how it lies."""
    said = script("""
        import gabion
        from gabion import memory

        memory.configure(total_limit="48 MiB")
        held = memory.rent("6 MiB")
        memory.rent("30 MiB").release()
        try:
            memory.rent("46 MiB")
        except gabion.LimitError as error:
            print("bytes in use: release" in str(error))
    """)
    assert said == "True\n"


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, ValueError), (float("nan"), ValueError), ("1 m", ValueError), ([1], TypeError), (True, TypeError)],
)
def test_times_that_are_none(timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout"):
        memory.rent(10, timeout=timeout)
    with pytest.raises(error, match="timeout"):
        memory.rent_group(10, timeout=timeout)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
@pytest.mark.parametrize("rent", [memory.rent, memory.rent_group])
def test_a_signal_ends_a_wait_when_its_handler_raises(rent: Callable[..., Any]) -> None:
    class Enough(Exception):
        pass

    calls: list[float] = []

    def handler(*_: Any) -> None:
        if len(calls) == 3:
            return  # a busy machine may let one more come before the timer is off
        calls.append(time.monotonic())
        memory.rent(1000).release()  # handlers may rent, too
        if len(calls) == 3:
            raise Enough

    memory.configure(total_limit=room(16))
    held = memory.rent(12 * MIB)
    before = memory.stats().live
    old = signal.signal(signal.SIGALRM, handler)
    begin = time.monotonic()
    try:
        with pytest.raises(Enough):
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
            rent(12 * MIB, timeout=HANGS)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert time.monotonic() - begin > 0.25
    assert len(calls) == 3
    assert memory.stats().live == before
    held.release()
    rent(12 * MIB, timeout=0).release()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_the_handler_of_a_signal_waits_before_what_it_interrupts() -> None:
    """It queued behind the wait that stood still for it, in the same thread."""
    memory.configure(total_limit=room(64))
    held, took = memory.rent(40 * MIB), []

    def handler(*_: Any) -> None:
        begin = time.monotonic()
        memory.rent(MIB, timeout=HANGS).release()
        took.append(time.monotonic() - begin)

    old = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(gabion.LimitError, match=r"not enough came back within 300ms"):
            memory.rent(30 * MIB, timeout=0.3)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert len(took) == 1
    assert took[0] < HANGS / 2
    held.release()


# --- no memory ------------------------------------------------------------------------------------


def test_no_memory_is_a_memory_error(script: Callable[..., str]) -> None:
    """Under a limit of address space: a clear error, nothing lost, and idle memory goes before anything is refused."""
    said = script(
        """
        import resource
        import gabion.memory as memory
        memory.rent("4 MiB").release()
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * 4096
        # Of this, the stack of a thread and malloc take 140.
        resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20),) * 2)
        for rent in (memory.rent, memory.rent_group):
            for _ in range(3):
                try:
                    rent("1 GiB")
                except MemoryError as error:
                    assert str(1 << 30) in str(error), error
                else:
                    raise AssertionError("not refused")
        assert memory.stats().in_use == 0, memory.stats()
        for _ in range(3):
            for size in (200 << 20, 100 << 20, 3 << 20):  # each needs what the one before left idle
                memory.rent(size).release()
                memory.rent_group(size).release()
        held = []
        try:
            while True:
                held.append(memory.rent("3 MiB"))
        except MemoryError:
            pass
        assert len(held) > 30, len(held)
        held.clear()
        memory.rent(200 << 20).release()
        print("done")
        """
    )
    assert said == "done\n"


def test_no_memory_for_python_itself(script: Callable[..., str]) -> None:
    """No object can be made at step n, for every n: an error, no crash, and no memory is left behind."""
    pytest.importorskip("_testcapi")
    if not getattr(__import__("sys"), "_is_gil_enabled", lambda: True)():
        pytest.skip("set_nomemory() needs the global lock")
    said = script(
        """
        import gc, sys, _testcapi
        import gabion.memory as memory
        buffer, group = memory.rent(1000), memory.rent_group("5 MiB", row_bytes=100)
        CALLS = [
            lambda: memory.rent(1000), lambda: memory.rent("3 MiB", clean=True),
            lambda: memory.rent_group("9 MiB", row_bytes=10), lambda: group.row(5), lambda: [group[1], *group],
            lambda: memoryview(buffer), lambda: buffer.__dlpack__(), lambda: buffer.__dlpack__(max_version=(1, 0)),
            lambda: buffer.__arrow_c_array__(), lambda: repr(buffer), lambda: memory.stats(),
            lambda: memory.rent(10).release(),
        ]
        if not hasattr(sys, "gettotalrefcount"):  # a debug build stops where others have that SystemError
            CALLS.append(lambda: memory.rent(-1))
        def once(call, step):
            try:
                _testcapi.set_nomemory(step, step + 1)
                call()
            except (MemoryError, ValueError):
                pass
            except SystemError as error:  # int("x") says the same when there is no memory for its error
                assert str(error) == "error return without exception set"
            finally:
                _testcapi.remove_mem_hooks()
        gc.collect()
        for number, call in enumerate(CALLS):
            before = memory.stats().live
            for step in range(1, 40):
                once(call, step)
            gc.collect()
            assert memory.stats().live <= before, (number, before, memory.stats().live)
        buffer.release(), group.release()
        print("done")
        """
    )
    assert said == "done\n"
