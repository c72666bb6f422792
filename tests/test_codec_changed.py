"""Classes that have changed between the run that wrote a file and the one that reads it."""

import pickle

import pytest
from kept import reopened, run, shop  # noqa: F401 - a fixture

from gabion._native import CodecError, _Codec

PERSON = """
@dataclasses.dataclass
class Person:
    name: str
    visits: int = 0
"""


def stored(shop, source, text):  # noqa: F811
    """What a run that has this source stores, as a function that the next one calls to have it back."""
    module = shop(source)
    first = _Codec()
    data = first.encode(eval(text, module.__dict__))

    def again(source):
        later = shop(source)
        second = reopened(first, [later])
        back = second.decode(data)
        # What was made of it is stored as an object of the class as it is, and the file's numbers stay what they are.
        cycle = second.encode([back, back])
        one, two = second.decode(cycle)
        assert one is two
        assert type(one) is type(back)
        assert second.describe()[: len(first.describe())] == first.describe()
        third = reopened(second, [later])
        third.decode(cycle)
        assert third.encode([back, back]) == cycle
        assert third.type_count == second.type_count
        return later, back

    return again


def shape(decorator, *fields):
    """A class of these fields."""
    return f"@dataclasses.dataclass({decorator})\nclass Person:\n    " + ("\n    ".join(fields) or "pass")


DECORATORS = [
    "",
    "slots=True",
    "frozen=True",
    "frozen=True, slots=True",
    "slots=True, weakref_slot=True",
    "kw_only=True",
]


@pytest.mark.parametrize("after", DECORATORS)
@pytest.mark.parametrize("before", DECORATORS)
def test_fields_of_a_dataclass_come_back_by_their_names(shop, before, after):  # noqa: F811
    again = stored(shop, shape(before, "name: str", "visits: int", "gone: int"), "Person(name='Ada', visits=3, gone=5)")
    _, back = again(
        shape(after, "visits: int", "name: str", "new: int = 7", "more: list = dataclasses.field(default_factory=list)")
    )
    assert (back.name, back.visits, back.new, back.more) == ("Ada", 3, 7, [])
    assert not hasattr(back, "gone")
    assert "gone" not in getattr(back, "__dict__", {})
    _, back = again(shape(after, "name: str", "visits: int", "gone: int"))
    assert (back.name, back.visits, back.gone) == ("Ada", 3, 5)
    _, back = again(shape(after, "gone: int", "visits: int", "name: str"))
    assert (back.name, back.visits, back.gone) == ("Ada", 3, 5)
    _, back = again(shape(after))
    assert not {"name", "visits", "gone"} & set(dir(back))


@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_new_field_without_a_default_is_left_unset(shop, decorator):  # noqa: F811
    again = stored(shop, shape(decorator, "name: str"), "Person(name='Ada')")
    _, back = again(shape(decorator, "name: str", "new: int"))
    assert back.name == "Ada"
    with pytest.raises(AttributeError):
        back.new  # noqa: B018 - it raises


@pytest.mark.parametrize("decorator", ["", "slots=True"])
def test_a_factory_makes_a_new_value_for_each_object(shop, decorator):  # noqa: F811
    again = stored(shop, shape(decorator, "name: str"), "[Person('Ada'), Person('Bob')]")
    _, (ada, bob) = again(shape(decorator, "name: str", "new: list = dataclasses.field(default_factory=list)"))
    assert ada.new == bob.new == []
    assert ada.new is not bob.new


def test_an_attribute_that_was_no_field_is_kept(shop):  # noqa: F811
    source = PERSON + "    def __post_init__(self):\n        self.cached = self.name * 2\n"
    again = stored(shop, source, "Person('Ada', 3)")
    for later in (source, PERSON, PERSON + "    new: int = 7\n"):
        _, back = again(later)
        assert back.cached == "AdaAda"


def test_an_attribute_that_became_a_field_is_not_given_its_default(shop):  # noqa: F811
    source = PERSON + "    def __post_init__(self):\n        self.extra = 5\n"
    again = stored(shop, source, "Person('Ada', 3)")
    for decorator in ("", "slots=True"):
        _, back = again(shape(decorator, "name: str", "visits: int", "extra: int = 7"))
        assert back.extra == 5


