"""`gabion inspect`: what is in the file of a pile, and whether it is sound. 0 sound, 1 damaged, 2 wrong input."""

import argparse
import json
import os
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

import gabion
from gabion import _native
from gabion.cli.failure import CommandError, complain, shown
from gabion.cli.figure import plural, size

BLOCK = 4 << 20
# Kinds of objects that are listed; the rest is counted.
MOST_KINDS = 30


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare `inspect` and its options."""
    about = (
        "Look through the file of a gabion.Pile without changing it: how many objects of which classes are in it, what"
        " it takes, which types= let all of it be built, and whether all of it adds up. No object is built, and nothing"
        " is imported. The file must not be open to write anywhere."
    )
    parser = commands.add_parser("inspect", help="show what is in the file of a pile", description=about)
    parser.add_argument("file", metavar="FILE", help="as in gabion.Pile(path=FILE)")
    parser.add_argument("--all", action="store_true", help=f"list all classes, not the {MOST_KINDS} with most objects")
    parser.add_argument("--json", action="store_true", help="print what is found as JSON and nothing else on stdout")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look, tell."""
    try:
        found = _native._pile_contents(options.file)
        disk = os.stat(options.file)
    except (gabion.CorruptFileError, gabion.FormatError) as error:
        complain(error)
        return 1
    except BlockingIOError as error:
        raise CommandError(str(error)) from None
    found = {"name": "inspect", "file": options.file, **found}
    found["file_bytes"], found["disk_bytes"] = disk.st_size, disk.st_blocks * 512
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        tell(Console(highlight=False, markup=False, emoji=False), found, all_kinds=options.all)
    return 0


def tell(console: Console, found: dict[str, Any], *, all_kinds: bool) -> None:
    """Print what was found."""
    count = found["objects"]
    each = f": {found['used_bytes'] / count:,.0f} B each" if count else ""
    rows = [
        ("objects", f"{count:,}, {size(found['used_bytes'])}{each}"),
        ("", f"{found['away_objects']:,} outside their slots, {found['large_objects']:,} over 1 MiB"),
        ("file", f"{size(found['file_bytes'])}, {size(found['disk_bytes'])} of it on the disk"),
        ("blocks", _blocks(found)),
        ("root", f"{found['root']}, {found['root_kind']}" if "root" in found else "none"),
        ("format", f"{found['format']}, {plural(found['shards'], 'shard')}, id {found['id']:016x}"),
    ]
    console.print(shown(f"{found['file']} is sound"), soft_wrap=True)
    about = Table.grid(padding=(0, 2))
    for name, text in rows:
        about.add_row(name, text)
    console.print(about)
    kinds = sorted(found["objects_of"].items(), key=lambda item: (-item[1], item[0]))
    listed = kinds if all_kinds else kinds[:MOST_KINDS]
    if not listed:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("class", overflow="fold")
    table.add_column("objects", justify="right")
    table.add_column("size", justify="right")
    table.add_column("fields", overflow="fold")
    for name, objects in listed:
        fields = ", ".join(found["fields_of"].get(name, []))
        table.add_row(Text(shown(name)), f"{objects:,}", size(found["bytes_of"][name]), Text(shown(fields)))
    console.print()
    console.print(table)
    if rest := kinds[len(listed) :]:
        console.print(f"and {len(rest):,} more with {sum(objects for _, objects in rest):,} objects; --all lists them")
    if found["types_to_allow"]:
        console.print(
            "\nto build all of it, look at these names, as what may be built is called, import their modules, and pass"
        )
        # On one line, however long: it is to be copied.
        console.print(Text(shown(f"types=[{', '.join(found['types_to_allow'])}]")), soft_wrap=True)


def _blocks(found: dict[str, Any]) -> str:
    used = {"of objects": "heap", "of objects over 1 MiB": "run", "of the log": "log", "free": "free"}
    counts = [f"{found[f'{kind}_blocks']:,} {text}" for text, kind in used.items() if found[f"{kind}_blocks"]]
    taken = found["reserved_bytes"] / (BLOCK * (found["heap_blocks"] + found["run_blocks"]) or 1)
    return f"{', '.join(counts) or 'none'}; {taken:.0%} of the room is taken"
