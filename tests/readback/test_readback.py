"""Other engines read the tables of calving: Spark with Iceberg's own runtime, and DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules
from calving.model.record_path import RouteRule, Routing
from calving.writing.schemas import partition_spec
from harness.duckdb_extensions import connected
from harness.spark_reader import spark_on
from harness.topic import Topic
from tests.tasks.conftest import Plane, encode

pytestmark = pytest.mark.services

COUNT = 300


def spark(plane: Plane, *statements: str) -> list[list[dict[str, Any]]]:
    return spark_on(str(plane.folder / "warehouse"), *statements)


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
    location = written.catalog.load_table("db.t").metadata_location.removeprefix("file://")
    query = f"select count(*), count(distinct id), sum(o.x) from iceberg_scan('{location}')"
    assert connected().execute(query).fetchone() == (COUNT, COUNT, sum(range(COUNT)))


EVERY_TYPE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "i", IntegerType(), required=False),
    NestedField(3, "b", BooleanType(), required=False),
    NestedField(4, "f", FloatType(), required=False),
    NestedField(5, "n", DecimalType(9, 2), required=False),
    NestedField(6, "s", StringType(), required=False),
    NestedField(7, "raw", BinaryType(), required=False),
    NestedField(8, "four", FixedType(4), required=False),
    NestedField(9, "u", UUIDType(), required=False),
    NestedField(10, "d", DateType(), required=False),
    NestedField(11, "ts", TimestampType(), required=False),
    NestedField(12, "tz", TimestamptzType(), required=False),
    NestedField(13, "o", StructType(NestedField(14, "y", UUIDType(), required=False)), required=False),
    NestedField(15, "l", ListType(16, TimestampType(), element_required=False), required=False),
    NestedField(17, "m", MapType(18, StringType(), 19, DateType(), value_required=False), required=False),
)
FULL = {
    "id": 1,
    "i": -7,
    "b": True,
    "f": 1.5,
    "n": -1234567.89,
    "s": "ü",
    "raw": "AP8=",
    "four": "YWJjZA==",
    "u": "00000000-0000-0000-0000-000000000001",
    "d": "1969-12-31",
    "ts": "2024-01-02T03:04:05.678901",
    "tz": "1960-01-02T03:04:05+01:00",
    "o": {"y": "00000000-0000-0000-0000-000000000002"},
    "l": ["2024-01-02T03:04:05.000001", None],
    "m": {"k": "2024-02-29"},
}
NEVER_NULL = {"id": 2, "s": "the others are null"}


def test_spark_reads_every_type_alike_from_parquet_orc_and_avro(plane: Plane, topic: Callable[..., Topic]) -> None:
    formats = ("parquet", "orc", "avro")
    plane.catalog.create_namespace("db")
    t = topic()
    t.send(*encode(FULL, NEVER_NULL))
    for name in formats:
        spec = partition_spec(["day(ts)"], EVERY_TYPE, f"db.{name}")
        plane.catalog.create_table(
            f"db.{name}", EVERY_TYPE, partition_spec=spec, properties={"write.format.default": name}
        )
        plane.routing = Routing((RouteRule(f"db.{name}"),))
        plane.take(t)
    everything = "select *, hex(raw) h, hex(four) h4 from iceberg.db.{} order by id"
    pruned = "select id from iceberg.db.{} where tz < timestamp '1961-01-01' and n < 0 and s = 'ü' and u is not null"
    found = spark(plane, *(query.format(name) for name in formats for query in (everything, pruned)))
    rows, filtered = found[::2], found[1::2]
    assert rows[1] == rows[0]
    assert rows[2] == rows[0]
    assert filtered == [[{"id": 1}]] * 3
    one, two = rows[0]
    assert (one["h"], one["h4"], one["n"]) == ("00FF", "61626364", "-1234567.89")
    assert (one["ts"], one["tz"]) == ("2024-01-02 03:04:05.678901", "1960-01-02 02:04:05")
    assert (one["u"], one["o"]) == (FULL["u"], FULL["o"])
    assert (one["l"], one["m"]) == (["2024-01-02 03:04:05.000001", None], {"k": "2024-02-29"})
    assert {name for name, value in two.items() if value is not None} == {"id", "s"}


MIXED = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "turns", StringType(), required=False),
    NestedField(4, "day", DateType(), required=False),
    NestedField(5, "price", DecimalType(9, 2), required=False),
    NestedField(6, "o", StructType(NestedField(7, "x", LongType(), required=False)), required=False),
    NestedField(8, "l", ListType(9, StringType(), element_required=False), required=False),
    NestedField(10, "long", StringType(), required=False),
)


def mixed(i: int) -> dict[str, object]:
    """``id`` is always new, ``kind`` repeats and is often null, ``turns`` repeats for a while and is then always new."""
    kind = None if i % 5 == 0 else f"kind {i % 3}"
    turns = f"turns {i % 7 if i < 4_100 else i}"
    nested = {"o": {"x": i % 11}, "l": [f"new {i}", "again"]}
    return {"id": i, "kind": kind, "turns": turns, "day": i % 20, "price": i / 4, "long": long(i), **nested}


def long(i: int) -> str | None:
    """Long text that is always new."""
    return None if i % 7 == 0 else f"{i * 2654435761 % 2**32:08x}" * 5


@pytest.mark.parametrize(("name", "pages"), [("parquet", "v1"), ("parquet", "v2"), ("orc", "v1")])
def test_spark_reads_columns_with_dictionaries_and_without_them(
    name: str, pages: str, plane: Plane, topic: Callable[..., Topic]
) -> None:
    properties = {
        "write.format.default": name,
        "write.parquet.dict-size-bytes": "4096",
        "write.parquet.page-version": pages,
    }
    plane.catalog.create_namespace("db")
    made = plane.catalog.create_table("db.t", MIXED, properties=properties)
    t = topic()
    t.send(*encode(*(mixed(i) for i in range(6_000))))
    plane.take(t)
    if name == "parquet":
        (file,) = made.refresh().inspect.files()["file_path"].to_pylist()
        group = pq.read_metadata(file.removeprefix("file://")).row_group(0)
        columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}
        assert {path for path, column in columns.items() if column.has_dictionary_page} == {
            "kind", "turns", "day", "o.x", "l.list.element",
        }  # fmt: skip
        assert "PLAIN" in columns["turns"].encodings  # of the pages after a full dictionary
        deltas = {path for path, column in columns.items() if "DELTA" in str(column.encodings)}
        assert deltas == ({"id", "price", "long"} if pages == "v2" else set())
    where = "select count(*) n, sum(id) i, count(kind) k, count(distinct turns) t, sum(price) p, sum(o.x) x from iceberg.db.t"
    found, plain = spark(
        plane,
        where + " where day < date '1970-01-11'",
        "select id, kind, turns, cast(price as double) price, o.x x, l[0] new, l[1] again, long from iceberg.db.t order by id",
    )
    rows = [mixed(i) for i in range(6_000)]
    assert plain == [
        {
            "id": i,
            "kind": row["kind"],
            "turns": row["turns"],
            "price": i / 4,
            "x": i % 11,
            "new": f"new {i}",
            "again": "again",
            "long": long(i),
        }
        for i, row in enumerate(rows)
    ]
    early = [i for i in range(6_000) if i % 20 < 10]
    assert (found[0]["n"], found[0]["i"], found[0]["k"]) == (
        len(early), sum(early), sum(rows[i]["kind"] is not None for i in early),
    )  # fmt: skip
    assert found[0]["t"] == len({rows[i]["turns"] for i in early})


def test_spark_reads_a_table_whose_spec_and_format_changed(plane: Plane, topic: Callable[..., Topic]) -> None:
    plane.settings(partition_by=["bucket(id, 4)"])
    t = topic()
    t.send(*encode(*({"id": i, "kind": f"k{i % 3}"} for i in range(50))))
    plane.take(t)
    with plane.catalog.load_table("db.t").update_spec() as spec:
        spec.remove_field("id_bucket").add_field("kind", IdentityTransform(), "kind")
    with plane.catalog.load_table("db.t").transaction() as change:
        change.set_properties({"write.format.default": "orc"})
    t.send(*encode(*({"id": i, "kind": f"k{i % 3}"} for i in range(50, 100))))
    plane.take(t, {0: (50, 100)})
    totals, one, files = spark(
        plane,
        "select count(*) n, count(distinct id) d from iceberg.db.t",
        "select count(*) n from iceberg.db.t where kind = 'k1'",
        "select distinct spec_id, file_format from iceberg.db.t.files order by spec_id",
    )
    assert totals == [{"n": 100, "d": 100}]
    assert one == [{"n": 33}]
    assert files == [{"spec_id": 0, "file_format": "PARQUET"}, {"spec_id": 1, "file_format": "ORC"}]


def test_spark_reads_a_table_of_version_3_with_an_id_for_every_row(
    plane: Plane, topic: Callable[..., Topic], rest_uri: str
) -> None:
    plane.catalog = open_catalog("iceberg", {"type": "rest", "uri": rest_uri})
    plane.rules = TableRules(create_properties={"format-version": "3"})
    t = topic()
    for start in (0, 100, 200):
        t.send(*encode(*({"id": i} for i in range(start, start + 100))))
        plane.take(t, {0: (start, start + 100)})
    totals, rows, _gone = spark_on(
        rest_uri,
        "select count(*) n, count(distinct id) d, count(distinct _row_id) r from iceberg.db.t",
        "select _row_id r, _last_updated_sequence_number s from iceberg.db.t order by r",
        "delete from iceberg.db.t where id < 50",
    )
    assert totals == [{"n": 300, "d": 300, "r": 300}]
    assert [(row["r"], row["s"]) for row in rows] == [(i, 1 + i // 100) for i in range(300)]
    t.send(*encode(*({"id": i} for i in range(300, 310))))
    plane.take(t, {0: (300, 310)})
    (after,) = spark_on(rest_uri, "select count(*) n, count(distinct _row_id) r, max(id) h from iceberg.db.t")
    assert after == [{"n": 260, "r": 260, "h": 309}]
