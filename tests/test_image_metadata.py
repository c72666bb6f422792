"""What gabion.Image keeps of EXIF blocks and ICC profiles, and how it turns pictures."""

import io
import struct

import pytest
from image_files import encoded, gradient

import gabion
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


@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiff_stores_how_a_picture_is_turned(orientation: int) -> None:
    plain = encoded(gradient("L", (40, 20)), "JPEG", quality=95)
    asis = Image.open(with_exif(plain, exif(orientation)), upright=False)
    stored = encoded(asis, "TIFF")
    turned = Image.open(stored)
    assert turned.to_bytes() == Image.open(with_exif(plain, exif(orientation))).to_bytes()
    assert Image.open(encoded(turned, "TIFF")).to_bytes() == turned.to_bytes(), "it is not turned twice"
    again = Image.open(stored, upright=False)
    assert (again.size, again.exif) == ((40, 20), None if orientation == 1 else exif(orientation))
    for format in ("TIFF", "PNG"):
        assert Image.open(encoded(again, format)).to_bytes() == turned.to_bytes()
    assert Image.open(encoded(asis, "TIFF", metadata=False)).size == (40, 20)


def profile(space: bytes) -> bytes:
    """As much of an ICC profile as says what it is for."""
    return struct.pack(">I", 132) + bytes(12) + space + bytes(16) + b"acsp" + bytes(92)


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


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WebP"])
def test_one_of_both_is_kept(format: str) -> None:
    """A service leaves out where a photograph was taken, and keeps what its colours mean."""
    image = gradient("RGB", (40, 20))
    image.icc_profile = profile(b"RGB ")
    content = encoded(Image.open(with_exif(encoded(image, "JPEG"), exif(6))), format)
    kept = {
        True: (exif(1), profile(b"RGB ")),
        "exif": (exif(1), None),
        "icc_profile": (None, profile(b"RGB ")),
        False: (None, None),
    }
    whole = Image.open(content)
    for metadata, both in kept.items():
        image = Image.open(content, metadata=metadata)
        assert (image.exif, image.icc_profile) == both
        assert image == whole
        saved = Image.open(encoded(whole, format, metadata=metadata))
        assert (saved.exif, saved.icc_profile) == both
    turned = Image.open(with_exif(encoded(gradient("RGB", (40, 20)), "JPEG"), exif(6)), metadata="icc_profile")
    assert (turned.size, turned.exif) == ((20, 40), None), "it is turned all the same"
    for call in (lambda word: Image.open(content, metadata=word), lambda word: encoded(whole, format, metadata=word)):
        with pytest.raises(ValueError, match='metadata="no": pass True, False, "exif" or "icc_profile"'):
            call("no")
        with pytest.raises(TypeError, match="metadata=None: pass True or False"):
            call(None)


def test_a_profile_may_be_set() -> None:
    image = Image.from_bytes("RGB", (2, 1), bytes(6))
    assert image.icc_profile is None
    image.icc_profile = profile(b"RGB ")
    assert image.icc_profile == profile(b"RGB ")
    for made in (image.copy(), image.resize((5, 5)), image.convert("RGBA"), Image.open(encoded(image, "PNG"))):
        assert made.icc_profile == profile(b"RGB ")
    assert image.convert("L").icc_profile is None
    view = image.row(0)
    image.icc_profile = None
    assert image.icc_profile is None
    assert b"iCCP" not in encoded(image, "PNG")
    del view
    Image.new("LA", (1, 1)).icc_profile = profile(b"GRAY")
    Image.new("CMYK", (1, 1)).icc_profile = profile(b"CMYK")


