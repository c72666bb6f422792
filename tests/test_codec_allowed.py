"""What a codec builds of what a file names, and what it refuses to."""

import array
import collections
import datetime
import decimal
import fractions
import functools
import ipaddress
import operator
import os
import pathlib
import pickle
import sys
import types
import uuid
import zoneinfo
from pathlib import Path

import codec_cases as cases
import pytest
from kept import OBJECTS, SHOP, define, no_module, record, reopened, run, shop, text  # noqa: F401 - a fixture

from gabion._native import CodecError, _Codec

try:
    import numpy
except ImportError:
    numpy = None

# What pickle makes of them needs nothing but the standard library.
HARMLESS = [
    collections.deque([1, 2], 5),
    collections.OrderedDict(a=1),
    collections.Counter("abba"),
    collections.defaultdict(list, a=[1]),
    collections.ChainMap({"a": 1}, {"b": 2}),
    collections.UserDict(a=1),
    collections.UserList([1]),
    collections.UserString("abc"),
    fractions.Fraction(2, 3),
    decimal.Decimal("1.50"),
    decimal.Decimal("1.50").as_tuple(),
    uuid.UUID(int=5),
    uuid.SafeUUID.safe,
    datetime.datetime(2020, 1, 2, tzinfo=zoneinfo.ZoneInfo("Europe/Vienna")),
    zoneinfo.ZoneInfo("UTC"),
    [zoneinfo.ZoneInfo("UTC"), zoneinfo.ZoneInfo("UTC")],
    pathlib.Path("a/b"),
    pathlib.PureWindowsPath("a/b"),
    ipaddress.ip_address("10.0.0.1"),
    ipaddress.ip_network("fe80::/10"),
    ipaddress.ip_interface("10.0.0.1/8"),
    types.SimpleNamespace(a=1),
    array.array("d", [1.5]),
    int,
    dict,
    object(),
    collections.deque,
    range(3),
    slice(1, 2),
]


@pytest.mark.parametrize("obj", HARMLESS, ids=lambda v: repr(v)[:30])
def test_values_of_the_standard_library_need_no_permission(obj):
    first = _Codec()
    data = first.encode(obj)
    cases.assert_same(reopened(first).decode(data), pickle.loads(pickle.dumps(obj, 5)), identity=False)


@pytest.mark.parametrize("kind", [KeyError, OSError, ValueError, SystemExit, UnicodeDecodeError, StopIteration])
def test_builtin_exceptions_need_no_permission(kind):
    error = kind("utf-8", b"x", 0, 1, "bad") if kind is UnicodeDecodeError else kind(1, "two")
    first = _Codec()
    data = first.encode(error)
    back = reopened(first).decode(data)
    assert (type(back), back.args) == (type(error), error.args)


if numpy is not None:
    TYPES = [
        numpy.dtype(text)
        for text in ["M8[D]", "M8[25s]", "m8", ">M8[D]", ">i4", "<i4", "?", "g", "O", "S5", ">U5", "V5"]
    ]
    TYPES += [
        numpy.dtype(numpy.record),
        numpy.dtype(("i4", (2, 3))),
        numpy.dtype([]),
        numpy.dtype([(("t", "a"), "i4")]),
    ]
    TYPES += [numpy.dtype([("a", "i4"), ("b", "O")]), numpy.dtype([("a", [("b", ">f4", (2, 2))])])]
    TYPES += [numpy.dtype({"names": ["a"], "formats": ["i4"], "offsets": [4], "itemsize": 16})]
    TYPES += [numpy.dtype([("a", "i1"), ("b", "i8")], align=True), numpy.dtype("i4", metadata={"a": 1})]
    TYPES += [
        numpy.dtype("M8[D]", metadata={"a": 1}),
        numpy.rec.array([(1, 2)], dtype=[("a", "i4"), ("b", "i4")]).dtype,
    ]
    ARRAYS = [
        numpy.array([1, "two", None, [3]], dtype=object),
        numpy.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        numpy.array([(1, None)], dtype=[("a", "i4"), ("b", "O")]),
        numpy.array(["2020-01-01"], dtype="M8[D]"),
        numpy.array(["a", "bcd"]),
        numpy.array([[1, 2], [3, 4]], dtype=">i4", order="F"),
        numpy.array([(1, 2)], dtype=[("a", "i4"), ("b", "i4")])[0],
        numpy.rec.array([(1, 2)], dtype=[("a", "i4"), ("b", "i4")]),
        numpy.datetime64("2020-01-01"),
        numpy.float32(1.5),
        numpy.str_("abc"),
    ]
