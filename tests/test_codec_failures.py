"""What cannot be stored, what was damaged, and that neither leaves anything behind."""

import contextlib
import gc
import io
import os
import pickle
import random
import re
import socket
import sqlite3
import sys
import threading
import time
import types
import zlib

import codec_cases as cases
import pytest
from kept import shop  # noqa: F401 - a fixture

from gabion._native import CodecError, GabionError, _Codec

LONG = bool(os.environ.get("GABION_LONG"))


@pytest.fixture
def codec():
    return _Codec()


class Broken:
    def __reduce__(self):
        raise RuntimeError("no way")


class BrokenState:
    def __init__(self, state):
        self.state = state

    def __reduce__(self):
        return BrokenState, (1,), self.state

    def __setstate__(self, state):
        raise RuntimeError("no way back")


class BadReducer:
    def __init__(self, result):
        self.result = result

    def __reduce_ex__(self, protocol):
        return self.result


class Unhashable:
    """Hashable when it is put into a set, not any more when it comes back."""

    def __init__(self):
        self.alive = True

    def __hash__(self):
        return hash(self.alive)

    def __getstate__(self):
        return {"other": 1}


def local_class():
    class Local:
        pass

    return Local


def test_error_tree():
    assert issubclass(CodecError, GabionError)
    assert issubclass(CodecError, ValueError)
    assert CodecError.__module__ == "gabion"
    assert CodecError.__doc__


@pytest.mark.parametrize(
    "make",
    [
        lambda: threading.Lock(),
        lambda: (i for i in ()),
        lambda: sys.stdout,
        lambda: lambda: 0,
        lambda: local_class()(),
        lambda: local_class(),
        lambda: Broken(),
        lambda: sys,
        lambda: BadReducer(5),
        lambda: BadReducer((1,)),
        lambda: BadReducer((int, [])),
        lambda: BadReducer((5, ())),
        lambda: BadReducer(("a",) * 7),
        lambda: BadReducer("no_such_global"),
        lambda: BadReducer((int, (), None, 5)),
        lambda: BadReducer((dict, (), None, None, [5])),
    ],
)
def test_what_cannot_be_stored(codec, make):
    obj = make()
    for value in (obj, [obj], {"k": (1, obj)}, cases.Plain("before", obj), [[1, "x"] * 5, obj]):
        with pytest.raises(CodecError) as caught:
            codec.encode(value)
        assert "cannot store" in str(caught.value) or "reducer" in str(caught.value)
    assert codec.decode(codec.encode([1, "still works"])) == [1, "still works"]


def sqlite_row() -> sqlite3.Row:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        return connection.execute("select 1 as one").fetchone()


NO_COPY = re.escape(
    "it has no copy, as open files, locks, sockets and generators have none; store what it is made from (of a row of a "
    "database, tuple(row) or dict(row))"
)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: io.TextIOWrapper(io.BytesIO()), "_io.TextIOWrapper"),
        (lambda: threading.Lock(), "_thread.lock"),
        (lambda: socket.socket(), "socket"),
        (lambda: (i for i in ()), "generator"),
        (sqlite_row, "sqlite3.Row"),
    ],
)
def test_what_has_no_copy_is_named_wherever_it_lies(codec, make, name):
    with contextlib.ExitStack() as stack:
        one = make()
        if hasattr(one, "close"):
            stack.callback(one.close)
        for value, inside in (
            (one, ""),
            ({"deep": [(1, one)]}, r" \(at dict\['deep'\]\[0\]\[1\]\)"),
            (cases.Plain("before", one), r" \(at Plain\.b\)"),
        ):
            with pytest.raises(CodecError, match=f"^cannot store {re.escape(name)}{inside}: {NO_COPY}$") as caught:
                codec.encode(value)
            assert isinstance(caught.value.__cause__, TypeError)
            assert "cannot pickle" in str(caught.value.__cause__)


def test_a_class_may_say_itself_why_it_cannot_be_stored(codec):
    for text in ("cannot pickle a Connection: call close()", "cannot pickle 'Mine' object, but its address"):
        with pytest.raises(
            CodecError, match=rf"^cannot store an object of class Raises \(at list\[0\]\): TypeError: {text}"
        ):
            codec.encode([Raises(TypeError(text))])


def test_causes_are_chained(codec):
    with pytest.raises(CodecError, match="RuntimeError: no way") as caught:
        codec.encode([Broken()])
    assert isinstance(caught.value.__cause__, RuntimeError)
    data = codec.encode(BrokenState(5))
    with pytest.raises(CodecError, match="no way back") as caught:
        codec.decode(data)
    assert isinstance(caught.value.__cause__, RuntimeError)
    data = codec.encode({Unhashable()})
    with pytest.raises(CodecError, match="AttributeError"):
        codec.decode(data)


class Mine(Exception):
    pass


class MyPickling(pickle.PicklingError):
    pass


