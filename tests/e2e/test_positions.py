"""``calving offsets --to`` and ``--by``: positions that an operator moves, on each backend."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from pyiceberg.table import Table

from calving.cli.status import status
from calving.errors import CommandFailedError, ConfigError, DataLossError
from calving.iceberg.catalog import open_catalog
from calving.runtime.destination import Destination
from calving.runtime.moving import move_positions
from calving.settings.load import load
from calving.source.members import members
from harness.forms import forms
from harness.topic import Topic
from harness.waiting import wait_for
from harness.worker import STORES
from tests.cli.commands import Cli
from tests.e2e.test_catalog import routed, send_to
from tests.e2e.test_rollback_interruptions import Killed, end_at
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services


def move(sink: Cli, *to: str, by: int | None = None, again: bool = False, dry_run: bool = False) -> list[str]:
    destination = Destination.of(to, by, again=again)
    assert destination is not None
    return list(move_positions(load(sink.config), destination, dry_run=dry_run))


def twice(first: int, end: int, *, of: int) -> Counter[int]:
    return Counter([*range(of), *range(first, end)])


def test_a_sink_that_goes_back_skips_what_its_table_holds(sink: Cli) -> None:
    name = sink.topic.name
    assert move(sink, "earliest") == [
        f"{name}-0: back from 300 to 0: 300 offsets to read again",
        f"table db.t: it holds 300 offsets of them (offsets 0 to 300 of {name}-0) and skips these",
        "done: the next run starts there",
    ]
    sink.send(300, 320)
    assert sink.run_here().progress.read == 320
    sink.assert_exactly_once(320)
    assert status(load(sink.config)).health == "OK"


def test_a_table_that_is_new_gets_all_records_once_while_the_others_skip_them(sink: Cli) -> None:
    sink.keys |= {"iceberg.tables": "db.t,db.u", "iceberg.tables.route-field": "id"}
    sink.keys |= {f"iceberg.table.db.{table}.route-regex": ".*" for table in "tu"}
    move(sink, "earliest")
    sink.run_here()
    sink.assert_exactly_once(300)
    assert Counter(sink.ids("db.u")) == Counter(range(300))


def test_again_reads_exactly_the_printed_records_a_second_time(sink: Cli) -> None:
    name = sink.topic.name
    assert move(sink, by=-100, again=True) == [
        f"{name}-0: back from 300 to 200: 100 offsets to read again",
        f"table db.t: it holds 100 offsets of them (offsets 200 to 300 of {name}-0): their records are read again, and"
        " stand twice in it",
        "done: the next run starts there",
    ]
    sink.send(300, 310)
    sink.run_here()
    assert Counter(sink.ids()) == twice(200, 300, of=310)
    sink.recover_here()
    sink.run_here()
    assert Counter(sink.ids()) == twice(200, 300, of=310)
    assert status(load(sink.config)).health == "OK"


def test_a_recovery_in_between_reads_on_where_records_still_come_again(sink: Cli) -> None:
    sink.keys["iceberg.batch.max-records"] = 30
    move(sink, "earliest", again=True)
    sink.run_until_killed("publish:after:4")
    assert 300 <= len(sink.ids()) < 600
    sink.recover_here()
    sink.run_here()
    assert Counter(sink.ids()) == twice(0, 300, of=300)


def test_what_is_published_and_not_committed_is_read_again_from_before_the_new_position(sink: Cli) -> None:
    sink.keys["iceberg.control.backend"] = sink.keys.get("iceberg.control.backend", "kafka")
    sink.send(300, 400)
    sink.publish_without_commit()
    name = sink.topic.name
    with pytest.raises(ConfigError, match="records from offset 300 to 400 are published and not in all tables yet"):
        sink.send(400, 410)
        move(sink, "latest")
    assert f"{name}-0: read from 300 on, because later records are published and not in all tables yet" in move(
        sink, f"{name}:0=350"
    )
    sink.run_here()
    sink.assert_exactly_once(410)


def test_records_that_a_move_skips_are_in_no_table_and_no_ledger_claims_them(sink: Cli) -> None:
    name = sink.topic.name
    sink.send(300, 350)
    assert move(sink, f"{name}:0=340") == [
        f"{name}-0: forward from 300 to 340: 40 offsets (300 to 340) skipped, so no table gets their records",
        "done: the next run starts there",
    ]
    sink.run_here()
    assert sorted(sink.ids()) == [*range(300), *range(340, 350)]
    assert status(load(sink.config)).health == "OK"
    sink.recover_here()
    sink.run_here()
    assert sorted(sink.ids()) == [*range(300), *range(340, 350)]
    sink.recover_here(rolled_back=["db.t"])
    sink.run_here()
    sink.assert_exactly_once(350)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_of_skipped_records_that_a_table_holds_the_plan_says_so(sink: Cli) -> None:
    name = sink.topic.name
    move(sink, "earliest")
    assert move(sink, "latest") == [
        f"{name}-0: forward from 0 to 300: 300 offsets (0 to 300) skipped",
        f"table db.t: it holds 300 offsets of the skipped ones (offsets 0 to 300 of {name}-0)",
        "done: the next run starts there",
    ]


@pytest.mark.parametrize(
    ("again", "what"),
    [
        (False, "to have them, run `calving backfill FILE` as well"),
        (True, "they stand once in it"),
    ],
)
def test_of_records_from_before_its_first_commit_the_plan_says_that_a_table_has_none(
    topic: Callable[..., Topic], tmp_path: Path, unique: str, again: bool, what: str
) -> None:
    sink = Cli(tmp_path, topic(partitions=1), unique)
    sink.keys["iceberg.source.start"] = f"{sink.topic.name}:0=10"
    sink.send(0, 20)
    sink.run_here()
    assert (
        f"table db.t: it has no record of 10 offsets of these (offsets 0 to 10 of {sink.topic.name}-0), because they were"
        f" settled before its first commit: {what}"
    ) in move(sink, "earliest", again=again, dry_run=True)


def test_of_rows_that_were_there_before_its_first_commit_the_plan_claims_nothing(
    topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    """Somebody may have copied them from a table with the same records."""
    sink = Cli(tmp_path, topic(partitions=1), unique)
    sink.keys["iceberg.source.start"] = f"{sink.topic.name}:0=10"
    rows = pa.table({"id": pa.array(range(10), pa.int64())})
    catalog = open_catalog("iceberg", sink.catalog_keys)
    catalog.create_namespace("db")
    catalog.create_table("db.t", rows.schema).append(rows)
    sink.send(0, 20)
    sink.run_here()
    assert [line for line in move(sink, "earliest", dry_run=True) if "table db.t" in line] == [
        f"table db.t: it holds 20 offsets of them (offsets 0 to 20 of {sink.topic.name}-0) and skips these"
    ]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_plan_that_was_made_before_the_sink_has_run_once_more_is_dropped(sink: Cli, again: bool) -> None:
    destination = Destination.of(["earliest"], None, again=again)
    assert destination is not None
    lines = move_positions(load(sink.config), destination, dry_run=False)
    next(lines)
    sink.send(300, 320)
    sink.run_here()
    with pytest.raises(CommandFailedError, match="has run since this was planned: nothing has moved; run it again"):
        list(lines)
    sink.run_here()
    sink.assert_exactly_once(320)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_plan_is_dropped_while_another_command_moves_the_positions(sink: Cli) -> None:
    sink.send(300, 320)
    plans = [Destination.of([to], None, again=False) for to in ("latest", "earliest")]
    lines = [move_positions(load(sink.config), each, dry_run=False) for each in plans if each is not None]
    for each in lines:
        next(each)
    list(lines[1])
    with pytest.raises(CommandFailedError, match="has run since this was planned"):
        list(lines[0])
    sink.run_here()
    sink.assert_exactly_once(320)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_table_that_was_told_of_the_end_gets_no_third_copy(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    """It takes commits before the others are told."""
    sink, _ = routed(tmp_path, topic(), unique, keys)
    send_to(sink, "db.a", 0, 10)
    send_to(sink, "db.b", 10, 20)
    sink.run_here()
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        end_at(14, ((Table, "_do_commit"), (STORES["kafka"][1], "rewind")), Killed, patch)
        move(sink, "earliest", again=True)
    with pytest.raises(DataLossError, match="the recovery did not end"):
        while True:  # until the table that has been told has its commit; the other one gets none
            sink.run_here()
    assert len(sink.ids("db.b")) == 10
    move(sink, "earliest", again=True)
    sink.run_here()
    assert Counter(sink.ids("db.a")) == Counter([*range(10)] * 2)
    assert Counter(sink.ids("db.b")) == Counter([*range(10, 20)] * 2)


SOME = (5, 8, 9, 14)
"""Writes around those of the store."""


@pytest.mark.parametrize("every", forms([False, True], [False]), ids=["around the store's", "every"])
def test_a_move_that_is_killed_at_any_write_is_run_again(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str], every: bool
) -> None:
    sink, _ = routed(tmp_path, topic(), unique, keys)
    backend = str(keys.get("iceberg.control.backend", "kafka"))
    writes = ((Table, "_do_commit"), (STORES[backend][1], "rewind"))
    wanted: dict[str, Counter[int]] = {name: Counter() for name in ("db.a", "db.b")}
    for last in itertools.count() if every else SOME:
        for number, (name, rows) in enumerate(wanted.items()):
            send_to(sink, name, 10 * last + 2 * number, 10 * last + 2 * number + 2)
            rows.update([10 * last + 2 * number, 10 * last + 2 * number + 1])
        sink.run_here()
        with pytest.MonkeyPatch.context() as patch:
            was_reached = end_at(last, writes, Killed, patch)
            with suppress(Killed):
                move(sink, "earliest", again=True)
        if 1 < last < 15:
            with pytest.raises(ConfigError, match="was interrupted: run it again, with these options"):
                sink.recover_here()
        move(sink, "earliest", again=True)
        wanted = {name: rows + Counter([*rows]) for name, rows in wanted.items()}
        sink.run_here()
        for name, rows in wanted.items():
            assert Counter(sink.ids(name)) == rows, f"killed at write {last}"
        if not was_reached():
            break
    assert last > 13


@pytest.mark.parametrize("last", [3, 5])
@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_move_that_skips_and_is_killed_is_run_again(sink: Cli, last: int) -> None:
    """Before and after the position is stored."""
    sink.send(300, 350)
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        end_at(last, ((Table, "_do_commit"), (STORES["kafka"][1], "rewind")), Killed, patch)
        move(sink, "latest")
    move(sink, "latest")
    sink.send(350, 360)
    sink.run_here()
    assert sorted(sink.ids()) == [*range(300), *range(350, 360)]


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_dry_run_changes_nothing(sink: Cli) -> None:
    before = sink.run("offsets", "--json")
    assert "skips these" in sink.run("offsets", "--to", "earliest", "--dry-run")
    assert json.loads(sink.run("offsets", "--json").splitlines()[-1]) == json.loads(before.splitlines()[-1])
    assert sink.run_here().progress.read == 0


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_what_cannot_be_done_is_refused_in_a_sentence(sink: Cli) -> None:
    name = sink.topic.name
    for to, why in (
        (f"{name}:0=301", f"partition 0 of topic '{name}' has the offsets 0 to 300, and 301 is none of them"),
        (f"{name}:7=0", f"partition 7 of topic '{name}' is none that the sink reads"),
        ("yesterday", "yesterday is not a time"),
    ):
        with pytest.raises(ConfigError, match=re.escape(why)):
            move(sink, to)
    with pytest.raises(ConfigError, match="exclude each other"):
        move(sink, "earliest", by=1)
    asked = Destination("--to earliest", moves_all=True)
    with pytest.raises(CommandFailedError, match="the sink was resumed meanwhile: stop it first"):
        list(move_positions(load(sink.config), asked, dry_run=False, only_stopped=True))
    sink.send(300, 310)
    with pytest.raises(ConfigError, match="no position goes back"):
        move(sink, "latest", again=True)
    sink.topic.admin.delete_records([KafkaPartition(name, 0, 100)])[KafkaPartition(name, 0, 100)].result()
    with pytest.raises(ConfigError, match="has the offsets 100 to 310, and 50 is none of them"):
        move(sink, f"{name}:0=50")
    with pytest.raises(ConfigError, match=r"iceberg\.source\.start says where the first start begins"):
        move(unstarted(sink), "earliest")


def unstarted(sink: Cli) -> Cli:
    other = Cli(sink.folder, sink.topic, f"{sink.name}-other")
    other.keys["iceberg.tables"] = "db.other"
    other.run("validate")
    return other


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_position_does_not_move_while_workers_run(sink: Cli) -> None:
    worker = sink.started()
    try:
        wait_for(lambda: members(load(sink.config).kafka, load(sink.config).group))
        assert move(sink, "earliest", dry_run=True)[-1].endswith("1 member: stop all workers of the sink first")
        with pytest.raises(CommandFailedError, match="has 1 member: stop all workers of the sink first"):
            move(sink, "earliest")
    finally:
        worker.kill()


def test_older_changes_are_not_put_beneath_later_ones(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> None:
    sink = Cli(tmp_path, topic(), unique)
    sink.keys |= {"iceberg.tables.upsert-mode-enabled": True, "iceberg.tables.default-id-columns": "id"}
    sink.send(0, 10)
    sink.run_here()
    with pytest.raises(ConfigError, match="older changes cannot be put beneath later ones"):
        move(sink, "earliest", again=True)
    move(sink, "earliest")
    sink.run_here()
    sink.assert_exactly_once(10)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_position_of_a_topic_that_was_recreated_is_not_moved(sink: Cli) -> None:
    sink.topic.admin.delete_topics([sink.topic.name])[sink.topic.name].result()
    wait_for(lambda: sink.topic.name not in sink.topic.admin.list_topics().topics)
    Topic(sink.topic.servers, sink.topic.name).send(*encode({"id": 1}))
    with pytest.raises(DataLossError, match="was recreated"):
        move(sink, "latest")
