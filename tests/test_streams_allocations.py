"""No operation of a stream allocates memory after the first: neither malloc nor Python's own allocators keep count of
more than the small objects of a call."""

import ctypes
import io
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from many_threads import LOCKED
from stream_files import Short

from gabion import streams

COUNTER = Path(__file__).with_name("malloc_counter.c")

OPERATIONS = """
import ctypes, io, os, sys, tempfile
from gabion import streams

count = ctypes.CDLL(None).malloc_calls
count.restype = ctypes.c_long
data = bytes(8 << 20)
source, target, file, raw = io.BytesIO(data), io.BytesIO(data), tempfile.TemporaryFile(), open("/dev/zero", "rb", 0)
file.write(data)
file.flush()
other, null = tempfile.TemporaryFile(), open("/dev/null", "wb", 0)
reader, writer = streams.Reader(source), streams.Writer(null)
room, large = bytearray(5000), bytearray(3 << 20)

def rewound(*files):
    for one in files:
        one.seek(0)

def copy(src, dst, again):
    rewound(*again)
    streams.copy(src, dst)

def limited(src, dst, again):
    rewound(*again)
    assert streams.copy(src, dst, limit=700_000) == 700_000

def lines():
    reader.seek(0)
    reader.readinto(room)
    reader.readinto1(room)
    reader.readinto(large)

def writes():
    for _ in range(300):
        writer.write(room)
    writer.write(large)
    writer.flush()

operations = {
    "memory to memory": lambda: copy(source, target, (source, target)),
    "memory to device": lambda: copy(source, null, (source,)),
    "file to memory": lambda: copy(file, target, (file, target)),
    "memory to file": lambda: copy(source, other, (source, other)),
    "file to file": lambda: copy(file, other, (file, other)),
    "so much of memory": lambda: limited(source, target, (source, target)),
    "so much of a file": lambda: limited(file, other, (file, other)),
    "so much of a device": lambda: limited(raw, target, (target,)),
    "Reader.readinto": lines,
    "Writer.write": writes,
}
for name, operation in operations.items():
    for _ in range(3):
        operation()
    before = count()
    for _ in range(5):
        operation()
    print(name, count() - before, sep=": ")
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the counter")
    folder = tmp_path_factory.mktemp("counter")
    library = folder / "counter.so"
    built = subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, COUNTER], capture_output=True)
    if built.returncode:
        pytest.skip("the counter does not compile here")
    try:
        ctypes.CDLL(None).__libc_malloc  # noqa: B018
    except AttributeError:
        pytest.skip("another C library than glibc")
    return library


def test_malloc_is_not_called(counter: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(counter)}
    done = subprocess.run([sys.executable, "-c", OPERATIONS], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    counts = dict(line.split(": ") for line in done.stdout.splitlines())
    assert len(counts) == 10
    assert {name: count for name, count in counts.items() if count != "0"} == {}


def files() -> dict[str, Callable[[], object]]:
    data = bytes(8 << 20)
    source, target = io.BytesIO(data), io.BytesIO(data)
    reader, room = streams.Reader(io.BytesIO(data)), bytearray(3000)
    writer = streams.Writer(io.BytesIO(data))
    return {
        "copy": lambda: (source.seek(0), target.seek(0), streams.copy(source, target)),
        "read": lambda: (reader.seek(0), [reader.readinto(room) for _ in range(1000)].clear()),
        "short writes": lambda: streams.Writer(Short(most=1000), chunk=100).write(data[:10_000]),
        "write": lambda: (writer.seek(0), [writer.write(room) for _ in range(1000)].clear()),
    }


@pytest.mark.parametrize("name", files())
def test_python_allocates_no_more_than_the_objects_of_a_call(name: str) -> None:
    operation = files()[name]
    tracemalloc.start()
    try:
        for _ in range(10):
            operation()
        growth, peaks = [], []
        # The interpreter fills its free lists for a while. What an operation leaves behind it leaves every time.
        for _ in range(10 if name == "copy" else 100):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for _ in range(5):
                operation()
            after, peak = tracemalloc.get_traced_memory()
            growth.append(after - before)
            peaks.append(peak - before)
    finally:
        tracemalloc.stop()
    # Without the lock the interpreter gives some things back later.
    assert min(growth) < (150 if LOCKED else 2000)
    assert max(peaks) < 64_000
