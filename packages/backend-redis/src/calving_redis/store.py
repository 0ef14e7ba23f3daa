"""What a session and its cursors share: the keys of one sink, and how a script is run so that its writes last."""

from __future__ import annotations

import re
from dataclasses import dataclass

import redis

from calving.backend import SinkIdentity, stale
from calving.errors import ConfigError, FencedError, ProtocolError
from calving_redis.connection import RedisClient, reaching, where, writing
from calving_redis.durability import Durability
from calving_redis.options import RedisOptions

_BELOW = re.compile("equal or smaller than the target stream top item|exhausted the last possible ID")
"""The store's answer to an entry with an ID below the last one."""


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """The keys, all in one hash slot."""

    state: str
    positions: str
    topic_ids: str
    log: str
    lease: str

    @staticmethod
    def of(options: RedisOptions, sink: SinkIdentity) -> RedisKeys:
        base = f"{options.prefix}{{{sink.control_topic}:{sink.group}}}:"
        return RedisKeys(f"{base}state", f"{base}positions", f"{base}topic-ids", f"{base}log", f"{base}lease")


@dataclass(frozen=True, slots=True)
class RedisStore:
    """The store of one sink, as it was inspected."""

    options: RedisOptions
    keys: RedisKeys
    durability: Durability

    def write(self, client: RedisClient, script: str, *arguments: object) -> None:
        """Run one of the scripts that answer with a verdict, and wait until its writes are durable.

        :raises FencedError, UnavailableError: nothing was written. :raises OutcomeUnknownError: it may have been.
        """
        keys = [self.keys.state, self.keys.positions, self.keys.log, self.keys.topic_ids]
        with reaching(self.options):
            client.ping()  # an unreachable store is detected before anything is sent
        with writing(self.options):
            try:
                verdict, *why = (text.decode() for text in client.register_script(script)(keys, arguments))
            except redis.ResponseError as error:
                if not _BELOW.search(str(error)):
                    raise
                # To append is the first write of each script, so nothing was written.
                raise self._refused_by_stranger(client) from error
        if verdict == "recreated":
            raise FencedError(f"{where(self.options)}: the store was emptied")
        if verdict == "moved":
            tp, stored, start = why
            raise stale(tp, stored or None, start or None)
        if verdict == "fenced":
            raise FencedError(f"coordinator {why[0]} has followed coordinator {why[1]}")
        if verdict != "done":
            raise ProtocolError(f"the store's script answers {verdict!r}")
        self.durability.wait(client, self.options)

    def _refused_by_stranger(self, client: RedisClient) -> ConfigError:
        """The error about an entry of somebody else, below which the stream takes no entries."""
        ((last, _), *_) = client.xrevrange(self.keys.log, max="+", count=1) or [(b"?", {})]
        return ConfigError(
            f"{where(self.options)}: stream '{self.keys.log}' takes no more entries, because somebody else has added"
            f" one with an ID in the future (the last is {last.decode()}); stop all workers, keep others from writing"
            " to the stream, and run `calving recover FILE`"
        )
