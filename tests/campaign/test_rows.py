"""The campaign's checker finds what can be wrong in tables whose rows records change."""

from __future__ import annotations

import numpy as np
import pytest

from campaign.audit import Claim, Row
from campaign.changes import GONE, Change, change
from campaign.rows import RowAudit

TABLE = "db.t"
CHANGES = [Change(TABLE, 1, "a"), Change(TABLE, 2, "b"), Change(TABLE, 1, "c"), Change(TABLE, 2, None)]


@pytest.fixture
def audit() -> RowAudit:
    """One partition: key 1 is changed once, key 2 is deleted."""
    made = RowAudit([TABLE], 1, lambda number: (TABLE, ""), change=CHANGES.__getitem__)
    for number in range(len(CHANGES)):
        made.produced(0, number, number)
    return made


def claim(read: int, missing: list[list[int]] | None = None) -> Claim:
    return Claim("log", {"0": 0}, {0: read}, {0: read}, {0: missing or []})


def row(key: int, proof: str, route: str = TABLE) -> Row:
    return Row(key, route, proof)


def test_a_table_is_what_a_replay_up_to_its_ledger_comes_to(audit: RowAudit) -> None:
    audit.compare(TABLE, claim(2), [row(1, "a"), row(2, "b")])
    audit.compare(TABLE, claim(3), [row(1, "c"), row(2, "b")])
    audit.compare(TABLE, claim(1), [row(1, "a")])  # the catalog has gone back
    audit.finish(4, 1, {TABLE: [row(1, "c")]})
    assert not audit.found and not audit.broken


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], {"lost": 1}),
        ([row(1, "a")], {"wrong": 1}),
        ([row(1, "c"), row(1, "c")], {"doubled": 1}),
        ([row(1, "c"), row(1, "a")], {"doubled": 1}),
        ([row(1, "c"), row(2, "b")], {"resurrected": 1}),
        ([row(1, "c", "db.other")], {"wrong": 1}),
    ],
)
def test_each_wrong_key_counts_once_however_often_it_is_seen(
    audit: RowAudit, rows: list[Row], found: dict[str, int]
) -> None:
    for _ in range(2):
        audit.compare(TABLE, claim(4), rows)
    assert audit.found == found
    report = audit.report()
    counts = {"lost": "GAP", "doubled": "DUPLICATE", "wrong": "MISMATCH"}
    (kind,) = found
    assert (report["resurrected"] if kind == "resurrected" else sum(report[counts[kind]])) == 1


def test_of_the_changes_of_a_key_the_greatest_counts_deletes_that_mark_the_row_among_them() -> None:
    changes = [Change(TABLE, 1, "a", 5), Change(TABLE, 1, f"{GONE}b", 7), Change(TABLE, 1, "c", 6)]
    audit = RowAudit([TABLE], 1, lambda number: (TABLE, ""), change=changes.__getitem__)
    for number in range(len(changes)):
        audit.produced(0, number, number)
    audit.compare(TABLE, claim(3), [row(1, f"{GONE}b")])
    assert not audit.found
    audit.compare(TABLE, claim(3), [row(1, "b")])
    assert audit.found == {"wrong": 1}


def test_a_row_of_a_record_that_the_ledger_does_not_claim_is_wrong(audit: RowAudit) -> None:
    audit.compare(TABLE, claim(2), [row(1, "c"), row(2, "b")])
    assert audit.found == {"wrong": 1}


def test_a_ledger_with_holes_breaks_the_order_gate(audit: RowAudit) -> None:
    audit.compare(TABLE, claim(4, [[1, 2]]), [row(1, "c")])
    assert audit.broken["I7"] == 1


def test_a_table_has_read_what_was_sent_once_its_ledger_is_there(audit: RowAudit) -> None:
    assert [audit.holds(TABLE, {0: read}, 3) for read in (2, 3)] == [False, True]


def test_a_key_stays_in_its_partition_and_its_table() -> None:
    tables = ("db.a", "db.b")
    for workload in ("upsert", "cdc"):
        made = [(n * 7 % 3, found) for n in range(20_000) if (found := change(n, tables, workload)) is not None]
        places = {(found.key, partition, found.table) for partition, found in made}
        assert len(places) == len({found.key for _, found in made}) == 900
        deleted = np.mean([found.proof is None for _, found in made])
        assert (0.1 < deleted < 0.3) == (workload == "cdc")


def test_a_table_that_is_appended_to_may_lack_offsets_but_not_rows_that_it_has_read() -> None:
    appended = [Change(TABLE, key, "a") for key in range(4)]
    audit = RowAudit([TABLE], 1, lambda number: (TABLE, ""), change=appended.__getitem__, appended_to=[TABLE])
    for number in range(4):
        audit.produced(0, number, number)
    audit.compare(TABLE, claim(4, [[1, 3]]), [row(0, "a"), row(3, "a")])
    assert not audit.found and not audit.broken
    audit.compare(TABLE, claim(4, [[1, 3]]), [row(0, "a")])
    assert audit.found == {"lost": 1}


# Rollbacks


def test_a_forgotten_change_is_as_if_it_had_never_been(audit: RowAudit) -> None:
    audit.forget(TABLE, {0: [2]})
    audit.compare(TABLE, claim(4, [[2, 3]]), [row(1, "a")])
    assert not audit.found and not audit.broken
    audit.compare(TABLE, claim(4, [[2, 3]]), [row(1, "c")])
    assert audit.found == {"wrong": 1}


def test_a_change_that_was_forgotten_and_is_wanted_again_must_be_there(audit: RowAudit) -> None:
    audit.forget(TABLE, {0: [2]})
    audit.compare(TABLE, claim(4), [row(1, "a")])
    audit.want_again(TABLE)
    audit.compare(TABLE, claim(4), [row(1, "a")])
    assert audit.found == {"wrong": 1}


def test_a_table_of_changes_may_lack_only_what_was_forgotten(audit: RowAudit) -> None:
    audit.forget(TABLE, {0: [2]})
    assert not audit.lacks(TABLE, {0: [[2, 3]]})
    assert audit.lacks(TABLE, {0: [[1, 3]]}) and not audit.lacks(TABLE, {0: [[1, 3]]}, 1)
    audit.compare(TABLE, claim(4, [[1, 3]]), [row(1, "a")])
    assert audit.broken["I7"]


def test_after_a_rollback_a_file_may_be_added_once_more(audit: RowAudit) -> None:
    audit.added(TABLE, "f", 1)
    audit.rolled_back(TABLE)
    audit.added(TABLE, "f", 2)
    assert not audit.broken
    audit.added(TABLE, "f", 3)
    assert audit.broken == {"I2": 1}


def test_a_table_may_be_valid_through_what_was_forgotten() -> None:
    audit = RowAudit([TABLE], 1, lambda number: (TABLE, ""), change=CHANGES.__getitem__)
    for number in range(len(CHANGES)):
        audit.produced(0, number, number, 100 * number)
    audit.forget(TABLE, {0: [2]})
    audit.committed(TABLE, Claim("log", {"0": 0}, {0: 2}, {0: 2}, {}, 150))
    assert not audit.broken
    audit.committed(TABLE, Claim("log", {"0": 0}, {0: 2}, {0: 2}, {}, 250))
    assert audit.broken == {"VTTS": 1}
