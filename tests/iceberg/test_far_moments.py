"""Mutation tables with moments that Python or Arrow cannot hold: files are searched, or the error names the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, TimestampType, TimestamptzType, TimeType

from calving.errors import TableTroubleError
from calving.model.files import DataFile, FileContent
from calving.model.record_path import Limits
from calving.model.tables import RowMutations
from calving.protocol.commit import Step
from calving.records.fields import arrow_schema
from calving.writing.table import TableWriter
from tests.iceberg.histories import MutationTable, create
from tests.mutations.changing import Changing

YEAR_10000 = 253_402_300_800_000_000
"""The first microsecond of the year 10000."""
YEAR_2300 = 10_413_792_000_000_000
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "at", TimestamptzType(), required=False),
    NestedField(3, "day", DateType(), required=False),
    NestedField(4, "clock", TimeType(), required=False),
    NestedField(5, "price", DecimalType(30, 3), required=False),
)


def files(table: MutationTable, **columns: Sequence[Any]) -> tuple[DataFile, ...]:
    """Data files of rows whose moments are numbers."""
    schema = arrow_schema(table.table.schema())
    arrays = [
        pa.array(columns[field.name], pa.int32() if field.type == pa.date32() else pa.int64()).cast(field.type)
        for field in schema
    ]
    writer = TableWriter(table.spec(), 0, Limits())
    writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return tuple(writer.close())


def as_keys(file: DataFile, column: int) -> DataFile:
    return replace(file, content=FileContent.EQUALITY_DELETES, equality_ids=(column,), value_counts={})


def superseded(table: MutationTable, *steps: Step) -> int:
    counts = table.commit(*steps).counts
    assert counts is not None
    return counts.superseded


@pytest.mark.parametrize("file_format", ["avro", "parquet"])
def test_a_file_with_moments_beyond_the_year_9999_is_searched(catalog: Catalog, file_format: str) -> None:
    table = create(catalog, [], 2, schema=SCHEMA, file_format=file_format)
    far = {"at": [YEAR_10000, None, -(10**17)], "day": [3_000_000, None, -3_000_000], "clock": [1, None, 2]}
    table.commit(Step(files(table, id=[1, 2, 3], price=[1, None, -1], **far), ()))
    assert superseded(table, table.step([], [{"id": 2}, {"id": 3}])) == 2


@pytest.mark.parametrize("file_format", ["avro", "parquet"])
@pytest.mark.parametrize("column", ["at", "day", "clock", "price"])
def test_such_moments_are_keys_and_order_values(catalog: Catalog, column: str, file_format: str) -> None:
    values = {"at": YEAR_10000, "day": 3_000_000, "clock": 5_000_001, "price": -7}
    table = create(catalog, [], 2, schema=SCHEMA, file_format=file_format, ids=(column,))
    rows = files(table, id=[1, 2], **{name: [value, None] for name, value in values.items()})
    table.commit(Step(rows, ()))
    (same,) = files(table, id=[1], **{name: [value] for name, value in values.items()})
    (less,) = files(table, id=[1], **{name: [value - 1] for name, value in values.items()})
    ordered = MutationTable(catalog, table.name, order=column)
    assert superseded(ordered, Step((), (as_keys(less, 1),))) == 0
    by_column = SCHEMA.find_field(column).field_id
    assert superseded(table, Step((), (as_keys(less, by_column),))) == 0
    assert superseded(table, Step((), (as_keys(same, by_column),))) == 1


def test_an_error_names_the_file_and_the_column(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", TimestampType(), required=True), NestedField(2, "v", LongType()))
    table = create(catalog, [], 2, schema=schema, file_format="orc")
    (file,) = files(table, id=[YEAR_2300, 0], v=[1, 1])
    table.commit(Step((file,), ()))
    with pytest.raises(TableTroubleError, match=f"{file.file_path} cannot be searched, column id: .*out of range"):
        table.commit(table.step([], [{"id": "2299-12-31T00:00:00"}]))


def test_from_orc_files_only_the_compared_columns_are_read(catalog: Catalog) -> None:
    table = create(catalog, [], 2, schema=SCHEMA, file_format="orc")
    far = {"at": [YEAR_2300, 0], "day": [3_000_000, 0], "clock": [0, 0], "price": [0, 0]}
    table.commit(Step(files(table, id=[1, 2], **far), ()))
    assert superseded(table, table.step([], [{"id": 2}])) == 1


@pytest.mark.parametrize("compared", ["id column", "order field"])
def test_a_moment_that_orc_files_do_not_give_back_is_bad_as_key_or_order_value(tmp_path: Path, compared: str) -> None:
    is_key = compared == "id column"
    sink = Changing(
        tmp_path,
        RowMutations("op", order_field=None if is_key else "at"),
        id_columns=("at",) if is_key else ("id",),
        columns={"at": "timestamptz", "until": "timestamptz"},
        properties={"write.format.default": "orc"},
    )
    good, far = "2024-01-01T00:00:00Z", "2300-01-01T00:00:00Z"
    outcome = sink.take(*((None, {"id": 1, "at": at, "until": far, "op": "u"}) for at in (good, far)))
    ((offset, reason),) = sink.reasons(outcome)
    assert offset == 1 and "column 'at': rows are found by it" in reason
    sink.take((None, {"id": 1, "at": good, "op": "d"}))
    assert sink.table.scan().count() == 0
