"""NumPy's arrays and their items, which are stored as they lie in memory where that says all."""

import contextlib
import copyreg
import gc
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from patience import HANGS

import gabion
from gabion._native import _Codec

LETTERS = "?bBhHiIlLqQefdgFDG"
SHAPES = [(), (0,), (1,), (7,), (3, 5), (0, 4), (4, 0), (2, 3, 4), (1, 1, 1, 1), (2,) * 12, (300, 2)]


def through(obj: Any) -> Any:
    codec = _Codec()
    return codec.decode(codec.encode(obj))


def pickled(obj: Any) -> Any:
    return pickle.loads(pickle.dumps(obj, 5))


def assert_same(made: Any, given: Any) -> None:
    assert type(made) is type(given)
    assert (made.dtype, made.shape) == (given.dtype, given.shape)
    assert made.dtype.byteorder == given.dtype.byteorder
    for flag in ("c_contiguous", "f_contiguous", "writeable", "aligned"):
        assert made.flags[flag.upper()] == given.flags[flag.upper()], flag
    assert made.strides == given.strides or 0 in given.shape
    if made.dtype.hasobject or made.dtype.char in "gG":
        assert (made == given).all()
    else:
        assert made.tobytes(order="A") == given.tobytes(order="A")


def filled(shape: tuple[int, ...], letter: str, order: str = "C") -> Any:
    rng = np.random.default_rng(7)
    made = np.empty(shape, letter, order=order)  # type: ignore[call-overload]
    made[...] = rng.integers(0, 2 if letter == "?" else 100, shape)
    return made


@pytest.mark.parametrize("letter", LETTERS)
def test_every_type_and_shape(letter: str) -> None:
    for shape in SHAPES:
        for order in "CF":
            array = filled(shape, letter, order)
            for _ in range(2):
                made = through(array)
                assert_same(made, pickled(array))
                assert made.dtype is array.dtype
                if array.flags.writeable:
                    # It is its own, and can grow.
                    assert made.flags.owndata
                array.flags.writeable = False


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
        np.arange(24.0)[::2],
        np.arange(24.0)[::-1],
        np.broadcast_to(np.arange(3), (4, 3)),
        np.arange(5, dtype=">i4"),
        np.arange(5, dtype="<f8"),
        np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        np.zeros(3, dtype=np.dtype("f8", metadata={"unit": "m"})),
        np.array(["a", "bc"]),
        np.array([b"a", b"bc"]),
        np.array([1, None, "x", [2]], dtype=object),
        np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
        np.array([1, 2], dtype="m8[ns]"),
        np.ma.masked_array([1, 2], [True, False]),
        np.rec.array([(1, 2)]),
        np.arange(6, dtype="f4").reshape(2, 3).view(np.matrix),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PendingDeprecationWarning")
def test_what_needs_its_reducer(array: Any) -> None:
    for obj in (array, [array, array, 1]):
        made, want = through(obj), pickled(obj)
        if obj is not array:
            assert made[0] is made[1]
            made, want = made[0], want[0]
        assert_same(made, want)
        assert getattr(made.dtype, "metadata", None) == getattr(want.dtype, "metadata", None)


def test_an_array_that_holds_itself() -> None:
    loop = np.empty(2, dtype=object)
    loop[0], loop[1] = loop, np.arange(3)
    made = through([loop, loop[1]])
    assert made[0][0] is made[0]
    assert made[0][1] is made[1]


def test_shared_arrays_stay_shared_and_their_views_do_not() -> None:
    whole = np.arange(100)
    part = whole[10:20]
    made = through({"a": whole, "b": [whole, part], "c": (part, part)})
    assert made["a"] is made["b"][0]
    assert made["c"][0] is made["c"][1] is made["b"][1]
    made["a"][:] = 0
    assert made["c"][0].tolist() == list(range(10, 20))


def test_values_around_arrays_are_where_they_were() -> None:
    rng = random.Random(5)
    for _ in range(200):
        items: list[Any] = []
        for _ in range(rng.randrange(1, 9)):
            items.append("t" * rng.randrange(9))
            items.append(filled((rng.randrange(5), rng.randrange(5)), rng.choice(LETTERS)))
        made = through([items, {"again": items}])
        for one, other in zip(made[0], items, strict=True):
            if isinstance(other, str):
                assert one == other
            else:
                assert_same(one, other)
        assert made[1]["again"] is made[0]


