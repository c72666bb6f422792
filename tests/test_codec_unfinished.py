"""Tuples that are never finished, because one of their items cannot be rebuilt."""

import collections
import gc
import typing

import pytest

import gabion
from gabion._native import CodecError, _Codec

ended = []


def forget():
    """What has ended held others, which end now."""
    while ended:
        ended.clear()


class Bad:
    def __reduce__(self):
        return Bad, (), {}

    def __init__(self):
        self.fine = True

    def __setstate__(self, state):
        raise RuntimeError("no way back")


class Worse:
    """Looks at all there is before it fails."""

    def __reduce__(self):
        return Worse, (), {"a": 1}

    def __setstate__(self, state):
        for found in gc.get_objects():
            if isinstance(found, tuple):
                len(found)
        raise RuntimeError("no way back")


class Watched(typing.NamedTuple):
    x: object
    y: object
    z: object = None

    def __del__(self, ended=ended):
        ended.append((self.x, self.y, self.z))


class WatchedToo(collections.namedtuple("WatchedToo", "a b")):
    __slots__ = ()

    def __del__(self, ended=ended):
        ended.append(tuple(self))


class Holder:
    __slots__ = ("x", "y")

    def __del__(self, ended=ended):
        ended.append((getattr(self, "x", None), getattr(self, "y", None)))


BAD = Bad()
KEPT = [
    Watched(BAD, [1]),
    Watched([1], BAD),
    Watched([1], "2", BAD),
    Watched(1, Watched("in", [BAD], 3), 3),
    Watched(Watched(1, 2, 3), WatchedToo([Watched(4, BAD)], 5), Worse()),
    WatchedToo(1, (Watched(1, 2), [BAD])),
    [Watched(1, 2), (Watched([], {}), {"k": Watched("x", BAD)})],
]
SHARED = Watched("shared", [])
KEPT += [[SHARED, SHARED, Watched(SHARED, BAD)], Watched([SHARED], Watched(SHARED, Worse()))]
ROUND = Watched([], "round", [BAD])
ROUND.x.append(ROUND)
KEPT.append(ROUND)


@pytest.mark.parametrize("number", range(len(KEPT)))
def test_a_named_tuple_that_is_never_whole_does_not_end(number):
    """Nobody has seen it, so nobody hears of its end. pickle makes it when its items are there."""
    pile = gabion.Pile()
    pointer = pile.put(KEPT[number])
    for _ in range(3):
        forget()
        with pytest.raises(CodecError, match="no way back"):
            pile.get(pointer)
        gc.collect()
        assert all(None not in items[:2] for items in ended), ended


def test_many_that_are_never_whole():
    """What they were made of is used again: by tuples of the same length, of any class."""
    codec = _Codec()
    data = codec.encode([Watched([number], Watched(1, BAD)) for number in range(100)])
    good = codec.encode([Watched(1, 2), (1, 2, 3), WatchedToo(1, 2), ([], 5)])
    for _ in range(100):
        with pytest.raises(CodecError, match="no way back"):
            codec.decode(data)
        found = codec.decode(good)
        made = [(number, number, []) for number in range(100)]
        assert found == [(1, 2, None), (1, 2, 3), (1, 2), ([], 5)]
        assert [type(one) for one in found] == [Watched, tuple, WatchedToo, tuple]
        assert made[99] == (99, 99, [])
        del found, made
    gc.collect()


def test_damaged_bytes_end_nothing():
    codec = _Codec()
    data = codec.encode([Watched([1], "two", {"three": 3}), Watched((), WatchedToo(1, [2]), 3)])
    for cut in range(1, len(data)):
        forget()
        with pytest.raises(CodecError):
            codec.decode(data[:cut])
        assert all(items in [([1], "two", {"three": 3}), (1, [2])] for items in ended), ended


def test_objects_that_are_half_filled_may_end():
    codec = _Codec()
    held = Holder()
    held.x, held.y = [1], BAD
    data = codec.encode(held)
    forget()
    with pytest.raises(CodecError, match="no way back"):
        codec.decode(data)
    assert ended == [([1], None)]
