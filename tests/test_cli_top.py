"""`gabion top` from outside."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from patience import HANGS, eventually
from rich.console import Console

import gabion
from gabion import monitor
from gabion.cli.top import asking, command, screen


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets of this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path / "gabion"
    monitor.stop()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gabion", "top", *map(str, arguments)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=HANGS, env={**os.environ, "COLUMNS": "160"}
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[gabion.Pile]:
    with gabion.Pile(path=tmp_path / "people[bold].pile") as pile:
        pile.put_many(range(1234))
        cache = gabion.Cache("2 MiB", name="pages[red]")
        cache["a"] = 1
        assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, None)
        yield pile


@pytest.mark.parametrize("over", ["socket", "network", "address"])
def test_one_process_is_shown_whole(store: gabion.Pile, tmp_path: Path, over: str) -> None:
    where = monitor.start(None if over == "socket" else "127.0.0.1:0")
    names = {"socket": os.getpid(), "network": where, "address": where.removeprefix("http://")}
    done = run(names[over])
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        f"pid {os.getpid()}, up ", "resident", "in use", "limit none", "people[bold].pile", "1,234", "pages[red]",
        "33.3%", "2.0 MiB",
    ):  # fmt: skip
        assert text in done.stdout, text


def test_all_processes_of_the_user_stand_in_a_table(store: gabion.Pile) -> None:
    monitor.start()
    done = run("--once")
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines = done.stdout.splitlines()
    assert head.split()[:4] == ["pid", "resident", "pool", "in"]
    [line] = [line for line in lines if line.startswith(str(os.getpid()))]
    assert "python" in line


def test_json_has_the_figures_alone(store: gabion.Pile) -> None:
    monitor.start()
    for arguments in ([], [os.getpid()]):
        done = run("--json", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        told = json.loads(done.stdout)
        assert told["name"] == "top"
        [one] = told["processes"]
        assert one["pid"] == os.getpid()
        assert 1234 in [pile["objects"] for pile in one["piles"]]


def test_where_nobody_can_be_seen_it_says_how_that_is_done() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert "GABION_MONITOR=1" in done.stderr
    done = run("--json")
    assert (done.returncode, json.loads(done.stdout)["processes"]) == (1, [])


def test_sockets_of_processes_that_are_gone_are_taken_away(run_folder: Path) -> None:
    monitor.start()
    # Of a process that is no more, and of one that has become another program. What is no socket is nobody's business.
    dead, other, file = (run_folder / f"{name}.sock" for name in ("4194304", os.getppid(), "notes"))
    file.write_text("notes")
    for path in (dead, other):
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    done = run(os.getppid())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gabion: process {os.getppid()}: Connection refused\n"
    assert run().returncode == 0
    assert (dead.exists(), other.exists(), file.exists()) == (False, False, True)


def test_folders_that_others_can_reach_are_not_looked_into(run_folder: Path) -> None:
    monitor.start()
    assert run().returncode == 0
    run_folder.chmod(0o755)
    assert run().returncode == 1
    run_folder.chmod(0o700)
    run_folder.rename(run_folder.with_name("theirs"))
    run_folder.symlink_to(run_folder.with_name("theirs"))
    assert run().returncode == 1


class Other(BaseHTTPRequestHandler):
    answer = b""

    def do_GET(self) -> None:
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH", b"HTTP/1.0 200 OK\r\n\r\n<html>", b"HTTP/1.0 200 OK\r\n\r\n{}", b"HTTP/1.0 404 No\r\n\r\n{}",
     b'HTTP/1.0 200 OK\r\n\r\n{"gabion": "1", "pid": 1, "pool": [], "piles": [], "caches": [], "command": []}',
     b'HTTP/1.0 200 OK\r\n\r\n{"gabion": "1", "pid": 1, "pool": {}, "piles": [1], "caches": [], "command": []}',
     b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 100_000],
)  # fmt: skip
def test_somebody_else_who_answers_is_told(answer: bytes) -> None:
    server = HTTPServer(("127.0.0.1", 0), type("Answers", (Other,), {"answer": answer}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with contextlib.closing(server.socket):
        done = run(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert (done.returncode, done.stdout) == (2, "")
    assert "no monitor of gabion's" in done.stderr


def test_metrics_have_nothing_that_a_terminal_obeys() -> None:
    name = '\x1b[31m\x1b]0;here\x07\n"\\ Straße'
    figures = {
        "gabion": "1",
        "pid": 1,
        "pool": {},
        "piles": [],
        "caches": [{"name": name, "entries": 5}],
        "command": [],
    }
    answer = b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(figures).encode()
    server = HTTPServer(("127.0.0.1", 0), type("Answers", (Other,), {"answer": answer}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with contextlib.closing(server.socket):
        done = run(f"http://127.0.0.1:{server.server_port}", "--metrics")
        server.shutdown()
    assert done.returncode == 0
    # A backslash stands before each, because Prometheus knows few escapes, and refuses others.
    assert r'name="\\x1b[31m\\x1b]0;here\\x07\n\"\\ Straße"' in done.stdout


@pytest.mark.parametrize(
    ("target", "text", "code"),
    [
        ("99999999", "process 99999999: there is none", 2),
        ("1", "nobody can look into it, or it is another user's", 2),
        ("people.pile", "neither a process's number nor a URL", 2),
        ("ftp://host", "not a URL such as http://HOST:PORT", 2),
        ("http://host:x", "not a URL such as http://HOST:PORT", 2),
        ("http://no-such-host.invalid:1", "no-such-host.invalid", 2),
        ("http://127.0.0.1:1", "http://127.0.0.1:1: Connection refused", 1),
        ("\x1b[31m", "neither", 2),
        ("1" * 5000, "neither", 2),
        ("http://127.0.0.1:1/é", "not a URL", 2),
        ("http://127.0.0.1:1/a b", "not a URL", 2),
        ("http://.:1", "no name of a host", 2),
        (f"http://{'a' * 70}:1", "no name of a host", 2),
    ],
)
def test_a_wrong_name_is_one_clear_line(target: str, text: str, code: int) -> None:
    done = run(target)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("interval", ["0", "nan", "inf", "-1", "abc", "1e9"])
def test_a_wrong_interval_is_one_clear_line(interval: str) -> None:
    done = run("--interval", interval)
    assert done.returncode == 2
    assert "say 0.1 to 86400 seconds" in done.stderr


def test_two_forms_at_one_time_are_refused() -> None:
    done = run("--json", "--metrics")
    assert done.returncode == 2
    assert "--metrics: not allowed with argument --json" in done.stderr


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "1" + "0" * 400, '"5"', "null", "true", "[1]"])
def test_figures_that_are_none_are_shown_as_nothing(wrong: str) -> None:
    names = (
        "in_use",
        "requests",
        "objects",
        "used_bytes",
        "entries",
        "hits",
        "tables",
        "seconds",
        "total_limit",
        "name",
    )
    odd = ", ".join(f'"{name}": {wrong}' for name in names)
    told = json.loads(f'{{"pool": {{{odd}}}, "piles": [{{{odd}}}], "caches": [{{{odd}}}], "command": [{wrong}]}}')
    told |= {"gabion": "1", "pid": 1}
    console = Console(width=120)
    with console.capture():
        console.print(screen.process(told, None))
        console.print(screen.process(told, told))
        console.print(screen.processes([told, {"pid": "1"}]))


def test_figures_of_another_version_are_shown_as_far_as_they_go() -> None:
    bare = {"gabion": "9", "pid": 1, "pool": {}, "piles": [{}], "caches": [{}, {"name": "x"}], "command": ["a\x1b"]}
    console = Console(width=120)
    with console.capture() as shown:
        console.print(screen.process(bare, None))
        console.print(screen.process(bare, bare))
        console.print(screen.processes([bare]))
    assert "\x1b[" not in shown.get()
    assert "in memory" in shown.get()


def test_a_pile_is_shown_by_its_name_or_by_its_path() -> None:
    piles = [{"name": "orders", "path": None}, {"name": "people", "path": "a.pile"}, {"name": "", "path": "b.pile"}]
    told = {"gabion": "9", "pid": 1, "pool": {}, "piles": piles, "caches": [], "command": []}
    console = Console(width=120)
    with console.capture() as shown:
        console.print(screen.process(told, None))
    assert [name in shown.get() for name in ("orders", "people", "a.pile", "b.pile", "in memory")] == [
        *[True, True, False, True, False]
    ]


def test_rates_are_those_since_the_last_look(store: gabion.Pile) -> None:
    before = monitor.figures()
    pointers = store.put_many(range(500))
    now = monitor.figures()
    now["seconds"] = before["seconds"] + 2.0
    console = Console(width=200)
    with console.capture() as shown:
        console.print(screen.process(now, before))
    assert "250/s" in shown.get()
    store.remove_many(pointers)


def test_a_count_that_fell_is_no_rate() -> None:
    """It is another's, under the same name; objects may become fewer."""
    now, before = ({"hits": hits, "objects": hits} for hits in (1, 5))
    since = screen.Since(before, 2.0)
    assert (since.rate(now, "hits"), since.rate(now, "objects")) == (screen.NOTHING, "-2/s")


