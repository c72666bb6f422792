"""Which pictures `gabion thumbnails` makes thumbnails of, how large, and what it leaves alone."""

import errno
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from image_files import encoded, gradient, made

from gabion import Image
from gabion.cli import main
from gabion.cli.thumbnails.plan import Plan, expanded, root


@pytest.mark.parametrize(
    ("given", "wide", "high"),
    [
        ([], (150, 100), (100, 150)),
        (["--width", "60"], (60, 40), (40, 60)),
        (["--height", "60"], (90, 60), (40, 60)),
        (["--width", "80", "--height", "30"], (45, 30), (20, 30)),
    ],
)
def test_one_side_may_be_left_to_the_shape(
    tmp_path: Path, given: list[str], wide: tuple[int, int], high: tuple[int, int]
) -> None:
    gradient("RGB", (300, 200)).save(tmp_path / "wide.png")
    gradient("RGB", (200, 300)).save(tmp_path / "high.png")
    assert main(["thumbnails", str(tmp_path / "*.png"), str(tmp_path / "small"), *given]) == 0
    for name, size in (("wide", wide), ("high", high)):
        with Image.open(tmp_path / "small" / f"{name}.png") as image:
            assert image.size == size


def test_a_picture_of_ones_own_is_no_thumbnail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who forgot the folder behind a pattern of two pictures lost the second one."""
    first, second = tmp_path / "a.jpg", tmp_path / "b.jpg"
    for path in (first, second):
        gradient("RGB", (300, 200)).save(path)
    before = second.read_bytes()
    os.utime(second, (10**9, 10**9))
    assert main(["thumbnails", str(first), str(second)]) == 1
    error = capsys.readouterr().err
    assert f"replace {second}, which is larger: 300 × 200 pixels; name another folder, or use --force" in error
    assert second.read_bytes() == before
    backup = tmp_path / "backup"
    backup.mkdir()
    second.rename(backup / "a.jpg")
    os.utime(backup / "a.jpg", (10**9, 10**9))
    assert main(["thumbnails", str(first), str(backup)]) == 1
    assert f"would replace {backup / 'a.jpg'}, which is larger: 300 × 200 pixels" in capsys.readouterr().err
    assert (backup / "a.jpg").read_bytes() == before
    # What cannot be read, or is beyond the limits, may be one as well.
    (backup / "a.jpg").write_bytes(b"a picture of another kind")
    os.utime(backup / "a.jpg", (10**9, 10**9))
    assert main(["thumbnails", str(first), str(backup)]) == 1
    assert "the size of which cannot be told" in capsys.readouterr().err
    assert (backup / "a.jpg").read_bytes() == b"a picture of another kind"
    # What a run has made, it makes anew when its picture has changed.
    assert main(["thumbnails", str(first), str(backup), "--force"]) == 0
    os.utime(backup / "a.jpg", (10**9, 10**9))
    assert main(["thumbnails", str(first), str(backup)]) == 0


@pytest.mark.parametrize("way", ["mv", "cp -p", "ln -s"])
def test_a_picture_that_is_replaced_by_an_older_one_gets_a_new_thumbnail(way: str, tmp_path: Path) -> None:
    photos, other = tmp_path / "photos", tmp_path / "other.png"
    photos.mkdir()
    gradient("RGB", (300, 200)).save(photos / "a.png")
    gradient("RGB", (300, 200)).save(photos / "b.png")
    gradient("RGB", (200, 300)).save(other)
    os.utime(other, (10**9, 10**9))
    command = ["thumbnails", str(photos), str(tmp_path / "small")]
    time.sleep(0.05)  # the system's clock for files goes in steps
    assert main(command) == 0
    before = (tmp_path / "small" / "b.png").stat().st_ino
    time.sleep(0.05)
    if way == "mv":
        other.rename(photos / "a.png")
    elif way == "ln -s":
        (photos / "a.png").unlink()
        (photos / "a.png").symlink_to(other)
    else:
        shutil.copy2(other, photos / "a.png")
    assert (photos / "a.png").stat().st_mtime == 10**9
    assert main(command) == 0
    assert made(tmp_path / "small") == {"a.png": (100, 150), "b.png": (150, 100)}
    assert (tmp_path / "small" / "b.png").stat().st_ino == before


def test_folders_are_looked_through_without_what_is_hidden(tmp_path: Path) -> None:
    for name in ("a.png", "._a.png", ".trash/b.png", "shown/c.png", "shown/.thumbnails/d.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        gradient("RGB", (30, 20)).save(tmp_path / "photos" / name)
    assert main(["thumbnails", "-r", str(tmp_path / "photos"), str(tmp_path / "small")]) == 0
    assert set(made(tmp_path / "small")) == {"a.png", "shown/c.png"}
    # Who names one of them wants it.
    assert main(["thumbnails", str(tmp_path / "photos" / ".trash"), str(tmp_path / "trash")]) == 0
    assert set(made(tmp_path / "trash")) == {"b.png"}


@pytest.mark.parametrize(
    "sources", [["photos"], ["photos", "else"], ["photos/*.png", "else/*"], ["else", "photos/a.png"]]
)
def test_a_source_that_lies_below_the_target_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: list[str]
) -> None:
    for name in ("photos/a.png", "else/b.png"):
        (tmp_path / name).parent.mkdir()
        gradient("RGB", (300, 200)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["thumbnails", "-r", *sources, "."]) == 0
        wanted = {"a.png"} if len(sources) == 1 else {"a.png", "b.png"}
        assert {path.name for path in tmp_path.glob("*.png")} == wanted


def test_two_targets_that_are_one_file_by_a_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a/x.png", "b/x.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True)
        gradient("RGB", (300, 200)).save(tmp_path / "photos" / name)
    (tmp_path / "small" / "a").mkdir(parents=True)
    (tmp_path / "small" / "b").symlink_to("a")
    for _ in range(2):
        assert main(["thumbnails", "-r", str(tmp_path / "photos"), str(tmp_path / "small")]) == 1
        error = capsys.readouterr().err
        assert f"photos/b/x.png: its thumbnail {tmp_path}/small/b/x.png would be the file of that of " in error
        assert "; give it another DST" in error
    assert set(made(tmp_path / "small")) == {"a/x.png"}


def test_a_file_that_leads_to_another_target_is_one_with_it(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "small").mkdir()
    for name in ("a.png", "b.png"):
        gradient("RGB", (300, 200)).save(tmp_path / "photos" / name)
    (tmp_path / "small" / "b.png").symlink_to("a.png")
    assert main(["thumbnails", str(tmp_path / "photos"), str(tmp_path / "small")]) == 1


def test_what_is_wrong_with_a_target_is_told_of_the_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gradient("RGB", (30, 20)).save(tmp_path / "a b.jpg")
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "x.jpg"
    assert main(["thumbnails", str(tmp_path / "a b.jpg"), str(target)]) == 1
    assert f"a b.jpg: its thumbnail cannot be {target}: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--force"]])
def test_what_is_no_file_is_not_written_to(more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe that nobody reads from held up the whole run."""
    photos, small = tmp_path / "photos", tmp_path / "small"
    photos.mkdir()
    small.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        gradient("RGB", (300, 200)).save(photos / name)
    os.mkfifo(small / "a.png")
    (small / "b.png").symlink_to("/dev/null")
    reader = os.open(small / "a.png", os.O_RDWR | os.O_NONBLOCK)  # so that the test does not wait, if it fails
    assert main(["thumbnails", str(photos), str(small), *more]) == 1
    error = capsys.readouterr().err
    os.close(reader)
    for name in ("a.png", "b.png"):
        assert f"{photos / name}: its thumbnail cannot be {small / name}: that is no file" in error
    assert (small / "a.png").is_fifo()
    assert (small / "c.png").is_file()
    assert main(["thumbnails", str(photos / "a.png"), str(small / "a.png"), *more]) == 1
    assert f"its thumbnail cannot be {small / 'a.png'}: that is no file" in capsys.readouterr().err


