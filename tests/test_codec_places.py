"""Where in an object lies what cannot be stored, as the error tells it."""

import collections
import dataclasses
import re
import threading
import time

import pytest

from gabion._native import CodecError, _Codec


@pytest.fixture
def codec():
    return _Codec()


@dataclasses.dataclass
class Job:
    name: str
    lock: object = None


@dataclasses.dataclass
class Batch:
    jobs: list


class Slotted:
    __slots__ = ("first", "second")

    def __init__(self, first, second):
        self.first, self.second = first, second


class Both(Slotted):
    """Slots and a `__dict__`."""

    def __init__(self, first, second, third):
        super().__init__(first, second)
        self.third = third


class Made:
    """A dict of attributes was made for it."""

    def __init__(self, **attributes):
        self.__dict__ = attributes


class Named(collections.namedtuple("Named", "left right")):
    __slots__ = ()


class Listed(list):
    pass


class Own:
    """What it holds comes from a reducer of its own."""

    def __init__(self, held):
        self.held = held

    def __reduce__(self):
        return Own, (self.held,)


class Fresh:
    """As `Own`, made anew at each call."""

    def __reduce__(self):
        return list, ((threading.Lock(),),)


def circle(one):
    loop = [1, 2]
    loop += [loop, {"one": one, "loop": loop}]
    return loop


PLACES = {
    "Batch.jobs[1].lock": lambda one: Batch([Job("a"), Job("b", one)]),
    "list[1]['x']": lambda one: [1, {"x": one}],
    "dict[7][(1, 'a')][2]": lambda one: {7: {(1, "a"): ("a", "b", one)}},
    "dict[None].second": lambda one: {None: Slotted("a", one)},
    "Both.first[0]": lambda one: Both([one], "b", "c"),
    "Both.third[0]": lambda one: Both("a", "b", [one]),
    "Both.second.third": lambda one: Both("a", Both("a", "b", one), "c"),
    "Made.two": lambda one: Made(one=1, two=one),
    "Named.right[0]": lambda one: Named(1, [one]),
    "OrderedDict['a']": lambda one: collections.OrderedDict(a=one),
    "defaultdict['a'][0]": lambda one: collections.defaultdict(list, a=[one]),
    "Listed[1].lock": lambda one: Listed([1, Job("a", one)]),
    "Own.held[0]": lambda one: Own([one]),
    "set{...}": lambda one: {"a", one},
    "list[0]{...}": lambda one: [{one: 1}],
    "list[3]['one']": circle,
}


def redefined():
    class Job:
        pass

    return Job()


@pytest.mark.parametrize("place", PLACES)
def test_the_place_of_what_cannot_be_stored_is_told(codec, place):
    make, at = PLACES[place], re.escape(f" (at {place}): ")
    for one, start in (
        (threading.Lock(), "cannot store _thread.lock"),
        (lambda: 1, "cannot store <function .*<lambda> at 0x[0-9a-f]+> by reference"),
        (redefined(), "cannot store <class '.*redefined.*Job'> by reference"),
    ):
        # In whatever order, and with what was noted on the way or not: what was met before, and the first time.
        for whole in (make(one), make(one)):
            with pytest.raises(CodecError, match=f"^{start}{at}"):
                codec.encode(whole)


def test_the_first_place_counts_that_the_walk_comes_to(codec):
    one = threading.Lock()
    batch = Batch([Job("a"), Job("b", [Job("c", one)]), Job("d", one)])
    with pytest.raises(CodecError, match=r" \(at Batch\.jobs\[1\]\.lock\[0\]\.lock\): "):
        codec.encode(batch)


def test_a_long_way_is_told_by_its_ends(codec):
    one = Job("last", threading.Lock())
    for _ in range(100_000):
        one = Job("a", one)
    way = "Job" + ".lock" * 6 + "..." + ".lock" * 6
    with pytest.raises(CodecError, match=rf"^cannot store _thread\.lock \(at {re.escape(way)}\): "):
        codec.encode(one)
    while one is not None and isinstance(one, Job):
        one = one.lock
    long = {"x" * 1000: threading.Lock()}
    with pytest.raises(CodecError, match=r"\(at dict\['x{56}\.\.\.\]\): "):
        codec.encode(long)


def test_the_whole_has_no_place_and_what_is_not_found_is_inside(codec):
    for whole, start in (
        (threading.Lock(), "cannot store _thread.lock: "),
        (lambda: 1, "by reference: it is not found"),
    ):
        with pytest.raises(CodecError, match=start):
            codec.encode(whole)
    with pytest.raises(CodecError, match=r"^cannot store _thread\.lock \(inside list\): "):
        codec.encode([Fresh()])


def test_what_a_reducer_returns_is_told_with_the_place_of_its_object(codec):
    class Bad:
        def __reduce__(self):
            return ["nothing"]

    with pytest.raises(CodecError, match=r"^a reducer must return .* \(at list\[1\]\.lock\)$"):
        codec.encode([0, Job("a", Bad())])

    class Raises:
        def __reduce__(self):
            raise CodecError("of its own")

    with pytest.raises(CodecError, match=r"^of its own$"):
        codec.encode([0, Job("a", Raises())])


def test_keys_and_classes_that_misbehave(codec):
    class Meta(type):
        def __repr__(cls):
            raise ZeroDivisionError

    with pytest.raises(CodecError, match=r"^cannot store _thread\.lock \(at dict\[\?\]\): "):
        codec.encode({Unshown(): threading.Lock()})
    with pytest.raises(CodecError, match=r"^cannot store Meta by reference \(at list\[0\]\): "):
        codec.encode([Meta("Local", (), {})()])


class Unshown:
    def __repr__(self):
        raise ZeroDivisionError


def test_memory_of_others_is_stored_as_bytes(codec):
    with pytest.raises(
        CodecError, match=r"^cannot store memoryview \(at dict\['x'\]\): .* has no copy; store bytes\(view\)$"
    ):
        codec.encode({"x": memoryview(b"abc")})


def test_a_row_whose_class_is_not_found(codec):
    row = collections.namedtuple("Row", "a b")(1, 2)
    text = (
        r"^cannot store <class '.*Row'> by reference \(at list\[0\]\): it is not found as .*Row; store tuple\(row\) or "
    )
    with pytest.raises(CodecError, match=text + r"row\._asdict\(\), or define it at the top level of a module$"):
        codec.encode([row])
    assert codec.decode(codec.encode([tuple(row), row._asdict()])) == [(1, 2), {"a": 1, "b": 2}]


def test_looking_takes_no_longer_than_the_walk(codec):
    """In the order of the walk: what lies behind is not looked at."""
    rows = [{"number": number, "tags": [str(number)]} for number in range(100_000)]
    rows[10]["tags"] = threading.Lock()
    began = time.perf_counter()
    with pytest.raises(CodecError, match=r" \(at list\[10\]\['tags'\]\): "):
        codec.encode(rows)
    few = time.perf_counter() - began
    rows[10]["tags"], rows[-1]["tags"] = [], threading.Lock()
    with pytest.raises(CodecError, match=r" \(at list\[99999\]\['tags'\]\): "):
        codec.encode(rows)
    assert few < 1
