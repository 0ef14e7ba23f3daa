"""Types that pyiceberg does not know: ``variant``, geometries with parameters such as ``geometry(srid:4326)``, and
those that calving cannot write either. Schemas keep them as they are; the columns of the latter take no values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from pydantic import Field, model_serializer
from pyiceberg.conversions import from_json, to_json
from pyiceberg.schema import Schema
from pyiceberg.typedef import TableVersion
from pyiceberg.types import (
    BinaryType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UnknownType,
)

Json = Any
_Parsed = TypeVar("_Parsed")


class ForeignType(PrimitiveType):
    """A type that pyiceberg does not know, by its name in the schema, such as ``geometry(srid:4326)``."""

    root: tuple[str] = Field()  # not text, which pyiceberg would parse

    def __init__(self, name: str) -> None:
        super().__init__(root=(name,))

    @model_serializer
    def ser_model(self) -> str:
        """The name, as it was read."""
        return self.root[0]

    def minimum_format_version(self) -> TableVersion:
        """No earlier version has other types than pyiceberg knows."""
        return 3

    def __str__(self) -> str:
        return self.root[0]

    def __repr__(self) -> str:
        return f"ForeignType({self.root[0]!r})"

    def __getnewargs__(self) -> tuple[str]:
        return self.root


VARIANT = ForeignType("variant")
NO_ID = -1
"""The field id of a part of a variant, which has none: Parquet's number for that."""
_VARIANT_PARTS = StructType(*(NestedField(NO_ID, part, BinaryType(), required=True) for part in ("metadata", "value")))


class GeoType(NamedTuple):
    """A geometry's coordinate reference system; of a geography also the algorithm of its edges."""

    crs: str
    edges: str | None = None


EDGES = ("spherical", "vincenty", "thomas", "andoyer", "karney")
"""The algorithms of a geography's edges, in the order of Parquet's numbers."""
DEFAULT_CRS = "OGC:CRS84"
# pyiceberg writes parameters in quotation marks.
_GEOMETRY = re.compile(r"geometry(?:\(\s*'?([^\s()']+)'?\s*\))?", re.IGNORECASE)
_GEOGRAPHY = re.compile(r"geography(?:\(\s*'?([^\s(),']+)'?\s*(?:,\s*'?(\w+)'?\s*)?\))?", re.IGNORECASE)


def geo_type(kind: IcebergType) -> GeoType | None:
    """What a type of geometries or geographies says; None for another type, and for an algorithm that is not known."""
    match kind:
        case GeometryType():
            return GeoType(kind.crs)
        case GeographyType():
            return GeoType(kind.crs, kind.algorithm)
        case ForeignType():
            return _geo_type(kind.root[0])
    return None


@lru_cache(maxsize=1_000)
def _geo_type(name: str) -> GeoType | None:
    if (plane := _GEOMETRY.fullmatch(name)) is not None:
        return GeoType(plane[1] or DEFAULT_CRS)
    curved = _GEOGRAPHY.fullmatch(name)
    edges = None if curved is None else (curved[2] or EDGES[0]).lower()
    return None if curved is None or edges not in EDGES else GeoType(curved[1] or DEFAULT_CRS, edges)


def is_compared(kind: IcebergType) -> bool:
    """Whether values of this type can be compared: those of variants and geometries, and of types without values,
    neither identify nor order, partition or sort rows.
    """
    return isinstance(kind, PrimitiveType) and takes_values(kind, variants=False) and geo_type(kind) is None


def takes_values(kind: IcebergType, *, variants: bool = True) -> bool:
    """Whether calving can write a value of this type. A list or map of other types takes none either, nor does a struct
    that has only such fields. ``variants``: whether the files can hold variants.
    """
    match kind:
        case StructType():
            fields = (field.field_type for field in kind.fields)
            return not kind.fields or any(takes_values(each, variants=variants) for each in fields)
        case ListType():
            return takes_values(kind.element_type, variants=variants)
        case MapType():
            return all(takes_values(each, variants=variants) for each in (kind.key_type, kind.value_type))
    if kind == VARIANT:
        return variants
    return geo_type(kind) is not None or not isinstance(kind, ForeignType | UnknownType)


def singles(kind: Any, field_id: int = 0) -> Iterator[tuple[int, PrimitiveType]]:
    """The columns of single values inside a type, with their ids. ``field_id``: of the type itself."""
    match kind:
        case StructType():
            inside = [(field.field_type, field.field_id) for field in kind.fields]
        case ListType():
            inside = [(kind.element_type, kind.element_id)]
        case MapType():
            inside = [(kind.key_type, kind.key_id), (kind.value_type, kind.value_id)]
        case _:
            yield field_id, kind
            return
    for inner, number in inside:
        yield from singles(inner, number)


