"""What is saved of a cache that is used meanwhile."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gabion import Cache, Pile

GROW: list[Callable[[], None]] = []


def grown() -> int:
    """What a `Growing` comes back as, when others have been put."""
    GROW[-1]()
    return 5


class Growing:
    def __reduce__(self) -> Any:
        return (grown, ())


def test_what_comes_while_a_cache_is_saved_is_saved_once(tmp_path: Path) -> None:
    """The index grows under the walk, which has been at all that its new parts hold."""
    with Cache("64 MiB") as cache:
        later = iter(range(1000, 9000))
        GROW.append(lambda: cache.put_many((number, 0) for number in itertools.islice(later, 40)))
        for number in range(1000):
            cache[number] = Growing() if number % 5 == 0 else 1
        saved = cache.save(tmp_path / "cache")
        assert len(cache) == 9000
    with Pile(path=tmp_path / "cache", read_only=True) as pile:
        keys = [pile.get(pointer)[1] for pointer in pile if pointer != pile.root]
    assert len(keys) == len(set(keys)) == saved
    assert set(range(1000)) <= set(keys)


def test_a_time_to_live_that_never_comes_is_saved(tmp_path: Path) -> None:
    with Cache("4 MiB") as cache:
        cache.put("key", 1, ttl=1e16)
        assert cache.save(tmp_path / "cache") == 1
    with Cache("4 MiB") as cache:
        assert cache.load(tmp_path / "cache") == 1
        assert (cache.expires_in("key") or 0) > 1e9
