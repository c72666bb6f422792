"""What processes say, as a reader sees it."""

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gabion._metrics import COUNTS, tables_of
from gabion.cli.failure import shown
from gabion.cli.figure import plural, size
from gabion.cli.top.asking import BUSY, Figures

NOTHING = "–"
# Lines around the rows of piles, caches and tables.
AROUND = 17
# Characters of a command that are shown, at most.
LONGEST_COMMAND = 4000


def processes(all_of_them: list[Figures], lines: int | None = None) -> RenderableType:
    """Return a line for each process, with the largest first. Where there are more than leave room among that many
    `lines`, the last one says how many are left out."""
    table = _table("pid", "resident", "pool in use", "idle", "piles", "objects", "caches", "entries", "command")
    largest = sorted(all_of_them, key=lambda one: -number(one, "resident_bytes"))
    if lines is not None and len(largest) > lines - 1:  # of which the head is one
        largest = largest[: max(lines - 2, 1)]
    for one in largest:
        if "pool" not in one:
            error = one.get("error", BUSY)
            table.add_row(shown(one["pid"]), *[""] * 7, Text("busy: no answer" if error == BUSY else shown(error)))
            continue
        pool, piles, caches = one["pool"], one["piles"], one["caches"]
        table.add_row(
            str(one["pid"]),
            size(number(one, "resident_bytes")),
            size(number(pool, "in_use")),
            size(number(pool, "idle")),
            f"{len(piles):,}",
            f"{sum(number(pile, 'objects') for pile in piles):,}",
            f"{len(caches):,}",
            f"{sum(number(cache, 'entries') for cache in caches):,}",
            Text(command(one)),
        )
    rest = len(all_of_them) - len(largest)
    return Group(table, Text(f"and {rest:,} more: processes beyond the screen")) if rest else table


def process(now: Figures, before: Figures | None, most: int | None = None, lines: int | None = None) -> RenderableType:
    """Return all that a process says, with rates since it was asked before, and at most that many lines of a table.

    Tables of caches are shown where the others leave room among that many `lines`.
    """
    lasted = _number(now.get("seconds")) - _number(before.get("seconds")) if before else 0.0
    since = Since(before or {}, lasted)
    parts: list[RenderableType] = [_head(now), Text(), _pool(now["pool"], since.of("pool"))]
    if now["piles"]:
        parts += [Text(), _piles(now["piles"], since, most)]
    if now["caches"]:
        parts += [Text(), _caches(now["caches"], since, most)]
        if lines is not None:
            lines -= AROUND + sum(min(len(now[part]), most or 0) for part in ("piles", "caches"))
        if (lines is None or lines > 0) and any(map(tables_of, now["caches"])):
            parts += [Text(), _tables(now["caches"], since, lines)]
    return Group(*parts)


class Since:
    """What was said before, and how many seconds ago."""

    def __init__(self, before: Figures, lasted: float) -> None:
        self.before, self.lasted = before, lasted

    def of(self, name: str) -> "Since":
        """The same, of a part."""
        part = self.before.get(name)
        return Since(part if isinstance(part, dict) else {}, self.lasted)

    def same(self, part: str, one: Figures, *names: str) -> "Since":
        """The same, of the thing in a list that has these names in common with `one`, if there is just one such."""
        those = [
            other for other in self.before.get(part, []) if all(other.get(name) == one.get(name) for name in names)
        ]
        return Since(those[0] if len(those) == 1 else {}, self.lasted)

    def grown(self, now: Figures, name: str) -> int | None:
        """By how much a count has grown; None where that is not known."""
        if self.lasted <= 0 or name not in self.before:
            return None
        grown = number(now, name) - number(self.before, name)
        return grown if grown >= 0 or name not in COUNTS else None  # what only grows and fell is another's

    def rate(self, now: Figures, *names: str) -> str:
        """How much that is a second, of all these counts together."""
        grown = [self.grown(now, name) for name in names]
        known = [count for count in grown if count is not None]
        return f"{sum(known) / self.lasted:,.0f}/s" if len(known) == len(names) else NOTHING


def number(figures: Figures, name: str) -> int:
    """A figure, which another version may not have: 0 then."""
    return int(_number(figures.get(name)))


def _number(value: object) -> float:
    if not isinstance(value, (int, float)):
        return 0
    return value if abs(value) < 2**64 else 0  # also what is no number


def command(figures: Figures) -> str:
    """What was started."""
    return shown(" ".join(str(word)[:LONGEST_COMMAND] for word in figures["command"][:100])[:LONGEST_COMMAND])


def _head(now: Figures) -> Text:
    minutes, seconds = divmod(number(now, "seconds"), 60)
    hours, minutes = divmod(minutes, 60)
    python = shown(now.get("python", "?"))
    about = f"pid {now['pid']}, up {hours}:{minutes:02}:{seconds:02}, gabion {shown(now['gabion'])}, Python {python}"
    return Text(f"{command(now)}\n{about}; {size(number(now, 'resident_bytes'))} resident")


