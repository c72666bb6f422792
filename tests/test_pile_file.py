"""Piles in files: what one process puts, the next one finds."""

import contextlib
import gc
import io
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from child_processes import in_child
from model import Plain, person
from patience import HANGS

import gabion


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "people.pile"


def run(source: str, *arguments: object, cwd: Path | None = None) -> str:
    """Runs a program of its own and returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)],
        check=False, capture_output=True, text=True, timeout=HANGS, cwd=cwd,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


VALUES = [
    None, True, 7, 1 << 90, -2.5, "text", "täxt €", b"bytes", (1, (2,)), [1, [2]], {"a": {"b": 1}}, {3, 4},
    b"x" * 2_000_000, ["long"] * 3000, bytearray(b"y" * 5000),
]  # fmt: skip


def test_another_process_finds_what_was_put(path: Path) -> None:
    with gabion.Pile(path=path) as pile:
        pointers = pile.put_many(VALUES)
        pile.root = pile.put(list(pointers))
        pile.validate()
    program = """
import sys, gabion
pile = gabion.Pile(path=sys.argv[1])
print([pile.get(pointer) for pointer in pile.get(pile.root)] == eval(sys.argv[2]))
pile.validate()
for pointer in pile.get(pile.root)[::2]:
    pile.replace(pointer, "another")
print(len(pile))
"""
    small = [value if not hasattr(value, "__len__") or len(value) < 100 else None for value in VALUES]
    with gabion.Pile(path=path) as pile:
        for pointer, value in zip(pointers, small, strict=True):
            pile.replace(pointer, value)
    # It ends without a close: what it did is there all the same.
    assert run(program, path, repr(small)) == f"True\n{len(VALUES) + 1}\n"
    with gabion.Pile(path=path) as pile:
        found = [pile.get(pointer) for pointer in pointers]
        assert found == ["another" if at % 2 == 0 else value for at, value in enumerate(small)]


def test_objects_of_own_classes_come_back_by_permission(path: Path, tmp_path: Path) -> None:
    module = tmp_path / "shop_of_files.py"
    module.write_text("""
from dataclasses import dataclass
from enum import Enum
class Kind(Enum):
    OLD = 1
@dataclass(slots=True)
class Person:
    name: str
    kind: Kind
""")
    put = """
import sys, gabion, shop_of_files as shop
with gabion.Pile(path=sys.argv[1], types=[shop]) as pile:
    pile.root = pile.put([shop.Person("Ada", shop.Kind.OLD)] * 2)
    print(pile.stats().types)
"""
    get = """
import sys, gabion
pile = gabion.Pile(path=sys.argv[1])
try:
    pile.get(pile.root)
except gabion.CodecError as error:
    print("shop_of_files" in sys.modules, "types=[shop_of_files.Person" in str(error))
pile.close()
import shop_of_files as shop
pile = gabion.Pile(path=sys.argv[1], types=[shop.Person, shop.Kind])
one, other = pile.get(pile.root)
print(one is other, one == shop.Person("Ada", shop.Kind.OLD))
"""
    for _ in range(2):
        assert run(put, path, cwd=tmp_path) == "2\n", "each class has one number, however often it is put anew"
    assert run(get, path, cwd=tmp_path) == "False True\nTrue True\n"


def test_what_was_put_is_there_when_the_process_is_killed(path: Path) -> None:
    program = """
import sys, gabion
pile, number = gabion.Pile(path=sys.argv[1]), 0
while True:
    number += 1
    pointer = pile.put({"number": number, "pad": "x" * (number % 3000)})
    print(pointer, number, flush=True)
    if number % 3 == 0:
        pile.replace(pointer, [number, number])
        print(pointer, -number, flush=True)
