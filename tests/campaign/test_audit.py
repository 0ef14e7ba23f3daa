"""The campaign's checker finds what it is there to find."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from campaign.audit import INVARIANTS, Audit, Claim, Row

TABLES = ("db.even", "db.odd")


def expected(number: int) -> tuple[str, str]:
    return TABLES[number % 2], f"proof of {number}"


def rows(*numbers: int) -> list[Row]:
    return [Row(n, *expected(n)) for n in numbers]


def claim(read: int, *, settled: int = 0, missing: Iterable[tuple[int, int]] = (), control: int = 0) -> Claim:
    return Claim("log", {"0": control}, {0: read}, {0: settled}, {0: list(missing)})


@pytest.fixture
def audit() -> Audit:
    """One partition with the records 0 to 9."""
    audit = Audit(TABLES, 1, expected)
    for number in range(10):
        audit.produced(0, number, number)
    return audit


def found(audit: Audit) -> dict[str, int]:
    """The violated invariants."""
    report = audit.report()
    counts = {name: sum(report[name]) for name in ("GAP", "DUPLICATE", "MISMATCH")}
    counts |= {name: report[name] for name in (*INVARIANTS, "unknown")}
    return {name: count for name, count in counts.items() if count}


def test_every_record_once_in_its_table_is_fine(audit: Audit) -> None:
    audit.appeared("db.even", rows(0, 2, 4, 6, 8))
    audit.appeared("db.odd", rows(1, 3, 5, 7, 9))
    audit.look({"db.even": claim(10, settled=10), "db.odd": claim(10, settled=9)})
    audit.end(10, 2)
    assert found(audit) == {}


def test_a_record_that_a_table_has_read_and_does_not_hold_is_a_gap(audit: Audit) -> None:
    audit.appeared("db.even", rows(0, 4))
    audit.look({"db.even": claim(5)})
    assert found(audit) == {"GAP": 1, "I4": 1}


def test_a_record_that_a_table_says_to_be_missing_is_none(audit: Audit) -> None:
    audit.appeared("db.even", rows(0, 4))
    audit.look({"db.even": claim(5, missing=[(1, 3)])})
    assert found(audit) == {}


def test_a_settled_record_that_is_in_no_table_is_a_gap(audit: Audit) -> None:
    audit.appeared("db.even", rows(0, 2))
    audit.look({"db.even": claim(3, settled=2)})
    assert found(audit) == {"GAP": 1, "I1": 1}


def test_a_record_that_is_missing_at_the_end_is_a_gap(audit: Audit) -> None:
    audit.appeared("db.even", rows(0, 2, 4, 6, 8))
    audit.appeared("db.odd", rows(1, 3, 5, 7))
    audit.end(10, 1)
    assert found(audit) == {"GAP": 1, "I1": 1}


def test_a_record_in_two_files_is_a_duplicate_however_often_it_is_looked_at(audit: Audit) -> None:
    audit.appeared("db.even", rows(0, 2))
    audit.appeared("db.even", rows(2))
    for _ in range(3):
        audit.look({"db.even": claim(3)})
    assert found(audit) == {"DUPLICATE": 1, "I1": 1}


def test_a_duplicate_counts_also_if_somebody_has_removed_it_since(audit: Audit) -> None:
    audit.appeared("db.even", rows(0, 2))
    more = audit.appeared("db.even", rows(2))
    audit.look({"db.even": claim(3)})
    audit.vanished(more)
    audit.look({"db.even": claim(3)})
    assert found(audit) == {"DUPLICATE": 1, "I1": 1}


def test_files_that_replace_others_double_nothing(audit: Audit) -> None:
    small = [*audit.appeared("db.even", rows(0)), *audit.appeared("db.even", rows(2))]
    audit.appeared("db.even", rows(0, 2))
    audit.vanished(small)
    audit.look({"db.even": claim(3)})
    assert found(audit) == {}


def test_a_record_in_a_table_that_does_not_say_that_it_has_read_it_breaks_i4(audit: Audit) -> None:
    audit.appeared("db.even", rows(0, 2, 4))
    audit.look({"db.even": claim(3)})
    assert found(audit) == {"I4": 1}


@pytest.mark.parametrize("row", [Row(1, "db.odd", "proof of 1"), Row(2, "db.even", "other"), Row(2, "db.odd", "x")])
def test_a_row_that_is_not_as_it_was_sent_is_a_mismatch(audit: Audit, row: Row) -> None:
    audit.appeared("db.even", [row])
    assert found(audit) == {"MISMATCH": 1}


def test_a_row_that_the_topic_never_held_is_counted(audit: Audit) -> None:
    audit.appeared("db.even", rows(12))
    assert found(audit) == {"unknown": 1}


def test_a_file_that_two_snapshots_add_breaks_i2(audit: Audit) -> None:
    audit.added("db.even", "a.parquet", 1)
    audit.added("db.even", "b.parquet", 1)
    audit.added("db.even", "a.parquet", 2)
    assert found(audit) == {"I2": 1}


def test_a_ledger_that_goes_back_breaks_i3(audit: Audit) -> None:
    for control in (3, 5, 4):
        audit.committed("db.even", claim(0, control=control))
    assert found(audit) == {"I3": 1}


@pytest.mark.parametrize("cycles", [3, None])
def test_more_than_two_cycles_break_i6(audit: Audit, cycles: int | None) -> None:
    audit.appeared("db.even", rows(0, 2, 4, 6, 8))
    audit.appeared("db.odd", rows(1, 3, 5, 7, 9))
    audit.end(10, cycles)
    assert found(audit) == {"I6": 1}


def test_a_table_that_is_valid_through_a_time_holds_its_records_of_before() -> None:
    audit = Audit(TABLES, 1, expected)
    for number in range(4):
        audit.produced(0, number, number, timestamp_ms=100 + number)
    audit.appeared("db.even", rows(0))
    for through, broken in ((102, {}), (103, {"VTTS": 1})):
        audit.look({"db.even": replace(claim(1), through_ms=through)})
        assert found(audit) == broken


@pytest.fixture
def with_bad() -> Audit:
    """Record 1 is bad, record 2 belongs nowhere."""
    places = {0: expected(0), 1: ("dead letters", ""), 2: ("nowhere", "")}
    audit = Audit(TABLES, 1, places.__getitem__, "dead letters")
    for number in places:
        audit.produced(0, number, number)
    audit.appeared("db.even", rows(0))
    return audit


def test_records_that_no_table_takes_are_not_missing(with_bad: Audit) -> None:
    with_bad.look({"db.even": claim(3, settled=3)})
    with_bad.buried(1, 0, 1)
    with_bad.end(3, 1)
    assert found(with_bad) == {}


def test_a_bad_record_without_a_dead_letter_is_lost(with_bad: Audit) -> None:
    with_bad.end(3, 1)
    assert found(with_bad) == {"GAP": 1, "DLQ": 1}


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_dead_letter_of_a_record_that_is_not_bad_is_wrong(with_bad: Audit, number: int) -> None:
    with_bad.buried(number, 0, number)
    assert found(with_bad) == {"DLQ": 1}


def test_a_dead_letter_that_names_another_place_is_wrong(with_bad: Audit) -> None:
    with_bad.buried(1, 0, 2)
    assert found(with_bad) == {"DLQ": 1}


def test_a_dead_letter_that_comes_twice_is_told(with_bad: Audit) -> None:
    for _ in range(3):
        with_bad.buried(1, 0, 1)
    assert with_bad.report()["dead letters more than once"] == 2


def test_offsets_of_a_recreated_topic_follow_those_of_the_former_one(audit: Audit) -> None:
    audit.recreated()
    audit.produced(0, 10, 10)
    audit.bad, audit.expected = "dead letters", lambda number: ("dead letters", "")
    audit.buried(10, 0, 0)
    assert audit.begins(0) == [0, 10]
    assert found(audit) == {}


def test_what_was_dropped_with_its_table_is_not_lost(audit: Audit) -> None:
    audit.appeared("db.odd", rows(1, 3, 5, 7, 9))
    audit.vanished(audit.appeared("db.even", rows(0, 2, 4, 6)))
    audit.dropped([0, 2, 4, 6])
    audit.look({"db.odd": claim(10, settled=10)})
    assert found(audit) == {"GAP": 1, "I1": 1}
    assert audit.is_complete(np.arange(8))
    assert not audit.is_complete(np.arange(9))


def test_the_end_tells_records_that_came_late_from_those_that_never_came(audit: Audit) -> None:
    audit.appeared("db.odd", rows(1, 3, 5, 7, 9))
    audit.appeared("db.even", rows(0, 2, 8))
    audit.look({"db.odd": claim(10, settled=10)})
    audit.appeared("db.even", rows(4))
    audit.end(10, 2)
    assert [example for example in audit.examples if "at the end" in example] == [
        "I1: offset 6 of partition 0 is in no table at the end"
    ]


def test_the_ledger_of_a_table_that_was_dropped_begins_again(audit: Audit) -> None:
    audit.committed("db.even", claim(0, control=5))
    audit.began_again("db.even")
    audit.committed("db.even", claim(0, control=4))
    assert found(audit) == {}


@pytest.mark.parametrize("number", [1, 2])
def test_a_row_of_a_record_that_belongs_in_no_table_is_a_mismatch(with_bad: Audit, number: int) -> None:
    with_bad.appeared("db.even", [Row(number, "db.even", "")])
    assert found(with_bad) == {"MISMATCH": 1}


def test_a_ledger_may_go_back_with_its_catalog(audit: Audit) -> None:
    audit.committed("db.even", claim(0, control=5))
    audit.went_back()
    audit.committed("db.even", claim(0, control=4))
    assert found(audit) == {}


@pytest.mark.parametrize(("through", "broken"), [(102, {}), (103, {"VTTS": 1})])
def test_a_commit_is_not_valid_through_what_it_has_not_read(through: int, broken: dict[str, int]) -> None:
    audit = Audit(TABLES, 1, expected)
    for number in range(4):
        audit.produced(0, number, number, timestamp_ms=100 + number)
    audit.committed("db.even", replace(claim(3), through_ms=through))
    assert found(audit) == broken
