"""Random tables of a case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from tests.fuzz import schemas
from tests.fuzz.histories import MAPPING, is_void
from tests.fuzz.sink import Target
from tests.fuzz.tables import fields_within


def targets_of(random: Random, many: bool) -> Iterator[Target]:
    schema = schemas.schema(random)
    names = ("db.t", "db.u") if random.random() < 0.2 else ("db.t",)
    for name in names:
        schema = schema if name == "db.t" else schemas.changed(random, schema)
        fresh = assign_fresh_schema_ids(schema)
        properties = schemas.properties(random)
        if random.random() < 0.12:
            properties[MAPPING] = json.dumps(_mapping(random, fresh.as_struct()))
        yield Target(name, fresh, schemas.partitions(random, fresh, few=many), schemas.order(random, fresh), properties)


def _mapping(random: Random, kind: Any) -> list[dict[str, Any]]:
    """Names of columns in records: their own, others, or both."""
    found = []
    for field in fields_within(kind):
        names = [field.name]
        if isinstance(kind, StructType):
            more = f"old_{field.name}"
            names = random.choice(([field.name], [field.name, more], [more, field.name], [more]))
        found.append({"field-id": field.field_id, "names": names, "fields": _mapping(random, field.field_type)})
    return found


def changed_before(random: Random, target: Target) -> Target:
    """With a history, where it can have one: the ids of columns are others then."""
    if target.schema is None:
        return target
    seed = random.randrange(1, 1 << 30)
    drawn = {"table history"}
    drawn |= {"void in a history"} if is_void(seed) else set()
    drawn |= {"name mapping of a history"} if MAPPING in target.properties else set()
    drawn |= {"sort order of a history"} if target.order.fields else set()
    return replace(target, history=seed, drawn=target.drawn | drawn)


_IN_NANOS: dict[IcebergType, IcebergType] = {
    TimestampType(): TimestampNanoType(),
    TimestamptzType(): TimestamptzNanoType(),
}


def in_version_3(random: Random, target: Target) -> Target:
    """Of format version 3, with some timestamps in nanoseconds. pyiceberg, which writes rows of an earlier time, does not
    write this version, so there are none.
    """
    if target.schema is None:
        return target
    properties = {**target.properties, "format-version": "3"}
    schema = Schema(*(_in_nanos(random, field) for field in target.schema.fields))
    return replace(target, schema=schema, properties=properties, history=0)


def _in_nanos(random: Random, field: NestedField) -> NestedField:
    match field.field_type:
        case StructType() as kind:
            return field.model_copy(update={"field_type": StructType(*(_in_nanos(random, f) for f in kind.fields))})
        case kind if random.random() < 0.6:
            return field.model_copy(update={"field_type": _IN_NANOS.get(kind, kind)})
    return field


_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "boolean": (True,),
    "int": (7, -1),
    "long": (2**40,),
    "float": (1.5,),
    "double": (-2.5,),
    "decimal": (Decimal(0),),
    "date": (date(2024, 2, 29),),
    "time": (time(1, 2, 3, 4),),
    "timestamp": (datetime(1969, 12, 31, 23, 59, 59, 1),),
    "timestamptz": (datetime(2024, 2, 29, 12, 0, 0, 1, UTC),),
    "timestamp_ns": ("1969-12-31T23:59:59.000000001",),
    "timestamptz_ns": ("2024-02-29T12:00:00.000000001+00:00",),
    "string": ("", "ünï"),
    "binary": (b"", b"\0\xff"),
    "uuid": (UUID(int=7),),
}


def with_defaults(random: Random, target: Target) -> Target:
    """With default values for some columns, in lists and maps as well."""
    if target.schema is None or random.random() < 0.3:
        return target
    schema = Schema(*(_with_default(random, field) for field in target.schema.fields))
    drawn = {"write defaults"} if "write-default" in schema.model_dump_json() else set()
    return replace(target, schema=schema, drawn=target.drawn | drawn)


def _with_default(random: Random, field: NestedField) -> NestedField:
    kind = _inside(random, field.field_type)
    choices = _DEFAULTS.get(str(kind).partition("(")[0], ())
    made = field.model_copy(update={"field_type": kind})
    if not choices or random.random() < 0.5:
        return made
    default = random.choice(choices)
    if isinstance(default, Decimal):
        default = default.scaleb(-kind.scale)  # type: ignore[attr-defined]
    return made.model_copy(update={"write_default": default, "initial_default": None})


def _inside(random: Random, kind: IcebergType) -> IcebergType:
    match kind:
        case StructType():
            return StructType(*(_with_default(random, field) for field in kind.fields))
        case ListType():
            return kind.model_copy(update={"element_type": _inside(random, kind.element_type)})
        case MapType():
            return kind.model_copy(update={"value_type": _inside(random, kind.value_type)})
    return kind


_WRITTEN = {
    "write.parquet.page-version": ("v1", "v2"),
    "write.parquet.row-group-limit": ("7", "100"),
    "write.parquet.row-group-size-bytes": ("5000",),
    "write.parquet.page-size-bytes": ("500",),
    "write.parquet.dict-size-bytes": ("100",),
    "write.parquet.compression-codec": ("snappy", "gzip", "lz4", "brotli", "uncompressed", "zstd"),
    "write.parquet.compression-level": ("1",),
    "write.orc.compression-codec": ("zlib", "snappy", "none"),
    "write.avro.compression-codec": ("gzip", "uncompressed"),
}


def with_properties(random: Random, target: Target) -> Target:
    """With properties of its files."""
    chosen = {name: random.choice(_WRITTEN[name]) for name in random.sample([*_WRITTEN], 5)}
    if chosen.get("write.parquet.compression-codec") not in ("gzip", "brotli", "zstd", None):
        chosen.pop("write.parquet.compression-level", None)
    drawn = target.drawn | {f"table {name}" for name in chosen}
    return replace(target, properties={**target.properties, **chosen}, drawn=drawn)
