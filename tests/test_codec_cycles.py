"""Cycles through what exists only when its parts do: tuples, frozensets, reduced objects, times, slices."""

import datetime as dt
import pickle
import typing

import codec_cases as cases
import pytest

from gabion._native import CodecError, _Codec


@pytest.fixture
def codec():
    return _Codec()


def check(codec, obj):
    """Each of these is compared with what pickle gives: the same objects in the same places."""
    for value in (obj, [obj], [obj, obj], {"a": (obj, [obj])}):
        try:
            expected = pickle.loads(pickle.dumps(value, 5))
        except RecursionError:
            with pytest.raises(CodecError, match="contain it"):
                codec.encode(value)
            continue
        for _ in range(2):
            back = codec.decode(codec.encode(value))
            cases.assert_same(back, expected)
    return codec.decode(codec.encode(obj))


class Vertex(typing.NamedTuple):
    name: object
    ins: list
    outs: list


class WithItems(tuple):
    pass


class Keyed:
    def __new__(cls, *parts, last=None):
        self = super().__new__(cls)
        self.parts, self.last = parts, last
        return self

    def __getnewargs_ex__(self):
        return self.parts, {"last": self.last}


def several(count, make=list):
    return [make() for _ in range(count)]


def lead_back(containers, whole):
    for held in containers:
        if isinstance(held, list):
            held.append(whole)
        elif isinstance(held, dict):
            held["whole"] = whole
        else:
            held.whole = whole


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 60])
@pytest.mark.parametrize("make", [list, dict, cases.DictPerson])
def test_several_containers_that_lead_back(codec, make, count):
    kinds = [
        lambda *made: made,
        lambda *made: Vertex("name", [made[0]], [made]),
        lambda *made: cases.Pair(made[0], made[-1]),
        lambda *made: WithItems(made),
        cases.Reducing,
        lambda *made: Keyed(*made, last=made[-1]),
        ValueError,
    ]
    for kind in kinds:
        made = several(count, make)
        whole = kind(*made)
        lead_back(made, whole)
        check(codec, whole)
        check(codec, made[-1])


def test_the_smallest(codec):
    one, other = [], []
    whole = (one, other)
    one.append(whole)
    other.append(whole)
    back = check(codec, whole)
    assert back[0][0] is back[1][0] is back


def test_a_graph_of_named_tuples(codec):
    def edge(one, other):
        one.outs.append((one, other))
        other.ins.append((one, other))

    vertices = [Vertex(str(i), [], []) for i in range(12)]
    for i, one in enumerate(vertices):
        edge(one, vertices[(i * 5 + 1) % 12])
        edge(one, vertices[(i + 1) % 12])
        edge(one, one)
    back = check(codec, vertices)
    assert all(one.outs[-1] == (one, one) and one.outs[-1][0] is one for one in back)


def test_frozensets_within_what_they_hold(codec):
    keys = several(5, cases.DictPerson)
    whole = frozenset(keys)
    for key in keys:
        key.group = whole
    back = codec.decode(codec.encode([whole, keys]))
    assert len(back[0]) == 5
    assert all(key.group is back[0] for key in back[1])
    assert set(back[1]) == back[0]


def test_wholes_within_wholes(codec):
    lists = several(6)
    inner = (lists[0], lists[1], lists[2])
    outer = (inner, lists[3], Vertex(inner, lists[4], lists[5]))
    for i, held in enumerate(lists):
        held += [outer, inner, outer[2]] if i % 2 else [inner, outer]
    check(codec, outer)
    check(codec, inner)
    check(codec, lists)


def test_what_has_no_end_is_refused(codec):
    direct = cases.Reducing()
    direct.args = (direct,)
    beside = cases.Reducing()
    beside.args = ([], {}, cases.DictPerson(), beside)
    through = cases.Reducing()
    through.args = ((1, frozenset([through])),)
    one, other = cases.Reducing(), cases.Reducing()
    one.args, other.args = (other, "text"), (one, "text")
    for whole in (direct, beside, through, one):
        for value in (whole, [whole], (whole, whole)):
            with pytest.raises(RecursionError):
                pickle.dumps(value)
            with pytest.raises(CodecError, match="contain itself"):
                codec.encode(value)


