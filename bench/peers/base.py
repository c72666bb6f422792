"""The interface of every adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Missing(Exception):
    """A peer that cannot run here; the message says which, and how to get it."""


class Store:
    """A store of people. ``keys_inside`` says that the store itself holds the keys, so a caller need
    not; ``stores`` is False for the floor, whose answers nobody checks."""

    keys_inside = True
    stores = True

    def __init__(self, kind: type, count: int) -> None:
        """A store for about ``count`` objects of class ``kind``."""

    @classmethod
    def label(cls) -> str:
        """Name and version; raises ``Missing`` when the peer cannot run here."""
        raise NotImplementedError

    @classmethod
    def kind_for(cls, kind: type) -> type:
        """The class that this store is given in place of ``kind``, for a peer that needs a schema."""
        return kind

    def put_each(self, objects: list, keep: Callable[[int], None]) -> None:
        """Store every object; timed."""
        raise NotImplementedError

    def get_each(self, keys: Iterable[int]) -> object:
        """Get every key and return the last object; timed."""
        raise NotImplementedError

    def outside_bytes(self) -> int:
        """Bytes that another process holds for this store."""
        return 0

    def close(self) -> None:
        """Give everything back."""