@pytest.mark.parametrize("after", DECORATORS)
def test_a_field_that_was_deleted_stays_so(shop, after):  # noqa: F811
    for before in ("", "slots=True"):
        source = shape(before, "name: str", "visits: int") + (
            "\ndef without():\n    person = Person('Ada', 3)\n    del person.visits\n    return person\n"
        )
        again = stored(shop, source, "without()")
        _, back = again(
            shape(after, "name: str", "visits: int = dataclasses.field(default_factory=int)", "new: int = 7")
        )
        assert (back.name, back.new) == ("Ada", 7)
        assert not hasattr(back, "visits")


def test_attributes_of_sets_beyond_those_that_are_remembered_are_matched_too(shop):  # noqa: F811
    source = (
        PERSON
        + """
def many():
    people = []
    for i in range(40):
        people.append(Person(str(i), i))
        setattr(people[-1], f"extra{i}", i)
    return people
"""
    )
    again = stored(shop, source, "many()")
    for later in (source, shape("", "visits: int", "new: int = 7"), shape("slots=True", "visits: int", "new: int = 7")):
        _, people = again(later)
        for i, person in enumerate(people):
            assert person.visits == i
            assert hasattr(person, "name") == (later is source)
            assert hasattr(person, f"extra{i}") == ("slots" not in later)
            assert getattr(person, "new", 7) == 7


def test_objects_of_one_dict_are_matched_too(shop):  # noqa: F811
    source = (
        PERSON
        + """
def two():
    one, other = Person('Ada', 3), Person('Bob', 4)
    other.__dict__ = one.__dict__
    return [one, other]
"""
    )
    again = stored(shop, source, "two()")
    for decorator in ("", "slots=True"):
        _, people = again(shape(decorator, "visits: int", "new: int = 7"))
        assert [(person.visits, person.new, hasattr(person, "name")) for person in people] == [(3, 7, False)] * 2


def test_objects_that_hold_themselves_are_matched_too(shop):  # noqa: F811
    source = PERSON + "\ndef circle():\n    person = Person('Ada')\n    person.visits = [person]\n    return person\n"
    again = stored(shop, source, "circle()")
    for decorator in ("", "slots=True", "frozen=True, slots=True"):
        _, back = again(shape(decorator, "visits: int", "new: int = 7"))
        assert back.visits[0] is back
        assert back.new == 7


def test_a_plain_class_keeps_what_was_stored(shop):  # noqa: F811
    again = stored(shop, PERSON, "Person('Ada', 3)")
    _, back = again("class Person: pass")
    assert vars(back) == {"name": "Ada", "visits": 3}
    _, back = again("class Person:\n    name = property(lambda self: 'told')")
    assert vars(back) == {"name": "Ada", "visits": 3}
    assert back.name == "told"


def test_slots_come_and_go(shop):  # noqa: F811
    source = "class Base:\n    __slots__ = ('name',)\nclass Person(Base):\n    __slots__ = ('visits', 'unset')\n"
    source += "def made():\n    person = Person()\n    person.name, person.visits = 'Ada', 3\n    return person\n"
    again = stored(shop, source, "made()")
    _, back = again("class Person:\n    __slots__ = ('new', 'visits')")
    assert back.visits == 3
    assert not hasattr(back, "new")
    assert not hasattr(back, "name")
    _, back = again("class Person:\n    __slots__ = ('unset', 'visits', 'name')")
    assert (back.name, back.visits, hasattr(back, "unset")) == ("Ada", 3, False)
    _, back = again("class Person:\n    pass")
    assert vars(back) == {"name": "Ada", "visits": 3}
    _, back = again("class Person:\n    __slots__ = ('visits', '__dict__')")
    assert (back.visits, vars(back)) == (3, {"name": "Ada"})


def test_attributes_become_slots(shop):  # noqa: F811
    source = "class Person:\n    def __init__(self):\n        self.name, self.visits = 'Ada', 3"
    again = stored(shop, source, "Person()")
    _, back = again("class Person:\n    __slots__ = ('visits', 'new')")
    assert (back.visits, hasattr(back, "name"), hasattr(back, "new")) == (3, False, False)
    _, back = again("class Person:\n    __slots__ = ('visits', '__dict__')")
    assert (back.visits, vars(back)) == (3, {"name": "Ada"})


def test_a_class_with_setstate_gets_what_pickle_gives_it(shop):  # noqa: F811
    later = "\nclass Person:\n    def __setstate__(self, state):\n        self.state = state\n"
    again = stored(shop, PERSON, "Person('Ada', 3)")
    assert again(later)[1].state == {"name": "Ada", "visits": 3}
    again = stored(shop, shape("slots=True", "name: str", "visits: int"), "Person('Ada', 3)")
    # Since 3.11 pickle has a list of the values here, or a pair of dicts.
    assert again(later)[1].state in ((None, {"name": "Ada", "visits": 3}), ["Ada", 3])


