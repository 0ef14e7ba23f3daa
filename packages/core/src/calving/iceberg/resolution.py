"""Resolves keys of changed rows to positions in the files of one snapshot: the head on which the next snapshot is
built. What is read of a table is kept from commit to commit.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.table import Table
from pyroaring import BitMap64

from calving.errors import OtherSettingsError, TableTroubleError
from calving.iceberg.delete_files import Deleted, Deletions, KnownPositions, write_deleted
from calving.iceberg.live_files import LiveFiles, Manifests
from calving.iceberg.locations import delete_orphans
from calving.iceberg.lookups import About, KeyQuery, KeySearch, Lookups
from calving.iceberg.manifests import FileKey, partition_sources
from calving.iceberg.partial_updates import KeyChanges, PartialUpdates, check_id_columns, named, partial_files
from calving.iceberg.schemas import as_in
from calving.iceberg.version_updates import VersionUpdates, check_versions
from calving.model import files
from calving.model.mutation_counts import MutationCounts
from calving.model.tables import OnMissingRow, OrderType
from calving.mutations.cache import KeyCache
from calving.mutations.candidates import Candidate, Pruning, by_id_columns, new_files
from calving.mutations.columns import Column, ColumnReader, File, columns_of
from calving.mutations.keys import KEYS_AT_ONCE, ChangedKeys, Matches, different, parts
from calving.mutations.lookup import Tasks
from calving.mutations.ordering import Found, losers
from calving.protocol.commit import Step

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The files that a snapshot adds and removes."""

    data_files: tuple[files.DataFile, ...]
    deletes: tuple[DataFile, ...]
    removed: frozenset[FileKey]
    manifests: frozenset[str]
    """Manifests that name removed files."""
    delete_entries: Mapping[str, Sequence[ManifestEntry]]
    """The live entries of the head's manifests of delete files, by their paths."""
    written: tuple[str, ...]
    """Files that were written for the snapshot."""
    unused: frozenset[str]
    """Data files of the steps that have no live row."""
    live: Collection[str]
    """The data files of the head."""
    counts: MutationCounts
    seconds: Mapping[str, float]
    """Time spent on each step."""


