#!/usr/bin/env python3
"""Writes THIRD-PARTY-LICENSES.txt: what is compiled into the extension and into the C library, and on which terms.

Usage: python3 scripts/third_party.py [--check]

`make licences` runs it, after each change of Cargo.lock. With --check nothing is written: the exit code is 1, with the
difference, where the file is not what would be written. It needs cargo and the crates' sources, which cargo fetches
where they are missing, as for a build. What comes out depends on Cargo.lock and these sources alone.

What it does not know ends it with a sentence: a licence, a crate without the text of one, C code inside a crate. For
these, add a line to PHRASES, a text to scripts/licences, or an entry to NATIVE. Texts are taken as they are; who
changes a dependency reads what is new in them.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "THIRD-PARTY-LICENSES.txt"
OWN_TEXTS = ROOT / "scripts/licences"

# What others get from us in compiled form, and for which systems.
SHIPPED = ("gabion-python", "gabion-c")
TARGETS = [f"{arch}-unknown-linux-{libc}" for arch in ("x86_64", "aarch64") for libc in ("gnu", "musl")]

# By what a text is known as that of a licence. Of licences that a crate offers, the first of these is taken.
PHRASES = {
    "MIT": r"Permission is hereby granted, free of charge, to any person obtaining a copy of this software",
    "BSD-2-Clause": r"Redistribution and use in source and binary forms(?!.*Neither the name)",
    "BSD-3-Clause": r"Redistribution and use in source and binary forms.*Neither the name",
    "Zlib": r"provided 'as-is'.*must not be misrepresented as being the original software",
    "IJG": r"Permission is NOT granted for the use of any IJG author's name",
    "Apache-2.0": r"Apache License Version 2\.0, January 2004",
}
LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|UNLICENSE)", re.IGNORECASE)
# These go along whichever licence is chosen.
NOTICE_FILE = re.compile(r"(NOTICE|COPYRIGHT|PATENTS)", re.IGNORECASE)
FOREIGN_CODE = (".c", ".cc", ".cpp", ".s", ".asm")


class Native(NamedTuple):
    """C code that a crate brings along, and that its build script compiles."""

    name: str
    licence: str
    files: tuple[str, ...]  # their texts, or sources that begin with them, in the crate
    own: tuple[str, ...] = ()  # texts of ours, where the crate has none


NATIVE = {
    "mozjpeg-sys": Native(
        "mozjpeg, with libjpeg-turbo and the software of the Independent JPEG Group",
        "IJG AND BSD-3-Clause AND Zlib",
        # The crate's LICENSE has only the first words of the IJG's, and none of Zlib's, which is that of the SIMD code.
        (
            "LICENSE",
            "vendor/simd/nasm/jsimdext.inc",
            "vendor/simd/arm/aarch64/jsimd_neon.S",
            "vendor/simd/arm/jcgray-neon.c",
        ),
        own=("IJG",),
    ),
    "libwebp-sys": Native("libwebp", "BSD-3-Clause", ("vendor/COPYING", "vendor/PATENTS")),
}

HEAD = """\
Software of others in gabion
============================

This is compiled into gabion's extension for Python, into its C library, or into
both. Each crate keeps its own licence; where it offers several, the list says
which one gabion uses it under. gabion itself is licensed under MIT or
Apache-2.0, at your choice (LICENSE-MIT, LICENSE-APACHE).

This software is based in part on the work of the Independent JPEG Group.

