"""Arrays, items and types of items that somebody has forged. What NumPy would believe of them ends the process, so they
are read in processes of their own."""

from collections.abc import Callable
from typing import Any

import pytest
from kept import reopened

from gabion._native import CodecError, _Codec

np = pytest.importorskip("numpy")
hostile_arrays = pytest.importorskip("hostile_arrays")


def test_a_forged_array_is_refused(script: Callable[..., str]) -> None:
    assert script("import hostile_arrays; hostile_arrays.check_cases(); print('alive')") == "alive\n"


@pytest.mark.parametrize("seed", range(2))
def test_forged_at_random_it_is_refused_or_sound(script: Callable[..., str], seed: int) -> None:
    assert script(f"import hostile_arrays; hostile_arrays.check_at_random({seed}, 1500); print('alive')") == "alive\n"


def sound() -> list[Any]:
    pairs = np.dtype([("a", [("x", "i4"), ("y", "O")]), ("b", "O", (2,))])
    made = [
        np.array([[1, None], ["a", [2]]], dtype=object),
        np.array([[1, None], ["a", [2]]], dtype=object, order="F"),
        np.array([((1, None), [None, 2]), ((2, "a"), [3, 4])], dtype=pairs),
        np.array([((1, None), [None, 2])], dtype=pairs)[0],
        np.rec.array([(1, None)], dtype=[("a", "i4"), ("b", "O")]),
        np.rec.array([(1, None)], dtype=[("a", "i4"), ("b", "O")])[0],
        np.zeros((0, 3), dtype=object),
        np.zeros((2, 0), dtype="M8[s]"),
        np.zeros(3, dtype="V0"),
        np.array(None, dtype=object),
        np.array((1, None), dtype=[("a", "i4"), ("b", "O")]),
        np.array([b"a", b"bc"], dtype="S2"),
        np.void(b"abc"),
        np.str_(""),
        np.arange(24, dtype="f4").reshape(2, 3, 4).transpose(1, 0, 2),
        np.zeros((2, 3), dtype=">i4", order="F"),
        np.arange(3).view(np.dtype(("i8", [("low", "i4"), ("high", "i4")]))),
        np.array([1, 2], dtype=">i4").view(np.dtype((">i4", [("low", "i2"), ("high", ">i2")]))),
        np.array(["2020-01-01"], dtype="M8[s]").view(np.dtype(("M8[s]", [("all", "i8")]))),
    ]
    if hasattr(np, "dtypes") and hasattr(np.dtypes, "StringDType"):
        made += [
            np.array([["a", "b" * 100], ["", "\0é"]], dtype=np.dtypes.StringDType()),
            np.array([["a", "b" * 100], ["", "c"]], dtype=np.dtypes.StringDType(), order="F"),
            np.array(["a", None], dtype=np.dtypes.StringDType(na_object=None)),
            np.array([], dtype=np.dtypes.StringDType(coerce=False)),
            np.array("a", dtype=np.dtypes.StringDType()),
        ]
    return made


@pytest.mark.parametrize("obj", sound(), ids=lambda obj: repr(obj)[:40])
def test_what_numpy_has_stored_comes_back(obj: Any) -> None:
    first = _Codec()
    data = first.encode([obj, obj])
    for types in (None, "*"):
        back, same = reopened(first, types).decode(data)
        assert back is same
        assert (type(back), back.dtype, back.dtype.fields) == (type(obj), obj.dtype, obj.dtype.fields)
        if isinstance(obj, np.ndarray):
            assert back.shape == obj.shape
            assert back.strides == obj.strides or not obj.size
        assert repr(back.tolist()) == repr(obj.tolist())
        if not obj.dtype.hasobject:
            assert back.tobytes() == obj.tobytes()


@pytest.mark.filterwarnings("ignore")
def test_masked_arrays_get_states_that_are_sound(script: Callable[..., str]) -> None:
    first = _Codec()
    made = np.ma.masked_array([1, None, "a"], [True, False, True], dtype=object)
    data = first.encode(made)
    function = made.__reduce__()[0]
    back = reopened(first, [np.ma.MaskedArray, function]).decode(data)
    assert back.tolist() == made.tolist()
    said = script("""
        import numpy as np
        from hostile_arrays import Forged
        from kept import reopened
        from gabion._native import CodecError, _Codec

        parts = np.ma.masked_array([1], dtype=object).__reduce__()
        state = (1, (40,), np.dtype("O"), False, [], b"\\0" * 40, None)
        codec = _Codec()
        data = codec.encode(Forged(parts[0], parts[1], state))
        try:
            reopened(codec, [np.ma.MaskedArray, parts[0]]).decode(data)
        except CodecError as error:
            print("another length" in str(error))
    """)
    assert said == "True\n"