class Raises:
    """Raises an exception when it is stored, or when it is rebuilt."""

    stored = True

    def __init__(self, error):
        self.error = error

    def __getstate__(self):
        if Raises.stored:
            raise self.error
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__ = state
        raise self.error


PASS = [Mine("own"), TimeoutError("late"), ConnectionError("gone"), OSError(28, "No space left"), zlib.error("odd")]
WRAPPED = [
    TypeError("no"), AttributeError("no"), ValueError("no"), KeyError("no"), ImportError("no"), RecursionError("no"),
    pickle.PicklingError("no"), pickle.UnpicklingError("no"), MyPickling("no"), ExceptionGroup("no", [TypeError("no")]),
]  # fmt: skip


@pytest.mark.parametrize("error", PASS, ids=repr)
def test_what_programs_and_the_system_raise_passes(codec, monkeypatch, error):
    with pytest.raises(type(error)) as caught:
        codec.encode([Raises(error)])
    assert caught.value is error
    assert caught.value.__notes__ == ["while storing an object of class list"]
    with pytest.raises(type(error)):
        codec.encode([Raises(error)])
    assert len(caught.value.__notes__) == 1
    monkeypatch.setattr(Raises, "stored", False)
    data = codec.encode(Raises(Mine("own")))
    with pytest.raises(Mine, match="own") as caught:
        codec.decode(data)
    assert caught.value.__notes__[-1] == "while rebuilding the stored object"


@pytest.mark.parametrize("error", WRAPPED, ids=repr)
def test_what_python_raises_of_pickling_is_a_codec_error(codec, monkeypatch, error):
    with pytest.raises(CodecError, match=r"^cannot store an object of class Raises \(at list\[0\]\): ") as caught:
        codec.encode([Raises(error)])
    assert caught.value.__cause__ is error
    with pytest.raises(CodecError, match=r"^cannot store an object of class Raises: "):
        codec.encode(Raises(error))
    monkeypatch.setattr(Raises, "stored", False)
    data = codec.encode(Raises(error))
    with pytest.raises(
        CodecError, match=r"^cannot rebuild an object of <class 'test_codec_failures.Raises'>: "
    ) as caught:
        codec.decode(data)
    assert type(caught.value.__cause__) is type(error)


def test_a_timeout_passes_while_a_name_is_looked_up(codec, monkeypatch):
    def late(name):
        raise TimeoutError(name)

    module = types.ModuleType("of_slow_names")
    module.__getattr__ = late
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def function():
        pass

    function.__module__, function.__qualname__ = module.__name__, "function"
    with pytest.raises(TimeoutError):
        codec.encode(function)


def test_interrupts_pass_unchanged(codec):
    class_ = cases.Plain
    class_.__reduce__ = interrupt
    try:
        with pytest.raises(KeyboardInterrupt):
            codec.encode([class_(1)])
    finally:
        del class_.__reduce__


def test_an_interrupt_passes_while_a_name_is_looked_up(codec, monkeypatch):
    module = types.ModuleType("of_lazy_names")
    module.__getattr__ = interrupt
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def function():
        pass

    function.__module__, function.__qualname__ = module.__name__, "function"
    with pytest.raises(KeyboardInterrupt):
        codec.encode(function)


class Neither(dict):
    """Neither true nor false."""

    def __bool__(self):
        raise RuntimeError("no answer")


def test_a_state_that_does_not_say_whether_it_is_empty(codec):
    data = codec.encode(BadReducer((cases.Plain, (1,), Neither(a=1))))
    with pytest.raises(CodecError, match="RuntimeError: no answer"):
        codec.decode(data)


def interrupt(self):
    raise KeyboardInterrupt


def canaries():
    return [[], cases.Plain([1], 2), ("a tuple", [1]), {"k": []}, cases.Node(), "a string of some length" * 2]


def test_nothing_leaks(codec):
    """References to the stored object and to what comes back are as before, whether it works or not."""
    parts = canaries()
    good = [
        parts,
        tuple(parts),
        {"p": parts},
        cases.Plain(parts, parts),
        cases.Point(parts, 1),
        set(),
        frozenset(["x"]),
    ]
    good += [cases.Reducing(parts), cases.collections.deque(parts), cases.Stateful(parts)]
    bad = [[parts, Broken()], (parts, threading.Lock()), {"k": [parts, Broken()]}, cases.Plain([parts], Broken())]
    bad += [cases.Reducing(parts, Broken()), BadReducer((dict, (), {"p": parts}, None, [5]))]

    def work():
        for obj in good:
            codec.decode(codec.encode(obj))
        for obj in bad:
            with pytest.raises(CodecError):
                codec.encode(obj)
        data = codec.encode(good)
        for cut in range(1, len(data), 7):
            with pytest.raises(CodecError):
                codec.decode(data[:cut])

    work()
    gc.collect()
    before = [sys.getrefcount(obj) for obj in parts]
    objects = len(gc.get_objects())
    for _ in range(20):
        work()
    gc.collect()
    assert [sys.getrefcount(obj) for obj in parts] == before
    assert len(gc.get_objects()) <= objects + 30


