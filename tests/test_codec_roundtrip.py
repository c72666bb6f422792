"""The codec gives back what pickle gives back."""

import contextlib
import ctypes
import math
import os
import pickle
import struct
import sys
import threading

import codec_cases as cases
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gabion._native import CodecError, _Codec

LONG = bool(os.environ.get("GABION_LONG"))
many = settings(
    max_examples=20000 if LONG else 200,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=not LONG,
)


@pytest.fixture(scope="module")
def codec():
    return _Codec()


def through(codec, obj):
    return codec.decode(codec.encode(obj))


@pytest.mark.parametrize("value", cases.scalars(), ids=lambda v: repr(v)[:40])
def test_scalars(codec, value):
    cases.assert_same(through(codec, value), value)
    cases.assert_same(through(codec, [value, value]), pickle.loads(pickle.dumps([value, value], 5)))


@pytest.mark.parametrize("obj", cases.objects(), ids=lambda v: type(v).__name__)
def test_objects(codec, obj):
    cases.assert_same(through(codec, obj), pickle.loads(pickle.dumps(obj, 5)))
    cases.assert_same(through(codec, [obj, obj]), pickle.loads(pickle.dumps([obj, obj], 5)))
    cases.assert_same(through(codec, {"k": (obj,)}), pickle.loads(pickle.dumps({"k": (obj,)}, 5)))


@many
@given(st.integers(0, 2**32))
def test_random_graphs(seed):
    codec = CODEC
    graph = cases.random_graph(seed)
    cases.assert_same(through(codec, graph), pickle.loads(pickle.dumps(graph, 5)))
    # A second time: now the codec knows every class and layout.
    cases.assert_same(through(codec, graph), pickle.loads(pickle.dumps(graph, 5)))


CODEC = _Codec()

atoms = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.binary()
    | st.text(st.characters())
    | st.text(st.characters(codec="ascii"), max_size=70)
    | st.datetimes()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.decimals()
    | st.fractions()
    | st.datetimes(timezones=st.sampled_from([cases.dt.timezone.utc]))
)
keys = st.integers() | st.text(max_size=5) | st.none() | st.tuples(st.integers(), st.text(max_size=2))
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner)
        | st.builds(cases.Plain, inner, inner)
        | st.builds(cases.Frozen, inner, inner)
        | st.builds(cases.Point, inner, inner)
        | st.frozensets(keys)
        | st.sets(keys)
    ),
    max_leaves=20,
)


@many
@given(values)
def test_any_value(value):
    cases.assert_same(through(CODEC, value), pickle.loads(pickle.dumps(value, 5)), identity=False)


@many
@given(st.integers(0, 2**64 - 1))
def test_float_bits_survive(bits):
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    back = through(CODEC, value)
    # A signalling NaN may come back quiet where the processor loads it that way; nothing else may change.
    assert struct.pack("<d", back) == struct.pack("<d", value) or (math.isnan(value) and math.isnan(back))


@many
@given(st.integers(-(2**31), 2**31 - 1))
def test_floats_of_cents(whole):
    value = whole / 100
    data = CODEC.encode(value)
    assert len(data) == 6
    assert repr(CODEC.decode(data)) == repr(value)


@pytest.mark.parametrize("length", range(140))
def test_text_of_every_length(codec, length):
    text = "".join(chr(32 + (length + i * 7) % 95) for i in range(length))
    latin, wide = text[:-1] + "\xe9", text[:-1] + "\U0001f9f1"
    alone = [text[:1] + text[1:], latin, wide]
    assert through(codec, alone) == alone
    # At every distance from the end of the output's room, before values that would show what was overwritten.
    rows = [[text[: length - cut] + "|", cut - 60, 0.25 * cut, text] for cut in range(min(length, 40))]
    assert through(codec, rows) == rows


def test_singletons_stay(codec):
    for value in (None, True, False, ..., NotImplemented, "", (), cases.Color.RED, cases.Access.WRITE, int, len):
        assert through(codec, value) is value
        assert through(codec, [value])[0] is value


