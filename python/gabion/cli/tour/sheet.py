"""Thumbnails side by side: a contact sheet for the page, a row of them for a terminal."""

import io
from collections.abc import Sequence
from pathlib import Path

from rich.style import Style
from rich.text import Text

from gabion import Image

COLUMNS = 6
MOST = 24
GAP = 10
# A character shows two points, one above the other.
TILE = 14
UPPER_HALF = "▀"


def contact_sheet(files: Sequence[Path], side: int) -> bytes:
    """Up to 24 thumbnails on transparent ground, as a WebP file. `side` is the longest that one may be."""
    shown = files[:MOST]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // COLUMNS)
    size = (columns * (side + GAP) - GAP, rows * (side + GAP) - GAP)
    out = io.BytesIO()
    with Image.new("RGBA", size) as sheet:
        for place, file in enumerate(shown):
            row, column = divmod(place, COLUMNS)
            with Image.open(file) as small, small.convert("RGBA") as one:
                x = column * (side + GAP) + (side - one.width) // 2
                y = row * (side + GAP) + (side - one.height) // 2
                sheet.paste(one, (x, y))
        sheet.save(out, format="WEBP", quality=80)
    return out.getvalue()


def strip(files: Sequence[Path], width: int) -> Text:
    """As many thumbnails as a line of `width` characters has room for, cut to squares, in half blocks of colour."""
    tiles = [_tile(file) for file in files[: max(1, (width + 1) // (TILE + 1))]]
    text = Text(no_wrap=True)
    for line in range(TILE // 2):
        for tile in tiles:
            upper, lower = (tile[(2 * line + half) * 3 * TILE :] for half in (0, 1))
            for at in range(0, 3 * TILE, 3):
                text.append(UPPER_HALF, Style(color=_colour(upper[at:]), bgcolor=_colour(lower[at:])))
            text.append(" ")
        text.append("\n")
    return text


def _tile(file: Path) -> bytes:
    with Image.open(file, mode="RGB") as one:
        side = min(one.size)
        left, top = (one.width - side) // 2, (one.height - side) // 2
        with one.crop((left, top, left + side, top + side)) as square, square.resize((TILE, TILE)) as tile:
            return tile.to_bytes()


def _colour(pixel: bytes) -> str:
    return f"#{pixel[0]:02x}{pixel[1]:02x}{pixel[2]:02x}"
