"""The summary entry that names the snapshots which a restoration has removed."""

from __future__ import annotations

import pytest

from calving.errors import TableTroubleError
from calving.model.tables import SnapshotPlace
from calving.protocol.restored import RESTORED_SNAPSHOTS, restored_by, restored_entry
from calving.protocol.rollback import Ancestor

LEDGER = {"kafka.connect.offsets.control.connect-x": '{"0":1}', "calving.source-offsets": '{"s":[1]}'}


def snapshot(number: int, summary: dict[str, str] | None = None) -> Ancestor:
    return Ancestor(SnapshotPlace(100 + number, number), number + 99 if number > 1 else None, summary or {})


def test_the_place_the_parent_and_the_ledger_of_each_snapshot_are_kept() -> None:
    made = restored_entry([snapshot(1, {**LEDGER, "added-files-size": "7"}), snapshot(2)])
    assert restored_by(made) == [snapshot(1, LEDGER), snapshot(2)]


def test_a_snapshot_that_had_taken_over_others_hands_them_on() -> None:
    before = restored_entry([snapshot(1, LEDGER)])
    assert restored_by(restored_entry([snapshot(2, before)])) == [snapshot(1, LEDGER), snapshot(2)]


def test_of_very_many_snapshots_the_newest_are_kept() -> None:
    made = restored_entry(snapshot(number, LEDGER) for number in range(1, 5_000))
    kept = restored_by(made)
    assert len(made[RESTORED_SNAPSHOTS]) < 101_000
    assert kept == [snapshot(number, LEDGER) for number in range(5_000 - len(kept), 5_000)]


def test_a_snapshot_that_took_nothing_over_has_no_such_entry() -> None:
    assert restored_entry(()) == {}
    assert restored_by({}) == []


def test_an_entry_that_somebody_has_changed_is_named() -> None:
    with pytest.raises(TableTroubleError, match=r"'calving\.restored-snapshots' in the table's properties"):
        restored_by({RESTORED_SNAPSHOTS: '[{"id":"x"}]'})
