"""Memory: what is freed comes back, churn does not creep, nothing leaks."""

from collections.abc import Callable
from pathlib import Path

import pytest

import gabion

HEAD = """
import ctypes, gc, os, random, sys
import gabion, gabion.memory
from model import Plain, Slotted, person
LONG = os.environ.get("GABION_LONG") == "1"
# Without the global lock Python's own allocator keeps what was freed for a while.
SLACK = 4e6 if getattr(sys, "_is_gil_enabled", lambda: True)() else 64e6
# What malloc keeps free for the next call is no use of ours, and how much that is differs from run to run.
malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda keep: None)
def rss():
    gc.collect()
    gabion.memory.trim(all=True)  # what a pile no longer needs, the pool keeps warm for a while
    malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
"""

pytestmark = pytest.mark.skipif("not __import__('os').path.exists('/proc/self/statm')", reason="needs /proc")


def test_memory_comes_back_after_remove_and_compact(script: Callable[..., str]) -> None:
    script(
        HEAD
        + """
pile = gabion.Pile()
def turn(size):
    pointers = pile.put_many(b"x" * (size + i % 50) for i in range(200_000 if size < 500 else 20_000))
    grown = rss()
    pile.remove_many(pointers)
    pile.compact()
    pile.validate()
    return grown
turn(1)
start = rss()
for size in (20, 100, 700, 2000):
    grown = turn(size)
    assert grown > start + 8e6, (size, grown, start)
    assert rss() < start + SLACK, (size, rss(), start)
    assert pile.stats().reserved_bytes < 1 << 20
pile.close()
"""
    )


def test_memory_comes_back_after_clear_close_and_drop(script: Callable[..., str]) -> None:
    script(
        HEAD
        + """
def fill(pile): pile.put_many(person(i) for i in range(100_000))
fill(gabion.Pile())
start = rss()
pile = gabion.Pile(); fill(pile); assert rss() > start + 5e6
pile.clear(); assert rss() < start + SLACK, "clear"
fill(pile); pile.close(); assert rss() < start + SLACK, "close"
pile = gabion.Pile(); fill(pile)
del pile; assert rss() < start + SLACK, "drop"
with gabion.Pile() as pile:
    pile.put(b"x" * 50_000_000); assert rss() > start + 45e6
    pile.remove(next(iter(pile))); assert rss() < start + SLACK, "a large object"
"""
    )


def test_pages_of_blocks_in_use_come_back(script: Callable[..., str]) -> None:
    """A block whose pages were free except for one kept them all, and they counted for nobody."""
    script(
        HEAD
        + """
pile = gabion.Pile()
pointers = pile.put_many(b"x" * 100 for _ in range(600_000))
full = rss()
pile.remove_many(pointer for number, pointer in enumerate(pointers) if number % 10_000)
pile.validate()
assert pile.stats().reserved_bytes < 16 << 20
assert rss() < full - 50e6, (rss(), full)
pile.close()
"""
    )


def test_a_cache_keeps_its_limit_when_values_get_larger(script: Callable[..., str]) -> None:
    """What was small stood in all blocks for a while, which kept the room of all that had gone."""
    script(
        HEAD
        + """
random.seed(7)
start, cache = rss(), gabion.Cache("64 MiB")
for _ in range(1_000_000):
    cache[random.randrange(500_000)] = b"x" * 100
most = 0
for number in range(60_000):
    cache[random.randrange(500_000)] = b"x" * 1500
    if number % 3000 == 0:
        most = max(most, rss() - start)
cache.validate()
assert most < (64 << 20) + 8e6 + SLACK, most
cache.close()
"""
    )


def test_two_thousand_piles_leak_nothing(script: Callable[..., str]) -> None:
    script(
        HEAD
        + """
def turn(count):
    for number in range(count):
        pile = gabion.Pile()
        pointer = pile.put(Plain(a=number))
        pile.get(pointer)
        pile.view(pile.put(b"x" * 2000))
        if number % 50 == 0:
            pile.put(b"x" * 1_500_000)
        if number % 3 == 0:
            pile.close()
turn(300)
start = rss()
def mappings():
    with open("/proc/self/maps") as maps:
        return len(maps.readlines())
mapped = mappings()
turn(2000)
assert rss() < start + SLACK, (rss(), start)
assert mappings() < mapped + 20, (mappings(), mapped)
"""
    )


