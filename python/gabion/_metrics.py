"""Figures of processes, as Prometheus reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# What only grows, and what tells things apart.
COUNTS = {
    *("requests", "hits_cache", "hits_piece", "hits_block", "hits_run", "fresh", "stolen", "trimmed", "refused"),
    *("waited", "retries", "hits", "misses", "inserted", "replaced", "rejected", "removed", "evicted", "expired"),
}
LABELS = {"id", "path", "name"}
# Piles and caches of a process that Prometheus is told of, and tables that figures are told of: the largest of each.
MOST_OF_A_KIND = 300
# Where the documentation says what a figure means.
SOURCES = {
    "": "the process, as gabion.monitor.figures() says",
    "pool_": "gabion.memory.stats()",
    "pile_": "gabion.Pile.stats()",
    "cache_": "gabion.Cache.stats()",
    "cache_table_": "stats() of a table of a gabion.Cache",
}


def metrics(all_of_them: Iterable[dict[str, Any]], *, by_pid: bool = False) -> str:
    """Write figures down as Prometheus reads them: a name for each, and labels that tell apart whose they are.

    With ``by_pid`` the process is one of the labels. Figures of other processes may be of another version. Of piles and
    caches, those of a process that take most are told of, as many as of tables.
    """
    lines: dict[str, list[str]] = {}
    helps: dict[str, str] = {}

    def add(part: str, of: dict[str, Any], labels: dict[str, object]) -> None:
        text = ",".join(f'{label}="{_escaped(str(value))}"' for label, value in labels.items())
        for name, value in of.items():
            if name not in LABELS and isinstance(value, (int, float)) and re.fullmatch("[a-z][a-z0-9_]*", name):
                metric = f"gabion_{part}{name}{'_total' if name in COUNTS else ''}"
                line = f"{metric}{{{text}}} {_written(value)}\n" if labels else f"{metric} {_written(value)}\n"
                lines.setdefault(metric, []).append(line)
                helps.setdefault(metric, f"{name} of {SOURCES[part]}")

    for told in all_of_them:
        whose: dict[str, object] = {"pid": told["pid"]} if by_pid else {}
        alive = {"process_seconds": told.get("seconds"), "process_resident_bytes": told.get("resident_bytes")}
        alive |= {"piles": len(told["piles"]), "caches": len(told["caches"])}
        add("", alive, whose)
        add("pool_", told["pool"], whose)
        for pile in _largest(told["piles"]):
            this = {**whose, "id": pile.get("id"), "path": pile.get("path") or "", "name": pile.get("name") or ""}
            add("pile_", pile, this)
        for cache in _largest(told["caches"]):
            this = {**whose, "id": cache.get("id"), "name": cache.get("name") or ""}
            add("cache_", cache, this)
            for table in tables_of(cache):
                add("cache_table_", table, {**this, "table": table.get("name")})
    kinds = {metric: "counter" if metric.endswith("_total") else "gauge" for metric in lines}
    return "".join(
        f"# HELP {metric} {helps[metric]}\n# TYPE {metric} {kinds[metric]}\n{''.join(ones)}"
        for metric, ones in lines.items()
    )


def _largest(ones: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return those that take most, in the order in which they came."""
    if len(ones) <= MOST_OF_A_KIND:
        return ones
    sizes = [size if isinstance(size := one.get("reserved_bytes"), (int, float)) else 0 for one in ones]
    largest = sorted(range(len(ones)), key=lambda at: -sizes[at])[:MOST_OF_A_KIND]
    return [ones[at] for at in sorted(largest)]


def tables_of(cache: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the figures of a cache's tables, as far as it tells of them: another version may not."""
    told = cache.get("table_stats")
    return [table for table in told if isinstance(table, dict)] if isinstance(told, list) else []


def _written(value: float) -> str:
    try:
        return f"{float(value):.15g}"
    except OverflowError:  # an int of another process
        return "+Inf"


def _escaped(text: str) -> str:
    text = text.encode(errors="replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