@pytest.mark.skipif("t" in getattr(sys, "abiflags", ""), reason="classes are immortal there once a thread was started")
def test_a_codec_is_collected():
    """It holds classes, and classes may lead back to it."""
    import weakref

    namespace = {"__name__": "a_module_of_its_own"}
    module = type(sys)("a_module_of_its_own")
    sys.modules[module.__name__] = module
    exec("class Kept:\n    pass\n", module.__dict__)
    codec = _Codec()
    codec.encode(module.Kept())
    module.Kept.codec = codec
    reference = weakref.ref(module.Kept)
    del sys.modules[module.__name__], module, codec, namespace
    for _ in range(3):
        gc.collect()
    assert reference() is None


def test_damage_is_an_error(codec):
    """Whatever is done to the bytes: an object or a CodecError, in bounded memory."""
    rnd = random.Random(5)
    # Not callables of the library that print or take their time: a damaged reference may call any of them.
    values = cases.scalars() + [obj for obj in cases.objects() if type(obj).__name__ not in ("Pattern",)]
    values += [cases.random_graph(seed) for seed in range(20)]
    encoded = [codec.encode(value) for value in values]
    rounds = 1_000_000 if LONG else 100_000
    for _ in range(rounds):
        data = bytearray(rnd.choice(encoded))
        for _ in range(rnd.randint(1, 3)):
            kind = rnd.random()
            if kind < 0.5 and data:
                data[rnd.randrange(len(data))] = rnd.randrange(256)
            elif kind < 0.7:
                del data[rnd.randrange(len(data) + 1) :]
            elif kind < 0.85:
                data.insert(rnd.randrange(len(data) + 1), rnd.randrange(256))
            else:
                other = rnd.choice(encoded)
                data[rnd.randrange(len(data) + 1) :] = other[rnd.randrange(len(other)) :]
        data = bytes(data)
        with contextlib.suppress(CodecError, MemoryError):
            codec.decode(data)
        if rnd.random() < 0.1:
            with contextlib.suppress(CodecError, MemoryError, AttributeError, KeyError, TypeError):
                codec.fields(data, "a", "id")
        _Codec.raw_view(data)


def test_damage_says_what_to_do(codec):
    for whole in ("stone", [1, 2, "stone"], 10**40):
        with pytest.raises(
            CodecError, match=r"^stored bytes are damaged: they end too early; remove what .* report it"
        ):
            codec.decode(codec.encode(whole)[:-1])


def test_every_truncation(codec):
    for value in cases.scalars() + cases.objects():
        data = codec.encode(value)
        for cut in range(len(data)):
            with pytest.raises(CodecError):
                codec.decode(data[:cut])
        with pytest.raises(CodecError):
            codec.decode(data + b"\x00")


def test_claims_allocate_nothing(codec):
    huge = b"\xff\xff\xff\xff\xff\xff\xff\x7f"
    for tag in (0xB1, 0xB2, 0xB3, 0xB4, 0xB5, 0xB6, 0xB8, 0xB9, 0xBB, 0xBC, 0xBD, 0xBE, 0xA8, 0xCA):
        with pytest.raises(CodecError):
            codec.decode(bytes([0, tag]) + huge)
        with pytest.raises(CodecError):
            codec.decode(bytes([0, tag]) + huge + b"\x61" * 50)
    # A list of lists that each claim what is left: the claims add up.
    nested = b"\x00" + b"\xbb\xe8\x07" * 5000 + b"\x61" * 1000
    with pytest.raises(CodecError, match="count"):
        codec.decode(nested)


def test_unknown_classes_are_refused(codec):
    data = codec.encode(cases.make_person(cases.Person, 1))
    with pytest.raises(CodecError, match="unknown class"):
        _Codec().decode(data)


def test_an_interrupt_while_a_name_is_looked_up_comes_a_moment_later(shop):  # noqa: F811
    class Key:
        armed = False

        def __hash__(self):
            return hash("Plain")

        def __eq__(self, other):
            if Key.armed:
                Key.armed = False
                raise KeyboardInterrupt
            return self is other

    module, codec = shop("class Plain: pass"), _Codec()
    space = vars(module)
    kind = space.pop("Plain")
    space[Key()] = 1
    space["Plain"] = kind
    data = codec.encode(kind())
    assert type(codec.decode(data)) is kind
    sys.modules["shop"] = sys.modules.pop("shop")
    # Which line it comes to is not told.
    with pytest.raises(KeyboardInterrupt):
        Key.armed = True
        codec.decode(data)
        time.sleep(0.1)
    assert not Key.armed
    assert type(codec.decode(data)) is kind