"""
    known: dict[int, int] = {}
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(300):
            pointer, number = process.stdout.readline().split()
            known[int(pointer)] = int(number)
        process.kill()
        for line in process.stdout.read().splitlines():
            if len(line.split()) == 2 and line.split()[1].lstrip("-").isdigit():
                known[int(line.split()[0])] = int(line.split()[1])
        process.stdout.close()
        process.wait()
        with gabion.Pile(path=path, read_only=True) as pile:
            pile.validate()
            # The last of each round may have been under way, and its line cut off.
            wrong = [
                pointer for pointer, number in known.items()
                if pile.get(pointer) not in ([abs(number)] * 2, {"number": abs(number), "pad": "x" * (number % 3000)})
            ]  # fmt: skip
            assert len(wrong) <= 1
            assert len(known) <= len(pile) <= len(known) + 4
        known = {pointer: number for pointer, number in known.items() if pointer not in wrong}
    gabion.Pile.check(path)


def test_a_file_is_open_to_write_once(path: Path) -> None:
    pile = gabion.Pile(path=path)
    pointer = pile.put("stone")
    for opens in (
        lambda: gabion.Pile(path=path),
        lambda: gabion.Pile(path=path, read_only=True),
        lambda: gabion.Pile.check(path),
    ):
        with pytest.raises(BlockingIOError, match=r"people\.pile: the file is open already"):
            opens()
    assert "BlockingIOError" in run(
        "import sys, gabion\ntry: gabion.Pile(path=sys.argv[1])\nexcept OSError as error: print(type(error))", path
    )
    pile.close()
    pile.close()
    with gabion.Pile(path=path) as again:
        assert again.get(pointer) == "stone"
        with pytest.raises(gabion.ClosedError, match="its objects are in its file"):
            pile.get(pointer)
    # One that is dropped lets its file go, too.
    pile = gabion.Pile(path=path)
    del pile
    gc.collect()
    gabion.Pile(path=path).close()


def test_a_file_goes_with_its_last_view(path: Path) -> None:
    pile = gabion.Pile(path=path)
    views = [pile.view(pile.put(data)) for data in (b"short", b"away" * 1000, b"run" * 1_000_000)]
    held = pile.view(pile.put(b"held"))
    removed = pile.put(b"gone")
    last = pile.view(removed)
    pile.remove(removed)
    pile.close()
    for view in [*views, held, last]:
        with pytest.raises(BlockingIOError):
            gabion.Pile(path=path)
        assert bytes(view) in (b"short", b"away" * 1000, b"run" * 1_000_000, b"held", b"gone")
        view.release()
    with gabion.Pile(path=path) as again:
        assert len(again) == 4


def refuses_changes(reader: gabion.Pile, pointer: int) -> None:
    changes: list[Callable[[], Any]] = [
        lambda: reader.put(1), lambda: reader.put_many([1]), lambda: reader.replace(pointer, 1),
        lambda: reader.remove(pointer), lambda: reader.discard(pointer), lambda: reader.pop(pointer),
        lambda: reader.remove_many([pointer]), reader.clear, reader.compact, lambda: setattr(reader, "root", None),
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(gabion.GabionError, match="read_only=True") as refused:
            change()
        # As a file says it that is open to read; and it goes through a pool of processes.
        assert isinstance(refused.value, io.UnsupportedOperation)
        assert (type(again := pickle.loads(pickle.dumps(refused.value))), again.args) == (
            type(refused.value),
            refused.value.args,
        )


def test_many_processes_read_one_file(path: Path) -> None:
    with gabion.Pile(path=path) as pile:
        pointers = pile.put_many(VALUES)
        pile.root = pointers[5]
    before = path.read_bytes()
    readers = [gabion.Pile(path=path, read_only=True) for _ in range(3)]
    for reader in readers:
        assert reader.read_only
        refuses_changes(reader, pointers[0])
        assert reader.get_many(pointers) == VALUES
        assert bytes(reader.view(pointers[7])) == b"bytes"
        assert len(reader) == len(list(reader)) == len(VALUES)
        reader.flush()
        reader.validate()
    program = "import sys, gabion; pile = gabion.Pile(path=sys.argv[1], read_only=True); print(pile.get(pile.root))"
    assert run(program, path) == "text\n"
    with pytest.raises(BlockingIOError):
        gabion.Pile(path=path)
    for reader in readers:
        reader.close()
        with pytest.raises(gabion.ClosedError):
            reader.put(1)
    assert path.read_bytes() == before
    with pytest.raises(FileNotFoundError):
        gabion.Pile(path=path.with_name("missing"), read_only=True)
    assert not path.with_name("missing").exists()


def test_what_is_no_pile_is_left_alone(path: Path) -> None:
    for content in (b"x", b"\x7fELF" + bytes(5000), bytes(13 << 20)):
        path.write_bytes(content)
        for opens in (lambda: gabion.Pile(path=path), lambda: gabion.Pile.check(path)):
            with pytest.raises(gabion.CorruptFileError, match=r"people\.pile: the file is no pile") as refused:
                opens()
            assert isinstance(refused.value, OSError)
        assert path.read_bytes() == content
    for folder in (path.parent, str(path.parent)):
        with pytest.raises(IsADirectoryError):
            gabion.Pile(path=folder)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        gabion.Pile(path=path.parent / "nowhere" / "x")
    for wrong in (7, b"x", 1.5, [path]):
        with pytest.raises(TypeError, match=r"path must be a str or an os\.PathLike, not"):
            gabion.Pile(path=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="null byte"):
        gabion.Pile(path="a\0b")
    with pytest.raises(TypeError, match=r"write path='people\.pile'"):
        gabion.Pile("people.pile")  # type: ignore[call-arg]
    for alone in ({"types": [int]}, {"read_only": True}, {"create": False}):
        with pytest.raises(ValueError, match="for a pile in a file: give its path"):
            gabion.Pile(**alone)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="types= takes"):
        gabion.Pile(path=path.with_name("new"), types=7)  # type: ignore[arg-type]


def test_damage_is_told_and_where(path: Path) -> None:
    with gabion.Pile(path=path) as pile:
        pile.put_many([person(i) for i in range(500)])
    stats = gabion.Pile.check(path)
    assert (stats.objects, stats.types) == (500, pile_types(path))
    whole = path.read_bytes()
    for at, length in ((12 << 20, 8), (16 << 20, 8), ((16 << 20) + 8 * 64, 8)):
        changed = bytearray(whole)
        changed[at : at + length] = b"\xff" * length
        path.write_bytes(changed)
        for opens in (lambda: gabion.Pile(path=path), lambda: gabion.Pile.check(path)):
            with pytest.raises(gabion.CorruptFileError, match=r"people\.pile: the file is damaged at"):
                opens()
    path.write_bytes(whole[: len(whole) - (1 << 20)])
    with pytest.raises(gabion.CorruptFileError, match="ends within a block"):
        gabion.Pile(path=path)
    path.write_bytes(whole)
    assert gabion.Pile.check(path).as_dict() == stats.as_dict()


def test_a_file_of_another_format_is_told_from_a_damaged_one(path: Path) -> None:
    with gabion.Pile(path=path) as pile:
        pile.put(person(1))
    other = bytearray(path.read_bytes())
    other[8:12] = (99).to_bytes(4, "little")
    path.write_bytes(other)
    calls: list[Callable[[], object]] = [
        lambda: gabion.Pile(path=path),
        lambda: gabion.Pile(path=path, read_only=True),
        lambda: gabion.Pile.check(path),
        lambda: gabion.Pile().save(path),
        lambda: gabion.Cache("1 MiB").load(path),
        lambda: gabion.Cache("1 MiB").save(path),
    ]
    for call in calls:
        with pytest.raises(gabion.FormatError, match=r"people\.pile: the file has format 99, .*version that made it"):
            call()
    assert issubclass(gabion.FormatError, OSError)
    assert not issubclass(gabion.FormatError, gabion.CorruptFileError)
    assert path.read_bytes() == other, "a file of another version is left as it is"


def pile_types(path: Path) -> int:
    with gabion.Pile(path=path, read_only=True) as pile:
        return pile.stats().types


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_changes_nothing_in_the_parents_file(path: Path) -> None:
    pile = gabion.Pile(path=path)
    pointer = pile.put("stone")
    view = pile.view(pile.put(b"seen" * 500))

    def child() -> None:
        for call in (
            lambda: pile.get(pointer), lambda: pile.put(1), lambda: pile.remove(pointer), lambda: len(pile), pile.flush,
            pile.clear, lambda: list(pile),
        ):  # fmt: skip
            with pytest.raises(gabion.ClosedError, match="the process which forked this one"):
                call()
        assert bytes(view) == b"seen" * 500
        assert "closed" in repr(pile)
        with pytest.raises(BlockingIOError):
            gabion.Pile(path=path)
        view.release()
        pile.close()
        gc.collect()
        with pytest.raises(BlockingIOError):
            gabion.Pile(path=path)

    for _ in range(3):
        in_child(child)
        pile.replace(pointer, "stone")
        assert (pile.get(pointer), bytes(view)) == ("stone", b"seen" * 500)
        pile.validate()
    view.release()
    # A child that has the file, too, keeps nobody from it.
    read_end, write_end = os.pipe()
    if (waiting := os.fork()) == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    pile.close()
    gabion.Pile(path=path).close()
    os.close(write_end)
    os.close(read_end)
    os.waitpid(waiting, 0)

    def opener() -> None:
        with gabion.Pile(path=path) as own:
            own.replace(pointer, "child's")

    in_child(opener)
    with gabion.Pile(path=path) as pile:
        assert pile.get(pointer) == "child's"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_forked_child_reads_on_what_is_open_for_reading(path: Path) -> None:
    with gabion.Pile(path=path) as pile:
        pointers = pile.put_many([b"small", b"chunk" * 9_000, b"large" * 900_000])
    pile = gabion.Pile(path=path, read_only=True)

    def child() -> None:
        assert [bytes(pile.get(pointer))[:5] for pointer in pointers] == [b"small", b"chunk", b"large"]
        pile.validate()
        pile.close()
        assert pile.closed
        with pytest.raises(BlockingIOError):  # The parent reads on.
            gabion.Pile(path=path)

    for _ in range(2):
        in_child(child)
        assert pile.get(pointers[0]) == b"small"
    read_end, write_end = os.pipe()
    if (reader := os.fork()) == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0 if pile.get(pointers[2]) == b"large" * 900_000 else 1)
    os.close(read_end)
    pile.close()
    with pytest.raises(BlockingIOError):  # The child does.
        gabion.Pile(path=path)
    os.close(write_end)
    assert os.waitpid(reader, 0)[1] == 0
    gabion.Pile(path=path).close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the child keeps the lock elsewhere")
def test_a_child_does_not_keep_the_file_of_a_parent_that_is_gone(path: Path) -> None:
    program = """
