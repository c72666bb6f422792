"""What is done in the place of NumPy, and of `copyreg`, where a file that anybody may have written is rebuilt.

NumPy takes the states in its pickles as they are: a type of items whose fields lie outside of it, or are objects of
which it says that it has none; a list that is shorter than the array that it is for; an item that is not there; an
array whose memory goes while another one shows it. All of this ends the process, or worse. So nothing here trusts a
state. Types of items are made anew by NumPy's own constructor, out of parts that are of the kinds which it writes,
and looked at. An array gets a state only while it has no items, and one that was put together here: of a shape, a
sound type of items, and bytes or a list of exactly the length that both ask for. Functions that pickles call are
called with what pickles call them with, and with nothing else.
"""

from __future__ import annotations

import copyreg
import importlib
import math
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

_ALIGNED = 0x80
_LISTED = 0x02
"""The flag of types of items whose arrays have a list in their state instead of bytes."""
_ORDERS = ("<", ">", "|", "=")
_OTHER_ORDER = ">" if sys.byteorder == "little" else "<"
_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic")
_WITH_FIELDS = "?biufcSUmM"
"""The kinds that may have fields beside being what they are: `dtype(("i4", [("low", "i2"), ("high", "i2")]))`."""
_MOST_OF_NOTHING = 1 << 22
_LARGEST = 0x7FFF_FFFF
_DEEPEST = 64
"""How deep types of items may lie in each other. NumPy walks through them by recursion."""


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what}, which no pickle of NumPy's has")


def rebuilt(object: Any, state: Any) -> Any:
    """Return what takes the place of an object of NumPy's with a state: itself, which has it then, or another.

    None if it may get it, as its class takes it by itself. Raises ValueError, or whatever NumPy's constructor raises,
    for what no pickle of NumPy's has.
    """
    numpy: Any = importlib.import_module("numpy")
    if isinstance(object, numpy.ndarray):
        return _array(numpy, object, state)
    if isinstance(object, numpy.dtype):
        return _sound(numpy, _type_of_items(numpy, object, state))
    return _refuse("a state of something that has none")


# --- arrays and their items -----------------------------------------------------------------------


def nested(object: Any) -> tuple[Any, ...]:
    """Return what lies in an array, or in an item of one, that may have more of the kind in it, and slices."""
    if not object.dtype.hasobject:
        return ()
    numpy: Any = importlib.import_module("numpy")
    is_array = isinstance(object, numpy.ndarray)
    array = numpy.ndarray.view(object, numpy.ndarray) if is_array else numpy.asarray(object)
    found: dict[int, Any] = {}
    for items in _objects(array):
        classes = set(map(type, items.flat))
        kinds = tuple(kind for kind in classes if issubclass(kind, (numpy.ndarray, numpy.void, slice)))
        if kinds:
            found.update((id(item), item) for item in items.flat if isinstance(item, kinds))
    return tuple(found.values())


def _objects(array: Any) -> Iterator[Any]:
    """The fields of an array, at any depth, that are objects."""
    if array.dtype.names is None:
        if array.dtype.kind == "O":
            yield array
        return
    for name in array.dtype.names:
        if array.dtype.fields[name][0].hasobject:
            yield from _objects(array[name])


def _array(numpy: Any, array: Any, state: Any) -> Any:
    if array.size:
        _refuse("a state of an array that has items already")
    if type(array).__setstate__ is not numpy.ndarray.__setstate__:
        _look_through(numpy, state)
        return None
    if type(state) is not tuple or len(state) != 5:
        _refuse("an unknown state of an array")
    version, shape, dtype, columns, items = state
    if type(version) is not int or version != 1 or type(columns) not in (bool, int):
        _refuse("an unknown state of an array")
    count = _count(numpy, shape, dtype)
    if not _is_listed(dtype):
        if type(items) is not bytes or len(items) != count * dtype.itemsize:
            _refuse("an array of another length than its items have")
        numpy.ndarray.__setstate__(array, (1, shape, dtype, bool(columns), items))
        _look_at_texts(numpy, array)
        return array
    if type(items) is not list or len(items) != count:
        _refuse("an array of another length than its list has")
    # It is a copy: code that items bring has no way to it.
    items = list(items)
    if dtype.kind == "T":
        return _strings(numpy, array, shape, dtype, columns, items)
    _look_at_fields(dtype, items)
    numpy.ndarray.__setstate__(array, (1, shape, dtype, bool(columns), items))
    return array


