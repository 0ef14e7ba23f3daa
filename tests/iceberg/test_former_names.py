"""A sink takes its tables over under another name, and what they held and lacked under the former one stays known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from calving.backend.interface import ControlLog
from calving.errors import ConfigError, SupersededError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.history import place_added
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.marks import mark_of
from calving.iceberg.picks import mind_picks
from calving.model.offsets import TopicPartition
from calving.protocol.answers import AsItIs, ToSnapshot
from calving.protocol.ledger import Ledger
from calving.runtime.preflight import others_of
from calving.runtime.recovered_tables import mark_recovered, supersede
from calving.settings.load import load
from harness.replacing import replace_table
from tests.iceberg.lake import KEY, TP, Lake
from tests.iceberg.test_rollback_answers import FORGET, RESTORE, answered
from tests.iceberg.test_rollbacks import gone, own


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "main")


@pytest.fixture(params=["1", "2"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A table of either format version."""
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), str(request.param), "main")


def renamed(lake: Lake, name: str, folder: Path) -> None:
    """The end of ``calving recover --from``: the sink has another name from now on."""
    config = folder / "sink.json"
    keys = {"name": name, "topics": "orders", "iceberg.tables": "db.t", "iceberg.control.topic": "control"}
    catalog = {"iceberg.catalog.type": "embedded", "iceberg.catalog.warehouse": str(folder)}
    config.write_text(json.dumps({**keys, "kafka.bootstrap.servers": "localhost:1", **catalog}))
    former, log = f"{lake.key.control_topic}.{lake.key.group}", ControlLog("log-1", {}, {0: 0})
    sink = load(config)
    supersede(lake.catalog, sink, ["db.t"], log, former, ())
    mark_recovered(lake.catalog, sink, "db.t", log, former, again=False, forgotten=False)
    lake.key = replace(KEY, group=f"connect-{name}")


def test_a_rollback_that_a_look_has_noted_under_the_former_name_waits_for_its_answer(
    either: Lake, tmp_path: Path
) -> None:
    either.commit(0, 100)
    first = either.head
    either.commit(100, 200)
    either.roll_back(first)
    either.look()
    renamed(either, "y", tmp_path)
    assert either.ledger.unanswered == gone((100, 200))


def test_what_was_forgotten_under_the_former_name_stays_forgotten(either: Lake, tmp_path: Path) -> None:
    either.commit(0, 100)
    first = either.head
    either.commit(100, 200)
    answered(either, ToSnapshot(first), FORGET)
    renamed(either, "y", tmp_path)
    assert (either.ledger.gone, either.ledger.unanswered) == (gone((100, 200)), {})


def test_a_sink_that_has_its_first_name_again_knows_what_the_second_one_has_committed(
    either: Lake, tmp_path: Path
) -> None:
    either.commit(0, 100)
    first = either.head
    renamed(either, "y", tmp_path)
    either.commit(100, 200)
    renamed(either, "x", tmp_path)
    either.roll_back(first)
    assert either.ledger.gone == gone((100, 200))


def test_a_sink_that_has_its_first_name_again_holds_what_the_second_one_has_committed_after_expiry(
    either: Lake, tmp_path: Path
) -> None:
    either.commit(0, 100)
    renamed(either, "y", tmp_path)
    either.commit(100, 200)
    renamed(either, "x", tmp_path)
    either.compact()
    either.expire()
    assert (either.ledger.source, either.ledger.doubt) == ({TP: 200}, None)


def test_what_the_second_name_has_brought_back_may_be_lost_once_more(either: Lake, tmp_path: Path) -> None:
    """The first name has forgotten it, and says so before its next commit as well."""
    either.commit(0, 100)
    first = either.head
    either.commit(100, 200)
    answered(either, ToSnapshot(first), FORGET)
    renamed(either, "y", tmp_path)
    either.recover()
    either.commit(100, 200)
    renamed(either, "x", tmp_path)
    either.roll_back(first)
    assert either.ledger.unanswered == gone((100, 200))


def test_what_the_first_name_has_forgotten_is_no_answer_to_a_rollback_under_the_second(
    either: Lake, tmp_path: Path
) -> None:
    either.commit(0, 100)
    first = either.head
    either.commit(100, 200)
    answered(either, ToSnapshot(first), FORGET)
    renamed(either, "y", tmp_path)
    either.recover()
    either.commit(100, 200)
    either.roll_back(first)
    either.look()
    renamed(either, "x", tmp_path)
    assert either.ledger.unanswered == gone((100, 200))


def test_what_was_discarded_under_the_first_name_and_read_again_under_the_second_has_snapshots(
    either: Lake, tmp_path: Path
) -> None:
    either.commit(0, 100)
    begun = either.table
    either.commit(100, 110)
    either.mark = mark_of(either.table, either.key)
    assert replace_table(either.catalog, begun, None)
    either.commit(110, 120)
    either.mark = None
    renamed(either, "y", tmp_path)
    either.recover()
    either.commit(0, 110)
    renamed(either, "x", tmp_path)
    either.begin_again(-1)
    answered(either, AsItIs(), RESTORE)
    assert (either.rows, either.ledger.gone) == ([-1, *own(0, 120)], {})


