"""Images as bytes of pixels, and what pickle makes of them: across processes, in piles, by copies."""

import copy
import multiprocessing
import pickle
from array import array
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from image_files import gradient, noise

import gabion
from gabion import Image, ImageError

LARGE = (2000, 1600)  # 9.2 MiB in RGB: three blocks


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK"])
def test_pixels_come_back_from_bytes(mode: Any) -> None:
    image = noise(mode, (31, 17))
    data = image.to_bytes()
    for given in (data, bytearray(data), memoryview(data), array("B", data)):
        back = Image.from_bytes(mode, (31, 17), given)
        assert back == image
        assert (back.mode, back.size, back.format, back.exif) == (mode, (31, 17), None, None)
    again = Image.from_bytes(mode, (31.0, 17), data)
    again.row(0)[0] ^= 255
    assert again != image  # a copy
    large = noise("RGB", LARGE)
    assert Image.from_bytes("RGB", LARGE, large.to_bytes()) == large


def test_bytes_that_are_not_these_pixels() -> None:
    for data in (b"", bytes(17), bytes(19)):
        told = rf"^data has {len(data)} bytes; 3 × 2 pixels of RGB are 18, row after row without gaps$"
        with pytest.raises(ImageError, match=told):
            Image.from_bytes("RGB", (3, 2), data)
    with pytest.raises(ImageError, match="pixels of RGBA are"):
        Image.from_bytes("RGBA", (2**31 - 1, 2**31 - 1), b"")
    with pytest.raises(ValueError, match="a side of 0 pixels"):
        Image.from_bytes("L", (0, 5), b"")
    with pytest.raises(ValueError, match="pass one of"):
        Image.from_bytes("P", (1, 1), b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not text"):
        Image.from_bytes("L", (1, 1), "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Image.from_bytes("L", (1, 1), 5)  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        Image.from_bytes("L", (2, 1), memoryview(bytes(4))[::2])


def with_metadata(tmp_path: Path) -> Image:
    from PIL import ImageCms

    pillow = gradient("RGB", (20, 10)).to_pillow()
    exif = pillow.getexif()
    exif[0x010E] = "a description"
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    pillow.save(tmp_path / "some.png", exif=exif, icc_profile=icc)
    return Image.open(tmp_path / "some.png")


def parts(image: Image) -> tuple[Any, ...]:
    return image.mode, image.size, image.to_bytes(), image.format, image.exif, image.icc_profile


@pytest.mark.parametrize("protocol", range(6))
def test_an_image_comes_back_with_all_it_has(tmp_path: Path, protocol: int) -> None:
    pytest.importorskip("PIL")
    image = with_metadata(tmp_path)
    assert image.format == "PNG"
    assert image.exif
    assert image.icc_profile
    for one in (image, Image.new("CMYK", (3, 2), 9), noise("RGB", LARGE)):
        assert parts(pickle.loads(pickle.dumps(one, protocol))) == parts(one)
    for twin in (copy.copy(image), copy.deepcopy(image)):
        assert parts(twin) == parts(image)


def test_pixels_out_of_band_are_those_of_the_image() -> None:
    for image, shared in ((noise("RGB", (40, 30)), True), (noise("RGB", LARGE), False)):
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(image, 5, buffer_callback=buffers.append)
        assert len(head) < 500
        (pixels,) = buffers
        assert pixels.raw().nbytes == image.nbytes
        assert pickle.loads(head, buffers=[bytes(pixels.raw())]) == image
        image.row(0)[0] ^= 255
        assert (pickle.loads(head, buffers=buffers) == image) == shared
        pixels.release()
        del pixels, buffers
        image.make_contiguous()  # nobody sees the old place any more
        image.close()


def test_a_closed_image_is_not_pickled() -> None:
    image = Image.new("L", (3, 3))
    image.close()
    for protocol in (2, 5):
        with pytest.raises(gabion.ClosedError):
            pickle.dumps(image, protocol)
    for call in (copy.copy, copy.deepcopy):
        with pytest.raises(gabion.ClosedError):
            call(image)


def test_a_worker_of_another_process_returns_one() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(Image.new, "RGB", (3, 2), (1, 2, 3)).result() == Image.new("RGB", (3, 2), (1, 2, 3))


def test_a_pile_keeps_images(tmp_path: Path) -> None:
    images = [gradient("RGB", (40, 30)), noise("RGB", LARGE)]
    with gabion.Pile() as pile:
        pointer = pile.put(images)
        images[0].row(0)[0] ^= 255
        found = pile.get(pointer)
        assert found[1] == images[1]
        assert found[0] != images[0]
    with gabion.Pile(path=tmp_path / "images", types=[Image]) as pile:
        pile.root = pile.put(images)
    with gabion.Pile(path=tmp_path / "images", types=[Image], read_only=True) as pile:
        assert pile.get(pile.root or 0) == images


@pytest.mark.parametrize(
    "wrong",
    [
        ("L", (1, 1), b"", None, None, None),
        ("L", (1, 1), b"x", "PSD", None, None),
        ("L", (1, 1), b"x", 5, None, None),
        ("L", (1, 1), b"x", None, "text", None),
        ("L", (1, 1), b"x", None, None, 5),
        ("L", (-1, 1), b"x", None, None, None),
        ("X", (1, 1), b"x", None, None, None),
        (),
    ],
)
def test_a_damaged_pickle_is_an_error(wrong: tuple[Any, ...]) -> None:
    of: Any = Image.new("L", (1, 1)).__reduce_ex__(2)[0]
    with pytest.raises((ValueError, TypeError)):
        of(*wrong)
