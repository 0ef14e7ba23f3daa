"""A stream for the log, a hash of positions, scripts for every change.

A script runs alone and is written to the append-only file as a whole, which makes a publication atomic (B1). At its
start the sink checks how durable the store's writes are; after each write it waits until that write is durable.
"""

from __future__ import annotations

from uuid import uuid4

from pydantic import BaseModel

from calving.backend import Backend, Session, SinkIdentity
from calving_redis.connection import Client, connect, reaching, writing
from calving_redis.durability import inspect
from calving_redis.keys import Keys
from calving_redis.options import RedisOptions
from calving_redis.session import RedisSession


class RedisBackend(Backend):
    name = "redis"
    settings = RedisOptions
    mirrors = True

    def __init__(self, sink: SinkIdentity, settings: BaseModel) -> None:
        self._sink = sink
        self._options = RedisOptions.model_validate(settings.model_dump(by_alias=True))
        self._keys = Keys.of(self._options, sink)

    def provision(self) -> None:
        client = connect(self._options)
        try:
            inspect(client, self._options)
            self._identity(client)
        finally:
            client.close()

    def open(self, member_id: str) -> Session:
        client = connect(self._options)
        try:
            durability = inspect(client, self._options)
            identity = self._identity(client)
        except BaseException:
            client.close()
            raise
        return RedisSession(self._sink, self._options, self._keys, client, durability, member_id, identity)

    def _identity(self, client: Client) -> str:
        """The identity of the log. After the store has lost its data, the log has a new identity."""
        with writing(self._options):
            client.hsetnx(self._keys.state, "id", str(uuid4()))
        with reaching(self._options):
            return str(client.hget(self._keys.state, "id").decode())
