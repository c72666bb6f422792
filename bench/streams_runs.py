"""The runs of the `streams` benchmark, each in its own process; see ``streams.py`` for what is compared with what.

An operation is prepared once, runs some times to get warm, and is then timed. Times are CPU time of the process, so the
system's part and that of a thread at the other end count, and other programs do not.
"""

from __future__ import annotations

import ctypes
import functools
import io
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

WARM_UP = 3
# Seconds that an operation is repeated, and how often at least.
SECONDS, LEAST = 0.3, 5
STEP = 256 << 10
Operation = Callable[[], Any]


def run(kind: str, args: dict, counter: str | None) -> dict:
    """Time the operation that ``PREPARE[kind]`` makes of ``args``; count what it allocates where there is a counter."""
    _age_malloc()
    operation, check, per = PREPARE[kind](**args)
    for _ in range(WARM_UP):
        operation()
    times: list[float] = []
    while len(times) < LEAST or sum(times) < SECONDS:
        began = process_time()
        operation()
        times.append(process_time() - began)
    check()
    unit, scale = ("ns", 1e9) if per > 1 else ("ms", 1e3)
    metrics = {"cpu_per_op": [statistics.median(times) / per * scale, unit]}
    if counter:
        command = [sys.executable, __file__, json.dumps({"kind": kind, "args": args})]
        done = subprocess.run(
            command, env={**os.environ, "LD_PRELOAD": counter}, capture_output=True, text=True, check=True
        )
        metrics.update(json.loads(done.stdout))
    return {"metrics": metrics}


def _age_malloc() -> None:
    """Bring malloc where it is in any process that has worked for a while, whatever the subject did to prepare itself.

    glibc maps large memory anew each time until it was first given some back, and keeps it from then on. Else a BytesIO
    of 9 MB would be twice as fast for a subject that happens to have freed something before.
    """
    bytearray(24 << 20)


def count(kind: str, args: dict) -> dict:
    """Calls of malloc by one operation once it is warm, and the most that Python's own allocators held meanwhile."""
    operation, _, _ = PREPARE[kind](**args)
    found = {"allocations": [_malloc_calls(operation), "calls"]}
    if kind == "load" and args["subject"] == "gabion":
        alone, _, _ = PREPARE[kind](**{**args, "subject": "floor"})
        found["allocations_beside"] = [found["allocations"][0] - _malloc_calls(alone), "calls"]
    tracemalloc.start()
    for _ in range(WARM_UP):
        operation()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    operation()
    found["traced_peak"] = [tracemalloc.get_traced_memory()[1] - held, "B"]
    return found


def _malloc_calls(operation: Operation) -> int:
    calls = ctypes.CDLL(None).malloc_calls
    calls.restype = ctypes.c_long
    for _ in range(WARM_UP):
        operation()
    before = calls()
    operation()
    return calls() - before


# --- copies ---------------------------------------------------------------------------------------


