"""gabion: hold a hundred million objects without collector pauses or memory that creeps up.

>>> import gabion
>>> pile = gabion.Pile()
>>> pointer = pile.put({"name": "Ada", "born": 1815})
>>> pile.get(pointer)["name"]
'Ada'
"""

from gabion import memory, numpy
from gabion._native import (
    ClosedError,
    CodecError,
    CorruptFileError,
    GabionError,
    LimitError,
    Pile,
    PileStats,
    PointerError,
    __version__,
)

__all__ = [
    "ClosedError",
    "CodecError",
    "CorruptFileError",
    "GabionError",
    "LimitError",
    "Pile",
    "PileStats",
    "PointerError",
    "__version__",
    "memory",
    "numpy",
]
