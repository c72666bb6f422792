"""How long the tests wait: a busy machine is ten times slower, and may stand still for half a minute."""

import time
from collections.abc import Callable

# Seconds after which a call, a thread or a program hangs. None needs nearly as long, and a test may take longer.
HANGS = 240.0


def eventually(holds: Callable[[], object], seconds: float = 60) -> bool:
    """Whether it comes to hold."""
    # Counted by steps: by the clock, time is over for a process that was stopped, before anybody could do anything.
    for _ in range(int(seconds * 100)):
        if holds():
            return True
        time.sleep(0.01)
    return bool(holds())
