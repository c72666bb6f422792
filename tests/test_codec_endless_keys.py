"""Keys in a file of few bytes that would take for ever to be hashed, or to be compared."""

import collections
import copyreg
import enum
import ipaddress
import pathlib
import time
import uuid
import zoneinfo

import pytest
from kept import reopened
from test_codec_endless import Forged, MyCounter, MyDeque, MyDict, MySet, MyTuple, reread

from gabion._native import CodecError, _Codec


def doubled(levels=40):
    """A tuple of twice the same tuple, and so on."""
    made = (1, 2)
    for _ in range(levels):
        made = (made, made)
    return made


def doubled_slice():
    made = slice(1, 2)
    for _ in range(40):
        made = slice(made, made)
    return made


def doubled_sets():
    """Two that are equal, and share nothing with one another."""
    ones, others = frozenset([1]), frozenset([1.0])
    for _ in range(40):
        ones, others = (frozenset([(made, 1), (made, 2)]) for made in (ones, others))
    return ones, others


KEY = Forged(tuple, (doubled(),))
OF_CLASS = Forged(MyTuple, (doubled(),))
ONES, OTHERS = doubled_sets()

REFUSED = {
    "a key": {KEY: 1},
    "a key within": {1: [{(KEY, 2): 1}]},
    "the second key": {"first": 1, KEY: 2},
    "an element": {KEY},
    "the second element": {"first", KEY},
    "an element of a frozenset": frozenset([KEY]),
    "a slice": {Forged(slice, (doubled_slice(), None)): 1},
    "a key of an own class": {OF_CLASS: 1},
    "a key of an OrderedDict": collections.OrderedDict({KEY: 1}),
    "a key of a defaultdict": collections.defaultdict(list, {KEY: 1}),
    "a key of an own dict": MyDict({KEY: 1}),
    "a set by a call": Forged(set, ([doubled()],)),
    "a frozenset by a call": Forged(frozenset, ((doubled(),),)),
    "an own set by a call": Forged(MySet, (collections.deque([doubled()]),)),
    "a frozenset of an own base": Forged(copyreg._reconstructor, (frozenset, frozenset, (doubled(),))),
    "a dict of pairs": Forged(dict, ([(doubled(), 1)],)),
    "a dict of own pairs": Forged(MyDict, (MyDeque([[doubled(), 1]]),)),
    "a counter": Forged(collections.Counter, ([doubled()],)),
    "an own counter": Forged(MyCounter, (collections.UserList([doubled()]),)),
    "a number of a UUID": {Forged(copyreg._reconstructor, (uuid.UUID, object, None), {"int": doubled()}): 1},
    "the text of a UserString": {Forged(collections.UserString, ("",), {"data": doubled()}): 1},
    "two that are compared": {Forged(frozenset, (list(ONES),)): 1, Forged(frozenset, (list(OTHERS),)): 1},
}


@pytest.mark.parametrize("endless", REFUSED.values(), ids=REFUSED)
def test_a_key_that_takes_for_ever_is_refused(endless):
    begin = time.monotonic()
    with pytest.raises(CodecError, match=r"a key would take for ever|all memory, or all time"):
        reread(endless)
    assert time.monotonic() - begin < 60


def test_values_may_share_as_they_like():
    for made in (reread([doubled()])[0], reread({"value": doubled()})["value"]):
        levels = 0
        while isinstance(made[0], tuple):
            assert made[0] is made[1]
            made, levels = made[0], levels + 1
        assert levels == 40


def test_keys_share_what_takes_no_longer_than_they_do():
    shared = (doubled(10), frozenset([doubled(8)]), uuid.uuid4(), collections.UserString("shared"))
    keys = [(number, shared) for number in range(1000)]
    codec = _Codec()
    for made in (dict.fromkeys(keys, 1), set(keys), frozenset(keys), collections.Counter(keys), {doubled(20): 1}):
        data = codec.encode(made)
        assert reopened(codec, []).decode(data) == made


