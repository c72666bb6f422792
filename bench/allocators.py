"""The subjects of the Rust rows that rent memory: gabion, the C allocators that are built in, and the floor."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path

from harness import Plan, Run

_HOW = "takes a C compiler and make to build; see the features of bench/rust"
# jemalloc as a service runs it, for the rows where time passes without calls.
_BACKGROUND = "jemalloc-background"


def peers(binary: Path, missing: list[str]) -> dict[str, str]:
    """Name to label, with its version, of each C allocator; what is not built in is named in ``missing``."""
    found = json.loads(subprocess.run([binary, "peers"], capture_output=True, text=True, check=True).stdout)
    del found["metrics"]
    missing += [f"{name} ({_HOW})" for name in ("mimalloc", "jemalloc") if name not in found]
    return found


def plan(
    made: Plan,
    case: str,
    command: list[str],
    found: dict[str, str],
    *,
    floor: bool = True,
    groups: bool = False,
    background: bool = False,
    rounds: int | None = None,
) -> None:
    """Add the runs of all subjects in ``case``; ``{}`` in ``command`` stands for the subject."""
    own = {"gabion": "gabion", "gabion-groups": "gabion, in groups"} if groups else {"gabion": "gabion"}
    subjects = {**own, **found}
    if not background:
        subjects.pop(_BACKGROUND, None)
    if floor:
        subjects["floor"] = "floor"
    for name, label in subjects.items():
        words = [name if word == "{}" else word for word in command]
        made.runs.append(Run(case, label, command=words, rounds=rounds))


def python_subjects(missing: list[str]) -> dict[str, str]:
    """Name to label of what Python code takes memory from."""
    found = {"gabion": "gabion", "bytearray": f"bytearray {platform.python_version()}"}
    try:
        found["numpy"] = f"numpy.empty {importlib.metadata.version('numpy')}"
    except importlib.metadata.PackageNotFoundError:
        missing.append("numpy (make bench-setup)")
    return {**found, "floor": "floor"}
