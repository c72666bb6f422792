"""gabion.Image in memory: making, changing, and what is refused."""

import copy
import gc
import random
import weakref
from itertools import chain
from typing import Any

import pytest
from image_files import MODES, encoded, far_apart, gradient, noise
from many_threads import run

import gabion
from gabion import ClosedError, Image, ImageError

Pixels = list[list[bytes]]

pytestmark = pytest.mark.usefixtures("balance")


def pixels(image: Image) -> Pixels:
    """Rows of pixels: the naive model."""
    step = MODES[image.mode]
    return [[bytes(row[at : at + step]) for at in range(0, len(row), step)] for row in image.rows()]


def flat(rows: Pixels) -> bytes:
    return b"".join(b"".join(row) for row in rows)


@pytest.mark.parametrize("mode", MODES)
def test_new(mode: str) -> None:
    channels = MODES[mode]
    image = Image.new(mode, (7, 5))
    assert (image.size, image.width, image.height, image.mode, image.format) == ((7, 5), 7, 5, mode, None)
    assert (image.nbytes, image.is_contiguous, image.closed) == (35 * channels, True, False)
    assert image.to_bytes() == bytes(35 * channels)
    assert Image.new(mode, (7, 5), 9).to_bytes() == b"\x09" * 35 * channels
    color = tuple(range(1, channels + 1))
    assert Image.new(mode, [7, 5], color).to_bytes() == bytes(color) * 35
    assert repr(image) == f"<gabion.Image {mode} 7 × 5>"


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (("P", (1, 1)), ValueError, 'mode="P": pass one of "L", "LA", "RGB", "RGBA", "CMYK"'),
        ((3, (1, 1)), TypeError, "mode must be a str"),
        (("L", 5), TypeError, r"size must be \(width, height\)"),
        (("L", (1, 2, 3)), TypeError, r"size must be \(width, height\)"),
        (("L", "12"), TypeError, r"size must be \(width, height\)"),
        (("L", (1.5, 2)), TypeError, "size: a whole number is needed, not 1.5: round it"),
        (("L", (True, 2)), TypeError, "not bool"),
        (("L", (0, 2)), ValueError, "a side of 0 pixels; an image has at least 1 × 1"),
        (("L", (2, -1)), ValueError, "a side of -1 pixels"),
        (("L", (2, 1 << 70)), ValueError, "beyond every image"),
        (("L", (1 << 40, 1)), ValueError, "a side of 1099511627776 pixels; an image has sides of 2147483647 at most"),
        (("L", (1, 1 << 31)), ValueError, "a side of 2147483648 pixels; an image has sides of 2147483647 at most"),
        (("L", (1, 1), 256), ValueError, "color: 256 is no channel's value"),
        (("L", (1, 1), -1), ValueError, "color: -1"),
        (("RGB", (1, 1), (1, 2)), TypeError, "color must be a number from 0 to 255, or 3 of them for RGB"),
        (("RGB", (1, 1), (1, 2, 3, 4)), TypeError, "color must be"),
        (("RGB", (1, 1), "red"), TypeError, "color must be"),
        (("RGB", (1, 1), (1, 2, 300)), ValueError, "300"),
        (("RGBA", ((1 << 31) - 1, (1 << 31) - 1)), MemoryError, "bytes"),
    ],
)
def test_new_refuses(arguments: tuple[Any, ...], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        Image.new(*arguments)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(1, 1), (5, 3), (67, 130), (1, 9), (9, 1)])
def test_turns_and_flips(mode: str, size: tuple[int, int]) -> None:
    image = noise(mode, size)
    rows = pixels(image)
    turned = [list(column) for column in zip(*rows, strict=True)][::-1]
    assert flat(turned) == image.rotate(90).to_bytes()
    assert image.rotate(90).size == size[::-1]
    assert flat([row[::-1] for row in rows[::-1]]) == image.rotate(180).to_bytes()
    assert image.rotate(-90).to_bytes() == image.rotate(270).to_bytes() == image.rotate(90).rotate(180).to_bytes()
    assert image.rotate(0).to_bytes() == image.rotate(360).to_bytes() == image.to_bytes()
    assert flat([row[::-1] for row in rows]) == image.flip("horizontal").to_bytes()
    assert flat(rows[::-1]) == image.flip("vertical").to_bytes()


