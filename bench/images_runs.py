"""The runs of the `images` benchmark, each in its own process; see ``images.py`` for what is compared with what."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gc
import hashlib
import itertools
import random
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import machine
from images_photos import Photo, load, size_of
from images_subjects import SUBJECTS

MIB = 1 << 20
# The service's pictures: no larger than this, in sizes between these, so many of each thread's last answers kept.
_LARGEST_MEGAPIXELS = 25
_SIDES = (64, 1024)
_KEPT = 64
# How often resident memory is read.
_READING_SECONDS = 0.1


def _thumbnail(subject: Any, photo: Photo, side: int, full: bool) -> bytes:
    return subject.saved(subject.small(photo.data, photo.within(side), full))


def _check(photo: Photo, side: int, data: bytes) -> None:
    if not data.startswith(b"\xff\xd8") or not photo.is_within(size_of(data), side):
        raise AssertionError(f"{photo.name}: not a JPEG of {photo.within(side)}, but {data[:4]!r}, {size_of(data)}")


def _in_threads(count: int, work: Callable[[threading.Barrier], None]) -> tuple[float, float]:
    """Run ``work`` in that many threads that start together; return the time that passed and the CPU time."""
    barrier = threading.Barrier(count + 1)
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work(barrier)
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    began, cpu = perf_counter(), process_time()
    with contextlib.suppress(threading.BrokenBarrierError):
        barrier.wait()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return perf_counter() - began, process_time() - cpu


def _forget_peak() -> None:
    """Make the peak of resident memory what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def rate(
    subject: str, folder: str, kind: str, full: bool, side: int, threads: int, passes: int, limit: int | None = None
) -> dict:
    """Make thumbnails of all photographs, ``passes`` times over, from that many threads; ``limit`` bounds the pool."""
    photos = load(folder, kind)
    maker = SUBJECTS[subject](threads)
    if limit:
        import gabion.memory

        gabion.memory.configure(total_limit=limit)
    smallest = photos[-1]
    _check(smallest, side, _thumbnail(maker, smallest, side, full))
    jobs = iter([photo for _ in range(passes) for photo in photos])
    lock = threading.Lock()
    last: dict[str, bytes] = {}

    def work(barrier: threading.Barrier) -> None:
        barrier.wait()
        while True:
            with lock:
                photo = next(jobs, None)
            if photo is None:
                return
            last[photo.name] = _thumbnail(maker, photo, side, full)

    gc.collect()
    _forget_peak()
    idle = machine.resident_bytes()
    lasted, cpu = _in_threads(threads, work)
    peak = _peak_bytes()
    for photo in photos:
        _check(photo, side, last[photo.name])
    megapixels = sum(photo.megapixels for photo in photos) * passes
    metrics = {
        "megapixels_per_s": [megapixels / lasted, "MP/s"],
        "cpu_per_gigapixel": [cpu / megapixels * 1000, "s"],
        "peak_rss": [max(0, peak - idle) / MIB, "MiB"],
    }
    if limit:
        metrics["mapped_peak"] = [gabion.memory.stats().peak / MIB, "MiB"]
    return {"metrics": metrics}


def quality(subject: str, folder: str, full: bool, side: int, cache: str, samples: list[str]) -> dict:
    """How near the thumbnails are to Lanczos of the full picture, before and after they were saved."""
    maker = SUBJECTS[subject](1)
    before, after, pictures = {}, {}, {}
    for photo in load(folder, "baseline"):
        # Made twice: libvips goes over a picture once, as somebody asks for its pixels.
        pixels = maker.pixels(maker.small(photo.data, photo.within(side), full))
        saved = _thumbnail(maker, photo, side, full)
        _check(photo, side, saved)
        # A side that lies halfway may be rounded either way.
        reference = _reference(photo, size_of(saved), Path(cache))
        before[photo.name] = _psnr(reference, pixels)
        after[photo.name] = _psnr(reference, _decoded(saved))
        if photo.name in samples:
            pictures[photo.name] = base64.b64encode(saved).decode()
    return {
        "metrics": {
            "psnr": [statistics.median(before.values()), "dB"],
            "psnr_least": [min(before.values()), "dB"],
            "psnr_saved": [statistics.median(after.values()), "dB"],
        },
        "psnr_of": before,
        "pictures": pictures,
    }


def _decoded(data: bytes) -> Any:
    import numpy
    from PIL import Image

    return numpy.asarray(Image.open(BytesIO(data)).convert("RGB"))


def _psnr(one: Any, other: Any) -> float:
    import numpy

    if one.shape != other.shape:
        raise AssertionError(f"a thumbnail of {other.shape} for one of {one.shape}")
    error = numpy.mean((one.astype(numpy.float64) - other) ** 2)
    return 99.0 if error == 0 else float(10 * numpy.log10(255**2 / error))


