"""Fields of objects whose class has changed between the run that wrote a file and the one that reads it."""

import itertools

import pytest
from kept import reopened, shop  # noqa: F401 - a fixture

from gabion._native import CodecError, _Codec

DECORATORS = ["", "slots=True", "frozen=True", "frozen=True, slots=True", "kw_only=True"]
COLOURS = "class Colour(enum.Enum):\n    RED = 1\n    {} = 2\n"
STORED = {"name": "Ada", "visits": 3, "gone": 5, "tags": ["a", {"b": (1,)}]}


def shape(decorator, *fields):
    """A class of these fields."""
    return f"@dataclasses.dataclass({decorator})\nclass Person:\n    " + "\n    ".join(fields) + "\n"


def person(decorator="", *more):
    return shape(decorator, "name: str", "visits: int", "gone: int", "tags: list", *more)


def written(shop, source, **fields):  # noqa: F811
    """What a run stores, as a function of what the next one has in place of the class."""
    module = shop(source)
    first = _Codec()
    data = first.encode(module.Person(**STORED, **fields))

    def again(later):
        module = shop(later)
        second = reopened(first, [module])
        return second, data

    return again


def check(codec, data, *others):
    """Fields are those of what is built, else what was stored, alone and with each other."""
    built = codec.decode(data)
    expected = {name: getattr(built, name) for name in ("new", "more", *STORED, *others) if hasattr(built, name)}
    expected = {**STORED, **expected}
    for some in [*((name,) for name in expected), *itertools.permutations(expected, 2), tuple(expected)]:
        assert codec.fields(data, *some) == tuple(expected[name] for name in some)
    for missing in ("none", "__slots_of_none__", "Name"):
        with pytest.raises(AttributeError, match=missing):
            codec.fields(data, "gone", missing)


@pytest.mark.parametrize("after", DECORATORS)
@pytest.mark.parametrize("before", DECORATORS)
def test_a_field_that_is_no_more_can_be_read(shop, before, after):  # noqa: F811
    again = written(shop, person(before))
    made = "more: list = dataclasses.field(default_factory=list)"
    codec, data = again(shape(after, "visits: int", "name: str", "new: int = 7", made))
    assert not hasattr(codec.decode(data), "gone")
    assert codec.fields(data, "gone", "new", "more") == (5, 7, [])
    check(codec, data)
    [one], [two] = codec.fields(data, "more"), codec.fields(data, "more")
    assert one is not two
    check(*again(shape(after, "visits: int", "name: str", "new: int")))
    check(*again(shape(after, "name: str", "gone: str")))
    check(*again(person(after)))


@pytest.mark.parametrize("after", DECORATORS)
def test_what_cannot_be_built_hides_nothing_else(shop, after):  # noqa: F811
    again = written(shop, COLOURS.format("BLUE") + person("", "colour: object = Colour.BLUE"))
    made = "more: list = dataclasses.field(default_factory=list)"
    fields = ["name: str", "visits: int", "colour: object", "new: int = 7", made]
    codec, data = again(COLOURS.format("GREEN") + shape("kw_only=True, " + after.replace("kw_only=True", ""), *fields))
    with pytest.raises(CodecError, match="BLUE"):
        codec.decode(data)
    assert codec.fields(data, "name", "new", "gone", "more") == ("Ada", 7, 5, [])
    for wanted in (["colour"], ["name", "colour"], ["none"]):
        with pytest.raises(CodecError, match="BLUE"):
            codec.fields(data, *wanted)


HAVING = {
    "a property": "    @property\n    def gone(self): return ('made', self.name)\n",
    "a property that sets": "    gone = property(lambda self: 'made', lambda self, value: None)\n",
    "a property of a field": "    visits = property(lambda self: 'made')\n",
    "a property that fails": "    @property\n    def gone(self): return self.no_such_name\n",
    "a method": "    @staticmethod\n    def gone(): return 1\n",
    "an attribute": "    gone = 'own'\n",
    "an attribute of a field": "    visits = 'own'\n",
    "__getattr__": "    def __getattr__(self, name):\n"
    "        if name == 'gone': return 'made'\n        raise AttributeError(name)\n",
    "__getattribute__": "    def __getattribute__(self, name):\n"
    "        return 'made' if name in ('gone', 'visits') else object.__getattribute__(self, name)\n",
    "__new__": "    def __new__(cls, *args):\n        self = object.__new__(cls)\n"
    "        object.__setattr__(self, 'made', 1)\n        return self\n",
    "__setstate__": "    def __setstate__(self, state):\n"
    "        self.__dict__.update(name=state['name'] * 2, made=state['gone'], more=[])\n",
    "__setattr__": "    def __setattr__(self, name, value): 1 / 0\n",
    "no names": "    __annotations__ = {}\n",
}


