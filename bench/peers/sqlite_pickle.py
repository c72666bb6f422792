"""SQLite in memory with pickles, one transaction per batch."""

from __future__ import annotations

import sqlite3
from pickle import dumps, loads

from peers.base import Store
from peers.pickle_dict import PROTOCOL


class SqlitePickle(Store):
    """INTEGER PRIMARY KEY to pickle."""

    def __init__(self, kind, count):
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, data BLOB)")
        self.count = 0

    @classmethod
    def label(cls):
        return f"sqlite {sqlite3.sqlite_version} + pickle"

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

    def close(self):
        self.connection.close()
