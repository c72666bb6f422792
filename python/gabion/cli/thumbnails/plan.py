"""Which files become which: folders are walked, patterns expanded, finished ones left out."""

import contextlib
import errno
import functools
import glob
import mimetypes
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gabion import _native
from gabion.cli.failure import CommandError, look_at

# What --format takes beside "same", and the ending that it gives.
FORMATS = {name.lower(): f".{ending}" for name, ending, written in _native._image_formats() if written}
# Names that are taken from folders, and the format that each tells. A file that is named itself may have any.
ENDINGS = {
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".jpe": "jpeg",
    ".jfif": "jpeg",
    ".png": "png",
    ".webp": "webp",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".bmp": "bmp",
    ".dib": "bmp",
    ".gif": "gif",
}
WRITTEN = {ending for ending, kind in ENDINGS.items() if kind in FORMATS}
# Names of pictures that cannot be read. What a folder has of them is counted, so that nobody takes it for done. The
# last ones are of cameras: their first bytes are those of TIFF.
UNREAD = {".avif", ".heic", ".heif", ".jxl", ".jp2", ".svg", ".ico", ".psd", ".tga", ".ppm", ".pgm"}
RAW = {".dng", ".cr2", ".cr3", ".nef", ".nrw", ".arw", ".sr2", ".orf", ".rw2", ".raf", ".pef", ".srw", ".3fr"}
UNREAD |= RAW
# Names of what is no picture, or not yet or no longer one. Files of a folder with any other name are looked into.
OTHERS = {ending for ending, kind in mimetypes.MimeTypes(filenames=()).types_map[1].items() if kind[:6] != "image/"}
OTHERS -= {".bin"}
OTHERS |= {".part", ".partial", ".crdownload", ".download", ".tmp", ".temp", ".bak", ".old", ".orig", ".swp", ".xmp"}
OTHERS |= {".md", ".rst", ".ini", ".cfg", ".conf", ".toml", ".yml", ".yaml", ".log", ".db", ".sqlite", ".lock", ".ts"}
OTHERS |= {".rs", ".go", ".java", ".cpp", ".hpp", ".php", ".rb", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tgz"}
OTHERS |= {".mkv", ".m4a", ".m4v", ".flac", ".ogg", ".wmv", ".docx", ".xlsx", ".pptx", ".odt", ".ttf", ".woff", ".iso"}
# So much of a file is read to tell its format.
FIRST = 32
# How long the header of a bitmap may be: its mark, two letters, may begin a text as well.
BITMAPS = {12, 16, 40, 52, 56, 64, 108, 124}
# Who asks for one of these does not mean a folder.
UNWRITTEN = UNREAD | {".gif"}
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

    # Whether each that is done already is named, and not counted alone.
    listed: bool = False
    jobs: list[Job] = field(default_factory=list)
    skipped: int = 0
    there: list[Job] = field(default_factory=list)
    refused: list[tuple[Path, str]] = field(default_factory=list)
    # How many pictures of folders have a name of UNREAD, by its ending.
    unread: Counter[str] = field(default_factory=Counter)
    # Folders below sources that are not looked into.
    left_out: set[Path] = field(default_factory=set)
    # Where no picture was found, if there is none.
    nothing: str = ""


def make(
    plan: Plan, sources: Iterable[str], target: Path, kind: str, box: tuple[int, int], *, recursive: bool, force: bool
) -> None:
    """Find the pictures and give each its target, in an empty plan. CommandError when there is nowhere to look, or no
    place for them. What is larger than `box`, a width and a height, is no thumbnail of an earlier run, and stays unless
    there is `force`."""
    sources = list(sources)
    unseen = [why for source in sources if (why := unreachable(source))]
    if len(unseen) == len(sources):
        # Misspelt, as an option may be: no work has failed.
        raise CommandError("; ".join(unseen))
    look_at(target)
    taken, found, leads = dict[str, Job](), Found(), Leads()
    if is_single(sources, target):
        if kind not in ("same", ENDINGS[target.suffix.lower()]):
            raise CommandError(f"{target}: is no name of {kind}; name it {FORMATS[kind]}, or leave out --format")
        pairs = iter([(Path(sources[0]), target)])
    else:
        if target.suffix.lower() in UNWRITTEN and not target.is_dir():
            kinds = ", ".join(FORMATS)
            raise CommandError(f"{target}: {target.suffix} cannot be written; name a folder, or a file of {kinds}")
        if target.exists() and not target.is_dir():
            raise CommandError(f"{target}: is a file; name a folder for the thumbnails")
        several = len(sources) > 1 or Path(sources[0]).is_dir() or glob.has_magic(sources[0])
        if several and target.suffix.lower() in WRITTEN and not target.is_dir():
            raise CommandError(f"{target}: is the name of one picture; name a folder for the thumbnails")
        named = [
            (each, below, renamed(below, kind, each)) for each, below in pictures(sources, target, recursive, plan)
        ]
        # Who has the thumbnail's name already comes before those that would be given it.
        if kind == "same":
            named.sort(key=lambda each: each[1] != each[2])
        pairs = ((picture, target / to) for picture, _, to in named)
    for picture, to in pairs:
        found.add(picture)
        other = taken.setdefault(leads.to(to), job := Job(picture, to))
        if other == job:
            sort_in(plan, job, force)
        elif other.target != to:
            there = f"its thumbnail {to} would be the file of that of {other.source}, by a link"
            plan.refused.append((picture, f"{there}; give it another DST"))
        else:
            # Two names that differ in their endings alone, if the thumbnails' differ.
            names = [renamed(Path(one.name), "same", one) for one in (picture, other.source)]
            apart = kind != "same" and names[0] != names[1]
            hint = "use --format same" if apart else "give it another DST"
            plan.refused.append((picture, f"its thumbnail would have the name of that of {other.source}; {hint}"))
    plan.jobs = [job for job in plan.jobs if not (found.refuses(job, plan) or (not force and spares(job, box, plan)))]
    if not (plan.jobs or plan.skipped or plan.refused):
        place = os.path.realpath(target)
        if any(os.path.realpath(root(source)) == place for source in sources):
            raise CommandError(f"{target}: the pictures are looked for there; name another folder for the thumbnails")
        plan.nothing = f"no pictures in {', '.join(sources)}"


def unreachable(source: str) -> str:
    """Why there is nothing by the name of a source, or no folder for its pattern to look into; empty when there is. A
    pattern that nothing matches is like a folder that is empty: there may be something tomorrow."""
    path = Path(source)
    try:
        path.stat()
    except OSError as error:
        if (start := root(source)) == path:
            return f"{source}: {error.strerror}"
        try:
            os.stat(f"{start}/")
        except OSError as error:
            return f"{start}: {error.strerror}"
    return ""


class Leads:
    """Where targets lead to: two names may be one file by a symbolic link, to a folder or to a file."""

    def __init__(self) -> None:
        self.folders: dict[Path, str] = {}

    def to(self, target: Path) -> str:
        """The target's path without links. Each folder is followed once only."""
        if os.path.islink(target):
            return os.path.realpath(target)
        folder = self.folders.get(target.parent)
        if folder is None:
            folder = self.folders[target.parent] = os.path.realpath(target.parent)
        return os.path.join(folder, target.name)


class Found:
    """The files that are sources, by what the system knows them as, so that no thumbnail takes the place of one."""

    def __init__(self) -> None:
        self.sources: dict[tuple[int, int], Path] = {}

    def add(self, source: Path) -> None:
        """Remember a source, if it is there."""
        with contextlib.suppress(OSError):
            known = source.stat()
            self.sources.setdefault((known.st_dev, known.st_ino), source)

    def refuses(self, job: Job, plan: Plan) -> bool:
        """Whether the job's target is a source; says so in the plan then."""
        try:
            known = job.target.stat()
        except OSError:
            return False
        other = self.sources.get((known.st_dev, known.st_ino))
        if other is not None:
            place = "its own place" if other == job.source else f"the place of {other}"
            plan.refused.append((job.source, f"its thumbnail would take {place}; name another folder"))
        return other is not None


def sort_in(plan: Plan, job: Job, force: bool) -> None:
    """Put a job where it belongs: to do, done already, or not to be done."""
    try:
        source = job.source.stat()
        if not stat.S_ISREG(source.st_mode):
            # To open a pipe that nobody writes to would wait for ever.
            plan.refused.append((job.source, "is not a regular file"))
            return
        # A file that was moved here, unpacked or restored has the time of its content; the system notes when it came.
        # So it does of a link.
        changed = max(source.st_mtime_ns, source.st_ctime_ns, job.source.lstat().st_ctime_ns)
    except OSError as error:
        plan.refused.append((job.source, error.strerror or str(error)))
        return
    try:
        there = at(job.target)
    except OSError as error:
        why = f"its thumbnail cannot be {job.target}: {error.strerror or error}"
        plan.refused.append((job.source, why))
        return
    if there and not force and newer(there, changed):
        plan.skipped += 1
        if plan.listed:
            plan.there.append(job)
    else:
        plan.jobs.append(job)


def at(target: Path) -> os.stat_result | None:
    """What is in a thumbnail's place, None if nothing is. OSError for what is neither a file nor a folder: to write to
    a pipe that nobody reads from would wait for ever. Of a folder, the one who writes tells."""
    try:
        there = target.stat()
    except FileNotFoundError:
        return None
    if not (stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode)):
        raise OSError(errno.EINVAL, "that is no file", str(target))
    return there


