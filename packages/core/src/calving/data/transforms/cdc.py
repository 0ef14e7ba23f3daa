"""Transforms that the Iceberg sink ships: CopyValue, and those that unwrap change events of Debezium and AWS DMS."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from calving.data.records import Records, field
from calving.data.transforms.columns import Fields, as_text, check_options, only_nulls, required, struct_of
from calving.data.transforms.interface import Transform

CDC = "_cdc"
"""The struct that unwrapped events get: op (I, U, D), ts, offset, source, target, key."""


class CopyValue(Transform):
    """``source.field`` is copied to ``target.field``."""

    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("source.field", "target.field"), "CopyValue")
        self._source = required(options, "source.field", "CopyValue")
        self._target = required(options, "target.field", "CopyValue")

    def apply(self, records: Records) -> Records:
        fields = Fields(records.value)
        found = fields.require(self._source) if records.typed else fields.get(self._source)
        fields.put(self._target, pa.nulls(len(records)) if found is None else found)
        return records.with_value(fields.column())


class DebeziumTransform(Transform):
    """The row of a Debezium event, with ``_cdc``: before for deletes, else after.

    ``cdc.target.pattern`` makes ``_cdc.target`` of ``{db}`` and ``{table}``. An event without a row is dropped.
    """

    needs = frozenset({"offset", "key"})
    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("cdc.target.pattern",), "DebeziumTransform")
        self._pattern = options.get("cdc.target.pattern") or "{db}.{table}"

    def apply(self, records: Records) -> Records:
        event = Fields(records.value)
        deleted = pc.fill_null(pc.equal(event.require("op"), "d"), False)
        row = _either(deleted, event.get("before"), event.get("after"), len(records))
        kept = row.is_valid()
        if not pc.all(kept).as_py():
            records, row = records.take(kept), row.filter(kept)
            event = Fields(records.value)
        fields = Fields(row)
        fields.put(CDC, self._cdc(event, records), nullable=False)
        return records.with_value(fields.column())

    def _cdc(self, event: Fields, records: Records) -> pa.Array:
        source = event.require("source")
        db, table = field(source, "schema"), field(source, "table")
        if db is None or only_nulls(db):
            db = field(source, "db")
        if db is None or table is None:
            raise ValueError("the event's source names no database and table")
        op = event.require("op")
        moment = event.get("ts_ms")
        if moment is not None and records.typed:
            moment = moment.cast(pa.timestamp("ms", "UTC"))
        count = len(records)
        cdc: dict[str, pa.Array] = {
            "op": pc.case_when(
                pc.make_struct(pc.equal(op, "u"), pc.equal(op, "d")),
                pa.repeat("U", count),
                pa.repeat("D", count),
                pa.repeat("I", count),
            ),
            "ts": pa.nulls(count) if moment is None else moment,
            "offset": records.offset,
            "source": pc.binary_join_element_wise(db, table, "."),
            "target": _filled(self._pattern, db, table),
        }
        if pa.types.is_struct(records.key.type):
            cdc["key"] = records.key
        return struct_of(cdc, None, count)


def _filled(pattern: str, db: pa.Array, table: pa.Array) -> pa.Array:
    made: dict[tuple[str, str], str] = {}
    out = []
    for d, t in zip(db.to_pylist(), table.to_pylist(), strict=True):
        if (d, t) not in made:
            made[d, t] = pattern.replace("{db}", str(d)).replace("{table}", str(t))
        out.append(made[d, t])
    return pa.array(out, pa.string())


def _either(chosen: pa.Array, a: pa.Array | None, b: pa.Array | None, count: int) -> pa.Array:
    """``a`` where ``chosen``, else ``b``; structs of different fields come together field by field."""
    a = pa.nulls(count) if a is None else a
    b = pa.nulls(count) if b is None else b
    if a.type == b.type and not pa.types.is_nested(a.type):
        return pc.if_else(chosen, a, b)
    if only_nulls(a):
        a = pa.nulls(count, b.type)
    if only_nulls(b):
        b = pa.nulls(count, a.type)
    if pa.types.is_struct(a.type) and pa.types.is_struct(b.type):
        mine, theirs = Fields(a), Fields(b)
        names = [*theirs, *(n for n in mine if n not in theirs)]
        merged = {n: _either(chosen, mine.get(n), theirs.get(n), count) for n in names}
        return struct_of(merged, pc.if_else(chosen, a.is_null(), b.is_null()), count)
    if a.type != b.type:
        a = a.cast(b.type)
    places = pa.array(range(count), pa.int64())
    return pa.concat_arrays([a, b]).take(pc.if_else(chosen, places, pc.add(places, count)))


class DmsTransform(Transform):
    """The ``data`` of an AWS DMS event, with ``_cdc`` from its ``metadata``. An event without both is dropped."""

    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, (), "DmsTransform")

    def apply(self, records: Records) -> Records:
        event = Fields(records.value)
        data, metadata = event.get("data"), event.get("metadata")
        if data is None or metadata is None or not pa.types.is_struct(data.type):
            return records.take(pa.array([], pa.int32()))
        kept = pc.and_(data.is_valid(), metadata.is_valid())
        if not pc.all(kept).as_py():
            records, data, metadata = records.take(kept), data.filter(kept), metadata.filter(kept)
        about = Fields(metadata)
        op = about.require("operation")
        count = len(records)
        fields = Fields(data)
        moment = about.get("timestamp")
        cdc = {
            "op": pc.case_when(
                pc.make_struct(
                    pc.fill_null(pc.equal(op, "update"), False), pc.fill_null(pc.equal(op, "delete"), False)
                ),
                pa.repeat("U", count),
                pa.repeat("D", count),
                pa.repeat("I", count),
            ),
            "ts": pa.nulls(count) if moment is None else moment,
            "source": pc.binary_join_element_wise(
                as_text(about.require("schema-name")), as_text(about.require("table-name")), "."
            ),
        }
        fields.put(CDC, struct_of(cdc, None, count))
        return records.with_value(fields.column())