def test_what_a_program_stored_itself_is_not_looked_at():
    codec, shared = _Codec(), doubled(20)
    made = dict.fromkeys([(number, shared) for number in range(40)])
    data = codec.encode(made)
    assert codec.decode(data) == made
    with pytest.raises(CodecError, match="a key would take for ever"):
        reopened(codec, []).decode(data)


class Plain:
    pass


class MyPath(type(pathlib.PurePath())):
    pass


class Letter(enum.Enum):
    A = (1, 2)


def by_state(kind, arguments, **state):
    return Forged(kind, arguments, (None, state))


PATH = pathlib.PurePosixPath
# What a path hashes has other names in other versions.
PARTS = {"_parts": [doubled()], "_cached_cparts": [doubled()], "_str_normcase_cached": doubled()}
PARTS = {name: part for name, part in PARTS.items() if hasattr(pathlib.PurePath, name)}
LIST = [1]
for _ in range(40):
    LIST = [LIST, LIST]
AGAIN = {doubled(22): 1}


def named():
    """Many that have the same for the name of an attribute: each hashes it for itself."""
    made, key = [Plain() for _ in range(17)], doubled(21)
    for one in made:
        vars(one)[key] = 1
    return made


HASHED = {
    "the name of an attribute": named,
    "the keys of a state, again and again": [Forged(Plain, (), AGAIN) for _ in range(20)],
    "a path": {by_state(PATH, ("a",), **PARTS): 1},
    "an own path": {by_state(MyPath, ("a",), **PARTS): 1},
    "an address": {by_state(ipaddress.IPv6Address, (1,), _scope_id=doubled()): 1},
    "an address of a network": {by_state(ipaddress.IPv4Interface, ("1.2.3.4/8",), _ip=doubled()): 1},
    "a member by its value": Forged(uuid.SafeUUID, (doubled(),)),
    "an own member by its value": Forged(Letter, (doubled(),)),
    "a member by a list": Forged(Letter, (LIST,)),
    "a time zone": Forged(zoneinfo.ZoneInfo, (doubled(),)),
    "a time zone by its function": Forged(zoneinfo.ZoneInfo._unpickle, (doubled(), 1)),
}


@pytest.mark.parametrize("name", HASHED)
def test_what_is_hashed_elsewhere_is_refused(script, name):
    # Where it is not, nothing but the end of the process ends it.
    said = script(
        f"""
        import sys
        import test_codec_endless_keys as tests
        from kept import reopened
        from gabion._native import CodecError, _Codec

        codec = _Codec()
        made = tests.HASHED[{name!r}]
        data = codec.encode(made() if made is tests.named else made)
        assert len(data) < 1000
        try:
            reopened(codec, [tests.Plain, tests.MyPath, tests.Letter]).decode(data)
        except CodecError as error:
            print("for ever" in str(error) or str(error))
        """,
        timeout=60,
    )
    assert said == "True\n"


def test_what_is_hashed_elsewhere_comes_back():
    named = Plain()
    vars(named)[(1, ("a", 2))] = "named"
    paths = [pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("C:/a"), MyPath("a")]
    made = [
        [Forged(Plain, (), {(1, (2, 3)): 1}) for _ in range(1000)],
        dict.fromkeys(paths, 1),
        {ipaddress.ip_interface("::1/8"): 1, ipaddress.ip_address("fe80::1%a"): 2},
        [Letter.A, uuid.SafeUUID.safe, Forged(Letter, ((1, 2),))],
        [zoneinfo.ZoneInfo("UTC"), zoneinfo.ZoneInfo("UTC")],
    ]
    codec = _Codec()
    data = codec.encode([named, *made])
    back = reopened(codec, [Plain, MyPath, Letter]).decode(data)
    assert vars(back[0]) == vars(named)
    assert all(vars(one) == {(1, (2, 3)): 1} for one in back[1])
    assert back[2:4] == made[1:3]
    assert back[4] == [Letter.A, uuid.SafeUUID.safe, Letter.A]
    assert back[5] == made[4]
