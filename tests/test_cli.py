"""The `gabion` command from outside: exit codes, messages, what it writes."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from patience import HANGS

from gabion import Image
from gabion.cli import main
from gabion.cli.tour import command as tour
from gabion.cli.tour import records
from gabion.cli.tour.failure import TourError

COMMAND = [sys.executable, "-m", "gabion"]
PEOPLE = "id,name,born,active,balance\n" + "".join(
    f"{number},Person {number},19{number % 90 + 10}-01-02,{'true' if number % 3 else 'false'},{number}.5\n"
    for number in range(1_000)
)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people[bold] :cat:.csv"  # no markup
    path.write_text(PEOPLE)
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(3):
        with Image.new("RGB", (400, 300), (80 * number, 90, 120)) as image:
            image.save(folder / f"{number}.jpg")
    return folder


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=HANGS)


def test_version_and_help() -> None:
    assert run("--version").stdout == f"gabion {version('gabion')}\n"
    shown = run("--help")
    assert shown.returncode == 0
    assert "tour" in shown.stdout
    assert "gabion thumbnails photos/ small/" in shown.stdout
    assert run().stdout == shown.stdout
    assert run("no-such-command").returncode == 2


def test_a_package_without_its_metadata() -> None:
    """As a program has it that was packed into one file, or a folder that was copied."""
    source = "import importlib.metadata as m; m.distribution = None; import gabion.cli; gabion.cli.main(['--version'])"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=HANGS)
    assert (done.stdout, done.stderr) == (f"gabion {version('gabion')}\n", "")


def test_without_rich_the_library_works_and_the_command_says_what_it_lacks() -> None:
    """As after `pip install --no-deps`. It was a traceback."""
    lack = "import sys; sys.modules['rich'] = None; import gabion, gabion.cli; gabion.Pile().put(1); "
    source = lack + "sys.exit(gabion.cli.main(['--version']))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=HANGS)
    told = "gabion: the command needs the package rich, which is not installed: pip install rich\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


def test_what_else_is_missing_is_no_lack_of_rich() -> None:
    source = "import sys; sys.modules['argparse'] = None; import gabion.cli; gabion.cli.main(['--version'])"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=HANGS)
    assert (done.returncode, "rich" in done.stderr, "argparse" in done.stderr) == (1, False, True)


@pytest.mark.parametrize("command", ["tour", "thumbnails a b"])
def test_an_unknown_option_shows_the_usage_of_its_command(command: str) -> None:
    done = run(*command.split(), "--jsn")
    assert done.returncode == 2
    assert f"usage: gabion {command.split()[0]}" in done.stderr
    assert "unrecognized arguments: --jsn" in done.stderr
    assert "--json" in done.stderr


def test_a_terminal_that_is_not_utf_8_and_a_full_disk(pictures: Path, tmp_path: Path) -> None:
    def ends(*arguments: object, **more: Any) -> tuple[int, str]:
        command = [*COMMAND, *map(str, arguments)]
        done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, timeout=HANGS, **more)
        return done.returncode, done.stderr

    assert ends("tour", "--help", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"}) == (0, "")
    for unbuffered in ("", "1"):
        with open("/dev/full", "w") as full:
            env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
            code, told = ends("thumbnails", pictures, tmp_path / "small", stdout=full, env=env)
        assert (code, told) == (1, "gabion: standard output: No space left on device\n")
    assert len(list((tmp_path / "small").iterdir())) == 3


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_whoever_reads_the_output_goes(more: list[str], pictures: Path, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [*COMMAND, "thumbnails", str(pictures), str(tmp_path / "small"), *more]
    with os.fdopen(write, "w") as gone:
        done = subprocess.run(command, check=False, stdout=gone, stderr=subprocess.PIPE, text=True, timeout=HANGS)
    assert (done.returncode, done.stderr) == (1, "")
    assert len(list((tmp_path / "small").iterdir())) == 3


def test_tour_prints_and_writes_its_page(people: Path, pictures: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("tour", "--records", people, "--objects", 3_000, "--photos", pictures, "--out", page)
    assert done.returncode == 0, done.stderr
    for text in (
        "1,000 records of 5 fields from people[bold] :cat:.csv",
        "memory per object",
        "gabion.Pile",
        f"3 pictures from {pictures}",
        "made 100 times with get_or_put()",
        page.as_uri(),
    ):
        assert text in done.stdout
    assert "\x1b[" not in done.stdout  # plain text where there is no terminal
    text = page.read_text()
    # Names of the pictures' elements, and the picture that is in the page itself; nothing is fetched.
    names = re.compile(r'xmlns(:\w+)?="[^"]*"|url\(#\w+\)|src="data:image/webp;base64,[^"]*"')
    assert not re.search(r"<script|<link|\bsrc=|https?://|url\(", names.sub("", text)), "the page must stand alone"
    for word in (
        "prefers-color-scheme",
        "born: datetime",
        "active: bool",
        "balance: float",
        "gabion tour --objects 3000",
        "data:image/webp;base64,",
        "hits at each limit",
    ):
        assert word in text
    picture = ET.fromstring(re.search(r"<svg.*?</svg>", text, re.DOTALL)[0])
    assert "longest" in picture.get("aria-label", "")
    for store in ("plain", "pickles", "gabion"):
        assert f"var(--{store})" in ET.tostring(picture, encoding="unicode")


def test_tour_as_json(people: Path, pictures: Path, tmp_path: Path) -> None:
    parts = ("--photos", pictures, "--no-arrays")
    done = run("tour", "--records", people, "--objects", 6_000, *parts, "--no-page", "--json", "--seed", 7)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["seed"] == 7
    assert told["table"]["rows"] == 1_000
    assert told["table"]["columns"]["born"] == "datetime"
    assert [store["store"] for store in told["stores"]] == ["plain", "pickles", "gabion"]
    for store in told["stores"]:
        assert store["objects"] == 6_000
        assert store["replaced"] == 3_600
        assert store["put_per_s"] > 0
        assert store["get_per_s"] > 0
        assert store["pauses"]["longest_ms"] == max(store["pauses"]["ms"], default=0.0)
    assert told["arrays"] == []
    assert [one["made"] for one in told["images"]] in ([3], [3, 3])
    assert told["cache"]["above"] == 0
    assert list(tmp_path.glob("*.html")) == []


def test_parts_that_are_left_out(people: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    out = ("--no-arrays", "--no-images", "--no-cache")
    done = run("tour", "--records", people, "--objects", 1_000, *out, "--out", page)
    assert done.returncode == 0, done.stderr
    for words in ("NumPy", "humbnail", "a cache under"):
        assert words not in done.stdout + page.read_text()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.csv", None, "absent.csv: No such file"),
        ("empty.csv", "", "empty.csv: holds no records"),
        ("header.csv", "a,b\n", "header.csv: holds no records"),
        ("ragged.csv", "a,b\n1,2\n3\n", "ragged.csv:3: 1 field where the header has 2"),
        ("quote.csv", 'a,b\n"1,2\n', "quote.csv:2: "),
        ("empty.jsonl", "\n", "empty.jsonl: holds no records"),
        ("bad.jsonl", '{"a": 1}\n\n{bad\n', "bad.jsonl:3: not JSON"),
        ("list.jsonl", '{"a": 1}\n[1]\n', "list.jsonl:2: a JSON object is needed, this is a list"),
        ("deep.jsonl", "[" * 200_000 + "\n", "deep.jsonl:1: "),
        ("image.png", "x", "image.png: --records takes a .csv or .jsonl file"),
    ],
)
def test_bad_records_are_one_clear_line(
    name: str, content: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    assert main(["tour", "--records", str(path), "--no-page"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("gabion: ")
    assert message in told
    assert told.count("\n") == 1


def test_a_full_disk_is_told_of_what_lies_on_it(
    people: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told of standard output, or of the file that was read."""
    full = os.strerror(errno.ENOSPC)
    with pytest.raises(TourError, match=rf"^/dev: {full}; TMPDIR names another folder for temporary files$"):
        records.read(people, Path("/dev/full"), 10)
    with pytest.raises(TourError, match=f"^/dev/full: {full}$"):
        tour._write(Path("/dev/full"), b"a page")

    def fails(_: object) -> int:
        raise OSError(errno.ENOSPC, full)

    monkeypatch.setattr(tour, "run", fails)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert main(["tour"]) == 2
    assert capsys.readouterr().err == f"gabion: {full}\n"


