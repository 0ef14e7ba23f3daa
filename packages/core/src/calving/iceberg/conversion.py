"""Turns equality deletes of one head of a table into positions (E3).

This changes no row for a reader. The equality deletes may be converted in any order: a position delete names its rows,
and so applies to them regardless of other deletes.
"""

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
from calving.iceberg.delete_files import Deleted, Deletions, KnownPositions, write_deleted
from calving.iceberg.live_files import LiveData, LiveDelete, LiveFiles, Manifests, partition_of
from calving.iceberg.lookups import KeySearch, Lookups
from calving.iceberg.manifests import FileKey, key_of, schema_with
from calving.iceberg.snapshot import SinkSnapshot
from calving.mutations.cache import KeyCache
from calving.mutations.candidates import Pruning
from calving.mutations.columns import Column, ColumnReader, File, columns_of
from calving.mutations.keys import KEYS_AT_ONCE, KeyPart, parts
from calving.mutations.lookup import Tasks
from calving.writing.partitioning import is_divided

Scope = tuple[int, tuple[Any, ...]] | None
"""The spec and the partition to which an equality delete applies; None: all partitions."""


@dataclass(frozen=True, slots=True)
class DeleteReplacement:
    """The delete files that a snapshot adds, and the files that it removes."""

    deletes: tuple[DataFile, ...]
    removed: frozenset[FileKey]
    manifests: frozenset[str]
    """Manifests that name removed files."""
    files: int
    """How many equality-delete files are removed."""
    keys: int
    """How many keys the removed files have."""
    rows: int
    """How many rows position deletes delete now and did not delete before."""

    @property
    def added(self) -> frozenset[str]:
        """The paths of the delete files."""
        return frozenset(file.file_path for file in self.deletes)

    def put_into(self, snapshot: SinkSnapshot) -> None:
        """Make the changes part of a snapshot."""
        snapshot.add_deletes(self.deletes, ())
        snapshot.remove(self.removed, self.manifests, {})


class DeleteConversion:
    """The conversion of the oldest equality deletes of one branch, kept until its commit.

    After a refused attempt only new data files are searched, and only changed delete files are written again.
    """

    def __init__(
        self,
        cache: KeyCache | None = None,
        at_once: int = KEYS_AT_ONCE,
        tasks: Callable[[], Tasks | None] = lambda: None,
        until: int | None = None,
    ) -> None:
        """``at_once``: about how many keys are held in memory. It is also about how many keys one commit converts; but
        a commit converts at least one file. ``tasks``: the engine on which very large files are searched. ``until``:
        the sequence number of the newest deletes to convert.
        """
        self._until = until
        self._lookups, self._at_once, self._known = Lookups(cache, tasks), at_once, KnownPositions()
        self._manifests: tuple[frozenset[int], Manifests] | None = None
        self._chosen: frozenset[FileKey] = frozenset()
        self._hits: dict[str, BitMap64] = {}
        self._made: dict[str, tuple[BitMap64, DataFile]] = {}
        self._written: list[str] = []

    def of(self, table: Table, branch: str) -> DeleteReplacement | None:
        """The changes of the next commit on this head of the branch; None if it has no equality deletes to convert.

        :raises TableTroubleError: files of the table cannot be read.
        """
        live = self._live(table, branch)
        chosen = self._still(live.equality)
        if not chosen:
            chosen = list(self._oldest(live.equality))
            self._chosen, self._hits = frozenset(key_of(delete.file) for delete in chosen), {}
        if not chosen:
            return None
        self._search(table, live, chosen)
        files = {path: data.candidate for path, data in live.data.items()}
        deletions = Deletions(table, live, self._known)
        deleted, gone = deletions.added(files, {path: rows for path in files if (rows := self._hits[path])})
        removed, manifests = deletions.removed(deleted, gone)
        return DeleteReplacement(
            self._deletes(table, deleted),
            removed | self._chosen,
            manifests | {delete.manifest for delete in chosen},
            len(chosen),
            sum(delete.file.record_count for delete in chosen),
            deletions.new,
        )

    def unused(self, used: Collection[str]) -> list[str]:
        """The paths of the files that were written and are not among the ``used`` ones."""
        return [path for path in self._written if path not in used]

    def _live(self, table: Table, branch: str) -> LiveFiles:
        """The live files, with the bounds of the columns that the equality deletes compare."""
        head = table.metadata.snapshot_by_name(branch)
        place = head.manifest_list if head is not None else None
        if self._manifests is None:
            wanted = frozenset(table.schema().identifier_field_ids)
            self._manifests = wanted, Manifests(wanted)
        live = self._manifests[1].live(table.io, place)
        compared = frozenset(each for delete in live.equality for each in delete.file.equality_ids or ())
        if compared <= self._manifests[0]:
            return live
        self._manifests = compared, Manifests(compared)
        return self._manifests[1].live(table.io, place)

    def _still(self, deletes: Iterable[LiveDelete]) -> list[LiveDelete]:
        """The equality deletes that the previous attempt has chosen. Empty if one of them is gone, because the rows
        that it deleted may be back.
        """
        remaining = [delete for delete in deletes if key_of(delete.file) in self._chosen]
        return remaining if len(remaining) == len(self._chosen) else []

    def _oldest(self, deletes: Sequence[LiveDelete]) -> Iterator[LiveDelete]:
        """The equality deletes that the next commit converts."""
        left = self._at_once
        for delete in sorted(deletes, key=lambda each: (each.sequence, each.file.file_path)):
            if left <= 0 or (self._until is not None and delete.sequence > self._until):
                return
            yield delete
            left -= delete.file.record_count

    def _search(self, table: Table, live: LiveFiles, chosen: Sequence[LiveDelete]) -> None:
        fresh = [data for path, data in live.data.items() if path not in self._hits]
        hits = {data.candidate.path: BitMap64() for data in fresh}
        for group in _groups(table, chosen):
            among = {data.candidate.path: data for data in fresh if group.may_delete_from(data)}
            if among:
                for part in group.parts(self._at_once):
                    self._lookups.begin(live.data)
                    for path, rows in self._rows(group, part, among):
                        hits[path].update(rows)
        self._hits |= hits

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

    def _deletes(self, table: Table, deleted: Sequence[Deleted]) -> tuple[DataFile, ...]:
        """The delete files for these rows. Delete files that an earlier attempt has written are reused."""
        missing = [each for each in deleted if self._made.get(each.file.path, (None,))[0] != each.positions]
        for each, made in zip(missing, write_deleted(table, missing, self._written), strict=True):
            self._made[each.file.path] = each.positions, made
        return tuple(self._made[each.file.path][1] for each in deleted)


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
        about = data.candidate
        is_older = any(data.sequence < delete.sequence for delete in self.deletes)
        return is_older and self.scope in (None, (about.spec_id, about.partition))

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


def scope_of(table: Table, file: DataFile) -> Scope:
    """Where an equality delete applies."""
    return (file.spec_id, partition_of(file)) if is_divided(table.metadata.specs()[file.spec_id]) else None


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
