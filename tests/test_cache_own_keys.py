"""What memoize(key=) takes, and the advice that a refused argument comes with: it is one that works."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

import pytest

import gabion
from gabion import Cache

cache = Cache("4 MiB")


class Size(Enum):
    SMALL = 1


@dataclass(frozen=True)
class Place:
    name: str
    at: Any = 0


RETURNED = [
    *[None, 1.5, "a", b"a", 7, (), ("a", 1), (1.5, None), ((), "none"), ((), "tuple", (1,)), ("a", ((), "none"))],
    *[UUID(int=1), Size.SMALL, (1, Size.SMALL), date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), Place("a")],
    *[Decimal("1.0"), Decimal("1.00"), frozenset({1.5}), (Place("a", 1.5), frozenset({None})), ((1.5,), None)],
]


def test_a_key_may_be_whatever_an_argument_may_be() -> None:
    made: list[Any] = []

    @cache.memoize(key=lambda value: value[0])
    def plain(value: Any) -> str:
        made.append(value[0])
        return repr(value[0])

    @cache.memoize(key=lambda value: value[0])
    async def awaited(value: Any) -> str:
        made.append(value[0])
        return repr(value[0])

    for call in (plain, lambda value: asyncio.run(awaited(value))):
        made.clear()
        for _ in range(2):
            assert [call([value]) for value in RETURNED] == [repr(value) for value in RETURNED]
        assert made == RETURNED
    for function in (plain, awaited):
        figures = function.cache_stats()
        assert (figures.entries, figures.hits, figures.misses) == (len(RETURNED),) * 3


def test_keys_are_equal_as_arguments_are() -> None:
    @cache.memoize(key=lambda value: value)
    def shown(value: Any) -> str:
        return repr(value)

    assert [shown(1), shown(1.0), shown(True)] == ["1"] * 3
    assert [shown((1, 2.0)), shown((1.0, 2))] == ["(1, 2.0)"] * 2


def test_a_plain_key_is_the_entry_s_own() -> None:
    """So on_evict() tells of it as the program wrote it."""
    own, gone = Cache("1 MiB"), []
    own.on_evict(lambda key, value: gone.append(key))
    kept = own.memoize(key=lambda value: value, ttl=0)(repr)
    keys = ["a", 7, b"x", ("a", 1), (1, UUID(int=1))]
    for key in keys:
        kept(key)
    own.expire()
    assert sorted(gone, key=str) == sorted(keys, key=str)


@pytest.mark.parametrize("of_tasks", [False, True])
def test_what_is_no_key_is_told_of_key(of_tasks: bool) -> None:
    def plain(value: Any) -> None:
        raise AssertionError

    async def awaited(value: Any) -> None:
        raise AssertionError

    kept: Any = cache.memoize(key=lambda value: value)(awaited if of_tasks else plain)
    for value, told in (
        ([1], r"^memoize has no key for what its key= returned, of type list: return tuple\(x\), if that is x$"),
        (
            (1, {}),
            r"^memoize has no key for a part of what its key= returned, of type dict: return tuple\(sorted\(x\.items",
        ),
        (object(), r"^memoize has no key for what its key= returned, of type object: return what stands for it$"),
        (Thawed(), r"^memoize has no key for what .* of type Thawed.*: return \(type\(x\), x\.id\), if that is x$"),
        (
            (1, object()),
            r"^memoize has no key for a part of what its key= returned, of type object: return what stands for it",
        ),
    ):
        with pytest.raises(TypeError, match=told) as caught:
            asyncio.run(kept(value)) if of_tasks else kept(value)
        assert caught.type is TypeError


class Shop:
    id = 5

    def price(self, amount, at=None):
        return amount

    def keyword(self, *, at=1.5, where="here"):
        return at

    def sentinel(self, amount, at=Ellipsis, where=print):
        return amount

    def several(self, *amounts, **more):
        return amounts

    def only(self, amount, /, at=b"x"):
        return amount


@dataclass
class Thawed:
    id: int = 1


def one(x):
    return 1


def two(x, y=(), *, z="a"):
    return 2


def array() -> Any:
    return pytest.importorskip("numpy").arange(3)


ADVISED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = {
    "defaults": (Shop.price, (Shop(), 1), {}, "lambda self, amount, at=None: (type(self), self.id, amount, at)"),
    "floats": (
        Shop.price,
        (Shop(), 1.5, datetime(2026, 1, 1)),
        {},
        "lambda self, amount, at=None: (type(self), self.id, amount, at)",
    ),
    "keywords": (
        Shop.keyword,
        (Shop(),),
        {"at": 2},
        "lambda self, *, at=1.5, where='here': (type(self), self.id, at, where)",
    ),
    "a default that is no literal": (
        Shop.sentinel,
        (Shop(), 1),
        {"where": None},
        "lambda self, amount, *args, **kwargs: (type(self), self.id, amount, args, tuple(sorted(kwargs.items())))",
    ),
    "any number": (
        Shop.several,
        (Shop(), 1, 2),
        {"a": 1},
        "lambda self, *amounts, **more: (type(self), self.id, amounts, tuple(sorted(more.items())))",
    ),
    "by place only": (Shop.only, (Shop(), 1), {}, "lambda self, amount, /, at=b'x': (type(self), self.id, amount, at)"),
    "a list": (one, ([1],), {}, "lambda x: tuple(x)"),
    "a dict": (one, ({"a": 1},), {}, "lambda x: tuple(sorted(x.items()))"),
    "a set": (two, ({1, "a"},), {}, "lambda x, y=(), *, z='a': (frozenset(x), y, z)"),
    "two of them": (two, ({1}, [2]), {"z": None}, "lambda x, y=(), *, z='a': (frozenset(x), tuple(y), z)"),
    "a keyword": (two, (1,), {"z": [2]}, "lambda x, y=(), *, z='a': (x, y, tuple(z))"),
    "bytes": (one, (bytearray(b"x"),), {}, "lambda x: bytes(x)"),
    "a mutable dataclass": (one, (Thawed(),), {}, "lambda x: (type(x), x.id)"),
}


@pytest.mark.parametrize("case", ADVISED.values(), ids=ADVISED)
def test_the_advice_works(case: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]) -> None:
    function, args, kwargs, advice = case
    with pytest.raises(TypeError, match="no key for an argument of type") as caught:
        cache.memoize(function)(*args, **kwargs)
    (advised,) = re.findall(r", such as key=(lambda .*)$", str(caught.value))
    assert advised == advice
    kept = cache.memoize(key=eval(advised))(function)
    assert kept(*args, **kwargs) == kept(*args, **kwargs) == function(*args, **kwargs)
    assert kept.cache_stats().hits == 1


def test_the_advice_for_an_array_works() -> None:
    numbers = array()
    with pytest.raises(
        TypeError, match=r"of type ndarray: .*key=lambda x: \(x\.shape, x\.dtype\.str, x\.tobytes\(\)\)$"
    ) as e:
        cache.memoize(one)(numbers)
    kept = cache.memoize(key=eval(str(e.value).split("key=")[-1]))(one)
    assert kept(numbers) == kept(array()) == 1
    assert kept(numbers[:2]) == 1
    assert (kept.cache_stats().hits, kept.cache_stats().entries) == (1, 2)


def test_the_advice_for_tables_of_pandas_is_what_is_in_them() -> None:
    hashed = r"hashlib\.sha256\(pandas\.util\.hash_pandas_object\(x\)\.values\)\.hexdigest\(\)"
    advised = {"DataFrame": rf"\({hashed}, tuple\(x\.columns\)\)", "Series": rf"\({hashed}, x\.name\)", "Index": hashed}
    for name, key in advised.items():
        # Stands for the one of pandas, which has an attribute for each of its columns.
        table = type(name, (), {"__module__": "pandas", "__eq__": lambda *_: True, "__hash__": None, "id": []})()
        with pytest.raises(TypeError, match=rf"of type {name}: .*key=lambda x: {key}$"):
            cache.memoize(one)(table)


def test_a_mutable_dataclass_is_told_what_would_do() -> None:
    with pytest.raises(
        TypeError, match=r"of type Thawed, which with @dataclass\(frozen=True\) would have one: pass key="
    ):
        cache.memoize(one)(Thawed())


def test_what_would_do_is_told_once() -> None:
    @dataclass
    class Nameless:
        name: str = "a"

    with pytest.raises(TypeError, match=r"Nameless, which with @dataclass.* would have one: pass key=") as caught:
        cache.memoize(one)(Nameless())
    named = Nameless.__qualname__
    assert str(caught.value).endswith(
        f", such as key=lambda x: (type(x), x.id), where id is what tells one {named} from another"
    )


@pytest.mark.parametrize("args", [(1, [2]), (frozenset({object()}),)])
def test_what_lies_in_another_argument_has_no_advice_of_its_own(args: Any) -> None:
    with pytest.raises(TypeError, match=r"no key for an argument of type \w+: pass key=.* returns one$"):
        cache.memoize(one)(args)


def test_functions_that_tell_nothing_of_themselves() -> None:
    for function in (partial(one), max):
        with pytest.raises(TypeError, match="no key for an argument of type list"):
            cache.memoize(function)([1])
    with pytest.raises(gabion._standins.NoKeyError):
        cache._call_key(([1],), {})


def nested(value: Any, deep: int) -> Any:
    for _ in range(deep):
        value = (value,)
    return value


@pytest.mark.parametrize("value", [None, 1.5, 1, Place("a"), frozenset(), date(2026, 1, 1), b"a"], ids=repr)
def test_tasks_and_threads_refuse_the_same_depth(value: Any) -> None:
    """A call was answered, and the same call to a coroutine function refused."""

    async def slow(value: Any) -> int:
        return 1

    def deepest(kept: Any) -> int:
        for deep in range(80):
            try:
                made = kept(nested(value, deep))
                assert (asyncio.run(made) if kept.__wrapped__ is slow else made) == 1
            except ValueError as error:
                return deep if "nested more than 64 deep" in str(error) else -1
        return 80

    assert deepest(cache.memoize(one)) == deepest(cache.memoize(slow)) in (31, 32)
