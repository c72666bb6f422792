"""Records of a registry that are damaged, forged or mean something else than they say."""

import collections
import contextlib
import copyreg
import decimal
import fractions
import ipaddress
import sys
import types
import uuid

import codec_cases as cases
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept import record, reopened, shop, text  # noqa: F401 - a fixture

from gabion._native import CodecError, _Codec

try:
    import numpy
except ImportError:
    numpy = None


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


def test_records_are_as_they_are_drawn(shop):  # noqa: F811
    source = "@dataclasses.dataclass\nclass Person:\n    name: str\n"
    module = shop(source + "class Pair(typing.NamedTuple):\n    a: int\nclass Colour(enum.Enum):\n    RED = 1\n")
    named = {name: text(b"shop") + text(name.encode()) for name in ("Person", "Pair", "Colour")}
    one, none = (1).to_bytes(4, "little"), bytes(4)
    for obj, expected in (
        (module.Colour.RED, record(3, named["Colour"])),
        (module.Pair(1), record(2, named["Pair"] + one + text(b"a"))),
        (module.Person, record(4, named["Person"])),
        (
            module.Person("Ada"),
            record(1, named["Person"] + b"\x06" + none + none + one + text(b"name"))
            + record(1, named["Person"] + b"\x06" + none + (one + text(b"name")) * 2),
        ),
    ):
        codec = _Codec()
        codec.encode(obj)
        assert codec.describe() == expected
    assert b"\x2f\x00\x00\x00" in expected
    assert record(3, named["Colour"])[:5] == b"\x03\x12\x00\x00\x00"


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


# --- what values of the standard library could be made to do ------------------------------------------


def forged(records, data, types=None):
    codec = _Codec(types)
    codec.restore(b"".join(record(4, text(module) + text(name)) for module, name in records))
    return codec.decode(data)


def test_a_file_does_not_change_classes_and_functions():
    # A list of a class and "the object" that a reducer gives: a reference to the class, which then gets a state.
    names = [(b"fractions", b"Fraction"), (b"copyreg", b"_reconstructor")]
    for number in (0, 1):
        state = b"\x92\xa9\x99\x05__add\x61"
        value = b"\x82\xd3" + bytes([number]) + b"\xd5\x14\xd3\x00\x90\xc0"
        at = 2
        data = b"\x01" + value + bytes([len(value) - at]) + state
        data += b"\x02" + (1).to_bytes(8, "little")
        with pytest.raises(CodecError, match="parts of an object that is there already"):
            forged(names, data)


