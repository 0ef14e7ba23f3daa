"""Checks the types that an embedded schema gives to the fields of an event, and their values: anybody may have written
it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from calving.caches import cached_by_length
from calving.model.offsets import TopicPartition
from calving.wire.schema import CACHED, PAYLOADS, Resolved, resolve, schema_text

_LONGEST_NAME, _LONGEST_PATH = 1_000, 65_536
"""The longest accepted name of a topic or of a level of a table's name, and path of a file, in characters."""
_LARGEST, _LAST_PARTITION = 2**63 - 1, 2**31 - 1
_FORMATS = {"PARQUET", "ORC", "AVRO", "PUFFIN"}
_REQUIRED = ("record_count", "file_size_in_bytes", "spec_id")
_OPTIONAL = ("sort_order_id", "first_row_id", "content_offset", "content_size_in_bytes")
"""Numbers of a file that are not negative."""
_LISTS = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "split_offsets",
    "equality_ids",
)
_SIMPLE = {name: name for name in ("null", "boolean", "long", "float", "double", "bytes", "string")} | {"int": "long"}
"""Names of types, by their names in Avro; both of whole numbers are one here. Any other name is that of a record."""


@cached_by_length(CACHED)
def resolve_theirs(text: str) -> Resolved:
    """Parse an embedded schema of somebody else.

    :raises ValueError: the text is not the schema of an event, or a field of the event has a type that neither calving
        nor the Java sink gives to it.
    """
    resolved, known = resolve(text), _known()
    for field_id, kinds in _fields(json.loads(text)):
        if wrong := kinds - known.get(field_id, kinds):
            raise ValueError(f"field {field_id} of the event has the type {min(wrong)}")
    return resolved


@lru_cache(maxsize=1)
def _known() -> Mapping[int, frozenset[str]]:
    """The types of each field of the five events, and null."""
    kinds_of: dict[int, frozenset[str]] = {}
    for event in PAYLOADS:
        for field_id, kinds in _fields(json.loads(schema_text(event))):
            kinds_of[field_id] = kinds_of.get(field_id, frozenset({"null"})) | kinds
    return kinds_of


def _fields(node: Any) -> Iterator[tuple[int, frozenset[str]]]:
    """The id of each field, and the types that it may have. Those of a partition, which tables choose, are left out."""
    if isinstance(node, list):
        for branch in node:
            yield from _fields(branch)
    elif isinstance(node, Mapping):
        if node.get("type") == "record" and node["name"].endswith("PartitionData"):
            return
        for field in node.get("fields", ()):
            yield int(field["field-id"]), frozenset(_kinds(field["type"]))
            yield from _fields(field["type"])
        yield from _fields(node.get("items"))
        yield from _fields(node.get("type"))


def _kinds(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield _SIMPLE.get(node, "record")
    elif isinstance(node, list):
        for branch in node:
            yield from _kinds(branch)
    elif node["type"] == "array":
        yield from (f"array of {kind}" for kind in _kinds(node["items"]))
    elif node["type"] in ("record", "fixed"):
        yield "record"
    else:
        yield from _kinds(node["type"])


def check_file(file: Mapping[str, Any]) -> None:
    """
    :raises ValueError: a file cannot have these fields.
    """
    _text(file["file_path"], _LONGEST_PATH)
    if file["file_format"].upper() not in _FORMATS:
        raise ValueError("a file has an unknown format")
    for name in (*_REQUIRED, *(name for name in _OPTIONAL if file[name] is not None)):
        _number(file[name])
    for name in _LISTS:
        values = file[name] or ()
        if None in values or (isinstance(values, Mapping) and None in values.values()):
            raise ValueError(f"a file has nothing within {name}")


def group_of(value: object) -> str:
    """The name of a group; parked commits leave it empty.

    :raises ValueError: this is none.
    """
    return "" if value == "" else _text(value, _LONGEST_NAME)


def name_of(value: object) -> str:
    """A level of a table's name.

    :raises ValueError: this is none.
    """
    return _text(value, _LONGEST_NAME)


def tp_of(topic: object, partition: object) -> TopicPartition:
    """
    :raises ValueError: there is no such partition.
    """
    return TopicPartition(_text(topic, _LONGEST_NAME), _number(partition, _LAST_PARTITION))


def offset_of(value: object) -> int | None:
    """
    :raises ValueError: this is no offset.
    """
    return None if value is None else _number(value)


def _text(value: object, longest: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise ValueError(f"a text of 1 to {longest} characters was expected")
    return value


def _number(value: object, largest: int = _LARGEST) -> int:
    if not isinstance(value, int) or not 0 <= value <= largest:
        raise ValueError(f"a number from 0 to {largest} was expected, not {value!r}")
    return value
