"""Single bytes and slices of a buffer: those of a bytearray that keeps its length, and no view stays."""

import array
import random
from collections.abc import Callable
from typing import Any

import pytest

import gabion
import gabion.memory as memory

pytestmark = pytest.mark.usefixtures("balance")


def filled(size: int) -> memory.Buffer:
    buffer = memory.rent(size)
    buffer[:] = bytes(i % 251 for i in range(size))
    return buffer


@pytest.mark.parametrize("size", [0, 1, 2, 10, 5000])
def test_whatever_is_named_is_what_a_bytearray_has_there(size: int) -> None:
    source = random.Random(size)
    buffer, model = filled(size), bytearray(i % 251 for i in range(size))

    def end() -> int | None:
        return source.choice([None, source.randint(-size - 2, size + 2), source.choice([-(2**70), 2**70])])

    for _ in range(500):
        key = slice(end(), end(), source.choice([None, 1, 1, 2, -1, -3, 7, 2**70, -(2**70)]))
        part = buffer[key]
        assert type(part) is bytes
        assert part == model[key], key
        new = source.randbytes(len(part))
        buffer[key] = model[key] = new
        assert bytes(buffer) == model, key
    for at in range(-size, size):
        assert buffer[at] == model[at]
        buffer[at] = model[at] = at & 255
    assert bytes(buffer) == model
    assert list(buffer) == list(model)
    assert list(reversed(buffer)) == list(reversed(model))
    buffer.release()


def test_every_kind_of_bytes_goes_into_a_slice() -> None:
    buffer = filled(16)
    for value in (
        b"abcd",
        bytearray(b"abcd"),
        memoryview(b"xxabcdxx")[2:6],
        array.array("I", b"abcd"),
        memory.rent(4),
    ):
        if isinstance(value, memory.Buffer):
            value[:] = b"abcd"
        buffer[4:8] = bytes(4)
        buffer[4:8] = value
        assert buffer[3:9] == b"\x03abcd\x08"
    buffer[::-1] = buffer
    assert buffer[8:12] == b"dcba"
    buffer.release()


def test_bytes_of_its_own() -> None:
    for step in (1, 2, -1, -2):
        to = slice(None, None, step)
        buffer, model = filled(12), bytearray(range(12))
        count = len(model[to])
        with memoryview(buffer) as view:
            buffer[to] = view[:count]
        model[to] = bytes(model[:count])
        assert bytes(buffer) == model
        with memoryview(buffer) as view:
            buffer[3:8] = view[1:6]
        model[3:8] = bytes(model[1:6])
        assert bytes(buffer) == model
        buffer.release()


class Index:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def setting(buffer: memory.Buffer, key: Any, value: Any) -> Callable[[], None]:
    return lambda: buffer.__setitem__(key, value)


def test_what_is_refused() -> None:
    buffer = filled(10)
    before = bytes(buffer)
    for at in (10, -11, 2**70, -(2**70)):
        told = rf"byte {at}: a buffer of 10 bytes has 0 to 9, and -10 to -1 from its end"
        for use in (lambda at=at: buffer[at], setting(buffer, at, 1)):
            with pytest.raises(IndexError, match=told):
                use()
    for key in ("0", 1.0, None, (0, 1), b"0"):
        for use in (lambda key=key: buffer[key], setting(buffer, key, 1)):
            with pytest.raises(TypeError, match="a byte of a buffer is named by an int, several by a slice, not by "):
                use()
    with pytest.raises(TypeError, match="slice indices must be integers"):
        buffer["a":]  # type: ignore[misc]
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        buffer[::0]
    for value in (256, -1, 2**70):
        with pytest.raises(ValueError, match=rf"{value}: a byte is an int from 0 to 255"):
            buffer[3] = value
    for wrong in ("a", b"a", 1.5, None):
        with pytest.raises(TypeError, match="a byte is an int from 0 to 255, not "):
            buffer[3] = wrong  # type: ignore[call-overload]
    for wrong in ("abc", 5, None, [1, 2, 3]):
        with pytest.raises(TypeError, match="a slice of a buffer takes bytes, or an object that has some, not "):
            buffer[:3] = wrong  # type: ignore[call-overload]
    for value, count in ((b"", 3), (b"ab", 3), (b"abcd", 3), (b"a", 0)):
        told = rf"{len(value)} bytes for a slice of {count}: a buffer keeps its length, so pass as many"
        with pytest.raises(ValueError, match=told):
            buffer[:count] = value
    with pytest.raises(BufferError):
        buffer[:3] = memoryview(b"abcdef")[::2]
    with pytest.raises(TypeError, match="its bytes can be written, not deleted"):
        del buffer[0]
    for key in (Index(ZeroDivisionError()), slice(Index(ZeroDivisionError()), None)):
        with pytest.raises(ZeroDivisionError):
            buffer[key]
    assert bytes(buffer) == before
    assert buffer[Index(3)] == 3
    buffer[Index(3)] = Index(7)
    assert buffer[Index(3) : Index(4)] == b"\x07"
    buffer.release()


def test_no_view_stays_and_released_is_released() -> None:
    buffer = filled(10)
    parts = [buffer[:], buffer[::2], buffer[3]]
    iterator = iter(buffer)
    assert next(iterator) == 0
    buffer.release()
    assert parts == [bytes(range(10)), bytes(range(0, 10, 2)), 3]
    uses: list[Callable[[], Any]] = [lambda: buffer[0], lambda: buffer[:], lambda: next(iterator), lambda: iter(buffer)]
    for use in (*uses, setting(buffer, 0, 1), setting(buffer, slice(0, 1), b"a")):
        with pytest.raises(gabion.ClosedError, match="released"):
            use()


def test_released_while_it_is_asked() -> None:
    """By code of the user's, which the index, the value or the view of it runs."""

    class Releasing(Index):
        def __index__(self) -> Any:
            buffer.release()
            return self.value

    for key, value in ((Releasing(0), 1), (0, Releasing(1)), (slice(Releasing(0), 1), b"a")):
        buffer = filled(10)
        with pytest.raises(gabion.ClosedError):
            buffer[key] = value
    buffer = filled(10)
    with pytest.raises(gabion.ClosedError):
        _ = buffer[Releasing(0)]


def test_a_block_of_a_group() -> None:
    with memory.rent_group("5 MiB", clean=True) as group:
        group[1][:5] = b"stone"
        group[1][-1] = 9
        assert (group[1][:6], group[1][-1]) == (b"stone\0", 9)
    with pytest.raises(gabion.ClosedError):
        _ = group.blocks
