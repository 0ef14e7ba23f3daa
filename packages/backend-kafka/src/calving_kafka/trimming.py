"""Trims entries of the control topic that no sink has to read again; Kafka itself keeps everything (B8)."""

from __future__ import annotations

import contextlib
import logging
import shlex
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from calving.backend import ControlOffsets, SinkIdentity, TopicPartition
from calving.backend.entries import MOST_GROUPS
from calving.errors import CalvingError
from calving.model.backfills import is_backfill
from calving.model.text import printable
from calving.source.client import admin_client, reaching
from calving_kafka.positions import StoredPositions

log = logging.getLogger(__name__)

_SECONDS = 60.0
_REQUEST_SECONDS = 5.0
_AT_ONCE = 8
_MOST_TOLD = 10
"""How many groups without a position are named in the log."""
_COORDINATORS = "-coord"
"""The suffix of the groups in which coordinators save their positions, those of the Java sink, too."""


class Trimming:
    """Trims one control topic, which several sinks may share, below the lowest position that any of them has saved."""

    def __init__(self, sink: SinkIdentity, kept: int, clock: Callable[[], float] = time.monotonic) -> None:
        """``kept``: the number of entries below the position that stay in each partition."""
        self._sink, self._kept, self._clock = sink, kept, clock
        self._last = clock()
        self._told: set[str] = set()
        self._backfills: set[str] = set()
        """Groups of backfills that had a position."""

    def saved(self, partitions: Collection[int], others: Collection[str]) -> None:
        """A position was saved. ``others``: groups of other sinks with entries in the topic.

        A failure is repaired at the next call.
        """
        if self._clock() - self._last < _SECONDS:
            return
        self._last = self._clock()
        try:
            with reaching(f"control topic '{self._sink.control_topic}'"):
                self.trim(partitions, others)
        except (CalvingError, KafkaException) as error:
            log.info("the control topic was not trimmed: %s", error)

    def trim(self, partitions: Collection[int], others: Collection[str]) -> None:
        topic, admin = self._sink.control_topic, admin_client(self._sink.kafka)
        listed = admin.list_consumer_groups(request_timeout=_REQUEST_SECONDS).result().valid
        groups = [listing.group_id for listing in listed if listing.group_id.endswith(_COORDINATORS)]
        wanted = [TopicPartition(topic, p) for p in partitions]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            offsets_of_groups = zip(groups, pool.map(lambda group: self._saved(group, wanted), groups), strict=True)
            saved = {group: offsets for group, offsets in offsets_of_groups if offsets}
        if not self._have_saved(others, saved):
            return
        below = lowest(saved.values(), partitions, self._kept)
        if below:
            records = [KafkaPartition(topic, p, offset) for p, offset in below.items()]
            for future in admin.delete_records(records, request_timeout=_REQUEST_SECONDS).values():
                future.result()

    def _have_saved(self, others: Collection[str], saved: Collection[str]) -> bool:
        """Whether the coordinator of every sink with entries in the topic has saved a position. If not, it may not have
        read anything yet; or somebody has made up the group, which only an operator can tell.
        """
        have = {other for other in others if f"{other}{_COORDINATORS}" in saved}
        # Kafka deletes the position of a backfill some days after its end. No worker needs it any more.
        self._backfills |= {other for other in have if is_backfill(other)}
        unsaved = sorted({*others} - have - self._backfills)
        new = [other for other in unsaved if other not in self._told]
        for other in new[: _MOST_TOLD - len(self._told)]:
            self._told.add(other)
            log.warning(
                "control topic '%s' is not trimmed, because group '%s' has entries there, and no coordinator of the"
                " group has saved a position; if no sink of this group is to run, save one for it:"
                " kafka-consumer-groups.sh --group %s --topic %s --reset-offsets --to-latest --execute",
                self._sink.control_topic,
                printable(other),
                shlex.quote(printable(f"{other}{_COORDINATORS}")),
                self._sink.control_topic,
            )
        return not unsaved and len(others) < MOST_GROUPS

    def _saved(self, group: str, wanted: Collection[TopicPartition]) -> ControlOffsets:
        with contextlib.closing(StoredPositions(self._sink.kafka, group, stable=False)) as positions:
            return {p.partition: p.offset for p in positions.read(wanted, _REQUEST_SECONDS)}


def lowest(saved: Collection[ControlOffsets], partitions: Collection[int], kept: int) -> dict[int, int]:
    """The offset below which no sink needs entries, by partition. A partition is absent unless every sink has a
    position in it.
    """
    offset_of = {p: min((offsets.get(p, 0) for offsets in saved), default=0) - kept for p in partitions}
    return {p: offset for p, offset in offset_of.items() if offset > 0}
