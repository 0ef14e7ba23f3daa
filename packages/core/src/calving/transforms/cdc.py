"""Transforms that the Java sink ships: CopyValue, and transforms that unwrap change events of Debezium and AWS DMS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError
from calving.records.values import Content, Records
from calving.transforms.columns import Fields, check_options, flag, required, struct_of
from calving.transforms.debezium import MESSAGE, SCHEMA_CHANGE, kind_of
from calving.transforms.interface import NO_FIELDS, RefusedError, Transform, UnfitTypeError, by_name
from calving.transforms.schema_changes import column_records
from calving.transforms.text import as_text

CDC = "_cdc"
"""The struct that unwrapped events get: op (I, U, D), ts, perhaps source_ts, offset, source, target, key."""


class CopyValue(Transform):
    """``source.field`` is copied to ``target.field``."""

    null_types = NO_FIELDS
    ordered = False
    tombstones = False
    former = by_name

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("source.field", "target.field"), "CopyValue")
        self._source = required(options, "source.field", "CopyValue")
        self._target = required(options, "target.field", "CopyValue")
        self.required = frozenset({self._source})

    def apply(self, records: Records) -> Records:
        fields = Fields(records.value)
        column = fields.require(self._source) if records.typed else fields.get(self._source)
        fields.add(self._target, pa.nulls(len(records)) if column is None else column, records.typed)
        return records.with_value(fields.column())


class DebeziumTransform(Transform):
    """The row of a Debezium event, with ``_cdc``: ``before`` of a delete, ``after`` of any other event. An update also
    has a before image, if the event has ``before``.

    ``cdc.target.pattern`` makes ``_cdc.target`` from ``{db}`` and ``{table}``. With ``cdc.source-ts`` there is also
    ``_cdc.source_ts``, when the source made the change; ``_cdc.ts`` is when the connector read it. An event that
    empties its table becomes a record with only ``_cdc``. Any other event without a row is an error, except what is
    dropped.
    """

    null_types = NO_FIELDS
    needs = frozenset({"offset", "key"})
    keeps_paths = True
    tombstones = False
    drops = "heartbeats, transactions, schema changes, and messages of the source (operation m)"

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("cdc.target.pattern", "cdc.source-ts"), "DebeziumTransform")
        self._has_source_time = flag(options, "cdc.source-ts", "DebeziumTransform")
        self._pattern = re.split(r"(\{[^}]*\}?)", options.get("cdc.target.pattern") or "{db}.{table}")
        unknown = [part for part in self._pattern[1::2] if part not in ("{db}", "{table}")]
        if unknown:
            where = "transform DebeziumTransform: cdc.target.pattern"
            raise ConfigError(f"{where} has '{unknown[0]}', which stands for nothing; there are: {{db}}, {{table}}")

    def apply(self, records: Records) -> list[Records]:
        event = Fields(records.value)
        if (kind := kind_of(event)) is not None:
            return [*column_records(records, self.reads_topic, self._named, CDC)] if kind == SCHEMA_CHANGE else []
        operation = _operation(event)
        before, after = _Side.of("before", event), _Side.of("after", event)
        is_delete = pc.equal(operation, "d")
        has_row = pc.if_else(is_delete, before.has_row, after.has_row)
        if before.own_cdc(self.fold) or after.own_cdc(self.fold):
            uses_before = pc.is_in(operation, pa.array(["d", "u"] if self.images else ["d"]))
            _refuse_own(self.fold, (before, uses_before), (after, pc.invert(is_delete)))
        emptied: list[Records] = []
        if not pc.all(has_row).as_py():
            is_empty = pc.and_(pc.equal(operation, "t"), pc.invert(has_row))
            has_none = pc.or_(is_empty, pc.equal(operation, "m"))
            _refuse(pc.invert(pc.or_(has_row, has_none)), operation, before, after)
            emptied = [self._emptied(records.slice(i, i + 1)) for i in pc.indices_nonzero(is_empty).to_pylist()]
            records, operation, is_delete = records.take(has_row), operation.filter(has_row), is_delete.filter(has_row)
            before, after = before.filter(has_row), after.filter(has_row)
            if not len(records):
                return emptied
        parts: list[tuple[_Side, pa.Array, Content]] = [
            (before, is_delete, "row"),
            (after, pc.invert(is_delete), "row"),
        ]
        if self.images and before.is_struct:
            parts.append((before, pc.and_(pc.equal(operation, "u"), before.has_row), "before image"))
        try:
            cdc = self._cdc(Fields(records.value), records)
        except UnfitTypeError as error:  # other events of this type have no row, and are no errors
            raise ValueError(str(error)) from error
        sides = [_rows(records, side, cdc, mask, content) for side, mask, content in parts if pc.any(mask).as_py()]
        return [*sides, *emptied]

    def dropped_as(self, dropped: Records) -> str:
        return kind_of(Fields(dropped.value)) or MESSAGE

    def _named(self, database: str, table: str) -> Mapping[str, pa.Array]:
        """What ``_cdc`` says of the table of a row."""
        names = pa.array([database]), pa.array([table])
        return {"source": pa.array([f"{database}.{table}"]), "target": _filled(self._pattern, *names)}

    def _emptied(self, record: Records) -> Records:
        """The record of an event that empties its table."""
        cdc = {"op": pa.array(["T"])}
        try:
            fields = Fields(self._cdc(Fields(record.value), record))
            cdc |= {name: column for name in ("ts", "source", "target") if (column := fields.get(name)) is not None}
        except ValueError:
            pass  # only the topic may tell the table
        return replace(record, value=struct_of({CDC: struct_of(cdc, None, 1)}, None, 1), content="truncate")

    def _cdc(self, event: Fields, records: Records) -> pa.Array:
        source = event.inside("source")
        count = len(records)
        databases = [as_text(named) for name in ("schema", "db") if (named := source.get(name)) is not None]
        database = pc.coalesce(*databases) if databases else pa.nulls(count, pa.string())
        # For MongoDB, the table is a collection.
        table = _text(source, "table" if "table" in source or "collection" not in source else "collection")
        if database.null_count:
            raise ValueError("the event's source names no database")
        moment, of_source = (_moment(fields.get("ts_ms"), count, typed=records.typed) for fields in (event, source))
        cdc: dict[str, pa.Array] = {
            "op": _kind(_text(event, "op"), "u", "d"),
            "ts": moment,
            **({"source_ts": of_source} if self._has_source_time else {}),
            "offset": records.offset,
            "source": pc.binary_join_element_wise(database, table, "."),
            "target": _filled(self._pattern, database, table),
        }
        key = records.key.type
        if pa.types.is_struct(key) or (records.typed and not pa.types.is_null(key)):
            cdc["key"] = records.key
        return struct_of(cdc, None, count)


def _moment(column: pa.Array | None, count: int, *, typed: bool) -> pa.Array:
    if column is None:
        return pa.nulls(count)
    return column.cast(pa.timestamp("ms", "UTC")) if typed else column


def _rows(records: Records, side: _Side, cdc: pa.Array, mask: pa.Array, content: Content) -> Records:
    """The rows on one side of the events for which the mask is true."""
    row = side.column
    if not pc.all(mask).as_py():
        records, row, cdc = records.take(mask), row.filter(mask), cdc.filter(mask)
    fields = Fields(row)
    fields.add(CDC, cdc, records.typed, nullable=False)
    return replace(records.with_value(fields.column()), content=content)


def _refuse_own(fold: bool, *rows: tuple[_Side, pa.Array]) -> None:
    """Refuse rows whose table has a column named as what the transform adds: its values would be lost. ``rows``: on one
    side of the events for which the mask is true.

    :raises RefusedError: there are such rows.
    """
    reasons: dict[int, str] = {}
    for side, mask in rows:
        if (own := side.own_cdc(fold)) is not None:
            reason = (
                f"the row has a column '{own}' of its own, which is the name of what the transform adds: rename the"
                " column at the source, or let the source leave it out (Debezium: column.exclude.list)"
            )
            reasons |= dict.fromkeys(pc.indices_nonzero(pc.and_(side.has_row, mask)).to_pylist(), reason)
    if reasons:
        raise RefusedError(reasons)


class _Side:
    """One side of events, and which events have a row there."""

    def __init__(self, name: str, column: pa.Array) -> None:
        self.name, self.column = name, column
        self.is_struct = pa.types.is_struct(column.type)
        self.has_row: pa.Array = column.is_valid() if self.is_struct else pa.repeat(pa.scalar(False), len(column))

    @staticmethod
    def of(name: str, event: Fields) -> _Side:
        column = event.get(name)
        return _Side(name, pa.nulls(len(event)) if column is None else column)

    def own_cdc(self, fold: bool) -> str | None:
        """The field of the rows that would go to the column of what the transform adds, if there is one."""
        kind = self.column.type
        names = [field.name for field in kind] if isinstance(kind, pa.StructType) else []
        return next((name for name in names if (name.lower() if fold else name) == CDC), None)

    def filter(self, mask: pa.Array) -> _Side:
        return _Side(self.name, self.column.filter(mask))

    def lack(self, operation: str, place: int) -> str:
        """Why an event of this operation has no row on this side."""
        if self.column[place].is_valid and not self.is_struct:
            reason = f"'{self.name}' is {self.column.type}, not a row"
            is_text = pa.types.is_string(self.column.type)
            return f"{reason}: MongoDebeziumTransform has to come first" if is_text else reason
        if operation == "d":
            return (
                f"a delete without '{self.name}' does not say which row: the source has to write it (in Postgres with a"
                " primary key or REPLICA IDENTITY FULL; for MongoDB MongoDebeziumTransform comes first)"
            )
        return f"an event of the operation '{operation}' has no row: '{self.name}' is null"


def _operation(event: Fields) -> pa.Array:
    if "op" not in event:
        raise UnfitTypeError(
            "there is no field 'op', so this is no change event of Debezium: leave out topics of other records, or give"
            " the transform a predicate (TopicNameMatches)"
        )
    return _text(event, "op")


def _refuse(lacking: pa.Array, operation: pa.Array, before: _Side, after: _Side) -> None:
    """:raises RefusedError: these events have no row."""
    reasons = {}
    for place in pc.indices_nonzero(lacking).to_pylist():
        op = operation[place].as_py()
        reasons[place] = (before if op == "d" else after).lack(op, place)
    if reasons:
        raise RefusedError(reasons)


def _text(fields: Fields, name: str) -> pa.Array:
    """A field as text. :raises ValueError: it is null."""
    texts = as_text(fields.require(name))
    if texts.null_count:
        raise ValueError(f"the field '{name}' is null")
    return texts


def _kind(operation: pa.Array, update: str, delete: str) -> pa.Array:
    kind = pc.if_else(pc.equal(operation, delete), "D", "I")
    return pc.if_else(pc.equal(operation, update), "U", kind)


def _filled(pattern: Sequence[str], db: pa.Array, table: pa.Array) -> pa.Array:
    """The filled pattern for every row. It is filled in once for each pair of database and table."""
    databases, tables = db.dictionary_encode(), table.dictionary_encode()
    names, others = databases.dictionary.to_pylist(), tables.dictionary.to_pylist()
    pairs = pc.add(pc.multiply(databases.indices.cast(pa.int64()), len(others)), tables.indices).dictionary_encode()
    made = [
        "".join({"{db}": names[pair // len(others)], "{table}": others[pair % len(others)]}.get(p, p) for p in pattern)
        for pair in pairs.dictionary.to_pylist()
    ]
    return pa.array(made, pa.string()).take(pairs.indices)


_DMS = ("operation", "schema-name", "table-name")


class DmsTransform(Transform):
    """The ``data`` of an AWS DMS event, with ``_cdc`` from its ``metadata``. An update also has a before image, if the
    event has ``before-image`` or fields ``BI_...`` in ``data``. Any other event without data or metadata is an error,
    except what is dropped.
    """

    null_types = NO_FIELDS
    tombstones = False
    ordered = False
    drops = "control records"
    former = by_name

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, (), "DmsTransform")

    def becomes(self, kind: pa.DataType) -> pa.DataType | None:
        if not pa.types.is_struct(kind) or min(map(kind.get_field_index, ("data", "metadata"))) < 0:
            return None
        data, metadata = kind.field("data").type, kind.field("metadata").type
        if not pa.types.is_struct(data) or not pa.types.is_struct(metadata):
            return None
        return None if any(pa.types.is_nested(field.type) for field in metadata) else data

    def apply(self, records: Records) -> list[Records]:
        event = Fields(records.value)
        data, metadata = (_Side.of(name, event) for name in ("data", "metadata"))
        is_control = _is_control(metadata, len(records))
        has_row = pc.and_(data.has_row, metadata.has_row)
        lacking = pc.and_(pc.invert(is_control), pc.invert(has_row))
        if reasons := {
            place: f"no event of AWS DMS: '{(data if metadata.has_row[place].as_py() else metadata).name}' is no object"
            for place in pc.indices_nonzero(lacking).to_pylist()
        }:
            raise RefusedError(reasons)
        mask = pc.and_(has_row, pc.invert(is_control))
        _refuse_own(self.fold, (data, mask), (_Side.of(_IMAGE, event), mask))
        if not pc.any(mask).as_py():
            return []
        if not pc.all(mask).as_py():
            records = records.take(mask)
            event = Fields(records.value)
        rows, about = Fields(event.require("data")), Fields(event.require("metadata"))
        if not all(name in about for name in _DMS):
            raise ValueError(f"the event's metadata is without one of {', '.join(_DMS)}")
        image = _before_image(event, rows)
        after = self._rows(records, rows, about)
        if image is None or not self.images:
            return [after]
        is_update = pc.and_(pc.equal(_text(about, "operation"), "update"), image.is_valid())
        if not pc.any(is_update).as_py():
            return [after]
        of_updates = records.take(is_update)
        about = Fields(Fields(of_updates.value).require("metadata"))
        before = self._rows(of_updates, Fields(image.filter(is_update)), about)
        return [after, replace(before, content="before image")]

    def _rows(self, records: Records, fields: Fields, about: Fields) -> Records:
        count = len(records)
        moment = about.get("timestamp")
        cdc = {
            "op": _kind(_text(about, "operation"), "update", "delete"),
            "ts": pa.nulls(count) if moment is None else moment,
            "source": pc.binary_join_element_wise(_text(about, "schema-name"), _text(about, "table-name"), "."),
        }
        fields.add(CDC, struct_of(cdc, None, count), records.typed)
        return records.with_value(fields.column())


def _is_control(metadata: _Side, count: int) -> pa.Array:
    """Whether each event tells of the replication itself, such as a table that was created."""
    kind = Fields(metadata.column).get("record-type") if metadata.is_struct else None
    if kind is None:
        return pa.repeat(pa.scalar(False), count)
    return pc.fill_null(pc.equal(as_text(kind), "control"), False)


_IMAGE, _PREFIX = "before-image", "BI_"
"""How DMS writes the values before an update: as an object, or as fields of the data."""


def _before_image(event: Fields, rows: Fields) -> pa.Array | None:
    image = event.get(_IMAGE)
    if image is not None and not pa.types.is_null(image.type):
        if not pa.types.is_struct(image.type):
            raise UnfitTypeError(f"'{_IMAGE}' is {image.type}, not a row")
        return image
    named = {name.removeprefix(_PREFIX): rows.require(name) for name in rows if name.startswith(_PREFIX)}
    return struct_of(named, None, len(rows)) if named else None