else:
    TYPES, ARRAYS = [], []


@pytest.mark.parametrize("dtype", TYPES, ids=repr)
def test_types_of_items_need_no_permission(dtype):
    first = _Codec()
    data = first.encode([dtype, dtype])
    for types_ in (None, "*"):
        back, same = reopened(first, types_).decode(data)
        assert back is same
        for name in ("isalignedstruct", "alignment", "type", "byteorder", "fields", "hasobject", "itemsize"):
            assert getattr(back, name) == getattr(dtype, name), name
        assert back == dtype
        assert dict(back.metadata or {}) == dict(dtype.metadata or {})


@pytest.mark.parametrize("obj", ARRAYS, ids=repr)
def test_arrays_need_no_permission(obj):
    first = _Codec()
    data = first.encode(obj)
    for types_ in (None, "*"):
        back = reopened(first, types_).decode(data)
        assert (type(back), back.dtype, back.tolist()) == (type(obj), obj.dtype, obj.tolist())


# --- what may be built ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", set(OBJECTS) - {"method of a class"})
def test_a_class_that_was_not_allowed_is_refused_by_its_name(shop, name):  # noqa: F811
    module = shop(SHOP)
    obj = eval(OBJECTS[name], module.__dict__)
    first = _Codec()
    data = first.encode(obj)
    second = reopened(first)
    with pytest.raises(
        CodecError, match=r"shop\.\w+.*may not build.*gabion\.Pile\(path=\.\.\., types=\[shop\.\w+"
    ) as told:
        second.decode(data)
    assert told.value.__cause__ is None
    with pytest.raises(CodecError, match="may not build"):
        second.decode(data)


@pytest.mark.parametrize(
    "dangerous",
    [
        eval,
        exec,
        open,
        __import__,
        print,
        type,
        memoryview,
        os.system,
        os.path.join,
        functools.partial,
        functools.partial(int, 5),
        operator.attrgetter("a"),
        operator.itemgetter,
        [].append,
        "abc".join,
        Path.read_text,
        getattr,
        compile,
        isinstance,
        sys.exit,
    ],
    ids=lambda v: repr(v)[:30],
)
def test_functions_are_never_called_without_permission(dangerous):
    first = _Codec()
    data = [first.encode(dangerous)] if dangerous is not getattr else [first.encode([1].append)]
    second = reopened(first)
    for encoding in data:
        with pytest.raises(CodecError, match="may not"):
            second.decode(encoding)


def test_an_attribute_is_reached_by_its_name_with_permission_alone(shop):  # noqa: F811
    module = shop(SHOP)
    first = _Codec()
    data = first.encode(module.Plain("Ada").__eq__)
    with pytest.raises(CodecError, match=r"getattr.*may not do.*types=\[getattr\]"):
        reopened(first, [module.Plain]).decode(data)
    assert reopened(first, [module.Plain, getattr]).decode(data).__self__ == module.Plain("Ada")


def test_nothing_is_imported_to_refuse(tmp_path):
    (tmp_path / "loud.py").write_text("print('imported')\nclass Thing:\n    def __init__(self):\n        self.a = 1\n")
    write = """
import loud
codec = _Codec()
Path("data").write_bytes(codec.encode([loud.Thing(), loud.Thing]))
Path("one").write_bytes(codec.encode(loud.Thing()))
Path("records").write_bytes(codec.describe())
"""
    assert run(tmp_path, write) == "imported\n"
    read = """
for types in (None, [], [int], {"loud.Other": int}):
    codec = _Codec(types)
    codec.restore(Path("records").read_bytes())
    assert codec.type_count == 3, codec.type_count
    try:
        codec.decode(Path("data").read_bytes())
    except CodecError as error:
        assert "loud.Thing" in str(error), error
    else:
        raise AssertionError
    print(codec.fields(Path("one").read_bytes(), "a"), "loud" in sys.modules)
codec = _Codec("*")
codec.restore(Path("records").read_bytes())
print("loud" in sys.modules)
thing, cls = codec.decode(Path("data").read_bytes())
print(type(thing) is cls, vars(thing))
"""
    assert run(tmp_path, read) == "(1,) False\n" * 4 + "False\nimported\nTrue {'a': 1}\n"


