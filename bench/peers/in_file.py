"""Stores whose objects are in a file that the next process opens: a pile, LMDB, SQLite. All in folders of one disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import suppress
from pickle import dumps, loads

from peers.base import Store
from peers.pickle_dict import PROTOCOL


class FileStore(Store):
    """A store in a folder of its own: opened, left without a close as by a process that ends, and opened again."""

    def __init__(self, kind, count):
        self.kind, self.most = kind, count
        self.folder = tempfile.mkdtemp(prefix="bench-file-")
        self.count = 0
        self.open()

    def open(self):
        """Open what is in the folder."""
        raise NotImplementedError

    def flush(self):
        """Wait until all is on the disk."""
        raise NotImplementedError

    def shut(self):
        """Let the file go."""
        raise NotImplementedError

    def disk_bytes(self) -> int:
        """What the folder takes of the disk."""
        files = (os.path.join(self.folder, name) for name in os.listdir(self.folder))
        return sum(os.stat(file).st_blocks * 512 for file in files)

    def close(self):
        with suppress(Exception):
            self.shut()
        shutil.rmtree(self.folder)


class GabionFile(FileStore):
    """gabion.Pile with a path."""

    @classmethod
    def label(cls):
        return "gabion"

    def open(self):
        import gabion

        self.pile = gabion.Pile(path=os.path.join(self.folder, "people.pile"), types=[self.kind])

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

    def flush(self):
        self.pile.flush()

    def shut(self):
        self.pile.close()


class LmdbFile(FileStore):
    """LMDB with pickles: a writable map, one transaction per batch, and the disk is waited for by `flush` alone."""

    @classmethod
    def label(cls):
        import lmdb

        return f"lmdb {lmdb.__version__} + pickle"

    def open(self):
        import lmdb

        self.environment = lmdb.open(
            self.folder, map_size=(64 << 20) + self.most * 1024, writemap=True, sync=False, metasync=False
        )

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

    def flush(self):
        self.environment.sync(force=True)

    def shut(self):
        self.environment.close()


class SqliteFile(FileStore):
    """SQLite with pickles: a write-ahead log, one transaction per batch; the disk is waited for by `flush` alone."""

    @classmethod
    def label(cls):
        return f"sqlite {sqlite3.sqlite_version} + pickle"

    def open(self):
        self.connection = sqlite3.connect(os.path.join(self.folder, "people.db"), isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.execute("CREATE TABLE IF NOT EXISTS people (id INTEGER PRIMARY KEY, data BLOB)")

    def put_each(self, objects, keep):
        execute = self.connection.execute
        key = self.count
        execute("BEGIN")
        for obj in objects:
            execute("INSERT INTO people VALUES (?, ?)", (key, dumps(obj, PROTOCOL)))
            keep(key)
            key += 1
        execute("COMMIT")
        self.count = key

    def get_each(self, keys):
        execute = self.connection.execute
        obj = None
        for key in keys:
            obj = loads(execute("SELECT data FROM people WHERE id = ?", (key,)).fetchone()[0])
        return obj

    def flush(self):
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        file = os.open(os.path.join(self.folder, "people.db"), os.O_RDWR)
        os.fsync(file)
        os.close(file)

    def shut(self):
        self.connection.close()
