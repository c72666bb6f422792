"""Entries of a cache in a file, for the next process.

The file is that of a pile. Its root is a dict of ``KIND``: the version of what follows, and ``"tables"``: the name,
limit, ttl and idle time of each. All its other objects are entries: see saving.rs. Their first item is the number of
their table, 0 for the cache's own.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, cast

from gabion._arguments import MEMOIZED
from gabion._native import _PASS_TYPES, CacheTable, ClosedError, CorruptFileError, FormatError, Pile

if TYPE_CHECKING:
    from collections.abc import Callable

    from gabion._protocols import Path, Types
    from gabion.cache import Cache, Table

_KIND = "gabion.Cache"
_VERSION = 1


class _LeftOut:
    """Counts the entries that cannot be built or stored, and warns of them once."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, error: BaseException) -> None:
        """Leave an entry out, unless the error is not the entry's."""
        if not isinstance(error, Exception) or isinstance(error, (MemoryError, ClosedError, CorruptFileError)):
            raise error
        self.count += 1
        # Its text alone: the error itself holds what its traceback leads to.
        self.first = self.first or f"{type(error).__qualname__}: {error}"

    def warn(self, call: str) -> None:
        """Tell how many there were."""
        if self.count:
            entries = "1 entry was" if self.count == 1 else f"{self.count} entries were"
            # What a pile's error says to pass is passed to this call.
            when, types = _PASS_TYPES
            first = self.first.replace(when, "when you load the file: ").replace(types, "cache.load(path, types=")
            text = f"{call}(): {entries} left out that cannot be built or stored; the first: {first}"
            warnings.warn(text, RuntimeWarning, stacklevel=3)


class Saver:
    """A cache as far as it outlasts its process."""

    def save(self, path: Path, /) -> int:
        """Write all entries to a file, for load() in the next process, and return how many there were.

        Keys, values, priorities, and times: when each ends, its idle time, what touch() restarts; entries of tables,
        too, with the tables' own settings. Not those of memoized functions, and no figures, nor what the policy knows.
        Other threads may use the cache meanwhile: an entry that is there from beginning to end is in the file, as it
        was when its turn came; twice, and counted twice, only where many others are removed meanwhile. While it runs,
        it takes about as much memory again as the entries.

        The file is that of a Pile, and written by Pile.save(): aside, and it gets its name when it is complete and on
        the disk, so that there is always the one before or the new one. It raises what that raises: BlockingIOError,
        CorruptFileError where there is another file in its place, and the system's OSError. Entries that cannot be
        built or stored again are left out, with one RuntimeWarning.

        >>> import gabion, os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "cache.pile")
        >>> cache = gabion.Cache("64 MiB", ttl=300)
        >>> cache["stone"] = {"bytes": 4194304}
        >>> cache.save(path)
        1
        >>> again = gabion.Cache("64 MiB", ttl=300)
        >>> again.load(path)
        1
        >>> again["stone"]
        {'bytes': 4194304}
        """
        cache = cast("Cache", self)
        os.fspath(path)
        CacheTable._check(cache)
        left_out = _LeftOut()
        with Pile() as pile:
            count = _write(cache, pile, left_out)
            pile.save(path)
        left_out.warn("save")
        return count

    def load(self, path: Path, /, types: Types | None = None) -> int:
        """Put in the entries of a file that save() has written, and return how many were stored.

        ``types`` says which classes may be built, as it does for Pile(path=..., types=...): without it, plain values
        and harmless classes of the standard library. What has ended meanwhile is left out, and idle times have gone on.
        A key that has a value keeps it; entries evict others, and are refused, as if they were put. Tables that are not
        there are made, with the settings that they had. One that is there keeps its own; and one that load() has made
        is made anew, empty, by the first table() that asks for others.

        Entries that cannot be built, because their class is gone or is not in ``types``, are left out, with one
        RuntimeWarning that tells how many. Raises FileNotFoundError where there is no file, CorruptFileError for a
        damaged one, FormatError for one of a version of gabion that saves otherwise, and ValueError for a pile's that
        no cache has saved: what was stored before that stays. Each is an OSError or a ValueError: a program that
        begins without them catches both.
        """
        cache = cast("Cache", self)
        CacheTable._check(cache)
        left_out, stored = _LeftOut(), 0
        with Pile(path=path, types=types, read_only=True) as pile:
            root, tables = pile.root, _tables_of(cache, pile, path)

            def take(pointer: int) -> bool:
                entry: Any = pile.get(pointer)
                return CacheTable._take_in(tables[entry[0]], entry)

            for pointer in pile:
                if pointer == root:
                    continue
                try:
                    stored += take(pointer)
                except ClosedError:
                    # Or the entry's table was dropped meanwhile.
                    CacheTable._check(cache)
                except Exception as error:
                    # What a signal's handler raises, such as a task queue's time limit, is none of the entry's: that
                    # comes once.
                    comes_again = _comes_again(error, take, pointer)
                    # Its own code may have closed the cache.
                    CacheTable._check(cache)
                    if not comes_again:
                        raise
                    left_out.add(error)
        left_out.warn("load")
        return stored


def _comes_again(error: Exception, call: Callable[[int], object], pointer: int) -> bool:
    try:
        call(pointer)
    except type(error):
        return True
    except Exception:
        return False
    return False


def _write(cache: Cache, pile: Pile, left_out: _LeftOut) -> int:
    """Put all entries into a pile, and say at its root what they are."""

    def begin(tables: list[tuple[str, tuple[Any, ...]]]) -> None:
        described = [(name, *settings) for name, settings in tables]
        pile.root = pile.put({"kind": _KIND, "version": _VERSION, "tables": described})

    # Without tables of memoized functions: their numbers, and the classes of their arguments, are others in the next
    # process.
    return CacheTable._each(cache, MEMOIZED, begin, pile.put, left_out.add)


def _tables_of(cache: Cache, pile: Pile[Any], path: Path) -> list[Table]:
    """Find or make the tables that a file names, in its order. ValueError where the file is no cache's."""
    shown = os.fsdecode(path)
    foreign = ValueError(f"{shown!r} is the file of a pile, but none that Cache.save() has written")
    try:
        root = pile.root
        head = {} if root is None else pile.get(root)
        if head["kind"] != _KIND:
            raise foreign
        version = head["version"]
    except (LookupError, TypeError, ValueError):
        raise foreign from None
    # Before the rest, which another version may write in another way.
    if version != _VERSION:
        text = f"its format is {version!r}, not {_VERSION}"
        raise FormatError(f"{shown!r} was saved by another version of gabion: {text}")
    try:
        names: list[tuple[str, Any, Any, Any]] = [
            (name + "", limit, ttl, idle) for name, limit, ttl, idle in head["tables"]
        ]
        if any(not name or name.startswith(MEMOIZED) for name, *_ in names):
            raise foreign
    except (LookupError, TypeError, ValueError):
        raise foreign from None
    found: list[Table] = [cache]
    with cache._gabion_lock:
        there = set(CacheTable._table_names(cache))
        for name, limit, ttl, idle in names:
            if name not in there:
                cache._gabion_loaded.add(name)
            try:
                found.append(cache._gabion_table(name, limit, ttl, idle))
            except ClosedError:
                raise
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"{shown!r} has a table that cannot be made: {error}") from None
    return found