import os, sys, gabion
pile = gabion.Pile(path=sys.argv[1])
pile.put("stone")
begun, begins = os.pipe()
if (child := os.fork()) == 0:
    os.write(begins, b"x")
    sys.stdin.read()
    os._exit(0)
os.read(begun, 1)
os._exit(0)
"""
    read_end, write_end = os.pipe()
    try:
        subprocess.run([sys.executable, "-c", program, str(path)], stdin=read_end, check=True)
        with gabion.Pile(path=path) as pile:
            assert len(pile) == 1
    finally:
        os.close(write_end)
        os.close(read_end)


def test_a_read_that_was_under_way_lets_the_file_go(path: Path) -> None:
    pile = gabion.Pile(path=path, types=[Slow])
    pointer = pile.put([Slow(), b"large" * 500_000])
    reader = threading.Thread(target=pile.get, args=(pointer,))
    reader.start()
    Slow.begun.wait()
    pile.close()
    Slow.go.set()
    reader.join()
    gabion.Pile(path=path).close()
    pile.close()


class Slow:
    begun, go = threading.Event(), threading.Event()

    def __getstate__(self) -> int:
        return 1

    def __setstate__(self, state: int) -> None:
        self.begun.set()
        self.go.wait(30)


def test_a_file_that_is_not_to_be_made_has_to_be_there(path: Path) -> None:
    with pytest.raises(FileNotFoundError) as told:
        gabion.Pile(path=path, create=False)
    assert told.value.filename == path
    assert not path.exists()
    path.touch()  # somebody's empty file is no pile yet
    with pytest.raises(gabion.CorruptFileError):
        gabion.Pile(path=path, create=False)
    assert path.stat().st_size == 0
    with gabion.Pile(path=path, create=True) as pile:
        pile.root = pile.put(1)
    with gabion.Pile(path=path, create=False) as pile:
        assert pile.get(pile.root) == 1
        pile.replace(pile.root, 2)
    with pytest.raises(TypeError, match="create"):
        gabion.Pile(path=path, create="no")  # type: ignore[arg-type]


def test_a_call_that_is_refused_makes_no_file(path: Path) -> None:
    for wrong in ({"types": 5}, {"types": "Person"}, {"read_only": "no"}, {"read_only": 2}, {"max_bytes": -1}):
        with pytest.raises((TypeError, ValueError)):
            gabion.Pile(path=path, **wrong)  # type: ignore[arg-type]
        assert not path.exists()
    with pytest.raises(TypeError, match="types, read_only and create"):
        gabion.Pile(path=path, kinds=[])  # type: ignore[call-arg]
    gabion.Pile(path=path, read_only=0).close()  # type: ignore[arg-type]


def test_a_directory_is_none(path: Path) -> None:
    for read_only in (False, True):
        with pytest.raises(IsADirectoryError):
            gabion.Pile(path=path.parent, read_only=read_only)


def test_a_file_that_may_not_grow_loses_nothing(path: Path) -> None:
    program = """
