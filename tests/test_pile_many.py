"""put_many, get_many, remove_many: many objects in one call, all or nothing."""

import os
from array import array
from collections import ChainMap, Counter, UserDict
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest
from model import check_against, person, some_of_everything

import gabion


def test_from_every_kind_of_iterable(pile: gabion.Pile) -> None:
    values = some_of_everything()
    for iterable in (
        values,
        tuple(values),
        iter(values),
        (value for value in values),
        dict(enumerate(values)).values(),
    ):
        pointers = pile.put_many(iterable)
        assert type(pointers) is array
        assert pointers.typecode == "Q"
        assert pile.get_many(pointers) == values
    assert len(pile) == 5 * len(values)
    assert pile.get_many(pile.put_many("abc")) == ["a", "b", "c"]
    assert pile.get_many(pile.put_many(range(10))) == list(range(10))
    assert len(pile.put_many([])) == 0
    assert pile.get_many([]) == []
    assert pile.remove_many([]) == 0


def test_pointers_in_every_form(pile: gabion.Pile) -> None:
    pointers = pile.put_many(range(100))
    forms: list[Any] = [
        pointers, list(pointers), tuple(pointers), iter(pointers), (p for p in pointers), memoryview(pointers),
        dict.fromkeys(pointers), memoryview(pointers)[::1],
    ]  # fmt: skip
    for form in forms:
        assert pile.get_many(form) == list(range(100))
    assert pile.get_many(memoryview(pointers)[::-1]) == list(range(99, -1, -1))
    assert pile.get_many(memoryview(pointers)[::7]) == list(range(0, 100, 7))
    for signed in ("q", "l"):
        assert pile.get_many(array(signed, pointers)) == list(range(100))
    assert pile.remove_many(iter(pointers[:50])) == 50
    assert pile.remove_many(pointers) == 50
    assert pile.remove_many(pointers) == 0


def test_pointers_in_numpy_arrays(pile: gabion.Pile) -> None:
    numpy = pytest.importorskip("numpy")
    pointers = numpy.array(pile.put_many(range(100)))
    assert pointers.dtype == numpy.uint64
    order = numpy.random.default_rng(1).permutation(100)
    assert pile.get_many(pointers) == list(range(100))
    assert pile.get_many(pointers[order]) == order.tolist()
    assert pile.get_many(pointers[::3]) == list(range(0, 100, 3))
    assert pile.get_many(pointers.reshape(10, 10)[:, 2].copy()) == list(range(2, 100, 10))
    assert pile.get_many(pointers.reshape(10, 10)[:, 2]) == list(range(2, 100, 10))
    assert pile.get_many(pointers.astype(numpy.int64)) == list(range(100))
    assert pile.get_many(pointers.astype(object)) == list(range(100))
    assert pile.get_many(pointers.astype(">u8")) == list(range(100))
    with pytest.raises((TypeError, gabion.PointerError)):
        pile.get_many(pointers.astype(float))
    assert pile.get(pointers[5]) == 5
    assert pointers[5] in pile
    assert pile.remove_many(pointers) == 100


def test_a_pointer_given_twice(pile: gabion.Pile) -> None:
    pointer = pile.put([1])
    first, second = pile.get_many([pointer, pointer])
    assert first == second == [1]
    assert first is not second
    assert pile.remove_many([pointer, pointer]) == 1


def test_a_failing_object_undoes_the_whole_call(pile: gabion.Pile) -> None:
    keep = pile.put_many(["kept"] * 10)
    model = dict.fromkeys(keep, "kept")
    bad: list[Any] = [1, "two", person(3), b"x" * 5000, b"y" * 2_000_000, (i for i in ()), 7]
    used = pile.stats().used_bytes
    for place in range(len(bad)):
        bad[place - 1], bad[place] = bad[place], bad[place - 1]
        with pytest.raises(gabion.CodecError):
            pile.put_many(bad)
        assert pile.stats().used_bytes == used
    check_against(pile, model)


class Table:
    """A DataFrame, as far as put_many() looks at it: it gives the names of its columns."""

    def __iter__(self) -> Iterator[str]:
        return iter(["a", "b"])


def test_what_gives_something_else_than_is_meant_is_refused(pile: gabion.Pile) -> None:
    pandas, polars = type("DataFrame", (Table,), {"itertuples": None}), type("DataFrame", (Table,), {"iter_rows": None})
    for given, text in (
        ({"a": 1}, r"a mapping, which gives its keys: pass its values\(\), or its items\(\)"),
        (Counter("ab"), r"a mapping, which gives its keys"),
        (UserDict(a=1), r"a mapping, which gives its keys"),
        (ChainMap({"a": 1}), r"a mapping, which gives its keys"),
        (MappingProxyType({"a": 1}), r"a mapping, which gives its keys"),
        (os.environ, r"a mapping, which gives its keys"),
        (
            pandas(),
            r"a table, .* names of its columns: pass frame.itertuples\(index=False, name=None\), or frame.to_dict\(",
        ),
        (polars(), r"a table, which gives its columns: pass frame.iter_rows\(\), or frame.iter_rows\(named=True\);"),
    ):
        with pytest.raises(TypeError, match=rf"^put_many\(\) stores what an iterable gives, and this is {text}"):
            pile.put_many(given)
    assert len(pile) == 0
    assert pile.get_many(pile.put_many({"a": 1}.items())) == [("a", 1)]
    assert pile.get_many(pile.put_many(UserDict(a=1).keys())) == ["a"]
    assert pile.get_many(pile.put_many(Table())) == ["a", "b"]


