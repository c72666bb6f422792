"""Parts of an object without the whole, raw buffers, and what the bytes look like."""

import array
import datetime as dt

import codec_cases as cases
import pytest
from kept import reopened, shop  # noqa: F401 - a fixture

from gabion._native import _Codec


@pytest.fixture(scope="module")
def codec():
    return _Codec()


@pytest.mark.parametrize("kind", [cases.Person, cases.SlotPerson, cases.DictPerson])
def test_fields_of_objects(codec, kind):
    person = cases.make_person(kind, 7)
    data = codec.encode(person)
    assert codec.fields(data, "last", "id") == (person.last, person.id)
    assert codec.fields(data, "note") == (person.note,)
    assert codec.fields(data) == ()
    assert codec.fields(data, "id", "id") == (person.id, person.id)
    with pytest.raises(AttributeError):
        codec.fields(data, "missing")


def test_fields_past_values_of_every_kind(codec):
    """Everything before the field that is asked for has to be skipped over."""
    for value in cases.scalars() + cases.objects():
        data = codec.encode(cases.Plain([value, {"k": value}], "found"))
        assert codec.fields(data, "b") == ("found",)
        data = codec.encode(cases.Point((value,), "found"))
        assert codec.fields(data, "y") == ("found",)
        data = codec.encode({"before": value, 5: "found"})
        assert codec.fields(data, 5) == ("found",)


def test_other_fields_are_not_built(codec):
    """A value that fails to come back fails only those who ask for it."""
    data = codec.encode(cases.Plain(cases.dt.date(2020, 1, 1), "found"))
    broken = data.replace(bytes((7, 228, 1, 1)), bytes((7, 228, 13, 1)))
    assert broken != data
    assert codec.fields(broken, "b") == ("found",)
    with pytest.raises(ValueError, match="month"):
        codec.fields(broken, "a")


def test_fields_with_references(codec):
    shared = ["shared"]
    obj = cases.Plain(shared, [shared])
    (back,) = codec.fields(codec.encode(obj), "b")
    assert back == [shared]
    obj.b = obj
    a, b = codec.fields(codec.encode(obj), "a", "b")
    assert a == shared
    assert b.b is b


def test_fields_obey_attribute_access(codec):
    """A property that hides a stored attribute is what `getattr` finds."""
    assert codec.fields(codec.encode(cases.Shadowed()), "x") == (5,)
    person = cases.make_person(cases.Person, 3)
    (method,) = codec.fields(codec.encode(person), "__eq__")
    assert callable(method)
    assert codec.fields(codec.encode({"a": 1}), "a") == (1,)
    with pytest.raises(KeyError):
        codec.fields(codec.encode({"a": 1}), "b")


@pytest.mark.parametrize("value", [b"", b"abc", bytearray(b"x" * 300), array.array("d", [1, 2]), array.array("H", [7])])
def test_raw_views(codec, value):
    data = codec.encode(value)
    offset, length, code = _Codec.raw_view(data)
    raw = bytes(value)
    assert data[offset : offset + length] == raw
    assert code == (value.typecode if isinstance(value, array.array) else "B")
    assert not isinstance(value, array.array) or offset % 8 == 0


def test_no_raw_view_of_other_things(codec):
    for value in ("text", 5, [b"abc"], None, (b"x",)):
        assert _Codec.raw_view(codec.encode(value)) is None
    assert _Codec.raw_view(b"") is None
    assert _Codec.raw_view(b"\x00\xb5") is None
    assert _Codec.raw_view(b"\x00\xb5\x05abc") is None


def test_layout_on_paper(codec):
    """The examples of the page on layouts, byte for byte."""
    for value, data in (
        (None, "00 a9"),
        ("abc", "00 03 61 62 63"),
        (0, "00 61"),
        (1000, "00 a1 e8 03"),
        (-128, "00 a0 80"),
        (1.25, "00 af 7d 00 00 00"),
        ([1, [True]], "00 82 62 81 aa"),
        ({"k": ()}, "00 99 01 6b 90"),
        (dt.datetime(2020, 1, 2, 3, 4, 5), None),
    ):
        if data is None:
            assert len(codec.encode(value)) == 7
        else:
            assert codec.encode(value) == bytes.fromhex(data)


def test_person_is_small(codec):
    person = cases.make_person(cases.Person, 5)
    plain = len(person.first) + len(person.last) + len(person.note)
    # Format, class, id 1 + 4, three string tags, datetime 1 + 8, balance 1 + 8, active 1.
    assert len(codec.encode(person)) <= 2 + 5 + 3 + 9 + 9 + 1 + plain


def test_a_key_that_cannot_be_hashed_is_no_name(codec):
    class Asked:
        def __hash__(self):
            raise errors.pop(0)

    data = codec.encode({"a": 1})
    with pytest.raises(TypeError, match="names one by one"):
        codec.fields(data, ["a"])
    for error in (KeyboardInterrupt(), SystemExit(3)):
        errors = [error, LookupError()]
        with pytest.raises(type(error)):
            codec.fields(data, Asked())
    errors = [ZeroDivisionError(), LookupError()]
    with pytest.raises(LookupError):
        codec.fields(data, Asked())


@pytest.mark.parametrize(
    "attributes",
    [
        {"a": property(lambda self: self[0] * 2)},
        {"b": property(lambda self: self[0] * 2)},
        {"a": "another"},
        {"_fields": ("b", "a")},
        {"__getattribute__": lambda self, name: name},
        {"__getattr__": lambda self, name: name},
    ],
    ids=lambda attributes: next(iter(attributes)),
)
def test_items_are_those_that_the_names_lead_to(shop, attributes):  # noqa: F811
    module = shop("Pair = collections.namedtuple('Pair', 'a b', module='shop')")
    first, pair = _Codec(), module.Pair(1, 2)
    data, again = first.encode(pair), reopened(first, [module])
    assert first.fields(data, "a", "b") == again.fields(data, "a", "b") == (1, 2)
    for name, value in attributes.items():
        setattr(module.Pair, name, value)
    for codec in (first, again, reopened(first, [module])):
        back = codec.decode(data)
        assert codec.fields(data, "b", "a") == (back.b, back.a)
        assert codec.fields(data, "a") == (back.a,)


def test_items_of_a_class_that_has_others_now(shop):  # noqa: F811
    module = shop("Pair = collections.namedtuple('Pair', 'a b', module='shop')")
    first = _Codec()
    data = first.encode(module.Pair(1, 2))
    module = shop("Pair = collections.namedtuple('Pair', 'b a c', module='shop', defaults=[3])")
    module.Pair.a = property(lambda self: self[1] * 10)
    codec = reopened(first, [module])
    assert codec.fields(data, "b", "c") == (2, 3)
    assert codec.fields(data, "a", "b") == (codec.decode(data).a, 2) == (10, 2)
