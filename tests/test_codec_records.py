"""Records of a registry that are damaged, forged or mean something else than they say."""

import contextlib

import codec_cases as cases
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept import record, text

from gabion._native import CodecError, _Codec


def described():
    codec = _Codec()
    objects = [cases.Plain(1), cases.Frozen(1, 2), cases.Point(1, 2), cases.Color.RED, cases.make_person, cases.Node()]
    data = codec.encode(objects)
    return codec.describe(), data


def survives(records, data):
    """Whether records are read and used without anything worse than a refusal."""
    for types_ in (None, [cases]):
        codec = _Codec(types_)
        try:
            codec.restore(records)
        except CodecError:
            assert codec.type_count == 0
            continue
        assert codec.describe() == records
        for ask in (lambda c=codec: c.decode(data), lambda c=codec: c.fields(data, "a")):
            with contextlib.suppress(CodecError, AttributeError, KeyError):
                ask()


def test_records_that_are_cut_anywhere_are_refused():
    records, data = described()
    whole = {0, len(records)}
    at = 0
    while at < len(records):
        at += 5 + int.from_bytes(records[at + 1 : at + 5], "little")
        whole.add(at)
    for end in range(len(records)):
        if end in whole:
            _Codec().restore(records[:end])
        else:
            with pytest.raises(CodecError, match="damaged"):
                _Codec().restore(records[:end])
        survives(records[:end], data)


def test_records_with_any_byte_flipped_are_read_or_refused():
    records, data = described()
    for at in range(len(records)):
        for change in (0x01, 0x80, 0xFF):
            flipped = bytearray(records)
            flipped[at] ^= change
            survives(bytes(flipped), data)


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(records):
    survives(records, described()[1])


@given(st.lists(st.tuples(st.integers(0, 6), st.binary(max_size=40)), max_size=5))
def test_random_records_are_read_or_refused(parts):
    survives(
        b"".join(record(kind, text(b"codec_cases") + text(b"Plain") + body) for kind, body in parts), described()[1]
    )


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (b"\x01\xff\xff\xff\xff", "ends too early"),
        (b"\x09" + text(text(b"a") + text(b"b")), "a kind of class"),
        (record(3, text(b"a") + text(b"b") + b"\x00"), "bytes follow"),
        (record(3, text(b"\xff") + text(b"b")), "no text"),
        (record(2, text(b"a") + text(b"b") + b"\xff\xff\xff\xff"), "ends too early"),
        (record(1, text(b"a") + text(b"b") + b"\x80" + bytes(8)), "unknown flags"),
        (record(1, text(b"a") + text(b"b") + b"\x00" + b"\x01\x00\x00\x00" + bytes(4)), "more slots"),
        (record(3, b"\xff\xff\xff\xff"), "ends too early"),
    ],
)
def test_damaged_records_are_told_by_what_is_wrong(records, why):
    codec = _Codec("*")
    with pytest.raises(CodecError, match=f"list of classes is damaged: .*{why}"):
        codec.restore(records)
    assert codec.type_count == 0


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "name",
    [
        "builtins.int",
        "builtins.object",
        "builtins.type",
        "builtins.dict",
        "collections.OrderedDict",
        "types.SimpleNamespace",
        "builtins.KeyError",
        "codec_cases.Color",
        "codec_cases.Point",
        "codec_cases.make_person",
        ".a",
        "a.",
        "\x00.\x00",
        ".",
    ],
)
def test_records_that_mean_something_else_are_refused_or_make_something(kind, name):
    module, _, qualname = name.rpartition(".")
    names = (2).to_bytes(4, "little") + text(b"a") + text(b"b")
    body = {1: b"\x02" + bytes(4) + names, 2: names}.get(kind, b"")
    for types_ in (None, [cases], "*"):
        codec = _Codec(types_)
        codec.restore(record(kind, text(module.encode()) + text(qualname.encode()) + body))
        for data in (
            b"\x00\x40\x61\x62",
            b"\x00\xcd\x00\x61\x62",
            b"\x00\xcc\x00\x01a",
            b"\x00\xd3\x00",
            b"\x00\xd2\x00\x01\x01c\x61",
        ):
            with contextlib.suppress(CodecError):
                codec.decode(data)
            with contextlib.suppress(CodecError, AttributeError, KeyError):
                codec.fields(data, "a")
