"""Records between their bytes and a table's rows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.data.conversion.kinds import JSON

Objects = list[Any]
"""Schemaless values as Python's JSON reader gives them, fractions as Decimal: what Arrow did not read exactly."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that cannot be taken: its place in the block, the stage that refused it, and why.

    ``fatal``: it stops the sink whatever is tolerated.
    """

    index: int
    stage: str
    error: str
    reason: str
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """Decoded values of one shape: an Arrow column, or ``Objects``. ``index`` are their places; None: all, in order.

    ``typed`` values come with a schema (Avro, Protobuf, a Connect envelope); of others only what they say is known.
    """

    data: pa.Array | Objects
    typed: bool
    index: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one source partition, as columns of equal length; what transforms work on.

    ``index`` (int32) are the records' places in the block that was read: whatever a transform does, a record keeps
    its place, and with it its source offset. ``topic`` (string), ``timestamp`` (milliseconds UTC) and ``headers``
    (``HEADERS``) may be changed. ``value`` is null for a tombstone.
    """

    index: pa.Array
    topic: pa.Array
    partition: int
    offset: pa.Array
    timestamp: pa.Array
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    typed: bool

    def __len__(self) -> int:
        return len(self.index)

    def take(self, chosen: pa.Array) -> Records:
        """The records at these places, or where this mask is true."""
        pick = pc.filter if pa.types.is_boolean(chosen.type) else pc.take
        return self._each(lambda column: pick(column, chosen))

    def slice(self, start: int, end: int) -> Records:
        """The records from place ``start`` up to, not including, ``end``."""
        return self._each(lambda column: column.slice(start, end - start))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> Records:
        columns = ("index", "topic", "offset", "timestamp", "key", "value", "headers")
        return replace(self, **{name: change(getattr(self, name)) for name in columns})

    def with_value(self, value: pa.Array) -> Records:
        return replace(self, value=value)


def columns(objects: Sequence[Any]) -> pa.Array:
    """Schemaless values as one Arrow column. A field with values of several kinds becomes ``JSON`` text."""
    kind = _arrow_kind(objects)
    return build(objects, kind)


def _arrow_kind(values: Sequence[Any]) -> pa.DataType:
    """The type that holds all values: numbers with fractions are doubles, several kinds are JSON."""
    found: set[str] = {JSON_KINDS.get(type(v), "object") for v in values}
    found.discard("null")
    if found == {"long"} and any(not -(2**63) <= v < 2**63 for v in values if v is not None):
        return JSON
    if found == {"object"}:
        names: dict[str, list[Any]] = {}
        for value in values:
            if value is not None:
                for name, item in value.items():
                    names.setdefault(name, []).append(item)
        return pa.struct([(name, _arrow_kind(items)) for name, items in names.items()])
    if found == {"array"}:
        return pa.list_(_arrow_kind([item for value in values if value is not None for item in value]))
    if found == {"long", "double"}:
        return pa.float64() if all(v is None or float(v) == v or isinstance(v, Decimal) for v in values) else JSON
    return _SIMPLE.get(next(iter(found), "null"), JSON) if len(found) < 2 else JSON


JSON_KINDS = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    Decimal: "double",
    str: "string",
    dict: "object",
    list: "array",
}
"""What JSON calls the values of Python's JSON reader; whole numbers and fractions are told apart."""
_SIMPLE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
}


def _leaf(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if kind == JSON:
        texts = [None if v is None else json.dumps(v, default=float, ensure_ascii=False) for v in values]
        return pa.array(texts, JSON)
    if pa.types.is_float64(kind):
        return pa.array([None if v is None else float(v) for v in values], kind)
    return pa.array(values, kind)


def build(
    values: Sequence[Any], kind: pa.DataType, leaf: Callable[[Sequence[Any], pa.DataType], pa.Array] = _leaf
) -> pa.Array:
    """Python values as an Arrow column of a type that fits them; ``leaf`` makes the columns of what is not nested.

    ``pa.array`` does this too, but not with extension types inside others.
    """
    if not pa.types.is_nested(kind) or kind == pa.struct([]):
        return leaf(values, kind)
    mask = pa.array([v is None for v in values], pa.bool_())
    if pa.types.is_struct(kind):
        children = [build([None if v is None else v.get(f.name) for v in values], f.type, leaf) for f in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    ends, items = [0], list[Any]()
    for value in values:
        items += value or ()
        ends.append(len(items))
    offsets = pa.array(ends, pa.int32())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(offsets, build(items, kind.value_type, leaf), type=kind, mask=mask)
    keys = build([k for k, _ in items], kind.key_type, leaf)
    return pa.MapArray.from_arrays(
        offsets, keys, build([v for _, v in items], kind.item_type, leaf), type=kind, mask=mask
    )


def arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """``pa.array``, also where there are extension types inside others. :raises Exception: a value does not fit."""
    nested = pa.types.is_nested(kind) and _holds(kind, lambda inner: isinstance(inner, pa.BaseExtensionType))
    return build(values, kind, pa.array) if nested else pa.array(values, kind)


def load_json(text: str, fraction: Callable[[str], Any] = Decimal) -> Any:
    """A JSON value, fractions as Decimal unless told otherwise. The last of several fields of one name counts.

    :raises ValueError, RecursionError: it is none, or holds what no column can: half of a surrogate pair, or a fraction
        beyond a double.
    """
    value = json.loads(text, parse_float=partial(_fraction, fraction), parse_constant=_no_constant)
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, default=str, ensure_ascii=False).encode()
    return value


def _fraction(kind: Callable[[str], Any], text: str) -> Any:
    if math.isinf(float(text)):
        raise ValueError(f"{text} is not a number that a double holds")
    return kind(text)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def objects(column: pa.Array) -> list[Any]:
    """A column as Python values; JSON text becomes the value that it holds."""
    if not _holds(column.type, _is_json):
        return column.to_pylist()  # type: ignore[no-any-return]
    return [_unfold(value, column.type) for value in column.to_pylist()]


def _unfold(value: Any, kind: pa.DataType) -> Any:
    if value is None or not _holds(kind, _is_json):
        return value
    if kind == JSON:
        return load_json(value)
    if pa.types.is_struct(kind):
        return {f.name: _unfold(value[f.name], f.type) for f in kind}
    if pa.types.is_list(kind):
        return [_unfold(item, kind.value_type) for item in value]
    return [(_unfold(k, kind.key_type), _unfold(v, kind.item_type)) for k, v in value]


def _is_json(kind: pa.DataType) -> bool:
    return bool(kind == JSON)


def _holds(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds(kind.field(i).type, wanted) for i in range(kind.num_fields))
    return wanted(kind)


def field(column: pa.Array, path: str) -> pa.Array | None:
    """A dotted field of a struct column; None where no record can have it."""
    for name in path.split("."):
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, name)
    return column


def texts(data: pa.Array | Objects, path: str) -> Sequence[str | None]:
    """The text of a dotted field of every value, None where it is missing or null."""
    if isinstance(data, list):
        return [_text(_dig(value, path)) for value in data]
    column = field(data, path)
    if column is None:
        return [None] * len(data)
    if pa.types.is_string(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    return [_text(value) for value in objects(column)]


def _dig(value: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, default=str if not isinstance(value, Decimal) else float)
