"""Numbers that are no pointers, or are no more: each is refused, and never leads to another object."""

import contextlib
import random
import threading
from typing import Any

import pytest
from model import LONG, check_equations

import gabion

TRIALS = 10**8 if LONG else 10**6


def test_a_stale_pointer_is_refused_for_ever(pile: gabion.Pile) -> None:
    stale: set[int] = set()
    pointer = pile.put("first")
    for number in range(20_000):
        stale.add(pointer)
        pile.remove(pointer)
        pointer = pile.put(number)
        assert pointer not in stale
    assert not any(old in pile for old in stale)
    for old in random.Random(1).sample(sorted(stale), 1000):
        with pytest.raises(gabion.PointerError):
            pile.get(old)
        with pytest.raises(gabion.PointerError):
            pile.replace(old, "intruder")
        with pytest.raises(gabion.PointerError):
            pile.remove(old)
        assert pile.discard(old) is False
    assert pile.get(pointer) == 19_999


def test_what_is_stale_is_told_with_what_may_have_happened(pile: gabion.Pile) -> None:
    pointer = pile.put("gone")
    pile.remove(pointer)
    told = f"^pointer {pointer} is stale: its object was removed, or it was put in another process; drop it$"
    with pytest.raises(gabion.PointerError, match=told):
        pile.get(pointer)


@pytest.mark.parametrize("size", [0, 40, 900, 3000, 100_000, 1_500_000])
def test_stale_after_remove_pop_clear_whatever_takes_its_place(pile: gabion.Pile, size: int) -> None:
    for end in ("remove", "pop", "discard", "clear"):
        stale = [pile.put(b"old" + b"x" * size) for _ in range(5)]
        if end == "clear":
            pile.clear()
        else:
            for pointer in stale:
                getattr(pile, end)(pointer)
        fresh = [pile.put(b"new" + b"y" * size) for _ in range(10)]
        for pointer in stale:
            assert pointer not in pile
            for call in (pile.get, pile.remove, pile.pop, pile.size_of, pile.view, pile.fields):
                with pytest.raises(gabion.PointerError):
                    call(pointer)
            with pytest.raises(gabion.PointerError):
                pile.replace(pointer, b"intruder")
        assert all(pile.get(pointer) == b"new" + b"y" * size for pointer in fresh)
        pile.clear()


def test_pointers_of_other_piles(pile: gabion.Pile) -> None:
    others = [gabion.Pile() for _ in range(5)]
    pointers = {other: [other.put((number, i)) for i in range(100)] for number, other in enumerate(others)}
    own = [pile.put("own") for _ in range(100)]
    for other, theirs in pointers.items():
        assert not any(pointer in pile for pointer in theirs)
        assert not any(pointer in other for pointer in own)
        for third in others:
            assert third is other or not any(pointer in third for pointer in theirs)
    with pytest.raises(gabion.PointerError):
        pile.get(pointers[others[0]][0])
    for other in others:
        other.close()
    fresh = gabion.Pile()
    new = [fresh.put("fresh") for _ in range(500)]
    for theirs in pointers.values():
        assert not any(pointer in fresh or pointer in pile for pointer in theirs)
    assert fresh.get_many(new) == ["fresh"] * 500


def test_pointers_of_piles_that_are_gone() -> None:
    old: set[int] = set()
    for number in range(300):
        pile = gabion.Pile()
        pointers = [pile.put((number, i)) for i in range(5)]
        assert not old & set(pointers)
        assert not any(pointer in pile for pointer in random.Random(number).sample(sorted(old), min(len(old), 50)))
        old.update(pointers)
        del pile


def bits(pile: gabion.Pile, pointers: list[int]) -> None:
    for pointer in pointers:
        value = pile.get(pointer)
        for bit in range(70):
            other = pointer ^ (1 << bit)
            found = pile.get(other, "refused")
            assert found == "refused" or other in pile
        assert pile.get(pointer) == value


def test_every_single_bit_matters(pile: gabion.Pile) -> None:
    pointers = [pile.put([i, b"x" * size]) for i, size in enumerate((0, 50, 900, 1100, 5000, 2_000_000) * 5)]
    bits(pile, pointers)
    live = set(pointers)
    for pointer in pointers:
        for bit in range(70):
            other = pointer ^ (1 << bit)
            assert (other in pile) == (other in live)


def test_a_pointer_that_a_float_rounded_never_leads_to_another_object(pile: gabion.Pile) -> None:
    pointers = [pile.put(i) for i in range(3000)]
    for i, pointer in enumerate(pointers):
        assert pile.get(int(float(pointer)), i) == i
    high = pointers[0] | (2**20 - 1) << 40
    assert int(float(high)) != high
    with pytest.raises(gabion.PointerError, match="may have been one before it was rounded"):
        pile.get(int(float(high)))
    numpy = pytest.importorskip("numpy")
    for number in (float(pointers[0]), numpy.float64(pointers[0]), numpy.float32(1)):
        with pytest.raises(TypeError, match=r"not float.*, which has lost digits that int\(\) does not bring back"):
            pile.get(number)


