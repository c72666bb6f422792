"""gabion.backends; scripts/test-backends runs the tests that their libraries have for caches."""

import asyncio
import time
from enum import Enum
from typing import Any

import pytest
from dogpile import cache as api
from many_threads import run

import gabion


def test_django(script: Any) -> None:
    script(
        """
        from django.conf import settings
        backend = "gabion.backends.django.GabionCache"
        settings.configure(CACHES={
            "default": {"BACKEND": backend, "LOCATION": "one", "OPTIONS": {"MAX_BYTES": "8 MiB"}, "TIMEOUT": 60},
            "same": {"BACKEND": backend, "LOCATION": "one", "OPTIONS": {"MAX_BYTES": "8 MiB"}, "KEY_PREFIX": "p"},
            "other": {"BACKEND": backend, "LOCATION": "two"},
            "contradicting": {"BACKEND": backend, "LOCATION": "one", "OPTIONS": {"MAX_BYTES": "9 MiB"}},
        })
        import asyncio, threading
        from django.core.cache import CacheHandler, cache, caches
        from django.core.exceptions import ImproperlyConfigured

        cache.set("k", {"v": [1, None]}, 30)
        assert (cache.get("k"), caches["same"].get("k"), caches["other"].get("k")) == ({"v": [1, None]}, None, None)
        assert cache._cache is caches["same"]._cache is not caches["other"]._cache
        for set_many in cache.set_many, lambda values: asyncio.run(cache.aset_many(values)):
            assert set_many({"large": bytes(9 << 20), "fits": 1}) == ["large"]
            assert cache.delete("fits") and "large" not in cache

        cache.set_many({"a": 1, "none": None, 5: "five"})
        cache.set("a", "second", version=2)
        caches["same"].set("a", "with a prefix")
        cache.set("over", 1, timeout=0)
        asked = ["a", "none", "absent", "over", 5, "5", "a"]
        there = {"a": 1, "none": None, 5: "five", "5": "five"}
        for get_many in cache.get_many, lambda *given, **named: asyncio.run(cache.aget_many(*given, **named)):
            assert get_many(asked) == get_many(iter(asked)) == there
            assert list(get_many(asked)) == list(there)
            assert get_many(asked, version=2) == {"a": "second"} and get_many([]) == {}
        assert caches["same"].get_many(asked) == {"a": "with a prefix"}
        cache.delete_many(iter(["a", "absent", 5]))
        assert cache.get_many(asked) == {"none": None} and cache.get("a", version=2) == "second"
        asyncio.run(cache.adelete_many(["a"], version=2))
        cache.delete_many(["none"])
        caches["same"].delete_many(["a"])
        cache._cache.expire()
        assert cache.stats().entries == 1

        try:
            caches["contradicting"]
        except ImproperlyConfigured as error:
            assert "one" in str(error)
        else:
            raise AssertionError("a contradiction went unseen")

        for options, named in ({"max_bytes": "9 MiB"}, "'max_bytes'"), ({"MAX_ENTRIES": 5}, ""):
            settings.CACHES["odd"] = {"BACKEND": backend, "LOCATION": "odd", "OPTIONS": options}
            try:
                CacheHandler()["odd"]
            except ImproperlyConfigured as error:
                assert named and named in str(error) and "MAX_BYTES and POLICY" in str(error)
            else:
                assert not named, "an option of another spelling went unseen"
        assert cache.stats().entries == 1

        # A size can be written in several ways.
        settings.CACHES["odd"] = {"BACKEND": backend, "LOCATION": "one", "OPTIONS": {"MAX_BYTES": 8 << 20}}
        assert CacheHandler()["odd"]._cache is cache._cache

        # What is set while the callable runs is newer than what it returns.
        assert cache.get_or_set("newer", lambda: cache.set("newer", "set") or "made") == "set" == cache.get("newer")
        assert cache.get_or_set("gone", lambda: cache.clear() or "made") == "made"
        assert cache.get_or_set("gone", None) == cache.get_or_set("gone", "other") == None
        assert "gone" in cache
        cache.clear()

        calls = []
        cache.set("n", 0)
        def work():
            cache.get_or_set("made", lambda: calls.append(1) or "made")
            for _ in range(500):
                cache.incr("n")
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert (cache.get("n"), calls) == (4000, [1])

        # In several loops, too, and beside plain calls.
        calls, both = [], threading.Barrier(8)
        def slow():
            calls.append(1)
            threading.Event().wait(0.1)
            return "slow"
        def ask(number):
            both.wait()
            if number % 2:
                assert cache.get_or_set("slow", slow) == "slow"
            else:
                async def main():
                    tasks = [asyncio.create_task(cache.aget_or_set("slow", slow)) for _ in range(3)]
                    await asyncio.sleep(0)
                    assert set(await asyncio.gather(*tasks)) == {"slow"}
                asyncio.run(main())
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert calls == [1]
        async def beside():
            # No step comes between: a plain call in the loop's thread need not wait.
            task = asyncio.create_task(cache.aget_or_set("beside", lambda: "a task's"))
            await asyncio.sleep(0)
            assert cache.get_or_set("beside", lambda: "another's") == "a task's" == await task
            assert await cache.aget_or_set("newest", lambda: cache.set("newest", "set") or "made") == "set"
            assert await cache.aget_or_set("plain", 5, timeout=30) == 5 == await cache.aget_or_set("plain", 6)
        asyncio.run(beside())

        async def main():
            await cache.aset("a", 1)
            assert await cache.aget("a") == 1 and await cache.aincr("a") == 2
            assert await cache.aadd("a", 5) is False and await cache.adelete("a") and not await cache.ahas_key("a")
            threads = threading.active_count()
            await cache.aclear()
            assert threading.active_count() == threads and await cache.aget("n") is None
        asyncio.run(main())
        """
    )


