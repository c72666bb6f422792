"""DLPack, Arrow and __array_interface__: no copy, and the memory lives as long as its users."""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import pytest

import gabion.memory as memory

numpy = pytest.importorskip("numpy")
CAPSULE_NAME = ctypes.pythonapi.PyCapsule_GetName
CAPSULE_NAME.argtypes, CAPSULE_NAME.restype = [ctypes.py_object], ctypes.c_char_p


def filled(size: int = 1000) -> memory.Buffer:
    buffer = memory.rent(size)
    memoryview(buffer)[:] = bytes(i % 251 for i in range(size))
    return buffer


class OnlyInterface:
    """Hides the buffer, and its buffer protocol, which NumPy would prefer."""

    # On the instance, because some interpreters never let go of what a class refers to.
    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def pyarrow_array(buffer: memory.Buffer) -> Any:
    return pytest.importorskip("pyarrow").array(buffer)


def nanoarrow_array(buffer: memory.Buffer) -> Any:
    return pytest.importorskip("nanoarrow").c_array(buffer)


WAYS: dict[str, Callable[[memory.Buffer], Any]] = {
    "memoryview": memoryview,
    "numpy.frombuffer": lambda buffer: numpy.frombuffer(buffer, dtype=numpy.uint8),
    "numpy.asarray": numpy.asarray,
    "interface": lambda buffer: numpy.asarray(OnlyInterface(dict(buffer.__array_interface__))),
    "numpy.from_dlpack": numpy.from_dlpack,
    "ctypes": lambda buffer: (ctypes.c_ubyte * len(buffer)).from_buffer(buffer),
    "capsule": lambda buffer: buffer.__dlpack__(),
    "versioned capsule": lambda buffer: buffer.__dlpack__(max_version=(1, 3)),
    "arrow capsule": lambda buffer: buffer.__arrow_c_array__()[1],
    "nanoarrow": nanoarrow_array,
    "pyarrow": pyarrow_array,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_export_holds_off_a_release(way: str) -> None:
    buffer = filled()
    user = WAYS[way](buffer)
    with pytest.raises(BufferError, match="1 view "):
        buffer.release()
    again = WAYS[way](buffer)
    with pytest.raises(BufferError, match="2 views"):
        buffer.release()
    del user
    gc.collect()
    with pytest.raises(BufferError, match="1 view "):
        buffer.release()
    del again
    gc.collect()
    buffer.release()


@pytest.mark.parametrize("way", WAYS)
def test_an_export_keeps_the_memory(way: str) -> None:
    gc.collect()
    before = memory.stats().live
    buffer = filled(5000)
    user = WAYS[way](buffer)
    content = bytes(buffer)
    del buffer
    gc.collect()
    assert memory.stats().live == before + 1
    others = [filled(5000) for _ in range(20)]
    for other in others:
        memoryview(other)[:] = b"\xff" * 5000
    if not way.endswith("capsule"):
        if way == "nanoarrow":
            assert bytes(user.view().buffer(1)) == content
        elif way == "pyarrow":
            assert bytes(user.buffers()[1]) == content
        else:
            assert bytes(user) == content
    del user, others, other
    gc.collect()
    assert memory.stats().live == before


@pytest.mark.parametrize("way", ["numpy.frombuffer", "numpy.asarray", "numpy.from_dlpack"])
def test_arrays_share_the_bytes(way: str) -> None:
    buffer = filled()
    array = WAYS[way](buffer)
    assert array.__array_interface__["data"][0] == buffer.address
    assert (array.dtype, array.shape) == (numpy.uint8, (1000,))
    assert array.flags.writeable
    array[5] = 99
    memoryview(buffer)[6] = 98
    assert (memoryview(buffer)[5], array[6]) == (99, 98)


def test_dlpack_forms() -> None:
    buffer = filled()
    assert buffer.__dlpack_device__() == (1, 0)
    for options in ({}, {"max_version": None}, {"max_version": (0, 8)}, {"stream": None, "dl_device": (1, 0)}):
        assert CAPSULE_NAME(buffer.__dlpack__(**options)) == b"dltensor"
    for version in ((1, 0), (1, 1), (2, 0)):
        assert CAPSULE_NAME(buffer.__dlpack__(max_version=version, copy=False)) == b"dltensor_versioned"
    for options in ({"dl_device": (2, 0)}, {"dl_device": (1, 1)}, {"stream": 1}):
        with pytest.raises(BufferError):
            buffer.__dlpack__(**options)
    for wrong in ({"max_version": 1}, {"max_version": "1.0"}, {"dl_device": 1}, {"copy": "yes"}):
        with pytest.raises(TypeError):
            buffer.__dlpack__(**wrong)
    buffer.release()


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_dlpack_copies_on_request(version: Any) -> None:
    gc.collect()
    before = memory.stats().live
    buffer = filled(100_000)

    class Copying:
        def __dlpack_device__(self) -> tuple[int, int]:
            return buffer.__dlpack_device__()

        def __dlpack__(self, **_: Any) -> Any:
            return buffer.__dlpack__(max_version=version, copy=True)

    array = numpy.from_dlpack(Copying())
    assert bytes(array) == bytes(buffer)
    assert array.__array_interface__["data"][0] != buffer.address
    array = array.copy() if not array.flags.writeable else array
    array[0] = 77
    assert memoryview(buffer)[0] == 0
    buffer.release()
    assert bytes(array[1:5]) == bytes([1, 2, 3, 4])
    del array
    gc.collect()
    assert memory.stats().live == before


def test_unused_capsules_end() -> None:
    buffer = filled()
    for _ in range(100):
        buffer.__dlpack__()
        buffer.__dlpack__(max_version=(1, 0))
        buffer.__arrow_c_array__()
        buffer.__arrow_c_schema__()
    buffer.release()


def test_empty_exports() -> None:
    buffer = memory.rent(0)
    assert numpy.asarray(buffer).shape == numpy.from_dlpack(buffer).shape == (0,)
    assert len(memoryview(buffer)) == 0
    gc.collect()
    buffer.release()


def test_arrow() -> None:
    arrow = pytest.importorskip("nanoarrow")
    buffer = filled(100)
    array = arrow.Array(buffer)
    assert array.schema.type == arrow.Type.UINT8
    assert array.to_pylist() == [i % 251 for i in range(100)]
    view = arrow.c_array(buffer).view()
    assert view.null_count == 0
    assert numpy.asarray(view.buffer(1)).__array_interface__["data"][0] == buffer.address
    assert arrow.c_schema(buffer).format == "C"
    schema, values = buffer.__arrow_c_array__(None)
    assert (CAPSULE_NAME(schema), CAPSULE_NAME(values)) == (b"arrow_schema", b"arrow_array")


def test_a_consumer_may_end_its_arrow_array_without_the_interpreter() -> None:
    """Release is called through ctypes, which lets go of the interpreter, from threads that it does not know."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    buffer = filled()
    _, capsule = buffer.__arrow_c_array__()
    address = pointer(capsule, b"arrow_array")
    # length, null_count, offset, buffer count, child count, buffers, children, dictionary, release, private
    words = (ctypes.c_int64 * 10).from_address(address)
    assert words[0] == 1000
    assert words[3] == 2
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(words[8])
    with pytest.raises(BufferError):
        buffer.release()
    release(address)
    assert words[8] == 0
    buffer.release()
    del words, capsule


# --- __array_interface__ -------------------------------------------------------------------------


def test_array_interface() -> None:
    buffer = filled()
    interface = buffer.__array_interface__
    data = interface.pop("data")
    assert interface == {"version": 3, "typestr": "|u1", "shape": (1000,)}
    assert (data.obj, data.format, data.nbytes, data.readonly) == (buffer, "B", 1000, False)
    data.release()
    array = numpy.asarray(OnlyInterface(buffer.__array_interface__))
    assert array.__array_interface__["data"] == (buffer.address, False)
    array[3] = 55
    assert memoryview(buffer)[3] == 55
    del array
    buffer.release()


def test_users_of_the_array_interface_never_dangle() -> None:
    """Not even of a copy of the dict, when nobody has the buffer any more."""
    gc.collect()
    before = memory.stats().live
    buffer = filled(3 << 20)
    array = numpy.asarray(OnlyInterface(dict(buffer.__array_interface__)))
    content = bytes(array)
    with pytest.raises(BufferError, match="1 view "):
        buffer.release()
    del buffer
    gc.collect()
    others = [memory.rent(3 << 20) for _ in range(4)]
    for other in others:
        memoryview(other)[:] = b"\xff" * len(other)
    assert bytes(array) == content
    assert memory.stats().live == before + 5
    del others, other
    assert memory.stats().live == before + 1
    del array
    gc.collect()
    assert memory.stats().live == before