def test_cycles(codec):
    a = []
    a.append(a)
    b = through(codec, a)
    assert b[0] is b
    d = {}
    d["self"] = d
    b = through(codec, d)
    assert b["self"] is b
    t = ([],)
    t[0].append(t)
    b = through(codec, t)
    assert b[0][0] is b
    lst = []
    lst.append((lst, lst))
    b = through(codec, lst)
    assert b[0][0] is b
    assert b[0][1] is b
    for kind in (cases.DictPerson, cases.Node, cases.Derived):
        obj = kind.__new__(kind)
        obj.other = [obj]
        b = through(codec, obj)
        assert b.other[0] is b
    p = cases.Point([], None)
    p.x.append(p)
    b = through(codec, p)
    assert b.x[0] is b
    r = cases.Reducing([])
    r.args[0].append(r)
    b, c = through(codec, r), pickle.loads(pickle.dumps(r))
    assert b.args[0][0] is b
    assert c.args[0][0] is c
    holder = cases.DictPerson()
    holder.members = {holder}
    b = through(codec, holder)
    assert b.members == {b}
    key = cases.DictPerson()
    frozen = frozenset([key])
    key.group = frozen
    b = through(codec, frozen)
    (inner,) = b
    assert inner.group is b
    deque = cases.collections.deque()
    deque.append(deque)
    assert through(codec, deque)[0] is not None


def test_tuples_hash_as_before(codec):
    for value in ((), (1, "two"), cases.Point(1, "two"), frozenset([(1, 2), cases.Point(3, 4)])):
        back = through(codec, value)
        assert hash(back) == hash(value)
        assert {value: "found"}[back] == "found"


def test_constructed_from_itself_is_refused(codec):
    class_ = cases.Reducing()
    class_.args = (class_,)
    with pytest.raises(RecursionError):
        pickle.dumps(class_)
    with pytest.raises(CodecError, match="contain itself"):
        codec.encode(class_)


def in_small_thread(body):
    """Runs `body` with a stack of 256 KiB: nothing may recurse."""
    failure = []

    def run():
        try:
            body()
        except BaseException as error:
            failure.append(error)

    before = threading.stack_size(256 * 1024)
    thread = threading.Thread(target=run)
    thread.start()
    threading.stack_size(before)
    thread.join()
    if failure:
        raise failure[0]


@pytest.mark.parametrize("kind", ["node", "dict", "list", "tuple", "attributes"])
def test_long_chains(codec, kind):
    length = 10**6 if LONG or kind == "node" else 10**5

    def link(rest):
        if kind == "node":
            node = cases.Node()
            node.value, node.next, node.other = 1, rest, None
            return node
        if kind == "attributes":
            return cases.Plain(rest)
        return {"next": rest} if kind == "dict" else [rest] if kind == "list" else (rest, 1)

    follow = {
        "node": lambda x: x.next,
        "attributes": lambda x: x.a,
        "dict": lambda x: x["next"],
        "list": lambda x: x[0],
        "tuple": lambda x: x[0],
    }[kind]

    def body():
        head = None
        for _ in range(length):
            head = link(head)
        copy = through(codec, head)
        seen = 0
        # Taken apart link by link: interpreters differ in how deep they let a chain fall at once.
        while copy is not None:
            copy = follow(copy)
            seen += 1
        while head is not None:
            head = follow(head)
        assert seen == length

    if kind in ("node", "list"):
        in_small_thread(body)
    else:
        body()


def test_dict_of_the_original_is_not_made(codec):
    """Storing an object must not change it: no `__dict__` appears, no attribute moves."""
    person = cases.make_person(cases.DictPerson, 1)
    other = cases.make_person(cases.DictPerson, 1)
    before = sys.getsizeof(person)
    codec.encode(person)
    codec.encode(person)
    assert sys.getsizeof(person) == before
    assert sys.getrefcount(person.first) == sys.getrefcount(other.first)
    assert list(vars(through(codec, person))) == list(vars(person))


def test_classes_that_change(codec):
    class_ = cases.Plain
    obj = class_(1, 2)
    assert through(codec, obj).a == 1
    class_.__reduce__ = lambda self: (class_, ("reduced",))
    try:
        assert through(codec, obj).a == "reduced"
    finally:
        del class_.__reduce__
    assert through(codec, obj).a == 1
    import copyreg

    copyreg.pickle(class_, lambda self: (class_, ("registered",)))
    try:
        assert through(codec, obj).a == "registered"
    finally:
        del copyreg.dispatch_table[class_]
    assert through(codec, obj).a == 1