class Fresh:
    """Is made from something new each time, which holds it."""

    def __reduce__(self):
        return Fresh, ([self], {"me": self})


def test_new_containers_without_end_are_refused(codec):
    for value in (Fresh(), [Fresh()]):
        with pytest.raises(RecursionError):
            pickle.dumps(value)
        with pytest.raises(CodecError, match="more than 1000 times"):
            codec.encode(value)


def test_the_work_of_many_that_lead_back_is_bounded(codec):
    """Each round writes the tuple once more, and pickle recurses: neither can have as many as one likes."""
    for make in (tuple, frozenset):
        nodes = several(20_000, cases.DictPerson)
        whole = make(nodes)
        lead_back(nodes, whole)
        with pytest.raises(RecursionError):
            pickle.dumps(whole)
        with pytest.raises(CodecError, match="more than 1000 times"):
            codec.encode(whole)
    few = several(50)
    whole = (*several(10_000), *few)
    lead_back(few, whole)
    encoding = codec.encode(whole)
    assert len(encoding) < 100 * 10_000 * 4
    back = codec.decode(encoding)
    assert all(held[0] is back for held in back[-50:])


class Ledger:
    """Is made from what holds it, and notes all that it is given afterwards."""

    setter = ()

    def __init__(self, holder):
        self.holder, self.log = holder, []

    def extend(self, items):
        self.log += items

    def append(self, item):
        self.log.append(item)

    def __setitem__(self, key, value):
        self.log.append((key, value))

    def __setstate__(self, state):
        self.log.append(state)

    def __reduce__(self):
        return type(self), (self.holder,), ["state"], iter([1, [2]]), iter([("a", [3]), ([4], 5)]), *self.setter


def set_state(ledger, state):
    ledger.log.append(("set", state))


class LedgerWithSetter(Ledger):
    setter = (set_state,)


@pytest.mark.parametrize("cls", [Ledger, LedgerWithSetter])
def test_what_follows_the_arguments_comes_once(codec, cls):
    """As in pickle: the innermost round has it, and those around it have nothing more to give."""
    ledger = cls([])
    ledger.holder.append(ledger)
    for value in (ledger, [ledger], ledger.holder, [ledger, ledger.holder]):
        expected = pickle.loads(pickle.dumps(value, 5))
        back = codec.decode(codec.encode(value))
        cases.assert_same(back, expected)
    back = codec.decode(codec.encode(ledger))
    assert back.holder[0] is back
    last = ("set", ["state"]) if cls.setter else ["state"]
    assert back.log == [1, [2], ("a", [3]), ([4], 5), last]


class Zone(dt.tzinfo):
    def __init__(self):
        self.seen = []

    def utcoffset(self, when):
        return dt.timedelta(hours=1)

    def dst(self, when):
        return None

    def tzname(self, when):
        return "Zone"


class Text(str):
    pass


def test_times_and_slices_within_their_parts(codec):
    zone, name, start = Zone(), Text("name"), []
    name.seen = []
    for whole, seen in [
        (dt.datetime(2020, 1, 1, 12, tzinfo=zone), lambda whole: whole.tzinfo.seen),
        (dt.time(12, tzinfo=zone), lambda whole: whole.tzinfo.seen),
        (dt.timezone(dt.timedelta(hours=1), name), lambda whole: whole.tzname(None).seen),
        (slice(start, None, start), lambda whole: whole.start),
    ]:
        seen(whole).append(whole)
        back = check(codec, whole)
        assert seen(back)[0] is back
        back = check(codec, seen(whole))
        assert seen(back[0]) is back
        seen(whole).clear()
    zone.seen = [dt.datetime(2020, 1, day, tzinfo=zone) for day in range(1, 9)]
    back = check(codec, zone)
    assert all(seen.tzinfo is back for seen in back.seen)
    back = check(codec, zone.seen[5])
    assert back.tzinfo.seen[5] is back
