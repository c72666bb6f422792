"""gabion.memory: warm memory from a pool, for arrays, images and everything else that is large and short-lived.

Memory that comes fresh from the operating system costs a page fault for every 4 KiB that is touched. The pool keeps
what was touched before, in arenas that threads do not fight over, gives back what is no longer needed, and stays below
the limits that it is given.

>>> import gabion.memory
>>> with gabion.memory.rent("1 MiB") as buffer:
...     view = memoryview(buffer)
...     view[:5] = b"stone"
...     view.release()

Sizes are ints (bytes), or text of a number and a unit: B, KiB to PiB of 1024, kB to PB of 1000. "4 GB" is 4,000,000,000
bytes, "4 GiB" 4,294,967,296, and so is "4G". Parts of a byte are dropped, or refused where bytes are counted.

Functions: rent(), rent_group(), configure(), stats(), trim(), trim_malloc(), track().
Classes: Buffer, Group, MemoryStats, ArenaStats, Leak, Leaks, Call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from gabion import _native
from gabion._native import ArenaStats, Buffer, Group, MemoryStats, configure, rent, rent_group, stats, trim, trim_malloc

__all__ = [
    "ArenaStats",
    "Buffer",
    "Call",
    "Group",
    "Leak",
    "Leaks",
    "MemoryStats",
    "configure",
    "rent",
    "rent_group",
    "stats",
    "track",
    "trim",
    "trim_malloc",
]


def __dir__() -> list[str]:
    """Names for completion: what the module is for, and not what it imports."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


class Call(NamedTuple):
    """One call on the way to a rent: its file, its line (0 where none is known), and the name of its function."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Leak:
    """Memory that was rented under a track() and alive at its end.

    kind is "Buffer", "Group" or "Image", nbytes what was asked for, or what an image's pixels take, stack the calls
    that led to the rent, innermost first, at most 32.
    """

    kind: str
    nbytes: int
    stack: tuple[Call, ...]

    @property
    def where(self) -> str:
        """The call that rented it: file, line and function."""
        return str(self.stack[0]) if self.stack else "a thread without Python code"

    def __str__(self) -> str:
        calls = "".join(f"\n    from {call}" for call in self.stack[1:])
        return f"{self.kind} of {self.nbytes} bytes, rented at {self.where}{calls}"


class Leaks(list[Leak]):
    """What track() found, in the order of the rents. Empty until its with statement ends."""

    @property
    def nbytes(self) -> int:
        """The bytes of all of them."""
        return sum(leak.nbytes for leak in self)

    def __str__(self) -> str:
        if not self:
            return "nothing is left"
        return "\n".join([f"{len(self)} left, {self.nbytes} bytes:", *(f"  {leak}" for leak in self)])


@contextmanager
def track() -> Iterator[Leaks]:
    """Find what is rented inside a with statement, by any thread, and still alive at its end.

    Each rent inside notes its call stack, which takes some microseconds; outside, nothing is noted and nothing paid.
    May be nested: each finds what was rented since its own beginning. NumPy's arrays are not listed.

    >>> import gabion.memory
    >>> with gabion.memory.track() as leaks:
    ...     forgotten = gabion.memory.rent(4096)
    ...     with gabion.memory.rent("1 MiB"):
    ...         pass
    >>> [leak.nbytes for leak in leaks]
    [4096]
    >>> print(leaks)  # doctest: +ELLIPSIS
    1 left, 4096 bytes:
      Buffer of 4096 bytes, rented at ...
    """
    leaks = Leaks()
    first = _native._track_begin()
    try:
        yield leaks
    finally:
        leaks += (
            Leak(kind, nbytes, tuple(Call(*call) for call in stack))
            for kind, nbytes, stack in _native._track_end(first)
        )
