"""What ``forget`` and ``restore`` promise holds however Spark has rolled the table back, and whatever Spark does to it
before the answer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rollback import RollbackPlan, TableRollback
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs
from harness.forms import forms
from harness.spark_reader import spark_on
from tests.iceberg.lake import Lake
from tests.iceberg.test_rollbacks import gone, own
from tests.readback.test_rollbacks import MOVES, SHORT

pytestmark = pytest.mark.services

FORGET, RESTORE = RollbackAnswer.FORGET, RollbackAnswer.RESTORE
BACK = [name for name in MOVES if name != "create or replace table"]
REWRITE = "call iceberg.system.rewrite_data_files(table => 'iceberg.db.t', options => map('rewrite-all', 'true'))"
EXPIRE = "call iceberg.system.expire_snapshots(table => 'iceberg.db.t', older_than => timestamp '2100-01-01')"
PICK = "call iceberg.system.cherrypick_snapshot('iceberg.db.t', {})"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table with the offsets up to 300, in three commits."""
    made = Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "main")
    for start in (0, 100, 200):
        made.commit(start, start + 100)
    return made


def heads(lake: Lake) -> list[int]:
    return [snapshot.snapshot_id for snapshot in lake.table.metadata.snapshots]


def spark(lake: Lake, *statements: str) -> None:
    spark_on(lake.catalog.properties["warehouse"].removeprefix("file://"), *statements)


def move_back(lake: Lake, move: str = "rollback_to_snapshot") -> None:
    """To the first commit, or to a table without rows."""
    first = lake.table.metadata.snapshots[0]
    at = datetime.fromtimestamp((first.timestamp_ms + 1) / 1000, UTC).isoformat(sep=" ")
    spark(lake, *MOVES[move]("db.t", first.snapshot_id, at))


def answered(lake: Lake, answer: RollbackAnswer, *, changes_rows: bool = False) -> RollbackPlan:
    return TableRollback(lake.catalog, ("db", "t"), lake.key, AsItIs(), answer, changes_rows=changes_rows).commit()


def refusal(lake: Lake, answer: RollbackAnswer) -> str:
    with pytest.raises(ConfigError) as caught:
        answered(lake, answer)
    return str(caught.value)


def assert_rows(lake: Lake, rows: list[int]) -> None:
    """Spark reads them, each once."""
    (found,) = spark_on(
        lake.catalog.properties["warehouse"].removeprefix("file://"), "select id from iceberg.db.t order by id"
    )
    assert [row["id"] for row in found] == rows


# However the table went back


@pytest.mark.parametrize("move", forms(MOVES, SHORT))
def test_what_was_forgotten_stays_away(lake: Lake, move: str) -> None:
    move_back(lake, move)
    left = own(0, 100) if move in BACK else []
    lake.commit(300, 400)
    answered(lake, FORGET)
    lake.commit(400, 500)
    assert_rows(lake, [*left, *own(300, 500)])
    assert (lake.ledger.gone, lake.ledger.unanswered) == (gone((len(left), 300)), {})


@pytest.mark.parametrize("move", forms(MOVES, SHORT))
def test_what_was_restored_beneath_later_commits_is_there_once(lake: Lake, move: str) -> None:
    move_back(lake, move)
    lake.commit(300, 400)
    answered(lake, RESTORE)
    lake.commit(400, 500)
    assert_rows(lake, own(0, 500))
    assert lake.ledger.gone == {}


@pytest.mark.parametrize("changes_rows", [False, True], ids=["appended", "changes"])
@pytest.mark.parametrize("move", forms(BACK, SHORT))
def test_a_table_without_later_commits_goes_forward(lake: Lake, move: str, changes_rows: bool) -> None:
    before = lake.head
    move_back(lake, move)
    answered(lake, RESTORE, changes_rows=changes_rows)
    assert lake.head == before
    lake.commit(300, 400)
    assert_rows(lake, own(0, 400))


# Whatever happens before the answer


def test_what_was_forgotten_stays_away_after_its_snapshots_have_expired(lake: Lake) -> None:
    move_back(lake)
    spark(lake, EXPIRE)
    answered(lake, FORGET)
    lake.commit(300, 400)
    assert_rows(lake, [*own(0, 100), *own(300, 400)])
    assert (lake.ledger.gone, lake.ledger.unanswered) == (gone((100, 300)), {})


def test_nothing_is_restored_after_its_snapshots_have_expired(lake: Lake) -> None:
    move_back(lake)
    lake.commit(300, 400)
    spark(lake, EXPIRE)
    assert "what is left is `reread` or `forget`" in refusal(lake, RESTORE)
    assert lake.recover() == range(100, 300)


@pytest.mark.parametrize("answer", [FORGET, RESTORE])
def test_a_compaction_of_what_is_left_doubles_nothing(lake: Lake, answer: RollbackAnswer) -> None:
    move_back(lake)
    lake.commit(300, 400)
    spark(lake, REWRITE)
    answered(lake, answer)
    lake.commit(400, 500)
    assert_rows(lake, own(0, 500) if answer is RESTORE else [*own(0, 100), *own(300, 500)])


def test_a_line_that_was_compacted_before_the_rollback_is_not_restored_beneath_later_commits(lake: Lake) -> None:
    spark(lake, REWRITE)
    move_back(lake)
    lake.commit(300, 400)
    assert "has deleted or replaced 2 of these files" in refusal(lake, RESTORE)
    assert_rows(lake, [*own(0, 100), *own(300, 400)])


def test_a_line_that_was_compacted_before_the_rollback_goes_forward_to_the_files_of_the_sink(lake: Lake) -> None:
    before = lake.head
    spark(lake, REWRITE)
    move_back(lake)
    answered(lake, RESTORE)
    assert lake.head == before
    assert_rows(lake, own(0, 300))


@pytest.mark.parametrize("then", [[], [REWRITE]], ids=["as it is", "compacted"])
def test_what_was_picked_is_not_restored_as_well(lake: Lake, then: list[str]) -> None:
    middle = heads(lake)[1]
    move_back(lake)
    lake.commit(300, 400)
    spark(lake, PICK.format(middle), *then)
    answered(lake, RESTORE)
    lake.commit(400, 500)
    assert_rows(lake, own(0, 500))
    assert lake.ledger.gone == {}


@pytest.mark.parametrize("then", [[REWRITE], [REWRITE, EXPIRE]], ids=["compacted", "compacted and expired"])
def test_what_was_restored_and_then_compacted_is_not_restored_again(lake: Lake, then: list[str]) -> None:
    move_back(lake)
    lake.commit(300, 400)
    answered(lake, RESTORE)
    spark(lake, *then)
    assert "there is nothing to answer" in refusal(lake, RESTORE)
    lake.commit(400, 500)
    assert_rows(lake, own(0, 500))


def test_what_was_restored_and_then_compacted_is_restored_again_after_another_rollback(lake: Lake) -> None:
    move_back(lake)
    lake.commit(300, 400)
    later = lake.head
    answered(lake, RESTORE)
    spark(lake, REWRITE)
    spark(lake, *MOVES["rollback_to_snapshot"]("db.t", later, ""))
    answered(lake, RESTORE)
    assert_rows(lake, own(0, 400))
