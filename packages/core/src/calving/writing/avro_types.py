"""Iceberg types as Avro schemas, as Java's TypeToSchema makes them: for partition tuples in events, and rows of data
files.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.records.foreign import geo_type

UUID_FIXED = {"type": "fixed", "name": "uuid_fixed", "size": 16, "logicalType": "uuid"}

_PLAIN: dict[type[IcebergType], Any] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimeType: {"type": "long", "logicalType": "time-micros"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    TimestamptzType: {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    TimestampNanoType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    TimestamptzNanoType: {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
    UUIDType: UUID_FIXED,
}


def decimal_size(kind: DecimalType) -> int:
    """The number of bytes that can hold every unscaled value."""
    return int((10**kind.precision - 1).bit_length() + 8) // 8


def primitive(kind: IcebergType) -> Any:
    """The Avro type of a primitive."""
    match kind:
        case DecimalType():
            return {
                "type": "fixed",
                "name": f"decimal_{kind.precision}_{kind.scale}",
                "namespace": "",
                "size": decimal_size(kind),
                "logicalType": "decimal",
                "precision": kind.precision,
                "scale": kind.scale,
            }
        case FixedType():
            return {"type": "fixed", "name": f"fixed_{len(kind)}", "size": len(kind)}
    if geo_type(kind) is not None:
        return "bytes"
    return _PLAIN[type(kind)]


def record(struct: StructType, name: str) -> dict[str, Any]:
    """The Avro schema of rows, with the ids of all fields. A named type is defined at its first use."""
    return _Schemas().record(struct, name)


class _Schemas:
    def __init__(self) -> None:
        self._named: set[str] = set()

    def record(self, struct: StructType, name: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [self._field(field) for field in struct.fields]}

    def _field(self, field: NestedField) -> dict[str, Any]:
        kind = self._type(field.field_type, field.field_id)
        entry = {"name": field.name, "type": _optional(kind, field.required), "field-id": field.field_id}
        return entry if field.required else entry | {"default": None}

    def _type(self, kind: IcebergType, field_id: int) -> Any:
        match kind:
            case StructType():
                return self.record(kind, f"r{field_id}")
            case ListType():
                items = _optional(self._type(kind.element_type, kind.element_id), kind.element_required)
                return {"type": "array", "items": items, "element-id": kind.element_id}
            case MapType():
                return self._map(kind)
        return self._once(primitive(kind))

    def _map(self, kind: MapType) -> dict[str, Any]:
        """A map as an array of key-value records, which the spec allows for keys of any type."""
        key = {"name": "key", "type": self._type(kind.key_type, kind.key_id), "field-id": kind.key_id}
        value_type = _optional(self._type(kind.value_type, kind.value_id), kind.value_required)
        value = {"name": "value", "type": value_type, "field-id": kind.value_id}
        pair = {"type": "record", "name": f"k{kind.key_id}_v{kind.value_id}", "fields": [key, value]}
        return {"type": "array", "items": pair, "logicalType": "map"}

    def _once(self, schema: Any) -> Any:
        if isinstance(schema, dict) and "name" in schema:
            if schema["name"] in self._named:
                return schema["name"]
            self._named.add(schema["name"])
        return schema


def _optional(schema: Any, required: bool) -> Any:
    return schema if required else ["null", schema]