class RowChangeResolver:
    """The resolver of one table, for all commits of a process. It caches what it reads, because files never change."""

    def __init__(
        self,
        order_field: str | None = None,
        cache: KeyCache | None = None,
        clock: Callable[[], float] = time.perf_counter,
        tasks: Callable[[], Tasks | None] = lambda: None,
        *,
        order_type: OrderType = "parsed",
        appends: bool = True,
        at_once: int = KEYS_AT_ONCE,
        on_missing: OnMissingRow = "insert",
        has_versions: bool = False,
    ) -> None:
        """``order_field``: the dotted path of the column that decides which row of a key wins. ``order_type``: how its
        texts compare. ``tasks``: the engine on
        which very large files are searched. ``appends``: whether data files may have rows whose keys are in no key
        file. Then the number of deletes does not follow from the number of rows. ``at_once``: about how many keys are
        held in memory. ``on_missing``: what becomes of a partial row without a row before it. ``has_versions``: whether
        changes end versions of rows, instead of deleting rows.
        """
        self.order_field, self.lookups, self._clock, self._appends = order_field, Lookups(cache, tasks), clock, appends
        self.order_type, self.at_once, self.on_missing = order_type, at_once, on_missing
        self.has_versions = has_versions
        self._manifests: tuple[frozenset[int], Manifests] | None = None
        self.positions = KnownPositions()
        self._steps: tuple[Step, ...] = ()
        self._matches: dict[About, Matches] = {}
        """Matches of the keys of ``_steps``: after a refused attempt only new files are searched."""
        self.columns: tuple[Column, ...] = ()
        """The columns that were last read of data files; none before the first search."""
        self.parts = 0
        """In how many parts the keys of the last search were read. Keys of different parts may be equal."""

    def resolve(
        self, table: Table, branch: str, steps: Sequence[Step], properties: Mapping[str, str] = _NO_PROPERTIES
    ) -> RowChanges:
        """For each step: delete the rows with its keys from the head of the branch and from earlier steps; then add its
        rows, partial ones with the values that they lack. ``properties``: beside those of the table, for data files.

        :raises TableTroubleError: files of the table cannot be read, or the table cannot have deletes.
        """
        if table.metadata.format_version < 2:
            raise TableTroubleError(f"table {'.'.join(table.name())} has format version 1; row mutations need 2 or 3")
        return _Resolution(self, table, branch, tuple(steps), self._clock, properties).run()

    def order_ids(self, table: Table) -> list[int]:
        """The id of the order column; none without an order-field.

        :raises OtherSettingsError: the table has no such column.
        """
        if self.order_field is None:
            return []
        schema = table.metadata.schema()
        (name,) = as_in(schema, [self.order_field], fold=True)  # whether case counts was decided when rows were written
        try:
            return [schema.find_field(name).field_id]
        except ValueError as error:
            raise OtherSettingsError(
                f"table {'.'.join(table.name())} has no column '{self.order_field}', which is its order-field by this"
                " worker's settings: the files were written with other settings. Correct the key, or let a worker with"
                " the former settings lead until it has committed them"
            ) from error

    def deletes(self, steps: Sequence[Step]) -> bool:
        """Whether these steps may have a key without a new row."""
        key_files = (file for step in steps for file in step.delete_files if file.equality_ids != files.EVERY_ROW)
        keys = sum(file.record_count for file in key_files)
        rows = sum(file.rows for step in steps for file in (*step.data_files, *step.delete_files))
        return self._appends or self.has_versions or keys > rows

    def live(self, table: Table, branch: str, ids: frozenset[int]) -> LiveFiles:
        """The live files of the head, with the bounds of these columns."""
        if self._manifests is None or not ids <= self._manifests[0]:
            self._manifests = ids, Manifests(ids)
        head = table.metadata.snapshot_by_name(branch)
        return self._manifests[1].live(table.io, head.manifest_list if head is not None else None)

    def known(self, steps: tuple[Step, ...]) -> dict[About, Matches]:
        """Matches of these steps' keys in files that were searched already."""
        if steps is not self._steps and steps != self._steps:
            self._steps, self._matches = steps, {}
        return self._matches