def _strings(numpy: Any, array: Any, shape: Any, dtype: Any, columns: Any, items: list[Any]) -> Any:
    # Strings cannot lead back to the array, so it may be another one; what its items lie in is its own then, too.
    given = {"coerce": dtype.coerce}
    if hasattr(dtype, "na_object"):
        given["na_object"] = dtype.na_object
    # NumPy makes texts of all else, and the text of what a few bytes describe may have no end.
    if not all(type(item) in (str, float, type(None)) or item is given.get("na_object", items) for item in items):
        _refuse("a string that is none")
    made = numpy.array(items, dtype=type(dtype)(**given))
    if made.shape != (len(items),):
        _refuse("a string that is none")
    return numpy.asarray(made.reshape(shape), order="F" if columns else "C").view(type(array))


def _look_through(numpy: Any, state: Any) -> None:
    """Look at all that a class's own `__setstate__` may hand on to NumPy's: five parts, or four without the version."""
    todo, seen = [state], set()
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        if isinstance(part, numpy.dtype):
            _sound(numpy, part)
        elif isinstance(part, (tuple, list)):
            seen.add(id(part))
            todo.extend(part)
            for at, dtype in enumerate(part[1:], 1):
                if isinstance(dtype, numpy.dtype) and isinstance(part[at - 1], tuple) and len(part) > at + 2:
                    _look_at_items(numpy, part[at - 1], dtype, part[at + 2])
        elif isinstance(part, dict):
            seen.add(id(part))
            todo.extend(part.values())


def _look_at_items(numpy: Any, shape: Any, dtype: Any, items: Any) -> None:
    if _is_listed(dtype) and isinstance(items, list):
        if len(items) != _count(numpy, shape, dtype):
            _refuse("an array of another length than its list has")
        _look_at_fields(dtype, items)
    elif isinstance(items, bytes) and _has_text(dtype):
        if len(items) != _count(numpy, shape, dtype) * dtype.itemsize:
            _refuse("an array of another length than its items have")
        _look_at_texts(numpy, numpy.ndarray(shape, dtype, items))


def _look_at_fields(dtype: Any, items: list[Any]) -> None:
    if dtype.names is not None and not all(type(item) is tuple and len(item) == len(dtype.names) for item in items):
        _refuse("an item that has other fields than its type")


def _has_text(dtype: Any) -> bool:
    """Tell whether strings of characters lie in a type of items, at any depth. It has to be sound."""
    if dtype.subdtype is not None:
        return _has_text(dtype.subdtype[0])
    return dtype.kind == "U" or any(_has_text(dtype.fields[name][0]) for name in dtype.names or ())


def _look_at_texts(numpy: Any, array: Any) -> None:
    """Refuse characters that there are not: NumPy makes strings of them, with which Python writes beyond its memory."""
    dtype = array.dtype
    if not (array.size and dtype.itemsize and _has_text(dtype)):
        return
    array = array.view(numpy.ndarray)
    for name in dtype.names or ():
        _look_at_texts(numpy, array[name])
    if dtype.kind == "U":
        plain = array.view(dtype.str) if dtype.names is not None else array
        characters = numpy.ascontiguousarray(plain).reshape(-1).view(f"{dtype.str[0]}u4")
        if characters.max() > sys.maxunicode:
            _refuse("a character that there is not")


def _count(numpy: Any, shape: Any, dtype: Any) -> int:
    """How many items an array has."""
    _sound(numpy, dtype)
    if dtype.subdtype is not None:
        _refuse("an array of arrays")
    if type(shape) is not tuple or not all(type(side) is int and side >= 0 for side in shape):
        _refuse("a shape that is none")
    # Not too many sides, for one.
    numpy.empty((0,) * len(shape), "b")
    if math.prod(filter(None, shape)) * max(dtype.itemsize, 1) > sys.maxsize:
        _refuse("an array of so many items")
    if not dtype.itemsize and math.prod(shape) > _MOST_OF_NOTHING:
        _refuse("an array of so many items that take nothing")
    return math.prod(shape)


