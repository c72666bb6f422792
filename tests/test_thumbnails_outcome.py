"""What `gabion thumbnails` tells of each picture, where there was nothing to do, and where it could not go on."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from image_files import encoded, gradient, made, noise
from patience import HANGS

from gabion import Image
from gabion.cli import main
from gabion.cli.thumbnails import plan, work


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of pictures, two of which are given other names."""
    folder = tmp_path / "photos"
    folder.mkdir()
    jpeg = encoded(gradient("RGB", (300, 200)), "JPEG")
    for name in ("a.jpg", "noext", "wrong.png"):
        (folder / name).write_bytes(jpeg)
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    """The exit code, and what --json tells."""
    code = main(["thumbnails", "--json", *map(str, arguments)])
    return code, json.loads(capsys.readouterr().out)


def states(outcome: Any) -> set[tuple[str, str | None, str]]:
    """What came of each, by the names alone."""
    return {
        (Path(one["source"]).name, one["target"] and Path(one["target"]).name, one["state"])
        for one in outcome["thumbnails"]
    }


def test_as_json(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "empty.png").touch()
    code, outcome = told(capsys, photos, tmp_path / "small")
    assert code == 1
    assert (outcome["name"], outcome["made"], outcome["skipped"]) == ("thumbnails", 3, 0)
    assert [failed["source"] for failed in outcome["failed"]] == [str(photos / "empty.png")]
    assert (outcome["interrupted"], outcome["error"]) == (False, None)
    assert outcome["read_bytes"] == sum(path.stat().st_size for path in photos.iterdir())
    assert outcome["seconds"] > 0