@pytest.mark.parametrize("name", ["x", "y"], ids=["back to the first name", "the recovery is repeated"])
def test_what_the_second_name_has_lost_is_not_held_because_the_first_one_had_it(
    either: Lake, tmp_path: Path, name: str
) -> None:
    """Nothing else than the second name's properties tells of the rollback."""
    backfill = either.append(-1)
    either.commit(0, 100)
    first = either.key
    renamed(either, "y", tmp_path)
    either.roll_back(backfill)
    either.look()
    either.append(-2)
    either.expire()
    either.drop_history()
    if name == "y":
        either.key = first
    renamed(either, name, tmp_path)
    assert (either.ledger.source, either.ledger.gone) == ({}, gone((0, 100)))


def test_of_two_names_the_later_one_counts_however_often_they_are_exchanged(either: Lake, tmp_path: Path) -> None:
    either.commit(0, 100)
    first = either.head
    for number, name in enumerate(("y", "x", "y", "z", "x", "y")):
        renamed(either, name, tmp_path)
        either.commit(100 + number, 101 + number)
    either.roll_back(first)
    assert (either.ledger.source, either.ledger.gone) == ({TP: 100}, gone((100, 106)))


def test_topics_that_only_the_former_name_had_are_not_called_gone_after_a_rename_by_an_earlier_version(
    either: Lake, tmp_path: Path
) -> None:
    either.commit(0, 100)
    properties = either.table.properties
    other = TopicPartition("others", 0, "id2")
    later = replace(KEY, group="connect-y")
    ledger = Ledger({0: 9}, {other: 50}, {other: 50})
    updates = new_snapshot(either.table, later.summary(ledger), "main").prepare()[0]
    either.change(*updates, SetPropertiesUpdate(updates=later.properties(ledger, place_added(updates))))
    assert not properties.keys() & later.properties(ledger).keys()
    renamed(either, "y", tmp_path)
    assert (either.ledger.source, either.ledger.gone) == ({other: 50}, {})


def test_commits_of_the_java_sink_under_the_former_name_keep_files_from_coming_back_alone(
    either: Lake, tmp_path: Path
) -> None:
    """Its commit tells no source offsets, and the next one calls them its own."""
    backfill = either.append(-1)
    java = new_snapshot(either.table, {either.key.offsets: '{"0":0}', "kafka.connect.commit-id": "j"}, "main")
    java.add([either.file(range(50))])
    either.change(*java.prepare()[0])
    either.commit(50, 100)
    renamed(either, "y", tmp_path)
    either.roll_back(backfill)
    with pytest.raises(ConfigError, match="was committed by a sink that tells no source offsets"):
        answered(either, AsItIs(), RESTORE)


def test_a_cherry_pick_of_the_former_names_commit_is_unclear_once_the_commit_below_has_expired(
    either: Lake, tmp_path: Path
) -> None:
    backfill = either.append(-1)
    either.commit(0, 100)
    either.commit(100, 200)
    source = either.head
    renamed(either, "y", tmp_path)
    either.roll_back(backfill)
    either.cherry_pick(source)
    either.expire(source, backfill)
    with pytest.raises(ConfigError, match=f"is a cherry-pick of snapshot {source}"):
        mind_picks("db.t", either.table, either.key)


def test_the_second_name_is_known_although_it_has_committed_nothing(either: Lake, tmp_path: Path) -> None:
    either.commit(0, 100)
    renamed(either, "y", tmp_path)
    assert others_of(either.table.properties, (), ()).keys() == {"control.connect-x", "control.connect-y"}


def test_what_a_sink_holds_in_a_branch_that_was_dropped_is_no_other_sinks(lake: Lake) -> None:
    lake.commit(0, 100)
    audit = replace(KEY, branch="audit")
    with lake.table.transaction() as change:
        change.set_properties(audit.properties(lake.ledger))
    assert others_of(lake.table.properties, lake.table.metadata.refs, (KEY.owner,)) == {}


def test_a_third_name_knows_what_the_first_one_had_committed(either: Lake, tmp_path: Path) -> None:
    either.commit(0, 100)
    first = either.head
    either.commit(100, 200)
    renamed(either, "y", tmp_path)
    renamed(either, "z", tmp_path)
    either.roll_back(first)
    assert either.ledger.gone == gone((100, 200))


def test_a_new_sink_of_the_former_name_takes_nothing_from_the_ledger(lake: Lake, tmp_path: Path) -> None:
    lake.commit(0, 100)
    former = lake.key
    renamed(lake, "y", tmp_path)
    lake.commit(100, 200)
    other = former.summary(Ledger({0: 99}, {TopicPartition("others", 0): 50}))
    lake.change(*new_snapshot(lake.table, other, "main").prepare()[0])
    assert (lake.ledger.source, lake.ledger.gone) == ({TP: 200}, {})


def test_a_coordinator_of_the_former_name_commits_nothing_afterwards(lake: Lake, tmp_path: Path) -> None:
    lake.commit(0, 100)
    former = lake.key
    renamed(lake, "y", tmp_path)
    lake.key = former
    with pytest.raises(SupersededError):
        lake.commit(100, 200)


def test_a_former_name_commits_again_once_it_has_its_tables_back(lake: Lake, tmp_path: Path) -> None:
    lake.commit(0, 100)
    renamed(lake, "y", tmp_path)
    renamed(lake, "x", tmp_path)
    lake.commit(100, 200)
    assert lake.rows == own(0, 200)
