"""``calving backfill``: a range of the topics once, beside the sink that it belongs to."""

from __future__ import annotations

import json
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.cli.backfill import Tell, backfill, order_of
from calving.engine.interface import LocalEngine
from calving.errors import CommandFailedError, ConfigError, DataLossError
from calving.iceberg.catalog import open_catalog
from calving.model.backfills import range_group
from calving.model.offsets import Span, TopicPartition
from calving.runtime import components
from calving.runtime.app import App
from calving.settings.load import Sink, load
from calving.source.backfill import range_notes
from calving.source.client import client_config
from calving.source.members import members
from calving.terminal.range_bar import RangeBar
from harness.forms import forms
from harness.nursery import Forked
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services


class BackfilledSink(Cli):
    """A sink, and its backfills without a process of their own."""

    def fill(
        self,
        start: str,
        end: str,
        *,
        branch: str | None = None,
        tables: tuple[str, ...] = (),
        id: str | None = None,
        publish: bool = False,
    ) -> list[str]:
        def run(sink: Sink, tell: Tell) -> None:
            app = App(sink, LocalEngine())
            app.run(until_caught_up=True, on_progress=lambda _: tell(app.status))

        order = order_of(start, end, branch, tables, id)
        return list(backfill(load(self.config), order, run, RangeBar(None), publish=publish))

    def found(self, ref: str = "main", table: str = "db.t") -> Counter[int]:
        rows = open_catalog("iceberg", self.catalog_keys).load_table(table).scan().use_ref(ref).to_arrow()
        return Counter(rows["id"].to_pylist())

    def begun(self, start: str, end: str) -> Forked:
        """A backfill in a process of its own."""
        options = ["backfill", "--from", start, "--to", end, str(self.config)]
        return Forked("harness.command", options, self.folder / f"{time.monotonic_ns()}.log", {})

    def at(self, offset: int, partition: int = 0) -> str:
        return f"{self.topic.name}:{partition}={offset}"


