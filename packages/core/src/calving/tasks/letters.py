"""Bad records as dead letters: for the dead-letter topic, or as rows of the dead-letter table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from calving.casting.evolution import SchemaChanges
from calving.errors import BadRecordError, ConfigError
from calving.model.dead_letters import DeadLetter, left_out, origin
from calving.model.offsets import is_moment
from calving.model.tables import SchemaChange
from calving.records.inferred import of_type
from calving.records.values import HEADERS, RecordError, Values
from calving.source.reading import UNREADABLE, Block, headers_of
from calving.tasks.cast import Caster
from calving.tasks.route import HeldOffsets
from calving.tasks.spec import TaskSpec
from calving.tasks.write import Writers

LETTERS = pa.struct(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""A row of the dead-letter table."""


class DeadLetters:
    """The bad records of one task. Those for a table take the last steps of the record path."""

    def __init__(
        self, spec: TaskSpec, held: HeldOffsets, cast: Caster, changes: SchemaChanges, writers: Writers
    ) -> None:
        self._spec = spec
        self._held, self._cast, self._changes, self._writers = held, cast, changes, writers
        self.for_topic: list[DeadLetter] = []
        """The letters for the dead-letter topic. Those for a table are written into its files."""
        self.first: str | None = None
        """The place of the first bad record, and why it is bad."""
        self.by_stage: Counter[str] = Counter()
        """The number of bad records, by the stage that found them to be bad."""

    def add(self, block: Block, bad: Sequence[RecordError]) -> None:
        """Take the bad records of a block, at least one.

        :raises BadRecordError: the settings do not tolerate such a record, or so many.
        :raises ConfigError: the dead-letter table cannot take dead letters.
        """
        bad = sorted(bad, key=lambda b: b.index)
        tolerance = self._spec.path.tolerance
        fatal = next((b for b in bad if b.fatal or tolerance.to == "error"), None)
        if fatal is not None:
            raise BadRecordError(_located(block, fatal))
        if self.first is None:
            self.first = _located(block, bad[0])
        self.by_stage.update(b.stage for b in bad)
        if self.by_stage.total() > tolerance.at_most:
            raise BadRecordError(
                f"more than errors.max-per-batch = {tolerance.at_most} bad records; the first: {self.first}"
            )
        if tolerance.to == "topic":
            self.for_topic += [self._letter(block, each) for each in bad]
        else:
            held = self._held.by(tolerance.table or "", block, [each.index for each in bad])
            self._write([self._letter(block, each) for each in bad if each.index not in held])

    def _letter(self, block: Block, bad: RecordError) -> DeadLetter:
        i = bad.index
        place = (block.source.topic, block.source.partition, block.offsets[i].as_py())
        headers, reason = headers_of(block, i), bad.reason
        if headers is None:
            headers, reason = (), reason if reason == UNREADABLE else f"{reason}; {UNREADABLE}"
        lacks: dict[str, int] = {}
        if self._spec.path.tolerance.replayed:
            place, lacks = origin(headers) or place, left_out(headers)
        topic, partition, offset = place
        return DeadLetter(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=block.timestamps_ms[i].as_py(),
            key=block.keys[i],
            value=block.values[i],
            headers=headers,
            stage=bad.stage,
            error=bad.error,
            reason=reason,
            left_out=lacks,
        )

    def _write(self, letters: Sequence[DeadLetter]) -> None:
        """Write letters to the dead-letter table, which is created if it is missing."""
        table, changes = self._spec.path.tolerance.table or "", self._changes
        if not letters:
            return
        if table not in self._spec.tables:
            is_missing = table in self._spec.missing
            create = SchemaChange(table, "create", type=of_type(LETTERS))
            changes.add(create if is_missing else SchemaChange(table, "load"))
            return
        converted = self._cast.converter(table).convert(Values(rows_of(letters), True))
        if converted.bad:
            raise ConfigError(f"dead-letter table {table} cannot take dead letters: {converted.bad[0].reason}")
        for change in converted.changes:
            changes.add(change)
        if converted.rows is not None and not changes:
            self._writers.of(table).write(converted.rows)


def _located(block: Block, bad: RecordError) -> str:
    source = block.source
    return (
        f"topic '{source.topic}', partition {source.partition}, offset {block.offsets[bad.index].as_py()}: {bad.reason}"
    )


def rows_of(letters: Sequence[DeadLetter]) -> pa.StructArray:
    """A row for each dead letter."""
    rows = [
        {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp": _moment(letter.timestamp_ms),
            "key": letter.key,
            "value": letter.value,
            "headers": [{"key": name, "value": value} for name, value in letter.headers],
            "stage": letter.stage,
            "error": letter.error,
            "reason": letter.reason,
        }
        for letter in letters
    ]
    return pa.array(rows, LETTERS)


def _moment(timestamp_ms: int | None) -> int | None:
    """The timestamp, or None if it is no moment: many readers cannot read the years after 9999, and a dead letter is
    never bad itself.
    """
    return timestamp_ms if timestamp_ms is not None and is_moment(timestamp_ms) else None
