"""`gabion.monitor` where the program closes descriptors that are not its own, as one does that becomes a daemon."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import HANGS

from gabion import monitor

BEGIN = """
import os, socket, sys, threading
import gabion.monitor
said = sys.argv[1]
where = gabion.monitor.start(None if said == "here" else said)
def strangers():
    # Sockets that listen, one of which gets the number of the monitor's.
    os.closerange(3, 64)
    made = []
    for _ in range(8):
        made.append(socket.create_server(("127.0.0.1", 0)))
    return made
def are_whole(made):
    return all(os.fstat(one.fileno()) and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) for one in made)
"""


def run(rest: str, said: str, folder: Path) -> str:
    done = subprocess.run(
        # Python 3.12 and later warn of forks beside threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BEGIN + rest, said],
        check=False, capture_output=True, text=True, timeout=HANGS,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder), "GABION_MONITOR": "0"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


both = pytest.mark.parametrize("said", ["here", "127.0.0.1:0"])


@both
def test_what_got_the_number_is_not_closed(said: str, tmp_path: Path) -> None:
    rest = """
made = strangers()
gabion.monitor.stop()
assert are_whole(made)
assert not [one for one in threading.enumerate() if one.name == "gabion-monitor"]
print(gabion.monitor.start() != where)
gabion.monitor.stop()
assert are_whole(made)
"""
    assert run(rest, said, tmp_path) == ("True\n" if said != "here" else "False\n")


def test_a_number_that_is_free_is_no_error(tmp_path: Path) -> None:
    rest = """
os.closerange(3, 64)
print(gabion.monitor.start() == where)
"""
    assert run(rest, "here", tmp_path) == "True\n"


@both
def test_nobody_is_answered_who_asks_another(said: str, tmp_path: Path) -> None:
    rest = """
import time
made = strangers()
def ask(to):
    with socket.socket(socket.AF_UNIX if isinstance(to, str) else socket.AF_INET) as asking:
        asking.settimeout(0.5)
        asking.connect(to)
        asking.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        try:
            return asking.recv(100)
        except TimeoutError:
            return b"in the queue"
# Its thread waits at what it had opened, until somebody comes.
try:
    ask(where if where[0] == "/" else gabion.monitor.split_address(where))
except OSError:
    pass
for one in made:
    for _ in range(2):
        assert ask(one.getsockname()) == b"in the queue"
assert are_whole(made)
print("done")
"""
    assert run(rest, said, tmp_path) == "done\n"


@both
def test_a_forked_child_does_not_close_what_got_the_number(said: str, tmp_path: Path) -> None:
    rest = """
made = strangers()
child = os.fork()
if child == 0:
    os._exit(0 if are_whole(made) else 1)
print(os.waitpid(child, 0)[1], are_whole(made))
"""
    assert run(rest, said, tmp_path) == "0 True\n"


def test_who_says_nothing_keeps_nobody_waiting() -> None:
    where = monitor.split_address(monitor.start("127.0.0.1:0"))
    with contextlib.ExitStack() as all_of_them:
        all_of_them.callback(monitor.stop)
        for _ in range(5):
            all_of_them.enter_context(socket.create_connection(where))
        began = time.monotonic()
        with socket.create_connection(where, timeout=HANGS) as asking:
            asking.sendall(b"HEAD /metrics HTTP/1.0\r\n\r\n")
            assert asking.recv(100).startswith(b"HTTP/1.0 200 OK")
        assert time.monotonic() - began < monitor.PATIENCE / 2


def test_a_socket_whose_process_ended_before_it_had_its_name_is_taken_away(tmp_path: Path) -> None:
    for name, age in (("1.sock-", 0), ("2.sock-", 100)):
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(tmp_path / name))
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    monitor.sweep(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["1.sock-"]
