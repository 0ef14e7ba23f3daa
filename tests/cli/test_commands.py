"""The commands as a user runs them, against a real broker and a real catalog."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message
from confluent_kafka import TopicPartition as KafkaPartition

from calving.iceberg.catalog import open_catalog
from calving.source.client import client_config
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.tasks.conftest import encode


@pytest.fixture
def cli(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = topic(partitions=2)
    made.send(*encode(*({"id": i} for i in range(100))))
    return Cli(tmp_path, made, unique)


def test_until_caught_up_commits_everything_and_ends(cli: Cli) -> None:
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 100
    cli.topic.send(*encode({"id": 100}), partition=1)
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 101


def test_a_terminal_shows_the_run_live_and_nothing_else_does(cli: Cli) -> None:
    text = on_a_terminal(cli.command("run", "--until-caught-up"))
    assert f"{cli.name}  running, leads  OK" in text
    assert "committed 100 in" in text and "100%" in text
    assert "INFO" not in text and "coordinating" not in text
    log = cli.run("run", "--until-caught-up")
    assert "coordinating" in log and "running, leads" not in log


def on_a_terminal(command: list[str]) -> str:
    """The text on the terminal, without the codes that move the cursor."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": "110", "LINES": "40", "TERM": "xterm"}
    env.pop("CALVING_LOG_LEVEL", None)
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # which is how its end is told
        while part := os.read(ours, 65_536):
            said += part
    os.close(ours)
    assert process.wait(timeout=240) == 0, said
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())


