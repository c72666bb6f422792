"""Arrows point down: a crate uses only crates below it, a module only those declared before it.

The picture is in ARCHITECTURE.md. The order of the crates is `LAYERS`; the order inside a crate is
that of the `mod` lines in its `lib.rs`, and inside a module that of its `mod.rs`.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Bottom first. Crates of one layer do not use each other.
LAYERS = [
    {"gabion-blocks"},
    {"gabion-heap", "gabion-image"},
    {"gabion-pile", "gabion-slots"},
    {"gabion-cache"},
    {"gabion-python", "gabion-c", "gabion"},
    {"gabion-bench-allocators"},
    {"gabion-bench", "gabion-bench-scenegraph", "gabion-bench-cache"},
]
RANK = {crate: rank for rank, layer in enumerate(LAYERS) for crate in layer}
# Pictures stand on blocks alone, though the layers of objects are no higher than they are.
NEVER = {("gabion-cache", "gabion-image"), ("gabion-pile", "gabion-image")}

COMMENT_OR_STRING = re.compile(r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'""", re.DOTALL)
MOD_LINE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", re.MULTILINE)
PUB_USE = re.compile(r"\buse\s+(?:self::|crate::)?(\w+)::([^;]+);")
USE_PATH = re.compile(r"\s*((?:\w+\s*::\s*)*)(\w+|\*|\{)")
STEP = re.compile(
    r"\bmod\s+(?P<mod>\w+)\s*\{|(?P<brace>[{}])"
    r"|\b(?P<root>crate|super)::(?P<more>(?:super::)*)(?P<name>\w+|\{|\*)"
)


def bare(source: str) -> str:
    """The source without its comments and strings, which may name anything."""
    return COMMENT_OR_STRING.sub(" ", source)


# --- crates ------------------------------------------------------------------------------------


def crate_faults(crate: str, manifest: str, sources: str) -> list[str]:
    """What `crate` uses although it stands no lower."""
    if crate not in RANK:
        return [f"{crate}: has no layer; give it one in LAYERS and in ARCHITECTURE.md"]
    table = tomllib.loads(manifest)
    tables = [table, *table.get("target", {}).values()]
    kinds = ("dependencies", "dev-dependencies", "build-dependencies")
    used = {name for one in tables for kind in kinds for name in one.get(kind, {})}
    used |= {name.replace("_", "-") for name in re.findall(r"\b(gabion_\w+)::", bare(sources))}
    return [
        f"{crate} uses {other}, which is not below it"
        for other in sorted(used - {crate})
        if other in RANK and (RANK[other] >= RANK[crate] or (crate, other) in NEVER)
    ]


def crates() -> list[Path]:
    return sorted(path.parent for path in [*ROOT.glob("crates/*/Cargo.toml"), *ROOT.glob("bench/rust/**/Cargo.toml")])


@pytest.mark.parametrize("folder", crates(), ids=lambda path: path.name)
def test_crates_use_only_what_is_below(folder: Path) -> None:
    manifest = (folder / "Cargo.toml").read_text()
    sources = "\n".join(path.read_text() for path in folder.rglob("*.rs"))
    assert crate_faults(tomllib.loads(manifest)["package"]["name"], manifest, sources) == []


def test_an_upward_crate_is_found() -> None:
    plain = "[package]\nname = 'gabion-heap'\n[dependencies]\ngabion-blocks.workspace = true\n"
    assert crate_faults("gabion-heap", plain, "use gabion_blocks::Block;") == []
    assert crate_faults("gabion-heap", plain + "gabion-pile.workspace = true\n", "")
    assert crate_faults("gabion-heap", plain + "[dev-dependencies]\ngabion-cache = '*'\n", "")
    assert crate_faults("gabion-heap", plain, "fn f() { gabion_pile::Pile::new(); }")
    assert crate_faults("gabion-heap", plain, "// gabion_pile::Pile stands on this") == []
    assert crate_faults("gabion-cache", "", "use gabion_image::Image;")
    assert crate_faults("gabion-new", "", "")


# --- modules -----------------------------------------------------------------------------------