def _content(size: int) -> bytes:
    return (bytes(range(256)) * 17 + b"gabion") * (size // 4358) + bytes(size % 4358)


def _file(content: bytes = b"") -> Any:
    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    file.write(content)
    file.seek(0)
    return file


class _Drain:
    """The end of a pipe or a socket, whose other end is read by a thread until it is closed; it counts."""

    def __init__(self, kind: str) -> None:
        if kind == "pipe":
            read, write = os.pipe()
            self.end = os.fdopen(write, "wb", buffering=0)
        else:
            self.socket, other = socket.socketpair()
            read = other.detach()
            self.end = self.socket.makefile("wb", buffering=0)
        self.bytes = 0
        threading.Thread(target=self._read, args=(read,), daemon=True).start()

    def _read(self, descriptor: int) -> None:
        room = bytearray(1 << 20)
        while count := os.readv(descriptor, [room]):
            self.bytes += count


def _whole(source: Any, target: Any) -> None:
    target.write(source.read())


def _gabion(source: Any, target: Any, chunk: int | None = None) -> None:
    from gabion import streams

    streams.copy(source, target, chunk=chunk)


_WARM = memoryview(bytearray(STEP))


def _through_warm(source: Any, target: Any) -> None:
    while count := source.readinto(_WARM):
        target.write(_WARM[:count])


def _by_system(source: Any, target: Any) -> None:
    left, at = os.fstat(source.fileno()).st_size, 0
    while left > at:
        at += os.sendfile(target.fileno(), source.fileno(), at, left - at)


COPIES = {"gabion": _gabion, "copyfileobj": shutil.copyfileobj, "naive": _whole}
# The least that a copy takes: bytes that are in a warm buffer already are written, or read there.
FLOORS: dict[tuple[str, str], Callable[[Any, Any], Any]] = {
    ("file", "file"): _by_system,
    ("file", "pipe"): _by_system,
    ("file", "socket"): _by_system,
    ("file", "memory"): lambda source, target: source.readinto(target.getbuffer()),
    ("memory", "file"): lambda source, target: target.write(source.getbuffer()),
    ("memory", "memory"): lambda source, target: target.write(source.getbuffer()),
    ("object", "object"): _through_warm,
}


class _Object:
    """A file object of somebody's own, in Python."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def read(self, size: int = -1) -> bytes:
        return self.file.read(size)

    def readinto(self, buffer: Any) -> int:
        return self.file.readinto(buffer)

    def write(self, data: Any) -> int:
        return self.file.write(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


def _source(kind: str, content: bytes) -> Any:
    if kind == "memory":
        made = io.BytesIO()
        made.write(content)
        return made
    return _Object(_file(content)) if kind == "object" else _file(content)


def copies(
    subject: str, source: str, target: str, size: int, chunk: int | None = None
) -> tuple[Operation, Operation, int]:
    """A copy from a ``source`` of that many bytes to a ``target`` that is there: bytes are overwritten."""
    content = _content(size)
    src = _source(source, content)
    drain = _Drain(target) if target in ("pipe", "socket") else None
    dst = drain.end if drain else _source(target, content[:0] if target == "file" else bytes(size))
    copy = FLOORS[source, target] if subject == "floor" else COPIES[subject]
    if chunk:
        copy = functools.partial(_gabion, chunk=chunk)
    runs = 0

    def operation() -> None:
        nonlocal runs
        src.seek(0)
        if not drain:
            dst.seek(0)
        copy(src, dst)
        runs += 1

    def check() -> None:
        if drain:
            dst.close()
            if target == "socket":
                drain.socket.close()
            while drain.bytes < runs * size:
                threading.Event().wait(0.01)
            found = drain.bytes == runs * size
        else:
            dst.seek(0)
            found = dst.read() == content
        if not found:
            raise AssertionError(f"{subject} did not copy what there is")

    return operation, check, 1


# --- small reads and writes -----------------------------------------------------------------------

CALLS = 100_000
LINE = b"x" * 79 + b"\n"


def small(subject: str, call: str) -> tuple[Operation, Operation, int]:
    """That many calls of one method, on a real file and through a buffer of ``subject``."""
    content = LINE * (CALLS + 1)
    write = call == "write(100)"
    raw = open(os.devnull, "wb", buffering=0) if write else _file(content)  # noqa: SIM115
    if subject == "gabion":
        from gabion import streams

        buffered: Any = (streams.Writer if write else streams.Reader)(raw)
    else:
        size = io.DEFAULT_BUFFER_SIZE if subject == "io" else STEP
        buffered = (io.BufferedWriter if write else io.BufferedReader)(raw, size)
    loop = LOOPS[call]
    last: list[Any] = []

    def operation() -> None:
        if not write:
            buffered.seek(0)
        last[:] = [loop(buffered)]

    def check() -> None:
        if last != [EXPECTED[call]]:
            raise AssertionError(f"{subject}, {call}: {last}")

    return operation, check, CALLS


def _read(file: Any) -> bytes:
    read, result = file.read, b""
    for _ in range(CALLS):
        result = read(50)
    return result


def _readline(file: Any) -> bytes:
    readline, result = file.readline, b""
    for _ in range(CALLS):
        result = readline()
    return result


def _readinto(file: Any) -> bytes:
    readinto, room = file.readinto, bytearray(50)
    for _ in range(CALLS):
        readinto(room)
    return bytes(room)


def _iterate(file: Any) -> int:
    lines = 0
    for _ in file:
        lines += 1
    return lines


def _write(file: Any) -> int:
    write, data, taken = file.write, LINE[:50] * 2, 0
    for _ in range(CALLS):
        taken += write(data)
    return taken


LOOPS: dict[str, Callable[[Any], Any]] = {
    "read(50)": _read,
    "readline": _readline,
    "readinto(50)": _readinto,
    "iteration": _iterate,
    "write(100)": _write,
}
_LAST = (LINE * CALLS)[(CALLS - 1) * 50 : CALLS * 50]
EXPECTED = {
    "read(50)": _LAST,
    "readline": LINE,
    "readinto(50)": _LAST,
    "iteration": CALLS + 1,
    "write(100)": CALLS * 100,
}


# --- images ---------------------------------------------------------------------------------------


def _picture(megapixels: float) -> Any:
    """Soft shapes with some grain."""
    import random

    import gabion

    random.seed(1)
    width = int((megapixels * 1e6 * 4 / 3) ** 0.5)
    size = (width, width * 3 // 4)
    coarse = gabion.Image.new("RGB", (size[0] // 8, size[1] // 8))
    for row in coarse.rows():
        row[:] = random.randbytes(len(row))
    return coarse.resize(size)


def load(subject: str, format: str, megapixels: float, source: str) -> tuple[Operation, Operation, int]:
    """A picture decoded as a whole from a file object, or, for the naive way, from the bytes of its whole content."""
    import gabion

    content = io.BytesIO()
    picture = _picture(megapixels)
    picture.save(content, format=format, quality=90)
    src = _source(source, content.getvalue())
    sizes: list[tuple[int, int]] = []

    def own() -> Any:
        return gabion.Image.open(src)

    def naive() -> Any:
        return gabion.Image.open(src.read())

    def pillow() -> Any:
        from PIL import Image

        image = Image.open(src)
        image.load()
        return image

    def in_memory(bytes_of: bytes = content.getvalue()) -> Any:
        return gabion.Image.open(bytes_of)

    opened = {"gabion": own, "naive": naive, "Pillow": pillow, "floor": in_memory}[subject]

    def operation() -> None:
        src.seek(0)
        with opened() as image:
            sizes[:] = [image.size]

    def check() -> None:
        if sizes != [picture.size]:
            raise AssertionError(f"{subject} has {sizes}")

    return operation, check, 1


def save(subject: str, format: str, megapixels: float, target: str) -> tuple[Operation, Operation, int]:
    """A picture encoded into a file object that is there, or, for the naive way, into memory that is then written."""
    import gabion

    picture = _picture(megapixels)
    dst = _source(target, b"")
    options = {"quality": 90, "compression": "none"} if subject != "Pillow" else {"quality": 90, "compress_level": 0}
    # Made and kept for each subject: else malloc maps the BytesIO anew each time for all but Pillow's, and what is
    # compared is page faults.
    other = picture.to_pillow().copy()
    other.load()

    def own() -> None:
        picture.save(dst, format=format, **options)

    def naive() -> None:
        whole = io.BytesIO()
        picture.save(whole, format=format, **options)
        dst.write(whole.getvalue())

    def pillow() -> None:
        other.save(dst, format=format, **options)

    saved = {"gabion": own, "naive": naive, "Pillow": pillow}[subject]

    def operation(_kept: Any = other) -> None:
        dst.seek(0)
        dst.truncate()
        saved()

    def check() -> None:
        dst.seek(0)
        with gabion.Image.open(dst) as again:
            if again.size != picture.size:
                raise AssertionError(f"{subject} saved {again.size}")

    return operation, check, 1


def rust(binary: str, subject: str, way: str, format: str, megapixels: float, place: str) -> dict:
    """The same through a Rust reader or writer: what ``gabion-bench`` prints."""
    with tempfile.NamedTemporaryFile(suffix=f".{format.lower()}") as file:
        _picture(megapixels).save(file, format=format, quality=90)
        file.flush()
        command = [binary, "streams", subject, way, file.name, place, str(SECONDS)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


PREPARE: dict[str, Callable[..., tuple[Operation, Operation, int]]] = {
    "copy": copies,
    "small": small,
    "load": load,
    "save": save,
}

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    print(json.dumps(count(**json.loads(sys.argv[1]))))
