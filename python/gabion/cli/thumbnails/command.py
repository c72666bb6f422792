"""Options in, exit code out: 0 all made, 1 some failed, 2 wrong input, 130 interrupted."""

import argparse
import json
import os
import string
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

import gabion
from gabion import _native
from gabion.cli.failure import CommandError, complain, shown
from gabion.cli.thumbnails import plan, work
from gabion.cli.thumbnails.work import How, Outcome
from gabion.typing import Fit

# At most so wide and high, unless one of them is said.
SIDE = 150
WHITE = (255, 255, 255)
# A side that is left to the picture's shape.
ANY_SIDE = (1 << 31) - 1
# Below that, the pool's own granularity leaves no room for a photograph.
LEAST_MEMORY = 64 << 20
# Failed files that are named before the rest is only counted.
MOST_NAMED = 50


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare `thumbnails` and its options."""
    about = (
        "Make a thumbnail of every picture in files, folders, or patterns such as 'photos/**/*.jpg'."
        " Pictures are decoded no larger than needed. A thumbnail gets its name only when it is complete, and one that"
        " is newer than its picture, and than the last change to the picture's file, is not made again, so a run may be"
        " stopped and continued with the same command."
        " A larger picture that has a thumbnail's name stays unless there is --force."
        " Of formats that cannot be read, such as HEIC, folders' pictures are counted only; hidden files are left out."
        " So is what lies in DST, unless SRC is a folder or file below DST."
        " Files of a folder without an ending, or with one that is not known, are pictures if their first bytes say so;"
        " those with the ending of something else (.txt, .pdf, .mp4, .part) are not opened."
        " Thumbnails stand upright and have the picture's ICC profile, but not its EXIF block."
        " Where the disk is full, it stops. Nothing found is no failure, unless SRC is missing."
    )
    parser = commands.add_parser("thumbnails", help="make thumbnails of many pictures", description=about)
    parser.add_argument(
        "sources", nargs="+", type=_name, metavar="SRC", help="a file, a folder, or a pattern in quotes"
    )
    parser.add_argument("target", type=_place, metavar="DST", help="a folder; or a file, for one picture")
    wide = f"at most N pixels wide (default: {SIDE}; with --height alone, as the shape gives)"
    parser.add_argument("--width", type=_side, metavar="N", help=wide)
    parser.add_argument("--height", type=_side, metavar="N", help="at most N pixels high (default: the width)")
    exactly = "exactly as large as the box: cover cuts away what reaches beyond it, pad fills margins (default: inside)"
    parser.add_argument("--fit", choices=["inside", "cover", "pad"], default="inside", help=exactly)
    margins = "colour of the margins, as red, green and blue in two hexadecimal digits each (default: ffffff, white)"
    parser.add_argument("--background", type=_colour, metavar="RRGGBB", help=margins)
    formats = ["same", *plan.FORMATS]
    same = "of the thumbnails (default: %(default)s, as the picture's content is, whatever its name; GIF becomes PNG)"
    parser.add_argument("--format", choices=formats, default="same", help=same)
    parser.add_argument(
        "--quality", type=_quality, default=80, metavar="Q", help="of JPEG and WebP, 1 to 100 (default: %(default)s)"
    )
    leave_out = "leave out ICC profiles, some hundred bytes to 3 KiB each, of CMYK more; colours may look different"
    parser.add_argument("--no-profile", dest="profile", action="store_false", help=leave_out)
    damaged = "take what can be decoded of pictures that are cut off or damaged; the rest is grey"
    parser.add_argument("--partial", action="store_true", help=damaged)
    parser.add_argument("-r", "--recursive", action="store_true", help="look into folders below, too")
    parser.add_argument(
        "--force", action="store_true", help="also make those that are there already, for example at another size"
    )
    parser.add_argument("--jobs", type=_side, metavar="N", help="threads (default: one for each processor)")
    most = 'of all pixels and files at one time, "64 MiB" or more (default: no limit)'
    parser.add_argument("--max-memory", type=_memory, metavar="SIZE", help=most)
    parser.add_argument("--max-pixels", type=_side, metavar="N", help="refuse larger pictures (default: 268 million)")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the outcome as JSON, each picture by name, and nothing else on stdout",
    )
    parser.set_defaults(run=run)


def _name(text: str) -> str:
    # As a path that is the current folder, which is not what an empty variable of a script is to mean.
    if not text:
        raise argparse.ArgumentTypeError("is empty; '.' is the current folder")
    return text


def _place(text: str) -> Path:
    return Path(_name(text))


def _side(text: str) -> int:
    return _whole(text, ANY_SIDE, "a whole number of 1 or more is needed")


def _quality(text: str) -> int:
    return _whole(text, 100, "a whole number from 1 to 100 is needed")


def _whole(text: str, most: int, needed: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= most:
        raise argparse.ArgumentTypeError(f"{needed}, not {text!r}")
    return number


def _colour(text: str) -> tuple[int, int, int]:
    digits = text.removeprefix("#")
    if len(digits) != 6 or not all(digit in string.hexdigits for digit in digits):
        raise argparse.ArgumentTypeError(f"six hexadecimal digits are needed, as in ffffff, not {text!r}")
    red, green, blue = bytes.fromhex(digits)
    return red, green, blue


def _memory(text: str) -> int:
    try:
        size = _native._size("--max-memory", int(text) if text.isdecimal() else text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--max-memory=")) from None
    if size < LEAST_MEMORY:
        raise argparse.ArgumentTypeError(f"64 MiB or more is needed, not {text!r}")
    return size


def run(options: argparse.Namespace) -> int:
    """Plan, work, tell. CommandError ends it with one line; the caller prints that."""
    console = Console(stderr=options.json, highlight=False, markup=False, emoji=False)  # names are printed as they are
    planned, outcome = plan.Plan(listed=options.json), Outcome(states={} if options.json else None)
    try:
        _make(options, console, planned, outcome)
    except KeyboardInterrupt:
        console.print(f"stopped: {_counts(planned, outcome)}; the same command continues", soft_wrap=True)
        if options.json:
            _print_json(planned, outcome, interrupted=True)
        raise
    except (CommandError, OSError) as error:
        if options.json:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
            _print_json(planned, outcome, why)
        raise
    failure = _halted(options.target, planned, outcome)
    if planned.unread and planned.nothing:
        failure = f"{planned.nothing}, but {plan.counted(planned.unread)}: convert these to JPEG, PNG, WebP or TIFF"
    if options.json:
        _print_json(planned, outcome, failure)
    else:
        console.print(f"{_counts(planned, outcome)}, in {outcome.seconds:,.1f} s", soft_wrap=True)
        if planned.nothing and not failure:
            console.print(shown(planned.nothing), soft_wrap=True)
        if outcome.subfolders:
            folders, them = ("subfolder was", "it") if outcome.subfolders == 1 else ("subfolders were", "them")
            text = f"{outcome.subfolders:,} {folders} left out; --recursive looks into {them}"
            console.print(text, soft_wrap=True)
        if outcome.links:
            links, them = "link to a folder was", "it as a source"
            if outcome.links > 1:
                links, them = "links to folders were", "them as sources"
            console.print(f"{outcome.links:,} {links} not followed; name {them}", soft_wrap=True)
    _tell_failed(outcome)
    if failure:
        complain(failure)
    return 1 if outcome.failed or failure else 0


def _make(options: argparse.Namespace, console: Console, planned: plan.Plan, outcome: Outcome) -> None:
    """Plan and work."""
    if options.max_memory:
        gabion.memory.configure(total_limit=options.max_memory)
    box = _box(options.width, options.height, options.fit)
    background = None
    if options.fit == "pad":
        background = options.background or WHITE
    elif options.background:
        raise CommandError("--background is the colour of margins: pass it with --fit pad")
    sources, target = options.sources, options.target
    try:
        with console.status(_Looking(planned)) if console.is_terminal else nullcontext():
            plan.make(planned, sources, target, options.format, box, recursive=options.recursive, force=options.force)
    finally:
        outcome.skipped, outcome.failed, outcome.unread = planned.skipped, list(planned.refused), planned.unread
        outcome.subfolders, outcome.links = len(planned.left_out), len(planned.links)
    if planned.jobs:
        _make_folder(target.parent if plan.is_single(sources, target) else target)
    how = How(*box, options.quality, options.max_pixels, options.profile, options.partial, options.fit, background)
    threads = options.jobs or _native._processors()

    def tell(count: int) -> None:
        console.print(f"stopping when {count:,} more are made; interrupt once more to stop at once", soft_wrap=True)

    try:
        with _bars(console) as bars:
            task = bars.add_task("thumbnails", total=len(planned.jobs))
            work.run(planned.jobs, how, threads, outcome, lambda: bars.advance(task), tell)
    except OSError as error:
        raise CommandError(f"{error.filename or target}: {error.strerror}") from None


class _Looking:
    """What is shown while pictures are looked for, as far as that has come: each time that it is drawn."""

    def __init__(self, planned: plan.Plan) -> None:
        self._planned = planned

    def __rich__(self) -> Text:
        sorted_in = len(self._planned.jobs) + self._planned.skipped + len(self._planned.refused)
        compared = f", {sorted_in:,} compared with their thumbnails" if sorted_in else ""
        return Text(f"looking for pictures: {self._planned.found:,}{compared}")


def _untried(planned: plan.Plan, outcome: Outcome) -> int:
    """How many thumbnails were planned and neither made nor failed."""
    return len(planned.jobs) - outcome.made - (len(outcome.failed) - len(planned.refused))


def _halted(target: Path, planned: plan.Plan, outcome: Outcome) -> str:
    """Why some were not tried, where they were not."""
    if not outcome.halted or not (untried := _untried(planned, outcome)):
        return ""
    return (
        f"{target}: {outcome.halted}: stopped, {untried:,} not tried; once that is mended, the same command continues"
    )


def _box(width: int | None, height: int | None, fit: Fit) -> tuple[int, int]:
    """The box that thumbnails fit into, or are as large as."""
    if width is None:
        # A box that is covered or filled has two sides.
        any_side = ANY_SIDE if fit == "inside" else height
        return (SIDE, SIDE) if height is None else (any_side or SIDE, height)
    return width, height or width


def _make_folder(folder: Path) -> None:
    """Make the folder for the thumbnails; CommandError where that cannot be, once and not for each picture."""
    try:
        work.make_folder(folder)
    except OSError as error:
        raise CommandError(
            f"{folder}: cannot be made: {error.strerror}; name another folder for the thumbnails"
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise CommandError(f"{folder}: cannot be written to; name another folder for the thumbnails")


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TaskProgressColumn(show_speed=True),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        expand=True,
    )


def _counts(planned: plan.Plan, outcome: Outcome) -> str:
    counts = [f"{outcome.made:,} made"]
    if outcome.skipped:
        counts.append(f"{outcome.skipped:,} there already (made before, at whatever size; --force makes them anew)")
    if outcome.failed:
        counts.append(f"{len(outcome.failed):,} failed")
    if untried := _untried(planned, outcome):
        counts.append(f"{untried:,} not tried")
    if outcome.unread:
        counts.append(f"not read: {plan.counted(outcome.unread)}")
    return ", ".join(counts)


def _tell_failed(outcome: Outcome) -> None:
    for source, error in outcome.failed[:MOST_NAMED]:
        complain(f"{source}: {error}")
    if len(outcome.failed) > MOST_NAMED:
        complain(f"and {len(outcome.failed) - MOST_NAMED:,} more; --json names all")


def _thumbnails(planned: plan.Plan, outcome: Outcome) -> Iterator[dict[str, str | None]]:
    """Each picture with its thumbnail and what came of it. What was refused beforehand has none."""
    states = outcome.states or {}
    for job in planned.jobs:
        state = states.get(job.target, work.NOT_TRIED)
        yield {"source": str(job.source), "target": str(job.target), "state": state}
    for job in planned.there:
        yield {"source": str(job.source), "target": str(job.target), "state": work.THERE}
    for source, _ in planned.refused:
        yield {"source": str(source), "target": None, "state": work.FAILED}


def _print_json(planned: plan.Plan, outcome: Outcome, error: str = "", *, interrupted: bool = False) -> None:
    if sys.stdout is None:  # as it is where the caller has closed it
        return
    told = {
        "name": "thumbnails",
        "made": outcome.made,
        "skipped": outcome.skipped,
        "failed": [{"source": str(source), "error": why} for source, why in outcome.failed],
        "unread": dict(sorted(outcome.unread.items())),
        "subfolders": outcome.subfolders,
        "links": outcome.links,
        "read_bytes": outcome.read_bytes,
        "seconds": outcome.seconds,
        "interrupted": interrupted,
        "error": error or None,
    }
    # There may be a million of them: each is a line that is made as it is written.
    lines = (f"\n    {json.dumps(one)}" for one in _thumbnails(planned, outcome))
    print(json.dumps(told, indent=2).removesuffix("\n}"), f'  "thumbnails": [{next(lines, "")}', sep=",\n", end="")
    sys.stdout.writelines(f",{line}" for line in lines)
    print("\n  ]\n}")
