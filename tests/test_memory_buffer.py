"""gabion.memory.Buffer: what it shows, how it is released, what it refuses."""

import copy
import gc
import io
import itertools
import pickle
import weakref
from array import array
from collections.abc import Callable
from typing import Any

import pytest

import gabion
import gabion.memory as memory

SIZES = (0, 1, 63, 64, 1000, 4096, 65_536, 1 << 20, (1 << 20) + 1, 4 << 20, (4 << 20) + 1, 9_000_001, 64 << 20)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_all_bytes_can_be_written_and_read(size: int, clean: bool) -> None:
    for _ in range(2):  # fresh, and warm
        with memory.rent(size, clean=clean) as buffer:
            assert len(buffer) == buffer.nbytes == size
            with memoryview(buffer) as view:
                assert (view.format, view.itemsize, view.ndim, view.shape) == ("B", 1, 1, (size,))
                assert not view.readonly
                assert view.c_contiguous
                assert view.nbytes == size
                if clean:
                    assert not any(view[:5000])
                    assert bytes(view).count(0) == size
                view[:] = b"\xa5" * size
                assert bytes(view).count(0xA5) == size


def test_live_buffers_do_not_overlap() -> None:
    buffers = [memory.rent(size) for size in SIZES for _ in range(3) if size < 8 << 20]
    for number, buffer in enumerate(buffers):
        memoryview(buffer)[:] = bytes([number]) * len(buffer)
    for number, buffer in enumerate(buffers):
        assert bytes(buffer).count(number) == len(buffer)
    spans = sorted((buffer.address, buffer.address + len(buffer)) for buffer in buffers if len(buffer))
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("64 KiB", 65_536), ("1.5 MiB", 1_572_864), ("1 kB", 1000), ("10 B", 10)]
)
def test_sizes_as_text(text: str, size: int) -> None:
    assert len(memory.rent(text)) == size


class Index:
    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_sizes_as_other_ints() -> None:
    numpy = pytest.importorskip("numpy")
    assert len(memory.rent(Index(77))) == 77  # type: ignore[arg-type]
    assert len(memory.rent(numpy.int32(77))) == 77
    assert len(memory.rent(numpy.prod((7, 11)))) == 77
    bytes_ = numpy.int64(1 << 20)
    with gabion.Pile(max_bytes=bytes_) as pile, gabion.Cache(bytes_) as cache:
        assert pile.stats().max_bytes == cache.stats().max_bytes == 1 << 20
        assert pile.get(pile.put("stone", reserve=Index(77))) == "stone"
    assert gabion.streams.copy(io.BytesIO(b"stone"), io.BytesIO(), chunk=bytes_) == 5
    for seconds in (numpy.int64(2), numpy.float32(0.5)):
        assert len(memory.rent(77, timeout=seconds)) == 77


@pytest.mark.parametrize("rent", [memory.rent, memory.rent_group])
@pytest.mark.parametrize(
    ("size", "error"),
    [
        (-1, ValueError),
        (-(10**30), ValueError),
        (10**30, ValueError),
        (2**63, ValueError),
        ("-1", ValueError),
        ("4 GB of", ValueError),
        ("", ValueError),
        ("nan", ValueError),
        ("inf GiB", ValueError),
        ("four", ValueError),
        (True, TypeError),
        (1.0, TypeError),
        (float("nan"), TypeError),
        (None, TypeError),
        (b"1", TypeError),
        ([1], TypeError),
    ],
)
def test_nonsense_is_refused(rent: Callable[..., Any], size: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="nbytes"):
        rent(size)


@pytest.mark.parametrize("size", [2**62, 2**63 - 1, 2**48])
def test_more_than_the_machine_has_is_refused(size: int) -> None:
    for rent in (memory.rent, memory.rent_group):
        told = rf"{size} bytes asked for, more than this machine's memory and swap \(\d+\): ask for less"
        with pytest.raises(gabion.LimitError, match=told):
            rent(size)