scripts/third_party.py writes this file from Cargo.lock and the crates' sources.
"""
STANDARD_LIBRARY = """\
The Rust standard library
-------------------------
It is that of the compiler by which gabion was built. Copyright The Rust Project
Developers (see https://thanks.rust-lang.org), MIT OR Apache-2.0; used under MIT.
Its tables of characters are under Unicode-3.0. The notices of all that it is
made of come with each compiler, in share/doc/rust/COPYRIGHT-library.html.
"""


class Unknown(Exception):
    """Something that a person has to look at."""


class Crate(NamedTuple):
    """A crate that is linked in."""

    name: str
    version: str
    licence: str
    folder: Path
    authors: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Text(NamedTuple):
    """A licence or a notice, and the file that has it."""

    file: str
    text: str


def cargo(*arguments: str) -> str:
    """What a cargo command prints about this workspace."""
    done = subprocess.run(["cargo", *arguments, "--locked"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unknown(done.stderr.strip())
    return done.stdout


def linked() -> list[Crate]:
    """The crates of others that are compiled in: no tests, no build scripts, no macros."""
    what = [word for name in SHIPPED for word in ("-p", name)]
    where = [word for target in TARGETS for word in ("--target", target)]
    tree = cargo("tree", *what, *where, "-e", "normal,no-proc-macro", "--prefix", "none", "--no-dedupe")
    names = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    platforms = [word for target in TARGETS for word in ("--filter-platform", target)]
    packages: list[dict[str, Any]] = json.loads(cargo("metadata", "--format-version", "1", *platforms))["packages"]
    crates = [
        Crate(
            package["name"],
            package["version"],
            package["license"] or "",
            Path(package["manifest_path"]).parent,
            tuple(package["authors"]),
        )
        for package in packages
        if package["source"] and (package["name"], f"v{package['version']}") in names
    ]
    return sorted(crates, key=lambda crate: (crate.name, crate.version))


def chosen(expression: str) -> list[str]:
    """The licences that an SPDX expression asks for, by our choice where it leaves one."""
    words = re.findall(r"[()/]|[^\s()/]+", expression)

    def either() -> list[str]:
        offers = [both()]
        while words and words[0] in ("OR", "/"):
            words.pop(0)
            offers.append(both())
        known = [offer for offer in offers if all(one in PHRASES for one in offer)]
        if not known:
            raise Unknown(f"{expression!r}: none of these licences is in PHRASES")
        order = list(PHRASES)
        return min(known, key=lambda offer: [order.index(one) for one in offer])

    def both() -> list[str]:
        needed = single()
        while words and words[0] == "AND":
            words.pop(0)
            needed += [one for one in single() if one not in needed]
        return needed

    def single() -> list[str]:
        word = words.pop(0) if words else ""
        if word != "(":
            if words and words[0] == "WITH":
                word += f" WITH {words[1]}"
                del words[:2]
            return [word]
        inside = either()
        if not words or words.pop(0) != ")":
            raise Unknown(f"{expression!r} is no licence expression")
        return inside

    result = either()
    if words:
        raise Unknown(f"{expression!r} is no licence expression")
    return result


def is_of(licence: str, text: str) -> bool:
    """Whether this is that licence's text."""
    return re.search(PHRASES[licence], " ".join(text.split())) is not None


def own_text(licence: str, holders: str = "") -> Text:
    """The text of a licence that a crate names and does not have."""
    text = (OWN_TEXTS / f"{licence}.txt").read_text(encoding="utf-8")
    return Text(f"the text of {licence}", text.replace("@HOLDERS@", holders))


def crate_texts(crate: Crate) -> list[Text]:
    """The texts that go along with a crate: those of the chosen licences, and its notices."""
    files = sorted(path for path in crate.folder.iterdir() if path.is_file())
    licences = [path for path in files if LICENCE_FILE.match(path.name)]
    texts = {path.name: path.read_text(encoding="utf-8") for path in licences}
    needed = chosen(crate.licence)
    # What leaves no choice may have all its licences in one file, or only the first words of one.
    free = re.search(r"\bOR\b|/", crate.licence) is not None
    taken = {name: text for name, text in texts.items() if not free or any(is_of(one, text) for one in needed)}
    found = [Text(name, text) for name, text in taken.items()]
    if native := NATIVE.get(crate.name):
        found += native_texts(crate, native)
    for one in needed:
        if not any(is_of(one, text.text) for text in found):
            if not (OWN_TEXTS / f"{one}.txt").exists():
                raise Unknown(f"{crate}: has no text of {one}; add one to {OWN_TEXTS.relative_to(ROOT)}")
            found.append(own_text(one, ", ".join(crate.authors) or f"the authors of {crate.name}"))
    notices = [path for path in files if NOTICE_FILE.match(path.name)]
    return found + [Text(path.name, path.read_text(encoding="utf-8")) for path in notices]


def heading(source: str) -> str:
    """The licence in the comment that a source file begins with."""
    lines = []
    for line in source.splitlines():
        if line.strip() and not re.match(r"\s*([;*#]|/[*/])", line):
            break
        lines.append(re.sub(r"^\s*([;#*]+|/[*/]+)/?[ ]?", "", line).rstrip())
    text = "\n".join(lines)
    licence = re.search(r"^Copyright.*source distribution\.$", text, re.DOTALL | re.MULTILINE)
    if not licence:
        raise Unknown("no licence in the first comment")
    return licence[0]


def native_texts(crate: Crate, native: Native) -> list[Text]:
    """The texts that go along with a crate's C code."""
    found = []
    for name in native.files:
        path = crate.folder / name
        if not path.exists():
            raise Unknown(f"{crate}: {name} is gone; NATIVE names it")
        text = path.read_text(encoding="utf-8")
        try:
            found.append(Text(name, heading(text) if path.suffix in (*FOREIGN_CODE, ".S", ".inc") else text))
        except Unknown as error:
            raise Unknown(f"{crate}: {name}: {error}") from None
    found += [own_text(one) for one in native.own]
    for one in chosen(native.licence):
        if not any(is_of(one, text.text) for text in found):
            raise Unknown(f"{crate}: {native.name}: no text of {one}")
    return found


def has_foreign_code(crate: Crate) -> bool:
    """Whether there is code in other languages that a build script may compile."""
    return any(path.suffix.lower() in FOREIGN_CODE for path in crate.folder.rglob("*"))


def written() -> str:
    """The whole file."""
    crates = linked()
    wrong = {crate.name for crate in crates if has_foreign_code(crate)} ^ NATIVE.keys() & {one.name for one in crates}
    if wrong:
        raise Unknown(f"NATIVE and the crates with C code differ: {', '.join(sorted(wrong))}")
    lines = [HEAD, "Crates", "------"]
    texts: list[tuple[str, Text]] = []
    for crate in crates:
        needed = " AND ".join(chosen(crate.licence))
        used = "" if needed == crate.licence else f"; used under {needed}"
        lines.append(f"{crate}: {crate.licence}{used}")
        texts += [(str(crate), text) for text in crate_texts(crate)]
    lines += ["", "C code in crates", "----------------"]
    for crate in crates:
        if native := NATIVE.get(crate.name):
            lines.append(f"{native.name}, in {crate}: {native.licence}")
    standard = "the Rust standard library"
    texts += [(standard, own_text("MIT", "The Rust Project Developers")), (standard, own_text("Unicode-3.0"))]
    return "\n".join([*lines, "", STANDARD_LIBRARY, *sections(texts)])


def sections(texts: list[tuple[str, Text]]) -> Iterator[str]:
    """Each text once, below the names of what it is for."""
    whose: dict[str, list[tuple[str, Text]]] = {}
    for owner, text in texts:
        whose.setdefault(" ".join(text.text.split()), []).append((owner, text))
    for same in whose.values():
        owners = list(dict.fromkeys(owner for owner, _ in same))
        first = same[0][1]
        yield "=" * 80
        yield f"{', '.join(owners)} ({first.file})"
        yield ""
        yield "\n".join(line.rstrip() for line in first.text.strip("\n").splitlines())
        yield ""


def main(arguments: list[str] | None = None) -> int:
    """Write the file or compare it, and say what is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the file is not up to date")
    check = parser.parse_args(arguments).check
    try:
        new = written()
    except Unknown as error:
        print(f"third_party: {error}", file=sys.stderr)
        return 2
    old = OUTPUT.read_text(encoding="utf-8") if OUTPUT.exists() else ""
    if not check:
        OUTPUT.write_text(new, encoding="utf-8")
    elif old != new:
        print(f"third_party: {OUTPUT.name} is not what Cargo.lock asks for: make licences", file=sys.stderr)
        sys.stderr.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), "is", "should be", n=0))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
