"""Subclasses of gabion.Cache with an __init__ of their own; caches that were never set up; the other classes."""

import asyncio
import copy
import functools
import gc
import inspect
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import gabion
from gabion import Cache, Table, memory, streams


class Sessions(Cache):
    """As one would write it: other parameters, and settings that are nobody else's business."""

    def __init__(self, app: str, *, minutes: int = 5) -> None:
        super().__init__("4 MiB", ttl=60 * minutes, name=app)
        self.app = app

    def login(self, user: str) -> str:
        self[user] = {"app": self.app, "user": user}
        return user


class Forgetful(Cache):
    def __init__(self, *args: Any, **keywords: Any) -> None:
        self.arguments = args, keywords


def test_an_init_of_other_parameters() -> None:
    with Sessions("shop", minutes=1) as sessions:
        assert sessions[sessions.login("ada")] == {"app": "shop", "user": "ada"}
        assert (sessions.name, sessions.app, sessions.stats().max_bytes) == ("shop", "shop", 4 << 20)
        assert sessions.table("t").put("k", 1) is gabion.PutResult.INSERTED
        assert type(sessions.table("t")) is Table
        assert sessions.get_or_put("report", lambda: "made") == "made"

        @sessions.memoize
        def double(number: int) -> int:
            return 2 * number

        assert (double(4), double(4)) == (8, 8)
        assert repr(sessions) == f"<Sessions 'shop': 4 entries, {sessions.stats().bytes} of 4194304 bytes>"
        sessions.validate()
    assert repr(sessions) == "<Sessions 'shop', closed>"
    with pytest.raises(gabion.ClosedError), sessions:
        pass


def test_the_settings_are_those_that_init_was_given() -> None:
    class Lasting(Sessions):
        def __init__(self) -> None:
            super().__init__("deep", minutes=0)

    lasting = Lasting()
    lasting["gone"] = 1
    assert "gone" not in lasting

    class ByNew(Cache):
        """What one had to write before."""

        def __new__(cls, size: int) -> "ByNew":
            return super().__new__(cls, size, ttl=5)

        def __init__(self, size: int) -> None:
            super().__init__(size << 20)

    assert ByNew(2).stats().max_bytes == 2 << 20


def test_an_init_that_fails_may_be_tried_again() -> None:
    class Either(Cache):
        def __init__(self, limit: object) -> None:
            try:
                super().__init__(limit)
            except (TypeError, ValueError):
                super().__init__("2 MiB")

    for limit, bytes_ in ("1 MiB", 1 << 20), ("much", 2 << 20), (None, 2 << 20):
        assert Either(limit).stats().max_bytes == bytes_


def test_init_runs_once() -> None:
    cache = Cache("1 MiB", name="first")
    table = cache.table("t")
    cache["k"] = "v"
    with pytest.raises(RuntimeError, match="was set up before"):
        cache.__init__("2 MiB", name="second")
    assert (cache["k"], cache.name, cache.table("t") is table, cache.stats().max_bytes) == ("v", "first", True, 1 << 20)


async def later() -> None:
    pass


