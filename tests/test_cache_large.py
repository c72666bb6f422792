"""Large values of caches, which are copied once, from where they lie to where the cache keeps them."""

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from large_values import BIG, SMALL_BIG, graphs, told
from peak_memory import peak_of

import gabion

LONG_KEY = "k" * 5000  # too long to stand before its value


def puts(cache: gabion.Cache[Any, Any], key: str) -> dict[str, Callable[[Any], Any]]:
    """Every way to store a value under a key, which has none or `0`."""
    return {
        "put": lambda obj: cache.put(key, obj),
        "item": lambda obj: cache.__setitem__(key, obj),
        "add": lambda obj: cache.add(key, obj),
        "put_many": lambda obj: cache.put_many({key: obj}),
        "update": lambda obj: cache.update({key: obj}),
        "get_or_put": lambda obj: cache.get_or_put(key, lambda: obj),
        "memoize": lambda obj: cache.memoize(lambda name: obj)(key),
        "change": lambda obj: (cache.put(key, 0), cache.change(key, lambda old: obj)),
        "setdefault": lambda obj: cache.setdefault(key, obj),
    }


@pytest.mark.parametrize("name", graphs())
@pytest.mark.parametrize("key", ["short", LONG_KEY])
def test_what_comes_back_is_what_went_in(name: str, key: str) -> None:
    obj = graphs()[name]
    with gabion.Cache("256 MiB") as cache:
        for how, put in puts(cache, key).items():
            put(obj)
            if how != "memoize":
                assert told(cache[key]) == told(obj), how
            cache.validate()
            cache.clear()
            assert len(cache) == 0


def test_memoized_functions_keep_large_values() -> None:
    with gabion.Cache("64 MiB") as cache:
        calls = []

        @cache.memoize
        def table(size: int) -> Any:
            calls.append(size)
            return np.arange(size)

        for _ in range(3):
            assert (table(1 << 20) == np.arange(1 << 20)).all()
        assert calls == [1 << 20]


def test_who_waits_gets_all_of_it() -> None:
    with gabion.Cache("64 MiB") as cache:
        made, entered = [BIG, "small", SMALL_BIG], threading.Event()

        def make() -> Any:
            entered.set()
            # The other one waits by the time that this ends, or finds the value.
            threading.Event().wait(0.05)
            return made

        got: list[Any] = []
        first = threading.Thread(target=lambda: got.append(cache.get_or_put("k", make)))
        first.start()
        entered.wait()
        got.append(cache.get_or_put("k", lambda: pytest.fail("a second factory ran")))
        first.join()
        assert got == [made, made]
        assert got[0] is not got[1]

        async def both() -> list[Any]:
            async def slow() -> Any:
                await asyncio.sleep(0.01)
                return made

            return await asyncio.gather(*(cache.get_or_put("a", slow) for _ in range(3)))

        assert asyncio.run(both()) == [made] * 3


def test_a_large_value_is_not_copied_twice() -> None:
    size = 24 << 20
    data, text, array = b"b" * size, "t" * size, np.ones(size, dtype=np.uint8)
    with gabion.Cache("256 MiB") as cache:
        for obj in (data, text, array, [data, text], {"a": array, "b": data}):
            parts = 2 if isinstance(obj, list | dict) else 1
            for how, put in puts(cache, "k").items():
                cache.clear()
                assert peak_of(lambda put=put, obj=obj: put(obj)) < (parts + 0.5) * size, how


def test_what_is_refused_is_let_go_of() -> None:
    big, own = bytes(3 << 20), bytearray(3 << 20)
    count = sys.getrefcount(big)
    with gabion.Cache("8 MiB") as cache:
        for how, put in puts(cache, "k").items():
            cache.clear()
            cache.put("other", 1, priority=1)
            put([big, own, big[1:], bytes(4 << 20)])
            if how != "memoize":
                assert "k" not in cache, how
            with pytest.raises(gabion.CodecError):
                put([big, own, sys._getframe()])
            assert cache["other"] == 1
            cache.validate()
        assert sys.getrefcount(big) == count
    own.append(1)


def test_room_is_made_for_them() -> None:
    with gabion.Cache("16 MiB") as cache:
        for i in range(100):
            cache.put(i, BIG if i % 2 else [i, SMALL_BIG])
            assert cache.get(i) == (BIG if i % 2 else [i, SMALL_BIG])
            assert cache.stats().bytes <= 16 << 20
            cache.validate()
        assert cache.stats().evicted > 50


@pytest.mark.parametrize("how", ["put", "item", "add", "put_many", "update", "get_or_put", "change"])
def test_callbacks_may_take_the_memory_of_what_is_being_stored(how: str) -> None:
    """They come before its bytes are copied, and a resize frees them."""
    with gabion.Cache("9 MiB") as cache:
        cache.put_many((number, b"x" * 40) for number in range(75_000))
        array = np.ones(3 << 20, np.uint8)
        put, others, heard = puts(cache, "big")[how], [], [0]

        def gone(key: object, value: object) -> None:
            heard[0] += 1
            if array.size > 1:
                array.resize(1, refcheck=False)
                others.append(np.zeros(3 << 20, np.uint8))

        cache.on_evict(gone)
        put(array)
        cache.on_evict(None)
        assert heard[0] > 0
        assert cache["big"].size == 3 << 20
        assert cache["big"].all()


def test_what_callbacks_free_is_there_for_what_is_being_stored() -> None:
    with gabion.Cache("9 MiB") as cache:
        cache.put_many((number, b"x" * 40) for number in range(75_000))
        cache.on_evict(lambda key, value: cache.clear())
        assert cache.put("big", b"y" * (3 << 20)) is gabion.PutResult.INSERTED
        cache.on_evict(None)
        assert list(cache) == ["big"]


@pytest.mark.parametrize("how", ["put", "item", "add", "put_many", "update", "setdefault"])
def test_nothing_is_stored_in_a_cache_that_a_callback_closes(how: str) -> None:
    cache: gabion.Cache[Any, Any] = gabion.Cache("9 MiB")
    cache.put_many((number, b"x" * 40) for number in range(75_000))
    cache.on_evict(lambda key, value: cache.close())
    with pytest.raises(gabion.ClosedError):
        puts(cache, "big")[how](b"y" * (3 << 20))


def test_nothing_is_changed_in_a_cache_that_a_callback_closes() -> None:
    cache: gabion.Cache[Any, Any] = gabion.Cache("9 MiB")
    cache.put_many((number, b"x" * 40) for number in range(75_000))
    cache["big"] = 0
    cache.on_evict(lambda key, value: cache.close())
    with pytest.raises(gabion.ClosedError):
        cache.change("big", lambda old: b"y" * (3 << 20))
