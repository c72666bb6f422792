"""Requests to caches: recorded ones from the folder that ``GABION_DATA`` names, and generated ones.

``GABION_DATA/traces`` holds the traces as their authors publish them: ``OLTP.lis`` (lines of first key and count;
Megiddo and Modha, ARC, FAST 2003) and the cache2k benchmarks' ``*.trace`` (big-endian numbers of 32 bits), compressed
by zstd or xz, or not at all.
"""

from __future__ import annotations

import lzma
import os
import random
import subprocess
from array import array
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path

# Trace to the file, and to the sizes that a picture shows, in entries.
TRACES: dict[str, tuple[str, tuple[int, ...]]] = {
    "OLTP": ("OLTP.lis", (250, 500, 1000, 2000, 5000, 10000, 15000)),
    "web12": ("cache2k_web12.trace", (150, 300, 600, 1500, 3000)),
    "orm-busy": ("cache2k_orm-busy.trace", (625, 1250, 2500, 5000, 10000)),
}
# Where there are no recorded ones: a Zipf law whose favourites move on, and scans in between.
GENERATED = "generated"
GENERATED_SIZES = (250, 500, 1000, 2000, 5000, 10000)


def available() -> dict[str, tuple[int, ...]]:
    """Name and sizes of each trace that is here; the generated one where there is none."""
    found = {name: sizes for name, (file, sizes) in TRACES.items() if _find(file)}
    return found or {GENERATED: GENERATED_SIZES}


def _find(file: str) -> Path | None:
    folder = os.environ.get("GABION_DATA")
    if not folder:
        return None
    paths = [Path(folder) / "traces" / (file + ending) for ending in ("", ".zst", ".xz")]
    return next((path for path in paths if path.is_file()), None)


def _read(path: Path) -> bytes:
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", str(path)], check=True, capture_output=True).stdout
    return path.read_bytes()


def requests(trace: str, most: int | None = None) -> list[int]:
    """The keys that a trace asks for, ``most`` at most. ``zipf-S-N`` is N keys by a Zipf law with exponent S."""
    if trace.startswith("zipf-"):
        exponent, keys = trace.split("-")[1:]
        return zipf(float(exponent), int(keys), most or 4 * int(keys), 7)
    if trace == GENERATED:
        return _generated(most or 1_000_000)
    path = _find(TRACES[trace][0])
    if path is None:
        raise FileNotFoundError(f"{TRACES[trace][0]} is not in GABION_DATA/traces")
    data = _read(path)
    if path.name.startswith("OLTP"):
        lines = (line.split() for line in data.splitlines() if line.strip())
        found = [key for words in lines for key in range(int(words[0]), int(words[0]) + int(words[1]))]
        return found[:most]
    numbers = array("i", data)
    numbers.byteswap()
    return numbers.tolist()[:most]


def zipf(exponent: float, keys: int, count: int, seed: int) -> list[int]:
    """Draw keys below ``keys``; the n-th most likely has a weight of n to the power of ``-exponent``."""
    chance = random.Random(seed)
    sums = list(accumulate(rank**-exponent for rank in range(1, keys + 1)))
    total = sums[-1]
    # A multiplication by a number without common factors scatters the likely keys.
    return [bisect_left(sums, chance.random() * total) * 7919 % keys for _ in range(count)]


def _generated(count: int) -> list[int]:
    chance = random.Random(11)
    draws = zipf(0.9, 100_000, count, 3)
    made: list[int] = []
    while len(made) < count:
        at = len(made)
        if chance.random() < 0.0002:
            start = chance.randrange(1 << 20, 1 << 24)
            made += range(start, start + 2000)
        else:
            made.append((draws[at] + at // 100_000 * 500) % 100_000)
    return made[:count]
