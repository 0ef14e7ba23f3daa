"""``python -m tests.fuzz.run_blocks --seconds 600 [--seed 7] [--case 12]``: fuzzes files of large blocks of rows.

A case is a table and a few blocks, from one row to several thousand, with texts and bytes of up to 1 MB. Each file's counts
and bounds are compared with the rows that it holds, and so are those of key files, which say which rows a commit deletes.
Then filters, also Bloom filters, are asked which files may have a row; a file that has one must be among them. Tables with
nanoseconds are of format version 3.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThan, IsNull, LessThanOrEqual
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
)

from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.iceberg.target import IcebergTarget
from calving.model.files import DataFile
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.mutations.candidates import Candidate, Pruning
from calving.mutations.columns import Column
from calving.mutations.keys import ChangedKeys
from calving.protocol.commit import Admitted
from calving.protocol.ledger import NO_LEDGER
from calving.protocol.ledger_key import LedgerKey
from calving.records.fields import arrow_schema
from calving.writing.table import TableWriter
from tests.fuzz import bloom, key_files, spec
from tests.fuzz.blocks import BLOOM, Case, arrow, batch, make

_KEY = LedgerKey("control", "group", "log")
_EQUAL: Any = EqualTo
_AT_MOST: Any = LessThanOrEqual
_ABOVE: Any = GreaterThan
_NULL: Any = IsNull


def _written(case: Case, target: TableSpec) -> list[DataFile]:
    schema = arrow_schema(Schema.model_validate_json(target.schema_json))
    writer = TableWriter(target, 0, Limits())
    for block in case.blocks:
        writer.write(batch(block, schema))
    return writer.close()


def _ids(file: DataFile) -> list[int]:
    """The numbers of the rows in a file, read by the format's own library."""
    path = file.file_path.removeprefix("file://")
    match file.file_format:
        case "PARQUET":
            column = pq.read_table(path, columns=["id"]).column("id")
        case "ORC":
            column = po.read_table(path, columns=["id"]).column("id")
        case _:
            with Path(path).open("rb") as source:
                return [int(record["id"]) for record in fastavro.reader(source)]  # type: ignore[call-overload, index]
    return [int(value) for value in column.to_pylist()]


def check(case: Case, catalog: Catalog, folder: Path) -> list[str]:
    """What is wrong with the files of a case; empty: nothing."""
    if any(isinstance(field.field_type, TimestampNanoType) for field in case.schema.fields):
        # pyiceberg commits no table of version 3 to a file of its own.
        order = case.order.model_dump_json() if case.order.fields else None
        place = f"file://{folder}/{uuid.uuid4()}"
        target = TableSpec(
            "db.t", case.schema.model_dump_json(), case.spec.model_dump_json(), place, case.properties, {}, order
        )
        files = _written(case, target)
        ids = [_ids(file) for file in files]
        return [*_file_faults(case, case.schema, files, ids), *_faults_anywhere(case, target, files, ids)]
    name = f"db.t{uuid.uuid4().hex}"
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table(name, case.schema, None, case.spec, case.order, dict(case.properties))
    tables = Tables(catalog, "iceberg", TableRules())
    tables.refresh([name])
    target = tables.specs()[name]
    files = _written(case, target)
    target_of = IcebergTarget(catalog, ("db", name[3:]), "main", _KEY, {})
    target_of.attempt(target_of.load(), Admitted(tuple(files), (), NO_LEDGER))
    ids = [_ids(file) for file in files]
    faults = list(_file_faults(case, table.schema(), files, ids))
    faults += _query_faults(case, catalog, name, files, ids, Random(f"{case.number}/queries"))
    faults += _faults_anywhere(case, target, files, ids)
    catalog.drop_table(name)
    return faults


def _faults_anywhere(
    case: Case, target: TableSpec, files: Sequence[DataFile], ids: Sequence[Sequence[int]]
) -> Iterator[str]:
    """What needs no catalog."""
    random = Random(f"{case.number}/files")
    for field in case.schema.fields:
        for value in _asked_values(case, field, random):
            yield from _pruning_faults(case, field, value, files, ids)
            if isinstance(field.field_type, StringType | LongType) and {f.file_format for f in files} == {"PARQUET"}:
                yield from _duckdb_faults(files, field, value, case.rows)
        if case.properties.get(f"{BLOOM}enabled.column.{field.name}") == "true":
            for file in files if case.properties["write.format.default"] == "parquet" else ():
                yield from bloom.faults(case, field, file, random)
    yield from key_files.faults(case, target)


def _asked_values(case: Case, field: NestedField, random: Random) -> list[Any]:
    values = [
        row[field.name] for row in case.rows if row[field.name] is not None and row[field.name] == row[field.name]
    ]
    return random.choices(values, k=2) if values and isinstance(field.field_type, _ASKED) else []