def _is_listed(dtype: Any) -> bool:
    return bool(dtype.flags & _LISTED)


def scalar(dtype: Any, *value: Any) -> Any:
    """Make a single item, as NumPy's function of that name does, of exactly one value of that type."""
    numpy: Any = importlib.import_module("numpy")
    _sound(numpy, dtype)
    if len(value) != 1 or dtype.subdtype is not None:
        _refuse("an item without a value")
    (items,) = value
    if _is_listed(dtype):
        if dtype.names is None or type(items) is not numpy.ndarray or items.shape != () or items.dtype != dtype:
            _refuse("an item of another type than it says")
        return items[()]
    if type(items) is not bytes or len(items) != dtype.itemsize:
        _refuse("an item of another type than it says")
    if items:
        _look_at_texts(numpy, numpy.ndarray((), dtype, items))
    return _numpy_module("multiarray").scalar(dtype, items)


def _reconstruct(subtype: Any, shape: Any, dtype: Any) -> Any:
    """Make an array that gets all it has by a state."""
    if type(shape) is not tuple or shape != (0,) or type(dtype) is not bytes or dtype != b"b":
        _refuse("an array that has items before it gets them")
    return _numpy_module("multiarray")._reconstruct(subtype, (0,), b"b")


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: Any, *more: Any) -> Any:
    """Make an array over bytes of the same file, `bytes` or a `bytearray`, never over other memory."""
    numpy: Any = importlib.import_module("numpy")
    if type(buffer) not in (bytes, bytearray):
        _refuse("an array of what is no memory of its own")
    count = _count(numpy, shape, dtype)
    if dtype.hasobject or _is_listed(dtype):
        _refuse("an array of what is no memory of its own")
    if len(buffer) != count * dtype.itemsize:
        _refuse("an array of another length than its items have")
    made = _numpy_module("numeric")._frombuffer(buffer, dtype, shape, order, *more)
    if _has_text(dtype):
        # Nothing else leads to its memory, then, and may change it once it was looked at.
        made = made.copy("K")
        _look_at_texts(numpy, made)
    return made


def _numpy_module(name: str) -> Any:
    numpy: Any = importlib.import_module("numpy")
    return importlib.import_module(f"numpy.{'_core' if hasattr(numpy, '_core') else 'core'}.{name}")


# --- types of items -------------------------------------------------------------------------------


def dtype(*arguments: Any) -> Any:
    """Make a type of items, as NumPy does of a text or a class."""
    numpy: Any = importlib.import_module("numpy")
    return _sound(numpy, numpy.dtype(*arguments))


def _type_of_items(numpy: Any, dtype: Any, state: Any) -> Any:
    if type(state) is not tuple or len(state) not in (8, 9) or dtype.kind == "T":
        _refuse("an unknown state of a type of items")
    _, order, sub, names, fields, size, _, flags, *more = state
    if order not in _ORDERS or type(size) is not int or type(flags) is not int:
        _refuse("an unknown state of a type of items")
    metadata = more[0] if more else None
    made, is_void = dtype, dtype.kind == "V"
    if dtype.kind in "mM":
        metadata, made = _time(numpy, dtype.kind, metadata)
    elif sub is not None:
        if not is_void or names is not None:
            _refuse("an array as an item of that type")
        made = _array_as_item(numpy, sub)
    elif is_void and names is not None:
        made = _structure(numpy, names, fields, size, bool(flags & _ALIGNED))
        if dtype.type is not numpy.void:
            made = numpy.dtype((dtype.type, made))
    elif is_void and dtype.type is not numpy.void and 0 < size <= _LARGEST:
        made = numpy.dtype((dtype.type, size))
    if order == _OTHER_ORDER:
        made = made.newbyteorder(order)
    if names is not None and not is_void:
        made = _with_fields(numpy, made, names, fields)
    if metadata is None or metadata == {}:
        return made
    if type(metadata) is not dict:
        _refuse("metadata of a type of items")
    return numpy.dtype(made, metadata=dict(metadata))


