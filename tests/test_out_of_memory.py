"""No memory at step n, for every n, in calls of caches, streams, images and the pool: each works or raises MemoryError.

That of piles is in test_pile_out_of_memory.
"""

from collections.abc import Callable

import pytest
from many_threads import LOCKED

pytest.importorskip("_testcapi")
# As there.
pytestmark = pytest.mark.skipif(not LOCKED, reason="set_nomemory() needs the global lock")

PROGRAM = """
import os, sys, uuid, _testcapi
from datetime import datetime, timedelta
import gabion

ID = uuid.UUID(int=2**100)
KEYS = ["text", "größe", "\\udcff", b"bytes", 7, -2**40, 2**70, 2**3000, ID, ("tuple", 1, (b"x", "größe", ID)), True]
value = {"a": [1, (2, 3)], "b": "x" * 300}
moment = datetime.now() + timedelta(days=1)

cache = gabion.Cache("1 MiB", ttl=300)
table = cache.table("pages", max_bytes="512 KiB")
for key in KEYS:
    cache[key] = value
table["page"] = value

@cache.memoize
def doubled(*args, **kwargs):
    return [args, sorted(kwargs)]

def add_one(old):
    return [*old, 1]

def fresh():
    return list(value)

count = 0
def new_key():
    global count
    count += 1
    return f"new key {count}"

CALLS = {
    "get": lambda: [cache.get(key) for key in KEYS],
    "get of none": lambda: cache.get("absent"),
    "get with default": lambda: cache.get("absent", default=b""),
    "[]": lambda: cache[("tuple", 1, (b"x", "größe", ID))],
    "[] of none": lambda: (sys._getframe(), cache["absent"]),
    "pop of none": lambda: (sys._getframe(), cache.pop("absent")),
    "pop of a tuple": lambda: (sys._getframe(), cache.pop(("absent", 2**70))),
    "del of none": lambda: (sys._getframe(), cache.__delitem__(("absent", ID))),
    "put": lambda: cache.put("k", value, ttl=5, priority=1),
    "put of a new key": lambda: cache.put(new_key(), value),
    "put into a table": lambda: table.put(new_key(), value),
    "add": lambda: cache.add("k", value),
    "setdefault": lambda: cache.setdefault(("set", 1), value),
    "put_many": lambda: cache.put_many({"m": 1, b"n": 2}),
    "put_many of pairs": lambda: cache.put_many([("m", 1), (b"n", 2)]),
    "get_many": lambda: cache.get_many([*KEYS, "absent"]),
    "remove_many": lambda: cache.remove_many(["m", b"n", "absent"]),
    "keys": lambda: cache.keys(),
    "items": lambda: list(table.items()),
    "change": lambda: cache.change("list", add_one, default=[]),
    "incr": lambda: cache.incr("number", 2**40),
    "get_or_put": lambda: cache.get_or_put(new_key(), fresh),
    "get_or_put of one that is there": lambda: cache.get_or_put("text", fresh, ttl=5),
    "get_or_put by name": lambda: cache.get_or_put(new_key(), factory=fresh, ttl="5 min", priority=3),
    "memoized": lambda: doubled(new_key(), 1.5, None, 2.0, (1, None), name=ID, other=b"x"),
    "memoized and there": lambda: doubled(1.5, None, 2.0, (1, None), name=ID, other=b"x"),
    "touch": lambda: cache.touch("text", 300),
    "expires_in": lambda: (cache.expires_in("text"), cache.expires_in("absent", None)),
    "times": lambda: cache.put("k", 1, ttl=timedelta(seconds=5), expires_at=moment),
    "contains": lambda: [key in cache for key in KEYS],
    "wrong key": lambda: cache.get(1.5),
    "wrong keys": lambda: cache.get_many(5),
    "wrong keyword": lambda: cache.put("k", 1, tll=5),
    "wrong count": lambda: cache.get(),
    "settings": lambda: (cache.max_bytes, cache.ttl, table.idle, table.name, cache.tables(), repr(table), len(cache)),
    "figures": lambda: (cache.stats().as_dict(), repr(table.stats())),
    "expire": lambda: cache.expire(),
    "clear": lambda: table.clear(),
}
# Of RuntimeErrors, that there is no memory for a lock.
EXPECTED = (MemoryError, KeyError, TypeError, RuntimeError)
# Where all memory is gone, CPython 3.11 crashes in PyContextVar_Set(), which sets the mark of a factory, and hangs in a
# frame with `finally` that is as long as a memoized function's.
if SPAN == 0:
    CALLS = {name: call for name, call in CALLS.items() if not name.startswith(("get_or_put", "memoized"))}
# CPython 3.12 and 3.13.0 crash in PyFunction_New(), which makes what incr() adds by; and the setdefault() of 3.13.0
# goes on with a dict that could not grow, which is the list of flights.
if (3, 12) <= sys.version_info <= (3, 13, 1):
    del CALLS["incr"]
if (3, 13) <= sys.version_info <= (3, 13, 1):
    CALLS = {name: call for name, call in CALLS.items() if not name.startswith(("get_or_put", "memoized"))}
problems = []

def campaign(name):
    call = CALLS[name]
    if WARM:
        try:
            call()
        except EXPECTED:
            pass
    here = sys._getframe()
    step = fails = quiet = 0
    while quiet < 3 and step < STEPS:
        error = None
        _testcapi.set_nomemory(step, step + SPAN if SPAN else 0)
        try:
            call()
        except BaseException as raised:
            error = raised
        finally:
            _testcapi.remove_mem_hooks()
        cache.validate()
        causes = () if error is None else (error, error.__cause__, error.__context__)
        if error is not None and not any(isinstance(cause, EXPECTED) for cause in causes):
            problems.append((name, step, repr(error)))
        if any(isinstance(cause, RuntimeError) and "allocate lock" not in str(cause) for cause in causes):
            problems.append((name, step, repr(error)))
        if any(isinstance(cause, (MemoryError, RuntimeError)) for cause in causes):
            fails += 1
            quiet = 0
        else:
            quiet += 1
        error = causes = None
        if any(cache.get(key) != value for key in KEYS):
            problems.append((name, step, "another value"))
        # Nobody is left waiting for a flight.
        if cache.get_or_put("flight", fresh) != list(value) or cache._gabion_flights.in_flight:
            problems.append((name, step, "a flight is left"))
        cache.discard("flight")
        step += 1
    return fails

crashed, read_end, write_end = [], *os.pipe()
for name in CALLS:
    # A child each, so that one crash does not hide the others.
    child = os.fork()
    if child == 0:
        fails = campaign(name)
        if problems:
            print(f"{len(problems)} problems: {problems[:9]}", file=sys.stderr, flush=True)
        os.write(write_end, b"." * bool(fails))
        os._exit(bool(problems))
    status = os.waitpid(child, 0)[1]
    if status:
        crashed.append((name, f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "problems, see above"))
os.close(write_end)
assert not crashed, crashed
assert len(os.read(read_end, 100)) > 20, "most calls met a step without memory"
"""


