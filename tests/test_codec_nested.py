"""What a file has lie in each other so deeply that the interpreter, which goes through it by recursion, would run out
of stack. That ends the process, so it is read in processes of its own."""

import collections
import copyreg
import uuid
from collections.abc import Callable

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
