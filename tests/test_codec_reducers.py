"""Code that reducers run without being written in Python themselves, and what they give that is empty."""

import array
import collections
import datetime as dt
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
