"""What calving writes, read by engines that are not calving: Spark with Iceberg's own runtime, and DuckDB."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from calving.iceberg.tables import partition_spec
from tests.conftest import Topic
from tests.data.conftest import Plane, encode

COUNT = 300


def spark(plane: Plane, *statements: str) -> list[list[dict[str, Any]]]:
    command = [sys.executable, "-m", "tests.readback.readers", str(plane.folder / "warehouse"), *statements]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("ROWS ")]


@pytest.fixture
def written(plane: Plane, topic: Callable[..., Topic], monkeypatch: pytest.MonkeyPatch) -> Plane:
    """A partitioned table of several commits, nested columns, a new column, and a clock that went back."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "ts", TimestamptzType(), required=False),
        NestedField(3, "kind", StringType(), required=False),
        NestedField(4, "price", DecimalType(12, 2), required=False),
        NestedField(5, "o", StructType(NestedField(6, "x", LongType(), required=False)), required=False),
        NestedField(7, "tags", ListType(8, StringType(), element_required=False), required=False),
        NestedField(9, "m", MapType(10, StringType(), 11, LongType(), value_required=False), required=False),
    )
    spec = partition_spec(["day(ts)", "bucket(kind, 4)"], schema, "db.t")
    plane.catalog.create_namespace("db")
    plane.catalog.create_table("db.t", schema, partition_spec=spec)
    t = topic()

    def record(i: int, **more: object) -> dict[str, object]:
        base = {"id": i, "ts": 1704164645678 + i * 10**7, "kind": f"k{i % 7}", "price": i + 0.25}
        return {**base, "o": {"x": i}, "tags": ["a", None], "m": {"k": i}, **more}

    t.send(*encode(*(record(i) for i in range(100))))
    plane.take(t, {0: (0, 100)})
    t.send(*encode(*(record(i, added=f"n{i}") for i in range(100, 200))))
    plane.take(t, {0: (100, 200)})
    monkeypatch.setattr("pyiceberg.table.snapshots.time.time_ns", lambda: 10**18)
    t.send(*encode(*(record(i) for i in range(200, COUNT))))
    plane.take(t, {0: (200, COUNT)})
    return plane


def test_spark_with_icebergs_runtime_reads_every_row_filter_and_snapshot(written: Plane) -> None:
    totals, one, added, nested, snapshots, files = spark(
        written,
        "select count(*) n, count(distinct id) d, sum(price) p from iceberg.db.t",
        "select * from iceberg.db.t where ts = timestamp_millis(1704164645678 + 42 * 10000000L) and kind = 'k0'",
        "select count(*) n from iceberg.db.t where added is not null",
        "select sum(o.x) x, sum(m['k']) m, count(tags[0]) a from iceberg.db.t",
        "select count(*) n from iceberg.db.t.snapshots",
        "select sum(record_count) n from iceberg.db.t.files",
    )
    assert totals[0]["n"] == totals[0]["d"] == COUNT
    assert float(totals[0]["p"]) == sum(i + 0.25 for i in range(COUNT))
    assert [row["id"] for row in one] == [42]
    assert added == [{"n": 100}]
    assert nested == [{"x": sum(range(COUNT)), "m": sum(range(COUNT)), "a": COUNT}]
    assert snapshots == [{"n": 3}]
    assert files == [{"n": COUNT}]


def test_duckdb_reads_every_row_through_the_metadata(written: Plane) -> None:
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (path,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"load '{path}'")
    location = written.catalog.load_table("db.t").metadata_location.removeprefix("file://")
    query = f"select count(*), count(distinct id), sum(o.x) from iceberg_scan('{location}')"
    assert connection.execute(query).fetchone() == (COUNT, COUNT, sum(range(COUNT)))
