"""The report in the terminal."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from gabion.cli.tour import arrays
from gabion.cli.tour.lanes import LOWEST_MS, decades, duration, text_lane
from gabion.cli.tour.records import Table
from gabion.cli.tour.result import ArraysResult, Result
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


def describe(table: Table, objects: int, replaced: int) -> str:
    """Which objects were kept, in one sentence."""
    again = f", repeated with numbers and dates shifted: {objects + replaced:,} objects in all"
    turns = again if objects + replaced > table.rows else ""
    return f"{table.rows:,} records of {len(table.columns)} fields from {table.source}{turns}"


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
    console.print(describe(table, first.objects, first.replaced), soft_wrap=True)
    console.print(grid)
    _show_lanes(console, results)
    console.print(Text(headline(results), style="bold"), soft_wrap=True)
    console.print(
        "Plain objects need no put or get: a reference is kept and given. The others build a new object.",
        soft_wrap=True,
    )
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
