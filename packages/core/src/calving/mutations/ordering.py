"""For tables with an order field: finds the rows of a key that lose, because the greatest order value wins (M8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.tables import OrderType
from calving.mutations.candidates import Candidate
from calving.mutations.keys import ChangedKeys, Matches
from calving.records.positions import order_keys
from calving.writing.key_runs import are_last

Found = tuple[Candidate, Matches]
RowPosition = tuple[str, int]
"""A data file, and the position of a row in it."""

_KEY, _STEP, _FILE, _ORDER = "key", "step", "file", "order"
_OF_TABLE = -1
"""Stands for a step: the table has the row already."""
_CHANGE = -1
"""Stands for a file: the event is a step's change of the key. Less than the number of any file, so that the rows of the
step sort after the change.
"""
_AT_ONCE = 64 * 1024
_Event = tuple[int, int, int, int, Any]
"""The key, the step, the file, the position in the file, and the order value of a row or of a change. A change's
position has no meaning.
"""


def losers(
    keys: ChangedKeys, changes: Sequence[Matches], found: Sequence[Found], order_type: OrderType = "parsed"
) -> Iterator[RowPosition]:
    """The rows that lose. ``changes``: for each step, the keys that it changes. If a step changes a key several times,
    the last change counts.

    ``found``: all live rows that have one of the keys.
    """
    if not any(len(matches.rows) for _, matches in found):
        return
    contested = _contested(keys, _events(changes, found))
    place = contested.schema.get_field_index(_ORDER)
    contested = contested.set_column(place, _ORDER, order_keys(contested.column(place), order_type))
    for _, events in groupby(_each(contested), key=itemgetter(0)):
        for file, row in _of_key(events):
            yield found[file][0].path, row


def _of_key(events: Iterable[_Event]) -> Iterator[tuple[int, int]]:
    """The file and the position of each row that loses. If a change loses to a live row, the rows of its step lose,
    too, and the change deletes nothing.
    """
    live: list[tuple[int, int, Any]] = []
    lost: int | None = None
    for _, step, file, row, order in events:
        if file == _CHANGE:
            if any(_is_greater(held, order) for _, _, held in live):
                lost = step
                continue
            yield from ((of, at) for of, at, _ in live)
            live = []
        elif step == lost:
            yield file, row
        else:
            live.append((file, row, order))


def _is_greater(order: Any, than: Any) -> bool:
    """Whether ``order`` is greater. None is less than any value."""
    return order is not None and (than is None or order > than)


def _events(changes: Sequence[Matches], found: Sequence[Found]) -> pa.RecordBatch:
    """All changes and rows, in no particular order."""
    rows = (
        _batch(matches, _OF_TABLE if file.step is None else file.step, number)
        for number, (file, matches) in enumerate(found)
    )
    changed = (_batch(matches, step, _CHANGE).filter(are_last(matches.keys)) for step, matches in enumerate(changes))
    # Leave out empty batches: they do not have the type of the order values.
    return pa.concat_batches([each for each in chain(rows, changed) if each.num_rows])


def _batch(matches: Matches, step: int, file: int) -> pa.RecordBatch:
    steps, files = (pa.repeat(pa.scalar(number, pa.int32()), len(matches.rows)) for number in (step, file))
    columns = [matches.keys, steps, files, matches.rows, matches.orders]
    return pa.RecordBatch.from_arrays(columns, [_KEY, _STEP, _FILE, "row", _ORDER])


def _contested(keys: ChangedKeys, events: pa.RecordBatch) -> pa.RecordBatch:
    """The events of keys that a step changes although an earlier step or the table has rows of them. Sorted by key,
    step and file.
    """
    rows = events.filter(pc.not_equal(events[_FILE], _CHANGE))
    before = rows[_KEY].filter(pc.less(rows[_STEP], keys.last_steps.take(rows[_KEY])))
    places = pc.index_in(events[_KEY], value_set=before.unique())
    left = events.set_column(0, _KEY, places).filter(pc.is_valid(places))
    return left.sort_by([(_KEY, "ascending"), (_STEP, "ascending"), (_FILE, "ascending")])  # stable


def _each(events: pa.RecordBatch) -> Iterator[_Event]:
    for start in range(0, events.num_rows, _AT_ONCE):
        yield from zip(*(column.to_pylist() for column in events.slice(start, _AT_ONCE).columns), strict=True)
