"""What gabion.Image.save() does to what is there already: links, pipes, devices, others' files; and what names tell."""

import errno
import io
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from image_files import encoded, noise
from patience import HANGS

from gabion import Image, ImageError

pytestmark = pytest.mark.usefixtures("balance")


def test_links_stay_and_lead_to_the_new_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "old.png").write_bytes(b"old")
    links = {"link.png": "real/old.png", "link of a link.png": "link.png", "to nothing.png": "real/new.png"}
    for link, to in links.items():
        (tmp_path / link).symlink_to(to)
    for seed, link in enumerate(links):
        image = noise("L", (5, 4), seed)
        image.save(tmp_path / link)
        assert (tmp_path / link).is_symlink()
        assert Image.open(tmp_path / link).to_bytes() == image.to_bytes()
    assert {path.name for path in (tmp_path / "real").iterdir()} == {"old.png", "new.png"}


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "here.png").symlink_to("there.png")
    (tmp_path / "there.png").symlink_to("here.png")
    with pytest.raises(OSError, match="symbolic links") as failed:
        noise("L", (5, 4)).save(tmp_path / "here.png")
    assert (failed.value.errno, failed.value.filename) == (errno.ELOOP, tmp_path / "here.png")
    assert (tmp_path / "here.png").is_symlink()


def test_pipes_are_written_to_and_read_from(tmp_path: Path) -> None:
    pipe, image, read = tmp_path / "pipe.png", noise("RGB", (300, 200)), []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    image.save(pipe)
    reader.join()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert Image.open(read[0]).to_bytes() == image.to_bytes()
    writer = threading.Thread(target=lambda: pipe.write_bytes(read[0]))
    writer.start()
    assert Image.open(pipe).to_bytes() == image.to_bytes()
    writer.join()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe.png"]


@pytest.mark.parametrize("use", ["open", "save"])
def test_a_pipe_without_another_end_can_be_interrupted(use: str, tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(*_: object) -> None:
        raise Enough

    pipe, image = tmp_path / "pipe.png", noise("L", (5, 4))
    os.mkfifo(pipe)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Enough):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            Image.open(pipe) if use == "open" else image.save(pipe)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_devices_are_written_to(tmp_path: Path) -> None:
    image = noise("RGB", (300, 200))
    (tmp_path / "full.png").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        image.save(tmp_path / "full.png")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    with open(tmp_path / "file", "w+b") as file:
        image.save(f"/dev/fd/{file.fileno()}", format="PNG")
    assert (tmp_path / "file").read_bytes() == encoded(image, "PNG")


def test_the_owner_stays(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.touch()
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    before = path.stat()
    noise("L", (5, 4)).save(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (before.st_uid, before.st_gid)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everything")
def test_a_file_that_may_not_be_written_to_stays(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError) as failed:
        noise("L", (5, 4)).save(path)
    assert failed.value.filename == path
    assert path.read_bytes() == b"old"


def test_a_pipe_that_is_left_is_an_error(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)

    def leave() -> None:
        os.close(os.open(pipe, os.O_RDONLY))
        time.sleep(0.05)

    reader = threading.Thread(target=leave)
    reader.start()
    with pytest.raises(BrokenPipeError):
        noise("RGB", (900, 700)).save(pipe, compression="none")
    reader.join()


class Named(io.BytesIO):
    def __init__(self, name: object) -> None:
        super().__init__()
        self.name = name


def test_names_that_tell_nothing(tmp_path: Path) -> None:
    image = noise("RGB", (5, 4))
    nothing = "tells no format that can be written: end it in one of .jpg, .png, .webp, .tif, .bmp, or pass the format"
    gif = "tells GIF, which can be read, but not written; JPEG, PNG, WebP, TIFF and BMP are written"
    for name, told in (("image", nothing), ("image.txt", nothing), ("image.gif", gif)):
        for target in (tmp_path / name, Named(name)):
            with pytest.raises(ImageError, match=re.escape(f'{name}" {told}')):
                image.save(target)
    for file in (io.BytesIO(), Named(7)):
        with pytest.raises(ImageError, match="no name that tells the format: pass format="):
            image.save(file)
    named = Named("image.gif")
    image.save(named, format="PNG")
    assert Image.open(named.getvalue()).format == "PNG"
    with pytest.raises(TypeError, match=r"Image.save\(\) takes a path or a binary file with write\(\), not int"):
        image.save(5, format="PNG")
    with pytest.raises(TypeError, match="file is a text file"):
        image.save(io.StringIO(), format="PNG")
    assert list(tmp_path.iterdir()) == []


def test_what_a_disk_tells_only_at_the_end_is_told(tmp_path: Path) -> None:
    """A file on a server that was full had its name, and was there for ever."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("what has close() fail is compiled")
    library, full = tmp_path / "close_fails.so", tmp_path / "full"
    source = Path(__file__).with_name("close_fails.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True, timeout=HANGS)
    full.mkdir()
    noise("L", (5, 4)).save(full / "old.png")
    before = (full / "old.png").read_bytes()
    program = """
import errno, gabion, sys
image = gabion.Image.new("L", (5, 4), 9)
for name in sys.argv[1:]:
    try:
        image.save(name)
    except OSError as error:
        assert (error.errno, str(error.filename)) == (errno.ENOSPC, name), error
    else:
        raise AssertionError(name)
"""
    names = [str(full / "old.png"), str(full / "new.png")]
    around = {**os.environ, "LD_PRELOAD": str(library), "FULL": str(full)}
    subprocess.run([sys.executable, "-c", program, *names], check=True, env=around, timeout=HANGS)
    assert (full / "old.png").read_bytes() == before
    assert [path.name for path in full.iterdir()] == ["old.png"]
