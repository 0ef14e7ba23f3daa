"""``calving rollback`` on a real broker: three answers, appended tables and tables of changes."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from pyiceberg.table import Table

from calving.cli.rollback import rollback
from calving.cli.status import status
from calving.errors import CommandFailedError, ConfigError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rollback import RollbackPlan, TableRollback
from calving.model.offsets import TopicPartition
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs, RollbackTarget, ToSnapshot, WithoutRecord
from calving.settings.load import load
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli
from tests.cli.test_commands import read_all
from tests.e2e.test_catalog import assert_replayed, change, routed, send_to

pytestmark = pytest.mark.services
FORGET, RESTORE, REREAD = RollbackAnswer.FORGET, RollbackAnswer.RESTORE, RollbackAnswer.REREAD


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Cli:
    """300 records, committed in three runs."""
    made = Cli(tmp_path, topic(), unique)
    made.keys |= keys
    for first in (0, 100, 200):
        made.send(first, first + 100)
        made.run_here()
    return made


def table_of(sink: Cli, name: str = "db.t") -> Table:
    return open_catalog("iceberg", sink.catalog_keys).load_table(name)


def snapshots(sink: Cli, name: str = "db.t") -> list[int]:
    return [each.snapshot_id for each in table_of(sink, name).metadata.snapshots]


def answered(
    sink: Cli, target: RollbackTarget, answer: RollbackAnswer, *tables: str, again: bool = False, dry_run: bool = False
) -> list[str]:
    return list(rollback(load(sink.config), tables or ("db.t",), target, answer, again=again, dry_run=dry_run))


def keeps_its_promise(sink: Cli, answer: RollbackAnswer) -> None:
    first = snapshots(sink)[0]
    with table_of(sink).manage_snapshots() as by_hand:
        by_hand.rollback_to_snapshot(first)
    sink.send(300, 350)
    sink.run_here()
    assert sorted(sink.ids()) == [*range(100), *range(300, 350)]
    answered(sink, AsItIs(), answer)
    sink.send(350, 400)
    sink.run_here()
    kept = {*range(400)} - ({*range(100, 300)} if answer is FORGET else set())
    assert Counter(sink.ids()) == Counter(kept)
    now = status(load(sink.config))
    assert now.health == "OK", now.reasons


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
@pytest.mark.parametrize("answer", [FORGET, RESTORE])
def test_the_answer_keeps_its_promise(sink: Cli, answer: RollbackAnswer) -> None:
    keeps_its_promise(sink, answer)


def test_records_are_read_again_with_every_backend(sink: Cli) -> None:
    keeps_its_promise(sink, REREAD)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_command_that_was_interrupted_is_run_again(sink: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first = snapshots(sink)[0]

    def interrupted(*_: object, **__: object) -> list[str]:
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr("calving.cli.rollback.recover", interrupted)
        answered(sink, ToSnapshot(first), REREAD)
    assert sorted(sink.ids()) == [*range(100)]
    answered(sink, ToSnapshot(first), REREAD)
    sink.run_here()
    sink.assert_exactly_once(300)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_what_was_forgotten_is_not_read_again_with_other_records_and_comes_with_a_recovery(sink: Cli) -> None:
    first, second, _ = snapshots(sink)
    answered(sink, ToSnapshot(second), FORGET)
    answered(sink, ToSnapshot(first), REREAD)
    sink.send(300, 310)
    sink.run_here()
    assert sorted(sink.ids()) == [*range(200), *range(300, 310)]
    with pytest.raises(ConfigError, match=r"was forgotten .*, so there is nothing to answer"):
        answered(sink, AsItIs(), REREAD)
    sink.recover_here(rolled_back=["db.t"])
    sink.run_here()
    sink.assert_exactly_once(310)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_dry_run_reads_as_a_plan_and_changes_nothing(sink: Cli) -> None:
    first, _, third = snapshots(sink)
    before = table_of(sink).metadata_location
    target = WithoutRecord(TopicPartition(sink.topic.name, 0), 150)
    moved, forgotten = answered(sink, target, FORGET, dry_run=True)
    assert moved.startswith(f"table db.t would go back from snapshot {third} of ")
    assert f" to snapshot {first} of " in moved
    assert moved.endswith(" UTC: 2 snapshots would leave, and the table has 100 rows instead of 300")
    assert forgotten == (
        f"table db.t: 200 offsets (offsets 100 to 300 of {sink.topic.name}-0) would be forgotten: their records stay away,"
        " in this table only"
    )
    assert answered(sink, target, REREAD, dry_run=True)[1] == (
        f"table db.t: 200 offsets (offsets 100 to 300 of {sink.topic.name}-0) would be read again, for this table only,"
        " with the settings of now"
    )
    assert answered(sink, target, RESTORE, dry_run=True)[1] == (
        f"table db.t: 200 offsets (offsets 100 to 300 of {sink.topic.name}-0) would be restored: the branch would go"
        f" forward to snapshot {third}"
    )
    assert table_of(sink).metadata_location == before


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_the_sink_may_run_while_a_table_is_rolled_back_and_forgotten_or_restored(sink: Cli) -> None:
    first = snapshots(sink)[0]
    worker = sink.started()
    try:
        for number in range(10):
            sink.send(300 + 10 * number, 310 + 10 * number)
            time.sleep(0.3)
            if number == 3:
                answered(sink, ToSnapshot(first), FORGET)
            if number == 6:
                answered(sink, AsItIs(), RESTORE, again=True)
        wait_for(lambda: len(sink.ids()) == 400, 60)
    finally:
        worker.kill()
    sink.assert_exactly_once(400)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_records_that_the_topic_no_longer_has_are_not_read_again(sink: Cli) -> None:
    first = snapshots(sink)[0]
    gone = [KafkaPartition(sink.topic.name, 0, 150)]
    sink.topic.admin.delete_records(gone)[gone[0]].result()
    before = table_of(sink).metadata_location
    with pytest.raises(ConfigError) as caught:
        answered(sink, ToSnapshot(first), REREAD)
    name = sink.topic.name
    assert str(caught.value) == (
        f"table db.t: {name}-0 begins at offset 150, so offsets 100 to 150 of {name}-0 cannot be read again; the answers"
        " that are left are `restore` and `forget`"
    )
    assert table_of(sink).metadata_location == before


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_nothing_moves_while_workers_run_that_would_read_on(sink: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calving.runtime.group_members._MEMBERS_SECONDS", 0.5)
    first, *_, last = snapshots(sink)
    worker = sink.started()
    try:
        wait_for(lambda: status(load(sink.config)).workers, 60)
        with pytest.raises(CommandFailedError, match="stop all workers of the sink first"):
            answered(sink, ToSnapshot(first), REREAD)
    finally:
        worker.kill()
    assert snapshots(sink)[-1] == last == table_of(sink).metadata.current_snapshot_id


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_dry_run_says_that_workers_have_to_be_stopped_before_records_are_read_again(sink: Cli) -> None:
    first, *_ = snapshots(sink)
    worker = sink.started()
    try:
        wait_for(lambda: status(load(sink.config)).workers, 60)
        said = answered(sink, ToSnapshot(first), REREAD, dry_run=True)
    finally:
        worker.kill()
    assert said[-1] == f"group {load(sink.config).group} has 1 member: stop all workers of the sink first"


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_what_the_command_prints_has_a_commit_that_came_after_its_plan(
    sink: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = snapshots(sink)[0]
    commit = TableRollback.commit

    def late(self: TableRollback) -> RollbackPlan:
        sink.send(300, 310)
        sink.run_here()
        return commit(self)

    monkeypatch.setattr(TableRollback, "commit", late)
    moved, forgotten, done = answered(sink, ToSnapshot(first), FORGET)
    assert moved.endswith(" UTC: 3 snapshots left, and the table has 100 rows instead of 310")
    assert forgotten.startswith("table db.t: 210 offsets (offsets 100 to 310 of ")
    assert done == "done"


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
@pytest.mark.parametrize("answer", RollbackAnswer)
def test_another_table_of_the_sink_gains_and_loses_nothing(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str], answer: RollbackAnswer
) -> None:
    sink, _ = routed(tmp_path, topic(), unique, keys)
    for start in (0, 40, 80):
        send_to(sink, "db.a", start, start + 20)
        send_to(sink, "db.b", start + 20, start + 40)
        sink.run_here()
    answered(sink, ToSnapshot(snapshots(sink, "db.a")[0]), answer, "db.a")
    send_to(sink, "db.a", 120, 130)
    sink.run_here()
    lost = {*range(40, 60), *range(80, 100)} if answer is FORGET else set()
    whole = {*range(20), *range(40, 60), *range(80, 100), *range(120, 130)}
    assert sorted(sink.ids("db.a")) == sorted(whole - lost)
    assert sorted(sink.ids("db.b")) == [*range(20, 40), *range(60, 80), *range(100, 120)]


def commit_twice(sink: Cli) -> None:
    """Commit 20 records for db.a and the next 20 for db.b, and then the same once more."""
    for start in (0, 40):
        send_to(sink, "db.a", start, start + 20)
        send_to(sink, "db.b", start + 20, start + 40)
        sink.run_here()


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_one_record_is_a_cut_across_tables(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    sink, _ = routed(tmp_path, topic(), unique, keys)
    commit_twice(sink)
    answered(sink, WithoutRecord(TopicPartition(sink.topic.name, 0), 45), FORGET, "db.a", "db.b")
    assert sorted(sink.ids("db.a")) == [*range(20)]
    assert sorted(sink.ids("db.b")) == [*range(20, 40)]


@pytest.fixture
def changing(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Cli:
    """120 changes, and then 80; all of them committed."""
    made = Cli(tmp_path, topic(), unique)
    cdc = {"iceberg.tables.cdc-field": "op", "iceberg.table.db.t.id-columns": "id", "iceberg.batch.max-records": "200"}
    made.keys |= keys | cdc
    for first, end in ((0, 120), (120, 200)):
        change(made, first, end)
        made.run_here()
    return made


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
@pytest.mark.parametrize("answer", [RESTORE, REREAD])
def test_a_table_of_changes_takes_nothing_until_somebody_answers_and_then_all(
    changing: Cli, answer: RollbackAnswer
) -> None:
    first = snapshots(changing)[0]
    with table_of(changing).manage_snapshots() as by_hand:
        by_hand.rollback_to_snapshot(first)
    worker = changing.started()
    try:
        change(changing, 200, 230)
        wait_for(lambda: any("was rolled back" in each for each in status(load(changing.config)).reasons), 60)
        wait_for(lambda: "until then the table takes nothing" in worker.log.read_text(), 60)
        assert table_of(changing).metadata.current_snapshot_id == first
        if answer is RESTORE:
            answered(changing, AsItIs(), answer)
            wait_for(lambda: len(snapshots(changing)) > 2, 60)
    finally:
        worker.kill()
    changing._wait_until_forgotten()
    if answer is REREAD:
        answered(changing, AsItIs(), answer)
    changing.run_here()
    assert_replayed(changing, 230)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_forgotten_changes_stay_away_and_later_ones_come(changing: Cli) -> None:
    first = snapshots(changing)[0]
    before = sorted((row["id"], row["n"]) for row in table_of(changing).scan(snapshot_id=first).to_arrow().to_pylist())
    answered(changing, ToSnapshot(first), FORGET)
    change(changing, 200, 203)
    changing.run_here()
    rows = dict(before) | {n % 7: n for n in range(200, 203)}
    found = {row["id"]: row["n"] for row in table_of(changing).scan().to_arrow().to_pylist()}
    assert found == rows


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_of_several_tables_one_that_lacks_nothing_is_left_as_it_is(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    """So a command that was interrupted between two tables is run again."""
    sink, _ = routed(tmp_path, topic(), unique, keys)
    commit_twice(sink)
    with table_of(sink, "db.b").manage_snapshots() as by_hand:
        by_hand.rollback_to_snapshot(snapshots(sink, "db.b")[0])
    first, *_ = answered(sink, AsItIs(), RESTORE, "db.a", "db.b")
    assert first.startswith("table db.a: branch main holds all")
    assert sorted(sink.ids("db.b")) == [*range(20, 40), *range(60, 80)]
    with pytest.raises(ConfigError, match="there is nothing to answer"):
        answered(sink, AsItIs(), RESTORE, "db.a", "db.b")


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_what_is_read_again_goes_through_the_transforms_of_now(sink: Cli, caplog: pytest.LogCaptureFixture) -> None:
    """Offsets 100 to 300: one is bad now, ten are filtered, and the others have other ids."""
    first, dead = snapshots(sink)[0], f"dead-{sink.name}"
    sink.keys |= {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.topic.replication.factor": "1",
        "transforms": "new",
        "transforms.new.type": "Sql",
        "transforms.new.query": (
            "SELECT CASE WHEN id = 150 THEN 'bad' ELSE CAST(id + 1000 AS VARCHAR) END AS id"
            " FROM records WHERE id NOT BETWEEN 200 AND 209"
        ),
    }
    answered(sink, ToSnapshot(first), REREAD)
    caplog.set_level("INFO")
    sink.run_here()
    again = {*range(100, 300)} - {150, *range(200, 210)}
    assert Counter(sink.ids()) == Counter([*range(100), *(1000 + number for number in again)])
    assert [letter.offset() for letter in read_all(sink.topic.servers, dead)] == [0]
    read = re.findall(r"read (\d+) = written (\d+), dead letters (\d+), transform new (\d+)", caplog.text)
    assert [sum(map(int, column)) for column in zip(*read, strict=True)] == [200, 189, 1, 10]