def test_only_as_many_lines_as_the_screen_has() -> None:
    piles = [gabion.Pile() for _ in range(30)]
    console = Console(width=120)
    with console.capture() as shown:
        console.print(screen.process(monitor.figures(), None, 5))
    assert f"and {len(monitor.figures()['piles']) - 5:,} more with less each" in shown.get()
    assert len(piles) == 30


def test_of_many_processes_the_largest_are_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = {"gabion": "1", "pool": {}, "piles": [], "caches": [], "command": ["program"]}
    told = [{**bare, "pid": pid, "resident_bytes": (pid * 7919 % 100 + 1) << 20} for pid in range(100, 130)]
    told.append({"pid": 99, "error": "no answer within 5 seconds"})
    monkeypatch.setattr(asking, "everybody", lambda: told)
    largest = [str(one["pid"]) for one in sorted(told, key=lambda one: -int(str(one.get("resident_bytes", 0))))]
    for height in (5, 12, 33, 34, 50):
        console = Console(width=120, height=height)
        with console.capture() as shown:
            console.print(next(command._of_all(console)))
        _, _, head, *lines = shown.get().splitlines()
        assert head.startswith("pid")
        assert len(lines) + 3 <= height
        if height < 34:
            assert lines.pop() == f"and {31 - len(lines)} more: processes beyond the screen"
        assert [line.split()[0] for line in lines] == largest[: height - 4 if height < 34 else 31]


