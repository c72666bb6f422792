"""Caches that outlast their process: save() and load()."""

import contextlib
import os
import resource
import signal
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from many_threads import run

import gabion
from gabion import Cache
from gabion.testing import advance

KEYS: list[Any] = [
    "text", "", "täxt €", b"bytes", b"", 0, -7, 1 << 90, uuid.UUID(int=5), ("page", 7, b"raw"), (),
    (("a", (1,)), uuid.UUID(int=6)), "long" * 1000, ("x" * 3000, 5), True,
]  # fmt: skip


@dataclass
class Person:
    name: str
    born: int = 0


class Moody:
    """Can be built, or cannot."""

    fails: Exception | BaseException | None = None

    def __reduce__(self) -> Any:
        return moody, ()


def moody() -> Moody:
    if Moody.fails is not None:
        raise Moody.fails
    return Moody()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.pile"


@pytest.fixture
def fails() -> Iterator[Callable[[BaseException], None]]:
    yield lambda error: setattr(Moody, "fails", error)
    Moody.fails = None


def left(cache: Any, key: Any) -> float:
    return float(cache.expires_in(key, -1))


def test_all_kinds_of_keys_and_values_come_back(path: Path) -> None:
    cache, again = Cache("64 MiB"), Cache("64 MiB")
    for number, key in enumerate(KEYS):
        cache[key] = ["value", number, None]
    values = [None, 7, "text", b"x" * 3_000_000, {"a": [1, {2}]}, Person("Ada", 1815), 1.5, "y" * 70_000]
    for number, value in enumerate(values):
        cache[("value", number)] = value
    assert cache.save(path) == len(KEYS) + len(values)
    assert again.load(str(path), types=[Person]) == len(KEYS) + len(values)
    assert sorted(map(repr, again)) == sorted(map(repr, cache))
    for number, key in enumerate(KEYS):
        assert again[key] == ["value", number, None]
    for number, value in enumerate(values):
        assert again["value", number] == value
    again.validate()
    # It is the file of a pile.
    assert gabion.Pile.check(path).objects == len(KEYS) + len(values) + 1


def test_times_go_on(path: Path) -> None:
    cache, again = Cache("1 MiB", ttl="1 h"), Cache("1 MiB", ttl="1 h")
    cache["table's"] = 1
    cache.put("never", 1, ttl=float("inf"))
    cache.put("own", 1, ttl="2 h")
    cache.put("at", 1, expires_at=time.time() + 3 * 3600)
    cache.put("idle", 1, ttl=float("inf"), idle="40 min")
    cache.put("both", 1, ttl="50 min", idle="40 min")
    cache.put("soon", 1, ttl="20 min")
    advance("10 min")
    assert cache.save(path) == 7
    advance("20 min")
    # The next process begins with the time of day.
    assert again.load(path) == 6
    assert "soon" not in again
    for key in cache:
        if key != "soon":
            assert abs(left(cache, key) - left(again, key)) < 5 or left(cache, key) == left(again, key), key
    # Each does what it would have done: only what is put with a moment is not restarted.
    for key in ("table's", "never", "own", "at", "idle", "both"):
        assert cache.touch(key)
        assert again.touch(key)
        assert abs(left(cache, key) - left(again, key)) < 5 or left(cache, key) == left(again, key), key
    assert 3595 < left(again, "table's") <= 3600
    assert 7195 < left(again, "own") <= 7200
    assert 2395 < left(again, "idle") <= 2400
    advance("40 min")
    assert sorted(again) == ["at", "never", "own", "table's"]


def test_what_has_no_end_has_none_in_a_cache_that_has_one(path: Path) -> None:
    """What the recipe was that stood here before got wrong."""
    cache = Cache("1 MiB")
    cache["k"] = 1
    cache.save(path)
    again = Cache("1 MiB", ttl=5, idle=3)
    assert again.load(path) == 1
    assert left(again, "k") == float("inf")