def test_a_class_that_cannot_be_imported_is_built_where_it_was_passed():
    def make():
        class Local:
            pass

        return Local

    with no_module("gone"):
        module = define("class Thing: pass", "gone")
        thing = module.Thing()
        thing.a = 1
        first = _Codec()
        data = first.encode(thing)
    local = make()
    local.__module__, local.__qualname__ = "gone", "Thing"
    back = reopened(first, [local]).decode(data)
    assert (type(back), vars(back)) == (local, {"a": 1})
    other = make()
    back = reopened(first, {"gone.Thing": other}).decode(data)
    assert (type(back), vars(back)) == (other, {"a": 1})


def test_a_renamed_class_takes_what_was_stored_and_its_numbers(shop):  # noqa: F811
    module = shop(SHOP)
    first = _Codec()
    data = first.encode([module.Person("Ada"), module.Pair("Ada"), module.Colour.RED, module.greet])
    new = define(SHOP.replace("Person", "Customer"), "crm")
    names = {f"shop.{old}": getattr(new, old, None) or new.Customer for old in ("Person", "Pair", "Colour", "greet")}
    with no_module("shop", "crm"):
        sys.modules["crm"] = new
        for types in (names, [names], ["*", names]):
            second = reopened(first, types)
            customer = new.Customer("Ada")
            assert second.decode(data) == [customer, new.Pair("Ada"), new.Colour.RED, new.greet]
            assert second.encode([customer, new.Pair("Ada"), new.Colour.RED, new.greet]) == data
            assert second.describe() == first.describe()
            # In the other order, too.
            second = reopened(first, types)
            assert second.encode([customer, new.Pair("Ada"), new.Colour.RED, new.greet]) == data
            assert second.decode(data) == [customer, new.Pair("Ada"), new.Colour.RED, new.greet]


def test_a_class_of_a_renamed_ones_old_name_gets_a_number_of_its_own(shop):  # noqa: F811
    module = shop(SHOP)
    first = _Codec()
    data = first.encode(module.Plain("Ada"))
    other = type("Other", (), {"__module__": "tests"})
    second = reopened(first, {"shop.Plain": other})
    mine = second.encode(module.Plain("Ada"))
    assert mine != data
    assert type(second.decode(data)) is other
    assert type(second.decode(mine)) is module.Plain


def test_a_module_allows_what_is_defined_in_it(shop):  # noqa: F811
    module = shop(SHOP + "\nfrom os import system\nimport os\n")
    first = _Codec()
    good = [first.encode(each) for each in (module.Person("Ada"), module.Outer.Inner("Ada"), module.greet)]
    second = reopened(first, [module])
    assert [second.decode(each) for each in good] == [module.Person("Ada"), module.Outer.Inner("Ada"), module.greet]
    records = _Codec()
    records.encode(os.system)
    system = records.describe()
    for name in (b"system", b"os.system", b"Missing", b"greet.__globals__"):
        forged = record(4, text(b"shop") + text(name))
        codec = _Codec([module])
        codec.restore(forged)
        with pytest.raises(CodecError, match="defines nothing of that name"):
            codec.decode(b"\x00\xd3\x00")
    codec = _Codec([module])
    codec.restore(system)
    with pytest.raises(CodecError, match="may not build"):
        codec.decode(b"\x00\xd3\x00")


