"""gabion.Pile."""

from __future__ import annotations

import gabion
from peers.base import Store


class GabionPile(Store):
    """Pointers stay with the caller: the pile has no index."""

    keys_inside = False

    def __init__(self, kind, count):
        self.pile = gabion.Pile()

    @classmethod
    def label(cls):
        return "gabion"

    def put_each(self, objects, keep):
        put = self.pile.put
        for obj in objects:
            keep(put(obj))

    def get_each(self, keys):
        get = self.pile.get
        obj = None
        for key in keys:
            obj = get(key)
        return obj

    def close(self):
        self.pile.close()


class SavedPile(GabionPile):
    """One that is saved to a file at times, and that the next process opens."""

    def __init__(self, kind, count):
        super().__init__(kind, count)
        self.kind = kind

    def save(self, path):
        self.pile.save(path)

    def load(self, path):
        self.pile = gabion.Pile(path=path, types=[self.kind])
