"""The ledger: what a table branch says about how much of the control log it already holds.

A commit of this sink writes, next to its files, the control offsets up to which it has heard (rule C6). Whoever commits
next leaves out everything below. That makes a replay, a second coordinator and a lost answer all one harmless case. The
property names are those of the Java sink (``Coordinator.commitToTable``), so either can take over from the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from calving.model.events import DataWritten, Envelope, TableId
from calving.model.files import DataFile
from calving.model.offsets import ControlOffsets, SourceOffsets, TopicPartition, furthest

COMMIT_ID = "kafka.connect.commit-id"
TASK_ID = "kafka.connect.task-id"
VALID_THROUGH = "kafka.connect.valid-through-ts"
LOG_ID = "calving.control-log-id"
SOURCE_OFFSETS = "calving.source-offsets"


@dataclass(frozen=True, slots=True)
class Ledger:
    """``control``: entries below are in the table. ``source``: records below were read by what is in the table."""

    control: ControlOffsets
    source: SourceOffsets


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """Whose ledger it is: one sink (its group), one control log, one incarnation of that log."""

    control_topic: str
    group: str
    log_id: str
    branch: str = "main"

    @property
    def offsets(self) -> str:
        return f"kafka.connect.offsets.{self.control_topic}.{self.group}"

    def _of_table(self, name: str) -> str:
        # Several sinks may write one table, one sink several branches: a table property, unlike a summary, needs its
        # owner in its name.
        name = name if name == self.offsets else f"{name}.{self.control_topic}.{self.group}"
        return name if self.branch == "main" else f"{name}@{self.branch}"

    def read(self, ancestry: Iterable[Mapping[str, str]], properties: Mapping[str, str]) -> Ledger:
        """The ledger of a branch.

        ``ancestry`` are the summaries of the branch's snapshots, head first. The newest one of this sink and this log
        decides; a summary without an identity was written by the Java sink and counts as this log. Where all of them
        have expired, the table property decides. Of the source the newest one of this sink tells, whatever log the
        records went through: they were read.
        """
        source: SourceOffsets | None = None
        for summary in ancestry:
            if self.offsets not in summary:
                continue
            if source is None:
                source = decode_source(summary.get(SOURCE_OFFSETS, "{}"))
            if summary.get(LOG_ID, self.log_id) == self.log_id:
                return Ledger(decode_control(summary[self.offsets]), source)
        if source is None:
            source = decode_source(properties.get(self._of_table(SOURCE_OFFSETS), "{}"))
        offsets = properties.get(self._of_table(self.offsets))
        if offsets is not None and properties.get(self._of_table(LOG_ID), self.log_id) == self.log_id:
            return Ledger(decode_control(offsets), source)
        return Ledger({}, source)

    def summary(self, ledger: Ledger) -> dict[str, str]:
        """The ledger as snapshot summary entries; every value is a string, Java refuses anything else."""
        return {
            self.offsets: encode_control(ledger.control),
            LOG_ID: self.log_id,
            SOURCE_OFFSETS: encode_source(ledger.source),
        }

    def properties(self, ledger: Ledger) -> dict[str, str]:
        """The ledger as table properties, for the day its snapshot expires."""
        return {
            self._of_table(self.offsets): encode_control(ledger.control),
            self._of_table(LOG_ID): self.log_id,
            self._of_table(SOURCE_OFFSETS): encode_source(ledger.source),
        }


@dataclass(frozen=True, slots=True)
class Admitted:
    """What of the heard entries is not in the table yet, and the ledger of the commit that brings it in."""

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    ledger: Ledger

    def __bool__(self) -> bool:
        return bool(self.data_files or self.delete_files)


def admit(heard: Iterable[Envelope], read: ControlOffsets, ledger: Ledger) -> Admitted:
    """Steps 2 and 3 of C6: leave out what the table has, each file once, and move the ledger to ``read``."""
    data: dict[str, DataFile] = {}
    deletes: dict[str, DataFile] = {}
    source = dict(ledger.source)
    for envelope in heard:
        if envelope.offset < ledger.control.get(envelope.partition, 0) or not isinstance(envelope.event, DataWritten):
            continue
        for file in envelope.event.data_files:
            data.setdefault(file.file_path, file)
        for file in envelope.event.delete_files:
            deletes.setdefault(file.file_path, file)
        for tp, span in envelope.spans.items():
            source[tp] = max(source.get(tp, 0), span.end)
    return Admitted(
        tuple(f for f in data.values() if f.record_count),
        tuple(f for f in deletes.values() if f.record_count),
        Ledger(furthest(ledger.control, read), source),
    )


class Buffer:
    """What has been heard of the control log and is not committed yet. Knows nothing of time."""

    def __init__(self) -> None:
        self.read: dict[int, int] = {}
        """Next control offset to hear, by partition."""
        self._heard: dict[TableId, list[Envelope]] = {}

    def hear(self, envelope: Envelope) -> None:
        """Take note of an entry. Redelivered entries change nothing."""
        if envelope.offset < self.read.get(envelope.partition, 0):
            return
        self.read[envelope.partition] = envelope.offset + 1
        if isinstance(envelope.event, DataWritten):
            self._heard.setdefault(envelope.event.table.identifier, []).append(envelope)

    def tables(self) -> dict[TableId, tuple[Envelope, ...]]:
        """Everything buffered, by table.

        By identifier only: two references to one table that differ in UUID or catalog name must share one commit,
        because the first commit's ledger covers both.
        """
        return {table: tuple(envelopes) for table, envelopes in self._heard.items()}

    def settle(self, table: TableId, read: ControlOffsets) -> None:
        """What was heard for ``table`` below ``read`` is in it."""
        left = [e for e in self._heard.get(table, ()) if e.offset >= read.get(e.partition, 0)]
        if left:
            self._heard[table] = left
        else:
            self._heard.pop(table, None)

    def position(self) -> dict[int, int]:
        """Where a successor has to start: the lowest entry still buffered, else the read position (C5)."""
        position = dict(self.read)
        for envelopes in self._heard.values():
            for envelope in envelopes:
                position[envelope.partition] = min(position[envelope.partition], envelope.offset)
        return position


def encode_control(offsets: ControlOffsets) -> str:
    """``{"0":3,"1":7}``: the Java sink's form, keys in order."""
    return json.dumps({str(p): offsets[p] for p in sorted(offsets)}, separators=(",", ":"))


def decode_control(text: str) -> dict[int, int]:
    return {int(p): int(offset) for p, offset in json.loads(text).items()}


def encode_source(offsets: SourceOffsets) -> str:
    """``{"topic":{"0":12}}``, topics and partitions in order."""
    topics: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        topics.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return json.dumps(topics, separators=(",", ":"))


def decode_source(text: str) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(p)): int(offset)
        for topic, partitions in json.loads(text).items()
        for p, offset in partitions.items()
    }