def test_fields_beside_arrays() -> None:
    with gabion.Pile() as pile:
        pointer = pile.put({"before": np.arange(1000.0), "x": 7, "after": np.ones((3, 3), order="F")})
        assert pile.fields(pointer, "x") == (7,)
        (after,) = pile.fields(pointer, "after")
        assert_same(after, np.ones((3, 3), order="F"))


def test_a_registered_reducer_is_asked() -> None:
    array = np.arange(5)
    try:
        copyreg.pickle(np.ndarray, lambda array: (list, (array.tolist(),)))
        assert through(array) == [0, 1, 2, 3, 4]
    finally:
        del copyreg.dispatch_table[np.ndarray]
    assert_same(through(array), array)


def test_what_was_stored_does_not_follow_the_array() -> None:
    with gabion.Pile() as pile, gabion.Cache("64 MiB") as cache:
        for size in (10, 1 << 18):
            array = np.arange(size)
            pointer = pile.put(array)
            cache["k"] = array
            array[:] = 0
            one, other = pile.get(pointer), cache["k"]
            assert one.tolist() == other.tolist() == list(range(size))
            one[0] = 5
            assert other[0] == 0
            # Nobody holds it any more: it may be resized.
            array.resize(3, refcheck=False)


@pytest.mark.parametrize(
    "change", ["resize((3,), refcheck=False)", "__setstate__((1, (3,), a.dtype, False, b'x' * 24))"]
)
def test_an_array_that_moves_before_it_is_written_is_refused(script: Callable[..., str], change: str) -> None:
    # NumPy frees the memory although it was lent.
    said = script(f"""
        import pickle
        import numpy as np
        import gabion

        class Changes:
            def __init__(self, array): self.array = array
            def __reduce__(self):
                a = self.array
                a.{change}
                return int, (7,)

        with gabion.Pile() as pile:
            ways = {{
                "itself": lambda a: a,
                "a view": lambda a: a[:300_000],
                "in another shape": lambda a: a.reshape(2, -1),
                "in another order of bytes": lambda a: a.view(">i8"),
                "with fields": lambda a: a.view([("x", "i4"), ("y", "i4")]),
                "by a buffer": pickle.PickleBuffer,
                "by a buffer of a view": lambda a: pickle.PickleBuffer(memoryview(memoryview(a))[8:]),
            }}
            for way, shown in ways.items():
                for call in (pile.put, lambda v: pile.put_many([v]), lambda v: pile.replace(kept, v)):
                    kept, a = pile.put("kept"), np.arange(400_000)
                    try:
                        call([shown(a), Changes(a)])
                    except gabion.CodecError as error:
                        assert "has resized it" in str(error), error
                    else:
                        raise AssertionError(way)
                    assert pile.get(kept) == "kept"
            for dtype in ("i8", ">i8", [("x", "i4"), ("y", "u4")], "M8[s]"):
                for kind in (np.ndarray, np.matrix, np.recarray):
                    a = np.zeros((1, 400_000), dtype).view(kind)
                    one, seven = pile.get(pile.put([a, Changes(np.arange(9))]))
                    assert (one == a).all() and seven == 7
        print("alive")
    """)
    assert said == "alive\n"


def test_damage_is_told() -> None:
    codec = _Codec()
    good = codec.encode(filled((3, 5), "d"))
    kind = 2
    for at, value, text in (
        (kind, 0x1F, "type of items"),
        (kind, good[kind] ^ 1, "length"),
        (3, 65, "too many dimensions"),
        (4, 4, "length"),
        (6, 3, "length"),
    ):
        bad = bytearray(good)
        bad[at] = value
        with pytest.raises(gabion.CodecError, match=f"damaged.*{text}"):
            codec.decode(bytes(bad))
    huge = bytes([*good[:3], 3, *b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 3, *good[6:]])
    with pytest.raises(gabion.CodecError, match="damaged"):
        codec.decode(huge)
    for end in range(len(good)):
        with pytest.raises(gabion.CodecError):
            codec.decode(good[:end])
    rng = random.Random(3)
    for _ in range(3000):
        bad = bytearray(good)
        bad[rng.randrange(1, 12)] = rng.randrange(256)
        with contextlib.suppress(gabion.CodecError, MemoryError):
            codec.decode(bytes(bad))


def test_they_leave_nothing_behind() -> None:
    codec, array = _Codec(), np.arange(1000.0)
    data = codec.encode(array)
    count, dtypes = sys.getrefcount(array), sys.getrefcount(array.dtype)
    for _ in range(1000):
        codec.encode([array, array])
        codec.decode(data)
    gc.collect()
    assert sys.getrefcount(array) == count
    assert abs(sys.getrefcount(array.dtype) - dtypes) < 20


