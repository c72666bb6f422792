"""Large values, which are copied once, from where they lie to where the pile keeps them."""

import pickle
import sys
from typing import Any

import numpy as np
import pytest
from large_values import BIG, SMALL_BIG, graphs, told
from peak_memory import peak_of

import gabion
from gabion._native import _Codec


@pytest.mark.parametrize("name", graphs())
def test_what_comes_back_is_what_pickle_gives(name: str) -> None:
    obj, codec = graphs()[name], _Codec()
    with gabion.Pile() as pile:
        pointer = pile.put(obj)
        assert told(pile.get(pointer)) == told(obj)
        # The same bytes as in one piece.
        assert pile.size_of(pointer) == len(codec.encode(obj))
        pile.replace(pointer, [obj])
        assert told(pile.get(pointer)) == told([obj])
        pile.replace(pointer, "small")
        assert pile.get(pointer) == "small"
        pile.replace(pointer, obj)
        (other,) = pile.put_many([obj])
        assert told(pile.get(other)) == told(pile.get(pointer)) == told(obj)
        pile.validate()


def test_arrays() -> None:
    arrays = [np.arange(400_000.0), np.arange(600_000).reshape(600, 1000).T, np.zeros((2, 0)), np.ones(9, bool)]
    frozen = np.arange(300_000.0)
    frozen.flags.writeable = False
    arrays += [frozen, arrays[0][::2], np.array([BIG, None], dtype=object)]
    with gabion.Pile() as pile:
        pickled = pickle.loads(pickle.dumps(arrays, 5))
        for made, given in zip(pile.get(pile.put([arrays, arrays]))[1], pickled, strict=True):
            assert (made.dtype, made.flags.f_contiguous) == (given.dtype, given.flags.f_contiguous)
            assert made.flags.writeable == given.flags.writeable
            assert (made == given).all()
        # Nobody holds their buffers any more.
        arrays[0].resize(3, refcheck=False)
        own = bytearray(SMALL_BIG)
        pile.put(pickle.PickleBuffer(own))
        own.append(1)


def test_a_large_value_is_not_copied_twice() -> None:
    size = 24 << 20
    data, text, array = b"b" * size, "t" * size, np.ones(size, dtype=np.uint8)
    with gabion.Pile() as pile:
        for obj in (data, text, array, [data, text], {"a": array, "b": data}):
            parts = 2 if isinstance(obj, list | dict) else 1
            assert peak_of(lambda obj=obj: pile.remove(pile.put(obj))) < (parts + 0.5) * size


def test_a_failed_put_lets_go_of_what_it_left_out() -> None:
    big = bytes(3 << 20)
    own = bytearray(big)
    count = sys.getrefcount(big)
    with gabion.Pile(max_bytes="8 MiB") as pile:
        kept = pile.put(SMALL_BIG)
        for obj, error in (
            ([big, pickle.PickleBuffer(own), sys._getframe()], gabion.CodecError),
            ([big, pickle.PickleBuffer(own), own, big[1:], bytes(4 << 20)], gabion.LimitError),
        ):
            for put in (pile.put, lambda obj: pile.put_many([obj]), lambda obj: pile.replace(kept, obj)):
                with pytest.raises(error):
                    put(obj)
                assert pile.get(kept) == SMALL_BIG
        del obj
        assert (len(pile), sys.getrefcount(big)) == (1, count)
        pile.validate()
    own.append(1)


class Meddler:
    """Goes at what was left out before it, while the rest is encoded."""

    def __init__(self, do: Any) -> None:
        self.do = do

    def __reduce__(self) -> Any:
        self.do()
        return int, (7,)


def test_code_that_runs_meanwhile_cannot_take_the_bytes_away() -> None:
    own, numbers = bytearray(SMALL_BIG), np.zeros(1 << 20, dtype=np.uint8)
    buffer = pickle.PickleBuffer(own)

    def meddle() -> None:
        buffer.release()
        with pytest.raises(BufferError):
            own.clear()
        numbers[:] = 1

    with gabion.Pile() as pile:
        first, second, seven = pile.get(pile.put([buffer, numbers, Meddler(meddle)]))
        assert (first, seven) == (SMALL_BIG, 7)
        assert set(np.asarray(second).tolist()) <= {0, 1}
        # An encoding that begins anew forgets what it had left out.
        held = [BIG, Meddler(lambda: None), BIG]
        assert pile.get(pile.put(held)) == [BIG, 7, BIG]
    own.clear()
