"""Whole batches: creation, evolution, routing, partitions, bounds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.types import DoubleType, ListType, LongType, StringType, StructType

from calving.errors import FATAL, BadRecordError, ConfigError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules, TableSettings
from calving.model.record_path import Evolution, Limits, RouteRule, Routing
from calving.writing.table import TableWriter
from harness.topic import Topic
from tests.tasks.conftest import Plane, encode

Fill = Callable[..., Topic]


def test_a_missing_table_is_created_from_what_its_records_hold(plane: Plane, fill: Fill) -> None:
    plane.take(fill({"id": 1, "o": {"x": 1}}, {"id": 2.5, "o": {"y": ["a"]}, "none": None}))
    schema = plane.catalog.load_table("db.t").schema()
    assert isinstance(schema.find_type("id"), DoubleType)
    assert isinstance(schema.find_type("o"), StructType)
    assert isinstance(schema.find_type("o.y"), ListType)
    assert "none" not in schema.column_names
    assert plane.rows()["id"].to_pylist() == [1.0, 2.5]


def test_namespaces_are_created_level_by_level(plane: Plane, fill: Fill) -> None:
    plane.routing = Routing((RouteRule("a.b.c.t"),))
    plane.take(fill({"id": 1}))
    assert len(plane.rows("a.b.c.t")) == 1


def test_a_table_is_created_where_and_how_its_keys_say(plane: Plane, fill: Fill, tmp_path: Path) -> None:
    where = f"file://{tmp_path}/elsewhere"
    plane.rules = TableRules(
        create_properties={"format-version": "1", "owner": "me"}, tables={"db.t": TableSettings(location=where)}
    )
    plane.take(fill({"id": 1}))
    metadata = plane.catalog.load_table("db.t").metadata
    assert (metadata.location, metadata.format_version, metadata.properties["owner"]) == (where, 1, "me")
    assert plane.rows()["id"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("properties", "where"),
    [
        ({"write.data.path": "{}/far"}, r"/far/id=1/[^/]*\.parquet"),
        ({"write.object-storage.enabled": "true"}, r"/data/[01]{4}/[01]{4}/[01]{4}/[01]{8}/id=1/[^/]*\.parquet"),
    ],
)
def test_files_lie_where_the_tables_location_provider_puts_them(
    plane: Plane, fill: Fill, tmp_path: Path, properties: dict[str, str], where: str
) -> None:
    plane.rules = TableRules(
        create_properties={name: value.format(tmp_path.as_uri()) for name, value in properties.items()},
        defaults=TableSettings(("id",)),
    )
    plane.take(fill({"id": 1}))
    (task,) = plane.catalog.load_table("db.t").scan().plan_files()
    assert re.search(f"{where}$", task.file.file_path), task.file.file_path
    assert plane.rows()["id"].to_pylist() == [1]


def test_a_format_version_that_cannot_be_written_is_refused_before_the_table_is_made(plane: Plane, fill: Fill) -> None:
    plane.rules = TableRules(create_properties={"format-version": "4"})
    with pytest.raises(ConfigError, match="format-version: format version 4 is not known, only 1 to 3"):
        plane.take(fill({"id": 1}))
    assert not plane.catalog.table_exists("db.t")


def test_tables_of_a_rest_catalog_are_written(plane: Plane, fill: Fill, rest_uri: str) -> None:
    plane.catalog = open_catalog("iceberg", {"type": "rest", "uri": rest_uri})
    plane.routing = Routing((RouteRule(f"rest.{uuid4().hex}"),))
    plane.take(fill({"id": 1}, {"id": 2}))
    plane.take(fill({"id": 3, "new": "x"}))
    assert sorted(plane.rows(plane.routing.rules[0].table)["id"].to_pylist()) == [1, 2, 3]


def test_text_that_looks_like_a_date_stays_text(plane: Plane, fill: Fill) -> None:
    plane.take(fill({"d": "2024-01-02", "t": "2024-01-02T03:04:05Z"}))
    schema = plane.catalog.load_table("db.t").schema()
    assert isinstance(schema.find_type("d"), StringType)
    assert plane.rows()["t"].to_pylist() == ["2024-01-02T03:04:05Z"]


def test_a_table_grows_by_what_new_records_need_in_one_update(plane: Plane, fill: Fill) -> None:
    plane.take(fill({"id": 1, "o": {"x": 1}}))
    before = plane.catalog.load_table("db.t").metadata.current_schema_id
    plane.take(fill({"id": 2, "new": "a", "o": {"y": True}}, {"id": 3, "other": [1.5]}))
    table = plane.catalog.load_table("db.t")
    assert table.metadata.current_schema_id == before + 1
    assert {"new", "o.y", "other"} <= set(table.schema().column_names)
    assert sorted(plane.rows()["id"].to_pylist()) == [1, 2, 3]


def test_without_evolution_unknown_fields_are_left_out(plane: Plane, fill: Fill) -> None:
    plane.take(fill({"id": 1}))
    plane.evolution = Evolution()
    plane.take(fill({"id": 2, "new": "a"}))
    assert plane.rows().column_names == ["id"]


def test_a_missing_table_without_creation_is_an_error_that_says_what_to_do(plane: Plane, fill: Fill) -> None:
    plane.evolution = Evolution()
    with pytest.raises(BadRecordError, match=r"table db\.t does not exist: create it, or set"):
        plane.read(fill({"id": 1}))


def test_a_bad_record_is_named_and_nothing_is_written(plane: Plane, fill: Fill) -> None:
    plane.take(fill({"id": 1}))
    topic = fill({"id": 2}, {"id": "x"}, {"id": 3})
    with pytest.raises(BadRecordError, match=rf"topic '{topic.name}', partition 0, offset 1: table db.t: field 'id'"):
        plane.read(topic)
    files = list((plane.folder / "warehouse" / "db" / "t" / "data").rglob("*.parquet"))
    assert len(files) == 1


def test_rows_that_are_missing_in_the_files_stop_the_sink(
    plane: Plane, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TableWriter, "close", lambda _: [])
    with pytest.raises(FATAL, match=r"table db\.t: 2 rows were handed over, its files hold 0"):
        plane.take(fill({"id": 1}, {"id": 2}))


def test_tombstones_are_counted(plane: Plane, fill: Fill) -> None:
    topic = fill({"id": 1})
    topic.send(None, None)
    outcome = plane.take(topic)
    assert outcome.records == 3
    assert len(plane.rows()) == 1


def test_static_routes_match_in_full_and_a_record_may_go_to_several_tables(plane: Plane, fill: Fill) -> None:
    rules = (RouteRule("db.a", "a.*"), RouteRule("db.b", ".*b"), RouteRule("db.never"))
    plane.routing = Routing(rules, "kind", unrouted="skip")
    plane.take(fill({"kind": "a1"}, {"kind": "ab"}, {"kind": "b"}, {"kind": "xa"}, {"other": 1}))
    assert plane.rows("db.a")["kind"].to_pylist() == ["a1", "ab"]
    assert plane.rows("db.b")["kind"].to_pylist() == ["ab", "b"]


def test_a_record_that_no_route_takes_is_an_error_unless_skipped(plane: Plane, fill: Fill) -> None:
    plane.routing = Routing((RouteRule("db.a", "a"),), "kind", unrouted="fail")
    with pytest.raises(BadRecordError, match="offset 1: no route takes its 'kind'"):
        plane.read(fill({"kind": "a"}, {"kind": "b"}))


def test_dynamic_routing_takes_the_table_from_the_record_in_lower_case(plane: Plane, fill: Fill) -> None:
    plane.routing = Routing(field="to.table", dynamic=True)
    plane.take(fill({"to": {"table": "DB.One"}}, {"to": {"table": "db.two"}}))
    assert len(plane.rows("db.one")) == len(plane.rows("db.two")) == 1


def test_epoch_and_iso_timestamps_go_into_one_column(plane: Plane, fill: Fill) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField, TimestamptzType

    plane.catalog.create_namespace("db")
    plane.catalog.create_table("db.t", Schema(NestedField(1, "ts", TimestamptzType(), required=False)))
    plane.take(fill({"ts": 1704164645678}, {"ts": "2024-01-02T03:04:05.678Z"}, {"ts": "2024-01-02T03:04:05.678"}))
    assert len(set(plane.rows()["ts"].to_pylist())) == 1


TERMS = {
    "kind": [("x", 2), ("y", 2)],
    "bucket(kind, 4)": None,
    "truncate(kind, 1)": [("x", 2), ("y", 2)],
    "year(ts)": None,
    "month(ts)": None,
    "days(ts)": None,
    "hour(ts)": None,
    "bucket(id, 3)": None,
    "truncate(id, 10)": None,
    "day": None,
    "amount": None,
}


@pytest.mark.parametrize("term", TERMS)
def test_every_partition_transform_puts_rows_where_a_filter_finds_them(plane: Plane, fill: Fill, term: str) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DateType, DecimalType, NestedField, TimestamptzType

    from calving.writing.schemas import partition_spec

    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "kind", StringType(), required=False),
        NestedField(3, "ts", TimestamptzType(), required=False),
        NestedField(4, "day", DateType(), required=False),
        NestedField(5, "amount", DecimalType(9, 2), required=False),
    )
    plane.catalog.create_namespace("db")
    plane.catalog.create_table("db.t", schema, partition_spec=partition_spec([term], schema, "db.t"))
    records = [
        {"id": i, "kind": "xy"[i % 2], "ts": 1704164645678 + i * 10**9, "day": f"2024-01-0{1 + i % 3}", "amount": i}
        for i in range(-3, 20)
    ]
    plane.take(fill(*records, {"id": None}))
    table = plane.catalog.load_table("db.t")
    assert len(plane.rows()) == 24
    for record in records:
        found = table.scan(row_filter=f"id == {record['id']} and kind == '{record['kind']}'").to_arrow()
        assert found["id"].to_pylist() == [record["id"]]


@pytest.mark.parametrize(
    ("term", "error"),
    [
        ("weekly(ts)", ConfigError),
        ("bucket(id)", ConfigError),
        ("identity(id)", ConfigError),
        ("day(nothing)", BadRecordError),
        ("day(done)", BadRecordError),
    ],
)
def test_a_wrong_partition_term_is_an_error_not_an_unpartitioned_table(
    plane: Plane, fill: Fill, term: str, error: type[Exception]
) -> None:
    plane.rules = TableRules(defaults=TableSettings((term,)))
    with pytest.raises(error, match="partition-by"):
        plane.read(fill({"id": 1, "done": True}))


def test_id_columns_become_identifier_fields(plane: Plane, fill: Fill) -> None:
    plane.rules = TableRules(defaults=TableSettings((), ("id",)))
    plane.take(fill({"id": 1, "x": 2}))
    schema = plane.catalog.load_table("db.t").schema()
    assert schema.identifier_field_names() == {"id"}
    assert schema.find_field("id").required


def test_two_thousand_partitions_fit_into_one_batch(plane: Plane, topic: Callable[..., Topic]) -> None:
    plane.rules = TableRules(defaults=TableSettings(("p",)))
    t = topic()
    t.send(*encode(*({"id": i, "p": i % 2000} for i in range(6000))))
    outcome = plane.take(t)
    ((files,),) = outcome.written.values()
    assert len(files.data_files) == 2000
    assert len(plane.rows()) == 6000


_MEASURE = """
import resource, sys
from pathlib import Path
from uuid import uuid4
from calving.model.record_path import Limits, Routing
from harness.topic import Topic
from tests.tasks.conftest import Plane

