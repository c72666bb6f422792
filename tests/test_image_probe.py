"""Image.probe: what a file says before it is decoded; and which formats may be opened at all."""

import copy
import io
import os
import pickle
import random
from pathlib import Path

import pytest
from image_files import HELD, encoded, gradient
from stream_files import OnlyRead
from test_image_metadata import exif, with_exif

import gabion
from gabion import Image, ImageError, ImageInfo, LimitError

pytestmark = pytest.mark.usefixtures("balance")


@pytest.mark.parametrize(("format", "mode"), [(format, mode) for format, modes in HELD.items() for mode in modes])
def test_it_tells_what_open_gives(format: str, mode: str, tmp_path: Path) -> None:
    content = encoded(gradient(mode, (31, 17)), format)
    path = tmp_path / "picture"
    path.write_bytes(content)
    found = Image.probe(content)
    with Image.open(content) as image:
        assert (found.format, found.mode, found.size) == (image.format, image.mode, image.size)
    assert (found.stored_size, found.orientation, found.frames) == ((31, 17), 1, 1)
    assert (found.has_exif, found.has_icc_profile) == (False, False)
    for source in (path, str(path), bytearray(content), memoryview(content), io.BytesIO(content), OnlyRead(content)):
        assert Image.probe(source) == found
    with path.open("rb") as file:
        assert Image.probe(file) == found
        assert Image.open(file).size == (31, 17), "the file stands where it stood"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_that_are_turned(orientation: int) -> None:
    content = with_exif(encoded(gradient("RGB", (40, 20)), "JPEG"), exif(orientation))
    found = Image.probe(content)
    assert (found.size, found.stored_size) == (Image.open(content).size, (40, 20))
    assert (found.orientation, found.has_exif) == (orientation, True)


def test_frames_and_pages_are_counted() -> None:
    Pillow = pytest.importorskip("PIL.Image")
    # Of one colour each, so that no two are taken for one.
    pictures = [Pillow.new("RGB", (12, 9), (number * 80, 20, 200 - number * 60)) for number in range(3)]
    for format in ("GIF", "PNG", "WEBP", "TIFF"):
        for count in (1, 2, 3):
            file = io.BytesIO()
            pictures[0].save(file, format, save_all=True, append_images=pictures[1:count])
            found = Image.probe(file.getvalue())
            assert (found.frames, found.size) == (count, (12, 9)), format
    file = io.BytesIO()
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:])
    cut = Image.probe(file.getvalue()[:-1])
    assert cut.frames is None, "its end is not there"


def test_what_is_found_is_a_value() -> None:
    content = encoded(gradient("L", (31, 17)), "PNG")
    found = Image.probe(content)
    assert repr(found) == (
        "ImageInfo(format='PNG', mode='L', size=(31, 17), stored_size=(31, 17), orientation=1, frames=1, "
        "has_exif=False, has_icc_profile=False)"
    )
    for same in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found)), Image.probe(content)):
        assert (same, hash(same), repr(same)) == (found, hash(found), repr(found))
    other = Image.probe(encoded(gradient("L", (30, 17)), "PNG"))
    assert other != found
    assert found != 5
    assert isinstance(found, ImageInfo)
    assert isinstance(found, gabion.ImageInfo)
    with pytest.raises(AttributeError):
        found.size = (1, 1)  # type: ignore[misc]
    with pytest.raises(TypeError):
        ImageInfo()


def test_errors_are_those_of_open(tmp_path: Path) -> None:
    content = encoded(gradient("RGB", (100, 80)), "PNG")
    with pytest.raises(LimitError, match="the image has 8000 pixels, more than max_pixels=7999"):
        Image.probe(content, max_pixels=7999)
    with pytest.raises(LimitError, match="more than max_bytes=9"):
        Image.probe(io.BytesIO(content), max_bytes=9)
    with pytest.raises(FileNotFoundError):
        Image.probe(tmp_path / "nothing.png")
    for source in (b"", b"no picture", b"\0" * 99):
        with pytest.raises(ImageError) as caught:
            Image.probe(source)
        assert caught.value.kind == "unsupported"
    with pytest.raises(TypeError, match=r"Image\.probe\(\) takes a path, a binary file or the bytes of one, not int"):
        Image.probe(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Image.probe(content, max_size=5)  # type: ignore[call-arg]


@pytest.mark.parametrize("format", HELD)
def test_damage_is_an_error_or_tells_something(format: str) -> None:
    content = encoded(gradient("RGB", (40, 30)), format)
    draw = random.Random(7)
    damaged = [content[:end] for end in range(0, min(len(content), 1500), 3)]
    for _ in range(1500):
        one = bytearray(content)
        for _ in range(draw.randint(1, 4)):
            one[draw.randrange(min(len(one), 300))] = draw.randrange(256)
        damaged.append(bytes(one))
    told = 0
    for source in damaged:
        try:
            found = Image.probe(source, max_pixels=1_000_000)
        except (ImageError, LimitError):
            continue
        told += 1
        assert found.size[0] > 0
        assert found.size[1] > 0
        assert found.frames is None or found.frames > 0
    assert told


def test_no_memory_is_taken_for_pixels() -> None:
    content = encoded(Image.new("L", (9000, 9000)), "PNG")
    gabion.memory.trim()
    before = gabion.memory.stats().requests
    assert Image.probe(content).size == (9000, 9000)
    assert gabion.memory.stats().requests == before


# --- which formats may be opened --------------------------------------------------------------------


def test_other_formats_are_refused() -> None:
    files = {format: encoded(gradient("RGB", (9, 7)), format) for format in HELD}
    for allowed in (("JPEG", "PNG"), ["jpeg", "PNG"], {"jpg", ".png"}, iter(["PNG", "JPEG"])):
        allowed = list(allowed)
        for format, content in files.items():
            for call in (Image.open, Image.probe):
                if format in ("JPEG", "PNG"):
                    assert call(content, formats=allowed).format == format
                    continue
                with pytest.raises(
                    ImageError, match=f"the file is {format}, and here only JPEG and PNG may be opened"
                ) as caught:
                    call(content, formats=allowed)
                assert caught.value.kind == "unsupported"
    assert Image.open(files["BMP"], formats=None).format == "BMP"


def test_lists_of_formats_that_make_no_sense() -> None:
    content = encoded(gradient("RGB", (9, 7)), "PNG")
    for call in (Image.open, Image.probe):
        with pytest.raises(TypeError, match="formats must be a list of names"):
            call(content, formats="PNG")
        with pytest.raises(TypeError, match="formats must be a list of names"):
            call(content, formats=5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="formats is empty"):
            call(content, formats=())
        with pytest.raises(ValueError, match='formats="HEIC": pass one of "JPEG", "PNG"'):
            call(content, formats=["PNG", "HEIC"])
        with pytest.raises(TypeError, match="formats must be a str"):
            call(content, formats=[None])  # type: ignore[list-item]


def test_a_path_that_leads_to_a_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, encoded(gradient("L", (5, 4)), "PNG"))
    os.close(write)
    try:
        assert Image.probe(f"/dev/fd/{read}").size == (5, 4)
    finally:
        os.close(read)
