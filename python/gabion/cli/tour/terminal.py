"""The report in the terminal."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from gabion.cli.failure import shown
from gabion.cli.figure import plural, size
from gabion.cli.tour import arrays, caches, images
from gabion.cli.tour.lanes import LOWEST_MS, decades, duration, text_lane
from gabion.cli.tour.photos import Photos
from gabion.cli.tour.records import Table
from gabion.cli.tour.result import ArraysResult, CacheResult, ImagesResult, Result
from gabion.cli.tour.sheet import strip
from gabion.cli.tour.stores import LABELS

FEW_OBJECTS = 20_000
STYLES = {"plain": "red", "pickles": "yellow", "gabion": "cyan"}


def rate(per_s: float) -> str:
    """Operations a second, short."""
    return f"{per_s / 1e6:,.2f} M/s" if per_s >= 1e6 else f"{per_s / 1e3:,.0f} k/s"


# Each row of the report: what it says, and how it is read from a result.
ROWS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("memory per object", lambda r: f"{r.bytes_per_object:,.0f} B"),
    ("… after the replacements", lambda r: f"{r.bytes_per_object_after:,.0f} B"),
    ("longest collector pause", lambda r: duration(r.pauses.longest_ms)),
    ("time spent in the collector", lambda r: f"{r.pauses.share:.1%}"),
    ("one gc.collect() at the end", lambda r: duration(r.collect_ms)),
    ("put", lambda r: rate(r.put_per_s)),
    ("get, in random order", lambda r: rate(r.get_per_s)),
    ("replace, in random order", lambda r: rate(r.replace_per_s)),
)


def headline(results: Sequence[Result]) -> str:
    """What a reader should take along: the pile against plain objects."""
    by_store = {result.store: result for result in results}
    plain, pile = by_store["plain"], by_store["gabion"]
    return (
        f"{pile.objects:,} objects: {pile.bytes_per_object:,.0f} bytes each in a pile,"
        f" {plain.bytes_per_object:,.0f} as plain objects;"
        f" longest pause {duration(pile.pauses.longest_ms)} against {duration(plain.pauses.longest_ms)}"
    )


def keeping(results: Sequence[Result]) -> str:
    """That the pile was saved to a file, in one sentence; nothing where the disk had no room for it."""
    saved = next((result.saved for result in results if result.saved), None)
    if saved is None:
        return ""
    return (
        f"The pile was saved to a file of {saved.bytes / 2**20:,.0f} MiB in {duration(saved.save_ms)}, and opened there"
        f" in {duration(saved.open_ms)}, with the same pointers: so another process could go on with it."
    )


def describe(table: Table, objects: int, replaced: int) -> str:
    """Which objects were kept, in one sentence."""
    again = f", repeated with numbers and dates shifted: {objects + replaced:,} objects in all"
    turns = again if objects + replaced > table.rows else ""
    return f"{records_of(table)} from {table.source}{turns}"


def records_of(table: Table) -> str:
    """How many records of how many fields there are."""
    return f"{plural(table.rows, 'record')} of {plural(len(table.columns), 'field')}"


def show(console: Console, table: Table, results: Sequence[Result]) -> None:
    """Print the figures, the pauses over time, and the headline."""
    first = results[0]
    grid = Grid()
    grid.add_column("", no_wrap=True)
    for result in results:
        grid.add_column(LABELS[result.store], justify="right", style=STYLES[result.store])
    for label, read in ROWS:
        grid.add_row(label, *(read(result) for result in results))
    console.print()
    console.print(shown(describe(table, first.objects, first.replaced)), soft_wrap=True)
    console.print(grid)
    _show_lanes(console, results)
    console.print(Text(headline(results), style="bold"), soft_wrap=True)
    console.print(
        "A list keeps references, so plain objects need no put or get. The others build a new object at each get.",
        soft_wrap=True,
    )
    if said := keeping(results):
        console.print(said, soft_wrap=True)
    if first.objects < FEW_OBJECTS:
        console.print(f"With fewer than {FEW_OBJECTS:,} objects, memory and pauses are mostly noise.", soft_wrap=True)


def show_arrays(console: Console, results: Sequence[ArraysResult]) -> None:
    """Print what NumPy's arithmetic took on fresh and on warm memory."""
    if not results:
        return
    grid = Grid(title="NumPy's arithmetic, one execution at the median", title_justify="left")
    for text in ("", *(arrays.LABELS[one.memory] for one in results), "page faults each"):
        grid.add_column(text, justify="right" if text else "left", no_wrap=not text)
    for cells in array_rows(results):
        grid.add_row(*cells)
    console.print()
    console.print(grid)
    console.print(idle_line(results), soft_wrap=True)


def array_rows(results: Sequence[ArraysResult]) -> list[tuple[str, ...]]:
    """A row for each expression and size: what it is, its time with each memory, its page faults."""
    return [
        (
            f"{same[0].expression}, {same[0].mebibytes} MiB",
            *(duration(one.ms) for one in same),
            " / ".join(f"{one.faults:,.0f}" for one in same),
        )
        for same in zip(*(result.operations for result in results), strict=True)
    ]


