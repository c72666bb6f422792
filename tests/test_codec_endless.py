"""Calls that a file of few bytes has made and that take all memory, or all time; and calls of what is no function."""

import collections
import copyreg
import decimal
import fractions
import functools
import ipaddress

import pytest
from kept import reopened, shop  # noqa: F401 - a fixture

from gabion._native import CodecError, _Codec

try:
    import numpy
except ImportError:
    numpy = None

LONG = range(1 << 40)
NETWORK = ipaddress.IPv6Network("::/0")


class Forged:
    """Is stored as whatever its maker likes."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


class MyList(list):
    pass


class MyTuple(tuple):
    __slots__ = ()


class MySet(set):
    pass


class MyBytes(bytes):
    pass


class MyText(str):
    __slots__ = ()


class MyDict(dict):
    pass


class MyDeque(collections.deque):
    pass


class MyCounter(collections.Counter):
    pass


class Mixed:
    pass


class MyUserList(Mixed, collections.UserList):
    pass


class MyGroup(ExceptionGroup):
    pass


class MyAddress(ipaddress.IPv4Address):
    pass


class Span(tuple):
    """Takes a range as one of its items."""

    __slots__ = ()

    def __new__(cls, of, name):
        return super().__new__(cls, (of, name))

    def __getnewargs__(self):
        return tuple(self)


class Hosts(list):
    """Keeps its network, not the addresses in it."""

    def __init__(self, network):
        super().__init__([network])

    def __reduce__(self):
        return Hosts, (self[0],)


class Label(str):
    """A text of whatever it is given."""

    __slots__ = ()

    def __new__(cls, parts):
        return super().__new__(cls, "/".join(parts))

    def __reduce__(self):
        return Label, (self.split("/"),)


OWN = [
    MyAddress,
    MyList,
    MyTuple,
    MySet,
    MyBytes,
    MyText,
    MyDict,
    MyDeque,
    MyCounter,
    MyUserList,
    MyGroup,
    Span,
    Hosts,
    Label,
]


def reread(obj):
    codec = _Codec()
    data = codec.encode(obj)
    assert len(data) < 1000
    return reopened(codec, OWN).decode(data)


def fraction(numerator, denominator):
    state = (None, {"_numerator": numerator, "_denominator": denominator})
    return Forged(fractions.Fraction, (), state)


def doubled():
    made = [1]
    for _ in range(40):
        made = [made, made]
    return made


def row(obj):
    made = numpy.empty(1, object)
    made[0] = obj
    return made


REFUSED = {
    "pairs of a deque": Forged(dict, (collections.deque([LONG]),)),
    "pairs of a UserList": Forged(dict, (collections.UserList([LONG]),)),
    "pairs of what is no dict": Forged(collections.defaultdict, (None, collections.deque([LONG]))),
    "pairs in order": Forged(collections.OrderedDict, (collections.deque([1, NETWORK]),)),
    "a group of a range": Forged(ExceptionGroup, ("x", LONG)),
    "a group of a network": Forged(BaseExceptionGroup, ("x", NETWORK)),
    "an own group": Forged(MyGroup, ("x", LONG)),
    "an own list": Forged(MyList, (LONG,)),
    "an own list of an own base": Forged(copyreg._reconstructor, (MyList, MyList, LONG)),
    "an own tuple": Forged(MyTuple, (NETWORK,)),
    "an own set": Forged(MySet, (LONG,)),
    "own bytes": Forged(MyBytes, (1 << 30,)),
    "an own dict": Forged(MyDict, ([LONG],)),
    "an own deque": Forged(MyDeque, (LONG,)),
    "an own Counter": Forged(MyCounter, (LONG,)),
    "an own UserList": Forged(MyUserList, (LONG,)),
    "a fraction of a text": Forged(fractions.Fraction, (fraction("x" * 100, 1), fraction(1, 10**7))),
    "a fraction of a list": Forged(fractions.Fraction, (fraction([1], 1), fraction(1, 10**7))),
    "a fraction by a decimal": Forged(fractions.Fraction, (fraction(1, 1), fraction(1, decimal.Decimal("1e9")))),
    "a text of a list": Forged(str, (doubled(),)),
    "an own text of a list": Forged(MyText, (doubled(),)),
    "a UserString of a list": Forged(collections.UserString, (doubled(),)),
    "a text of a UserString": Forged(str, (Forged(collections.UserString, ("",), {"data": doubled()}),)),
    "a text of a fraction": Forged(str, (fraction(doubled(), 1),)),
}
for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Interface):
    REFUSED[f"a list as an {kind.__name__}"] = Forged(kind, (doubled(),))
    REFUSED[f"a list in an {kind.__name__}"] = Forged(kind, ((doubled(), 24),))
REFUSED["a list as an own address"] = Forged(MyAddress, (doubled(),))
REFUSED["a network of a list as an address"] = Forged(
    ipaddress.IPv4Network, (Forged(ipaddress.IPv4Network, ("0.0.0.0",), (None, {"network_address": doubled()})),)
)
for name, one in {
    "bytes": Forged(bytes, (1 << 21,)),
    "a bytearray": Forged(copyreg._reconstructor, (MyBytes, bytes, 1 << 21)),
    "a list": Forged(list, (range(1 << 21),)),
    "an own list": Forged(MyList, (range(1 << 21),)),
}.items():
    REFUSED[f"{name}, too often"] = [Forged(*one.reduced) for _ in range(3)]
if numpy is not None:
    REFUSED["pairs of an array"] = Forged(dict, (row(LONG),))
    REFUSED["a text of an array"] = Forged(str, (row(doubled()),))


@pytest.mark.parametrize("endless", REFUSED.values(), ids=REFUSED)
def test_what_takes_all_memory_or_all_time_is_refused(endless):
    with pytest.raises(CodecError, match="all memory, or all time"):
        reread(endless)


MADE = [
    Forged(dict, (collections.deque([("a", 1), ["b", range(1 << 40)]]),)),
    Forged(dict, (collections.UserList(["ab", "cd"]),)),
    Forged(dict, (collections.ChainMap({"ab": 1}),)),
    Forged(collections.defaultdict, (list, collections.deque([("a", 1)]))),
    Forged(MyList, ([1, 2],)),
    Forged(MyTuple, (range(3),)),
    Forged(MyDict, (collections.deque([("a", 1)]),)),
    Forged(MyBytes, (b"abc",)),
    Forged(MyText, (b"abc", "ascii")),
    Forged(MyCounter, ({"a": 1},)),
    Forged(MyUserList, (collections.UserList([1]),)),
    Forged(str, (1.5,)),
    Forged(str, (decimal.Decimal("1.5"),)),
    Forged(collections.UserString, (collections.UserString("abc"),)),
    Forged(fractions.Fraction, (fractions.Fraction(1, 3), 2)),
    Forged(ipaddress.IPv4Address, ("127.0.0.1",)),
    Forged(ipaddress.IPv6Address, (b"a" * 16,)),
    Forged(ipaddress.IPv4Network, (("10.0.0.0", 8),)),
    Forged(ipaddress.IPv4Network, ("10.0.0.1/8", False)),
    Forged(ipaddress.IPv6Interface, (ipaddress.IPv6Address("fe80::1%eth0"),)),
    Forged(MyAddress, (1,)),
]


@pytest.mark.skipif(numpy is None, reason="no NumPy here")
def test_what_has_no_items_after_all_is_an_error_of_the_call():
    with pytest.raises(CodecError, match=r"cannot rebuild an object of <class 'dict'>: TypeError: .*0-d array"):
        reread(Forged(dict, (numpy.array(5),)))


@pytest.mark.parametrize("made", MADE, ids=lambda made: str(made.reduced))
def test_what_the_file_brought_is_taken(made):
    callable_, arguments = made.reduced
    expected = callable_(*arguments)
    back = reread(made)
    assert (type(back), back) == (type(expected), expected)


def test_what_takes_its_arguments_otherwise_is_called():
    made = [Span(LONG, "all"), Hosts(NETWORK), Label(["a", "b"])]
    back = reread(made)
    assert [type(each) for each in back] == [Span, Hosts, Label]
    assert back == made
    group = reread(MyGroup("x", [ValueError(1)]))
    assert (type(group), group.message, group.exceptions[0].args) == (MyGroup, "x", (1,))


def test_what_is_counted_may_be_as_long_as_the_file():
    codec = _Codec()
    made = [Forged(list, (range(1000),)) for _ in range(4000)]
    data = codec.encode([made, b"x" * 100])
    assert reopened(codec).decode(data)[0] == [list(range(1000))] * 4000


def test_an_object_that_is_allowed_is_not_called(shop):  # noqa: F811
    module = shop("""
