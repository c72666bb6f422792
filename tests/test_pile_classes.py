"""Classes that vanish, are defined anew or are patched between put and get."""

import copyreg
import mmap
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from model import Plain, Slotted

import gabion


class Mine(Exception):
    pass


def test_a_class_that_vanished(pile: gabion.Pile) -> None:
    module = types.ModuleType("vanishing")
    sys.modules["vanishing"] = module
    exec("class Gone:\n    __slots__ = ('a',)\nclass Dict:\n    pass\ndef function():\n    pass", module.__dict__)
    gone, plain = module.Gone(), module.Dict()
    gone.a, plain.a = 1, 2
    pointers = [pile.put(gone), pile.put(plain), pile.put(module.function)]
    del module.Gone, module.Dict, module.function
    for keep_module in (True, False):
        for pointer in pointers:
            try:
                pile.get(pointer)
            except gabion.CodecError:
                assert pointer in pile
        for instance in (gone, plain):
            with pytest.raises(gabion.CodecError):
                pile.put(instance)
        if keep_module:
            del sys.modules["vanishing"]
    pile.validate()
    assert pile.remove_many(pointers) == 3


def define(source: str, name: str) -> Any:
    """Makes a class importable as model-like code would: by its name in this module."""
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(source, namespace)
    globals()[name] = namespace[name]
    return namespace[name]


def test_a_class_defined_anew_with_other_slots(pile: gabion.Pile) -> None:
    pointers = {}
    for slots in ("'a'", "'a', 'b'", "'b', 'a', 'c'", "'c',", "'__dict__', 'a'"):
        made = define(f"class Again:\n    __slots__ = ({slots})", "Again")
        thing = made()
        for name in ("a", "b", "c"):
            if name in slots:
                setattr(thing, name, f"{name} of {slots}")
        pointers[pile.put(thing)] = slots
    for pointer, slots in pointers.items():
        found = pile.get(pointer)
        assert type(found) is made
        for name in ("a", "b", "c"):
            assert getattr(found, name, None) == (f"{name} of {slots}" if name in slots else None)
    pile.validate()


def test_a_class_patched_between_put_and_get(pile: gabion.Pile) -> None:
    made = define("class Patched:\n    def __init__(self): self.a, self.b = 1, 2", "Patched")
    before = pile.put(made())
    made.__reduce__ = lambda self: (list, (("patched",),))
    assert pile.get(pile.put(made())) == ["patched"]
    assert vars(pile.get(before)) == {"a": 1, "b": 2}
    del made.__reduce__
    made.__getstate__ = lambda self: {"a": "from state"}
    assert vars(pile.get(pile.put(made()))) == {"a": "from state"}
    del made.__getstate__
    made.__setstate__ = lambda self, state: self.__dict__.update(seen=sorted(state))
    assert vars(pile.get(pile.put(made()))) == {"seen": ["a", "b"]}
    del made.__setstate__
    made.a = property(lambda self: "computed", lambda self, value: (_ for _ in ()).throw(Mine))
    thing = made.__new__(made)
    thing.__dict__.update(a=1, b=2)
    assert vars(pile.get(pile.put(thing))) == {"a": 1, "b": 2}
    del made.a
    made.__setattr__ = lambda self, name, value: (_ for _ in ()).throw(Mine)
    thing = made.__new__(made)
    thing.__dict__.update(a=1, b=3)
    assert vars(pile.get(pile.put(thing))) == {"a": 1, "b": 3}
    del made.__setattr__
    made.__new__ = lambda cls: object.__new__(cls)
    assert vars(pile.get(pile.put(made()))) == {"a": 1, "b": 2}
    assert vars(pile.get(before)) == {"a": 1, "b": 2}


