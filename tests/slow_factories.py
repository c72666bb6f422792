"""Factories under asyncio that end when a test says so."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from many_threads import within
from patience import HANGS


class Slow:
    """A factory that ends when it may; ``how`` makes the value then."""

    def __init__(self, how: Callable[[], Any] = lambda: "made") -> None:
        self.how, self.calls, self.ended = how, 0, 0
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> Any:
        self.calls += 1
        self.begun.set()
        try:
            await self.go.wait()
            return self.how()
        finally:
            # To clean up takes a step, too.
            await asyncio.sleep(0)
            self.ended += 1


def played(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return within(lambda: asyncio.run(asyncio.wait_for(main(), HANGS)))


async def settled(steps: int = 10) -> None:
    for _ in range(steps):
        await asyncio.sleep(0)
