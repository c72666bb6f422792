"""No memory at step n, for every n: each call works or raises, and nothing stored is lost."""

from collections.abc import Callable

import pytest
from many_threads import LOCKED

pytest.importorskip("_testcapi")
# There set_nomemory() damages the interpreter's own heap: pickle.loads() under it hangs or crashes just the same.
pytestmark = pytest.mark.skipif(not LOCKED, reason="set_nomemory() needs the global lock")

PROGRAM = """
import os, sys, _testcapi
from array import array
from model import Plain, Slotted, Person, Point, Colour, person, Money
from decimal import Decimal
from datetime import datetime, timezone, timedelta
import gabion

class Reduced:
    def __init__(self, value=1): self.value, self.more = value, [1]
    def __reduce__(self): return (Reduced, (self.value,), {"more": [1]})
    def __eq__(self, other): return self.__dict__ == other.__dict__
    __hash__ = None

class Stateful(Plain):
    def __getstate__(self): return dict(self.__dict__)
    def __setstate__(self, state): self.__dict__.update(state)

shared = ["shared"]
GRAPHS = {
    "scalars": lambda: [1, 2**70, 1.5, 1j, None, "text", "Stein", b"bytes", True],
    "containers": lambda: {"a": [1, (2, {3, 4})], "b": {"c": frozenset([5])}, "d": bytearray(b"x")},
    "slots": lambda: Slotted(1, "one", [Slotted(2)]),
    "person": lambda: [person(5), person(6)],
    "attributes": lambda: Plain(a=1, b=[2], c=Plain(d="x")),
    "shared": lambda: [shared, shared, {"s": shared}],
    "cycle": None,
    "leaves": lambda: [Decimal("1.5"), datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=1))), Colour.RED, int,
                       Point(1, 2), array("d", [1, 2])],
    "reduced": lambda: [Reduced(), Reduced([2]), Stateful(a=1), Money(Decimal(1), "EUR")],
    "long": lambda: ["x" * 3000, list(range(300))],
    "huge": lambda: b"y" * 1_500_000,
    "many": lambda: [Plain(**{f"name{i}": i}) for i in range(20)],
}
loop = [1]
loop.append({"loop": loop})
value = GRAPHS["KIND"]() if GRAPHS["KIND"] else loop
same = (lambda a: a == value) if GRAPHS["KIND"] else (lambda a: a[1]["loop"] is a)

# sys._getframe(): where there is no memory for the frame that an error passes through, CPython 3.13 lets go of the
# error, and crashes when that was the last to hold an object whose __dict__ was made. (It does so without this package:
# getattr(things.pop(), "missing"). https://github.com/python/cpython/issues/151763 has more of the kind.)
CALLS = {
    "put": lambda pile, p: pile.put(value),
    "put with reserve": lambda pile, p: pile.put(value, reserve=2000),
    "get": lambda pile, p: pile.get(p),
    "get with default": lambda pile, p: pile.get(p, None),
    "stale get with default": lambda pile, p: pile.get(p + 1, None),
    "stale get": lambda pile, p: pile.get(p + 1),
    "replace": lambda pile, p: pile.replace(p, value),
    "replace longer": lambda pile, p: pile.replace(p, [value, "z" * 2000]),
    "put_many": lambda pile, p: pile.put_many([value, 1, value]),
    "get_many": lambda pile, p: pile.get_many([p, p, p]),
    "fields": lambda pile, p: (sys._getframe(), pile.fields(p, "number", "a")),
    "view": lambda pile, p: pile.view(p),
    "pop": lambda pile, p: pile.pop(p),
    "remove_many": lambda pile, p: pile.remove_many([p, 5]),
    "the rest": lambda pile, p: (pile.stats().as_dict(), repr(pile), list(pile), p in pile, len(pile), pile.size_of(p)),
    "limit": lambda pile, p: (pile.max_bytes, setattr(pile, "max_bytes", "1 GiB"), setattr(pile, "max_bytes", None)),
    "figures": lambda pile, p: (pile.stats().max_bytes, pile.stats().used_bytes, pile.compact()),
    "remove_many of many": lambda pile, p: pile.remove_many(pile.put_many(range(300))),
    "view of an array": lambda pile, p: pile.view(numbers_at),
    "pop with default": lambda pile, p: pile.pop(5, None),
    "get no int": lambda pile, p: pile.get("x"),
    "get below 0": lambda pile, p: pile.get(-1),
    "put nothing": lambda pile, p: pile.put(),
    "fields of nothing": lambda pile, p: pile.fields(),
    "fields by a number": lambda pile, p: (sys._getframe(), pile.fields(p, 5)),
    "put with wrong reserve": lambda pile, p: pile.put(1, reserve=-1),
    "put_many of an int": lambda pile, p: pile.put_many(5),
    "get_many of an int": lambda pile, p: pile.get_many(5),
    "new pile of text": lambda pile, p: gabion.Pile(max_bytes="x"),
    "new pile of a float": lambda pile, p: gabion.Pile(max_bytes=1.5),
    "new pile in a file": lambda pile, p: gabion.Pile(path="/"),
    "new pile": lambda pile, p: gabion.Pile(max_bytes="8 MiB").put(value),
}
EXPECTED = (MemoryError, gabion.PointerError, TypeError, ValueError, AttributeError, KeyError, OSError)
problems = []

def check(holds, *where):
    if not holds:
        problems.append((*where, "another object"))

numbers = array("d", [1, 2])

def stock(pile):
    global kept, numbers_at
    numbers_at = pile.put(numbers)
    kept = {numbers_at: numbers, **{pile.put(other): other for other in ("a", [1], b"x" * 5000)}}

def campaign(name, fresh):
    call = CALLS[name]
    pile = gabion.Pile()
    stock(pile)
    pointer = pile.put(value)
    here = sys._getframe()  # as in "fields"
    step = fails = quiet = 0
    while quiet < 3 and step < STEPS:
        if fresh:
            pile = gabion.Pile()
            stock(pile)
            pointer = pile.put(value) if name.startswith(("get", "fields", "view", "pop", "remove", "replace")) else 0
        before = len(pile), pile.stats().used_bytes
        error = result = None
        _testcapi.set_nomemory(step, step + SPAN if SPAN else 0)
        try:
            result = call(pile, pointer)
        except BaseException as raised:
            error = raised
        finally:
            _testcapi.remove_mem_hooks()
        pile.validate()
        if error is not None:
            causes = (error, error.__cause__, error.__context__)
            if not any(isinstance(cause, EXPECTED) for cause in causes):
                problems.append((name, fresh, step, repr(error)))
            if (len(pile), pile.stats().used_bytes) != before:
                problems.append((name, fresh, step, repr(error), "left something stored"))
        if isinstance(error, MemoryError) or isinstance(getattr(error, "__cause__", None), MemoryError):
            fails += 1
            quiet = 0
        else:
            quiet += 1
        if error is None and name in ("put", "put with reserve"):
            check(same(pile.pop(result)), name, fresh, step)
        elif error is None and name == "put_many":
            check(same(pile.get(result[0])) and same(pile.get(result[2])), name, fresh, step)
            pile.remove_many(result)
        elif error is None and name == "get":
            check(same(result), name, fresh, step)
        elif error is None and name in ("pop", "remove_many") and not fresh:
            pointer = pile.put(value)
        elif error is None and name == "replace longer":
            pile.replace(pointer, value)
        if pointer:
            result = None
            check(pointer not in pile or same(pile.get(pointer)), name, fresh, step)
        for old, other in kept.items():
            check(pile.get(old) == other, name, fresh, step)
        step += 1
    return fails

crashed, read_end, write_end = [], *os.pipe()
for name in CALLS:
    # A child each, so that one crash does not hide the others.
    child = os.fork()
    if child == 0:
        fails = campaign(name, fresh=False) + campaign(name, fresh=True)
        if problems:
            print(f"{len(problems)} problems: {problems[:9]}", file=sys.stderr, flush=True)
        os.write(write_end, b"." * bool(fails))
        os._exit(bool(problems))
    status = os.waitpid(child, 0)[1]
    if status:
        crashed.append((name, f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "problems, see above"))
os.close(write_end)
assert not crashed, crashed
assert len(os.read(read_end, 100)) > 8, "most calls met a step without memory"
"""

