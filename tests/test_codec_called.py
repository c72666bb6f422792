"""What a file may have called, and what it may change, of what a program lets it build."""

import collections
import copyreg
import functools
import operator
import types
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from kept import reopened, shop  # noqa: F401 - a fixture
from test_codec_endless import Forged

import gabion
from gabion._native import CodecError, _Codec

try:
    import numpy
except ImportError:
    numpy = None


class Made:
    """Stored as what a function makes."""

    def __init__(self, function, *given):
        self.function, self.given = function, given

    def __reduce__(self):
        return self.function, self.given


SOURCE = """
import collections

class Job:
    ran = []
    def __init__(self, command="", extend=None):
        self.command, self.extend = command, extend
    def __call__(self, *given):
        Job.ran.append((self.command, given))
        return given

class Settings:
    def __init__(self):
        self.all = {"admin": False}
    def __setitem__(self, name, value):
        self.all[name] = value
    def append(self, value):
        self.all[value] = value
    def __reduce__(self):
        return "SETTINGS"

SETTINGS = Settings()

class MyChain(collections.ChainMap):
    pass

class MyList(list):
    pass

def listed(*given, **named):
    return [*given, *named]

class MyPartial(__import__("functools").partial):
    pass
"""


class Called(Forged):
    """May be the function of a reducer."""

    def __call__(self):
        raise AssertionError


def refused(made, allowed, said):
    codec = _Codec()
    data = codec.encode(made)
    with pytest.raises(CodecError, match=said):
        reopened(codec, allowed).decode(data)
    # The program has stored a function for which another stands in.
    again = reopened(codec, allowed)
    again.encode([getattr, copyreg._reconstructor])
    with pytest.raises(CodecError, match=said):
        again.decode(data)


def test_an_instance_that_the_file_built_is_not_called(shop):  # noqa: F811
    module = shop(SOURCE)
    job = module.Job("rm")
    for made in (
        Forged(job, ("-rf",)),
        Forged(module.Job, (), {"a": 1}, None, None, job),
        Forged(module.Job, ("", job), None, iter([1])),
    ):
        refused(made, [module.Job], r"calls <shop\.Job")
    assert module.Job.ran == []
    codec = _Codec()
    data = codec.encode(Forged(job, ("-rf",)))
    assert reopened(codec, "*").decode(data) == ("-rf",)
    assert codec.decode(data) == ("-rf",)
    refused(Forged(operator.attrgetter("__class__"), (1,)), [operator.attrgetter], "calls operator")
    refused(Forged(types.GenericAlias(list, (int,)), ((1,),)), [types.GenericAlias], "calls list")


def partials(module):
    found = {
        "getattr": functools.partial(getattr),
        "getattr of a class": functools.partial(getattr, module.MyList),
        "getattr, twice": Called(module.MyPartial, (functools.partial(getattr),)),
        "a function that another stands in for": functools.partial(copyreg._reconstructor, module.MyList, list),
        "a list": functools.partial(list, range(1 << 40)),
        "a text": functools.partial(str),
        "an instance": functools.partial(module.Job("rm")),
    }
    if numpy is not None:
        found["a function of NumPy's"] = functools.partial(numpy.zeros(3).__reduce__()[0])
    return found


NAMES = ["getattr", "getattr of a class", "getattr, twice", "a function that another stands in for", "a list", "a text"]


@pytest.mark.parametrize("name", [*NAMES, "an instance", "a function of NumPy's"])
def test_a_partial_calls_what_may_be_called(shop, name):  # noqa: F811
    module = shop(SOURCE)
    if name not in (found := partials(module)):
        pytest.skip("no NumPy here")
    allowed = [functools.partial, module.MyPartial, module.MyList, module.Job, module.listed]
    for arguments in ((), (module.MyList, "__name__"), ([],)):
        refused(Forged(found[name], arguments), allowed, "calls|asks for an attribute")
    assert module.Job.ran == []


