"""Before images: what the rows were that updates have changed. An update that changes a key also deletes the row under
its old key (rule M11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.converted import Converted
from calving.casting.table import TableConverter
from calving.records.arrays import Indices, children_of, chosen, chosen_rows, compose, struct
from calving.records.values import RecordError, Values
from calving.writing.changes import ColumnPath, Identity


def bad_images(
    updates: Indices, of: Values, before: Sequence[Values], converter: TableConverter
) -> dict[int, RecordError]:
    """The updates at these places of the values whose before images cannot be converted, by index."""
    bad: dict[int, RecordError] = {}
    for here, images in _images(before, of, updates):
        places = compose(updates, here)
        bad |= {error.index: error for each in converter.convert(images).bad for error in [each.within(places)]}
    return bad


def moved(
    rows: Converted, of: Values, before: Sequence[Values], converter: TableConverter, old: Identity, new: Identity
) -> Iterator[Converted]:
    """The rows under their old keys, for the updates among ``rows`` that have changed a key. An id column that a before
    image lacks has not changed.

    ``rows``: the converted updates, of the values ``of``. ``converter``: makes rows of before images: whole ones, or
    only their keys; then the other columns have the values after the update. ``old`` and ``new``: the places of the id
    columns in what ``converter`` makes, and in ``rows``.
    """
    if rows.rows is None or not before:
        return
    for here, images in _images(before, of, rows.index):
        made = converter.convert(images)
        updates = compose(rows.index, here)
        yield Converted(None, [], [error.within(updates) for error in made.bad], made.changes)
        if made.rows is not None and made.rows.num_rows:
            after = chosen_rows(rows.rows, compose(here, made.index))
            yield from _under_old_keys(made, after, compose(updates, made.index), old, new)


def _images(before: Sequence[Values], of: Values, rows: Indices) -> Iterator[tuple[Indices, Values]]:
    """The before images of the values at these rows, and the places of their rows among ``rows``."""
    places = chosen(pa.array(of.index, pa.int64()), rows)
    for images in before:
        positions = pc.index_in(places, value_set=pa.array(images.index, pa.int64()))
        here = pc.indices_nonzero(positions.is_valid()).to_pylist()
        if here:
            yield here, images.choose(positions.drop_null().to_pylist())


def _under_old_keys(
    made: Converted, after: pa.RecordBatch, index: Indices, old: Identity, new: Identity
) -> Iterator[Converted]:
    assert made.rows is not None  # noqa: S101 - the caller has looked
    is_whole = made.rows.schema.names == after.schema.names
    keys = [
        (place, place.of(after), pc.coalesce(before.of(made.rows), place.of(after)))
        for before, place in zip(old.columns, new.columns, strict=True)
    ]
    changed = pc.indices_nonzero(_any(pc.not_equal(was, now) for _, now, was in keys)).to_pylist()
    if not changed:
        return
    rows = made.rows if is_whole else after
    for place, _, was in keys:
        rows = _with_column(rows, place, was)
    if is_whole and new.order is not None:  # the change counts by the order value of its event
        rows = _with_column(rows, new.order, new.order.of(after))
    yield replace(Converted(None, [], []), rows=chosen_rows(rows, changed), index=compose(index, changed))


def _any(masks: Iterator[pa.Array]) -> pa.Array:
    either = next(masks)
    for mask in masks:
        either = pc.or_(either, mask)
    return either


def _with_column(rows: pa.RecordBatch, place: ColumnPath, values: pa.Array) -> pa.RecordBatch:
    first, *inner = place.path
    return rows.set_column(first, rows.schema.field(first), _put(rows.column(first), inner, values))


def _put(column: pa.Array, path: Sequence[int], values: pa.Array) -> pa.Array:
    """The column with these values at a path through its structs, all of which are there then."""
    if not isinstance(column, pa.StructArray):
        kind = column.type
        return pa.ExtensionArray.from_storage(kind, values) if isinstance(kind, pa.BaseExtensionType) else values
    parts = list(children_of(column))
    parts[path[0]] = _put(parts[path[0]], path[1:], values)
    return struct(parts, column.type, None, len(column))