def test_folders_that_are_left_out_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.png", "one/b.png", "two/c.png", ".hidden/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        gradient("RGB", (30, 20)).save(tmp_path / name)
    command = ["thumbnails", str(tmp_path), str(tmp_path / "small")]
    for _ in range(2):
        assert main(command) == 0
        assert capsys.readouterr().out.endswith("\n2 subfolders were left out; --recursive looks into them\n")
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["subfolders"] == 2
    assert main([*command, "-r"]) == 0
    assert "left out" not in capsys.readouterr().out


def test_links_to_folders_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An album that is a link was said to be found with --recursive, which does not look into it either."""
    for name in ("albums/a.png", "albums/one/b.png", "else/c.png", "more/d.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        gradient("RGB", (30, 20)).save(tmp_path / name)
    albums, small = tmp_path / "albums", tmp_path / "small"
    (albums / "else").symlink_to("../else")
    for source in (albums, f"{albums}/**/*.png"):
        command = ["thumbnails", str(source), str(small), "-r"]
        assert main(command) == 0
        assert capsys.readouterr().out.endswith("s\n1 link to a folder was not followed; name it as a source\n")
    assert main(command[:-1]) == 0
    assert capsys.readouterr().out.endswith("s\n1 link to a folder was not followed; name it as a source\n")
    assert main(["thumbnails", str(albums), str(small)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "1 subfolder was left out; --recursive looks into it",
        "1 link to a folder was not followed; name it as a source",
    ]
    # Those that are hidden, and those that lead to where is looked anyway, are none.
    for name, place in ((".hidden", "../more"), ("again", "one"), ("one/more", "../../more"), ("small", small)):
        (albums / name).symlink_to(place)
    assert main(["thumbnails", str(albums), str(small), "-r"]) == 0
    assert capsys.readouterr().out.endswith("s\n2 links to folders were not followed; name them as sources\n")
    assert main(["thumbnails", str(albums), str(albums / "else"), str(tmp_path / "more"), str(small), "-r"]) == 0
    assert "link" not in capsys.readouterr().out
    assert main(["thumbnails", str(albums), str(small), "-r", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["links"] == 2


@pytest.mark.parametrize("pattern", ["", "**/*.png", "**"])
def test_folders_lie_in_folders_as_deep_as_they_like(pattern: str, tmp_path: Path) -> None:
    """Deeper than functions of Python may call each other."""
    deep = tmp_path / "photos"
    for _ in range(1100):
        deep.mkdir()
        deep /= "d"
    gradient("RGB", (30, 20)).save(deep.with_name("a.png"))
    try:
        assert main(["thumbnails", str(tmp_path / "photos" / pattern), str(tmp_path / "small"), "-r"]) == 0
        assert (tmp_path / "small" / deep.relative_to(tmp_path / "photos").with_name("a.png")).is_file()
    finally:
        # pytest would call itself, too.
        subprocess.run(["rm", "-rf", tmp_path / "photos", tmp_path / "small"], check=True)


def test_what_a_pattern_cannot_look_at_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such entry ended the run before anything was made."""
    photos, small = tmp_path / "photos", tmp_path / "small"
    for name in ("a.png", "b.png", "one/c.png"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        gradient("RGB", (30, 20)).save(photos / name)
    (photos / "circle.png").symlink_to("circle.png")
    (photos / "nowhere.png").symlink_to("nowhere")
    stat = Path.stat

    def fails(path: Path, **options: Any) -> os.stat_result:
        if path.name == "b.png":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", fails)
    for pattern in ("*.png", "**/*.png"):
        assert main(["thumbnails", f"{photos}/{pattern}", str(small)]) == 1
        assert capsys.readouterr().err == f"gabion: {photos / 'b.png'}: {os.strerror(errno.ESTALE)}\n"
    assert set(made(small)) == {"a.png", "one/c.png"}
    monkeypatch.undo()
    long = "x" * 300
    assert main(["thumbnails", str(photos / "a.png"), f"{photos}/*/{long}", str(tmp_path / "other")]) == 1
    assert capsys.readouterr().err == f"gabion: {photos / 'one' / long}: {os.strerror(errno.ENAMETOOLONG)}\n"
    assert set(made(tmp_path / "other")) == {"a.png"}


def test_patterns_mean_what_they_mean_to_a_shell(tmp_path: Path) -> None:
    names = [
        "a.png",
        "b.jpg",
        "one/a.png",
        "one/two/a.png",
        "one/two/c.png",
        "two/one/two/d.png",
        "x[1]/e.png",
        "one/one/one/f.png",
    ]
    photos = tmp_path / "photos"
    for name in names:
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        gradient("RGB", (30, 20)).save(photos / name)
    (photos / "link").symlink_to("one")
    for pattern in (
        "*", "?.png", "[!a].*", "*/a.png", "*/*/*.png", "**/a.png", "**/two/*.png", "**/two/**/*.png", "o*/**/a.png",
        "**/**/*.png", "one/../*.png", "*/../b.jpg", "one/*/c.png", "**/one/two/d.png", "x[[]1]/*.png", "l*/*.png",
        "**/one/one/*.png",
    ):  # fmt: skip
        plan = Plan()
        found = [below.as_posix() for _, below in expanded(f"{photos}/{pattern}", False, plan)]
        assert sorted(found) == sorted(
            {
                path.relative_to(root(f"{photos}/{pattern}")).as_posix()
                for path in Path(photos).glob(pattern)
                if path.is_file()
            }
        ), pattern
        assert not plan.refused


def test_what_a_picture_is_called_does_not_matter(tmp_path: Path) -> None:
    """Those without an ending were left out, neither made nor counted, and others made as what their names said."""
    photos, small = tmp_path / "photos", tmp_path / "small"
    photos.mkdir()
    jpeg, png = encoded(gradient("RGB", (300, 200)), "JPEG"), encoded(gradient("RGB", (200, 300)), "PNG")
    contents = {
        "noext": jpeg, "img?size=big": jpeg, "img.jpg?size=big": jpeg, "wrong.png": jpeg, "scan.2024": png,
        "scan.2025": jpeg, "right.jpeg": jpeg, "x.bin": png, "notes": b"no picture", "empty": b"",
        "BMW": b"BMW is a maker of cars, and this is no bitmap.", "note.txt": jpeg, "half.jpg.part": jpeg,
        "old.jpg~": jpeg, "photo.nef": b"II*\0" + bytes(100),
        "drawing": b"<svg/>",
    }  # fmt: skip
    for name, content in contents.items():
        (photos / name).write_bytes(content)
    os.mkfifo(photos / "pipe")
    (photos / "broken").symlink_to("nowhere")
    done = {
        "noext.jpg": "JPEG", "img?size=big.jpg": "JPEG", "img.jpg?size=big.jpg": "JPEG", "wrong.jpg": "JPEG",
        "scan.2024.png": "PNG", "scan.2025.jpg": "JPEG", "right.jpeg": "JPEG", "x.bin.png": "PNG",
    }  # fmt: skip
    for _ in range(2):  # the second run finds all of them there
        assert main(["thumbnails", str(photos), str(small)]) == 0
        assert {path.name: Image.open(path).format for path in small.iterdir()} == done
    assert main(["thumbnails", str(photos / "noext"), str(photos / "note.txt"), str(tmp_path / "named")]) == 0
    assert set(made(tmp_path / "named")) == {"noext.jpg", "note.txt.jpg"}
    assert main(["thumbnails", str(photos), str(tmp_path / "webp"), "--format", "webp"]) == 0
    assert {Image.open(path).format for path in (tmp_path / "webp").iterdir()} == {"WebP"}
    assert "img.jpg?size=big.webp" in made(tmp_path / "webp")


def test_a_picture_that_has_the_name_comes_before_one_that_is_given_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One without an ending took the thumbnail of one that has it, and the next run counted that for its own."""
    photos, small = tmp_path / "photos", tmp_path / "small"
    photos.mkdir()
    named = encoded(Image.new("RGB", (200, 200), (255, 0, 0)), "PNG")
    unnamed = encoded(Image.new("RGB", (200, 200), (0, 255, 0)), "PNG")
    for name, content in {"shot.png": named, "shot": unnamed, "a.png": named, "a.jpg": unnamed}.items():
        (photos / name).write_bytes(content)
    for _ in range(2):
        assert main(["thumbnails", str(photos), str(small)]) == 1
        told = capsys.readouterr().err
        for name, other in (("shot", "shot.png"), ("a.jpg", "a.png")):
            assert f"{photos / name}: its thumbnail would have the name of that of {photos / other}" in told
        assert set(made(small)) == {"shot.png", "a.png"}
        assert all(Image.open(path).convert("RGB").to_bytes()[:3] == b"\xff\0\0" for path in small.iterdir())


def test_a_picture_with_the_name_of_another_format_is_looked_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "IMG_1.HEIC").write_bytes(encoded(gradient("RGB", (300, 200)), "JPEG"))
    (tmp_path / "IMG_2.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + bytes(50))
    assert main(["thumbnails", str(tmp_path), str(tmp_path / "small")]) == 0
    assert set(made(tmp_path / "small")) == {"IMG_1.jpg"}
    assert "1 .heic" in capsys.readouterr().out


def test_a_file_that_cannot_be_looked_into_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for no picture."""
    (tmp_path / "noext").write_bytes(encoded(gradient("RGB", (300, 200)), "JPEG"))
    opens = Path.open

    def fails(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == "noext":
            raise PermissionError(13, "Permission denied", str(path))
        return opens(path, *args, **options)

    monkeypatch.setattr(Path, "open", fails)
    assert main(["thumbnails", str(tmp_path), str(tmp_path / "small")]) == 1
    assert f"{tmp_path / 'noext'}: Permission denied" in capsys.readouterr().err


def test_a_bitmap_without_an_ending_is_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    gradient("RGB", (300, 200)).save(tmp_path / "photos" / "bitmap", format="BMP")
    (tmp_path / "photos" / "photo.CR2").write_bytes(b"II*\0")
    assert main(["thumbnails", str(tmp_path / "photos"), str(tmp_path / "small")]) == 0
    assert made(tmp_path / "small") == {"bitmap.bmp": (150, 100)}
    assert "1 made, not read: 1 .cr2" in capsys.readouterr().out
