"""How benchmarks order their runs, hold them to bars, and tell of them."""

import importlib
import itertools
import shlex
from pathlib import Path

import pytest

BENCH = str(Path(__file__).parent.parent / "bench")


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("harness")


def orders_of(harness, cases: str, subjects: str, rounds: int) -> list[list[tuple[str, str]]]:
    """The case and the subject of each run, in the order in which each round makes them."""
    made: list[tuple[str, str]] = []

    class Noted(harness.Run):
        def execute(self) -> dict:
            made.append((self.case, self.subject))
            return {"metrics": {}}

    runs = [Noted(case, subject) for case in cases for subject in subjects]
    options = harness.Options(rounds=rounds, most_rounds=rounds)
    harness.run_rounds(harness.Plan(runs, []), options)
    return [made[start : start + len(runs)] for start in range(0, len(made), len(runs))]


def test_no_subject_always_runs_after_the_same_neighbour(harness) -> None:
    orders = orders_of(harness, "pqr", "abcd", 5)
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    before: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for order in orders:
        for one, run in itertools.pairwise(order):
            before.setdefault(run, set()).add(one)
    assert all(len({subject for _, subject in neighbours}) > 1 for neighbours in before.values()), before


def test_the_order_of_runs_is_the_same_each_time(harness) -> None:
    """Who runs a benchmark again gets the same order."""
    assert orders_of(harness, "pq", "abcd", 5) == orders_of(harness, "pq", "abcd", 5)


def test_cases_are_not_mixed(harness) -> None:
    """Subjects of one case are compared, and so run one soon after the other."""
    for order in orders_of(harness, "pqr", "abcd", 5):
        assert [case for case, _ in order] == [case for case in "pqr" for _ in "abcd"]


def row(case: str, subject: str, metric: str, unit: str, *values: float) -> dict:
    middle = sorted(values)[len(values) // 2]
    figures = {"median": middle, "min": min(values), "max": max(values), "rounds": len(values), "values": list(values)}
    return {"case": case, "subject": subject, "metric": metric, "unit": unit, **figures}


def result_of(harness, rows: list[dict], bars: list):
    return harness.Result("name", "title", rows, {}, bars, [], [], [], {})


@pytest.mark.parametrize("metric", ["cpu_per_op", "rss_left"])
def test_a_peer_that_takes_less_is_told_of(harness, metric: str) -> None:
    report = importlib.import_module("report")
    rows = [row("case", who, metric, "ms", *[value] * 5) for who, value in (("gabion", 2.0), ("peer", 1.0))]
    assert report.losses(result_of(harness, rows, [])) == [f"case, {metric}: peer 1 ms, gabion 2 ms"]


def test_what_is_not_compared_is_named(harness) -> None:
    described = (Path(BENCH) / "README.md").read_text()
    assert all(f"`{metric}`" in described for metric in importlib.import_module("report").UNCOMPARED)


def judged(values: list[float], sense: str = "<=", limit: float = 1.0):
    bars = importlib.import_module("bars")
    bar = bars.Bar(("case", "gabion", "metric"), sense, limit)
    return bars.judge(bar, [row("case", "gabion", "metric", "ratio", *values)])


@pytest.mark.parametrize("rounds", range(1, 16))
def test_fewer_than_five_rounds_decide_nothing(harness, rounds: int) -> None:
    outcome = judged([0.5] * rounds)
    assert outcome.met
    assert outcome.decided == (rounds >= 5)


@pytest.mark.parametrize("sense", ["<=", ">="])
def test_a_value_that_is_always_the_limit_is_decided(harness, sense: str) -> None:
    outcome = judged([1.0] * 5, sense)
    assert outcome.met
    assert outcome.decided


def test_values_on_both_sides_of_the_limit_decide_nothing(harness) -> None:
    outcome = judged([0.9, 0.9, 1.0, 1.1, 1.1])
    assert outcome.met
    assert not outcome.decided


def rounds_taken(harness, options, *runs: tuple[str, dict]) -> dict[str, int]:
    """How many rounds each subject takes whose run gives what it is said to, or fails where that is nothing."""
    taken: dict[str, int] = {}

    class Given(harness.Run):
        def execute(self) -> dict:
            taken[self.subject] = taken.get(self.subject, 0) + 1
            if not self.args:
                raise harness.RunFailed("no")
            return {"metrics": {"metric": [self.args["value"], "ratio"]}}

    bars = importlib.import_module("bars")
    bar = bars.Bar(("case", "gabion", "metric"), ">=", 1.0, ("case", bars.BEST_PEER, "metric"))
    planned = [Given("case", subject, args=args) for subject, args in runs]
    harness.run_rounds(harness.Plan(planned, [bar]), options)
    return taken


def test_few_rounds_run_on_until_they_decide(harness) -> None:
    options = harness.Options(rounds=2, most_rounds=9)
    taken = rounds_taken(harness, options, ("gabion", {"value": 2.0}), ("peer", {"value": 1.0}))
    assert taken == {"gabion": 5, "peer": 5}


def test_a_failed_run_asks_for_no_further_rounds(harness) -> None:
    options = harness.Options(rounds=2, most_rounds=9)
    taken = rounds_taken(harness, options, ("gabion", {"value": 2.0}), ("peer", {"value": 1.0}), ("other", {}))
    assert taken == {"gabion": 2, "peer": 2, "other": 1}


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ("", 15),
        ("--rounds 9", 15),
        ("--rounds 4", 4),
        ("--rounds 4 --most-rounds 6", 6),
        ("--most-rounds 7", 7),
        ("--quick", 5),
        ("--quick --most-rounds 7", 5),
        ("--case 'a case' --minutes 2 --photos 'some where' --installed", 15),
    ],
)
def test_the_command_of_a_page_does_the_same_again(
    harness, monkeypatch: pytest.MonkeyPatch, words: str, most: int
) -> None:
    run = importlib.import_module("run")
    monkeypatch.setattr("sys.argv", ["bench/run.py", "pile", *shlex.split(words)])
    options = run._options_of(run._parse())
    assert options.most_rounds == most
    monkeypatch.setattr("sys.argv", shlex.split(run._command("pile", options))[1:])
    assert run._options_of(run._parse()) == options


def test_a_verdict_of_few_rounds_says_so(harness) -> None:
    bars, report = importlib.import_module("bars"), importlib.import_module("report")
    bar = bars.Bar(("case", "gabion", "metric"), ">=", 1.0)
    told = {}
    for count in (1, 4, 5):
        rows = [row("case", "gabion", "metric", "ratio", *[0.5] * count)]
        outcome = bars.judge(bar, rows)
        told[count] = report._bar_text(outcome, result_of(harness, rows, [bar]))
    assert told == {
        1: "MISSED 0.5, of 1 round (≥ 1)",
        4: "MISSED 0.5, of 4 rounds (≥ 1)",
        5: "MISSED 0.5 (≥ 1)",
    }