@pytest.mark.parametrize("body", HAVING.values(), ids=HAVING)
def test_what_the_class_has_to_say_comes_first(shop, body):  # noqa: F811
    again = written(shop, person())
    check(*again(shape("", "name: str = ''", "new: int = 7") + body), "made")
    if "no_such_name" not in body:  # of a class that takes all of it, that is what the class says
        check(*again("class Person:\n" + body), "made")
    check(*again("class Person:\n    __slots__ = ('name', '__dict__')\n" + body), "made")
    source = shape("", "name: str = ''", "new: int = 7") + body + "class Heir(Person):\n    pass\nPerson = Heir\n"
    check(*again(source + "Person.__name__ = Person.__qualname__ = 'Person'\n"), "made")


@pytest.mark.parametrize("after", DECORATORS)
def test_fields_of_bases_are_fields(shop, after):  # noqa: F811
    base = f"@dataclasses.dataclass({after})\nclass Base:\n    name: str\n    gone: int\n"
    heir = f"@dataclasses.dataclass({after})\nclass Person(Base):\n    visits: int\n    tags: list\n"
    again = written(shop, base + heir)
    codec, data = again(
        base.replace("gone: int", "new: int = 7") + heir.replace("int", "int = 0").replace("list", "object = None")
    )
    assert codec.fields(data, "gone", "new") == (5, 7)
    check(codec, data)


def test_slots_that_are_no_more_can_be_read(shop):  # noqa: F811
    plain = "class Person:\n    __slots__ = {}\n    def __init__(self, **fields):\n"
    plain += "        for name in fields: setattr(self, name, fields[name])\n"
    again = written(shop, plain.format(tuple(STORED)))
    check(*again(plain.format(("name", "new"))))
    check(*again(plain.format(("visits", "name"))))
    check(*again(plain.format(("__dict__", "name"))))
    codec, data = again(plain.format(("new",)))
    assert codec.fields(data, "gone", "name") == (5, "Ada")  # as no object of the class can be built


ITEMS = "class Person(typing.NamedTuple):\n    {}\n"


def test_items_that_are_no_more_can_be_read(shop):  # noqa: F811
    again = written(shop, ITEMS.format("name: str; visits: int; gone: int; tags: list"))
    codec, data = again(ITEMS.format("visits: int; name: str; new: int = 7"))
    assert codec.fields(data, "gone", "new", "name") == (5, 7, "Ada")
    check(codec, data)
    check(*again(ITEMS.format("name: str; new: int = 7; gone: int = 0")))
    codec, data = again(ITEMS.format("name: str\n    def gone(self): return 1"))
    assert callable(codec.fields(data, "gone")[0])
    call = "class Person(collections.namedtuple('Person', ['name', 'new'], defaults=[7])):\n"
    check(*again(call + "    def __new__(cls, *items): return super().__new__(cls, *items)\n"))


def test_items_that_cannot_be_built_hide_nothing_else(shop):  # noqa: F811
    items = "name: str; visits: int; gone: int; tags: list; colour: object = Colour.BLUE"
    again = written(shop, COLOURS.format("BLUE") + ITEMS.format(items))
    later = "name: str; colour: object = None; new: int = 7"
    codec, data = again(COLOURS.format("GREEN") + ITEMS.format(later))
    assert codec.fields(data, "gone", "new", "name") == (5, 7, "Ada")
    with pytest.raises(CodecError, match="BLUE"):
        codec.fields(data, "colour")


def test_a_factory_is_called_for_what_is_asked_for_alone(shop):  # noqa: F811
    again = written(shop, person())
    made = "new: list = dataclasses.field(default_factory=lambda: Person.calls.append(1))"
    codec, data = again(shape("", "name: str = ''", made) + "Person.calls = []\n")
    assert codec.fields(data, "name", "gone") == ("Ada", 5)
    calls = codec.decode(data).calls
    del calls[:]
    codec.fields(data, "new")
    assert calls == [1]
    codec, data = again(shape("", "new: list = dataclasses.field(default_factory=lambda: 1 / 0)"))
    assert codec.fields(data, "name", "gone") == ("Ada", 5)
    for name in ("new", "none"):
        with pytest.raises((CodecError, ZeroDivisionError)):
            codec.fields(data, name)
