"""Where memory ends in the midst of an encoding or a decoding, that is a MemoryError, whichever list it was for."""

import sys
from collections.abc import Callable

import pytest
from many_threads import LOCKED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process may have more than it was told")

# Each is put, and got, in a child that may have so much more memory than it has: too little, for one list or another.
PROGRAM = """
import itertools, os, resource, sys
from many_threads import LOCKED
from datetime import datetime, timedelta, timezone
import gabion

class Endless:
    def __init__(self, *parts): self.parts = parts
    def __reduce_ex__(self, protocol): return list, (), None, *self.parts

class Reduced:
    def __init__(self, child): self.child = child
    def __reduce__(self): return Reduced, (self.child,)

class Node:
    def __init__(self, next): self.next = next

class Slotted:
    __slots__ = ("next", "unset")
    def __init__(self, next): self.next = next

class Items(list):
    pass

def chain(make, count=60_000):
    last = None
    for _ in range(count):
        last = make(last)
    return last

def attributes():
    one = Node(1)
    one.__dict__.update({f"name {i}": [i] for i in range(60_000)})
    return one

def shared(lists=[[] for _ in range(60_000)]):
    return [lists, lists[::-1]]

GRAPHS = {
    "leaves": lambda: [1.23456] * 600_000,
    "lists": lambda: [[] for _ in range(60_000)],
    "a chain of lists": lambda: chain(lambda last: [last]),
    "a chain of tuples": lambda: chain(lambda last: (last,)),
    "a chain of objects": lambda: chain(Node),
    "a chain of slots, some unset": lambda: chain(Slotted),
    "a chain of reduced objects": lambda: chain(Reduced, 30_000),
    "a dict": lambda: {i: [i] for i in range(60_000)},
    "a set": lambda: {(i, None) for i in range(60_000)},
    "attributes": attributes,
    "references": shared,
    "items": lambda: Items([i] for i in range(60_000)),
    "text": lambda: ["\\u20ac" * 2_000_000],
    "times": lambda: [datetime(2020, 1, 1, tzinfo=timezone(timedelta(minutes=i % 999))) for i in range(30_000)],
    "bytes": lambda: [bytes([i]) * 10_000 for i in range(250)],
    "endless items": lambda: Endless(itertools.repeat(1.5)),
    "endless lists": lambda: Endless(itertools.repeat([])),
    "endless pairs": lambda: Endless(None, itertools.repeat((1, 1.5))),
}
pile = gabion.Pile()
kept = pile.put(["kept"])
allowed = resource.getrlimit(resource.RLIMIT_AS)

def size():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()

def works():
    pile.validate()
    one = [1, [2], {"a": (3, "x")}]
    return pile.get(pile.put([one, one])) == [one, one] and pile.get(kept) == ["kept"]

def short(name, call, more):
    # Exit status: 0 when there was enough, 1 after a MemoryError, 2 where anything else is wrong.
    status = 2
    try:
        before, used = len(pile), size()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, allowed[1]))
        try:
            result = call()
            status = 0
        except MemoryError:
            status = 1
        resource.setrlimit(resource.RLIMIT_AS, allowed)
        if status == 1 and len(pile) != before:
            print(name, more, "was stored all the same")
            status = 2
        # What was read lay in Python's own heap, which has holes then. Names of attributes are remembered.
        looked_at = name.startswith("put") and "attributes" not in name
        if status == 1 and looked_at and size() - used > max(800_000, more // 2):
            print(name, more, "keeps", size() - used)
            status = 2
        status = status if works() else 2
    finally:
        sys.stdout.flush()
        os._exit(status)

def ends(name, call):
    found = set()
    for more in MORE:
        child = os.fork()
        if child == 0:
            short(name, call, more)
        found.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    # Without the lock Python's own heap has address space in stock.
    if (LOCKED and 1 not in found) or not found <= {0, 1}:
        print(name, found, flush=True)

# What a thread uses for the first time has a place by then.
first = [Reduced([1]), Items([1]), Slotted(1)] * 2
pile.get(pile.put(first))
for name, make in GRAPHS.items():
    # A child each, so that nothing of the one before lies ready for it.
    child = os.fork()
    if child == 0:
        graph = make()
        ends(f"put of {name}", lambda: pile.put(graph))
        if "endless" not in name:
            pointer = pile.put(graph)
            ends(f"get of {name}", lambda: pile.get(pointer))
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        print(name, status, flush=True)
"""


@pytest.mark.parametrize("more", ["near", pytest.param("everywhere", marks=pytest.mark.long)])
def test_where_memory_ends_it_is_a_memory_error(
    script: Callable[..., str], monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    # What is large is mapped, so that it cannot lie in what was used before.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    few, many = "[150_000, 700_000, 1_500_000]", "[int(60_000 * 1.15**i) for i in range(40)]"
    program = PROGRAM.replace("MORE", few if more == "near" else many)
    # Without the lock the collector itself may need memory that is not there, and says so.
    assert script(program, timeout=600, silent=LOCKED) == ""
