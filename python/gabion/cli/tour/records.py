"""A CSV or JSON Lines file as typed rows.

A file is read once, its values become int, float, bool, datetime, str or None by column, and the typed rows are
spooled to disk in chunks. The measuring processes read the spool chunk by chunk, so that none of them holds the
table in memory: what they hold is what they measure.
"""

import csv
import itertools
import json
import keyword
import math
import pickle
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, make_dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gabion.cli.figure import plural
from gabion.cli.tour.failure import TourError

Row = tuple[Any, ...]
Parser = Callable[[str], Any]

CHUNK = 1_000
# Rows that decide a column's type; a later value that does not fit stays text.
GUESSED_ROWS = 5_000
# What may separate fields, the first where nothing tells them apart; and how much of a file is looked at for it.
DELIMITERS = ",;\t|"
SNIFFED_LINES = 50
SNIFFED = 1 << 16
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"})
BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class Table:
    """Typed rows on disk. `rows` is at least 1; `types` names each column's type, such as `int`."""

    name: str
    source: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: int
    spool: Path


def read(path: Path, spool: Path, most: int) -> Table:
    """Read the first `most` rows of a `.csv`, `.jsonl` or `.ndjson` file into `spool`. TourError if that cannot be."""
    readers = {".csv": read_csv, ".jsonl": read_json_lines, ".ndjson": read_json_lines}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise TourError(f"{path}: --records takes a .csv or .jsonl file")
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return reader(lines_of(lines, path), path, spool, most)
    except OSError as error:
        raise TourError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise TourError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None


def lines_of(file: Iterable[str], path: Path) -> Iterator[str]:
    """A file's lines. What goes wrong with it is told of it, and not of the spool that they go to."""
    try:
        yield from file
    except OSError as error:
        raise TourError(f"{path}: {error.strerror or error}") from None


def read_csv(lines: Iterable[str], path: Path, spool: Path, most: int) -> Table:
    """Read rows below one line of column names, with what separates fields in its first lines."""
    rest = iter(lines)
    begin = list(itertools.islice(rest, SNIFFED_LINES))
    reader = csv.reader(itertools.chain(begin, rest), delimiter=_delimiter(begin), strict=True)

    def cells() -> Iterator[list[str]]:
        try:
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise TourError(
                        f"{path}:{reader.line_num}: {plural(len(row), 'field')} where the header has {len(header)}"
                    )
                yield row
        except csv.Error as error:
            raise TourError(f"{path}:{reader.line_num}: {error}") from None

    try:
        header = next(reader, [])
    except csv.Error as error:
        raise TourError(f"{path}:{reader.line_num}: {error}") from None
    rows = itertools.islice(cells(), most)
    first = list(itertools.islice(rows, GUESSED_ROWS))
    if not first:
        raise TourError(f"{path}: holds no records; a line of column names and at least one row are needed")
    parsers = [_guess(column) for column in zip(*first, strict=True)]
    typed = (
        tuple(_parsed(cell, parse) for cell, parse in zip(row, parsers, strict=True))
        for row in itertools.chain(first, rows)
    )
    return spooled(typed, path.stem, path.name, header, spool)


def _delimiter(lines: list[str]) -> str:
    """Return what separates fields: a comma, unless the first lines say otherwise and the names of columns do, too."""
    header = lines[0] if lines else ""
    try:
        found = csv.Sniffer().sniff("".join(lines)[:SNIFFED], DELIMITERS).delimiter
    except csv.Error:
        # Not the same number in each line, or a single column.
        found = max(DELIMITERS, key=header.count)
    return found if found in header else ","


def read_json_lines(lines: Iterable[str], path: Path, spool: Path, most: int) -> Table:
    """Read one JSON object per line; the first rows name the columns, and a missing value is None."""

    def objects() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line, parse_constant=lambda name: None if name == "NaN" else float(name))
            except ValueError as error:
                raise TourError(f"{path}:{number}: not JSON ({error})") from None
            except RecursionError:
                raise TourError(f"{path}:{number}: nested too deeply") from None
            if not isinstance(value, dict):
                raise TourError(f"{path}:{number}: a JSON object is needed, this is a {type(value).__name__}")
            yield number, value

    rows = itertools.islice(objects(), most)
    first = list(itertools.islice(rows, GUESSED_ROWS))
    columns = list(dict.fromkeys(key for _, value in first for key in value))
    if not columns:
        raise TourError(f"{path}: holds no records; at least one line with a JSON object is needed")
    known = frozenset(columns)
    texts = [[v for _, one in first if isinstance(v := one.get(name), str)] for name in columns]
    dated = [bool(column) and _guess(column) == datetime.fromisoformat for column in texts]

    def typed() -> Iterator[Row]:
        for number, value in itertools.chain(first, rows):
            if not value.keys() <= known:
                extra = ", ".join(sorted(value.keys() - known))
                raise TourError(f"{path}:{number}: field {extra} is in none of the first {GUESSED_ROWS:,} records")
            yield tuple(
                _parsed(cell, datetime.fromisoformat)
                if date and isinstance(cell := value.get(name), str)
                else value.get(name)
                for name, date in zip(columns, dated, strict=True)
            )

    return spooled(typed(), path.stem, path.name, columns, spool)


