"""Events to bytes and back.

Framing (Java's ``AvroUtil`` and ``AvroEncoderUtil``): two magic bytes, the schema's text with a 16-bit length, one Avro
datum. Java refuses fields that it does not know, so nothing may be added to the value. calving's additional data is in
message headers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from calving.caches import cached_by_length
from calving.model.events import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Event,
    PartitionProgress,
    StartCommit,
    TableReference,
)
from calving.model.files import DataFile, FileContent, PartitionField, PartitionTuple
from calving.wire.checks import check_file, group_of, name_of, offset_of, resolve_theirs, tp_of
from calving.wire.schema import CACHED, Resolved, head_encoding, resolve, schema_text

MAGIC = b"\xc2\x01"
TYPES: tuple[type[Event], ...] = (StartCommit, DataWritten, DataComplete, CommitToTable, CommitComplete)
"""The events in the order of their codes on the wire."""

_FILE_FIELDS = {
    "content": 134,
    "file_path": 100,
    "file_format": 101,
    "spec_id": 141,
    "partition": 102,
    "record_count": 103,
    "file_size_in_bytes": 104,
    "column_sizes": 108,
    "value_counts": 109,
    "null_value_counts": 110,
    "nan_value_counts": 137,
    "lower_bounds": 125,
    "upper_bounds": 128,
    "key_metadata": 131,
    "split_offsets": 132,
    "equality_ids": 135,
    "sort_order_id": 140,
    "first_row_id": 142,
    "referenced_data_file": 143,
    "content_offset": 144,
    "content_size_in_bytes": 145,
}
_MAPS = {108: (117, 118), 109: (119, 120), 110: (121, 122), 137: (138, 139), 125: (126, 127), 128: (129, 130)}


class UndecodableError(ValueError):
    """The bytes are not an event that this version understands."""


@dataclass(frozen=True, slots=True)
class Message:
    """An event with its header fields. ``timestamp_us``: when it was made, microseconds since the epoch."""

    event_id: UUID
    timestamp_us: int
    group: str
    event: Event


class Head(NamedTuple):
    """The first fields of an event: its group, and its class; None for a class that this version does not know."""

    group: str
    kind: type[Event] | None


def encode(message: Message) -> bytes:
    """The bytes of a message. A DataWritten must hold files of only one partition type; see ``divide``."""
    event = message.event
    partition = _partition_type(event) if isinstance(event, DataWritten) else ()
    text = schema_text(type(event).__name__, partition)
    body = {
        "f10500": message.event_id.bytes,
        "f10501": TYPES.index(type(event)),
        "f10502": message.timestamp_us,
        "f10503": message.group,
        "f10504": _ENCODERS[type(event)](event),
    }
    raw = text.encode()
    assignments = _assignments_out(event.assignments, text) if isinstance(event, DataComplete) else b""
    return MAGIC + struct.pack(">H", len(raw)) + raw + resolve(text).event.write(body) + assignments


def decode(data: bytes, *, progress: bool = True) -> Message:
    """The message in these bytes. ``progress``: whether to decode a DataComplete's assignments; otherwise they are left
    empty.

    :raises UndecodableError: the bytes are not an event, or are of a version that this one cannot read.
    """
    try:
        text, datum = _framed(data)
        resolved = resolve_theirs(text)
        body, rest = resolved.event.read(datum)
        event = _DECODERS[resolved.payload](body["f10504"], resolved)
        if progress and isinstance(event, DataComplete) and resolved.assignments is not None:
            event = DataComplete(event.commit_id, _assignments(rest, text))
        micros = _micros(body["f10502"], "f10502", resolved) or 0
        return Message(UUID(bytes=body["f10500"]), micros, group_of(body["f10503"]), event)
    except UndecodableError:
        raise
    except Exception as error:  # bytes from the network can fail a decoder in any way
        raise UndecodableError(f"{type(error).__name__}: {error}") from error


def head_of(data: bytes) -> Head | None:
    """The first fields of an event that cannot be decoded as a whole; None if these cannot be decoded either."""
    try:
        text, datum = _framed(data)
        body = head_encoding(text).read(datum).value
        group, code = body["f10503"], body["f10501"]
        return Head(group, TYPES[code] if 0 <= code < len(TYPES) else None) if isinstance(group, str) else None
    except Exception:  # bytes from the network can fail a decoder in any way
        return None


def _framed(data: bytes) -> tuple[str, bytes]:
    """The text of the schema, and the datum."""
    if data[:2] != MAGIC:
        raise UndecodableError("the first two bytes are not those of a control event")
    (length,) = struct.unpack(">H", data[2:4])
    return _modified_utf8(data[4 : 4 + length]), data[4 + length :]


def divide(event: DataWritten, limit: int) -> Iterator[DataWritten]:
    """The same files in as many events as necessary. Each event has files of one partition type, and is at most
    ``limit`` bytes long.

    A single file whose metadata alone exceeds the limit gets its own event. Delete files come first, because they do
    not apply to the data files that come with them.
    """
    groups: dict[tuple[bool, tuple[PartitionField, ...]], list[DataFile]] = {}
    mixed = len({file.partition.fields for file in (*event.delete_files, *event.data_files)}) > 1
    for file in (*event.delete_files, *event.data_files):
        is_data = mixed and file.content is FileContent.DATA
        groups.setdefault((is_data, file.partition.fields), []).append(file)
    for (_, partition), files in groups.items():
        # An event without files measures the head; a file's own size is close to what its maps and strings take.
        room = limit - len(schema_text("DataWritten", partition).encode()) - 1024
        batch: list[DataFile] = []
        size = 0
        for file in files:
            weight = _weight(file)
            if batch and size + weight > room:
                yield _with_files(event, batch)
                batch, size = [], 0
            batch.append(file)
            size += weight
        yield _with_files(event, batch)
    if not groups:
        yield event


def _with_files(event: DataWritten, files: Sequence[DataFile]) -> DataWritten:
    return DataWritten(
        event.commit_id,
        event.table,
        tuple(f for f in files if f.content is FileContent.DATA),
        tuple(f for f in files if f.content is not FileContent.DATA),
    )


def _weight(file: DataFile) -> int:
    """An upper bound of the encoded size: a varint takes at most ten bytes."""
    bounds = [b for m in (file.lower_bounds, file.upper_bounds) for b in (m or {}).values()]
    counts = [file.column_sizes, file.value_counts, file.null_value_counts, file.nan_value_counts]
    partition = sum(20 + (len(v) if isinstance(v, bytes | str) else 0) * 4 for v in file.partition.values)
    return (
        300
        + 4 * len(file.file_path)
        + partition
        + sum(20 + len(b) for b in bounds)
        + sum(20 * len(m or {}) for m in counts)
        + 10 * (len(file.split_offsets or ()) + len(file.equality_ids or ()))
        + len(file.key_metadata or b"")
    )


def _partition_type(event: DataWritten) -> tuple[PartitionField, ...]:
    kinds = {file.partition.fields for file in event.files}
    if len(kinds) > 1:
        raise ValueError(f"table {event.table}: one event cannot carry files of several partition specs")
    return next(iter(kinds), ())


def _table_out(table: TableReference) -> dict[str, object]:
    return {
        "f10600": table.catalog,
        "f10601": list(table.namespace),
        "f10603": table.name,
        "f10604": table.table_uuid.bytes if table.table_uuid else None,
    }


def _table_in(body: Mapping[str, Any]) -> TableReference:
    uuid = body.get("f10604")
    catalog, *levels = map(name_of, (body["f10600"], *body["f10601"], body["f10603"]))
    return TableReference(catalog, tuple(levels[:-1]), levels[-1], UUID(bytes=uuid) if uuid else None)


def _file_out(file: DataFile) -> dict[str, object]:
    out: dict[str, object] = {}
    for name, field_id in _FILE_FIELDS.items():
        value = getattr(file, name)
        if field_id in _MAPS and value is not None:
            key, item = _MAPS[field_id]
            value = [{f"f{key}": k, f"f{item}": v} for k, v in value.items()]
        elif isinstance(value, PartitionTuple):
            value = {f"f{f.field_id}": v for f, v in zip(value.fields, value.values, strict=True)}
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, FileContent):
            value = int(value)
        out[f"f{field_id}"] = value
    return out


def _file_in(body: Mapping[str, Any], partition: tuple[PartitionField, ...]) -> DataFile:
    fields: dict[str, Any] = {}
    for name, field_id in _FILE_FIELDS.items():
        value: Any = body.get(f"f{field_id}")
        if field_id in _MAPS and value is not None:
            key, item = _MAPS[field_id]
            value = {entry[f"f{key}"]: entry[f"f{item}"] for entry in value}
        elif name == "partition":
            value = PartitionTuple(partition, tuple(value[f"f{f.field_id}"] for f in partition))
        elif isinstance(value, list):
            value = tuple(value)
        fields[name] = value
    fields["content"] = FileContent(fields["content"] or 0)
    fields["spec_id"] = fields["spec_id"] or 0
    check_file(fields)
    return DataFile(**fields)


def _micros(value: int | None, field: str, resolved: Resolved) -> int | None:
    return value * 1000 if value is not None and field in resolved.millis else value


def _start_in(body: Mapping[str, Any], resolved: Resolved) -> Event:
    return StartCommit(UUID(bytes=body["f10200"]))


def _written_in(body: Mapping[str, Any], resolved: Resolved) -> Event:
    data, deletes = (
        tuple(_file_in(file, resolved.partition) for file in body.get(field) or ()) for field in ("f10302", "f10304")
    )
    return DataWritten(UUID(bytes=body["f10300"]), _table_in(body["f10301"]), data, deletes)


def _complete_in(body: Mapping[str, Any], resolved: Resolved) -> Event:
    return DataComplete(UUID(bytes=body["f10100"]), _progress_in(body.get("f10101"), resolved))


@cached_by_length(CACHED)
def _assignments(data: bytes, text: str) -> tuple[PartitionProgress, ...]:
    """The assignments, which are the last field of a DataComplete of this schema. Cached, because an idle worker
    repeats them.
    """
    resolved = resolve(text)
    assert resolved.assignments is not None  # noqa: S101 - the caller has them
    return _progress_in(resolved.assignments.read(data).value, resolved)


def _progress_in(found: Sequence[Mapping[str, Any]] | None, resolved: Resolved) -> tuple[PartitionProgress, ...]:
    return tuple(
        PartitionProgress(
            tp_of(a["f10700"], a["f10701"]), offset_of(a["f10702"]), _micros(a["f10703"], "f10703", resolved)
        )
        for a in found or ()
    )


def _to_table_in(body: Mapping[str, Any], resolved: Resolved) -> Event:
    at_us, table = _micros(body["f10403"], "f10403", resolved), _table_in(body["f10401"])
    return CommitToTable(UUID(bytes=body["f10400"]), table, body["f10402"], at_us)


def _commit_complete_in(body: Mapping[str, Any], resolved: Resolved) -> Event:
    return CommitComplete(UUID(bytes=body["f10000"]), _micros(body["f10001"], "f10001", resolved))


_DECODERS: dict[str, Callable[[Mapping[str, Any], Resolved], Event]] = {
    "StartCommit": _start_in,
    "DataWritten": _written_in,
    "DataComplete": _complete_in,
    "CommitToTable": _to_table_in,
    "CommitComplete": _commit_complete_in,
}


@lru_cache(maxsize=4)
def _assignments_out(assignments: tuple[PartitionProgress, ...], text: str) -> bytes:
    """The assignments, which are the last field of a DataComplete."""
    rows = [
        {"f10700": a.source.topic, "f10701": a.source.partition, "f10702": a.offset, "f10703": a.timestamp_us}
        for a in assignments
    ]
    encoding = resolve(text).assignments
    assert encoding is not None  # noqa: S101 - calving's own schema has them
    # Name the branch: otherwise fastavro would try each branch with every assignment.
    return encoding.write(("array", rows))


_ENCODERS: dict[type[Event], Callable[[Any], dict[str, object]]] = {
    StartCommit: lambda e: {"f10200": e.commit_id.bytes},
    DataWritten: lambda e: {
        "f10300": e.commit_id.bytes,
        "f10301": _table_out(e.table),
        "f10302": ("array", [_file_out(f) for f in e.data_files]),
        "f10304": ("array", [_file_out(f) for f in e.delete_files]),
    },
    DataComplete: lambda e: {"f10100": e.commit_id.bytes},
    CommitToTable: lambda e: {
        "f10400": e.commit_id.bytes,
        "f10401": _table_out(e.table),
        "f10402": e.snapshot_id,
        "f10403": e.valid_through_us,
    },
    CommitComplete: lambda e: {"f10000": e.commit_id.bytes, "f10001": e.valid_through_us},
}


def _modified_utf8(raw: bytes) -> str:
    """The text as Java's ``DataInput.readUTF`` reads it: NUL is two bytes, and characters beyond the BMP are surrogate
    pairs.
    """
    text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16", "surrogatepass").decode("utf-16")
