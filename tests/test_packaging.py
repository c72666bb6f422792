"""What packages say of themselves and bring along: licences of all that is compiled in, links, ranges of versions."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from patience import HANGS

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MANIFESTS = {path.parent.name: tomllib.loads(path.read_text()) for path in ROOT.glob("crates/*/Cargo.toml")}
PUBLISHED = sorted(name for name, manifest in MANIFESTS.items() if manifest["package"].get("publish", True))
# Of those that crates.io knows; it refuses others.
CATEGORIES = {"caching", "concurrency", "data-structures", "memory-management", "multimedia::images"}

_spec = importlib.util.spec_from_file_location("third_party", ROOT / "scripts/third_party.py")
assert _spec is not None
assert _spec.loader is not None
third_party: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(third_party)

needs_cargo = pytest.mark.skipif(
    shutil.which("cargo") is None, reason="the crates that are linked in are what cargo says"
)


@needs_cargo
def test_the_licences_are_those_of_what_is_compiled_in(capsys: pytest.CaptureFixture[str]) -> None:
    """Who changed Cargo.lock says `make licences`."""
    assert (third_party.main(["--check"]), capsys.readouterr().err) == (0, "")


@needs_cargo
def test_a_file_of_licences_that_is_out_of_date_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = third_party.OUTPUT.read_text()
    monkeypatch.setattr(third_party, "OUTPUT", tmp_path / "THIRD-PARTY-LICENSES.txt")
    crates = third_party.linked()
    assert {"pyo3", "mozjpeg-sys", "libwebp-sys", "allocator-api2"} <= {crate.name for crate in crates}
    assert not {"syn", "cc", "proptest", "gabion-pile"} & {crate.name for crate in crates}
    line = next(line for line in whole.splitlines() if line.startswith("pyo3 "))
    for changed in ("", "pyo3 0.0.1: MIT\n"):
        third_party.OUTPUT.write_text(whole.replace(line + "\n", changed))
        assert third_party.main(["--check"]) == 1
        assert f"+{line}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("expression", "taken"),
    [
        ("MIT OR Apache-2.0", ["MIT"]),
        ("MIT/Apache-2.0", ["MIT"]),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", ["MIT"]),
        ("BSD-3-Clause OR Apache-2.0", ["BSD-3-Clause"]),
        ("(MIT OR Apache-2.0) AND IJG", ["MIT", "IJG"]),
        ("IJG AND Zlib AND BSD-3-Clause", ["IJG", "Zlib", "BSD-3-Clause"]),
        ("GPL-3.0-only OR (MIT AND Zlib)", ["MIT", "Zlib"]),
    ],
)
def test_one_of_the_licences_that_are_offered_is_taken(expression: str, taken: list[str]) -> None:
    assert third_party.chosen(expression) == taken


@pytest.mark.parametrize("expression", ["GPL-3.0-only", "MIT AND GPL-3.0-only", "", "(MIT", "MIT Zlib"])
def test_a_licence_that_nobody_has_looked_at_is_refused(expression: str) -> None:
    with pytest.raises(third_party.Unknown):
        third_party.chosen(expression)


def test_a_crate_without_the_text_of_its_licence_is_refused(tmp_path: Path) -> None:
    crate = third_party.Crate("stone", "1.0.0", "Zlib", tmp_path, ("Ada",))
    with pytest.raises(third_party.Unknown, match=r"stone 1\.0\.0: has no text of Zlib"):
        third_party.crate_texts(crate)
    (tmp_path / "NOTICE").write_text("Stones by Ada")
    found = third_party.crate_texts(crate._replace(licence="MIT"))
    assert [text.file for text in found] == ["the text of MIT", "NOTICE"]
    assert "Copyright (c) Ada\n" in found[0].text


def test_c_code_that_nobody_has_looked_at_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "LICENSE").write_text((ROOT / "LICENSE-MIT").read_text())
    crate = third_party.Crate("stone", "1.0.0", "MIT", tmp_path, ())
    monkeypatch.setattr(third_party, "linked", lambda: [crate])
    assert "stone 1.0.0: MIT\n" in third_party.written()
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor/stone.c").write_text("int stone;")
    with pytest.raises(third_party.Unknown, match="stone"):
        third_party.written()


def test_the_package_has_its_licences_and_links() -> None:
    project = PYPROJECT["project"]
    found = {path.name for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    assert found == {"LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES.txt"}
    source = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["repository"]
    assert project["urls"]["Source"] == source
    assert {"Documentation", "Source", "Changelog", "Issues"} == project["urls"].keys()
    for url in project["urls"].values():
        place = re.fullmatch(re.escape(source) + r"(?:/(?:tree|blob)/main/(.+)|/issues)?", url)
        assert place, url
        assert (ROOT / (place[1] or "")).exists(), url
    assert project["keywords"]
    assert [author["name"] for author in project["authors"]] == ["The gabion developers"]


def test_others_may_build_with_another_maturin_than_make_does() -> None:
    wanted = re.fullmatch(r"maturin>=([\d.]+),<(\d+)", PYPROJECT["build-system"]["requires"][0])
    assert wanted is not None
    locked = re.search(r"^maturin==([\d.]+) ", (ROOT / "requirements/build.lock").read_text(), re.MULTILINE)
    assert locked is not None
    least, used, end = ([int(part) for part in version.split(".")] for version in (wanted[1], locked[1], wanted[2]))
    assert least <= used < end
    assert PYPROJECT["dependency-groups"]["build"] == PYPROJECT["build-system"]["requires"]


def test_scripts_are_run_by_the_name_of_what_reads_them() -> None:
    """The sources that maturin packs do not keep that a file may be run."""
    commands = [line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("\t")]
    run = re.compile(r"(\S*) (?:scripts/|\$<(?! *$))")
    runs = [found for line in commands for found in run.findall(" " + line.lstrip("\t@"))]
    assert len(runs) > 9
    assert set(runs) <= {"bash", "$(PYTHON)"}


@pytest.mark.skipif(shutil.which("make") is None, reason="it is what make would do")
@pytest.mark.parametrize(("place", "goes"), [(".venv-other", True), ("/somewhere/else", False), ("..", False)])
def test_an_environment_of_others_is_not_removed(place: str, goes: bool) -> None:
    # The make that runs the tests tells what it was given.
    others = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")}
    done = subprocess.run(
        ["make", "--dry-run", "clean"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=HANGS,
        env={**others, "VENV": place},
    )  # fmt: skip
    assert (place in done.stdout.split()) == goes


def test_crates_that_are_published_are_told_from_those_that_are_not() -> None:
    assert sorted(MANIFESTS.keys() - set(PUBLISHED)) == ["gabion-c", "gabion-python"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_crate_has_what_its_page_shows(name: str) -> None:
    folder, package = ROOT / "crates" / name, MANIFESTS[name]["package"]
    assert package["name"] == name
    assert package["description"]
    assert package["documentation"] == f"https://docs.rs/{name}"
    # What crates.io takes.
    assert 1 <= len(package["keywords"]) <= 5
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{,19}", keyword) for keyword in package["keywords"])
    assert set(package["categories"]) <= CATEGORIES
    assert (folder / "README.md").read_text().startswith(f"# {name}\n")
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        assert (folder / licence).read_text() == (ROOT / licence).read_text()