def _time(numpy: Any, kind: str, metadata: Any) -> tuple[Any, Any]:
    if metadata is None:
        return None, numpy.dtype(kind + "8")
    if type(metadata) is not tuple or len(metadata) != 2 or type(metadata[1]) is not tuple or len(metadata[1]) != 4:
        _refuse("a unit of time")
    more, (unit, count, *_) = metadata
    text = unit.decode("ascii") if type(unit) is bytes else unit
    if text not in _UNITS or type(count) is not int or not 0 < count <= _LARGEST:
        _refuse("a unit of time")
    return more, numpy.dtype(kind + "8" if text == "generic" else f"{kind}8[{count}{text}]")


def _array_as_item(numpy: Any, sub: Any) -> Any:
    if type(sub) is not tuple or len(sub) != 2:
        _refuse("an array as an item")
    base, shape = sub
    if type(shape) is not tuple or not all(type(side) is int and side >= 0 for side in shape):
        _refuse("a shape that is none")
    if _sound(numpy, base).itemsize * math.prod(shape) > _LARGEST or max(shape, default=0) > _LARGEST:
        _refuse("an array of so many items as an item")
    return numpy.dtype((base, shape))


def _structure(numpy: Any, names: Any, fields: Any, size: int, aligned: bool) -> Any:
    if type(names) is not tuple or type(fields) is not dict or not all(type(name) is str for name in names):
        _refuse("an unknown state of a type of items")
    found = [fields[name] for name in names]
    if not all(type(field) is tuple and len(field) in (2, 3) and type(field[1]) is int for field in found):
        _refuse("a field")
    # NumPy adds up what may be more than its integers hold.
    if not all(0 <= field[1] <= size - _sound(numpy, field[0]).itemsize for field in found) or size > _LARGEST:
        _refuse("a field that lies outside of its item")
    described = {
        "names": list(names),
        "formats": [field[0] for field in found],
        "offsets": [field[1] for field in found],
        "itemsize": size,
    }
    if any(len(field) > 2 for field in found):
        described["titles"] = [field[2] if len(field) > 2 else None for field in found]
    return numpy.dtype(described, align=aligned)


def _with_fields(numpy: Any, dtype: Any, names: Any, fields: Any) -> Any:
    # Objects may only be where NumPy counts references to them, which it does not do here.
    structure = _structure(numpy, names, fields, dtype.itemsize, False)
    if dtype.kind not in _WITH_FIELDS or structure.hasobject:
        _refuse("fields of that type of items")
    made = numpy.dtype((dtype, structure))
    if (made.kind, made.itemsize) != (dtype.kind, dtype.itemsize):
        _refuse("fields of that type of items")
    return made


def _sound(numpy: Any, dtype: Any) -> Any:
    """Return the type of items, which says of all objects that lie in it at any depth that there are some."""
    if not isinstance(dtype, numpy.dtype):
        _refuse("something else than a type of items")
    _depth(dtype, {})
    return dtype


def _depth(dtype: Any, known: dict[int, int], level: int = 1) -> int:
    if dtype.names is None and dtype.subdtype is None:
        return 1
    if (found := known.get(id(dtype))) is None:
        if level > _DEEPEST:
            _refuse("types of items so deep in each other")
        inner = [] if dtype.subdtype is None else [dtype.subdtype[0]]
        if dtype.names is not None:
            inner += [dtype.fields[name][0] for name in dtype.names]
        if any(item.kind == "T" for item in inner):
            _refuse("strings inside of items")
        if any(item.hasobject for item in inner) and not (dtype.hasobject and _is_listed(dtype)):
            _refuse("a type of items with objects that it does not tell of")
        if dtype.names is not None:
            ends = (dtype.fields[name][1] + dtype.fields[name][0].itemsize for name in dtype.names)
            if not all(0 <= end <= dtype.itemsize for end in ends):
                _refuse("a field that lies outside of its item")
        found = known[id(dtype)] = 1 + max((_depth(item, known, level + 1) for item in inner), default=0)
    if found > _DEEPEST:
        _refuse("types of items so deep in each other")
    return found


def _reconstructor(cls: Any, base: Any, state: Any) -> Any:
    """Make an object as `copyreg` does, of a class whose instances are not made by NumPy."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(base, type) and issubclass(base, (numpy.ndarray, numpy.generic, numpy.dtype)):
        raise ValueError("an array, or an item of one, that NumPy's own functions are to make")
    return copyreg._reconstructor(cls, base, state)  # type: ignore[attr-defined]