def letters_of(servers: str, topic: str) -> list[dict[str, bytes]]:
    consumer = Consumer(
        client_config({"bootstrap.servers": servers}, group_id="letters", isolation_level="read_committed")
    )
    consumer.assign([KafkaPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(5)) is not None:
        found.append(dict(message.headers() or []))
    consumer.close()
    return found  # type: ignore[return-value]


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> BackfilledSink:
    return BackfilledSink(tmp_path, topic(), unique)


@pytest.fixture
def on_each(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> BackfilledSink:
    """On each backend."""
    made = BackfilledSink(tmp_path, topic(), unique)
    made.keys |= keys
    return made


def begin_late(sink: BackfilledSink, skipped: int, end: int) -> None:
    """The sink first starts behind so many records, and reads the later ones."""
    sink.send(0, skipped)
    sink.keys["iceberg.source.start"] = "latest"
    sink.run_here()
    sink.send(skipped, end)
    sink.run_here()


def test_a_sink_that_began_late_gets_its_earlier_records_once(on_each: BackfilledSink) -> None:
    begin_late(on_each, 300, 400)
    said = on_each.fill("earliest", on_each.at(300))
    assert said[0] == f"{on_each.topic.name}-0: 0 to 300"
    assert re.fullmatch(r"backfill [0-9a-f]{8} has ended: every record of its range is in db\.t", said[-1])
    on_each.send(400, 450)
    on_each.run_here()  # without other-sinks
    on_each.assert_exactly_once(450)


def test_a_backfill_that_has_ended_adds_nothing(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    first = sink.fill("earliest", "latest")
    sink.send(100, 200)
    assert sink.fill("earliest", "latest") == first[-1:]
    assert sink.found() == Counter(range(100))


def test_another_id_is_another_backfill(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    sink.fill("earliest", "latest", id="one")
    sink.fill("earliest", "latest", id="two")
    assert sink.found() == Counter([*range(100), *range(100)])


def test_a_plan_says_what_the_table_holds_already(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    sink.run_here()
    sink.send(100, 150)
    twice = f"(offsets 50 to 100 of {sink.topic.name}-0), except any from before the sink's first start: their records"
    held = f"table db.t holds 50 offsets of them already {twice} will stand twice"
    said = sink.fill(sink.at(50), "latest", branch="past")
    assert said[2] == held
    assert sink.fill(sink.at(50), "latest")[2] == held
    assert sink.found() == sink.found("past") == Counter([*range(150), *range(50, 100)])
    assert not any("holds" in line for line in sink.fill(sink.at(100), "latest"))


def test_a_plan_does_not_call_held_what_came_before_the_first_start(sink: BackfilledSink) -> None:
    begin_late(sink, 100, 150)
    assert not any("holds" in line for line in sink.fill("earliest", sink.at(100)))
    assert "table db.t holds 50 offsets of them already (offsets 100 to 150" in sink.fill("earliest", "latest")[2]


def test_what_the_sink_has_routed_elsewhere_is_not_called_held(sink: BackfilledSink) -> None:
    del sink.keys["iceberg.tables"]
    sink.keys |= {"iceberg.tables.dynamic-enabled": True, "iceberg.tables.route-field": "route"}
    sink.topic.send(*(json.dumps({"id": i, "route": f"db.{'tu'[i % 2]}"}).encode() for i in range(10)))
    sink.run_here()
    said = sink.fill("earliest", "latest", tables=("db.u",))
    assert [line.partition(" holds")[0] for line in said if " holds " in line] == ["table db.u"]


def test_two_that_begin_at_once_end_with_the_range_that_was_noted_last(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    order = order_of("earliest", "latest", None, (), None)

    def run(made: Sink, tell: Tell) -> None:
        topics, partition = components.source(made), TopicPartition(sink.topic.name, 0)
        sink.send(100, 150)
        notes = range_notes(order, {partition: Span(0, 150)}, topics.identities({sink.topic.name}))
        topics.note(range_group(made.group), notes)
        App(made, LocalEngine()).run(until_caught_up=True)

    with pytest.raises(CommandFailedError, match="was stopped before its end"):
        list(backfill(load(sink.config), order, run, RangeBar(None)))
    sink.fill("earliest", "latest")
    assert sink.found() == Counter(range(150))


@pytest.mark.parametrize("branch", ["past", ""])
def test_a_tag_or_nothing_is_no_branch(sink: BackfilledSink, branch: str) -> None:
    sink.send(0, 10)
    sink.run_here()
    table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_tag(head, "past").commit()
    with pytest.raises(ConfigError, match=r"past is a tag of it, not a branch; name a branch|must not be empty"):
        sink.fill("earliest", "latest", branch=branch)
    assert sink.found() == sink.found("past") == Counter(range(10))


def test_an_id_that_is_in_use_is_refused_for_another_range(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    sink.fill("earliest", sink.at(50), id="one")
    with pytest.raises(ConfigError, match="another range, branch or table"):
        sink.fill("earliest", "latest", id="one")


@pytest.mark.parametrize(
    "fault",
    forms(
        [
            "publish:before:1",
            "publish:after:1",
            "publish:after:2",
            "table:before:2",
            "table:after:1",
            "acknowledge:after:1",
        ],
        ["publish:after:1", "table:after:1"],
    ),
)
def test_a_backfill_killed_around_an_effect_goes_on_and_doubles_nothing(on_each: BackfilledSink, fault: str) -> None:
    on_each.send(0, 900)
    on_each.keys |= {"iceberg.batch.max-records": 200, "iceberg.source.start": "latest"}
    on_each.run_here()
    options = ["backfill", "--from", "earliest", "--to", on_each.at(850)]
    backend = str(on_each.keys.get("iceberg.control.backend", "kafka"))
    code, said = on_each._ended("harness.worker", *options, seconds=240, FAULT=fault, BACKEND=backend)
    assert code == -signal.SIGKILL, said
    on_each.send(900, 950)
    on_each.run_here()  # the sink goes on meanwhile
    assert "has ended" in on_each.fill("earliest", on_each.at(850))[-1]
    assert on_each.found() == Counter([*range(850), *range(900, 950)])


def test_two_backfills_and_their_sink_run_at_once(sink: BackfilledSink) -> None:
    sink.keys |= {"iceberg.batch.max-records": 100, "iceberg.source.start": "latest"}
    sink.send(0, 1000)
    sink.run_here()
    running = sink.started()
    first = sink.begun("earliest", sink.at(500))
    second = sink.begun(sink.at(500), sink.at(1000))
    sink.send(1000, 1300)
    assert (first.wait(120), second.wait(120)) == (0, 0)
    deadline = time.monotonic() + 60
    while sum(sink.found().values()) < 1300 and time.monotonic() < deadline:
        time.sleep(0.5)
    running.signal(signal.SIGTERM)
    running.wait(60)
    sink.assert_exactly_once(1300)


def test_a_branch_gets_the_range_and_main_does_not(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    sink.keys["iceberg.source.start"] = "latest"
    sink.run_here()
    sink.send(100, 150)
    sink.run_here()
    sink.fill("earliest", sink.at(100), branch="past")
    assert (sink.found("past"), sink.found()) == (Counter(range(150)), Counter(range(100, 150)))


def test_only_the_named_table_gets_rows(sink: BackfilledSink) -> None:
    del sink.keys["iceberg.tables"]
    sink.keys |= {"iceberg.tables.dynamic-enabled": True, "iceberg.tables.route-field": "route"}
    sink.topic.send(*(json.dumps({"id": i, "route": f"db.{'tu'[i % 2]}"}).encode() for i in range(100)))
    sink.run_here()
    sink.fill("earliest", "latest", tables=("db.u",))
    assert sink.found() == Counter(range(0, 100, 2))
    assert sink.found(table="db.u") == Counter(dict.fromkeys(range(1, 100, 2), 2))


def test_rows_that_change_by_key_are_filled_only_into_another_branch(sink: BackfilledSink) -> None:
    sink.keys |= {"iceberg.tables.upsert-mode-enabled": True, "iceberg.tables.default-id-columns": "id"}
    sink.send(0, 50)
    sink.run_here()
    with pytest.raises(ConfigError, match=r"db\.t: its rows change by key"):
        sink.fill("earliest", "latest")
    sink.fill("earliest", "latest", branch="past")
    assert sink.found("past") == sink.found() == Counter(range(50))


def test_bad_records_become_dead_letters_with_their_place(sink: BackfilledSink) -> None:
    letters = f"dead-{sink.name}"
    sink.keys |= {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": letters,
        "errors.deadletterqueue.topic.replication.factor": 1,
        "iceberg.source.start": "latest",
    }
    sink.send(0, 10)
    sink.topic.send(b"{")
    sink.run_here()
    sink.fill("earliest", sink.at(11))
    assert sink.found() == Counter(range(10))
    found = letters_of(sink.topic.servers, letters)
    assert [(headers["__connect.errors.topic"], headers["__connect.errors.offset"]) for headers in found] == [
        (sink.topic.name.encode(), b"10")
    ]


def test_a_range_that_retention_has_taken_is_refused_by_partition(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    sink.topic.admin.delete_records([KafkaPartition(sink.topic.name, 0, 40)])
    deadline = time.monotonic() + 30
    place = rf"partition 0 of topic '{sink.topic.name}', which begins at 40"
    while time.monotonic() < deadline:
        try:
            sink.fill(sink.at(10), "latest", id=f"a{time.monotonic_ns()}")
        except DataLossError as error:
            assert re.search(place, str(error))
            break
    else:
        pytest.fail("retention was not noticed")
    with pytest.raises(DataLossError, match=rf"may have taken records of the range: {place}"):
        sink.fill("2020-01-01T00:00:00Z", "latest")
    sink.fill("earliest", "latest")


def test_retention_in_another_partition_before_the_first_batch_is_no_loss(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    sink = BackfilledSink(tmp_path, topic(partitions=2), unique)
    for partition in (0, 1):
        sink.topic.send(*encode(*({"id": i} for i in range(100))), partition=partition)
    options = ["backfill", "--from", sink.at(0), "--to", sink.at(100)]
    code, said = sink._ended("harness.worker", *options, seconds=240, FAULT="publish:before:1", BACKEND="kafka")
    assert code == -signal.SIGKILL, said
    sink.topic.send(*encode(*({"id": i} for i in range(100, 200))), partition=1)
    for removal in sink.topic.admin.delete_records([KafkaPartition(sink.topic.name, 1, 150)]).values():
        removal.result()
    sink.fill(sink.at(0), sink.at(100))
    assert sink.found() == Counter(range(100))


def test_retention_in_the_range_before_the_first_batch_is_told(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    options = ["backfill", "--from", "earliest", "--to", sink.at(90)]
    code, said = sink._ended("harness.worker", *options, seconds=240, FAULT="publish:before:1", BACKEND="kafka")
    assert code == -signal.SIGKILL, said
    for removal in sink.topic.admin.delete_records([KafkaPartition(sink.topic.name, 0, 50)]).values():
        removal.result()
    with pytest.raises(DataLossError, match=r"retention has taken records of the range: .* was to be read from 0 on"):
        sink.fill("earliest", sink.at(90))


def test_a_backfill_whose_positions_were_deleted_is_refused(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    options = ["backfill", "--from", "earliest", "--to", "latest", "--id", "x"]
    code, said = sink._ended("harness.worker", *options, seconds=240, FAULT="publish:after:2", BACKEND="kafka")
    assert code == -signal.SIGKILL, said
    group, deadline = f"connect-{sink.name}.backfill.x", time.monotonic() + 60
    while members(load(sink.config).kafka, group):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    sink.topic.admin.delete_consumer_groups([group])[group].result()
    with pytest.raises(DataLossError, match=r"its positions are lost: .* begin another one: `calving backfill FILE`"):
        sink.fill("earliest", "latest", id="x")
    sink.fill("earliest", "latest", id="y")
    assert sink.found() == Counter(range(100))


@pytest.mark.parametrize("recreated", [False, True])
def test_a_backfill_whose_control_topic_was_deleted_has_not_ended(sink: BackfilledSink, recreated: bool) -> None:
    """All of it is published, and in no table."""
    sink.send(0, 100)
    options = ["backfill", "--from", "earliest", "--to", "latest", "--id", "x"]
    code, said = sink._ended("harness.worker", *options, seconds=240, FAULT="publish:after:2", BACKEND="kafka")
    assert code == -signal.SIGKILL, said
    control = f"control-{sink.name}"
    sink.topic.admin.delete_topics([control])[control].result()
    if recreated:
        components.backend(load(sink.config)).provision()
    with pytest.raises(DataLossError, match=r"was published through another control log .*: `calving backfill FILE`"):
        sink.fill("earliest", "latest", id="x")
    sink.fill("earliest", "latest", id="y")
    assert sink.found() == Counter(range(100))


def test_a_rollback_below_a_backfill_is_told_when_it_is_run_again(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    sink.fill("earliest", sink.at(50))
    sink.fill(sink.at(50), "latest")
    table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
    parent = table.metadata.current_snapshot().parent_snapshot_id  # type: ignore[union-attr]
    table.manage_snapshots().set_current_snapshot(parent).commit()
    with pytest.raises(CommandFailedError, match=r"table db\.t was rolled back since"):
        sink.fill(sink.at(50), "latest")


def test_a_branch_is_published_by_going_forward(sink: BackfilledSink) -> None:
    sink.send(0, 100)
    sink.keys["iceberg.source.start"] = "latest"
    sink.run_here()
    sink.send(100, 150)
    sink.run_here()
    said = sink.fill("earliest", sink.at(100), branch="past", publish=True)
    assert re.fullmatch(r"table db\.t: main went forward to snapshot \d+, the head of branch past", said[-1])
    sink.send(150, 200)
    sink.run_here()
    sink.assert_exactly_once(200)
    assert sink.fill("earliest", sink.at(100), branch="past", publish=True)[-1].endswith("past already")


def fill_a_branch(sink: BackfilledSink) -> None:
    """The first 100 records are in a branch, and main has moved on: it has those from 100 to 200."""
    sink.keys["iceberg.source.start"] = "latest"
    sink.send(0, 100)
    sink.run_here()
    sink.send(100, 150)
    sink.run_here()
    sink.fill("earliest", sink.at(100), branch="past")
    sink.send(150, 200)
    sink.run_here()


@pytest.mark.parametrize("version", [1, 2])
def test_a_branch_is_published_by_cherry_picks_where_main_has_moved_on(sink: BackfilledSink, version: int) -> None:
    sink.keys |= {"iceberg.batch.max-records": 50, "iceberg.tables.auto-create-props.format-version": version}
    fill_a_branch(sink)
    said = sink.fill("earliest", sink.at(100), branch="past", publish=True)
    assert re.fullmatch(r"table db\.t: main got \d+ files? of branch past by \d+ cherry-picks?", said[-1])
    sink.assert_exactly_once(200)
    sink.send(200, 250)
    sink.run_here()  # with its ledger
    sink.assert_exactly_once(250)
    table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
    table.manage_snapshots().remove_branch("past").commit()
    assert sink.fill("earliest", sink.at(100), branch="past", publish=True)[-1].endswith("past already")
    sink.assert_exactly_once(250)


def test_a_recovery_of_the_sink_leaves_a_published_backfill_alone(sink: BackfilledSink) -> None:
    fill_a_branch(sink)
    sink.fill("earliest", sink.at(100), branch="past", publish=True)
    group = f"connect-{sink.name}"
    sink.topic.admin.delete_consumer_groups([group])[group].result()
    sink.refused("has no stored positions")
    sink.recover_here()
    sink.send(200, 250)
    sink.run_here()
    sink.assert_exactly_once(250)
    assert "orphan files" in sink.run("maintain", "--task", "orphans", "--task", "expire", "--task", "compact")
    sink.assert_exactly_once(250)


@pytest.mark.parametrize(
    "fault",
    forms(
        ["table:before:1", "table:after:1", "table:lost-answer:1", "table:false-conflict:1"],
        ["table:after:1", "table:false-conflict:1"],
    ),
)
def test_a_publication_that_is_interrupted_is_made_once(sink: BackfilledSink, fault: str) -> None:
    fill_a_branch(sink)
    options = ["backfill", "--from", "earliest", "--to", sink.at(100), "--branch", "past", "--publish"]
    code, said = sink._ended("harness.worker", *options, seconds=240, FAULT=fault, BACKEND="kafka")
    assert code == (-signal.SIGKILL if fault.partition(":")[2] in ("before:1", "after:1") else 0), said
    sink.fill("earliest", sink.at(100), branch="past", publish=True)
    sink.assert_exactly_once(200)


def test_a_branch_is_published_again_after_main_was_rolled_back_below_it(sink: BackfilledSink) -> None:
    fill_a_branch(sink)
    table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
    before = table.metadata.current_snapshot_id
    sink.fill("earliest", sink.at(100), branch="past", publish=True)
    assert before is not None
    table.refresh().manage_snapshots().set_current_snapshot(before).commit()
    assert sink.found() == Counter(range(100, 200))
    sink.fill("earliest", sink.at(100), branch="past", publish=True)
    sink.assert_exactly_once(200)


@pytest.mark.parametrize("target", ["main", "live"])
def test_a_publication_brings_nothing_back_from_which_the_target_was_rolled_back(
    sink: BackfilledSink, target: str
) -> None:
    sink.keys |= {"iceberg.source.start": "latest", "iceberg.tables.default-commit-branch": target}
    sink.send(0, 100)
    sink.run_here()
    for first in (100, 150):
        sink.send(first, first + 50)
        sink.run_here()
    table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
    table.manage_snapshots().create_branch(table.metadata.refs[target].snapshot_id, "past").commit()
    sink.fill("earliest", sink.at(100), branch="past")
    sink.run("rollback", "--table", "db.t", "--at", sink.at(150), "--then", "forget")
    sink.fill("earliest", sink.at(100), branch="past", publish=True)
    assert sink.found(target) == Counter(range(150))


def test_a_branch_to_which_others_have_committed_is_not_picked(sink: BackfilledSink) -> None:
    sink.keys["iceberg.source.start"] = "latest"
    sink.send(0, 100)
    sink.run_here()
    sink.send(100, 150)
    sink.run_here()
    sink.fill("earliest", sink.at(50), branch="past")
    sink.fill(sink.at(50), sink.at(100), branch="past")
    sink.send(150, 200)
    sink.run_here()
    with pytest.raises(ConfigError, match="of branch past is not one of this backfill"):
        sink.fill("earliest", sink.at(50), branch="past", publish=True)
    assert sink.found() == Counter(range(100, 200))
