"""`calving takeover` in places that a Java sink could have left, without the Java sink."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from typer.testing import CliRunner, Result

from calving.cli.main import app
from calving.cli.takeover import takeover
from calving.errors import ConfigError, UnavailableError
from calving.iceberg.catalog import open_catalog
from calving.protocol.takeover import TakeoverVerdict
from calving.settings.load import load
from calving.source.client import client_config
from calving.source.members import members
from harness.topic import Topic
from tests.cli.commands import Cli

TABULAR = "io.tabular.iceberg.connect.IcebergSinkConnector"


@pytest.fixture
def cli(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    found = Cli(tmp_path, topic(), unique)
    found.send(0, 100)
    return found


def look(cli: Cli) -> TakeoverVerdict:
    return takeover(load(cli.config))


def store(cli: Cli, positions: Mapping[str, int]) -> None:
    """Positions of partition 0, by group."""
    for group, offset in positions.items():
        consumer = Consumer(client_config({"bootstrap.servers": cli.topic.servers}, group_id=group))
        consumer.commit(offsets=[KafkaPartition(cli.topic.name, 0, offset)], asynchronous=False)
        consumer.close()


def test_positions_in_tabulars_control_group_are_taken_over_and_not_their_copy(cli: Cli) -> None:
    cli.keys["connector.class"] = TABULAR
    store(cli, {f"cg-control-{cli.name}": 60, f"connect-{cli.name}": 40})
    found = look(cli)
    assert found.refusals == ()
    assert found.happens[0].startswith(f"positions are those of group cg-control-{cli.name}")
    cli.run_here()
    assert sorted(cli.ids()) == list(range(60, 100))


def test_a_running_connector_of_tabular_is_refused_and_so_is_the_start(cli: Cli) -> None:
    cli.keys["connector.class"] = TABULAR
    group = f"connect-{cli.name}"
    consumer = Consumer(client_config({"bootstrap.servers": cli.topic.servers}, group_id=group))
    consumer.subscribe([cli.topic.name])
    try:
        deadline = time.monotonic() + 120
        while not members(load(cli.config).kafka, group):
            assert time.monotonic() < deadline
            consumer.poll(0.2)
        (refusal,) = look(cli).refusals
        assert f"Tabular's sink runs: group {group} has 1 member" in refusal
        cli.refused(refusal)
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ("connector-consumer-java-0", "1 task of the Java sink"),
        ("orders", "1 task of the Java sink (taken for such by a client id that is not calving's: orders)"),
    ],
)
def test_a_running_java_sink_is_refused_where_records_change_rows_and_so_is_the_start(
    cli: Cli, client: str, said: str
) -> None:
    cli.keys |= {"iceberg.tables.default-id-columns": "id", "iceberg.tables.upsert-mode-enabled": "true"}
    # The connector's file names the client of its tasks, and calving reads that key, too.
    cli.keys["consumer.override.client.id"] = "orders"
    group = load(cli.config).group
    task = client_config({"bootstrap.servers": cli.topic.servers, "client.id": client}, group_id=group)
    consumer = Consumer(task)
    consumer.subscribe([cli.topic.name])
    try:
        deadline = time.monotonic() + 120
        while not members(load(cli.config).kafka, group):
            assert time.monotonic() < deadline
            consumer.poll(0.2)
        refusal = f"{said} runs in group {group}, and a fleet that changes rows may have none"
        assert any(refusal in each for each in look(cli).refusals)
        cli.refused(refusal)
    finally:
        consumer.close()


def test_a_transaction_that_a_killed_task_left_open_is_waited_for_and_then_named(cli: Cli) -> None:
    cli.run_here()  # which makes the control topic
    control = load(cli.config).keys.control_topic
    task = Producer(client_config({"bootstrap.servers": cli.topic.servers, "transactional.id": f"{cli.name}-task"}))
    task.init_transactions(10)
    task.begin_transaction()
    task.produce(control, b"files of a task that was killed before the end of its transaction")
    task.flush(10)
    with pytest.raises(UnavailableError, match=f"an open transaction hides the end of the control topic.*{control}-0"):
        look(cli)
    task.abort_transaction()
    assert look(cli).refusals == ()


def test_commits_of_the_java_sink_without_stored_positions_are_refused_and_so_is_the_start(cli: Cli) -> None:
    cli.run_here()  # which makes the control topic
    catalog = open_catalog("iceberg", cli.catalog_keys)
    catalog.drop_table("db.t")
    rows = pa.table({"id": pa.array(range(100), pa.int64())})
    cli.keys["name"] = other = f"{cli.name}-java"
    offsets = {f"kafka.connect.offsets.control-{cli.name}.connect-{other}": '{"0":0}'}
    catalog.create_table("db.t", rows.schema).append(rows, snapshot_properties=offsets)
    (refusal,) = look(cli).refusals
    assert "the Java sink has committed to table db.t" in refusal
    cli.refused(refusal)
    assert len(cli.ids()) == 100


def test_the_command_writes_nothing_and_its_exit_code_says_whether_to_start(cli: Cli) -> None:
    def run() -> Result:
        return CliRunner().invoke(app, ["takeover", str(cli.config)])

    first = run()
    assert (first.exit_code, "this is a first start" in first.stdout) == (0, True)
    assert open_catalog("iceberg", cli.catalog_keys).list_namespaces() == []
    cli.keys["iceberg.tables.auto-create-enabled"] = False
    second = run()
    assert (second.exit_code, "refused: table db.t does not exist" in second.stdout) == (1, True)


def test_only_the_kafka_backend_takes_over(cli: Cli) -> None:
    cli.keys |= {"iceberg.control.backend": "redis", "iceberg.control.redis.url": "redis://127.0.0.1:1"}
    with pytest.raises(ConfigError, match="only the Kafka backend"):
        look(cli)


@pytest.mark.parametrize("routed", [True, False])
def test_a_table_that_cannot_be_loaded_hides_no_other(cli: Cli, routed: bool) -> None:
    cli.run_here()
    catalog = open_catalog("iceberg", cli.catalog_keys)
    table = catalog.load_table("db.t")
    catalog.create_table("db.broken", table.schema(), properties=table.properties)
    (cli.folder / "warehouse" / "db" / "broken" / "metadata").rename(cli.folder / "away")
    cli.keys |= {
        "iceberg.tables": "" if routed else "db.broken,db.t",
        "iceberg.tables.dynamic-enabled": routed,
        **({"iceberg.tables.route-field": "to"} if routed else {}),
    }
    found = look(cli)
    (refusal,) = found.refusals
    assert refusal.startswith("table db.broken cannot be loaded: ")
    assert any("db.t" in line for line in found.happens)
