"""The runs of the `arenas` benchmark, each in its own process; see ``arenas.py`` for what is compared with what."""

from __future__ import annotations

import contextlib
import gc
import queue
import statistics
import sys
import threading
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import machine

MIB = 1 << 20
IMAGES = 1024
SIZE = (100, 100)
# One round before those that count: arenas, thread states and code are made once in a process.
_WARM_UP = 1


def _of_gabion() -> Callable[[], tuple[Any, Any]]:
    import gabion

    new = gabion.Image.new

    def step() -> tuple[Any, Any]:
        image = new("RGB", SIZE)
        return image, image.convert("CMYK")

    return step


def _of_pillow() -> Callable[[], tuple[Any, Any]]:
    from PIL import Image

    new = Image.new

    def step() -> tuple[Any, Any]:
        image = new("RGB", SIZE)
        return image, image.convert("CMYK")

    return step


SUBJECTS = {"gabion": _of_gabion, "pillow": _of_pillow}


def _keep(step: Callable[[], tuple[Any, Any]], mine: queue.SimpleQueue, next_one: queue.SimpleQueue) -> None:
    """Pillow's own loop: what is made is dropped by the thread that made it."""
    for _ in range(IMAGES):
        step()


def _hand_over(step: Callable[[], tuple[Any, Any]], mine: queue.SimpleQueue, next_one: queue.SimpleQueue) -> None:
    """The next thread in the ring drops what this one made, and this one ends while some of it is alive."""
    for _ in range(IMAGES):
        next_one.put(step())
        with contextlib.suppress(queue.Empty):
            mine.get_nowait()


WAYS = {"keep": _keep, "hand-over": _hand_over}


def contention(subject: str, way: str, threads: int, rounds: int) -> dict:
    """Have that many threads, new in each round, make and convert images: the slowest, mean and fastest of a round."""
    step, work = SUBJECTS[subject](), WAYS[way]
    _check(step()[1])
    slowest, mean, fastest = [], [], []
    cpu, resident, in_use = 0.0, 0, 0
    for turn in range(_WARM_UP + rounds):
        times, used = _round(step, work, threads)
        if turn < _WARM_UP:
            resident, in_use = _left(subject)
            continue
        cpu += used
        slowest.append(max(times))
        mean.append(statistics.mean(times))
        fastest.append(min(times))
    resident_after, in_use_after = _left(subject)
    metrics = {
        "round_max": [statistics.median(slowest) * 1000, "ms"],
        "round_mean": [statistics.median(mean) * 1000, "ms"],
        "round_min": [statistics.median(fastest) * 1000, "ms"],
        "cpu_per_image": [cpu / (rounds * threads * IMAGES) * 1e6, "µs"],
        "rss_left": [(resident_after - resident) / MIB, "MiB"],
    }
    if subject == "gabion":
        metrics["bytes_left"] = [in_use_after - in_use, "B"]
    return {"metrics": metrics, "gil": getattr(sys, "_is_gil_enabled", lambda: True)()}


def _round(step: Callable, work: Callable, threads: int) -> tuple[list[float], float]:
    barrier = threading.Barrier(threads)
    ring = [queue.SimpleQueue() for _ in range(threads)]
    times: list[float] = []
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait()
            began = perf_counter()
            work(step, ring[number], ring[(number + 1) % threads])
            times.append(perf_counter() - began)
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    cpu = process_time()
    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]
    return times, process_time() - cpu


def _check(image: Any) -> None:
    if image.size != SIZE or image.mode != "CMYK":
        raise AssertionError(f"not a CMYK image of {SIZE}: {image!r}")


def _left(subject: str) -> tuple[int, int]:
    """What is resident, and what the pool has lent, when all threads have ended and all images are gone."""
    gc.collect()
    if subject != "gabion":
        return machine.resident_bytes(), 0
    import gabion.memory

    gabion.memory.trim(all=True)
    return machine.resident_bytes(), gabion.memory.stats().in_use