def test_priorities_come_back(path: Path) -> None:
    cache = Cache("64 KiB")
    for number in range(40):
        cache.put(("high", number), "x" * 500, priority=5)
        cache.put(("low", number), "x" * 500, priority=-128)
    assert cache.save(path) == 80
    again = Cache("64 KiB")
    assert again.load(path) == 80
    number = 0
    while again.stats().evicted < 40:
        again.put(("new", number), "x" * 500)
        number += 1
    assert sum(key[0] == "high" for key in again) == 40
    again.validate()


def test_tables_come_back_with_their_settings(path: Path) -> None:
    cache = Cache("4 MiB", ttl="5 min")
    settings: dict[str, dict[str, Any]] = {
        "plain": {},
        "own": {"max_bytes": "1 MiB", "ttl": 60, "idle": "1 h"},
        "endless": {"ttl": None},
        "empty": {"idle": 5},
        "there": {"ttl": 7},
    }
    for name, given in settings.items():
        table = cache.table(name, **given)
        if name != "empty":
            table["k"] = name
    cache["k"] = ""
    square = cache.memoize(lambda number: number * number)
    assert square(5) == 25
    assert cache.save(path) == 5
    again = Cache("4 MiB", ttl="5 min")
    there = again.table("there", ttl="1 h")
    assert again.load(path) == 5
    assert sorted(again.tables()) == sorted(settings)
    for name, given in settings.items():
        if name == "there":
            continue
        table = again.table(name, **given)
        assert (table.max_bytes, table.ttl, table.idle) == (
            cache.table(name).max_bytes,
            cache.table(name).ttl,
            cache.table(name).idle,
        )
        assert table.get("k") == (None if name == "empty" else name)
    assert (there.ttl, there["k"]) == (3600, "there")
    assert left(there, "k") <= 7
    assert again["k"] == ""
    # Loaded once more: what is there stays.
    assert again.load(path) == 0


def test_a_program_whose_tables_have_other_settings_now(path: Path) -> None:
    cache = Cache("4 MiB")
    for name in ("p", "q"):
        cache.table(name, ttl=60)["k"] = 1
    cache.save(path)
    again = Cache("4 MiB")
    again.load(path)
    again.load(path)
    assert again.save(path) == 2
    # As if it were not there: a file must not keep a program from its settings.
    pages = again.table("p", ttl=120)
    assert (pages.ttl, len(pages)) == (120, 0)
    pages["k"] = 2
    # From then on it is the program's.
    with pytest.raises(ValueError, match="ttl=120"):
        again.table("p", ttl=60)
    assert (again.table("q")["k"], again.table("q", ttl=60)["k"]) == (1, 1)
    with pytest.raises(ValueError, match="ttl=60"):
        again.table("q", ttl=120)


def test_what_the_cache_has_is_newer(path: Path) -> None:
    cache = Cache("1 MiB")
    cache["k"] = cache["other"] = "old"
    cache.save(path)
    cache["k"] = "new"
    del cache["other"]
    assert cache.load(path) == 1
    assert (cache["k"], cache["other"]) == ("new", "old")


def test_there_is_less_room_than_there_was(path: Path) -> None:
    cache = Cache("8 MiB")
    for number in range(4000):
        cache[number] = "x" * 1000
    cache["large"] = b"x" * (1 << 20)
    cache.save(path)
    again = Cache("64 KiB")
    stored = again.load(path)
    assert 0 < stored <= 4000
    assert "large" not in again
    assert again.stats().bytes <= 64 << 10
    assert Cache(0).load(path) == 0


def test_classes_are_built_as_types_allow(path: Path) -> None:
    cache = Cache("1 MiB")
    cache["plain"] = [1, 2]
    cache["Ada"], cache["Grace"] = Person("Ada"), Person("Grace")
    assert cache.save(path) == 3
    again = Cache("1 MiB")
    with pytest.warns(RuntimeWarning, match=r"load\(\): 2 entries were left out.*CodecError.*Person") as told:
        assert again.load(path) == 1
    assert told[0].filename == __file__
    assert list(again) == ["plain"]
    assert again.load(path, types=[Person]) == 2
    assert again["Ada"] == Person("Ada")
    assert Cache("1 MiB").load(path, types="*") == 3
    with pytest.raises(TypeError):
        again.load(path, types=5)  # type: ignore[arg-type]


