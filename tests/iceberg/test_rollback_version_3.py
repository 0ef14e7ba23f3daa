"""Answers to a rollback of a table of format version 3, in a REST catalog."""

from __future__ import annotations

from contextlib import suppress

import pytest
from pyiceberg.exceptions import NoSuchTableError

from calving.iceberg.catalog import open_catalog
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs, ToSnapshot
from tests.iceberg.lake import Lake
from tests.iceberg.test_rollback_answers import FORGET, RESTORE, answered, three_commits
from tests.iceberg.test_rollbacks import gone, own

pytestmark = pytest.mark.services


@pytest.fixture
def lake(rest_uri: str, monkeypatch: pytest.MonkeyPatch) -> Lake:
    catalog = open_catalog("iceberg", {"type": "rest", "uri": rest_uri})
    catalog.create_namespace_if_not_exists("db")
    monkeypatch.setattr(catalog, "create_namespace", lambda name: None)
    with suppress(NoSuchTableError):
        catalog.drop_table("db.t")
    return Lake(catalog, "3", "main")


@pytest.mark.parametrize("answer", RollbackAnswer)
def test_the_command_takes_a_table_back_and_gives_the_answer(lake: Lake, answer: RollbackAnswer) -> None:
    heads = three_commits(lake)
    answered(lake, ToSnapshot(heads[1]), answer)
    assert lake.rows == [-1, *own(0, 300 if answer is RESTORE else 100)]
    assert lake.ledger.unanswered == (gone((100, 300)) if answer is RollbackAnswer.REREAD else {})


@pytest.mark.parametrize("answer", RollbackAnswer)
def test_somebody_elses_rollback_is_answered_after_later_commits(lake: Lake, answer: RollbackAnswer) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    lake.commit(300, 400)
    assert lake.ledger.unanswered == gone((100, 300))
    answered(lake, AsItIs(), answer)
    if answer is RollbackAnswer.REREAD:
        assert lake.recover() == range(100, 300)
        lake.commit(100, 300)
    assert lake.rows == [-1, *own(0, 100), *(own(100, 300) if answer is not FORGET else []), *own(300, 400)]


def test_changes_go_forward_again(lake: Lake) -> None:
    heads = three_commits(lake)
    lake.roll_back(heads[1])
    answered(lake, AsItIs(), RESTORE, changes_rows=True)
    assert lake.head == heads[3]
