"""Classes, sample objects and a comparison of graphs for the codec's tests."""

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import operator
import pathlib
import random
import re
import typing
import uuid


@dataclasses.dataclass(slots=True)
class Person:
    id: int
    first: str
    last: str
    born: dt.datetime
    balance: float
    active: bool
    note: str | None


class SlotPerson:
    __slots__ = ("id", "first", "last", "born", "balance", "active", "note")  # noqa: RUF023 - the order is the layout's


class DictPerson:
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: object
    b: object


@dataclasses.dataclass
class Plain:
    a: object
    b: object = None


class Base:
    __slots__ = ("a", "__private")  # noqa: RUF023 - the order is the layout's

    def __init__(self, private):
        self.__private = private

    def private(self):
        return self.__private


class Derived(Base):
    __slots__ = ("b", "__dict__")  # noqa: RUF023 - the order is the layout's


class WeakSlots:
    __slots__ = ("x", "__weakref__")  # noqa: RUF023 - the order is the layout's


class Stateful:
    """Its state is a part of it, and it comes back changed."""

    def __init__(self, x):
        self.x, self.y = x, "live"

    def __getstate__(self):
        return {"x": self.x}

    def __setstate__(self, state):
        self.x, self.y = state["x"], "restored"


class Keywords:
    def __new__(cls, *, key):
        self = super().__new__(cls)
        self.key = key
        return self

    def __getnewargs_ex__(self):
        return (), {"key": self.key}


class NewArgs(tuple):
    def __new__(cls, *items):
        return super().__new__(cls, items)

    def __getnewargs__(self):
        return tuple(self)


class Reducing:
    """Its reducer returns every part there is."""

    def __init__(self, *args):
        self.args, self.items, self.pairs, self.state = args, [], {}, None

    def __reduce__(self):
        return Reducing, self.args, self.state, iter(self.items), iter(self.pairs.items())

    def __setstate__(self, state):
        self.state = state

    def extend(self, items):
        self.items.extend(items)

    def append(self, item):
        self.items.append(item)

    def __setitem__(self, key, value):
        self.pairs[key] = value


def set_state(obj, state):
    obj.__dict__.update(state, setter="called")


class Setter:
    def __reduce__(self):
        return Setter, (), {"kept": 1}, None, None, set_state


class Named(str):
    """Reduced to the name of a global."""

    def __reduce__(self):
        return "THE_ONE"


THE_ONE = Named("the one")


class ListWithAttributes(list):
    pass


class DictWithAttributes(dict):
    pass


class IntWithAttributes(int):
    pass


class StrWithAttributes(str):
    pass


class TupleWithAttributes(tuple):
    pass


class SetWithAttributes(set):
    pass


class Guarded:
    """Setting attributes the ordinary way is forbidden, as pickle does not do it either."""

    def __init__(self, value):
        self.__dict__["value"] = value

    def __setattr__(self, name, value):
        raise AssertionError("__setattr__ must not run")


class Shadowed:
    """A property hides an attribute of the same name."""

    def __init__(self):
        self.__dict__["x"] = 5

    @property
    def x(self):
        return self.__dict__["x"]

    @x.setter
    def x(self, value):
        raise AssertionError("the property must not run")


class Point(typing.NamedTuple):
    x: object = 0
    y: object = 0


Pair = collections.namedtuple("Pair", "left right")


class PairWithAttributes(Pair):
    pass


