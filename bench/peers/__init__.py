"""One adapter per subject, all with one interface.

``put_each(objects, keep)``
    Store every object and hand each one's key to ``keep`` (a list's ``append``).
``get_each(keys) -> object``
    Get every key, rebuild its object, drop it for the next one; return the last, which the caller checks.
``close()``
    Give everything back.

``get_each`` and ``put_each`` are the timed loops. They stand in the adapters, each written as a user of that store
would write it, so that no peer pays for a wrapper function: the loop, the key that comes out and the key that goes in
are the same in all of them, and only the store's own operation differs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from peers.base import Missing, Store

_ADAPTERS = {
    "gabion": "peers.gabion_pile:GabionPile",
    "native": "peers.native_list:NativeList",
    "pickles": "peers.pickle_dict:PickleDict",
    "msgspec": "peers.msgspec_dict:MsgspecDict",
    "lmdb": "peers.lmdb_pickle:LmdbPickle",
    "sqlite": "peers.sqlite_pickle:SqlitePickle",
    "gabion in a file": "peers.in_file:GabionFile",
    "lmdb in a file": "peers.in_file:LmdbFile",
    "sqlite in a file": "peers.in_file:SqliteFile",
    "gabion, saved": "peers.gabion_pile:SavedPile",
    "native, saved": "peers.saved:SavedList",
    "pickles, saved": "peers.saved:SavedPickles",
    "redis": "peers.redis_pickle:RedisPickle",
    "floor": "peers.floor:Floor",
}


def adapter(name: str) -> Callable[..., Store]:
    """The adapter class called ``name``. Raises ``Missing`` when the library behind it is not installed."""
    module, _, cls = _ADAPTERS[name].partition(":")
    try:
        return getattr(importlib.import_module(module), cls)
    except ImportError as error:
        raise Missing(f"{error.name or name} (make bench-setup)") from error


def label(name: str) -> str:
    """The subject as it stands in the rows, with its version. Raises ``Missing`` when it cannot run here."""
    return adapter(name).label()
