"""A pile's file that is open already: the error says by whom."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gabion


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "people.pile"


def refused(path: Path | str, **how: bool) -> str:
    with pytest.raises(BlockingIOError) as raised:
        gabion.Pile(path=path, **how)
    return str(raised.value)


def test_the_pile_of_this_process_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pile = gabion.Pile(path=path, name="people")
    link = path.with_name("link.pile")
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)
    for place in (path, link, "people.pile", path.parent / "." / "people.pile"):
        for read_only in (False, True):
            text = refused(place, read_only=read_only)
            assert f"open already in this process, as gabion.Pile 'people' in '{path}'" in text
            assert "close() it first" in text
    with pytest.raises(BlockingIOError, match=r"open already in this process, as gabion\.Pile 'people' in"):
        gabion.Pile().save(path)
    with pytest.raises(BlockingIOError, match="open already in this process"):
        gabion.Pile.check(path)
    del pile
    gc.collect()
    gabion.Pile(path=path).close()


def test_one_that_reads_is_named_too(path: Path) -> None:
    gabion.Pile(path=path).close()
    with gabion.Pile(path=path, read_only=True):
        assert f"open already in this process, as gabion.Pile in '{path}'" in refused(path)


def test_another_process_is_told_apart(path: Path) -> None:
    with gabion.Pile(path=path):
        code = "import sys, gabion\ntry: gabion.Pile(path=sys.argv[1])\nexcept BlockingIOError as error: print(error)"
        told = subprocess.run(
            [sys.executable, "-c", code, path], check=True, capture_output=True, text=True, timeout=60
        ).stdout
        assert "open already, in another process" in told


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_of_its_parent(path: Path) -> None:
    with gabion.Pile(path=path):
        child = os.fork()
        if child == 0:
            told = ""
            try:
                gabion.Pile(path=path)
            except BlockingIOError as error:
                told = str(error)
            os._exit(0 if "open already, in another process" in told else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_views_of_a_closed_pile_are_told(path: Path) -> None:
    pile = gabion.Pile(path=path)
    view = pile.view(pile.put(b"x" * 3_000_000))
    pile.close()
    assert "in views of a pile that this one has closed" in refused(path)
    view.release()
    gabion.Pile(path=path).close()


def test_what_holds_a_pile_can_be_found(path: Path) -> None:
    def cell() -> None:
        pile = gabion.Pile(path=path)
        pile.get(5)

    with pytest.raises(gabion.PointerError) as kept:
        cell()
    assert "in this process" in refused(path)
    for found in gc.get_objects():
        if type(found) is gabion.Pile and found.path == str(path):
            found.close()
    gabion.Pile(path=path).close()
    assert kept


def test_a_pile_saved_to_its_own_file_says_so(path: Path) -> None:
    own = r"open already, and is this pile's own.*flush\(\)"
    with gabion.Pile(path=path) as pile, pytest.raises(BlockingIOError, match=own):
        pile.save(path)
