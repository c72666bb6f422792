"""What notebooks and editors offer behind a dot and behind a bracket."""

import gabion
import gabion.memory
import gabion.numpy


def test_modules_show_what_they_are_for() -> None:
    for module in (gabion.memory, gabion.numpy):
        shown = {name for name in dir(module) if not name.startswith("_")}
        assert shown == set(module.__all__)
        assert {"__doc__", "__name__", "__all__"} <= set(dir(module))


def test_a_cache_offers_its_keys() -> None:
    cache: gabion.Cache[object, int] = gabion.Cache("64 MiB")
    assert cache._ipython_key_completions_() == []
    cache["page"], cache[5] = 1, 2
    assert sorted(map(str, cache._ipython_key_completions_())) == ["5", "page"]
    cache.table("others")["one"] = 1
    assert cache.table("others")._ipython_key_completions_() == ["one"]
    for number in range(5_000):
        cache[number] = number
    assert len(cache._ipython_key_completions_()) == 1_000
