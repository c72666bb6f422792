"""What was measured in one store."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Pauses:
    """The collector's automatic runs while objects were put, got and replaced; no Python code runs during one."""

    at: list[float]  # seconds since the start
    ms: list[float]
    seconds: float  # of the whole measurement

    @property
    def longest_ms(self) -> float:
        return max(self.ms, default=0.0)

    @property
    def share(self) -> float:
        """Part of all time that was spent in the collector, 0 to 1."""
        return sum(self.ms) / 1000 / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Result:
    """One store's figures. Bytes are resident memory above that of the empty process, per object."""

    store: str
    objects: int
    replaced: int
    put_per_s: float
    get_per_s: float
    replace_per_s: float
    bytes_per_object: float
    bytes_per_object_after: float  # after the replacements
    collect_ms: float  # one full collection, asked for at the end
    pauses: Pauses


@dataclass(frozen=True)
class Operation:
    """One NumPy expression on arrays of one size; what an execution of it takes, at the median and on average."""

    expression: str
    mebibytes: int
    ms: float
    faults: float  # page faults


@dataclass(frozen=True)
class ArraysResult:
    """NumPy's arithmetic with one source of memory."""

    memory: str  # "stock" or "pooled"
    operations: list[Operation]
    peak_bytes: int  # resident, above the process before its first array
    idle_bytes: int  # the same when all arrays are gone and two trim periods have passed
