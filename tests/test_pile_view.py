"""Pile.view: payloads read in place, and the memory that stays while they are."""

import gc
import re
import threading
from array import array
from typing import Any

import pytest
from model import SIZES, Plain, some_of_everything

import gabion

TYPECODES = "bBhHiIlLqQfd"


def pattern(size: int, seed: int = 0) -> bytes:
    return bytes((i * 31 + seed) % 256 for i in range(min(size, 4096))).ljust(size, bytes([seed % 256]))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", [bytes, bytearray])
def test_bytes_and_bytearray_of_every_size(pile: gabion.Pile, make: type, size: int) -> None:
    payload = pattern(size)
    view = pile.view(pile.put(make(payload)))
    assert isinstance(view, memoryview)
    assert (view.format, view.itemsize, view.ndim, view.nbytes) == ("B", 1, 1, size)
    assert view.readonly
    assert view.c_contiguous
    assert view == payload
    assert bytes(view) == payload


@pytest.mark.parametrize("typecode", TYPECODES)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 300, 5000, 300_000])
def test_arrays_of_every_typecode(pile: gabion.Pile, typecode: str, count: int) -> None:
    values = array(typecode, [i % 100 for i in range(count)])
    pointer = pile.put(values)
    view = pile.view(pointer)
    assert (view.format, view.itemsize, view.nbytes) == (typecode, values.itemsize, count * values.itemsize)
    assert view.readonly
    assert view.tolist() == values.tolist()
    assert array(typecode, view.tobytes()) == values
    assert pile.get(pointer) == values


@pytest.mark.filterwarnings("ignore:The 'u' type code:DeprecationWarning")
@pytest.mark.parametrize("typecode", ["u", "w"])
def test_arrays_of_characters_are_readable_or_refused(pile: gabion.Pile, typecode: str) -> None:
    try:
        text = array(typecode, "stone – 石")
    except (ValueError, TypeError):
        pytest.skip(f"no array({typecode!r}) in this Python")
    pointer = pile.put(text)
    assert pile.get(pointer) == text
    try:
        view = pile.view(pointer)
    except TypeError:
        return
    assert view.tobytes() == text.tobytes()


def test_the_data_of_an_array_is_aligned(pile: gabion.Pile) -> None:
    numpy = pytest.importorskip("numpy")
    for count in (1, 2, 50, 100, 130, 200, 5000, 200_000):
        view = pile.view(pile.put(array("d", range(count))))
        found = numpy.frombuffer(view)
        assert found.ctypes.data % 8 == 0
        assert found.flags.aligned
        assert not found.flags.writeable
        assert found.sum() == sum(range(count))


def test_a_view_cannot_be_written_to(pile: gabion.Pile) -> None:
    pointer = pile.put(bytearray(b"stone"))
    view = pile.view(pointer)
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(TypeError):
        view[1:2] = b"x"
    with pytest.raises((TypeError, BufferError)):
        import io

        io.BytesIO(b"longer than that").readinto(view)
    with pytest.raises((TypeError, BufferError)):
        import struct

        struct.pack_into("B", view, 0, 1)
    assert not hasattr(view.obj, "write")
    assert pile.get(pointer) == bytearray(b"stone")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("end", ["replace", "replace same size", "remove", "pop", "clear", "close", "drop"])
