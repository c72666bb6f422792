"""Objects that raise, re-enter, vanish or change while they are stored or built: the pile stays as it was."""

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from model import Plain, Slotted, check_against

import gabion


class Mine(Exception):
    pass


class Calls:
    """Runs a function when it is stored, then is stored as a plain value."""

    def __init__(self, action: Callable[[], Any], value: Any = "called") -> None:
        self.action, self.value = action, value

    def __reduce_ex__(self, protocol: int) -> Any:
        self.action()
        return (list, ((self.value,),))


def raises_mine() -> None:
    raise Mine


def nest(value: Any, depth: int) -> Any:
    for level in range(depth):
        value = (
            [1, value], {"k": value, "l": 2}, (0, value), Plain(a=1, inner=value), Slotted(1, "s", value),
        )[level % 5]  # fmt: skip
    return value


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "generator": lambda: (i for i in ()),
    "lock": threading.Lock,
    "lambda": lambda: lambda: 1,
    "local class": lambda: type("Local", (), {})(),
    "frame": sys._getframe,
    "module": lambda: sys,
    "raising reducer": lambda: Calls(raises_mine),
    "reducer of nonsense": lambda: type("N", (), {"__reduce_ex__": lambda self, p: 5})(),
    "reducer of too short a tuple": lambda: type("N", (), {"__reduce_ex__": lambda self, p: (list,)})(),
    "reducer of a wrong name": lambda: type("N", (), {"__reduce_ex__": lambda self, p: "no_such_name"})(),
    "reducer not callable": lambda: type("N", (), {"__reduce_ex__": lambda self, p: (1, ())})(),
    "reducer of no arguments tuple": lambda: type("N", (), {"__reduce_ex__": lambda self, p: (list, [1])})(),
}


@pytest.mark.parametrize("kind", UNSTORABLE)
@pytest.mark.parametrize("depth", [0, 1, 7, 2000])
def test_what_cannot_be_stored_leaves_the_pile_unchanged(pile: gabion.Pile, kind: str, depth: int) -> None:
    model: dict[int, Any] = {pile.put(value): value for value in ("a", [1], Plain(a=1), Slotted(1), b"x" * 5000)}
    pointer = next(iter(model))
    bad = nest(UNSTORABLE[kind](), depth)
    before = pile.stats()
    for _ in range(3):
        with pytest.raises((gabion.CodecError, Mine)):
            pile.put(bad)
        with pytest.raises((gabion.CodecError, Mine)):
            pile.replace(pointer, bad)
        with pytest.raises((gabion.CodecError, Mine)):
            pile.put_many([1, bad, 2])
    after = pile.stats()
    assert (after.objects, after.used_bytes) == (before.objects, before.used_bytes)
    check_against(pile, model)


def test_what_a_reducer_raises_of_its_own_arrives(pile: gabion.Pile) -> None:
    for call in (pile.put, lambda bad: pile.put_many([1, bad])):
        with pytest.raises(Mine) as error:
            call([1, Calls(raises_mine)])
        assert error.value.__notes__[0] == "while storing an object of class list"
    assert len(pile) == 0


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupts_pass_through(pile: gabion.Pile, interrupt: type[BaseException]) -> None:
    def stop() -> None:
        raise interrupt

    pointer = pile.put("old")
    for call in (pile.put, lambda bad: pile.replace(pointer, bad), lambda bad: pile.put_many([1, bad])):
        with pytest.raises(interrupt):
            call([1, Calls(stop)])
    check_against(pile, {pointer: "old"})


class RaisesOnBuild:
    armed: type[BaseException] | None = None

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def __getstate__(self) -> Any:
        return {"value": self.value}

    def __setstate__(self, state: Any) -> None:
        if RaisesOnBuild.armed:
            raise RaisesOnBuild.armed
        self.__dict__.update(state)


class RaisesInNew:
    armed = False

    def __new__(cls, *arguments: Any) -> "RaisesInNew":
        if cls.armed:
            raise Mine
        return super().__new__(cls)

    def __getnewargs__(self) -> tuple[int]:
        return (1,)


