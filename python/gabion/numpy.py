"""gabion.numpy: NumPy's arrays on the pool of gabion.memory, without a change to the code that makes them.

A large array that comes fresh from the operating system pays a page fault for every 4 KiB, often as much as the
computation. From the pool it comes warm.

>>> import numpy as np
>>> import gabion.numpy
>>> gabion.numpy.install()
>>> array = np.ones(1_000_000)
>>> gabion.numpy.is_pooled(array)
True
>>> gabion.numpy.uninstall()

install() and uninstall() are for the whole process, pooled() is for one thread or task. Arrays may be older than the
one and younger than the other: each gives its memory back to where it came from. The limits of
gabion.memory.configure() hold for arrays, too: what they refuse is NumPy's MemoryError.

NumPy (1.22 or newer) is imported by the first call, not by this module.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, SupportsIndex

from gabion import _native

__all__ = ["install", "installed", "is_pooled", "pooled", "uninstall"]


def __dir__() -> list[str]:
    """Names for completion: what the module is for, and not what it imports."""
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


DEFAULT_MIN_BYTES = "256 KiB"


def install(min_bytes: SupportsIndex | str = DEFAULT_MIN_BYTES) -> None:
    """Have all NumPy arrays of at least min_bytes take their memory from the pool, in every thread.

    Smaller ones come from where they came before, and so do arrays in contexts for which another handler was set
    (NumPy's PyDataMem_SetHandler). Called again, it sets min_bytes anew.

    An array that resize() makes larger stays outside the pool when it was outside, because the system moves large
    memory without a copy. So does one that numpy.fromiter() makes without count, which begins small.

    Processes that are forked inherit it. One that is started anew (multiprocessing's spawn and forkserver) calls it
    itself, as in Pool(initializer=...) or torch's DataLoader(worker_init_fn=...).

    Raises ModuleNotFoundError without NumPy, RuntimeError where NumPy's own handler cannot be changed.

    >>> import numpy as np
    >>> import gabion.numpy
    >>> before = np.ones(100_000)
    >>> gabion.numpy.install(min_bytes="128 KiB")
    >>> after = before * 2
    >>> gabion.numpy.is_pooled(before), gabion.numpy.is_pooled(after)
    (False, True)
    >>> gabion.numpy.uninstall()
    """
    _need_numpy()
    _native._numpy_install(_native._size("min_bytes", min_bytes))


def uninstall() -> None:
    """Have new arrays take their memory from where they took it before install().

    Arrays that are alive keep theirs and give it back to the pool when they go. Does nothing when nothing is installed.
    """
    _native._numpy_uninstall()


def installed() -> int | None:
    """The min_bytes of install() in bytes, or None when it is not installed."""
    return _native._numpy_installed()


@contextmanager
def pooled(min_bytes: SupportsIndex | str = DEFAULT_MIN_BYTES) -> Iterator[None]:
    """Have arrays of at least min_bytes that are made inside a with statement take their memory from the pool.

    For this thread and context (contextvars) only: other threads, tasks that began before, and libraries' own thread
    pools are not affected. May be nested; the inner one counts. It holds until the block ends, also for whoever goes on
    while a generator rests inside it.

    >>> import numpy as np
    >>> import gabion.numpy
    >>> with gabion.numpy.pooled():
    ...     inside = np.zeros((1000, 1000))
    >>> outside = inside + 1
    >>> gabion.numpy.is_pooled(inside), gabion.numpy.is_pooled(outside)
    (True, False)
    """
    _need_numpy()
    before = _native._numpy_set_handler(_handler(_native._size("min_bytes", min_bytes)))
    try:
        yield
    finally:
        _native._numpy_set_handler(before)


def is_pooled(array: Any) -> bool:
    """Whether an array's memory, or that of the array which it is a view of, came from the pool by this module."""
    np = _native._import("numpy")

    if not isinstance(array, np.ndarray):
        raise TypeError(f"is_pooled() takes a NumPy array, not {type(array).__name__}")
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None and _native._numpy_owns(array.__array_interface__["data"][0])


@cache
def _handler(min_bytes: int) -> object:
    """NumPy's arrays refer to their handler for ever, so there is one for each number."""
    return _native._numpy_handler(min_bytes)


def _need_numpy() -> None:
    try:
        _native._import("numpy")
    except ModuleNotFoundError as missing:
        if missing.name != "numpy":
            raise
        text = "gabion.numpy needs NumPy, which is not installed: pip install numpy"
        raise ModuleNotFoundError(text, name="numpy") from missing
