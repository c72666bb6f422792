"""`gabion.monitor`: a process that others may look into."""

import contextlib
import errno
import gc
import http.client
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from child_processes import in_child
from patience import HANGS, eventually

import gabion
from gabion import memory, monitor


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets of this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield tmp_path
    monitor.stop()


def over_socket(path: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(HANGS)
    connection.sock.connect(path)
    connection.request("GET", "/")
    body = connection.getresponse().read()
    connection.close()
    return dict(json.loads(body))


def over_network(url: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=HANGS)
    connection.request("GET", "/")
    body = connection.getresponse().read()
    connection.close()
    return dict(json.loads(body))


def waiting_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gabion-monitor"]


def test_a_socket_of_this_user_tells_what_there_is(run_folder: Path) -> None:
    path = monitor.start()
    assert path == str(run_folder / "gabion" / f"{os.getpid()}.sock")
    assert stat.S_IMODE((run_folder / "gabion").stat().st_mode) == 0o700
    with gabion.Pile(name="numbers") as pile, memory.rent("3 MiB"):
        pile.put_many(range(1000))
        cache = gabion.Cache("1 MiB", name="pages")
        cache.table("more")["key"] = 1
        cache.get("gone")
        told = over_socket(path)
        assert (told["pid"], told["gabion"]) == (os.getpid(), gabion.__version__)
        assert told["resident_bytes"] > 1 << 20
        assert told["seconds"] > 0
        assert told["pool"]["in_use"] >= 3 << 20
        stats = pile.stats().as_dict()
        stats.pop("types")
        [same] = [one for one in told["piles"] if one["objects"] == 1000]
        assert same.items() >= stats.items()
        assert (same["path"], same["name"]) == (None, "numbers")
        [same] = [one for one in told["caches"] if one["name"] == "pages"]
        assert same.items() >= {"tables": 1, "entries": 1, "misses": 1, "max_bytes": 1 << 20}.items()
    monitor.stop()
    assert not Path(path).exists()
    assert not waiting_threads()
    with pytest.raises(OSError, match="No such file"):
        over_socket(path)


def test_piles_and_caches_that_are_gone_are_not_told_of(tmp_path: Path) -> None:
    def told() -> tuple[set[int], int]:
        figures = monitor.figures()
        return {one["id"] for one in figures["piles"]}, len(figures["caches"])

    gc.collect()
    before, caches = told()
    kept, path = gabion.Pile(), tmp_path / "kept.pile"
    for _ in range(200):  # more than are looked through each time
        gabion.Pile()
    closed, cache = gabion.Pile(), gabion.Cache("1 MiB")
    with gabion.Pile(path=path) as filed:
        filed.put(1)
        assert [one["objects"] for one in monitor.figures()["piles"] if one["path"] == str(path)] == [1]
        assert len(told()[0] - before) == 3
    closed.close()
    cache.close()
    gc.collect()
    after, caches_after = told()
    assert len(after - before) == 1
    assert caches_after == caches
    del kept
    gc.collect()
    assert told() == (before, caches)


class Odd(gabion.Cache[Any, Any]):
    """A cache that answers nothing as caches do."""

    name = tables = stats = property(lambda self: 1 // 0)  # type: ignore[assignment]


def test_subclasses_of_caches_are_asked_nothing() -> None:
    odd = Odd("1 MiB", name="odd")
    assert "odd" in [cache["name"] for cache in monitor.figures()["caches"]]
    odd.close()


def test_a_pile_that_failed_to_open_is_not_told_of(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"no pile" * 1000)
    before = len(monitor.figures()["piles"])
    with pytest.raises(gabion.CorruptFileError):
        gabion.Pile(path=tmp_path / "bad")
    gc.collect()
    assert len(monitor.figures()["piles"]) <= before


def test_an_address_is_http_for_whoever_can_reach_it(run_folder: Path) -> None:
    url = monitor.start("127.0.0.1:0")
    assert url.startswith("http://127.0.0.1:")
    assert not (run_folder / "gabion").exists()
    with urllib.request.urlopen(url, timeout=HANGS) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        assert json.load(answer)["pid"] == os.getpid()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/else", timeout=HANGS)
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(url, data=b"x", timeout=HANGS)
    assert monitor.start(url) == url  # at the same place again
    assert len(waiting_threads()) == 1


def test_prometheus_reads_the_figures(tmp_path: Path) -> None:
    url = monitor.start("127.0.0.1:0")
    with gabion.Pile(path=tmp_path / 'a"b\\c\nd.pile', name="seven") as pile:
        pile.put_many(range(7))
        cache = gabion.Cache("1 MiB", name="pages")
        assert cache.get("gone") is None
        with urllib.request.urlopen(f"{url}/metrics", timeout=HANGS) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            lines = answer.read().decode().splitlines()
    types = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(types) == len(set(types)) > 40
    sample = re.compile(
        r'([a-z_]+)(?:\{id="\d+",(?:path|name)="(?:[^"\\\n]|\\[\\"n])*"(?:,(?:table|name)="[^"]*")?\})? [-+.e\d]+'
    )
    found = [sample.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(found)
    told = "\n".join(lines)
    assert {one[1] for one in found if one} == set(types)
    assert re.search(r'gabion_pile_objects\{id="\d+",path="[^ ]*/a\\"b\\\\c\\nd.pile",name="seven"\} 7', told)
    assert re.search(r'gabion_cache_misses_total\{id="\d+",name="pages"\} 1\n', told)
    assert "# TYPE gabion_cache_misses_total counter" in lines
    assert "# TYPE gabion_pool_in_use gauge" in lines


def test_whoever_says_nothing_keeps_nobody_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "PATIENCE", 0.2)
    url = monitor.start("127.0.0.1:0")
    host, port = monitor.split_address(url)
    silent = [socket.create_connection((host, port)) for _ in range(3)]
    silent[0].sendall(b"GET ")
    silent[1].sendall(b"\xff" * 70_000 + b"\r\n\r\n")
    assert over_network(url)["pid"] == os.getpid()
    for one in silent:
        one.close()
    assert over_network(url)["pid"] == os.getpid()


@pytest.mark.parametrize("address", ["", "8077", ":8077", "localhost", "a:b", "a:-1", "a:65536", "::1:80", "a:٣"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"write HOST:PORT, as in '127\.0\.0\.1:8077'"):
        monitor.start(address)
    with pytest.raises(TypeError, match="address must be a str"):
        monitor.start(8077)  # type: ignore[arg-type]


def test_an_address_of_others_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"nobody can listen there: Address already in use: '{address}'"):
            monitor.start(address)
    with pytest.raises(OSError, match="nobody can listen there"):
        monitor.start("no-such-host.invalid:80")
    assert not waiting_threads()


def test_whoever_says_little_is_not_listened_to_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "PATIENCE", 0.5)
    url = monitor.start("127.0.0.1:0")
    with socket.create_connection(monitor.split_address(url)) as slow:
        stop = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    slow.sendall(b"G")

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert over_network(url)["pid"] == os.getpid()
        stop.set()
        dripping.join()


def test_the_end_waits_for_nobody() -> None:
    url = monitor.start("127.0.0.1:0")
    with socket.create_connection(monitor.split_address(url)):
        began = time.monotonic()
        eventually(lambda: monitor._listener.asking)
        monitor.stop()
    path = monitor.start()
    os.unlink(path)
    monitor.stop()
    assert time.monotonic() - began < monitor.PATIENCE
    assert not waiting_threads()


def test_a_socket_of_somebody_else_stays(run_folder: Path) -> None:
    path = Path(monitor.start())
    path.unlink()
    path.write_text("theirs")
    monitor.stop()
    assert path.read_text() == "theirs"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(OSError, match="another process of this number answers there"):
            monitor.start()
    monitor.start()  # nobody answers any more


def test_pages_of_a_browser_cannot_ask() -> None:
    url = monitor.start("127.0.0.1:0")
    for host, code in (("evil.example:80", 403), ("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:5", 200)):
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=HANGS)
        connection.request("GET", "/", headers={"Host": host})
        assert connection.getresponse().status == code, host
        connection.close()


