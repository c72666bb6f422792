"""What is done in the place of NumPy, and of `copyreg`, where a file that anybody may have written is rebuilt.

NumPy takes the states in its pickles as they are: a type of items whose fields lie outside of it, or which is changed
while arrays have items of it, or an array whose memory goes while another one shows it, end the process, or worse. Here
types are made anew by NumPy's own constructor, which checks them, and only an array with nothing in it gets a state.
Functions that pickles call are called with what pickles call them with, and with nothing else.
"""

from __future__ import annotations

import copyreg
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
        made = numpy.dtype((_dtype(numpy, sub[0]), sub[1]))
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
        "formats": [_dtype(numpy, field[0]) for field in found],
        "offsets": [field[1] for field in found],
        "itemsize": size,
    }
    if any(len(field) > 2 for field in found):
        described["titles"] = [field[2] if len(field) > 2 else None for field in found]
    return numpy.dtype(described, align=aligned)


def _dtype(numpy: Any, value: Any) -> Any:
    if not isinstance(value, numpy.dtype):
        raise ValueError("something else than a type of items")
    return value


def _numpy_module(name: str) -> Any:
    numpy: Any = importlib.import_module("numpy")
    return importlib.import_module(f"numpy.{'_core' if hasattr(numpy, '_core') else 'core'}.{name}")


def scalar(dtype: Any, *value: Any) -> Any:
    """Make a single item, as NumPy's function of that name does, and not out of items of another type."""
    numpy: Any = importlib.import_module("numpy")
    _dtype(numpy, dtype)
    if value and isinstance(value[0], numpy.ndarray) and (value[0].dtype != dtype or not value[0].size):
        raise ValueError("an item of another type than it says")
    return _numpy_module("multiarray").scalar(dtype, *value)


def _reconstruct(subtype: Any, shape: Any, dtype: Any) -> Any:
    """Make an array that gets all it has by a state."""
    if shape != (0,) or dtype != b"b":
        raise ValueError("an array that has items before it gets them")
    return _numpy_module("multiarray")._reconstruct(subtype, shape, dtype)


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: Any, *more: Any) -> Any:
    """Make an array over bytes of the same file, `bytes` or a `bytearray`, never over other memory."""
    numpy: Any = importlib.import_module("numpy")
    if not isinstance(buffer, (bytes, bytearray)) or _dtype(numpy, dtype).hasobject:
        raise ValueError("an array of what is no memory of its own")
    return _numpy_module("numeric")._frombuffer(buffer, dtype, shape, order, *more)


def _reconstructor(cls: Any, base: Any, state: Any) -> Any:
    """Make an object as `copyreg` does, of a class whose instances are not made by NumPy."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(base, type) and issubclass(base, (numpy.ndarray, numpy.generic, numpy.dtype)):
        raise ValueError("an array, or an item of one, that NumPy's own functions are to make")
    return copyreg._reconstructor(cls, base, state)  # type: ignore[attr-defined]
