"""Pictures in boxes of another shape: fit= of open(), resize() and thumbnail()."""

import pytest
from image_files import MODES, encoded, far_apart, gradient, noise
from test_image_metadata import exif, with_exif

from gabion import Image, LimitError

pytestmark = pytest.mark.usefixtures("balance")


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WebP", "TIFF", "BMP"])
@pytest.mark.parametrize("size", [(800, 300), (300, 800), (500, 500)])
def test_cover_shows_the_middle(format: str, size: tuple[int, int]) -> None:
    content = encoded(gradient("RGB", size), format, quality=95)
    side = min(size)
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    with Image.open(content) as whole:
        middle = whole.crop((left, top, left + side, top + side)).resize((100, 100), reducing_gap=2.0)
        covered = Image.open(content, max_size=100, fit="cover")
        assert covered.size == (100, 100)
        assert far_apart(covered.to_bytes(), middle.to_bytes()) < 1.5
        for made in (whole.resize((100, 100), fit="cover"), whole.copy().thumbnail(100, fit="cover")):
            assert made.size == (100, 100)
            assert far_apart(made.to_bytes(), middle.to_bytes()) < 1.5


def test_it_is_what_pillow_fits() -> None:
    pillow = pytest.importorskip("PIL.Image")
    ops = pytest.importorskip("PIL.ImageOps")
    for size in [(640, 200), (123, 456)]:
        image = gradient("RGB", size)
        for box in [(64, 64), (50, 90), (90, 50), (300, 700)]:
            fitted = ops.fit(image.to_pillow(), box, pillow.Resampling.LANCZOS)
            made = image.resize(box, fit="cover")
            assert far_apart(made.to_bytes(), fitted.tobytes()) < 0.6
            inside = image.resize(box, fit="inside").size
            assert inside == ops.contain(image.to_pillow(), box).size
            made = image.resize(box, fit="pad", background=(9, 8, 7))
            assert made.size == box
            # Where the middle is between two pixels, Pillow takes the even one.
            if not any((outer - inner) % 2 for outer, inner in zip(box, inside, strict=True)):
                padded = ops.pad(image.to_pillow(), box, pillow.Resampling.LANCZOS, color=(9, 8, 7))
                assert far_apart(made.to_bytes(), padded.tobytes()) < 0.6


def test_turned_pictures_cover_a_box_as_they_are_seen() -> None:
    plain = encoded(gradient("RGB", (600, 200)), "JPEG", quality=95)
    for orientation in range(1, 9):
        content = with_exif(plain, exif(orientation))
        with Image.open(content) as whole:
            for fit in ("cover", "pad"):
                small = Image.open(content, max_size=(60, 90), fit=fit)
                assert small.size == (60, 90)
                other = whole.resize((60, 90), fit=fit, reducing_gap=2.0)
                assert far_apart(small.to_bytes(), other.to_bytes()) < 2.5, (orientation, fit)


def test_small_pictures_get_larger_only_to_cover_a_box() -> None:
    image = noise("RGB", (20, 10))
    content = encoded(image, "PNG")
    assert Image.open(content, max_size=100).size == (20, 10)
    assert Image.open(content, max_size=100, fit="inside").size == (20, 10)
    assert Image.open(content, fit="inside").size == (20, 10), "the default, without a box"
    assert Image.open(content, max_size=100, fit="cover").size == (100, 100)
    padded = Image.open(content, max_size=100, fit="pad", background=255)
    assert padded.size == (100, 100)
    assert padded.crop((40, 45, 60, 55)) == image
    assert padded.row(44).tobytes() == b"\xff" * 300
    assert image.copy().thumbnail(100, fit="pad", background=255) == padded
    assert image.copy().thumbnail(100, fit="cover").size == (100, 100)
    assert image.copy().thumbnail((20, 10), fit="cover") == image
    assert image.resize((100, 100), fit="inside").size == (100, 50)
    assert image.resize((100, 100), fit="pad").size == (100, 100)


