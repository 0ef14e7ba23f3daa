"""One member's connection to the control topic and to the stored positions."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.backend.interface import Cursor, Session, SinkIdentity
from calving.errors import Fenced, Unavailable
from calving.model.events import Publication
from calving.model.membership import Claim
from calving.model.offsets import SourceOffsets, TopicPartition
from calving.source import dead_letters
from calving.source.claims import has_member
from calving.source.client import TIMEOUT, client_config, patiently, reaching
from calving_kafka.cursor import KafkaCursor
from calving_kafka.notes import Note, read_note
from calving_kafka.options import KafkaOptions
from calving_kafka.records import partition_of, records_of
from calving_kafka.transactions import GroupOffsets, Transactions


class KafkaSession(Session):
    def __init__(
        self, sink: SinkIdentity, options: KafkaOptions, member_id: str, topic_id: str, partitions: int
    ) -> None:
        self._sink, self._options, self._member_id, self._topic_id = sink, options, member_id, topic_id
        self._partition = partition_of(member_id, partitions)
        # Not a member: it only asks for the group's offsets. With read_committed the broker makes it wait for
        # transactions that have offsets pending, so a publication that is being decided is never overlooked.
        self._positions = Consumer(
            client_config(sink.kafka, group_id=sink.group, enable_auto_commit=False, isolation_level="read_committed")
        )
        self._transactions: Transactions | None = None
        self._closed = False

    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        return bool(every) and min(every) in held

    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        return {TopicPartition(p.topic, p.partition): p.offset for p in self._stored(partitions)}

    def topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        return {tp: note.topic_id for tp, note in self._notes(partitions) if note.topic_id is not None}

    def log_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        return {tp: note.log_id for tp, note in self._notes(partitions)}

    def _notes(self, partitions: Collection[TopicPartition]) -> Iterator[tuple[TopicPartition, Note]]:
        for p in self._stored(partitions):
            yield TopicPartition(p.topic, p.partition), read_note(p.metadata)

    @patiently  # a broker that has just come back does not know yet which groups it coordinates
    def _stored(self, partitions: Collection[TopicPartition]) -> list[KafkaPartition]:
        if not partitions:
            return []
        with reaching(f"stored positions of group '{self._sink.group}'"):
            found = self._positions.committed([KafkaPartition(tp.topic, tp.partition) for tp in partitions], TIMEOUT)
            for p in found:
                if p.error is not None:
                    raise Unavailable(f"stored position of {p.topic}-{p.partition}: {p.error.str()}")
        return [p for p in found if p.offset >= 0]

    def publish(self, publication: Publication, claim: Claim) -> None:
        if not has_member(claim):
            raise Fenced(f"the consumer of group '{self._sink.group}' is not a member")
        stored = self.committed(publication.advances)
        for tp, advance in publication.advances.items():
            if stored.get(tp) != advance.start:
                raise Fenced(f"{tp} is stored at {stored.get(tp)}, this publication starts at {advance.start}")
        if self._transactions is None:
            self._transactions = Transactions(
                self._sink.kafka,
                self._sink.control_topic,
                f"{self._sink.transactional_prefix}calving-worker-{self._member_id}",
                self._options.transaction_timeout_ms,
            )
        records = records_of(
            self._sink, self._options, publication.events, publication.spans, self._member_id, self._partition
        )
        if publication.dead_letters and self._sink.dead_letters is not None:
            records += dead_letters.records(publication.dead_letters, self._sink.dead_letters, self._sink.name)
        positions = {tp: advance.end for tp, advance in publication.advances.items()}
        notes = {tp: str(Note(identity, self._topic_id)) for tp, identity in publication.identities.items()}
        self._transactions.write(records, GroupOffsets(positions, claim.token, notes))

    def follow(self, *, replay: bool) -> Cursor:
        return KafkaCursor(self._sink, self._options, self._topic_id, replay=replay)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._transactions is not None:
                self._transactions.close()
            self._positions.close()
