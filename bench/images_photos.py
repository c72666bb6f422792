"""The photographs of the `images` benchmark: a folder of them, or pictures made up where there is none."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

# What is read of a name in the folder, and which kind it is.
_SUFFIXES = (".jpg", ".jpeg", ".png")
_MADE_UP_SIZES = ((1600, 1200), (2048, 1536), (2272, 1704), (3000, 2000), (2400, 3200), (4000, 3000))
# A made-up picture has detail in all sizes: its spectrum falls off as that of photographs does.
_SPECTRUM = 1.1


@dataclass(frozen=True)
class Photo:
    """One file: its bytes, its size as they tell it, and ``baseline``, ``progressive`` or ``png``."""

    name: str
    data: bytes
    width: int
    height: int
    kind: str

    @property
    def megapixels(self) -> float:
        """Millions of pixels in the file."""
        return self.width * self.height / 1e6

    def within(self, side: int) -> tuple[int, int]:
        """The size of the same shape whose longer side is ``side``."""
        scale = min(1.0, side / max(self.width, self.height))
        return max(1, int(self.width * scale + 0.5)), max(1, int(self.height * scale + 0.5))

    def is_within(self, size: tuple[int, int], side: int) -> bool:
        """Whether a size is that of `within`; what lies halfway between two numbers may be rounded either way."""
        longest = max(self.width, self.height)
        side = min(side, longest)
        exact = (max(longest, own * side) for own in (self.width, self.height))
        return all(2 * abs(have * longest - wanted) <= longest for have, wanted in zip(size, exact, strict=True))


def folder(given: str | None = None) -> Path | None:
    """The folder of photographs: the one given, else ``photos`` in ``GABION_DATA``; None where there is none."""
    if given:
        return Path(given)
    data = os.environ.get("GABION_DATA")
    photos = Path(data) / "photos" if data else None
    return photos if photos and photos.is_dir() else None


def load(place: str, kind: str | None = None) -> list[Photo]:
    """The photographs of a folder, the largest first, so that the last one of many threads is small."""
    found = []
    for path in sorted(Path(place).iterdir()):
        if path.suffix.lower() in _SUFFIXES:
            data = path.read_bytes()
            photo = Photo(path.name, data, *_size_and_kind(data))
            if kind in (None, photo.kind):
                found.append(photo)
    return sorted(found, key=lambda photo: -photo.megapixels)


def kinds(place: Path) -> set[str]:
    """Which kinds there are in a folder."""
    return {photo.kind for photo in load(str(place))}


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height of the file with these bytes."""
    return _size_and_kind(data)[:2]


def _size_and_kind(data: bytes) -> tuple[int, int, str]:
    if data.startswith(b"\x89PNG"):
        return *struct.unpack(">II", data[16:24]), "png"
    at = 2
    while at + 9 < len(data):
        if data[at] != 0xFF:
            break
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
        if marker in (0xC0, 0xC1, 0xC2):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height, "progressive" if marker == 0xC2 else "baseline"
        at += 1 if marker == 0xFF else 2 + length
    raise ValueError("no JPEG or PNG whose size can be found")


def make_up(place: str) -> dict:
    """Write made-up pictures into a folder: baseline JPEG of quality 90, one progressive, one PNG."""
    import gabion

    for number, (width, height) in enumerate(_MADE_UP_SIZES):
        image = gabion.Image.from_array(_picture(width, height, number))
        image.save(Path(place) / f"made-up-{number}.jpg", quality=90)
    small = gabion.Image.from_array(_picture(1280, 960, len(_MADE_UP_SIZES)))
    small.save(Path(place) / "made-up-progressive.jpg", quality=90, progressive=True)
    out = BytesIO()
    small.save(out, format="PNG")
    (Path(place) / "made-up.png").write_bytes(out.getvalue())
    return {"metrics": {}}


def _picture(width: int, height: int, seed: int):
    import numpy as np

    random = np.random.default_rng(seed)
    frequencies = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequencies[0, 0] = 1
    channels = []
    shared = random.standard_normal((height, width))
    for _ in range(3):
        noise = np.fft.rfft2(shared + 0.3 * random.standard_normal((height, width)))
        channel = np.fft.irfft2(noise / frequencies**_SPECTRUM, s=(height, width))
        low, high = np.percentile(channel, (0.5, 99.5))
        channels.append(np.clip((channel - low) / (high - low) * 255, 0, 255).astype(np.uint8))
    return np.stack(channels, axis=2)
