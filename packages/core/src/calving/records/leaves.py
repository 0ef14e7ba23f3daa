"""The values inside of objects, lists and maps, by the rows that hold them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.arrays import children_of, entries, holds, items_of, offsets_of


def leaves(array: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The arrays within an array that have no arrays within them. With each of them, the rows of its values."""
    return _leaves(array, pa.array(range(len(array)), pa.int32()))


def _leaves(array: pa.Array, rows: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    if isinstance(array, pa.ExtensionArray):
        yield from _leaves(array.storage, rows)
    elif isinstance(array, pa.StructArray):
        for child in children_of(array):
            yield from _leaves(child, rows)
    elif isinstance(array, pa.ListArray | pa.MapArray):
        parts = entries(array) if isinstance(array, pa.MapArray) else (items_of(array),)
        parents = pc.list_parent_indices(pa.ListArray.from_arrays(offsets_of(array), pa.nulls(len(parts[0]))))
        for part in parts:
            yield from _leaves(part, rows.take(parents))
    else:
        yield array, rows


def rows_without_utf8(array: pa.Array) -> set[int]:
    """The rows with a text, at any depth, that is no UTF-8. Nothing that calving has decoded has such rows, but what
    other code makes may have them: Arrow does not look.
    """
    if not holds(array.type, _is_text):
        return set()
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return {row for leaf, rows in leaves(array) if _is_text(leaf.type) for row in _unreadable(leaf, rows)}
    return set()


def _unreadable(texts: pa.Array, rows: pa.Array) -> Iterator[int]:
    for place, text in enumerate(texts.cast(pa.binary()).to_pylist()):
        try:
            str(text or b"", "utf-8")
        except UnicodeDecodeError:
            yield rows[place].as_py()


def _is_text(kind: pa.DataType) -> bool:
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return pa.types.is_string(storage) or pa.types.is_large_string(storage)