class _Resolution:
    """The resolution of the keys of one commit attempt."""

    def __init__(
        self,
        resolver: RowChangeResolver,
        table: Table,
        branch: str,
        steps: tuple[Step, ...],
        clock: Callable[[], float],
        properties: Mapping[str, str],
    ) -> None:
        self._properties = properties
        self._completed: list[files.DataFile] = []
        """Data files with the rows that partial ones have become, or with versions that have ended."""
        self._resolver, self._table, self._steps, self._clock = resolver, table, steps, clock
        self._started = clock()
        self._key_files = by_id_columns(steps)
        emptying = self._key_files.pop(files.EVERY_ROW, [])
        self._emptied = max((number for number, of_step in enumerate(emptying) if of_step), default=-1)
        """The last step that deletes all rows; -1 if there is none."""
        self._live = resolver.live(table, branch, frozenset(chain.from_iterable(self._key_files)))
        self._deletions = Deletions(table, self._live, resolver.positions)
        self._counts: Counter[str] = Counter()
        self._files: dict[str, Candidate] = {}
        self._hits: defaultdict[str, BitMap64] = defaultdict(BitMap64)

    def run(self) -> RowChanges:
        metadata = self._table.metadata
        new = new_files((step.data_files for step in self._steps), metadata.specs(), partition_sources(metadata))
        self._files = {path: data.candidate for path, data in self._live.data.items()} | new
        loaded = self._clock()
        self._resolver.lookups.begin(self._live.data)
        check_versions(self._table, self._steps, has_versions=self._resolver.has_versions)
        self._empty()
        check_id_columns(self._table, self._key_files)
        try:
            for ids, key_files in self._key_files.items():
                self._locate(ids, key_files)
        except BaseException:
            delete_orphans(self._table.io, [file.file_path for file in self._completed])
            raise
        deleted, gone = self._deletions.added(self._files, self._hits)
        self._counts["superseded"] += self._deletions.new
        resolved = self._clock()
        written = [file.file_path for file in self._completed]
        deletes = write_deleted(self._table, deleted, written)
        self._resolver.positions.know(deletes, deleted)
        self._counts["positions"] += sum(len(each.positions) for each in deleted)
        seconds = {"load": loaded - self._started, "resolve": resolved - loaded, "write": self._clock() - resolved}
        return self._made(deleted, gone, tuple(deletes), tuple(written), seconds)

    def _empty(self) -> None:
        """Delete all rows from the files before the last step that empties the table (M12)."""
        for path, file in self._files.items():
            if self._emptied >= 0 and (file.step is None or file.step < self._emptied):
                self._hits[path].add_range(0, file.records)

    def _locate(self, ids: tuple[int, ...], key_files: Sequence[Sequence[files.DataFile]]) -> None:
        """Find the rows that these keys delete."""
        has_versions = self._resolver.has_versions
        columns, order = columns_of(self._table.metadata.schema(), ids), self._order()
        self._resolver.columns = (*columns, *order)
        mapping = self._table.name_mapping()
        reading = ColumnReader(self._table.io, (*columns, *order), tuple(mapping.root) if mapping is not None else ())
        steps = named(key_files)
        partial = partial_files(self._table, key_files, is_ordered=bool(order), has_equality=bool(self._live.equality))
        joins = has_versions or partial is not None  # the changes of a key
        at_once = None if joins else self._resolver.at_once
        for number, part in enumerate(parts(reading, len(columns), steps, at_once)):
            self._resolver.parts = number + 1
            search = KeySearch(self._table, reading, len(columns), part.files)
            query = KeyQuery(ids, number, columns, part.keys, search)
            if has_versions:
                self._revise(query, key_files)
                continue
            found = self._locate_part(query, steps, is_ordered=bool(order))
            if partial is not None:
                changes = KeyChanges.of(part.keys, reading, key_files, partial, self._emptied)
                before = {file.path: self._deletions.before(file.path) for file, _ in found}
                updates = PartialUpdates(self._table, partial, self._properties, self._resolver.on_missing)
                self._completed += updates.complete(changes, found, before)

    def _locate_part(self, query: KeyQuery, steps: Sequence[Sequence[File]], *, is_ordered: bool) -> Sequence[Found]:
        """Find the rows of the keys, and note those that are deleted."""
        keys, reading = query.keys, query.search.reading
        end = len(steps) if is_ordered else pc.max(keys.last_steps).as_py()
        rows_of_files = self._search(query, range(end))
        self._count(keys, rows_of_files, lambda: self._search(query, range(end, len(steps)), new=True))
        if is_ordered:
            changes = keys.found_in_each(reading.all_of(of_step) for of_step in steps)
            live = [(file, matches.living(self._deletions.before(file.path))) for file, matches in rows_of_files]
            for path, position in losers(keys, changes, live, self._resolver.order_type):
                self._hits[path].add(position)
            return rows_of_files
        for file, matches in rows_of_files:
            rows = matches.rows
            if file.step is not None:  # only a later step deletes a row of a new file
                rows = rows.filter(pc.greater(keys.last_steps.take(matches.keys), file.step))
            self._hits[file.path].update(rows.to_pylist())
        return rows_of_files

    def _revise(self, query: KeyQuery, key_files: Sequence[Sequence[files.DataFile]]) -> None:
        """End the versions of the keys that change, and note the rows that are deleted."""
        found = self._search(query, range(len(key_files)))
        self._count(query.keys, found, list)
        before = {file.path: self._deletions.before(file.path) for file, _ in found}
        order_type = None if self._resolver.order_field is None else self._resolver.order_type
        updates = VersionUpdates(self._table, key_files, self._properties, order_type)
        revision = updates.revise(query.keys, query.search.reading, found, before)
        for path, positions in revision.deleted.items():
            self._hits[path].update(positions)
        self._completed += revision.files

    def _count(self, keys: ChangedKeys, found: Sequence[Found], search_rest: Callable[[], Sequence[Found]]) -> None:
        """Update the counts of located rows and of keys without a row. ``search_rest`` searches the commit's own later
        files, from which no row is deleted.
        """
        self._counts["keys"] += len(keys)
        having = [matches.living(self._dead(file.path)).keys for file, matches in found]
        of_table = [each for (file, _), each in zip(found, having, strict=True) if file.step is None]
        self._counts["located"] += sum(map(len, of_table))
        if self._resolver.deletes(self._steps) and different(having) < len(keys):
            having += [matches.keys for _, matches in search_rest()]
            self._counts["unmatched"] += len(keys) - different(having)

    def _dead(self, path: str) -> BitMap64:
        """The rows of a file that were deleted before, or are deleted for keys of an earlier part."""
        before = self._deletions.before(path)
        return before | self._hits[path] if path in self._hits else before

    def _search(self, query: KeyQuery, steps: range, *, new: bool = False) -> list[Found]:
        """All files with rows of the keys, and these rows. Searches the files of the table and of these ``steps``; with
        ``new`` only the files of the steps.
        """
        pruning = Pruning(query.keys, query.columns, self._table.metadata.specs())
        among = (file for file in self._files.values() if (not new if file.step is None else file.step in steps))
        wanted = [(file, few) for file in among if (few := pruning.keys_of(file)) is not None]

        known = self._resolver.known(self._steps)
        new_to_us = [(file, few) for file, few in wanted if query.about(file) not in known]
        matches, cached = self._resolver.lookups.look(query.search, new_to_us)
        known.update((query.about(file), each) for (file, _), each in zip(new_to_us, matches, strict=True))
        self._counts["files"] += len(wanted)
        self._counts["cached"] += cached
        rows_of_files = ((file, known[query.about(file)]) for file, _ in wanted)
        return [(file, matches) for file, matches in rows_of_files if len(matches.rows)]

    def _order(self) -> tuple[Column, ...]:
        """The order column, if it decides which rows win.

        :raises TableTroubleError: it is unknown which rows are live.
        """
        if self._resolver.order_field is None and not self._resolver.has_versions:
            return ()
        if self._live.equality:
            raise TableTroubleError(
                f"table {'.'.join(self._table.name())} has equality deletes, which cannot be combined with an"
                " order-field or history = on: it is unknown which rows they leave; turn them into positions first,"
                " with `calving maintain FILE`"
            )
        if self._resolver.has_versions:  # each row has its place among the versions
            return ()
        return columns_of(self._table.metadata.schema(), self._resolver.order_ids(self._table))

    def _made(
        self,
        deleted: Sequence[Deleted],
        gone: Sequence[Candidate],
        deletes: tuple[DataFile, ...],
        written: tuple[str, ...],
        seconds: Mapping[str, float],
    ) -> RowChanges:
        removed, manifests = self._deletions.removed(deleted, gone)
        unused = frozenset(file.path for file in gone if file.step is not None)
        data = (f for step in self._steps for f in step.data_files if f.file_path not in unused)
        return RowChanges(
            data_files=(*data, *self._completed),
            deletes=deletes,
            removed=removed,
            manifests=manifests,
            delete_entries=self._live.delete_entries(),
            written=written,
            unused=unused,
            live=self._live.data,
            counts=MutationCounts(**self._counts),
            seconds=seconds,
        )