def variant_ids(kind: StructType) -> set[int]:
    """The ids of the columns, also of those inside others, that are variants."""
    return {field_id for field_id, each in singles(kind) if each == VARIANT}


def geo_types(kind: StructType) -> dict[int, GeoType]:
    """The types of the columns, also of those inside others, that have geometries, by their ids."""
    return {field_id: geo for field_id, each in singles(kind) if (geo := geo_type(each)) is not None}


def writable(schema: Schema, *, variants: bool = True) -> Schema:
    """The schema without columns that take no values: files do not have them. The schema itself if it has none.
    ``variants``: as ``takes_values`` has it.
    """
    fields = _writable(schema.as_struct(), variants).fields
    if fields == schema.fields:
        return schema
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _writable(kind: Any, variants: bool) -> Any:
    match kind:
        case StructType():
            kept = [field for field in kind.fields if takes_values(field.field_type, variants=variants)]
            return StructType(*(_with(field, _writable(field.field_type, variants)) for field in kept))
        case ListType():
            return kind.model_copy(update={"element_type": _writable(kind.element_type, variants)})
        case MapType():
            parts = {"key_type": kind.key_type, "value_type": kind.value_type}
            return kind.model_copy(update={name: _writable(part, variants) for name, part in parts.items()})
    return kind


def without_foreign(kind: Any) -> Any:
    """The type with pyiceberg's ``unknown`` in place of the types that take no values, with the parts of a variant in
    place of ``variant``, and ``binary`` in place of geometries.
    """
    match kind:
        case StructType():
            return StructType(*map(_known, kind.fields))
        case ListType():
            return kind.model_copy(update={"element_type": without_foreign(kind.element_type)})
        case MapType():
            changed = {"key_type": without_foreign(kind.key_type), "value_type": without_foreign(kind.value_type)}
            return kind.model_copy(update=changed)
    if kind == VARIANT:
        return _VARIANT_PARTS
    if geo_type(kind) is not None:
        return BinaryType()
    return kind if takes_values(kind) else UnknownType()


def _known(field: NestedField) -> NestedField:
    kind = without_foreign(field.field_type)
    return _with(field, kind) if takes_values(field.field_type) else NestedField(field.field_id, field.name, kind)


def _with(field: NestedField, kind: IcebergType) -> NestedField:
    return field if kind is field.field_type else field.model_copy(update={"field_type": kind})


def schema_of_json(text: str) -> Schema:
    """The schema of a JSON text, which may have types that pyiceberg does not know."""
    return parsed(text, Schema.model_validate_json, lambda json: Schema.model_validate(with_foreign(json)))


def parsed(text: str, parse: Callable[[str], _Parsed], build: Callable[[Json], _Parsed]) -> _Parsed:
    """What ``parse`` makes of the text; if it refuses the text, what ``build`` makes of its JSON.

    :raises Exception: the error of ``parse``, if ``build`` fails, too.
    """
    try:
        return parse(text)
    except Exception as error:  # pyiceberg's validators raise errors of many classes
        try:
            return build(json.loads(text))
        except Exception:  # the error of the text itself says more
            raise error from None


def with_foreign(schema: Json) -> Json:
    """The JSON of a schema or type, with a ``ForeignType`` in place of each type that pyiceberg does not know."""
    if isinstance(schema, str):
        return _kind(schema)
    if not isinstance(schema, Mapping):
        return schema
    match schema.get("type"):
        case "struct":
            fields = [{**field, "type": with_foreign(field["type"])} for field in schema["fields"]]
            return {**schema, "fields": fields}
        case "list":
            return {**schema, "element": with_foreign(schema["element"])}
        case "map":
            return {**schema, "key": with_foreign(schema["key"]), "value": with_foreign(schema["value"])}
    return schema


def _kind(name: str) -> IcebergType:
    with suppress(Exception):  # a type that it does not know makes pyiceberg raise errors of several classes
        kind = NestedField(1, "x", name).field_type
        if not isinstance(kind, GeometryType | GeographyType):  # pyiceberg writes their parameters in a form of its own
            return kind
    return ForeignType(name)


@from_json.register(TimestampNanoType)
@from_json.register(TimestamptzNanoType)
def _(_: IcebergType, value: str) -> str:
    """A default value, which pyiceberg cannot read, as it stands in the schema."""
    return value


@to_json.register(TimestampNanoType)
@to_json.register(TimestamptzNanoType)
def _(_: IcebergType, value: str) -> str:
    return value


@from_json.register(StructType)
def _(_: StructType, value: Json) -> str:  # type: ignore[misc]
    """The default value of a struct, which pyiceberg cannot read, as JSON text."""
    return value if isinstance(value, str) else json.dumps(value)


@to_json.register(StructType)
def _(_: StructType, value: str) -> Json:  # type: ignore[misc]
    return json.loads(value)