def test_status_is_shown_again_and_again_until_it_is_interrupted(cli: Cli) -> None:
    cli.run("run", "--until-caught-up")
    watching = subprocess.Popen(
        cli.command("status", "--json", "--watch", "0.5"),
        stdout=subprocess.PIPE,
        text=True,
        # A shell has what it runs in the background ignore Ctrl-C, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert watching.stdout is not None
    try:
        found = [json.loads(watching.stdout.readline()) for _ in range(2)]
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(timeout=180)
    assert [each["tables"][0]["records"] for each in found] == [100, 100]
    assert watching.returncode == 0


def test_a_missing_table_is_said_before_anything_is_read(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    empty = Cli(tmp_path, topic(), unique)
    empty.keys["iceberg.tables.auto-create-enabled"] = False
    assert "table db.t does not exist: create it, or set" in empty.run("run", "--until-caught-up", code=2)


def test_a_run_tells_at_its_end_what_each_stage_has_taken(cli: Cli) -> None:
    assert re.search(
        r"stopped after 100 records; stages, CPU seconds: .*decode [0-9]", cli.run("run", "--until-caught-up")
    )


def test_bad_records_become_dead_letters_and_replay_takes_them_once(cli: Cli) -> None:
    dead = f"dead-{cli.name}"
    cli.keys |= {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": dead}
    cli.run("run", "--until-caught-up")
    cli.topic.send(b'{"id":" 100"}', b"{", partition=1)
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 100
    letters = read_all(cli.topic.servers, dead)
    assert [letter.value() for letter in letters] == [b'{"id":" 100"}', b"{"]
    headers = cast("dict[str, bytes]", dict(letters[0].headers() or ()))
    assert headers["__connect.errors.topic"] == cli.topic.name.encode()
    assert (headers["__connect.errors.partition"], headers["__connect.errors.offset"]) == (b"1", b"0")
    assert b"is not a long" in headers["__connect.errors.exception.message"]
    cli.keys |= {
        "transforms": "trim",
        "transforms.trim.type": "Sql",
        "transforms.trim.query": "SELECT CAST(trim(CAST(id AS VARCHAR)) AS BIGINT) AS id FROM records",
    }
    assert "2 dead letters were read" in cli.run("replay")
    assert cli.rows() == 101
    assert len(read_all(cli.topic.servers, dead)) == 3
    cli.run("replay")
    assert cli.rows() == 101


def read_all(servers: str, topic: str) -> list[Message]:
    """The records of partition 0 that a reader of committed records sees."""
    consumer = Consumer(
        client_config(
            {"bootstrap.servers": servers},
            group_id="reader",
            isolation_level="read_committed",
            enable_partition_eof=True,
        )
    )
    consumer.assign([KafkaPartition(topic, 0, 0)])
    found: list[Message] = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(message)
    consumer.close()
    return found


def test_sigterm_stops_cleanly_and_leaves_nothing_behind(cli: Cli) -> None:
    worker = subprocess.Popen(cli.command("run"), stderr=subprocess.PIPE, text=True)
    assert worker.stderr is not None
    deadline = time.monotonic() + 60
    while "100 records" not in (line := worker.stderr.readline()):
        assert time.monotonic() < deadline and (line or worker.poll() is None)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(90) == 0
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 100


def test_validate_names_everything_that_is_in_order(cli: Cli) -> None:
    text = cli.run("validate")
    for part in ("configuration", cli.topic.name, "backend: kafka", "catalog", "table db.t: will be created"):
        assert part in text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("topics", "nothing-there", "topic 'nothing-there' does not exist"),
        ("iceberg.tables.auto-create-enabled", False, "table db.t does not exist"),
        ("iceberg.tables.default-partition-by", "weekly(ts)", "default-partition-by: 'weekly(ts)' is not understood"),
        ("iceberg.tabels", "x", "did you mean 'iceberg.tables'?"),
        ("kafka.security.protocol", "carrier-pigeon", "security.protocol"),
    ],
)
def test_validate_names_what_is_wrong_without_a_traceback(cli: Cli, key: str, value: object, message: str) -> None:
    cli.keys[key] = value
    text = cli.run("validate", code=2)
    assert message in text
    assert "Traceback" not in text


def test_status_and_offsets_show_positions_lag_and_the_table(cli: Cli) -> None:
    cli.run("run", "--until-caught-up")
    cli.topic.send(*encode({"id": 1}, {"id": 2}))
    assert [cell.strip() for cell in _row(cli.run("offsets"), "0")] == [cli.topic.name, "0", "100", "102", "2"]
    status = cli.run("status", code=3)  # records wait, and no worker runs
    assert [cell.strip() for cell in _row(status, "db.t")][:2] == ["db.t", "ok"]


def _row(text: str, cell: str) -> list[str]:
    rows = [line.strip("│┃ \n").split("│") for line in text.splitlines() if "│" in line]
    return next(row for row in rows if cell in [c.strip() for c in row])


def test_a_bad_record_stops_the_sink_with_its_place_and_nothing_is_lost(cli: Cli) -> None:
    cli.run("run", "--until-caught-up")
    cli.topic.send(b'{"id": "x"}')
    text = cli.run("run", "--until-caught-up", code=1)
    assert f"topic '{cli.topic.name}', partition 0, offset 100: table db.t: field 'id'" in text
    assert "Traceback" not in text
    assert cli.rows() == 100


def test_records_that_are_gone_stop_the_sink_unless_told_to_skip(cli: Cli) -> None:
    cli.run("run", "--until-caught-up")
    cli.topic.send(*encode(*({"id": i} for i in range(100, 110))))
    for future in cli.topic.admin.delete_records([KafkaPartition(cli.topic.name, 0, 105)]).values():
        future.result()
    text = cli.run("run", "--until-caught-up", code=1)
    assert "reading should continue at offset 100, but the broker has 105 to 110" in text
    cli.keys["iceberg.source.on-data-loss"] = "skip"
    assert "5 records were skipped, reading continues at offset 105" in cli.run("run", "--until-caught-up")
    assert cli.rows() == 105


def test_a_source_topic_that_was_recreated_is_not_taken_for_the_one_that_was_read(cli: Cli) -> None:
    """Also where it reaches farther than the stored position: what is below it would be missing silently."""
    cli.run("run", "--until-caught-up")
    topic = cli.topic
    topic.admin.delete_topics([topic.name])[topic.name].result()
    deadline = time.monotonic() + 120
    while topic.name in topic.admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
        time.sleep(0.2)
    second = Topic(topic.servers, topic.name, 1)
    second.send(*encode(*({"id": i} for i in range(1000, 1150))))
    text = cli.run("run", "--until-caught-up", code=1)
    assert f"topic '{topic.name}' was recreated after partition 0 was read up to offset 100" in " ".join(text.split())
    assert "held from there on are lost, if it had any" in " ".join(text.split())
    assert "Traceback" not in text
    cli.keys["iceberg.source.on-data-loss"] = "skip"
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 250
    cli.keys["iceberg.source.on-data-loss"] = "fail"
    second.send(*encode({"id": 1150}))
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 251


def test_lost_positions_are_not_taken_for_a_first_start_and_can_be_recovered(cli: Cli) -> None:
    cli.run("run", "--until-caught-up")
    cli.topic.admin.delete_consumer_groups([f"connect-{cli.name}"])[f"connect-{cli.name}"].result()
    text = cli.run("run", "--until-caught-up", code=1)
    assert "calving recover FILE" in text
    assert f"{cli.topic.name}-0: 100 (stored: nothing)" in cli.run("recover", "--dry-run")
    assert "calving recover FILE" in cli.run("run", "--until-caught-up", code=1)
    assert f"{cli.topic.name}-0: 100 (stored: nothing)" in cli.run("recover")
    group = ConsumerGroupTopicPartitions(f"connect-{cli.name}", [KafkaPartition(cli.topic.name, 0)])
    (stored,) = cli.topic.admin.list_consumer_group_offsets([group])[f"connect-{cli.name}"].result().topic_partitions
    assert stored.offset == 100
    cli.topic.send(*encode({"id": 100}))
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 101


def test_a_sink_taken_over_from_another_is_recovered_to_what_was_taken_over(cli: Cli) -> None:
    config = {"bootstrap.servers": cli.topic.servers, "group.id": f"connect-{cli.name}"}
    before = Consumer(client_config(config))
    before.commit(offsets=[KafkaPartition(cli.topic.name, 0, 60)], asynchronous=False)
    before.close()
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 40
    cli.topic.admin.delete_consumer_groups([f"connect-{cli.name}"])[f"connect-{cli.name}"].result()
    assert f"{cli.topic.name}-0: 100 (stored: nothing)" in cli.run("recover")
    cli.topic.send(*encode({"id": 100}))
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 41


def test_a_sink_that_nothing_is_known_of_cannot_be_recovered(cli: Cli) -> None:
    assert "there is nothing to recover, run the sink" in cli.run("recover", code=2)


def test_a_sink_that_runs_is_not_recovered(cli: Cli) -> None:
    cli.run("run", "--until-caught-up")
    config = {"bootstrap.servers": cli.topic.servers, "group.id": f"connect-{cli.name}"}
    member = Consumer(client_config(config))
    member.subscribe([cli.topic.name])
    deadline = time.monotonic() + 120
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.2)
    assert "has 1 member: stop all workers of the sink first" in cli.run("recover", code=1)
    member.close()


