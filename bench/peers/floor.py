"""The floor: the least that the language and the memory allow for the same loops.

``put`` is ``id(obj)``: one C call that takes an object and gives a 64-bit int back, and stores nothing.
``get`` is one read at a random place in as many bytes as the objects would fill, and one new object of the class with
its seven fields left empty. No store can do less, and none that fills the fields can reach it.
"""

from __future__ import annotations

import random

from peers.base import Store

_BYTES_PER_OBJECT = 72


class Floor(Store):
    """Stores nothing."""

    stores = False

    def __init__(self, kind, count):
        self.kind = kind
        self.memory = bytearray(random.Random(1).randbytes(4096)) * (count * _BYTES_PER_OBJECT // 4096 + 1)

    @classmethod
    def label(cls):
        return "floor"

    def put_each(self, objects, keep):
        put = id
        for obj in objects:
            keep(put(obj))

    def get_each(self, keys):
        memory, new, kind = self.memory, self.kind.__new__, self.kind
        obj = None
        for key in keys:
            memory[key]
            obj = new(kind)
        return obj
