"""What a refused argument's error ends with: a ``key=`` for the function that was called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, time
from inspect import Parameter, Signature, signature
from math import isfinite
from re import Pattern
from typing import Any

from gabion._native import CacheTable
from gabion._standins import NoKeyError

# Longer defaults are not shown, nor are those that are no literals.
_SHORT = 20
_LITERALS = (type(None), bool, int, float, str, bytes)

_SORTED = "tuple(sorted({0}.items()))"
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE

_Made = Callable[[Any], object]

# What stands for an object of a class, or of one below it: its code, and what that makes.
_INSTEAD: dict[type, tuple[str, _Made]] = {
    list: ("tuple({0})", tuple),
    dict: (_SORTED, lambda x: tuple(sorted(x.items()))),
    set: ("frozenset({0})", frozenset),
    bytearray: ("bytes({0})", bytes),
    memoryview: ("bytes({0})", bytes),
    datetime: ("({0}.isoformat(), str({0}.tzinfo))", lambda x: (x.isoformat(), str(x.tzinfo))),
    time: ("({0}.isoformat(), str({0}.tzinfo))", lambda x: (x.isoformat(), str(x.tzinfo))),
    complex: ("({0}.real, {0}.imag)", lambda x: (x.real, x.imag)),
    range: ("({0}.start, {0}.stop, {0}.step)", lambda x: (x.start, x.stop, x.step)),
    slice: ("({0}.start, {0}.stop, {0}.step)", lambda x: (x.start, x.stop, x.step)),
    Pattern: ("({0}.pattern, {0}.flags)", lambda x: (x.pattern, x.flags)),
}
# By the name of their class, which nobody has imported who has none.
_BY_NAME: dict[str, tuple[str, _Made]] = {
    **{
        f"ipaddress.IPv{version}{kind}": ("repr({0})", repr)
        for version in (4, 6)
        for kind in ("Address", "Network", "Interface")
    },
    "decimal.Decimal": ("str({0})", str),
    "numpy.datetime64": ("str({0})", str),
    "numpy.timedelta64": ("str({0})", str),
    "zoneinfo.ZoneInfo": ("{0}.key", lambda x: x.key),
}
# What is in a table of pandas, in order, and what its columns are called: a table has no id.
_TABLES = {
    "DataFrame": "({hashed}, tuple({0}.columns))",
    "Series": "({hashed}, {0}.name)",
    "Index": "{hashed}",
}
_HASHED = "hashlib.sha256(pandas.util.hash_pandas_object({0}).values).hexdigest()"
_BY_ID: tuple[str, _Made] = ("(type({0}), {0}.id)", lambda x: (type(x), x.id))
_BY_PLACE: tuple[str, _Made] = ("({0}.__module__, {0}.__qualname__)", lambda x: (x.__module__, x.__qualname__))


def instead(value: Any, name: str) -> str | None:
    """Return the code of what stands for a value of a name that is no argument; None where nobody can tell."""
    class_: Any = type(value)
    if class_.__module__ == "numpy" and class_.__name__ == "ndarray":
        # Objects have no bytes but their addresses.
        return None if value.dtype.hasobject else f"({name}.shape, {name}.dtype.str, {name}.tobytes())"
    tables = [base.__name__ for base in class_.__mro__ if base.__module__.partition(".")[0] == "pandas"]
    if table := next(filter(_TABLES.get, tables), None):
        return _TABLES[table].format(name, hashed=_HASHED.format(name))
    own = _BY_NAME.get(f"{class_.__module__}.{class_.__qualname__}")
    bases = [own] if own else [_INSTEAD[base] for base in class_.__mro__ if base in _INSTEAD]
    for code, made in [_BY_PLACE] if _is_found(value) else [_BY_ID, *bases]:
        # Tried: it may have no id, and items that cannot be sorted.
        with suppress(Exception):
            CacheTable._call_key((made(value),), {})
            return code.format(name)
    return None


def _is_found(value: Any) -> bool:
    """Whether a value is a function or the like that its module has under its name."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    return callable(value) and getattr(module, getattr(value, "__qualname__", ""), None) is value


def _is_object(value: object) -> bool:
    """Whether a value is an instance of a program's own class, or of a library's, and no function."""
    return bool(type(value).__flags__ & _HEAP) and type(value).__module__ not in sys.stdlib_module_names


def returned(error: NoKeyError, made: object) -> str:
    """Say that what ``key=`` returned is no argument either."""
    found, what = instead(error.value, "x"), "what" if error.value is made else "a part of what"
    code = f"{found}, if that is x" if found else "what stands for it"
    return f"memoize has no key for {what} its key= returned, of type {error.of}: return {code}"


def example(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the end of a refused call's error: a ``key`` of the function's own that takes this call."""
    try:
        found = signature(function)
        given = found.bind(*args, **kwargs).arguments
        shown, items, lacking = _split(found, given)
        code = f"lambda {str(Signature(shown))[1:-1]}: "
    except (TypeError, ValueError, _UnknownError):
        # It is written in C and does not tell, or nobody can tell what to write.
        return ""
    if len(items) > 1:
        # There are always as many of them, so none is taken for another.
        items = [item[1:-1] if item.startswith(_BY_ID[0][:6]) else item for item in items]
    code += items[0] if len(items) == 1 else "(" + ", ".join(items) + ")"
    told = "".join(f", where id is what tells one {name} from another" for name in lacking)
    return f", such as key={code}{told}"


class _UnknownError(Exception):
    """Nobody can tell what stands for an argument."""


def _split(found: Signature, given: dict[str, Any]) -> tuple[list[Parameter], list[str], list[str]]:
    """Return a lambda's parameters, what its result is made of, and whose objects lack an id that it takes."""
    shown: list[Parameter] = []
    items: list[str] = []
    lacking: dict[str, None] = {}
    left = iter(found.parameters.values())
    for each in left:
        if not _is_shown(each.default):
            # This one and all that follow, as they come: so the function has its own defaults.
            for one, value in _passed([each, *left], given):
                if _item(one, value, lacking) != one:
                    raise _UnknownError
            if each.kind is not Parameter.KEYWORD_ONLY:
                shown.append(Parameter("args", Parameter.VAR_POSITIONAL))
                items.append("args")
            shown.append(Parameter("kwargs", Parameter.VAR_KEYWORD))
            items.append(_SORTED.format("kwargs"))
            break
        shown.append(each.replace(annotation=Parameter.empty))
        for one, value in _passed([each], given):
            items.append(_item(one, value, lacking))
    return shown, items, list(lacking)


def _passed(parameters: list[Parameter], given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Go through the code that makes an item of each parameter, and the item that this call makes."""
    for each in parameters:
        value = given.get(each.name)
        if each.kind is Parameter.VAR_KEYWORD:
            yield _SORTED.format(each.name), tuple(sorted((value or {}).items()))
        else:
            yield each.name, value


def _item(name: str, value: Any, lacking: dict[str, None]) -> str:
    try:
        CacheTable._call_key((value,), {})
    except NoKeyError as error:
        code = instead(value, name) if error.value is value else None
        if code is None and error.value is value and _is_object(value):
            lacking[error.kind] = None
            code = _BY_ID[0].format(name)
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
