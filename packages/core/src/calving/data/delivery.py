"""Routed values into tables: converts them, collects what tables need, and hands rows to the writers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import pyarrow as pa

from calving.data.conversion.fields import name_mapping, table_schema
from calving.data.conversion.kinds import Kind, merge, of_array, of_type, of_value
from calving.data.conversion.needs import Needs
from calving.data.conversion.table import TableConverter
from calving.data.records import HEADERS, Bad, Values
from calving.data.shuffle import Outbox, Parcel, Sample
from calving.data.spec import Need, Range, TaskSpec
from calving.data.stages import Stages
from calving.data.writing import TableWriter
from calving.errors import BadRecordError, ConfigError
from calving.model.coverage import decode_coverage
from calving.model.dead_letters import DeadLetter
from calving.model.files import DataFile
from calving.model.offsets import TopicPartition

_ROUTING = "ROUTING"


@dataclass(slots=True)
class Delivered:
    """How one set of values went; places are those of the block."""

    written: int = 0
    bad: list[Bad] = field(default_factory=list)
    filtered: Counter[str] = field(default_factory=Counter)


class Delivery:
    """The tables of one task."""

    def __init__(self, spec: TaskSpec, stages: Stages) -> None:
        self._spec, self._stages = spec, stages
        self._converters: dict[str, TableConverter] = {}
        self._writers: dict[str, TableWriter] = {}
        self._outboxes: dict[str, Outbox] = {}
        self._needs = Needs()
        self._inferred: Counter[str] = Counter()
        self._mapped: dict[str, bool] = {}
        found = {name: decode_coverage(table.held_json) for name, table in spec.tables.items()}
        self._coverage = {name: coverage for name, coverage in found.items() if coverage}
        self._held: dict[str, set[int]] = {}
        """By table the places of the block that it holds already."""

    @property
    def needs(self) -> list[Need]:
        return self._needs.list()

    def maps_names(self, table: str) -> bool:
        """Whether the table has a name mapping."""
        if table not in self._mapped:
            self._mapped[table] = bool(name_mapping(self._spec.tables[table].properties))
        return self._mapped[table]

    def begin(self, source: Range, offsets: Callable[[], Sequence[int]]) -> None:
        """A block of this range comes next; ``offsets`` are those of its records, asked for only where they matter."""
        self._held = {}
        for table, coverage in self._coverage.items():
            spans = coverage.get(TopicPartition(source.topic, source.partition), ())
            if any(span.start < source.end and source.start < span.end for span in spans):
                self._held[table] = {i for i, o in enumerate(offsets()) if any(s.start <= o < s.end for s in spans)}

    def deliver(self, tables: Sequence[str], values: Values) -> Delivered:
        """Every value to every table, or to none: a value that one of them cannot take is bad for all.

        Tables that are missing and may be are left out.

        :raises BadRecordError: a table is missing, and may not be.
        """
        spec = self._spec
        live = [table for table in tables if table in spec.tables]
        absent = [table for table in tables if table in spec.missing and not spec.evolution.create]
        for table in tables:
            if table not in live and table not in absent:
                self._ask_for(table, values)
        places = values.index if values.index is not None else range(len(values))
        if absent and spec.routing.missing_table == "fail":
            raise BadRecordError(
                f"table {absent[0]} does not exist: create it, or set iceberg.tables.auto-create-enabled = true,"
                " or iceberg.tables.on-missing-table = skip or dead-letter"
            )
        if absent and spec.routing.missing_table == "dead-letter":
            reason = f"table {absent[0]} does not exist"
            return Delivered(bad=[Bad(i, _ROUTING, "MissingTableError", reason) for i in places])
        if not live:
            return Delivered(filtered=Counter({"missing table": len(values)}))
        held = {
            table: {i for i, place in enumerate(places) if place in self._held[table]}
            for table in live
            if table in self._held
        }
        done = set.intersection(*(held.get(table, set()) for table in live)) if held else set()
        bad = {i: found for i, found in self._write(live, values, held).items() if i not in done}
        return Delivered(
            len(values) - len(bad) - len(done),
            [replace(b, index=places[b.index]) for b in bad.values()],
            Counter({"held by its tables": len(done)} if done else {}),
        )

    def _write(self, tables: Sequence[str], values: Values, held: Mapping[str, Set[int]]) -> dict[int, Bad]:
        """The bad ones by place among the values; the others are handed to the writers, but for what a table holds."""
        rows: list[tuple[str, pa.RecordBatch, Sequence[int] | None]] = []
        bad: dict[int, Bad] = {}
        with self._stages("convert"):
            for table in tables:
                converted = self._converter(table).convert(values)
                for need in converted.needs:
                    self._needs.add(need)
                for found in converted.bad:
                    bad.setdefault(found.index, found)
                if converted.rows is not None:
                    rows.append((table, converted.rows, converted.places))
        # With a need the whole task runs again: from here on it only looks for more needs.
        if not self._needs:
            with self._stages("write"):
                for table, batch, kept in rows:
                    left_out = {*bad, *held.get(table, ())}
                    self._writer(table).write(_without(batch, kept, left_out, len(values)))
                self._relieve()
        return bad

    def dead_letters(self, letters: Sequence[DeadLetter], places: Sequence[int]) -> None:
        """Into the dead-letter table, which is created if it is missing; ``places`` are those of the block."""
        table = self._spec.tolerance.table or ""
        held = self._held.get(table, ())
        letters = [letter for letter, place in zip(letters, places, strict=True) if place not in held]
        if not letters:
            return
        if table not in self._spec.tables:
            self._needs.add(
                Need(table, "create", type=of_type(LETTERS)) if table in self._spec.missing else Need(table, "load")
            )
            return
        converted = self._converter(table).convert(Values(_letter_rows(letters), True))
        if converted.bad:
            raise ConfigError(f"dead-letter table {table} cannot take dead letters: {converted.bad[0].reason}")
        for need in converted.needs:
            self._needs.add(need)
        if converted.rows is not None and not self._needs:
            self._writer(table).write(converted.rows)

    def parcels(self) -> Iterator[Parcel | Sample]:
        """Rows that other tasks write, as far as they are packed."""
        for outbox in self._outboxes.values():
            yield from outbox.take()

    @property
    def sent(self) -> int:
        """Rows that other tasks write."""
        return sum(outbox.rows for outbox in self._outboxes.values())

    def close(self) -> dict[str, list[DataFile]]:
        """Finish all files, and pack what is left to be sent."""
        for outbox in self._outboxes.values():
            outbox.finish()
        files = {table: writer.close() for table, writer in self._writers.items()}
        for table, writer in self._writers.items():
            written = sum(file.record_count for file in files[table])
            if written != writer.rows:
                raise RuntimeError(f"table {table}: {writer.rows} rows were handed over, its files hold {written}")
        return files

    def discard(self) -> None:
        """Give up: what was written is deleted as far as possible."""
        for writer in self._writers.values():
            writer.discard()
        for outbox in self._outboxes.values():
            outbox.discard()
        self._writers.clear()
        self._outboxes.clear()

    def _ask_for(self, table: str, values: Values) -> None:
        """A table that was not looked for yet, or that may be created."""
        if table not in self._spec.missing:
            self._needs.add(Need(table, "load"))
            return
        room = self._spec.limits.inferred_records - self._inferred[table]
        if room > 0:
            self._inferred[table] += min(room, len(values))
            self._needs.add(Need(table, "create", type=_kind(values, room)))

    def _converter(self, table: str) -> TableConverter:
        found = self._converters.get(table)
        if found is None:
            spec = self._spec.tables[table]
            schema = table_schema(spec.schema_json)
            found = TableConverter(table, schema, self._spec.evolution, name_mapping(spec.properties))
            self._converters[table] = found
        return found

    def _writer(self, table: str) -> TableWriter | Outbox:
        found = self._writers.get(table) or self._outboxes.get(table)
        if found is None:
            spec, target = self._spec, self._spec.tables[table]
            if spec.shuffle and target.distribution != "none":
                found = self._outboxes[table] = Outbox(target, ranges=target.distribution == "range")
            else:
                found = self._writers[table] = TableWriter(target, spec.number, spec.limits)
        return found

    def _relieve(self) -> None:
        while sum(w.weight for w in self._writers.values()) > self._spec.limits.buffered_bytes:
            max(self._writers.values(), key=lambda w: w.weight).relieve()
        while sum(b.waiting for b in self._outboxes.values()) > self._spec.limits.buffered_bytes:
            max(self._outboxes.values(), key=lambda b: b.waiting).relieve()


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


def _letter_rows(letters: Sequence[DeadLetter]) -> pa.StructArray:
    rows = [
        {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp": letter.timestamp_ms,
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


def _without(rows: pa.RecordBatch, kept: Sequence[int] | None, left_out: Set[int], count: int) -> pa.RecordBatch:
    """The rows but for those of some values."""
    there = range(count) if kept is None else kept
    if not left_out or not any(i in left_out for i in there):
        return rows
    return rows.take(pa.array([row for row, i in enumerate(there) if i not in left_out], pa.int32()))


def _kind(values: Values, room: int) -> Kind | None:
    if isinstance(values.data, list):
        kind: Kind | None = None
        for value in values.data[:room]:
            kind = merge(kind, of_value(value))
        return kind
    return of_array(values.data.slice(0, room), values.typed)
