"""Who maintains a table."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException, ForbiddenError
from pyiceberg.table import Table

from calving.errors import UnavailableError
from calving.iceberg.catalog import table_id
from calving.maintenance.lease import LEASE, LEASE_MS, Lease, TableLease, held_by_other
from tests.iceberg.histories import MutationTable, create
from tests.maintenance.expiring import set_properties

NOW = 1_800_000_000_000


@pytest.fixture
def table(catalog: Catalog) -> MutationTable:
    return create(catalog, "flat", 2)


def lease_of(table: MutationTable, holder: str, now_ms: int = NOW, branch: str = "main") -> TableLease:
    return TableLease(table.catalog, table_id(table.name), branch, holder, lambda: now_ms, sleep=lambda seconds: None)


def test_who_takes_it_has_it_and_others_are_told_until_when(table: MutationTable) -> None:
    assert lease_of(table, "a:1").take() is None
    assert lease_of(table, "b:2").take() == Lease("a:1", NOW + LEASE_MS)


def test_after_its_end_another_takes_it(table: MutationTable) -> None:
    lease_of(table, "a:1").take()
    assert lease_of(table, "b:2", NOW + LEASE_MS).take() is None
    assert lease_of(table, "a:1", NOW + LEASE_MS).take() == Lease("b:2", NOW + 2 * LEASE_MS)


def test_it_is_prolonged_only_once_half_of_it_is_over(table: MutationTable) -> None:
    lease_of(table, "a:1").take()
    before = table.table.metadata_location
    assert lease_of(table, "a:1", NOW + LEASE_MS // 2 - 1).take() is None
    assert table.table.metadata_location == before
    assert lease_of(table, "a:1", NOW + LEASE_MS // 2).take() is None
    assert table.table.properties[LEASE] == f"a:1 {NOW + LEASE_MS // 2 + LEASE_MS}"


def test_who_gives_it_back_leaves_no_property_and_takes_none_from_others(table: MutationTable) -> None:
    lease_of(table, "a:1").take()
    lease_of(table, "b:2").release()
    assert LEASE in table.table.properties
    lease_of(table, "a:1").release()
    assert LEASE not in table.table.properties


def test_of_two_at_the_same_moment_the_one_who_is_there_a_second_later_has_it(table: MutationTable) -> None:
    """As a catalog does that does not compare properties."""
    late = TableLease(
        table.catalog,
        table_id(table.name),
        "main",
        "a:1",
        lambda: NOW,
        sleep=lambda seconds: set_properties(table, {LEASE: f"b:2 {NOW + LEASE_MS}"}),
    )
    assert late.take() == Lease("b:2", NOW + LEASE_MS)


def test_each_branch_has_a_lease_of_its_own(table: MutationTable) -> None:
    lease_of(table, "a:1").take()
    assert lease_of(table, "b:2", branch="work").take() is None
    assert table.table.properties[f"{LEASE}@work"].startswith("b:2 ")


@pytest.mark.parametrize("text", ["", "a:1", "a:1 soon", f"a:1 {NOW + 3 * LEASE_MS}", "a:1 " + "9" * 5_000, "a:1 ²"])
def test_nobody_waits_for_a_text_that_is_no_lease_nor_for_one_of_a_wrong_clock(text: str) -> None:
    assert held_by_other({LEASE: text}, "main", "b:2", NOW) is None


def conflicts(count: int) -> Iterator[bool]:
    yield from [True] * count
    while True:
        yield False


@pytest.mark.parametrize(("count", "is_taken"), [(3, True), (50, False)])
def test_conflicts_with_other_commits_are_tried_again(
    table: MutationTable, count: int, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, original = conflicts(count), Table._do_commit

    def conflicting(self: Table, *given: object) -> None:
        if next(left):
            raise CommitFailedException("somebody was faster")
        original(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "_do_commit", conflicting)
    if is_taken:
        assert lease_of(table, "a:1").take() is None and LEASE in table.table.properties
    else:
        with pytest.raises(UnavailableError, match="somebody was faster"):
            lease_of(table, "a:1").take()


@pytest.mark.parametrize("error", [ForbiddenError("not yours"), BadRequestError("no such property")])
def test_a_refusal_is_not_tried_again(table: MutationTable, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Mock(side_effect=error)
    monkeypatch.setattr(Table, "_do_commit", commit)
    with pytest.raises(UnavailableError, match=str(error)):
        lease_of(table, "a:1").take()
    assert commit.call_count == 1


def test_a_table_that_was_dropped_has_no_lease(table: MutationTable) -> None:
    table.catalog.drop_table(table.name)
    lease = lease_of(table, "a:1")
    assert lease.take() is None
    lease.release()