def newer(there: os.stat_result, changed: int) -> bool:
    """Whether what is there is a thumbnail that was made after its source changed. An empty file, which a full disk
    leaves, is none."""
    return stat.S_ISREG(there.st_mode) and there.st_size > 0 and there.st_mtime_ns > changed


def spares(job: Job, box: tuple[int, int], plan: Plan) -> bool:
    """Whether the job's target may be a picture of its owner's; says so in the plan then. Two names of pictures are
    what a pattern gives to who forgot the folder."""
    there = f"{job.target}, "
    try:
        known = job.target.stat()
        if not stat.S_ISREG(known.st_mode) or known.st_size == 0:
            return False  # nobody's picture; an empty file is what a full disk leaves
        width, height = _native._image_size(job.target)
        if width <= box[0] and height <= box[1]:
            return False
        there += f"which is larger: {width} × {height} pixels"
    except FileNotFoundError:
        return False
    except (OSError, ValueError, MemoryError):
        there += "the size of which cannot be told"
    plan.refused.append((job.source, f"its thumbnail would replace {there}; name another folder, or use --force"))
    return True


def is_single(sources: list[str], target: Path) -> bool:
    """One picture, and a target that names a file."""
    return len(sources) == 1 and Path(sources[0]).is_file() and target.suffix.lower() in WRITTEN and not target.is_dir()