def test_a_class_that_is_told_of_attributes_gets_those_that_it_has(shop):  # noqa: F811
    hook = "\n    def __getattr__(self, name):\n        raise AttributeError(name)\n"
    for before in DECORATORS[:4]:
        again = stored(shop, shape(before, "name: str", "visits: int"), "Person('Ada', 3)")
        for after in DECORATORS[:4]:
            _, back = again(shape(after, "new: int = 7", "visits: int = 0") + hook)
            assert (back.visits, back.new, hasattr(back, "name")) == (3, 7, False)
            _, back = again(shape(after, "visits: int", "name: str") + hook)
            assert (back.name, back.visits) == ("Ada", 3)


def test_a_class_with_a_new_of_its_own_is_called(shop):  # noqa: F811
    again = stored(shop, PERSON, "Person('Ada', 3)")
    made = "\n    def __new__(cls):\n        self = super().__new__(cls)\n        self.__dict__['made'] = True\n"
    made += "        return self\n"
    _, back = again(shape("", "visits: int", "new: int = 7") + made)
    assert vars(back) == {"made": True, "visits": 3, "new": 7}


def test_items_of_a_named_tuple_come_back_by_their_names(shop):  # noqa: F811
    again = stored(shop, "class Pair(typing.NamedTuple):\n    a: int\n    b: int\n", "Pair(1, 2)")
    module, back = again("class Pair(typing.NamedTuple):\n    b: int\n    a: int\n")
    assert back == module.Pair(b=2, a=1)
    module, back = again("class Pair(typing.NamedTuple):\n    b: int\n")
    assert back == module.Pair(2)
    module, back = again("class Pair(typing.NamedTuple):\n    new: int = 7\n    b: int = 0\n    a: int = 0\n")
    assert back == module.Pair(7, 2, 1)
    with pytest.raises(CodecError, match=r"Pair.*an item 'new'.*no default"):
        again("class Pair(typing.NamedTuple):\n    new: int\n    a: int\n")
    module, back = again("class Pair(collections.namedtuple('Pair', 'b a')):\n    def hello(self): pass\n")
    assert (type(back), back.a, back.b) == (module.Pair, 1, 2)
    module, back = again("class Pair:\n    def __new__(cls, *items):\n        return list(items)\n")
    assert back == [1, 2]


def test_named_tuples_that_lead_back_to_themselves_are_matched(shop):  # noqa: F811
    source = "class Pair(typing.NamedTuple):\n    a: int\n    b: int\n"
    source += "def circle():\n    pair = Pair([], 2)\n    pair.a.append(pair)\n    return pair\n"
    again = stored(shop, source, "circle()")
    _, back = again("class Pair(typing.NamedTuple):\n    b: int\n    a: int\n    new: int = 7\n")
    assert back.a[0] is back
    assert (back.b, back.new) == (2, 7)


@pytest.mark.parametrize("base", ["int", "str", "bytes", "list", "dict", "tuple"])
def test_a_class_that_has_contents_by_now_does_not_come_back_empty(shop, base):  # noqa: F811
    again = stored(shop, PERSON, "Person('Ada', 3)")
    with pytest.raises(CodecError, match=r"<class 'shop.Person'>: it is a number, a text or a container by now"):
        again(f"class Person({base}):\n    pass")
    _, back = again(f"class Person({base}):\n    def __setstate__(self, state):\n        self.state = state")
    assert back.state["name"] == "Ada"


def test_a_class_without_room_for_any_field_is_told(shop):  # noqa: F811
    again = stored(shop, PERSON, "Person('Ada', 3)")
    with pytest.raises(CodecError, match="room for none of the fields"):
        again("class Person:\n    __slots__ = ('other',)")
    _, back = again("class Person:\n    __slots__ = ('other', 'name')")
    assert back.name == "Ada"


def test_a_named_tuple_does_not_come_back_as_another_empty_container(shop):  # noqa: F811
    again = stored(shop, "import typing\nclass Pair(typing.NamedTuple):\n    a: int\n    b: int\n", "Pair(1, 2)")
    for source in ("class Pair(list):\n    pass", "class Pair:\n    pass"):
        with pytest.raises(CodecError, match="is no tuple by now"):
            again(source)