def in_terminal(*arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    own, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gabion", "top", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    return process, own


class Screen:
    """What a program has written to its terminal."""

    def __init__(self, terminal: int) -> None:
        self.seen, self.terminal = b"", terminal
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                more = os.read(self.terminal, 1 << 16)
            except OSError:
                return
            if not more:
                return
            self.seen += more


@pytest.mark.parametrize("one", [True, False])
def test_a_terminal_is_told_again_and_again_until_ctrl_c(store: gabion.Pile, one: bool) -> None:
    monitor.start()
    process, terminal = in_terminal("--interval", "0.1", *([str(os.getpid())] if one else []))
    shown = Screen(terminal)
    assert eventually(lambda: shown.seen.count(b"1,234" if one else str(os.getpid()).encode()) > 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(HANGS) == 0
    assert b"Traceback" not in shown.seen
    os.close(terminal)


def another_is_watched() -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], int, Screen]:
    """A process that waits for the end of its input, the one that watches it, and the terminal of that."""
    program = "import gabion, sys; sys.stdin.read()"
    watched = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, env={**os.environ, "GABION_MONITOR": "1"}
    )
    assert eventually(lambda: run(watched.pid).returncode == 0)
    process, terminal = in_terminal("--interval", "0.1", str(watched.pid))
    shown = Screen(terminal)
    assert eventually(lambda: b"in use" in shown.seen)
    return watched, process, terminal, shown


def test_a_process_that_stands_still_is_waited_for() -> None:
    watched, process, terminal, shown = another_is_watched()
    watched.send_signal(signal.SIGSTOP)
    try:
        done = run()
        assert (done.returncode, done.stderr) == (0, "")
        [line] = [line for line in done.stdout.splitlines() if line.startswith(str(watched.pid))]
        assert "busy: no answer" in line
        assert eventually(lambda: b"no answer since " in shown.seen)
    finally:
        watched.send_signal(signal.SIGCONT)
    seen = len(shown.seen)
    assert eventually(lambda: b"in use" in shown.seen[seen + 4000 :])
    process.send_signal(signal.SIGINT)
    assert process.wait(HANGS) == 0
    assert shown.seen.count(b"\x1b[?1049h") == shown.seen.count(b"\x1b[?1049l") == 1
    watched.communicate(timeout=HANGS)
    os.close(terminal)


def test_a_server_that_goes_on_and_on_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with contextlib.suppress(OSError):
                asking = server.accept()[0]
                while True:
                    asking.sendall(b"H")
                    threading.Event().wait(0.2)

        threading.Thread(target=drip, daemon=True).start()
        done = run(f"127.0.0.1:{server.getsockname()[1]}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no answer within 5 seconds" in done.stderr


def test_top_does_not_show_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gabion", "top"], check=False, capture_output=True, text=True, timeout=HANGS,
        env={**os.environ, "GABION_MONITOR": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")


def test_a_process_that_ends_meanwhile_is_told() -> None:
    watched, process, terminal, shown = another_is_watched()
    watched.communicate(timeout=HANGS)
    assert process.wait(HANGS) == 1
    assert eventually(lambda: f"process {watched.pid}: ".encode() in shown.seen)
    os.close(terminal)