class Color(enum.Enum):
    RED = 1
    GREEN = "green"
    CRIMSON = 1  # noqa: PIE796 - an alias


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Failure(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


class Node:
    __slots__ = ("value", "next", "other")  # noqa: RUF023 - the order is the layout's


def make_person(kind, i):
    person = kind.__new__(kind)
    person.id = 10**9 + i
    person.first = f"first{i}"
    person.last = f"last name {i * 7}"
    person.born = dt.datetime(1950, 1, 1) + dt.timedelta(days=i % 20000, seconds=i, microseconds=i % 2)
    person.balance = i * 1.37
    person.active = i % 3 == 0
    person.note = None if i % 4 == 0 else f"note {i}"
    return person


def scalars():
    """Values of every kind that holds no others."""
    ints = [0, 1, -1, -2, 30, 31, 127, 128, -128, -129, 2**30 - 1, 2**30, 2**60 - 1, 2**60, 10**9]
    ints += [sign * 2**bits + by for bits in (31, 32, 62, 63, 64, 100, 3000) for sign in (1, -1) for by in (-1, 0, 1)]
    floats = [0.0, -0.0, 1.0, 0.01, 12.34, -99.99, 21474836.47, 21474836.48, 1e300, 5e-324, float("inf"), 0.1 + 0.2]
    texts = ["", "a", "\x00", "ÿ", "abc", "x" * 63, "x" * 64, "é" * 70, "żółw", "\U0001f600", "\ud800x", "\udfff"]
    zones = [dt.UTC, dt.timezone(dt.timedelta(hours=-3, seconds=7), "here"), dt.timezone(dt.timedelta(0))]
    times = [
        dt.datetime.min,
        dt.datetime.max,
        dt.datetime(2020, 2, 29, 23, 59, 59),
        dt.datetime(2020, 1, 1, 1, fold=1),
        dt.datetime(2020, 1, 1, microsecond=1),
        dt.datetime(2020, 1, 1, tzinfo=zones[1], fold=1),
        dt.datetime(2020, 1, 1, tzinfo=zones[0]),
        dt.date.min,
        dt.date.max,
        dt.time(1, 2, 3, 4),
        dt.time(1, 2, fold=1, tzinfo=zones[0]),
        dt.timedelta.min,
        dt.timedelta.max,
        dt.timedelta(-1, 2, 3),
    ]
    numbers = [1 + 2j, complex("nan"), decimal.Decimal("1.50"), decimal.Decimal("-Infinity"), decimal.Decimal("sNaN3")]
    arrays = [array.array("d", [1.5, 2.5]), array.array("i"), array.array("H", range(70)), array.array("b", b"abc")]
    buffers = [b"", b"x", bytes(range(256)), bytearray(), bytearray(b"abc" * 99)]
    others = [
        None,
        True,
        False,
        ...,
        NotImplemented,
        uuid.UUID(int=5),
        uuid.UUID(int=2**128 - 1),
        uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
        Color.RED,
        Color.GREEN,
        Color.CRIMSON,
        Access.READ,
        Access.READ | Access.WRITE,
        Access(0),
        Level.HIGH,
        range(3, 2**70, 5),
        range(0),
        fractions.Fraction(1, 3),
        pathlib.PurePosixPath("/a/b"),
        THE_ONE,
    ]
    references = [int, Person, len, make_person, Color, type(None), type(...), type(NotImplemented), dict.fromkeys]
    references += [collections.OrderedDict, operator.add]
    return ints + floats + texts + zones + times + numbers + arrays + buffers + others + references


def objects():
    """Objects of every kind of class."""
    people = [make_person(kind, i) for kind in (Person, SlotPerson, DictPerson) for i in (1, 4, 7)]
    partial = make_person(SlotPerson, 2)
    del partial.note
    derived = Derived("secret")
    derived.a, derived.extra = 1, [2]
    weak = WeakSlots()
    weak.x = "x"
    gap = DictPerson()
    gap.a, gap.b, gap.c = 1, 2, 3
    del gap.b
    made = DictPerson()
    made.a = 1
    made.__dict__["not an identifier"] = 2
    odd = DictPerson()
    odd.__dict__[5] = "five"
    subclassed = []
    for kind, arg in (
        (ListWithAttributes, [1, 2]),
        (DictWithAttributes, {"k": "v"}),
        (IntWithAttributes, 2**70),
        (StrWithAttributes, "text"),
        (TupleWithAttributes, (1, "two")),
        (SetWithAttributes, {1}),
    ):
        value = kind(arg)
        value.extra = [kind.__name__]
        subclassed.append(value)
    pair = PairWithAttributes(1, 2)
    pair.extra = 3
    full = Reducing(1, "two")
    full.items, full.pairs, full.state = [1, [2]], {"k": "v"}, {"s": 1}
    error = Failure(3, "text")
    error.extra = "more"
    library = [
        collections.OrderedDict(b=1, a=[2]),
        collections.defaultdict(list, {1: [2]}),
        collections.deque([1, [2]], 5),
        collections.Counter("abca"),
        functools.partial(int, base=2),
        operator.itemgetter(1, 2),
        re.compile("a+b", re.I),
        ValueError("x", 3),
        slice(1, None, [2]),
    ]
    own = [Frozen(1, [2]), Plain("a"), Stateful(1), Keywords(key="k"), NewArgs(1, 2), Setter(), Guarded(1), Shadowed()]
    named = [Point(1, "2"), Pair(left=[1], right=None), pair]
    return [*people, partial, derived, weak, gap, made, odd, *subclassed, full, error, *library, *own, *named]


def random_graph(seed, size=30):
    """A graph with shared parts and cycles, of all kinds of containers."""
    rnd = random.Random(seed)
    leaves = scalars()
    pool = [rnd.choice(leaves) for _ in range(5)]
    growing = []

    def pick():
        kind = rnd.random()
        if kind < 0.35:
            return rnd.choice(leaves)
        return rnd.choice(pool)

    def hashable():
        return rnd.choice(
            [5, "key", b"k", (1, "t"), frozenset([1]), Color.RED, 2.5, None, THE_ONE, f"k{rnd.randrange(9)}"]
        )

    for _ in range(size):
        kind = rnd.randrange(15)
        count = rnd.randrange(4)
        if kind == 0:
            made = [pick() for _ in range(count)]
        elif kind == 1:
            made = tuple(pick() for _ in range(count))
        elif kind == 2:
            made = {hashable(): pick() for _ in range(count)}
        elif kind == 3:
            made = {hashable() for _ in range(count)}
        elif kind == 4:
            made = frozenset(hashable() for _ in range(count))
        elif kind == 5:
            made = DictPerson()
            for name in rnd.sample("abcdef", count):
                setattr(made, name, pick())
        elif kind == 6:
            made = Node()
            for name in rnd.sample(Node.__slots__, rnd.randrange(4)):
                setattr(made, name, pick())
        elif kind == 7:
            made = Derived(pick())
            made.extra = pick()
        elif kind == 8:
            made = Point(pick(), pick())
        elif kind == 9:
            made = ListWithAttributes(pick() for _ in range(count))
            made.extra = pick()
        elif kind == 10:
            made = Stateful(pick())
        elif kind == 11:
            made = collections.OrderedDict((hashable(), pick()) for _ in range(count))
        elif kind == 12:
            made = collections.deque(pick() for _ in range(count))
        elif kind == 13:
            made = Frozen(pick(), pick())
        else:
            made = make_person(rnd.choice([Person, SlotPerson, DictPerson]), rnd.randrange(100))
        if isinstance(made, (list, dict, DictPerson, Derived, Node, collections.deque)):
            growing.append(made)
        pool.append(made)
    for _ in range(rnd.randrange(6)):
        if growing:
            grow, value = rnd.choice(growing), rnd.choice(pool)
            if isinstance(grow, (list, collections.deque)):
                grow.append(value)
            elif isinstance(grow, dict):
                grow["back"] = value
            elif isinstance(grow, Node):
                grow.other = value
            else:
                grow.back = value
    return [rnd.choice(pool) for _ in range(4)] + pool[-3:]


ATOMS = (int, float, bool, type(None), type(...), type(NotImplemented), type)


def parts(obj):
    """What an object consists of, as a list, or None when equality says enough."""
    kind = type(obj)
    found = []
    if isinstance(obj, (list, tuple, collections.deque)):
        found += list(obj)
    elif isinstance(obj, dict):
        for key, value in obj.items():
            found += [key, value]
    elif isinstance(obj, (set, frozenset)):
        found += sorted(obj, key=repr)
    elif isinstance(obj, (enum.Enum, str, bytes, int)) and kind.__module__ == "builtins":
        return None
    elif isinstance(obj, slice):
        return [obj.start, obj.stop, obj.step]
    state = getattr(obj, "__dict__", None)
    own = kind.__module__ == __name__ and not isinstance(obj, (enum.Enum, type))
    if isinstance(state, dict) and own:
        for key, value in state.items():
            found += [key, value]
    slots = [n for k in kind.__mro__ for n in k.__dict__.get("__slots__", ()) if own and not n.startswith("__")]
    for name in slots:
        found += [name, getattr(obj, name, "unset")]
    if found or own or kind in (list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict):
        return found
    return None


def assert_same(left, right, identity=True):
    """Same types, same values, and the same objects in the same places."""
    pairs, back, todo, keep = {}, {}, [(left, right)], []
    while todo:
        a, b = todo.pop()
        assert type(a) is type(b), (type(a), type(b))
        if isinstance(a, ATOMS):
            assert repr(a) == repr(b)
            continue
        singletons = (isinstance(a, (str, bytes)) and len(a) <= 1) or (type(a) in (tuple, frozenset) and not a)
        if identity and not singletons:
            if id(a) in pairs or id(b) in back:
                assert pairs.get(id(a)) == id(b), (a, b)
                assert back.get(id(b)) == id(a), (a, b)
                continue
            pairs[id(a)], back[id(b)] = id(b), id(a)
            keep.append((a, b))
        elif id(a) in pairs:
            continue
        else:
            pairs[id(a)] = id(b)
            keep.append((a, b))
        inside, others = parts(a), parts(b)
        if inside is None:
            assert repr(a) == repr(b) or " at 0x" in repr(a) or a == b, (a, b)
            continue
        assert len(inside) == len(others), (a, b)
        if not isinstance(a, (list, tuple, dict, set, frozenset, collections.deque)) and not inside:
            assert repr(a).split(" at 0x")[0] == repr(b).split(" at 0x")[0]
        todo.extend(zip(inside, others))
