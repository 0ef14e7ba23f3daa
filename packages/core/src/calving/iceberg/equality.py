"""Finds the rows that equality deletes delete, by their keys (E3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyroaring import BitMap64

from calving.errors import TableTroubleError
from calving.iceberg.live_files import LiveData, LiveDelete, partition_of
from calving.iceberg.lookups import KeySearch, Lookups
from calving.iceberg.manifests import schema_with
from calving.mutations.cache import KeyCache
from calving.mutations.candidates import Candidate, Pruning
from calving.mutations.columns import Column, ColumnReader, File, columns_of
from calving.mutations.keys import KEYS_AT_ONCE, KeyPart, parts
from calving.mutations.lookup import Tasks
from calving.writing.partitioning import is_divided

Scope = tuple[int, tuple[Any, ...]] | None
"""The spec and the partition to which an equality delete applies; None: all partitions."""


def scope_of(table: Table, file: DataFile) -> Scope:
    """Where an equality delete applies."""
    return (file.spec_id, partition_of(file)) if is_divided(table.metadata.specs()[file.spec_id]) else None


def place_of(file: Candidate) -> Scope:
    """The spec and the partition of a data file."""
    return file.spec_id, file.partition


class EqualitySearch:
    """The search for rows that equality deletes of one table delete."""

    def __init__(
        self,
        cache: KeyCache | None = None,
        at_once: int = KEYS_AT_ONCE,
        tasks: Callable[[], Tasks | None] = lambda: None,
    ) -> None:
        """``at_once``: about how many keys are held in memory. ``tasks``: the engine on which very large files are
        searched.
        """
        self._lookups, self._at_once = Lookups(cache, tasks), at_once

    def rows(
        self, table: Table, live: Collection[str], deletes: Iterable[LiveDelete], data: Iterable[LiveData]
    ) -> dict[str, BitMap64]:
        """The rows of each of the files ``data`` that ``deletes`` delete, by path. ``live``: the paths of all live
        data files.

        :raises TableTroubleError: the deletes compare what no row has.
        """
        found = {each.candidate.path: BitMap64() for each in data}
        files = {each.candidate.path: each for each in data}
        for group in _groups(table, deletes):
            among = {path: each for path, each in files.items() if group.may_delete_from(each)}
            if among:
                for part in group.parts(self._at_once):
                    self._lookups.begin(live)
                    for path, rows in self._rows(group, part, among):
                        found[path].update(rows)
        return found

    def _rows(self, group: _Group, part: KeyPart, among: dict[str, LiveData]) -> Iterator[tuple[str, list[int]]]:
        """The rows of each file that the keys of the part delete."""
        keys = part.keys
        pruning = Pruning(keys, group.columns, group.table.metadata.specs())
        wanted = [
            (data.candidate, few) for data in among.values() if (few := pruning.keys_of(data.candidate)) is not None
        ]
        looking = KeySearch(group.table, group.reading, len(group.columns), part.files)
        rows_of_files, _ = self._lookups.look(looking, wanted)
        for (file, _), matches in zip(wanted, rows_of_files, strict=True):
            if len(matches.rows):
                latest = group.sequences.take(keys.last_steps.take(matches.keys))
                yield file.path, matches.rows.filter(pc.greater(latest, among[file.path].sequence)).to_pylist()


@dataclass(frozen=True)
class _Group:
    """Equality deletes that compare the same columns and have the same scope."""

    table: Table
    columns: tuple[Column, ...]
    scope: Scope
    deletes: Sequence[LiveDelete]

    @cached_property
    def reading(self) -> ColumnReader:
        mapping = self.table.name_mapping()
        return ColumnReader(self.table.io, self.columns, tuple(mapping.root) if mapping is not None else ())

    @cached_property
    def sequences(self) -> pa.Array:
        """The distinct sequence numbers of the deletes, in order. They serve as the steps of the keys."""
        return pa.array(sorted({delete.sequence for delete in self.deletes}), pa.int64())

    def may_delete_from(self, data: LiveData) -> bool:
        is_older = any(data.sequence < delete.sequence for delete in self.deletes)
        return is_older and self.scope in (None, place_of(data.candidate))

    def parts(self, at_once: int) -> Iterator[KeyPart]:
        """The keys, in parts of about ``at_once`` keys."""
        steps: dict[int, list[File]] = {sequence: [] for sequence in self.sequences.to_pylist()}
        for delete in self.deletes:
            steps[delete.sequence].append((delete.file.file_path, delete.file.file_format.value))
        return parts(self.reading, len(self.columns), list(steps.values()), at_once)


def _groups(table: Table, deletes: Iterable[LiveDelete]) -> list[_Group]:
    groups: dict[tuple[tuple[int, ...], Scope], list[LiveDelete]] = {}
    for delete in deletes:
        groups.setdefault((tuple(sorted(delete.file.equality_ids or ())), scope_of(table, delete.file)), []).append(
            delete
        )
    return [_Group(table, _columns(table, ids), scope, members) for (ids, scope), members in groups.items()]


def _columns(table: Table, ids: Sequence[int]) -> tuple[Column, ...]:
    """The compared columns. A dropped column is still compared, with its last type."""
    id_columns: list[Column] = []
    for each in ids:
        schema = schema_with(table.metadata, each)
        columns = () if schema is None else columns_of(schema, [each])
        if not columns:
            raise TableTroubleError(
                f"table {'.'.join(table.name())} has equality deletes by field {each}, which is no single value"
            )
        id_columns += columns
    if not id_columns:
        raise TableTroubleError(f"table {'.'.join(table.name())} has equality deletes without equality ids")
    return tuple(id_columns)
