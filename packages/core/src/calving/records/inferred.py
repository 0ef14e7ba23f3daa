"""Inferred types: the column type that a value needs, without field ids.

Inferred types are sent as JSON. A text is an Iceberg primitive (``long``, ``decimal(9, 2)``). ``{"struct": {name:
type}}`` has a second key, ``required``, with the names of required fields, and a third, ``defaults``, with the
defaults that schemas declare for fields (``schema_defaults``): all that differ. ``{"list": type}`` and ``{"map": [key,
value]}`` have ``required`` = true if elements or values are never null. None means unknown: there were only nulls, or
empty objects and arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa

from calving.records.arrays import JSON, Pairs, children_of, items_of
from calving.records.jsontext import load_json
from calving.records.schema_defaults import default_of
from calving.records.semantics import SemanticType

__all__ = [
    "JSON",
    "InferredType",
    "all_optional",
    "decimal_digits",
    "folded",
    "merge",
    "of_array",
    "of_type",
    "of_value",
]

InferredType = Any

_NUMBERS = ("int", "long", "float", "double")


def of_value(value: object) -> InferredType | None:
    """The kind of a schemaless value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(2**63) <= value < 2**63 else "decimal(38, 0)" if abs(value) < 10**38 else "string"
    if isinstance(value, float | Decimal):
        return "double"
    if isinstance(value, str):
        return "string"
    if isinstance(value, Mapping):
        return _of_fields(value)
    if isinstance(value, Pairs):
        key, item = _common(k for k, _ in value), _common(v for _, v in value)
        return {"map": [key, item]} if item is not None else None
    if isinstance(value, list):
        element = _common(value)
        return {"list": element} if element is not None else None
    return None


def _of_fields(value: Mapping[Any, object]) -> InferredType | None:
    fields = {str(name): kind for name, item in value.items() if (kind := of_value(item)) is not None}
    return {"struct": fields} if fields else None


def _common(values: Iterable[object]) -> InferredType | None:
    """The narrowest kind that holds all values."""
    return reduce(merge, map(of_value, values), None)


def of_array(array: pa.Array, typed: bool) -> InferredType | None:
    """The kind of a column. The schema decides for a typed column, and the values for a schemaless one."""
    kind = array.type
    if typed:
        return of_type(kind)
    if pa.types.is_null(kind) or array.null_count == len(array):
        return None
    if kind == JSON:
        inferred: InferredType | None = None
        for text in array.drop_null().to_pylist():
            inferred = merge(inferred, of_value(load_json(text)))
        return inferred
    if isinstance(array, pa.StructArray):
        children = zip(array.type, children_of(array), strict=True)
        fields = {f.name: inferred for f, child in children if (inferred := of_array(child, typed)) is not None}
        return {"struct": fields} if fields else None
    if pa.types.is_list(kind) and isinstance(array, pa.ListArray):
        element = of_array(items_of(array), typed)
        return {"list": element} if element is not None else None
    return of_type(kind)


def of_type(kind: pa.DataType) -> InferredType | None:
    """The kind that an Arrow type needs, whatever its values."""
    t = pa.types
    if isinstance(kind, SemanticType):
        return kind.meaning.column
    if t.is_nested(kind):
        return _of_nested(kind)
    if t.is_decimal(kind):
        # Iceberg has no decimals with a negative scale, nor with a scale above their precision.
        digits = max(kind.precision - min(0, kind.scale), kind.scale)
        return f"decimal({min(38, digits)}, {min(38, max(0, kind.scale))})"
    if t.is_timestamp(kind):
        return ("timestamp" if kind.tz is None else "timestamptz") + (_NANOS if kind.unit == "ns" else "")
    if t.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    if kind == pa.uuid():
        return "uuid"
    if t.is_time(kind):
        return "time"
    return _PRIMITIVES.get(kind)


def _of_nested(kind: pa.DataType) -> InferredType | None:
    t = pa.types
    if t.is_struct(kind):
        fields = {f.name: inferred for f in kind if (inferred := of_type(f.type)) is not None}
        required = [f.name for f in kind if not f.nullable and f.name in fields]
        defaults = {f.name: [text] for f in kind if f.name in fields and (text := default_of(f)) is not None}
        return _struct({"struct": fields, "required": required}, defaults) if fields else None
    if t.is_list(kind) or t.is_large_list(kind):
        element = of_type(kind.value_type)
        return None if element is None else {"list": element, "required": not kind.value_field.nullable}
    if t.is_map(kind):
        item = of_type(kind.item_type)
        key = of_type(kind.key_type)
        return None if item is None else {"map": [key, item], "required": not kind.item_field.nullable}
    return None


_PRIMITIVES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), "int"),
    **dict.fromkeys((pa.int64(), pa.uint32()), "long"),
    pa.uint64(): "decimal(20, 0)",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    JSON: "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


_NANOS = "_ns"
"""Ends the names of timestamps in nanoseconds."""


def in_micros(kind: Any) -> Any:
    """The kind, with timestamps in microseconds in place of those in nanoseconds."""
    match kind:
        case str():
            return kind.removesuffix(_NANOS)
        case {"struct": fields}:
            return {**kind, "struct": {name: in_micros(inner) for name, inner in fields.items()}}
        case {"list": element}:
            return {**kind, "list": in_micros(element)}
        case {"map": [key, value]}:
            return {**kind, "map": [in_micros(key), in_micros(value)]}
    return kind


