"""The error that ends a command."""

import contextlib
import os
import sys
from pathlib import Path


class CommandError(Exception):
    """Wrong input or surroundings. The message is one line: what was asked, what is the case, what to do."""


def shown(text: object) -> str:
    """Text as one line that a terminal shows and does not obey: names of files may hold any character but NUL."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(text))


def complain(text: object) -> None:
    """Write a line to standard error, if there is one: where its caller has closed it, print() writes to standard
    output, among what is told there."""
    if sys.stderr is None:
        return
    try:
        print(f"gabion: {shown(text)}", file=sys.stderr)
    except OSError:
        # Nobody reads it, or its disk is full: the exit code tells. It would be another one if the interpreter, which
        # has kept the line, could not write it in the end either.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)


def look_at(path: Path) -> None:
    """Raise OSError for a path that cannot be looked at, as one that is too long. That there is nothing is none.

    From Python 3.14 on, `exists()` and `is_dir()` answer no to such a path.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
