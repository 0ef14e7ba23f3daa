"""One member's connection to the positions, the log and the lease."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection

from calving.backend import (
    Claim,
    Cursor,
    Encoded,
    GroupSession,
    Publication,
    SinkIdentity,
    SourceOffsets,
    TopicPartition,
    partition_key,
)
from calving_redis import scripts
from calving_redis.connection import ERRORS, RedisClient, reaching
from calving_redis.cursor import RedisCursor
from calving_redis.store import RedisStore


class RedisSession(GroupSession):
    def __init__(
        self, sink: SinkIdentity, store: RedisStore, client: RedisClient, member_id: str, identity: str
    ) -> None:
        super().__init__(sink, store.options)
        self._sink, self._store, self._options, self._keys = sink, store, store.options, store.keys
        self._client, self._member_id, self._identity = client, member_id, identity
        self._lead = client.register_script(scripts.LEAD)
        self._leads, self._asked = False, float("-inf")

    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        now = time.monotonic()
        if now - self._asked >= self._options.lease_ms / 3000:
            # If this fails, there is no lease for close() to release.
            self._leads = False
            with reaching(self._options):
                self._leads = bool(self._lead([self._keys.lease], [self._member_id, self._options.lease_ms]))
            self._asked = now
        return self._leads

    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        return {tp: int(offset) for tp, offset in self._fields(self._keys.positions, partitions).items()}

    def topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        return {tp: name.decode() for tp, name in self._fields(self._keys.topic_ids, partitions).items()}

    def append(self, publication: Publication, encoded: Encoded, claim: Claim) -> None:
        positions: list[object] = []
        known = publication.identities
        for tp, advance in publication.advances.items():
            start = "" if advance.start is None else advance.start
            positions += [partition_key(tp), start, advance.end, known[tp]]
        headers = [self._identity, self._member_id, encoded.coverage, encoded.beside]
        count = len(publication.advances)
        self._store.write(self._client, scripts.PUBLISH, *headers, count, *positions, *encoded.events)

    def _fields(self, key: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, bytes]:
        wanted = sorted(partitions)
        if not wanted:
            return {}
        with reaching(self._options):
            stored = self._client.hmget(key, [partition_key(tp) for tp in wanted])
        return {tp: value for tp, value in zip(wanted, stored, strict=True) if value is not None}

    def follow(self, *, replay: bool) -> Cursor:
        return RedisCursor(self._sink, self._store, replay=replay)

    def watch(self) -> Cursor:
        return RedisCursor(self._sink, self._store, replay=False, watch=True)

    def release(self) -> None:
        if self._leads:
            with contextlib.suppress(*ERRORS):
                self._client.register_script(scripts.RELEASE)([self._keys.lease], [self._member_id])
        self._client.close()
