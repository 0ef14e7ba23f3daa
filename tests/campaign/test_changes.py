"""The records of a campaign, by workload."""

from __future__ import annotations

import pytest

from campaign import changes, records
from campaign.changes import Workload

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


@pytest.mark.parametrize("workload", ["upsert", "cdc"])
def test_a_key_stays_in_its_table_and_its_partition(workload: Workload) -> None:
    found = [(number, changes.change(number, TABLES, workload)) for number in range(5000)]
    places = {c.key: (c.table, n * 7 % changes.PARTITIONS) for n, c in found if c is not None}
    assert all(places[c.key] == (c.table, n * 7 % changes.PARTITIONS) for n, c in found if c is not None)
    assert len(places) < 1000
