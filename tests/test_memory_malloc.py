"""What malloc keeps of a load that is over: `trim_malloc()`, and what the trimmer does by itself."""

import platform
import subprocess
import sys

import pytest
from patience import HANGS

import gabion.memory as memory

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc's malloc")

# malloc is asked by its name: without a GIL, Python has an allocator of its own for bytes.
_MALLOC = """
import ctypes, sys
from pathlib import Path

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
"""

# A load in a thread that lives on: its heap grows by blocks of 10 kB, and all of them are freed again.
_LOAD = f"""{_MALLOC}
import threading
import gabion.memory

blocks = (ctypes.c_void_p * 2_000)()   # made here, so that it is not the last in the thread's heap

def load() -> None:
    libc.free(libc.malloc(30 << 20))   # glibc learns from it to keep twice as much
    for number in range(len(blocks)):
        blocks[number] = libc.malloc(10_000)
        ctypes.memset(blocks[number], 1, 10_000)
    for block in blocks:
        libc.free(block)
    loaded.set()
    over.wait()

if "trim" in sys.argv:
    gabion.memory.trim_malloc()
loaded, over = threading.Event(), threading.Event()
before = resident()
threading.Thread(target=load).start()
loaded.wait()
print(resident() - before)
over.set()
"""


def left(*arguments: str) -> int:
    done = subprocess.run([sys.executable, "-c", _LOAD, *arguments], check=True, capture_output=True, timeout=HANGS)
    return int(done.stdout)


@glibc
def test_a_load_that_is_over_leaves_little() -> None:
    assert left("trim") < 4 << 20
    assert left() > 15 << 20, "or the test says nothing"


# Gaps within a heap, which malloc keeps for ever if nobody asks it. Then a picture, and waiting.
_GAPS = f"""{_MALLOC}
import io, time
import gabion

gabion.memory.configure(trim_period=0.1, trim_malloc=sys.argv[1] == "trim")
blocks = [libc.malloc(10_000) for _ in range(4_000)]
for block in blocks:
    ctypes.memset(block, 1, 10_000)
for number, block in enumerate(blocks):
    if number % 40:
        libc.free(block)
full = resident()
gabion.Image.new("RGB", (64, 64)).save(io.BytesIO(), format="JPEG")
steps = int(sys.argv[2]) * 100   # not by the clock: the trimmer may have had no time to run
while resident() > full - (30 << 20) and steps > 0:
    time.sleep(0.01)
    steps -= 1
print(full - resident())
"""


@glibc
def test_gaps_go_when_images_rest_unless_they_are_to_stay() -> None:
    def gone(*arguments: str) -> int:
        done = subprocess.run([sys.executable, "-c", _GAPS, *arguments], check=True, capture_output=True, timeout=HANGS)
        return int(done.stdout)

    assert gone("trim", "30") > 30 << 20
    assert gone("keep", "1") < 4 << 20


def test_what_is_no_threshold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"keep=2147483648: malloc's threshold is below 2 GiB"):
        memory.trim_malloc(keep=1 << 31)
    with pytest.raises(ValueError, match="keep=-1: not a size"):
        memory.trim_malloc(keep=-1)
    with pytest.raises(TypeError, match="keep must be an int"):
        memory.trim_malloc(keep=1.5)  # type: ignore[arg-type]


@glibc
def test_text_is_a_size() -> None:
    memory.trim_malloc(keep="1 MiB")
    with pytest.raises(ValueError, match=r"keep=.*: malloc's threshold is below 2 GiB"):
        memory.trim_malloc(keep="2 GiB")
