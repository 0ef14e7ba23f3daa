"""A table goes back to before its sink got another name: what the former name has committed counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import calving.cli.recover as recovery
from calving.cli.status import status
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs, ToSnapshot
from calving.settings.load import load
from harness.forms import forms
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.e2e.test_rollback import FORGET, REREAD, RESTORE, answered, snapshots, table_of
from tests.e2e.test_rollback_interruptions import Killed, end_at

pytestmark = pytest.mark.services


def renamed(sink: Cli, name: str) -> None:
    before = load(sink.config)
    sink.keys["name"] = name
    sink.recover_here(f"{before.keys.control_topic}.{before.group}")


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    """300 records in three commits, the last one under the second name; it has a third one now."""
    made = Cli(tmp_path, topic(), unique)
    for first in (0, 100, 200):
        if first == 200:
            renamed(made, f"{unique}-second")
        made.send(first, first + 100)
        made.run_here()
    renamed(made, f"{unique}-third")
    return made


def rolled_back(sink: Cli) -> str:
    """What `calving status` says of the table, whose head is that of the first commit again."""
    with table_of(sink).manage_snapshots() as by_hand:
        by_hand.rollback_to_snapshot(snapshots(sink)[0])
    return " ".join(status(load(sink.config)).reasons)


@pytest.mark.parametrize("committed", [True, False], ids=["with commits of the new name", "before its first one"])
def test_what_the_first_name_has_committed_and_the_table_has_is_not_called_gone(sink: Cli, committed: bool) -> None:
    if committed:
        sink.send(300, 400)
        sink.run_here()
    end = 400 if committed else 300
    assert f"it no longer holds {end - 100} offsets" in rolled_back(sink)


@pytest.mark.parametrize("answer", forms(RollbackAnswer, [REREAD]))
@pytest.mark.parametrize("later", forms([False, True], [True]), ids=["as it is", "after later commits"])
def test_each_answer_keeps_its_promise(sink: Cli, answer: RollbackAnswer, later: bool) -> None:
    sink.send(300, 400)
    sink.run_here()
    rolled_back(sink)
    end = 410 if later else 400
    if later:
        sink.send(400, 410)
        sink.run_here()
    planned = answered(sink, AsItIs(), answer, dry_run=True)[1]
    assert planned.startswith(f"table db.t: 300 offsets (offsets 100 to 400 of {sink.topic.name}-0) would be ")
    answered(sink, AsItIs(), answer)
    sink.send(end, 420)
    sink.run_here()
    lost = {*range(100, 400)} if answer is FORGET else set()
    assert Counter(sink.ids()) == Counter({*range(420)} - lost)
    now = status(load(sink.config))
    assert now.health == "OK", now.reasons


@pytest.mark.parametrize("answer", [REREAD, RESTORE])
def test_what_the_former_name_had_committed_comes_back_before_the_new_one_has_committed(
    sink: Cli, answer: RollbackAnswer
) -> None:
    rolled_back(sink)
    answered(sink, AsItIs(), answer)
    sink.run_here()
    sink.assert_exactly_once(300)


def test_what_the_former_name_was_to_read_again_for_a_table_is_read_under_the_new_one(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    sink = Cli(tmp_path, topic(), unique)
    sink.keys["iceberg.tables"] = "db.t,db.u"
    for first in (0, 100, 200):
        sink.send(first, first + 100)
        sink.run_here()
    answered(sink, ToSnapshot(snapshots(sink)[0]), REREAD)
    renamed(sink, f"{unique}-second")
    sink.run_here()
    sink.assert_exactly_once(300)
    assert Counter(sink.ids("db.u")) == Counter(range(300))


def test_a_sink_whose_recovery_from_the_former_name_has_not_ended_commits_nothing(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    """It would claim what a rollback has removed under the former name."""
    sink = Cli(tmp_path, topic(), unique)
    for first in (0, 100):
        sink.send(first, first + 100)
        sink.run_here()
    rolled_back(sink)
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        end_at(0, [(recovery, "mark_recovered")], Killed, patch)
        renamed(sink, f"{unique}-second")
    sink.send(200, 300)
    sink.refused("or the recovery did not end")
    sink.keys["name"] = unique
    renamed(sink, f"{unique}-second")
    assert "it no longer holds 100 offsets" in " ".join(status(load(sink.config)).reasons)
    sink.run_here()
    answered(sink, AsItIs(), RESTORE)
    sink.assert_exactly_once(300)
