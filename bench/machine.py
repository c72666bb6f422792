"""What a run says about the machine, and how much memory a process holds."""

from __future__ import annotations

import gc
import os
import platform
import sys
from pathlib import Path


def _line_of(path: str, start: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(start)), "")


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _kibibytes(path: str, start: str) -> int:
    return int((_line_of(path, start) or "0").split()[0]) * 1024


def describe() -> dict:
    """The facts that belong beside every figure."""
    return {
        "cpu": _line_of("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": _kibibytes("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "huge_pages": _text_of("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load_at_start": round(os.getloadavg()[0], 2),
        "python": sys.version.split()[0],
        "gc_threshold": list(gc.get_threshold()),
    }


def resident_bytes() -> int:
    """Resident memory of this process, exact to the page.

    ``smaps_rollup`` is counted when it is read; ``statm`` and ``VmRSS`` lag behind by per-processor counters.
    """
    resident = _kibibytes("/proc/self/smaps_rollup", "Rss")
    if not resident:
        raise OSError("/proc/self/smaps_rollup gives no Rss: memory rows need Linux 4.14 or later")
    return resident


def available_bytes() -> int:
    """Memory that the system can still hand out without swapping."""
    return _kibibytes("/proc/meminfo", "MemAvailable")
