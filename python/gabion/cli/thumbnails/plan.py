"""Which files become which: folders are walked, patterns expanded, finished ones left out."""

import contextlib
import errno
import fnmatch
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
    # How many files of sources were found so far, for who waits.
    found: int = 0
    jobs: list[Job] = field(default_factory=list)
    skipped: int = 0
    there: list[Job] = field(default_factory=list)
    refused: list[tuple[Path, str]] = field(default_factory=list)
    # How many pictures of folders have a name of UNREAD, by its ending.
    unread: Counter[str] = field(default_factory=Counter)
    # Folders below sources that are not looked into, and links to folders, which never are: they may lead back.
    left_out: set[Path] = field(default_factory=set)
    links: set[Path] = field(default_factory=set)
    # Where no picture was found, if there is none.
    nothing: str = ""

    def refuse(self, path: Path, error: OSError) -> None:
        """Note what cannot be looked at, and why."""
        self.refused.append((path, error.strerror or str(error)))


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
        plan.refuse(job.source, error)
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
    # Nor what a link leads to that is looked into without it.
    whole = {os.path.realpath(root(source)) for source in sources if recursive or "**" in source}
    plan.links = {
        link
        for link in plan.links
        if not inside(link.parent)
        and not inside(link)
        and (folder := os.path.realpath(link)) not in sources_too
        and whole.isdisjoint((folder, *map(str, Path(folder).parents)))
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
    """The files of a folder, of a pattern, or the one file."""
    path = Path(source)
    try:
        is_a_folder, is_there = path.is_dir(), path.exists()
    except OSError as error:
        plan.refuse(path, error)
        return
    if is_a_folder:
        for file in files_of(path, recursive, plan):
            plan.found += 1
            yield file, file.relative_to(path)
    elif is_there or not glob.has_magic(source):
        plan.found += 1
        yield path, Path(path.name)
    else:
        start = root(source)
        try:
            os.stat(f"{start}/")
        except OSError as error:
            plan.refuse(start, error)
            return
        for file in matching(start, path.parts[len(start.parts) :], plan):
            plan.found += 1
            yield file, file.relative_to(start)


def files_of(start: Path, recursive: bool, plan: Plan) -> Iterator[Path]:
    """The pictures of a folder, and of those below."""
    # Not by a function that calls itself, as os.walk does before Python 3.12: there are folders in folders in folders.
    waiting = [start]
    while waiting:
        folders = []
        for entry in entries(waiting.pop(), plan):
            path = Path(entry.path)
            if not shows(entry.name):
                continue
            if not is_folder(entry):
                if is_picture(path, plan):
                    yield path
            elif entry.is_symlink():
                plan.links.add(path)
            elif recursive:
                folders.append(path)
            else:
                plan.left_out.add(path)
        waiting += reversed(folders)


def entries(folder: Path, plan: Plan) -> "list[os.DirEntry[str]]":
    """What lies in a folder, in order. One that cannot be read is refused."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        plan.refuse(folder, error)
        return []


def is_folder(entry: "os.DirEntry[str]") -> bool:
    """Whether it is a folder or a link to one. What cannot be looked at counts as a file, of which that is told."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_picture(file: Path, plan: Plan) -> bool:
    """Whether a folder's file is to be made small. If it is a picture that cannot be read, it is counted."""
    ending = file.suffix.lower()
    if ending in OTHERS or file.name.endswith("~"):
        return False
    try:
        # Of cameras' pictures the first bytes say TIFF, which they are not.
        known = ending in ENDINGS or (ending not in RAW and bool(told(file)))
    except OSError as error:
        plan.refuse(file, error)
        return False
    if not known and ending in UNREAD:
        plan.unread[ending] += 1
    return known


def matching(start: Path, parts: Sequence[str], plan: Plan) -> Iterator[Path]:
    """The files that a pattern matches, as the shell means it: ** at the end stands for files, too, and within a name
    it is no more than *. What cannot be looked at on the way is refused, which Path.glob passes over, or ends with."""
    parts = [part if part == "**" else part.replace("**", "*") for part in parts]
    if parts[-1] == "**":
        parts.append("*")
    hides = all(map(shows, parts))
    # Each folder, and which parts of the pattern its entries may match.
    waiting = [(start, {0})]
    while waiting:
        folder, places = waiting.pop()
        folders = []
        for name, onward in sorted(matched(folder, places, parts, hides, plan).items()):
            path = folder / name
            try:
                mode = path.stat().st_mode
            except OSError as error:
                # A link that leads nowhere, or in a circle, is nothing.
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    plan.refuse(path, error)
                continue
            if stat.S_ISDIR(mode) and (further := onward - {len(parts)}):
                folders.append((path, further))
            elif stat.S_ISREG(mode) and len(parts) in onward:
                yield path
        waiting += reversed(folders)


def matched(folder: Path, places: set[int], parts: Sequence[str], hides: bool, plan: Plan) -> dict[str, set[int]]:
    """Which names in a folder match one of some parts of a pattern, and the parts that what is in those may match."""
    # ** stands for no folder as well.
    for place in sorted(places):
        while parts[place] == "**":
            place += 1
            places.add(place)
    # A name that is none of the folder's, as "..", or of one that may not be listed, is there all the same.
    found: dict[str, set[int]] = {}
    for place in places:
        if not glob.has_magic(parts[place]):
            found.setdefault(parts[place], set()).add(place + 1)
    wild = {place for place in places if glob.has_magic(parts[place])}
    if wild and not os.access(folder, os.R_OK | os.X_OK):
        plan.refuse(folder, OSError(errno.EACCES, os.strerror(errno.EACCES)))
        return found
    for entry in entries(folder, plan) if wild else ():
        if hides and not shows(entry.name):
            continue
        onward = {place + 1 for place in wild if parts[place] != "**" and fnmatch.fnmatchcase(entry.name, parts[place])}
        if (deep := {place for place in wild if parts[place] == "**"}) and is_folder(entry):
            if not entry.is_symlink():
                onward |= deep
            elif not onward and entry.name not in found:
                plan.links.add(Path(entry.path))
        if onward:
            found[entry.name] = found.get(entry.name, set()) | onward
    return found


def shows(name: str) -> bool:
    """Whether a name is none of those that are hidden: trash, other programs' own thumbnails."""
    return not name.startswith(".")


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
