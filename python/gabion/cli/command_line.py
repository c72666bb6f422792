"""Arguments in, exit code out: 0 done, 1 done or told in part, 2 wrong input or surroundings, 130 and 143 stopped."""

import argparse
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import gabion
from gabion.cli import inspect
from gabion.cli.failure import CommandError, complain
from gabion.cli.thumbnails import command as thumbnails
from gabion.cli.top import command as top
from gabion.cli.tour import command as tour

# Seconds after an interrupt in which another one is the same impatience. Who was told that there is something to wait
# for, which is later, may interrupt that at once.
PATIENCE = 0.9
EXAMPLES = """\
examples:
  gabion tour --quick                                 see what it does, in a few seconds
  gabion tour --records FILE.csv --photos FOLDER      the same with records and pictures of your own
  gabion thumbnails photos/ small/ --width 150        thumbnails of many pictures
  gabion inspect people.pile                          what is in the file of a pile
  gabion top                                          what processes hold, as it changes
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line, with every subcommand's options."""
    whole = argparse.ArgumentParser(
        prog="gabion",
        description="Objects, arrays, pictures and caches in memory that Python's collector does not walk.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"gabion {gabion.__version__}")
    commands = whole.add_subparsers(
        title="commands", metavar="COMMAND [OPTION]", help="gabion COMMAND --help lists its options"
    )
    tour.add_to(commands)
    thumbnails.add_to(commands)
    inspect.add_to(commands)
    top.add_to(commands)
    for command in commands.choices.values():
        command.set_defaults(command=command)
    return whole


def run(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; `argv` defaults to the process's arguments."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that is not UTF-8 shows "?", and the work is not lost
    whole = parser()
    options, unknown = whole.parse_known_args(argv)
    if unknown:
        # The command's own usage, which lists the options that it has.
        apart = "" if unknown[0].startswith("-") else "; name all files together, with the options before or after them"
        getattr(options, "command", whole).error(f"unrecognized arguments: {' '.join(unknown)}{apart}")
    if not hasattr(options, "run"):
        whole.print_help()
        return 0
    try:
        with _ended_in_order():
            code: int = options.run(options)
            if sys.stdout is not None:  # as it is where the caller has closed it
                sys.stdout.flush()
    except CommandError as error:
        complain(error)
        return 2
    except OSError as error:
        named = "the current folder" if isinstance(error, FileNotFoundError) else None
        if place := error.filename or named:
            complain(f"{place}: {error.strerror}")
            return 2
        if not _is_of_output(error):
            complain(error.strerror or error)
            return 2
        # Its disk is full, or its reader had enough.
        if not isinstance(error, BrokenPipeError):
            complain(f"standard output: {error.strerror or error}")
        sys.stdout = None  # the interpreter would write to it once more at its end, and change the exit code
        return 1
    except KeyboardInterrupt as stop:
        complain("interrupted")
        number: int = stop.args[0] if stop.args else signal.SIGINT
        return 128 + number  # as shells count them
    return code


def _is_of_output(error: OSError) -> bool:
    """Whether an error without a name is standard output's: what could not be written is left, and cannot be written
    now either. Where nothing is left, as by PYTHONUNBUFFERED, it most likely is."""
    if sys.stdout is None:
        return False
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return isinstance(error, BrokenPipeError) or getattr(sys.stdout, "write_through", True)


def _show_cursor() -> None:
    """Give a terminal its cursor back, which is hidden while there is something that moves. One that takes nothing now
    is not waited for."""
    for stream in (1, 2):
        with suppress(OSError, ValueError):
            if os.isatty(stream) and select.select([], [stream], [], 0)[1]:
                os.write(stream, b"\x1b[?25h\r\n")
                return


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Has other signals that end a program interrupt it as Ctrl-C does: temporary files go, and its own processes.

    Whoever presses Ctrl-C again at once would tear the end in order apart, so the next second's signals count for
    nothing. A later one ends the process on the spot: what it waits for may never come, such as a file of a server
    that is gone.
    """
    before: dict[int, Any] = {}
    ended: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        began = time.monotonic()

        def end(number: int, _: FrameType | None) -> None:
            if time.monotonic() - began > PATIENCE:
                _show_cursor()
                os._exit(128 + number)

        for one in before:
            signal.signal(one, end)
        ended.extend(before)
        before.clear()  # and nothing more is to be set back: the process ends
        raise KeyboardInterrupt(number)

    if threading.current_thread() is threading.main_thread():
        # What is ignored, as under nohup, or has a handler of somebody's, stays so.
        usual = (signal.SIG_DFL, signal.default_int_handler)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before.update({one: now for one in numbers if (now := signal.getsignal(one)) in usual})
    for number in list(before):
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in list(before.items()):
            signal.signal(number, handler)
        # All that was to end in order has. The interpreter's own end would set a handler back to the system's.
        for number in ended:
            signal.signal(number, signal.SIG_IGN)