@pytest.mark.parametrize("span", [0, 1], ids=["from step n on", "at step n only"])
@pytest.mark.parametrize("warm", [True, False], ids=["later", "first uses"])
def test_no_memory_in_caches(script: Callable[..., str], span: int, warm: bool) -> None:
    program = PROGRAM.replace("STEPS", "200").replace("SPAN", str(span)).replace("WARM", str(warm))
    script(program, silent=False)


OTHERS = """
import io, os, _testcapi
import gabion
from gabion import memory, streams

# A JPEG with an EXIF block and a profile, whose bytes nobody looks at.
file = io.BytesIO()
gabion.Image.new("RGB", (30, 20)).save(file, format="JPEG")
exif = b"Exif\\0\\0MM\\0*\\0\\0\\0\\x08\\0\\0\\0\\0\\0\\0"
segment = b"\\xff\\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
image = gabion.Image.open(file.getvalue()[:2] + segment + file.getvalue()[2:])
assert image.exif
group = memory.rent_group("9 MiB", row_bytes=1000)
lines = b"".join(b"%d\\n" % number for number in range(30_000))
readers = [streams.Reader(io.BytesIO(lines)) for _ in range(1000)]
ended = streams.Reader(io.BytesIO())
CALLS = {
    "exif": lambda: (image.exif, image.icc_profile),
    "blocks": lambda: (image.blocks, len(memory.rent_group("9 MiB").blocks)),
    "row": lambda: group.row(300),
    "stats": lambda: (memory.stats().as_dict(), memory.trim()),
    "readlines": lambda: readers.pop().readlines(500),
    "peek": lambda: (ended.peek(), ended.read1(), readers.pop().peek()),
    "seek": lambda: (readers[0].read(300), readers[0].tell(), readers[0].seek(1000), readers[0].seek(290_000)),
    "wrong": lambda: memory.rent(1.5),
    "wrong row": lambda: group.row("x"),
    "wrong flag": lambda: memory.trim(all="no"),
    "wrong size": lambda: memory.rent("4G"),
    "wrong function": lambda: image.process_rows(None),
}
problems = []

def campaign(name):
    call, step, quiet = CALLS[name], 0, 0
    while quiet < 3 and step < 100:
        error = None
        _testcapi.set_nomemory(step, step + SPAN if SPAN else 0)
        try:
            call()
        except BaseException as raised:
            error = raised
        finally:
            _testcapi.remove_mem_hooks()
        wanted = (MemoryError, TypeError, ValueError) if name.startswith("wrong") else MemoryError
        if error is not None and not isinstance(error, wanted):
            problems.append((name, step, repr(error)))
        quiet = 0 if isinstance(error, MemoryError) else quiet + 1
        step += 1

for name in CALLS:
    child = os.fork()
    if child == 0:
        problems = []
        campaign(name)
        if problems:
            print(problems[:9], flush=True)
        os._exit(bool(problems))
    if status := os.waitpid(child, 0)[1]:
        problems.append((name, status))
assert not problems, problems
"""


@pytest.mark.parametrize("span", [0, 1], ids=["from step n on", "at step n only"])
def test_no_memory_elsewhere(script: Callable[..., str], span: int) -> None:
    script(OTHERS.replace("SPAN", str(span)), silent=False)
