"""Schemaless JSON objects.

The fast way hands a whole block to Arrow's JSON reader with the table's types, and never looks at a single record. It
refuses rather than guesses; a block that it refuses is cut in halves until what is left goes the exact way, value by
value. Numbers and text both occur in temporal columns: which of them is learnt from the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.data.conversion import (
    Converter,
    UnfitError,
    date_text,
    time_text,
    timestamp_text,
    timestamptz_text,
)
from calving.data.converters.interface import BadValueError, Converted, TableConverter, ValueConverter
from calving.data.fields import Json, arrow_schema, contains_map, infer, merge
from calving.data.spec import Evolution
from calving.errors import ConfigError

_EXACT_AT_MOST = 64
"""Values that go the exact way without another try of the fast one."""

_TEMPORAL = (DateType, TimeType, TimestampType, TimestamptzType)
_SLOW_ONLY = (UUIDType, BinaryType, FixedType)
"""Columns whose text Arrow does not decode."""


class _RefusedError(Exception):
    """The fast way does not take this block."""


class JsonConverter(ValueConverter):
    def __init__(self, options: Mapping[str, str]) -> None:
        if options.get("schemas.enable", "false").lower() == "true":
            raise ConfigError(
                "value.converter.schemas.enable: JSON with a schema envelope is not supported; set it to false"
            )

    def for_table(self, table: str, schema: Schema, evolution: Evolution) -> TableConverter:
        return JsonTableConverter(table, schema, evolution)

    def field_texts(self, values: Sequence[bytes], path: str) -> Sequence[str | None]:
        nested: pa.DataType = pa.string()
        for name in reversed(path.split(".")[1:]):
            nested = pa.struct([(name, nested)])
        try:
            column = _read(values, pa.schema([(path.split(".")[0], nested)]), infer_more=False).column(0)
        except _RefusedError:
            return [_field_text(_load(i, value), path) for i, value in enumerate(values)]
        for name in path.split(".")[1:]:
            column = pc.struct_field(column, name)
        return list(column.to_pylist())

    def infer(self, values: Sequence[bytes]) -> Json | None:
        found: Json | None = None
        for i, value in enumerate(values):
            found = merge(found, infer(_load(i, value)))
        return found


class JsonTableConverter(TableConverter):
    def __init__(self, table: str, schema: Schema, evolution: Evolution) -> None:
        self._table, self._evolution = table, evolution
        self._struct = schema.as_struct()
        self._arrow = arrow_schema(schema)
        self._numbers: frozenset[int] = frozenset()
        """Ids of the temporal columns that come as numbers."""
        self._plan: list[_Leaf] | None = None
        self._fast = not (contains_map(self._struct) or _slow_only(self._struct) or evolution.case_insensitive)

    def convert(self, values: Sequence[bytes]) -> Converted:
        return self._convert(values, 0)

    def _convert(self, values: Sequence[bytes], first: int) -> Converted:
        if self._fast:
            for _ in range(2):
                try:
                    return Converted(self._convert_fast(values))
                except (_RefusedError, ValueError, pa.ArrowException):
                    if not self._learn(values):
                        break
            if len(values) > _EXACT_AT_MOST:
                half = len(values) // 2
                return _joined(self._convert(values[:half], first), self._convert(values[half:], first + half))
        return self._convert_exactly(values, first)

    def _convert_fast(self, values: Sequence[bytes]) -> pa.RecordBatch:
        if self._plan is None:
            self._plan = [_Leaf(field, self._numbers) for field in self._struct.fields]
        wanted = pa.schema([(leaf.name, leaf.read_type) for leaf in self._plan])
        table = _read(values, wanted, infer_more=self._evolution.evolve)
        if table.num_columns > len(self._plan) and _has_values(table, wanted):
            raise _RefusedError("new fields")
        columns = []
        for i, leaf in enumerate(self._plan):
            if self._evolution.evolve and not _same_shape(table.schema.field(i).type, leaf.read_type):
                raise _RefusedError("new nested fields")
            column = leaf.cast(_whole(table.column(i)))
            if leaf.required and column.null_count:
                raise _RefusedError("nulls in a required column")
            columns.append(column.cast(self._arrow.field(i).type))
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _convert_exactly(self, values: Sequence[bytes], first: int) -> Converted:
        converter = Converter(self._table, self._struct, self._evolution)
        rows = []
        for i, value in enumerate(values, first):
            try:
                rows.append(converter.row(_load(i, value)))
            except UnfitError as error:
                raise BadValueError(i, str(error)) from error
        if converter.needs:
            return Converted(None, converter.needs)
        columns = [pa.array([row[f.name] for row in rows], f.type) for f in self._arrow]
        return Converted(pa.RecordBatch.from_arrays(columns, schema=self._arrow))

    def _learn(self, values: Sequence[bytes]) -> bool:
        """Look how temporal columns are written; whether that changes anything."""
        before = self._numbers
        found = dict.fromkeys(self._numbers, True)
        for value in values[:20]:
            try:
                _observe(json.loads(value), self._struct, found)
            except (ValueError, RecursionError):
                continue
        self._numbers = frozenset(field_id for field_id, is_number in found.items() if is_number)
        self._plan = None
        return self._numbers != before


def _joined(a: Converted, b: Converted) -> Converted:
    if a.rows is None or b.rows is None:
        return Converted(None, a.needs + b.needs)
    return Converted(pa.concat_batches([a.rows, b.rows]))


def _read(values: Sequence[bytes], schema: pa.Schema, *, infer_more: bool) -> pa.Table:
    """One row per value, by Arrow.

    A joint that is not ``}``, newline, ``{`` means a value that is not one object: blank, or several. Neither kind can
    hide the other, because blanks spoil one joint more than they are.
    """
    data = b"\n".join(values)
    if data[:1] != b"{" or data[-1:] != b"}" or data.count(b"}\n{") != len(values) - 1:
        raise _RefusedError("not one object per record")
    if not data.isascii():
        try:
            data.decode()  # Arrow would let invalid text pass
        except UnicodeDecodeError as error:
            raise _RefusedError("invalid UTF-8") from error
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="infer" if infer_more else "ignore"
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _RefusedError(str(error)) from error
    if table.num_rows != len(values):
        raise _RefusedError("not one row per record")
    return table


class _Leaf:
    """How one column is read and then cast."""

    def __init__(self, field: NestedField, numbers: frozenset[int]) -> None:
        self.name, self.required = field.name, field.required
        self.read_type = _read_type(field.field_type, field.field_id, numbers)
        self.cast: Callable[[pa.Array], pa.Array] = _cast(field.field_type, field.field_id, numbers)


def _read_type(kind: IcebergType, field_id: int, numbers: frozenset[int]) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct([(f.name, _read_type(f.field_type, f.field_id, numbers)) for f in kind.fields])
        case ListType():
            return pa.list_(_read_type(kind.element_type, kind.element_id, numbers))
        case FloatType():
            return pa.float64()
        case DateType() | TimeType() | TimestampType() | TimestamptzType():
            return pa.int64() if field_id in numbers else pa.string()
    return _arrow_type(kind)


def _cast(kind: IcebergType, field_id: int, numbers: frozenset[int]) -> Callable[[pa.Array], pa.Array]:
    match kind:
        case StructType():
            casts = [_cast(f.field_type, f.field_id, numbers) for f in kind.fields]
            required = [f.required for f in kind.fields]
            return lambda column: _cast_struct(column, casts, required)
        case ListType():
            return _cast_list(_cast(kind.element_type, kind.element_id, numbers), kind.element_required)
        case FloatType():
            return _single
        case DateType():
            return (lambda c: c.cast(pa.int32()).cast(pa.date32())) if field_id in numbers else date_text
        case TimeType():
            return _time_millis if field_id in numbers else time_text
        case TimestampType():
            return (lambda c: _micros(c, None)) if field_id in numbers else timestamp_text
        case TimestamptzType():
            return (lambda c: _micros(c, "UTC")) if field_id in numbers else timestamptz_text
    return lambda column: column


def _micros(column: pa.Array, zone: str | None) -> pa.Array:
    return column.cast(pa.timestamp("ms", zone)).cast(pa.timestamp("us", zone))


def _time_millis(column: pa.Array) -> pa.Array:
    if pc.any(pc.or_(pc.less(column, 0), pc.greater_equal(column, 86_400_000))).as_py():
        raise _RefusedError("not a time of day")
    return column.cast(pa.int32()).cast(pa.time32("ms")).cast(pa.time64("us"))


def _single(column: pa.Array) -> pa.Array:
    single = column.cast(pa.float32(), safe=False)
    if pc.any(pc.and_(pc.is_inf(single), pc.invert(pc.is_inf(column)))).as_py():
        raise _RefusedError("a number does not fit a float")
    return single


def _cast_struct(
    column: pa.Array, casts: Sequence[Callable[[pa.Array], pa.Array]], required: Sequence[bool]
) -> pa.Array:
    children = [cast(child) for cast, child in zip(casts, column.flatten(), strict=True)]
    present = len(column) - column.null_count
    if any(r and len(c) - c.null_count < present for r, c in zip(required, children, strict=True)):
        raise _RefusedError("nulls in a required column")
    names = [column.type.field(i).name for i in range(column.type.num_fields)]
    return pa.StructArray.from_arrays(children, names=names, mask=column.is_null())


def _cast_list(cast: Callable[[pa.Array], pa.Array], required: bool) -> Callable[[pa.Array], pa.Array]:
    def apply(column: pa.Array) -> pa.Array:
        items = column.flatten()
        if required and items.null_count:
            raise _RefusedError("nulls in a required element")
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        starts = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(starts, cast(items), mask=mask)

    return apply


def _arrow_type(kind: IcebergType) -> pa.DataType:
    return arrow_schema(Schema(NestedField(1, "x", kind, required=False))).field(0).type


def _slow_only(kind: IcebergType) -> bool:
    match kind:
        case StructType():
            return any(_slow_only(f.field_type) for f in kind.fields)
        case ListType():
            return _slow_only(kind.element_type)
    return isinstance(kind, _SLOW_ONLY)


def _observe(value: Any, kind: IcebergType, found: dict[int, bool], field_id: int = -1) -> None:
    match kind, value:
        case StructType(), dict():
            for field in kind.fields:
                _observe(value.get(field.name), field.field_type, found, field.field_id)
        case ListType(), list():
            for item in value[:3]:
                _observe(item, kind.element_type, found, kind.element_id)
        case _ if isinstance(kind, _TEMPORAL) and value is not None:
            found[field_id] = not isinstance(value, str)


def _has_values(table: pa.Table, wanted: pa.Schema) -> bool:
    return any(_any_value(table.column(i)) for i in range(len(wanted), table.num_columns))


def _any_value(column: pa.ChunkedArray) -> bool:
    """Whether an inferred column says anything: an all-null one, an empty struct or empty lists do not."""
    if pa.types.is_null(column.type) or column.null_count == len(column):
        return False
    if pa.types.is_struct(column.type):
        return any(_any_value(pa.chunked_array([c])) for chunk in column.chunks for c in chunk.flatten())
    if pa.types.is_list(column.type):
        return any(_any_value(pa.chunked_array([chunk.flatten()])) for chunk in column.chunks)
    return True


def _same_shape(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_struct(wanted):
        return found.num_fields == wanted.num_fields and all(
            _same_shape(found.field(i).type, wanted.field(i).type) for i in range(wanted.num_fields)
        )
    if pa.types.is_list(wanted):
        return _same_shape(found.value_type, wanted.value_type)
    return True


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _load(index: int, value: bytes) -> dict[str, Any]:
    try:
        found = json.loads(value.decode(), parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise BadValueError(index, f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadValueError(index, "not a JSON object")
    return found


def _field_text(record: Any, path: str) -> str | None:
    for name in path.split("."):
        if not isinstance(record, dict):
            return None
        record = record.get(name)
    if record is None or isinstance(record, str):
        return record
    return json.dumps(record, default=float) if not isinstance(record, bool) else str(record).lower()
