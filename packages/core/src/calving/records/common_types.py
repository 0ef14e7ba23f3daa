"""The common type of the elements of an array, where each was read by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pyarrow as pa

from calving.records.arrays import children_of, items_of, lists, offsets_of, struct


def common_type(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """The common type of all, in time linear in them. A document gets the fields of all documents.

    :raises ValueError: there is none.
    """
    distinct = [kind for kind in dict.fromkeys(kinds) if not pa.types.is_null(kind)]
    if len(distinct) <= 1:
        return distinct[0] if distinct else pa.null()
    if set(distinct) == {pa.int32(), pa.int64()}:
        return pa.int64()
    structs = [kind for kind in distinct if isinstance(kind, pa.StructType)]
    if len(structs) == len(distinct):
        return _struct(structs)
    of_lists = [kind for kind in distinct if isinstance(kind, pa.ListType)]
    if len(of_lists) == len(distinct):
        return pa.list_(common_type(kind.value_type for kind in of_lists))
    raise ValueError("an array holds values of several kinds; set array_handling_mode = document")


def _struct(kinds: Iterable[pa.StructType]) -> pa.DataType:
    """The fields of all, each with the common type of those of its name."""
    fields: dict[str, list[pa.DataType]] = {}
    for field in (field for kind in kinds for field in kind):
        fields.setdefault(field.name, []).append(field.type)
    return pa.struct([(name, common_type(of_name)) for name, of_name in fields.items()])


def as_common(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values with a common type of theirs and others. Fields that a document lacks are null."""
    if array.type == kind:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    nulls = array.is_null() if array.null_count else None
    if isinstance(kind, pa.ListType):
        array = cast("pa.ListArray", array)
        return lists(offsets_of(array), as_common(items_of(array), kind.value_type), kind, nulls)
    if not isinstance(kind, pa.StructType):
        return array.cast(kind)
    array = cast("pa.StructArray", array)
    own = {field.name: child for field, child in zip(array.type, children_of(array), strict=True)}
    children = [
        as_common(own[field.name], field.type) if field.name in own else pa.nulls(len(array), field.type)
        for field in kind
    ]
    return struct(children, kind, nulls, len(array))
