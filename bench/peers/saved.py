"""Pickles of all that is in memory, which a program writes to a file at times, and the next process loads."""

from __future__ import annotations

import os
import pickle

from peers.native_list import NativeList
from peers.pickle_dict import PROTOCOL, PickleDict


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
