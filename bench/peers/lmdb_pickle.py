"""LMDB with pickles, in memory as far as it goes: a map on tmpfs, no sync, one transaction per batch."""

from __future__ import annotations

import os
import shutil
import tempfile
from pickle import dumps, loads

import lmdb

from peers.base import Store
from peers.pickle_dict import PROTOCOL

_MAP_BYTES_PER_OBJECT = 1024


class LmdbPickle(Store):
    """8-byte big-endian key (LMDB's fast append order) to pickle."""

    def __init__(self, kind, count):
        self.folder = tempfile.mkdtemp(prefix="bench-lmdb-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.environment = lmdb.open(
            self.folder, map_size=(64 << 20) + count * _MAP_BYTES_PER_OBJECT, writemap=True, sync=False, metasync=False
        )
        self.count = 0

    @classmethod
    def label(cls):
        return f"lmdb {lmdb.__version__} + pickle"

    def put_each(self, objects, keep):
        key = self.count
        with self.environment.begin(write=True) as transaction:
            put = transaction.put
            for obj in objects:
                put(key.to_bytes(8, "big"), dumps(obj, PROTOCOL))
                keep(key)
                key += 1
        self.count = key

    def get_each(self, keys):
        obj = None
        with self.environment.begin(buffers=True) as transaction:
            get = transaction.get
            for key in keys:
                obj = loads(get(key.to_bytes(8, "big")))
        return obj

    def close(self):
        self.environment.close()
        shutil.rmtree(self.folder)
