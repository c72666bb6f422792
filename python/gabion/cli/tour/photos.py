"""The pictures of the tour: a folder's, or some that are made up.

The folder is the one that is named, else `photos` in the folder that the environment variable GABION_DATA names.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gabion import Image
from gabion.cli.thumbnails.plan import Plan, counted, expanded
from gabion.cli.tour.failure import TourError

MADE_UP = 8
MADE_UP_SIZE = (3000, 2000)
# Stones are drawn small, and enlarged.
DRAWN_SIZE = (150, 100)
STONES = 32
CHUNK = 1 << 18


@dataclass(frozen=True)
class Photos:
    """Pictures, and what the report says about them."""

    source: str
    files: tuple[Path, ...]


def find(folder: Path | None, most: int) -> Photos | None:
    """At most `most` pictures of `folder` and the folders below, evenly chosen; None where no folder is named and
    GABION_DATA has none. TourError if the folder has no pictures."""
    data = os.environ.get("GABION_DATA")
    if folder is None and data and Path(data, "photos").is_dir():
        folder = Path(data, "photos")
    if folder is None:
        return None
    if not folder.is_dir():
        raise TourError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}; --photos takes a folder")
    plan = Plan()
    files = sorted(file for file, _ in expanded(str(folder), True, plan))
    if not files:
        others = f", but {counted(plan.unread)}" if plan.unread else ""
        why = f"; {plan.refused[0][0]}: {plan.refused[0][1]}" if plan.refused else ""
        raise TourError(f"{folder}: no JPEG, PNG, WebP, TIFF, BMP or GIF files there or below{others}{why}")
    chosen = [files[number * len(files) // most] for number in range(most)] if len(files) > most else files
    among = f"{len(chosen):,} of {len(files):,}" if len(chosen) < len(files) else f"{len(files):,}"
    return Photos(f"{among} pictures from {folder}", tuple(chosen))


def read_once(photos: Photos) -> None:
    """Have the system read the files, so that nobody's time contains that of a disk."""
    buffer = bytearray(CHUNK)
    for file in photos.files:
        try:
            with file.open("rb", buffering=0) as opened:
                while opened.readinto(buffer):
                    pass
        except OSError:
            pass  # the measurement says what is wrong with it


def made_up(place: Path) -> Photos:
    """Pictures of walls, drawn into the new folder `place`."""
    place.mkdir()
    return Photos(f"{MADE_UP} made-up pictures; --photos names a folder of real ones", tuple(_walls(place)))


def _walls(place: Path) -> Iterator[Path]:
    width, height = DRAWN_SIZE
    for number in range(MADE_UP):
        file = place / f"stones-{number + 1}.jpg"
        drawn = memoryview(_stones(width, height, number)).cast("B", (height, width, 3))
        with Image.from_array(drawn) as small, small.resize(MADE_UP_SIZE, filter="bicubic") as large:
            large.save(file, quality=90)
        yield file


def _stones(width: int, height: int, seed: int) -> bytes:
    """A wall of stones in RGB: each point has the colour of the nearest middle, darker towards the joints."""
    chance = random.Random(seed)
    middles = [(chance.random() * width, chance.random() * height) for _ in range(STONES)]
    warm = chance.uniform(0.75, 1.0)
    greys = [chance.uniform(90, 230) for _ in middles]
    drawn = bytearray()
    for y in range(height):
        for x in range(width):
            near, second, grey = 1e9, 1e9, 0.0
            for (mx, my), own in zip(middles, greys):
                far = (x - mx) * (x - mx) + (y - my) * (y - my)
                if far < near:
                    near, second, grey = far, near, own
                elif far < second:
                    second = far
            light = grey * min(1.0, 0.25 + (second**0.5 - near**0.5) / 8) + chance.uniform(-8, 8)
            drawn += bytes(round(min(255.0, max(0.0, light * tint))) for tint in (1.0, (1 + warm) / 2, warm))
    return bytes(drawn)
