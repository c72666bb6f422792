"""Runs the benchmarks: ``python bench/run.py NAME [--quick] [--json FILE]``; see bench/README.md."""

from __future__ import annotations

import argparse
import importlib
import json
import shlex
import sys
from pathlib import Path

import build
import machine
import report
from bars import FEWEST_ROUNDS
from harness import DEFAULT_ROUNDS, MOST_ROUNDS, Options, Result, run_rounds

# Benchmark name to the module that plans it.
BENCHMARKS = {
    "pile": "pile",
    "gc": "gc_pauses",
    "pool": "pool",
    "numpy": "numpy_hook",
    "arenas-pool": "arenas_pool",
    "scenegraph": "scenegraph",
    "images": "images",
    "arenas": "arenas",
    "cache": "cache",
    "streams": "streams",
}
RESULTS = Path(__file__).resolve().parent / "results"


def main() -> int:
    """Run what the command line asks for. 0: all ran; 1: a run crashed or answered wrongly; 2: usage, or no build."""
    arguments = _parse()
    if arguments.list:
        for name, module in BENCHMARKS.items():
            print(f"{name:12} {importlib.import_module(module).TITLE}")
        return 0
    options = _options_of(arguments)
    results = []
    for name in BENCHMARKS if arguments.all else [arguments.name]:
        try:
            results.append(run_benchmark(name, options))
        except build.BuildFailed as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        report.print_result(results[-1])
        _write_json(results[-1], arguments)
        pictures = _draw(results[-1], arguments)
        if arguments.report:
            report.write_page(results[-1], _command(name, options), pictures, arguments.report)
            report.write_index(list(BENCHMARKS), arguments.report)
    if arguments.json and arguments.all:
        arguments.json.write_text(json.dumps([report.as_json(result) for result in results], indent=1) + "\n")
    return 1 if any(result.failures for result in results) else 0


def run_benchmark(name: str, options: Options) -> Result:
    """Plan and run one benchmark."""
    module = importlib.import_module(BENCHMARKS[name])
    described = machine.describe()
    plan = module.plan(options)
    rows, failures, extras = run_rounds(plan, options)
    bars = [bar for bar in plan.bars if options.wants(bar.row[0])]
    described["missing"] = sorted(set(plan.missing))
    return Result(name, module.TITLE, rows, described, bars, plan.missing, plan.notes, failures, extras)


def _options_of(arguments: argparse.Namespace) -> Options:
    return Options(
        quick=arguments.quick,
        rounds=arguments.rounds,
        most_rounds=_most_rounds(arguments),
        installed=arguments.installed,
        cases=arguments.case + ["scale"] * arguments.scale,
        minutes=arguments.minutes,
        photos=arguments.photos,
    )


def _most_rounds(arguments: argparse.Namespace) -> int:
    if arguments.most_rounds is None or arguments.quick:
        return _usual_most_rounds(arguments.rounds, arguments.quick)
    return arguments.most_rounds


def _usual_most_rounds(rounds: int, quick: bool) -> int:
    """No further ones for who asks for so few that no bar could be decided."""
    return rounds if quick or rounds < FEWEST_ROUNDS else MOST_ROUNDS


def _command(name: str, options: Options) -> str:
    """The command that does the same again."""
    words = ["python bench/run.py", name, *["--quick"] * options.quick, *["--installed"] * options.installed]
    words += ["--rounds", str(options.rounds)] if options.rounds != DEFAULT_ROUNDS else []
    if options.most_rounds != _usual_most_rounds(options.rounds, options.quick):
        words += ["--most-rounds", str(options.most_rounds)]
    words += [word for case in options.cases for word in ("--case", shlex.quote(case))]
    words += ["--minutes", f"{options.minutes:g}"] if options.minutes is not None else []
    words += ["--photos", shlex.quote(options.photos)] if options.photos is not None else []
    return " ".join(words)


def _draw(result: Result, arguments: argparse.Namespace) -> list[Path]:
    folder = arguments.report.parent / "pictures" if arguments.report else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return importlib.import_module(BENCHMARKS[result.name]).pictures(result, folder)
    except ImportError as error:
        print(f"missing: {error.name} (make bench-setup), so no picture of {result.name}")
        return []


def _write_json(result: Result, arguments: argparse.Namespace) -> None:
    text = json.dumps(report.as_json(result), indent=1) + "\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{result.name}.json").write_text(text)
    if arguments.json and not arguments.all:
        arguments.json.write_text(text)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run gabion and its peers, interleaved, and compare.")
    parser.add_argument("name", nargs="?", choices=sorted(BENCHMARKS), help="the benchmark")
    parser.add_argument("--list", action="store_true", help="name the benchmarks")
    parser.add_argument("--all", action="store_true", help="run every benchmark")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a minute instead of many")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, help=f"rounds (default {DEFAULT_ROUNDS})")
    parser.add_argument(
        "--most-rounds",
        type=int,
        metavar="N",
        help=f"rounds at most, for bars that --rounds do not decide (default {MOST_ROUNDS}); "
        f"none further with --quick, and by default none with fewer than {FEWEST_ROUNDS} --rounds",
    )
    parser.add_argument("--case", action="append", default=[], metavar="TEXT", help="only cases that contain TEXT")
    parser.add_argument("--scale", action="store_true", help="gc: only the row that fills 20 GiB")
    parser.add_argument("--minutes", type=float, metavar="N", help="pool, images: how long the load of a service lasts")
    parser.add_argument("--photos", metavar="FOLDER", help="images: the photographs; default: photos in GABION_DATA")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows (with --all: a list of them)")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write a page for each benchmark, with pictures")
    parser.add_argument("--installed", action="store_true", help="measure gabion as installed instead of building it")
    arguments = parser.parse_args()
    if arguments.scale and not arguments.name:
        arguments.name = "gc"
    if not (arguments.list or arguments.all or arguments.name):
        parser.error("say which benchmark (--list names them) or --all")
    if arguments.rounds < 1:
        parser.error("--rounds must be at least 1")
    if arguments.minutes is not None and not 0 < arguments.minutes <= 24 * 60:
        parser.error("--minutes must be more than 0, and a day at most")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
