"""Plans a read where the catalog is: the files of one snapshot, in groups, and their deleted rows (S19)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import ManifestGroupPlanner, Table
from pyiceberg.table.snapshots import Snapshot

from calving.errors import ConfigError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.equality import EqualitySearch
from calving.iceberg.live_files import LiveData, LiveFiles, Manifests
from calving.iceberg.locations import carried
from calving.iceberg.manifests import read_manifest_list
from calving.model.tables import MAIN
from calving.mutations.candidates import identities
from calving_spark.options import ReadOptions
from calving_spark.planning import catalog_of

_TARGET_BYTES, _OPEN_BYTES = "read.split.target-size", "read.split.open-file-cost"
_DEFAULTS = {_TARGET_BYTES: 128 * 1024 * 1024, _OPEN_BYTES: 4 * 1024 * 1024}
NO_SNAPSHOT = -1
"""Stands for the snapshot of a table without any."""


@dataclass(frozen=True, slots=True)
class FileToRead:
    """A data file, and its deletes. ``constants``: the values of its partition, by the ids of columns. ``deletes``: its
    position-delete files and deletion vectors. ``deleted``: the positions of rows that equality deletes delete, as a
    bitmap's bytes.
    """

    path: str
    file_format: str
    records: int
    size: int
    constants: tuple[tuple[int, object], ...]
    deletes: tuple[DataFile, ...]
    deleted: bytes


@dataclass(frozen=True, slots=True)
class ScannedTable:
    """What tasks know of the table, without a catalog. ``schema_json``: the columns to read. ``mapping_json``: the name
    mapping; None if it has none.
    """

    name: str
    schema_json: str
    mapping_json: str | None
    location: str
    io_properties: dict[str, str]


class Scan:
    """One snapshot of a table. ``pinned``: the id of the snapshot, if an earlier step has chosen it."""

    def __init__(self, options: ReadOptions, pinned: int | None = None) -> None:
        """:raises ConfigError: the table, or what the options name of it, does not exist."""
        self._name = options.keys.table
        table = find_table(catalog_of(options), table_id(self._name))
        if table is None:
            raise ConfigError(f"table {self._name} does not exist")
        self._table: Table = table
        self._snapshot = _snapshot(table, options, pinned)
        self.schema = _schema(table, options, self._snapshot)
        """All columns of the snapshot."""

    @property
    def snapshot(self) -> int:
        """The snapshot's id; ``NO_SNAPSHOT`` if the table has none."""
        return self._snapshot.snapshot_id if self._snapshot is not None else NO_SNAPSHOT

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [field.name for field in self.schema.fields]

    @property
    def table(self) -> Table:
        """The table as it was loaded."""
        return self._table

    def scanned(self, columns: Schema) -> ScannedTable:
        """The table for tasks that read these columns."""
        mapping = self._table.name_mapping()
        return ScannedTable(
            self._name,
            columns.model_dump_json(),
            mapping.model_dump_json() if mapping is not None else None,
            self._table.metadata.location,
            carried(self._table.io),
        )

    def groups(self, columns: Schema, condition: BooleanExpression) -> list[tuple[FileToRead, ...]]:
        """The files that may have rows for which the condition is true, in groups for tasks.

        :raises TableTroubleError: files of the table cannot be read.
        """
        if self._snapshot is None:
            return []
        live = self._live(self._snapshot)
        data = list(live.data.values())
        if not isinstance(condition, AlwaysTrue):
            wanted = _matching(self._table, self._snapshot, condition)
            data = [each for each in data if each.candidate.path in wanted]
        deleted = EqualitySearch().rows(self._table, live.data, live.equality, data) if live.equality else {}
        specs = self._table.metadata.specs()

        def to_read(each: LiveData) -> FileToRead:
            file = each.candidate
            places = identities(specs[file.spec_id], columns.field_ids)
            return FileToRead(
                path=file.path,
                file_format=file.file_format,
                records=file.records,
                size=file.size,
                constants=tuple((id_, file.partition[place]) for id_, place in places.items()),
                deletes=tuple(d.file for d in (*live.scoped_of(each), *live.wide_of(each))),
                deleted=deleted[file.path].serialize() if deleted.get(file.path) else b"",
            )

        return list(_grouped([to_read(each) for each in data], self._bytes(_TARGET_BYTES), self._bytes(_OPEN_BYTES)))

    def _live(self, snapshot: Snapshot) -> LiveFiles:
        """The live files, with the bounds of the columns that equality deletes compare."""
        io = self._table.io
        live = Manifests(()).live(io, snapshot.manifest_list)
        compared = {each for delete in live.equality for each in delete.file.equality_ids or ()}
        return Manifests(compared).live(io, snapshot.manifest_list) if compared else live

    def _bytes(self, key: str) -> int:
        text = self._table.properties.get(key)
        return int(text) if text is not None and text.isdecimal() else _DEFAULTS[key]


def _snapshot(table: Table, options: ReadOptions, pinned: int | None) -> Snapshot | None:
    keys, name = options.keys, options.keys.table
    wanted = pinned if pinned is not None else keys.snapshot_id
    if wanted == NO_SNAPSHOT:
        return None
    if wanted is not None:
        found = table.metadata.snapshot_by_id(wanted)
        if found is None:
            raise ConfigError(f"table {name} has no snapshot {wanted}: it has expired, or never was")
        return found
    if keys.as_of_timestamp is not None:
        found = table.snapshot_as_of_timestamp(keys.as_of_timestamp)
        if found is None:
            raise ConfigError(f"table {name} has no snapshot as old as {keys.as_of_timestamp} ms since 1970")
        return found
    if keys.branch != MAIN and keys.branch not in table.metadata.refs:
        raise ConfigError(f"table {name} has no branch or tag {keys.branch}")
    return table.metadata.snapshot_by_name(keys.branch)


def _schema(table: Table, options: ReadOptions, snapshot: Snapshot | None) -> Schema:
    """Another time has the columns of that time; a branch those of the table."""
    of_then = options.keys.snapshot_id is not None or options.keys.as_of_timestamp is not None
    if of_then and snapshot is not None and snapshot.schema_id is not None:
        return table.schemas().get(snapshot.schema_id, table.schema())
    return table.schema()


def _matching(table: Table, snapshot: Snapshot, condition: BooleanExpression) -> set[str]:
    """The paths of the data files whose partitions and bounds allow for such rows."""
    io: FileIO = table.io
    data = [each for each in read_manifest_list(io, snapshot.manifest_list) if each.content == ManifestContent.DATA]
    planner = ManifestGroupPlanner(table.metadata, io, condition)
    return {entry.data_file.file_path for entries in planner.plan_manifest_entries(data) for entry in entries}


def _grouped(files: Sequence[FileToRead], target: int, opening: int) -> Iterator[tuple[FileToRead, ...]]:
    group: list[FileToRead] = []
    size = 0
    for file in files:
        cost = max(file.size, opening)
        if group and size + cost > target:
            yield tuple(group)
            group, size = [], 0
        group.append(file)
        size += cost
    if group:
        yield tuple(group)
