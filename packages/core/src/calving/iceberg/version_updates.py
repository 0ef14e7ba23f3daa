"""Ends the versions of rows that a commit changes (rule M16): those whose end is another one then are written anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BooleanType, NestedField
from pyroaring import BitMap64

from calving.errors import OtherSettingsError
from calving.iceberg.partial_updates import Group, named
from calving.iceberg.stored_rows import StoredRows
from calving.model.files import CHANGED_AT, CHANGES, DataFile
from calving.model.tables import VERSION_COLUMNS, OrderType
from calving.mutations.candidates import Candidate
from calving.mutations.columns import ColumnReader
from calving.mutations.keys import ChangedKeys, Matches, in_steps
from calving.mutations.ordering import Found
from calving.mutations.versions import EVER, KeyVersion, Revised, Version, VersionChange, revised
from calving.protocol.commit import Step
from calving.writing.versions import Ranks, VersionColumns

_NONE = -1


class Revision(NamedTuple):
    """``deleted``: the rows that are deleted, by the paths of their files. ``files``: the files that have them anew."""

    deleted: Mapping[str, Sequence[int]]
    files: tuple[DataFile, ...]


class _StoredVersions(NamedTuple):
    """Versions in a file: their positions, which ascend, the numbers of their keys, and their columns."""

    file: Candidate
    positions: Sequence[int]
    keys: pa.Array
    begins: pa.Array
    ends: pa.Array


class _StepChanges(NamedTuple):
    """Changes of a step: the numbers of their keys, when they count, and whether they delete."""

    step: int
    keys: pa.Array
    deletes: pa.Array
    ats: pa.Array


class VersionUpdates:
    """The versions that one attempt at a commit ends."""

    def __init__(
        self, table: Table, key_files: Group, properties: Mapping[str, str], order_type: OrderType | None
    ) -> None:
        """``key_files``: of each step. ``properties``: beside those of the table, for the files that are written.
        ``order_type``: how texts of the order field compare; None: there is none, and the order of the steps counts.

        :raises OtherSettingsError: the table has no columns of versions.
        """
        self._key_files, self._order_type = key_files, order_type
        self._rows, self._schema = StoredRows(table, properties), table.metadata.schema()
        known = [each for each in self._schema.fields if each.name.lower() in VERSION_COLUMNS]
        columns = VersionColumns({}, known)
        if len(known) < len(VERSION_COLUMNS):
            raise OtherSettingsError(
                f"table {'.'.join(table.name())} lacks a column of {', '.join(VERSION_COLUMNS)}, in which the sink"
                " keeps versions (history = on): add it again, with the type that it had; the files stay buffered"
                " until then"
            )
        begin, end, _ = (self._schema.find_field(each) for each in columns.ids())
        self._places = columns.places(self._schema)
        as_begin = {"field_type": begin.field_type, "required": False}
        self._ends = Schema(*(each.model_copy(update=as_begin) for each in (begin, end)))
        self._told = Schema(
            NestedField(CHANGES, "deletes", BooleanType(), required=False),
            NestedField(CHANGED_AT, "at", begin.field_type, required=False),
        )

    def revise(
        self, keys: ChangedKeys, reading: ColumnReader, found: Sequence[Found], before: Mapping[str, BitMap64]
    ) -> Revision:
        """Write the versions that end, or begin, at another time than their rows say. ``reading``: reads the id
        columns. ``found``: all files with rows of the keys. ``before``: the rows of each file that the head's deletes
        delete.

        :raises TableTroubleError: a stored row cannot be read.
        """
        living = [(file, matches.living(before.get(file.path, BitMap64()))) for file, matches in found]
        contested = _contested(keys, living)
        held = [*self._held(living, contested)]
        if not held:
            return Revision({}, ())
        told = [*self._changes(keys, reading, contested)]
        columns = [*(each.begins for each in held), *(each.ends for each in held), *(each.ats for each in told)]
        ranks = Ranks.of(columns, self._order_type or "text")
        count, parts = len(held), ranks.parts
        versions = [*_versions(held, parts[:count], parts[count : 2 * count])]
        changes = _told_changes(told, parts[2 * count :])
        return self._revision(held, revised(versions, changes, is_ordered=self._order_type is not None), ranks)

    def _revision(self, held: Sequence[_StoredVersions], changed: Iterable[Revised], ranks: Ranks) -> Revision:
        """Write the versions that change and stay."""
        places = [(of.file, position) for of in held for position in of.positions]
        deleted, kept = defaultdict[str, list[int]](list), defaultdict[str, list[tuple[int, Version]]](list)
        files = {of.file.path: of.file for of in held}
        for place, version in changed:
            file, position = places[place]
            deleted[file.path].append(position)
            if version is not None:
                kept[file.path].append((position, version))
        anew = (rows for path, of_file in kept.items() for rows in self._anew(files[path], of_file, ranks))
        return Revision(deleted, self._rows.written(anew) if kept else ())

    def _held(self, living: Sequence[Found], contested: pa.Array) -> Iterator[_StoredVersions]:
        """The versions of the contested keys."""
        for file, matches in living:
            matters = pc.is_in(matches.keys, value_set=contested)
            rows, keys = matches.rows.filter(matters), matches.keys.filter(matters)
            if not len(rows):
                continue
            order = pc.sort_indices(rows)
            positions = rows.take(order)
            read = pa.concat_batches([*self._rows.at(file, self._ends, positions)])
            yield _StoredVersions(file, positions.to_pylist(), keys.take(order), *read.columns)

    def _changes(self, keys: ChangedKeys, reading: ColumnReader, contested: pa.Array) -> Iterator[_StepChanges]:
        """The changes of the contested keys, by step."""
        reader = self._rows.reader(self._told)
        matches_of_steps = in_steps(keys, reading, named(self._key_files))
        for step, (files, matches) in enumerate(zip(self._key_files, matches_of_steps, strict=True)):
            matters = pc.is_in(matches.keys, value_set=contested)
            rows = matches.rows.filter(matters)
            if not len(rows):
                continue
            batches = (batch for file in files for batch in reader.batches(file.file_path, file.file_format, {}))
            yield _StepChanges(step, matches.keys.filter(matters), *pa.concat_batches([*batches]).take(rows).columns)

    def _anew(self, file: Candidate, versions: Sequence[tuple[int, Version]], ranks: Ranks) -> Iterator[pa.RecordBatch]:
        """The rows of a file at these positions, as these versions."""
        versions = sorted(versions, key=lambda each: each[0])
        begins = pa.array([None if each.begin == EVER else each.begin for _, each in versions], pa.int64())
        ends = pa.array([each.end for _, each in versions], pa.int64())
        start = 0
        positions = pa.array([position for position, _ in versions], pa.int64())
        for rows in self._rows.at(file, self._schema, positions):
            if self._order_type is None:  # else no version begins at another time, and its text stays
                rows = self._places.begun(rows, ranks.value(begins.slice(start, rows.num_rows)))
            yield self._places.ended(rows, ranks.value(ends.slice(start, rows.num_rows)))
            start += rows.num_rows


def check_versions(table: Table, steps: Sequence[Step], *, has_versions: bool) -> None:
    """``has_versions``: whether the settings keep versions.

    :raises OtherSettingsError: the key files of these steps were written with others.
    """
    name = ".".join(table.name())
    if any(file.has_changes != has_versions for step in steps for file in step.delete_files):
        written, own = ("without", "keep") if has_versions else ("with", "do not keep")
        raise OtherSettingsError(
            f"table {name}: a file for it was written {written} history = on, and this worker's settings {own} versions"
            " of rows: let a worker with the former settings lead until it has committed the file"
        )


def _contested(keys: ChangedKeys, living: Sequence[tuple[Candidate, Matches]]) -> pa.Array:
    """The keys of which the table or an earlier step has a row that a step may end."""
    contested = [
        matches.keys
        if file.step is None
        else matches.keys.filter(pc.less(pa.scalar(file.step, pa.int32()), keys.last_steps.take(matches.keys)))
        for file, matches in living
    ]
    return pa.chunked_array(contested, pa.int32()).unique()


def _versions(
    held: Sequence[_StoredVersions], begins: Sequence[pa.Array], ends: Sequence[pa.Array]
) -> Iterator[KeyVersion]:
    """The versions, with their times as numbers."""
    for of, own_begins, own_ends in zip(held, begins, ends, strict=True):
        step = _NONE if of.file.step is None else of.file.step
        columns = (of.keys, own_begins.fill_null(EVER), own_ends)
        for key, begin, end in zip(*(column.to_pylist() for column in columns), strict=True):
            yield KeyVersion(key, step, begin, end)


def _told_changes(told: Sequence[_StepChanges], ats: Sequence[pa.Array]) -> Iterator[VersionChange]:
    """The changes, with their times as numbers."""
    for of, own in zip(told, ats, strict=True):
        for key, at, deletes in zip(*(column.to_pylist() for column in (of.keys, own, of.deletes)), strict=True):
            yield VersionChange(key, of.step, at, deletes)