def counted(unread: Counter[str]) -> str:
    """How many pictures are of which formats that are not read."""
    return ", ".join(f"{count:,} {ending}" for ending, count in sorted(unread.items()))


def pictures(sources: Sequence[str], target: Path, recursive: bool, plan: Plan) -> Iterator[tuple[Path, Path]]:
    """Each picture, and its name below the target. What was found in the target is left out, unless its source lies
    below the target: who names that means it. Folders that cannot be read are refused."""
    seen = set()
    place = os.path.realpath(target)

    @functools.cache
    def inside(folder: Path) -> bool:
        return Path(os.path.realpath(folder)).is_relative_to(place)

    for source in sources:
        start = Path(os.path.realpath(root(source)))
        named = start != Path(place) and start.is_relative_to(place)
        for picture, below in sorted(expanded(source, recursive, plan)):
            if picture not in seen and (named or picture == Path(source) or not inside(picture.parent)):
                seen.add(picture)
                yield picture, below
    # Nobody misses those of an earlier run, nor what is a source of its own.
    sources_too = {os.path.realpath(source) for source in sources}
    plan.left_out = {
        folder for folder in plan.left_out if not inside(folder) and os.path.realpath(folder) not in sources_too
    }


def root(source: str) -> Path:
    """What the names of a source's pictures are relative to: the source itself, or what stands before a pattern."""
    path = Path(source)
    try:
        there = path.exists()
    except OSError:
        there = True
    if there or not glob.has_magic(source):
        return path
    return Path(*path.parts[: next(count for count, part in enumerate(path.parts) if glob.has_magic(part))])


