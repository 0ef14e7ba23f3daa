"""Planning of a table with very many files: ``python -m harness.planning --files 1000000 --small 0.02``.

Each measurement is a process of its own, as memory that was once taken is seldom given back. The files of the table do
not exist: a plan reads manifests only.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from uuid import UUID

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from calving.iceberg.catalog import open_catalog
from calving.iceberg.lineage import new_snapshot
from calving.maintenance.compactor import Compactor
from calving.protocol.ledger_key import LedgerKey

PARTITIONS = 1000
_OF_A_MANIFEST = 5000
_COLUMNS = 10
_NUMBER = "m0000000"
"""In the paths of the first manifest; in those of the others their own number is in its place."""
_SCHEMA = Schema(*(NestedField(i, f"c{i}", LongType(), required=False) for i in range(1, _COLUMNS + 1)))
_SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c1"))
_LARGE, _SMALL = 512 * 1024**2, 1024**2


def measure(files: int, small: float) -> dict[str, float]:
    """In a fresh process: the groups of a plan, its seconds, and the peak of the whole process, MiB. ``small``: the
    share of small files.
    """
    command = [sys.executable, "-m", "harness.planning", "--files", str(files), "--small", str(small)]
    with tempfile.TemporaryDirectory(prefix="calving-planning-") as folder:
        for step in (["--make"], []):
            done = subprocess.run(
                [*command, "--folder", folder, *step],
                capture_output=True,
                text=True,
                check=False,
                cwd=Path(__file__).resolve().parent.parent,
            )
            if done.returncode:
                raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def make(catalog: Catalog, files: int, small: float) -> None:
    """The table ``db.t``, in which the files of each partition are spread over all manifests."""
    catalog.create_namespace("db")
    catalog.create_table("db.t", _SCHEMA, partition_spec=_SPEC, properties={"format-version": "2"})
    table = catalog.load_table("db.t")
    first = _first_manifest(table, min(files, _OF_A_MANIFEST), small)
    snapshot = new_snapshot(table, {}, "main")
    snapshot.rearrange({"none"}, [first, *(_copied(first, i) for i in range(1, files // _OF_A_MANIFEST))])
    table._do_commit(*snapshot.prepare())


def _first_manifest(table: Table, files: int, small: float) -> ManifestFile:
    out = table.io.new_output(f"{table.location()}/metadata/{_NUMBER}.avro")
    every = round(1 / small) if small else None
    # Uncompressed, so that another number can be put in its place.
    with write_manifest(2, table.spec(), table.schema(), out, 1, "null") as writer:
        for number in range(files):
            is_small = every is not None and (number // PARTITIONS + number) % every == 0
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.EXISTING,
                    snapshot_id=1,
                    sequence_number=1,
                    file_sequence_number=1,
                    data_file=_file(table, number, _SMALL if is_small else _LARGE),
                )
            )
    return writer.to_manifest_file()


def _file(table: Table, number: int, size: int) -> DataFile:
    ids = range(1, _COLUMNS + 1)
    partition = number % PARTITIONS
    name = f"00000-0-{UUID(int=number)}-{_NUMBER}.parquet"
    return DataFile.from_args(
        2,
        content=DataFileContent.DATA,
        file_path=f"s3://lake/warehouse/db/t/data/c1={partition}/{name}",
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=1000,
        file_size_in_bytes=size,
        column_sizes=dict.fromkeys(ids, 5000),
        value_counts=dict.fromkeys(ids, 1000),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts={},
        lower_bounds=dict.fromkeys(ids, number.to_bytes(8, "little")),
        upper_bounds=dict.fromkeys(ids, number.to_bytes(8, "little")),
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=None,
    )


def _copied(first: ManifestFile, number: int) -> ManifestFile:
    """A manifest of as many other files."""
    name = f"m{number:07}"
    place = Path(first.manifest_path.removeprefix("file://"))
    (place.parent / f"{name}.avro").write_bytes(place.read_bytes().replace(_NUMBER.encode(), name.encode()))
    other = copy.copy(first)
    other._data = list(first._data)
    other._data[0] = first.manifest_path.replace(_NUMBER, name)
    return other


def planned(catalog: Catalog) -> dict[str, float]:
    """A plan of ``db.t``: its groups, their files, and seconds."""
    compactor = Compactor(catalog, ("db", "t"), LedgerKey("control", "connect-x", "log"), {})
    table = compactor.load()
    assert table is not None
    began, cpu = time.perf_counter(), time.process_time()
    plan = compactor.plan(table, int(time.time() * 1000))
    return {
        "groups": len(plan.groups),
        "files": sum(len(group.files) for group in plan.groups),
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--small", type=float, default=0.02, help="the share of small files")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--make", action="store_true", help="only make the table in the folder")
    args = parser.parse_args()
    if args.folder is None:
        print(json.dumps(measure(args.files, args.small)))
        return
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(args.folder)})
    if args.make:
        make(catalog, args.files, args.small)
        return
    print(json.dumps(planned(catalog)))


if __name__ == "__main__":
    main()
