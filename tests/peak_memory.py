"""How much memory a piece of work takes at most, wherever it takes it from."""

from collections.abc import Callable

import gabion
from gabion.cli.tour import machine


def peak_of(work: Callable[[], object]) -> int:
    """Bytes by which the process grew at most while `work` ran; nothing is warm when it begins."""
    gabion.memory.trim()
    gabion.memory.trim_malloc()
    machine.forget_peak()
    before = machine.resident_bytes()
    work()
    return machine.peak_resident_bytes() - before
