"""A table that another engine replaces while the sink commits, in a catalog that swaps the whole metadata, is rolled
back: its sequence numbers are used again, and commits have gone without a trace in the table.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from calving.errors import UnansweredRollbackError, WentBackError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.history import line_of
from calving.iceberg.marks import mark_of
from calving.model.offsets import Span
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs, ToSnapshot
from calving.protocol.ledger_updates import looked
from harness.replacing import replace_table, swap_metadata
from tests.iceberg.lake import TP, Lake
from tests.iceberg.test_rollback_answers import answered, refusal

FORGET, RESTORE = RollbackAnswer.FORGET, RollbackAnswer.RESTORE
ROWS = pa.table({"id": pa.array([-1], pa.int64())})


@pytest.fixture(params=["1", "2"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), request.param, "main")


def swap(lake: Lake, begun: Table, rows: pa.Table | None = ROWS) -> None:
    """A statement ends that began with this table."""
    lake.mark = mark_of(lake.table, lake.key)
    assert replace_table(lake.catalog, begun, rows)


def replaced(lake: Lake, rows: pa.Table | None = ROWS) -> None:
    """The table holds 100 records when the statement begins, and another 10 are discarded; the sink has noted it."""
    lake.commit(0, 100)
    begun = lake.table
    lake.commit(100, 110)
    swap(lake, begun, rows)
    lake.on_rollback = "stop"
    with pytest.raises(UnansweredRollbackError):
        lake.commit(110, 120)
    lake.on_rollback = "continue"


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_the_next_commit_notes_what_the_table_held_and_what_was_discarded(lake: Lake, commits: int) -> None:
    lake.commit(0, 100)
    begun, end = lake.table, 100 + 10 * commits
    for start in range(100, end, 10):
        lake.commit(start, start + 10)
    swap(lake, begun)
    lake.commit(end, end + 10)
    assert lake.rows == [-1, *range(end, end + 10)]
    assert lake.ledger.unanswered == {TP: (Span(0, end),)}
    assert lake.ledger.held(TP) == (Span(end, end + 10),)
    assert lake.key.discarded(lake.table.properties) == {TP: (Span(100, end),)}


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_a_table_whose_replacement_is_noted_is_not_older(lake: Lake, commits: int) -> None:
    lake.commit(0, 100)
    begun = lake.table
    for start in range(100, 100 + 10 * commits, 10):
        lake.commit(start, start + 10)
    swap(lake, begun)
    before = lake.mark
    assert mark_of(lake.table, lake.key).is_older_than(before)
    lake.commit(200, 210)
    assert not mark_of(lake.table, lake.key).is_older_than(before)


def test_a_table_takes_nothing_after_a_replacement_if_its_policy_says_so(lake: Lake) -> None:
    lake.commit(0, 100)
    begun = lake.table
    lake.commit(100, 110)
    swap(lake, begun)
    lake.on_rollback = "stop"
    with pytest.raises(UnansweredRollbackError, match=r"no longer holds 110 offsets .* orders-0"):
        lake.commit(110, 120)
    assert lake.rows == [-1]
    assert lake.ledger.unanswered == {TP: (Span(0, 110),)}


def test_a_look_beside_the_first_commit_hides_nothing(lake: Lake) -> None:
    lake.commit(0, 100)
    begun = lake.table
    lake.commit(100, 110)
    swap(lake, begun)
    lake.look()
    lake.commit(110, 120)
    assert lake.ledger.unanswered == {TP: (Span(0, 110),)}


def test_a_look_that_began_before_it_was_noted_hides_nothing(lake: Lake) -> None:
    lake.commit(0, 100)
    begun = lake.table
    lake.commit(100, 110)
    swap(lake, begun)
    late = looked(lake.key, line_of(lake.table, "main"), lake.table.properties)
    lake.on_rollback = "stop"
    with pytest.raises(UnansweredRollbackError):
        lake.commit(110, 120)
    lake.change(SetPropertiesUpdate(updates=late))
    assert lake.ledger.unanswered == {TP: (Span(0, 110),)}


def test_entries_that_wait_are_no_loss(lake: Lake) -> None:
    lake.commit(0, 100)
    begun = lake.table
    lake.commit(100, 110)
    swap(lake, begun)
    lake.on_rollback = "stop"
    waiting = lake.publish(110, 120), lake.publish(120, 130)
    with pytest.raises(UnansweredRollbackError):
        lake.settle(*waiting)
    assert lake.ledger.unanswered == {TP: (Span(0, 110),)}
    lake.on_rollback = "continue"
    lake.settle(*waiting)
    assert lake.rows == [-1, *range(110, 130)]


def test_what_the_replaced_table_held_is_restored_and_what_was_discarded_is_read_again(lake: Lake) -> None:
    replaced(lake)
    done = answered(lake, AsItIs(), RESTORE)
    assert done.restoration is not None and done.restoration.discarded == {TP: (Span(100, 110),)}
    assert lake.rows == [-1, *range(100)]
    assert lake.ledger.unanswered == {TP: (Span(100, 110),)}
    assert refusal(lake, AsItIs(), RESTORE) == (
        "table db.t: the table was replaced (CREATE OR REPLACE TABLE), and that has discarded the snapshots with"
        " offsets 100 to 110 of orders-0, so nobody knows their files; what is left is `reread` or `forget`"
    )
    assert lake.recover() == range(100, 10**9)
    lake.commit(100, 120)
    assert lake.rows == [-1, *range(120)]
    assert not lake.ledger.gone and not lake.key.discarded(lake.table.properties)


def test_a_replacement_without_rows_goes_forward_to_what_the_table_held(lake: Lake) -> None:
    lake.commit(0, 100)
    begun, head = lake.table, lake.head
    lake.commit(100, 110)
    swap(lake, begun, None)
    lake.on_rollback = "stop"
    with pytest.raises(UnansweredRollbackError):
        lake.commit(110, 120)
    answered(lake, AsItIs(), RESTORE, changes_rows=True)
    assert lake.head == head
    assert lake.ledger.unanswered == {TP: (Span(100, 110),)}


def test_what_the_replaced_table_held_is_forgotten_and_what_was_discarded_is_read_again(lake: Lake) -> None:
    replaced(lake)
    assert answered(lake, AsItIs(), FORGET).left == {TP: (Span(100, 110),)}
    assert lake.ledger.unanswered == {TP: (Span(100, 110),)}
    assert refusal(lake, AsItIs(), FORGET) == (
        "table db.t: what else it lacks was forgotten, so there is nothing to answer, but for offsets 100 to 110 of"
        " orders-0: their snapshots are discarded, as it was replaced (CREATE OR REPLACE TABLE); give `reread` for them,"
        " or `forget` with --again"
    )
    lake.recover(forgotten=False)
    lake.commit(100, 120)
    assert lake.rows == [-1, *range(100, 120)]
    assert lake.ledger.gone == {TP: (Span(0, 100),)}


def test_what_was_discarded_is_forgotten_if_the_rest_was_before_the_replacement(lake: Lake) -> None:
    lake.append(-2)
    first = lake.head
    lake.commit(0, 100)
    answered(lake, ToSnapshot(first), FORGET)
    begun = lake.table
    lake.commit(100, 110)
    swap(lake, begun)
    lake.commit(110, 120)
    assert lake.ledger.unanswered == {TP: (Span(100, 110),)}
    assert not answered(lake, AsItIs(), FORGET).left
    assert not lake.ledger.unanswered
    assert lake.rows == [-1, *range(110, 120)]


def test_the_head_moves_although_what_was_discarded_stays_unanswered(lake: Lake) -> None:
    replaced(lake)
    answered(lake, AsItIs(), FORGET)
    lake.commit(110, 120)
    head = lake.head
    lake.append(-2)
    assert answered(lake, ToSnapshot(head), FORGET).left == {TP: (Span(100, 110),)}
    assert lake.head == head
    assert lake.ledger.unanswered == {TP: (Span(100, 110),)}


@pytest.mark.parametrize("given_before", [False, True])
def test_all_of_it_is_forgotten_if_asked(lake: Lake, given_before: bool) -> None:
    replaced(lake)
    if given_before:
        answered(lake, AsItIs(), FORGET)
    answered(lake, AsItIs(), FORGET, again=True)
    lake.commit(110, 120)
    assert lake.rows == [-1, *range(110, 120)]
    assert not lake.ledger.unanswered
    assert lake.ledger.gone == {TP: (Span(0, 110),)}


def test_what_was_discarded_and_forgotten_is_still_known_after_others_are_read_again(lake: Lake) -> None:
    replaced(lake)
    answered(lake, AsItIs(), FORGET, again=True)
    lake.commit(110, 120)
    head = lake.head
    lake.commit(120, 130)
    lake.roll_back(head)
    lake.recover(forgotten=False)
    lake.commit(120, 130)
    assert answered(lake, AsItIs(), RESTORE, again=True).left == {TP: (Span(100, 110),)}
    assert lake.rows == [-1, *range(100), *range(110, 130)]


def test_what_was_discarded_is_forgotten_after_the_rest_is_restored(lake: Lake) -> None:
    replaced(lake)
    answered(lake, AsItIs(), RESTORE)
    answered(lake, AsItIs(), FORGET)
    lake.commit(110, 120)
    assert lake.rows == [-1, *range(100), *range(110, 120)]
    assert lake.ledger.gone == {TP: (Span(100, 110),)}


def test_all_of_it_is_read_again(lake: Lake) -> None:
    replaced(lake)
    assert lake.recover() == range(10**9)
    lake.commit(0, 120)
    assert lake.rows == [-1, *range(120)]
    assert not lake.ledger.gone


def test_a_later_rollback_of_what_was_read_again_can_be_restored(lake: Lake) -> None:
    replaced(lake)
    lake.recover()
    lake.commit(0, 110)
    lake.commit(110, 120)
    lake.begin_again(-2)
    lake.look()
    answered(lake, AsItIs(), RESTORE)
    assert lake.rows == [-2, *range(120)]


def test_an_older_state_without_a_new_beginning_is_no_replacement(lake: Lake) -> None:
    """As a restored catalog shows it: all its tables have gone back."""
    lake.commit(0, 100)
    begun = lake.table
    lake.commit(100, 110)
    lake.mark = mark_of(lake.table, lake.key)
    assert swap_metadata(lake.catalog, begun.name(), begun.metadata_location)
    with pytest.raises(WentBackError, match=r"the catalog shows an older state"):
        lake.commit(110, 120)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_an_older_state_that_tells_of_a_rollback_is_no_replacement(lake: Lake, is_forgotten: bool) -> None:
    lake.commit(0, 100)
    first = lake.head
    lake.commit(100, 110)
    lake.roll_back(first)
    if is_forgotten:
        answered(lake, AsItIs(), FORGET)
    lake.commit(110, 120)
    begun = lake.table
    lake.commit(120, 130)
    lake.mark = mark_of(lake.table, lake.key)
    assert swap_metadata(lake.catalog, begun.name(), begun.metadata_location)
    with pytest.raises(WentBackError, match=r"the catalog shows an older state"):
        lake.commit(130, 140)


def test_a_replacement_at_which_somebody_has_looked_is_noted_after_its_first_snapshot_has_expired(lake: Lake) -> None:
    lake.commit(0, 100)
    begun = lake.table
    lake.commit(100, 110)
    swap(lake, begun)
    lake.look()
    lake.append(-2)
    lake.append(-3)
    lake.expire()
    lake.drop_history()
    lake.commit(110, 120)
    assert lake.ledger.unanswered == {TP: (Span(0, 110),)}


def test_a_table_that_held_nothing_when_the_statement_began_tells_nothing(lake: Lake) -> None:
    begun = lake.table
    lake.commit(0, 100)
    swap(lake, begun)
    with pytest.raises(WentBackError, match=r"CREATE OR REPLACE TABLE has discarded all"):
        lake.commit(100, 110)
