"""gabion: hold a hundred million objects without collector pauses or memory that creeps up.

>>> import gabion
>>> pile = gabion.Pile()
>>> pointer = pile.put({"name": "Ada", "born": 1815})
>>> pile.get(pointer)["name"]
'Ada'
"""

from os import environ as _environ

from gabion._native import (
    ClosedError,
    CodecError,
    CorruptFileError,
    FormatError,
    GabionError,
    Image,
    ImageError,
    ImageInfo,
    LimitError,
    Pile,
    PileStats,
    PointerError,
    __version__,
    _import,
)

# What comes at its first use. Each of these brings modules of the standard library along, and with them thousands of
# objects that the collector walks at every full collection: not at the cost of whoever came for a pile.
_LATER = {
    "Cache": "gabion.cache",
    "CacheStats": "gabion.cache",
    "PutResult": "gabion.cache",
    "Table": "gabion.cache",
    "memory": "gabion.memory",
    "monitor": "gabion.monitor",
    "numpy": "gabion.numpy",
    "streams": "gabion.streams",
    "testing": "gabion.testing",
    "typing": "gabion.typing",
}

# Without the modules: `from gabion import *` would put gabion.numpy in the place of a program's own numpy.
__all__ = [
    "Cache",
    "CacheStats",
    "ClosedError",
    "CodecError",
    "CorruptFileError",
    "FormatError",
    "GabionError",
    "Image",
    "ImageError",
    "ImageInfo",
    "LimitError",
    "Pile",
    "PileStats",
    "PointerError",
    "PutResult",
    "Table",
    "__version__",
]


def __getattr__(name: str) -> object:
    where = _LATER.get(name)
    if where is None:
        raise AttributeError(f"module 'gabion' has no attribute {name!r}")
    found = _import(where)
    if not where.endswith(f".{name}"):
        found = getattr(found, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


if _said := _environ.get("GABION_MONITOR"):
    _import("gabion.monitor")._start_by_environment(_said)
