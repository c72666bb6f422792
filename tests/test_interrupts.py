"""Ctrl-C in the midst of what somebody's object is asked: it ends the call, and is not taken for an answer."""

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

import gabion
import gabion.streams


def interrupted(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


class Seekable(io.BytesIO):
    seekable = interrupted


class Told(io.BytesIO):
    tell = interrupted


class Unreadable:
    """A file that gives what is no number."""

    def readinto(self, _: object) -> object:
        class Number:
            __index__ = interrupted

        return Number()


class Full(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, _: object) -> None:
        return None


class Closed(io.BytesIO):
    @property
    def closed(self) -> Any:
        class Truth:
            __bool__ = interrupted

        return Truth()


class Seconds:
    __float__ = interrupted


class Long(int):
    __float__ = interrupted


class Asked:
    """What is asked for such an attribute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        if name == self.name:
            raise KeyboardInterrupt
        raise AttributeError(name)


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__hash__", "__eq__"):
            raise KeyboardInterrupt
        return super().__getattribute__(name)


class Key(str, metaclass=Meta):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


def in_cache(**settings: Any) -> None:
    gabion.Cache("1 MiB").put("key", 1, **settings)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gabion.Image.probe(Seekable(b"text")),
        lambda: gabion.Image.probe(Told(b"text")),
        lambda: gabion.Image.open(Seekable(b"text"), timeout=1),
        lambda: gabion.Image.open(Told(b"text")),
        lambda: gabion.Image.open(Told(bytes(100)), max_bytes=10),
        lambda: gabion.streams.copy(Told(b"text"), Full()),
        lambda: gabion.streams.copy(Closed(b"text"), io.BytesIO()),
        lambda: gabion.streams.copy(Unreadable(), io.BytesIO()),
        lambda: gabion.Image.open(Asked("__array_interface__")),
        lambda: gabion.Image.from_array(Asked("__array__")),
        lambda: gabion.Image.from_pillow(Asked("mode")),
        lambda: in_cache(ttl=Seconds()),
        lambda: in_cache(ttl=Long()),
        lambda: in_cache(expires_at=Seconds()),
        lambda: gabion.Cache("1 MiB").put(Key("key"), 1),
    ],
)
def test_an_interrupt_is_no_answer(call: Callable[[], object]) -> None:
    with pytest.raises(KeyboardInterrupt):
        call()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no buffers by Python code")
def test_an_interrupt_of_a_buffer_of_pointers() -> None:
    class Pointers(list):
        __buffer__ = interrupted

    with pytest.raises(KeyboardInterrupt):
        gabion.Pile().get_many(Pointers())


def test_what_an_answer_raises_otherwise_is_told() -> None:
    class Number:
        def __index__(self) -> int:
            raise LookupError("no number today")

    class File:
        def readinto(self, _: object) -> object:
            return Number()

    class Seconds:
        def __float__(self) -> float:
            raise LookupError("no time today")

    with pytest.raises(LookupError, match="no number today"):
        gabion.streams.copy(File(), io.BytesIO())
    with pytest.raises(LookupError, match="no time today"):
        in_cache(ttl=Seconds())
