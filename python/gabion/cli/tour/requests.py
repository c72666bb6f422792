"""Requests to a cache: recorded ones, or those that the tour's own table makes.

`traces` in the folder that the environment variable GABION_DATA names may hold `cache2k_web12.trace`, as it is or
compressed by xz: requests for the product pages of a web shop, December 2013 (headissue GmbH, CC BY 4.0). Without it
each record of the table asks for the page of one of its fields, in the order of the table.
"""

import lzma
import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from random import Random
from typing import Any

from gabion.cli.tour.records import Table, endless

TRACE = "cache2k_web12.trace"
TRACE_SOURCE = "the recorded trace web12 of cache2k: product pages of a web shop, December 2013"
MOST = 200_000
# A field whose values come back, but are not the same few for ever: so many different ones, at least and at most.
LEAST_PAGES = 50
MOST_SHARE = 0.25
# Where the table has no such field: keys by a Zipf law.
DRAWN_PAGES, EXPONENT = 5_000, 0.9


@dataclass(frozen=True)
class Requests:
    """Numbers of pages in the order in which they are asked for; the first page is 0, a new one the next number."""

    source: str
    pages: int
    numbers: "array[int]"  # from Python 3.12 on, an array can say so itself


def find(table: Table, most: int = MOST) -> Requests:
    """A recorded trace where there is one, else the table's own requests, at most `most`."""
    return _recorded(most) or _of_table(table, most) or _drawn(most)


def _recorded(most: int) -> Requests | None:
    folder = os.environ.get("GABION_DATA")
    for name in (TRACE, f"{TRACE}.xz") if folder else ():
        path = Path(folder or "", "traces", name)
        if path.is_file():
            data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
            keys = array("i", data)
            if sys.byteorder == "little":
                keys.byteswap()
            return _numbered(TRACE_SOURCE, keys[:most])
    return None


def _of_table(table: Table, most: int) -> Requests | None:
    rows = min(table.rows, most)
    places = [place for place, kind in enumerate(table.types) if kind in ("int", "str")]
    seen: dict[int, set[Any]] = {place: set() for place in places}
    for row in islice(endless(table.spool), rows):
        for place, values in seen.items():
            values.add(row[place])
    fit = [place for place in places if LEAST_PAGES <= len(seen[place]) <= rows * MOST_SHARE]
    if not fit:
        return None
    place = max(fit, key=lambda place: len(seen[place]))
    asked = (row[place] for row in islice(endless(table.spool), rows))
    source = f"each record asks for the page of its {table.columns[place]}, in the order of the table"
    return _numbered(source, (value for value in asked if value is not None))


def _drawn(most: int) -> Requests:
    chance = Random(1)
    sums = list(accumulate(rank**-EXPONENT for rank in range(1, DRAWN_PAGES + 1)))

    def drawn() -> Iterator[int]:
        for _ in range(most // 2):
            yield bisect_left(sums, chance.random() * sums[-1])

    return _numbered(f"drawn by a Zipf law with exponent {EXPONENT}, because no field of the table comes back", drawn())


def _numbered(source: str, keys: Iterable[Any]) -> Requests:
    known: dict[Any, int] = {}
    numbers = array("I", (known.setdefault(key, len(known)) for key in keys))
    return Requests(source, len(known), numbers)