LONG_ONLY = ("attributes", "leaves", "containers", "slots", "cycle", "long", "huge", "many")
KINDS = [
    *("scalars", "person", "shared", "reduced"),
    *(pytest.param(kind, marks=pytest.mark.long) for kind in LONG_ONLY),
]


@pytest.mark.parametrize("span", [0, 1], ids=["from step n on", "at step n only"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_memory_at_any_step(script: Callable[..., str], kind: str, span: int) -> None:
    program = PROGRAM.replace("KIND", kind).replace("STEPS", "300").replace("SPAN", str(span))
    script(program, silent=False)


FIRST_USES = """
import os, _testcapi
import numpy
import gabion
pile, image = gabion.Pile(), gabion.Image.new("L", (3, 3))
array = pile.put(numpy.zeros(1 << 18))
uses = {
    "a large array": lambda: pile.get(array),
    "a row": lambda: image.row(0),
    "rows": lambda: image.rows(),
}
crashed = []
for name, use in uses.items():
    for step in range(20):
        child = os.fork()
        if child == 0:
            _testcapi.set_nomemory(step, 0)
            try:
                use()
            except MemoryError:
                pass
            finally:
                _testcapi.remove_mem_hooks()
            os._exit(0)
        if status := os.waitpid(child, 0)[1]:
            crashed.append((name, step, status))
assert not crashed, crashed
"""


def test_no_memory_at_a_first_use(script: Callable[..., str]) -> None:
    """PyO3 ends the process where there is no memory for a class that it makes at its first instance."""
    pytest.importorskip("numpy")
    script(FIRST_USES, silent=False)


READS = """
import os, resource
import gabion

many, long_key = list(range(200_000)), "k" * 5000
pile, cache = gabion.Pile(), gabion.Cache("64 MiB")
pointer, record = pile.put(many), pile.put({"many": many, "one": 1})
cache["key"] = cache[long_key] = many

def kept():
    return pile.get(pointer) == many and pile.get(record)["one"] == 1 and cache["key"] == cache[long_key] == many

reads = {
    "get": lambda: pile.get(pointer),
    "get with default": lambda: pile.get(pointer, None),
    "get_many": lambda: pile.get_many([pointer]),
    "fields": lambda: pile.fields(record, "one"),
    "pop": lambda: pile.pop(pointer),
    "pop with default": lambda: pile.pop(pointer, None),
    "values": lambda: list(pile.values()),
    "cache[]": lambda: cache["key"],
    "cache.get": lambda: cache.get("key"),
    "cache.get of a long key": lambda: cache.get(long_key),
    "cache.get_many": lambda: cache.get_many(["key"]),
    "cache.get_or_put": lambda: cache.get_or_put("key", lambda: "made"),
    "cache.pop": lambda: cache.pop("key"),
    "cache.pop with default": lambda: cache.pop("key", None),
}
crashed = []
for name, read in reads.items():
    child = os.fork()
    if child == 0:
        allowed = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 200_000, allowed[1]))
        try:
            read()
            raises = False
        except MemoryError:
            raises = True
        resource.setrlimit(resource.RLIMIT_AS, allowed)
        os._exit(0 if raises and kept() else 1 + raises)
    if status := os.waitpid(child, 0)[1]:
        crashed.append((name, status))
assert not crashed, crashed
"""


def test_a_read_for_which_there_is_no_memory(script: Callable[..., str]) -> None:
    """The buffer that payloads are read into grew by itself, which ends the process where there is no memory."""
    script(READS, silent=False)
