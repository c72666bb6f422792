"""What a file has lie in each other so deeply that the interpreter, which goes through it by recursion, would run out
of stack. That ends the process, so it is read in processes of its own."""

import collections
import copyreg
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kept import reopened
from test_codec_endless import Forged, reread

from gabion._native import CodecError, _Codec

BEGIN = """
import sys
from kept import reopened
from gabion._native import CodecError, _Codec

def read(data):
    try:
        return reopened(_Codec(), []).decode(data)
    except CodecError as error:
        print(error)
"""


@pytest.mark.parametrize("levels", [1, 2, 100_000])
def test_a_member_of_an_enum_is_told_by_a_text_alone(script: Callable[..., str], levels: int) -> None:
    said = script(f"""
        from gabion._native import CodecError, _Codec
        import enum

        class Colour(enum.Enum):
            RED = 1

        codec = _Codec()
        data = codec.encode(Colour.RED)
        assert data[:2] == b"\\0\\xcc"
        try:
            codec.decode(b"\\0" + data[1:3] * {levels} + b"\\x60")
        except CodecError as error:
            print(error)
        assert codec.decode(data) is Colour.RED
    """)
    assert "an enum member without a name" in said


DEEP = {
    "a tuple": r'b"\x99" + b"\x91" * 300_000 + b"\xa9\xa9"',
    "an element": r'b"\xbd\x01" + b"\x91" * 300_000 + b"\xa9"',
    "an element of a frozenset": r'b"\xbe\x01" + b"\x91" * 300_000 + b"\xa9"',
    "a tuple of frozensets": r'b"\x99" + b"\x91\xbe\x01" * 2000 + b"\xa9\xa9"',
}


@pytest.mark.parametrize("written", DEEP.values(), ids=DEEP)
def test_a_key_that_is_too_deep_is_refused(script: Callable[..., str], written: str) -> None:
    assert "a key is too deep" in script(f'{BEGIN}read(b"\\0" + {written})')


def test_keys_may_be_as_deep_as_anybody_has_them() -> None:
    made = 1
    for _ in range(900):
        made = (made,)
    assert reread({made: 1}) == {made: 1}


def test_a_part_of_a_key_that_is_its_own_is_refused() -> None:
    number, text = Forged(), Forged()
    number.reduced = copyreg._reconstructor, (uuid.UUID, object, None), {"int": number}
    text.reduced = collections.UserString, ("",), {"data": text}
    for own in (number, text):
        codec = _Codec()
        data = codec.encode({own: 1})
        with pytest.raises(CodecError, match="a key is too deep"):
            reopened(codec).decode(data)


GOING = (
    BEGIN
    + """
import os
import numpy as np

class Forged:
    def __init__(self, *reduced):
        self.reduced = reduced
    def __reduce__(self):
        return self.reduced

def array(inside, dtype="O", kind=np.ndarray):
    made = np.empty(1, dtype).view(kind)
    made[0] = inside
    return made

def refused(put, levels):
    made = None
    for _ in range(levels):
        made = put(made)
    codec = _Codec()
    data = codec.encode(made)
    try:
        back = reopened(codec, [np.ma.MaskedArray, np.ma.core._mareconstruct]).decode(data)
    except CodecError as error:
        print(error, flush=True)
    else:
        print("built", flush=True)
        del back
    # What was stored cannot go either.
    os._exit(0)
"""
)

TOO_DEEP = {
    "slices": 'read(b"\\0" + b"\\xcf" * 300_000 + b"\\xa9" * 600_001)',
    "slices by a call": "refused(lambda made: Forged(slice, (made,)), 100_000)",
    "slices at their ends": "refused(lambda made: slice(1, 2, made), 100_000)",
    "arrays": "refused(array, 60_000)",
    "arrays with fields": 'refused(lambda made: array((1, (made,)), [("a", "i4"), ("b", [("c", "O")])]), 60_000)',
    "items": 'refused(lambda made: array((made,), [("a", "O")])[0], 60_000)',
    "arrays with slices": "refused(lambda made: array(slice(made)), 60_000)",
}


@pytest.mark.parametrize("deep", TOO_DEEP.values(), ids=TOO_DEEP)
def test_what_is_too_deep_to_go_is_refused(script: Callable[..., str], deep: str) -> None:
    pytest.importorskip("numpy")
    assert "more than 200 deep in each other" in script(f"{GOING}{deep}")


def test_what_lies_in_what_was_there_before_counts(script: Callable[..., str]) -> None:
    said = script(f"""{BEGIN}
codec = _Codec()
parts, made = [], None
for _ in range(1000):
    for _ in range(100):
        made = slice(made)
    parts.append(made)
data = codec.encode(parts)
try:
    reopened(codec).decode(data)
except CodecError as error:
    print(error, flush=True)
import os
os._exit(0)
""")
    assert "more than 200 deep in each other" in said


def test_slices_and_arrays_may_be_as_deep_as_anybody_has_them() -> None:
    numpy = pytest.importorskip("numpy")

    def through(made: Any) -> Any:
        codec = _Codec()
        data = codec.encode(made)
        return reopened(codec, []).decode(data)

    slices, arrays = None, None
    for _ in range(200):
        slices = slice(slices, 2)
    for _ in range(100):
        before, arrays = arrays, numpy.empty((2, 2), object)
        arrays[:] = [[before, 1], [before, slice(before)]]
    assert repr(through([slices, slices])) == repr([slices, slices])
    back = through(arrays)
    for _ in range(100):
        assert (back[0, 0] is back[1, 0], back[0, 1], back[1, 1]) == (True, 1, slice(back[0, 0]))
        back = back[0, 0]
    assert back is None
    ragged = numpy.empty(1000, object)
    ragged[:] = [numpy.arange(3.0) for _ in range(1000)]
    deep = [[[ragged]]] * 500
    assert all((one == [0, 1, 2]).all() for one in through(deep)[0][0][0])
