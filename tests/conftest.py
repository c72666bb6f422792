"""Fixtures that the tests share."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from patience import HANGS
from pool_books import check_books

import gabion

LONG = os.environ.get("GABION_LONG") == "1"

# Whoever starts tests in the background may have interrupts ignored, and all programs that tests start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _unseen() -> None:
    """Takes what was there before a module's tests out of the collector's sight: modules, thousands of tests, reports.
    Otherwise each `gc.collect()` walks 100,000 objects for 75 ms, twice in every test that asks for `balance`."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def pile() -> Iterator[gabion.Pile]:
    """A pile whose structure is checked once more when the test is over."""
    with gabion.Pile() as pile:
        yield pile
        if not pile.closed:
            pile.validate()


@pytest.fixture
def balance() -> Iterator[None]:
    """Fails when a test leaves rented memory behind, or the pool's books wrong."""
    gc.collect()
    before = gabion.memory.stats().live
    yield
    gc.collect()
    assert gabion.memory.stats().live == before
    check_books()


@pytest.fixture
def script(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Runs a program in an interpreter of its own, where a crash is an exit status; returns what it printed."""

    def run(source: str, *options: str, timeout: float = HANGS, silent: bool = True) -> str:
        command = [sys.executable, "-X", "faulthandler", *options, "-c", textwrap.dedent(source)]
        paths = [str(request.path.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout, env=environment)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        if silent:
            assert done.stderr == ""
        return done.stdout

    return run