def _file_faults(case: Case, schema: Schema, files: Sequence[DataFile], ids: Sequence[Sequence[int]]) -> Iterator[str]:
    rows = case.rows
    if sorted(i for some in ids for i in some) != list(range(len(rows))):
        yield f"{sum(map(len, ids))} rows are in files, of {len(rows)}"
    ordered = {field.source_id for field in case.order.fields}
    default = case.properties.get("write.metadata.metrics.default", "truncate(16)")
    for file, some in zip(files, ids, strict=True):
        if file.record_count != len(some):
            yield f"record_count {file.record_count} of {len(some)} rows"
        for i, leaf in spec.statistics([rows[i] for i in some], schema).items():
            name = str(schema.find_column_name(i))
            mode = "truncate(16)" if i in ordered and default in ("none", "counts") else default
            mode = case.properties.get(f"write.metadata.metrics.column.{name}", mode)
            floats = str(leaf.kind) in ("float", "double")
            counts = (None,) * 3 if mode == "none" else (leaf.values, leaf.nulls, leaf.nans if floats else None)
            told = tuple(
                (each or {}).get(i) for each in (file.value_counts, file.null_value_counts, file.nan_value_counts)
            )
            if told != counts:
                yield f"counts of {name}: {told} instead of {counts}"
            low, high = (file.lower_bounds or {}).get(i), (file.upper_bounds or {}).get(i)
            for fault in spec.wrong_bounds(leaf, mode, low, high):
                yield f"bounds of {name} ({leaf.kind}, {mode}): {fault[:200]}"
        sizes = file.column_sizes
        if file.file_format == "PARQUET" and sum((sizes or {}).values()) > file.file_size_in_bytes:
            yield f"columns of {sizes} bytes in a file of {file.file_size_in_bytes}"
        yield from _split_faults(file)


def _split_faults(file: DataFile) -> Iterator[str]:
    if file.file_format != "PARQUET":
        return
    footer = pq.read_metadata(file.file_path.removeprefix("file://"))
    splits = file.split_offsets or ()
    if len(splits) != footer.num_row_groups or list(splits) != sorted(splits) or (splits and splits[0] != 4):
        yield f"split offsets {splits} of {footer.num_row_groups} row groups"


_ASKED = (StringType, LongType, IntegerType, DoubleType, BinaryType, DecimalType)


def _query_faults(
    case: Case, catalog: Catalog, name: str, files: Sequence[DataFile], ids: Sequence[Sequence[int]], random: Random
) -> Iterator[str]:
    table, rows = catalog.load_table(name), case.rows
    for field in table.schema().fields:
        for value in _asked_values(case, field, random):
            equal, *others = _filters(field, value)
            for how, expression, holds in (equal, random.choice(others)):
                planned = {task.file.file_path for task in table.scan(row_filter=expression).plan_files()}
                for file, some in zip(files, ids, strict=True):
                    if file.file_path not in planned and any(holds(rows[i][field.name]) for i in some):
                        yield f"pyiceberg misses rows with {field.name} {how} {str(value)[:60]!r}"


def _filters(field: NestedField, value: Any) -> Iterator[tuple[str, BooleanExpression, Callable[[Any], bool]]]:
    yield "=", _EQUAL(field.name, value), lambda v: v == value
    yield "<=", _AT_MOST(field.name, value), lambda v: v is not None and v <= value
    yield ">", _ABOVE(field.name, value), lambda v: v is not None and v > value
    yield "is null, not", _NULL(field.name), lambda v: v is None


def _pruning_faults(
    case: Case, field: NestedField, value: Any, files: Sequence[DataFile], ids: Sequence[Sequence[int]]
) -> Iterator[str]:
    """Files that a commit of changed rows would leave out although they hold the key."""
    if isinstance(field.field_type, DoubleType) or not isinstance(field.field_type, PrimitiveType):
        return
    column, unpartitioned = Column(field.field_id, field.field_type), {0: PartitionSpec()}
    key = pa.RecordBatch.from_arrays([arrow([value], column.arrow)], [str(field.field_id)])
    pruning = Pruning(ChangedKeys([column], [[key]]), [column], unpartitioned)
    for file, some in zip(files, ids, strict=True):
        about = Candidate(file.file_path, "", 1, 1, 0, (), file.lower_bounds or {}, file.upper_bounds or {})
        if pruning.keys_of(about) is None and any(case.rows[i][field.name] == value for i in some):
            yield f"a change of {field.name} {str(value)[:60]!r} does not look into a file that holds it"


def _duckdb_faults(
    files: Sequence[DataFile], field: NestedField, value: Any, rows: Sequence[dict[str, Any]]
) -> Iterator[str]:
    if isinstance(value, str) and "\0" in value:
        return  # ends a text that is bound
    paths = [file.file_path.removeprefix("file://") for file in files]
    query = f"SELECT count(*) FROM read_parquet(?, hive_partitioning = false) WHERE {field.name} = ?"
    with duckdb.connect() as connection:
        row = connection.execute(query, [paths, value]).fetchone()
    wanted = sum(each[field.name] == value for each in rows)
    if row is None or row[0] != wanted:
        yield f"DuckDB finds {row} rows with {field.name} = {str(value)[:60]!r} instead of {wanted}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--case", type=int, help="this case only")
    args = parser.parse_args()
    until, number, rows, wrong = time.monotonic() + args.seconds, args.case or 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="calving-fuzz-") as folder:
        catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": f"{folder}/warehouse"})
        while True:
            case = make(args.seed, number)
            faults = check(case, catalog, Path(folder))
            rows += len(case.rows)
            for fault in faults[:3]:
                command = f"python -m tests.fuzz.run_blocks --seed {args.seed} --case {number}"
                print(f"[blocks] {fault} | {command}", flush=True)
            wrong += bool(faults)
            number += 1
            if args.case is not None or time.monotonic() > until:
                break
    print(f"{number - (args.case or 0)} cases of large blocks, {rows} rows, {wrong} with disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
