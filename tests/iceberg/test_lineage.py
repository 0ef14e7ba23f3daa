"""Tables of format version 3, in catalogs with a server and without: every row gets an id, and none twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzNanoType

from calving.casting.table import TableConverter
from calving.iceberg.catalog import open_catalog
from calving.iceberg.manifests import read_manifest_list
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, TableReference
from calving.model.record_path import Evolution, Limits
from calving.model.tables import SchemaChange
from calving.protocol.commit import CommitLoop
from calving.protocol.ledger_key import LedgerKey
from calving.records.fields import table_schema
from calving.records.values import Values
from calving.writing.table import TableWriter

KEY = LedgerKey("control", "connect-x", "log-1")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "at", TimestamptzNanoType(), required=False),
)


@pytest.fixture(params=["embedded", pytest.param("rest", marks=pytest.mark.services)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    """Where pyiceberg writes the metadata, and where Apache's REST server does."""
    if request.param == "embedded":
        return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    return open_catalog("iceberg", {"type": "rest", "uri": request.getfixturevalue("rest_uri")})


@pytest.fixture
def name(catalog: Catalog) -> str:
    catalog.create_namespace_if_not_exists("v3")
    made = f"v3.t{uuid4().hex}"
    catalog.create_table(made, SCHEMA, properties={"format-version": "3", "commit.manifest-merge.enabled": "true"})
    return made


def commit(catalog: Catalog, name: str, offset: int, rows: list[dict[str, Any]]) -> None:
    """``rows`` through the data plane's own writer, and into the table."""
    tables = Tables(catalog, "iceberg", TableRules())
    tables.refresh([name])
    spec = tables.specs()[name]
    converted = TableConverter(name, table_schema(spec.schema_json), Evolution(), {}).convert(Values(rows, typed=False))
    assert converted.rows is not None and not converted.bad
    writer = TableWriter(spec, 0, Limits())
    writer.write(converted.rows)
    files = tuple(writer.close())
    namespace, table = name.split(".")
    event = DataWritten(uuid4(), TableReference("iceberg", (namespace,), table), files)
    target = IcebergTarget(catalog, (namespace, table), "main", KEY, {})
    CommitLoop(target, KEY, 5).settle([Envelope(0, offset, event)], {0: offset + 1})


def rows_of(start: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "kind": f"k{i}", "at": "2024-01-02T03:04:05.123456789Z"} for i in range(start, start + count)]


def test_every_manifest_gets_its_own_row_ids(catalog: Catalog, name: str) -> None:
    for offset, (start, count) in enumerate([(0, 5), (5, 7), (12, 3)]):
        commit(catalog, name, offset, rows_of(start, count))
    table = catalog.load_table(name)
    snapshots = sorted(table.metadata.snapshots, key=lambda s: s.sequence_number or 0)
    assert [(s.first_row_id, s.added_rows) for s in snapshots] == [(0, 5), (5, 7), (12, 3)]
    assert isinstance(table.metadata, TableMetadataV3)
    assert table.metadata.next_row_id == 15
    manifests = read_manifest_list(table.io, snapshots[-1].manifest_list)
    assert sorted(m._data[15] for m in manifests) == [0, 5, 12]


def test_rows_are_read_back_with_their_nanoseconds(catalog: Catalog, name: str) -> None:
    commit(catalog, name, 0, rows_of(0, 5))
    table = catalog.load_table(name)
    (task,) = table.scan().plan_files()
    rows = pq.read_table(Path(task.file.file_path.removeprefix("file://")))
    assert rows["id"].to_pylist() == [0, 1, 2, 3, 4]
    assert rows["at"].cast("int64").to_pylist()[0] % 1_000_000_000 == 123_456_789


def test_a_replay_adds_nothing(catalog: Catalog, name: str) -> None:
    commit(catalog, name, 0, rows_of(0, 5))
    commit(catalog, name, 0, rows_of(0, 5))
    table = catalog.load_table(name)
    assert len(table.metadata.snapshots) == 1
    assert json.loads(table.properties[KEY.offsets]) == {"0": 1}


def test_a_table_of_version_3_is_created(catalog: Catalog) -> None:
    made = f"v3.t{uuid4().hex}"
    tables = Tables(catalog, "iceberg", TableRules(create_properties={"format-version": "3"}))
    tables.apply([SchemaChange(made, "create", type={"struct": {"id": "long"}})])
    assert catalog.load_table(made).metadata.format_version == 3
