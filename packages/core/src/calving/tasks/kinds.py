"""Groups values by the schema that they need of a table. Most records of a topic are alike, so there are few kinds."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from calving.records.arrays import JSON, children_of
from calving.records.inferred import InferredType, of_array, of_type, of_value
from calving.records.values import Values, objects

_PLAIN = frozenset((str, int, bool, float, Decimal, type(None)))


class Kind(NamedTuple):
    """Values of one kind: their indices, and the first value if they come without a schema."""

    type: InferredType | None
    rows: Sequence[int]
    value: Any


def kinds_of(values: Values) -> Iterator[Kind]:
    """The kinds of all values. Values with a schema are all of one kind, which the schema determines."""
    data = values.data
    if values.typed and not isinstance(data, list):
        yield Kind(of_type(data.type), range(len(values)), None)
        return
    keys = [*map(_key, data)] if isinstance(data, list) else _keys(data)
    rows: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    for found in rows.values():
        if isinstance(data, list):
            yield Kind(of_value(data[found[0]]), found, data[found[0]])
        else:
            first = data.slice(found[0], 1)
            yield Kind(of_array(first, typed=False), found, objects(first)[0])


def _key(value: Any) -> Hashable:
    """A key that is equal for values that need the same schema."""
    if type(value) is not dict:
        return repr(of_value(value))
    types = tuple(map(type, value.values()))
    if _PLAIN.issuperset(types) and (int not in types or all(map(_is_long, value.values()))):
        return tuple(value), types
    return repr(of_value(value))


def _is_long(value: Any) -> bool:
    return type(value) is not int or -(2**63) <= value < 2**63


def _keys(data: pa.Array) -> Iterator[Hashable]:
    """The keys of a column without a schema. They depend on where a value has nulls and, if the column's type does not
    determine the schema, on the content of the value.
    """
    if isinstance(data, pa.StructArray) and data.type.num_fields:
        return zip(*map(_keys, children_of(data)), strict=True)
    if pa.types.is_nested(data.type) or data.type == JSON:
        return (repr(of_array(data.slice(row, 1), typed=False)) for row in range(len(data)))
    return iter(data.is_valid().to_pylist())
