"""gabion.Pile's face: every method, its arguments, defaults, refusals and documentation."""

import doctest
import inspect
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from model import SIZES, Plain, check_equations, some_of_everything

import gabion

METHODS = (
    "put", "get", "replace", "remove", "pop", "discard", "size_of", "put_many", "get_many", "remove_many", "view",
    "fields", "values", "items", "stats", "clear", "compact", "validate", "close",
)  # fmt: skip
TAKES_POINTER = ("get", "remove", "pop", "discard", "size_of", "view", "fields")


def test_every_public_name_is_listed_and_there() -> None:
    assert set(gabion.__all__) <= set(dir(gabion))
    for name in gabion.__all__:
        assert getattr(gabion, name) is not None


@pytest.mark.parametrize("value", some_of_everything(), ids=lambda value: repr(value)[:30])
def test_what_comes_back_is_equal_and_of_the_same_type(pile: gabion.Pile, value: Any) -> None:
    pointer = pile.put(value)
    assert type(pointer) is int
    assert 0 < pointer < 2**60
    for found in (pile.get(pointer), pile.get(pointer, "default"), pile.get_many([pointer])[0]):
        assert type(found) is type(value)
        assert found == value
    pile.replace(pointer, ["something else"])
    pile.replace(pointer, value)
    assert pile.pop(pointer) == value
    assert pointer not in pile


def test_a_copy_is_stored_and_a_new_one_built(pile: gabion.Pile) -> None:
    original = [[1], {"a": 2}]
    pointer = pile.put(original)
    original[0].append(9)  # type: ignore[union-attr]
    first, second = pile.get(pointer), pile.get(pointer)
    assert first == second == [[1], {"a": 2}]
    assert first is not second
    assert first[0] is not second[0]


@pytest.mark.parametrize("size", SIZES)
def test_every_size(pile: gabion.Pile, size: int) -> None:
    payload = bytes(i * 7 % 256 for i in range(min(size, 999))).ljust(size, b"#")
    pointer = pile.put(payload)
    assert pile.get(pointer) == payload
    assert size <= pile.size_of(pointer) <= size + 10
    assert bytes(pile.view(pointer)) == payload
    check_equations(pile)
    assert pile.stats().large_objects == (pile.size_of(pointer) > 1 << 20)
    pile.remove(pointer)
    assert len(pile) == 0
    assert pile.stats().used_bytes == 0


def test_size_of_is_the_encoding_without_reserve_or_slot(pile: gabion.Pile) -> None:
    plain, reserved = pile.put("x" * 100), pile.put("x" * 100, reserve=4000)
    assert pile.size_of(plain) == pile.size_of(reserved)
    assert pile.size_of(pile.put(1)) < pile.size_of(plain) <= 110


def test_reserve_lets_an_object_grow_where_it_is(pile: gabion.Pile) -> None:
    pointer = pile.put(b"", reserve=4000)
    for size in (10, 500, 1000, 2000, 3900):
        before = pile.stats().reserved_bytes
        pile.replace(pointer, b"x" * size)
        assert pile.get(pointer) == b"x" * size
        assert pile.stats().reserved_bytes == before
        pile.validate()


