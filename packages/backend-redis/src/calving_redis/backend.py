"""A stream for the log, a hash of positions, scripts for every change.

A script runs alone and is written to the append-only file as a whole, which makes a publication atomic (B1). At its
start the sink checks how durable the store's writes are; after each write it waits until that write is durable.
"""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

from pydantic import BaseModel

from calving.backend import Backend, Session, SinkIdentity, closing_on_error
from calving_redis.connection import RedisClient, connect, reaching, writing
from calving_redis.durability import inspect
from calving_redis.options import RedisOptions
from calving_redis.session import RedisSession
from calving_redis.store import RedisKeys, RedisStore


class RedisBackend(Backend):
    name = "redis"
    settings = RedisOptions
    mirrors = True

    def __init__(self, sink: SinkIdentity, settings: BaseModel) -> None:
        self._sink = sink
        self._options = RedisOptions.model_validate(settings.model_dump(by_alias=True))
        self._keys = RedisKeys.of(self._options, sink)

    def provision(self) -> None:
        with closing(connect(self._options)) as client:
            inspect(client, self._options)
            self._identity(client)

    def open(self, member_id: str) -> Session:
        with closing_on_error(connect(self._options)) as client:
            store = RedisStore(self._options, self._keys, inspect(client, self._options))
            return RedisSession(self._sink, store, client, member_id, self._identity(client))

    def _identity(self, client: RedisClient) -> str:
        """The identity of the log. After the store has lost its data, the log has a new identity."""
        with writing(self._options):
            client.hsetnx(self._keys.state, "id", str(uuid4()))
        with reaching(self._options):
            return (client.hget(self._keys.state, "id") or b"").decode()
