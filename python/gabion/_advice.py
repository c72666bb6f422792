"""What a refused argument's error ends with: a ``key=`` for the function that was called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, time
from inspect import Parameter, Signature, signature
from math import isfinite
from typing import Any

from gabion._native import CacheTable
from gabion._standins import NoKeyError

# Longer defaults are not shown, nor are those that are no literals.
_SHORT = 20
_LITERALS = (type(None), bool, int, float, str, bytes)

_INSTEAD: dict[type, str] = {
    list: "tuple({0})",
    dict: "tuple(sorted({0}.items()))",
    set: "frozenset({0})",
    bytearray: "bytes({0})",
    memoryview: "bytes({0})",
    datetime: "({0}.isoformat(), str({0}.tzinfo))",
    time: "({0}.isoformat(), str({0}.tzinfo))",
}


def instead(value: Any, name: str) -> str | None:
    """Return the code of what stands for a value of a name that is no argument; None where nobody can tell."""
    class_: Any = type(value)
    if class_.__module__ == "numpy" and class_.__name__ == "ndarray":
        # Objects have no bytes but their addresses.
        return None if value.dtype.hasobject else f"({name}.shape, {name}.dtype.str, {name}.tobytes())"
    return _INSTEAD.get(class_, "{0}.id").format(name)


def returned(error: NoKeyError, made: object) -> str:
    """Say that what ``key=`` returned is no argument either."""
    whole = error.value is made
    found = instead(error.value, "x") if whole or type(error.value) in _INSTEAD else None
    what, code = "what" if whole else "a part of what", f"{found}, if that is x" if found else "what stands for it"
    return f"memoize has no key for {what} its key= returned, of type {error.of}: return {code}"


def example(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the end of a refused call's error: a ``key`` of the function's own that takes this call."""
    try:
        found = signature(function)
        given = found.bind(*args, **kwargs).arguments
        shown, items = _split(found, given)
        code = f"lambda {str(Signature(shown))[1:-1]}: "
    except (TypeError, ValueError, _UnknownError):
        # It is written in C and does not tell, or nobody can tell what to write.
        return ""
    return f", such as key={code}{items[0] if len(items) == 1 else '(' + ', '.join(items) + ')'}"


class _UnknownError(Exception):
    """Nobody can tell what stands for an argument."""


def _split(found: Signature, given: dict[str, Any]) -> tuple[list[Parameter], list[str]]:
    """Return a lambda's parameters, and what its result is made of."""
    shown: list[Parameter] = []
    items: list[str] = []
    left = iter(found.parameters.values())
    for each in left:
        if not _is_shown(each.default):
            # This one and all that follow, as they come: so the function has its own defaults.
            for one, value in _passed([each, *left], given):
                if _item(one, value) != one:
                    raise _UnknownError
            if each.kind is not Parameter.KEYWORD_ONLY:
                shown.append(Parameter("args", Parameter.VAR_POSITIONAL))
                items.append("args")
            shown.append(Parameter("kwargs", Parameter.VAR_KEYWORD))
            items.append(_INSTEAD[dict].format("kwargs"))
            break
        shown.append(each.replace(annotation=Parameter.empty))
        for one, value in _passed([each], given):
            items.append(_item(one, value))
    return shown, items


def _passed(parameters: list[Parameter], given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Go through the code that makes an item of each parameter, and the item that this call makes."""
    for each in parameters:
        value = given.get(each.name)
        if each.kind is Parameter.VAR_KEYWORD:
            yield _INSTEAD[dict].format(each.name), tuple(sorted((value or {}).items()))
        else:
            yield each.name, value


def _item(name: str, value: Any) -> str:
    try:
        CacheTable._call_key((value,), {})
    except NoKeyError as error:
        code = instead(value, name) if error.value is value else None
        if code is None:
            raise _UnknownError from None
        return code
    return name


def _is_shown(default: Any) -> bool:
    if default is Parameter.empty or (default == () and type(default) is tuple):
        return True
    if type(default) not in _LITERALS or (type(default) is float and not isfinite(default)):
        return False
    return len(repr(default)) <= _SHORT