def test_each_thumbnail_is_named(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small"
    (photos / "broken.jpg").write_bytes(b"no picture")
    (photos / "a.png").write_bytes((photos / "a.jpg").read_bytes())  # whose thumbnail would be a.jpg, too
    broken = {("broken.jpg", "broken.jpg", "failed"), ("a.png", None, "failed")}
    named = {("a.jpg", "a.jpg"), ("noext", "noext.jpg"), ("wrong.png", "wrong.jpg")}
    code, outcome = told(capsys, photos, small)
    assert (code, outcome["made"]) == (1, 3)
    assert states(outcome) == {(*names, "made") for names in named} | broken
    first = outcome["thumbnails"][0]
    assert first == {"source": str(photos / "a.jpg"), "target": str(small / "a.jpg"), "state": "made"}
    assert set(made(small)) == {target for _, target in named}
    (small / "wrong.jpg").unlink()
    code, outcome = told(capsys, photos, small)
    assert (code, outcome["made"], outcome["skipped"]) == (1, 1, 2)
    states_then = {(*names, "made" if names[0] == "wrong.png" else "there already") for names in named}
    assert states(outcome) == states_then | broken
    assert len(outcome["thumbnails"]) == 5


@pytest.mark.parametrize("source", ["empty", "empty/*.jpg", "*.jpg"])
@pytest.mark.parametrize("target", ["small", "other"])
def test_nothing_found_is_no_failure(
    source: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job of every night failed on days without new pictures."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty" / "below").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    assert main(["thumbnails", source, target]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[:2], err) == (["0 made, in 0.0 s", f"no pictures in {source}"], "")
    assert ("1 subfolder was left out" in out) == (source == "empty")
    code, outcome = told(capsys, source, target)
    assert (code, outcome["made"], outcome["thumbnails"], outcome["error"]) == (0, 0, [], None)
    assert not (tmp_path / "small").exists()


def test_a_pattern_whose_folder_is_missing_stops_no_other(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, outcome = told(capsys, photos, tmp_path / "gone" / "*.jpg", tmp_path / "small")
    assert (code, outcome["made"]) == (1, 3)
    assert outcome["failed"] == [{"source": str(tmp_path / "gone"), "error": os.strerror(errno.ENOENT)}]


def test_an_interrupt_while_folders_are_walked(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "sort_in", interrupted)
    code, outcome = told(capsys, photos, tmp_path / "small")
    assert code == 130
    assert (outcome["interrupted"], outcome["made"], outcome["thumbnails"]) == (True, 0, [])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_not_tried_again_and_again(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, small = tmp_path / "photos", tmp_path / "small"
    photos.mkdir()
    for name in range(100):
        gradient("RGB", (30, 20)).save(photos / f"{name:02}.png")
    make, tried = work.thumbnail, []

    def thumbnail(job: Any, how: Any) -> int:
        tried.append(job)
        if len(tried) > 10:
            raise OSError(number, os.strerror(number), str(job.target))
        return make(job, how)

    monkeypatch.setattr(work, "thumbnail", thumbnail)
    command = ["thumbnails", str(photos), str(small), "--jobs", "2"]
    assert main(command) == 1
    out, err = capsys.readouterr()
    assert 10 < len(tried) <= 10 + 3 * work.WAITING
    untried = 100 - len(tried)
    assert out.startswith(f"10 made, {len(tried) - 10} failed, {untried} not tried, in ")
    last = err.splitlines()[-1]
    told_last = f"gabion: {small}: {os.strerror(number)}: stopped, {untried} not tried; once that is mended, the same"
    assert last.startswith(told_last)
    tried.clear()
    code, outcome = told(capsys, photos, small, "--jobs", "2")  # ten more
    assert (code, outcome["made"], outcome["skipped"]) == (1, 10, 10)
    assert outcome["error"] in last.replace(f"{untried} not tried", f"{100 - 10 - len(tried)} not tried")
    counted = [one["state"] for one in outcome["thumbnails"]]
    assert [counted.count(state) for state in ("made", "there already", "failed", "not tried")] == [
        10, 10, len(tried) - 10, 90 - len(tried),
    ]  # fmt: skip
    monkeypatch.undo()
    assert main(command) == 0
    assert len(made(small)) == 100


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """What there is of a thumbnail goes, and the others stay."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("no disk of the test's own")
    photos, small = tmp_path / "photos", tmp_path / "small"
    photos.mkdir()
    small.mkdir()
    for number in range(60):
        noise("RGB", (150, 150), number).save(photos / f"{number:02}.bmp")
    program = f"""
        mount -t tmpfs -o size=1m tmpfs {small} || exit 77
        {sys.executable} -m gabion thumbnails {photos} {small} --jobs 2
        echo $? $(ls -A {small} | wc -l) $(find {small} -size -67500c -type f | wc -l)
    """
    done = subprocess.run(["unshare", "-rm", "sh", "-c", program], capture_output=True, text=True, timeout=HANGS)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no disk of the test's own")
    counts, last = done.stdout.splitlines()
    number = int(counts.split()[0])
    assert 10 < number < 16
    assert last == f"1 {number} 0"
    assert "failed, " in counts
    assert " not tried, in " in counts
    assert "No space left on device: stopped, " in done.stderr
    assert len(done.stderr.splitlines()) < 12


def test_damaged_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, small = tmp_path / "photos", tmp_path / "small"
    photos.mkdir()
    whole = encoded(noise("RGB", (600, 400)), "JPEG")
    (photos / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (photos / "bare.jpg").write_bytes(whole[:100])
    (photos / "cut.webp").write_bytes(encoded(noise("RGB", (600, 400)), "WebP")[:5000])
    command = ["thumbnails", str(photos), str(small)]
    assert main(command) == 1
    errors = dict(
        line.removeprefix(f"gabion: {photos}/").split(": ", 1) for line in capsys.readouterr().err.splitlines()
    )
    assert errors["cut.jpg"].endswith("; get the file anew; --partial takes what can be decoded")
    assert "partial" not in errors["cut.webp"]
    assert not any("partial=" in error for error in errors.values())
    assert main([*command, "--partial"]) == 1
    err = capsys.readouterr().err
    assert "partial" not in err
    assert len(err.splitlines()) == 2
    assert made(small) == {"cut.jpg": (150, 100)}
    with Image.open(small / "cut.jpg") as image:
        last = image.row(99)
        assert all(abs(value - 128) < 3 for value in last)


@pytest.mark.parametrize(
    ("options", "size", "corner"),
    [
        (["--fit", "cover", "--width", "40", "--height", "30"], (40, 30), (200, 0, 0)),
        (["--fit", "cover", "--height", "30"], (30, 30), (200, 0, 0)),
        (["--fit", "pad", "--width", "40"], (40, 40), (255, 255, 255)),
        (["--fit", "pad", "--width", "40", "--background", "#1020ff"], (40, 40), (16, 32, 255)),
        (["--fit", "inside", "--width", "40"], (40, 20), (200, 0, 0)),
    ],
)
def test_boxes(tmp_path: Path, options: list[str], size: tuple[int, int], corner: tuple[int, int, int]) -> None:
    Image.new("RGB", (100, 50), (200, 0, 0)).save(tmp_path / "red.png")
    assert main(["thumbnails", str(tmp_path / "red.png"), str(tmp_path / "small.png"), *options]) == 0
    with Image.open(tmp_path / "small.png") as small:
        assert small.size == size
        assert tuple(small.row(0)[:3]) == corner
        assert tuple(small.row(size[1] // 2)[3 * (size[0] // 2) :][:3]) == (200, 0, 0)


def test_colours_that_make_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [str(tmp_path / "red.png"), str(tmp_path / "small.png")]
    with pytest.raises(SystemExit):
        main(["thumbnails", *places, "--fit", "pad", "--background", "red"])
    assert "six hexadecimal digits are needed, as in ffffff, not 'red'" in capsys.readouterr().err
    assert main(["thumbnails", *places, "--background", "ffffff"]) == 2
    assert "--fit pad" in capsys.readouterr().err
