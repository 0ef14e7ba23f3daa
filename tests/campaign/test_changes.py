"""The records of a campaign, by workload."""

from __future__ import annotations

import pytest

from campaign import changes, records
from campaign.changes import Change, Workload

TABLES = ("db.t0", "db.t1")


def test_an_append_workload_sends_each_record_as_a_row_of_its_own() -> None:
    sent = [changes.payload(number, TABLES, "append") for number in range(100)]
    assert sent == [records.payload(number, TABLES) for number in range(100)]


def test_where_a_column_decides_deletes_mark_rows_and_some_of_them_come_late() -> None:
    soft = "db.t4"  # the fifth of six kinds
    tables = [f"db.t{place}" for place in range(6)]
    changed = [changes.change(number, tables, "cdc") for number in range(20_000)]
    found = [(number, made) for number, made in enumerate(changed) if made is not None and made.table == soft]
    assert all(made.proof is not None for _, made in found)
    deletes = [(number, made) for number, made in found if (made.proof or "").startswith(changes.GONE)]
    late = [number for number, made in deletes if made.order < number]
    assert 0.15 < len(deletes) / len(found) < 0.25
    assert 0.4 < len(late) / len(deletes) < 0.6
    assert len({made.order for _, made in found}) == len(found)


def test_in_a_mixed_workload_every_second_table_is_appended_to() -> None:
    found = [made for number in range(5000) if (made := changes.change(number, TABLES, "mixed")) is not None]
    appended = [made.key for made in found if made.table == "db.t1"]
    changed = [made.key for made in found if made.table == "db.t0"]
    assert len(set(appended)) == len(appended) > 2000
    assert len(set(changed)) < 500 < 2000 < len(changed)
    assert not set(appended) & set(changed)


@pytest.mark.parametrize("workload", ["upsert", "cdc", "history"])
def test_a_key_stays_in_its_table_and_its_partition(workload: Workload) -> None:
    found = [(number, changes.change(number, TABLES, workload)) for number in range(5000)]
    places = {c.key: (c.table, n * 7 % changes.PARTITIONS) for n, c in found if c is not None}
    assert all(places[c.key] == (c.table, n * 7 % changes.PARTITIONS) for n, c in found if c is not None)
    assert len(places) < 1000


def of_kind(kind: str, workload: Workload) -> list[tuple[int, Change]]:
    """The changes of the first of four tables that has this kind."""
    tables = [f"db.t{place}" for place in range(4)]
    name = next(each for place, each in enumerate(tables) if changes.kind(place, workload, "local") == kind)
    made = ((number, changes.change(number, tables, workload)) for number in range(20_000))
    return [(number, each) for number, each in made if each is not None and each.table == name]


def test_partial_updates_lack_each_value_at_times_and_some_have_a_placeholder() -> None:
    found = [(n, each) for n, each in of_kind("by key, partial, skipping", "partial") if each.keeps]
    assert all(any(name not in each.others for _, each in found) for name in changes.OTHERS)
    assert all(any(name in each.others for _, each in found) for name in changes.OTHERS)
    tables = [f"db.t{place}" for place in range(4)]
    sent = [changes.payload(number, tables, "partial") or b"" for number, _ in found]
    assert 0.2 < sum(b"unavailable" in value for value in sent) / len(sent) < 0.8


def test_only_one_partition_empties_a_table_as_its_truncates_have_no_order_with_others() -> None:
    found = of_kind("partial, emptied", "partial")
    assert {number * 7 % changes.PARTITIONS for number, _ in found} == {0}
    assert sum(each.key is None for _, each in found) > 10


def test_truncates_of_a_source_come_in_the_partition_of_its_rows() -> None:
    found = of_kind("by key, of sources", "partial")
    assert all(each.others["source"][0] == str(n * 7 % 3) for n, each in found if each.others)
    assert len({each.others["source"] for _, each in found if each.key is None}) == 6


def test_keys_with_late_versions_are_never_deleted() -> None:
    found = of_kind("history, ordered", "history")
    late = {each.key for number, each in found if each.order < number}
    deleted = {each.key for _, each in found if each.proof is None}
    assert len(late) > 20 < len(deleted) and not late & deleted
    orders = [(each.key, each.order) for _, each in found]
    assert len(orders) > len(set(orders)), "some have the same place"


def test_a_version_without_a_time_is_bad() -> None:
    tables = [f"db.t{place}" for place in range(4)]
    timed = [each.table for number in range(3, 20_000, 40) if (each := changes.change(number, tables, "history"))]
    assert {changes.kind(tables.index(name), "history", "local") for name in timed} == {
        "history, ordered",
        "by key, history, ordered",
    }
    assert {changes.place(number, tables, "history")[0] for number in range(3, 20_000, 40)} >= {records.BAD}
