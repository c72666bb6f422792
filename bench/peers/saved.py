"""Stores in memory that a program saves to a file at times, and that the next process loads."""

from __future__ import annotations

import os
import pickle

from peers.base import Store
from peers.native_list import NativeList
from peers.pickle_dict import PROTOCOL, PickleDict


class SavedPile(Store):
    """gabion.Pile in memory."""

    def __init__(self, kind, count):
        import gabion

        self.kind, self.pile = kind, gabion.Pile()

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

    def save(self, path):
        self.pile.save(path)

    def load(self, path):
        import gabion

        self.pile = gabion.Pile(path=path, types=[self.kind])

    def close(self):
        self.pile.close()


def _dump(held, path):
    """Pickle what is held into a file that gets its name when it is on the disk, as gabion's does."""
    with open(path + ".part", "wb") as file:
        pickle.dump(held, file, PROTOCOL)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def _load(path):
    with open(path, "rb") as file:
        return pickle.load(file)


class SavedList(NativeList):
    """The list of the objects, pickled as one."""

    @classmethod
    def label(cls):
        return "pickle of a list"

    def save(self, path):
        _dump(self.objects, path)

    def load(self, path):
        self.objects = _load(path)


class SavedPickles(PickleDict):
    """The dict of pickles, pickled as one."""

    @classmethod
    def label(cls):
        return "pickle of a dict of pickles"

    def save(self, path):
        _dump(self.data, path)

    def load(self, path):
        self.data = _load(path)