@pytest.mark.parametrize("reserve", [0, 1, 100, 1000, 1024, 5000, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_reserve_of_every_size(pile: gabion.Pile, reserve: int) -> None:
    pointers = [pile.put("a" * 50, reserve=reserve) for _ in range(3)]
    for size in (reserve, reserve // 2, 0, reserve + 2000):
        for pointer in pointers:
            pile.replace(pointer, b"y" * size)
            pile.validate()
        assert all(pile.get(pointer) == b"y" * size for pointer in pointers)


def test_wrong_reserves_are_refused(pile: gabion.Pile) -> None:
    for reserve in (-1, -(2**70), 2**64, 2**70):
        with pytest.raises((ValueError, OverflowError, gabion.LimitError)):
            pile.put(1, reserve=reserve)
    for reserve in ("much", "-1", ""):
        with pytest.raises(ValueError, match="reserve"):
            pile.put(1, reserve=reserve)
    for reserve in (None, True, 1.5, b"1"):
        with pytest.raises(TypeError):
            pile.put(1, reserve=reserve)
    assert len(pile) == 0


def test_an_immense_reserve_costs_no_more_than_a_chunk(pile: gabion.Pile) -> None:
    for count, reserve in enumerate((2**62, "1 TiB"), 1):
        pointer = pile.put("small", reserve=reserve)
        assert pile.get(pointer) == "small"
        assert pile.stats().reserved_bytes <= count * (2 << 20)


def test_arguments_are_counted_and_named() -> None:
    with gabion.Pile() as pile:
        pointer = pile.put(1)
        wrong: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
            ("put", (), {}), ("put", (1, 2), {}), ("put", (), {"obj": 1}), ("put", (1,), {"reserved": 1}),
            ("put", (1,), {"reserve": 0, "more": 1}), ("get", (), {}), ("get", (pointer, 1, 2), {}),
            ("get", (pointer, 1), {"default": 1}), ("get", (), {"ptr": pointer}), ("replace", (pointer,), {}),
            ("replace", (pointer, 1, 2), {}), ("replace", (pointer,), {"obj": 1}), ("remove", (), {}),
            ("remove", (pointer, 1), {}), ("pop", (), {}), ("pop", (pointer, 1, 2), {}), ("discard", (), {}),
            ("discard", (pointer, 1), {}), ("size_of", (), {}), ("put_many", (), {}), ("put_many", ([], []), {}),
            ("get_many", (), {}), ("get_many", ([], 1, 2), {}), ("remove_many", (), {}), ("view", (), {}),
            ("view", (pointer, 1), {}), ("fields", (), {}), ("stats", (1,), {}), ("clear", (1,), {}),
            ("compact", (1,), {}), ("close", (1,), {}),
        ]  # fmt: skip
        for name, positional, keywords in wrong:
            with pytest.raises(TypeError):
                getattr(pile, name)(*positional, **keywords)
        assert pile.get(pointer) == 1
        assert len(pile) == 1
        hints = {(1,): "max_bytes=1", ("4 GiB", 2): "max_bytes='4 GiB'", (None,): "max_bytes=None"}
        for arguments, hint in hints.items():
            with pytest.raises(TypeError, match=f"by name only: write {hint}"):
                gabion.Pile(*arguments)
        with pytest.raises(TypeError):
            gabion.Pile(max_byte=1)


def test_methods_called_on_something_else_are_refused() -> None:
    for name in METHODS:
        with pytest.raises(TypeError):
            getattr(gabion.Pile, name)(object())
        with pytest.raises(TypeError):
            getattr(gabion.Pile, name)()


@pytest.mark.parametrize("default", [None, 0, "", [], object, gabion.PointerError, Ellipsis])
def test_a_default_stands_in_for_what_is_not_live_whatever_it_is(pile: gabion.Pile, default: Any) -> None:
    gone = pile.put(1)
    pile.remove(gone)
    assert pile.get(gone, default) is default
    assert pile.pop(gone, default) is default
    assert pile.get_many([gone, gone], default) == [default, default]
    live = pile.put("live")
    assert pile.get(live, default) == "live"
    assert pile.get_many([gone, live], default) == [default, "live"]
    assert pile.pop(live, default) == "live"


def test_without_a_default_what_is_not_live_is_an_error(pile: gabion.Pile) -> None:
    gone = pile.put(1)
    pile.remove(gone)
    for call in (pile.get, pile.pop, pile.remove, pile.size_of, pile.view, pile.fields):
        with pytest.raises(gabion.PointerError):
            call(gone)
    with pytest.raises(gabion.PointerError):
        pile.replace(gone, 2)
    with pytest.raises(gabion.PointerError):
        pile.get_many([gone])
    assert pile.discard(gone) is False
    assert pile.remove_many([gone]) == 0
    assert gone not in pile


def test_discard_and_pop(pile: gabion.Pile) -> None:
    first, second = pile.put("first"), pile.put("second")
    assert pile.discard(first) is True
    assert pile.discard(first) is False
    assert pile.pop(second) == "second"
    with pytest.raises(gabion.PointerError):
        pile.pop(second)
    assert len(pile) == 0


def test_none_is_an_object_like_any_other(pile: gabion.Pile) -> None:
    pointer = pile.put(None)
    assert pile.get(pointer) is None
    assert pile.get(pointer, "default") is None
    assert pile.pop(pointer, "default") is None


def test_len_iter_contains_bool(pile: gabion.Pile) -> None:
    assert len(pile) == 0
    assert list(pile) == []
    assert bool(pile) is True
    pointers = [pile.put(i) for i in range(1000)]
    assert len(set(pointers)) == len(pile) == 1000
    assert sorted(pile) == sorted(pointers)
    assert all(pointer in pile for pointer in pointers)
    iterator = iter(pile)
    assert iter(iterator) is iterator
    for pointer in pointers[::2]:
        pile.remove(pointer)
    assert sorted(pile) == sorted(pointers[1::2])
    assert all((pointer in pile) == bool(i % 2) for i, pointer in enumerate(pointers))


def test_an_exhausted_iterator_stays_so(pile: gabion.Pile) -> None:
    pile.put(1)
    iterator = iter(pile)
    assert len(list(iterator)) == 1
    assert next(iterator, None) is None
    assert next(iterator, None) is None


def test_iteration_beside_changes_sees_what_stays_exactly_once(pile: gabion.Pile) -> None:
    stay = {pile.put(i) for i in range(5000)}
    go = {pile.put("go") for _ in range(5000)}
    seen: list[int] = []
    goes = iter(list(go))
    for number, pointer in enumerate(pile):
        seen.append(pointer)
        if number < 4000:
            pile.remove(next(goes))
            pile.put(number)
            if number % 3 == 0:
                pile.replace(next(iter(stay)), "longer " * (number % 300))
    assert len(seen) == len(set(seen))
    assert stay <= set(seen)


def test_values_and_items(pile: gabion.Pile) -> None:
    assert list(pile.values()) == list(pile.items()) == []
    stored = {pile.put([number]): [number] for number in range(1000)}
    assert dict(pile.items()) == stored
    assert [found for _, found in pile.items()] == list(pile.values()) == pile.get_many(list(pile))
    items = pile.items()
    assert iter(items) is items
    seen = [next(items)]
    for pointer in list(stored)[::2]:
        pile.remove(pointer)
    pile.replace(list(stored)[-1], "replaced")
    seen += items
    assert len(dict(seen)) == len(seen)
    assert {(pointer, repr(found)) for pointer, found in pile.items()} <= {(at, repr(found)) for at, found in seen}
    assert (list(stored)[-1], "replaced") in seen
    assert next(items, None) is None


def test_values_raise_what_an_object_raises_and_go_on(pile: gabion.Pile) -> None:
    pile.put_many([Grumpy(number) for number in range(3)])
    values, found, raised = pile.values(), [], 0
    while True:
        try:
            value = next(values, None)
        except gabion.CodecError:
            raised += 1
            continue
        if value is None:
            break
        found.append(value.number)
    assert (sorted(found), raised) == ([0, 2], 1)
    pile.close()
    for refused in (pile.values, pile.items, lambda: next(values)):
        with pytest.raises(gabion.ClosedError):
            refused()


class Grumpy:
    """Cannot be built when its number is odd."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __setstate__(self, state: dict[str, int]) -> None:
        if state["number"] % 2:
            raise RuntimeError("not today")
        self.number = state["number"]


def test_a_pile_may_have_a_name(tmp_path: Path) -> None:
    class Own(str):
        pass

    with gabion.Pile(name=Own("orders")) as pile, gabion.Pile(path=tmp_path / "pile", name="people") as filed:
        assert (pile.name, type(pile.name), gabion.Pile().name) == ("orders", str, "")
        assert repr(pile).startswith("<gabion.Pile 'orders' of 0 objects, ")
        assert repr(filed).startswith("<gabion.Pile 'people' of 0 objects, ")
        assert repr(filed).endswith(f" in {str(tmp_path / 'pile')!r}>")
        with pytest.raises(AttributeError):
            pile.name = "others"  # type: ignore[misc]
    assert (repr(pile), pile.name) == ("<gabion.Pile 'orders', closed>", "orders")


def test_repr(pile: gabion.Pile) -> None:
    assert repr(pile).startswith("<gabion.Pile")
    pile.put("x")
    assert "of 1 object, " in repr(pile)
    pile.close()
    assert "closed" in repr(pile)


def test_weak_references_and_hash() -> None:
    pile = gabion.Pile()
    dies = weakref.ref(pile)
    assert dies() is pile
    assert len({pile, pile}) == 1
    assert pile != gabion.Pile()
    iterator = iter(pile)
    del pile
    assert dies() is not None, "an iterator keeps its pile"
    del iterator
    assert dies() is None


def test_a_pile_cannot_be_pickled_copied_or_subclassed_by_accident(pile: gabion.Pile) -> None:
    import copy
    import pickle

    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"a gabion\.Pile cannot be pickled or copied: .*pickle the objects"):
            attempt(pile)
    with pytest.raises((TypeError, gabion.CodecError)):
        pile.put(pile)
    with pytest.raises((TypeError, gabion.CodecError)):
        pile.put([iter(pile)])
    with pytest.raises(TypeError):
        type("Sub", (gabion.Pile,), {})
    assert len(pile) == 0


def test_context_manager_closes_whatever_happens() -> None:
    pile = gabion.Pile()
    with pile as entered:
        assert entered is pile
    assert pile.closed
    with pytest.raises(KeyError, match="mine"), gabion.Pile() as other:
        raise KeyError("mine")
    assert other.closed
    with pytest.raises(gabion.ClosedError), pile:
        pass


def test_a_closed_pile_refuses_every_call() -> None:
    pile = gabion.Pile()
    pointer = pile.put(1)
    iterator = iter(pile)
    assert pile.closed is False
    pile.close()
    pile.close()
    assert pile.closed is True
    calls = [
        lambda: pile.put(1), lambda: pile.get(pointer), lambda: pile.get(pointer, None),
        lambda: pile.replace(pointer, 1), lambda: pile.remove(pointer), lambda: pile.pop(pointer),
        lambda: pile.pop(pointer, None), lambda: pile.discard(pointer), lambda: pointer in pile, lambda: len(pile),
        lambda: iter(pile), lambda: next(iterator), lambda: pile.size_of(pointer), lambda: pile.put_many([1]),
        lambda: pile.put_many([]), lambda: pile.get_many([pointer]), lambda: pile.get_many([pointer], None),
        lambda: pile.get_many([]), lambda: pile.remove_many([pointer]), lambda: pile.view(pointer),
        lambda: pile.fields(pointer, "x"), pile.stats, pile.clear, pile.compact, pile.__enter__,
    ]  # fmt: skip
    for number, call in enumerate(calls):
        with pytest.raises(gabion.ClosedError):
            raise AssertionError(f"call {number} returned {call()!r}")
    assert bool(pile) is True
    assert pile.__exit__(None, None, None) is None


def test_the_tree_of_errors() -> None:
    tree = {
        gabion.PointerError: LookupError, gabion.LimitError: MemoryError, gabion.CodecError: ValueError,
        gabion.CorruptFileError: OSError, gabion.ClosedError: ValueError,
    }  # fmt: skip
    for error, also in tree.items():
        assert issubclass(error, gabion.GabionError)
        assert issubclass(error, also)
        assert error.__module__ == "gabion"
        assert error.__doc__
    assert issubclass(gabion.GabionError, Exception)


def test_messages_say_what_was_asked_and_what_to_do(pile: gabion.Pile) -> None:
    pointer = pile.put(1)
    pile.remove(pointer)
    with pytest.raises(gabion.PointerError) as gone:
        pile.get(pointer)
    assert str(pointer) in str(gone.value)
    with pytest.raises(gabion.CodecError) as unstorable:
        pile.put({"socket": (x for x in ())})
    assert "generator" in str(unstorable.value)
    assert unstorable.value.__cause__ is not None
    pile.close()
    with pytest.raises(gabion.ClosedError, match="closed"):
        pile.get(pointer)


def test_none_stands_for_what_is_left_out() -> None:
    gabion.Pile(max_bytes=None, path=None, types=None).close()


def test_sizes_as_text_and_as_numbers() -> None:
    for given, limit in (
        (8 << 20, 8 << 20), ("8 MiB", 8 << 20), ("8MiB", 8 << 20), ("8mib", 8 << 20), ("8 MB", 8_000_000),
        ("0.5 GiB", 1 << 29), ("8388608", 8 << 20), (" 8388608 B ", 8 << 20), ("1 TiB", 1 << 40),
        ("1 PiB", 1 << 50), ("1 PB", 10**15),
    ):  # fmt: skip
        with gabion.Pile(max_bytes=given) as pile:
            assert limit - (64 << 10) < pile.stats().max_bytes <= limit, given
    for given in ("", "many", "-1", "1 EB", "nan", "inf GiB", -1, -(2**64), 2**64, 2**100, "1e400 GiB"):
        with pytest.raises(ValueError, match="max_bytes"):
            gabion.Pile(max_bytes=given)
    for given in (1.5, b"1", [], True, object()):
        with pytest.raises(TypeError):
            gabion.Pile(max_bytes=given)


@pytest.mark.parametrize("name", METHODS)
def test_signatures_can_be_read(name: str) -> None:
    for owner in (gabion.Pile, gabion.Pile()):
        signature = inspect.signature(getattr(owner, name))
        assert ("ptr" in signature.parameters) == (name in (*TAKES_POINTER, "replace"))
    assert inspect.getdoc(getattr(gabion.Pile, name))
    assert getattr(gabion.Pile, name).__name__ == name


def test_defaults_in_the_signatures() -> None:
    def of(name: str) -> inspect.Signature:
        return inspect.signature(getattr(gabion.Pile, name))

    assert of("put").parameters["reserve"].default == 0
    assert of("put").parameters["reserve"].kind is inspect.Parameter.KEYWORD_ONLY
    # By its place or by name, as with a cache. What stands for it when it is left out is no object at all.
    for owner, names in ((gabion.Pile, ("get", "pop", "get_many")), (gabion.Cache, ("pop",))):
        for name in names:
            default = inspect.signature(getattr(owner, name)).parameters["default"]
            assert (default.default, default.kind) == (..., inspect.Parameter.POSITIONAL_OR_KEYWORD)
    assert inspect.signature(gabion.Pile).parameters["max_bytes"].default is None
    assert inspect.signature(gabion.Pile).parameters["max_bytes"].kind is inspect.Parameter.KEYWORD_ONLY


def test_the_examples_in_the_documentation_run() -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    finder = doctest.DocTestFinder(exclude_empty=True, recurse=False)
    tests = finder.find(gabion, "gabion")
    for owner in (gabion.Pile, gabion.PileStats):
        tests += finder.find(owner, owner.__name__, module=False, globs={})
        for name in dir(owner):
            if not name.startswith("__"):
                tests += finder.find(getattr(owner, name), f"{owner.__name__}.{name}", module=False, globs={})
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries >= 20


def test_stats_add_up(pile: gabion.Pile) -> None:
    empty = pile.stats()
    assert (empty.objects, empty.used_bytes, empty.away_objects, empty.large_objects) == (0, 0, 0, 0)
    assert empty.reserved_bytes == empty.used_bytes + empty.overhead_bytes
    pointers = [pile.put(Plain(a=i, b="x" * (i % 3000))) for i in range(2000)]
    check_equations(pile)
    stats = pile.stats()
    assert stats.objects == 2000
    assert stats.types >= 1
    assert stats.blocks >= 1
    assert stats.reserved_bytes <= stats.blocks * (4 << 20)
    assert stats.as_dict() == {name: getattr(stats, name) for name in stats.as_dict()}
    assert all(f"{name}={value}" in repr(stats) for name, value in stats.as_dict().items())
    with pytest.raises(AttributeError):
        stats.objects = 5
    for pointer in pointers:
        pile.remove(pointer)
    check_equations(pile)
    assert stats.objects == 2000, "figures of one moment"
    with pytest.raises(TypeError):
        gabion.PileStats()


def test_clear_and_compact(pile: gabion.Pile) -> None:
    pointers = [pile.put("x" * (i % 5000)) for i in range(3000)]
    view = pile.view(pile.put(b"kept"))
    pile.clear()
    check_equations(pile)
    assert len(pile) == 0
    assert not any(pointer in pile for pointer in pointers)
    assert bytes(view) == b"kept"
    fresh = pile.put("fresh")
    assert fresh not in pointers
    assert pile.get(fresh) == "fresh"
    assert isinstance(pile.compact(), int)
    assert pile.get(fresh) == "fresh"


def test_compact_gives_memory_back(pile: gabion.Pile) -> None:
    pointers = [pile.put(b"x" * 600) for _ in range(20_000)]
    before = pile.stats().reserved_bytes
    keep = pointers[::100]
    assert pile.remove_many(set(pointers) - set(keep)) == 19_800
    pile.compact()
    pile.validate()
    assert pile.stats().reserved_bytes < before
    assert all(pile.get(pointer) == b"x" * 600 for pointer in keep)


def test_the_types_are_final_and_named() -> None:
    for name in ("Pile", "PileStats"):
        made = getattr(gabion, name)
        assert made.__module__ == "gabion"
        assert made.__qualname__ == name
    assert sys.modules["gabion"].__version__ == gabion.__version__
    assert gabion.__version__.count(".") >= 2
