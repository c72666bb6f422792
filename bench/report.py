"""The table on the terminal, the JSON, and the page ``docs/benchmarks.md``."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from harness import BEST_PEER, Bar, Result

_LOWER_IS_BETTER_UNITS = ("B", "MiB", "ns", "µs", "ms", "s")
_LOWER_IS_BETTER = ("memory_vs_start", "reserved_vs_start", "idle_vs_start", "rss_growth", "allocations")
# gc_share: who does the rest faster spends the larger share in the collector.
# start_rss, peak_live: what the load is, not what the subject makes of it. round_min, round_max: how evenly
# the threads went, which the mean does not tell; rss_left, rss_back: some pages more or less; cpu_per_op: ops_per_s
# says it; traced_peak: where it is no buffer, some hundred bytes of the call's own objects.
_UNCOMPARED = (
    "collections",
    "gc_share",
    "objects",
    "longest_op",
    "ops_over_1_ms",
    "bytes_per_object_with_pointers",
    "start_rss",
    "peak_live",
    "round_min",
    "round_max",
    "rss_left",
    "rss_back",
    "cpu_per_op",
    "traced_peak",
)


@dataclass
class Outcome:
    """A bar after the run: its value, and whether that is enough; ``value`` is None when a side was not measured."""

    bar: Bar
    value: float | None
    met: bool


def judge(result: Result) -> list[Outcome]:
    """Hold every bar against the rows."""
    return [_judge_one(bar, result) for bar in result.bars]


def _judge_one(bar: Bar, result: Result) -> Outcome:
    row = result.row(bar.row)
    against = result.other_side(bar)
    if row is None or (bar.against and against is None):
        return Outcome(bar, None, False)
    if against is None:
        value = row["median"]
    elif against["median"] == 0:
        # Only pauses can be zero: equal when both are, else infinitely worse.
        value = 1.0 if row["median"] == 0 else float("inf")
    else:
        value = row["median"] / against["median"]
    return Outcome(bar, value, value >= bar.limit if bar.sense == ">=" else value <= bar.limit)


def losses(result: Result) -> list[str]:
    """Every row where a peer's whole range is better than gabion's, in words."""
    found = []
    for row in result.rows:
        own = row["subject"].startswith("gabion")
        if own or row["subject"].startswith(("floor", "empty process")) or row["metric"] in _UNCOMPARED:
            continue
        ours = result.row((row["case"], "gabion", row["metric"]))
        if ours is None:
            continue
        lower = row["unit"] in _LOWER_IS_BETTER_UNITS or row["metric"] in _LOWER_IS_BETTER
        if row["max"] < ours["min"] if lower else row["min"] > ours["max"]:
            found.append(
                f"{row['case']}, {row['metric']}: {row['subject']} {number(row['median'], row['unit'])}, "
                f"gabion {number(ours['median'], ours['unit'])}"
            )
    return found


def number(value: float, unit: str) -> str:
    """A figure with three significant digits and its unit."""
    if unit == "1/s":
        return f"{value / 1e6:.3g} M/s" if value >= 1e5 else f"{value:,.0f} /s"
    if unit == "objects":
        return f"{value:,.0f}"
    return f"{value:.3g}" if unit == "ratio" else f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def _bar_text(outcome: Outcome, result: Result) -> str:
    bar = outcome.bar
    sign = "≥" if bar.sense == ">=" else "≤"
    unit = (result.row(bar.row) or {"unit": "ratio"})["unit"]
    needed = f"{bar.limit:g}×" if bar.against else number(bar.limit, unit)
    if outcome.value is None:
        return f"not measured ({sign} {needed})"
    value = f"{outcome.value:.3g}×" if bar.against else number(outcome.value, unit)
    words = f"{'met' if outcome.met else 'MISSED'} {value} ({sign} {needed}"
    if bar.against:
        words += " " + _name_of_other(bar, result)
    floor = result.row(bar.floor) if bar.floor else None
    return words + (f"; floor {number(floor['median'], unit)})" if floor else ")")


def _name_of_other(bar: Bar, result: Result) -> str:
    case, subject, metric = bar.against
    if subject == BEST_PEER:
        best = result.other_side(bar)
        return f"{subject}, {best['subject']}" if best else subject
    if subject != bar.row[1]:
        return subject
    return metric if metric != bar.row[2] else case


def _bars_of_rows(result: Result) -> dict[int, str]:
    """The identity of a row to what its bars say."""
    found: dict[int, list[str]] = {}
    for outcome in judge(result):
        found.setdefault(id(result.row(outcome.bar.row)), []).append(_bar_text(outcome, result))
    return {row: "; ".join(texts) for row, texts in found.items()}


def cells(result: Result, without: Collection[str] = ()) -> list[tuple[str, ...]]:
    """The table: a heading and one line for each row, bars beside their rows; metrics in ``without`` are left out."""
    bars = _bars_of_rows(result)
    lines = [("case", "subject", "metric", "median", "min – max", "rounds", "bar")]
    for row in result.rows:
        if row["metric"] in without:
            continue
        unit = row["unit"]
        lines.append(
            (
                row["case"],
                row["subject"],
                row["metric"],
                number(row["median"], unit),
                f"{number(row['min'], unit)} – {number(row['max'], unit)}",
                str(row["rounds"]),
                bars.get(id(row), ""),
            )
        )
    return lines


def pivoted(result: Result, metric: str) -> list[list[tuple[str, ...]]]:
    """One table for each set of subjects: a line for each case, a column for each subject's median of ``metric``."""
    bars = _bars_of_rows(result)
    lines_of: dict[str, list[dict]] = {}
    for row in result.rows:
        if row["metric"] == metric:
            lines_of.setdefault(row["case"], []).append(row)
    tables: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for case, rows in lines_of.items():
        subjects = tuple(row["subject"] for row in rows)
        table = tables.setdefault(subjects, [(f"case: {metric}", *subjects, "bar")])
        medians = (number(row["median"], row["unit"]) for row in rows)
        table.append((case, *medians, "; ".join(bars[id(row)] for row in rows if id(row) in bars)))
    return list(tables.values())


