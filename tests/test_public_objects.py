"""What everybody tries with an object at some time: copy, pickle, compare, print, help."""

import copy
import inspect
import io
import pickle
import re
import typing
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import gabion
from gabion import memory, streams

PICKLES = [lambda thing, protocol=protocol: pickle.loads(pickle.dumps(thing, protocol)) for protocol in range(6)]
MOVES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, *PICKLES]


def used_pile() -> gabion.Pile:
    pile = gabion.Pile()
    pile.put_many([{"a": 1}, "b" * 2_000_000])
    return pile


def used_cache() -> gabion.Cache:
    cache = gabion.Cache("1 MiB", name="pages")
    cache["a"] = 1
    assert (cache.get("a"), cache.get("b")) == (1, None)
    return cache


FIGURES = [
    ("gabion.PileStats", lambda: used_pile().stats()),
    ("gabion.CacheStats", lambda: used_cache().stats()),
    ("gabion.memory.MemoryStats", memory.stats),
    ("gabion.memory.ArenaStats", lambda: memory.stats().arenas[0]),
]


@pytest.mark.parametrize(("name", "make"), FIGURES, ids=[name for name, _ in FIGURES])
def test_figures_can_be_sent_and_compared(name: str, make: Callable[[], Any]) -> None:
    figures = make()
    assert f"{type(figures).__module__}.{type(figures).__name__}" == name
    for move in MOVES:
        moved = move(figures)
        assert type(moved) is type(figures)
        assert moved == figures
        assert hash(moved) == hash(figures)
        assert moved.as_dict() == figures.as_dict()
        assert repr(moved) == repr(figures)
    with gabion.Pile() as pile:
        assert pile.get(pile.put([figures, figures])) == [figures, figures]
    assert figures != figures.as_dict()
    assert figures != 5


def test_other_figures_are_not_equal() -> None:
    pile = used_pile()
    before = pile.stats()
    pile.put(5)
    assert before != pile.stats()
    before_limit = memory.stats()
    try:
        memory.configure(total_limit="100 GiB")
        assert memory.stats() != before_limit
        limited = memory.stats()
        assert copy.copy(limited).total_limit == 100 << 30
    finally:
        memory.configure(total_limit=None)


@pytest.mark.parametrize("state", [{}, {"objects": 1}, {"objects": -1}, 5, None, "text"])
def test_a_damaged_pickle_of_figures_is_an_error(state: object) -> None:
    of = used_pile().stats().__reduce__()[0]
    with pytest.raises((KeyError, TypeError, OverflowError)):
        of(state)


@pytest.fixture
def refusing() -> Iterator[list[Any]]:
    """Objects that are memory or files of this process."""
    with used_pile() as pile, used_cache() as cache, memory.rent(4096) as buffer, memory.rent_group(4096) as group:
        streamed = [streams.Reader(io.BytesIO(b"stone")), streams.Writer(io.BytesIO())]
        yield [pile, iter(pile), pile.values(), pile.items(), cache, cache.table("t"), buffer, group, *streamed]


def test_what_cannot_be_copied_says_so(refusing: list[Any]) -> None:
    for thing in refusing:
        for move in MOVES:
            with pytest.raises(TypeError, match=r"gabion\.[\w.]+ cannot be pickled or copied: "):
                move(thing)


def test_a_memoized_function_that_is_pickled_by_value_says_what_to_do() -> None:
    """As cloudpickle does it with what its module and name do not lead to: with all that its code refers to."""
    with used_cache() as cache:

        @cache.memoize
        def area(width: int) -> int:
            return width

        told = (
            rf"^{__name__}\.test_a_memoized\w+\.<locals>\.area\(\) cannot be pickled by value, .* it is memoized, "
            r".* define it in a module, .* or pass area\.__wrapped__, "
        )
        kept = inspect.getclosurevars(area).nonlocals["results"]
        for move in MOVES:
            with pytest.raises(TypeError, match=told):
                move(area.cache_table())
        for move in PICKLES:
            with pytest.raises(TypeError, match=told):
                move(kept)


