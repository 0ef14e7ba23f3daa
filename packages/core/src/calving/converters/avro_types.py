"""What Avro's types mean beyond their kinds: logical types, and the records of Connect's maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calving.converters.building import MOST_DIGITS

Schema = Any


def plain(schema: Schema) -> Schema:
    """The schema with its logical types renamed, so that fastavro does not convert the values.

    Numbers are faster, and decimals are not rounded to their precision. Only uuids in text keep their logical type. A
    type that Connect names only by ``connect.name`` gets its logical type.

    :raises ValueError: a name is too long, or Connect's parameters are incomplete.
    """
    if isinstance(schema, list):
        return [plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    _check_names(schema)
    clean = {name: plain(item) if name in ("type", "items", "values") else item for name, item in schema.items()}
    if "fields" in clean:
        clean["fields"] = [{**field, "type": plain(field["type"])} for field in clean["fields"]]
    if "logicalType" not in clean and (meant := _CONNECT.get((_hashed(clean.get("type")), clean.get("connect.name")))):
        clean |= {"logicalType": meant, **_digits(clean, meant)}
    if "logicalType" in clean and (clean["type"], clean["logicalType"]) != ("string", "uuid"):
        clean[_LOGICAL] = clean.pop("logicalType")
    return clean


_LONGEST_NAME = 1_000
"""Characters. Each type of a namespace keeps it as part of its full name."""


def _check_names(schema: Mapping[str, Any]) -> None:
    for word in ("name", "namespace"):
        if len(str(schema.get(word, ""))) > _LONGEST_NAME:
            raise ValueError(f"a {word} of more than {_LONGEST_NAME} characters")


_LOGICAL = "calving.logical"
_CONNECT: Mapping[tuple[Any, Any], str] = {
    ("int", "org.apache.kafka.connect.data.Date"): "date",
    ("int", "org.apache.kafka.connect.data.Time"): "time-millis",
    ("long", "org.apache.kafka.connect.data.Timestamp"): "timestamp-millis",
    ("bytes", "org.apache.kafka.connect.data.Decimal"): "decimal",
}
"""Logical types by type and by the name that Connect's converter writes."""


def _hashed(kind: Any) -> str | None:
    return kind if isinstance(kind, str) else None


def _digits(schema: Mapping[str, Any], logical: str) -> dict[str, int]:
    """The precision and scale of a decimal that has them only as Connect's parameters."""
    if logical != "decimal":
        return {}
    parameters = schema.get("connect.parameters") or {}
    if "scale" not in {**schema, **parameters}:
        raise ValueError("a Decimal without the parameter 'scale'")
    precision = schema.get("precision", parameters.get("connect.decimal.precision", MOST_DIGITS))
    return {"precision": int(precision), "scale": int(schema.get("scale", parameters.get("scale")))}


def is_map_entry(schema: Schema | None) -> bool:
    """Whether an array of this record is a map of Connect. Connect marks only a record of a map that has a name; the
    record of any other map has Connect's own name.
    """
    if not isinstance(schema, dict) or [field["name"] for field in schema.get("fields", ())] != ["key", "value"]:
        return False
    return schema["name"] == "io.confluent.connect.avro.MapEntry" or schema.get("connect.internal.type") == "MapEntry"


def logical_type(schema: Mapping[str, Any]) -> str | None:
    """The logical type of a schema that ``plain`` has returned."""
    return schema.get("logicalType") or schema.get(_LOGICAL)
