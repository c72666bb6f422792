"""What an error of reading is about: the pointer, the number, the key, the class."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import gabion


class CodeError(Exception):
    """Its arguments are not those that it hands on, so it can be put and not be built."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Stated:
    def __init__(self) -> None:
        self.number = 1

    def __setstate__(self, state: object) -> None:
        raise self.error(state)

    def error(self, state: object) -> Exception:
        return TypeError("no state")


class Late(Stated):
    def error(self, state: object) -> Exception:
        return TimeoutError("late")


class Interrupted(Stated):
    def __setstate__(self, state: object) -> None:
        raise KeyboardInterrupt


TEXT = (
    r"^cannot rebuild an object of <class 'test_errors_about\.CodeError'>: TypeError: .* missing 1 required positional"
)


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_pile_tells_the_pointer_of_what_it_cannot_build(kind: str, tmp_path: Any) -> None:
    with gabion.Pile(path=tmp_path / "a.pile" if kind == "file" else None) as pile:
        good, bad, large = pile.put_many([1, CodeError(1, "a"), [CodeError(1, "b"), bytes(3 << 20)]])
        for pointer in (bad, large):
            note = f"the object behind pointer {pointer}"
            calls: list[Callable[[], object]] = [
                lambda pointer=pointer: pile.get(pointer), lambda pointer=pointer: pile.get(pointer, None),
                lambda pointer=pointer: pile.pop(pointer), lambda pointer=pointer: pile.change(pointer, str),
            ]  # fmt: skip
            for call in calls:
                with pytest.raises(gabion.CodecError, match=TEXT) as raised:
                    call()
                assert notes(raised.value) == [note]
            for default in ((), (None,)):
                with pytest.raises(gabion.CodecError, match=TEXT) as raised:
                    pile.get_many([good, good, pointer], *default)
                assert notes(raised.value) == [note, "object 2 of those passed to get_many(), counted from 0"]
        assert [pointer for pointer, _ in survivors(pile.items(), {bad, large})] == [good]
        assert list(survivors(pile.values(), {bad, large})) == [1]
        with pytest.raises(gabion.CodecError) as raised:
            pile.fields(bad, "missing")
        assert notes(raised.value) == [f"the object behind pointer {bad}"]
        with pytest.raises(AttributeError) as missing:
            pile.fields(good, "missing")
        assert notes(missing.value) == []


def survivors(objects: Any, bad: set[int]) -> Any:
    """What an iterator gives, which goes on behind objects that cannot be built, and tells the pointer of each."""
    told = set()
    while True:
        try:
            yield next(objects)
        except StopIteration:
            break
        except gabion.CodecError as error:
            (note,) = notes(error)
            told.add(int(note.removeprefix("the object behind pointer ")))
    assert told == bad


def test_dead_pointers_have_a_number_and_interrupts_no_note(pile: gabion.Pile) -> None:
    pointer = pile.put(Interrupted())
    for call in (pile.get, lambda pointer: pile.get_many([pointer])):
        with pytest.raises(KeyboardInterrupt) as interrupted:
            call(pointer)
        assert notes(interrupted.value) == []
    pile.remove(pointer)
    with pytest.raises(gabion.PointerError) as dead:
        pile.get_many([pile.put(1), pointer])
    assert notes(dead.value) == ["object 1 of those passed to get_many(), counted from 0"]
    late = pile.put(Late())
    with pytest.raises(TimeoutError) as passed:
        pile.get(late)
    assert notes(passed.value) == ["while rebuilding the stored object", f"the object behind pointer {late}"]


def test_a_cache_tells_the_key_of_what_it_cannot_build(cache: gabion.Cache) -> None:
    key = ("b", 7)
    cache.put_many({"a": 1, key: CodeError(1, "a")})
    calls: list[Callable[[], object]] = [
        lambda: cache.get(key), lambda: cache[key], lambda: cache.pop(key), lambda: cache.get_many(["a", "c", key]),
        lambda: cache.change(key, str), lambda: list(cache.items()), lambda: cache.get_or_put(key, lambda: 1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(gabion.CodecError, match=TEXT) as raised:
            call()
        assert notes(raised.value) == ["the value of key ('b', 7)"]
    with pytest.raises(TypeError, match="key") as wrong:
        cache.get([])
    assert notes(wrong.value) == []


def test_put_many_of_a_cache_tells_the_key_and_keeps_what_was_stored(cache: gabion.Cache) -> None:
    cache["b"] = "before"
    with pytest.raises(gabion.CodecError, match="by reference") as raised:
        cache.put_many({"a": 1, "b": lambda: 1, "c": 3})
    assert notes(raised.value) == ["key 'b', of those passed to put_many()"]
    assert dict(cache.items()) == {"b": "before", "a": 1}
    long = "k" * 1000
    with pytest.raises(gabion.CodecError) as raised:
        cache.put_many([(long, lambda: 1)])
    assert notes(raised.value) == [f"key '{'k' * 56}..., of those passed to put_many()"]

    # What the iterable raises is about none.
    with pytest.raises(ZeroDivisionError) as other:
        cache.put_many((key, 1 // key) for key in (1, 0))
    assert notes(other.value) == []
    cache.close()
    with pytest.raises(gabion.ClosedError) as closed:
        cache.put_many({"a": 1})
    assert notes(closed.value) == []


@pytest.fixture
def cache() -> Any:
    with gabion.Cache("16 MiB") as cache:
        yield cache


@pytest.mark.parametrize("held", [lambda one: one, lambda one: [one, {"more": one}]], ids=["alone", "held"])
def test_the_class_that_is_not_built_is_named(pile: gabion.Pile, held: Callable[[object], object]) -> None:
    for one, text in (
        (Stated(), "object of <class 'test_errors_about.Stated'>: TypeError: no state"),
        (Made(), "object by <function make at 0x"),
        (Refusing([1]), "object of <class 'test_errors_about.Refusing'>: ValueError: no items"),
    ):
        pointer = pile.put(held(one))
        with pytest.raises(gabion.CodecError, match=f"^cannot rebuild an {re.escape(text)}") as raised:
            pile.get(pointer)
        assert raised.value.__cause__ is not None


def make() -> object:
    raise TypeError("not made")


class Made:
    def __reduce__(self) -> Any:
        return make, ()


class Refusing(list[int]):
    def extend(self, items: Any) -> None:
        raise ValueError("no items")

    append = extend