@pytest.mark.parametrize("mode", MODES)
def test_backgrounds_in_all_modes(mode: str) -> None:
    image = noise(mode, (4, 2))
    content = encoded(image, "TIFF")
    expected = {
        "L": [(0,), (255,), (53,), (53,)],
        "LA": [(0, 0), (255, 255), (53, 255), (53, 100)],
        "RGB": [(0, 0, 0), (255, 255, 255), (10, 80, 30), (10, 80, 30)],
        "RGBA": [(0, 0, 0, 0), (255, 255, 255, 255), (10, 80, 30, 255), (10, 80, 30, 100)],
        "CMYK": [(255, 255, 255, 0), (0, 0, 0, 0), (245, 175, 225, 0), (245, 175, 225, 0)],
    }
    for background, pixel in zip((None, 255, (10, 80, 30), (10, 80, 30, 100)), expected[mode], strict=True):
        made = [
            image.resize((4, 6), fit="pad", background=background),
            Image.open(content, max_size=(4, 6), fit="pad", background=background, mode=mode),
        ]
        for padded in made:
            assert bytes(padded.row(0)) == bytes(pixel) * 4
            assert padded.crop((0, 2, 4, 4)) == image


def test_format_and_metadata_stay() -> None:
    content = with_exif(encoded(gradient("RGB", (60, 40)), "JPEG"), exif(1))
    for fit in ("inside", "cover", "pad"):
        image = Image.open(content, max_size=20, fit=fit)
        assert (image.format, image.exif) == ("JPEG", exif(1))
        assert image.resize((9, 9), fit=fit).exif == exif(1)


def test_arguments_that_make_no_sense() -> None:
    image = gradient("RGB", (30, 20))
    content = encoded(image, "PNG")
    with pytest.raises(ValueError, match='fit="fill": pass one of "inside", "cover", "pad"'):
        Image.open(content, max_size=5, fit="fill")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pass max_size= as well"):
        Image.open(content, fit="cover")
    for fit in ("inside", "cover", None):
        with pytest.raises(ValueError, match='background= is what fit="pad" fills'):
            image.resize((5, 5), fit=fit, background=0)  # type: ignore[arg-type]
    for fit in ("cover", "pad"):
        with pytest.raises(ValueError, match=r"max_size: a box that is covered or filled has two sides"):
            Image.open(content, max_size=(5, None), fit=fit)
        with pytest.raises(ValueError, match=r"size: a box that is covered or filled has two sides"):
            image.copy().thumbnail((None, 5), fit=fit)
    for background in ((1, 2), "red", (1, 2, 3, 4, 5), 1.5, (1, 2, None)):
        with pytest.raises(TypeError, match="background"):
            image.resize((5, 5), fit="pad", background=background)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="background: 256 is no channel's value"):
        image.resize((5, 5), fit="pad", background=256)


def test_a_thin_picture_takes_no_more_than_the_box() -> None:
    """Scaled until it covers the box, it would be a thousand times as high."""
    content = encoded(Image.new("L", (1, 60_000), 9), "PNG")
    small = Image.open(content, max_size=1000, fit="cover", max_bytes="2 MiB")
    assert (small.size, set(small.to_bytes())) == ((1000, 1000), {9})
    with pytest.raises(LimitError, match="more than max_bytes=2097152 allows"):
        Image.open(content, max_size=2000, fit="cover", max_bytes="2 MiB")
    with pytest.raises(LimitError, match="more than max_pixels=100000 allows"):
        Image.open(content, max_size=2000, fit="pad", max_pixels=100_000)


def test_a_cut_that_begins_inside_of_a_pixel_weighs_colours_by_their_alpha() -> None:
    numpy = pytest.importorskip("numpy")
    sprite = numpy.zeros((200, 301, 4), "u1")
    sprite[..., :3] = (0, 255, 0)
    sprite[50:150, 100:200] = 255
    for filter in ("bilinear", "bicubic", "lanczos3"):
        row = numpy.asarray(Image.from_array(sprite).resize((200, 200), fit="cover", filter=filter))[100]
        edges = row[(row[:, 3] > 0) & (row[:, 3] < 255)]
        assert len(edges)
        assert (edges[:, :3] == 255).all(), edges
    # One that begins at a pixel moves it, and nothing else.
    cut = numpy.asarray(Image.from_array(sprite[:, :300]).resize((200, 200), fit="cover"))
    assert (cut == sprite[:, 50:250]).all()
