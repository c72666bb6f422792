"""Arrays, items and types of items that somebody has forged. What NumPy would believe of them ends the process, so they
are read in processes of their own."""

from collections.abc import Callable
from typing import Any

import pytest
from kept import reopened

from gabion._native import _Codec

np = pytest.importorskip("numpy")


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