class Existing(Topic):
    def __init__(self, servers, name): self.servers, self.name = servers, name

plane = Plane(Path(sys.argv[3]))
topic = Existing(sys.argv[1], sys.argv[2])
plane.limits = Limits(block_records=1000, buffered_bytes=1_000_000)
end, warm = int(sys.argv[4]), int(sys.argv[5])
if len(sys.argv) > 6:
    plane.routing = Routing((), sys.argv[6], dynamic=True)
plane.take(topic, {0: (0, warm)})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outcome = plane.take(topic, {0: (warm, end)})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
print(sum(f.record_count for (files,) in outcome.written.values() for f in files.data_files), len(outcome.written))
"""


def measure(topic: Topic, folder: Path, *arguments: object) -> tuple[float, int, int]:
    """MiB that a batch took beyond a first one, the records that it wrote, and their tables."""
    command = [sys.executable, "-c", _MEASURE, topic.servers, topic.name, str(folder), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    grown, records, tables = done.stdout.split()
    return float(grown), int(records), int(tables)


def test_a_backlog_fifty_times_larger_than_a_task_may_hold_is_read_in_bounded_memory(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    """A task may hold about 1 MB of rows here; the backlog is 60 MB of them."""
    t = topic()
    value = json.dumps({"id": 1, "payload": "x" * 500}).encode()
    t.send(*[value] * 110_000)
    grown, records, _ = measure(t, tmp_path, 110_000, 100)
    assert grown < 100, f"{grown} MiB"
    assert records == 109_900


def test_three_hundred_tables_in_one_sink_are_written_in_bounded_memory(
    topic: Callable[..., Topic], tmp_path: Path
) -> None:
    """A task may hold about 1 MB of rows here; the batch is 60 MB of them, of 300 tables in turn."""
    t = topic()
    values = [json.dumps({"id": i, "table": f"db.t{i % 300}", "payload": "x" * 4800}).encode() for i in range(12_600)]
    t.send(*values)
    grown, records, tables = measure(t, tmp_path, 12_600, 300, "table")
    assert (records, tables) == (12_300, 300)
    assert grown < 150, f"{grown} MiB"


def test_files_are_rolled_at_the_target_size(plane: Plane, topic: Callable[..., Topic]) -> None:
    import random

    plane.rules = TableRules(
        write_properties={"write.target-file-size-bytes": "1000000", "write.parquet.row-group-size-bytes": "500000"}
    )
    plane.limits = Limits(block_records=500)
    letters = random.Random(1)
    t = topic()
    t.send(*encode(*({"id": i, "p": "".join(letters.choices("abcdefgh", k=2000))} for i in range(8000))))
    outcome = plane.take(t)
    ((files,),) = outcome.written.values()
    assert len(files.data_files) > 2
    assert len(plane.rows()) == 8000