def test_steady_churn_stays_dense(script: Callable[..., str]) -> None:
    script(
        HEAD
        + """
chooser = random.Random(7)
pile = gabion.Pile()
count = 100_000  # a page of each of 60 classes is open: they are few only beside many
payloads = [bytes(size) for size in range(2, 1001)]
pointers = [pile.put(chooser.choice(payloads)) for _ in range(count)]
start = pile.stats().reserved_bytes
for turn in range(48 if LONG else 10):
    for _ in range(count):
        pile.replace(pointers[int(chooser.random() * count)], payloads[int(chooser.random() * 999)])
stats = pile.stats()
assert stats.reserved_bytes <= 1.15 * start, (stats, start)
assert stats.used_bytes >= 0.85 * stats.reserved_bytes, stats
pile.validate()
""",
        timeout=300,
    )


@pytest.mark.parametrize("size", [40, 75, 120, 1500])
def test_churn_by_remove_and_put_of_one_size_takes_no_more_memory(script: Callable[..., str], size: int) -> None:
    script(
        HEAD
        + f"""
chooser = random.Random(7)
pile = gabion.Pile()
payload = bytes({size})
pointers = [pile.put(payload) for _ in range(20_000)]
start = pile.stats().reserved_bytes
for _ in range(100_000):
    at = int(chooser.random() * 20_000)
    pile.remove(pointers[at])
    pointers[at] = pile.put(payload)
assert pile.stats().reserved_bytes <= 1.02 * start, (pile.stats(), start)
pile.validate()
"""
    )


def test_calls_that_fail_leak_nothing(script: Callable[..., str]) -> None:
    script(
        HEAD
        + """
pile = gabion.Pile(max_bytes="4 MiB")
big = b"x" * 5_000_000
bad = [person(1), {"k": Plain(a=[1])}, (i for i in ())]
stale = pile.put(1); pile.remove(stale)
text = pile.put("text")
def turn(count):
    for number in range(count):
        for call in (lambda: pile.put(bad), lambda: number % 50 and [][0] or pile.put(big), lambda: pile.get(stale),
                     lambda: pile.view(text), lambda: pile.put_many([1, bad]), lambda: pile.get(-1),
                     lambda: pile.fields(text, "nothing"), lambda: pile.get_many([text, stale])):
            try:
                call()
            except Exception:
                pass
            else:
                raise SystemExit("worked")
turn(500)
start = rss()
turn(2000)
assert rss() < start + 2e6, (rss(), start)
assert len(pile) == 1
"""
    )


def test_calls_that_work_leak_nothing(script: Callable[..., str]) -> None:
    script(
        HEAD
        + """
import tracemalloc
pile = gabion.Pile()
shared = [1]
loop = []; loop.append(loop)
values = [person(1), Plain(a=1, b=[2]), Slotted(1, "x", None), [shared, shared], loop, {"a": {1, 2}}, 10**50]
def turn(count):
    for _ in range(count):
        for value in values:
            pointer = pile.put(value)
            pile.get(pointer); pile.get_many([pointer]); pile.replace(pointer, [value]); pile.size_of(pointer)
            pile.fields(pile.put(values[0]), "id"); list(zip(range(2), pile)); pile.stats().as_dict()
            pile.pop(pointer)
        pile.view(pile.put(b"x" * 300)).release()
        pile.clear()
turn(200)
tracemalloc.start()
turn(20)
gc.collect()
before = tracemalloc.take_snapshot()
turn(300)
gc.collect()
grown = sum(entry.size_diff for entry in tracemalloc.take_snapshot().compare_to(before, "filename")
            if "tracemalloc" not in entry.traceback[0].filename)
assert grown < 20_000, grown
"""
    )


def _own_bytes(path: Path) -> int:
    """Bytes of a mapped file that this process has for itself."""
    own, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            ours = rest[-1:] == [str(path)]
        elif ours and first == "Private_Dirty:":
            own += int(rest[0]) << 10
    return own


@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_that_is_opened_is_not_written_to(tmp_path: Path, read_only: bool) -> None:
    """Each process that read it had a sixteenth of it for itself: where pages say which of their slots are taken."""
    path = tmp_path / "texts.pile"
    with gabion.Pile(path=path) as pile:
        pointers = pile.put_many((f"text {n}", n) for n in range(100_000))
        pile.put_many("x" * length for length in range(1000, 9000, 100))
        pile.remove_many(pointers[::7])
        reserved = pile.stats().reserved_bytes
    with gabion.Pile(path=path, read_only=read_only) as pile:
        assert _own_bytes(path) < reserved // 200
        pile.validate()
