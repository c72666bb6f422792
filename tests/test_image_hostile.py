"""Files that are made to do harm, and surroundings that fail: an error, little memory, little time, no half a file."""

import contextlib
import errno
import gc
import os
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from image_files import HELD, encoded, gradient, noise
from patience import HANGS, eventually

import gabion
from gabion import Image, ImageError, LimitError
from gabion.cli import main

pytestmark = pytest.mark.usefixtures("balance")

# --- files that claim, or become, more than they are -------------------------------------------------


def png(width: int, height: int, *chunks: bytes, interlaced: bool = False) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced))
    data = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + data + chunk(b"IEND", b"")


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def inflating(megabytes: int) -> bytes:
    """Compressed zeros."""
    packer, part = zlib.compressobj(1), bytes(1 << 20)
    return b"".join(packer.compress(part) for _ in range(megabytes)) + packer.flush()


def gif(canvas: tuple[int, int], frame: tuple[int, int]) -> bytes:
    head = b"GIF89a" + struct.pack("<HH", *canvas) + b"\x80\0\0" + b"\0\0\0\xff\xff\xff"
    return head + b"\x2c" + struct.pack("<HHHH", 0, 0, *frame) + b"\0\x02" + blocks(constant(60_000)) + b"\0\x3b"


def blocks(data: bytes) -> bytes:
    return b"".join(bytes([len(part)]) + part for part in (data[at : at + 255] for at in range(0, len(data), 255)))


def constant(codes: int) -> bytes:
    """As many codes of LZW, from a table that is full of runs of one colour."""
    bits, filled, width, next_code = 0, 0, 3, 6
    out = bytearray()

    def put(code: int) -> None:
        nonlocal bits, filled
        bits |= code << filled
        filled += width
        while filled >= 8:
            out.append(bits & 255)
            bits, filled = bits >> 8, filled - 8

    put(4)
    put(0)
    for _ in range(codes):
        put(min(next_code, 4095))
        if next_code < 4096:
            next_code += 1
            if next_code == 1 << width and width < 12:
                width += 1
    put(5)
    out.append(bits & 255)
    return bytes(out)


def jpeg(width: int, height: int, scans: int = 1, **options: object) -> bytes:
    """A small picture whose header claims to be another size, and whose last scan comes so often."""
    content = encoded(gradient("RGB", (64, 64)), "JPEG", **options)
    frame = max(content.find(b"\xff\xc0\0\x11"), content.find(b"\xff\xc2\0\x11"))
    last = content.rfind(b"\xff\xda")
    content = content[:-2] + content[last:-2] * (scans - 1) + b"\xff\xd9"
    return content[: frame + 5] + struct.pack(">HH", height, width) + content[frame + 9 :]


def webp(width: int, height: int, *parts: tuple[bytes, int, bytes]) -> bytes:
    """An extended file: its canvas, and chunks with the length that they claim."""
    small = encoded(gradient("RGBA", (8, 8)), "WebP", lossless=True)[12:]
    body = b"".join(name + struct.pack("<I", length) + content for name, length, content in parts)
    sides = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
    body = b"VP8X" + struct.pack("<I", 10) + b"\x28\0\0\0" + sides + body + small
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def webp_on_a_canvas(canvas: tuple[int, int], *, animated: bool = False) -> bytes:
    """A lossy picture of 64 × 64 pixels on a canvas of another size, or the frame of an animation."""
    sides = b"".join(struct.pack("<I", side - 1)[:3] for side in canvas)
    body = b"VP8X\x0a\0\0\0" + bytes([2 * animated, 0, 0, 0]) + sides
    picture = encoded(noise("RGB", (64, 64)), "WebP", quality=100)[12:]
    if animated:
        frame = bytes(6) + sides + bytes(4) + picture
        picture = b"ANIM\x06\0\0\0" + bytes(6) + b"ANMF" + struct.pack("<I", len(frame)) + frame
    return b"RIFF" + struct.pack("<I", len(body + picture) + 4) + b"WEBP" + body + picture


