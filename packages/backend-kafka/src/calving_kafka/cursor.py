"""Readers of the control topic: a worker's from the end, the coordinator's from the saved position."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as KafkaMessage
from confluent_kafka import TopicPartition as KafkaPartition

from calving.backend import (
    BEFORE,
    ControlLog,
    ControlOffsets,
    Encoded,
    EntryCursor,
    Envelope,
    SinkIdentity,
    SourceOffsets,
    Topic,
    TopicPartition,
)
from calving.errors import AccessDeniedError, CalvingError, DataLossError, ProtocolError, UnavailableError
from calving.model.offsets import Span
from calving.model.text import natural
from calving.source.client import REFUSED, TIMEOUT, consumer_client, headers_of, patiently, reaching, unavailable
from calving_kafka.notes import Note
from calving_kafka.options import KafkaOptions
from calving_kafka.records import BESIDE_HEADER, SPANS_HEADER, records_of
from calving_kafka.transactions import GroupOffsets, Transactions
from calving_kafka.trimming import Trimming

log = logging.getLogger(__name__)

_PARTITIONS_SECONDS = 10.0
_END_SECONDS = 1.0
_WATCH_WAIT_MS = 20
"""So long a broker waits for more before it tells of the end of the log. All who watch read to that end, and stop."""
_END_MARK = 1
"""Of the last transaction, one offset that holds no entry. A publication takes at least two."""
_COORDINATORS = 0
"""The partition to which all coordinators write, so that each reads its predecessors' entries before its own."""
_TAIL = "calving tail="
"""The note of a saved position: how many offsets the records written with it take, including the transaction's end
mark.
"""


