"""The proof at the end of the demo."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from calving.demo import TABLE, prove
from calving.iceberg.catalog import open_catalog
from calving.settings.load import Sink, parse


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    keys = {"name": "demo", "topics": "events", "iceberg.tables": TABLE, "kafka.bootstrap.servers": "b:1"}
    return parse({**keys, "iceberg.catalog.type": "embedded", "iceberg.catalog.warehouse": str(tmp_path / "warehouse")})


@pytest.mark.parametrize(
    ("ids", "figures"),
    [
        (range(100), None),
        (range(99), "missing 1"),
        ([*range(100), 7], "doubled 1"),
        ([*range(100), 100], "never produced 1"),
    ],
)
def test_the_proof_counts_what_is_missing_doubled_and_foreign(
    sink: Sink, ids: range | list[int], figures: str | None, tmp_path: Path
) -> None:
    catalog = open_catalog(sink.keys.catalog_name, sink.catalog)
    catalog.create_namespace("demo")
    rows = pa.table({"id": pa.array(ids, pa.int64())})
    catalog.create_table(TABLE, rows.schema).append(rows)
    console = Console(width=200, file=io.StringIO(), record=True)
    proven = prove(sink, 100, 1.5, console, tmp_path)
    said = [" ".join(line.split()) for line in console.export_text().splitlines()]
    assert proven == (figures is None)
    assert ("Exactly once." in said) == (figures is None)
    assert f"rows read back by DuckDB {len(ids)}" in said
    assert figures is None or figures in said
