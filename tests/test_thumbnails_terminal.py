"""`gabion thumbnails` at a terminal, and where it is interrupted."""

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from image_files import gradient
from patience import HANGS

HANGING = (
    "import os, sys, time; from gabion.cli import main; from gabion.cli.thumbnails import work;"
    "work.thumbnail = lambda job, how: os.write(2, b'begun') and time.sleep(3600); sys.exit(main(sys.argv[1:]))"
)


def test_a_second_interrupt_ends_what_hangs(tmp_path: Path) -> None:
    """A read from a server that is gone never ends, and no signal but SIGKILL ended the command then."""
    (tmp_path / "photos").mkdir()
    for number in range(9):
        gradient("RGB", (30, 20)).save(tmp_path / "photos" / f"{number}.png")
    running = subprocess.Popen(
        [sys.executable, "-c", HANGING, "thumbnails", "--jobs", "2", str(tmp_path / "photos"), str(tmp_path / "small")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    assert [running.stderr.read(5) for _ in range(2)] == ["begun"] * 2
    time.sleep(0.2)  # until it waits for both
    running.send_signal(signal.SIGINT)
    assert "stopping when 2 more" in running.stdout.readline()
    running.send_signal(signal.SIGTERM)
    assert running.wait(HANGS) == 128 + signal.SIGTERM
    running.stdout.close()
    running.stderr.close()


def test_a_second_interrupt_leaves_the_terminal_its_cursor(tmp_path: Path) -> None:
    gradient("RGB", (30, 20)).save(tmp_path / "a.png")
    own, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", HANGING, "thumbnails", str(tmp_path / "a.png"), str(tmp_path / "small")],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""

    def shows(text: bytes) -> bool:
        nonlocal seen
        while text not in seen:
            seen += os.read(own, 1 << 16)
        return True

    assert shows(b"\x1b[?25l")
    assert shows(b"begun")
    time.sleep(0.2)  # until it waits for what has begun
    running.send_signal(signal.SIGINT)
    assert shows(b"interrupt once more to stop at once")
    running.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the end of a terminal that nobody has open any more
        shows(b"nothing that is shown")
    assert running.wait(HANGS) == 128 + signal.SIGINT
    assert b"\x1b[?25h" in seen.rpartition(b"\x1b[?25l")[2]
    os.close(own)


def test_a_terminal_is_told_that_pictures_are_looked_for(tmp_path: Path) -> None:
    """In a large folder on a slow disk that takes minutes."""
    for number in range(6):
        gradient("RGB", (30, 20)).save(tmp_path / f"{number}.png")
    program = (
        "import sys, time; from gabion.cli import main; from gabion.cli.thumbnails import plan; sort_in = plan.sort_in;"
        "plan.sort_in = lambda *given: time.sleep(0.3) or sort_in(*given); sys.exit(main(sys.argv[1:]))"
    )
    own, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", program, "thumbnails", "-r", str(tmp_path), str(tmp_path / "small")],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal that nobody has open any more
        while more := os.read(own, 1 << 16):
            seen += more
    assert running.wait(HANGS) == 0
    assert re.search(rb"looking for pictures: 6, [1-6] compared with their thumbnails", seen)
    assert seen.endswith(b" s\r\n")
    os.close(own)