def test_values_that_cannot_be_built_any_more(path: Path, fails: Callable[[BaseException], None]) -> None:
    cache = Cache("1 MiB")
    cache["k"], cache["moody"] = 1, Moody()
    assert cache.save(path) == 2
    for error in (ValueError("no"), OSError("no"), KeyError("no"), RuntimeError("no")):
        fails(error)
        again = Cache("1 MiB")
        with pytest.warns(RuntimeWarning, match=r"load\(\): 1 entry was left out"):
            assert again.load(path, types=[moody]) == 1
        other = path.with_name("other")
        with pytest.warns(RuntimeWarning, match=r"save\(\): 1 entry was left out"):
            assert cache.save(other) == 1
        assert again.load(other) == 0
    for passing in (KeyboardInterrupt, MemoryError, SystemExit):
        fails(passing())
        with pytest.raises(passing):
            Cache("1 MiB").load(path, types=[moody])
        with pytest.raises(passing):
            cache.save(other)
    assert Cache("1 MiB").load(other) == 1
    cache.validate()


def test_files_that_are_no_caches(path: Path) -> None:
    cache = Cache("1 MiB")
    with pytest.raises(FileNotFoundError):
        cache.load(path)
    assert not path.exists()
    path.write_text("text")
    for call in (cache.load, cache.save):
        with pytest.raises(gabion.CorruptFileError):
            call(path)
    assert path.read_text() == "text"
    path.unlink()
    roots: list[Any] = [None, [], {}, {"kind": 1}, "text", {"kind": "gabion.Cache", "version": 1, "tables": [5]}]
    # The last two names are not those of tables that are saved.
    tables: list[Any] = [(5, None, None, None), ("t", None), ("t", None, None, None, None), ("", *3 * [None])]
    tables += [("memoize:shop.price:1", None, None, None)]
    roots += [{"kind": "gabion.Cache", "version": 1, "tables": [table]} for table in tables] + [Person("Ada")]
    for root in roots:
        with gabion.Pile() as pile:
            pile.root = None if root is None else pile.put(root)
            pile.save(path)
        with pytest.raises(ValueError, match="is the file of a pile, but none"):
            cache.load(path)
    for limit, ttl in ((True, None), (-1, None), ("much", None), (None, float("nan")), (None, [])):
        with gabion.Pile() as pile:
            pile.root = pile.put({"kind": "gabion.Cache", "version": 1, "tables": [("t", limit, ttl, None)]})
            pile.save(path)
        with pytest.raises(ValueError, match="has a table that cannot be made"):
            cache.load(path)
    assert cache.tables() == []
    with gabion.Pile() as pile:
        pile.root = pile.put({"kind": "gabion.Cache", "version": 2, "sheets": "written in another way"})
        pile.save(path)
    with pytest.raises(gabion.FormatError, match="another version of gabion: its format is 2, not 1"):
        cache.load(path)
    with gabion.Pile() as pile:
        pile.root = pile.put({"kind": "gabion.Cache", "version": 1, "tables": []})
        entries: list[Any] = [
            5, "text", (), (0,), (1, "k", "v", None, None, None, None, 0), (0, 1j, "v", None, None, None, None, 0),
            (0, "k", "v", "soon", None, None, None, 0), (0, "k", "v", None, None, -5, None, 0),
            (0, "k", "v", None, None, None, None, 1000), (0, "good", "v", None, None, None, None, 0),
            (0, "far", "v", 1 << 63, (1 << 64) - 1, (1 << 64) - 1, (1 << 63) - 1, 0), (0, "over", "v", 1, 1, 1, 1, 0),
        ]  # fmt: skip
        pile.put_many(entries)
        pile.save(path)
    with pytest.warns(RuntimeWarning, match=r"load\(\): 9 entries"):
        assert cache.load(path) == 2
    assert sorted(cache) == ["far", "good"]
    assert cache.touch("far")
    assert cache["far"] == "v"
    cache.validate()
    with pytest.raises(TypeError):
        cache.save(5)  # type: ignore[arg-type]


