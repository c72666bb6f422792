"""Options in, exit code out: 0 told, or watched until Ctrl-C; 1 nobody to see, or gone meanwhile; 2 wrong input."""

import argparse
import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gabion._metrics import metrics
from gabion.cli.failure import complain, shown
from gabion.cli.top import asking, screen
from gabion.cli.top.asking import Busy, Figures, Gone, Process

# Characters in a line that goes to a file or another program.
WIDE = 160
# Lines of the screen that are not a table's.
AROUND = 14
# Those above the table of all processes.
ABOVE = 2
NOBODY = f"no process of yours lets itself be seen; to have one do so, {asking.HOW}"


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare `top` and its options."""
    about = (
        "Show what processes hold, as it changes: memory of the pool, piles, caches. A process lets itself be seen when"
        " it is started with GABION_MONITOR=1 in its environment, or calls gabion.monitor.start(). Without a PID or a"
        " URL, all such processes of this user are shown, a line each. Ctrl-C ends it."
    )
    parser = commands.add_parser("top", help="show what processes hold, as it changes", description=about)
    parser.add_argument("process", metavar="PID|URL", nargs="?", help="one process: its number, or http://HOST:PORT")
    parser.add_argument(
        "--interval", type=_seconds, default=2.0, metavar="SECONDS", help="time between two looks (default: 2)"
    )
    parser.add_argument("--once", action="store_true", help="look once; so it does where the output is no terminal")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="look once, print JSON and nothing else on stdout")
    form.add_argument(
        "--metrics", action="store_true", help="look once, print it as Prometheus reads it, with a label pid"
    )
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and 0.1 <= value <= 86_400):
        raise argparse.ArgumentTypeError(f"{text}: say 0.1 to 86400 seconds")
    return value


def run(options: argparse.Namespace) -> int:
    """Ask, tell."""
    one = None if options.process is None else asking.named(options.process)
    console = Console(highlight=False, markup=False, emoji=False)
    at_terminal = sys.stdout is not None and sys.stdout.isatty()
    if not at_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    try:
        if options.metrics:
            return as_metrics(one)
        if options.json or options.once or not at_terminal or console.is_dumb_terminal:
            return once(console, one, as_json=options.json)
        return watch(console, one, options.interval)
    except Gone as gone:
        complain(gone)
    except Busy:
        complain(f"{options.process}: {asking.BUSY}")
    return 1


def once(console: Console, one: Process | None, *, as_json: bool) -> int:
    """Look once."""
    told = [one.ask()] if one else asking.everybody()
    if as_json:
        print(json.dumps({"name": "top", "processes": told}, indent=2))
        _tell_silent(told)
    elif one:
        console.print(screen.process(told[0], None))
    elif told:
        console.print(screen.processes(told))
        _tell_silent([one for one in told if one.get("error") != asking.BUSY])  # the table has no room for more
    if not told:
        complain(NOBODY)
    return 0 if told else 1


def as_metrics(one: Process | None) -> int:
    """Look once, and print what Prometheus reads. Who tells no figures is not in it."""
    told = [one.ask()] if one else asking.everybody()
    known = [figures for figures in told if "pool" in figures]
    print(_visible(metrics(known, by_pid=True)), end="")
    _tell_silent(told)
    if not told:
        complain(NOBODY)
    return 0 if known else 1


def _tell_silent(told: list[Figures]) -> None:
    """Name those that told no figures."""
    for figures in told:
        if "pool" not in figures:
            complain(f"process {figures['pid']}: {figures['error']}")


def _visible(told: str) -> str:
    r"""Write out what a terminal would obey. Prometheus knows few escapes, and so reads a name with \\x1b as text."""
    lines = told.split("\n")
    if all(line.isprintable() for line in lines):
        return told
    return "\n".join(
        "".join(one if one.isprintable() else shown(one).replace("\\", "\\\\") for one in line) for line in lines
    )


def watch(console: Console, one: Process | None, interval: float) -> int:
    """Look again and again, until somebody interrupts that or the process ends."""
    live = Live(console=console, screen=True, auto_refresh=False)
    try:
        looks = _of_one(console, one) if one else _of_all(console)
        first = next(looks)
        live.start()
        live.update(first, refresh=True)
        while True:
            time.sleep(interval)
            live.update(next(looks), refresh=True)
    except KeyboardInterrupt as stop:
        if stop.args not in ((), (signal.SIGINT,)):
            raise  # another signal than that of Ctrl-C
        return 0
    finally:
        live.stop()


def _of_one(console: Console, one: Process) -> Iterator[RenderableType]:
    before: Figures | None = None
    seen: RenderableType = Text()
    told = time.strftime("%H:%M:%S")
    while True:
        try:
            now = one.ask()
        except Busy:
            yield Group(Text(f"no answer since {told}\n"), seen)
            continue
        most = max(3, (console.height - AROUND) // 2)
        seen, before, told = screen.process(now, before, most, console.height), now, time.strftime("%H:%M:%S")
        yield seen


def _of_all(console: Console) -> Iterator[RenderableType]:
    while True:
        told = asking.everybody()
        seen: RenderableType = screen.processes(told, console.height - ABOVE) if told else Text(NOBODY)
        yield Group(Text(f"{time.strftime('%H:%M:%S')}  gabion top PID shows one of them\n"), seen)
