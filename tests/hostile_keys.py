"""A cache beside a dict, with keys that bytes make: both find the same under each, and the cache gives its keys back. A
test plays it with random bytes, a fuzz target with its own.
"""

from datetime import date
from math import inf
from struct import unpack
from typing import Any
from uuid import UUID

from script_of_bytes import Script

from gabion import Cache, PutResult


class Text(str):
    """Equal to its characters."""


class Number(int):
    """Equal to its value."""


class Keys(Script):
    """Keys from bytes, few and near each other, so that they meet."""

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def key(self, depth: int = 0) -> Any:
        kind = self.below(11 if depth < 60 else 9)
        if kind == 0:
            return self.take(self.below(20)).decode("latin-1")
        if kind == 1:
            return self.take(self.below(20)).decode("utf-16-le", "surrogatepass" if self.below(2) else "replace")
        if kind == 2:
            return self.take(self.below(20))
        if kind == 3:
            return int.from_bytes(self.take(self.below(20)), "little", signed=bool(self.below(2)))
        if kind == 4:
            return (-1) ** self.below(2) * ((1 << self.below(140)) + self.below(3) - 1)
        if kind == 5:
            return [True, False, UUID(int=int.from_bytes(self.take(self.below(17)), "little"))][self.below(3)]
        if kind == 6:
            return [Text("text"), "text", Number(5), 5, b"text", "é", "\ud800", "石"][self.below(8)]
        if kind == 7:
            return [None, date(1 + self.below(9999), 1 + self.below(12), 1 + self.below(28))][self.below(2)]
        if kind == 8:
            # What is no number equals nothing in a dict, not even itself.
            number = unpack("<d", self.take(8).ljust(8, b"\0"))[0]
            return [number if number == number else inf, self.below(5) / 2][self.below(2)]
        return tuple(self.key(depth + 1) for _ in range(self.below(4)))


def kinds(key: Any) -> Any:
    """What a key is, its subclasses' names left out: `1 == True`, and `b"" != ""`."""
    if isinstance(key, tuple):
        return tuple(map(kinds, key))
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    for base in (str, bytes, int):
        if isinstance(key, base):
            return base, base(key)
    return key


def play(data: bytes) -> None:
    """Put, look up and remove under the keys that the bytes make."""
    keys, model = Keys(data), dict[Any, int]()
    with Cache("64 MiB") as cache:
        table = cache.table("other")
        while not keys.ended:
            try:
                key = keys.key()
            except UnicodeDecodeError:
                continue
            value = keys.at
            if keys.below(4) == 0:
                assert cache.pop(key, None) == model.get(key), key
                model.pop(key, None)
            else:
                expected = PutResult.REPLACED if key in model else PutResult.INSERTED
                assert cache.put(key, value) is expected, key
                model[key] = value
            assert cache.get(key) == model.get(key), key
            assert key not in table, key
        assert len(cache) == len(model)
        assert {kinds(key): value for key, value in cache.items()} == {
            kinds(key): value for key, value in model.items()
        }
        assert all(cache[key] == value for key, value in model.items())