def test_a_member_that_is_gone_is_told(shop):  # noqa: F811
    again = stored(shop, "class Colour(enum.Enum):\n    RED = 1\n    BLUE = 2\n", "Colour.BLUE")
    module, back = again("class Colour(enum.Enum):\n    GREEN = 0\n    BLUE = 5\n")
    assert back is module.Colour.BLUE
    with pytest.raises(CodecError, match=r"'BLUE'.*no member of that name"):
        again("class Colour(enum.Enum):\n    RED = 1\n")
    with pytest.raises(CodecError, match=r"shop\.Colour.*is no enum"):
        again("class Colour: pass")


def test_a_function_in_the_place_of_a_class_is_told(shop):  # noqa: F811
    for source, text in ((PERSON, "Person('Ada')"), ("class Person(enum.Enum):\n    A = 1", "Person.A")):
        again = stored(shop, source, text)
        with pytest.raises(CodecError, match=r"shop\.Person.*leads to <function"):
            again("def Person(*args): pass")


def test_a_class_that_changes_back_finds_its_numbers(shop):  # noqa: F811
    old, new = shape("", "name: str", "visits: int"), shape("", "name: str", "new: int = 7")
    records, data = b"", {}
    for source in [old, new] * 10:
        module = shop(source)
        codec = _Codec([module])
        codec.restore(records)
        person = module.Person("Ada", 3)
        data.setdefault(source, codec.encode(person))
        assert codec.encode(person) == data[source]
        assert codec.decode(data[source]) == person
        assert len(data) == 1 or codec.decode(data[old]).name == codec.decode(data[new]).name == "Ada"
        records = codec.describe()
    # Each has one without attributes, and one with.
    assert codec.type_count == 4


def test_a_class_is_changed_between_two_programs(tmp_path):
    (tmp_path / "shop.py").write_text("import dataclasses\n" + PERSON)
    write = """
import shop
codec = _Codec()
Path("data").write_bytes(codec.encode([shop.Person("Ada", 3), shop.Person("Bob", 4)]))
Path("records").write_bytes(codec.describe())
"""
    run(tmp_path, write)
    (tmp_path / "shop.py").write_text("import dataclasses\n" + shape("slots=True", "visits: int", "new: int = 7"))
    read = """
import shop
codec = _Codec([shop])
codec.restore(Path("records").read_bytes())
print(codec.decode(Path("data").read_bytes()))
print(codec.fields(codec.encode(shop.Person(1)), "new"))
"""
    assert run(tmp_path, read) == "[Person(visits=3, new=7), Person(visits=4, new=7)]\n(7,)\n"


def test_fields_are_those_of_the_class_as_it_is(shop):  # noqa: F811
    module = shop(shape("", "name: str", "visits: int", "gone: int"))
    first = _Codec()
    data = first.encode(module.Person("Ada", 3, 5))
    later = shop(shape("", "name: str", "visits: int", "new: int = 7"))
    second = reopened(first, [later])
    assert second.fields(data, "name", "visits", "new") == ("Ada", 3, 7)
    assert second.fields(data, "gone") == (5,)  # which only what was stored has
    with pytest.raises(AttributeError):
        second.fields(data, "none")


def test_what_has_not_changed_is_as_from_pickle(shop):  # noqa: F811
    source = PERSON + "\nclass Slots:\n    __slots__ = ('a', '__weakref__')\n"
    module = shop(source)
    person = module.Person("Ada", [1])
    first = _Codec()
    data = first.encode(person)
    back = reopened(first, [module]).decode(data)
    assert (vars(back), list(vars(back))) == (vars(pickle.loads(pickle.dumps(person))), list(vars(person)))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("class Item: pass", "class Item:\n def __new__(cls): raise TypeError('bad luck')", "TypeError: bad luck"),
        (
            "class Item: pass",
            "import abc\nclass Item(abc.ABC):\n @abc.abstractmethod\n def price(self): ...",
            "TypeError: Can't instantiate abstract class",
        ),
        (
            "class Item:\n def __getstate__(self): return [1]\n def __setstate__(self, state): pass",
            "class Item: pass",
            "TypeError: its state is neither a dict nor a pair of dicts",
        ),
    ],
)
def test_an_object_that_its_class_refuses_by_now_names_the_class(shop, before, after, told):  # noqa: F811
    again = stored(shop, before, "{'deep': [Item()]}")
    with pytest.raises(CodecError, match=rf"^cannot rebuild an object of <class 'shop\.Item'>: {told}"):
        again(after)
