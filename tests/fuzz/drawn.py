"""What cases draw rarely. A test demands that the seeds that are always tried draw all of it."""

from __future__ import annotations

RARE = frozenset(
    (
        *(f"avro {what}" for what in ("alias", "default", "map entries", "namespace", "null last", "reference")),
        "avro reference within a reference",
        "avro type named again",
        *(f"envelope {what}" for what in ("default", "default of an optional field", "map of other keys")),
        *(f"json-schema {what}" for what in ("$ref", "$ref again", "allOf", "allOf of properties", "any value")),
        *(f"json-schema {what}" for what in ("anyOf", "anyOf null", "default", "map of other keys", "narrowed")),
        *(f"json-schema {what}" for what in ("not required", "oneOf", "properties of a branch", "reference", "types")),
        *(f"json-schema {what}" for what in ("$id", "a schema for each place", "types with null", "union in a union")),
        *(f"protobuf {what}" for what in ("2", "default", "group", "import", "map of other keys", "nested message")),
        *(f"protobuf {what}" for what in ("oneof", "packed or not", "required", "type named again", "wrapper")),
        *(f"protobuf {what}" for what in ("Any", "Date", "Decimal", "Duration", "ListValue", "Struct", "TimeOfDay")),
        *(f"protobuf {what}" for what in ("Value", "decimal of no scale")),
        "table write.avro.compression-codec",
        "table write.orc.compression-codec",
        *(f"table write.parquet.{what}" for what in ("compression-codec", "compression-level", "dict-size-bytes")),
        *(f"table write.parquet.{what}" for what in ("page-size-bytes", "page-version", "row-group-limit")),
        "table write.parquet.row-group-size-bytes",
        "table history",
        *(f"{what} of a history" for what in ("name mapping", "sort order")),
        "void in a history",
        "dead letters in a table",
        "declared columns",
        "topic pattern",
        "topic pattern of a new name",
    )
)