def test_a_profile_that_is_none_is_refused() -> None:
    image = Image.new("RGB", (2, 2))
    image.icc_profile = kept = profile(b"RGB ")
    for wrong, told in (
        (b"", "these 0 bytes are no ICC profile"),
        (bytes(500), "these 500 bytes are no ICC profile"),
        (kept[:-1], "these 131 bytes are no ICC profile"),
        (kept + b"x", "the ICC profile says that it has 132 bytes, and has 133: pass all of it"),
        (profile(b"GRAY"), "an ICC profile of the colour space GRAY does not fit mode RGB"),
        (profile(b"CMYK"), "an ICC profile of the colour space CMYK does not fit mode RGB"),
        (kept[:36], "no ICC profile"),
    ):
        with pytest.raises(ValueError, match=told) as caught:
            image.icc_profile = wrong
        assert type(caught.value) is ValueError
        assert image.icc_profile == kept
    for other in ("profile", 5, bytearray(kept)):
        with pytest.raises(TypeError, match="icc_profile must be bytes or None"):
            image.icc_profile = other  # type: ignore[assignment]
    image.close()
    with pytest.raises(gabion.ClosedError):
        image.icc_profile = None


# --- there and back by Pillow ---------------------------------------------------------------------


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_pillow_hands_metadata_on(format: str) -> None:
    Pillow = pytest.importorskip("PIL.Image")
    ImageOps = pytest.importorskip("PIL.ImageOps")
    file = io.BytesIO()
    gradient("RGB", (40, 20)).to_pillow().save(
        file, format, exif=b"Exif\0\0" + exif(6), icc_profile=profile(b"RGB "), lossless=True
    )
    read = Pillow.open(file)
    image, stored = Image.from_pillow(read), Image.open(file.getvalue(), upright=False)
    assert (image.size, image.exif, image.icc_profile) == ((40, 20), exif(6), profile(b"RGB "))
    assert (image.exif, image.icc_profile) == (stored.exif, stored.icc_profile)
    again = encoded(image, "PNG")
    assert Image.open(again).size == (20, 40)
    assert ImageOps.exif_transpose(Pillow.open(io.BytesIO(again))).size == (20, 40)
    turned = Image.from_pillow(ImageOps.exif_transpose(read))
    assert turned.size == (20, 40)
    assert Image.open(encoded(turned, "PNG")).size == (20, 40)
    back = image.to_pillow()
    assert back.getexif()[0x0112] == 6
    assert back.info["icc_profile"] == profile(b"RGB ")
    assert Image.from_pillow(back).exif == exif(6)
    assert Image.open(file.getvalue()).to_pillow().getexif()[0x0112] == 1


def test_pillow_takes_back_what_it_gave() -> None:
    Pillow = pytest.importorskip("PIL.Image")
    for block in (b"Exif\0\0" + exif(3), exif(3)):
        picture = Pillow.new("RGB", (4, 3))
        picture.info["exif"] = block
        assert Image.from_pillow(picture).exif == exif(3)
    # A JPEG by Pillow's hands, which writes the block as it is given.
    file = io.BytesIO()
    made = Image.from_pillow(picture).to_pillow()
    made.save(file, "JPEG", exif=made.info["exif"])
    assert Image.open(file.getvalue(), upright=False).exif == exif(3)


def test_what_pillow_has_that_does_not_fit() -> None:
    Pillow = pytest.importorskip("PIL.Image")
    picture = Pillow.new("RGB", (4, 3))
    picture.info["icc_profile"] = profile(b"RGB ")
    assert Image.from_pillow(picture.convert("L")).icc_profile is None
    assert Image.from_pillow(picture.convert("P")).icc_profile == profile(b"RGB ")
    for nothing in (None, b"", "text", 5):
        picture.info.update(exif=nothing, icc_profile=nothing)
        image = Image.from_pillow(picture)
        assert (image.exif, image.icc_profile) == (None, None)
        assert image.to_pillow().info == {}


def test_what_a_notebook_shows_tells_no_place() -> None:
    picture = pytest.importorskip("PIL.Image").new("RGB", (4, 3))
    picture.info.update(exif=b"Exif\0\0" + exif(6), icc_profile=profile(b"RGB "))
    image = Image.from_pillow(picture)
    assert image.exif == exif(6)
    shown = Image.open(image._repr_png_())
    assert shown.size == (4, 3)
    assert shown.exif is None
    assert shown.icc_profile == profile(b"RGB ")
