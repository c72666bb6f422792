"""What piles and caches empty stays warm for what comes next, and goes back as the pool's idle memory does."""

from collections.abc import Callable

import pytest

HEAD = """
import ctypes, gc, resource, time
import gabion, gabion.memory
from patience import eventually
from pool_books import check_books
MIB, PR_SET_THP_DISABLE = 1 << 20, 41
# With huge pages a first fill has few faults as well, and none of it could be told from a second one.
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
def faults(fill):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    fill()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def idle():
    return gabion.memory.stats().held_idle
def rss():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096
def wait_until(condition):
    assert eventually(condition)
"""

pytestmark = pytest.mark.skipif("not __import__('sys').platform.startswith('linux')", reason="counts Linux's faults")

STORES = {
    "pile, clear": """
store = gabion.Pile()
def fill(): store.put_many(values)
empty = store.clear
""",
    "pile, clear beside a view": """
store = gabion.Pile()
seen = store.put(b"x" * 100_000)
view = store.view(seen)
def fill(): store.put_many(values)
empty = store.clear
""",
    "pile, remove": """
store = gabion.Pile()
def fill(): store.put_many(values)
def empty(): store.remove_many(list(store))
""",
    "cache, clear": """
store = gabion.Cache(256 * MIB)
def fill(): store.update(enumerate(values))
empty = store.clear
""",
    "cache, mass expiry": """
store = gabion.Cache(256 * MIB, ttl=60)
def fill(): store.update(enumerate(values))
def empty():
    for key in range(len(values)): store.put(key, values[key], ttl=0)
    store.expire()
""",
}


@pytest.mark.parametrize("size", [1000, 4096, 65_536, 1_000_000])
@pytest.mark.parametrize("store", STORES)
def test_what_is_emptied_is_filled_again_without_faults(script: Callable[..., str], store: str, size: int) -> None:
    script(
        HEAD
        + f"values = [bytes({size})] * (40 * MIB // {size})\n"
        + STORES[store]
        + """
first = faults(fill)
assert first > 500, first
empty()
check_books()
assert 32 * MIB < idle() < 96 * MIB, idle()
second = faults(fill)
assert second < first / 8, (first, second)
assert idle() < 16 * MIB, idle()
empty()
store.validate()
check_books()
"""
    )


@pytest.mark.parametrize("way", ["period", "trim", "pool_bytes", "close"])
@pytest.mark.parametrize("store", STORES)
def test_what_is_emptied_goes_back_as_idle_memory_does(script: Callable[..., str], store: str, way: str) -> None:
    goes = {
        "period": "gabion.memory.configure(trim_period=0.4); wait_until(lambda: idle() == 0)",
        "trim": "assert gabion.memory.trim(all=True) > 32 * MIB",
        "pool_bytes": "gabion.memory.configure(pool_bytes=0)",
        "close": "globals().pop('view', None); store.close(); gabion.memory.trim(all=True)",
    }
    script(
        HEAD
        + "values = [bytes(10_000)] * 4000\n"
        + STORES[store]
        + f"""
start = rss()
fill()
full = rss()
assert full > start + 32 * MIB, (full, start)
empty()
assert idle() > 32 * MIB and rss() > full - 4 * MIB
{goes[way]}
assert idle() == 0, idle()
assert rss() < start + 12 * MIB, (rss(), start, full)
check_books()
if {way != "close"}:
    fill()
    store.validate()
    empty()
    store.close()
"""
    )


def test_compact_gives_back_at_once_what_the_pile_keeps_warm(script: Callable[..., str]) -> None:
    script(
        HEAD
        + """
for size in (500, 50_000):
    pile, other = gabion.Pile(), gabion.Pile()
    for one in (pile, other):
        one.put_many([bytes(size)] * (40 * MIB // size))
        one.clear()
    both = idle()
    given = pile.compact()
    assert given > 32 * MIB and both - idle() >= given - MIB, (given, both, idle())
    assert idle() > 32 * MIB, "what is the other's"
    assert pile.compact() < MIB
    pile.close(); other.close()
    check_books()
"""
    )


def test_what_is_used_and_what_is_warm_fit_the_limit_together(script: Callable[..., str]) -> None:
    """Small values, then large ones, then small ones: each time other blocks are filled."""
    script(
        HEAD
        + """
gabion.memory.trim(all=True)
pile = gabion.Pile(max_bytes=64 * MIB)
for turn in range(6):
    size = (600, 60_000)[turn % 2]
    pointers = []
    for _ in range(50 * MIB // size):
        pointers.append(pile.put(bytes(size)))
        if len(pointers) % 64 == 0:
            assert pile.stats().reserved_bytes + idle() <= 64 * MIB, (turn, pile.stats(), idle())
    if turn < 3:
        pile.clear()
    else:
        pile.remove_many(pointers)
    pile.validate()
    check_books()
"""
    )


def test_the_figures_say_what_is_idle(script: Callable[..., str]) -> None:
    script(
        HEAD
        + """
before = gabion.memory.stats()
pile = gabion.Pile()
pile.put_many([bytes(50_000)] * 800)
full = gabion.memory.stats()
assert full.held - before.held >= 40_000_000 and full.held_idle == before.held_idle
pile.clear()
empty = gabion.memory.stats()
assert empty.held == full.held and pile.stats().reserved_bytes == 0
assert 40_000_000 < empty.held_idle <= empty.held, empty
assert (empty.idle, empty.mapped, empty.in_use) == (before.idle, before.mapped, before.in_use), empty
trimmed = gabion.memory.trim(all=True)
after = gabion.memory.stats()
assert after.held_idle == 0 and after.held == full.held and trimmed >= empty.held_idle
pile.close()
check_books()
"""
    )


@pytest.mark.parametrize("megabytes", [1, 10, 100])
@pytest.mark.parametrize("size", [100, 4096, 65_536])
def test_a_pile_for_each_request_is_warm_from_the_second_on(
    script: Callable[..., str], size: int, megabytes: int
) -> None:
    script(
        HEAD
        + f"""
values = [bytes({size})] * ({megabytes} * MIB // {size})
def turn():
    pile = gabion.Pile()
    put = pile.put  # and no list of all pointers, which is Python's to fault in
    for value in values: put(value)
first = faults(turn)
assert first > 20, first
turn()
fewest = min(faults(turn) for _ in range(5))
assert fewest < 8 + first / 8, (first, fewest)
check_books()
assert gabion.memory.stats().idle + idle() <= ({megabytes} + 24) * 2 * MIB
gabion.memory.trim(all=True)
stats = gabion.memory.stats()
assert (stats.held, stats.held_idle, stats.idle) == (0, 0, 0), stats
"""
    )


def test_what_small_piles_leave_takes_as_much_memory_as_they_did(script: Callable[..., str]) -> None:
    script(
        HEAD
        + """
def some(count):
    piles = [gabion.Pile() for _ in range(count)]
    for pile in piles: pile.put(1)
some(1)
start = rss()
some(300)
left = rss() - start
assert idle() < 300 * 300_000 and left < 300 * 100_000, (idle(), left)
gabion.memory.configure(trim_period=0.4)
wait_until(lambda: gabion.memory.stats().held == 0)
check_books()
"""
    )