WRONG = np.array([0x110000, 65], dtype="u4")
IN_ITEMS = [("a", "U2", (2,)), ("b", "i4")]


def with_no_characters() -> dict[str, Any]:
    inside = np.zeros(2, dtype=IN_ITEMS)
    inside["a"][1, 1] = WRONG.view("U2")[0]
    found = {
        "an array": WRONG.view("U2"),
        "in another order of bytes": WRONG.byteswap().view(">U2"),
        "in items": inside,
        "in one item": inside[1],
        "in numbers": WRONG[:1].view(np.dtype(("u4", [("text", "U1")]))),
        "a single one": hostile_arrays.Forged(hostile_arrays.SCALAR, (np.dtype("U2"), WRONG.tobytes())),
        "by a state": hostile_arrays.array((1,), np.dtype("U2"), WRONG.tobytes()),
    }
    function = hostile_arrays.FROM_BUFFER
    found["in memory that can be changed"] = hostile_arrays.Forged(
        function, (bytearray(WRONG.tobytes()), np.dtype("U2"), (1,), "C")
    )
    return found


@pytest.mark.parametrize(("name", "obj"), with_no_characters().items(), ids=list(with_no_characters()))
def test_characters_that_there_are_not_are_refused(name: str, obj: Any) -> None:
    # Python writes beyond its memory with a string of them. A file may have been written by another program.
    with pytest.raises(CodecError, match="a character that there is not"):
        hostile_arrays.reread(obj)


def test_masked_arrays_get_no_such_characters() -> None:
    parts = np.ma.masked_array([1]).__reduce__()
    codec = _Codec()
    for state, said in (
        ((1, (1,), np.dtype("U2"), False, WRONG.tobytes(), b"\0", None), "a character that there is not"),
        ((1, (1,), np.dtype([("a", "O"), ("b", "i4")]), False, [(1,)], b"\0\0", None), "other fields than its type"),
    ):
        data = codec.encode(hostile_arrays.Forged(parts[0], parts[1], state))
        with pytest.raises(CodecError, match=said):
            reopened(codec, [np.ma.MaskedArray, parts[0]]).decode(data)


@pytest.mark.parametrize(
    "obj",
    [
        np.array(["a", "\U0010ffff", "é"]),
        np.array(["a", "\U0010ffff"]).astype(">U3"),
        np.array([["a", "b"], ["c", "d"]], order="F"),
        np.array([("a", 1)], dtype=[("x", "U3"), ("y", "i4")]),
        np.array([(["a", "bc"], 1)], dtype=IN_ITEMS),
        np.array(["abc"] * 100_000),
        np.zeros((0, 3), "U4"),
        np.array("", dtype="U0"),
        np.str_("abc"),
        np.array([65], dtype="u4").view(np.dtype(("u4", [("text", "U1")]))),
    ],
    ids=lambda obj: repr(obj)[:40],
)
def test_texts_come_back(obj: Any) -> None:
    back = hostile_arrays.reread(obj)
    assert (type(back), back.dtype, repr(back.tolist())) == (type(obj), obj.dtype, repr(obj.tolist()))
    if isinstance(obj, np.ndarray):
        assert back.flags.writeable
        assert back.flags.f_contiguous == obj.flags.f_contiguous


@pytest.mark.skipif(not hasattr(getattr(np, "dtypes", None), "StringDType"), reason="no such type of items")
def test_an_array_of_strings_is_made_of_strings() -> None:
    # NumPy would make a text of whatever it is, and that of lists in each other has no end.
    endless: list[Any] = []
    for _ in range(64):
        endless = [endless, endless]
    strings = np.dtypes.StringDType()
    with pytest.raises(CodecError, match="a string that is none"):
        hostile_arrays.reread(hostile_arrays.array((1,), strings, [endless]))
    for given in ({}, {"na_object": None}, {"na_object": float("nan")}):
        obj = np.array(["a", *given.values()], dtype=np.dtypes.StringDType(**given))
        assert repr(hostile_arrays.reread(obj)) == repr(obj)