class Missing:
    called = 0

    def __reduce__(self):
        return "MISSING"

    def __call__(self, *given):
        Missing.called += 1
        return given

class Box:
    def __init__(self, extend=None):
        self.extend = extend

MISSING = Missing()
""")
    first = _Codec()
    alone = first.encode([module.MISSING])
    called = [
        first.encode(Forged(module.MISSING, ("a",))),
        first.encode(Forged(module.Box, (), {"a": 1}, None, None, module.MISSING)),
        first.encode(Forged(module.Box, (module.MISSING,), None, iter([1]))),
    ]
    second = reopened(first, [module.MISSING, module.Box])
    assert second.decode(alone) == [module.MISSING]
    for data in called:
        with pytest.raises(CodecError, match=r"calls <shop\.Missing"):
            second.decode(data)
    assert module.Missing.called == 0


def test_a_function_in_other_clothes_is_called(shop):  # noqa: F811
    module = shop("""
import functools

@functools.lru_cache
def made(name):
    return [name]
""")
    first = _Codec()
    data = first.encode(Forged(module.made, ("a",)))
    assert reopened(first, [module.made]).decode(data) == ["a"]
    # What has no name of its own was passed for one, and is there to be called.
    assert reopened(first, {"shop.made": functools.partial(module.made)}).decode(data) == ["a"]