class Forged:
    """Is stored as whatever its maker likes."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def reread(obj, types=None):
    codec = _Codec()
    data = codec.encode(obj)
    return reopened(codec, types).decode(data)


@pytest.mark.skipif(numpy is None, reason="no NumPy here")
def test_types_of_items_do_not_reach_out_of_the_items():
    def structure(fields, size=8, flags=0):
        state = (3, "|", None, tuple(fields), fields, size, 1, flags)
        return Forged(numpy.dtype, ("V8", False, True), state)

    outside = structure({"a": (numpy.dtype("i8"), 1 << 20)})
    with pytest.raises(CodecError, match="outside of its item"):
        reread(outside)
    # Objects that are none: NumPy finds out if it is told that there are any.
    made = reread(structure({"a": (numpy.dtype("O"), 0)}))
    assert made.hasobject
    items = Forged(_frombuffer(), (b"A" * 8, structure({"a": (numpy.dtype("O"), 0)}), (1,), "C"))
    with pytest.raises(CodecError, match="no memory of its own"):
        reread(items)
    for state in ((3, "|", None, ("a",), {}, 8, 1, 0), (3,), 5, "text", (3, "|", 5, None, None, 8, 1, 0)):
        with pytest.raises(CodecError):
            reread(Forged(numpy.dtype, ("V8", False, True), state))


@pytest.mark.skipif(numpy is None, reason="no NumPy here")
def test_types_of_items_do_not_change_under_arrays():
    codec = _Codec()
    longer = Forged(numpy.dtype, ("S5", False, True), (3, "|", None, None, None, 1 << 30, 1, 0))
    array = Forged(_frombuffer(), (b"A" * 5, longer, (1,), "C"))
    data = codec.encode([longer, array, longer])
    made, array, same = reopened(codec).decode(data)
    assert (made.itemsize, array.nbytes) == (5, 5)
    assert made is same
    # One that NumPy itself uses.
    data = codec.encode(Forged(numpy.dtype, ("i4",), (3, ">", None, None, None, -1, -1, 0)))
    assert reopened(codec).decode(data) == numpy.dtype(">i4")
    assert numpy.dtype("i4").isnative


@pytest.mark.skipif(numpy is None, reason="no NumPy here")
def test_an_array_gets_a_state_while_it_has_no_items():
    state = (1, (0,), numpy.dtype("f8"), False, b"")
    with pytest.raises(CodecError, match="which a file may not do"):
        reread(Forged(numpy.ndarray, ((1000,), numpy.dtype("f8")), state))
    reconstruct = numpy.array([None], dtype=object).__reduce__()[0]
    with pytest.raises(CodecError, match="items before it gets them"):
        reread(Forged(reconstruct, (numpy.ndarray, (1000,), b"d"), state))
    with pytest.raises(CodecError):
        reread(Forged(reconstruct, (numpy.ndarray, (0,), b"b"), (1, (1000,), numpy.dtype("f8"), False, b"short")))


@pytest.mark.skipif(numpy is None, reason="no NumPy here")
def test_an_item_is_not_made_of_items_of_another_type():
    scalar = numpy.datetime64("2020-01-01").__reduce__()[0]
    for data in (numpy.array([1.5]), numpy.array([], dtype=[("a", "O")])):
        with pytest.raises(CodecError, match="another type"):
            reread(Forged(scalar, (numpy.dtype([("a", "O")]), data)))


@pytest.mark.skipif(numpy is None, reason="no NumPy here")
def test_arrays_and_their_items_are_made_as_pickles_make_them():
    bytes_, pointer = numpy.dtype("u1"), types.SimpleNamespace()
    pointer.__array_interface__ = {"data": (0x41414141, False), "shape": (4,), "typestr": "|u1", "version": 3}
    pointer.dtype = pointer
    empty = numpy.array([None], dtype=object).__reduce__()[0], (numpy.ndarray, (0,), b"b")
    for forged_ in (
        Forged(numpy.ndarray, ((1,), numpy.dtype(object), b"A" * 8)),
        Forged(numpy.ndarray, ((8,), bytes_, bytearray(b"A" * 64), -(1 << 40)), None, None, iter([(0, 1)])),
        Forged(*empty, (1, (4,), bytes_, False, b"1234"), None, iter([(slice(0, 4), pointer)])),
        Forged(numpy.recarray, (1, [("a", "O")], b"A" * 8)),
        Forged(numpy.record, (pointer,)),
        Forged(numpy.dtype, (pointer,)),
        Forged(copyreg._reconstructor, (numpy.record, numpy.void, pointer)),
        Forged(copyreg._reconstructor, (numpy.ndarray, numpy.ndarray, (5,))),
        Forged(_frombuffer(), (b"A" * 8, numpy.dtype("u1"), (-1, 1 << 40), "C")),
        Forged(_frombuffer(), (b"A" * 8, pointer, (8,), "C")),
    ):
        with pytest.raises(CodecError):
            reread(forged_)


@pytest.mark.skipif(numpy is None, reason="no NumPy here")
def test_what_stands_in_for_a_function_does_so_where_the_program_has_stored_it():
    scalar, method = numpy.datetime64("2020-01-01").__reduce__()[0], [].append
    first = _Codec()
    wrong = first.encode(Forged(scalar, (numpy.dtype([("a", "O")]), numpy.array([1.5]))))
    reached = first.encode(method)
    second = reopened(first)
    second.encode([numpy.datetime64("2020-01-01"), method])
    with pytest.raises(CodecError, match="another type"):
        second.decode(wrong)
    with pytest.raises(CodecError, match="getattr"):
        second.decode(reached)


if numpy is not None:

    class Readings(numpy.ndarray):
        def __new__(cls, values, unit):
            made = numpy.asarray(values).view(cls)
            made.unit = unit
            return made

        def __reduce__(self):
            return Readings, (self.tolist(), self.unit)


@pytest.mark.skipif(numpy is None, reason="no NumPy here")
def test_a_class_of_arrays_that_makes_its_own_is_called():
    back = reread(Readings([1, 2], "m"), [Readings])
    assert (type(back), back.unit, back.tolist()) == (Readings, "m", [1, 2])


def test_members_of_enums_are_the_whole_programs():
    for state in ({"_value_": "changed"}, (None, {"_value_": "changed"})):
        with pytest.raises(CodecError, match=r"sets attributes or items of <Safe"):
            reread(Forged(uuid.SafeUUID, (0,), state))
    assert uuid.SafeUUID.safe.value == 0


def test_an_object_of_a_module_is_no_definition_of_it():
    module = types.ModuleType("shop")
    exec("class Settings: pass\nconfig = Settings()", module.__dict__)
    sys.modules["shop"] = module
    try:
        with pytest.raises(CodecError, match=r"that name but an object: .* pass it as well, .*\[shop\.config\]"):
            forged([(b"shop", b"config")], b"\x00\xd3\x00", [module])
    finally:
        del sys.modules["shop"]


@pytest.mark.parametrize(
    "endless",
    [
        Forged(list, (range(1 << 62),)),
        Forged(collections.Counter, (range(1 << 40),)),
        Forged(collections.deque, (range(1 << 70), 0)),
        Forged(list, (ipaddress.IPv6Network("::/0"),)),
        Forged(tuple, (ipaddress.IPv4Network("0.0.0.0/0"),)),
        Forged(collections.deque, (ipaddress.IPv6Network("::/0"), 0)),
        Forged(dict, ([ipaddress.IPv6Network("::/0")],)),
        Forged(copyreg._reconstructor, (list, list, ipaddress.IPv6Network("::/0"))),
        Forged(collections.deque, (Forged(collections.UserList, (), {"data": range(1 << 40)}), 0)),
        Forged(collections.UserList, (Forged(collections.UserList, (), {"data": range(1 << 40)}),)),
        Forged(collections.Counter, (Forged(collections.UserList, (), {"data": range(1 << 40)}),)),
        Forged(set, (Forged(collections.ChainMap, (), {"maps": [range(1 << 40)]}),)),
        Forged(bytes, (1 << 30,)),
        Forged(bytearray, (1 << 30,)),
        Forged(fractions.Fraction, ("1e999999999",)),
        Forged(fractions.Fraction, (decimal.Decimal("1e999999999"),)),
        Forged(int, (decimal.Decimal("1e999999999"),)),
    ],
    ids=lambda forged_: str(forged_.reduced[:2]),
)
def test_a_few_bytes_do_not_take_all_time(endless):
    with pytest.raises(CodecError, match="all memory, or all time"):
        reread(endless)


@pytest.mark.parametrize(
    "made",
    [
        Forged(list, (range(1000),)),
        Forged(list, (collections.deque([1, 2]),)),
        Forged(tuple, (collections.OrderedDict(a=1),)),
        Forged(dict, ([("a", 1), ["b", 2]],)),
        Forged(dict, (collections.UserDict(a=1),)),
        Forged(list, (collections.UserList([1, 2]),)),
        Forged(set, (collections.ChainMap({"a": 1}, {"b": 2}),)),
        Forged(collections.deque, ((), 5), None, iter([1, 2])),
        Forged(collections.Counter, (collections.Counter("abba"),)),
        Forged(collections.defaultdict, (list, {"a": [1]})),
        Forged(bytes, (1000,)),
        Forged(bytearray, ("\xe9", "latin-1")),
    ],
    ids=lambda forged_: str(forged_.reduced[:2]),
)
def test_containers_are_made_of_what_the_file_brought(made):
    callable_, arguments, *rest = made.reduced
    expected = callable_(*arguments)
    if rest:
        expected.extend([1, 2])
        made = Forged(callable_, arguments, None, iter([1, 2]))
    assert reread(made) == expected


def test_parts_are_given_to_no_object_that_has_them_already():
    codec = _Codec()
    data = codec.encode(Forged(list, (), None, iter([1])))
    # What it is made of comes from another place, and so do its items.
    assert data.count(b"\x01") >= 1
    refused = 0
    for at in range(1, len(data)):
        for flag in (1, 2, 4, 8, 16, 32, 64, 128):
            forged_ = bytearray(data)
            forged_[at] |= flag
            try:
                codec.decode(bytes(forged_))
            except CodecError as error:
                refused += "parts of an object that is there already" in str(error)
    assert refused


def test_a_class_that_is_called_as_one_of_the_standard_library_is_no_such():
    back = reread(Fraction("one half", [1, 2]), [Fraction])
    assert (back.text, back.parts) == ("one half", [1, 2])


class Fraction:
    def __init__(self, text, parts):
        self.text, self.parts = text, parts

    def __reduce__(self):
        return Fraction, (self.text, self.parts)


@pytest.mark.skipif(numpy is None, reason="no NumPy here")
@pytest.mark.parametrize("module", ["numpydantic", None, 5])
def test_a_class_of_arrays_may_say_any_module(module):
    before, Readings.__module__ = Readings.__module__, module
    try:
        codec = _Codec({"tests.Readings": Readings})
        codec.restore(record(4, text(b"tests") + text(b"Readings")))
        assert codec.decode(b"\x00\xd5\x00\xd3\x00" + encoded_arguments()).tolist() == [1, 2]
    finally:
        Readings.__module__ = before


def encoded_arguments():
    return _Codec().encode(([1, 2], "m"))[1:]


def _frombuffer():
    return numpy.array(["a"]).__reduce_ex__(5)[0]
