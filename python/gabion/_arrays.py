"""What is done in NumPy's place where it rebuilds arrays out of a file that anybody may have written.

NumPy takes the states in its pickles as they are: a type of items whose fields lie outside of it, or which is changed
while arrays have items of it, or an array whose memory goes while another one shows it, end the process, or worse. Here
types are made anew by NumPy's own constructor, which checks them, and only an array with nothing in it gets a state.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_ALIGNED = 0x80
_OTHER_ORDER = ">" if sys.byteorder == "little" else "<"


def rebuilt(object: Any, state: Any) -> Any:
    """Return the type of items that a new one becomes with a state; None for an array, which may get it.

    Raises ValueError, or whatever NumPy's constructor raises, for what no pickle of NumPy's has.
    """
    numpy: Any = importlib.import_module("numpy")
    if isinstance(object, numpy.ndarray):
        if object.size:
            raise ValueError("the state of an array that has items already")
        return None
    if not isinstance(object, numpy.dtype):
        raise ValueError("a state of something of NumPy's that has none")
    if type(state) is not tuple or len(state) not in (8, 9):
        raise ValueError("an unknown state of a numpy.dtype")
    _, order, sub, names, fields, size, _, flags, *more = state
    metadata = more[0] if more else None
    if object.kind in "mM":
        metadata, (unit, count, *_) = metadata or (None, (b"generic", 1))
        text: str = unit.decode("ascii")
        made = numpy.dtype(object.kind + "8" if text == "generic" else f"{object.kind}8[{int(count)}{text}]")
    elif sub is not None:
        made = numpy.dtype((sub[0], sub[1]))
    elif names is not None:
        made = _structure(numpy, names, fields, size, bool(flags & _ALIGNED))
        if object.type is not numpy.void:
            made = numpy.dtype((object.type, made))
    else:
        made = object
    if order == _OTHER_ORDER:
        made = made.newbyteorder(order)
    return numpy.dtype(made, metadata=dict(metadata)) if metadata else made


def _structure(numpy: Any, names: Any, fields: Any, size: Any, aligned: bool) -> Any:
    found = [fields[name] for name in names]
    described = {
        "names": list(names),
        "formats": [field[0] for field in found],
        "offsets": [field[1] for field in found],
        "itemsize": size,
    }
    if any(len(field) > 2 for field in found):
        described["titles"] = [field[2] if len(field) > 2 else None for field in found]
    return numpy.dtype(described, align=aligned)


def scalar(dtype: Any, value: Any = None) -> Any:
    """Make a single item, as NumPy's function of that name does, and not out of items of another type."""
    numpy: Any = importlib.import_module("numpy")
    if isinstance(value, numpy.ndarray) and (value.dtype != dtype or not value.size):
        raise ValueError("an item of another type than it says")
    core = "_core" if hasattr(numpy, "_core") else "core"
    return importlib.import_module(f"numpy.{core}.multiarray").scalar(dtype, value)