def test_django_settings_that_tests_override(script: Any) -> None:
    """A location had the settings of whoever came first for as long as the process ran."""
    script(
        """
        from django.conf import settings
        backend = "gabion.backends.django.GabionCache"
        def caches_of(*sizes):
            options = [{"OPTIONS": {"MAX_BYTES": size}} if size else {} for size in sizes]
            return {
                "default" if not number else f"c{number}": {"BACKEND": backend, "LOCATION": "one", **each}
                for number, each in enumerate(options)
            }
        settings.configure(CACHES=caches_of(None))
        from django.core.cache import cache, caches
        from django.core.exceptions import ImproperlyConfigured
        from django.test import override_settings

        cache.set("k", 1)
        assert cache.stats().max_bytes == 64 << 20
        with override_settings(CACHES=caches_of("8 MiB", 8 << 20)):
            assert (cache.stats().max_bytes, cache.get("k")) == (8 << 20, None)
            cache.set("k", 2)
            assert caches["c1"].get("k") == 2
            with override_settings(CACHES=caches_of(None, "9 MiB")):
                assert cache.stats().max_bytes == 64 << 20
                try:
                    caches["c1"]
                except ImproperlyConfigured as error:
                    assert "'one'" in str(error)
                else:
                    raise AssertionError("a contradiction went unseen")
        assert (cache.stats().max_bytes, cache.get("k")) == (64 << 20, None)
        cache.set("k", 3)
        with override_settings(CACHES=caches_of(64 << 20)):
            assert cache.get("k") == 3
        """
    )


def test_dogpile() -> None:
    api.register_backend("gabion", "gabion.backends.dogpile", "GabionBackend")
    region = api.make_region().configure("gabion", expiration_time=60, arguments={"max_bytes": "8 MiB"})
    region.set("k", {"v": [1, None]})
    assert region.get("k") == {"v": [1, None]}
    assert region.get("absent") is api.api.NO_VALUE
    calls: list[int] = []

    @region.cache_on_arguments()
    def slow(number: int) -> int:
        calls.append(number)
        time.sleep(0.05)
        return 2 * number

    run(*[lambda: slow(4)] * 8)
    assert (slow(4), calls) == (8, [4])
    with gabion.Cache("1 MiB") as mine:
        region = api.make_region().configure("gabion", arguments={"cache": mine})
        region.set_multi({"a": 1, "b": 2})
        assert sorted(mine) == ["a", "b"]
        asked = ["b", "absent", "a", "b"]
        assert region.get_multi(asked)[::2] == [2, 1]
        assert region.backend.get_multi(iter(asked))[1] is api.api.NO_VALUE
        region.delete_multi(["a", "b"])
        assert region.get_multi(["a", "b"]) == [api.api.NO_VALUE] * 2
    with pytest.warns(UserWarning, match="has no argument 'size'; there are max_bytes"):
        api.make_region().configure("gabion", arguments={"size": "1 MiB"})


