"""One member's connection to the control topic and to the stored positions."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import TopicPartition as KafkaPartition

from calving.backend import (
    Claim,
    Cursor,
    DeadLetter,
    Encoded,
    GroupSession,
    Publication,
    SinkIdentity,
    SourceOffsets,
    TopicPartition,
    check_starts,
)
from calving.source import producing
from calving.source.client import patiently
from calving.source.members import members
from calving.source.producing import OutRecord, TooLargeError, without_too_large
from calving_kafka.cursor import KafkaCursor
from calving_kafka.notes import Note, read_note
from calving_kafka.options import KafkaOptions
from calving_kafka.positions import StoredPositions
from calving_kafka.records import partition_of, records_of
from calving_kafka.transactions import GroupOffsets, ProducerFencedError, Transactions


class KafkaSession(GroupSession):
    def __init__(
        self, sink: SinkIdentity, options: KafkaOptions, member_id: str, topic_id: str, partitions: int
    ) -> None:
        super().__init__(sink, options)
        self._sink, self._options, self._member_id, self._topic_id = sink, options, member_id, topic_id
        self._partition = partition_of(member_id, partitions)
        # The answer never misses a publication that is being committed.
        self._positions = StoredPositions(sink.kafka, sink.group, stable=True)
        self._transactions: Transactions | None = None
        self._alone = False
        """Whether a topic has refused records that were sent together: it may take each of them alone."""
        self._published_as: str | None = None
        """The member id of the last publication."""
        self._ended: set[str] = set()
        """Publishers that are gone, and have left no undecided publication."""
        self._every: Collection[TopicPartition] = ()
        self._first: TopicPartition | None = None

    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        if every is not self._every:  # called many times a second, with up to a thousand partitions
            self._every, self._first = every, min(every, default=None)
        return self._first in held

    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        return {TopicPartition(p.topic, p.partition): p.offset for p in self._stored(partitions)}

    def topic_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        return {tp: note.topic_id for tp, note in self._notes(partitions) if note.topic_id is not None}

    def log_ids(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        return {tp: note.log_id for tp, note in self._notes(partitions)}

    def moved_by_others(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return {tp for tp, note in self._notes(partitions) if note == Note()}

    def _notes(self, partitions: Collection[TopicPartition]) -> Iterator[tuple[TopicPartition, Note]]:
        for p in self._stored(partitions):
            yield TopicPartition(p.topic, p.partition), read_note(p.metadata)

    def take_over(self, partitions: Collection[TopicPartition]) -> None:
        # A publisher that died inside a transaction hides its partitions' positions and all later events until the
        # broker times the transaction out, after up to twenty seconds. Its successor finds it in the notes of the
        # positions, and ends the transaction at once by taking its transactional id. This is done only to publishers
        # that have left the group: they cannot publish any more.
        with contextlib.closing(StoredPositions(self._sink.kafka, self._sink.group, stable=False)) as undecided:
            notes = [read_note(p.metadata) for p in patiently(undecided.read)(partitions)]
        last = {n.by: n.member for n in notes if n.by and n.by != self._member_id and n.by not in self._ended}
        if not last:
            return
        living = members(self._sink.kafka, self._sink.group)
        gone = {by for by, member in last.items() if member not in living}
        with ThreadPoolExecutor(max(1, len(gone))) as pool:
            list(pool.map(lambda publisher: self._producer(publisher).close(), gone))
        self._ended |= gone

    def _producer(self, publisher: str) -> Transactions:
        return Transactions(self._sink, self._options, f"worker-{publisher}", alone=self._alone)

    @patiently  # a broker that has just restarted has not loaded its groups yet
    def _stored(self, partitions: Collection[TopicPartition]) -> list[KafkaPartition]:
        return self._positions.read(partitions)

    def write_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Does nothing: dead letters are written in the publication's transaction."""

    def append(self, publication: Publication, encoded: Encoded, claim: Claim) -> None:
        records = records_of(self._sink.control_topic, encoded, self._member_id, self._partition)
        if publication.dead_letters and self._sink.dead_letters is not None:
            records += producing.records(publication.dead_letters, self._sink.dead_letters, self._sink.name)
        try:
            self._append_fitting(publication, records, claim)
        except ProducerFencedError:
            if self._published_as == claim.member_id:
                raise
            # The process joined the group again: a successor may have considered its old member dead, and fenced its
            # producer. The claim decides: with a stale one the broker refuses the next producer as well.
            self._transactions = None
            self._append_fitting(publication, records, claim)
        self._published_as = claim.member_id

    def _append_fitting(self, publication: Publication, records: Sequence[OutRecord], claim: Claim) -> None:
        """Append the records, or smaller ones if a topic finds some too large."""
        while True:
            try:
                return self._append(publication, records, claim)
            except TooLargeError as error:
                if self._alone:
                    records = without_too_large(records, error)
                self._alone, self._transactions = True, None

    def _append(self, publication: Publication, records: Sequence[OutRecord], claim: Claim) -> None:
        # Make the producer first: it fences other producers with its id, so they cannot change the positions that are
        # read next.
        if self._transactions is None or not self._transactions.look():
            self._transactions = self._producer(self._member_id)
        check_starts(publication, self.committed(publication.advances))
        positions = {tp: advance.end for tp, advance in publication.advances.items()}
        by = Note(None, self._topic_id, self._member_id, claim.member_id)
        notes = {tp: str(by._replace(topic_id=identity)) for tp, identity in publication.identities.items()}
        self._transactions.write(records, GroupOffsets(positions, claim.token, notes))

    def follow(self, *, replay: bool) -> Cursor:
        if not replay and self._transactions is None:
            # This comes before the request for the end of the log: a transaction that an earlier session of this
            # process left open hides all entries after it.
            self._transactions = self._producer(self._member_id)
        return KafkaCursor(self._sink, self._options, self._topic_id, replay=replay)

    def watch(self) -> Cursor:
        return KafkaCursor(self._sink, self._options, self._topic_id, replay=False, watch=True)

    def release(self) -> None:
        if self._transactions is not None:
            self._transactions.close()
        self._positions.close()