def test_files_of_a_table_that_was_recreated_stay_buffered_until_an_operator_lets_go(cli: Cli) -> None:
    cli.run("run", "--until-caught-up")
    catalog = open_catalog("iceberg", cli.catalog_keys)
    schema = catalog.load_table("db.t").schema()
    # A worker that is killed after it has published: its files are in the control log, and in no table.
    cli.topic.send(*encode(*({"id": i} for i in range(100, 110))))
    cli.run_until_killed("publish:after:1")
    catalog.drop_table("db.t")
    catalog.create_table("db.t", schema)
    record = cli.folder / "released.json"
    assert "discarded 1 file with 10 rows of table db.t; " in cli.run(
        "release", "--table", "db.t", "--record", str(record)
    )
    assert json.loads(record.read_text())["rows"] == 10
    cli.topic.send(*encode({"id": 110}))
    cli.run("run", "--until-caught-up")
    assert cli.rows() == 1


def test_the_version_is_printed_and_whether_records_are_read_and_decoded_by_rust(cli: Cli) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from calving.cli.main import main; main()", "version"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "CALVING_NATIVE": "0"},
    )
    off = "switched off by CALVING_NATIVE = 0"
    assert done.stdout.splitlines() == ["0.2.0.dev0", f"native decoders: {off}", f"native reader: {off}"]