class RaisesInHash:
    armed = False

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        if RaisesInHash.armed:
            raise Mine
        return 1

    def __eq__(self, other: object) -> bool:
        if RaisesInHash.armed:
            raise Mine
        return self is other


@pytest.mark.parametrize("error", [Mine, KeyboardInterrupt, MemoryError, RecursionError])
def test_an_object_that_cannot_be_built_stays(
    pile: gabion.Pile, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    pointer = pile.put([1, RaisesOnBuild(5), 2])
    monkeypatch.setattr(RaisesOnBuild, "armed", error)
    for call in (
        pile.get, pile.pop, lambda p: pile.get(p, "default"), lambda p: pile.pop(p, "default"),
        lambda p: pile.get_many([p]), lambda p: pile.get_many([p], "default"),
    ):  # fmt: skip
        with pytest.raises((gabion.CodecError, error)) as raised:
            call(pointer)
        assert isinstance(raised.value, error) or isinstance(raised.value.__cause__, error)
        assert not isinstance(raised.value, LookupError)
    pile.validate()
    assert pointer in pile
    monkeypatch.setattr(RaisesOnBuild, "armed", None)
    assert pile.pop(pointer)[1].value == 5
    assert len(pile) == 0


def test_new_hash_and_eq_that_raise(pile: gabion.Pile, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[Any] = [
        [RaisesInNew()], {RaisesInHash(1), RaisesInHash(2)}, {RaisesInHash(1): 1, RaisesInHash(2): 2},
        frozenset([RaisesInHash(3)]), {"deep": [{RaisesInHash(1): [1]}]},
    ]  # fmt: skip
    pointers = [pile.put(value) for value in stored]
    for owner in (RaisesInNew, RaisesInHash):
        monkeypatch.setattr(owner, "armed", True)
    for pointer in pointers:
        for call in (pile.get, pile.pop):
            with pytest.raises((gabion.CodecError, Mine)):
                call(pointer)
        assert pointer in pile
    for owner in (RaisesInNew, RaisesInHash):
        monkeypatch.setattr(owner, "armed", False)
    assert len(pile.get(pointers[1])) == len(pile.get(pointers[2])) == 2
    for pointer in pointers:
        pile.pop(pointer)
    assert len(pile) == 0


def test_a_pointer_error_of_the_objects_own_is_no_miss(pile: gabion.Pile, monkeypatch: pytest.MonkeyPatch) -> None:
    pointer = pile.put(RaisesOnBuild(5))
    monkeypatch.setattr(RaisesOnBuild, "armed", gabion.PointerError)
    with pytest.raises(gabion.GabionError):
        pile.get(pointer, "default")
    with pytest.raises(gabion.GabionError):
        pile.get_many([pointer], "default")
    with pytest.raises(gabion.GabionError):
        pile.pop(pointer, "default")
    assert pointer in pile


def test_reducers_that_use_the_same_pile(pile: gabion.Pile) -> None:
    made: list[int] = []
    pointer = pile.put([Calls(lambda: made.append(pile.put({"from": "within"}))), Calls(lambda: pile.get(made[0]))])
    assert pile.get(pointer) == [["called"], ["called"]]
    assert pile.get(made[0]) == {"from": "within"}

    def deep(level: int) -> Any:
        return Calls(lambda: made.append(pile.put(deep(level - 1)))) if level else "bottom"

    pile.put(deep(30))
    assert len(pile) == 33
    assert pile.get(made[1]) == "bottom"


def test_a_reducer_that_clears_the_pile(pile: gabion.Pile) -> None:
    old = pile.put("old")
    pointer = pile.put([1, Calls(pile.clear)])
    assert old not in pile
    assert pile.get(pointer) == [1, ["called"]]
    with pytest.raises(gabion.PointerError):
        pile.replace(pointer, Calls(pile.clear))
    assert len(pile) == 0


@pytest.mark.parametrize("call", ["put", "put_many", "replace", "get", "pop", "get_many"])
def test_closing_in_the_midst_of_a_call(call: str) -> None:
    pile = gabion.Pile()
    pointer = pile.put(1)
    closer = Closer()
    Closer.pile = pile
    if call in ("get", "pop", "get_many"):
        pointer = pile.put([closer, "after"])
        try:
            result = getattr(pile, call)([pointer] if call == "get_many" else pointer)
        except gabion.GabionError:
            pass
        else:
            assert (result[0] if call == "get_many" else result)[1] == "after"
    else:
        arguments = {"put": (Calls(pile.close),), "put_many": ([1, Calls(pile.close)],)}
        with contextlib.suppress(gabion.GabionError):
            getattr(pile, call)(*arguments.get(call, (pointer, Calls(pile.close))))
    assert pile.closed
    with pytest.raises(gabion.ClosedError):
        pile.get(pointer)
    Closer.pile = None


class Closer:
    pile: gabion.Pile | None = None

    def __getstate__(self) -> Any:
        return 1

    def __setstate__(self, state: Any) -> None:
        if Closer.pile:
            Closer.pile.close()


def test_nothing_stays_stored_in_a_pile_that_was_closed_meanwhile() -> None:
    pile = gabion.Pile()
    with pytest.raises(gabion.ClosedError):
        pile.put([1, Calls(pile.close)])
    pile = gabion.Pile()
    with pytest.raises(gabion.ClosedError):
        pile.put_many([1, Calls(pile.close)])


class Reenters:
    """Uses the pile that it is built from."""

    action: Callable[[], Any] = staticmethod(lambda: None)

    def __getstate__(self) -> Any:
        return 1

    def __setstate__(self, state: Any) -> None:
        Reenters.action()


def test_building_that_uses_the_same_pile(pile: gabion.Pile) -> None:
    pointer = pile.put([Reenters(), "after"])
    actions: list[Callable[[], Any]] = [
        lambda: pile.put("x" * 3000), lambda: pile.replace(pointer, [Reenters(), "after"]), pile.compact,
        lambda: pile.get(other), lambda: pile.validate(), lambda: list(pile),
    ]  # fmt: skip
    other = pile.put("other")
    for action in actions:
        Reenters.action = staticmethod(action)
        assert pile.get(pointer)[1] == "after"
    Reenters.action = staticmethod(lambda: pile.discard(pointer))
    assert pile.get(pointer)[1] == "after"
    assert pointer not in pile
    pointer = pile.put([Reenters(), "after"])
    Reenters.action = staticmethod(lambda: pile.discard(pointer))
    with pytest.raises(gabion.PointerError):
        pile.pop(pointer)
    pointer = pile.put([Reenters(), "after"])
    Reenters.action = staticmethod(pile.clear)
    assert pile.get(pointer)[1] == "after"
    Reenters.action = staticmethod(lambda: None)
    assert len(pile) == 0


def test_pop_of_an_object_replaced_while_it_was_built(pile: gabion.Pile) -> None:
    pointer = pile.put(["first", Reenters()])
    Reenters.action = staticmethod(lambda: pile.replace(pointer, ["second"]))
    assert pile.pop(pointer) == ["second"]
    Reenters.action = staticmethod(lambda: None)
    assert len(pile) == 0


def test_containers_that_change_while_they_are_stored(pile: gabion.Pile) -> None:
    for make, change in (
        (list, lambda c: c.clear()), (list, lambda c: c.extend([1] * 1000)),
        (lambda items: dict.fromkeys(range(len(items)), items[0]), lambda c: c.clear()),
        (lambda items: dict.fromkeys(range(len(items)), items[0]), lambda c: c.update(dict.fromkeys("abcdefgh" * 99))),
    ):  # fmt: skip
        holder: list[Any] = []
        changes = Calls(lambda change=change, holder=holder: change(holder[0]))
        container = make([changes, "x" * 10, [1], changes] * 5)
        holder.append(container)
        if isinstance(container, dict):
            container.update({f"k{i}": [i] for i in range(20)})
            container["again"] = changes
        try:
            pointer = pile.put(container)
        except gabion.CodecError:
            continue
        pile.get(pointer)
    thing = Plain(a=None, b=[1], c="x")
    thing.a = Calls(lambda: thing.__dict__.clear())
    with contextlib.suppress(gabion.CodecError):
        pile.get(pile.put(thing))
    slotted = Slotted(1, "x" * 50, None)
    slotted.first = Calls(lambda: setattr(slotted, "note", "y" * 50) or delattr(slotted, "number"))
    with contextlib.suppress(gabion.CodecError):
        pile.get(pile.put(slotted))
    pile.validate()


def test_huge_containers_and_long_chains(pile: gabion.Pile) -> None:
    values: list[Any] = [
        list(range(300_000)), dict.fromkeys(range(100_000), "v"), set(range(100_000)), "x" * 5_000_000,
        [[] for _ in range(100_000)], tuple(range(100_000)), 10**100_000,
    ]  # fmt: skip
    for value in values:
        pointer = pile.put(value)
        assert pile.get(pointer) == value
        pile.remove(pointer)
    chain: Any = None
    for i in range(200_000):
        chain = Slotted(i, "", chain)
    found = pile.get(pile.put(chain))
    for i in reversed(range(200_000)):
        assert found.number == i
        chain, found = chain.note, found.note
    pile.clear()


def test_recursive_structures(pile: gabion.Pile) -> None:
    items: list[Any] = [1]
    items.append(items)
    found = pile.get(pile.put(items))
    assert found[1] is found
    assert repr(found) == "[1, [...]]"
    mapping: dict[str, Any] = {}
    mapping["self"] = (mapping, [mapping])
    found = pile.get(pile.put(mapping))
    assert found["self"][0] is found["self"][1][0] is found
    thing = Slotted()
    thing.note = {"thing": thing}
    found = pile.get(pile.put(thing))
    assert found.note["thing"] is found
    assert "1 object" not in repr(pile)


def test_a_finalizer_that_uses_the_pile_while_an_object_is_thrown_away(pile: gabion.Pile) -> None:
    deleted: list[int] = []

    class Finalized:
        def __del__(self) -> None:
            deleted.append(pile.put("from a finalizer"))

    class Temporary:
        def __reduce_ex__(self, protocol: int) -> Any:
            Finalized()
            return (list, ((1,),))

    keep = Temporary()
    assert pile.get(pile.put([keep, keep])) == [[1], [1]]
    assert pile.get(deleted[0]) == "from a finalizer"


def test_reserve_and_max_bytes_with_numbers_that_misbehave(pile: gabion.Pile) -> None:
    class Index:
        def __index__(self) -> int:
            raise Mine

    with pytest.raises((Mine, TypeError)):
        pile.put(1, reserve=Index())
    with pytest.raises((Mine, TypeError)):
        gabion.Pile(max_bytes=Index())
    assert len(pile) == 0


def test_a_class_whose_names_compare_in_a_way_of_their_own(script: Callable[..., str]) -> None:
    script(
        """
        import sys
        import gabion

        class Name(str):
            __hash__ = str.__hash__
            def __eq__(self, other):
                for thing in things[-1:]:
                    # What the codec is just looking at goes.
                    thing.__dict__.clear()
                    [bytearray(size) for size in range(500)]
                return False

        things = []
        Made = type("Made", (), {"__module__": "__main__", Name("alpha"): 1, Name("beta"): 2})
        pile = gabion.Pile()
        for _ in range(3):
            thing = Made()
            thing.alpha, thing.beta, thing.gamma = [1], "b" * 80, 2.5
            things.append(thing)
            getattr(sys, "_clear_internal_caches", sys._clear_type_cache)()
            pointer = pile.put(thing)
            assert things.pop() is thing
            assert vars(pile.get(pointer)) in ({}, {"alpha": [1], "beta": "b" * 80, "gamma": 2.5})
            pile.remove(pointer)
        """
    )


class Restless:
    """Replaces itself whenever it is built."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __setstate__(self, state: Any) -> None:
        global restless
        pile, pointer, number = restless
        restless = pile, pointer, number + 1
        pile.replace(pointer, Restless(number))


restless: Any = None


def test_pop_of_what_replaces_itself_comes_to_an_end() -> None:
    global restless
    pile = gabion.Pile()
    pointer = pile.put(Restless(0))
    restless = pile, pointer, 1
    with pytest.raises(RuntimeError, match="was replaced each of the 100 times"):
        pile.pop(pointer)
    assert pointer in pile
    pile.remove(pointer)
    pile.validate()
    restless = None
