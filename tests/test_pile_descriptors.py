"""Piles in files where the program closes descriptors that are not its own, as one does that becomes a daemon."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANGS

import gabion

BEGIN = """
import errno, fcntl, os, sys
import gabion
folder = sys.argv[1]
pile = gabion.Pile(path=folder + "/orders.pile")
pointers = list(pile.put_many("t" * 900 for _ in range(10_000)))
os.closerange(3, 1024)
# It gets the pile's number.
theirs = open(folder + "/customers.db", "w+b")
theirs.write(b"CUSTOMER" * 1000)
theirs.flush()
fcntl.flock(theirs, fcntl.LOCK_EX)
def is_left_alone():
    again = os.open(folder + "/customers.db", os.O_RDWR)
    try:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return os.fstat(theirs.fileno()).st_size == 8000 and os.read(again, 9000) == b"CUSTOMER" * 1000
    finally:
        os.close(again)
def refused(call):
    try:
        call()
    except OSError as error:
        assert error.errno == errno.EBADF and "closed the descriptor" in str(error), error
        return True
    return False
"""


def run(rest: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + rest, str(folder)], check=False, capture_output=True, text=True, timeout=HANGS
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_another_file_that_got_the_number_is_left_alone(tmp_path: Path) -> None:
    rest = """
print(refused(lambda: pile.put_many("t" * 900 for _ in range(20_000))), is_left_alone())
print(refused(lambda: pile.put(b"x" * 5_000_000)), is_left_alone())
pile.remove(pointers.pop())
print(pile.get(pointers[9_000]) == "t" * 900, is_left_alone())
print(refused(pile.flush), is_left_alone())
pile.root = pointers[9_000]
print(refused(pile.close), pile.closed, is_left_alone())
pile.close()
with gabion.Pile(path=folder + "/orders.pile") as again:
    print(again.get(again.root) == "t" * 900)
del pile, again
print(is_left_alone())
"""
    told = "True True\nTrue True\nTrue True\nTrue True\nTrue True True\nTrue\nTrue\n"
    assert run(rest, tmp_path) == told


def test_a_forked_child_leaves_it_alone(tmp_path: Path) -> None:
    rest = """
child = os.fork()
if child == 0:
    theirs.seek(0)
    whole = theirs.read() == b"CUSTOMER" * 1000 and is_left_alone()
    try:
        pile.put(1)
    except gabion.ClosedError:
        del pile
        can_write = fcntl.fcntl(theirs, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
        os._exit(0 if whole and is_left_alone() and can_write else 1)
print(os.waitpid(child, 0)[1], is_left_alone())
"""
    assert run(rest, tmp_path) == "0 True\n"


def numbers_of(path: Path) -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            leads_to = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if leads_to.startswith(str(path)):
            found.append(name)
    return found


@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_pile_has_no_descriptor(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "x.pile"
    gabion.Pile(path=path).close()
    pile = gabion.Pile(path=path, read_only=read_only)
    assert len(numbers_of(path)) == 1
    pile.close()
    assert not numbers_of(path)
    pile.close()
    with pytest.raises(gabion.ClosedError):
        pile.flush()


def test_the_last_view_closes_it(tmp_path: Path) -> None:
    path = tmp_path / "x.pile"
    pile = gabion.Pile(path=path)
    view = pile.view(pile.put(b"x" * 100))
    pile.close()
    assert len(numbers_of(path)) == 1
    view.release()
    assert not numbers_of(path)
