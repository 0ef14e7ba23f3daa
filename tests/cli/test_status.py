"""``calving status`` tells from outside what is wrong with a sink, and changes nothing in it."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.cli.health import TableHealth, health
from calving.iceberg.catalog import open_catalog
from calving.model.events import (
    Attachment,
    CommitComplete,
    DataComplete,
    Envelope,
    Event,
    Parked,
    PartitionProgress,
    StartCommit,
    TableId,
)
from calving.model.offsets import TopicPartition
from calving.runtime.log_view import ControlLogView, hear
from calving.services.process import Process
from calving.settings.load import load
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli


@pytest.fixture
def cli(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = Cli(tmp_path, topic(), unique)
    made.keys |= {"iceberg.control.commit.timeout-ms": 3000}
    made.send(0, 100)
    made.run_here()
    return made


@contextlib.contextmanager
def running(cli: Cli) -> Iterator[Process]:
    worker = Process(cli.command("run"), cli.folder / "worker.log", {"CALVING_LOG_LEVEL": "INFO"})
    try:
        yield worker
    finally:
        worker.stop()


def table_of(cli: Cli) -> TableHealth:
    sink = load(cli.config)
    session = sink.backend(sink.identity, sink.backend_settings).open("looking")
    try:
        (found,) = health(sink, open_catalog("iceberg", cli.catalog_keys), hear(session), [cli.topic.name])
    finally:
        session.close()
    return found


def test_a_sink_that_is_well_has_committed_all_that_it_published(cli: Cli) -> None:
    found = table_of(cli)
    assert (found.state, found.records, found.files, found.missing) == ("ok", 100, 0, {})
    assert "answered" in cli.run("status")
    text = cli.run("status", "--json")
    told = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    assert (told["health"], told["reasons"], told["workers"]) == ("OK", [], 0)
    assert told["leader"] is None
    (partition,), (table,) = told["partitions"], told["tables"]
    assert (partition["stored"], partition["source_lag"], partition["commit_lag"]) == (100, 0, 0)
    assert (table["records"], table["buffered_files"]) == (100, 0)
    assert 0 < table["seconds_since_commit"] < 120


def test_what_was_published_and_not_committed_is_seen_to_wait(cli: Cli) -> None:
    cli.send(100, 110)
    cli.publish_without_commit()
    found = table_of(cli)
    assert (found.state, found.records, found.files) == ("waiting", 100, 1)
    assert "no worker runs, and 10 records wait" in cli.run("status", code=3)


def test_a_table_that_takes_nothing_is_degraded_and_its_running_sink_is_left_alone(cli: Cli) -> None:
    cli.send(100, 110)
    cli.publish_without_commit()
    catalog = open_catalog("iceberg", cli.catalog_keys)
    schema = catalog.load_table("db.t").schema()
    catalog.drop_table("db.t")
    catalog.create_table("db.t", schema)
    with running(cli) as worker:
        wait_for(lambda: table_of(cli).state == "DEGRADED")
        found = table_of(cli)
        assert found.cycles >= 3 and found.files == 1 and found.committed_at is None
        assert "DEGRADED: table db.t: 1 file for " in cli.run("status", code=3)
        assert "steps down" not in worker.log.read_text()


def test_the_leader_of_a_sink_that_runs_is_named_with_its_address(cli: Cli) -> None:
    cli.keys["iceberg.http.port"] = 0
    with running(cli) as worker:
        wait_for(lambda: "commit" in worker.log.read_text())
        told = json.loads(next(line for line in cli.run("status", "--json").splitlines() if line.startswith("{")))
        text = cli.run("status")
    leader = told["leader"]
    assert told["workers"] == 1 and leader["host"] == socket.gethostname()
    assert f"1 worker runs; {leader['member']} on {leader['host']} ({leader['url']}) leads" in text
    assert leader["url"].startswith("http://127.0.0.1:")


def test_how_long_the_last_commit_of_changed_rows_took_is_told_while_the_worker_that_made_it_runs(cli: Cli) -> None:
    cli.keys |= {
        "iceberg.http.port": 0,
        "iceberg.tables.upsert-mode-enabled": True,
        "iceberg.tables.default-id-columns": "id",
    }
    with running(cli) as worker:
        cli.send(0, 10)
        wait_for(lambda: "10 rows superseded" in worker.log.read_text())
        wait_for(lambda: "the time of commit is not known" not in cli.run("status"))
        (row,) = re.findall("db.t .* ms .*", cli.run("status"))
        told = json.loads(next(line for line in cli.run("status", "--json").splitlines() if line.startswith("{")))
    assert re.search(r"(│ \d+ ms +){4}│$", row)
    assert told["tables"][0]["mutations"]["commit-ms"] >= 0
    wait_for(lambda: "no worker runs" in cli.run("status"))
    text = cli.run("status")
    assert (
        "the time of commit is not known for db.t: only the leader's status server tells it, and no worker runs" in text
    )
    assert re.search(r"(│ \d+ ms +){3}│ - +│$", text, re.MULTILINE)


def test_what_is_parked_is_told(cli: Cli) -> None:
    sink = load(cli.config)
    session = sink.backend(sink.identity, sink.backend_settings).open("coordinator")
    cursor = session.follow(replay=True)
    parked: dict[TableId, Parked] = {("db", "t"): Parked("file:///nowhere/calving-parked-1.json.z", 1234, {})}
    cursor.acknowledge(cursor.log.start, [CommitComplete(uuid4())], Attachment(parked=parked))
    cursor.close()
    session.close()
    found = table_of(cli)
    assert (found.state, found.files, found.parked) == ("DEGRADED", 0, 1234)
    assert re.search("DEGRADED.*1234", cli.run("status", code=3))


def test_offsets_that_two_commits_have_passed_over_are_an_alarm(cli: Cli) -> None:
    cli.send(100, 110)
    cli.publish_without_commit()
    control = f"control-{cli.name}"
    everything = [KafkaPartition(control, 0, -1)]
    cli.topic.admin.delete_records(everything)[everything[0]].result()
    cli.keys["iceberg.control.on-truncation"] = "continue"
    for first in (110, 120, 130):
        cli.send(first, first + 10)
        cli.run_here()
    found = table_of(cli)
    assert found.state == "DEGRADED"
    (spans,) = found.missing.values()
    assert [(span.start, span.end) for span in spans] == [(100, 110)]
    text = cli.run("status", code=3)
    assert "100" in text and "DEGRADED" in text


def test_a_partition_that_the_last_cycle_had_no_answer_for_is_told() -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    heard = ControlLogView("log", {0: 0})
    assert heard.answered(one) is None
    commit = uuid4()
    events: list[Event] = [StartCommit(commit), DataComplete(commit, (PartitionProgress(one),)), CommitComplete(commit)]
    for offset, event in enumerate(events):
        heard.hear(Envelope(0, offset, event))
    answered = {tp: heard.answered(tp) for tp in (one, two)}
    assert answered == {one: True, two: False}


def test_a_sink_that_was_killed_while_records_wait_is_not_well(cli: Cli) -> None:
    cli.send(100, 150)
    text = cli.run("status", code=3)
    assert "DEGRADED: no worker runs, and 50 records wait" in text
    assert re.search(r"50 records are not visible yet; the oldest was produced [\d.]+ s ago", text)
    cli.run_here()
    assert "all records are visible" in cli.run("status")


def test_lag_counts_records_behind_an_open_transaction_and_a_run_that_ends_names_them(cli: Cli) -> None:
    producer = Producer({"bootstrap.servers": cli.topic.servers, "transactional.id": f"open-{cli.name}"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(cli.topic.name, b'{"id": 1}', partition=0)
    producer.flush(10)
    cli.send(100, 150)
    log = cli.run("run", "--until-caught-up")
    assert f"{cli.topic.name}-0: 51 records are behind an open transaction of a producer, and not read" in log
    text = cli.run("status", "--json", code=3)
    told = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    (partition,) = told["partitions"]
    assert (partition["source_lag"], partition["hidden"], told["not_visible"]) == (51, 51, 51)
    producer.abort_transaction(10)
    cli.run_here()
    cli.run("status")


def test_the_speed_of_a_sink_is_known_after_two_publications_and_not_before(cli: Cli) -> None:
    def progress() -> dict[str, float | None]:
        text = cli.run("status", "--json")
        told = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
        assert isinstance(told["progress"], dict)
        return told["progress"]

    assert progress() == {"remaining": 0, "share": 1.0, "rate": None, "seconds_left": None}
    for first in (100, 110):
        cli.send(first, first + 10)
        cli.run_here()
    rate = progress()["rate"]
    assert rate is not None and 0 < rate < 1_000
