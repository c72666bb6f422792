"""What a monitor tells of the tables of caches, and of all processes at once."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import HANGS, eventually
from rich.console import Console

import gabion
from gabion import monitor
from gabion._metrics import metrics
from gabion.cli.top import screen


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets of this test alone."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path / "gabion"
    monitor.stop()


def top(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gabion", "top", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANGS)


def told_of(cache: gabion.Cache[Any, Any]) -> dict[str, Any]:
    [one] = [one for one in monitor.figures()["caches"] if one["name"] == cache.name]
    return dict(one)


def test_each_table_has_its_figures() -> None:
    cache: gabion.Cache[Any, Any] = gabion.Cache("8 MiB", name="tables of it")
    assert (told_of(cache)["table_stats"], told_of(cache)["tables_left_out"]) == ([], 0)
    pages = cache.table("pages", max_bytes="1 MiB")
    pages["a"] = b"x" * 1000
    assert (pages.get("a"), pages.get("b")) == (b"x" * 1000, None)

    @cache.memoize(ttl=60)
    def double(number: int) -> int:
        return 2 * number

    assert [double(1), double(1), double(1), double(2)] == [2, 2, 2, 4]
    first, second = told_of(cache)["table_stats"]
    stats = pages.stats().as_dict()
    assert (stats.pop("reserved_bytes"), stats.pop("index_bytes")) == (0, 0)
    assert first == {"name": "pages", **stats}
    assert (first["max_bytes"], first["hits"], first["misses"], first["hit_rate"]) == (1 << 20, 1, 1, 0.5)
    assert "double" in second["name"]
    assert (second["hits"], second["misses"]) == (2, 2)
    assert told_of(cache)["tables"] == 2
    cache.drop_table("pages")
    assert ["double" in table["name"] for table in told_of(cache)["table_stats"]] == [True]


def test_only_the_largest_tables_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "MOST_OF_A_KIND", 5)
    caches: list[gabion.Cache[Any, Any]] = [gabion.Cache("8 MiB", name=f"most {number}") for number in range(2)]
    for number in range(20):
        caches[number % 2].table(f"t{number}")["key"] = b"x" * 1000 * (number + 1)
    names = [[table["name"] for table in told_of(cache)["table_stats"]] for cache in caches]
    assert names == [["t18", "t16"], ["t19", "t17", "t15"]]
    assert [told_of(cache)["tables_left_out"] for cache in caches] == [8, 7]
    for number in range(20):  # none larger than another
        caches[number % 2].table(f"t{number}").clear()
    # Of the process: caches of other tests may be there still.
    assert sum(len(cache["table_stats"]) for cache in monitor.figures()["caches"]) == 5


def test_prometheus_is_told_of_tables() -> None:
    cache: gabion.Cache[Any, Any] = gabion.Cache("8 MiB", name="of prometheus")
    cache.table('a"b')["key"] = 1
    text = monitor._as_metrics().decode()
    labels = r'\{id="\d+",name="of prometheus",table="a\\"b"\}'
    assert re.search(rf"^gabion_cache_table_inserted_total{labels} 1$", text, re.MULTILINE)
    assert re.search(rf"^gabion_cache_table_entries{labels} 1$", text, re.MULTILINE)
    assert "# TYPE gabion_cache_table_hits_total counter" in text
    assert "gabion_cache_table_reserved_bytes" not in text
    assert "table_stats" not in text


def test_tables_are_shown_where_there_is_room() -> None:
    cache: gabion.Cache[Any, Any] = gabion.Cache("8 MiB", name="shown")
    for number in range(9):
        cache.table(f"table{number}[red]")["key"] = b"x" * 1000 * (number + 1)
    cache.table("table8[red]").get("key")
    now = monitor.figures()
    now = {**now, "piles": [], "caches": [one for one in now["caches"] if one["name"] == "shown"]}
    earlier = json.loads(json.dumps(now))
    earlier["seconds"] -= 2
    for table in earlier["caches"][0]["table_stats"]:
        table["inserted"] -= 10 if table["name"] == "table8[red]" else 0

    def lines(most: int | None, room: int | None) -> list[str]:
        console = Console(width=160, markup=False)
        with console.capture() as captured:
            console.print(screen.process(now, earlier, most, room))
        return captured.get().splitlines()

    everything = lines(None, None)
    [line] = [line for line in everything if line.startswith("shown: table8[red]")]
    assert line.split()[-6:] == ["–", "0/s", "5/s", "0/s", "0/s", "0"]
    assert all(any(line.startswith(f"shown: table{number}[red]") for line in everything) for number in range(9))
    for room in range(10, 40):
        some = lines(3, room)
        shown = [line for line in some if line.startswith("shown: table")]
        assert len(some) <= max(room, 16)
        assert len(shown) == min(max(room - screen.AROUND - 1, 0), 9)
        if 0 < len(shown) < 9:
            assert f"and {9 - len(shown)} more with less each: tables beyond the screen" in some[-1]
    del now["caches"][0]["table_stats"]  # as another version has it
    assert not [line for line in lines(None, None) if line.startswith("shown: table")]


SERVE = """
import gabion, gabion.monitor, sys
cache = gabion.Cache("1 MiB", name="worker")
cache.table("pages")["key"] = 1
print(gabion.monitor.start(), flush=True)
sys.stdin.read()
"""


def test_all_processes_are_told_in_one_text(run_folder: Path) -> None:
    done = top("--metrics")
    assert (done.returncode, done.stdout) == (1, "")
    assert "GABION_MONITOR=1" in done.stderr
    others = [
        subprocess.Popen([sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            assert other.stdout.readline().strip() == str(run_folder / f"{other.pid}.sock")
        done = top("--metrics")
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        types = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
        assert len(types) == len(set(types)) > 40
        label = r'(?:path|name|table|id)="(?:[^"\\\n]|\\[\\"n])*"'
        sample = re.compile(rf'([a-z_]+)\{{pid="\d+"(?:,{label})*\}} [-+.e\d]+')
        found = [sample.fullmatch(line) for line in lines if not line.startswith("#")]
        assert all(found)
        # All that is said of one name stands together, as Prometheus wants it.
        order = [one[1] for one in found if one]
        assert list(dict.fromkeys(order)) == types
        assert order == sorted(order, key=types.index)
        pids = {str(other.pid) for other in others}
        inserted = r'gabion_cache_table_inserted_total{pid="(\d+)",id="0",name="worker",table="pages"} 1'
        assert set(re.findall(inserted.replace("{", r"\{").replace("}", r"\}"), done.stdout)) == pids
        assert set(re.findall(r'gabion_process_seconds\{pid="(\d+)"\}', done.stdout)) == pids
        one = top("--metrics", others[0].pid)
        assert one.returncode == 0
        assert set(re.findall(r'pid="(\d+)"', one.stdout)) == {str(others[0].pid)}
        again = json.loads(top("--json", others[0].pid).stdout)["processes"][0]["caches"][0]
        assert [table["name"] for table in again["table_stats"]] == ["pages"]
    finally:
        for other in others:
            other.communicate("")
    eventually(lambda: not list(run_folder.glob("*.sock")))


def test_who_does_not_answer_is_left_out(run_folder: Path) -> None:
    monitor.start()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(run_folder / "77.sock"))
        silent.listen()
        done = top("--metrics")
        told = json.loads(top("--json").stdout)["processes"]
    assert done.returncode == 0
    assert done.stderr == "gabion: process 77: no answer within 5 seconds\n"
    assert [one["pid"] for one in told] == [77, os.getpid()]
    assert set(re.findall(r'pid="(\d+)"', done.stdout)) == {str(os.getpid())}


def test_who_answers_with_an_error_is_named(run_folder: Path) -> None:
    monitor.start()
    with socket.socket(socket.AF_UNIX) as failing:
        failing.bind(str(run_folder / "77.sock"))
        failing.listen()

        def answer() -> None:
            while True:
                try:
                    asking = failing.accept()[0]
                except OSError:  # closed, at the test's end
                    return
                with asking, contextlib.suppress(OSError):
                    if asking.recv(4096):
                        asking.sendall(b"HTTP/1.0 500 Internal Server Error\r\n\r\nOSError('\x1b')")

        threading.Thread(target=answer, daemon=True).start()
        why = r"process 77: it could not tell: OSError('\x1b')"
        for form in ("--metrics", "--once", "--json"):
            done = top(form)
            assert (done.returncode, done.stderr) == (0, f"gabion: {why}\n")
        told = json.loads(done.stdout)["processes"]
        assert [one["pid"] for one in told] == [77, os.getpid()]
        assert told[0]["error"] == r"it could not tell: OSError('\x1b')"
        [line] = [line for line in top("--once").stdout.splitlines() if line.startswith("77 ")]
        # As much of it as the other columns leave room for.
        assert "it c" in line
        failing.shutdown(socket.SHUT_RDWR)


def test_figures_of_another_version_are_written_as_far_as_they_go() -> None:
    odd = {
        "pid": 5, "pool": {"in_use": 10**400, "no name\n": 1, "limit": None, "flag": True}, "seconds": "long",
        "piles": [{"objects": 3}], "caches": [{"hits": 1, "table_stats": [5, {"hits": 2}]}, {"table_stats": {}}],
    }  # fmt: skip
    told = metrics([odd], by_pid=True)
    assert "".join(line for line in told.splitlines(keepends=True) if not line.startswith("# HELP")) == (
        '# TYPE gabion_piles gauge\ngabion_piles{pid="5"} 1\n'
        '# TYPE gabion_caches gauge\ngabion_caches{pid="5"} 2\n'
        '# TYPE gabion_pool_in_use gauge\ngabion_pool_in_use{pid="5"} +Inf\n'
        '# TYPE gabion_pool_flag gauge\ngabion_pool_flag{pid="5"} 1\n'
        '# TYPE gabion_pile_objects gauge\ngabion_pile_objects{pid="5",id="None",path="",name=""} 3\n'
        '# TYPE gabion_cache_hits_total counter\ngabion_cache_hits_total{pid="5",id="None",name=""} 1\n'
        "# TYPE gabion_cache_table_hits_total counter\n"
        'gabion_cache_table_hits_total{pid="5",id="None",name="",table="None"} 2\n'
    )
    assert "# HELP gabion_pile_objects objects of gabion.Pile.stats()\n# TYPE gabion_pile_objects gauge\n" in told
    assert told.count("# HELP ") == told.count("# TYPE ")


def test_of_very_many_piles_and_caches_those_are_told_of_that_take_most() -> None:
    many = [{"id": number, "objects": 1, "reserved_bytes": number % 1000} for number in range(2000)]
    told = metrics([{"pid": 5, "pool": {}, "piles": many, "caches": many}])
    for part in ("pile", "cache"):
        ids = [int(found) for found in re.findall(rf'^gabion_{part}_objects{{id="(\d+)"', told, re.MULTILINE)]
        assert ids == [number for number in range(2000) if number % 1000 >= 850]
    assert "\ngabion_piles 2000\n" in told