class Mine(Exception):
    pass


@pytest.mark.parametrize("index", [0, 10])
def test_an_error_says_which_object_it_is_about(pile: gabion.Pile, index: int) -> None:
    note = f"object {index} of those passed to put_many(), counted from 0"
    with (
        open("/dev/null") as file,
        pytest.raises(gabion.CodecError, match=r"_io\.TextIOWrapper \(at dict\['file'\]\)") as caught,
    ):
        pile.put_many([{}] * index + [{"file": file}, {}])
    assert caught.value.__notes__ == [note]

    class Late:
        def __reduce__(self) -> str:
            raise TimeoutError

    with pytest.raises(TimeoutError) as late:
        pile.put_many([{}] * index + [Late()])
    assert late.value.__notes__[-1] == note
    limited = gabion.Pile(max_bytes="4 MiB")
    with pytest.raises(gabion.LimitError) as full:
        limited.put_many([b""] * index + [bytes(5 << 20)])
    assert full.value.__notes__ == [note]

    # What the iterable raises is about none.
    def objects() -> Iterator[int]:
        yield from range(index)
        raise ValueError("of the iterable")

    with pytest.raises(ValueError, match="of the iterable") as raised:
        pile.put_many(objects())
    assert not hasattr(raised.value, "__notes__")
    assert len(pile) == 0


def test_a_failing_iterator_undoes_the_whole_call(pile: gabion.Pile) -> None:
    def source() -> Iterator[Any]:
        yield from range(1000)
        raise Mine

    with pytest.raises(Mine):
        pile.put_many(source())
    check_against(pile, {})
    for wrong in (None, 5, object()):
        with pytest.raises(TypeError):
            pile.put_many(wrong)

    class Half:
        def __len__(self) -> int:
            raise Mine

        def __iter__(self) -> Iterator[int]:
            return iter([1, 2])

    with pytest.raises(Mine):
        pile.put_many(Half())
    assert len(pile) == 0


def test_what_a_length_raises_is_passed_on_unless_it_says_that_there_is_none(pile: gabion.Pile) -> None:
    """As list() does. A query may run in __len__, and somebody may interrupt it."""

    class Rows:
        def __init__(self, error: type[BaseException]) -> None:
            self.error = error

        def __len__(self) -> int:
            raise self.error

        def __iter__(self) -> Iterator[int]:
            return iter([1, 2])

    assert pile.get_many(pile.put_many(Rows(TypeError))) == [1, 2]
    pile.clear()
    for error in (KeyboardInterrupt, OSError, MemoryError):
        with pytest.raises(error):
            pile.put_many(Rows(error))
        assert len(pile) == 0


@pytest.mark.parametrize("claim", [0, 1, 10**6, 2**40, 2**62, 2**63 - 1])
def test_a_length_that_lies_is_no_harm(pile: gabion.Pile, claim: int) -> None:
    class Liar:
        def __len__(self) -> int:
            return claim

        def __iter__(self) -> Iterator[int]:
            return iter([1, 2, 3])

        def __getitem__(self, index: int) -> int:
            raise IndexError

        def __length_hint__(self) -> int:
            return claim

    assert pile.get_many(pile.put_many(Liar())) == [1, 2, 3]


def test_an_iterator_that_uses_the_pile_meanwhile(pile: gabion.Pile) -> None:
    def source() -> Iterator[Any]:
        for i in range(10):
            extra.append(pile.put(["extra", i]))
            yield i
            yield pile.pop(extra.pop())

    extra: list[int] = []
    pointers = pile.put_many(source())
    assert pile.get_many(pointers)[:4] == [0, ["extra", 0], 1, ["extra", 1]]
    assert len(pile) == 20


def test_an_iterator_that_clears_or_closes_the_pile() -> None:
    for end in ("clear", "close"):
        pile = gabion.Pile()

        def source(pile: gabion.Pile = pile, end: str = end) -> Iterator[int]:
            yield 1
            yield 2
            getattr(pile, end)()
            yield 3

        if end == "close":
            with pytest.raises(gabion.ClosedError):
                pile.put_many(source())
            continue
        pointers = pile.put_many(source())
        assert pile.get_many(pointers, "gone") == ["gone", "gone", 3]
        pile.validate()


