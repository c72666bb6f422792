"""`gabion thumbnails`: what it makes, what it leaves out, and what it tells."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from image_files import gradient, made, noise
from patience import HANGS, eventually

from gabion import Image
from gabion.cli import main
from gabion.cli.thumbnails import work

COMMAND = [sys.executable, "-m", "gabion", "thumbnails"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of pictures of several kinds, some of them below, and things that are none."""
    folder = tmp_path / "photos"
    (folder / "below" / "deep").mkdir(parents=True)
    gradient("RGB", (600, 400)).save(folder / "wide.jpg")
    gradient("RGB", (400, 600)).save(folder / "high.PNG")
    gradient("RGBA", (300, 300)).save(folder / "square.webp")
    gradient("L", (90, 60)).save(folder / "small.bmp")
    gradient("RGB", (500, 500)).save(folder / "below" / "one.jpg")
    gradient("CMYK", (500, 100)).save(folder / "below" / "deep" / "two.tif")
    (folder / "notes.txt").write_text("no picture")
    return folder


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=HANGS, **options)


FLAT = {"wide.jpg": (150, 100), "high.PNG": (100, 150), "square.webp": (150, 150), "small.bmp": (90, 60)}
DEEP = {"below/one.jpg": (150, 150), "below/deep/two.tif": (150, 30)}


def test_a_folder(photos: Path, tmp_path: Path) -> None:
    done = run(photos, tmp_path / "small")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("4 made, in ")
    assert made(tmp_path / "small") == FLAT


def test_folders_below_and_other_sizes(photos: Path, tmp_path: Path) -> None:
    assert main(["thumbnails", str(photos), str(tmp_path / "small"), "-r", "--jobs", "3"]) == 0
    assert made(tmp_path / "small") == FLAT | DEEP
    assert main(["thumbnails", str(photos), str(tmp_path / "tiny"), "--width", "60", "--height", "1_000"]) == 0
    assert made(tmp_path / "tiny") == {
        "wide.jpg": (60, 40),
        "high.PNG": (60, 90),
        "square.webp": (60, 60),
        "small.bmp": (60, 40),
    }


def test_patterns_and_files(photos: Path, tmp_path: Path) -> None:
    target = tmp_path / "small"
    assert main(["thumbnails", f"{photos}/**/*.jpg", str(photos / "high.PNG"), str(target), "--width", "20"]) == 0
    assert set(made(target)) == {"wide.jpg", "below/one.jpg", "high.PNG"}
    one = tmp_path / "one.webp"
    assert main(["thumbnails", str(photos / "wide.jpg"), str(one)]) == 0
    with Image.open(one) as image:
        assert (image.size, image.format) == ((150, 100), "WebP")