def test_threads() -> None:
    with gabion.Pile() as pile:
        pointers = [pile.put(np.full(size, size)) for size in (1, 100, 10_000, 200_000)]
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for turn in range(200):
                    pointer = pointers[turn % len(pointers)]
                    made = pile.get(pointer)
                    assert (made == made.size).all()
                    if turn % 3 == 0:
                        pile.replace(pointer, made)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        pile.validate()


@pytest.mark.parametrize("count", [2_000, 60_000, 400_000])
def test_an_array_that_a_new_class_moves_is_refused(script: Callable[..., str], count: int) -> None:
    # A class is hashed, among other things, when the first of its instances is met.
    said = script(f"""
        import numpy as np
        import gabion

        class Meta(type):
            moved = None
            def __hash__(cls):
                if Meta.moved is not None:
                    Meta.moved.resize(1, refcheck=False)
                return 1
            def __eq__(cls, other):
                return cls is other

        with gabion.Pile() as pile:
            for dtype in ("i8", ">i8"):
                for in_a_list in (True, False):
                    class New(metaclass=Meta):
                        pass
                    Meta.moved = a = np.zeros({count}, dtype)
                    try:
                        pile.put([a, New()] if in_a_list else {{"a": a, "new": New()}})
                    except gabion.CodecError as error:
                        assert "has resized it" in str(error), error
                        print("refused", dtype)
                    else:
                        assert a.shape == (1,)
                    Meta.moved = None
            pile.validate()
        print("alive")
    """)
    assert said == ("refused i8\n" * 2 if count < 100_000 else "refused i8\n" * 2 + "refused >i8\n" * 2) + "alive\n"


def test_numpy_may_come_later_than_gabion() -> None:
    program = """if True:
        import sys, gabion
        with gabion.Pile() as pile:
            pointer = pile.put([1, "one"])
            print("numpy" in sys.modules, end=" ")
            import numpy
            array = pile.put(numpy.arange(3))
            print(pile.get(array).tolist(), pile.get(pointer))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANGS, check=True)
    assert done.stdout == "False [0, 1, 2] [1, 'one']\n"


@pytest.mark.parametrize("letter", LETTERS)
def test_single_items(letter: str) -> None:
    kind = np.dtype(letter).type
    values = [kind(value) for value in (0, 1, 100)]
    if letter in "bhilq":
        values += [np.iinfo(kind).min, np.iinfo(kind).max, kind(-1)]
    if letter in "efdgFDG":
        values += [kind("nan"), kind("-inf"), kind(-0.0), np.finfo(kind).max, np.finfo(kind).tiny]
    if letter in "FDG":
        values.append(kind(complex("nan-infj")))
    for value in map(kind, values):
        made = through(value)
        assert type(made) is type(value) is kind
        assert made.dtype is value.dtype
        assert repr(made) == repr(value)
        assert letter in "gG" or made.tobytes() == value.tobytes()
    one = kind(1)
    shared = through([one, {"k": one}, kind(1)])
    assert shared[0] is shared[1]["k"]
    assert shared[0] is not shared[2] or letter == "?"


@pytest.mark.parametrize("value", [np.str_("a"), np.bytes_(b"a"), np.datetime64("2020-01-01"), np.timedelta64(5, "s")])
def test_items_that_need_their_reducer(value: Any) -> None:
    assert through(value) == value
    assert through(value).dtype == value.dtype


class Meters(np.float64):
    """A class derived from one of NumPy's, with a reducer of its own."""

    def __reduce__(self) -> Any:
        return Meters, (float(self),)


def test_classes_of_ones_own_are_asked() -> None:
    made = through([Meters(2.5), np.float64(2.5)])
    assert [type(one) for one in made] == [Meters, np.float64]
    assert made == [2.5, 2.5]


def test_damaged_items_are_told() -> None:
    codec = _Codec()
    good = codec.encode(np.float64(1.5))
    for at, value in ((2, 31), (2, good[2] ^ 1), (3, 7), (3, 200)):
        bad = bytearray(good)
        bad[at] = value
        with pytest.raises(gabion.CodecError, match="damaged"):
            codec.decode(bytes(bad))
    for end in range(len(good)):
        with pytest.raises(gabion.CodecError):
            codec.decode(good[:end])


def test_fields_beside_items() -> None:
    with gabion.Pile() as pile:
        pointer = pile.put({"a": np.float64(1), "b": np.bool_(True), "x": np.int16(-3), "y": 4})
        assert pile.fields(pointer, "y", "x") == (4, -3)
