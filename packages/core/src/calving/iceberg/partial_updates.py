"""Completes the partial rows of one commit: each gets the columns that it lacks from the row that its key has right
before it, in the head of the branch or in an earlier step of the commit (rule M15).

A key has at most one change in a step. So the rows that matter are those of the last steps of a key, down to its last
change that is not partial. What that change has left, or else the head, is the row on which they build.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import Table
from pyroaring import BitMap64

from calving.errors import OtherSettingsError, TableTroubleError
from calving.iceberg.stored_rows import StoredRows
from calving.model.files import DataFile
from calving.model.tables import OnMissingRow
from calving.model.text import counted
from calving.mutations.candidates import Candidate
from calving.mutations.columns import ColumnReader, File
from calving.mutations.keys import ChangedKeys, Matches, in_steps, repeated
from calving.mutations.ordering import Found
from calving.records.arrays import chosen_rows
from calving.records.fields import arrow_schema
from calving.writing.changes import KEPT, filled, optional
from calving.writing.kept_columns import is_rootless, kept_ids, kept_steps
from calving.writing.key_files import partial_row_schema
from calving.writing.key_runs import KeyRuns
from calving.writing.partial_rows import Joined, PartialRows

log = logging.getLogger(__name__)
Group = Sequence[Sequence[DataFile]]
"""Key files of the same id columns, by step."""
_NONE = -1


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """The keys that a commit changes. ``steps``: for each step, the keys that it changes. ``partial``: for each step,
    the rows of its files with partial rows, one file after the other. ``emptied``: the last step that empties the
    table; -1 if there is none.
    """

    keys: ChangedKeys
    steps: Sequence[Matches]
    partial: Sequence[Matches]
    emptied: int

    @staticmethod
    def of(keys: ChangedKeys, reading: ColumnReader, every: Group, partial: Group, emptied: int) -> KeyChanges:
        """``every``: all key files, from which ``keys`` are made. ``partial``: those with partial rows."""

        steps = in_steps(keys, reading, named(every))
        if [[*step] for step in every] == [[*step] for step in partial]:
            return KeyChanges(keys, steps, steps, emptied)
        matches = keys.found_in_each(reading.all_of(files) for files in named(partial))
        return KeyChanges(keys, steps, matches, emptied)

    def bases(self) -> pa.Array:
        """For each key: the step of its last change that is not partial, or that of the last emptying; -1 if there is
        none.
        """
        if self.steps is self.partial:
            return repeated(self.emptied, len(self.keys))
        others = [
            every.keys.filter(pc.invert(pc.is_in(every.keys, value_set=partial.keys)))
            for every, partial in zip(self.steps, self.partial, strict=True)
        ]
        return pc.max_element_wise(self._last_steps(others), pa.scalar(self.emptied, pa.int32()))

    def unfinished(self, bases: pa.Array) -> pa.Array:
        """For each key, whether its last change is partial."""
        steps = self._last_steps([partial.keys for partial in self.partial])
        return pc.and_(
            pc.equal(steps, self.keys.last_steps),
            pc.and_(pc.greater_equal(steps, bases), pc.greater_equal(steps, 0)),
        )

    def _last_steps(self, keys: Sequence[pa.Array]) -> pa.Array:
        """For each key, the last step of which ``keys`` has it; -1 if there is none."""
        steps = pa.concat_arrays([repeated(step, len(of_step)) for step, of_step in enumerate(keys)])
        given = pa.concat_arrays([of_step.cast(pa.int32()) for of_step in keys])
        # The last of several numbers at one place stays.
        return pc.fill_null(pc.scatter(steps, given, max_index=len(self.keys) - 1), _NONE)


class PartialUpdates:
    """The completion of partial rows for one attempt at a commit."""

    def __init__(self, table: Table, files: Group, properties: Mapping[str, str], on_missing: OnMissingRow) -> None:
        """``files``: of each step, the files with partial rows. ``properties``: beside those of the table, for the
        files that are written.
        """
        self._table, self._files, self._on_missing = table, files, on_missing
        self._stored_rows = StoredRows(table, properties)
        self._schema = table.metadata.schema()
        self._joiner = PartialRows(self._schema)
        self._partial = partial_row_schema(self._schema)
        self._rows = arrow_schema(optional(self._schema, frozenset(self._schema.field_ids)))

    def complete(
        self, changes: KeyChanges, found: Sequence[Found], before: Mapping[str, BitMap64]
    ) -> tuple[DataFile, ...]:
        """Write the rows that the partial ones have become. ``found``: all files with rows of the keys. ``before``: the
        rows of each file that the head's deletes delete.

        :raises TableTroubleError: a stored row cannot be read, or a required column would be empty.
        """
        bases = changes.bases()
        unfinished = changes.unfinished(bases)
        parts = [*self._partial_rows(changes, bases, unfinished)]
        if not parts:
            return ()
        ids = frozenset(chain.from_iterable((*kept_ids(text), *kept_steps(text)) for text in _texts(parts)))
        parts = [*self._stored(found, before, bases, unfinished, ids), *parts]
        rows = pa.concat_batches([part for part, _ in parts])
        runs = KeyRuns.of(pa.concat_arrays([keys for _, keys in parts]))
        whole = rows.select(range(len(self._rows)))
        joined = self._joiner.settled(self._joiner.join(whole, runs, rows.column(KEPT)))
        return self._written(joined, self._joiner.without_value(joined))

    def _partial_rows(
        self, changes: KeyChanges, bases: pa.Array, unfinished: pa.Array
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The partial rows that matter, in their order, and the number of each row's key."""
        reader, start = self._stored_rows.reader(self._partial), 0
        for step, (files, matches) in enumerate(zip(self._files, changes.partial, strict=True)):
            # A step that empties the table does so before its own changes.
            matters = pc.and_(
                unfinished.take(matches.keys),
                pc.greater_equal(pa.scalar(step, pa.int32()), bases.take(matches.keys)),
            )
            rows, keys = matches.rows.filter(matters), matches.keys.filter(matters)
            start = 0
            for file in files:
                positions = pc.and_(pc.greater_equal(rows, start), pc.less(rows, start + file.record_count))
                here = pc.subtract(rows.filter(positions), start)
                own, first = keys.filter(positions), 0
                if len(here):
                    known = reader.ids(file.file_path)
                    for part in reader.rows_at(file.file_path, file.file_format, {}, here):
                        yield self._beside(part, known), own.slice(first, part.num_rows)
                        first += part.num_rows
                start += file.record_count

    def _beside(self, rows: pa.RecordBatch, known: Set[int]) -> pa.RecordBatch:
        """The partial rows of a file, which also lack the columns that the table got after the file was written.
        ``known``: the field ids of the file.
        """
        place = rows.schema.get_field_index(KEPT)
        column = rows.column(place)
        texts = {text: self._joiner.beside(text, known) for text in column.drop_null().unique().to_pylist()}
        if all(text == more for text, more in texts.items()):
            return rows
        made = pa.array([texts.get(text) for text in column.to_pylist()], pa.string())
        return rows.set_column(place, rows.schema.field(place), made)

    def _stored(
        self,
        found: Sequence[Found],
        before: Mapping[str, BitMap64],
        bases: pa.Array,
        unfinished: pa.Array,
        ids: Set[int],
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The rows on which partial ones build, with these columns, and the number of each row's key."""
        wanted = prune_columns(self._schema, {each for each in ids if each in self._schema.field_ids})
        wanted = optional(wanted, frozenset(wanted.field_ids))
        for file, matches in found:
            step = _NONE if file.step is None else file.step
            living = matches.living(before.get(file.path, BitMap64()))
            builds = pc.and_(unfinished.take(living.keys), pc.equal(bases.take(living.keys), step))
            rows, keys = living.rows.filter(builds), living.keys.filter(builds)
            if not len(rows):
                continue
            order = pc.sort_indices(rows)
            keys, first = keys.take(order), 0
            for part in self._rows_of(file, wanted, rows.take(order)):
                yield part, keys.slice(first, part.num_rows)
                first += part.num_rows

    def _rows_of(self, file: Candidate, schema: Schema, positions: pa.Array) -> Iterator[pa.RecordBatch]:
        """Rows of a file with these columns, among all of the table's columns."""
        if not schema.fields:  # the table has lost them
            yield self._among_all(pa.RecordBatch.from_arrays([pa.nulls(len(positions))], [""]))
            return
        for rows in self._stored_rows.at(file, schema, positions):
            yield self._among_all(rows)

    def _among_all(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            filled(rows.column(place), field.type)
            if (place := rows.schema.get_field_index(field.name)) >= 0
            else pa.nulls(rows.num_rows, field.type)
            for field in self._rows
        ]
        kept = pa.nulls(rows.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([*columns, kept], schema=arrow_schema(self._partial))

    def _written(self, joined: Joined, empty: Set[int]) -> tuple[DataFile, ...]:
        """``empty``: the columns for which a row has no value."""
        rows = joined.rows
        missing = joined.kept.drop_null().to_pylist()
        if self._on_missing == "skip":
            rows = chosen_rows(rows, pc.indices_nonzero(joined.kept.is_null()).to_pylist())
            self._warn(len(missing), "the table does not get them (on-missing-row = skip)")
        else:
            self._check_required(empty)
            lacking = sum(bool(kept_ids(text)) for text in missing)
            self._warn(lacking, "these values are null, or the defaults of their columns, in the new rows")
        if not rows.num_rows:
            return ()
        return self._stored_rows.written([rows])

    def _warn(self, count: int, what: str) -> None:
        if count:
            updates = counted(count, "update")
            log.warning(
                "table %s: %s without all values found no row of the key: %s",
                ".".join(self._table.name()),
                updates,
                what,
            )

    def _check_required(self, ids: Set[int]) -> None:
        """``ids``: of columns that a row would lack.

        :raises TableTroubleError: one of them is required.
        """
        for each in sorted(ids):
            if each in self._schema.field_ids and self._schema.find_field(each).required:
                table, column = ".".join(self._table.name()), self._schema.find_column_name(each)
                raise TableTroubleError(
                    f"table {table}: column {column} is required, and a change without its value found no row of its"
                    " key: make the column optional, or set on-missing-row = skip to leave such changes out; the files"
                    " of the sink stay buffered until then"
                )


def named(group: Group) -> list[list[File]]:
    """The files' names and formats, by step."""
    return [[(file.file_path, file.file_format) for file in of_step] for of_step in group]


def check_id_columns(table: Table, key_files: Mapping[tuple[int, ...], Group]) -> None:
    """``key_files``: by the ids of their id columns.

    :raises TableTroubleError: there are partial rows, or changes of versions, and changes by other id columns. These
        have no common order.
    """
    files = [file for group in key_files.values() for of_step in group for file in of_step]
    if len(key_files) > 1 and any(file.is_partial or file.has_changes for file in files):
        name = ".".join(table.name())
        raise TableTroubleError(
            f"table {name}: its id columns or its truncate-field were changed while files waited that need the former"
            " ones (on-unavailable-value or unset-fields = keep, or history = on), and nothing is committed. To have"
            f" their records, stop all workers, discard the files with `calving release FILE --table {name} --record"
            " OUT`, and run `calving recover FILE`"
        )


def partial_files(table: Table, key_files: Group, *, is_ordered: bool, has_equality: bool) -> Group | None:
    """The files with partial rows among these; None if there are none. ``is_ordered``: whether there is an order
    column. ``has_equality``: whether the branch has equality deletes.

    :raises OtherSettingsError, TableTroubleError: the rows cannot be completed.
    """
    found = [[file for file in of_step if file.is_partial] for of_step in key_files]
    if not any(found):
        return None
    name = ".".join(table.name())
    if is_ordered:
        raise OtherSettingsError(
            f"table {name}: a file for it has rows without all values (on-unavailable-value or unset-fields = keep),"
            " and this worker's settings have an order-field: let a worker with the former settings lead until it has"
            " committed the file"
        )
    if has_equality:
        raise TableTroubleError(
            f"table {name} has equality deletes: it is unknown which rows they leave, and so which values an update"
            " keeps; turn them into positions first, with `calving maintain FILE`"
        )
    return found


def _texts(parts: Sequence[tuple[pa.RecordBatch, pa.Array]]) -> set[str]:
    """The texts of lacking columns in these rows that may be in a row before them."""
    texts = set[str]()
    for rows, _ in parts:
        kept = rows.column(KEPT)
        texts.update(kept.filter(pc.invert(pc.fill_null(is_rootless(kept), True))).unique().to_pylist())
    return texts
