"""An error for each of many threads, where one object for all of them would not do."""

from __future__ import annotations

import copy
import copyreg
import sys

# Whether one error may be raised in many threads at a time. Without the GIL they set its traceback at the same moment,
# and Python 3.13 drops the former one twice then.
ONE_FOR_ALL: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


def own_error(error: Exception) -> Exception | None:
    """Return a copy of an error, as another thread raises it; None where there is no faithful one."""
    kind = type(error)
    inherited = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    try:
        if inherited.__basicsize__ == Exception.__basicsize__:
            # Not by its __init__(), which may take other arguments than it hands on.
            made: Exception = BaseException.__new__(kind, *error.args)
            made.__dict__.update(error.__dict__)
            for name in copyreg._slotnames(kind):  # type: ignore[attr-defined]
                if hasattr(error, name):
                    setattr(made, name, getattr(error, name))
        else:
            made = copy.copy(error)
            if type(made) is not kind or made.args != error.args:
                return None
        made.__cause__, made.__context__ = error.__cause__, error.__context__
        made.__suppress_context__ = error.__suppress_context__
        if hasattr(error, "__notes__"):
            # Who adds one adds it to its own.
            made.__notes__ = list(error.__notes__)
    except Exception:
        return None
    return made
