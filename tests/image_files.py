"""Images for the tests: made here, so that no file has to be shipped."""

import io
import random
from pathlib import Path

import gabion

MODES = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}
# What each format gives back as it was; WebP leaves out alpha that is opaque.
HELD = {
    "JPEG": ("L", "RGB", "CMYK"),
    "PNG": ("L", "LA", "RGB", "RGBA"),
    "WebP": ("RGB", "RGBA"),
    "TIFF": ("L", "RGB", "RGBA", "CMYK"),
    "BMP": ("L", "RGB", "RGBA"),
}


def noise(mode: str, size: tuple[int, int], seed: int = 1) -> gabion.Image:
    """Pixels that are all different."""
    image = gabion.Image.new(mode, size)
    source = random.Random(seed)
    for row in image.rows():
        row[:] = source.randbytes(len(row))
    return image


def gradient(mode: str, size: tuple[int, int]) -> gabion.Image:
    """Pixels that change slowly, as lossy formats like them; alpha is nearly opaque."""
    width, height = size
    channels = MODES[mode]
    slope = bytes(x * 50 // width for x in range(width))
    raised = [bytes(min(255, start + rise) for rise in range(256)) for start in range(200)]

    def row(y: int, _: memoryview) -> bytes:
        values = bytearray(width * channels)
        for channel in range(channels):
            alpha = mode in ("LA", "RGBA") and channel == channels - 1
            start = (y * 200 // height) // (channel + 1)
            values[channel::channels] = bytes([255 - y % 2]) * width if alpha else slope.translate(raised[start])
        return bytes(values)

    image = gabion.Image.new(mode, size)
    image.process_rows(row)
    return image


def encoded(image: gabion.Image, format: str, **options: object) -> bytes:
    """The bytes of a file of this format."""
    file = io.BytesIO()
    image.save(file, format=format, **options)
    return file.getvalue()


def far_apart(one: bytes, other: bytes) -> float:
    """The mean difference of two strings of bytes."""
    assert len(one) == len(other)
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


def made(folder: Path) -> dict[str, tuple[int, int]]:
    """Each file below a folder and the size of its picture."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): gabion.Image.open(path).size for path in files}