def test_a_module_allows_no_methods_and_no_classes_of_classes(shop):  # noqa: F811
    more = """
class Settings:
    text = "safe"

    def __init__(self, text): self.text = text

    def __new__(cls, *given): return object.__new__(cls)

    @staticmethod
    def made(text): return Settings(text)

class Heir(Settings): pass

class Meta(type): pass
"""
    module = shop(SHOP + more)
    for method in (
        "Settings.__init__",
        "Settings.__new__",
        "Heir.__init__",
        "Outer.Inner.__init__",
        "Meta",
        "Meta.mro",
    ):
        codec = _Codec([module])
        codec.restore(record(4, text(b"shop") + text(method.encode())))
        with pytest.raises(CodecError, match=r"defines nothing of that name|may not build"):
            codec.decode(b"\x00\xd3\x00")
    first = _Codec()
    data = first.encode(Calls(module.Settings.__init__, (module.Settings, "EVIL")))
    with pytest.raises(CodecError, match="defines nothing of that name"):
        reopened(first, [module]).decode(data)
    assert module.Settings.text == "safe"
    # It takes no object that it could change, and what stands at the top level is called with anything.
    first = _Codec()
    data = first.encode([Calls(module.Settings.made, ("a",)), module.Outer.Inner("b")])
    made, inner = reopened(first, [module]).decode(data)
    assert (type(made), made.text, inner) == (module.Settings, "a", module.Outer.Inner("b"))


class Calls:
    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def test_everything_says_where_it_looked(shop):  # noqa: F811
    module = shop(SHOP)
    first = _Codec()
    data = [first.encode(module.Person("Ada")), first.encode(module.greet)]
    define("", "shop")
    second = reopened(first, "*")
    for encoding, name in zip(data, ("Person", "greet"), strict=True):
        with pytest.raises(CodecError, match=rf"no attribute '{name}'.*{{\"shop\.{name}\": {name}}}"):
            second.decode(encoding)
    del sys.modules["shop"]
    for encoding in data:
        with pytest.raises(CodecError, match=r"No module named 'shop'.*another name"):
            second.decode(encoding)
    sys.modules["shop"] = module
    assert second.decode(data[0]) == module.Person("Ada")


@pytest.mark.parametrize(
    "wrong",
    [
        5,
        "shop.Person",
        "",
        b"*",
        int,
        len,
        sys,
        object(),
        [5],
        ["shop.Person"],
        [None],
        {"shop.Person": "Customer"},
        {"Person": int},
        {5: int},
        [{5: int}],
        [list[int]],
        cases.Color,
        {"a.B": None},
    ],
    ids=repr,
)
def test_types_of_another_kind_are_refused_with_an_example(wrong):
    with pytest.raises(TypeError, match=r"types= takes .*types=\[shop\.Person.*not "):
        _Codec(wrong)


def test_types_may_be_any_iterable_and_mapping():
    data = (first := _Codec()).encode([cases.Plain(1), cases.Color.RED])
    for types_ in (
        [cases],
        (cases.Plain, cases.Color),
        iter([cases.Plain, cases.Color]),
        {cases.Plain, cases.Color},
        [{"codec_cases.Plain": cases.Plain}, cases.Color],
        types.MappingProxyType({"codec_cases.Plain": cases.Plain, "codec_cases.Color": cases.Color}),
        ["*"],
    ):
        cases.assert_same(reopened(first, types_).decode(data), [cases.Plain(1), cases.Color.RED])


def test_errors_of_an_iterable_pass():
    def broken():
        yield int
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        _Codec(broken())


class Moment(datetime.datetime):
    """Comes back by a call with bytes."""


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (datetime.date, b"\0\0\1\0"),
        (datetime.date, b"\x07\xe7\x02\x1d"),
        (datetime.date, b"\xff\xff\x0c\xff"),
        (datetime.datetime, b"\0\0\1\0" + b"\xff" * 6),
        (datetime.datetime, b"\x07\xe4\1\1\0\0\0\x0f\x42\x40"),
        (datetime.time, b"\1\xff\1\0\0\0"),
        (Moment, b"\x07\xe4\1\1\x18\0\0\0\0\0"),
    ],
)
def test_dates_and_times_out_of_their_ranges_are_refused(kind: type, parts: bytes) -> None:
    # The classes look at one of these bytes, and count with the others: ctime() would end the process.
    codec = _Codec()
    data = codec.encode(Calls(kind, (parts,)))
    with pytest.raises(CodecError, match="a date or time is out of range"):
        reopened(codec, [Moment]).decode(data)


def test_dates_and_times_come_back_by_their_bytes() -> None:
    codec = _Codec()
    moments = [Moment(2024, 2, 29, 23, 59, 59, 999_999), Moment.max, Moment(1, 1, 1, tzinfo=datetime.UTC)]
    data = codec.encode(moments)
    assert reopened(codec, [Moment]).decode(data) == moments