def test_turns_and_flips_refuse() -> None:
    image = noise("L", (3, 2))
    with pytest.raises(ValueError, match=r"rotate\(45\): pass 90, 180 or 270"):
        image.rotate(45)
    with pytest.raises(TypeError, match=r"degrees: a whole number is needed, not 90\.5: round it"):
        image.rotate(90.5)
    with pytest.raises(ValueError, match='pass one of "horizontal", "vertical"'):
        image.flip("sideways")


def test_floats_that_are_whole_numbers() -> None:
    image = noise("RGB", (6, 4))
    assert image.rotate(90.0).to_bytes() == image.rotate(90).to_bytes()
    assert image.resize((3.0, 2)).size == (3, 2)
    assert image.crop((0.0, 0, 3.0, 2)).size == (3, 2)
    assert image.copy().thumbnail(3.0).size == (3, 2)
    assert bytes(Image.new("L", (2.0, 1.0), 7.0).row(0)) == b"\7\7"
    numpy = pytest.importorskip("numpy")
    assert image.copy().thumbnail(numpy.int64(3)).size == (3, 2)
    assert bytes(Image.new("L", (numpy.int64(2), 1), numpy.uint8(7)).row(numpy.int8(0))) == b"\7\7"
    assert bytes(Image.new("RGB", (1, 1), numpy.uint8([1, 2, 3])).row(0)) == b"\1\2\3"
    for wrong in (2.5, float("nan"), float("inf"), True):
        with pytest.raises(TypeError, match="size: a whole number is needed"):
            image.resize((wrong, 2))
    with pytest.raises(ValueError, match="beyond every image"):
        image.resize((1e300, 2))


@pytest.mark.parametrize("mode", MODES)
def test_crops(mode: str) -> None:
    image = noise(mode, (23, 17))
    rows, choose = pixels(image), random.Random(3)
    for _ in range(50):
        left, right = sorted(choose.sample(range(24), 2))
        top, bottom = sorted(choose.sample(range(18), 2))
        part = image.crop((left, top, right, bottom))
        assert part.size == (right - left, bottom - top)
        assert part.to_bytes() == flat([row[left:right] for row in rows[top:bottom]])
    for wrong in ((0, 0, 24, 17), (0, 0, 23, 18), (5, 5, 5, 6), (6, 5, 5, 6), (-1, 0, 5, 5)):
        with pytest.raises(ImageError, match="no part of an image"):
            image.crop(wrong)
    with pytest.raises(TypeError, match=r"box must be \(left, top, right, bottom\)"):
        image.crop((1, 2, 3))


@pytest.mark.parametrize("mode", MODES)
def test_pastes(mode: str) -> None:
    choose = random.Random(4)
    for _ in range(60):
        image, other = noise(mode, (13, 11), 1), noise(mode, (choose.randint(1, 20), choose.randint(1, 20)), 2)
        x, y = choose.randint(-25, 25), choose.randint(-25, 25)
        expected = pixels(image)
        for down, row in enumerate(pixels(other)):
            for right, pixel in enumerate(row):
                if 0 <= y + down < 11 and 0 <= x + right < 13:
                    expected[y + down][x + right] = pixel
        assert image.paste(other, (x, y)) is None
        assert image.to_bytes() == flat(expected)


class Foreign:
    pass


def test_pastes_refuse_and_survive() -> None:
    image = noise("RGB", (9, 9))
    with pytest.raises(ImageError, match="cannot be pasted into RGB: convert it"):
        image.paste(noise("L", (3, 3)))
    with pytest.raises(TypeError):
        image.paste("image")
    with pytest.raises(
        TypeError, match=r"paste\(\) takes a gabion\.Image, not test_image_pixels\.Foreign: make one by"
    ):
        image.paste(Foreign())
    before = image.to_bytes()
    image.paste(image)
    assert image.to_bytes() == before
    image.paste(image, (1 << 62, -(1 << 62)))
    assert image.to_bytes() == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("to", MODES)
