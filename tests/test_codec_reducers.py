"""Code that reducers run without being written in Python themselves, and what they give that is empty."""

import array
import collections
import copyreg
import datetime as dt
import functools
import io
import operator
import pickle
import weakref

import pytest

import gabion
from gabion._native import _Codec

# Who gives these out, gives objects that nobody else may hold.
known = weakref.WeakValueDictionary()
CODEC = _Codec()


class Thing:
    pass


class Names(list):
    def __iter__(self):
        return map(known.__getitem__, ["thing"])


class NamesInSet(set):
    def __iter__(self):
        return map(known.__getitem__, ["thing"])


class NamesInDeque(collections.deque):
    def __iter__(self):
        return map(known.__getitem__, ["thing"])


class Keys(dict):
    def items(self):
        return ((key, known[key]) for key in dict.keys(self))


class OrderedKeys(collections.OrderedDict):
    def items(self):
        return ((key, known[key]) for key in dict.keys(self))


class DefaultKeys(collections.defaultdict):
    def items(self):
        return ((key, known[key]) for key in dict.keys(self))


class WithSlot:
    __slots__ = ("x",)


class WithProperty(WithSlot):
    __slots__ = ()
    x = property(lambda self: known["thing"], lambda self, value: WithSlot.x.__set__(self, value))


class Zone(dt.tzinfo):
    def __init__(self, *things):
        if things:
            self.things = things

    def __getinitargs__(self):
        return (known["thing"],)


INSIDE = {
    Names: lambda made: list.__getitem__(made, 0),
    NamesInSet: lambda made: next(set.__iter__(made)),
    NamesInDeque: lambda made: made[0],
    Keys: lambda made: dict.__getitem__(made, "thing"),
    OrderedKeys: lambda made: dict.__getitem__(made, "thing"),
    DefaultKeys: lambda made: dict.__getitem__(made, "thing"),
    WithProperty: lambda made: WithSlot.x.__get__(made),
    Zone: lambda made: made.things[0],
}


@pytest.mark.parametrize("kind", INSIDE, ids=lambda kind: kind.__name__)
def test_what_code_inside_reducers_gives_keeps_its_identity(kind):
    thing = Thing()
    known["thing"] = thing
    made = kind()
    if isinstance(made, dict):
        dict.__setitem__(made, "thing", 0)
    elif isinstance(made, (list, collections.deque)):
        made.append(0)
    elif isinstance(made, set):
        made.add(0)
    whole = [thing, made]
    del thing
    codec = _Codec()
    for _ in range(2):
        for found in (pickle.loads(pickle.dumps(whole, 5)), codec.decode(codec.encode(whole))):
            assert INSIDE[kind](found[1]) is found[0]


class Shown(array.array):
    """Its state is what a property makes."""

    __dict__ = property(lambda self: {"x": known["thing"]})

    def __setstate__(self, state):
        self.x = state["x"]


def test_a_state_that_a_property_makes():
    thing = Thing()
    known["thing"] = thing
    whole = [thing, Shown("i", [1])]
    del thing
    for found in (pickle.loads(pickle.dumps(whole, 5)), CODEC.decode(CODEC.encode(whole))):
        assert found[1].x is found[0]


def test_what_leads_back_through_such_code_has_an_end():
    thing = Thing()
    known["thing"] = thing
    thing.names = Names(["thing"])
    whole = [thing]
    del thing
    pile = gabion.Pile(max_bytes="64 KiB")
    found = pile.get(pile.put(whole))
    assert list.__getitem__(found[0].names, 0) is found[0]


class Watched(list):
    """Tells whoever watches it, as soon as it is made."""

    def __init__(self, *items):
        super().__init__(*items)
        self.watchers = []

    def extend(self, items):
        list.extend(self, items)
        for watcher in self.watchers:
            watcher(self)

    append = extend


class Empty:
    def __reduce__(self):
        return Empty, (), None, iter(()), iter(())


