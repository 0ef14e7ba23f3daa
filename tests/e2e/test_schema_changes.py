"""Schema changes of a MySQL table reach the table of a sink, before and after the rows of the new columns."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from calving.iceberg.catalog import open_catalog
from harness.duckdb_extensions import duckdb_rows
from harness.topic import Topic
from tests.cli.commands import Cli

pytestmark = pytest.mark.services


class Source:
    """The topics of a connector for MySQL, and the sink that reads them."""

    def __init__(self, folder: Path, servers: str, prefix: str) -> None:
        self._about = {"version": "2.7.0.Final", "connector": "mysql", "name": prefix, "db": "shop", "table": "orders"}
        self._changes, self._rows = Topic(servers, prefix), Topic(servers, f"{prefix}.shop.orders")
        self.sink = Cli(folder, self._rows, prefix)
        self.sink.keys |= {
            "topics": f"{self._changes.name},{self._rows.name}",
            "key.converter": "json",
            "transforms": "debezium",
            "transforms.debezium.type": "DebeziumTransform",
            "iceberg.tables.cdc-field": "_cdc.op",
            "iceberg.tables.evolve-schema-enabled": True,
            "iceberg.tables.schema-changes": "apply",
            "iceberg.table.db.t.id-columns": "id",
            "iceberg.table.db.t.columns": "n int",
        }

    def write(self, *rows: Mapping[str, Any]) -> None:
        for row in rows:
            event = {"before": None, "after": row, "source": self._about, "op": "u", "ts_ms": 5}
            self._rows.send(json.dumps(event).encode(), key=json.dumps({"id": row["id"]}).encode())

    def alter(self, ddl: str, **columns: str) -> None:
        table = {"columns": [{"name": name, "typeName": kind, "length": None} for name, kind in columns.items()]}
        event = {
            "source": {**self._about, "table": ""},
            "ts_ms": 5,
            "databaseName": "shop",
            "schemaName": None,
            "ddl": f"ALTER TABLE orders {ddl}",
            "tableChanges": [{"type": "ALTER", "id": '"shop"."orders"', "table": table}],
        }
        self._changes.send(json.dumps(event).encode(), key=b'{"databaseName":"shop"}')

    @property
    def table(self) -> Any:
        return open_catalog("iceberg", self.sink.catalog_keys).load_table("db.t")

    @property
    def columns(self) -> dict[str, str]:
        return {field.name: str(field.field_type) for field in self.table.schema().fields}

    def rows(self) -> list[dict[str, Any]]:
        """What two engines read alike."""
        names = sorted(self.columns, key=lambda name: name != "id")
        rows = sorted(self.table.scan().to_arrow().select(names).to_pylist(), key=lambda row: row["id"])
        assert sorted(duckdb_rows(self.table, ", ".join(names))) == [tuple(row.values()) for row in rows]
        return [{name: value for name, value in row.items() if value is not None} for row in rows]


@pytest.fixture
def source(tmp_path: Path, servers: str, unique: str) -> Source:
    return Source(tmp_path, servers, unique)


def test_the_table_follows_its_source_whichever_comes_first(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    run = source.sink.run_here
    source.write({"id": 1, "n": 1, "name": "a"})
    run()

    # The schema change comes first, and then, after a restart, rows of the old and of the new columns.
    there = {"id": "INT", "n": "BIGINT", "label": "TEXT", "note": "TEXT"}
    source.alter("MODIFY n BIGINT, ADD note TEXT, CHANGE name label TEXT", **there)
    run()
    assert source.columns == {"id": "long", "n": "long", "label": "string", "note": "string"}
    source.write({"id": 2, "n": 2, "name": "late"}, {"id": 3, "n": 2**40, "label": "c", "note": "new"})
    run()
    assert source.rows() == [
        {"id": 1, "n": 1, "label": "a"},
        {"id": 2, "n": 2, "label": "late"},
        {"id": 3, "n": 2**40, "label": "c", "note": "new"},
    ]

    # Both come in one batch: the rename goes first.
    source.write({"id": 4, "n": 4, "title": "d", "note": "x"})
    source.alter("RENAME COLUMN label TO title", id="INT", n="BIGINT", title="TEXT", note="TEXT")
    run()
    assert source.columns == {"id": "long", "n": "long", "title": "string", "note": "string"}

    # The rows come first: both columns stay. A dropped column keeps its values.
    source.write({"id": 5, "n": 5, "heading": "e"})
    run()
    caplog.clear()
    source.alter("RENAME COLUMN title TO heading, DROP COLUMN note", id="INT", n="BIGINT", heading="TEXT")
    run()
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert ["'title' to 'heading'" in warning for warning in warnings] == [True]
    assert source.rows() == [
        {"id": 1, "n": 1, "title": "a"},
        {"id": 2, "n": 2, "title": "late"},
        {"id": 3, "n": 2**40, "title": "c", "note": "new"},
        {"id": 4, "n": 4, "title": "d", "note": "x"},
        {"id": 5, "n": 5, "heading": "e"},
    ]