def test_no_more_threads_are_told_in_one_line(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(work.ThreadPoolExecutor, "submit", submit)
    assert main(["thumbnails", str(photos), str(tmp_path / "small")]) == 2
    assert capsys.readouterr().err.endswith("gabion: can't start new thread: use fewer, by --jobs\n")


def test_profiles_are_kept_and_exif_blocks_are_not(tmp_path: Path) -> None:
    Pillow = pytest.importorskip("PIL.Image")
    profile = bytes(16) + b"RGB " + bytes(16) + b"acsp" + bytes(92)
    place = Pillow.Exif()
    place[0x0112], place[0x013B] = 6, "a photographer"
    picture, small, bare = (tmp_path / name for name in ("a.jpg", "small.png", "bare.png"))
    gradient("RGB", (300, 200)).to_pillow().save(picture, exif=place, icc_profile=profile)
    assert main(["thumbnails", str(picture), str(small)]) == 0
    assert main(["thumbnails", str(picture), str(bare), "--no-profile"]) == 0
    assert main(["thumbnails", str(picture), str(tmp_path / "small"), "--height", "60"]) == 0
    for path, kept in ((small, profile), (bare, None), (tmp_path / "small" / "a.jpg", profile)):
        with Image.open(path) as image:
            assert (image.exif, image.icc_profile) == (None, kept)
            assert image.height > image.width
        assert b"a photographer" not in path.read_bytes()


def test_the_name_of_a_picture_is_no_folder_for_several(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = tmp_path / "one.jpg"
    for sources in ([photos], [photos / "*.jpg"], [photos / "wide.jpg", photos / "high.PNG"]):
        assert main(["thumbnails", *map(str, sources), str(one)]) == 2
        assert (
            capsys.readouterr().err == f"gabion: {one}: is the name of one picture; name a folder for the thumbnails\n"
        )
        assert not one.exists()
    one.mkdir()
    assert main(["thumbnails", str(photos), str(one)]) == 0
    assert made(one) == FLAT


@pytest.mark.parametrize("name", ["small.gif", "small.AVIF", "small.heic"])
def test_the_name_of_a_picture_that_is_not_written_is_no_folder(
    name: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / name
    for source in (photos / "wide.jpg", photos, photos / "*.jpg"):
        assert main(["thumbnails", str(source), str(target)]) == 2
        told = f"{target.suffix} cannot be written; name a folder, or a file of jpeg, png, webp, tiff, bmp"
        assert capsys.readouterr().err == f"gabion: {target}: {told}\n"
        assert not target.exists()
    target.mkdir()
    assert main(["thumbnails", str(photos / "wide.jpg"), str(target)]) == 0
    assert set(made(target)) == {"wide.jpg"}


def test_no_name_is_not_the_current_folder(
    photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(photos)
    before = sorted(photos.rglob("*"))
    for names, wrong in ((["", "out"], "SRC"), (["wide.jpg", "", "out"], "SRC"), (["wide.jpg", ""], "DST")):
        with pytest.raises(SystemExit) as ended:
            main(["thumbnails", *names])
        assert ended.value.code == 2
        assert f"argument {wrong}: is empty; '.' is the current folder" in capsys.readouterr().err
    assert sorted(photos.rglob("*")) == before
    assert main(["thumbnails", ".", "out"]) == 0


def test_names_like_patterns_are_files_first(tmp_path: Path) -> None:
    gradient("RGB", (300, 200)).save(tmp_path / "photo[1].jpg")
    assert main(["thumbnails", str(tmp_path / "photo[1].jpg"), str(tmp_path / "small")]) == 0
    assert set(made(tmp_path / "small")) == {"photo[1].jpg"}


@pytest.mark.parametrize(("kind", "ending"), [("jpeg", "jpg"), ("png", "png"), ("webp", "webp"), ("bmp", "bmp")])
def test_other_formats(photos: Path, tmp_path: Path, kind: str, ending: str) -> None:
    assert main(["thumbnails", str(photos), str(tmp_path / "small"), "-r", "--format", kind, "--quality", "50"]) == 0
    assert len(made(tmp_path / "small")) == 6
    for path in (tmp_path / "small").rglob("*.*"):
        assert path.suffix == f".{ending}"
        assert Image.open(path).format.lower() == kind


def test_a_format_that_the_name_contradicts(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "small.PNG"
    command = ["thumbnails", str(photos / "wide.jpg"), str(target), "--format"]
    assert main([*command, "jpeg"]) == 2
    assert capsys.readouterr().err == f"gabion: {target}: is no name of jpeg; name it .jpg, or leave out --format\n"
    assert not target.exists()
    assert main([*command, "png"]) == 0
    assert Image.open(target).format == "PNG"


def test_gif_becomes_png(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    gradient("L", (300, 200)).to_pillow().save(tmp_path / "old.gif")
    assert main(["thumbnails", str(tmp_path / "old.gif"), str(tmp_path / "small")]) == 0
    assert made(tmp_path / "small") == {"old.png": (150, 100)}


def test_finished_ones_are_left_out(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "small"
    command = ["thumbnails", str(photos), str(target)]
    assert main(command) == 0
    before = {path: path.stat().st_mtime_ns for path in target.iterdir()}
    capsys.readouterr()
    assert main(command) == 0
    told = "0 made, 4 there already (made before, at whatever size; --force makes them anew), in"
    assert told in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in target.iterdir()} == before
    gradient("RGB", (100, 300)).save(photos / "wide.jpg")
    (target / "high.PNG").unlink()
    later = time.time() + 10
    os.utime(photos / "wide.jpg", (later, later))
    assert main(command) == 0
    assert "2 made, 2 there already" in capsys.readouterr().out
    assert made(target) == FLAT | {"wide.jpg": (50, 150)}
    assert main([*command, "--force", "--width", "30"]) == 0
    assert made(target)["small.bmp"] == (30, 20)


def test_a_folder_that_cannot_be_is_told_once(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("/proc/gabion", "/proc/self"):
        assert main(["thumbnails", str(photos), place]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert f"gabion: {place}: cannot be " in err
        assert "name another folder" in err


def test_failures_are_told_at_the_end(photos: Path, tmp_path: Path) -> None:
    (photos / "broken.jpg").write_bytes((photos / "wide.jpg").read_bytes()[:1000])
    (photos / "empty.png").touch()
    (photos / "text.png").write_text("no picture")
    (photos / "folder.jpg").mkdir()
    (photos / "dangling.jpg").symlink_to("nowhere")
    done = run(photos, tmp_path / "small")
    assert done.returncode == 1
    assert "4 made, 4 failed" in done.stdout
    lines = sorted(done.stderr.splitlines())
    assert [line.split(": ")[1].rsplit("/")[-1] for line in lines] == [
        "broken.jpg",
        "dangling.jpg",
        "empty.png",
        "text.png",
    ]
    assert "not a sound JPEG image" in lines[0]
    assert "No such file" in lines[1]
    assert made(tmp_path / "small") == FLAT


def test_pictures_that_cannot_be_read_are_counted(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one.heic", "two.HEIC", "three.avif", "below/four.jxl", "film.mov"):
        (photos / name).touch()
    command = ["thumbnails", str(photos), str(tmp_path / "small")]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("4 made, not read: 1 .avif, 2 .heic, in ")
    assert main([*command, "-r", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["made"], told["skipped"], told["failed"]) == (2, 4, [])
    assert told["unread"] == {".avif": 1, ".heic": 2, ".jxl": 1}
    for picture in ("wide.jpg", "high.PNG", "square.webp", "small.bmp"):
        (photos / picture).unlink()
    assert main(command) == 1
    out, err = capsys.readouterr()
    assert out.startswith("0 made, not read: 1 .avif, 2 .heic, in ")
    wanted = f"no pictures in {photos}, but 1 .avif, 2 .heic: convert these to JPEG, PNG, WebP or TIFF"
    assert err == f"gabion: {wanted}\n"
    assert main([*command, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == wanted


def test_two_with_one_name(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gradient("RGB", (10, 10)).save(photos / "wide.png")
    assert main(["thumbnails", str(photos), str(tmp_path / "small"), "--format", "jpeg"]) == 1
    assert "would have the name of that of" in (told := capsys.readouterr().err)
    assert "; use --format same" in told
    assert len(made(tmp_path / "small")) == 4


def test_two_with_one_name_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL.Image").new("L", (1, 1)).save(tmp_path / "a.gif")
    gradient("RGB", (10, 10)).save(tmp_path / "a.png")
    for kind in ("png", "same"):
        assert main(["thumbnails", str(tmp_path), str(tmp_path / kind), "--format", kind]) == 1
        assert "; give it another DST" in capsys.readouterr().err


def test_what_is_no_thumbnail_does_not_count_as_one(photos: Path, tmp_path: Path) -> None:
    target = tmp_path / "small"
    (target / "wide.jpg").mkdir(parents=True)
    (target / "small.bmp").touch()
    done = run(photos, target)
    assert done.returncode == 1
    assert f"{len(FLAT) - 1} made, 1 failed" in done.stdout
    assert "Is a directory" in done.stderr


def test_thumbnails_of_thumbnails_are_not_made(photos: Path) -> None:
    for _ in range(2):
        assert main(["thumbnails", str(photos), str(photos / "small"), "-r"]) == 0
    assert set(made(photos / "small")) == {*FLAT, *DEEP}


@pytest.mark.parametrize("way", ["absolute", "around", "link"])
def test_a_target_inside_the_source_by_another_name(
    way: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(photos / "small")
    target = {"absolute": photos / "small", "around": "photos/below/../small", "link": "link"}[way]
    (photos / "small").mkdir()
    (photos / "notes.txt").unlink()
    monkeypatch.chdir(tmp_path)
    for source in ("photos", "photos", "photos/**/*.*", "photos/**"):
        assert main(["thumbnails", source, str(target), "-r"]) == 0
    assert set(made(photos / "small")) == {*FLAT, *DEEP}


def test_links_in_a_circle(photos: Path, tmp_path: Path) -> None:
    """Each of these folders can be reached in more ways than anybody can count."""
    (photos / "notes.txt").unlink()
    for folder in (photos, photos / "below"):
        for name in ("a", "b"):
            (folder / name).symlink_to(photos)
    for source in (str(photos), f"{photos}/**/*.*"):
        target = tmp_path / f"small{len(source)}"
        assert main(["thumbnails", source, str(target), "-r"]) == 0
        assert set(made(target)) == {*FLAT, *DEEP}


def test_patterns_leave_out_what_is_hidden(photos: Path, tmp_path: Path) -> None:
    (photos / ".trash").mkdir()
    for name in (".hidden.jpg", ".trash/old.jpg"):
        gradient("RGB", (30, 20)).save(photos / name)
    assert main(["thumbnails", f"{photos}/**/*.jpg", str(tmp_path / "small")]) == 0
    assert set(made(tmp_path / "small")) == {"wide.jpg", "below/one.jpg"}
    assert main(["thumbnails", f"{photos}/.*.jpg", str(tmp_path / "hidden")]) == 0
    assert main(["thumbnails", f"{photos}/**.jpg", str(tmp_path / "flat")]) == 0
    assert set(made(tmp_path / "flat")) == {"wide.jpg"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_told(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "below").chmod(0)
    try:
        assert main(["thumbnails", str(photos), str(tmp_path / "small"), "-r"]) == 1
    finally:
        (photos / "below").chmod(0o700)
    assert f"{photos / 'below'}: Permission denied" in capsys.readouterr().err
    assert set(made(tmp_path / "small")) == set(FLAT)


def test_a_pattern_tells_of_folders_that_cannot_be_read(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    access = os.access

    def as_another(path: Path, mode: int, **more: bool) -> bool:
        return Path(path) != photos / "below" and access(path, mode, **more)

    monkeypatch.setattr(os, "access", as_another)
    for pattern in (f"{photos}/**/*.jpg", f"{photos}/*/*.jpg"):
        assert main(["thumbnails", pattern, str(tmp_path / "small")]) == 1
        assert f"{photos / 'below'}: Permission denied" in capsys.readouterr().err
    assert main(["thumbnails", f"{photos}/*.jpg", str(tmp_path / "flat")]) == 0


def test_a_source_that_cannot_be_looked_at_stops_no_other(photos: Path, tmp_path: Path) -> None:
    beyond = photos / ("x" * 300)
    assert main(["thumbnails", str(photos / "wide.jpg"), str(beyond / "y.jpg"), str(tmp_path / "small")]) == 1
    assert set(made(tmp_path / "small")) == {"wide.jpg"}


def test_names_that_are_no_text(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    names = [os.fsdecode(name) for name in (b"caf\xe9.jpg", b"\xff\xfe.png", b"new\nline.jpg")]
    for name in names:
        gradient("RGB", (300, 200)).save(photos / name)
    (photos / os.fsdecode(b"broken \xe9\n\x1b[31m.png")).write_bytes(b"no picture")
    done = run(photos, tmp_path / "small")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    named = f"gabion: {photos}/broken \\udce9\\n\\x1b[31m.png: the first bytes are of no image format"
    assert done.stderr.startswith(named), done.stderr
    assert {path.name for path in (tmp_path / "small").iterdir()} == set(names)
    [failed] = json.loads(run(photos, tmp_path / "small", "--json").stdout)["failed"]
    assert os.fsencode(failed["source"]).endswith(b"broken \xe9\n\x1b[31m.png")
    assert failed["error"].startswith("the first bytes are of no image format")


def test_no_thumbnail_takes_the_place_of_a_picture(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gradient("RGB", (900, 300)).save(photos / "wide.png")
    before = (photos / "wide.jpg").read_bytes()
    later = time.time() + 10
    os.utime(photos / "wide.png", (later, later))
    sources = [str(photos / "wide.png"), str(photos / "high.PNG"), str(photos / "wide.jpg")]
    assert main(["thumbnails", *sources, str(photos), "--format", "jpeg"]) == 1
    assert "would take the place of" in capsys.readouterr().err
    assert (photos / "wide.jpg").read_bytes() == before


def test_a_picture_is_not_its_own_thumbnail(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (photos / "wide.jpg").read_bytes()
    for target in (photos, photos / "wide.jpg"):
        assert main(["thumbnails", str(photos / "wide.jpg"), str(target)]) == 1
        assert "would take its own place" in capsys.readouterr().err
    assert (photos / "wide.jpg").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent", "small"], "absent: No such file"),
        (["absent", "gone/too.jpg", "small"], "absent: No such file or directory; gone/too.jpg: No such file or dir"),
        (["absent", "small.jpg"], "absent: No such file"),
        (["link", "small"], "link: No such file"),
        (["gone/*.jpg", "small"], "gone: No such file or directory"),
        (["file/*.jpg", "small"], "file: Not a directory"),
        (["empty", "file"], "file: is a file; name a folder"),
        (["empty", "empty"], "empty: the pictures are looked for there; name another folder"),
        (["*.jpg", "."], ".: the pictures are looked for there; name another folder"),
    ],
)
def test_wrong_places(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    assert main(["thumbnails", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert main(["thumbnails", "--json", *arguments]) == 2
    told = json.loads(capsys.readouterr().out)
    assert f"gabion: {told['error']}\n" == err
    assert (told["made"], told["failed"], told["thumbnails"], told["interrupted"]) == (0, [], [], False)
    assert not (tmp_path / "small").exists()


def test_one_missing_source_of_several_is_a_failure_like_others(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["thumbnails", str(photos / "wide.jpg"), str(photos / "gone.jpg"), str(tmp_path / "small")]) == 1
    out, err = capsys.readouterr()
    assert "1 made, 1 failed" in out
    assert "gone.jpg: No such file" in err


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["--width", "0"], "a whole number of 1 or more is needed, not '0'"),
        (["--width", "wide"], "a whole number of 1 or more is needed, not 'wide'"),
        (["--quality", "101"], "a whole number from 1 to 100 is needed"),
        (["--quality", "9.5"], "a whole number from 1 to 100 is needed"),
        (["--format", "gif"], "invalid choice"),
        (["--jobs", "0"], "1 or more is needed"),
        (["--max-memory", "much"], "not a size"),
        (["--max-memory", "64 KiB"], "64 MiB or more is needed, not '64 KiB'"),
    ],
)
def test_wrong_options(option: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["thumbnails", "a", "b", *option])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_limit_on_memory_is_kept(tmp_path: Path) -> None:
    """What does not fit beside others is made alone."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(12):
        noise("RGB", (700, 500), number).save(photos / f"{number}.bmp")
    done = run(photos, tmp_path / "small", "--jobs", "16", "--max-memory", "64 MiB", "--format", "png")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(made(tmp_path / "small")) == 12
    noise("L", (8000, 4000)).save(photos / "large.bmp")
    done = run(photos, tmp_path / "others", "--max-memory", "64 MiB")
    assert done.returncode == 1
    assert "12 made, 1 failed" in done.stdout
    assert "large.bmp: needs more memory than --max-memory allows" in done.stderr


def test_too_many_pixels(photos: Path, tmp_path: Path) -> None:
    done = run(photos, tmp_path / "small", "--max-pixels", "100_000")
    assert done.returncode == 1
    assert "2 made, 2 failed" in done.stdout
    assert "240000 pixels, more than max_pixels=100000 allows" in done.stderr


def test_a_full_disk_leaves_the_old_file(photos: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk that is full."""
    target = tmp_path / "small"
    assert main(["thumbnails", str(photos), str(target), "--width", "10"]) == 0
    before = {path.name: path.read_bytes() for path in target.iterdir()}

    def narrow() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    done = run(photos, target, "--force", "--format", "same", preexec_fn=narrow)
    assert done.returncode == 1
    assert "4 failed" in done.stdout
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before


def test_a_target_that_cannot_be_made(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["thumbnails", str(photos), str(tmp_path / "file" / "small")]) == 1
    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "times", "as_json"),
    [(signal.SIGINT, 1, False), (signal.SIGINT, 3, False), (signal.SIGTERM, 3, False), (signal.SIGTERM, 1, True)],
)
def test_an_interrupt_leaves_whole_files_only(
    number: signal.Signals, times: int, as_json: bool, tmp_path: Path
) -> None:
    photos, target = tmp_path / "photos", tmp_path / "small"
    photos.mkdir()
    noise("RGB", (1500, 1000)).save(photos / "0.png", compression="fast")
    for copy in range(1, 300):
        os.link(photos / "0.png", photos / f"{copy}.png")
    for _ in range(5):
        running = subprocess.Popen(
            [*COMMAND, str(photos), str(target), "--width", "900", *["--json"] * as_json],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert eventually(lambda: target.is_dir() and len(list(target.glob("*.png"))) > 3)
        for _ in range(times):  # whoever presses Ctrl-C again and again gets the same end in order
            running.send_signal(number)
            time.sleep(0.02)
        out, err = running.communicate(timeout=HANGS)
        if len(list(target.iterdir())) < 300:
            break
        shutil.rmtree(target)  # this process had no time to run until that one had made them all
    assert running.returncode == 128 + number
    if as_json:
        assert json.loads(out)["interrupted"] is True
        out, _, err = err.partition("gabion:")
        err = "gabion:" + err
    assert "not tried; the same command continues" in out
    assert err == "gabion: interrupted\n"
    there = made(target)
    assert 3 < len(there) < 300
    assert set(there.values()) == {(900, 600)}
    assert all(not name.startswith(".") for name in there)