def expanded(source: str, recursive: bool, plan: Plan) -> Iterator[tuple[Path, Path]]:
    """The files of a folder, of a pattern, or the one file. Links to folders are not followed on the way: they may lead
    back."""
    path = Path(source)

    def unread(error: OSError) -> None:
        plan.refused.append((Path(error.filename or path), error.strerror or str(error)))

    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except OSError as error:
        unread(error)
        return
    if is_folder:
        for folder, folders, files in os.walk(path, onerror=unread):
            shown = sorted(filter(shows, folders))
            folders[:] = shown if recursive else []
            if not recursive:
                plan.left_out.update(Path(folder, name) for name in shown)
            for name in filter(shows, files):
                ending = Path(name).suffix.lower()
                file = Path(folder, name)
                if ending in OTHERS or name.endswith("~"):
                    continue
                try:
                    # Of cameras' pictures the first bytes say TIFF, which they are not.
                    known = ending in ENDINGS or (ending not in RAW and bool(told(file)))
                except OSError as error:
                    plan.refused.append((file, error.strerror or str(error)))
                    continue
                if known:
                    yield file, file.relative_to(path)
                elif ending in UNREAD:
                    plan.unread[ending] += 1
    elif is_there or not glob.has_magic(source):
        yield path, Path(path.name)
    else:
        start = root(source)
        try:
            os.stat(f"{start}/")
        except OSError as error:
            plan.refused.append((start, error.strerror or str(error)))
            return
        parts = path.parts[len(start.parts) :]
        plan.refused += [(folder, os.strerror(errno.EACCES)) for folder in sorted(closed(start, parts))]
        for found in start.glob(pattern(parts)):
            below = found.relative_to(start)
            if found.is_file() and not hidden(below, parts):
                yield found, below


def closed(start: Path, parts: Sequence[str]) -> set[Path]:
    """The folders on a pattern's way that may not be read: Path.glob passes over them."""
    ways = (
        "/".join(part if part == "**" else part.replace("**", "*") for part in parts[:n]) for n in range(1, len(parts))
    )
    folders = (folder for way in ways for folder in start.glob(way) if not hidden(folder.relative_to(start), parts))
    return {folder for folder in folders if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK)}


def pattern(parts: Sequence[str]) -> str:
    """As the shell means it: ** at the end stands for files, too, and within a name it is no more than *."""
    plain = [part if part == "**" else part.replace("**", "*") for part in parts]
    return "/".join([*plain, "*"] if plain[-1] == "**" else plain)


def shows(name: str) -> bool:
    """Whether a name is none of those that are hidden: trash, other programs' own thumbnails."""
    return not name.startswith(".")


def hidden(below: Path, parts: Sequence[str]) -> bool:
    """Whether a name begins with a dot, which nobody has asked for."""
    return all(map(shows, parts)) and not all(map(shows, below.parts))


def told(picture: Path) -> str:
    """The format that the first bytes of a file tell, in lower case; empty where they tell none. OSError where they
    cannot be read."""
    try:
        # To open a pipe that nobody writes to would wait for ever.
        if not stat.S_ISREG(picture.stat().st_mode):
            return ""
        with picture.open("rb", buffering=0) as file:
            first = file.read(FIRST)
    except FileNotFoundError:
        return ""
    found = (_native._image_format(first) or "").lower()
    return "" if found == "bmp" and int.from_bytes(first[14:18], "little") not in BITMAPS else found


def renamed(below: Path, kind: str, picture: Path) -> Path:
    """The thumbnail's name, with the ending of its format: for "same" that of the picture's content, or else of its
    name. What is no ending of a picture's is part of the name."""
    given = below.suffix.lower()
    if kind == "same":
        found = None
        with contextlib.suppress(OSError):  # told when it is opened
            found = told(picture)
        found = found or ENDINGS.get(given)
        if found in FORMATS and found == ENDINGS.get(given):
            return below
        ending = FORMATS.get(found or "", INSTEAD)
    else:
        ending = FORMATS[kind]
    return below.with_suffix(ending) if given in ENDINGS or given in UNREAD else below.with_name(below.name + ending)