def webp_of_groups(groups: int) -> bytes:
    """One lossless pixel, and so many groups of codes, each of eleven symbols; it is read by the last group."""

    def low(number: int, count: int) -> str:
        return format(number, f"0{count}b")[::-1]

    # Lengths of the codes for lengths, and in these the lengths 1 to 10, and 10 once more.
    lengths = low(0, 3) * 3 + low(3, 3) * 5 + low(0, 3) + low(4, 3) * 4 + low(3, 3)
    symbols = "000 001 010 011 100 1100 1101 1110 1111 101 101".replace(" ", "")
    code = low(0, 1) + low(10, 4) + lengths + low(1, 1) + low(1, 3) + low(9, 4) + symbols
    # A header, no transforms, no cache; groups, whose names are an image of one pixel, of which codes have one symbol.
    bits = low(0x2F, 8) + low(0, 14 + 14 + 4 + 1 + 1) + low(1, 1) + low(0, 3 + 1)
    bits += "".join(low(5, 3) + low(byte, 8) for byte in ((groups - 1) & 255, (groups - 1) >> 8, 0, 0, 0))
    bits += code * 5 * groups + "0" * 64
    pixels = int(bits[::-1], 2).to_bytes(len(bits) // 16 * 2 + 2, "little")
    return b"RIFF" + struct.pack("<I", len(pixels) + 12) + b"WEBPVP8L" + struct.pack("<I", len(pixels)) + pixels


def tiff(width: int, height: int, compression: int = 1, *more: tuple[int, int, int, int]) -> bytes:
    """One strip that is claimed to hold everything, and other entries."""
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, compression), (262, 3, 1, 1)]
    entries += [(273, 4, 1, 8), (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, 0x7FFF_FFFF), *more]
    body = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 16) + b"stones!!" + struct.pack("<H", len(entries)) + body + bytes(4)


def bmp(width: int, height: int, compression: int = 0) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, compression, 0, 0, 0, 2, 0)
    return b"BM" + struct.pack("<IHHI", 1000, 0, 0, 14 + 40 + 8) + head + bytes(8) + bytes(range(256))


# What is refused before anything is taken for it, though its header is in order.
CLAIMS: dict[str, Callable[[], bytes]] = {
    "PNG of 2³¹ × 2³¹": lambda: png((1 << 31) - 1, (1 << 31) - 1),
    "PNG of 16 MP at a time": lambda: png(1 << 20, 1 << 10, interlaced=True),
    "BMP of 2³¹ × 2³¹": lambda: bmp((1 << 31) - 1, (1 << 31) - 1),
    "BMP of -2³¹ rows": lambda: bmp(16, -(1 << 31)),
    "BMP in runs": lambda: bmp(1 << 15, 1 << 15, 1),
    "GIF of 65535²": lambda: gif((65535, 65535), (65535, 65535)),
    "GIF with a large picture on a small canvas": lambda: gif((1, 1), (65535, 65535)),
    "WebP of 2²⁴ × 2²⁴": lambda: webp(1 << 24, 1 << 24),
    "TIFF of 2³¹ × 2³¹": lambda: tiff((1 << 31) - 1, (1 << 31) - 1),
    "JPEG of 65535²": lambda: jpeg(65500, 65500),
}
# What is allowed by its size, and takes little, because nothing comes of it.
SMALL: dict[str, Callable[[], bytes]] = {
    "JPEG of 250 MP": lambda: jpeg(65000, 4000),
    "JPEG of 250 MP, progressive": lambda: jpeg(65000, 4000, progressive=True),
    "JPEG with ten thousand scans": lambda: jpeg(64, 64, 10_000, progressive=True),
    "PNG with a profile that inflates": lambda: png(8, 8, chunk(b"iCCP", b"p\0\0" + inflating(300))),
    "PNG with text that inflates": lambda: png(8, 8, chunk(b"zTXt", b"t\0\0" + inflating(300))),
    "PNG whose data inflate": lambda: png(8, 8, chunk(b"IDAT", inflating(300))),
    "PNG of 250 MP, interlaced": lambda: png(16000, 16000, interlaced=True),
    "GIF of 250 MP": lambda: gif((16000, 16000), (16000, 16000)),
    "WebP with metadata of 2³⁰": lambda: webp(8, 8, (b"EXIF", 1 << 30, b"")),
    "WebP with a profile of 2³⁰": lambda: webp(8, 8, (b"ICCP", 1 << 30, b"")),
    "WebP of 250 MP": lambda: webp(16000, 16000),
    "WebP with ten thousand groups of codes": lambda: webp_of_groups(10_000),
    "TIFF of 250 MP": lambda: tiff(16000, 16000),
    "TIFF of 250 MP in LZW": lambda: tiff(16000, 16000, 5),
    "TIFF of 250 MP, deflated": lambda: tiff(16000, 16000, 8),
    "BMP of 250 MP": lambda: bmp(16000, 16000),
    "BMP of 250 MP in runs": lambda: bmp(16000, 16000, 1),
}