def test_aiocache() -> None:
    from aiocache import Cache, cached, cached_stampede
    from aiocache.lock import RedLock

    from gabion.backends.aiocache import GabionCache

    calls: list[int] = []

    @cached(cache=GabionCache, ttl=60, max_bytes="1 MiB")
    async def slow(number: int) -> int:
        calls.append(number)
        return 2 * number

    @cached_stampede(cache=GabionCache, ttl=60, max_bytes=0)
    async def whenever(number: int) -> int:
        return number

    async def main() -> None:
        cache = Cache(GabionCache, max_bytes="8 MiB", namespace="n:", ttl=60)
        assert await cache.set("k", [1, None])
        assert await cache.get("k") == [1, None]
        assert await cache.multi_get(["k", "absent", "k"]) == [[1, None], None, [1, None]]
        assert [await cache.increment("number", 5), await cache.increment("number", -1)] == [5, 4]
        assert await cache.set("text", "x", ttl=0)
        with pytest.raises(TypeError):
            await cache.increment("text")
        with pytest.raises(ValueError, match="already exists"):
            await cache.add("text", "y")
        assert await cache.set("short", "x", ttl=0.05)
        await asyncio.sleep(0.1)
        assert await cache.get("short") is None
        assert await cache.get("k") == [1, None]
        assert await cache.get("text") == "x"
        await cache.clear(namespace="n:")
        assert not await cache.exists("text")
        assert [await slow(3), await slow(3), calls] == [6, 6, [3]]

        large = bytes(9 << 20)
        assert not await cache.set("large", large)
        assert not await cache.add("large", large)
        assert not await cache.multi_set([("large", large), ("small", 1)])
        assert await cache.multi_set([("also", 2), ("small", 1)])
        # Its own callers of the private ones are told no error of ours: a lock that is refused locks nobody out.
        none = Cache(GabionCache, max_bytes=0)
        async with RedLock(none, "k", lease=1):
            assert not await none.add("k", 1)
        assert [await whenever(4), await whenever(4)] == [4, 4]
        assert not await cache.exists("large")
        assert await cache.set("small", 3, ttl=-1)
        assert await cache.get("small") is None
        assert await cache.expire("also", -1)
        assert await cache.get("also") is None

    asyncio.run(main())


@pytest.mark.parametrize("policy", ["default", "lru", "fifo", "s3fifo"])
def test_locks_of_aiocache_stay_while_a_cache_is_full(policy: str) -> None:
    """One that was evicted stopped nobody, and those who waited for it waited for its whole lease."""
    from aiocache import Cache
    from aiocache.lock import RedLock

    from gabion.backends.aiocache import GabionCache

    async def main() -> None:
        cache = Cache(GabionCache, max_bytes="64 KiB", policy=policy)
        ended: list[int] = []

        async def work(number: int) -> None:
            async with RedLock(cache, "page", lease=60):
                if number == 0:
                    for one in range(2000):
                        assert await cache.set(f"{number} {one}", bytes(500))
                        if one % 500 == 0:
                            await asyncio.sleep(0)
                ended.append(number)

        async with asyncio.timeout(30):
            first = asyncio.create_task(work(0))
            await asyncio.sleep(0)
            others = [asyncio.create_task(work(number)) for number in (1, 2)]
            await asyncio.gather(first, *others)
        assert ended[0] == 0
        assert "page-lock" not in RedLock._EVENTS
        for one in range(100):  # entries like others
            assert await cache.add(f"page {one}", bytes(500))
        for one in range(2000):
            await cache.set(one, bytes(500))
        assert sum([await cache.exists(f"page {one}") for one in range(100)]) < 50

    asyncio.run(main())


def test_keys_of_aiocache_may_be_members_of_an_enum() -> None:
    from aiocache import Cache

    from gabion.backends.aiocache import GabionCache

    class Page(Enum):
        FIRST = "first"
        SECOND = 2

    async def main() -> None:
        for namespace in (None, "pages"):
            cache = Cache(GabionCache, max_bytes="1 MiB", namespace=namespace)
            await cache.multi_set([(Page.FIRST, 1), (Page.SECOND, 2)])
            assert await cache.multi_get(list(Page)) == [1, 2]
            assert (await cache.get(Page.FIRST), await cache.get("first")) == (1, 1)
            assert await cache.delete(Page.SECOND) == 1

    asyncio.run(main())


def test_functions_behind_aiocache_have_caches_of_their_own_or_share_one() -> None:
    from aiocache import cached, caches

    from gabion.backends.aiocache import GabionCache

    async def page(number: int) -> int:
        return number

    async def part(number: int) -> int:
        return -number

    caches.add("pages", {"cache": GabionCache, "max_bytes": "8 MiB"})
    own = [cached(cache=GabionCache, max_bytes="1 MiB", ttl=60)(function) for function in (page, part)]
    shared = [cached(alias="pages", ttl=60)(function) for function in (page, part)]
    assert len({id(function.cache) for function in own}) == 2
    assert len({id(function.cache) for function in shared}) == 1

    async def main() -> None:
        for _ in range(2):
            assert [await function(7) for function in own + shared] == [7, -7, 7, -7]

    asyncio.run(main())
    figures = [function.cache._cache.stats() for function in (*own, shared[0])]
    assert [(each.entries, each.hits, each.max_bytes >> 20) for each in figures] == [(1, 1, 1), (1, 1, 1), (2, 2, 8)]
