"""NumPy's arithmetic with fresh or with warm memory, in a process of its own.

`python -P -m gabion.cli.tour.arrays stock|pooled SECONDS` prints JSON lines: progress, then the result.
"""

import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from gabion.cli.tour.machine import resident_bytes
from gabion.cli.tour.result import ArraysResult, Operation

LABELS = {"stock": "NumPy", "pooled": "NumPy with gabion.numpy"}
MEBIBYTES = (4, 32, 128)
LEAST_TIMES = 4
TRIM_PERIOD = 0.25


def expressions(np: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """What is calculated, by how a program would write it."""
    return {"a + b": lambda a, b: a + b, "a * b + a": lambda a, b: a * b + a, "np.exp(a)": lambda a, b: np.exp(a)}


def measured(memory: str, seconds: float, tell: Callable[[dict[str, Any]], None]) -> ArraysResult:
    """Calculate for about `seconds` per expression and size."""
    import numpy as np

    import gabion.memory
    import gabion.numpy

    before = resident_bytes()
    if memory == "pooled":
        gabion.memory.configure(trim_period=TRIM_PERIOD)
        gabion.numpy.install()
    operations = []
    peak = before
    for count, (text, mebibytes, calculate, a, b) in enumerate(_cases(np)):
        tell({"part": count / (len(MEBIBYTES) * len(expressions(np))), "phase": f"{text}, {mebibytes} MiB"})
        operations.append(_timed(text, mebibytes, partial(calculate, a, b), seconds))
        peak = max(peak, resident_bytes())
    del a, b
    time.sleep(2.5 * TRIM_PERIOD)
    return ArraysResult(memory, operations, peak - before, resident_bytes() - before)


def _cases(np: Any) -> Iterator[tuple[str, int, Callable[[Any, Any], Any], Any, Any]]:
    for mebibytes in MEBIBYTES:
        for text, calculate in expressions(np).items():
            a = np.linspace(0.0, 1.0, mebibytes << 17)
            yield text, mebibytes, calculate, a, a[::-1].copy()


def _timed(text: str, mebibytes: int, calculate: Callable[[], Any], seconds: float) -> Operation:
    calculate()  # the first execution warms whatever can be warm
    times: list[float] = []
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    end = perf_counter() + seconds
    while len(times) < LEAST_TIMES or perf_counter() < end:
        began = perf_counter()
        calculate()
        times.append(perf_counter() - began)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    return Operation(text, mebibytes, median(times) * 1000, faults / len(times))


def main() -> int:
    """Measure what the command line names; without NumPy, say so."""

    def tell(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts both processes; the parent ends this one
    try:
        import numpy  # noqa: F401
    except ImportError:
        tell({"missing": "numpy"})
        return 0
    tell({"result": asdict(measured(sys.argv[1], float(sys.argv[2]), tell))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