import resource, sys, gabion
pile = gabion.Pile(path=sys.argv[1])
first = pile.put("first")
resource.setrlimit(resource.RLIMIT_FSIZE, (30 << 20, resource.RLIM_INFINITY))
pointers, kinds = [], set()
for size in (100, 5_000, 3_000_000):
    for _ in range(100_000):
        try:
            pointers.append(pile.put(bytes(size)))
        except OSError as error:
            kinds.add((type(error).__name__, "free room on the disk" in str(error)))
            break
class New:
    pass
print(kinds, pile.get(first), all(not any(pile.get(pointer)) for pointer in pointers[::997]))
for pointer in pointers[:3000]:
    pile.remove(pointer)
pile.replace(first, "still here")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len(pile.get(pile.put(bytes(3_000_000)))), pile.get(first))
pile.validate()
"""
    assert run(program, path) == "{('OSError', True)} first True\n3000000 still here\n"
    gabion.Pile.check(path)


def test_threads_that_write_one_file(path: Path) -> None:
    with gabion.Pile(path=path) as pile:
        kept: list[dict[int, object]] = [{} for _ in range(4)]

        def work(own: dict[int, object], seed: int) -> None:
            for at in range(1500):
                value = [seed, at, "x" * (at * seed % 2500)]
                pointer = pile.put(value)
                own[pointer] = value
                if at % 3 == 1:
                    own[pointer] = {"at": at, seed: "y" * (at % 3000)}
                    pile.replace(pointer, own[pointer])
                elif at % 3 == 2:
                    pile.remove(pointer)
                    del own[pointer]

        threads = [threading.Thread(target=work, args=(own, seed)) for seed, own in enumerate(kept)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pile.validate()
    with gabion.Pile(path=path) as pile:
        assert {pointer: pile.get(pointer) for pointer in pile} == {
            pointer: value for own in kept for pointer, value in own.items()
        }
        pile.clear()
        assert pile.compact() >= 0
        assert not list(pile)
    assert gabion.Pile.check(path).objects == 0


def test_a_pile_in_memory_has_no_file(pile: gabion.Pile) -> None:
    assert (pile.path, pile.read_only, pile.root) == (None, False, None)
    with pytest.raises(ValueError, match="lies in memory alone"):
        pile.flush()
    pile.root = pointer = pile.put("first")
    assert pile.root == pointer
    for wrong in (pointer + 1, 7, -1):
        with pytest.raises(gabion.PointerError):
            pile.root = wrong
    with pytest.raises(TypeError):
        pile.root = "x"  # type: ignore[assignment]
    assert pile.root == pointer
    pile.root = None
    assert pile.root is None


def test_a_limit_counts_what_is_in_the_file(path: Path) -> None:
    with gabion.Pile(path=path) as pile:
        pointers = pile.put_many(bytes(50_000) for _ in range(100))
    with gabion.Pile(path=path, max_bytes="1 MiB") as pile:
        assert pile.stats().reserved_bytes > 4 << 20
        assert pile.get(pointers[7]) == bytes(50_000)
        with pytest.raises(gabion.LimitError, match="max_bytes=1048576"):
            pile.put(bytes(50_000_000))
        pile.max_bytes = "1 GiB"
        pile.put(bytes(5_000_000))


class Holder:
    def __init__(self, pile: gabion.Pile) -> None:
        self.pile, self.own = pile, self


def test_a_pile_in_a_circle_lets_its_file_go(path: Path) -> None:
    holder = Holder(gabion.Pile(path=path, types={"kept.Name": Plain}))
    holder.pile.put(Plain())
    del holder
    gc.collect()
    gabion.Pile(path=path).close()


def test_what_a_program_says_of_a_pile_in_a_file(path: Path) -> None:
    pile = gabion.Pile(path=path)
    taken = pile.stats().reserved_bytes
    assert repr(pile) == f"<gabion.Pile of 0 objects, 0 bytes ({taken} reserved) in {str(path)!r}>"
    assert pile.path == str(path)
    with pytest.raises(TypeError, match="open its file in the other process"):
        pile.__reduce_ex__(4)
    pile.close()
    assert repr(pile) == f"<gabion.Pile in {str(path)!r}, closed>"


@pytest.fixture(autouse=True)
def nothing_is_left_open(path: Path) -> Iterator[None]:
    yield
    gc.collect()
    if path.exists() and path.stat().st_size > 100:
        with contextlib.suppress(gabion.CorruptFileError, gabion.FormatError):
            gabion.Pile(path=path).close()