def ways_to_open(content: bytes) -> Iterator[Callable[[], Image]]:
    yield lambda: Image.open(content)
    yield lambda: Image.open(content, max_size=20)
    yield lambda: Image.open(content, mode="L", max_size=2000)


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_are_refused_before_memory_is_taken(name: str) -> None:
    content = CLAIMS[name]()
    gabion.memory.trim(all=True)
    before = gabion.memory.stats().mapped
    for opened in ways_to_open(content):
        with pytest.raises((LimitError, ImageError)):
            opened()
    assert gabion.memory.stats().mapped - before <= 4 << 20


MEASURED = """
import gc, resource, sys, time
from gabion import Image, ImageError, LimitError
content = sys.stdin.buffer.read()
Image.new("RGB", (8, 8)).resize((9, 9)).close()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.process_time()
for options in ({}, {"max_size": 20}, {"mode": "L", "max_size": 2000}, {"partial": True, "max_size": 20}):
    try:
        Image.open(content, **options).close()
    except (ImageError, LimitError) as error:
        print(error)
seconds = time.process_time() - began
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 128 << 10, f"{grown >> 10} MiB"
assert seconds < 10, seconds
"""


@pytest.mark.parametrize("name", SMALL)
def test_little_is_taken_for_what_holds_little(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], input=SMALL[name](), capture_output=True, timeout=HANGS)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout.decode()} {done.stderr.decode()}"


CONFINED = """
import resource, sys
from gabion import Image, ImageError, LimitError
content = sys.stdin.buffer.read()
Image.new("RGB", (8, 8)).resize((9, 9)).close()
size = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20),) * 2)
for opened in (Image.open, Image.probe):
    try:
        opened(content)
    except (ImageError, LimitError) as error:
        print(error)
"""


@pytest.mark.parametrize("tag", [34675, 258, 273, 320, 338, 339])
@pytest.mark.parametrize("kind", [2, 4, 7])
def test_no_room_is_asked_for_values_that_a_tiff_does_not_have(tag: int, kind: int) -> None:
    """Where it is not there, the process would end: even the profile of eight bytes that claims to be of 64 MB."""
    content = tiff(1, 1, 1, (tag, kind, 67_000_000 if tag == 34675 else 8_000_000, 8))
    done = subprocess.run([sys.executable, "-c", CONFINED], input=content, capture_output=True, timeout=HANGS)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout.decode()} {done.stderr.decode()}"


def test_a_picture_larger_than_its_canvas_is_held_to_the_limits() -> None:
    assert Image.open(gif((4, 4), (20, 20)), max_pixels=400).size == (4, 4)
    with pytest.raises(LimitError, match="the image has 400 pixels, more than max_pixels=399 allows"):
        Image.open(gif((4, 4), (20, 20)), max_pixels=399)


def test_a_webp_is_as_large_as_it_says() -> None:
    for animated in (False, True):
        assert Image.open(webp_on_a_canvas((64, 64), animated=animated), max_pixels=64 * 64).size == (64, 64)
        for canvas in ((1, 1), (64, 63), (65, 64)):
            for opened in (Image.probe, Image.open):
                with pytest.raises(ImageError, match="not a sound WebP image: its picture"):
                    opened(webp_on_a_canvas(canvas, animated=animated), max_pixels=64 * 65)


@pytest.mark.parametrize("format", [*HELD, "GIF"])
def test_sides_of_no_pixels(format: str) -> None:
    files = {"PNG": png, "BMP": bmp, "TIFF": tiff, "JPEG": jpeg, "GIF": lambda w, h: gif((w, h), (w, h))}
    if format not in files:
        return  # a WebP file has no way to say so
    for width, height in ((0, 0), (0, 16), (16, 0)):
        with pytest.raises((ImageError, ValueError)):
            Image.open(files[format](width, height))


