"""One codec, many threads, and graphs that change while they are stored."""

import contextlib
import os
import sys
import threading
import time

import codec_cases as cases
import pytest

from gabion._native import CodecError, _Codec

SECONDS = 20 if os.environ.get("GABION_LONG") else 1.0
THREADS = 4


def together(bodies, seconds=SECONDS):
    """Runs the bodies in threads of their own until the time is over; each is called again and again."""
    failures, stop = [], time.monotonic() + seconds
    barrier = threading.Barrier(len(bodies))

    def run(body):
        barrier.wait()
        try:
            while time.monotonic() < stop and not failures:
                body()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_many_threads_one_codec():
    """All meet the same classes for the first time at the same moment."""
    for _ in range(5):
        codec = _Codec()
        values = cases.objects()

        def body(codec=codec, values=values):
            for value in values:
                copy = codec.decode(codec.encode(value))
                assert type(copy) is type(value)
                if type(value) in (cases.Person, cases.Frozen, cases.Plain, cases.Point):
                    assert copy == value

        together([body] * THREADS, SECONDS / 5)


@pytest.mark.parametrize("kind", ["list", "dict", "set", "slots", "attributes", "bytearray", "deque"])
def test_changes_while_storing(kind):
    """Another thread changes what is stored: a result or a CodecError, never a crash."""
    codec = _Codec()
    node, obj = cases.Node(), cases.DictPerson()
    node.value = node.next = node.other = obj.a = 0
    target = {
        "list": [],
        "dict": {},
        "set": set(),
        "slots": node,
        "attributes": obj,
        "bytearray": bytearray(100),
        "deque": cases.collections.deque(),
    }[kind]
    counter = iter(range(10**9))

    def change():
        i = next(counter)
        value = [f"value {i}", i, [i], None][i % 4]
        if kind in ("list", "deque"):
            target.append(value)
            target.append((value, [value]))
            if len(target) > 40:
                target.clear()
        elif kind == "dict":
            target[f"key {i % 50}"] = value
            target[i % 30] = [value]
            if i % 97 == 0:
                target.clear()
        elif kind == "set":
            target.add(f"element {i % 70}")
            target.discard(f"element {i * 7 % 70}")
        elif kind == "slots":
            target.value, target.next, target.other = value, [value], (value,)
            if i % 5 == 0:
                del target.next
        elif kind == "attributes":
            setattr(target, "abcdef"[i % 6], value)
            if i % 11 == 0:
                vars(target).pop("abcdef"[i % 5], None)
        else:
            target.extend(b"x" * (i % 50))
            del target[100:]

    def store():
        try:
            copy = codec.decode(codec.encode([target, target]))
        except (CodecError, RuntimeError):
            return
        assert type(copy[0]) is type(target)

    lock = threading.Lock()

    def locked_change():
        with lock:
            change()

    together([locked_change, store, store], SECONDS / 2)


class Meddling:
    """Its reducer changes the container that it is stored in."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        if isinstance(self.target, (dict, list)):
            self.target.clear()
        else:
            vars(self.target).clear()
        return Meddling, (None,)


def test_reducers_that_change_their_container():
    codec = _Codec()
    for _ in range(100):
        items = []
        items += [Meddling(items), "a" * 40, ["b"], {"c": "d" * 30}]
        mapping = {}
        mapping.update({f"k{i}": [f"v{i}"] for i in range(20)})
        mapping["m"] = Meddling(mapping)
        mapping.update({f"l{i}": [f"v{i}"] for i in range(20)})
        obj = cases.DictPerson()
        obj.a, obj.b, obj.c = Meddling(obj), ["x"], "y" * 50
        for value in (items, mapping, obj):
            with contextlib.suppress(CodecError):
                codec.decode(codec.encode(value))


class Setter:
    """A data descriptor of a class of its own, which goes with it."""

    def __new__(cls):
        return object.__new__(type("Setter", (), {"__get__": lambda *_: 1, "__set__": lambda *_: None}))


def test_attributes_that_come_and_go_with_their_class():
    """What one thread finds in a class, another takes from it. PYTHONMALLOC=debug shows a use of what is gone."""
    codec, current = _Codec(), [type("Current", (), {"__module__": __name__})]

    def change():
        current[0] = class_ = type("Current", (), {"__module__": __name__})
        globals()["Current"] = class_
        # No class is numbered anew more often than a thousand times.
        for _ in range(450):
            class_.x = Setter()
            del class_.x

    def store():
        obj = current[0]()
        obj.__dict__.update(x=5, y=6)
        with contextlib.suppress(CodecError):
            # Where there is no lock, x may be set just when its setter is there.
            assert codec.decode(codec.encode(obj)).y == 6

    together([change, store, store, store])


class Reentrant:
    """Its reducer and its state use the same codec on the same thread."""

    codec = None

    def __init__(self, depth):
        self.depth = depth

    def __reduce__(self):
        inner = self.codec.encode([Reentrant(self.depth - 1), "shared"]) if self.depth else b""
        return Reentrant, (self.depth,), {"inner": inner}

    def __setstate__(self, state):
        self.inner = self.codec.decode(state["inner"]) if state["inner"] else None


def test_reentrancy():
    Reentrant.codec = codec = _Codec()
    copy = codec.decode(codec.encode([Reentrant(5), Reentrant(2)]))
    assert copy[0].inner[0].inner[0].depth == 3
    Reentrant.codec = None


@pytest.mark.skipif("t" not in getattr(sys, "abiflags", ""), reason="there is a global lock")
def test_the_interpreter_lock_stays_off(script):
    # In a process of its own: modules that other tests bring may turn it on.
    script("""
    import sys, gabion, gabion.memory, gabion.streams
    gabion.Pile().put([1]), gabion.Cache("1 MiB").put("a", 1), gabion.Image.new("L", (1, 1))
    assert not sys._is_gil_enabled(), "the extension turned the interpreter lock on"
    """)
