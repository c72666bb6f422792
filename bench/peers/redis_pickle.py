"""Redis with pickles, pipelined by 100. Runs only when ``GABION_REDIS_URL`` names a server to write to.

The keys stand in one hash of our own, which is deleted at the end; nothing else in that server is touched.
"""

from __future__ import annotations

import os
import uuid
from pickle import dumps, loads

import redis

from peers.base import Missing, Store
from peers.pickle_dict import PROTOCOL

_BATCH = 100


class RedisPickle(Store):
    """A hash of int key to pickle."""

    def __init__(self, kind, count):
        self.client = redis.Redis.from_url(os.environ["GABION_REDIS_URL"])
        self.name = f"bench-{uuid.uuid4()}"
        self.before = self.client.info("memory")["used_memory"]
        self.count = 0

    @classmethod
    def label(cls):
        url = os.environ.get("GABION_REDIS_URL")
        if not url:
            raise Missing("redis (set GABION_REDIS_URL to a server that the benchmark may write to)")
        try:
            version = redis.Redis.from_url(url).info("server")["redis_version"]
        except redis.RedisError as error:
            raise Missing(f"redis (no answer from {url}: {error})") from error
        return f"redis {version} pipelined + pickle"

    def put_each(self, objects, keep):
        key = self.count
        for start in range(0, len(objects), _BATCH):
            pipeline = self.client.pipeline(transaction=False)
            for obj in objects[start : start + _BATCH]:
                pipeline.hset(self.name, key, dumps(obj, PROTOCOL))
                keep(key)
                key += 1
            pipeline.execute()
        self.count = key

    def get_each(self, keys):
        obj = None
        for start in range(0, len(keys), _BATCH):
            pipeline = self.client.pipeline(transaction=False)
            for key in keys[start : start + _BATCH]:
                pipeline.hget(self.name, key)
            for data in pipeline.execute():
                obj = loads(data)
        return obj

    def outside_bytes(self):
        return self.client.info("memory")["used_memory"] - self.before

    def close(self):
        self.client.unlink(self.name)
        self.client.close()