def test_a_view_survives_its_object(end: str, size: int) -> None:
    pile = gabion.Pile()
    payload = pattern(size, 7)
    pointer = pile.put(payload)
    view = pile.view(pointer)
    part = view[size // 3 : size // 3 * 2]
    if end == "replace":
        for other in (b"", pattern(size * 2, 1), pattern(max(0, size - 9), 2)):
            pile.replace(pointer, other)
    elif end == "replace same size":
        pile.replace(pointer, pattern(size, 9))
        assert pile.get(pointer) == pattern(size, 9)
    elif end in ("remove", "pop"):
        getattr(pile, end)(pointer)
    elif end in ("clear", "close"):
        getattr(pile, end)()
    if end == "drop":
        del pile
        gc.collect()
    elif end != "close":
        pile.validate()
        # What could overwrite the memory: objects that would fit there.
        for seed in range(20):
            pile.put(pattern(size, seed))
        pile.compact()
        pile.validate()
    assert view == payload
    assert part == payload[size // 3 : size // 3 * 2]
    del view
    assert part == payload[size // 3 : size // 3 * 2]
    part.release()
    if end not in ("drop", "close"):
        pile.validate()


def test_memory_comes_back_when_the_last_view_is_gone(pile: gabion.Pile) -> None:
    for size in (100, 900, 5000, 500_000, 2_000_000):
        pointers = [pile.put(pattern(size, i)) for i in range(8)]
        views = [pile.view(pointer) for pointer in pointers for _ in range(3)]
        held = pile.stats().reserved_bytes
        pile.remove_many(pointers)
        pile.validate()
        assert all(view == pattern(size, i // 3) for i, view in enumerate(views))
        for view in views:
            view.release()
        pile.validate()
        pile.compact()
        pile.validate()
        assert pile.stats().reserved_bytes < held or size < 1000
        assert pile.stats().used_bytes == 0


def test_many_views_of_one_object_and_views_of_views(pile: gabion.Pile) -> None:
    pointer = pile.put(pattern(300))
    views = [pile.view(pointer) for _ in range(3000)]
    pieces = [memoryview(view)[10:20].cast("B")[2:] for view in views[::3]]
    pile.replace(pointer, pattern(300, 5))
    new = pile.view(pointer)
    pile.validate()
    for view in views:
        view.release()
    assert all(piece == pattern(300)[12:20] for piece in pieces)
    assert new == pattern(300, 5)
    with pytest.raises(ValueError, match="released"):
        views[0].tobytes()


def test_views_beside_other_objects_of_the_same_page(pile: gabion.Pile) -> None:
    pointers = [pile.put(pattern(120, i)) for i in range(2000)]
    views = {i: pile.view(pointers[i]) for i in range(0, 2000, 3)}
    for i, pointer in enumerate(pointers):
        if i % 2:
            pile.replace(pointer, pattern(500 if i % 4 == 1 else 120, i + 1))
        elif i % 5 == 0:
            pile.remove(pointer)
    pile.compact()
    pile.validate()
    assert all(view == pattern(120, i) for i, view in views.items())
    for i, pointer in enumerate(pointers):
        if i % 2:
            assert pile.get(pointer) == pattern(500 if i % 4 == 1 else 120, i + 1)
        else:
            assert pile.get(pointer, "gone") == ("gone" if i % 5 == 0 else pattern(120, i))


@pytest.mark.parametrize(
    "value",
    [value for value in some_of_everything() if not isinstance(value, (bytes, bytearray, array))],
    ids=lambda value: repr(value)[:30],
)
def test_other_types_are_refused(pile: gabion.Pile, value: Any) -> None:
    pointer = pile.put(value)
    with pytest.raises(TypeError, match="get"):
        pile.view(pointer)
    assert pile.get(pointer) == value
    pile.remove(pointer)
    pile.validate()
    assert pile.stats().used_bytes == 0


SHOWS = r"^view\(\) shows stored bytes, bytearray or array.array of numbers, not "


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("text", "str"), ("x" * 100, "str"), ("ä", "str"), (5, "int"), (10**9, "int"), (10**30, "int"), (1.5, "float"),
        ([1], "list"), ([1] * 99, "list"), ((1,), "tuple"), ((1,) * 99, "tuple"), ({1: 2}, "dict"), (None, "NoneType"),
        (dict.fromkeys(range(99)), "dict"), (Plain(a=1), "an instance of another class or a subclass"),
    ],
)  # fmt: skip
def test_what_cannot_be_viewed_is_named(pile: gabion.Pile, value: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"{SHOWS}{name}: use get\\(\\)$"):
        pile.view(pile.put(value))


def test_an_array_of_numpy_is_told_how_it_can_be_viewed(pile: gabion.Pile) -> None:
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(1000, dtype="int32")
    told = "numpy.ndarray: use get(), or put array.tobytes() and read it by numpy.frombuffer(pile.view(ptr), dtype)"
    with pytest.raises(TypeError, match=SHOWS + re.escape(told) + "$"):
        pile.view(pile.put(values))
    pointer = pile.put(values.tobytes())
    assert (numpy.frombuffer(pile.view(pointer), values.dtype) == values).all()


class MyBytes(bytes):
    pass


class MyArray(array):  # type: ignore[type-arg]
    pass


def test_subclasses_are_refused_or_read_right(pile: gabion.Pile) -> None:
    for value in (MyBytes(b"mine"), MyArray("d", [1.0, 2.0])):
        pointer = pile.put(value)
        assert type(pile.get(pointer)) is type(value)
        with pytest.raises(TypeError):
            pile.view(pointer)
    shared = b"shared" * 10
    pointer = pile.put([shared, shared])
    with pytest.raises(TypeError):
        pile.view(pointer)


def test_a_refused_view_leaves_no_pin(pile: gabion.Pile) -> None:
    pointer = pile.put("text")
    gone = pile.put(1)
    pile.remove(gone)
    for _ in range(1000):
        with pytest.raises(TypeError):
            pile.view(pointer)
        with pytest.raises(gabion.PointerError):
            pile.view(gone)
    pile.replace(pointer, "other")
    pile.validate()
    pile.clear()
    pile.compact()
    assert pile.stats().used_bytes == 0


def test_views_released_in_another_thread(pile: gabion.Pile) -> None:
    pointers = [pile.put(pattern(size, 3)) for size in (10, 900, 3000, 2_000_000) for _ in range(20)]
    views = [pile.view(pointer) for pointer in pointers]
    pile.remove_many(pointers)

    def release() -> None:
        while True:
            try:
                view = views.pop()
            except IndexError:
                return
            assert view[:8] == pattern(max(8, len(view)), 3)[:8]
            view.release()

    threads = [threading.Thread(target=release) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert views == []
    pile.validate()


def test_a_view_as_an_object_to_store(pile: gabion.Pile) -> None:
    view = pile.view(pile.put(b"stone"))
    with pytest.raises(gabion.CodecError):
        pile.put(view)
    copy = pile.put(bytes(view))
    assert pile.get(copy) == b"stone"
    with pytest.raises((gabion.CodecError, TypeError)):
        pile.put(view.obj)


def test_a_view_inside_a_cycle_is_collected() -> None:
    pile = gabion.Pile()
    holder = Plain(pile=pile)
    holder.view = pile.view(pile.put(pattern(2_000_000)))
    holder.self = holder
    del holder
    gc.collect()
    pile.clear()
    pile.validate()
    pile.compact()
    assert pile.stats().reserved_bytes < 1 << 20


@pytest.mark.parametrize("viewed", [False, True])
def test_a_reserve_that_was_full_when_it_moved_is_still_one(viewed: bool) -> None:
    # One of these lengths fills the place to its last byte.
    for length in range(5095, 5101):
        pile = gabion.Pile(max_bytes="4 MiB")
        pointer = pile.put(b"a" * 10, reserve=5090)
        view = pile.view(pointer) if viewed else None
        pile.replace(pointer, b"b" * length)
        del view
        pile.replace(pointer, b"c" * 10)
        for filler in (*range(12_000, 1_000, -1_000), *range(1_000, 0, -100), 4):
            with pytest.raises(gabion.LimitError):
                while True:
                    pile.put(b"z" * filler)
        pile.replace(pointer, b"d" * 4_900)
        pile.validate()
