"""How the tests run many threads at once."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from model import LONG
from patience import HANGS

SECONDS = 30.0 if LONG else 0.8
LOCKED = getattr(sys, "_is_gil_enabled", lambda: True)()


def run(*bodies: Callable[[], None]) -> None:
    """Runs each body in a thread of its own; raises what one of them raised."""
    errors: list[BaseException] = []
    ready = threading.Barrier(len(bodies))

    def guarded(body: Callable[[], None]) -> None:
        try:
            ready.wait()
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        wait_for(threads, errors)
    finally:
        sys.setswitchinterval(old)
    if errors:
        raise errors[0]


def wait_for(threads: list[threading.Thread], errors: list[BaseException]) -> None:
    """Waits until all have ended. Others may wait for ever for one that raised: then that is what went wrong."""
    # Second by second: to a process that was stopped for a minute, one long wait looks like a thread that hangs.
    for _ in range(int(SECONDS * 10 + HANGS)):
        for thread in threads:
            thread.join(1 / len(threads))
        alive = any(thread.is_alive() for thread in threads)
        if not alive:
            return
        if errors:
            for thread in threads:
                thread.join(5)
            raise errors[0]
    raise AssertionError("a thread hangs")


def until(seconds: float) -> Callable[[], bool]:
    """Whether to go on. Between two questions little time counts: who stood still for long has done nothing yet."""
    left, asked = seconds, time.monotonic()

    def more() -> bool:
        nonlocal left, asked
        now = time.monotonic()
        left, asked = left - min(now - asked, 0.05), now
        return left > 0

    return more


def within(body: Callable[[], Any]) -> Any:
    """Runs a body in a thread; fails when it hangs."""
    found: list[Any] = []

    def guarded() -> None:
        try:
            found.append(body())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(SECONDS * 10 + HANGS)
    assert not thread.is_alive(), "it waits for ever"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]
