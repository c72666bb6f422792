"""A factory in a task of its own, under asyncio, and its first caller, who waits for it as the others do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from gabion._flights import MISSING, Flight

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task


class Raised:
    """What was raised in a factory's task, for the first caller to raise in its own."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def loop_of_task() -> AbstractEventLoop | None:
    """Asyncio's event loop, if this code runs in a task of it."""
    asyncio = sys.modules.get("asyncio")
    loop: AbstractEventLoop | None = asyncio._get_running_loop() if asyncio else None
    return loop if asyncio and loop and asyncio.current_task(loop) is not None else None


def begin_task(
    loop: AbstractEventLoop, flight: Flight, making: Coroutine[Any, Any, Any], leave: Callable[[object], None]
) -> Task[Any]:
    """Run what makes the value, and ends the flight, in a task, with a copy of this one's context.

    ``leave`` ends the flight of a task that is cancelled before its first step.
    """
    flight.attended = True
    task = loop.create_task(making)
    # A loop may have tasks that take their first step at once.
    if not task.done():
        # Held by its flight: a loop does not hold what waits.
        flight.task = task
        # One that lies in a loop that was closed is told of by the tasks that wait for it.
        with suppress(AttributeError):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.add_done_callback(partial(_on_task_done, flight, leave))
    return task


def _on_task_done(flight: Flight, leave: Callable[[object], None], task: Task[Any]) -> None:
    leave(MISSING)
    flight.task = None
    if not task.cancelled():
        # What ends the whole program was raised by the loop itself: nobody need retrieve it.
        task.exception()
    flight.wake_first()


def _ends_program(made: object) -> bool:
    """Whether what a factory's task ended with is meant to end more than that."""
    return isinstance(made, Raised) and not isinstance(made.error, Exception)


async def attend(flight: Flight, task: Task[Any]) -> Any:
    """Wait, as the first caller, for the factory's task, and return or raise what it does.

    A first caller that is cancelled leaves it to the others, if there are any. If not, it ends when the factory has:
    as that does, or cancelled, where the factory ended before it heard of it.
    """
    from asyncio import CancelledError

    loop, made = task.get_loop(), None
    cancelled: tuple[Any, ...] | None = None
    try:
        while not task.done():
            flight.woken = loop.create_future()
            try:
                await flight.woken
            except CancelledError as error:
                if task.done():
                    made = None if task.cancelled() else task.result()
                    if isinstance(made, Raised) and _ends_program(made):
                        raise made.error from None
                    raise
                flight.attended = False
                if flight.waiters:
                    # Whose factory this one was begun in does not wait for it any more.
                    flight.outer = None
                    raise
                cancelled = error.args
                flight.cancel(*cancelled[:1])
            except BaseException:
                # Thrown away: nothing can be awaited.
                flight.attended = False
                flight.abandon()
                raise
            finally:
                flight.woken = None
        made = task.result()
        if cancelled is not None and flight.cancel_pending and not _ends_program(made):
            raise CancelledError(*cancelled)
        if isinstance(made, Raised):
            raise made.error
        return made
    finally:
        # An error's traceback holds this frame.
        del task, made