def idle_line(results: Sequence[ArraysResult]) -> str:
    """What is left of the memory when the arrays are gone."""
    told = (
        f"{arrays.LABELS[one.memory]} {one.peak_bytes / 2**20:,.0f} MiB at most,"
        f" {one.idle_bytes / 2**20:,.0f} MiB when idle"
        for one in results
    )
    return "resident memory: " + "; ".join(told)


# The same for thumbnails.
IMAGE_ROWS: tuple[tuple[str, Callable[[ImagesResult], str]], ...] = (
    ("thumbnails", lambda r: f"{r.made:,}"),
    ("made a second", lambda r: f"{r.per_s:,.0f}"),
    ("processor time of one", lambda r: duration(r.cpu_ms)),
    ("memory at most, above the start", lambda r: size(r.peak_bytes)),
)


def show_images(
    console: Console, photos: Photos, results: Sequence[ImagesResult], thumbnails: Sequence[Path], colours: bool
) -> None:
    """Print what thumbnails took, and some of them where `colours` can be shown."""
    if not results:
        return
    console.print()
    console.print(shown(images_line(photos, results)), soft_wrap=True)
    grid = Grid()
    grid.add_column("", no_wrap=True)
    for one in results:
        grid.add_column(images.LABELS[one.library], justify="right")
    for label, read in IMAGE_ROWS:
        grid.add_row(label, *(read(one) for one in results))
    console.print(grid)
    if colours and thumbnails:
        console.print(strip(thumbnails, console.width))
    for failed in failures(results):
        console.print(shown(failed), soft_wrap=True, markup=False)


def images_line(photos: Photos, results: Sequence[ImagesResult]) -> str:
    """Which pictures were made small, in one sentence."""
    first = results[0]
    tried = first.made + len(first.failed)
    part = "" if tried == len(photos.files) else f", of which the first {tried:,} came within the time"
    return (
        f"thumbnails of {images.SIDE} pixels, by {first.threads} threads: {photos.source}{part};"
        f" {size(first.read_bytes)} in files"
    )


def failures(results: Sequence[ImagesResult]) -> list[str]:
    """What gabion could not read: how many, and the first of them."""
    failed = results[0].failed
    return [f"could not be read: {len(failed):,}, first {failed[0]}"] if failed else []


def show_cache(console: Console, result: CacheResult | None) -> None:
    """Print what the cache did with its requests."""
    if result is None:
        return
    grid = Grid()
    for place, text in enumerate(cache_head()):
        grid.add_column(text, justify="right" if place else "left", no_wrap=not place)
    for cells in cache_rows(result):
        grid.add_row(*cells)
    console.print()
    console.print(cache_line(result), soft_wrap=True)
    console.print(grid)
    console.print(limit_line(result), soft_wrap=True)
    console.print(flight_line(result), soft_wrap=True)


def cache_line(result: CacheResult) -> str:
    """Which requests the cache had, in one sentence."""
    return (
        f"a cache under {result.requests:,} requests for {result.pages:,} pages, {size(result.all_bytes)} in all"
        f" ({result.source}); a hit takes {result.hit_us:.1f} µs"
    )


def cache_head() -> list[str]:
    """The first line of a table of cache_rows()."""
    return ["limit", "room for", *(f"hits, {text}" for text in caches.POLICIES.values())]


def cache_rows(result: CacheResult) -> list[tuple[str, ...]]:
    """A row for each limit, and one for a cache without."""
    rows = []
    for limit in dict.fromkeys(one.max_bytes for one in result.hits):
        same = {one.policy: one for one in result.hits if one.max_bytes == limit}
        part = next(iter(same.values())).part
        rows.append((size(limit), fraction(part), *(f"{same[policy].rate:.1%}" for policy in caches.POLICIES)))
    return [*rows, ("none", "all", *(f"{result.best:.1%}" for _ in caches.POLICIES))]


def fraction(part: float) -> str:
    """A part as one over a whole number."""
    return f"1/{1 / part:.0f}"


def limit_line(result: CacheResult) -> str:
    """That the limit held, or that it did not."""
    return (
        f"bytes looked at after each of {result.looks:,} puts of {result.threads} threads: {result.above:,} times above"
        f" the limit of {result.limit_bytes:,}, at most {result.most_bytes:,}"
    )


def flight_line(result: CacheResult) -> str:
    """How often pages were made that many threads ask for at one moment."""
    return (
        f"{result.askers} threads ask for the same {result.asked} new pages: made {result.made:,} times with"
        f" get_or_put(), {result.made_with_dict:,} times around a dict"
    )


def _show_lanes(console: Console, results: Sequence[Result]) -> None:
    seconds = max(result.pauses.seconds for result in results)
    low, high = decades(results)
    width = max(20, min(console.width - 28, 90))
    scale = f"{duration(LOWEST_MS)} to {duration(10.0**high)}, logarithmic"
    console.print(f"\ncollector pauses over {seconds:,.0f} s (height: {scale})")
    for result in results:
        lane = text_lane(result.pauses, seconds, width, low, high)
        console.print(Text(f"{LABELS[result.store]:<24}  ") + Text(lane, style=STYLES[result.store]), no_wrap=True)
    console.print()
