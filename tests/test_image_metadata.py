"""What gabion.Image keeps of EXIF blocks and ICC profiles, and how it turns pictures."""

import io
import struct

import pytest
from image_files import encoded, gradient

from gabion import Image

pytestmark = pytest.mark.usefixtures("balance")


def exif(orientation: int) -> bytes:
    return b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def with_exif(jpeg: bytes, block: bytes) -> bytes:
    segment = b"Exif\0\0" + block
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment + jpeg[2:]


def test_orientation_and_metadata() -> None:
    plain = encoded(gradient("L", (40, 20)), "JPEG", quality=95)
    content = with_exif(plain, exif(6))
    turned = Image.open(content)
    assert turned.size == (20, 40)
    assert turned.exif == exif(1)
    assert turned.icc_profile is None
    assert turned.to_bytes() == Image.open(plain).rotate(270).to_bytes()
    asis = Image.open(content, upright=False)
    assert (asis.size, asis.exif) == ((40, 20), exif(6))
    assert Image.open(content, metadata=False).exif is None
    assert Image.open(content, max_size=(10, 100)).size == (10, 20)
    assert Image.open(encoded(turned, "JPEG")).exif == exif(1)
    assert Image.open(encoded(turned, "JPEG", metadata=False)).exif is None


def profile(space: bytes) -> bytes:
    """As much of an ICC profile as says what it is for."""
    return bytes(16) + space + bytes(16) + b"acsp" + bytes(92)


def with_profile(mode: str, space: bytes) -> bytes:
    """A file of another program's, with a profile that nobody looked at."""
    Pillow = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    Pillow.new(mode, (20, 10)).save(file, "JPEG", icc_profile=profile(space))
    return file.getvalue()


def test_a_profile_goes_with_its_colour_space() -> None:
    colours, inks = with_profile("RGB", b"RGB "), with_profile("CMYK", b"CMYK")
    assert Image.open(colours).icc_profile == profile(b"RGB ")
    assert Image.open(colours).convert("RGBA").icc_profile == profile(b"RGB ")
    assert Image.open(inks).icc_profile == profile(b"CMYK")
    made = [
        Image.open(colours, mode="L"),
        Image.open(colours).convert("L"),
        Image.open(colours).convert("CMYK"),
        Image.open(inks, mode="RGB"),
        Image.open(inks).convert("RGB"),
        Image.open(with_profile("L", b"RGB ")),
    ]
    assert [image.icc_profile for image in made] == [None] * len(made)
    assert b"iCCP" not in encoded(made[0], "PNG")
    assert b"iCCP" in encoded(Image.open(colours), "PNG")
    grey = Image.open(with_profile("L", b"GRAY"))
    assert grey.icc_profile == profile(b"GRAY")
    assert Image.open(encoded(grey, "PNG")).icc_profile == profile(b"GRAY")
    assert Image.open(encoded(grey, "WebP")).icc_profile is None
