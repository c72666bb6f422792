"""Threads that make thumbnails, and what came of it."""

import errno
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from gabion import _native
from gabion.cli.failure import CommandError
from gabion.cli.thumbnails.plan import Job
from gabion.typing import Fit

# Jobs that wait for a thread, for each thread: enough that none is idle, few enough to end soon.
WAITING = 4
# Seconds that an interrupt waits for what is just being made before it says so.
QUIET = 1.0
# What the next thumbnail would fail of as well: there is no room, or nothing may be written.
ALL_THE_SAME = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
# What came of a picture, as --json tells it.
MADE, THERE, FAILED, NOT_TRIED = "made", "there already", "failed", "not tried"


@dataclass(slots=True)
class Outcome:
    """What was made and what was not. made counts thumbnails, read_bytes the bytes of their sources, unread pictures of
    formats that cannot be read, by ending, subfolders those that were left out, links those to folders, which are not
    followed. halted says what all that follow would fail of, too. states has what came of each thumbnail, if that is to
    be told."""

    made: int = 0
    skipped: int = 0
    read_bytes: int = 0
    seconds: float = 0.0
    failed: list[tuple[Path, str]] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    subfolders: int = 0
    links: int = 0
    halted: str = ""
    states: dict[Path, str] | None = None


@dataclass(frozen=True, slots=True)
class How:
    """How large and how good, whether with the ICC profile, and whether of damaged files, too. Where fit is "pad",
    background (red, green, blue) is what a box is filled with around the picture."""

    width: int
    height: int
    quality: int
    max_pixels: int | None
    profile: bool
    partial: bool
    fit: Fit
    background: tuple[int, int, int] | None


def make_folder(folder: Path) -> None:
    """Make a folder and those that it lies in, if they are not there. Path.mkdir calls itself for each of these, which
    may be too many."""
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        missing = [one for one in folder.parents if not one.is_dir()]
        for one in (*reversed(missing), folder):
            one.mkdir(exist_ok=True)


def thumbnail(job: Job, how: How) -> int:
    """Make one thumbnail; returns the bytes of its source. The interpreter is free meanwhile."""
    make_folder(job.target.parent)
    _native._thumbnail(
        job.source,
        job.target,
        how.width,
        how.height,
        quality=how.quality,
        max_pixels=how.max_pixels,
        profile=how.profile,
        partial=how.partial,
        fit=how.fit,
        background=how.background,
    )
    return job.source.stat().st_size


def run(
    jobs: Iterable[Job],
    how: How,
    threads: int,
    outcome: Outcome,
    step: Callable[[], None],
    tell: Callable[[int], None],
) -> None:
    """Do all jobs, and note in `outcome` what came of each. What does not fit into memory beside others is tried again
    alone, when they are done. Where the disk is full, no more are begun. An interrupt waits for the files that are just
    being made, and `tell`s how many if that takes long. CommandError where the system gives no threads."""
    began = time.perf_counter()
    alone: list[Job] = []
    todo = iter(jobs)
    with ThreadPoolExecutor(threads, thread_name_prefix="thumbnails") as pool:
        running: dict[Future[int], Job] = {}
        try:
            while True:
                if outcome.halted:
                    running = {future: job for future, job in running.items() if not future.cancel()}
                else:
                    for job in itertools.islice(todo, threads * WAITING - len(running)):
                        running[_submitted(pool, job, how)] = job
                if not running:
                    break
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    job = running.pop(future)
                    if threads > 1 and isinstance(future.exception(), MemoryError):
                        alone.append(job)
                    else:
                        note(job, future, outcome)
                        step()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            _, late = wait([future for future in running if not future.cancelled()], QUIET)
            if late:
                tell(len(late))
            pool.shutdown()
            for future, job in running.items():
                if not future.cancelled():
                    note(job, future, outcome)
            raise
        finally:
            outcome.seconds += time.perf_counter() - began
    if alone and not outcome.halted:
        run(alone, how, 1, outcome, step, tell)


def _submitted(pool: ThreadPoolExecutor, job: Job, how: How) -> "Future[int]":
    try:
        return pool.submit(thumbnail, job, how)
    except RuntimeError as error:  # a limit of the system's on threads
        raise CommandError(f"{error}: use fewer, by --jobs") from None


def note(job: Job, future: Future[int], outcome: Outcome) -> None:
    """Write down what came of a job."""
    error = future.exception()
    if error is None:
        outcome.made += 1
        outcome.read_bytes += future.result()
    elif isinstance(error, (OSError, ValueError, MemoryError)):
        outcome.failed.append((job.source, told(job, error)))
        if isinstance(error, OSError) and error.errno in ALL_THE_SAME:
            outcome.halted = error.strerror or str(error)
    else:
        raise error
    if outcome.states is not None:
        outcome.states[job.target] = FAILED if error else MADE


def told(job: Job, error: BaseException) -> str:
    """What went wrong, without the source's name, which stands before it anyway."""
    if isinstance(error, OSError) and error.strerror:
        at = str(error.filename or job.source)
        return error.strerror if at == str(job.source) else f"{at}: {error.strerror}"
    if isinstance(error, MemoryError) and "total_limit" in str(error):
        return "needs more memory than --max-memory allows"
    # In messages, what of a name is no text stands as Python writes it.
    name = str(job.source).encode(errors="backslashreplace").decode()
    text = str(error).removeprefix(f"{name}: ") or type(error).__name__
    return text.replace(", or pass partial=True for what can be decoded", "; --partial takes what can be decoded")
