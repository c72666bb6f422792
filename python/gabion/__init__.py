"""gabion: hold a hundred million objects without collector pauses or memory that creeps up.

>>> import gabion
>>> pile = gabion.Pile()
>>> pointer = pile.put({"name": "Ada", "born": 1815})
>>> pile.get(pointer)["name"]
'Ada'
"""

from gabion import memory, numpy, streams
from gabion._native import (
    ClosedError,
    CodecError,
    CorruptFileError,
    GabionError,
    Image,
    ImageError,
    LimitError,
    Pile,
    PileStats,
    PointerError,
    __version__,
)
from gabion.cache import Cache, CacheStats, PutResult, Table

__all__ = [
    "Cache",
    "CacheStats",
    "ClosedError",
    "CodecError",
    "CorruptFileError",
    "GabionError",
    "Image",
    "ImageError",
    "LimitError",
    "Pile",
    "PileStats",
    "PointerError",
    "PutResult",
    "Table",
    "__version__",
    "memory",
    "numpy",
    "streams",
]
