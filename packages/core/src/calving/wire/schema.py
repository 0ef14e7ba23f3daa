"""The Avro schemas of the events: Java's text, and the same schemas with their names resolved.

Java prints ``uuid_fixed``, ``k117_v118`` and similar types in the null namespace. It refers to them by their bare names
from inside another namespace, where the Avro specification gives these names another meaning. So names are resolved
here. Fields are matched by their ``field-id``, as in Java: in a resolved schema a field is called ``f<id>``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from calving.avro_binary import BinaryEncoding
from calving.caches import cached_by_length
from calving.model.files import PartitionField

EVENTS = "org.apache.iceberg.connect.events"
_PAYLOAD_ID = 10504
CACHED = 2_000_000
"""The characters of schemas that are kept parsed: anybody may have written them."""
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}

Json = Any


def _required(name: str, field_id: int, kind: Json, doc: str | None = None) -> Json:
    return {"name": name, "type": kind, **({"doc": doc} if doc else {}), "field-id": field_id}


def _optional(name: str, field_id: int, kind: Json, doc: str | None = None) -> Json:
    return {
        "name": name,
        "type": ["null", kind],
        **({"doc": doc} if doc else {}),
        "default": None,
        "field-id": field_id,
    }


def _record(name: str, fields: Sequence[Json], namespace: str | None = None) -> Json:
    head = {"type": "record", "name": name}
    return {**head, **({"namespace": namespace} if namespace is not None else {}), "fields": list(fields)}


def _array(items: Json, element_id: int) -> Json:
    return {"type": "array", "items": items, "element-id": element_id}


_TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}
_UUID = {"type": "fixed", "name": "uuid_fixed", "namespace": "", "size": 16, "logicalType": "uuid"}

_TABLE = _record(
    "TableReference",
    [
        _required("catalog", 10600, "string"),
        _required("namespace", 10601, _array("string", 10602)),
        _required("name", 10603, "string"),
        _optional("table_uuid", 10604, "uuid_fixed"),
    ],
)
_ASSIGNMENT = _record(
    "TopicPartitionOffset",
    [
        _required("topic", 10700, "string"),
        _required("partition", 10701, "int"),
        _optional("offset", 10702, "long"),
        _optional("timestamp", 10703, _TIMESTAMP),
    ],
)


def _map(key_id: int, value_id: int, value: str, *, define: bool) -> Json:
    name = f"k{key_id}_v{value_id}"
    entry = _record(name, [_required("key", key_id, "int"), _required("value", value_id, value)], "")
    return {"type": "array", "items": entry if define else name, "logicalType": "map"}


def _file(name: str, partition: Json, *, define: bool) -> Json:
    def counts(key_id: int, kind: str = "long") -> Json:
        return _map(key_id, key_id + 1, kind, define=define)

    return _record(
        name,
        [
            _optional("content", 134, "int", "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"),
            _required("file_path", 100, "string", "Location URI with FS scheme"),
            _required("file_format", 101, "string", "File format name: avro, orc, or parquet"),
            _optional("spec_id", 141, "int", "Partition spec ID"),
            _required("partition", 102, partition, "Partition data tuple, schema based on the partition spec"),
            _required("record_count", 103, "long", "Number of records in the file"),
            _required("file_size_in_bytes", 104, "long", "Total file size in bytes"),
            _optional("column_sizes", 108, counts(117), "Map of column id to total size on disk"),
            _optional("value_counts", 109, counts(119), "Map of column id to total count, including null and NaN"),
            _optional("null_value_counts", 110, counts(121), "Map of column id to null value count"),
            _optional("nan_value_counts", 137, counts(138), "Map of column id to number of NaN values in the column"),
            _optional("lower_bounds", 125, counts(126, "bytes"), "Map of column id to lower bound"),
            _optional("upper_bounds", 128, counts(129, "bytes"), "Map of column id to upper bound"),
            _optional("key_metadata", 131, "bytes", "Encryption key metadata blob"),
            _optional("split_offsets", 132, _array("long", 133), "Splittable offsets"),
            _optional("equality_ids", 135, _array("int", 136), "Equality comparison field IDs"),
            _optional("sort_order_id", 140, "int", "Sort order ID"),
            _optional("first_row_id", 142, "long", "The first row ID assigned to the first row in the data file"),
            _optional(
                "referenced_data_file",
                143,
                "string",
                "Fully qualified location (URI with FS scheme) of a data file that all deletes reference",
            ),
            _optional("content_offset", 144, "long", "The offset in the file where the content starts"),
            _optional("content_size_in_bytes", 145, "long", "The length of referenced content stored in the file"),
        ],
        "org.apache.iceberg",
    )


def _event(payload: Json) -> Json:
    return _record(
        "Event",
        [
            _required("id", 10500, _UUID),
            _required("type", 10501, "int"),
            _required("timestamp", 10502, _TIMESTAMP),
            _required("group_id", 10503, "string"),
            _required("payload", _PAYLOAD_ID, payload),
        ],
        EVENTS,
    )


def _partition_field(field: PartitionField) -> Json:
    name = avro_name(field.name)
    node = _optional(name, field.field_id, json.loads(field.avro_type))
    return node if name == field.name else {**node, "iceberg-field-name": field.name}


def avro_name(name: str) -> str:
    """A legal Avro name, made as Java makes it (``AvroSchemaUtil.sanitize``)."""
    legal = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"_x{ord(c):X}" for c in name)
    return f"_{legal}" if legal[:1].isdigit() else legal


def _data_written(partition: tuple[PartitionField, ...]) -> Json:
    fields = [_partition_field(f) for f in partition]
    data = _file("GenericDataFile", _record("PartitionData", fields), define=True)
    deletes = _file("GenericDeleteFile", "PartitionData", define=False)
    return _record(
        "DataWritten",
        [
            _required("commit_id", 10300, "uuid_fixed"),
            _required("table_reference", 10301, _TABLE),
            _optional("data_files", 10302, _array(data, 10303)),
            _optional("delete_files", 10304, _array(deletes, 10305)),
        ],
    )


_PAYLOADS = {
    "StartCommit": _record("StartCommit", [_required("commit_id", 10200, "uuid_fixed")]),
    "DataComplete": _record(
        "DataComplete",
        [_required("commit_id", 10100, "uuid_fixed"), _optional("assignments", 10101, _array(_ASSIGNMENT, 10102))],
    ),
    "CommitToTable": _record(
        "CommitToTable",
        [
            _required("commit_id", 10400, "uuid_fixed"),
            _required("table_reference", 10401, _TABLE),
            _optional("snapshot_id", 10402, "long"),
            _optional("valid_through_ts", 10403, _TIMESTAMP),
        ],
    ),
    "CommitComplete": _record(
        "CommitComplete",
        [_required("commit_id", 10000, "uuid_fixed"), _optional("valid_through_ts", 10001, _TIMESTAMP)],
    ),
}


PAYLOADS = (*_PAYLOADS, "DataWritten")
"""The names of the five events."""


def schema_text(payload: str, partition: tuple[PartitionField, ...] = ()) -> str:
    """Java's text of the event schema with this payload class. ``partition`` matters only for DataWritten."""
    kind = _data_written(partition) if payload == "DataWritten" else _PAYLOADS[payload]
    return json.dumps(_event(kind), separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A schema with fields renamed to ``f<id>``, and the facts that the renaming would lose."""

    event: BinaryEncoding
    """Of the event. A DataComplete's assignments are left out if they are its last field."""
    assignments: BinaryEncoding | None
    """Of these assignments."""
    payload: str
    """Class name of the payload, without its package."""
    partition: tuple[PartitionField, ...]
    millis: frozenset[str]
    """Fields whose timestamps are in milliseconds."""


@cached_by_length(CACHED)
def resolve(text: str) -> Resolved:
    """Parse an embedded schema.

    :raises ValueError: the text is not the schema of an event.
    """
    resolver = _Resolver()
    parsed = resolver.walk(json.loads(text), "")
    payload = next((f["type"] for f in parsed["fields"] if f["name"] == "f10504"), None)
    if not isinstance(payload, Mapping):
        raise ValueError("the schema has no payload")
    schema, assignments = _parted(parsed)
    return Resolved(
        BinaryEncoding(schema),
        None if assignments is None else BinaryEncoding(assignments),
        payload["name"].rpartition(".")[2],
        tuple(resolver.partition),
        frozenset(resolver.millis),
    )


@cached_by_length(CACHED)
def head_encoding(text: str) -> BinaryEncoding:
    """The encoding of the fields before the payload.

    :raises ValueError: the text is not the schema of an event.
    """
    before = list(takewhile(lambda field: int(field["field-id"]) != _PAYLOAD_ID, json.loads(text)["fields"]))
    return BinaryEncoding(_Resolver().walk(_record("Head", before), ""))


def _parted(event: Json) -> tuple[Json, Json]:
    """The schema without a DataComplete's assignments, and the schema of the assignments; None if they are not the
    last field.
    """
    *before, last = event["fields"]
    *kept, final = last["type"]["fields"] if last["name"] == "f10504" else [None]
    if final is None or final["name"] != "f10101":
        return event, None
    return {**event, "fields": [*before, {**last, "type": {**last["type"], "fields": kept}}]}, final["type"]


class _Extent(NamedTuple):
    """Of the shortest value of a type: its bytes, and the values that it consists of, itself included."""

    values: int
    bytes: int


_VALUES_PER_BYTE, _VALUES_WITHOUT_BYTES = 2, 4
"""The most values that a record may consist of, for each of its bytes and beyond that. An event of Java has fewer."""


class _Resolver:
    """Accepts only types whose values take a bounded number of steps for each of their bytes: fastavro crashes on a
    record within itself, would read an array of values without bytes for ever, and a record that has another one
    without bytes twice, and so on, for nearly as long. A long chain of records around one byte takes much memory.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Extent] = {}
        """By the type's name."""
        self.partition: list[PartitionField] = []
        self.millis: set[str] = set()

    def walk(self, node: Json, namespace: str) -> Json:
        if isinstance(node, str):
            return node if node in _PRIMITIVES else self._reference(node, namespace)
        if isinstance(node, list):
            return [self.walk(branch, namespace) for branch in node]
        walkers: dict[str, Callable[[Json, str], Json]] = {
            "record": self._record,
            "fixed": self._fixed,
            "array": self._array,
        }
        kind = node["type"]
        return walkers[kind](node, namespace) if kind in walkers else self.walk(kind, namespace)

    def _reference(self, name: str, namespace: str) -> str:
        for candidate in (name, f"{namespace}.{name}", _null_name(name)):
            if candidate in self._known:
                return candidate
        raise ValueError(f"the schema refers to '{name}', which it does not define")

    def _array(self, node: Json, namespace: str) -> Json:
        items = self.walk(node["items"], namespace)
        if not self._extent(items).bytes:
            raise ValueError("the schema has an array of values without bytes")
        return {"type": "array", "items": items}

    def _extent(self, node: Json) -> _Extent:
        """That of a type that ``walk`` has returned."""
        if isinstance(node, str):
            return self._known.get(node, _Extent(1, int(node != "null")))
        return self._known[node["name"]] if isinstance(node, dict) and "name" in node else _Extent(1, 1)

    def _define(self, node: Json, namespace: str) -> tuple[str, str]:
        namespace = node.get("namespace", namespace)
        name = node["name"] if "." in node["name"] else f"{namespace}.{node['name']}" if namespace else node["name"]
        # fastavro takes a bare name inside a namespace for a relative name, so the null namespace gets a name here.
        full = name if "." in name else _null_name(name)
        return full, full.rpartition(".")[0] if "." in name else ""

    def _record(self, node: Json, namespace: str) -> Json:
        full, inner = self._define(node, namespace)
        fields = []
        for field in node["fields"]:
            name = f"f{int(field['field-id'])}"
            if _logical(field["type"]) == "timestamp-millis":
                self.millis.add(name)
            if full.endswith("PartitionData"):
                self.partition.append(
                    PartitionField(
                        field.get("iceberg-field-name", field["name"]),
                        int(field["field-id"]),
                        json.dumps(_value_type(field["type"]), separators=(",", ":")),
                    )
                )
            fields.append({"name": name, "type": self.walk(field["type"], inner)})
        inside = [self._extent(field["type"]) for field in fields]
        extent = _Extent(1 + sum(each.values for each in inside), sum(each.bytes for each in inside))
        if extent.values > _VALUES_PER_BYTE * extent.bytes + _VALUES_WITHOUT_BYTES:
            raise ValueError("the schema has a record of values without bytes")
        self._known[full] = extent
        return {"type": "record", "name": full, "fields": fields}

    def _fixed(self, node: Json, namespace: str) -> Json:
        full, _ = self._define(node, namespace)
        self._known[full] = _Extent(1, node["size"])
        return {"type": "fixed", "name": full, "size": node["size"]}


def _null_name(name: str) -> str:
    return f"nullspace.{name}"


def _value_type(node: Json) -> Json:
    return next(branch for branch in node if branch != "null") if isinstance(node, list) else node


def _logical(node: Json) -> str | None:
    value = _value_type(node)
    return value.get("logicalType") if isinstance(value, Mapping) else None
