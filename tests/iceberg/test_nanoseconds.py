"""New columns for the nanoseconds of a schema: in nanoseconds where the settings and the format version allow it."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calving.model.record_path import ConverterSpec, TopicConverters
from calving.records.declared import read_columns
from calving.records.inferred import merge, of_type
from tests.iceberg.test_schema_defaults import ID, record, sink_of
from tests.mutations.changing import Changing

NANO = {"field": "at", "type": "int64", "name": "io.debezium.time.NanoTimestamp"}
MICRO = {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}
MOMENT = 1_700_000_000_123_456_789


def kinds(sink: Changing) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in sink.table.schema().fields}


def written(sink: Changing, column: str) -> list[Any]:
    """The numbers that the files have in a column."""
    paths = [task.file.file_path.removeprefix("file://") for task in sink.table.scan().plan_files()]
    tables = [pq.read_table(path) for path in paths]
    return sorted(n for t in tables if column in t.column_names for n in t[column].cast(pa.int64()).to_pylist())


@pytest.mark.parametrize(
    ("version", "nanos", "kind", "number"),
    [
        (3, True, "timestamp_ns", MOMENT),
        (3, False, "timestamp", MOMENT // 1000),
        (2, True, "timestamp", MOMENT // 1000),
    ],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_a_column_for_nanoseconds_counts_them_where_that_is_wanted(
    version: int, nanos: bool, kind: str, number: int, is_there: bool, tmp_path: Path
) -> None:
    sink = sink_of(tmp_path, version=version, nanos=nanos)
    if is_there:
        sink.take(record([ID], id=1))
    assert sink.reasons(sink.take(record([ID, NANO], id=2, at=MOMENT))) == []
    assert kinds(sink)["at"] == kind
    assert written(sink, "at") == [number]


@pytest.mark.parametrize(
    ("logical", "kind"), [("timestamp-nanos", "timestamptz_ns"), ("local-timestamp-nanos", "timestamp_ns")]
)
def test_avro_names_nanoseconds_in_its_logical_types(logical: str, kind: str, tmp_path: Path) -> None:
    at = {"name": "at", "type": {"type": "array", "items": {"type": "long", "logicalType": logical}}}
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, at]}
    body, plain = (
        BytesIO(),
        {**schema, "fields": [schema["fields"][0], {**at, "type": {"type": "array", "items": "long"}}]},
    )
    fastavro.schemaless_writer(body, fastavro.parse_schema(plain), {"id": 1, "at": [MOMENT]})
    sink = sink_of(tmp_path, nanos=True)
    sink.converters = TopicConverters(ConverterSpec("json"), ConverterSpec("avro", {"schema": json.dumps(schema)}))
    assert sink.reasons(sink.take((None, body.getvalue()))) == []
    assert kinds(sink)["at"] == f"list<{kind}>"


def test_schemas_of_one_batch_in_nanoseconds_and_microseconds_make_microseconds(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, nanos=True)
    sink.take(record([ID, NANO], id=1, at=MOMENT), record([ID, MICRO], id=2, at=7))
    assert kinds(sink)["at"] == "timestamp"
    assert written(sink, "at") == [7, MOMENT // 1000]


def test_zones_count_more_than_units() -> None:
    assert merge(of_type(pa.timestamp("ns", "UTC")), of_type(pa.timestamp("us"))) == "string"


def test_settings_declare_columns_in_nanoseconds_for_text(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, converters=None, columns=read_columns("at timestamptz_ns"))
    sink.take((None, {"id": 1, "at": "2023-11-14T22:13:20.123456789Z"}))
    assert kinds(sink)["at"] == "timestamptz_ns"
    assert written(sink, "at") == [MOMENT]


def test_a_declared_column_in_nanoseconds_cannot_be_added_to_a_table_of_version_2(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, version=2, converters=None, types=read_columns("at timestamp_ns"))
    sink.take((None, {"id": 1}))
    ((_, reason),) = sink.reasons(sink.take((None, {"id": 2, "at": "2023-11-14T22:13:20"})))
    assert "a table of format version 2 has no type timestamp_ns: upgrade it to 3" in reason


def test_the_bounds_of_a_file_are_in_nanoseconds(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, nanos=True)
    sink.take(record([ID, NANO], id=1, at=MOMENT), record([ID, NANO], id=2, at=MOMENT + 1))
    (task,) = sink.table.scan().plan_files()
    number = sink.table.schema().find_field("at").field_id
    assert int.from_bytes(task.file.lower_bounds[number], "little") == MOMENT
    assert int.from_bytes(task.file.upper_bounds[number], "little") == MOMENT + 1