class KafkaCursor(EntryCursor):
    """Reads every partition without a group, so that no rebalance and no other coordinator can revoke a partition."""

    def __init__(
        self, sink: SinkIdentity, options: KafkaOptions, topic_id: str, *, replay: bool, watch: bool = False
    ) -> None:
        super().__init__(sink, options, f"control topic '{sink.control_topic}'", replay=replay, watch=watch)
        self._sink = sink
        group, from_saved = f"{sink.group}-coord", replay or watch
        self._consumer = consumer_client(
            sink.kafka,
            group_id=group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="error",
            enable_partition_eof=from_saved,
            **({"fetch_wait_max_ms": _WATCH_WAIT_MS} if watch else {}),
        )
        # All coordinators of the sink have the same transactional id: opening it fences the predecessor's producer.
        self._transactions = Transactions(sink, options, f"coordinator-{sink.group}") if replay else None
        self._trimming = Trimming(sink, options.audit_entries)
        self._assigned: dict[int, int] = {}
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="calving-control-partitions")
        self._looking: Future[list[int]] | None = None
        self._looked = time.monotonic()
        partitions = self._partitions()
        self._ended = set() if from_saved else set(partitions)
        """Partitions that were read to their end."""
        self._read_to: dict[int, int] = {}
        bounds = self._bounds(partitions)
        saved = self._saved(partitions) if from_saved else {}
        start = {p: self._start(p, saved.get(p), bounds[p]) if from_saved else bounds[p].end for p in partitions}
        if replay and not saved:
            # Save the position now, so that no other sink on the topic trims entries that this sink has not read.
            self._writer().write((), self._saving(start))
        self.log = ControlLog(topic_id, start, {p: bound.end for p, bound in bounds.items()})
        self._assign({p: max(bounds[p].start, at - BEFORE) for p, at in start.items()} if watch else start)

    @property
    def has_ended(self) -> bool:
        return self._ended >= self.log.end.keys()

    @property
    def is_current(self) -> bool:
        if not self.has_ended or len(self._assigned) == 1:
            return self.has_ended
        try:
            return all(self._end(p) - self._read_to.get(p, at) <= _END_MARK for p, at in self._assigned.items())
        except KafkaException as error:
            log.info("%s: its end is not known: %s", self.log_name, error)
            return False

    def _end(self, partition: int) -> int:
        """The end of a partition with what open transactions hide: the fetcher knows the one, the broker the other."""
        at = self._at(partition)
        known = self._consumer.get_watermark_offsets(at, cached=True)
        asked = self._consumer.get_watermark_offsets(at, _END_SECONDS)
        if asked is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return max(asked[1], known[1] if known else 0)

    def read(self, timeout: float) -> Sequence[Envelope]:
        self._watch_new_partitions()
        envelopes: list[Envelope] = []
        first = self._consumer.poll(timeout)
        # `consume` waits for the full number of messages: wait for one, then take those that are ready.
        for message in [first, *self._consumer.consume(500, 0)] if first is not None else ():
            envelope = self._envelope(message)
            if envelope is not None:
                envelopes.append(envelope)
        return envelopes

    def save(self, position: ControlOffsets, encoded: Encoded, departed: Collection[Topic]) -> None:
        records = records_of(self._sink.control_topic, encoded, self.sender, _COORDINATORS)
        # If the log ends right after these entries, no other entries are at the saved position or above it. So these
        # entries may be lost together with the earlier ones, unless they name parked commits: no other entry names
        # these.
        self._writer().write(records, self._saving(position, 0 if encoded.parked else len(records) + 1))
        if position:
            self._trimming.saved(self._assigned, self.entries.others)

    def rewind(self, positions: SourceOffsets) -> None:
        ends = {p: bound.end for p, bound in self._bounds(self._partitions()).items()}
        # Without a member in the metadata the broker accepts any position, also a lower one.
        with closing(consumer_client(self._sink.kafka, group_id=self._sink.group)) as sources:
            notes = dict.fromkeys(positions, str(Note(log_id=self.log.identity)))
            stored = GroupOffsets(positions, sources.consumer_group_metadata(), notes)
            self._writer().write((), self._saving(ends), stored)

    def _writer(self) -> Transactions:
        if self._transactions is None:
            raise ProtocolError("only a cursor that replays can write")
        if not self._transactions.look():
            # Do not recreate the producer here: that would fence a newer coordinator. The elected coordinator opens the
            # log again.
            raise UnavailableError(f"{self.log_name}: the connection broke")
        return self._transactions

    def _saving(self, position: ControlOffsets, taken: int | None = None) -> GroupOffsets:
        """A position to save, and how many offsets the records written with it take."""
        offsets = {TopicPartition(self._sink.control_topic, p): offset for p, offset in position.items()}
        notes = {tp: f"{_TAIL}{taken if tp.partition == _COORDINATORS else 0}" for tp in offsets if taken is not None}
        return GroupOffsets(offsets, self._consumer.consumer_group_metadata(), notes)

    def release(self) -> None:
        self._beside.shutdown(cancel_futures=True)  # a consumer that is closed must not be in use
        if self._transactions is not None:
            self._transactions.close()
        self._consumer.close()

    def _start(self, partition: int, found: KafkaPartition | None, bound: Span) -> int:
        if found is None:
            return bound.start
        saved: int = found.offset
        if bound.start <= saved <= bound.end:
            return saved
        # One more offset may be the end mark of the last transaction that was read. A publication takes at least two
        # offsets.
        if saved < bound.start == bound.end and bound.end - saved - _tail(found.metadata) in (0, 1):
            log.info("%s has no entries left: all of them were committed", self.log_name)
            return bound.start
        text = (
            f"{self.log_name}, partition {partition}: the saved position {saved} is"
            f" outside the offsets {bound.start} to {bound.end} that the topic has; files published there and not yet"
            " committed may be missing from the tables"
        )
        if self._on_truncation == "fail":
            raise DataLossError(
                f"{text}; stop all workers and run `calving recover FILE`, or set"
                f" iceberg.control.on-truncation = continue to resume at {bound.start} without them"
            )
        log.error("%s; resuming at %d", text, bound.start)
        return bound.start

    @patiently
    def _bounds(self, partitions: Sequence[int]) -> dict[int, Span]:
        with reaching(self.log_name):
            return {p: Span(*self._consumer.get_watermark_offsets(self._at(p), TIMEOUT)) for p in partitions}

    @patiently
    def _saved(self, partitions: Sequence[int]) -> dict[int, KafkaPartition]:
        with reaching(f"saved position of group '{self._sink.group}-coord'"):
            stored = self._consumer.committed([self._at(p) for p in partitions], TIMEOUT)
        return {p.partition: p for p in stored if p.offset >= 0}

    @patiently
    def _partitions(self) -> list[int]:
        topic = self._sink.control_topic
        with reaching(self.log_name):
            meta = self._consumer.list_topics(topic, timeout=TIMEOUT).topics[topic]
            if meta.error is not None:
                raise KafkaException(meta.error)
        return sorted(meta.partitions)

    def _watch_new_partitions(self) -> None:
        """On a thread of its own: a broker answers only after the fetch before it, which waits for entries."""
        if self._looking is None:
            if time.monotonic() - self._looked >= _PARTITIONS_SECONDS:
                self._looking = self._beside.submit(self._partitions)
        elif self._looking.done():
            looking, self._looking, self._looked = self._looking, None, time.monotonic()
            if added := [p for p in looking.result() if p not in self._assigned]:
                self._assign(dict.fromkeys(added, 0))

    def _assign(self, start: ControlOffsets) -> None:
        self._assigned.update(start)
        self._consumer.incremental_assign([self._at(p, offset) for p, offset in start.items()])

    def _at(self, partition: int, offset: int = -1001) -> KafkaPartition:
        return KafkaPartition(self._sink.control_topic, partition, offset)

    def _failure(self, error: KafkaError) -> CalvingError:
        """A broker that restarts may refuse for a moment. So a denial stops the sink only if it lasts."""
        if error.code() in REFUSED:
            return AccessDeniedError(f"{self.log_name}: {error.str()}; let the sink's user read the topic")
        return unavailable(error, self.log_name)

    def _envelope(self, message: KafkaMessage) -> Envelope | None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(cast("int", message.partition()))
                self._read_to[cast("int", message.partition())] = cast("int", message.offset())
                return None
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise DataLossError(f"{self.log_name}, partition {message.partition()}: {error.str()}")
            raise self._failure(error)
        headers = dict(headers_of(message) or ())
        partition, offset = message.partition(), message.offset()
        assert partition is not None and offset is not None  # noqa: S101 - it was consumed
        self._read_to[partition] = offset + 1
        return self.entries.envelope(
            partition,
            offset,
            message.key() or b"",
            message.value() or b"",
            headers.get(SPANS_HEADER),
            headers.get(BESIDE_HEADER),
        )


def _tail(note: str | None) -> int:
    return natural((note or "").removeprefix(_TAIL)) or 0