def spooled(rows: Iterable[Row], name: str, source: str, columns: Sequence[str], spool: Path) -> Table:
    """Write typed rows to `spool` in chunks, and say what they are. TourError if they cannot be written."""
    count, seen = 0, [set[str]() for _ in columns]
    remaining = iter(rows)
    try:
        with spool.open("wb") as out:
            while chunk := list(itertools.islice(remaining, CHUNK)):
                if count < GUESSED_ROWS:
                    for kinds, column in zip(seen, zip(*chunk, strict=True), strict=True):
                        kinds.update(type(value).__name__ for value in column if value is not None)
                pickle.dump(chunk, out, protocol=5)
                count += len(chunk)
    except OSError as error:
        why = f"{error.strerror or error}; TMPDIR names another folder for temporary files"
        raise TourError(f"{spool.parent}: {why}") from None
    types = tuple(" | ".join(sorted(kinds)) or "None" for kinds in seen)
    return Table(name, source, tuple(_identifiers(columns)), types, count, spool)


def record_class(columns: Sequence[str]) -> type:
    """A slotted dataclass with these fields, found by its name in this module, so that it can be pickled."""
    made = make_dataclass("Record", columns, slots=True, namespace={"__module__": __name__})
    made.__module__ = __name__
    globals()["Record"] = made
    return made


def endless(spool: Path) -> Iterator[Row]:
    """The spooled rows, again and again. From the second round on, numbers and dates are shifted a little."""
    with spool.open("rb") as source:
        for turn in itertools.count():
            source.seek(0)
            while True:
                try:
                    chunk: list[Row] = pickle.load(source)
                except EOFError:
                    break
                yield from chunk if turn == 0 else (tuple([_shifted(value, turn) for value in row]) for row in chunk)


def _shifted(value: Any, turn: int) -> Any:
    kind = type(value)
    if kind is int:
        return value + turn
    if kind is float:
        return value * (1 + turn / 1024)
    if kind is datetime and value.year < 9000:
        return value + timedelta(days=turn)
    return value


def _boolean(text: str) -> bool:
    return BOOLEANS[text.lower()]


def _integer(text: str) -> int:
    return int(_number(text))


def _float(text: str) -> float:
    return float(_number(text))


def _number(text: str) -> str:
    if re.match(r"[+-]?0\d", text):
        raise ValueError("a leading zero makes a code, such as a postcode, not a number")
    return text


def _guess(column: Iterable[str]) -> Parser:
    """The narrowest type that every value of a column has."""
    values = [value for value in column if value not in MISSING]
    parsers: list[Parser] = [_boolean, _integer, _float, datetime.fromisoformat]
    for parse in parsers if values else []:
        try:
            for value in values:
                parse(value)
        except (ValueError, KeyError):
            continue
        return parse
    return str


def _parsed(text: str, parse: Parser) -> Any:
    if text in MISSING:
        return None
    try:
        value = parse(text)
    except (ValueError, KeyError):
        return text
    # NaN, however it is spelt, is equal to nothing, and stands for what is missing.
    return None if isinstance(value, float) and math.isnan(value) else value


def _identifiers(names: Iterable[str]) -> Iterator[str]:
    """Field names for these column names: valid in Python, and each only once."""
    used: set[str] = set()
    for name in names:
        # As Python reads names. What a class has of its own would be taken for the field's default.
        plain = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name.strip())) or "field"
        if not plain.isidentifier() or plain.startswith("__") or keyword.iskeyword(plain) or hasattr(type, plain):
            plain = f"field_{plain.lstrip('_')}"
        unique = next(one for n in itertools.count(1) if (one := plain if n == 1 else f"{plain}_{n}") not in used)
        used.add(unique)
        yield unique
