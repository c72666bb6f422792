"""Piles that are saved: the file has all that the pile had at one moment, under the same pointers."""

import contextlib
import enum
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from child_processes import in_child
from many_threads import run
from model import Plain, Slotted, person
from patience import HANGS

import gabion


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "saved.pile"


class Colour(enum.Enum):
    RED = 1


class Item(NamedTuple):
    name: str
    price: float


OWN = [Plain, Slotted, Colour, Item, type(person(1))]

VALUES: list[Any] = [
    None, 7, 1 << 90, "täxt €", b"bytes", [1, (2, {3})], {"a": {"b": 1}}, b"x" * 2_000_000, ["long"] * 3000,
    bytearray(b"y" * 5000), person(3), Plain(a=1, b=[2]), Plain(b=1), Slotted(4, "four"), Colour.RED, Item("pen", 1.5),
    Slotted, len, array("d", [1.5] * 500), {number: str(number) for number in range(5000)},
]  # fmt: skip


@pytest.fixture(params=["in memory", "in a file"])
def pile(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    in_file = request.param == "in a file"
    with gabion.Pile(path=tmp_path / "own.pile") if in_file else gabion.Pile() as pile:
        yield pile


def test_what_was_in_the_pile_is_in_the_file(pile: gabion.Pile, path: Path) -> None:
    pointers = pile.put_many(VALUES)
    gone = pile.put("gone")
    grown = pile.put("short", reserve=100)
    pile.replace(grown, "long" * 1000)
    pile.remove(gone)
    table = np.arange(300_000.0)
    image = pile.put(table)
    pile.root = pile.put(list(pointers))
    assert pile.save(path) is None  # type: ignore[func-returns-value]
    later = pile.put("later")
    pile.replace(pointers[0], "changed")
    with gabion.Pile(path=path, types=[*OWN, len]) as saved:
        assert [saved.get(pointer) for pointer in pointers] == VALUES
        assert list(pointers) == saved.get(saved.root)
        assert saved.get(grown) == "long" * 1000
        assert np.array_equal(saved.get(image), table)
        assert len(saved) == len(pile) - 1
        assert gone not in saved
        assert later not in saved
        saved.validate()
        saved.replace(pointers[1], VALUES[::-1])
        again = saved.put(VALUES[10:16])
    with gabion.Pile(path=path, types="*") as saved:
        assert saved.get(pointers[1]) == VALUES[::-1]
        assert saved.get(again) == VALUES[10:16]
    pile.save(str(path))
    with gabion.Pile(path=path, read_only=True) as saved:
        assert saved.get(pointers[0]) == "changed"
        assert saved.get(later) == "later"


def test_another_process_opens_it(pile: gabion.Pile, path: Path, script: Callable[..., str]) -> None:
    pile.root = pile.put({"people": [Slotted(1, "Ada")] * 2})
    pile.save(path)
    program = f"""
        import sys, gabion
        class Person:
            __slots__ = ("number", "first", "note")
        with gabion.Pile(path={str(path)!r}, types={{"model.Slotted": Person}}) as pile:
            one, other = pile.get(pile.root)["people"]
            print(one is other, one.first, type(one).__name__, "model" in sys.modules)
    """
    assert script(program) == "True Ada Person False\n"


def test_a_file_of_which_classes_are_not_known_is_saved(path: Path, tmp_path: Path) -> None:
    with gabion.Pile() as pile:
        pile.root = pile.put([Plain(a=1), Item("pen", 2.0)])
        pile.save(path)
    copy = tmp_path / "copy.pile"
    with gabion.Pile(path=path) as unknown:
        more = unknown.put(Slotted(5))
        unknown.save(copy)
    with gabion.Pile(path=copy, types=OWN) as saved:
        assert saved.get(saved.root) == [Plain(a=1), Item("pen", 2.0)]
        assert saved.get(more) == Slotted(5)


def test_a_class_that_is_defined_anew_is_there_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def defined(*names: str) -> type:
        made = dataclass(type("Anew", (), {"__annotations__": dict.fromkeys(names, int), "__module__": __name__}))
        monkeypatch.setitem(globals(), "Anew", made)
        return made

    pile = gabion.Pile()
    old = pile.put(defined("a", "b")(1, 2))
    new = pile.put(defined("b")(3))
    pile.save(path)
    with gabion.Pile(path=path, types=[globals()["Anew"]]) as saved:
        assert (saved.get(old).b, saved.get(new).b) == (2, 3)


def test_what_cannot_be_saved_to_says_why(pile: gabion.Pile, path: Path, tmp_path: Path) -> None:
    pile.put("stone")
    (tmp_path / "notes.txt").write_text("notes")
    cases: list[tuple[Any, type[Exception], str]] = [
        (5, TypeError, "path must be a str or an os.PathLike, not int"),
        (tmp_path, IsADirectoryError, str(tmp_path)),
        (tmp_path / "no" / "such", FileNotFoundError, "such"),
        (tmp_path / "notes.txt", gabion.CorruptFileError, "no pile of gabion's, and is left as it is"),
        ("/dev/null", gabion.CorruptFileError, "no pile of gabion's"),
        ("a\0b", ValueError, "null"),
    ]
    for place, error, text in cases:
        with pytest.raises(error, match=text):
            pile.save(place)
    with gabion.Pile(path=path) as other, pytest.raises(BlockingIOError, match="open already"):
        other.put("kept")
        pile.save(path)
    if pile.path is not None:
        with pytest.raises(BlockingIOError, match="open already"):
            pile.save(pile.path)
    assert (tmp_path / "notes.txt").read_text() == "notes"
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["notes.txt", "saved.pile", *([] if pile.path is None else ["own.pile"])]
    )
    pile.close()
    with pytest.raises(gabion.ClosedError):
        pile.save(path)


