"""What is done for want of descriptors, or where `/proc` tells nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANGS

BEGIN = """
import errno, os, resource, sys
import gabion, gabion.memory
machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
gabion.Pile().close()
picture = gabion.Image.new("RGB", (20, 20))
"""
USED_UP = """
taken = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
"""


def run(rest: str, *before: str) -> str:
    done = subprocess.run(
        [*before, sys.executable, "-c", BEGIN + rest], check=False, capture_output=True, text=True, timeout=HANGS
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_pile_without_descriptors_has_a_limit() -> None:
    rest = """
usual = gabion.Pile().max_bytes
pile = gabion.Pile()
print(usual <= machine, pile.max_bytes <= usual, gabion.memory.stats().pool_bytes <= machine)
"""
    assert run(USED_UP + rest) == "True True True\n"


def test_a_picture_that_finds_no_descriptor_says_so(tmp_path: Path) -> None:
    rest = f"""
try:
    picture.save({str(tmp_path / "x.png")!r})
except OSError as error:
    print(error.errno == errno.EMFILE)
"""
    assert run(USED_UP + rest) == "True\n"


def test_what_proc_does_not_tell_is_asked_of_the_system() -> None:
    begin = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "sh",
        "-c",
        'mount -t proc -o subset=pid proc /proc && exec "$@"',
        "-",
    ]
    tried = subprocess.run([*begin, "test", "!", "-e", "/proc/meminfo"], check=False, capture_output=True)
    if os.getuid() != 0 or tried.returncode != 0:
        pytest.skip("no /proc of its own to be had here")
    rest = """
print(gabion.Pile().max_bytes <= machine, gabion.memory.stats().pool_bytes <= machine)
try:
    gabion.memory.rent(4 * machine)
except gabion.LimitError as error:
    print(error.limit)
"""
    assert run(rest, *begin) == "True True\nmachine\n"
