"""Large values, which are copied once, from where they lie to where the pile keeps them."""

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from large_values import BIG, SMALL_BIG, graphs, told
from patience import HANGS
from peak_memory import peak_of

import gabion
import gabion.memory
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


def memory_of(array: Any) -> Any:
    """The object that an array's bytes belong to."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


def in_use() -> int:
    gabion.memory.trim(all=True)  # an idle run may be larger than what it would be lent for
    return gabion.memory.stats().in_use


def test_large_arrays_come_in_memory_of_the_pool() -> None:
    before, size = in_use(), 8 << 20
    with gabion.Pile() as pile, gabion.Cache("64 MiB") as cache:
        whole = np.arange(size // 8)
        pointer = pile.put([whole, whole, whole.reshape(1024, -1).T])
        cache["k"] = whole
        first, again, turned = pile.get(pointer)
        assert first is again
        held = cache["k"]
        kept = in_use() - before
        assert 3 * size <= kept < 3.1 * size
        assert type(memory_of(first)).__name__ == type(memory_of(held)).__name__ == "_ArrayMemory"
        assert len(memory_of(held)) == size
    # They outlive who they came from, and each is its own.
    first[0] = -1
    assert (held == whole).all()
    assert first[1:].tolist() == whole[1:].tolist()
    assert (turned == whole.reshape(1024, -1).T).all()
    part = held[100:200]
    del first, again, turned, held
    assert in_use() - before < 1.1 * size
    assert part.tolist() == list(range(100, 200))
    del part
    assert in_use() == before


def test_where_the_pool_has_no_room_arrays_come_all_the_same() -> None:
    program = """if True:
        import gabion, gabion.memory, numpy as np
        whole = np.arange(1 << 20)
        with gabion.Pile() as pile:
            pointer = pile.put(whole)
            gabion.memory.configure(total_limit="64 MiB")
            held = []
            while not held or held[-1].base is not None:
                held.append(pile.get(pointer))
            assert all((array == whole).all() for array in held)
            print(len(held))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANGS, check=False)
    assert not done.stderr
    assert 2 < int(done.stdout) < 10


def test_only_arrays_do() -> None:
    with gabion.Pile() as pile:
        frozen = np.zeros(1 << 20)
        frozen.flags.writeable = False
        got = pile.get(pile.put([bytearray(BIG), pickle.PickleBuffer(bytearray(BIG)), Takes(bytearray(BIG)), frozen]))
        assert [type(one) for one in got[:2]] == [bytearray, bytearray]
        assert type(got[2].buffer) is bytearray
        assert type(memory_of(got[3])) is bytes


class Takes:
    """Rebuilt from a buffer, as arrays are."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def __reduce__(self) -> Any:
        return Takes, (pickle.PickleBuffer(self.buffer),)