def test_get_many_fails_as_a_whole_or_uses_the_default(pile: gabion.Pile) -> None:
    pointers = list(pile.put_many(range(20)))
    pile.remove(pointers[13])
    with pytest.raises(gabion.PointerError):
        pile.get_many(pointers)
    missing = object()
    found = pile.get_many(pointers, missing)
    assert found[13] is missing
    assert found[:13] + found[14:] == [i for i in range(20) if i != 13]
    assert pile.get_many([0, 2**63, 2**64 - 1, 5], "no") == ["no"] * 4
    for wrong in ([None], ["1"], [1.5], [pointers[0], b"x"]):
        with pytest.raises(TypeError):
            pile.get_many(wrong, missing)
        with pytest.raises(TypeError):
            pile.remove_many(wrong)
    for wrong_whole in (None, 5, object()):
        with pytest.raises(TypeError):
            pile.get_many(wrong_whole)
        with pytest.raises(TypeError):
            pile.remove_many(wrong_whole)
    assert len(pile) == 19


def test_numbers_that_no_pointer_can_be_are_passed_over_like_stale_ones(pile: gabion.Pile) -> None:
    live = pile.put("live")
    assert pile.get_many([live, -1, 2**70, live], "no") == ["live", "no", "no", "live"]
    for number in (-1, 0, 2**70):
        with pytest.raises(gabion.PointerError, match=f"^{number} is not a pointer"):
            pile.get_many([live, number])
        with pytest.raises(gabion.PointerError, match=f"^{number} is not a pointer"):
            pile.get(number)
    assert pile.get_many(array("Q", [live, 0]), "no") == ["live", "no"]
    with pytest.raises(gabion.PointerError, match=r"^0 is not a pointer"):
        pile.get_many(array("Q", [live, 0]))
    assert pile.remove_many([-1, 2**70, 0, live, 2**64]) == 1
    assert len(pile) == 0


def test_many_objects(pile: gabion.Pile) -> None:
    count = 50_000
    pointers = pile.put_many(person(i) for i in range(count))
    assert len(set(pointers)) == count
    found = pile.get_many(pointers)
    assert all(found[i] == person(i) for i in range(0, count, 7))
    pile.validate()
    assert pile.remove_many(pointers[::2]) == count // 2
    assert pile.get_many(pointers[1::2])[:3] == [person(1), person(3), person(5)]
    pile.validate()


def test_at_the_limit_everything_is_undone() -> None:
    with gabion.Pile(max_bytes="8 MiB") as pile:
        kept = pile.put_many(b"k" * (i * 37 % 2000) for i in range(1000))
        before = pile.stats()
        for payload in (b"z" * 100, b"z" * 5000, b"z" * 3_000_000):
            with pytest.raises(gabion.LimitError):
                pile.put_many(payload for _ in range(10**9))
            after = pile.stats()
            assert (after.objects, after.used_bytes) == (before.objects, before.used_bytes)
            pile.validate()
        assert pile.get_many(kept) == [b"k" * (i * 37 % 2000) for i in range(1000)]


@pytest.mark.parametrize("call", ["get_many", "remove_many", "put_many", "put one int"])
def test_where_memory_ends_it_is_a_memory_error(call: str, script: Any) -> None:
    script(
        f"""
        import resource
        from array import array
        import gabion
        pile = gabion.Pile()
        pointer = pile.put(7)
        many, long = array("Q", [pointer]) * 20_000_000, 1 << 1_600_000_000
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (160 << 20),) * 2)
        calls = {{
            "get_many": lambda: pile.get_many(many),
            "remove_many": lambda: pile.remove_many(many),
            "put_many": lambda: pile.put_many(iter(many)),
            "put one int": lambda: pile.put(long),
        }}
        try:
            calls[{call!r}]()
        except MemoryError:
            pass
        else:
            raise AssertionError("there was enough")
        assert (len(pile), pile.get(pointer)) == (1, 7)
        """,
    )


class NAType:
    """As pandas' NA: no int, and no float."""


@pytest.mark.parametrize("call", ["get_many", "remove_many"])
def test_what_is_no_pointer_is_told_with_its_place(pile: gabion.Pile, call: str) -> None:
    pointers: list[Any] = [*pile.put_many("abc"), NAType()]
    with pytest.raises(TypeError, match=r"not NAType, which stands for one that is missing: .*dropna\(\)") as raised:
        getattr(pile, call)(pointers)
    assert raised.value.__notes__ == [f"object 3 of those passed to {call}(), counted from 0"]
    for other in (None, "1", 1.5):
        with pytest.raises(TypeError, match="a pointer is an int") as raised:
            getattr(pile, call)([pointers[0], other])
        assert raised.value.__notes__ == [f"object 1 of those passed to {call}(), counted from 0"]


@pytest.mark.parametrize("rows", ["itertuples", "iter_rows"])
def test_a_table_in_place_of_its_column_is_told(pile: gabion.Pile, rows: str) -> None:
    frame = type("Frame", (), {"__iter__": lambda _: iter(["ptr"]), rows: lambda _: iter([])})()
    for call in (pile.get_many, pile.remove_many):
        with pytest.raises(TypeError, match=r"takes pointers, and this is a table: pass the column of them"):
            call(frame)