def _summary(result: Result) -> list[tuple[str, list[str]]]:
    outcomes = judge(result)
    measured = [out for out in outcomes if out.value is not None]
    missed = [out for out in measured if not out.met]

    def words(out: Outcome) -> str:
        return f"{out.bar.row[0]}, {out.bar.row[2]}: {_bar_text(out, result)}"

    return [
        (f"{len(measured) - len(missed)} of {len(measured)} measured bars met; missed", [words(out) for out in missed]),
        ("not measured", [words(out) for out in outcomes if out.value is None]),
        ("rows where a peer is better by more than its spread", losses(result)),
        ("missing", sorted(set(result.missing))),
        ("failed", result.failures),
    ]


def print_result(result: Result) -> None:
    """The table, then what was missed, lost, missing or failed."""
    print(f"\n{result.name} — {result.title}")
    lines = cells(result)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    before = None
    for line in lines:
        shown = ("", *line[1:]) if line[0] == before else line
        print("  ".join([*(text.ljust(width) for text, width in zip(shown, widths)), shown[-1]]).rstrip())
        before = line[0]
    for heading, items in _summary(result):
        if not items and not heading.endswith("missed"):
            continue
        print(f"\n{heading}:" + (" none" if not items else ""))
        for item in items:
            print(f"  {heading}: {item}" if heading == "missing" else f"  {item}")
    for note in result.notes:
        print(f"\nnote: {note}", end="")
    print(f"\n\nmachine: {json.dumps(result.machine)}")


def as_json(result: Result) -> dict:
    """The result in the format that every benchmark writes."""
    return {"name": result.name, "rows": result.rows, "machine": result.machine}


def write_page(results: list[Result], pictures: dict[str, list[Path]], page: Path) -> None:
    """Write all results as one Markdown page; pictures are linked relative to it."""
    text = [
        "# Benchmarks",
        "",
        "Written by `make bench`; how it is measured stands in `bench/README.md`. Every figure is a median over rounds",
        "in which all subjects ran in turn, each in a fresh process. Figures of a whole machine vary from run to run:",
        "only ratios within one run count. What is lost stands below each table.",
        "",
    ]
    for result in results:
        text += [f"## {result.name} — {result.title}", ""]
        for picture in pictures.get(result.name, []):
            text += [f"![{result.name}]({picture.relative_to(page.parent).as_posix()})", ""]
        tables = [table for metric in result.pivots for table in pivoted(result, metric)]
        for heading, *lines in [*tables, cells(result, result.pivots)]:
            if lines:
                rule = _markdown_line(("---",) * len(heading))
                text += [_markdown_line(heading), rule, *map(_markdown_line, lines), ""]
        for title, items in _summary(result):
            if items or title.endswith("missed"):
                text += [f"**{title[0].upper()}{title[1:]}:**" + ("" if items else " none."), ""]
                text += [*(f"- {item.splitlines()[0]}" for item in items), ""] if items else []
        text += [*(f"- {note}" for note in result.notes), ""]
        machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
        text += [f"Machine: {machine}", ""]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(text))


def _markdown_line(columns: tuple[str, ...]) -> str:
    return "| " + " | ".join(column.replace("|", "\\|") for column in columns) + " |"