@pytest.mark.parametrize("options", [{"clean": 2}, {"contiguous": "no"}, {"clean": None}, {"more": True}])
def test_options_are_what_they_say(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        memory.rent(10, **options)


def test_contiguous_or_not_a_buffer_is_one_piece() -> None:
    for contiguous in (True, False):
        assert memoryview(memory.rent("9 MiB", contiguous=contiguous)).c_contiguous


# --- release ------------------------------------------------------------------------------------


def test_release_ends_all_use() -> None:
    buffer = memory.rent(1000)
    assert not buffer.released
    buffer.release()
    assert buffer.released
    assert buffer.nbytes == 1000
    for use in (
        lambda: len(buffer),
        lambda: memoryview(buffer),
        lambda: bytes(buffer),
        lambda: buffer.address,
        lambda: buffer.__array_interface__,
        lambda: buffer.__dlpack__(),
        lambda: buffer.__arrow_c_array__(),
        lambda: buffer.__enter__(),
    ):
        with pytest.raises(gabion.ClosedError, match="released"):
            use()
    assert "released" in repr(buffer)
    buffer.release()
    buffer.release()


def test_release_while_views_are_alive() -> None:
    buffer = memory.rent(1000)
    views = [memoryview(buffer), memoryview(buffer)]
    views.append(views[0][10:20])  # shares the first one's export
    with pytest.raises(BufferError, match="2 views"):
        buffer.release()
    assert not buffer.released
    views[0][0] = 7
    views.pop(1).release()
    with pytest.raises(BufferError, match="1 view "):
        buffer.release()
    views.clear()
    buffer.release()
    assert buffer.released


def test_with_releases_and_says_what_hinders_it() -> None:
    with memory.rent(10) as buffer:
        pass
    assert buffer.released
    with pytest.raises(BufferError), memory.rent(10) as buffer:
        view = memoryview(buffer)
    assert not buffer.released
    del view
    with pytest.raises(gabion.ClosedError), memory.rent(10) as buffer:
        buffer.release()
        len(buffer)
    with pytest.raises(ZeroDivisionError), memory.rent(10) as buffer:
        raise ZeroDivisionError
    assert buffer.released


def test_memory_comes_back_with_the_last_reference() -> None:
    gc.collect()
    before = memory.stats().live
    buffer = memory.rent("2 MiB")
    view = memoryview(buffer)
    gone = weakref.ref(buffer)
    view[:4] = b"kept"
    del buffer
    gc.collect()
    assert gone() is not None, "the view holds it"
    assert memory.stats().live == before + 1
    others = [memory.rent("2 MiB") for _ in range(3)]
    for other in others:
        memoryview(other)[:4] = b"lost"
    assert bytes(view[:4]) == b"kept"
    del view, others, other
    assert gone() is None
    assert memory.stats().live == before


def test_release_and_last_reference_give_back_once() -> None:
    before = memory.stats().live
    for size in (10, 100_000, "3 MiB", "5 MiB"):
        buffer = memory.rent(size)
        assert memory.stats().live == before + 1
        buffer.release()
        assert memory.stats().live == before
        buffer.release()
        del buffer
        assert memory.stats().live == before
        del_only = memory.rent(size)
        del del_only
        assert memory.stats().live == before


# --- what a buffer is to Python ------------------------------------------------------------------


def test_pickle_and_copy_are_refused() -> None:
    buffer = memory.rent(10)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(buffer, protocol)
    for attempt in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"bytes\(buffer\)"):
            attempt(buffer)
    memoryview(buffer)[:] = b"0123456789"
    out_of_band: list[pickle.PickleBuffer] = []
    data = pickle.dumps(pickle.PickleBuffer(buffer), 5, buffer_callback=out_of_band.append)
    assert bytes(pickle.loads(data, buffers=out_of_band)) == b"0123456789"
    del out_of_band


def test_identity_truth_hash_and_attributes() -> None:
    one, two = memory.rent(4, clean=True), memory.rent(4, clean=True)
    assert one != two
    assert len({one, two, one}) == 2
    assert bool(memory.rent(0))
    assert weakref.ref(one)() is one
    with pytest.raises(AttributeError):
        one.anything = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        one.nbytes = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        memory.Buffer()
    with pytest.raises(TypeError):
        type("Sub", (memory.Buffer,), {})
    assert "4 bytes" in repr(one)
    assert type(one).__module__ == "gabion.memory"


def test_whatever_takes_a_buffer() -> None:
    buffer = memory.rent(8)
    assert io.BytesIO(b"12345678").readinto(buffer) == 8
    assert bytes(buffer) == bytearray(buffer) == b"12345678"
    assert b"".join([buffer, buffer]) == b"12345678" * 2
    assert list(array("Q", bytes(buffer))) == list(memoryview(buffer).cast("Q"))
    file = io.BytesIO()
    assert file.write(buffer) == 8
    assert int.from_bytes(buffer, "little") == int.from_bytes(b"12345678", "little")
    buffer.release()


def test_requests_of_a_consumer_that_cannot_be_met_leave_no_export() -> None:
    ctypes = pytest.importorskip("ctypes")

    class View(ctypes.Structure):
        _fields_ = [  # noqa: RUF012
            ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
            ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
            ("format", ctypes.c_char_p), ("rest", ctypes.c_void_p * 4),
        ]  # fmt: skip

    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes = [ctypes.py_object, ctypes.POINTER(View), ctypes.c_int]
    release.argtypes, release.restype = [ctypes.POINTER(View)], None
    buffer = memory.rent(100)
    for flags in (0, 1, 4, 8 | 16, 0x11C, 0x11D):  # simple, writable, format, strides, full
        view = View()
        assert get(buffer, ctypes.byref(view), flags) == 0
        assert (view.len, view.readonly, view.buf) == (100, 0, buffer.address)
        with pytest.raises(BufferError):
            buffer.release()
        release(ctypes.byref(view))
    buffer.release()
