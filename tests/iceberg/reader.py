"""Rows of a table as the specification says, with equality deletes, which pyiceberg does not read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from operator import getitem
from typing import Any, cast
from uuid import UUID

import fastavro
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table import Table

from calving.iceberg.delete_files import read_positions
from calving.iceberg.live_files import referenced
from calving.iceberg.manifests import read_entries, read_manifest_list

Row = dict[str, Any]


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    """The rows of the head of a table whose columns have kept their names."""
    head = table.current_snapshot()
    assert head is not None
    manifests = read_manifest_list(table.io, head.manifest_list)
    entries = [entry for manifest in manifests for entry in read_entries(table.io, manifest)]
    deletes = [entry for entry in entries if entry.data_file.content != DataFileContent.DATA]
    keys = {entry.data_file.file_path: _keys(table, entry.data_file) for entry in deletes if _is_equality(entry)}
    found: list[tuple[Any, ...]] = []
    for entry in entries:
        if entry.data_file.content == DataFileContent.DATA:
            found += _live(table, entry, deletes, keys)
    return sorted(found, key=repr)


def _live(
    table: Table, entry: ManifestEntry, deletes: Iterable[ManifestEntry], keys: dict[str, set[tuple[Any, ...]]]
) -> Iterable[tuple[Any, ...]]:
    path, sequence = entry.data_file.file_path, entry.sequence_number or 0
    dead: set[int] = set()
    gone: list[tuple[list[str], set[tuple[Any, ...]]]] = []
    for delete in deletes:
        file, own = delete.data_file, delete.sequence_number or 0
        if not _is_equality(delete):
            if own >= sequence and referenced(file) in (None, path):
                dead.update(read_positions(table.io, file, path))
        elif own > sequence and _applies(table, file, entry.data_file):
            gone.append((_names(table, file), keys[file.file_path]))
    for place, row in enumerate(read_file(table, path)):
        if place not in dead and not any(_key(row, names) in them for names, them in gone):
            yield tuple(row[field.name] for field in table.schema().fields)


def _applies(table: Table, delete: DataFile, data: DataFile) -> bool:
    """A delete without a partition applies to all, another to its partition under its spec."""
    if not table.specs()[delete.spec_id].fields:
        return True
    return (delete.spec_id, delete.partition) == (data.spec_id, data.partition)


def _is_equality(entry: ManifestEntry) -> bool:
    return entry.data_file.content == DataFileContent.EQUALITY_DELETES


def _names(table: Table, file: DataFile) -> list[str]:
    return [table.schema().find_column_name(each) or "" for each in file.equality_ids or ()]


def _keys(table: Table, file: DataFile) -> set[tuple[Any, ...]]:
    return {_key(row, _names(table, file)) for row in read_file(table, file.file_path)}


def _key(row: Row, names: Iterable[str]) -> tuple[Any, ...]:
    """The values of some columns, the same for all formats."""
    values: list[Any] = [reduce(getitem, name.split("."), row) for name in names]
    return tuple(_plain(value) for value in values)


def _plain(value: Any) -> Any:
    match value:
        case UUID():
            return value.bytes
        case datetime():  # fastavro gives UTC to a timestamp without a zone, too
            return value.replace(tzinfo=None)
    return value


def read_file(table: Table, path: str) -> list[Row]:
    """The rows of a file. Columns that it does not have have their initial defaults."""
    defaults = {field.name: field.initial_default for field in table.schema().fields}
    return [defaults | row for row in _own_rows(table, path)]


def _own_rows(table: Table, path: str) -> list[Row]:
    with table.io.new_input(path).open() as stream:
        match path.rpartition(".")[2]:
            case "avro":
                return [cast(Row, row) for row in fastavro.reader(cast(Any, stream))]
            case "orc":
                return list(orc.read_table(stream).to_pylist())
        return list(pq.read_table(stream).to_pylist())