def test_bad_names_are_refused_at_once(pile: gabion.Pile, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pile.save("")
    with pytest.raises(IsADirectoryError):
        pile.save(f"{tmp_path}/new/")


def test_a_path_leads_where_it_led_at_the_beginning(tmp_path: Path, script: Callable[..., str]) -> None:
    program = f"""
        import os, threading, gabion
        os.chdir({str(tmp_path)!r})
        for name in "ab":
            os.mkdir(name)
        open("b/x.pile", "w").write("no pile")
        pile = gabion.Pile()
        pile.put_many(b"x" * 1000 for _ in range(100_000))
        os.chdir("a")
        thread = threading.Thread(target=pile.save, args=("x.pile",))
        thread.start()
        while thread.is_alive() and not os.listdir("."):
            pass
        os.chdir("../b")
        thread.join()
        print(os.listdir("../a"), open("x.pile").read())
    """
    assert script(program) == "['x.pile'] no pile\n"


def test_too_many_open_files_are_the_systems_error(tmp_path: Path, script: Callable[..., str]) -> None:
    program = f"""
        import errno, os, resource, gabion
        pile = gabion.Pile()
        pile.put("stone")
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
        try:
            pile.save({str(tmp_path / "saved")!r})
        except OSError as error:
            print(error.errno == errno.EMFILE, error.filename)
    """
    assert script(program) == f"True {tmp_path / 'saved'}\n"


def test_a_new_file_is_its_users_alone(path: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with gabion.Pile(path=tmp_path / "filed") as filed:
            filed.save(path)
        gabion.Cache("1 MiB").save(tmp_path / "cache")
        modes = {stat.S_IMODE(one.stat().st_mode) for one in (path, tmp_path / "filed", tmp_path / "cache")}
        assert modes == {0o600}
        os.chmod(tmp_path / "cache", 0o644)
        os.chmod(tmp_path / "filed", 0o644)
        gabion.Cache("1 MiB").save(tmp_path / "cache")
        gabion.Pile(path=tmp_path / "filed").close()
        modes = {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "filed", tmp_path / "cache")}
        assert modes == {0o644}
    finally:
        os.umask(before)


def test_who_reads_the_file_before_reads_on(pile: gabion.Pile, path: Path) -> None:
    ptr = pile.put("first")
    pile.save(path)
    os.chmod(path, 0o640)
    with gabion.Pile(path=path, read_only=True) as reader:
        pile.replace(ptr, "second")
        pile.save(path)
        assert reader.get(ptr) == "first"
        with gabion.Pile(path=path, read_only=True) as newer:
            assert newer.get(ptr) == "second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640, "the mode is handed down"


def list_of_rights() -> bytes:
    """An ACL: user 4242 may read, the file's group may do nothing."""
    entries = [(1, 6, -1), (2, 4, 4242), (4, 0, -1), (16, 4, -1), (32, 0, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


def test_the_rights_of_a_list_are_not_given_to_a_group(pile: gabion.Pile, path: Path, tmp_path: Path) -> None:
    """The mode shows the most that anybody on the list may where the group's rights stand else."""
    picture = tmp_path / "picture.png"
    for file, save in ((path, pile.save), (picture, gabion.Image.new("L", (5, 4)).save)):
        save(file)
        file.chmod(0o600)
        try:
            os.setxattr(file, "system.posix_acl_access", list_of_rights())
        except OSError:
            pytest.skip("the disk knows no such lists")
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        save(file)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser makes files of groups that their users are not in")
def test_another_group_may_only_do_what_all_others_may(pile: gabion.Pile) -> None:
    """A user's file of a group that the user is not in: the new one has the user's own group."""
    folder = Path(tempfile.mkdtemp())
    try:
        os.chown(folder, 65534, -1)
        for name, save in (("pile", pile.save), ("picture.png", gabion.Image.new("L", (5, 4)).save)):
            for before, after in ((0o640, 0o600), (0o664, 0o644), (0o675, 0o655), (0o604, 0o604)):
                file = folder / name
                save(file)
                os.chown(file, 65534, 4242)
                file.chmod(before)
                os.seteuid(65534)
                try:
                    save(file)
                finally:
                    os.seteuid(0)
                about = file.stat()
                assert (about.st_uid, about.st_gid != 4242) == (65534, True)
                assert oct(stat.S_IMODE(about.st_mode)) == oct(after), name
                # The superuser may give it to the group, which has its rights then.
                os.chown(file, 65534, 4242)
                file.chmod(before)
                save(file)
                assert (file.stat().st_gid, stat.S_IMODE(file.stat().st_mode)) == (4242, before)
                file.unlink()
    finally:
        shutil.rmtree(folder)


def test_threads_go_on_while_it_is_saved(pile: gabion.Pile, path: Path) -> None:
    kept = pile.put_many(range(20_000))
    pairs = [(pile.put([0]), pile.put([0])) for _ in range(2)]
    done = threading.Event()

    def write(pair: tuple[int, int]) -> None:
        count = 0
        while not done.is_set():
            count += 1
            for ptr in pair:
                pile.replace(ptr, [count] * (count % 300 + 1))
            # Classes that nobody has met before: their numbers are in the file whenever an object of them is.
            name = f"a{count % 2000}"
            other = pile.put([Plain(**{name: count}), b"x" * (2_000_000 if count % 200 == 0 else 10)])
            assert getattr(pile.get(other)[0], name) == count
            if count % 3:
                pile.remove(other)

    def save() -> None:
        try:
            for _ in range(6):
                pile.save(path)
                with gabion.Pile(path=path, types=[Plain]) as saved:
                    saved.validate()
                    assert saved.get_many(kept) == list(range(20_000))
                    for first, second in pairs:
                        one, two = saved.get(first), saved.get(second)
                        assert 0 <= one[0] - two[0] <= 1, "as it was at one moment"
                    assert all(saved.get(ptr) is not None for ptr in saved)
        finally:
            done.set()

    run(save, *(partial(write, pair) for pair in pairs))


def test_a_pile_that_is_closed_meanwhile_is_saved_whole_or_not(path: Path, tmp_path: Path) -> None:
    for attempt in range(20):
        pile = gabion.Pile() if attempt % 2 else gabion.Pile(path=tmp_path / f"own{attempt}.pile")
        pointers = pile.put_many(["x" * 50] * 20_000)
        saved: list[bool] = []

        def save(pile: gabion.Pile = pile, saved: list[bool] = saved) -> None:
            with contextlib.suppress(gabion.ClosedError):
                pile.save(path)
                saved.append(True)

        path.unlink(missing_ok=True)
        run(save, pile.close)
        assert path.exists() == bool(saved)
        if saved:
            with gabion.Pile(path=path) as whole:
                assert whole.get_many(pointers) == ["x" * 50] * 20_000


def test_a_forked_child_saves_what_is_its_own(path: Path, tmp_path: Path) -> None:
    memory, own = gabion.Pile(), gabion.Pile(path=tmp_path / "own.pile")
    ptr, other = memory.put("stone"), own.put("parent's")

    def child() -> None:
        memory.save(path)
        with pytest.raises(gabion.ClosedError, match="forked"):
            own.save(path)

    in_child(child)
    with gabion.Pile(path=path) as saved:
        assert saved.get(ptr) == "stone"
    own.save(path)
    with gabion.Pile(path=path) as saved:
        assert saved.get(other) == "parent's"
    own.close()


def test_a_save_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.mkdir()
    try:
        os.close(os.open(probe, os.O_RDWR | os.O_TMPFILE))
    except (OSError, AttributeError):
        pytest.skip("this disk knows no files without a name")
    source = """
import gabion, sys
pile = gabion.Pile()
pile.put_many(b"x" * 1000 for _ in range(100_000))
print("begins", flush=True)
while True:
    pile.save(sys.argv[1])
"""
    for _ in range(5):
        path = tmp_path / "saved.pile"
        process = subprocess.Popen([sys.executable, "-c", source, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05)
        process.kill()
        process.wait(HANGS)
        process.stdout.close()
        assert {name.name for name in tmp_path.iterdir()} <= {"probe", "saved.pile"}
