"""The habits that a reader counts on: short files, proofs beside unsafe code, nothing left open."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LONGEST_FILE = 600
LONGEST_COMMENT = 120
COMMENT = ("//", "* ", "/*")
# Rows of tables and drawings are as long as they must be.
DRAWN = re.compile(r"^//[/!]? *\||[\u2500-\u25ff]|\S {3,}\S")
# The only crates that may hold unsafe code; ARCHITECTURE.md says what for.
UNSAFE_CRATES = {
    "gabion-blocks",
    "gabion-slots",
    "gabion-pile",
    "gabion-image",
    "gabion-python",
    "gabion-c",
    "gabion-bench-allocators",
    "gabion-bench-scenegraph",
}
SHORTEST_PROOF = len("as above")
# What a safe function's unsafe block makes of its caller's pointer without following it.
HARMLESS = {("crates/gabion-blocks/src/copy.rs", "prefetch"): "a hint to the processor, for any address"}
# Helpers that only the file's own tests call, with pointers that may be wrong on purpose.
OF_TESTS = {"tests", "examples"}
NOT_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)'""", re.DOTALL)
SAFE_FN = re.compile(r"(?P<unsafe>\bunsafe\s+(?:extern\s+)?)?\bfn\s+(?P<name>\w+)\s*(?:<[^(]*>)?\s*\(")
RAW_ALIAS = re.compile(r"\btype\s+(\w+)\s*=\s*(?:\*|NonNull<)")
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


def thin_proofs(source: str) -> list[int]:
    """Line numbers of the safety comments that say next to nothing."""
    return [
        number
        for number, line in enumerate(source.splitlines(), 1)
        if "SAFETY:" in line and len(line.partition("SAFETY:")[2].strip(" .")) < SHORTEST_PROOF
    ]


def inside(source: str, opening: int) -> str:
    """What stands between the bracket at this place and the one that closes it."""
    closing = {"(": ")", "{": "}"}[source[opening]]
    depth = 0
    for at in range(opening, len(source)):
        depth += (source[at] == source[opening]) - (source[at] == closing)
        if depth == 0:
            return source[opening + 1 : at]
    return source[opening + 1 :]


def unpromised(source: str) -> list[str]:
    """Names of the safe functions whose unsafe blocks use raw pointers of their caller's, who knows of no duty."""
    source = NOT_CODE.sub(" ", source)
    raw = "|".join([r"\*(?:mut|const)\b", r"\bNonNull<", *(rf"\b{alias}\b" for alias in RAW_ALIAS.findall(source))])
    found = []
    for function in SAFE_FN.finditer(source):
        arguments = inside(source, function.end() - 1)
        after = function.end() + len(arguments)
        body = source.find("{", after)
        if function["unsafe"] or body < 0 or ";" in source[after:body]:
            continue
        # Each name with its type: up to the next name.
        typed = re.findall(r"(\w+)\s*:(?!:)((?:(?!\w+\s*:(?!:)).)*)", arguments, re.DOTALL)
        names = [name for name, kind in typed if re.search(raw, kind) and not re.search(r"\bfn\(", kind)]
        if not names:
            continue
        # An address as a number is no use of a pointer.
        use = re.compile(rf"(?<![.\w])(?:{'|'.join(names)})\b(?! as usize)")
        text = inside(source, body)
        blocks = [inside(text, block.end() - 1) for block in re.finditer(r"\bunsafe\s*\{", text)]
        if any(use.search(block) for block in blocks):
            found.append(function["name"])
    return found


def test_files_are_short() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in tracked(".rs", ".py", ".pyi", ".h")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_unsafe_code_has_its_proof() -> None:
    """Clippy finds the blocks without a proof, wherever it looks; this finds the proofs without content."""
    lints = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["lints"]
    assert lints["clippy"]["undocumented_unsafe_blocks"] == "deny"
    assert lints["rust"]["unsafe_op_in_unsafe_fn"] == "deny"
    for manifest in [*ROOT.glob("crates/*/Cargo.toml"), *ROOT.glob("bench/rust/**/Cargo.toml")]:
        assert tomllib.loads(manifest.read_text())["lints"] == {"workspace": True}, manifest
    thin = {str(path.relative_to(ROOT)): lines for path in tracked(".rs") if (lines := thin_proofs(path.read_text()))}
    assert thin == {}


def test_comments_keep_to_the_width_of_the_code() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked(".rs", ".h", ".hpp")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > LONGEST_COMMENT and line.lstrip().startswith(COMMENT) and not DRAWN.search(line.lstrip())
    ]
    assert not long


def test_who_follows_a_callers_pointer_says_so() -> None:
    """A function that is safe to call cannot count on what its caller holds: it is `unsafe`, or takes a reference."""
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in tracked(".rs")
        if not OF_TESTS.intersection(path.relative_to(ROOT).parts)
        for name in unpromised(path.read_text())
    }
    assert found == HARMLESS.keys()


def test_other_crates_forbid_unsafe_code() -> None:
    roots = [*ROOT.glob("crates/*/src/lib.rs"), *ROOT.glob("bench/rust/**/src/main.rs")]
    roots += ROOT.glob("bench/rust/**/src/lib.rs")
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
    assert thin_proofs("// SAFETY:\n// SAFETY: ok\n// SAFETY: as above.\n// SAFETY: the slot is ours.") == [1, 2]
    body = "{ // SAFETY: callers hold it.\n unsafe { *at } }"
    assert unpromised(f"fn named(at: *const u8) -> u8 {body}") == ["named"]
    assert unpromised(f"pub fn later<T>(&self, more: T, at: Option<NonNull<u8>>) -> u8 {body}") == ["later"]
    assert unpromised(f"type Object = *mut u8;\nfn aliased(at: Object) -> u8 {body}") == ["aliased"]
    assert unpromised(f"unsafe fn told(at: *const u8) -> u8 {body}") == []
    assert unpromised(f"fn borrowed(at: &u8, other: *const u8) -> u8 {body}") == []
    assert unpromised("fn number(at: *const u8) -> usize { unsafe { address(at as usize) } }") == []
    assert unpromised("trait Os { fn map(&self, at: *mut u8); fn id(&self) { unsafe { at() } } }") == []
    assert LEFT_OPEN.search("// TO" + "DO later")
    assert LEFT_OPEN.search("//! Placeholder.")
    assert not LEFT_OPEN.search("a to-do list of placeholders")
    assert MACHINE_PATH.search("see /" + "home/me")
    assert not MACHINE_PATH.search("https://host.org/home/me")
