"""gabion.Image.open(partial=True): what of a damaged file is given, and that the rest is grey."""

import contextlib
import struct
import zlib
from typing import Any

import numpy
import pytest
from image_files import encoded, gradient, noise

from gabion import Image, ImageError

pytestmark = pytest.mark.usefixtures("balance")

GREY = 128


def pixels(image: Image) -> numpy.ndarray:
    width, height = image.size
    return numpy.frombuffer(image.to_bytes(), "uint8").reshape(height, width, -1)


def interlaced(image: Image) -> bytes:
    """A PNG in Adam7's seven passes."""
    whole, rows = pixels(image), []
    for left, top, right, down in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        rows += [b"\0" + row.tobytes() for row in whole[top::down, left::right] if row.size]

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", *image.size, 8, 2, 0, 0, 1)
    data = zlib.compress(b"".join(rows), 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def tiff(image: Image, chunk: tuple[int, int], *, planar: bool = False, deflated: bool = False) -> bytes:
    """A TIFF in tiles of this size, or in strips of so many rows; the directory comes first."""
    whole = pixels(image)
    height, width, channels = whole.shape
    wide, high = chunk
    planes = [whole[:, :, [c]] for c in range(channels)] if planar else [whole]
    tiled, parts = wide < width, []
    for plane in planes:
        for top in range(0, height, high):
            for left in range(0, width, wide):
                part = plane[top : top + high, left : left + wide]
                if tiled:
                    part = numpy.pad(part, [(0, high - part.shape[0]), (0, wide - part.shape[1]), (0, 0)])
                parts.append(zlib.compress(part.tobytes()) if deflated else part.tobytes())
    entries = [(256, width), (257, height), (259, 8 if deflated else 1), (262, 2 if channels > 2 else 1)]
    entries += [(277, channels), (284, 2 if planar else 1)]
    lists = {258: [8] * channels}
    sizes = [len(part) for part in parts]
    if tiled:
        entries += [(322, wide), (323, high)]
        lists |= {324: [], 325: sizes}
    else:
        entries += [(278, high)]
        lists |= {273: [], 279: sizes}
    count = len(entries) + len(lists)
    after = 8 + 2 + count * 12 + 4
    start = after + 4 * (channels + 2 * len(parts))
    places = [start + sum(sizes[:number]) for number in range(len(parts))]
    lists = {tag: values or places for tag, values in lists.items()}
    directory, extra = [], b""
    for tag, values in sorted([*((tag, [value]) for tag, value in entries), *lists.items()]):
        if len(values) == 1:
            directory.append(struct.pack("<HHII", tag, 4, 1, values[0]))
        else:
            directory.append(struct.pack("<HHII", tag, 4, len(values), after + len(extra)))
            extra += struct.pack(f"<{len(values)}I", *values)
    head = b"II*\0" + struct.pack("<IH", 8, count) + b"".join(directory) + bytes(4)
    return (head + extra).ljust(start, b"\0") + b"".join(parts)


CUTS: dict[str, dict[str, Any]] = {
    "strips": {"chunk": (50, 7)},
    "one strip": {"chunk": (50, 40)},
    "tiles": {"chunk": (16, 16)},
    "tiles wider than they are needed": {"chunk": (48, 64)},
    "planes in strips": {"chunk": (50, 7), "planar": True},
    "planes in tiles": {"chunk": (16, 16), "planar": True},
    "strips, deflated": {"chunk": (50, 7), "deflated": True},
    "tiles, deflated": {"chunk": (16, 16), "deflated": True},
}


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("name", CUTS)
def test_every_way_in_which_a_tiff_may_be_cut(name: str, mode: str) -> None:
    if mode == "L" and CUTS[name].get("planar"):
        return  # one plane in any case
    image = noise("RGB" if mode == "RGBA" else mode, (50, 40))
    again = Image.open(tiff(image, **CUTS[name]))
    assert (again.mode, again.size) == (image.mode, image.size)
    assert again.to_bytes() == image.to_bytes()


@pytest.mark.parametrize("name", CUTS)
def test_a_tiff_that_is_cut_off(name: str) -> None:
    image = noise("RGB", (50, 40))
    content = tiff(image, **CUTS[name])
    whole, before = pixels(image), 0
    for length in range(len(content) - 50 * 40 * 3 // 2, len(content), 333):
        # What is missing may be padding, or the end of a compressed stream.
        with contextlib.suppress(ImageError):
            assert Image.open(content[:length]).to_bytes() == image.to_bytes()
        part = pixels(Image.open(content[:length], partial=True))
        right = part == whole
        assert (right | (part == GREY)).all()
        assert right.sum() >= before
        before = right.sum()
    assert before > 0


def test_passes_of_an_interlaced_png() -> None:
    image = noise("RGB", (50, 40))
    content = interlaced(image)
    assert Image.open(content).to_bytes() == image.to_bytes()
    with pytest.raises(ImageError, match="not a sound PNG image"):
        Image.open(content[: len(content) // 2])
    part, whole = pixels(Image.open(content[: len(content) // 2], partial=True)), pixels(image)
    assert (part[::4, ::4] == whole[::4, ::4]).mean() > 0.9
    assert (part[-1] == GREY).any()
    assert ((part == whole) | (part == GREY)).all()


def test_a_bitmap_begins_with_its_last_row() -> None:
    image = noise("RGB", (50, 40))
    content = encoded(image, "BMP")
    part, whole = pixels(Image.open(content[: len(content) // 2], partial=True)), pixels(image)
    assert (part[-15:] == whole[-15:]).all()
    assert (part[:15] == GREY).all()


@pytest.mark.parametrize("max_size", [None, 30])
@pytest.mark.parametrize("format", ["JPEG", "PNG", "BMP", "TIFF"])
def test_what_is_there_is_where_it_belongs(format: str, max_size: int | None) -> None:
    image = gradient("RGB", (200, 160))
    content = tiff(image, (200, 16)) if format == "TIFF" else encoded(image, format, compression="none")
    part = pixels(Image.open(content[: len(content) * 2 // 3], partial=True, max_size=max_size)).astype(int)
    whole = pixels(Image.open(content, max_size=max_size)).astype(int)
    if format == "BMP":
        part, whole = part[::-1], whole[::-1]
    tenth = len(whole) // 10
    assert abs(part[: 4 * tenth] - whole[: 4 * tenth]).max() <= 1
    assert (part[-tenth:] == GREY).all()


@pytest.mark.parametrize("lossless", [False, True])
def test_webp_is_all_or_nothing(lossless: bool) -> None:
    content = encoded(noise("RGB", (50, 40)), "WebP", lossless=lossless)
    half = content[: len(content) // 2]
    with pytest.raises(ImageError, match=r"not a sound WebP image: .*; get the file anew$"):
        Image.open(half)
    with pytest.raises(ImageError, match=r"not a sound WebP image: .* nothing of it can be decoded; get the file anew"):
        Image.open(half, partial=True)
