"""Whole rows in one plain form, and as digests, the same whatever the format of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from ctypes import c_float
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from calving.audit.avro import AvroFile, decoding, not_null
from calving.audit.data_files import field_id
from calving.audit.entries import AuditedEntry
from calving.audit.storage import AuditedStore
from calving.audit.values import TableColumn, from_avro, unscaled
from calving.audit.variants import is_variant, variant, variants

PlainRow = tuple[tuple[int, Any], ...]
"""The values of a row that are not null, by field id, in ascending order; so is each struct in it."""
KEY_SIZE = 12
"""The bytes of a key's digest."""
_BATCH = 16_384
_NANOS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_MICROS = {"s": 10**6, "ms": 1000, "us": 1}


def row_digest(row: PlainRow) -> bytes:
    """Rows with one digest are the same."""
    return blake2b(repr(row).encode(), digest_size=16).digest()


def key_of(row: PlainRow, paths: Sequence[Sequence[int]]) -> bytes:
    """A digest of some columns. Each path has the ids of the structs around the column, and its own."""
    return blake2b(repr([value_at(row, path) for path in paths]).encode(), digest_size=KEY_SIZE).digest()


def value_at(row: PlainRow, path: Sequence[int]) -> Any:
    value: Any = row
    for number in path:
        value = next((each for of, each in value if of == number), None)
        if value is None:
            return None
    return value


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Gives rows in plain form. ``visible``: the ids of the fields that count, also inside structs: files have columns
    that were dropped since, or that tell of a row's descent.
    """

    columns: Mapping[int, TableColumn]
    visible: Set[int]

    def of_arrow(self, arrays: Sequence[pa.Array], fields: Sequence[pa.Field]) -> list[PlainRow]:
        """Columns count by their field ids."""
        there = [(field_id(each) or 0, array) for array, each in zip(arrays, fields, strict=True)]
        kept = [(number, self._column(number, array)) for number, array in there if number in self.visible]
        ids = [number for number, _ in kept]
        columns = [values for _, values in kept]
        if not columns:
            return [()] * (len(arrays[0]) if arrays else 0)
        return [plain_row(zip(ids, row, strict=True)) for row in zip(*columns, strict=True)]

    def of_file(self, store: AuditedStore, entry: AuditedEntry) -> Iterator[PlainRow]:
        """The rows of a data file or of a file of equality deletes, in their order.

        :raises DamagedFileError, FileNotFoundError: it cannot be read. :raises UnavailableError: nor the store.
        """
        with store.open(entry.path) as stream:
            if entry.file_format == "AVRO":
                file = AvroFile(stream)
                fields = [(each.get("field-id", 0), each["name"], each["type"]) for each in file.schema["fields"]]
                kept = [each for each in fields if each[0] in self.visible]
                for record in file.records():
                    yield plain_row((number, self._avro(record[name], kind, number)) for number, name, kind in kept)
                return
            with decoding():
                batches = (
                    pq.ParquetFile(stream, coerce_int96_timestamp_unit="us").iter_batches(_BATCH)
                    if entry.file_format == "PARQUET"
                    else orc.ORCFile(stream).read().to_batches(_BATCH)
                )
                for batch in batches:
                    yield from self.of_arrow(batch.columns, list(batch.schema))

    def _column(self, number: int, array: pa.Array) -> list[Any]:
        values = self._values(array)
        return _mapped(values, _as_float) if self._was_float(number) else values

    def _was_float(self, number: int) -> bool:
        return number in self.columns and self.columns[number].was_float

    def _values(self, array: pa.Array) -> list[Any]:
        kind = array.type
        if isinstance(array, pa.ExtensionArray):
            return self._values(array.storage)
        if isinstance(array, pa.StructArray):
            return variants(array) if is_variant(kind) else self._structs(array)
        if pa.types.is_map(kind):
            return _mapped(self._lists(array), _pairs)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return self._lists(array)
        return _primitives(array)

    def _structs(self, array: pa.StructArray) -> list[Any]:
        fields = [array.type.field(at) for at in range(array.type.num_fields)]
        rows: Sequence[Any] = self.of_arrow(array.flatten(), fields) or [()] * len(array)
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]

    def _lists(self, array: Any) -> list[Any]:
        if pa.types.is_map(array.type):
            entries = array.flatten()
            items = list(zip(self._values(entries.field(0)), self._values(entries.field(1)), strict=True))
        else:
            items = self._values(array.flatten())
        left = iter(items)
        return _mapped(array.value_lengths().to_pylist(), lambda length: tuple(islice(left, length)))

    def _avro(self, value: Any, kind: Any, column_id: int) -> Any:
        if value is None:
            return None
        kind = not_null(kind)
        form = kind.get("type") if isinstance(kind, dict) else kind
        if form == "record" and kind.get("logicalType") == "variant":
            return variant(value["metadata"], value["value"])
        if form == "record":
            return plain_row(
                (each["field-id"], self._avro(value[each["name"]], each["type"], each["field-id"]))
                for each in kind["fields"]
                if each["field-id"] in self.visible
            )
        if form in ("array", "map"):
            return self._avro_items(value, kind)
        if self._was_float(column_id):
            return _as_float(value)
        return _avro_primitive(value, self.columns[column_id].kind if column_id in self.columns else "")

    def _avro_items(self, value: Any, kind: Mapping[str, Any]) -> Any:
        if "element-id" in kind:
            return tuple(self._avro(each, kind["items"], kind["element-id"]) for each in value)
        if kind["type"] == "map":
            return _pairs((name, self._avro(each, kind["values"], kind["value-id"])) for name, each in value.items())
        # A map whose keys are no texts is an array of pairs.
        return _pairs(
            tuple(self._avro(pair[of["name"]], of["type"], of["field-id"]) for of in kind["items"]["fields"])
            for pair in value
        )


def _mapped(values: Iterable[Any], make: Callable[[Any], Any]) -> list[Any]:
    return [None if each is None else make(each) for each in values]


def plain_row(values: Iterable[tuple[int, Any]]) -> PlainRow:
    """A row, or a struct, of these values, each with the id of its column. None stands for no value."""
    return tuple(sorted((each for each in values if each[1] is not None), key=lambda each: each[0]))


def _pairs(pairs: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(pairs, key=repr))


def _primitives(array: pa.Array) -> list[Any]:
    """Moments as nanoseconds, because Arrow reads ORC so; times as microseconds, decimals without their point."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return _scaled(array.cast(pa.int64()), _NANOS[kind.unit])
    if pa.types.is_time(kind):
        return _scaled(array.cast(pa.int64() if kind.bit_width == 64 else pa.int32()), _MICROS[kind.unit])
    if pa.types.is_date32(kind):
        return _scaled(array.cast(pa.int32()), 1)
    if pa.types.is_decimal(kind):
        return _mapped(array.to_pylist(), lambda each: unscaled(each, kind.scale))
    return _mapped(array.to_pylist(), int) if pa.types.is_boolean(kind) else array.to_pylist()


def _as_float(value: float) -> float:
    return c_float(value).value


def _scaled(numbers: pa.Array, factor: int) -> list[Any]:
    return _mapped(numbers.to_pylist(), lambda each: each * factor)


def _avro_primitive(value: Any, kind: str) -> Any:
    if kind.startswith("timestamp"):
        return value if kind.endswith("_ns") else value * 1000
    if isinstance(value, str | bytes) and not kind.startswith("decimal"):
        return value
    return from_avro(kind, value)