def test_a_million_random_and_mutated_numbers(pile: gabion.Pile) -> None:
    chooser = random.Random(20)
    live = {}
    for i in range(3000):
        value = (i, b"x" * chooser.choice((0, 10, 100, 900, 3000)))
        live[pile.put(value)] = value
    for pointer in chooser.sample(list(live), 1000):
        pile.remove(pointer)
        del live[pointer]
    pointers = list(live)
    missing = object()
    low = (1 << 40) - 1
    for _ in range(TRIALS // 10_000):
        numbers = [chooser.getrandbits(chooser.choice((60, 64, 39, 20))) for _ in range(2500)]
        numbers += [chooser.choice(pointers) + chooser.randrange(-64, 64) for _ in range(2500)]
        numbers += [chooser.choice(pointers) ^ 1 << chooser.randrange(64) for _ in range(2500)]
        # The place of a live object, under any generation.
        numbers += [chooser.choice(pointers) & low | chooser.getrandbits(20) << 40 for _ in range(2500)]
        numbers = [number % 2**64 for number in numbers]
        for number, found in zip(numbers, pile.get_many(numbers, missing)):
            if number in live:
                assert found == live[number]
            else:
                assert found is missing
    for number in numbers[:2000]:
        if number not in live:
            assert number not in pile
            assert pile.discard(number) is False
            for call in (pile.remove, pile.size_of, pile.view, pile.get, pile.pop):
                with pytest.raises(gabion.PointerError):
                    call(number)
            with pytest.raises(gabion.PointerError):
                pile.replace(number, "intruder")
    assert pile.remove_many([number for number in numbers if number not in live]) == 0
    assert sorted(pile) == sorted(live)
    check_equations(pile)


@pytest.mark.parametrize("number", [0, 1, -1, 2**60 - 1, 2**60, 2**63, 2**64 - 1, 2**64, 2**200, -(2**63), -(2**200)])
def test_numbers_at_the_edges(pile: gabion.Pile, number: int) -> None:
    live = pile.put("live")
    assert number not in pile
    assert pile.get(number, "default") == "default"
    assert pile.pop(number, "default") == "default"
    assert pile.discard(number) is False
    for call in (pile.get, pile.pop, pile.remove, pile.size_of, pile.view, pile.fields):
        with pytest.raises(gabion.PointerError):
            call(number)
    with pytest.raises(gabion.PointerError):
        pile.replace(number, 1)
    with pytest.raises(gabion.PointerError):
        pile.get_many([live, number])
    assert pile.get(live) == "live"


@pytest.mark.parametrize("thing", [None, 1.0, "1", b"1", [], (), object(), 1j, int, Ellipsis], ids=repr)
def test_what_is_no_int_is_a_type_error(pile: gabion.Pile, thing: Any) -> None:
    live = pile.put("live")
    for call in (
        pile.get, pile.pop, pile.remove, pile.discard, pile.size_of, pile.view, pile.fields,
        lambda p: pile.get(p, None), lambda p: pile.pop(p, 1), lambda p: pile.replace(p, 1), lambda p: p in pile,
        lambda p: pile.get_many([p]), lambda p: pile.get_many([p], 1), lambda p: pile.remove_many([live, p]),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            call(thing)
    assert pile.get(live) == "live"


def test_true_and_false_are_numbers_and_no_pointers(pile: gabion.Pile) -> None:
    for value in (True, False):
        assert pile.get(value, "default") == "default"
        with pytest.raises((gabion.PointerError, TypeError)):
            pile.get(value)


class Index:
    def __init__(self, value: Any, action: Any = None) -> None:
        self.value, self.action = value, action

    def __index__(self) -> Any:
        if self.action:
            self.action()
        return self.value


class Mine(Exception):
    pass


def calls(pile: gabion.Pile) -> list[Any]:
    return [
        pile.get, pile.pop, pile.remove, pile.discard, pile.size_of, pile.view, pile.fields,
        lambda p: pile.get(p, None), lambda p: pile.pop(p, 1), lambda p: pile.replace(p, 1), lambda p: p in pile,
        lambda p: pile.get_many([p]), lambda p: pile.get_many([p], 1), lambda p: pile.remove_many([p]),
    ]  # fmt: skip


def test_numbers_in_other_clothes(pile: gabion.Pile) -> None:
    class MyInt(int):
        pass

    pointer = pile.put("value")
    assert pile.get(Index(pointer)) == "value"
    assert pile.get(MyInt(pointer)) == "value"
    assert Index(pointer) in pile
    numpy = pytest.importorskip("numpy")
    for kind in (numpy.uint64, numpy.int64):
        assert pile.get(kind(pointer)) == "value"
        assert kind(pointer) in pile
    assert pile.get(numpy.array(pointer)) == "value"
    for kind, wrong in (("i8", -1), ("u8", 2**64 - 1), (">i8", 5)):
        many = numpy.array([pointer, wrong], kind)
        assert pile.get_many(many, None) == ["value", None]
        with pytest.raises(gabion.PointerError, match=str(many[1])):
            pile.get_many(many)
    with pytest.raises(TypeError):
        pile.get(numpy.float64(pointer))
    with pytest.raises(gabion.PointerError):
        pile.get(numpy.int64(-1))
    assert pile.pop(numpy.uint64(pointer)) == "value"


@pytest.mark.parametrize("error", [Mine, KeyboardInterrupt, gabion.PointerError])
def test_an_index_that_raises(pile: gabion.Pile, error: type[BaseException]) -> None:
    pointer = pile.put("value")

    def stop() -> None:
        raise error

    for number, call in enumerate(calls(pile)):
        if error is gabion.PointerError:
            with contextlib.suppress(gabion.PointerError):
                call(Index(pointer, stop))
            continue
        with pytest.raises(error):
            call(Index(pointer, stop))
            raise AssertionError(number)
    assert pile.get(pointer) == "value"


@pytest.mark.parametrize("value", [None, "1", 1.5])
def test_an_index_that_returns_no_int(pile: gabion.Pile, value: Any) -> None:
    for call in calls(pile):
        with pytest.raises(TypeError):
            call(Index(value))


@pytest.mark.parametrize("action", ["remove", "clear", "close", "replace", "compact"])
def test_an_index_that_changes_the_pile_meanwhile(action: str) -> None:
    for number in range(14):
        pile = gabion.Pile()
        pointer = pile.put("value")

        def act(pile: gabion.Pile = pile, pointer: int = pointer) -> None:
            if action == "remove":
                pile.discard(pointer)
            elif action == "replace":
                pile.replace(pointer, "other" * 1000)
            else:
                getattr(pile, action)()

        with contextlib.suppress(gabion.PointerError, gabion.ClosedError, TypeError, AttributeError):
            calls(pile)[number](Index(pointer, act))
        if action != "close":
            pile.validate()
        if action in ("remove", "clear"):
            assert len(pile) == 0


def test_hostile_numbers_beside_writers() -> None:
    pile = gabion.Pile()
    stop = threading.Event()
    wrong: list[Any] = []
    current: list[int] = [pile.put((0, 0))]

    def write() -> None:
        mine = random.Random(1)
        while not stop.is_set():
            current.append(pile.put((len(current), b"x" * mine.choice((1, 500, 2000)))))
            if len(current) > 50:
                pile.remove(current.pop(mine.randrange(50)))
            pile.replace(current[-1], (1, b"r" * mine.choice((1, 3000))))

    def attack(seed: int) -> None:
        mine = random.Random(seed)
        for _ in range(30_000):
            number = current[mine.randrange(30) % len(current)] ^ mine.getrandbits(mine.choice((3, 39, 60)))
            found = pile.get(number, None)
            if found is not None and not (isinstance(found, tuple) and len(found) == 2):
                wrong.append((number, found))

    writer = threading.Thread(target=write)
    attackers = [threading.Thread(target=attack, args=(seed,)) for seed in range(2)]
    for thread in (writer, *attackers):
        thread.start()
    for thread in attackers:
        thread.join()
    stop.set()
    writer.join()
    assert not wrong
    pile.validate()


def test_pointers_of_another_process_are_refused(script: Any) -> None:
    """Two processes that do the same give other pointers, so that one that was sent instead of its object is found."""
    program = "import gabion; pile = gabion.Pile(); print(*pile.put_many(range(100)))"
    here = gabion.Pile()
    mine = set(here.put_many(range(100)))
    strangers = [set(map(int, script(program).split())) for _ in range(3)]
    # Two processes in 65,536 begin at the same generation.
    assert sum(not there & mine for there in strangers) >= 2
    refused = [here.get(pointer, None) is None for there in strangers for pointer in there]
    assert sum(refused) >= 200


def test_new_piles_of_a_child_and_its_parent_give_different_pointers(script: Any) -> None:
    program = """
    import os, gabion
    told, tells = os.pipe()
    child = os.fork()
    mine = gabion.Pile().put("object")
    if not child:
        os.write(tells, str(mine).encode())
        os._exit(0)
    os.close(tells)
    os.waitpid(child, 0)
    with os.fdopen(told) as said:
        print(mine, int(said.read()))
    """
    # As above.
    assert any(mine != theirs for mine, theirs in (script(program).split() for _ in range(2)))