def _reference(photo: Photo, size: tuple[int, int], cache: Path) -> Any:
    """Lanczos in floating point on every pixel of the file; kept for the other subjects of the run."""
    import numpy

    name = hashlib.sha256(photo.data).hexdigest()[:24]
    width, height = size
    path = cache / f"{name}-{width}x{height}.npy"
    if path.exists():
        return numpy.load(path)
    pixels = _decoded(photo.data)
    rows = _lanczos(pixels.shape[0], height) @ pixels.reshape(pixels.shape[0], -1).astype(numpy.float32)
    rows = rows.reshape(height, pixels.shape[1], 3)
    made = numpy.einsum("xw,hwc->hxc", _lanczos(pixels.shape[1], width), rows, optimize=True)
    made = numpy.clip(made, 0, 255)
    partial = path.with_suffix(".part.npy")
    numpy.save(partial, made)
    partial.rename(path)
    return made


def _lanczos(old: int, new: int) -> Any:
    """The weights of each old sample in each new one."""
    import numpy

    scale = old / new
    stretch = max(scale, 1.0)
    centers = (numpy.arange(new) + 0.5) * scale
    x = (numpy.arange(old)[None, :] + 0.5 - centers[:, None]) / stretch
    weights = numpy.where(numpy.abs(x) < 3, numpy.sinc(x) * numpy.sinc(x / 3), 0)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(numpy.float32)


def service(subject: str, folder: str, threads: int, seconds: float, period: float) -> dict:
    """A service: random photographs in random sizes, half of them decoded in full; then idleness of two periods."""
    photos = [photo for photo in load(folder) if photo.megapixels < _LARGEST_MEGAPIXELS and photo.kind != "png"]
    own, _, untrimmed = subject.partition("-")
    if own == "gabion":
        import gabion.memory

        gabion.memory.configure(trim_period=period)
        if not untrimmed:
            gabion.memory.trim_malloc()
    maker = SUBJECTS[own](threads)
    smallest = min(photos, key=lambda photo: photo.megapixels)
    answered = itertools.count()
    state = {"until": 0.0, "start": 0}
    ready, idle, over = (threading.Barrier(threads + 1) for _ in range(3))
    failed: list[BaseException] = []

    def serve(number: int) -> None:
        try:
            chance = random.Random(number)
            kept: deque[bytes] = deque(maxlen=_KEPT)
            _check(smallest, 64, _thumbnail(maker, smallest, 64, False))
            ready.wait()
            ready.wait()
            while time.monotonic() < state["until"]:
                photo, side = chance.choice(photos), chance.randint(*_SIDES)
                data = _thumbnail(maker, photo, side, chance.random() < 0.5)
                _check(photo, side, data)
                kept.append(data)
                next(answered)
            kept.clear()
            idle.wait()
            over.wait()
        except BaseException as error:
            failed.append(error)
            for barrier in (ready, idle, over):
                barrier.abort()

    started = [threading.Thread(target=serve, args=(number,), daemon=True) for number in range(threads)]
    for thread in started:
        thread.start()
    readings: list[tuple[float, int]] = []
    try:
        ready.wait()
        _give_back(own)
        start = machine.resident_bytes()
        began = time.monotonic()
        state["until"] = began + seconds
        ready.wait()
        _read(readings, began, began + seconds)
        idle.wait()
        gc.collect()
        served = time.monotonic() - began
        _read(readings, began, time.monotonic() + 2 * period)
        # While the threads still live: what they hold goes with them, in a service as well.
        resident = machine.resident_bytes()
        over.wait()
    except threading.BrokenBarrierError:
        pass
    if failed:
        raise failed[0]
    return {
        "metrics": {
            "images_per_s": [next(answered) / served, "img/s"],
            "start_rss": [start / MIB, "MiB"],
            "peak_rss": [max(bytes_ for _, bytes_ in readings) / MIB, "MiB"],
            "idle_rss": [resident / MIB, "MiB"],
            "idle_vs_start": [resident / start, "ratio"],
        },
        "readings": readings,
        "served": served,
    }


def _read(readings: list[tuple[float, int]], began: float, until: float) -> None:
    while (now := time.monotonic()) < until:
        readings.append((round(now - began, 2), machine.resident_bytes()))
        time.sleep(_READING_SECONDS)


def _give_back(subject: str) -> None:
    """Have all idle memory go back to the system, so that everybody starts from the same."""
    gc.collect()
    if subject == "gabion":
        import gabion.memory

        gabion.memory.trim(all=True)
    ctypes.CDLL(None).malloc_trim(0)