@pytest.mark.parametrize("slots", ["", "    __slots__ = ('number', 'text')\n"])
def test_a_class_that_counts_its_instances(pile: gabion.Pile, slots: str) -> None:
    """Each change of a class is a new state of it, but not a new way to store its instances."""
    source = f"""class Counted:
{slots}    count = 0
    def __init__(self):
        Counted.count += 1
        self.number, self.text = Counted.count, 'n'
"""
    made = define(source, "Counted")
    first = pile.put(made())
    types, sizes = pile.stats().types, {pile.size_of(first)}
    pointers = [first, *(pile.put(made()) for _ in range(99))]
    assert pile.stats().types == types
    assert {pile.size_of(pointer) for pointer in pointers[:20]} == sizes
    assert [pile.fields(pointer, "number", "text") for pointer in pointers] == [(n, "n") for n in range(1, 101)]
    assert [pile.get(pointer).number for pointer in pointers] == [*range(1, 101)]


def test_a_reducer_registered_and_taken_back(pile: gabion.Pile, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pile.put(Slotted(1))
    monkeypatch.setitem(copyreg.dispatch_table, Slotted, lambda thing: (list, ((thing.number,),)))
    assert pile.get(pile.put([Slotted(7)])) == [[7]]
    monkeypatch.undo()
    assert pile.get(pile.put([Slotted(7)])) == [Slotted(7)]
    assert pile.get(first) == Slotted(1)


def test_a_reducer_of_one_class_in_place_of_anothers(pile: gabion.Pile, monkeypatch: pytest.MonkeyPatch) -> None:
    def reduced(thing: Slotted | Plain) -> Any:
        return (list, ((type(thing).__name__,),))

    def put() -> Any:
        return pile.get(pile.put([Slotted(7), Plain(a=1)]))

    monkeypatch.setitem(copyreg.dispatch_table, Slotted, reduced)
    for _ in range(2):
        assert put() == [["Slotted"], Plain(a=1)]
        monkeypatch.delitem(copyreg.dispatch_table, Slotted)
        monkeypatch.setitem(copyreg.dispatch_table, Plain, reduced)
        assert put() == [Slotted(7), ["Plain"]]
        monkeypatch.delitem(copyreg.dispatch_table, Plain)
        monkeypatch.setitem(copyreg.dispatch_table, Slotted, reduced)


def test_reducers_that_come_and_go_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pile = gabion.Pile()
    things = [Slotted(1), Plain(a=1), (1, 2), {3}, Mine()]

    def rounds(count: int) -> None:
        for _ in range(count):
            with monkeypatch.context() as patch:
                patch.setitem(copyreg.dispatch_table, Slotted, lambda thing: (list, ()))
                assert pile.pop(pile.put(things))[0] == []
            assert pile.pop(pile.put(things))[0] == Slotted(1)

    rounds(200)
    before = rss()
    rounds(4000)
    # The plans alone would be some 5 KB each time.
    assert rss() - before < 4 << 20


def rss() -> int:
    """What the process takes of memory, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_class_assignment_on_instances(pile: gabion.Pile) -> None:
    one = define("class One:\n    __slots__ = ('a', 'b')", "One")
    two = define("class Two:\n    __slots__ = ('a', 'b')", "Two")
    thing = one()
    thing.a, thing.b = 1, 2
    first = pile.put(thing)
    thing.__class__ = two
    second = pile.put(thing)
    assert (type(pile.get(first)), type(pile.get(second))) == (one, two)
    assert pile.get(second).b == 2
    plain = Plain(a=1)
    plain.__class__ = Other
    assert type(pile.get(pile.put(plain))) is Other

    class Assigns:
        def __reduce_ex__(self, protocol: int) -> Any:
            thing.__class__ = one if type(thing) is two else two
            thing.a = "changed"
            return (list, ())

    for _ in range(10):
        found = pile.get(pile.put([thing, Assigns(), thing]))
        assert type(found[0]) in (one, two)
        assert found[0] is found[2]


class Other(Plain):
    pass


class Liar:
    """Says that it is of another class."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return int


def test_an_object_that_lies_about_its_class(pile: gabion.Pile) -> None:
    import pickle

    try:
        pickle.dumps(Liar())
    except pickle.PicklingError:
        with pytest.raises(gabion.CodecError):
            pile.put(Liar())
    else:
        assert type(pile.get(pile.put(Liar()))) is Liar
