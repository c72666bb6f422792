"""What the documentation shows, runs; what it links to, exists."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md"), *ROOT.glob("crates/*/*.md")])
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if EXAMPLE.search(p.read_text())], ids=name)
def test_examples_run(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A page's examples are one program, read from top to bottom, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    # Examples keep their line numbers, so that a traceback names the line of the page.
    program = [""] * (text.count("\n") + 1)
    for found in EXAMPLE.finditer(text):
        first = text.count("\n", 0, found.start(1))
        lines = found[1].splitlines()
        program[first : first + len(lines)] = lines
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)  # a stored class is found by its module and name
    exec(compile("\n".join(program), str(page), "exec"), module.__dict__)


def test_examples_of_the_first_page_stand_alone() -> None:
    """Who copies one needs no other for its imports."""
    for example in EXAMPLE.findall((ROOT / "README.md").read_text()):
        assert re.search(r"^import gabion$", example, re.MULTILINE), example


def test_rust_examples_are_compiled() -> None:
    """A crate takes each page with such an example into its own documentation, whose examples cargo compiles."""
    sources = "".join(source.read_text() for source in ROOT.glob("crates/*/src/lib.rs"))
    shown = {name(page) for page in PAGES if "```rust" in page.read_text()}
    assert shown == {path.lstrip("./") for path in re.findall(r'include_str!\("([^"]+[.]md)"\)', sources)} > set()


@pytest.mark.parametrize("page", [page for page in PAGES if "```rust" in page.read_text()], ids=name)
def test_rust_examples_use_the_crates_that_the_first_page_takes(page: Path) -> None:
    """Cargo compiles them where more crates are at hand."""
    dependencies = re.search(
        r"^\[dependencies\]\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert dependencies is not None
    taken = {crate.replace("-", "_") for crate in re.findall(r"^([\w-]+) =", dependencies[1], re.MULTILINE)}
    assert {"gabion", "gabion_image"} <= taken
    assert set(re.findall(r"\b(gabion\w*)::", page.read_text())) <= taken


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    links = [link[1] for link in LINK.finditer(page.read_text()) if not re.match(r"https?:|mailto:", link[1])]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_make_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {
        command for page in PAGES for command in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert {"tour", "test"} <= shown <= targets


def test_licences_are_whole() -> None:
    assert "Permission is hereby granted" in (ROOT / "LICENSE-MIT").read_text()
    apache = (ROOT / "LICENSE-APACHE").read_text()
    assert "TERMS AND CONDITIONS FOR USE" in apache
    assert "END OF TERMS AND CONDITIONS" in apache
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        assert "The gabion developers" in (ROOT / licence).read_text()
