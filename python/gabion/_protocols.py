"""What type checkers know of arguments and results. Nothing here is there at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from types import ModuleType
from typing import Any, Literal, ParamSpec, Protocol, SupportsIndex, TypeVar

from gabion._native import CacheStats
from gabion.cache import Table

Path = str | PathLike[str]
# What may be built of what lies in a file; mostly classes and functions.
_Named = Mapping[str, Any] | Literal["*"]
Types = _Named | Iterable[Callable[..., Any] | ModuleType | _Named]
Number = SupportsIndex | float
Pair = Iterable[Number]
Most = Number | Iterable[Number | None]

_K = TypeVar("_K")
_V_co = TypeVar("_V_co", covariant=True)
_P = ParamSpec("_P")
_R_co = TypeVar("_R_co", covariant=True)


class ReadInto(Protocol):
    """A file that fills a buffer."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Read(Protocol):
    """A file that gives bytes."""

    def read(self, size: int, /) -> bytes | None: ...


class Writable(Protocol):
    """A file that takes bytes."""

    def write(self, data: memoryview, /) -> int | None: ...


class HasKeys(Protocol[_K, _V_co]):
    """A mapping, as far as update() needs one."""

    def keys(self) -> Iterable[_K]: ...
    def __getitem__(self, key: _K, /) -> _V_co: ...


class Memoized(Protocol[_P, _R_co]):
    """What memoize() makes of a function or a method."""

    @property
    def __wrapped__(self) -> Callable[_P, _R_co]: ...
    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...
    # With any arguments: a checker does not say whether it looks for a method, a @classmethod or a @staticmethod.
    def __get__(self, instance: object, owner: type | None = None, /) -> Memoized[..., _R_co]: ...
    def cache_clear(self) -> int: ...
    def cache_discard(self, *args: _P.args, **kwargs: _P.kwargs) -> bool: ...
    def cache_stats(self) -> CacheStats: ...
    def cache_table(self) -> Table[Any, Any]: ...
