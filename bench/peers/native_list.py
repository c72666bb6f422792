"""A list of the objects themselves: what a program does without a store."""

from __future__ import annotations

import platform

from peers.base import Store


class NativeList(Store):
    """``put`` builds the object and appends it, ``get`` reads a reference and builds nothing."""

    def __init__(self, kind, count):
        self.kind = kind
        self.objects = []

    @classmethod
    def label(cls):
        return f"native list {platform.python_version()}"

    def put_each(self, objects, keep):
        kind = self.kind
        append = self.objects.append
        key = len(self.objects)
        for obj in objects:
            append(kind(obj.id, obj.first, obj.last, obj.born, obj.balance, obj.active, obj.note))
            keep(key)
            key += 1

    def get_each(self, keys):
        objects = self.objects
        obj = None
        for key in keys:
            obj = objects[key]
        return obj