def _merge_nested(a: Mapping[str, Any], b: Mapping[str, Any]) -> InferredType:
    if "struct" in a and "struct" in b:
        return _merge_structs(a, b)
    if "list" in a and "list" in b:
        return _both({"list": merge(a["list"], b["list"])}, a, b)
    if "map" in a and "map" in b:
        return _both({"map": [merge(a["map"][0], b["map"][0]), merge(a["map"][1], b["map"][1])]}, a, b)
    return "string"


def merge(a: InferredType | None, b: InferredType | None) -> InferredType | None:
    """The narrowest kind that holds both; string if no other kind does."""
    if a is None or b is None or a == b:
        return a if b is None else b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return _merge_nested(a, b)
    if isinstance(a, str) and isinstance(b, str):
        return _merge_singles(a, b)
    return "string"


def _merge_singles(a: str, b: str) -> InferredType:
    if a in _NUMBERS and b in _NUMBERS:
        return "double" if {a, b} == {"long", "float"} else max(a, b, key=_NUMBERS.index)
    if in_micros(a) == in_micros(b):  # nanoseconds do not reach the years that microseconds do
        return in_micros(a)
    return _merge_decimals(a, b) if a.startswith("decimal") or b.startswith("decimal") else "string"


def find(
    kind: InferredType | None, name: str, key: Callable[[str], str] = str
) -> tuple[tuple[str, ...], InferredType] | None:
    """The path and type of a field by its dotted name, also inside structs. Names with the same ``key`` count as
    equal.
    """
    fields = kind.get("struct", {}) if isinstance(kind, Mapping) else {}
    head, _, rest = name.partition(".")
    for field, inner in fields.items():
        if key(field) == key(name):
            return (field,), inner
    for field, inner in fields.items():
        place = find(inner, rest, key) if rest and key(field) == key(head) else None
        if place is not None:
            return (field, *place[0]), place[1]
    return None


def all_optional(kind: InferredType) -> InferredType:
    """The kind with all fields, elements and values optional."""
    match kind:
        case {"struct": fields}:
            return _struct({"struct": {name: all_optional(inner) for name, inner in fields.items()}}, _defaults(kind))
        case {"list": element}:
            return {"list": all_optional(element)}
        case {"map": [key, value]}:
            return {"map": [key, all_optional(value)]}
    return kind


def folded(kind: Any) -> Any:
    """The kind, with fields merged if their names differ only by case. The first name in sort order stays."""
    match kind:
        case {"struct": fields}:
            by_lower: dict[str, tuple[str, InferredType]] = {}
            for name in sorted(fields):
                first, inner = by_lower.get(name.lower(), (name, None))
                by_lower[name.lower()] = (first, merge(inner, folded(fields[name])))
            merged: dict[str, Any] = {"struct": dict(by_lower.values())}
            return merged | attributes(kind, merged["struct"])
        case {"list": element}:
            return {**kind, "list": folded(element)}
        case {"map": [key, value]}:
            return {**kind, "map": [folded(key), folded(value)]}
    return kind


def _both(merged: dict[str, Any], a: Mapping[str, Any], b: Mapping[str, Any]) -> InferredType:
    return merged | ({"required": True} if a.get("required") and b.get("required") else {})


def _merge_structs(a: Mapping[str, Any], b: Mapping[str, Any]) -> InferredType:
    mine, theirs = a["struct"], b["struct"]
    names = [*mine, *(n for n in theirs if n not in mine)]
    merged: dict[str, Any] = {"struct": {n: merge(mine.get(n), theirs.get(n)) for n in names}}
    required = [n for n in a.get("required", ()) if n in b.get("required", ())]
    defaults = {n: sorted({*_defaults(a).get(n, ()), *_defaults(b).get(n, ())}) for n in _defaults(a) | _defaults(b)}
    return _struct(merged | ({"required": required} if required else {}), defaults)


def attributes(kind: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """What a struct type says of its fields of these names besides their types."""
    required = [name for name in kind.get("required", ()) if name in names]
    defaults = {name: texts for name, texts in _defaults(kind).items() if name in names}
    return _struct({"required": required} if required else {}, defaults)


def _struct(kind: dict[str, Any], defaults: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return kind | ({"defaults": defaults} if defaults else {})


def _defaults(kind: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    return kind.get("defaults", {})  # type: ignore[no-any-return]


def _merge_decimals(a: str, b: str) -> InferredType:
    if "double" in (a, b) or "float" in (a, b):
        return "double"
    digits = {"int": (10, 0), "long": (19, 0)}
    (p1, s1), (p2, s2) = (digits[k] if k in digits else decimal_digits(k) for k in (a, b))
    if 0 in (p1, p2):
        return "string"
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    return f"decimal({precision}, {scale})" if precision <= 38 else "string"


def decimal_digits(kind: str) -> tuple[int, int]:
    """Precision and scale of ``decimal(p, s)``; zeros for any other kind."""
    if not kind.startswith("decimal("):
        return 0, 0
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)