class Modules:
    """A crate's modules, as {path: source}; the empty path is `lib.rs`."""

    def __init__(self, sources: dict[tuple[str, ...], str]) -> None:
        self.sources = {path: bare(text) for path, text in sources.items()}
        self.order = {path: MOD_LINE.findall(text) for path, text in self.sources.items()}
        # What a map re-exports, by the child that it comes from: `crate::Name` means that child.
        self.origin = {
            path: {
                name: child
                for child, names in PUB_USE.findall(text)
                if child in self.order[path]
                for name in re.findall(r"\w+", names)
            }
            for path, text in self.sources.items()
        }

    @classmethod
    def read(cls, src: Path) -> "Modules":
        sources = {}
        for path in src.rglob("*.rs"):
            parts = path.relative_to(src).with_suffix("").parts
            if parts == ("main",):
                continue
            sources[parts[:-1] if parts[-1] in ("lib", "mod") else parts] = path.read_text()
        return cls(sources)

    def faults(self) -> list[str]:
        found = {
            f"{'::'.join(path)} uses crate::{'::'.join((*common, name))}, declared below it"
            for path in self.sources
            for target in self.references(path)
            for common, name in self.upward(path, target)
        }
        return sorted(found)

    def upward(self, path: tuple[str, ...], target: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
        """Where the paths part: the sibling that `path` uses, if declared after its own."""
        depth = 0
        while depth < min(len(path), len(target)) and path[depth] == target[depth]:
            depth += 1
        if depth == len(path) or depth == len(target):
            return  # a map uses its parts, and a part may name what its map defines
        common, own, name = path[:depth], path[depth], target[depth]
        name = self.origin.get(common, {}).get(name, name)
        order = self.order.get(common, [])
        if own in order and name in order and order.index(name) > order.index(own):
            yield common, name

    def references(self, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """The `crate::…` and `super::…` paths outside tests, from the crate's root."""
        text, nesting = self.sources[path], []
        for step in STEP.finditer(text):
            inner = [name for name in nesting if name]
            if step["mod"] or step["brace"] == "{":
                nesting.append(step["mod"])
            elif step["brace"]:
                nesting and nesting.pop()
            elif "tests" not in (here := [*path, *inner]):
                supers = 1 + step["more"].count("super::")
                base = [] if step["root"] == "crate" else here[: max(0, len(here) - supers)]
                for rest in paths_at(text, step.start("name")):
                    yield (*base, *rest)
                if step["name"] == "{":
                    nesting.append(None)


def paths_at(text: str, start: int) -> Iterator[tuple[str, ...]]:
    """The paths of a use tree: `a::b` of `a::b`, and `a`, `a::b`, `c` of `{a::{self, b}, c}`."""
    found = USE_PATH.match(text, start)
    if found is None:
        return
    prefix = tuple(re.findall(r"\w+", found[1]))
    if found[2] in ("self", "*"):
        yield prefix
    elif found[2] != "{":
        yield (*prefix, found[2])
    else:
        for branch in branches(text, found.end()):
            for rest in paths_at(text, branch):
                yield (*prefix, *rest)


def branches(text: str, start: int) -> Iterator[int]:
    """Where each branch of the braces begins whose inside begins at `start`."""
    depth = 0
    yield start
    for token in re.compile("[{},]").finditer(text, start):
        depth += {"{": 1, "}": -1, ",": 0}[token[0]]
        if depth < 0:
            return
        if depth == 0 and token[0] == ",":
            yield token.end()


@pytest.mark.parametrize("folder", [f for f in crates() if (f / "src/lib.rs").exists()], ids=lambda path: path.name)
def test_modules_use_only_what_is_declared_before_them(folder: Path) -> None:
    assert Modules.read(folder / "src").faults() == []


LIB = """
pub mod low;
mod mid;
pub(crate) mod high;
pub use low::{Low, Lower};
pub use high::High;
"""


@pytest.mark.parametrize(
    ("mid", "upward"),
    [
        ("use crate::low::Low;", False),
        ("use crate::Low;", False),
        ("use crate::{Low, low::{self, Lower}};", False),
        ("use super::low::Low;", False),
        ("// use crate::high::High;", False),
        ('const A: &str = "crate::high";', False),
        ("mod tests { use super::*; use crate::high::High; }", False),
        ("mod part { use super::super::low::Low; }", False),
        ("use crate::high::High;", True),
        ("use crate::High;", True),
        ("use crate::{Low, high::High};", True),
        ("use crate::{\n    low::{Low, Lower},\n    High,\n};", True),
        ("use super::high::High;", True),
        ("fn f() { crate::high::go(); }", True),
        ("mod part { use super::super::high::High; }", True),
    ],
)
def test_an_upward_module_is_found(mid: str, upward: bool) -> None:
    faults = Modules({(): LIB, ("low",): "", ("mid",): mid, ("high",): ""}).faults()
    assert bool(faults) is upward, faults


def test_upward_arrows_inside_a_folder_are_found() -> None:
    room = {
        (): "mod room;",
        ("room",): "mod a;\nmod b;\npub use b::Thing;",
        ("room", "b"): "use super::a::X;",
    }
    assert Modules({**room, ("room", "a"): ""}).faults() == []
    assert Modules({**room, ("room", "a"): "use super::b::Thing;"}).faults()
    assert Modules({**room, ("room", "a"): "use super::Thing;"}).faults()
    assert Modules({**room, ("room", "a"): "use crate::room::b::Thing;"}).faults()


# --- Python ------------------------------------------------------------------------------------


def test_the_package_does_not_need_its_command_line() -> None:
    package = ROOT / "python/gabion"
    users = [
        path.relative_to(ROOT)
        for path in package.rglob("*.py")
        if "cli" not in path.parts
        and path.name != "__main__.py"
        and re.search(
            r"^\s*(from|import) (gabion|\.)*\.?cli\b|^\s*(from|import) rich\b",
            path.read_text(),
            re.M,
        )
    ]
    assert users == []


def test_the_tour_is_layered_as_its_map_says() -> None:
    tour = ROOT / "python/gabion/cli/tour"
    order = re.findall(r"^\| `(\w+)` \|", (tour / "__init__.py").read_text(), re.MULTILINE)
    assert sorted(order) == sorted(path.stem for path in tour.glob("*.py") if path.stem != "__init__")
    for place, module in enumerate(order):
        text = (tour / f"{module}.py").read_text()
        used = set(re.findall(r"^from gabion\.cli\.tour\.(\w+) import", text, re.MULTILINE))
        for names in re.findall(r"^from gabion\.cli\.tour import (.+)$", text, re.MULTILINE):
            used |= set(re.findall(r"\w+", names))
        assert used <= set(order[:place]), f"{module} uses {sorted(used - set(order[:place]))}"
