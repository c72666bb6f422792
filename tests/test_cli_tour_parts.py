"""The parts of `gabion tour` beside the stores: pictures, requests, what is measured and shown of them."""

import argparse
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gabion import Cache, Image
from gabion.cli.tour import caches, command, curves, drawing, images, page, photos, records, requests, sheet, terminal
from gabion.cli.tour.failure import TourError
from gabion.cli.tour.result import CacheResult, Hits, ImagesResult, Pauses, Result
from gabion.cli.tour.stores import LABELS

ROWS = 600


@pytest.fixture(autouse=True)
def _nothing_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GABION_DATA", raising=False)


@pytest.fixture
def table(tmp_path: Path) -> records.Table:
    """A column of ids, one whose values come back, one with few values."""
    path = tmp_path / "table.csv"
    path.write_text("id,plane,state\n" + "".join(f"{n},N{n * n % 101},{'ab'[n % 2]}\n" for n in range(ROWS)))
    return records.read(path, tmp_path / "rows.spool", ROWS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pictures, one of them below, and a file that only looks like one."""
    made = tmp_path / "pictures"
    (made / "below").mkdir(parents=True)
    with Image.new("RGB", (400, 300), (200, 60, 20)) as image:
        image.save(made / "red.png")
    with Image.new("RGBA", (300, 600), (20, 60, 200, 255)) as image:
        image.save(made / "below/blue.webp")
    (made / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0 nothing more")
    return made


@pytest.mark.parametrize("between", [",", ";", "\t", "|"])
def test_fields_are_told_apart_by_what_stands_between_them(between: str, tmp_path: Path) -> None:
    def read(*lines: str) -> records.Table:
        (tmp_path / "some.csv").write_text("".join(f"{line}\n" for line in lines))
        return records.read(tmp_path / "some.csv", tmp_path / "rows.spool", ROWS)

    table = read(
        between.join(["id", "name", "price"]), *[between.join([f"{n}", f"Ada {n}", f"{n}.5"]) for n in range(9)]
    )
    assert (table.columns, table.types, table.rows) == (("id", "name", "price"), ("int", "str", "float"), 9)
    assert terminal.records_of(table) == "9 records of 3 fields"
    # A comma of a number, and cells in quotation marks.
    marks = [f'"{n}"{between}"a{between}b"{between}"{n},5"' for n in range(9)]
    assert read(between.join(["id", "name", "price"]), *marks).columns == ("id", "name", "price")
    # One record alone, one column alone, in which the others may stand.
    assert read(f"a{between}b", f"1{between}2").columns == ("a", "b")
    assert terminal.records_of(read("text", "1")) == "1 record of 1 field"
    assert read("text", *[f"a{between}b"] * 9).columns == ("text",) if between != "," else True


def test_a_comma_counts_where_the_header_has_one(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("id,kinds\n" + "".join(f"{n},a|b|c;d\n" for n in range(9)))
    assert records.read(tmp_path / "some.csv", tmp_path / "rows.spool", ROWS).columns == ("id", "kinds")


def images_measured(library: str, files: list[Path], target: Path, seconds: float = 600.0) -> ImagesResult:
    target.mkdir()
    plan = images.Plan(tuple(map(str, files)), str(target), 2, seconds)
    return images.Measurement(plan, images.LIBRARIES[library](), lambda _: None).run(library)


def test_pictures_of_a_folder_are_found_and_evenly_chosen(folder: Path) -> None:
    found = photos.find(folder, 10)
    assert found
    assert [file.name for file in found.files] == ["blue.webp", "cut.jpg", "red.png"]
    assert found.source == f"3 pictures from {folder}"
    fewer = photos.find(folder, 2)
    assert fewer
    assert [file.name for file in fewer.files] == ["blue.webp", "cut.jpg"]
    assert "2 of 3 pictures" in fewer.source
    photos.read_once(found)


def test_the_data_folder_is_taken_where_none_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.rename(tmp_path / "photos")
    monkeypatch.setenv("GABION_DATA", str(tmp_path))
    found = photos.find(None, 10)
    assert found
    assert len(found.files) == 3


def test_pictures_are_made_up_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "MADE_UP", 2)
    monkeypatch.setattr(photos, "MADE_UP_SIZE", (300, 200))
    assert photos.find(None, 10) is None
    found = photos.made_up(tmp_path / "made-up")
    assert "2 made-up pictures" in found.source
    assert "--photos" in found.source
    shown = []
    for file in found.files:
        with Image.open(file) as image:
            assert (image.size, image.mode) == ((300, 200), "RGB")
            shown.append(image.to_bytes())
    assert shown[0] != shown[1]
    assert len(set(shown[0])) > 100, "there is something to be seen"


def test_folders_that_will_not_do_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, message in (
        (tmp_path / "absent", "no such folder"),
        (folder / "red.png", "not a folder"),
        (tmp_path / "empty", "no JPEG"),
    ):
        with pytest.raises(TourError, match=message):
            photos.find(place, 10)


@pytest.mark.parametrize("library", images.LIBRARIES)
def test_thumbnails_are_made_and_failures_named(library: str, folder: Path, tmp_path: Path) -> None:
    if library == "pillow":
        pytest.importorskip("PIL")
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    result = images_measured(library, files, tmp_path / "target")
    assert (result.library, result.made, result.threads) == (library, 2, 2)
    assert [text.partition(":")[0] for text in result.failed] == ["cut.jpg"]
    assert result.read_bytes == sum(file.stat().st_size for file in files if file.name != "cut.jpg")
    sizes = []
    for file in sorted((tmp_path / "target").glob(images.NUMBERED)):
        with Image.open(file) as image:
            sizes.append(image.size)
    assert sizes == [(75, 150), (150, 113)] or sizes == [(75, 150), (150, 112)]


def test_no_picture_is_begun_when_the_time_is_over(folder: Path, tmp_path: Path) -> None:
    result = images_measured("gabion", [folder / "red.png"] * 50, tmp_path / "target", seconds=-1.0)
    assert 1 <= result.made <= result.threads, "there is always a first"


def test_a_sheet_and_a_strip_show_the_thumbnails(tmp_path: Path) -> None:
    files = []
    for number in range(8):
        files.append(tmp_path / f"{number}.png")
        with Image.new("RGB", (150, 100), (30 * number, 250, 0)) as image:
            image.save(files[-1])
    with Image.open(sheet.contact_sheet(files, 150)) as drawn:
        assert (drawn.format, drawn.mode) == ("WebP", "RGBA")
        assert drawn.size == (6 * 160 - 10, 2 * 160 - 10)
        rows = list(drawn.rows())
        assert rows[75][4 * 75 + 3] == 255, "a thumbnail covers"
        assert rows[235][4 * 900 + 3] == 0, "an empty place is clear"
    strip = sheet.strip(files, 31)
    assert [len(line) for line in strip.plain.splitlines()] == [30] * 7
    assert "#00fa00" in str(strip.spans[0].style)
    assert any("#1efa00" in str(span.style) for span in strip.spans)


def test_the_table_asks_for_the_field_that_comes_back(table: records.Table) -> None:
    found = requests.find(table)
    assert "its plane" in found.source
    assert len(found.numbers) == ROWS
    assert found.pages == len({n * n % 101 for n in range(ROWS)})
    assert list(found.numbers[:3]) == [0, 1, 2]


def test_requests_are_drawn_where_no_field_comes_back(tmp_path: Path) -> None:
    (tmp_path / "ids.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(100)))
    table = records.read(tmp_path / "ids.csv", tmp_path / "ids.spool", 100)
    found = requests.find(table, 2_000)
    assert "Zipf" in found.source
    assert len(found.numbers) == 1_000
    assert max(found.numbers) == found.pages - 1
    assert found == requests.find(table, 2_000), "the same each time"


@pytest.mark.parametrize("ending", ["", ".xz"])
def test_a_recorded_trace_goes_first(
    ending: str, table: records.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lzma

    keys = b"".join(number.to_bytes(4, "big") for number in (70_000, 5, 70_000, 9))
    (tmp_path / "traces").mkdir()
    (tmp_path / f"traces/{requests.TRACE}{ending}").write_bytes(lzma.compress(keys) if ending else keys)
    monkeypatch.setenv("GABION_DATA", str(tmp_path))
    found = requests.find(table)
    assert (found.source, found.pages) == (requests.TRACE_SOURCE, 3)
    assert list(found.numbers) == [0, 1, 0, 2]
    assert list(requests.find(table, 2).numbers) == [0, 1]


def cache_measured(table: records.Table, tmp_path: Path) -> CacheResult:
    found = requests.find(table)
    (tmp_path / "numbers").write_bytes(found.numbers.tobytes())
    plan = caches.Plan(found.source, str(tmp_path / "numbers"), found.pages, table.columns, str(table.spool))
    return caches.Measurement(plan, lambda _: None).run()


def test_a_cache_is_measured_whole(table: records.Table, tmp_path: Path) -> None:
    result = cache_measured(table, tmp_path)
    assert (result.requests, result.pages) == (ROWS, 51)
    assert len(result.hits) == len(caches.PARTS) * len(caches.POLICIES)
    assert all(0 <= one.rate <= result.best and one.max_bytes < result.all_bytes for one in result.hits)
    assert result.best == 1 - 51 / ROWS
    assert result.looks >= len(result.filled) > 0
    assert result.above == 0
    assert max(result.filled) <= result.most_bytes <= result.limit_bytes
    assert result.made == result.asked == caches.ASKED
    assert result.asked <= result.made_with_dict <= result.askers * result.asked


def test_a_wrong_page_is_noticed(table: records.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Confused(Cache):
        def get(self, key: Any, /, default: Any = None) -> Any:
            found = super().get(key, default)
            return found if found is default else found + " "

    monkeypatch.setattr(caches, "Cache", Confused)
    with pytest.raises(AssertionError, match="wrong page"):
        cache_measured(table, tmp_path)


CACHED = CacheResult(
    source="made up",
    requests=1000,
    pages=200,
    all_bytes=8 << 20,
    hits=[Hits(policy, 1 << (20 + n), 2.0 ** (n - 3), 0.1 * (n + 1)) for n in range(3) for policy in caches.POLICIES],
    hit_us=1.25,
    threads=4,
    limit_bytes=1 << 20,
    looks=900,
    above=0,
    most_bytes=(1 << 20) - 8,
    filled=[1000, 500_000, (1 << 20) - 8],
    askers=16,
    asked=100,
    made=100,
    made_with_dict=433,
)
SMALL = [
    ImagesResult("gabion", 40, ["bad.jpg: damaged <here>"], 1 << 26, 8, 0.5, 1.0, 9 << 20),
    ImagesResult("pillow", 41, [], 1 << 26, 8, 1.0, 2.0, 90 << 20),
]


def test_the_parts_in_the_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, width=100)
    found = photos.Photos("60 pictures from here", tuple(Path(f"{n}.jpg") for n in range(60)))
    terminal.show_images(console, found, SMALL, [], False)
    terminal.show_cache(console, CACHED)
    text = out.getvalue()
    for words in (
        "60 pictures from here, of which the first 41 came within the time",
        "gabion.Image",
        "Pillow",
        "could not be read: 1, first bad.jpg: damaged <here>",
        "a hit takes 1.2 µs",
        "1.0 MiB",
        "80.0%",
        "0 times above the limit of 1,048,576",
        "made 100 times with get_or_put(), 433 times around a dict",
    ):
        assert words in text
    terminal.show_images(console, found, [], [], False)
    terminal.show_cache(console, None)
    assert out.getvalue() == text, "a room that was left out says nothing"


def test_a_terminal_does_not_obey_what_files_are_called(folder: Path, table: records.Table) -> None:
    name = "\x1b]0;here\x07\x1b[31m"
    small = [replace(one, failed=[f"{name}.jpg: damaged"]) for one in SMALL]
    found = photos.Photos(f"2 pictures from {name}", tuple(folder.iterdir()))
    stores = [Result(store, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, Pauses([0.5], [1.0], 1.0)) for store in LABELS]
    out = io.StringIO()
    console = Console(file=out, width=100)
    terminal.show_images(console, found, small, [], False)
    terminal.show(console, replace(table, source=name), stores)
    command._pictures(found, folder, console)
    arguments = argparse.Namespace(records=table.spool.with_name(f"{name}.csv"), quick=True, objects=0)
    arguments.records.write_text("a,b\n1,2\n")
    command._read(arguments, folder.with_name("other.spool"), 10, console)
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count(r"\x1b]0;here\x07\x1b[31m") == 5


def test_the_parts_on_the_page(tmp_path: Path) -> None:
    with Image.new("RGB", (150, 100), 7) as image:
        image.save(tmp_path / "one.jpg")
    found = photos.Photos("1 picture from <here>", (tmp_path / "one.jpg",))
    section = page.images_section(found, SMALL, [tmp_path / "one.jpg"])
    assert 'src="data:image/webp;base64,' in section
    assert "1 picture from &lt;here&gt;" in section
    assert "damaged &lt;here&gt;" in section
    assert "<img" not in page.images_section(found, SMALL, [])
    section = page.cache_section(CACHED)
    for words in ("in 900 looks", "factory calls", "433", "var(--gabion)", "bytes in the cache"):
        assert words in section
    assert "#00000" not in section, "every colour is the page's"
    assert page.images_section(found, [], []) == page.cache_section(None) == ""


def test_curves_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert curves.svg(CACHED) == f'<p class="note">{drawing.NOT_INSTALLED}</p>'