def test_a_damaged_file(path: Path) -> None:
    cache = Cache("4 MiB")
    for number in range(5000):
        cache[number] = ["value", number]
    cache.save(path)
    whole = path.read_bytes()
    again = Cache("4 MiB")
    for damaged in (whole[: len(whole) // 2], b"", whole[:4096] + bytes(len(whole) - 4096), bytes(len(whole))):
        path.write_bytes(damaged)
        with pytest.raises((gabion.CorruptFileError, ValueError)):
            again.load(path)
    for at in range(65_536, len(whole), len(whole) // 10):
        path.write_bytes(whole[:at] + bytes(byte ^ 0xFF for byte in whole[at : at + 8]) + whole[at + 8 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(gabion.CorruptFileError, ValueError):
                assert again.load(path) <= 5000
        again.clear()
    again.validate()


def test_a_folder_that_cannot_be_written_to_and_a_full_disk(path: Path) -> None:
    cache = Cache("16 MiB")
    cache["k"] = 1
    with pytest.raises(FileNotFoundError):
        cache.save(path / "nowhere" / "cache.pile")
    with pytest.raises(OSError, match="directory"):
        cache.save(path.parent)
    cache.save(path)
    for number in range(5000):
        cache[number] = b"x" * 1000
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            cache.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert Cache("1 MiB").load(path) == 1
    assert os.listdir(path.parent) == [path.name]


def test_the_file_is_in_use(path: Path) -> None:
    cache = Cache("1 MiB")
    cache["k"] = 1
    cache.save(path)
    with gabion.Pile(path=path):
        for call in (cache.save, cache.load):
            with pytest.raises(BlockingIOError):
                call(path)
    with gabion.Pile(path=path, read_only=True) as pile:
        assert cache.save(path) == 1
        assert len(pile) == 2
    assert cache.load(path) == 0


def test_a_closed_cache(path: Path) -> None:
    cache = Cache("1 MiB")
    cache["k"] = 1
    cache.save(path)
    cache.close()
    for call in (cache.save, cache.load):
        with pytest.raises(gabion.ClosedError):
            call(path)

    class Closing(Cache):
        pass

    closing = Closing("1 MiB")
    for number in range(100):
        closing[number] = Moody()
    closing.save(path)
    assert Closing("1 MiB").load(path, types="*") == 100
    calls: list[int] = []

    def close() -> Moody:
        calls.append(1)
        if len(calls) == 50:
            closing.close()
        return Moody()

    globals()["moody"], real = close, moody
    try:
        with pytest.raises(gabion.ClosedError):
            closing.save(path)
        other, calls[:] = Cache("1 MiB"), []
        closing = other  # type: ignore[assignment]
        with pytest.raises(gabion.ClosedError):
            other.load(path, types="*")
    finally:
        globals()["moody"] = real
    assert Cache("1 MiB").load(path, types="*") == 100


def test_a_table_that_is_dropped_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, other = Cache("1 MiB"), Cache("1 MiB")
    dropping: Cache | None = None

    def drop() -> Moody:
        if dropping is not None:
            dropping.drop_table("t")
        return Moody()

    drop.__qualname__ = "moody"
    for number in range(10):
        cache.table("t")[number] = Moody()
    cache["k"] = 1
    cache.save(path)
    monkeypatch.setitem(globals(), "moody", drop)
    dropping = other
    assert other.load(path, types="*") == 1
    assert (other["k"], other.tables()) == (1, [])
    # Those that were put before refer to the function that there was.
    for number in range(10):
        cache.table("t")[number] = Moody()
    dropping = cache
    assert cache.save(path) <= 2
    assert cache.tables() == []


def test_tables_that_are_dropped_and_made_anew_beside_a_save(path: Path) -> None:
    cache, ended = Cache("4 MiB"), threading.Event()
    for number in range(100):
        cache.table(str(number))["k"] = 1

    def save() -> None:
        while not ended.is_set():
            cache.save(path)

    saving = threading.Thread(target=save)
    saving.start()
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            # Where it had been made by the save, it would have other settings.
            cache.table("t", max_bytes="64 KiB")["k"] = 1
            cache.drop_table("t")
    finally:
        ended.set()
        saving.join()
    assert "t" not in cache.tables()


def test_a_subclass(path: Path) -> None:
    class Sessions(Cache):
        max_bytes = ttl = stats = tables = None  # type: ignore[assignment]

        def __init__(self) -> None:
            super().__init__("1 MiB", ttl=60)

        def table(self, *_names: Any, **_settings: Any) -> Any:
            raise AssertionError

        put = get = items = table  # type: ignore[assignment]

    sessions = Sessions()
    sessions["ada"] = {"app": "shop"}
    Cache.table(sessions, "t")["k"] = 1
    assert sessions.save(path) == 2
    again = Sessions()
    assert again.load(path) == 2
    assert again["ada"] == {"app": "shop"}
    assert Cache.table(again, "t")["k"] == 1
    unready = Cache.__new__(Cache)
    for call in (unready.save, unready.load):
        with pytest.raises(RuntimeError, match="not set up"):
            call(path)


def test_a_large_cache_takes_a_second_or_two(path: Path) -> None:
    cache, again = Cache("64 MiB", ttl="1 h"), Cache("64 MiB", ttl="1 h")
    for number in range(100_000):
        cache["user", number] = {"name": f"Ada {number}", "number": number}
    begin = time.monotonic()
    assert cache.save(path) == 100_000
    assert again.load(path) == 100_000
    assert time.monotonic() - begin < 60  # a busy machine
    assert again["user", 77_777] == {"name": "Ada 77777", "number": 77_777}
    assert cache.stats().hits == 0


def test_tables_take_no_longer_than_their_entries(path: Path) -> None:
    cache = Cache("64 MiB")
    for number in range(50_000):
        cache[number] = number

    def lasts(call: Callable[[Any], int], count: int) -> float:
        begin = time.monotonic()
        assert call(path) == count
        return time.monotonic() - begin

    save, load = lasts(cache.save, 50_000), lasts(Cache("64 MiB").load, 50_000)
    for number in range(8000):
        cache.table(str(number))["k"] = number
    assert lasts(cache.save, 58_000) < 20 * save + 0.5
    again = Cache("64 MiB")
    assert lasts(again.load, 58_000) < 10 * load + 0.5
    assert again.table("7777")["k"] == 7777


@pytest.mark.parametrize("policy", ["default", "lru"])
def test_others_use_the_cache_meanwhile(path: Path, policy: Any) -> None:
    cache = Cache("2 MiB", policy=policy)
    for number in range(2000):
        cache.put(("stays", number), ["value", number], priority=100)
    done = threading.Event()

    def write(number: int) -> None:
        count = 0
        while not done.is_set():
            key, count = (number, count % 5000), count + 1
            cache[key] = [count, count]
            try:
                cache.table("t", max_bytes="256 KiB")[key] = [count, count]
            except gabion.ClosedError:  # dropped by the other one
                continue
            if count % 7 == 0:
                cache.discard((number, (count - 50) % 5000))
            if count % 3000 == 2999:
                cache.drop_table("t")

    def save() -> None:
        try:
            for _ in range(8):
                assert cache.save(path) >= 2000
                again = Cache("16 MiB")
                assert again.load(path) >= 2000
                assert sum(key[0] == "stays" for key in again) == 2000
                for key, value in again.items():
                    assert value == (["value", key[1]] if key[0] == "stays" else [value[0]] * 2)
        finally:
            done.set()

    run(save, partial(write, 1), partial(write, 2))
    cache.validate()


def test_other_threads_run_meanwhile(path: Path) -> None:
    cache = Cache("64 MiB")
    for number in range(50_000):
        cache[number] = {"number": number}
    done, longest = threading.Event(), [0.0]

    def watch() -> None:
        before = time.monotonic()
        while not done.is_set():
            now = time.monotonic()
            longest[0], before = max(longest[0], now - before), now
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.001)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        begin = time.monotonic()
        cache.save(path)
        took = time.monotonic() - begin
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert longest[0] < max(0.5 * took, 0.2)


def test_nothing_is_left_behind(path: Path, balance: None) -> None:
    with Cache("16 MiB") as cache:
        cache["large"] = b"x" * (3 << 20)
        cache.save(path)
        cache.clear()
        cache.load(path)
        assert cache.stats().entries == 1
