"""Expiry that is killed, fails, or meets others never deletes what a snapshot names, and the next run goes on."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import Table

from calving.errors import CommitUncertainError
from calving.iceberg.catalog import open_catalog
from harness.structure import check
from tests.iceberg.histories import MutationTable, pyiceberg_rows
from tests.iceberg.killed_maintenance import kills
from tests.maintenance.compacting import append, compact, fail_at
from tests.maintenance.expiring import check_files, delete, expire, expiring, listed, named, stored


def replaced(catalog: Catalog, version: int = 2) -> MutationTable:
    """Files that a compaction has replaced, below two later commits."""
    table = expiring(catalog, version)
    for number in range(4):
        append(table, number, 3)
    compact(table)
    append(table, 10, 3)
    append(table, 11, 3)
    return table


def test_who_is_killed_at_any_step_leaves_every_needed_file_and_the_next_one_goes_on(tmp_path: Path) -> None:
    table = expiring(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), 2, most=1)
    append(table, 0, 3)
    table.commit(table.step([{"id": 0, "name": "new", "g": 0}]))
    compact(table)
    append(table, 1, 3)
    assert kills("tests.maintenance.killed_expiry", tmp_path, table) > 5
    assert stored(table.table) == named(table.table) and len(table.table.metadata.snapshots) == 1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_error_at_any_step_is_made_good_by_the_next_run(catalog: Catalog, version: int) -> None:
    table = expiring(catalog, version, 1)
    for last in range(7):  # the list, the commit, the first deletions
        for number in range(2):
            append(table, 3 * last + number, 1)
        compact(table)
        append(table, 3 * last + 2, 1)
        with pytest.MonkeyPatch.context() as patch:
            has_failed = fail_at(last, patch)
            with suppress(OSError):  # the list was not written
                expire(table)
                delete(table)
        check_files(table.table)
        expire(table)
        delete(table)
        assert has_failed() and stored(table.table) == named(table.table)
    assert pyiceberg_rows(table.table) == table.rows()


def commits_are(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Let ``act`` make the next commits: it gets a table, what to commit, and how."""
    original = Table._do_commit

    def wrapped(self: Table, *given: Any, **named: Any) -> None:
        act(self, lambda: original(self, *given, **named))

    monkeypatch.setattr(Table, "_do_commit", wrapped)


def test_a_commit_whose_answer_is_lost_is_found(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = replaced(catalog)

    def lose(own: Table, commit: Any) -> None:
        commit()
        raise TimeoutError("no answer")

    with monkeypatch.context() as patch:
        commits_are(patch, lose)
        gone = expire(table)
    assert gone is not None and len(gone.snapshots) == 5
    delete(table)
    assert stored(table.table) == named(table.table)


def test_a_catalog_without_an_answer_is_named_and_nothing_is_deleted(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = replaced(catalog)
    before = stored(table.table)

    def fail(own: Table, commit: Any) -> None:
        raise TimeoutError("no answer")

    with monkeypatch.context() as patch:
        commits_are(patch, fail)
        with pytest.raises(CommitUncertainError, match="no answer"):
            expire(table)
    assert delete(table) is None and stored(table.table) == before


def test_a_denied_commit_is_not_tried_again(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table, tried = replaced(catalog), []

    def deny(own: Table, commit: Any) -> None:
        tried.append(own)
        raise ForbiddenError("not yours")

    commits_are(monkeypatch, deny)
    with pytest.raises(CommitUncertainError, match="not yours"):
        expire(table)
    assert len(tried) == 1


def test_a_commit_of_the_sink_in_between_stays(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = replaced(catalog)
    raced = iter([True])

    def race(own: Table, commit: Any) -> None:
        if next(raced, False):
            append(table, 12, 3)
        commit()

    with monkeypatch.context() as patch:
        commits_are(patch, race)
        gone = expire(table)
    assert gone is not None and (len(gone.snapshots), gone.kept) == (5, 3)
    delete(table)
    check(table.table)
    check_files(table.table)
    assert pyiceberg_rows(table.table) == table.rows()


def test_a_tag_on_a_snapshot_that_is_about_to_expire_keeps_it(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = replaced(catalog)
    first = table.table.metadata.snapshots[2]
    raced = iter([True])

    def race(own: Table, commit: Any) -> None:
        if next(raced, False):
            table.table.manage_snapshots().create_tag(first.snapshot_id, "kept").commit()
            append(table, 12, 3)
        commit()

    with monkeypatch.context() as patch:
        commits_are(patch, race)
        expire(table)
    delete(table)
    assert table.table.scan(snapshot_id=first.snapshot_id).to_arrow().num_rows == 9
    check_files(table.table)


def test_the_sink_may_expire_snapshots_of_the_plan(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = replaced(catalog)
    raced = iter([True])

    def race(own: Table, commit: Any) -> None:
        if next(raced, False):
            for number in range(20, 32):  # the sink expires ten snapshots at a time
                append(table, number, 1)
        commit()

    with monkeypatch.context() as patch:
        commits_are(patch, race)
        expire(table)
    expire(table)
    delete(table)
    assert stored(table.table) == named(table.table) and not listed(table.table)
    assert pyiceberg_rows(table.table) == table.rows()


def test_two_expire_at_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = replaced(catalog)
    raced = iter([True])

    def race(own: Table, commit: Any) -> None:
        if next(raced, False):
            expire(table)
        commit()

    with monkeypatch.context() as patch:
        commits_are(patch, race)
        expire(table)
    delete(table)
    assert stored(table.table) == named(table.table)
    assert len(table.table.metadata.snapshots) == 2