def _pool(pool: Figures, since: Since) -> RenderableType:
    kinds = {"all": "requests", "cache": "hits_cache", "piece": "hits_piece", "block": "hits_block", "run": "hits_run"}
    lately = {text: since.grown(pool, name) for text, name in kinds.items()}
    counts = {text: number(pool, kinds[text]) if count is None else count for text, count in lately.items()}
    total = counts.pop("all")
    counts["system"] = max(total - sum(counts.values()), 0)
    served = ", ".join(f"{text} {count / total:.0%}" for text, count in counts.items() if count) if total else NOTHING
    limit = pool.get("total_limit")
    rows = [
        (
            "pool",
            f"{size(number(pool, 'in_use'))} in use, {size(number(pool, 'idle'))} idle,"
            f" {size(number(pool, 'mapped'))} mapped, {size(number(pool, 'peak'))} at most;"
            f" limit {size(_number(limit)) if limit is not None else 'none'}",
        ),
        ("lent", f"{size(number(pool, 'held'))} to piles and caches, {size(number(pool, 'held_idle'))} of it empty"),
        ("buffers", f"{number(pool, 'live'):,} alive, {_asked(pool, since)}; from {served}"),
        (
            "refused",
            f"{number(pool, 'refused'):,}, {number(pool, 'waited'):,} had to wait;"
            f" {size(number(pool, 'trimmed'))} given back",
        ),
    ]
    grid = Table.grid(padding=(0, 2))
    for name, text in rows:
        grid.add_row(name, text)
    return grid


def _asked(pool: Figures, since: Since) -> str:
    rate = since.rate(pool, "requests")
    return f"{number(pool, 'requests'):,} asked for" if rate == NOTHING else f"{rate} asked for"


def _piles(piles: list[Figures], since: Since, most: int | None) -> RenderableType:
    table = _table("pile", "objects", "change", "used", "each", "taken", "at most", "blocks")

    def row(pile: Figures) -> tuple[str | Text, ...]:
        before = since.same("piles", pile, "id", "path")
        count = number(pile, "objects")
        return (
            Text(shown(pile.get("name") or pile.get("path") or "in memory")),
            f"{count:,}",
            before.rate(pile, "objects"),
            size(number(pile, "used_bytes")),
            size(number(pile, "used_bytes") / count) if count else NOTHING,
            size(number(pile, "reserved_bytes")),
            size(number(pile, "max_bytes")),
            f"{number(pile, 'blocks'):,}",
        )

    return _filled(table, piles, "reserved_bytes", row, most, "pile")


def _caches(caches: list[Figures], since: Since, most: int | None) -> RenderableType:
    table = _table("cache", "entries", "used", "at most", "hits", "gets", "puts", "evicted", "expired", "rejected")

    def row(cache: Figures) -> tuple[str | Text, ...]:
        tables = number(cache, "tables")
        name = shown(cache.get("name") or "without a name")
        title = Text(f"{name}, {plural(tables, 'table')}" if tables else name)
        return (title, *_figures(cache, since.same("caches", cache, "id", "name")))

    return _filled(table, caches, "bytes", row, most, "cache")


def _tables(caches: list[Figures], since: Since, most: int | None) -> RenderableType:
    table = _table("table", "entries", "used", "at most", "hits", "gets", "puts", "evicted", "expired", "rejected")
    of_which = [(cache, one) for cache in caches for one in tables_of(cache)]
    # What is known of a table before is found by its cache's number and its own name.
    told = [{**one, "cache": cache.get("id"), "of": cache.get("name") or ""} for cache, one in of_which]
    before = [{**one, "cache": cache.get("id")} for cache in since.before.get("caches", []) for one in tables_of(cache)]
    earlier = Since({"tables": before}, since.lasted)

    def row(one: Figures) -> tuple[str | Text, ...]:
        name = shown(f"{one['of']}: {one.get('name')}" if one["of"] else one.get("name") or "")
        return (Text(name), *_figures(one, earlier.same("tables", one, "cache", "name")))

    left_out = sum(number(cache, "tables_left_out") for cache in caches)
    return _filled(table, told, "bytes", row, most, "table", left_out)


def _figures(cache: Figures, before: Since) -> tuple[str, ...]:
    """The figures of a cache or a table, and how fast they change."""
    hits, misses = before.grown(cache, "hits"), before.grown(cache, "misses")
    if hits is None or misses is None:
        hits, misses = number(cache, "hits"), number(cache, "misses")
    return (
        f"{number(cache, 'entries'):,}",
        size(number(cache, "bytes")),
        size(number(cache, "max_bytes")),
        f"{hits / (hits + misses):.1%}" if hits + misses else NOTHING,
        before.rate(cache, "hits", "misses"),
        before.rate(cache, "inserted", "replaced"),
        before.rate(cache, "evicted"),
        before.rate(cache, "expired"),
        f"{number(cache, 'rejected'):,}",
    )


def _filled(
    table: Table,
    things: list[Figures],
    by: str,
    row: Callable[[Figures], tuple[str | Text, ...]],
    most: int | None,
    what: str,
    left_out: int = 0,
) -> RenderableType:
    """Return the table with the largest things first, and how many are left out, here or before."""
    largest = sorted(things, key=lambda one: -number(one, by))
    for one in largest[:most]:
        table.add_row(*row(one))
    rest = len(largest) - table.row_count + left_out
    return Group(table, Text(f"and {rest:,} more with less each: {what}s beyond the screen")) if rest else table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, overflow="fold", min_width=16 if first in ("pile", "cache", "table") else None)
    for name in others:
        if name == "command":
            table.expand = True  # it takes what the others leave
            table.add_column(name, overflow="ellipsis", no_wrap=True, ratio=1)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table