# --- what a thumbnail is made of -----------------------------------------------------------------------


@pytest.mark.parametrize("format", HELD)
def test_no_half_a_thumbnail_of_a_file_that_was_cut_off(format: str, tmp_path: Path) -> None:
    content = encoded(noise("RGB", (16, 9)), format)
    source, target = tmp_path / "source", tmp_path / "target.png"
    for length in range(len(content)):
        source.write_bytes(content[:length])
        with contextlib.suppress(ImageError, LimitError):
            gabion._native._thumbnail(source, target, 8, 8, quality=80, max_pixels=None)
            assert Image.open(target).size == (8, 5)
            target.unlink()
        assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_names_that_lie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos, small = tmp_path / "photos", tmp_path / "small"
    photos.mkdir()
    (photos / "a.png").write_bytes(encoded(gradient("RGB", (300, 200)), "JPEG"))
    (photos / "b.jpg").write_bytes(encoded(gradient("RGBA", (300, 200)), "WebP"))
    (photos / "c.gif").write_bytes(b"\0" * 100)
    assert main(["thumbnails", str(photos), str(small)]) == 1
    assert "c.gif" in capsys.readouterr().err
    found = {path.name: (Image.open(path).format, Image.open(path).size) for path in small.iterdir()}
    assert found == {"a.jpg": ("JPEG", (150, 100)), "b.webp": ("WebP", (150, 100))}


def test_pipes_and_devices_are_no_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    gradient("RGB", (300, 200)).save(photos / "a.jpg")
    os.mkfifo(photos / "b.jpg")
    (photos / "c.jpg").symlink_to("/dev/zero")
    (photos / "d.jpg").symlink_to(photos)
    assert main(["thumbnails", str(photos), str(tmp_path / "small")]) == 1
    told = capsys.readouterr().err
    for name in ("b.jpg", "c.jpg"):
        assert f"{name}: is not a regular file" in told
    assert [path.name for path in (tmp_path / "small").iterdir()] == ["a.jpg"]


# --- what may not be read or written ---------------------------------------------------------------------


@contextlib.contextmanager
def without_privileges() -> Iterator[Path]:
    """A folder of somebody who may do no more than others; the superuser becomes such a one."""
    folder = Path(tempfile.mkdtemp())
    superuser = os.geteuid() == 0
    try:
        if superuser:
            os.chown(folder, 65534, 65534)
            os.seteuid(65534)
        yield folder
    finally:
        if superuser:
            os.seteuid(0)
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o700)
        subprocess.run(["rm", "-rf", folder], check=True)


def test_files_without_permission() -> None:
    with without_privileges() as folder:
        closed, path = folder / "closed", folder / "image.png"
        image = noise("L", (5, 4))
        image.save(path)
        path.chmod(0)
        with pytest.raises(PermissionError) as failed:
            Image.open(path)
        assert failed.value.filename == path
        closed.mkdir()
        image.save(closed / "old.png")
        before = (closed / "old.png").read_bytes()
        closed.chmod(0o500)
        for name in ("new.png", "old.png"):
            with pytest.raises(PermissionError) as failed:
                noise("L", (6, 4)).save(closed / name)
            assert failed.value.filename == closed / name
        assert [(path.name, path.read_bytes()) for path in closed.iterdir()] == [("old.png", before)]