# What needs the cache, by name; each says what is missing.
CALLS: dict[str, Callable[[Any], Any]] = {
    "get": lambda c: c.get("k"),
    "put": lambda c: c.put("k", 1),
    "put, timed": lambda c: c.put("k", 1, ttl=5),
    "add": lambda c: c.add("k", 1),
    "discard": lambda c: c.discard("k"),
    "touch": lambda c: c.touch("k"),
    "pop": lambda c: c.pop("k", None),
    "expires_in": lambda c: c.expires_in("k", None),
    "setdefault": lambda c: c.setdefault("k", 1),
    "[]": lambda c: c["k"],
    "[]=": lambda c: c.__setitem__("k", 1),
    "del": lambda c: c.__delitem__("k"),
    "in": lambda c: "k" in c,
    "len": len,
    "list": list,
    "keys": lambda c: c.keys(),
    "items": lambda c: list(c.items()),
    "values": lambda c: list(c.values()),
    "size_of": lambda c: c.size_of("k"),
    "get_many": lambda c: c.get_many(["k"]),
    "put_many": lambda c: c.put_many({"k": 1}),
    "remove_many": lambda c: c.remove_many(["k"]),
    "get_or_put": lambda c: c.get_or_put("k", lambda: 1),
    "get_or_put, awaited": lambda c: asyncio.run(c.get_or_put("k", later)),
    "memoize": lambda c: c.memoize(lambda: 1),
    "clear": lambda c: c.clear(),
    "stats": lambda c: c.stats(),
    "closed": lambda c: c.closed,
    "validate": lambda c: c.validate(),
    "change": lambda c: c.change("k", lambda value: value, None),
    "incr": lambda c: c.incr("k"),
    "update": lambda c: c.update(k=1),
    "max_bytes": lambda c: c.max_bytes,
    "ttl": lambda c: c.ttl,
    "idle": lambda c: c.idle,
}
CALLS_OF_CACHES: dict[str, Callable[[Any], Any]] = {
    "max_bytes, set": lambda c: setattr(c, "max_bytes", "1 MiB"),
    "with": lambda c: c.__enter__(),
    "table": lambda c: c.table("t"),
    "tables": lambda c: c.tables(),
    "drop_table": lambda c: c.drop_table("t"),
    "expire": lambda c: c.expire(),
    "on_evict": lambda c: c.on_evict(lambda key, value: None),
    "save": lambda c: c.save("cache.pile"),
    "load": lambda c: c.load("cache.pile"),
}


@pytest.mark.parametrize("name", CALLS | CALLS_OF_CACHES)
@pytest.mark.parametrize("make", [Forgetful, lambda: Cache.__new__(Cache), lambda: Table.__new__(Table)])
def test_a_cache_that_was_never_set_up_refuses_and_says_what_to_write(name: str, make: Callable[[], Any]) -> None:
    empty = make()
    if name in CALLS_OF_CACHES and not isinstance(empty, Cache):
        return
    with pytest.raises(RuntimeError, match=r"not set up: .* gabion\.Cache calls super\(\).__init__\(max_bytes\)"):
        (CALLS | CALLS_OF_CACHES)[name](empty)


def test_every_public_method_is_among_these() -> None:
    called = {word for name in CALLS | CALLS_OF_CACHES for word in name.split(", ")}
    assert {name for name in dir(Cache) if not name.startswith("_")} - called == {"close", "name"}


def test_what_was_never_set_up_can_be_shown_closed_and_collected() -> None:
    empty = Forgetful(1, two=2)
    assert repr(empty) == str(empty) == "<Forgetful, not set up>"
    assert repr(Cache.__new__(Cache)) == "<gabion.Cache, not set up>"
    assert repr(Table.__new__(Table)) == "<gabion.Table, not set up>"
    assert bool(empty)
    assert empty.arguments == ((1,), {"two": 2})
    empty.close()
    empty.__exit__(None, None, None)
    empty.itself = empty
    died = weakref.ref(empty)
    del empty
    gc.collect()
    assert died() is None
    late = Forgetful()
    Cache.__init__(late, "1 MiB")
    late["k"] = 1
    assert late["k"] == 1


