"""The table on the terminal, the JSON, and the pages in ``docs/benchmarks``."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from bars import BEST_PEER, FEWEST_ROUNDS, Bar, Outcome, judge, other_side
from harness import Result

_LOWER_IS_BETTER_UNITS = ("B", "MiB", "ns", "µs", "ms", "s")
_LOWER_IS_BETTER = ("memory_vs_start", "reserved_vs_start", "idle_vs_start", "rss_growth", "allocations")
# gc_share: who does the rest faster spends the larger share in the collector.
# start_rss, peak_live: what the load is, not what the subject makes of it. round_min, round_max: how evenly
# the threads went, which the mean does not tell; rss_back: some pages more or less, and a bar of its own;
# traced_peak: where it is no buffer, some hundred bytes of the call's own objects. bench/README.md names them all.
UNCOMPARED = (
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
    "rss_back",
    "traced_peak",
)

_INDEX = """# Benchmarks

`python bench/run.py NAME --report docs/benchmarks` writes a page, `make bench` all of them.
[bench/README.md](../bench/README.md) says what each measures and how. A *bar* is what gabion is to reach against a peer
of the same run; those that it missed stand first on each page, with the rows where a peer is better: of all metrics but
those that [tell no better or worse](../bench/README.md#how-to-read-a-result). Figures of a whole machine vary from run
to run: only ratios within one run count.
"""


def _outcomes(result: Result) -> list[Outcome]:
    return [judge(bar, result.rows) for bar in result.bars]


def losses(result: Result) -> list[str]:
    """Every row where a peer's whole range is better than gabion's, in words."""
    found = []
    for row in result.rows:
        own = row["subject"].startswith("gabion")
        if own or row["subject"].startswith(("floor", "empty process")) or row["metric"] in UNCOMPARED:
            continue
        ours = result.row((row["case"], "gabion", row["metric"]))
        if ours is None:
            continue
        lower = row["unit"] in _LOWER_IS_BETTER_UNITS or row["metric"] in _LOWER_IS_BETTER
        if row["max"] < ours["min"] if lower else row["min"] > ours["max"]:
            found.append(
                f"{row['case']}, {row['metric']}: {row['subject']} {number(row['median'], row['unit'])}, "
                f"gabion {number(ours['median'], ours['unit'])}{_few(min(row['rounds'], ours['rounds']))}"
            )
    return found


def number(value: float, unit: str) -> str:
    """A figure with three significant digits and its unit."""
    return " ".join(text for text in _scaled(value, unit) if text)


def _scaled(value: float, unit: str) -> tuple[str, str]:
    if unit == "1/s":
        return (f"{value / 1e6:.3g}", "M/s") if value >= 1e5 else (f"{value:,.0f}", "/s")
    if unit == "objects":
        return f"{value:,.0f}", ""
    return f"{value:.3g}" if unit == "ratio" or value < 1000 else f"{value:,.0f}", "" if unit == "ratio" else unit


def _with_spread(row: dict) -> str:
    """A row's median, its unit, and in parentheses minimum and maximum, without the unit where it is the same."""
    median, least, most = (_scaled(row[which], row["unit"]) for which in ("median", "min", "max"))
    if least == median == most:
        return number(row["median"], row["unit"])
    ends = (text if unit == median[1] else f"{text} {unit}" for text, unit in (least, most))
    return f"{number(row['median'], row['unit'])} ({' – '.join(ends)})"


def _bar_text(outcome: Outcome, result: Result, floor: bool = True) -> str:
    bar = outcome.bar
    sign = "≥" if bar.sense == ">=" else "≤"
    unit = (result.row(bar.row) or {"unit": "ratio"})["unit"]
    needed = f"{bar.limit:g}×" if bar.against else number(bar.limit, unit)
    if outcome.value is None:
        return f"not measured ({sign} {needed})"
    value = f"{outcome.value:.3g}×" if bar.against else number(outcome.value, unit)
    few = _few(outcome.rounds)
    sure = few or ("" if outcome.decided else ", within noise")
    words = f"{'met' if outcome.met else 'MISSED'} {value}{sure} ({sign} {needed}"
    if bar.against:
        words += " " + _name_of_other(bar, result)
    least = result.row(bar.floor) if floor and bar.floor else None
    return words + (f"; floor {number(least['median'], unit)})" if least else ")")


def _few(rounds: int) -> str:
    """What is said of figures of too few rounds to tell how much they vary."""
    return "" if rounds >= FEWEST_ROUNDS else f", of {rounds} round{'s' * (rounds > 1)}"


def _name_of_other(bar: Bar, result: Result) -> str:
    case, subject, metric = bar.against
    if subject == BEST_PEER:
        best = other_side(bar, result.rows)
        return f"{subject}, {best['subject']}" if best else subject
    if subject != bar.row[1]:
        return subject
    return metric if metric != bar.row[2] else case


def _bars_of_rows(result: Result, floor: bool = True) -> dict[int, str]:
    """The identity of a row to what its bars say, with the floor beside them or without."""
    found: dict[int, list[str]] = {}
    for outcome in _outcomes(result):
        found.setdefault(id(result.row(outcome.bar.row)), []).append(_bar_text(outcome, result, floor))
    return {row: "; ".join(texts) for row, texts in found.items()}


def _cells(result: Result) -> list[tuple[str, ...]]:
    """The table: a heading and one line for each row, bars beside their rows."""
    bars = _bars_of_rows(result)
    lines = [("case", "subject", "metric", "median", "min – max", "rounds", "bar")]
    for row in result.rows:
        unit = row["unit"]
        spread = f"{number(row['min'], unit)} – {number(row['max'], unit)}"
        median, rounds = number(row["median"], unit), str(row["rounds"])
        lines.append((row["case"], row["subject"], row["metric"], median, spread, rounds, bars.get(id(row), "")))
    return lines


def pivoted(result: Result) -> list[list[tuple[str, ...]]]:
    """For a page: a table for each set of subjects, a column for each of them, a line for each metric and case."""
    bars = _bars_of_rows(result, floor=False)
    subjects_of: dict[str, dict[str, None]] = {}
    rows_of: dict[tuple[str, str], dict[str, dict]] = {}
    for row in result.rows:
        subjects_of.setdefault(row["case"], {})[row["subject"]] = None
        rows_of.setdefault((row["metric"], row["case"]), {})[row["subject"]] = row
    metrics = list(dict.fromkeys(metric for metric, _ in rows_of))
    tables: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for (metric, case), rows in sorted(rows_of.items(), key=lambda item: metrics.index(item[0][0])):
        subjects = tuple(subjects_of[case])
        table = tables.setdefault(subjects, [("metric", "case", *subjects, "bar")])
        figures = (_with_spread(rows[subject]) if subject in rows else "" for subject in subjects)
        said = "; ".join(bars[id(row)] for row in rows.values() if id(row) in bars)
        table.append((metric, case, *figures, said))
    return list(tables.values())


def _count(result: Result) -> str:
    measured = [outcome for outcome in _outcomes(result) if outcome.value is not None]
    return f"{sum(outcome.met for outcome in measured)} of {len(measured)} measured bars met"


def _summary(result: Result) -> list[tuple[str, list[str]]]:
    outcomes = _outcomes(result)
    measured = [out for out in outcomes if out.value is not None]
    missed = [out for out in measured if not out.met]

    def words(out: Outcome) -> str:
        return f"{out.bar.row[0]}, {out.bar.row[2]}: {_bar_text(out, result)}"

    return [
        (f"{_count(result)}; missed", [words(out) for out in missed]),
        ("not measured", [words(out) for out in outcomes if out.value is None]),
        ("rows where a peer is better by more than its spread", losses(result)),
        ("missing", sorted(set(result.missing))),
        ("failed", result.failures),
    ]


def print_result(result: Result) -> None:
    """The table, then what was missed, lost, missing or failed."""
    print(f"\n{result.name} — {result.title}")
    lines = _cells(result)
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
    rows = [{name: figure for name, figure in row.items() if name != "values"} for row in result.rows]
    return {"name": result.name, "rows": rows, "machine": result.machine}


def write_page(result: Result, command: str, pictures: list[Path], folder: Path) -> None:
    """Write the page of a benchmark: what it comes to, pictures, which are linked relative to it, and tables."""
    counts = sorted({row["rounds"] for row in result.rows}) or [0]
    rounds = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    text = [
        f"# {result.name} — {result.title}",
        "",
        f"`{command}`; {_count(result)}.",
        f"Medians of {rounds} rounds, with minimum and maximum; all subjects in turn, each run in a fresh process.",
        "[How it is measured, and how to read it](../../bench/README.md).",
        "",
    ]
    for picture in pictures:
        text += [f"![{result.name}]({os.path.relpath(picture, folder)})", ""]
    for title, items in _summary(result):
        if items or title.endswith("missed"):
            text += [f"**{title[0].upper()}{title[1:]}:**" + ("" if items else " none."), ""]
            text += [*(f"- {item.splitlines()[0]}" for item in items), ""] if items else []
    for heading, *lines in pivoted(result):
        text += [_markdown_line(heading), _markdown_line(("---",) * len(heading)), *map(_markdown_line, lines), ""]
    text += [*(f"- {note}" for note in result.notes), ""] if result.notes else []
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{result.name}.md").write_text("\n".join([*text, f"Machine: {machine}", ""]))


def write_index(names: list[str], folder: Path) -> None:
    """Write the page before those in ``folder``: a line for each, with how many bars it met."""
    lines = [("benchmark", "bars")]
    for page in (folder / f"{name}.md" for name in names):
        if page.exists():
            title, _, first = page.read_text().split("\n", 3)[:3]
            counted = re.search(r"\d+ of \d+ measured bars met", first)
            lines.append((f"[{title.removeprefix('# ')}]({folder.name}/{page.name})", counted[0] if counted else ""))
    rule = _markdown_line(("---",) * len(lines[0]))
    table = [_markdown_line(lines[0]), rule, *map(_markdown_line, lines[1:])]
    folder.with_suffix(".md").write_text("\n".join([_INDEX, *table, ""]))


def _markdown_line(columns: tuple[str, ...]) -> str:
    return "| " + " | ".join(column.replace("|", "\\|") for column in columns) + " |"
