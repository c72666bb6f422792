"""The habits that a reader counts on: short files, proofs beside unsafe code, nothing left open."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONGEST_FILE = 600
# The only crates that may hold unsafe code; ARCHITECTURE.md says what for.
UNSAFE_CRATES = {"gabion-blocks", "gabion-pile", "gabion-python", "gabion-c"}
UNSAFE = re.compile(r"\bunsafe\s*(?:\{|impl\b)")
PROOF = re.compile(r"SAFETY: \S.{7,}")
# The brackets keep these patterns from finding themselves.
LEFT_OPEN = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b|\btodo!\(|\bunimplemented!\(|^\W*[Pp]laceholder\W*$")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:home|root|Users)/\w")
DRAWERS = {"utils", "util", "common", "helpers", "misc"}


def tracked(*endings: str) -> list[Path]:
    """The project's text files, whether or not they are committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.suffix in endings and path.is_file()]


def bare_unsafe(source: str) -> list[int]:
    """Line numbers of the unsafe blocks whose comment right above is not a proof."""
    lines, found = source.splitlines(), []
    for number, line in enumerate(lines):
        if not UNSAFE.search(line.split("//")[0]):
            continue
        above = number
        while above and re.match(r"\s*(//|#\[|let\b[^;]*=\s*$|[\w.&*]+\s*=\s*$|return\s*$)", lines[above - 1]):
            above -= 1
        if not PROOF.search("\n".join(lines[above : number + 1])):
            found.append(number + 1)
    return found


def test_files_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in tracked(".rs", ".py", ".pyi", ".h")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_unsafe_code_has_its_proof() -> None:
    bare = {str(path.relative_to(ROOT)): lines for path in tracked(".rs") if (lines := bare_unsafe(path.read_text()))}
    assert bare == {}


def test_other_crates_forbid_unsafe_code() -> None:
    roots = [*ROOT.glob("crates/*/src/lib.rs"), *ROOT.glob("bench/rust/src/main.rs")]
    allowing = {
        tomllib.loads((path.parents[1] / "Cargo.toml").read_text())["package"]["name"]
        for path in roots
        if "#![forbid(unsafe_code)]" not in path.read_text()
    }
    assert allowing <= UNSAFE_CRATES


def test_nothing_is_left_open() -> None:
    endings = (".rs", ".py", ".pyi", ".h", ".c", ".md", ".toml", ".sh")
    marks = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in tracked(*endings)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LEFT_OPEN.search(line) or MACHINE_PATH.search(line)
    ]
    assert marks == []


def test_there_is_no_drawer_of_unrelated_things() -> None:
    assert [p for p in tracked(".rs", ".py") if {p.stem, *p.relative_to(ROOT).parts[:-1]} & DRAWERS] == []


def test_these_checks_can_fail() -> None:
    assert bare_unsafe("fn f() {\n    unsafe { g() }\n}") == [2]
    assert bare_unsafe("unsafe impl Send for A {}") == [1]
    assert bare_unsafe("// SAFETY: ok\nunsafe { g() }") == [2]
    assert bare_unsafe("// SAFETY: the slot was claimed above.\nunsafe { g() }") == []
    assert bare_unsafe("// SAFETY: the slot was claimed above,\n// alone.\nlet a =\n    unsafe { g() };") == []
    assert LEFT_OPEN.search("// TO" + "DO later")
    assert LEFT_OPEN.search("//! Placeholder.")
    assert not LEFT_OPEN.search("a to-do list of placeholders")
    assert MACHINE_PATH.search("see /" + "home/me")
    assert not MACHINE_PATH.search("https://host.org/home/me")