def test_of_threads_that_set_up_one_cache_one_does() -> None:
    for _ in range(50):
        cache, done, barrier = Cache.__new__(Cache), [], threading.Barrier(4)

        def begin(size: int, cache: Cache = cache, done: list[int] = done, barrier: Any = barrier) -> None:
            barrier.wait()
            try:
                Cache.__init__(cache, size << 20)
            except RuntimeError:
                return
            done.append(size << 20)

        threads = [threading.Thread(target=begin, args=(size,)) for size in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done == [cache.stats().max_bytes]


@pytest.mark.skipif("t" in getattr(sys, "abiflags", ""), reason="classes are immortal there once a thread was started")
def test_a_subclass_goes_with_its_last_cache() -> None:
    class Local(Cache):
        pass

    def make_some(cls: type[Cache]) -> None:
        for _ in range(100):
            cls("1 MiB").close()

    make_some(Local)
    before = sys.getrefcount(Local)
    make_some(Local)
    assert sys.getrefcount(Local) == before
    gone = weakref.ref(Local)
    del Local
    gc.collect()
    assert gone() is None


def of_a_method() -> weakref.ref[Any]:
    class Closed(Cache):
        def me(self) -> Cache:
            return cache

    cache = Closed("1 MiB")
    return weakref.ref(cache)


def of_the_class() -> weakref.ref[Any]:
    class Shared(Cache):
        shared: Cache

    Shared.shared = Shared("1 MiB")
    Shared.shared.table("t")["k"] = 1
    return weakref.ref(Shared.shared)


@pytest.mark.skipif("t" in getattr(sys, "abiflags", ""), reason="classes are immortal there once a thread was started")
@pytest.mark.parametrize("make", [of_a_method, of_the_class])
def test_a_cache_that_its_class_refers_to_is_collected(make: Callable[[], weakref.ref[Any]]) -> None:
    made = make()
    assert made() is not None
    gc.collect()
    assert made() is None


def test_signatures_are_those_of_init() -> None:
    assert list(inspect.signature(Cache).parameters) == ["max_bytes", "ttl", "idle", "name", "policy"]
    assert list(inspect.signature(Sessions).parameters) == ["app", "minutes"]


@pytest.mark.parametrize("move", [copy.copy, copy.deepcopy, pickle.dumps])
def test_caches_and_tables_are_not_copied(move: Callable[[Any], Any]) -> None:
    sessions = Sessions("shop")
    for thing in (sessions, sessions.table("t")):
        with pytest.raises(TypeError, match=r"gabion\.(Cache|Table) cannot be pickled or copied"):
            move(thing)


@pytest.mark.parametrize(
    "final", [gabion.Pile, gabion.Image, memory.Buffer, memory.Group, streams.Reader, streams.Writer]
)
def test_the_other_classes_are_final_and_say_so_by_their_public_names(final: type) -> None:
    with pytest.raises(TypeError, match=rf"'{final.__module__}\.{final.__name__}' is not an acceptable base type"):
        type("Heir", (final,), {})
    modules = {"gabion": gabion, "gabion.memory": memory, "gabion.streams": streams}
    assert getattr(modules[final.__module__], final.__name__) is final


def test_names_of_a_subclass_hide_none_of_the_caches_own() -> None:
    """A subclass's _close() was called in place of the cache's, and its _lock was taken for a lock."""
    taken = {name for class_ in Cache.__mro__ for name in vars(class_) if name.startswith("_")}
    inner = {name for name in taken if not name.startswith(("__", "_gabion_"))}
    named = inner | {"_lock", "_tables", "_memoized", "_flights", "_root", "_space", "_title", "_make", "_get_or_put"}
    own = type("Own", (Cache,), dict.fromkeys(named, "its own"))("8 MiB", name="own")
    assert "own" in repr(own)
    assert own.put_many({"a": 1}) == 1
    assert (own.incr("n"), own.setdefault("s", 2), own.change("n", lambda n: n + 1)) == (1, 2, 2)
    assert (own.get_or_put("f", lambda: 3), own.get_or_put("t", lambda: 4, ttl=9)) == (3, 4)
    assert dict(own.items()) == {"a": 1, "n": 2, "s": 2, "f": 3, "t": 4}

    async def made() -> int:
        return 5

    async def asked() -> list[int]:
        return await asyncio.gather(own.get_or_put("c", made), own.get_or_put("c", made))

    assert asyncio.run(asked()) == [5, 5]
    own.table("pages")["/"] = own.memoize(lambda number: number)(6)
    assert own.tables() == ["pages"]
    assert (own.table("pages").clear(), own.drop_table("pages"), own.expire(), own.ttl) == (1, True, 0, None)
    own.on_evict(None)
    with own:
        assert own.stats().entries == own.clear() == 6
    assert own.closed


def test_a_get_of_its_own_is_not_asked_by_other_methods() -> None:
    """get_or_put() asked it only where the factory was no plain function, and setdefault() always."""

    class Speaking(Cache):
        def get(self, key: Any, /, default: Any = None) -> Any:
            return "its own"

    async def slow() -> str:
        return "made"

    speaking = Speaking("1 MiB")
    assert speaking.get_or_put("plain", lambda: "made") == "made"
    assert speaking.get_or_put("named", factory=lambda: "made") == "made"
    assert speaking.get_or_put("object", functools.partial(str, "made")) == "made"
    assert asyncio.run(speaking.get_or_put("task", slow)) == "made"
    assert speaking.setdefault("default", "made") == "made"
    assert speaking.setdefault("default", "again") == "made"
    assert {speaking[key] for key in speaking} == {"made"}
    assert speaking.get("plain") == "its own"