def test_a_partial_that_is_its_own_is_refused(shop):  # noqa: F811
    module = shop(SOURCE)
    itself = Called()
    itself.reduced = functools.partial, (module.listed,), (itself, (), {}, None)
    refused(Forged(itself, (1,)), [functools.partial, module.listed], "calls")


def test_partials_of_what_may_be_called_are(shop):  # noqa: F811
    module = shop(SOURCE)
    for made in (
        Forged(functools.partial(module.listed, 1, a=2), (3,)),
        Forged(module.MyPartial(functools.partial(module.listed, 1, a=2)), (3,)),
        collections.defaultdict(functools.partial(list), {1: [2]}),
    ):
        codec = _Codec()
        data = codec.encode(made)
        back = reopened(codec, [functools.partial, module.MyPartial, module.listed]).decode(data)
        assert back in ([1, 3, "a"], {1: [2]})


def test_methods_that_a_class_has_of_other_kinds_are_called(shop):  # noqa: F811
    module = shop("""
class Method:
    def __get__(self, instance, kind=None):
        return Bound(instance)

class Bound:
    def __init__(self, instance):
        self.instance = instance
    def __call__(self, state):
        self.instance.state = state

class Box:
    __setstate__ = append = extend = Method()

class Slotted:
    __slots__ = ("extend",)
    def __init__(self, extend):
        self.extend = extend
""")
    for made in (Forged(module.Box, (), {"a": 1}), Forged(module.Box, (), None, iter([1]))):
        codec = _Codec()
        data = codec.encode(made)
        assert reopened(codec, [module.Box]).decode(data).state in ({"a": 1}, [1])
    called = Forged(module.Slotted, (module.Bound(None),), None, iter([1]))
    refused(called, [module.Slotted, module.Bound], r"calls <shop\.Bound")


def test_what_shows_a_programs_object_gets_no_items(shop):  # noqa: F811
    module = shop(SOURCE)
    settings = module.SETTINGS
    items = [("admin", True)]
    chain = collections.ChainMap
    for made in (
        Forged(chain, (settings,), None, None, iter(items)),
        Forged(module.MyChain, (settings,), None, None, iter(items)),
        Forged(chain, (Forged(chain, (settings,)),), None, None, iter(items)),
        Forged(chain, (Forged(collections.UserDict, (), {"data": settings}),), None, None, iter(items)),
    ):
        refused(made, [settings, module.MyChain], r"sets attributes or items of <shop\.Settings")
    assert settings.all == {"admin": False}
    codec = _Codec()
    data = codec.encode(Forged(chain, ({}, settings), None, None, iter(items)))
    back = reopened(codec, [settings]).decode(data)
    assert back["admin"] is True
    assert back.maps == [{"admin": True}, settings]
    assert settings.all == {"admin": False}


def test_methods_of_objects_that_have_themselves_are_found(tmp_path: Path) -> None:
    """What getattr was called with was gone through as if it were to be hashed, in circles."""
    circle: dict[str, object] = {}
    circle["self"] = circle
    with gabion.Pile(path=tmp_path / "circle.pile") as pile:
        pile.root = pile.put({"circle": circle, "get": circle.get})
    with gabion.Pile(path=tmp_path / "circle.pile", types=[getattr]) as pile:
        found = pile.get(pile.root)
        assert found["get"]("self") is found["circle"]


def test_a_partial_of_a_class_of_parts_may_be_called(tmp_path: Path) -> None:
    for made in (functools.partial(Decimal), functools.partial(datetime, 2026, 1)):
        with gabion.Pile(path=tmp_path / "partial.pile") as pile:
            pile.root = pile.put(Made(made, "1.5" if made.func is Decimal else 5))
        with gabion.Pile(path=tmp_path / "partial.pile", types=[functools.partial]) as pile:
            assert pile.get(pile.root) in (Decimal("1.5"), datetime(2026, 1, 5))
        (tmp_path / "partial.pile").unlink()
