"""The report as one HTML page that needs nothing else: no script, no font, no network."""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from gabion.cli.tour import arrays, curves, images, terminal
from gabion.cli.tour.lanes import duration
from gabion.cli.tour.photos import Photos
from gabion.cli.tour.picture import svg
from gabion.cli.tour.records import Table
from gabion.cli.tour.result import ArraysResult, CacheResult, ImagesResult, Result
from gabion.cli.tour.sheet import contact_sheet
from gabion.cli.tour.stores import LABELS
from gabion.cli.tour.terminal import ROWS, array_rows, describe, headline, idle_line, keeping, rate

HOW = """Each store ran in a process of its own, one after the other, with the same objects in the same order. Objects
were made in requests of 5,000; making them and checking what came back is not part of any rate. Put: all objects, one
call each. Get: up to 200,000 objects chosen at random, each compared with what was put. Replace: 60 % of all objects
chosen at random, new ones in the place of old ones. Memory is the growth of the process's resident set over the empty
process, divided by the objects; the pile's pointers are part of it. A pause is one automatic run of Python's cyclic
garbage collector with its default settings, timed by gc.callbacks; the last full collection was asked for."""


def page(
    table: Table,
    results: Sequence[Result],
    parts: Sequence[str],
    machine: Mapping[str, str],
    command: str,
) -> str:
    """The whole document: the stores, then each of the other parts that has a section."""
    by_store = {result.store: result for result in results}
    plain, pile = by_store["plain"], by_store["gabion"]
    style = files("gabion.cli.tour").joinpath("page.css").read_text(encoding="utf-8")
    fields = ", ".join(f"{name}: {kind}" for name, kind in zip(table.columns, table.types, strict=True))
    facts = {"Objects": describe(table, plain.objects, plain.replaced), "Fields": fields, **machine}
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gabion tour</title>
<style>
{style}</style>
</head>
<body>
<main>
<header>
<h1>gabion tour</h1>
<p>{escape(headline(results))}.</p>
</header>
<section class="cards">
{_card(_times(plain.bytes_per_object, pile.bytes_per_object), "less memory than plain objects")}
{_card(_times(plain.pauses.longest_ms, pile.pauses.longest_ms), "shorter longest pause than plain objects")}
{_card(_times(pile.get_per_s, by_store["pickles"].get_per_s), "as many gets a second as from pickles")}
{_card(_times(pile.put_per_s, by_store["pickles"].put_per_s), "as many puts a second as into pickles")}
</section>
<section>
<h2>Collector pauses over time</h2>
<p>While a pause lasts, no Python code runs. Each line is the longest pause at that moment; the height is
logarithmic. A lane ends where its store was done. The short pauses that remain with the other two are over the new
objects of each request and over the interpreter itself, however many objects are kept.</p>
{svg(results)}
</section>
<section class="columns">
{_bars("Memory per object", results, lambda r: r.bytes_per_object, lambda v: f"{v:,.0f} B")}
{_bars("One full collection at the end", results, lambda r: r.collect_ms, duration)}
{_bars("Gets a second, random order", results, lambda r: r.get_per_s, rate)}
{_bars("Puts a second", results, lambda r: r.put_per_s, rate)}
</section>
<p class="note">A list of plain objects needs no put and no get: it keeps a reference and gives it back. The other two
build a new object at each get. {escape(keeping(results))}</p>
<section>
<h2>All figures</h2>
{_figures(results)}
</section>
{"".join(parts)}
<section>
<h2>What was measured</h2>
<p>{escape(HOW)}</p>
<dl>{"".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())}</dl>
<p>To see it again: <code>{escape(command)}</code></p>
</section>
</main>
</body>
</html>
"""


def _times(more: float, less: float) -> str:
    if not less > 0:
        return "–"
    ratio = more / less
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def _card(figure: str, text: str) -> str:
    return f'<div class="card"><b>{figure}</b><span>{escape(text)}</span></div>'


def _bars(title: str, results: Sequence[Result], read: Callable[[Result], float], say: Callable[[float], str]) -> str:
    longest = max(read(result) for result in results) or 1.0
    rows = "".join(
        f'<div class="bar {result.store}"><span>{escape(LABELS[result.store])}</span>'
        f'<i style="width:{max(0.5, 100 * read(result) / longest):.1f}%"></i><b>{say(read(result))}</b></div>'
        for result in results
    )
    return f'<div class="chart"><h3>{escape(title)}</h3>{rows}</div>'


def _figures(results: Sequence[Result]) -> str:
    head = ["", *(LABELS[result.store] for result in results)]
    return _table(head, ([label, *(read(result) for result in results)] for label, read in ROWS))


def arrays_section(calculated: Sequence[ArraysResult]) -> str:
    """NumPy's arithmetic on fresh and on warm memory."""
    if not calculated:
        return ""
    head = ["", *(arrays.LABELS[one.memory] for one in calculated), "page faults each"]
    return f"""<section>
<h2>NumPy on warm memory</h2>
<p>Each result is a new array. Memory that comes fresh from the system costs a page fault for every 4 KiB;
<code>gabion.numpy.install()</code> takes it from the pool, where it is warm. {escape(idle_line(calculated))}.</p>
{_table(head, array_rows(calculated))}
</section>"""


def images_section(photos: Photos, results: Sequence[ImagesResult], thumbnails: Sequence[Path]) -> str:
    """Thumbnails: a sheet of them, and what they took."""
    if not results:
        return ""
    line = terminal.images_line(photos, results)
    sheet = base64.b64encode(contact_sheet(thumbnails, images.SIDE)).decode() if thumbnails else ""
    shown = f'<img alt="Contact sheet" src="data:image/webp;base64,{sheet}">' if sheet else ""
    head = ["", *(images.LABELS[one.library] for one in results)]
    rows = ([label, *(read(one) for one in results)] for label, read in terminal.IMAGE_ROWS)
    failed = "".join(f'<p class="note">{escape(text)}</p>' for text in terminal.failures(results))
    return f"""<section>
<h2>Images on warm memory</h2>
<p>Each picture is decoded no larger than its thumbnail needs, strip by strip, without the GIL; files were read once
before. {escape(line[:1].upper() + line[1:])}.</p>
{shown}
{_table(head, rows)}
{failed}</section>"""


def cache_section(result: CacheResult | None) -> str:
    """A cache under requests: hits, its limit, its factories."""
    if result is None:
        return ""
    line = terminal.cache_line(result)
    watched = next(one for one in result.hits if one.policy == "default" and one.max_bytes == result.limit_bytes)
    looks = f"times above the limit, in {result.looks:,} looks after puts of {result.threads} threads"
    room = f"of the requests are hits, with room for {terminal.fraction(watched.part)} of the pages"
    calls = (
        f"factory calls for {result.asked} pages that {result.askers} threads ask for at one moment;"
        f" around a dict {result.made_with_dict:,}"
    )
    return f"""<section>
<h2>A cache that holds to its bytes</h2>
<p>{escape(line[:1].upper() + line[1:])}. Each page that came back was compared with the one that was put. The limit
counts keys, headers and index too; below 8 MiB, the memory that the entries lie in may take 8 MiB.</p>
<div class="cards">
{_card(f"{watched.rate:.0%}", room)}
{_card(f"{result.above:,}", looks)}
{_card(f"{result.made:,}", calls)}
</div>
{curves.svg(result)}
{_table(terminal.cache_head(), terminal.cache_rows(result))}
</section>"""


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(tag: str, cells: Iterable[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line("td", cells) for cells in rows)
    return f"<table><thead>{line('th', head)}</thead><tbody>{body}</tbody></table>"
