"""``calving audit`` over the tables of a real sink."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField

from calving.audit.table import TableAudit
from calving.cli.audit import AuditOrder, audit, whereabouts
from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.model.offsets import TopicPartition
from calving.settings.load import load
from harness.topic import Topic
from tests.audit.sabotage import Sabotage
from tests.cli.commands import Cli
from tests.cli.maintaining import steps
from tests.tasks.conftest import encode


@pytest.fixture
def cli(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = Cli(tmp_path, topic(), unique)
    for start in (0, 100, 200):
        made.send(start, start + 100)
        made.run_here()
    return made


def test_the_tables_of_a_sink_are_sound_and_its_snapshots_have_taken_all_offsets(cli: Cli) -> None:
    (found,) = audit(load(cli.config), AuditOrder(sample=10))
    assert (found.table, found.rows, found.snapshots, found.contents, found.findings) == ("db.t", 300, 3, 3, [])
    (line,) = found.lines
    taken = [ranges for each in line.taken for ranges in each.offsets.values()]
    assert taken == [((0, 100),), ((100, 200),), ((200, 300),)]


def test_a_table_is_sound_that_lacks_what_came_before_the_sinks_first_start(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    cli = Cli(tmp_path, topic(), unique)
    cli.keys["iceberg.source.start"] = "latest"
    cli.send(0, 50)
    cli.run_here()
    cli.send(50, 80)
    cli.run_here()
    (found,) = audit(load(cli.config), AuditOrder(full=True))
    assert (found.rows, found.findings) == (30, [])


def test_a_table_is_sound_after_a_compaction(cli: Cli) -> None:
    cli.keys["iceberg.maintenance.small-files"] = 2
    assert [*steps(load(cli.config), tasks=["compact"])]
    (found,) = audit(load(cli.config), AuditOrder(sample=10))
    assert (found.rows, found.findings) == (300, [])


def test_the_exit_code_says_whether_something_is_wrong(cli: Cli) -> None:
    assert "table db.t: sound; 3 snapshots" in cli.run("audit")
    table = open_catalog("iceberg", cli.catalog_keys).load_table("db.t")
    Sabotage(table).change_summary("total-records", lambda said: "7")
    said = json.loads(cli.run("audit", "--json", code=1))
    assert [each["kind"] for each in said["findings"]] == ["snapshot"]


def test_the_snapshot_and_the_file_of_a_record_are_named(cli: Cli) -> None:
    table = open_catalog("iceberg", cli.catalog_keys).load_table("db.t")
    (found,) = whereabouts(load(cli.config), AuditOrder(), TopicPartition(cli.topic.name, 0), 150)
    assert found.snapshot.id == table.metadata.snapshots[1].snapshot_id
    (path,) = found.files
    rows = table.scan(row_filter="id = 150").plan_files()
    assert path in [task.file.file_path for task in rows]


def test_a_record_that_no_table_has_taken_is_said_so(cli: Cli) -> None:
    assert "no table has taken" in cli.run("audit", "--offset", f"{cli.topic.name}:0=300", code=1)


def test_an_older_snapshot_is_judged_as_the_head(cli: Cli) -> None:
    table = open_catalog("iceberg", cli.catalog_keys).load_table("db.t")
    first = table.metadata.snapshots[0].snapshot_id
    (found,) = audit(load(cli.config), AuditOrder(["db.t"], first))
    assert (found.rows, found.snapshots) == (100, 1)


def full(cli: Cli, at: int | None = None) -> TableAudit:
    (found,) = audit(load(cli.config), AuditOrder(["db.t"], at, full=True))
    return found


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_the_rows_of_a_table_are_compared_with_the_records_of_its_topic(cli: Cli, file_format: str) -> None:
    cli.keys["iceberg.tables.write-props.write.format.default"] = file_format
    odd = {
        "id": 300,
        "text": "\u00e4 \U0001f600",
        "on": True,
        "part": 0.1,
        "in": {"a": [1, 2, None], "b": {"c": "d"}},
        "far": -(2**62),
    }
    cli.topic.send(*encode(odd, odd | {"id": 301, "in": None}), None)
    cli.keys["iceberg.tables.evolve-schema-enabled"] = True
    cli.run_here()
    found = full(cli)
    assert found.findings == []
    assert found.notes[0].startswith(
        "compared with the topics: of 303 records 302 make a row of it, 0 are bad, 1 filtered"
    )


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_rows_of_a_column_that_was_widened_to_double_have_the_digits_of_then(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, file_format: str
) -> None:
    cli = Cli(tmp_path, topic(), unique)
    catalog = open_catalog("iceberg", cli.catalog_keys)
    catalog.create_namespace("db")
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, "part", FloatType(), required=False)
    )
    table = catalog.create_table("db.t", schema, properties={"write.format.default": file_format})
    cli.topic.send(*encode({"id": 1, "part": 0.1}))
    cli.run_here()
    with table.refresh().update_schema() as change:
        change.update_column("part", DoubleType())
    cli.topic.send(*encode({"id": 2, "part": 0.1}))
    cli.run_here()
    assert full(cli).findings == []


def test_a_value_that_was_changed_within_the_bounds_of_its_file_is_found(cli: Cli) -> None:
    table = open_catalog("iceberg", cli.catalog_keys).load_table("db.t")
    Sabotage(table).change_rows(lambda rows: [*rows[:5], rows[5] | {"id": rows[6]["id"]}, *rows[6:]])
    assert not next(audit(load(cli.config), AuditOrder(sample=10))).findings
    found = full(cli)
    assert [each.kind for each in found.findings] == ["records", "records"]
    assert "the rows of offsets" in found.findings[0].text and "of no record" in found.findings[1].text


def test_an_older_snapshot_is_compared_with_the_records_that_it_has_taken(cli: Cli) -> None:
    table = open_catalog("iceberg", cli.catalog_keys).load_table("db.t")
    found = full(cli, table.metadata.snapshots[1].snapshot_id)
    assert found.findings == [] and "of 200 records 200 make a row" in found.notes[0]


def test_after_a_compaction_the_rows_are_still_those_of_the_records(cli: Cli) -> None:
    cli.keys["iceberg.maintenance.small-files"] = 2
    assert [*steps(load(cli.config), tasks=["compact"])]
    found = full(cli)
    assert found.findings == [] and "of 300 records 300 make a row" in found.notes[0]


def test_records_that_a_topic_has_deleted_are_said_not_to_be_compared(cli: Cli) -> None:
    gone = [KafkaPartition(cli.topic.name, 0, 150)]
    for each in cli.topic.admin.delete_records(gone).values():
        each.result()
    found = full(cli)
    assert found.findings == []
    assert any("offsets 0 to 150" in note for note in found.notes)


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (AuditOrder(["db.other"]), "--table db.other: there is no such table"),
        (AuditOrder(["db.t"], 7), "--at 7: table db.t has no such snapshot"),
        (AuditOrder(at=7), "--at names a snapshot of one table"),
    ],
)
def test_what_is_not_there_is_refused(cli: Cli, order: AuditOrder, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        list(audit(load(cli.config), order))
