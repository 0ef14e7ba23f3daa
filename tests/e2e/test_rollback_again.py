"""``calving rollback --then reread`` ends in its recovery, and is run again, or another answer is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition

from calving.cli.status import status
from calving.protocol.answers import AsItIs, RollbackTarget, ToSnapshot
from calving.settings.load import load
from calving_kafka.cursor import KafkaCursor
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.e2e.test_rollback import FORGET, REREAD, RESTORE, answered, snapshots, table_of
from tests.e2e.test_rollback_interruptions import Killed, end_at

pytestmark = [pytest.mark.services, pytest.mark.parametrize("keys", ["kafka"], indirect=True)]
before_and_after = pytest.mark.parametrize("step", [0, 1], ids=["before positions go back", "after that"])


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Cli:
    """300 records, committed in three runs."""
    made = Cli(tmp_path, topic(), unique)
    made.keys |= keys
    for first in (0, 100, 200):
        made.send(first, first + 100)
        made.run_here()
    return made


def killed(sink: Cli, target: RollbackTarget, step: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        was_reached = end_at(step, [(KafkaCursor, "rewind")], Killed, patch)
        with suppress(Killed):
            answered(sink, target, REREAD)
    assert was_reached()


@before_and_after
def test_the_same_command_ends_the_recovery(sink: Cli, step: int) -> None:
    target = ToSnapshot(snapshots(sink)[0])
    killed(sink, target, step)
    answered(sink, target, REREAD)
    sink.run_here()
    sink.assert_exactly_once(300)
    assert status(load(sink.config)).health == "OK"


@before_and_after
def test_records_that_are_forgotten_after_all_stay_away_when_the_recovery_ends(sink: Cli, step: int) -> None:
    killed(sink, ToSnapshot(snapshots(sink)[0]), step)
    answered(sink, AsItIs(), FORGET)
    sink.recover_here()
    sink.send(300, 400)
    sink.run_here()
    assert Counter(sink.ids()) == Counter([*range(100), *range(300, 400)])
    assert status(load(sink.config)).health == "OK"


@before_and_after
def test_records_that_are_restored_after_all_are_not_doubled_when_the_recovery_ends(sink: Cli, step: int) -> None:
    killed(sink, ToSnapshot(snapshots(sink)[0]), step)
    answered(sink, AsItIs(), RESTORE)
    sink.recover_here()
    sink.run_here()
    sink.assert_exactly_once(300)


def test_forgotten_records_that_the_topic_has_no_more_do_not_prevent_a_later_answer(sink: Cli) -> None:
    answered(sink, ToSnapshot(snapshots(sink)[0]), FORGET)
    for first in (300, 400):
        sink.send(first, first + 100)
        sink.run_here()
    before = table_of(sink).snapshots()[-2].snapshot_id
    away = [KafkaPartition(sink.topic.name, 0, 350)]
    sink.topic.admin.delete_records(away)[away[0]].result()
    answered(sink, ToSnapshot(before), REREAD)
    sink.run_here()
    assert Counter(sink.ids()) == Counter([*range(100), *range(300, 500)])
    assert status(load(sink.config)).health == "OK"
