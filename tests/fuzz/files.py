"""Data files of a batch against what is in them: rows, partitions, statistics; and what other engines read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow.parquet as pq
from pyiceberg.exceptions import ResolveError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, ListType, MapType, StructType, TimestamptzNanoType

from calving.model.files import DataFile
from tests.fuzz import plain, spec
from tests.fuzz.forms import row_text
from tests.fuzz.histories import OLD_ROWS

_COUNTED = 100
"""Columns that have statistics where the table says nothing."""


def faults(table: Table, files: tuple[DataFile, ...]) -> Iterator[str]:
    """The errors in the files of a table, which holds nothing else."""
    schema, parts = table.schema(), table.spec()
    ordered = {field.source_id for field in table.sort_order().fields}
    every: list[dict[str, Any]] = []
    for file in files:
        rows = plain.file_rows(file.file_path, file.file_format, schema)
        every += rows
        if not rows:
            yield "a file without rows"
        if file.record_count != len(rows):
            yield f"record_count {file.record_count} of {len(rows)} rows"
        yield from _partition_faults(file, rows, schema, parts)
        yield from _statistics_faults(file, rows, schema, table.properties, ordered)
    formats = {file.file_format for file in files}
    if formats == {"PARQUET"} and not _mistaken(schema.as_struct()):
        yield from _duckdb_faults(files, every, schema)
    if "AVRO" in formats:
        return  # pyiceberg does not read them
    try:
        scanned = [plain.fit(row, schema.as_struct()) for row in plain.arrow_rows(table.scan().to_arrow())]
    except ResolveError:
        return  # nor fixed columns of ORC files
    except Exception as error:
        if "ORC" in formats and "cannot be viewed as non-nullable" in str(error):
            return  # nor structs of ORC files that are null in a list and have required fields
        if (
            "ORC" in formats
            and table.format_version == 3
            and "Unsupported schema projection from timestamp[ns" in str(error)
        ):
            return  # nor, in version 3, timestamps of ORC files, which it takes for nanoseconds
        yield f"pyiceberg's scan: {type(error).__name__}: {error}"
        return
    if OLD_ROWS in table.properties:
        every = [*every, {column.name: None for column in schema.fields}]
    found, wanted = (Counter(row_text(_scanned(row, schema.as_struct())) for row in rows) for rows in (scanned, every))
    if found != wanted:
        yield f"pyiceberg's scan: {next(iter(found - wanted), None)} instead of {next(iter(wanted - found), None)}"


def _mistaken(kind: Any, levels: int = 8) -> bool:
    """Whether DuckDB cannot be asked: it does not tell apart names that differ in their case only, ends them at a zero,
    needs twice the time for every further level of lists, and cuts nanoseconds in UTC.
    """
    match kind:
        case StructType():
            names = [f.name.lower() for f in kind.fields]
            inner = [f.field_type for f in kind.fields]
            wrong = len(set(names)) < len(names) or any("\0" in name for name in names)
        case ListType():
            wrong, inner = levels == 0, [kind.element_type]
        case MapType():
            wrong, inner = levels == 0, [kind.key_type, kind.value_type]
        case _:
            return isinstance(kind, TimestamptzNanoType)
    return wrong or any(_mistaken(each, levels - 1) for each in inner)


def _scanned(value: Any, kind: Any) -> Any:
    """As pyiceberg's scan gives a value: it takes null lists and maps of structs for empty ones."""
    match kind:
        case StructType():
            return None if value is None else {f.name: _scanned(value[f.name], f.field_type) for f in kind.fields}
        case ListType():
            return [_scanned(item, kind.element_type) for item in value or ()]
        case MapType():
            return [(k, _scanned(v, kind.value_type)) for k, v in value or ()]
    return value


def _partition_faults(
    file: DataFile, rows: list[dict[str, Any]], schema: Schema, parts: PartitionSpec
) -> Iterator[str]:
    told = tuple(
        int.from_bytes(value, "big", signed=True)
        if isinstance(value, bytes)
        and str(part.transform) != "void"
        and isinstance(part.transform.result_type(schema.find_type(part.source_id)), DecimalType)
        else value
        for part, value in zip(parts.fields, file.partition.values, strict=True)
    )
    for row in rows:
        wanted = spec.partition_of(row, schema, parts.fields)
        if _comparable(wanted) != _comparable(told):
            yield f"partition {told} of a row of {wanted} by {parts}"
            return


def _comparable(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """NaN is one value, and so are the zeros."""
    return tuple("nan" if v != v else v for v in values)


def _statistics_faults(
    file: DataFile, rows: list[dict[str, Any]], schema: Schema, properties: Mapping[str, str], ordered: set[int]
) -> Iterator[str]:
    default = properties.get("write.metadata.metrics.default", "truncate(16)")
    leaves = spec.statistics(rows, schema)
    for i, leaf in leaves.items():
        # What a table is sorted by always has bounds.
        mode = "truncate(16)" if i in ordered and default in ("none", "counts") else default
        name = schema.find_column_name(i)
        floats = str(leaf.kind) in ("float", "double")
        told = (
            (file.value_counts or {}).get(i),
            (file.null_value_counts or {}).get(i),
            (file.nan_value_counts or {}).get(i),
        )
        wanted = (None, None, None) if mode == "none" else (leaf.values, leaf.nulls, leaf.nans if floats else None)
        if told == (None, None, None) and (leaf.values == leaf.nulls or len(leaves) > _COUNTED):
            continue  # a file written before the column was added, or one column too many
        if told != wanted:
            yield f"statistics of {name} ({leaf.kind}): {told} instead of {wanted}"
        for fault in spec.wrong_bounds(leaf, mode, (file.lower_bounds or {}).get(i), (file.upper_bounds or {}).get(i)):
            yield f"bounds of {name} ({leaf.kind}): {fault}"


def _duckdb_faults(files: tuple[DataFile, ...], every: list[dict[str, Any]], schema: Schema) -> Iterator[str]:
    alike: dict[str, list[str]] = {}  # a batch that changes the table writes files of several schemas
    for file in files:
        path = file.file_path.removeprefix("file://")
        alike.setdefault(str(pq.read_schema(path)), []).append(_unglobbed(path))
    read: list[dict[str, Any]] = []
    try:
        with duckdb.connect() as connection:
            for paths in alike.values():
                found = connection.execute("SELECT * FROM read_parquet(?, hive_partitioning = false)", [paths])
                read += [plain.fit(row, schema.as_struct()) for row in plain.arrow_rows(found.to_arrow_table())]
    except Exception as error:
        yield f"DuckDB: {type(error).__name__}: {error}"
        return
    rows, texts = Counter(map(row_text, read)), Counter(map(row_text, every))
    if rows != texts:
        yield f"DuckDB: {next(iter(rows - texts), None)} instead of {next(iter(texts - rows), None)}"


def _unglobbed(path: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)