def test_conversions(mode: str, to: str) -> None:
    image = noise(mode, (29, 31))
    new = image.convert(to)
    assert (new.mode, new.size) == (to, image.size)
    if mode == to:
        assert new.to_bytes() == image.to_bytes()
    for pixel, other in zip(chain(*pixels(image)), chain(*pixels(new)), strict=True):
        if to in ("LA", "RGBA"):
            assert other[-1] == (pixel[-1] if mode in ("LA", "RGBA") else 255)
        if {mode, to} <= {"L", "LA"}:
            assert other[0] == pixel[0]
        if {mode, to} <= {"RGB", "RGBA"}:
            assert other[:3] == pixel[:3]
        if mode in ("RGB", "RGBA") and to in ("L", "LA"):
            assert abs(other[0] - (0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2])) < 0.51


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("to", "under"), [("L", (200,)), ("RGB", (250, 128, 3)), ("CMYK", (9, 0, 255, 77))])
def test_alpha_is_laid_over_a_background(mode: str, to: str, under: tuple[int, ...]) -> None:
    image = noise(mode, (71, 31))
    # The last of the channels is alpha in some modes: nothing, all, and much between.
    image.row(0)[:] = bytes(len(image.row(0)))
    image.row(1)[:] = b"\xff" * len(image.row(1))
    new, dropped = image.convert(to, background=under), image.convert(to)
    assert (new.mode, new.size) == (to, image.size)
    if mode not in ("LA", "RGBA"):
        assert new == dropped
        return
    assert bytes(new.row(0)) == bytes(under) * 71
    assert new.row(1) == dropped.row(1)
    for pixel, plain, laid in zip(chain(*pixels(image)), chain(*pixels(dropped)), chain(*pixels(new)), strict=True):
        alpha = pixel[-1]
        wanted = [(2 * (a * alpha + b * (255 - alpha)) + 255) // 510 for a, b in zip(plain, under, strict=True)]
        assert list(laid) == wanted


def test_one_number_is_a_grey_background() -> None:
    image = noise("RGBA", (9, 7))
    assert image.convert("RGB", background=255) == image.convert("RGB", background=(255, 255, 255))
    assert image.convert("L", background=7.0) == image.convert("L", background=[7])
    assert image.convert("L", background=None) == image.convert("L")
    gone = Image.new("RGBA", (1, 1), (10, 0, 0, 0))
    assert gone.convert("RGB").to_bytes() == b"\x0a\0\0"
    assert gone.convert("RGB", background=255).to_bytes() == b"\xff\xff\xff"


@pytest.mark.parametrize(
    ("to", "background", "error", "told"),
    [
        ("RGB", (1, 2), TypeError, "background must be a number from 0 to 255, or 3 of them for RGB"),
        ("RGB", (1, 2, 3, 4), TypeError, "background must be a number from 0 to 255, or 3 of them for RGB"),
        ("RGB", "white", TypeError, "background must be a number from 0 to 255, or 3 of them for RGB"),
        ("L", (1, 2), TypeError, "background must be a number from 0 to 255 for L"),
        ("L", 1.5, TypeError, "background: a whole number is needed, not 1.5"),
        ("RGB", (0, 256, 0), ValueError, "background: 256 is no channel's value; they are from 0 to 255"),
        ("L", -1, ValueError, "background: -1 is no channel's value; they are from 0 to 255"),
        ("CMYK", 255, TypeError, r"background must be 4 numbers from 0 to 255 for CMYK; \(0, 0, 0, 0\) is white"),
        ("CMYK", (0, 0, 0), TypeError, r"background must be 4 numbers from 0 to 255 for CMYK"),
        ("RGBA", (0, 0, 0), ValueError, "RGBA has alpha, which stays: pass no background, or mode L, RGB or CMYK"),
        ("LA", 0, ValueError, "LA has alpha, which stays: pass no background, or mode L, RGB or CMYK"),
    ],
)
def test_what_is_no_background(to: str, background: Any, error: type[Exception], told: str) -> None:
    # Whatever the image is.
    for mode in MODES:
        with pytest.raises(error, match=told):
            Image.new(mode, (1, 1)).convert(to, background=background)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("filter", ["nearest", "box", "bilinear", "bicubic", "lanczos3"])
def test_resizing(mode: str, filter: str) -> None:
    image = gradient(mode, (240, 160))
    for size in ((60, 40), (240, 160), (480, 320), (1, 1), (7, 300)):
        assert image.resize(size, filter=filter).size == size
    assert image.resize((240, 160), filter=filter).to_bytes() == image.to_bytes()
    small = image.resize((60, 40), filter=filter)
    assert far_apart(small.to_bytes(), gradient(mode, (60, 40)).to_bytes()) < 4
    gapped = image.resize((60, 40), filter=filter, reducing_gap=2.0)
    assert far_apart(small.to_bytes(), gapped.to_bytes()) < 2


def test_resizing_refuses() -> None:
    image = noise("L", (3, 2))
    with pytest.raises(ValueError, match='filter="cubic": pass one of "nearest", "box"'):
        image.resize((2, 2), filter="cubic")
    with pytest.raises(ValueError, match="a side of 0"):
        image.resize((0, 2))
    for gap in (0.5, float("nan"), -1.0):
        with pytest.raises(ValueError, match="reducing_gap"):
            image.resize((2, 2), reducing_gap=gap)


def test_thumbnails_change_the_image_itself_and_return_it() -> None:
    image = gradient("RGB", (300, 200))
    view = image.row(0)
    kept = image.copy()
    assert image.thumbnail((30, 300)) is image
    assert image.size == (30, 20)
    assert len(view) == 900
    assert image.thumbnail(500).size == (30, 20)
    assert kept.size == (300, 200)
    assert kept.thumbnail(60).size == (60, 40)
    with pytest.raises(TypeError, match=r"size must be \(width, height\)"):
        kept.thumbnail("60")


def test_copies_are_apart() -> None:
    image = noise("RGB", (9, 9))
    for other in (image.copy(), copy.copy(image), copy.deepcopy(image), image.convert("RGB"), image.resize((9, 9))):
        assert other.to_bytes() == image.to_bytes()
        other.row(0)[0] ^= 255
        assert other.to_bytes() != image.to_bytes()


@pytest.mark.parametrize("contiguous", [False, True])
def test_one_piece_may_be_asked_for(contiguous: bool) -> None:
    large = noise("L", (3000, 2000))
    file = encoded(large, "PNG", compression="none")
    made = [
        Image.open(file, contiguous=contiguous),
        large.resize((2999, 2000), contiguous=contiguous),
        Image.new("L", (3000, 2000), contiguous=contiguous),
    ]
    with pytest.raises(TypeError, match=r"contiguous='yes': pass True or False"):
        large.resize((5, 5), contiguous="yes")  # type: ignore[arg-type]
    assert made[0] == large
    numpy = pytest.importorskip("numpy")
    made.append(Image.from_array(numpy.asarray(large), contiguous=contiguous))
    assert made[-1] == large
    assert [image.is_contiguous for image in made] == [contiguous] * 4


# --- rows and blocks ------------------------------------------------------------------------------

LARGE = (2000, 1600)  # 9.2 MiB in RGB: three blocks


def test_rows_never_cross_a_seam() -> None:
    image = noise("RGB", LARGE)
    assert not image.is_contiguous
    assert [len(block) % 6000 for block in image.blocks] == [0, 0, 0]
    assert b"".join(image.blocks) == b"".join(image.rows()) == image.to_bytes()
    for y in (0, 698, 699, 700, 1397, 1398, 1399, 1599, -1, -1600):
        assert bytes(image.row(y)) == image.to_bytes()[y % 1600 * 6000 :][:6000]
    for y in (1600, -1601, 1 << 40):
        with pytest.raises(IndexError, match=f"^row {y}: an image of 1600 rows has 0 to 1599, and -1600 to -1 from"):
            image.row(y)


def test_views_write_in_place() -> None:
    image = Image.new("RGB", LARGE)
    image.row(699)[:3] = b"abc"
    image.blocks[2][-3:] = b"xyz"
    for row in image.rows():
        assert not row.readonly
        row[3] = 7
    content = image.to_bytes()
    assert content[699 * 6000 :][:4] == b"abc\x07"
    assert content[-3:] == b"xyz"
    assert content[3::6000] == b"\x07" * 1600


def test_process_rows() -> None:
    image, seen = noise("RGB", LARGE), []
    inverted = bytes(255 - byte for byte in image.to_bytes())

    def invert(y: int, row: memoryview) -> bytes:
        seen.append(y)
        return bytes(row).translate(bytes(range(255, -1, -1)))

    assert image.process_rows(invert) is None
    assert seen == list(range(1600))
    assert image.to_bytes() == inverted
    image.process_rows(lambda y, row: row)
    assert image.to_bytes() == inverted
    with pytest.raises(ValueError, match=r"process_rows\(\): 3 bytes for row 0, which has 6000"):
        image.process_rows(lambda y, row: b"abc")
    with pytest.raises(TypeError, match="bytes are needed, not text"):
        image.process_rows(lambda y, row: "text")
    with pytest.raises(ZeroDivisionError):
        image.process_rows(lambda y, row: bytes(row) if 1 // (500 - y) >= 0 else None)
    assert image.to_bytes() == inverted


def test_closing_within_process_rows() -> None:
    image, calls = noise("RGB", LARGE), []

    def close(y: int, row: memoryview) -> None:
        calls.append(y)
        if y == 700:
            image.close()
            row[:3] = b"abc"

    with pytest.raises(ClosedError):
        image.process_rows(close)
    assert calls[-1] == 700


def test_contiguous_on_request() -> None:
    assert Image.new("RGB", LARGE, contiguous=True).is_contiguous
    image = noise("RGB", LARGE)
    content = image.to_bytes()
    view = image.row(3)
    with pytest.raises(BufferError, match="cannot be moved while views of its rows"):
        image.make_contiguous()
    assert bytes(view) == content[18_000:24_000]
    del view
    image.make_contiguous()
    assert image.is_contiguous
    assert len(image.blocks) == 1
    assert image.to_bytes() == content
    view = image.row(1599)
    image.make_contiguous()
    assert bytes(view) == content[-6000:]


# --- lives ----------------------------------------------------------------------------------------


def uses(image: Image) -> dict[str, Any]:
    return {
        "resize": lambda: image.resize((1, 1)),
        "thumbnail": lambda: image.thumbnail((1, 1)),
        "convert": lambda: image.convert("L"),
        "crop": lambda: image.crop((0, 0, 1, 1)),
        "rotate": lambda: image.rotate(90),
        "flip": lambda: image.flip("vertical"),
        "paste": lambda: image.paste(Image.new("RGB", (1, 1))),
        "paste of it": lambda: Image.new("RGB", (1, 1)).paste(image),
        "copy": image.copy,
        "copy.copy": lambda: copy.copy(image),
        "make_contiguous": image.make_contiguous,
        "row": lambda: image.row(0),
        "rows": image.rows,
        "process_rows": lambda: image.process_rows(lambda y, row: None),
        "to_bytes": image.to_bytes,
        "to_pillow": image.to_pillow,
        "save": lambda: image.save("never.png"),
        "with": lambda: image.__enter__(),
        "memoryview": lambda: memoryview(image),
        "dlpack": image.__dlpack__,
        "dlpack device": image.__dlpack_device__,
        "arrow": image.__arrow_c_array__,
        "arrow schema": image.__arrow_c_schema__,
        "interface": lambda: image.__array_interface__,
        "array": image.__array__,
        **{
            name: lambda name=name: getattr(image, name)
            for name in ("size", "width", "height", "mode", "format", "nbytes", "is_contiguous", "blocks", "exif")
        },
    }


@pytest.mark.parametrize("name", uses(Image.new("L", (1, 1))))
def test_a_closed_image_raises_always(name: str) -> None:
    image = noise("RGB", (9, 9))
    with image:
        pass
    assert image.closed
    assert repr(image) == "<gabion.Image, closed>"
    with pytest.raises(ClosedError, match="this image was closed: its pixels are gone"):
        uses(image)[name]()
    image.close()


@pytest.mark.parametrize(
    "view", [lambda image: image.row(5), lambda image: image.blocks[0], memoryview, lambda image: next(image.rows())]
)
def test_views_keep_the_memory(view: Any) -> None:
    gc.collect()
    before = gabion.memory.stats().live
    image = noise("RGB", (300, 200))
    seen = view(image)
    content = bytes(seen)
    image.close()
    others = [noise("RGB", (300, 200), seed) for seed in range(20)]
    assert bytes(seen) == content
    del image, others
    assert gabion.memory.stats().live == before + 1
    assert bytes(seen) == content
    del seen
    gc.collect()
    assert gabion.memory.stats().live == before


def test_close_gives_the_memory_back_at_once() -> None:
    before = gabion.memory.stats().live
    image = noise("RGB", LARGE)
    assert gabion.memory.stats().live == before + 3
    image.close()
    assert gabion.memory.stats().live == before
    other = weakref.ref(noise("RGB", LARGE))
    gc.collect()
    assert other() is None
    assert gabion.memory.stats().live == before


def test_forgotten_images_are_found() -> None:
    with gabion.memory.track() as leaks:
        forgotten = Image.new("RGB", (10, 10))
        with Image.new("RGB", (20, 10)):
            pass
    assert [(leak.kind, leak.nbytes) for leak in leaks] == [("Image", 300)]
    assert "test_image_pixels.py" in leaks[0].where
    forgotten.close()


def test_limits_and_shortage_leave_the_image_as_it_was() -> None:
    image = noise("RGB", LARGE)
    content = image.to_bytes()
    gabion.memory.configure(allocation_limit="1 MiB")
    try:
        for use in (image.copy, lambda: image.convert("L"), lambda: image.rotate(90), image.make_contiguous):
            with pytest.raises(gabion.LimitError):
                use()
    finally:
        gabion.memory.configure(allocation_limit=None)
    assert image.to_bytes() == content


# --- threads --------------------------------------------------------------------------------------


def test_threads_read_and_change_side_by_side() -> None:
    image = Image.new("RGB", (500, 400))
    patches = [Image.new("RGB", (500, 100), color) for color in (1, 2, 3, 4)]

    def paste(number: int) -> None:
        for _ in range(30):
            image.paste(patches[number], (0, number * 100))

    def read() -> None:
        for _ in range(10):
            small = image.resize((50, 40)).copy()
            assert small.size == (50, 40)
            assert set(image.to_bytes()) <= {0, 1, 2, 3, 4}

    run(*[lambda number=number: paste(number) for number in range(4)], read, read)
    assert image.to_bytes() == b"".join(bytes([color]) * 150_000 for color in (1, 2, 3, 4))


def test_two_images_pasted_into_each_other_do_not_block() -> None:
    one, other = noise("RGB", (300, 300), 1), noise("RGB", (300, 300), 2)

    def into(to: Image, of: Image) -> None:
        for _ in range(50):
            to.paste(of)

    run(lambda: into(one, other), lambda: into(other, one), lambda: into(one, one))


def test_closing_beside_use() -> None:
    for _ in range(20):
        image = noise("RGB", (200, 200))

        def use(image: Image = image) -> None:
            try:
                while True:
                    image.resize((50, 50)).close()
                    bytes(image.row(0))
                    image.thumbnail((150, 150))
            except ClosedError:
                pass

        run(use, use, image.close)
        assert image.closed