def test_a_file_that_fails_while_it_is_read_is_named(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield "a,b\n"
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(TourError, match=f"^some.csv: {os.strerror(errno.EIO)}$"):
        records.read_csv(records.lines_of(lines(), Path("some.csv")), Path("some.csv"), tmp_path / "rows.spool", 10)


def test_bytes_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "raw.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    assert main(["tour", "--records", str(tmp_path / "raw.csv"), "--no-page"]) == 2
    assert "not UTF-8 text" in capsys.readouterr().err


def test_a_page_that_cannot_be_written_is_refused_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "no-such-folder" / "page.html"):
        assert main(["tour", "--out", str(out)]) == 2
        assert "cannot be written" in capsys.readouterr().err


def test_more_objects_than_memory_holds(people: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tour", "--records", str(people), "--objects", "10_000_000_000", "--no-page"]) == 2
    told = capsys.readouterr().err
    assert "not enough memory" in told
    assert "try --objects" in told


def test_wrong_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for count in ("0", "-5", "many"):
        with pytest.raises(SystemExit) as ended:
            main(["tour", "--objects", count])
        assert ended.value.code == 2
    assert "--objects: a whole number of 1 or more is needed, not 'many'" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it_cleanly(number: signal.Signals, people: Path, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    tour = [*COMMAND, "tour", "--records", str(people), "--objects", "2000000", "--no-page"]
    around = {**os.environ, "TMPDIR": str(folder)}
    running = subprocess.Popen(tour, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=around)
    assert running.stdout is not None
    while "keeping" not in (line := running.stdout.readline()):
        assert line, "it ended before it was interrupted"
    running.send_signal(number)
    _, told = running.communicate(timeout=HANGS)
    assert running.returncode == 128 + number
    assert told == "gabion: interrupted\n"
    assert list(folder.iterdir()) == []


def test_errors_of_files_name_the_file(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = tmp_path / ("x" * 300)
    assert main(["thumbnails", str(pictures), str(long)]) == 2
    assert capsys.readouterr().err == f"gabion: {long}: File name too long\n"
    assert main(["tour", "--out", str(long), "--quick"]) == 2
    assert f"{long}: File name too long" in capsys.readouterr().err


@pytest.mark.skipif(
    sys.version_info[:3] == (3, 13, 0), reason="modules of 3.13.0 raise nothing for what they lack there"
)
def test_a_current_folder_that_is_gone(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    call = f"gabion.cli.main(['thumbnails', {str(pictures)!r}, 'out'])"
    code = f"import os; os.rmdir({str(tmp_path / 'gone')!r}); import gabion.cli; exit({call})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "gone", capture_output=True, text=True, timeout=HANGS
    )
    assert (done.returncode, done.stderr) == (2, "gabion: the current folder: No such file or directory\n")


def test_a_closed_standard_output(pictures: Path, tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m gabion thumbnails "{pictures}" "{tmp_path}/small" >&-'
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=HANGS)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_standard_error(pictures: Path, tmp_path: Path) -> None:
    """What belongs there went to standard output, and what is told as JSON was none."""
    (pictures / "broken.png").write_bytes(b"no picture")
    for arguments, code in (((pictures, "--json"), 1), ((tmp_path / "gone", "--json"), 2), ((tmp_path / "gone",), 2)):
        words = " ".join(f"'{word}'" for word in (sys.executable, "-m", "gabion", "thumbnails", *arguments))
        command = f"{words} '{tmp_path}/small' 2>&-"
        done = subprocess.run(["sh", "-c", command], check=False, stdout=subprocess.PIPE, text=True, timeout=HANGS)
        assert done.returncode == code
        if "--json" in arguments:
            assert json.loads(done.stdout)["name"] == "thumbnails"
        else:
            assert done.stdout == ""
    with open("/dev/full", "w") as full:
        command = [*COMMAND, "thumbnails", str(tmp_path / "gone"), str(tmp_path / "small")]
        assert subprocess.run(command, check=False, stderr=full, timeout=HANGS).returncode == 2