def test_thumbnails_without_permission(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gradient("RGB", (30, 20)).save(tmp_path / "first.jpg")
    main(["thumbnails", str(tmp_path / "first.jpg"), str(tmp_path / "small")])  # imports all, while it can be read
    capsys.readouterr()
    with without_privileges() as folder:
        photos, closed = folder / "photos", folder / "closed"
        photos.mkdir()
        closed.mkdir()
        for name in ("open.jpg", "secret.jpg"):
            gradient("RGB", (300, 200)).save(photos / name)
        (photos / "secret.jpg").chmod(0)
        assert main(["thumbnails", str(photos), str(folder / "small")]) == 1
        assert f"{photos / 'secret.jpg'}: Permission denied" in capsys.readouterr().err
        assert [path.name for path in (folder / "small").iterdir()] == ["open.jpg"]
        closed.chmod(0o500)
        for target, told in ((closed, "cannot be written to"), (closed / "below", "cannot be made: Permission denied")):
            assert main(["thumbnails", str(photos / "open.jpg"), str(photos), str(target)]) == 2
            assert capsys.readouterr().err == f"gabion: {target}: {told}; name another folder for the thumbnails\n"
        assert list(closed.iterdir()) == []


# --- the end in the middle ----------------------------------------------------------------------------------

SAVING = """
import random, sys
from gabion import Image
image = Image.new("RGB", (1500, 1000))
noise = random.Random(1)
for row in image.rows():
    row[:] = noise.randbytes(len(row))
image.save(sys.argv[1], compression="fast")
print("saved", flush=True)
while True:
    image.save(sys.argv[1], compression="fast")
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_save_that_is_ended_leaves_a_whole_file(kind: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    content = None
    for turn in range(3):
        command = [sys.executable, "-c", SAVING, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            assert running.stdout.readline() == b"saved\n"
            time.sleep(0.02 + 0.037 * turn)
            running.send_signal(kind)
            _, errors = running.communicate(timeout=HANGS)
        assert running.returncode == -kind, errors
        content = content or path.read_bytes()
        assert path.read_bytes() == content
        assert Image.open(path).size == (1500, 1000)
        if kind == signal.SIGINT:
            assert b"KeyboardInterrupt" in errors
            assert [file.name for file in tmp_path.iterdir()] == ["image.png"]


def test_thumbnails_that_are_killed_are_whole_and_the_same_command_goes_on(tmp_path: Path) -> None:
    photos, target = tmp_path / "photos", tmp_path / "small"
    photos.mkdir()
    noise("RGB", (900, 600)).save(photos / "0.png", compression="fast")
    for number in range(1, 40):
        os.link(photos / "0.png", photos / f"{number}.png")
    command = [sys.executable, "-m", "gabion", "thumbnails", str(photos), str(target), "--width", "800"]
    for _ in range(5):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            assert eventually(lambda: target.is_dir() and len(list(target.glob("[0-9]*.png"))) > 3)
            running.kill()
        there = [path for path in target.iterdir() if not path.name.startswith(".")]
        if len(there) < 40:
            break
        shutil.rmtree(target)  # this process had no time to run until that one had made them all
    assert 3 < len(there) < 40
    assert {Image.open(path).size for path in there} == {(800, 533)}
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert {Image.open(target / f"{number}.png").size for number in range(40)} == {(800, 533)}


# --- a disk that fills up -------------------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, where one may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("nothing may be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_fills_up(tiny_disk: Path, tmp_path: Path) -> None:
    old, path = noise("L", (50, 40)), tiny_disk / "image.png"
    old.save(path)
    with pytest.raises(OSError, match="No space left") as failed:
        noise("RGB", (500, 400)).save(path)
    assert (failed.value.errno, failed.value.filename) == (errno.ENOSPC, path)
    assert [file.name for file in tiny_disk.iterdir()] == ["image.png"]
    assert Image.open(path).to_bytes() == old.to_bytes()
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(8):
        noise("RGB", (300, 200), number).save(photos / f"{number}.png")
    command = [sys.executable, "-m", "gabion", "thumbnails", str(photos), str(tiny_disk), "--width", "200"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    small = [file for file in tiny_disk.iterdir() if file != path]
    assert 0 < len(small) < 8
    assert {Image.open(file).size for file in small} == {(200, 133)}


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """A limit on the size of files, hit at every step of writing."""
    old, path = noise("L", (9, 9)), tmp_path / "image.png"
    old.save(path)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        for most in (0, 1, 8, 100, 5000, 64 << 10, (64 << 10) + 1):
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, limit[1]))
            with pytest.raises(OSError, match="File too large"):
                noise("RGB", (300, 200)).save(path)
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
            assert Image.open(path).to_bytes() == old.to_bytes()
            assert [file.name for file in tmp_path.iterdir()] == ["image.png"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    gc.collect()
    assert stat.S_ISREG(path.stat().st_mode)
