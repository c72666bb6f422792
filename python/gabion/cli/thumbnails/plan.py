"""Which files become which: folders are walked, patterns expanded, finished ones left out."""

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gabion import _native
from gabion.cli.failure import CommandError

# Names that are taken from folders. A file that is named itself may have any.
ENDINGS = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp", ".dib", ".gif"}
# What --format takes beside "same", and the ending that it gives.
FORMATS = {name.lower(): f".{ending}" for name, ending, written in _native._image_formats() if written}
WRITTEN = ENDINGS - {".gif"}
# For sources whose own format is not written.
INSTEAD = FORMATS["png"]


@dataclass(frozen=True, slots=True)
class Job:
    """A picture and the file that is to be made of it."""

    source: Path
    target: Path


@dataclass(slots=True)
class Plan:
    """What is to be done, what is done already, and what cannot be done."""

    jobs: list[Job] = field(default_factory=list)
    skipped: int = 0
    refused: list[tuple[Path, str]] = field(default_factory=list)


def make(sources: Iterable[str], target: Path, kind: str, recursive: bool, force: bool) -> Plan:
    """Find the pictures and give each its target. CommandError when there is none, or no place for them."""
    sources = list(sources)
    if is_single(sources, target):
        found = iter([(Path(sources[0]), target)])
    else:
        if target.exists() and not target.is_dir():
            raise CommandError(f"{target}: is a file; name a folder for the thumbnails")
        found = ((picture, target / renamed(below, kind)) for picture, below in pictures(sources, target, recursive))
    plan, taken = Plan(), dict[Path, Path]()
    for picture, to in found:
        other = taken.setdefault(to, picture)
        if other == picture:
            sort_in(plan, Job(picture, to), force)
        else:
            plan.refused.append((picture, f"its thumbnail would have the name of that of {other}; use --format same"))
    if not (plan.jobs or plan.skipped or plan.refused):
        hint = "" if recursive else "; --recursive looks into folders below"
        raise CommandError(f"no pictures in {', '.join(sources)}{hint}")
    return plan


def sort_in(plan: Plan, job: Job, force: bool) -> None:
    """Put a job where it belongs: to do, done already, or not to be done."""
    try:
        source = job.source.stat()
        if job.target.exists() and os.path.samefile(job.source, job.target):
            plan.refused.append((job.source, "its thumbnail would take its own place; name another folder"))
        elif not force and job.target.exists() and job.target.stat().st_mtime_ns > source.st_mtime_ns:
            plan.skipped += 1
        else:
            plan.jobs.append(job)
    except OSError as error:
        plan.refused.append((job.source, error.strerror or str(error)))


def is_single(sources: list[str], target: Path) -> bool:
    """One picture, and a target that names a file."""
    return len(sources) == 1 and Path(sources[0]).is_file() and target.suffix.lower() in WRITTEN and not target.is_dir()


def pictures(sources: Iterable[str], target: Path, recursive: bool) -> Iterator[tuple[Path, Path]]:
    """Each picture, and its name below the target. What was found below the target itself is left out."""
    seen = set()
    for source in sources:
        for picture, below in sorted(expanded(source, recursive)):
            if picture not in seen and (picture == Path(source) or not picture.is_relative_to(target)):
                seen.add(picture)
                yield picture, below


def expanded(source: str, recursive: bool) -> Iterator[tuple[Path, Path]]:
    """The files of a folder, of a pattern, or the one file."""
    path = Path(source)
    if path.is_dir():
        for folder, folders, files in os.walk(path):
            folders[:] = sorted(folders) if recursive else []
            for name in files:
                if Path(name).suffix.lower() in ENDINGS:
                    file = Path(folder, name)
                    yield file, file.relative_to(path)
    elif path.exists() or not glob.has_magic(source):
        yield path, Path(path.name)
    else:
        # What stands before the first pattern is the folder that names are relative to.
        parts = path.parts
        fixed = next(count for count, part in enumerate(parts) if glob.has_magic(part))
        root = Path(*parts[:fixed])
        for name in glob.iglob(source, recursive=True):
            if Path(name).is_file():
                yield Path(name), Path(name).relative_to(root)


def renamed(below: Path, kind: str) -> Path:
    """The thumbnail's name, with the ending of its format."""
    if kind != "same":
        return below.with_suffix(FORMATS[kind])
    return below if below.suffix.lower() in WRITTEN else below.with_suffix(INSTEAD)
