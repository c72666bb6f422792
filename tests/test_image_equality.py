"""Images that are equal: what they show counts, not where it lies or which file it came from."""

from collections.abc import Hashable
from functools import partial

import pytest
from image_files import MODES, encoded, noise
from many_threads import run

from gabion import Image

pytestmark = pytest.mark.usefixtures("balance")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(1, 1), (7, 5), (1, 300), (2000, 1500)])
def test_the_same_mode_size_and_pixels(mode: str, size: tuple[int, int]) -> None:
    image = noise(mode, size)
    other = image.copy()
    assert (image == other, image != other) == (True, False)
    other.row(-1)[-1] ^= 1
    assert (image == other, image != other) == (False, True)


def test_other_modes_and_sizes() -> None:
    image = Image.new("L", (6, 4))
    assert image != Image.new("L", (4, 6))
    assert image != Image.new("L", (6, 5))
    assert Image.new("RGBA", (6, 4)) != Image.new("CMYK", (6, 4))
    assert image != image.convert("RGB")
    assert image not in (None, 5, "image", image.to_bytes(), image.size)


def test_where_pixels_lie_does_not_count() -> None:
    scattered, whole = Image.new("RGB", (3000, 2000), 7), Image.new("RGB", (3000, 2000), 7, contiguous=True)
    assert (scattered.is_contiguous, whole.is_contiguous) == (False, True)
    assert scattered == whole
    whole.row(1999)[-1] = 8
    assert scattered != whole


def test_files_and_what_is_kept_of_them_do_not_count() -> None:
    image = noise("RGB", (30, 20))
    read = Image.open(encoded(image, "PNG"))
    assert (read.format, image.format) == ("PNG", None)
    assert read == image
    pillow = pytest.importorskip("PIL.Image")
    picture = pillow.frombytes("RGB", image.size, image.to_bytes())
    picture.info["exif"] = b"II*\0\x08\0\0\0\0\0\0\0\0\0"
    assert Image.from_pillow(picture).exif is not None
    assert Image.from_pillow(picture) == image
    # Another library's picture is another kind of thing.
    assert image != picture


def test_arrays_are_compared_by_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    image = noise("RGB", (30, 20))
    assert (image == numpy.asarray(image)).all()
    assert (numpy.asarray(image) == image).shape == (20, 30, 3)


def test_closed_images_equal_themselves_only() -> None:
    image, other = Image.new("L", (6, 4)), Image.new("L", (6, 4))
    assert image == other
    other.close()
    assert image != other
    assert other != image
    assert other == other
    image.close()
    assert image != other


def test_what_changes_is_no_key() -> None:
    image = Image.new("L", (6, 4))
    with pytest.raises(TypeError, match=r"unhashable type: 'gabion\.Image'"):
        hash(image)
    assert not isinstance(image, Hashable)


def test_beside_changes_of_both() -> None:
    """Two locks at a time, asked for in both orders, beside writers that wait for either."""
    one, other = Image.new("RGB", (400, 300), 1), Image.new("RGB", (400, 300), 1)
    same: list[bool] = []

    def compare(mine: Image, its: Image) -> None:
        same.extend(mine == its for _ in range(200))

    def paste(mine: Image, its: Image) -> None:
        for _ in range(200):
            mine.paste(its)

    pairs = [(one, other), (other, one)]
    run(*(partial(work, *pair) for pair in pairs for work in (compare, paste)))
    assert same == [True] * 400


def test_pixels_that_are_shown() -> None:
    one, other = noise("L", (40, 30)), noise("L", (40, 30))
    with one.row(3) as row:
        assert one == other
        row[4] ^= 255
        assert one != other
