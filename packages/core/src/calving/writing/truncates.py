"""The truncate events of one task: they delete what came before them, all rows or those of one source (rule M12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.files import DataFile
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.records.fields import table_schema
from calving.writing.changes import (
    DELETE,
    INSERT,
    OFFSET,
    OPERATION,
    SOURCE,
    Identity,
    is_operation,
)
from calving.writing.key_files import KeyWriter
from calving.writing.sources import truncate_column

_VALUE = "value"


class Truncates:
    """Takes truncate events, and the changes beside them.

    An event deletes the rows of files before those of its task with a key file: with one that deletes all rows, or with
    one that has the values of the truncate-field as keys. Earlier changes of its source partition are undone here.
    """

    def __init__(self, table: TableSpec, identity: Identity, task: int, limits: Limits) -> None:
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        self._column = truncate_column(table.name, table_schema(table.schema_json), table.mutations)
        keys = identity if self._column is None else Identity((self._column,), None)
        self._appends = table.mutations.inserts == "append"
        self._open: Callable[[], KeyWriter] = partial(KeyWriter, table, keys, task, limits)
        self._events: list[pa.RecordBatch] = []
        self._new: list[pa.RecordBatch] = []
        """The events for which no file was written yet."""

    def take(self, events: pa.RecordBatch) -> None:
        """Take events."""
        self._events.append(events)
        self._new.append(events)

    def undone(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """The changes of a batch without what the events have undone. A change that would have replaced the row of its
        key becomes a delete: the row that it replaces may be of another source.
        """
        for source, values, last in self._last():
            limit = last[0] if self._column is None else last.take(pc.index_in(self._column.of(changes), values))
            is_before = pc.and_(pc.equal(changes.column(SOURCE), source), pc.less(changes.column(OFFSET), limit))
            is_before = pc.fill_null(is_before, False)
            if not pc.any(is_before, min_count=0).as_py():
                continue
            is_gone = is_before
            if self._column is not None:
                adds = is_operation(changes.column(OPERATION), INSERT) if self._appends else pa.scalar(False)
                is_gone = pc.and_(is_before, adds)
                changes = _deleted(changes, is_before)
            changes = changes.filter(pc.invert(is_gone))
        return changes

    def _last(self) -> Iterator[tuple[int, pa.Array, pa.Array]]:
        """By source partition the offset of the last event, for each value of the truncate-field."""
        if not self._events:
            return
        events = pa.Table.from_batches(self._events)
        columns = {SOURCE: events.column(SOURCE), OFFSET: events.column(OFFSET)}
        if self._column is not None:
            columns[_VALUE] = pa.chunked_array([self._column.of(each) for each in self._events])
        by = [name for name in columns if name != OFFSET]
        last = pa.table(columns).group_by(by, use_threads=False).aggregate([(OFFSET, "max")]).combine_chunks()
        for source in last.column(SOURCE).unique().to_pylist():
            own = last.filter(pc.equal(last.column(SOURCE), source))
            values = own.column(_VALUE) if self._column is not None else own.column(SOURCE)
            yield source, values.combine_chunks(), own.column(f"{OFFSET}_max").combine_chunks()

    def finish(self) -> list[DataFile]:
        """Finish the files of the events so far."""
        events, self._new = self._new, []
        if not events:
            return []
        writer = self._open()
        if self._column is None:
            return [writer.of_every_row()]
        for each in events:
            writer.write(each)
        return writer.close()


def _deleted(changes: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    """The changes, as deletes where the mask is true."""
    place = changes.schema.get_field_index(OPERATION)
    operations = pc.if_else(mask, pa.scalar(DELETE, pa.int8()), changes.column(OPERATION))
    return changes.set_column(place, changes.schema.field(place), operations)
