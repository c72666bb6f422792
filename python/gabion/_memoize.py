"""What kind of function one is."""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType, FunctionType
from typing import Any

_COROUTINE = 0x80  # inspect.CO_COROUTINE


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether calling a function gives a coroutine: a coroutine function, or an object that is called like one."""
    if type(function) is FunctionType and not function.__dict__:
        # Plain functions at once: inspect takes a microsecond.
        return bool(function.__code__.co_flags & _COROUTINE)
    from inspect import iscoroutinefunction

    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


def refuse_awaitable(made: object) -> None:
    """Raise ``TypeError`` for what a plain function returned to be awaited."""
    if hasattr(type(made), "__await__"):
        if isinstance(made, CoroutineType):
            made.close()
        raise TypeError("the factory returned something to be awaited: pass the coroutine function itself")
