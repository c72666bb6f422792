"""Builds what a benchmark measures: gabion in release mode for one interpreter, and the Rust rows' binary.

The wheel is unpacked beside the build (never into the caller's environment) and runs find it through ``PYTHONPATH``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("Cargo.toml", "Cargo.lock", "pyproject.toml", "crates", "python", "bench/rust")


class BuildFailed(Exception):
    """A build ended with an error; its message ends with the compiler's."""


def target_folder() -> Path:
    """Where cargo builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def rust_binary() -> Path:
    """Build ``gabion-bench`` and return its path. Raises ``BuildFailed``.

    Where the C allocators cannot be built, it is built without them, and the benchmarks name them as missing.
    """
    command = ["cargo", "build", "--release", "--quiet", "-p", "gabion-bench"]
    try:
        _call([*command, "--features", "peers"])
    except BuildFailed as error:
        print(f"building without mimalloc and jemalloc: {error}", file=sys.stderr)
        _call(command)
    return target_folder() / "release" / "gabion-bench"


def cache_binary(missing: list[str]) -> Path:
    """Build ``gabion-bench-cache`` with its peers and return its path. Raises ``BuildFailed``."""
    command = ["cargo", "build", "--release", "--quiet", "-p", "gabion-bench-cache"]
    try:
        _call([*command, "--features", "peers"])
    except BuildFailed as error:
        print(f"building without moka and quick_cache: {error}", file=sys.stderr)
        missing.append("moka, quick_cache (see the features of bench/rust/cache)")
        _call(command)
    return target_folder() / "release" / "gabion-bench-cache"


# The allocators that `gabion-bench-scenegraph` can be built with, and what each takes.
_SCENEGRAPH_PEERS = {
    "mimalloc2": "a C compiler",
    "mimalloc3": "a C compiler",
    "jemalloc": "a C compiler and make",
    "snmalloc": "a C++20 compiler and CMake",
}


def scenegraph_binaries(missing: list[str]) -> dict[str, Path]:
    """Build ``gabion-bench-scenegraph`` by itself (``""``) and once with each peer. Raises ``BuildFailed``.

    A peer that cannot be built is named in ``missing``. Each has a binary of its own, because two versions of one
    allocator export the same names.
    """
    folder = target_folder() / "bench" / "scenegraph"
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for peer in ("", *_SCENEGRAPH_PEERS):
        command = ["cargo", "build", "--release", "--quiet", "-p", "gabion-bench-scenegraph"]
        if peer:
            # With line tables, as all is built here, snmalloc's build script takes a release for a debug build.
            command += ["--features", peer, "--config", "profile.release.package.snmalloc-sys.debug=false"]
        try:
            _call(command)
        except BuildFailed as error:
            if not peer:
                raise
            print(f"building without {peer}: {error}", file=sys.stderr)
            missing.append(f"{peer} (takes {_SCENEGRAPH_PEERS[peer]} to build; see bench/rust/scenegraph)")
            continue
        found[peer] = folder / (peer or "none")
        shutil.copy2(target_folder() / "release" / "gabion-bench-scenegraph", found[peer])
    return found


def scenegraph_cpp(missing: list[str]) -> dict[str, Path]:
    """Build the C++ runs on gabion's ``"static"`` and its ``"shared"`` library; nothing where there is no compiler.

    Raises ``BuildFailed``.
    """
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        missing.append("the C++ rows (take a C++17 compiler; CXX names it)")
        return {}
    folder = target_folder().resolve() / "bench" / "scenegraph-cpp"
    installed = folder / "installed"
    library = installed / "lib"
    _call([str(ROOT / "scripts" / "install-c"), str(installed)])
    source = str(ROOT / "bench" / "cpp" / "scenegraph.cpp")
    command = [compiler, "-std=c++17", "-O3", "-DNDEBUG", f"-I{installed / 'include'}", source]
    links = {
        "static": [str(library / "libgabion.a"), "-lpthread", "-ldl", "-lm"],
        "shared": [f"-L{library}", "-lgabion", f"-Wl,-rpath,{library}"],
    }
    for link, words in links.items():
        _call([*command, *words, "-o", str(folder / link)])
    return {link: folder / link for link in links}


def malloc_counter(missing: list[str]) -> str | None:
    """Build the library that counts calls of malloc when it is preloaded; None where there is no C compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        missing.append("counts of allocations (take a C compiler; CC names it)")
        return None
    library = target_folder().resolve() / "bench" / "malloc_counter.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / "tests" / "malloc_counter.c"
    _call([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)])
    return str(library)


def site_for(python: str) -> Path:
    """A folder with gabion built for ``python``, made again only when a source has changed. Raises ``BuildFailed``."""
    folder = target_folder() / "bench" / _tag_of(python)
    site, stamp = folder / "site", folder / "stamp"
    wanted = _fingerprint()
    if site.is_dir() and stamp.is_file() and stamp.read_text() == wanted:
        return site
    wheels = folder / "wheels"
    for old in (site, wheels):
        shutil.rmtree(old, ignore_errors=True)
    print(f"building gabion for {python} ...", file=sys.stderr)
    _call(
        [
            *_maturin(),
            "build",
            "--release",
            "-q",
            "-i",
            python,
            "-o",
            str(wheels),
            "--target-dir",
            str(folder / "cargo"),
        ]
    )
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    stamp.write_text(wanted)
    return site


def has_gabion(python: str) -> bool:
    """Whether ``python`` can import gabion as it is."""
    return subprocess.run([python, "-c", "import gabion; gabion.Pile"], capture_output=True, cwd="/").returncode == 0


def _maturin() -> list[str]:
    beside = Path(sys.executable).with_name("maturin")
    found = str(beside) if beside.exists() else shutil.which("maturin")
    if not found:
        raise BuildFailed("maturin is missing: run `make bench-setup`, or measure an installed gabion with --installed")
    return [found]


def _tag_of(python: str) -> str:
    code = "import sysconfig; print(sysconfig.get_config_var('SOABI'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _fingerprint() -> str:
    # What was built without NASM is another build.
    digest = hashlib.sha256(str(shutil.which("nasm", path=_path())).encode())
    for name in SOURCES:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and path.suffix not in (".so", ".pyc"):
                seen = path.stat()
                digest.update(f"{path.relative_to(ROOT)} {seen.st_size} {seen.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _path() -> str:
    """Where a build finds its tools: NASM, for JPEG, may lie beside this interpreter, as scripts/nasm puts it."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), sysconfig.get_path("scripts")])


def _call(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PATH": _path()})
    if done.returncode != 0:
        raise BuildFailed(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr).strip()[-4000:]}")
