"""The interpreter ends while daemon threads are in the midst of calls that run Python code."""

from collections.abc import Callable

import pytest

# What the threads do again and again: `run` gives the interpreter away, so that its end finds some of them there.
BEFORE = """
import io, threading, time
import gabion, gabion.memory, gabion.streams

def run():
    for _ in range(200): pass
    time.sleep(0)

class File:
    def __init__(self): self.reads = 0
    def readinto(self, buffer):
        run()
        self.reads += 1
        buffer[:10] = b"\\n234567890"
        return 10 if self.reads % 9 else 0
    def write(self, data): run(); return len(data)
    def seek(self, *where): run(); return 5
    def tell(self): run(); return 5
    def seekable(self): run(); return True
    def flush(self): run()
    def close(self): run()
    def fileno(self): run(); raise OSError
    @property
    def name(self): run(); return "name"
    @property
    def closed(self): run(); return False

class Number:
    def __index__(self): run(); return 3

class Stored:
    def __getstate__(self): run(); return 1
    def __setstate__(self, state): run()

class Watched:
    def __init__(self): self.me = self
    def __del__(self): run()

def garbage(work):
    Watched()
    return work()

cache = gabion.Cache("4 MiB")
listened = gabion.Cache("1 MiB")
listened.on_evict(lambda *entry: run())
pile = gabion.Pile()
lists = pile.put([[n, {n: (n,)}] for n in range(50)])
numbers = iter(range(1 << 40))
"""

# Called for ever, by a thread each.
CALLS = {
    "streams": [
        "gabion.streams.Reader(File()).readline()",
        "gabion.streams.Reader(File()).seek(3)",
        "gabion.streams.Reader(File()).tell()",
        "gabion.streams.Reader(File()).name",
        "gabion.streams.Reader(File()).close()",
        "gabion.streams.Writer(File(), chunk=10).write(b'x' * 100)",
        "gabion.streams.Writer(File(), chunk=10).flush()",
        "gabion.streams.copy(File(), File())",
        "gabion.streams.copy(io.BytesIO(b'stone' * 100), File(), chunk=10)",
    ],
    "images": [
        "gabion.Image.new('L', (2, 9)).process_rows(lambda y, row: run())",
        "gabion.Image.new('RGB', (Number(), Number()))",
        "gabion.Image.new('RGB', (20, 20)).save(File(), format='PNG')",
        "gabion.Image.open(File())",
    ],
    "caches": [
        "(cache.put('a', Stored()), cache.get('a'))",
        "(cache.put('b', Stored()), cache.change('b', lambda value: (run(), Stored())[1]))",
        "cache.get_many(run() or key for key in 'ab')",
        "cache.get_or_put(next(numbers), lambda: (run(), Stored())[1])",
        "listened.put(next(numbers), bytes(30_000))",
    ],
    "memory": [
        "gabion.memory.rent(Number())",
        "gabion.memory.rent_group('1 MiB', row_bytes=1000).row(Number())",
    ],
    "the collector": ["garbage(lambda: pile.get(lists))", "garbage(lambda: pile.get(lists))"],
}

AFTER = """
def forever(call):
    while True:
        try:
            eval(call)
        except (gabion.GabionError, OSError, ValueError):
            pass

for call in calls: threading.Thread(target=forever, args=(call,), daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.parametrize("of", CALLS)
def test_the_interpreter_ends_in_silence(script: Callable[..., str], of: str) -> None:
    more = "import gc; gc.set_threshold(20)\n" if of == "the collector" else ""
    script(f"{BEFORE}\n{more}calls = {CALLS[of]!r}\n{AFTER}")