def test_hints_of_public_calls_can_be_asked_for() -> None:
    hints = typing.get_type_hints(gabion.Cache.memoize)
    assert hints["stale"] == float | str | timedelta | None
    assert typing.get_type_hints(gabion.Cache.__init__)["ttl"] == hints["stale"]


def test_pictures_are_copied_and_pickled() -> None:
    with gabion.Image.new("RGB", (3, 2), (1, 2, 3)) as image:
        for move in MOVES:
            assert move(image) == image


def test_errors_cross_a_pickle_with_their_texts() -> None:
    for error in (gabion.GabionError, gabion.PointerError, gabion.LimitError, gabion.CodecError, gabion.ImageError):
        for move in MOVES:
            moved = move(error("why"))
            assert (type(moved), moved.args) == (error, ("why",))
    moved = pickle.loads(pickle.dumps(gabion.CorruptFileError(2, "why", "file")))
    assert (moved.errno, moved.strerror, moved.filename) == (2, "why", "file")


def test_a_repr_says_what_a_thing_is_and_not_where(refusing: list[Any]) -> None:
    for thing in [*refusing, gabion.Image.new("L", (3, 2)), used_pile().stats(), memory.stats()]:
        assert "gabion" in repr(thing) or type(thing).__name__ in repr(thing)
        assert " object at 0x" not in re.sub(r"<_io\..*?>", "", repr(thing)), repr(thing)


@pytest.mark.parametrize(
    ("make", "things", "least"),
    [
        (lambda size: gabion.Cache(size), "entries", 4096),
        (lambda size: gabion.Cache("1 MiB").table("t", max_bytes=size), "entries", 4096),
        (lambda size: gabion.Pile(max_bytes=size), "objects", 65_536),
    ],
    ids=["cache", "table", "pile"],
)
def test_a_limit_that_must_be_a_mistake(make: Callable[[Any], Any], things: str, least: int) -> None:
    """Who writes 128 means entries, or MiB."""
    for size in (1, 128, 2000, least - 1, "128", "2 KiB"):
        told = rf'^max_bytes={size!r} counts bytes, not {things}: the least is {least}; write a size such as "64 MiB"$'
        with pytest.raises(ValueError, match=told):
            make(size)
    make(least)


def test_a_cache_may_keep_nothing() -> None:
    cache = gabion.Cache(0)
    assert cache.put("a", 1) is gabion.PutResult.REJECTED
    assert gabion.Cache("1 MiB").table("t", max_bytes=0).put("a", 1) is gabion.PutResult.REJECTED


def test_a_full_pile_names_its_limit_and_what_was_asked() -> None:
    with gabion.Pile(max_bytes="1 MiB") as pile:
        with pytest.raises(
            gabion.LimitError,
            match=r"^an object of 20000\d\d bytes takes 20\d{5}, more .*\(max_bytes=1048576\): raise pile\.max_bytes",
        ):
            pile.put(bytes(2_000_000))
        with pytest.raises(
            gabion.LimitError,
            match=r"object of 10\d\d bytes: it takes \d+ bytes more, .* of max_bytes=1048576 are in use: .*\.max_bytes",
        ):
            for _ in range(2000):
                pile.put(bytes(1000))


def public() -> Iterator[tuple[str, Any]]:
    """Every public name, and the public methods of classes."""
    for module in (gabion, gabion.memory, gabion.numpy, gabion.streams):
        yield module.__name__, module
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.ismodule(thing) or isinstance(thing, str):
                continue
            yield f"{module.__name__}.{name}", thing
            if inspect.isclass(thing):
                for method, value in vars(thing).items():
                    # Members of an enum and fields of a dataclass are told of by the class.
                    if not (method.startswith("_") or isinstance(value, thing) or inspect.ismemberdescriptor(value)):
                        yield f"{module.__name__}.{name}.{method}", getattr(thing, method)


def test_everything_public_has_its_help() -> None:
    # What errors may have is None until one has it, and is told of with their class.
    assert [name for name, thing in public() if thing is not None and not inspect.getdoc(thing)] == []
