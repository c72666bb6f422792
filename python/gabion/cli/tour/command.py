"""Options in, exit code out."""

import argparse
import json
import os
import pickle
import shlex
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from gabion.cli.failure import look_at, shown
from gabion.cli.tour import flights, machine, page, photos, records, requests, runner, terminal
from gabion.cli.tour.failure import TourError
from gabion.cli.tour.measure import REPLACED_SHARE
from gabion.cli.tour.photos import Photos
from gabion.cli.tour.records import Table
from gabion.cli.tour.result import ArraysResult, CacheResult, ImagesResult, Result

MOST_OBJECTS = 2_000_000
QUICK_OBJECTS = 50_000
RUN_SECONDS = 75
# For each expression and size of NumPy's arithmetic.
ARRAY_SECONDS, QUICK_SECONDS = 0.5, 0.02
# Pictures that are chosen from a folder, and how long gabion may take for them.
MOST_PHOTOS, QUICK_PHOTOS = 200, 48
IMAGE_SECONDS, QUICK_IMAGE_SECONDS = 5.0, 1.5
QUICK_REQUESTS = 40_000
SAMPLE = 2_000
# Of the memory that is free, the part that a run may plan to use.
MEMORY_SHARE = 0.7


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare `tour` and its options."""
    about = (
        "Keep real records as plain objects, as pickles and in a pile; measure memory, speed and collector pauses."
        " Then calculate with NumPy on fresh memory and on the pool's, make thumbnails of pictures, and put a cache"
        " under recorded requests."
    )
    tour = commands.add_parser("tour", help="a live tour on real records, with one page at the end", description=about)
    tour.add_argument("--records", type=Path, metavar="FILE", help="a .csv or .jsonl file (default: flights of 2013)")
    tour.add_argument("--objects", type=_count, metavar="N", help="how many to keep (default: what 1–2 minutes allow)")
    tour.add_argument("--quick", action="store_true", help=f"a few seconds: {QUICK_OBJECTS:,} objects")
    tour.add_argument("--seed", type=int, default=1, metavar="S", help="of all random choices (default: %(default)s)")
    tour.add_argument(
        "--out",
        type=Path,
        default=Path("gabion-tour.html"),
        metavar="PAGE",
        help="where the page goes (default: %(default)s)",
    )
    pictures = "a folder of pictures; the page shows some (default: photos in $GABION_DATA, else made-up ones)"
    tour.add_argument("--photos", type=Path, metavar="DIR", help=pictures)
    tour.add_argument("--no-arrays", action="store_true", help="leave out NumPy's arithmetic on the pool")
    tour.add_argument("--no-images", action="store_true", help="leave out the thumbnails")
    tour.add_argument("--no-cache", action="store_true", help="leave out the cache")
    tour.add_argument("--no-page", action="store_true", help="write no page")
    tour.add_argument("--json", action="store_true", help="print the figures as JSON and nothing else on stdout")
    tour.set_defaults(run=run)


def _count(text: str) -> int:
    try:
        count = int(text.replace("_", "").replace(",", ""))
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"a whole number of 1 or more is needed, not {text!r}")
    return count


@dataclass(frozen=True)
class Parts:
    """What was measured beside the stores; nothing where a part was left out."""

    calculated: list[ArraysResult]
    pictures: Photos | None
    small: list[ImagesResult]
    thumbnails: list[Path]
    cached: CacheResult | None


def run(options: argparse.Namespace) -> int:
    """The whole tour. TourError ends it with one line; the caller prints that."""
    console = Console(stderr=options.json, highlight=False, markup=False, emoji=False)  # names are printed as they are
    if not options.no_page:
        _check_writable(options.out)
    with tempfile.TemporaryDirectory(prefix="gabion-tour-") as name:
        folder = Path(name)
        most_photos = QUICK_PHOTOS if options.quick else MOST_PHOTOS
        pictures = None if options.no_images else photos.find(options.photos, most_photos)
        most = round((options.objects or MOST_OBJECTS) * (1 + REPLACED_SHARE))
        table = _read(options, folder / "rows.spool", most, console)
        objects = options.objects or (QUICK_OBJECTS if options.quick else 0)
        objects = _fitting(table, objects)
        console.print(f"keeping {objects:,} of them in each of three stores, one after the other", soft_wrap=True)
        results = runner.run(table, objects, options.seed, console)
        parts = _parts(options, table, pictures, objects < MOST_OBJECTS // 20, folder, console)
        if options.json:
            print(json.dumps(_as_json(table, results, parts, options.seed), indent=2))
        else:
            _show(console, table, results, parts)
        if not options.no_page:
            text = page.page(table, results, _sections(parts), machine.describe(), _command(options, objects))
            # A path may be no text; and the page of the last tour stays until this one is made.
            data = text.encode("utf-8", errors="backslashreplace")
            _write(options.out, data)
            console.print(f"page: {options.out.resolve().as_uri()}", soft_wrap=True)
    return 0


def _parts(
    options: argparse.Namespace, table: Table, pictures: Photos | None, few: bool, folder: Path, console: Console
) -> Parts:
    """Measure what is not left out, shortly where the objects are few."""
    quick = options.quick or few
    calculated: list[ArraysResult] = []
    small: list[ImagesResult] = []
    thumbnails: list[Path] = []
    cached = None
    if not options.no_arrays:
        calculated = runner.run_arrays(QUICK_SECONDS if quick else ARRAY_SECONDS, folder, console)
    if not options.no_images:
        pictures = _pictures(pictures, folder / "made-up", console)
        seconds = QUICK_IMAGE_SECONDS if quick else IMAGE_SECONDS
        small, thumbnails = runner.run_images(pictures, seconds, folder, console)
    if not options.no_cache:
        asked = requests.find(table, QUICK_REQUESTS if quick else requests.MOST)
        cached = runner.run_cache(asked, table, folder, console)
    return Parts(calculated, pictures, small, thumbnails, cached)


def _show(console: Console, table: Table, results: list[Result], parts: Parts) -> None:
    terminal.show(console, table, results)
    terminal.show_arrays(console, parts.calculated)
    if parts.pictures:
        colours = console.is_terminal and console.color_system == "truecolor"
        terminal.show_images(console, parts.pictures, parts.small, parts.thumbnails, colours)
    terminal.show_cache(console, parts.cached)


def _sections(parts: Parts) -> list[str]:
    sections = [page.arrays_section(parts.calculated)]
    if parts.pictures:
        sections.append(page.images_section(parts.pictures, parts.small, parts.thumbnails))
    return [*sections, page.cache_section(parts.cached)]


def _pictures(pictures: Photos | None, place: Path, console: Console) -> Photos:
    with console.status("preparing the pictures"):
        pictures = pictures or photos.made_up(place)
        photos.read_once(pictures)
    console.print(shown(f"making thumbnails of {pictures.source}"), soft_wrap=True)
    return pictures


def _read(options: argparse.Namespace, spool: Path, most: int, console: Console) -> Table:
    name = options.records or "the table of flights"
    if options.quick and not options.objects:
        most = round(QUICK_OBJECTS * (1 + REPLACED_SHARE))
    with console.status(shown(f"reading {name}")):
        table = records.read(options.records, spool, most) if options.records else flights.read(spool, most)
    console.print(shown(f"{terminal.records_of(table)} from {table.source}"), soft_wrap=True)
    return table


def _fitting(table: Table, objects: int) -> int:
    """The number asked for if memory holds it, TourError if not; for 0, a number that time and memory allow."""
    make = records.record_class(table.columns)
    began = time.perf_counter()
    sample = [make(*row) for row in islice(records.endless(table.spool), SAMPLE)]
    made = time.perf_counter()
    for one in sample:
        pickle.dumps(one, 5)
    pickled = time.perf_counter()
    seconds = (3 * (made - began) + (pickled - made)) * (1 + REPLACED_SHARE) / SAMPLE
    # The 24 are a place in the list, one in the pile's pointers, and the sum that a get is checked against.
    each = 24 + sum(sys.getsizeof(one) + sum(_size(getattr(one, c)) for c in table.columns) for one in sample) // SAMPLE
    room = round(machine.available_bytes() * MEMORY_SHARE)
    if not objects:
        return max(1_000, _rounded(min(MOST_OBJECTS, room // each, round(RUN_SECONDS / 2 / seconds))))
    if objects * each > room:
        raise TourError(
            f"not enough memory: {objects:,} plain objects need about {objects * each / 2**30:.1f} GiB,"
            f" and {room / 2**30:.1f} GiB may be used; try --objects {_rounded(room // each)}"
        )
    return objects


def _size(value: object) -> int:
    # None and the booleans exist once, whoever holds them.
    return 0 if value is None or isinstance(value, bool) else sys.getsizeof(value)


def _rounded(count: int) -> int:
    """Two digits and zeros."""
    step: int = 10 ** max(0, len(str(count)) - 2)
    return count - count % step


def _check_writable(out: Path) -> None:
    look_at(out)
    folder = out.resolve().parent
    if out.is_dir() or not folder.is_dir() or not os.access(out if out.exists() else folder, os.W_OK):
        raise TourError(f"{out}: the page cannot be written there; choose another --out, or --no-page")


def _write(out: Path, page: bytes) -> None:
    try:
        out.write_bytes(page)
    except OSError as error:
        raise TourError(f"{out}: {error.strerror or error}") from None


def _command(options: argparse.Namespace, objects: int) -> str:
    words = ["gabion", "tour", "--objects", str(objects), "--seed", str(options.seed)]
    for option, path in (("--records", options.records), ("--photos", options.photos)):
        words += [option, str(path)] if path else []
    return shlex.join(words)


def _as_json(table: Table, results: list[Result], parts: Parts, seed: int) -> dict[str, Any]:
    stores = []
    for result in results:
        figures = asdict(result)
        figures["pauses"] |= {"longest_ms": result.pauses.longest_ms, "share": result.pauses.share}
        stores.append(figures)
    columns = dict(zip(table.columns, table.types, strict=True))
    about = {"source": table.source, "rows": table.rows, "columns": columns}
    told: dict[str, Any] = {"name": "tour", "seed": seed, "table": about, "stores": stores}
    told["arrays"] = [asdict(one) for one in parts.calculated]
    told["images"] = [asdict(one) for one in parts.small]
    told["cache"] = asdict(parts.cached) if parts.cached else None
    return told | {"machine": machine.describe()}