def test_what_goes_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    url = monitor.start("127.0.0.1:0")
    monkeypatch.setattr(monitor, "figures", lambda: 1 // 0)
    with pytest.raises(urllib.error.HTTPError, match="500") as told:
        urllib.request.urlopen(url, timeout=HANGS)
    assert b"ZeroDivisionError" in told.value.read()
    monkeypatch.undo()
    monkeypatch.setattr(sys, "argv", [Path("a"), None])
    assert monitor.figures()["command"][1:] == ["a", "None"]
    monkeypatch.delattr(sys, "argv")
    assert over_network(url)["command"] == [sys.executable]


@pytest.mark.parametrize(
    "error", [PermissionError(errno.EPERM, "by a firewall"), MemoryError(), OSError(errno.EPROTO, "gone already")]
)
def test_an_error_of_one_who_asks_is_nobody_else_s(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the thread, and nobody could look into the process any more."""
    url = monitor.start("127.0.0.1:0")
    accept, failed = socket.socket.accept, []

    def fails_once(listening: socket.socket) -> Any:
        if not failed:
            failed.append(listening)
            raise error
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", fails_once)
    assert over_network(url)["pid"] == os.getpid()
    assert failed

    def fails(*_: object, **__: object) -> bytes:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(monitor, "_answer", fails)
        with pytest.raises(ConnectionError):
            over_network(url)
    assert over_network(url)["pid"] == os.getpid()


def test_without_descriptors_nobody_spins() -> None:
    program = """
import gabion.monitor, os, resource, socket, time
where = gabion.monitor.start("127.0.0.1:0")
asking = socket.socket()
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
held = []
try:
    while True:
        held.append(os.open("/", os.O_RDONLY))
except OSError:
    pass
asking.connect(gabion.monitor.split_address(where))
began = time.process_time()
time.sleep(1)
assert time.process_time() - began < 0.5, time.process_time() - began
for one in held:
    os.close(one)
asking.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
assert asking.recv(100).startswith(b"HTTP/1.0 200 OK")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=HANGS)
    assert (done.returncode, done.stderr) == (0, "")


def test_signals_of_the_program_stay_its_own() -> None:
    """A signal that the program has blocked went to the thread, and ended the process."""
    program = """
import gabion, os, signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.1)
print(signal.sigtimedwait({signal.SIGUSR1}, 1).si_signo == signal.SIGUSR1)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=HANGS,
        env={**os.environ, "GABION_MONITOR": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_of_a_pool_leave_no_sockets(run_folder: Path, method: str) -> None:
    program = f"""
import gabion, multiprocessing
def work(n):
    import gabion.monitor
    return gabion.monitor._listener is not None
if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(2, maxtasksperchild=1) as pool:
        print(all(pool.map(work, range(6), chunksize=1)))
        pool.close()
        pool.join()
"""
    (run_folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(run_folder / "program.py")], check=False, capture_output=True, text=True, timeout=HANGS,
        env={**os.environ, "GABION_MONITOR": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    left = {path.name for path in (run_folder / "gabion").glob("*.sock")}
    assert len(left) <= (2 if method == "forkserver" else 0), left  # the server itself, which is killed


def test_a_start_that_fails_leaves_the_old_one() -> None:
    url = monitor.start("127.0.0.1:0")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        monitor.start(f"127.0.0.1:{taken.getsockname()[1]}")
    assert over_network(url)["pid"] == os.getpid()
    path = monitor.start()
    assert over_socket(path)["pid"] == os.getpid()
    assert len(waiting_threads()) == 1


def test_a_start_that_fails_at_another_host_leaves_the_old_one() -> None:
    """Of two places with one port, the old one had stopped before the new one failed."""
    url = monitor.start("127.0.0.1:0")
    port = url.rpartition(":")[2]
    with pytest.raises(OSError, match="nobody can listen there"):
        monitor.start(f"192.0.2.1:{port}")  # an address for examples, which no machine has
    assert over_network(url)["pid"] == os.getpid()
    # Here it is in the way itself, and so is another one.
    with socket.create_server(("127.0.0.2", int(port))), pytest.raises(OSError, match="in use"):
        monitor.start(f"0.0.0.0:{port}")
    assert over_network(url)["pid"] == os.getpid()
    assert monitor.start(f"0.0.0.0:{port}") == f"http://0.0.0.0:{port}"
    assert over_network(url)["pid"] == os.getpid()
    assert len(waiting_threads()) == 1


def test_where_no_thread_starts_nothing_is_left(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        monitor.start()
    assert not list((run_folder / "gabion").iterdir())
    assert not monitor._open
    with pytest.warns(RuntimeWarning, match="GABION_MONITOR=1: nobody can see this process: can't start new thread"):
        monitor._start_by_environment("1")


def test_a_folder_that_others_may_write_to_is_not_used(run_folder: Path) -> None:
    (run_folder / "gabion").mkdir()
    (run_folder / "gabion").chmod(0o777)
    with pytest.raises(PermissionError, match="set XDG_RUNTIME_DIR"):
        monitor.start()
    (run_folder / "gabion").rmdir()
    (run_folder / "gabion").symlink_to("/")
    with pytest.raises(PermissionError, match="set XDG_RUNTIME_DIR"):
        monitor.start()


def test_a_path_that_no_socket_may_have_is_an_error(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = run_folder / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(OSError, match="longer than 106 bytes"):
        monitor.start()


def test_a_forked_child_has_a_socket_of_its_own(run_folder: Path) -> None:
    path = monitor.start()

    def body() -> None:
        own = str(run_folder / "gabion" / f"{os.getpid()}.sock")
        assert over_socket(own)["pid"] == os.getpid()
        assert over_socket(path)["pid"] == os.getppid()
        monitor.stop()
        assert not Path(own).exists()

    in_child(body)
    assert over_socket(path)["pid"] == os.getpid()


def test_a_forked_child_leaves_an_address_to_its_parent() -> None:
    url = monitor.start("127.0.0.1:0")

    def body() -> None:
        assert not waiting_threads()
        assert over_network(url)["pid"] == os.getppid()
        monitor.start()

    in_child(body)
    monitor.stop()
    with pytest.raises(OSError, match="refused"):
        over_network(url)


PROGRAM = """
import os, sys
import gabion
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_the_environment_starts_it_and_its_end_takes_the_socket_away(run_folder: Path) -> None:
    path = run_folder / "gabion"
    for said, found in (("1", 1), (" on ", 1), ("0", 0), (" 0", 0), ("off", 0), ("", 0)):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "GABION_MONITOR": said},
        )  # fmt: skip
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert len(list(path.glob(f"{pid}.sock"))) == found
        if found:
            assert over_socket(str(path / f"{pid}.sock"))["pid"] == pid
        process.communicate(timeout=HANGS)
        assert process.returncode == 0
        assert not list(path.glob("*.sock"))


