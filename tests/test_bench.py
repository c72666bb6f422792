"""How benchmarks order their runs."""

import importlib
import itertools
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
