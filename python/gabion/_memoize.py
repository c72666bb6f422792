"""Keys out of a function's arguments, and what kind of function it is."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from types import CoroutineType, FunctionType
from typing import Any
from uuid import UUID

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


def key_of_call(*args: Any, **kwargs: Any) -> Any:
    """Make a key of a call's arguments, so that calls with equal arguments have equal keys, and no others do."""
    named = tuple((name, _argument(value)) for name, value in sorted(kwargs.items()))
    return (tuple(_argument(value) for value in args), named)


def _argument(value: Any) -> Any:
    if isinstance(value, str | bytes | int | UUID):
        return value
    if value is None:
        return ((), "none")
    if isinstance(value, float):
        return int(value) if value.is_integer() else ((), "float", pack("<d", value))
    if isinstance(value, tuple):
        return ((), "tuple", tuple(_argument(item) for item in value))
    raise TypeError(
        f"memoize has no key for an argument of type {type(value).__qualname__}: pass key=, a function of the same"
        " arguments that returns one, such as key=lambda self, number: (self.id, number)"
    )
