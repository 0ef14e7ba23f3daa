"""Whole rows as digests, the same whatever the format of a file, and whether two sets of rows are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from calving.audit.avro import AvroFile, decoding, not_null
from calving.audit.data_files import field_id
from calving.audit.entries import DATA, AuditedEntry, read_entries, read_list
from calving.audit.findings import AuditFinding, FindingKind
from calving.audit.ledgers import Partition, Ranges, named
from calving.audit.metadata import SnapshotState, TableMetadataFile
from calving.audit.storage import AuditedStore
from calving.audit.values import TableColumn, from_avro, unscaled

_BATCH, _SHOWN = 16_384, 5
_NANOS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_MICROS = {"s": 10**6, "ms": 1000, "us": 1}


def digests_of(arrays: Sequence[pa.Array], fields: Sequence[pa.Field]) -> list[bytes]:
    """A digest of each row. Columns count by their field ids, and a null as no value."""
    ids = [field_id(each) or 0 for each in fields]
    columns = [_values(array) for array in arrays]
    return [_digest(zip(ids, row, strict=True)) for row in zip(*columns, strict=True)]


def _digest(values: Iterable[tuple[int, Any]]) -> bytes:
    there = tuple(sorted((each for each in values if each[1] is not None), key=lambda each: each[0]))
    return blake2b(repr(there).encode(), digest_size=16).digest()


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _values(array.storage)
    if isinstance(array, pa.StructArray):
        return _structs(array)
    if pa.types.is_map(kind):
        return _mapped(_lists(array), _pairs)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array)
    return _primitives(array)


def _mapped(values: Iterable[Any], make: Callable[[Any], Any]) -> list[Any]:
    return [None if each is None else make(each) for each in values]


def _structs(array: pa.StructArray) -> list[Any]:
    ids = [field_id(array.type.field(at)) or 0 for at in range(array.type.num_fields)]
    columns = [_values(child) for child in array.flatten()]
    rows = list(zip(*columns, strict=True)) if columns else [()] * len(array)
    there = array.is_valid().to_pylist()
    return [_struct(zip(ids, row, strict=True)) if valid else None for row, valid in zip(rows, there, strict=True)]


def _struct(values: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    return tuple(sorted((each for each in values if each[1] is not None), key=lambda each: each[0]))


def _pairs(pairs: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(pairs, key=repr))


def _lists(array: Any) -> list[Any]:
    if pa.types.is_map(array.type):
        entries = array.flatten()
        items = list(zip(_values(entries.field(0)), _values(entries.field(1)), strict=True))
    else:
        items = _values(array.flatten())
    left = iter(items)
    return _mapped(array.value_lengths().to_pylist(), lambda length: tuple(islice(left, length)))


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


def _scaled(numbers: pa.Array, factor: int) -> list[Any]:
    return _mapped(numbers.to_pylist(), lambda each: each * factor)


def live_rows(store: AuditedStore, metadata: TableMetadataFile, snapshot: SnapshotState) -> Counter[bytes] | None:
    """How often each row is in a snapshot, by its digest; None if there are delete files. Errors as of
    ``file_digests``.
    """
    manifests = read_list(store, snapshot.manifest_list).manifests if snapshot.manifest_list is not None else ()
    found: Counter[bytes] = Counter()
    for manifest in manifests:
        for entry in read_entries(store, manifest):
            if entry.is_live:
                if entry.content != DATA:
                    return None
                found.update(file_digests(store, entry, metadata.columns))
    return found


def file_digests(store: AuditedStore, entry: AuditedEntry, known: Mapping[int, TableColumn]) -> Iterator[bytes]:
    """A digest of each row of a data file.

    :raises DamagedFileError, FileNotFoundError: it cannot be read. :raises UnavailableError: nor the store.
    """
    with store.open(entry.path) as stream:
        if entry.file_format == "AVRO":
            file = AvroFile(stream)
            fields = [(each["field-id"], each["name"], each["type"]) for each in file.schema["fields"]]
            for record in file.records():
                yield _digest((i, _avro(record[name], kind, i, known)) for i, name, kind in fields)
            return
        with decoding():
            batches = (
                pq.ParquetFile(stream, coerce_int96_timestamp_unit="us").iter_batches(_BATCH)
                if entry.file_format == "PARQUET"
                else orc.ORCFile(stream).read().to_batches(_BATCH)
            )
            for batch in batches:
                yield from digests_of(batch.columns, list(batch.schema))


def _avro(value: Any, kind: Any, column_id: int, known: Mapping[int, TableColumn]) -> Any:
    if value is None:
        return None
    kind = not_null(kind)
    form = kind.get("type") if isinstance(kind, dict) else kind
    if form == "record":
        return _struct(
            (each["field-id"], _avro(value[each["name"]], each["type"], each["field-id"], known))
            for each in kind["fields"]
        )
    if form in ("array", "map"):
        return _avro_items(value, kind, known)
    return _avro_primitive(value, known[column_id].kind if column_id in known else "")


def _avro_items(value: Any, kind: Mapping[str, Any], known: Mapping[int, TableColumn]) -> Any:
    if "element-id" in kind:
        return tuple(_avro(each, kind["items"], kind["element-id"], known) for each in value)
    if kind["type"] == "map":
        return _pairs((name, _avro(each, kind["values"], kind["value-id"], known)) for name, each in value.items())
    # A map whose keys are no texts is an array of pairs.
    return _pairs(
        tuple(_avro(pair[of["name"]], of["type"], of["field-id"], known) for of in kind["items"]["fields"])
        for pair in value
    )


def _avro_primitive(value: Any, kind: str) -> Any:
    if kind.startswith("timestamp"):
        return value if kind.endswith("_ns") else value * 1000
    if isinstance(value, str | bytes) and not kind.startswith("decimal"):
        return value
    return from_avro(kind, value)


@dataclass
class RowComparison:
    """The rows of a table against those that its records make. ``unread``: offsets that the topics do not have any
    more. ``foreign``: whether others may have written rows, too.
    """

    table: str
    where: str
    there: Counter[bytes]
    unread: Mapping[Partition, Ranges] = field(default_factory=dict)
    foreign: bool = False
    compared: int = 0
    lost: dict[Partition, list[int]] = field(default_factory=dict)

    def expect(self, partition: Partition, offset: int, digest: bytes) -> None:
        """The record at an offset makes this row."""
        self.compared += 1
        if self.there[digest] > 0:
            self.there[digest] -= 1
        else:
            self.lost.setdefault(partition, []).append(offset)

    def judge(self) -> Iterator[AuditFinding]:
        """What is wrong, once all records were told."""
        for partition, offsets in sorted(self.lost.items()):
            shown = ", ".join(map(str, sorted(offsets)[:_SHOWN]))
            more = f" and {len(offsets) - _SHOWN} more" if len(offsets) > _SHOWN else ""
            text = f"the rows of offsets {shown}{more} of {named(partition)} are not in table {self.table}, or differ"
            yield AuditFinding(FindingKind.RECORDS, self.where, text)
        left = sum(self.there.values())
        if left and not self.foreign and not self.unread:
            text = f"{left} rows of table {self.table} are of no record that it has taken"
            yield AuditFinding(FindingKind.RECORDS, self.where, text)