def test_attributes_of_every_shape(codec):
    """More sets of attribute names than a class may have remembered."""
    for i in range(40):
        obj = cases.DictPerson()
        for j in range(i % 7 + 1):
            setattr(obj, f"a{(i * 3 + j) % 50}", [j])
        assert vars(through(codec, obj)) == vars(obj)
        assert vars(through(codec, obj)) == vars(obj)
    big = cases.DictPerson()
    for j in range(100):
        setattr(big, f"b{j}", j)
    assert vars(through(codec, big)) == vars(big)


def test_numpy(codec):
    numpy = pytest.importorskip("numpy")
    for array in (
        numpy.arange(10.0),
        numpy.ones((3, 4), "i2")[:, ::2],
        numpy.array(["a", None], dtype=object),
        numpy.zeros(0),
    ):
        back = through(codec, array)
        assert back.dtype == array.dtype
        assert numpy.array_equal(back, array)
        assert back.flags.writeable
    assert through(codec, numpy.float32(1.5)) == numpy.float32(1.5)
    assert through(codec, numpy.datetime64("2020-01-01")) == numpy.datetime64("2020-01-01")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there is no such interface any more")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("text", ["s", "stone", "sön", "\u4e00 and more", "\U0001f600 and more"])
def test_strings_that_an_old_interface_left_unready(codec, text):
    """They say to have no characters, until somebody asks for them."""
    make = ctypes.pythonapi.PyUnicode_FromUnicode
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t)
    characters = ctypes.pythonapi.PyUnicode_AsUnicode
    characters.restype, characters.argtypes = ctypes.c_void_p, (ctypes.py_object,)

    def unready():
        made = make(None, len(text))
        ctypes.memmove(characters(made), text.encode(f"utf-32-{sys.byteorder[0]}e"), 4 * len(text))
        return made

    assert through(codec, unready()) == text
    assert through(codec, [unready(), {unready(): unready()}]) == [text, {text: text}]
    shared = unready()
    one, other = through(codec, [shared, shared])
    assert one is other
    assert one == text


def text_instead(*_):
    return str, ("text",)


def state_instead():
    return {"other": "state"}


def with_hook(name, hook, **others):
    obj = cases.DictPerson()
    obj.__dict__.update(others)
    setattr(obj, name, hook)
    return obj


def test_hooks_of_pickling_on_the_instance(codec):
    """pickle asks the instance for them, not its class."""
    for _ in range(2):
        assert through(codec, with_hook("__reduce_ex__", text_instead)) == "text"
        assert through(codec, [1, with_hook("__reduce_ex__", text_instead, a=1)]) == [1, "text"]
        back = through(codec, with_hook("__getstate__", state_instead, a=1))
        assert vars(back) == {"other": "state"}
        shared = with_hook("__getstate__", state_instead)
        one, [other], _ = through(codec, (shared, [shared], cases.DictPerson()))
        assert one is other
        assert vars(one) == {"other": "state"}
        for name in ("__reduce__", "__setstate__"):
            obj = with_hook(name, text_instead)
            assert vars(through(codec, obj)) == vars(pickle.loads(pickle.dumps(obj))) == {name: text_instead}


def test_hooks_on_the_instance_that_lead_back_to_it(codec):
    obj = with_hook("__getstate__", state_instead)
    obj.__getstate__ = lambda: {"me": obj, "list": [obj]}
    back = through(codec, obj)
    assert back.me is back
    assert back.list[0] is back
    inner = through(codec, [obj, obj])
    assert inner[0] is inner[1] is inner[0].me
    obj.__reduce_ex__ = lambda protocol: (tuple, ((obj,),))
    for value in (obj, [obj]):
        with pytest.raises(CodecError, match="contain itself"):
            codec.encode(value)
    held = [obj]
    obj.__reduce_ex__ = lambda protocol: (tuple, ((held,),))
    assert through(codec, held)[0][0][0] is not None

    def once(protocol):
        del obj.__reduce_ex__, obj.__getstate__
        obj.me = obj
        return list, (), None, iter([obj, 5])

    for value in (obj, [obj, obj]):
        obj.__reduce_ex__, obj.__getstate__ = once, state_instead
        with contextlib.suppress(CodecError):
            codec.decode(codec.encode(value))
