"""``calving rollback`` refuses before anything moves, is run again after an interruption, and says what is left to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table.update import RemovePropertiesUpdate, RemoveSnapshotsUpdate

from calving.errors import ConfigError
from calving.model.offsets import TopicPartition
from calving.protocol.answers import AsItIs, ToSnapshot, WithoutRecord
from calving.settings.load import load
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.e2e.test_rollback import FORGET, REREAD, answered, snapshots, table_of

pytestmark = pytest.mark.services


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    """300 records, committed in three runs."""
    made = Cli(tmp_path, topic(), unique)
    for first in (0, 100, 200):
        made.send(first, first + 100)
        made.run_here()
    return made


@pytest.mark.parametrize("dry_run", [False, True])
def test_what_a_recovery_would_refuse_is_refused_before_the_table_goes_back(sink: Cli, dry_run: bool) -> None:
    """The first records are in the table under a former name of the sink, which an earlier version has taken over."""
    first, former = snapshots(sink)[0], load(sink.config)
    owner = f"{former.keys.control_topic}.{former.group}"
    sink.keys["name"] = f"{sink.name}-new"
    sink.recover_here(owner)
    sink.send(300, 400)
    sink.run_here()
    names = [name for name in table_of(sink).properties if name.startswith("calving.former-names")]
    table_of(sink)._do_commit((RemovePropertiesUpdate(removals=names),), ())
    before = table_of(sink).metadata_location
    with pytest.raises(ConfigError, match=f"records that would be read again are in the tables under the name {owner}"):
        answered(sink, ToSnapshot(first), REREAD, dry_run=dry_run)
    assert table_of(sink).metadata_location == before


def test_a_recovery_that_was_interrupted_is_run_again(sink: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has added a snapshot without rows."""
    first = snapshots(sink)[0]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr("calving.cli.recover.leave_out", interrupted)
        answered(sink, ToSnapshot(first), REREAD)
    answered(sink, ToSnapshot(first), REREAD)
    sink.run_here()
    sink.assert_exactly_once(300)


def test_a_partition_that_the_sink_does_not_read_is_no_target(sink: Cli) -> None:
    with table_of(sink).manage_snapshots() as by_hand:
        by_hand.rollback_to_snapshot(snapshots(sink)[1])
    before = table_of(sink).metadata_location
    with pytest.raises(ConfigError, match="--at ordrs:0: the sink reads no such partition"):
        answered(sink, WithoutRecord(TopicPartition("ordrs", 0), 250), FORGET)
    assert table_of(sink).metadata_location == before


def test_of_a_table_in_doubt_the_command_says_that_nothing_is_read_again(sink: Cli) -> None:
    table = table_of(sink)
    table.overwrite(table.scan().to_arrow())
    table = table_of(sink)
    others = [each for each in snapshots(sink) if each != table.metadata.current_snapshot_id]
    table._do_commit((RemoveSnapshotsUpdate(snapshot_ids=others),), ())
    for entry in table_of(sink).metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)
    said = answered(sink, AsItIs(), REREAD)[-1]
    assert said.startswith(f"nothing is read again for table db.t: snapshot {others[2]}, this sink's last commit there")
