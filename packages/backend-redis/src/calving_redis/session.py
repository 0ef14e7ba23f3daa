"""One member's connection to the positions, the log and the lease."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection

from calving.backend.entries import beside_text, covered_text, partition_key, payloads
from calving.backend.interface import Cursor, Session, SinkIdentity
from calving.errors import FencedError, ProtocolError, StaleError
from calving.model.events import Publication
from calving.model.membership import Claim
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.source.claims import has_member
from calving.source.dead_letters import DeadLetterWriter
from calving_redis import scripts
from calving_redis.connection import ERRORS, Client, connect, reaching, where, writing
from calving_redis.cursor import RedisCursor
from calving_redis.durability import Durability
from calving_redis.keys import Keys
from calving_redis.options import RedisOptions


class RedisSession(Session):
    def __init__(
        self,
        sink: SinkIdentity,
        options: RedisOptions,
        keys: Keys,
        client: Client,
        durability: Durability,
        member_id: str,
        identity: str,
    ) -> None:
        self._sink, self._options, self._keys, self._client = sink, options, keys, client
        self._durability, self._member_id, self._identity = durability, member_id, identity
        self._dead_letters = DeadLetterWriter(sink)
        self._publish = client.register_script(scripts.PUBLISH)
        self._lead = client.register_script(scripts.LEAD)
        self._leads, self._asked = False, float("-inf")
        self._closed = False

    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        now = time.monotonic()
        if now - self._asked >= self._options.lease_ms / 3000:
            # Should this fail, there is no lease that close() would have to give back.
            self._leads = False
            with reaching(self._options):
                self._leads = bool(self._lead([self._keys.lease], [self._member_id, self._options.lease_ms]))
            self._asked = now
        return self._leads

    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        return {tp: int(offset) for tp, offset in self._fields(self._keys.positions, partitions).items()}

    def topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        return {tp: name.decode() for tp, name in self._fields(self._keys.topic_ids, partitions).items()}

    def publish(self, publication: Publication, claim: Claim) -> None:
        if not has_member(claim):
            raise FencedError(f"the consumer of group '{self._sink.group}' is not a member")
        self._dead_letters.write(publication.dead_letters)
        positions: list[object] = []
        known = publication.identities
        for tp, advance in publication.advances.items():
            start = "" if advance.start is None else advance.start
            positions += [partition_key(tp), start, advance.end, known[tp]]
        events = payloads(self._sink.group, publication.events, self._options.max_message_bytes)
        count = len(publication.advances)
        beside = beside_text(self._sink.group, publication.events, events)
        spans = covered_text(publication)
        arguments = [self._identity, self._member_id, spans, beside, count, *positions, *events]
        keys = self._keys
        with reaching(self._options):
            self._client.ping()  # an unreachable store is detected before anything is sent
        with writing(self._options):
            verdict, *why = self._publish([keys.state, keys.positions, keys.log, keys.topic_ids], arguments)
        if verdict == b"recreated":
            raise FencedError(f"{where(self._options)}: the store was emptied")
        if verdict == b"moved":
            tp, stored, start = (text.decode() for text in why)
            raise StaleError(f"{tp} is stored at {stored or None}, this publication starts at {start or None}")
        if verdict != b"done":
            raise ProtocolError(f"the store's script answers {verdict!r}")
        self._durability.wait(self._client, self._options)

    def _fields(self, key: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, bytes]:
        wanted = sorted(partitions)
        if not wanted:
            return {}
        with reaching(self._options):
            found = self._client.hmget(key, [partition_key(tp) for tp in wanted])
        return {tp: value for tp, value in zip(wanted, found, strict=True) if value is not None}

    def follow(self, *, replay: bool) -> Cursor:
        reader = connect(self._options, blocks_seconds=RedisCursor.BLOCK_SECONDS)
        return RedisCursor(self._sink, self._options, self._keys, reader, self._durability, replay=replay)

    def watch(self) -> Cursor:
        reader = connect(self._options, blocks_seconds=RedisCursor.BLOCK_SECONDS)
        return RedisCursor(self._sink, self._options, self._keys, reader, self._durability, replay=False, watch=True)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._leads:
            with contextlib.suppress(*ERRORS):
                self._client.register_script(scripts.RELEASE)([self._keys.lease], [self._member_id])
        self._client.close()
