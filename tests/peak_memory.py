"""How much memory a piece of work takes at most, wherever it takes it from."""

from collections.abc import Callable
from pathlib import Path

import pytest

import gabion


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def peak_of(work: Callable[[], object]) -> int:
    """Bytes by which the process grew at most while `work` ran; nothing is warm when it begins."""
    gabion.memory.trim()
    gabion.memory.trim_malloc()
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("the system does not say how large the process was")
    before = _status("VmRSS:")
    work()
    return _status("VmHWM:") - before
