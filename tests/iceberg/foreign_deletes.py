"""Position deletes as other engines write them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from calving.iceberg.lineage import new_snapshot
from calving.iceberg.manifests import FILE_PATH_ID, POS_ID
from tests.iceberg.histories import MutationTable

Places = Sequence[tuple[str, int]]
"""Rows: the path of a file, and the position in it."""


def places(table: Table, positions: Collection[int]) -> list[tuple[str, int]]:
    """These rows of each data file."""
    paths = sorted(task.file.file_path for task in table.scan().plan_files())
    return [(path, at) for path in paths for at in positions]


def delete_positions(table: MutationTable, rows: Places) -> None:
    """Commit position-delete files, one for each partition, as Spark writes them with ``write.delete.granularity =
    partition``. The rows are not expected any more.
    """
    loaded = table.table
    commit_deletes(table.catalog, loaded, rows)
    for path, at in rows:
        rows_of = pq.read_table(loaded.io.new_input(path).open()).select(table.ids).to_pylist()
        del table.expected[tuple(rows_of[at].values())]


def commit_deletes(catalog: Catalog, loaded: Table, rows: Places) -> None:
    """Commit position-delete files, one for each partition."""
    files = {task.file.file_path: task.file for task in loaded.scan().plan_files()}
    by_partition: defaultdict[tuple[int, Record], list[tuple[str, int]]] = defaultdict(list)
    for path, at in rows:
        by_partition[files[path].spec_id, files[path].partition].append((path, at))
    snapshot = new_snapshot(loaded, {}, "main")
    snapshot.add_deletes([_file(loaded, *of, sorted(mine)) for of, mine in by_partition.items()], ())
    updates, requirements = snapshot.prepare()
    catalog.commit_table(loaded, requirements, updates)


def _file(table: Table, spec_id: int, partition: Record, rows: Places) -> DataFile:
    location = f"{table.location()}/data/{uuid4()}-wide-deletes.parquet"
    names = ("file_path", FILE_PATH_ID, pa.string()), ("pos", POS_ID, pa.int64())
    schema = pa.schema([pa.field(n, kind, False, {"PARQUET:field_id": str(i)}) for n, i, kind in names])
    with table.io.new_output(location).create() as out:
        pq.write_table(pa.table([list(each) for each in zip(*rows, strict=True)], schema), out)
        size = out.tell()
    file = DataFile.from_args(
        3,
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=len(rows),
        file_size_in_bytes=size,
    )
    file.spec_id = spec_id
    return file