def test_no_items_are_given_to_nobody():
    pile = gabion.Pile()
    for made in (Watched(), Empty()):
        expected = pickle.loads(pickle.dumps(made))
        found = pile.get(pile.put(made))
        assert type(found) is type(expected)
        assert vars(found) == vars(expected)


def with_attributes(made):
    made.extra = [1]
    return [vars(made), made]


def an_error_and_its_arguments():
    error = FileNotFoundError(2, "".join(["not ", "found"]), "file")
    return [error.args, error]


def in_both(found):
    return found[0]["extra"], found[1].extra


# What native reducers take out of others that hold it, and where it is found in what comes back.
TAKEN = {
    "values": (lambda d: [d, iter(d.values())], lambda found: (found[0]["k"], next(found[1]))),
    "items": (lambda d: [d, iter(d.items())], lambda found: (found[0]["k"], next(found[1])[1])),
    "backwards": (lambda d: [d, reversed(d.values())], lambda found: (found[0]["k"], next(found[1]))),
    "first": (lambda d: [iter(d.values()), d], lambda found: (found[1]["k"], next(found[0]))),
    "of a list": (lambda d: [d["k"], iter([d["k"]])], lambda found: (found[0], next(found[1]))),
    "set": (lambda d: [s := {Thing()}, iter(s)], lambda found: (next(iter(found[0])), next(found[1]))),
    "zip": (lambda d: [d, zip(d.values())], lambda found: (found[0]["k"], next(found[1])[0])),
    "error": (lambda d: an_error_and_its_arguments(), lambda found: (found[0][1], found[1].args[1])),
    "import": (lambda d: with_attributes(ImportError("no", name="n")), in_both),
    "file": (lambda d: with_attributes(io.BytesIO(b"x")), in_both),
    "deque": (lambda d: [d["k"], collections.deque([d["k"]])], lambda found: (found[0], found[1][0])),
    "partial": (lambda d: with_attributes(functools.partial(int)), in_both),
    "getter": (lambda d: [d, operator.itemgetter(*d)], lambda found: (found[0]["k"], found[1](found[0]))),
    "exception": (lambda d: with_attributes(ValueError(d)), in_both),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_what_native_reducers_take_out_of_others_keeps_its_identity(name):
    make, find = TAKEN[name]
    value = make({"k": [1]})
    codec = _Codec()
    # Iterators are used up by whoever reads them, not by who stores them.
    for found in (pickle.loads(pickle.dumps(value, 5)), codec.decode(codec.encode(value))):
        one, other = find(found)
        assert one is other


def test_what_leads_back_through_an_iterator_has_an_end():
    thing = {"values": []}
    thing["values"].append(iter(thing.values()))
    pile = gabion.Pile(max_bytes="1 MiB")
    for found in (pickle.loads(pickle.dumps(thing)), pile.get(pile.put(thing)), pile.get(pile.put([thing]))[0]):
        assert next(found["values"][0]) is found["values"]


def refuse(obj):
    raise AssertionError(obj)


@pytest.mark.parametrize(
    "value", [[1], (1, []), {"k": 1}, {1}, frozenset([1]), b"bytes", bytearray(b"bytes"), Thing, refuse], ids=repr
)
def test_reducers_of_what_pickle_knows_by_itself_are_not_asked(monkeypatch, value):
    met = _Codec()
    before = met.encode([value])
    monkeypatch.setitem(copyreg.dispatch_table, type(value), refuse)
    pickle.dumps(value)
    for codec in (met, _Codec()):
        assert codec.encode([value]) == before
        assert codec.decode(codec.encode([value, value])) == [value, value]


class Meta(type):
    pass


class Made(metaclass=Meta):
    pass


@pytest.mark.parametrize("value", [Made, dt.date(2020, 1, 2), 1j, range(3), slice(1)], ids=repr)
def test_reducers_of_others_are_asked(monkeypatch, value):
    monkeypatch.setitem(copyreg.dispatch_table, type(value), lambda obj: (str.upper, ("asked",)))
    codec = _Codec()
    for _ in range(2):
        assert pickle.loads(pickle.dumps(value)) == codec.decode(codec.encode([value]))[0] == "ASKED"
