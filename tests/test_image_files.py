"""gabion.Image from and to files: every format and source, every way in which one can fail."""

import contextlib
import errno
import io
import os
import resource
import shutil
import signal
import stat
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from image_files import HELD, encoded, far_apart, gradient, noise
from peak_memory import peak_of
from stream_files import Keeping, OnlyRead, OnlyWrite, Scripted, Short

import gabion
from gabion import Image, ImageError, LimitError

PAIRS = [(format, mode) for format, modes in HELD.items() for mode in modes]

pytestmark = pytest.mark.usefixtures("balance")


@pytest.mark.parametrize(("format", "mode"), PAIRS)
def test_round_trips(format: str, mode: str, tmp_path: Path) -> None:
    image = gradient(mode, (61, 37))
    path = tmp_path / f"image.{format.lower()}"
    image.save(path, quality=95, lossless=True)
    with Image.open(path) as again:
        assert (again.size, again.mode, again.format) == ((61, 37), mode, format)
        limit = 3 if format == "JPEG" else 0
        assert far_apart(again.to_bytes(), image.to_bytes()) <= limit
        assert repr(again) == f"<gabion.Image {mode} 61 × 37, from {format}>"


SOURCES: dict[str, Callable[[bytes, Path], Any]] = {
    "path": lambda content, path: path.write_bytes(content) and path,
    "str": lambda content, path: path.write_bytes(content) and str(path),
    "bytes": lambda content, _: content,
    "bytearray": lambda content, _: bytearray(content),
    "memoryview": lambda content, _: memoryview(b"x" + content)[1:],
    "file": lambda content, path: path.write_bytes(content) and path.open("rb"),
    "raw file": lambda content, path: path.write_bytes(content) and path.open("rb", buffering=0),
    "BytesIO": lambda content, _: io.BytesIO(content),
    "only read": lambda content, _: OnlyRead(content),
    "short": lambda content, _: Short(content, 1000),
    "stream": lambda content, _: gabion.streams.Reader(OnlyRead(content)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_sources(kind: str, tmp_path: Path) -> None:
    image = noise("RGB", (800, 500))
    source = SOURCES[kind](encoded(image, "PNG"), tmp_path / "grün €.png")
    with Image.open(source) as again:
        assert again.to_bytes() == image.to_bytes()
    if hasattr(source, "close"):
        source.close()


TARGETS: dict[str, Callable[[], Any]] = {
    "BytesIO": io.BytesIO,
    "only write": OnlyWrite,
    "short": lambda: Short(most=4321),
    "keeping": Keeping,
}


@pytest.mark.parametrize("kind", TARGETS)
def test_targets(kind: str) -> None:
    image, target = noise("RGB", (900, 700)), TARGETS[kind]()
    image.save(target, format="PNG", compression="none")
    assert Image.open(target.getvalue()).to_bytes() == image.to_bytes()


def test_open_files_tell_their_format(tmp_path: Path) -> None:
    with (tmp_path / "image.png").open("wb") as file:
        noise("L", (5, 4)).save(file)
    with Image.open(tmp_path / "image.png") as image:
        assert image.format == "PNG"


def test_the_first_bytes_tell_the_format_not_the_name(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    noise("RGB", (20, 10)).save(path, format="jpeg")
    assert Image.open(path).format == "JPEG"
    noise("RGB", (20, 10)).save(tmp_path / "image.strange", format="TIFF")
    assert Image.open(tmp_path / "image.strange").format == "TIFF"


def test_what_is_made_of_an_image_knows_its_format(tmp_path: Path) -> None:
    Image.new("RGBA", (8, 6)).save(tmp_path / "image.png")
    image = Image.open(tmp_path / "image.png")
    made = [
        image.copy(),
        image.crop((1, 1, 5, 4)),
        image.rotate(90),
        image.flip("horizontal"),
        image.resize((4, 3)),
        image.convert("L"),
    ]
    assert [other.format for other in made] == ["PNG"] * len(made)


def test_options_have_their_effect() -> None:
    image = gradient("RGB", (300, 200))
    noisy = noise("RGB", (300, 200))
    assert len(encoded(noisy, "JPEG", quality=30)) < len(encoded(noisy, "JPEG", quality=90))
    assert len(encoded(noisy, "JPEG", subsampling="4:2:0")) < len(encoded(noisy, "JPEG", subsampling="4:4:4"))
    assert b"\xff\xc2" in encoded(image, "JPEG", progressive=True)
    assert len(encoded(image, "JPEG", optimize=True)) < len(encoded(image, "JPEG"))
    sizes = [len(encoded(image, "PNG", compression=how)) for how in ("none", "fast", "balanced", "small")]
    assert sizes[0] == max(sizes)
    assert sizes[3] == min(sizes)
    assert len(encoded(noisy, "WebP", quality=20)) < len(encoded(noisy, "WebP", lossless=True))


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"quality": 0}, ValueError, "quality=0: pass 1 to 100"),
        ({"quality": 101}, ValueError, "quality=101"),
        ({"quality": 10**30}, ValueError, f"quality={10**30}: pass 1 to 100"),
        ({"quality": "high"}, TypeError, "quality: a whole number is needed, not str"),
        ({"subsampling": "4:1:1"}, ValueError, 'pass one of "4:4:4", "4:2:2", "4:2:0"'),
        ({"compression": "best"}, ValueError, 'pass one of "none", "fast", "balanced", "small"'),
        ({"compression": 9}, TypeError, "compression must be a str"),
        ({"format": "heic"}, ValueError, 'pass one of "JPEG", "PNG", "WebP", "TIFF", "BMP"'),
        ({"format": "gif"}, ImageError, "GIF can be read, but not written"),
        ({"qualty": 5}, TypeError, 'save\\(\\) has no option "qualty"; there are quality, subsampling'),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        noise("RGB", (5, 4)).save(io.BytesIO(), **{"format": "PNG", **options})


@pytest.mark.parametrize(
    ("format", "mode"),
    [("JPEG", "LA"), ("JPEG", "RGBA"), ("PNG", "CMYK"), ("WebP", "CMYK"), ("BMP", "CMYK")],
)
def test_modes_that_a_format_does_not_hold(format: str, mode: str, tmp_path: Path) -> None:
    image, path = noise(mode, (30, 20)), tmp_path / f"image.{format.lower()}"
    with pytest.raises(ImageError, match=f"{format} does not hold {mode}: convert the image to RGB first"):
        image.save(path)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_says_how_transparent_pixels_become_white() -> None:
    for image in (Image.new("RGBA", (8, 8), (10, 0, 0, 0)), Image.new("LA", (8, 8), (10, 0))):
        with pytest.raises(ImageError, match=r'first: convert\("RGB", background=255\) lays it over white$'):
            encoded(image, "JPEG")
        assert Image.open(encoded(image.convert("RGB", background=255), "JPEG")).to_bytes() == b"\xff" * 192


# --- scaled and limited ---------------------------------------------------------------------------


@pytest.mark.parametrize("format", HELD)
@pytest.mark.parametrize(
    ("most", "size"),
    [
        (150, (150, 100)),
        ((50, 300), (50, 33)),
        ((1000, 20), (30, 20)),
        (1, (1, 1)),
        (900, (600, 400)),
        ((150, None), (150, 100)),
        ([None, 20], (30, 20)),
        ((None, None), (600, 400)),
    ],
)
def test_no_larger_than(format: str, most: Any, size: tuple[int, int]) -> None:
    image = gradient("RGB", (600, 400))
    small = Image.open(encoded(image, format, quality=95), max_size=most)
    assert small.size == size
    expected = image.resize(size, reducing_gap=2.0)
    assert far_apart(small.to_bytes(), expected.to_bytes()) < 3


def test_one_side_without_a_limit() -> None:
    content = encoded(noise("RGB", (20, 3000)), "PNG")
    assert Image.open(content, max_size=(10, None)).size == (10, 1500)
    assert Image.open(content, max_size=(None, 1500)).size == (10, 1500)
    assert Image.open(content, max_size=(400, None)).size == (20, 3000)
    with Image.open(content) as image:
        assert image.thumbnail((10, None)).size == (10, 1500)
        assert image.thumbnail((None, None)).size == (10, 1500)
        with pytest.raises(TypeError, match="size: a whole number is needed, not NoneType"):
            image.resize((10, None))
        with pytest.raises(TypeError, match=r"size must be \(width, height\), or one number for both"):
            image.thumbnail(None)
    with pytest.raises(ValueError, match="max_size: a side of 0 pixels"):
        Image.open(content, max_size=(None, 0))


def test_a_jpeg_may_be_decoded_in_full_before_it_is_made_smaller() -> None:
    content = encoded(gradient("RGB", (800, 600)), "JPEG", quality=95)
    small = Image.open(content, max_size=100, scaled=False)
    assert small.size == (100, 75)
    assert far_apart(small.to_bytes(), Image.open(content, max_size=100).to_bytes()) <= 3
    assert far_apart(small.to_bytes(), Image.open(content).thumbnail(100).to_bytes()) <= 3


def test_modes_on_request() -> None:
    content = encoded(gradient("RGB", (60, 40)), "PNG")
    for mode in ("L", "LA", "RGB", "RGBA", "CMYK"):
        assert Image.open(content, mode=mode).mode == mode


def bomb(width: int, height: int) -> bytes:
    """A small PNG that claims to be large."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_bombs_are_refused_before_memory_is_taken() -> None:
    before = gabion.memory.stats().peak
    for width, height in ((100_000, 100_000), ((1 << 31) - 1, (1 << 31) - 1), (1 << 31 - 1, 1000)):
        with pytest.raises(LimitError, match="allows: raise max_pixels if its source is trusted") as refused:
            Image.open(bomb(width, height))
        assert isinstance(refused.value, MemoryError)
        with pytest.raises(LimitError):
            Image.open(bomb(width, height), max_size=100)
    with pytest.raises(ImageError):
        Image.open(bomb(0, 100))
    assert gabion.memory.stats().peak - before < 64 << 20


def test_limits_of_the_caller() -> None:
    content = encoded(noise("RGB", (100, 50)), "PNG")
    assert Image.open(content, max_pixels=5000).size == (100, 50)
    with pytest.raises(
        LimitError, match="the image has 5000 pixels, more than max_pixels=4999 allows: raise max_pixels"
    ):
        Image.open(content, max_pixels=4999)
    assert Image.open(content, max_pixels=5e3).size == (100, 50)
    for wrong, error, told in (
        (4999.5, TypeError, r"max_pixels: a whole number is needed, not 4999\.5: round it"),
        ("many", TypeError, "max_pixels: a whole number is needed, not str"),
        ("4 GiB", TypeError, "max_pixels: a whole number is needed, not str"),
        (-1, ValueError, "max_pixels=-1: pass how many pixels an image may have, 0 or more"),
    ):
        with pytest.raises(error, match=f"^{told}$"):
            Image.open(content, max_pixels=wrong)
    with pytest.raises(
        LimitError, match="the image takes 15000 bytes, more than max_bytes=1024 allows: raise max_bytes"
    ):
        Image.open(content, max_bytes="1 KiB")
    with pytest.raises(LimitError, match=r"at least 15[0-9]* bytes, more than max_bytes=1024 allows: raise max_bytes"):
        Image.open(io.BytesIO(content), max_bytes=1024)
    gabion.memory.configure(allocation_limit="64 KiB")
    try:
        with pytest.raises(LimitError):
            Image.open(content, mode="CMYK").resize((400, 400))
    finally:
        gabion.memory.configure(allocation_limit=None)


@pytest.mark.parametrize("format", HELD)
@pytest.mark.parametrize("max_bytes", [0, 1, 100, 1_000, 10_000])
def test_what_exceeds_the_callers_limit_is_not_called_damaged(format: str, max_bytes: int) -> None:
    content = encoded(noise("RGB", (100, 50)), format)
    with pytest.raises(LimitError):
        Image.open(content, max_bytes=max_bytes)
    with contextlib.suppress(LimitError):
        assert Image.open(content, max_bytes=max_bytes, max_size=10).size == (10, 5)


def test_endless_files_end_at_the_limit() -> None:
    class Endless:
        given = 0
        room = 0

        def readinto(self, buffer: memoryview) -> int:
            self.room = max(self.room, self.given + len(buffer))
            self.given += len(buffer)
            return len(buffer)

    file = Endless()
    with pytest.raises(LimitError, match="bytes, more than max_bytes=10000000 allows"):
        Image.open(file, max_bytes=10_000_000)
    assert file.room == 10_000_001, "no more room than shows that it is too long"


def test_a_file_that_gives_up_early_takes_little() -> None:
    """A GIF of 16,000 × 16,000 pixels, which is within the default limits, and nothing of it."""
    size = struct.pack("<HH", 16_000, 16_000)
    codes = (bytes([255]) + b"\xff" * 255) * 400
    head = b"GIF89a" + size + b"\xf7\0\0" + bytes(3 * 256)
    file = head + b",\0\0\0\0" + size + b"\0\x08" + codes + b"\0;"

    def fail(max_size: int | None) -> None:
        with pytest.raises(ImageError, match="not a sound GIF image"):
            Image.open(file, max_size=max_size)

    assert peak_of(lambda: fail(100)) < 32 << 20, "what is decoded as a whole"
    # The pool may try what a huge page costs in each block of 4 MiB.
    assert peak_of(lambda: fail(None)) < 16_000**2 * 4 * 0.6, "the new image"


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", HELD)
def test_truncated_everywhere(format: str) -> None:
    content = encoded(noise("RGB", (16, 9)), format)
    for length in range(len(content)):
        with contextlib.suppress(ImageError, LimitError):
            Image.open(content[:length])
    with pytest.raises(ImageError, match="the file is empty: get it anew"):
        Image.open(b"")


@pytest.mark.parametrize("format", HELD)
def test_flipped_bits(format: str) -> None:
    content = bytearray(encoded(noise("RGB", (16, 9)), format))
    for at in range(len(content)):
        content[at] ^= 1 << at % 8
        with contextlib.suppress(ImageError, MemoryError):
            Image.open(content, max_pixels=1_000_000, max_bytes=50_000_000)
        content[at] ^= 1 << at % 8


def test_what_can_be_decoded_of_a_damaged_file() -> None:
    image = gradient("RGB", (64, 64))
    content = encoded(image, "PNG", compression="none")
    with pytest.raises(ImageError, match="not a sound PNG image"):
        Image.open(content[: len(content) // 2])
    part = Image.open(content[: len(content) // 2], partial=True)
    assert part.size == (64, 64)
    assert bytes(part.row(5)) == bytes(image.row(5))


def tiff_with(extra: int, mode: str, pixel: bytes) -> bytes:
    """A file of one pixel, and of what its last sample is: 0 something else, 1 premultiplied alpha, 2 alpha."""
    file = io.BytesIO()
    pytest.importorskip("PIL.Image").frombytes(mode, (1, 1), pixel).save(file, "TIFF")
    tag = struct.pack("<HHI", 338, 3, 1)
    assert file.getvalue().count(tag + b"\2\0") == 1
    return file.getvalue().replace(tag + b"\2\0", tag + bytes([extra, 0]))


@pytest.mark.parametrize(
    ("extra", "mode", "stored", "opened", "expected"),
    [
        (2, "RGBA", [50, 100, 25, 128], "RGBA", [50, 100, 25, 128]),
        (1, "RGBA", [50, 100, 25, 128], "RGBA", [100, 199, 50, 128]),
        (1, "RGBA", [50, 100, 25, 0], "RGBA", [255, 255, 255, 0]),
        (0, "RGBA", [50, 100, 25, 128], "RGB", [50, 100, 25]),
        (2, "LA", [50, 128], "LA", [50, 128]),
        (1, "LA", [50, 128], "LA", [100, 128]),
        (0, "LA", [50, 0], "L", [50]),
    ],
)
def test_alpha_of_tiff(extra: int, mode: str, stored: list[int], opened: str, expected: list[int]) -> None:
    image = Image.open(tiff_with(extra, mode, bytes(stored)))
    assert (image.mode, list(image.to_bytes())) == (opened, expected)


def test_what_is_no_image(tmp_path: Path) -> None:
    for content in (b"x", b"<xml/>", bytes(1000), b"<" * 5000):
        with pytest.raises(ImageError, match="no image format that is known here: JPEG, PNG, WebP"):
            Image.open(content)
    (tmp_path / "notes.jpg").write_text("no picture")
    with pytest.raises(ImageError, match=r"notes\.jpg: the first bytes"):
        Image.open(tmp_path / "notes.jpg")
    for wrong in (5, None, 1.5, [1, 2]):
        with pytest.raises(TypeError, match=r"Image.open\(\) takes a path, a binary file or the bytes of one, not "):
            Image.open(wrong)
    with pytest.raises(TypeError, match="file is a text file"):
        Image.open(io.StringIO("text"))
    with pytest.raises(ValueError, match="null byte"):
        Image.open("a\0b")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "a HEIC picture, which is not read here: convert it to JPEG, PNG"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heix", "a HEIC picture"),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf", "an AVIF picture"),
        (b"\0\0\0\x14ftypisom\0\0\2\0avc1avif", "an MP4 or QuickTime video, which is not read here: save a frame"),
        (b"\0\0\0\x14ftypqt  \0\0\2\0qt  ", "an MP4 or QuickTime video"),
        (b"\xff\xff\xff\xffftypcrx ", "a camera's raw picture"),
        (b"\x1a\x45\xdf\xa3", "a WebM or Matroska video"),
        (b"RIFF\0\0\0\0AVI LIST", "an AVI video"),
        (b"\xff\x0a\0", "a JPEG XL picture"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "a JPEG XL picture"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "a JPEG 2000 picture"),
        (b"%PDF-1.7", "a PDF document, which is not read here: have a program that draws it save it as PNG"),
        (b"<svg/>", "an SVG drawing"),
        (b'\xef\xbb\xbf\n<?xml version="1.0"?>\n<!-- drawn by hand -->\n<SVG>', "an SVG drawing"),
        (b"\n<!DOCTYPE HTML><body><svg/>", "a web page, which is not read here: servers send one in place of"),
    ],
)
def test_formats_that_are_not_read_are_named(content: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    for source in (path, content, io.BytesIO(content)):
        with pytest.raises(ImageError, match=f"the file is {told}"):
            Image.open(source)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failed:
        Image.open(tmp_path / "absent.png")
    assert (failed.value.errno, failed.value.filename) == (errno.ENOENT, tmp_path / "absent.png")
    with pytest.raises(IsADirectoryError):
        Image.open(tmp_path)
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        Image.open(closed)
    with pytest.raises(OSError, match="gone"):
        Image.open(Scripted(5, OSError(errno.EIO, "gone")))
    with pytest.raises(BlockingIOError, match="nothing to read now"):
        Image.open(Scripted(5, None))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads and writes everything")
def test_files_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    noise("L", (5, 4)).save(path)
    path.chmod(0)
    with pytest.raises(PermissionError):
        Image.open(path)
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        noise("L", (5, 4)).save(tmp_path / "other.png")


# --- saving is all or nothing ----------------------------------------------------------------------


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    old = noise("L", (5, 4))
    old.save(path)
    with pytest.raises(ImageError):
        noise("CMYK", (5, 4)).save(path)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limit[1]))
    try:
        with pytest.raises(OSError, match=r"(?i)too large|cannot write"):
            noise("RGB", (500, 400)).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert [file.name for file in tmp_path.iterdir()] == ["image.png"]
    assert Image.open(path).to_bytes() == old.to_bytes()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failed:
        noise("L", (5, 4)).save(tmp_path / "absent" / "image.png")
    assert failed.value.filename == tmp_path / "absent" / "image.png"
    with pytest.raises(IsADirectoryError):
        noise("L", (5, 4)).save(tmp_path, format="PNG")


def test_new_files_have_the_usual_mode_and_old_ones_keep_theirs(tmp_path: Path) -> None:
    path, plain = tmp_path / "image.png", tmp_path / "plain"
    plain.touch()
    noise("L", (5, 4)).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    path.chmod(0o640)
    noise("L", (5, 4)).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_what_the_target_raises_is_passed_on() -> None:
    image = noise("RGB", (900, 700))
    with pytest.raises(OSError, match="full") as failed:
        image.save(Scripted(OSError(errno.ENOSPC, "full")), format="PNG")
    assert failed.value.errno == errno.ENOSPC
    with pytest.raises(KeyError):
        image.save(Scripted(1000, KeyError("mine")), format="PNG")
    with pytest.raises(BlockingIOError, match="takes nothing now"):
        image.save(Scripted(1000, None), format="PNG")
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError, match="No space left"):
        image.save(full, format="PNG")


# --- Pillow and others read what is written here ----------------------------------------------------


@pytest.mark.parametrize(("format", "mode"), PAIRS)
def test_pillow_reads_what_is_written(format: str, mode: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    image = gradient(mode, (61, 37))
    other = pillow.open(io.BytesIO(encoded(image, format, quality=95, lossless=True)))
    assert (other.size, other.format) == ((61, 37), format.upper())
    assert far_apart(other.convert(mode).tobytes(), image.to_bytes()) <= (3 if format == "JPEG" else 0)


@pytest.mark.parametrize(("format", "mode"), [*((f, m) for f, m in PAIRS if f != "BMP"), ("BMP", "RGB"), ("GIF", "L")])
def test_what_pillow_writes_is_read(format: str, mode: str) -> None:
    pytest.importorskip("PIL.Image")
    file, image = io.BytesIO(), gradient(mode, (61, 37))
    options = {"lossless": True} if format == "WebP" else {}
    image.to_pillow().save(file, format=format, **options)
    again = Image.open(file.getvalue(), mode=mode)
    assert again.format == format
    assert far_apart(again.to_bytes(), image.to_bytes()) <= (3 if format == "JPEG" else 1)


@pytest.mark.parametrize("method", [None, "tiff_lzw", "tiff_deflate", "packbits", "group4"])
@pytest.mark.parametrize("mode", ["P", "1"])
@pytest.mark.parametrize("size", [(30, 20), (1203, 807)])
def test_palettes_and_single_bits_of_tiff(mode: str, method: str | None, size: tuple[int, int]) -> None:
    pytest.importorskip("PIL.Image")
    if (mode, method) == ("P", "group4"):
        pytest.skip("a fax is black and white")
    file, picture = io.BytesIO(), gradient("RGB", size).to_pillow().convert(mode)
    picture.save(file, "TIFF", compression=method)
    wanted = picture.convert("RGB" if mode == "P" else "L")
    again = Image.open(file.getvalue())
    assert (again.mode, again.size, again.format) == (wanted.mode, size, "TIFF")
    assert again.to_bytes() == wanted.tobytes()
    small = Image.open(file.getvalue(), max_size=10, reducing_gap=None)
    assert far_apart(small.to_bytes(), again.resize(small.size).to_bytes()) == 0


def test_what_is_not_read_of_tiff_is_not_to_become_tiff() -> None:
    Pillow = pytest.importorskip("PIL.Image")
    for mode in ("I", "YCbCr", "LAB"):
        file = io.BytesIO()
        Pillow.new(mode, (30, 20)).save(file, "TIFF")
        with pytest.raises(ImageError, match=r"; convert the file to JPEG, PNG, WebP or BMP$"):
            Image.open(file.getvalue())


def test_many_threads_open_and_save(tmp_path: Path) -> None:
    image = gradient("RGB", (400, 300))
    image.save(tmp_path / "image.jpg")
    expected = Image.open(tmp_path / "image.jpg", max_size=100).to_bytes()
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                with Image.open(tmp_path / "image.jpg", max_size=100) as small:
                    assert small.to_bytes() == expected
                    small.save(tmp_path / f"{number}.png")
                assert Image.open(tmp_path / f"{number}.png").to_bytes() == expected
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    shutil.rmtree(tmp_path)


def test_a_target_that_uses_the_image_that_is_saved_to_it() -> None:
    """No Python code runs while the pixels are locked."""
    image = noise("RGB", (900, 700))
    content = image.to_bytes()

    class Target(io.BytesIO):
        def write(self, data: Any) -> int:
            image.paste(Image.new("RGB", (3, 3)))
            image.resize((9, 9))
            return super().write(data)

    target = Target()
    image.save(target, format="PNG")
    assert Image.open(target.getvalue()).to_bytes() == content
    image.close()
    with pytest.raises(gabion.ClosedError):
        image.save(target, format="PNG")


def test_a_pool_without_room_for_the_file() -> None:
    image, target = noise("RGB", (300, 300)), io.BytesIO()
    gabion.memory.configure(allocation_limit="200 KiB")
    try:
        with pytest.raises(gabion.LimitError):
            image.save(target, format="PNG")
    finally:
        gabion.memory.configure(allocation_limit=None)
    assert target.getvalue() == b""
