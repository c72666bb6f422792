"""How the tests run code in other processes: forked ones, and those of `multiprocessing`."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import HANGS

METHODS = ("fork", "spawn", "forkserver")


def in_child(body: Callable[[], Any], timeout: float = HANGS) -> None:
    """Runs `body` in a forked child; fails when it raises, crashes or hangs there."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        except BaseException as error:
            os.write(write_end, repr(error).encode()[:4000])
        finally:
            os._exit(status)
    os.close(write_end)
    status = status_of(child, timeout)
    with os.fdopen(read_end) as text:
        said = text.read()
    assert status == 0, f"the child ended with {status}: {said}"


def status_of(child: int, timeout: float = HANGS) -> int:
    """Waits for a forked child's end; fails when it hangs."""
    end = time.monotonic() + timeout
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, 9)
            os.waitpid(child, 0)
            raise AssertionError("the child hangs")
        time.sleep(0.002)
    return done[1]


def run_as_program(source: str, folder: Path, method: str) -> None:
    """Runs a program that gets a start method of `multiprocessing` and prints "done", and nothing else, in the end."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    program = folder / "processes.py"
    program.write_text(source)
    done = subprocess.run(
        [sys.executable, str(program), method], check=False, capture_output=True, text=True, timeout=HANGS
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
