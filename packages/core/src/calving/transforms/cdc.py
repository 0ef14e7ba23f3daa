"""Transforms that the Java sink ships: CopyValue, and transforms that unwrap change events of Debezium and AWS DMS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError
from calving.records.values import Records
from calving.transforms.columns import Fields, check_options, required, struct_of
from calving.transforms.interface import Transform, UnfitTypeError
from calving.transforms.text import as_text

CDC = "_cdc"
"""The struct that unwrapped events get: op (I, U, D), ts, offset, source, target, key."""


class CopyValue(Transform):
    """``source.field`` is copied to ``target.field``."""

    ordered = False
    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("source.field", "target.field"), "CopyValue")
        self._source = required(options, "source.field", "CopyValue")
        self._target = required(options, "target.field", "CopyValue")

    def apply(self, records: Records) -> Records:
        fields = Fields(records.value)
        found = fields.require(self._source) if records.typed else fields.get(self._source)
        fields.add(self._target, pa.nulls(len(records)) if found is None else found, records.typed)
        return records.with_value(fields.column())


class DebeziumTransform(Transform):
    """The row of a Debezium event, with ``_cdc``: ``before`` of a delete, ``after`` of any other event.

    ``cdc.target.pattern`` makes ``_cdc.target`` from ``{db}`` and ``{table}``. An event without a row is dropped,
    unless it empties its table: then the record has only ``_cdc``.
    """

    needs = frozenset({"offset", "key"})
    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("cdc.target.pattern",), "DebeziumTransform")
        self._pattern = re.split(r"(\{[^}]*\}?)", options.get("cdc.target.pattern") or "{db}.{table}")
        unknown = [part for part in self._pattern[1::2] if part not in ("{db}", "{table}")]
        if unknown:
            where = "transform DebeziumTransform: cdc.target.pattern"
            raise ConfigError(f"{where} has '{unknown[0]}', which stands for nothing; there are: {{db}}, {{table}}")

    def apply(self, records: Records) -> list[Records]:
        operation = _text(Fields(records.value), "op")
        deleted = pc.equal(operation, "d")
        count = pc.sum(deleted).as_py() or 0
        if count == len(records):
            return [self._rows(records, "before")]
        emptied = pc.indices_nonzero(pc.equal(operation, "t")).to_pylist()
        others = [found for i in emptied if (found := self._emptied(records.slice(i, i + 1))) is not None]
        if count == 0:
            return [self._rows(records, "after"), *others]
        rest = records.take(pc.invert(deleted))
        return [self._rows(records.take(deleted), "before"), self._rows(rest, "after"), *others]

    def _emptied(self, record: Records) -> Records | None:
        """The record of an event that empties its table; None if the event has a row."""
        event = Fields(record.value)
        row = event.get("after")
        if row is not None and not row.null_count:
            return None
        cdc = {"op": pa.array(["T"])}
        try:
            found = Fields(self._cdc(event, record))
            cdc |= {name: column for name in ("ts", "source", "target") if (column := found.get(name)) is not None}
        except ValueError:
            pass  # only the topic may tell the table
        return replace(record, value=struct_of({CDC: struct_of(cdc, None, 1)}, None, 1), rowless=True)

    def _rows(self, records: Records, side: str) -> Records:
        row = Fields(records.value).get(side)
        if row is None or not pa.types.is_struct(row.type):
            return records.slice(0, 0)
        if row.null_count:
            kept = row.is_valid()
            records, row = records.take(kept), row.filter(kept)
        fields = Fields(row)
        try:
            cdc = self._cdc(Fields(records.value), records)
        except UnfitTypeError as error:  # other events of this type have no row, and are dropped
            raise ValueError(str(error)) from error
        fields.add(CDC, cdc, records.typed, nullable=False)
        return records.with_value(fields.column())

    def _cdc(self, event: Fields, records: Records) -> pa.Array:
        source = Fields(event.require("source"))
        count = len(records)
        databases = [as_text(found) for name in ("schema", "db") if (found := source.get(name)) is not None]
        database = pc.coalesce(*databases) if databases else pa.nulls(count, pa.string())
        # For MongoDB, the table is a collection.
        table = _text(source, "table" if "table" in source or "collection" not in source else "collection")
        if database.null_count:
            raise ValueError("the event's source names no database")
        moment = event.get("ts_ms")
        if moment is not None and records.typed:
            moment = moment.cast(pa.timestamp("ms", "UTC"))
        cdc: dict[str, pa.Array] = {
            "op": _kind(_text(event, "op"), "u", "d"),
            "ts": pa.nulls(count) if moment is None else moment,
            "offset": records.offset,
            "source": pc.binary_join_element_wise(database, table, "."),
            "target": _filled(self._pattern, database, table),
        }
        key = records.key.type
        if pa.types.is_struct(key) or (records.typed and not pa.types.is_null(key)):
            cdc["key"] = records.key
        return struct_of(cdc, None, count)


def _text(fields: Fields, name: str) -> pa.Array:
    """A field as text. :raises ValueError: it is null."""
    found = as_text(fields.require(name))
    if found.null_count:
        raise ValueError(f"the field '{name}' is null")
    return found


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
    """The ``data`` of an AWS DMS event, with ``_cdc`` from its ``metadata``. An event without both is dropped."""

    tombstones = False
    ordered = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, (), "DmsTransform")

    def becomes(self, kind: pa.DataType) -> pa.DataType | None:
        if not pa.types.is_struct(kind) or min(map(kind.get_field_index, ("data", "metadata"))) < 0:
            return None
        data, metadata = kind.field("data").type, kind.field("metadata").type
        if not pa.types.is_struct(data) or not pa.types.is_struct(metadata):
            return None
        return None if any(pa.types.is_nested(field.type) for field in metadata) else data

    def apply(self, records: Records) -> Records:
        event = Fields(records.value)
        data, metadata = event.get("data"), event.get("metadata")
        if data is None or metadata is None or not all(pa.types.is_struct(c.type) for c in (data, metadata)):
            return records.slice(0, 0)
        about = Fields(metadata)
        if not all(name in about for name in _DMS):
            raise ValueError(f"the event's metadata is without one of {', '.join(_DMS)}")
        if data.null_count or metadata.null_count:
            kept = pc.and_(data.is_valid(), metadata.is_valid())
            records, data, about = records.take(kept), data.filter(kept), Fields(metadata.filter(kept))
        count = len(records)
        fields = Fields(data)
        moment = about.get("timestamp")
        cdc = {
            "op": _kind(_text(about, "operation"), "update", "delete"),
            "ts": pa.nulls(count) if moment is None else moment,
            "source": pc.binary_join_element_wise(_text(about, "schema-name"), _text(about, "table-name"), "."),
        }
        fields.add(CDC, struct_of(cdc, None, count), records.typed)
        return records.with_value(fields.column())
