"""What was measured, part by part."""

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
class Saved:
    """A pile in memory, saved to a file and opened there."""

    bytes: int  # of the disk
    save_ms: float
    open_ms: float


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
    saved: Saved | None = None


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


@dataclass(frozen=True)
class ImagesResult:
    """Thumbnails of the same pictures, made by one library with the same number of threads."""

    library: str  # "gabion" or "pillow"
    made: int
    failed: list[str]  # name and error of each picture that could not be read
    read_bytes: int  # of the files
    threads: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int  # resident, above the process before its first picture

    @property
    def per_s(self) -> float:
        """Pictures a second."""
        return self.made / self.seconds if self.seconds else 0.0

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of processor time for one picture."""
        return self.cpu_seconds * 1000 / self.made if self.made else 0.0


@dataclass(frozen=True)
class Hits:
    """All requests, answered by a cache with one policy and one limit."""

    policy: str
    max_bytes: int
    part: float  # of the bytes that all pages take together
    rate: float  # of the requests, 0 to 1


@dataclass(frozen=True)
class CacheResult:
    """What a cache of pages did with a series of requests."""

    source: str
    requests: int
    pages: int  # different ones
    all_bytes: int  # that a cache takes for all of them
    hits: list[Hits]
    hit_us: float  # one hit, at the median
    # Threads that read and put at one time, and looked at the bytes after each put.
    threads: int
    limit_bytes: int
    looks: int
    above: int  # looks that found more than the limit
    most_bytes: int
    filled: list[int]  # bytes in the cache from the first request to the last, in equal steps
    # Threads that ask for the same new pages at one moment, and how often a page was made for them.
    askers: int
    asked: int
    made: int
    made_with_dict: int

    @property
    def best(self) -> float:
        """The hit rate of a cache without a limit: all but the first request for each page."""
        return 1 - self.pages / self.requests