def test_an_environment_that_makes_no_sense_is_a_warning() -> None:
    for said, text in (("here", "write HOST:PORT"), ("256.0.0.1:1", "nobody can listen there")):
        done = subprocess.run(
            [sys.executable, "-c", "import gabion; print(gabion.Pile())"], check=False, capture_output=True, text=True,
            timeout=HANGS, env={**os.environ, "GABION_MONITOR": said},
        )  # fmt: skip
        assert done.returncode == 0
        assert f"RuntimeWarning: GABION_MONITOR={said}: nobody can see this process: " in done.stderr
        assert text in done.stderr


def test_threads_ask_while_others_make_piles_and_caches() -> None:
    url = monitor.start("127.0.0.1:0")
    asked, stop = [0] * 3, threading.Event()

    def ask(number: int) -> None:
        while not stop.is_set():
            told = over_network(url)
            assert all(pile["objects"] >= 0 for pile in told["piles"])
            asked[number] += 1

    def make() -> None:
        while not stop.is_set():
            with gabion.Pile() as pile:
                pile.put_many(range(100))
                cache = gabion.Cache("1 MiB")
                cache[1] = 1

    failed: list[BaseException] = []

    def noting(work: Any, *args: int) -> None:
        try:
            work(*args)
        except BaseException as error:
            failed.append(error)
            stop.set()

    threads = [threading.Thread(target=noting, args=(ask, number)) for number in range(3)]
    threads += [threading.Thread(target=noting, args=(make,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: min(asked) > 30 or failed)
    stop.set()
    for thread in threads:
        thread.join(HANGS)
    assert not failed
    assert min(asked) > 30
