"""Files that Pillow reads are read alike: restarts of JPEG, EXIF blocks in unusual places."""

import io
import struct
import zlib
from typing import Any

import pytest
from image_files import encoded, gradient

from gabion import Image

pytestmark = pytest.mark.usefixtures("balance")

Pillow: Any = pytest.importorskip("PIL.Image")
ImageOps: Any = pytest.importorskip("PIL.ImageOps")


def apart(one: bytes, other: bytes) -> float:
    """How far samples are apart, on average."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


@pytest.mark.parametrize("interval", [1, 3, 5, 7, 16, 20, 33, 40])
@pytest.mark.parametrize(("mode", "subsampling"), [("L", 0), ("RGB", 0), ("RGB", 2)])
def test_restarts_of_jpeg(mode: str, subsampling: int, interval: int) -> None:
    # A page of few words: most of its blocks take a few bits.
    page = Pillow.new(mode, (320, 160), "white")
    for left in range(20, 300, 60):
        page.paste("navy" if mode == "RGB" else 20, (left, left // 3, left + 33, left // 3 + 5))
    file = io.BytesIO()
    page.save(file, "JPEG", quality=75, subsampling=subsampling, restart_marker_blocks=interval)
    read = Pillow.open(file)
    assert apart(Image.open(file.getvalue()).to_bytes(), read.tobytes()) < 1
    for size, scaled in [((250, 125), True), ((100, 50), False), ((40, 20), True)]:
        small = Image.open(file.getvalue(), max_size=size, scaled=scaled)
        wanted = read.resize(size, Pillow.Resampling.LANCZOS)
        assert (small.mode, small.size) == (mode, size)
        assert apart(small.to_bytes(), wanted.tobytes()) < 3


def exif(orientation: int) -> bytes:
    return b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_behind_the_pixels_of_a_png(orientation: int) -> None:
    plain = encoded(gradient("RGB", (40, 20)), "PNG")
    name_and_block = b"eXIf" + exif(orientation)
    chunk = struct.pack(">I", len(name_and_block) - 4) + name_and_block + struct.pack(">I", zlib.crc32(name_and_block))
    end = plain.index(b"IEND") - 4
    content = plain[:end] + chunk + plain[end:]
    read = Pillow.open(io.BytesIO(content))
    read.load()
    wanted = ImageOps.exif_transpose(read)
    image = Image.open(content)
    assert (image.size, image.to_bytes(), image.exif) == (wanted.size, wanted.tobytes(), exif(1))
    assert Image.open(content, upright=False).exif == exif(orientation)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_of_webp_that_is_introduced_as_in_jpeg(orientation: int) -> None:
    file = io.BytesIO()
    gradient("RGB", (40, 20)).to_pillow().save(file, "WEBP", lossless=True, exif=exif(orientation))
    plain = file.getvalue()
    at, block = plain.index(b"EXIF"), b"Exif\0\0" + exif(orientation)
    body = plain[12:at] + b"EXIF" + struct.pack("<I", len(block)) + block
    content = b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body
    wanted = ImageOps.exif_transpose(Pillow.open(io.BytesIO(content)))
    image = Image.open(content)
    assert (image.size, image.to_bytes(), image.exif) == (wanted.size, wanted.tobytes(), exif(1))
    jpeg = encoded(image, "JPEG")
    assert jpeg.count(b"Exif\0\0") == 1
    assert Pillow.open(io.BytesIO(jpeg)).getexif()[0x0112] == 1
