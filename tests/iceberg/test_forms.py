"""A table names the form in which it was written, whatever other engines do with it, and earlier versions refuse it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from calving.errors import NewerVersionError
from calving.iceberg.attempts import Attempts
from calving.iceberg.catalog import open_catalog
from calving.iceberg.commit import CommitStyle, IcebergCommitter
from calving.iceberg.maintenance import Maintenance
from calving.model.forms import NEWEST, UNMARKED, StoredForm
from calving.model.tables import Branches
from calving.protocol.effects import CommitTables
from calving.protocol.forms import FORM
from calving.protocol.ledger import SourceProgress
from calving.runtime.preflight import ledger_of
from tests.iceberg.lake import KEY, Lake

LATER = StoredForm(NEWEST.number + 1, "0.9.0")
SENTENCE = rf"written in form {LATER.number}, which this version does not know: install version 0\.9\.0 or later"


@pytest.fixture(params=["main", "audit"])
def branch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path, branch: str) -> Lake:
    """A table that a later version has written, in the form that it brings."""
    made = Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", branch)
    made.commit(0, 100)
    made.key, made.form = replace(made.key, newest=LATER), LATER
    made.commit(100, 200)
    return made


def named(lake: Lake) -> str | None:
    return lake.table.properties.get(lake.key.of_table(FORM))


def downgraded(lake: Lake) -> None:
    lake.key, lake.form = replace(lake.key, newest=NEWEST), NEWEST


def test_a_commit_in_a_form_that_changes_tables_names_it(lake: Lake) -> None:
    assert named(lake) == f"{LATER.number}:0.9.0"


def test_a_commit_in_a_form_with_the_same_tables_names_none(tmp_path: Path) -> None:
    lake = Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "main")
    lake.form = UNMARKED
    lake.commit(0, 100)
    assert named(lake) is None


def test_the_version_that_wrote_the_form_goes_on(lake: Lake) -> None:
    lake.commit(200, 300)
    assert lake.rows == list(range(300))


def test_the_form_stays_after_a_rollback_and_a_compaction(lake: Lake) -> None:
    head = lake.head
    lake.commit(200, 300)
    lake.roll_back(head)
    lake.compact()
    lake.look()
    assert named(lake) == str(LATER)


def test_an_earlier_version_reads_no_ledger_of_the_table(lake: Lake) -> None:
    downgraded(lake)
    with pytest.raises(NewerVersionError, match=rf"^table db\.t: .* {SENTENCE}"):
        ledger_of(lake.key, lake.table)


def test_an_earlier_version_takes_no_other_branch_of_the_table(lake: Lake, branch: str) -> None:
    downgraded(lake)
    key = replace(lake.key, branch="main" if branch != "main" else "audit")
    with pytest.raises(NewerVersionError, match=rf"^table db\.t: .* {SENTENCE}"):
        ledger_of(key, lake.table)


def test_the_newer_form_of_another_sink_does_not_count_for_a_commit(lake: Lake) -> None:
    ledger_of(replace(KEY, group=f"{KEY.group}-2"), lake.table)


def test_an_earlier_version_commits_nothing_to_the_table(lake: Lake) -> None:
    downgraded(lake)
    with pytest.raises(NewerVersionError, match=SENTENCE):
        lake.commit(200, 300)
    assert lake.rows == list(range(200))


def test_an_earlier_version_maintains_no_table_of_which_any_ledger_is_of_a_newer_form(lake: Lake) -> None:
    another = replace(KEY, group="another")
    with pytest.raises(NewerVersionError, match=rf"^table db\.t: .* {SENTENCE}"):
        list(Maintenance(lake.catalog, ("db", "t"), another, {}).convert())


def test_a_leader_of_an_earlier_version_stops_instead_of_keeping_the_files_for_a_later_cycle(
    lake: Lake, branch: str
) -> None:
    key = lake.key
    style = CommitStyle(key.control_topic, key.group, key.log_id, "x-0", Branches(branch), lambda _: None, 0)
    committer = IcebergCommitter(lake.catalog, "c", style, Attempts(1, 60))
    request = CommitTables(UUID(int=1), {("db", "t"): (lake.publish(200, 300),)}, {0: 9}, SourceProgress({}, {}), None)
    with pytest.raises(NewerVersionError, match=rf"^table db\.t: .* {SENTENCE}"):
        list(committer.commit(request))


def test_a_leader_writes_tables_in_the_form_that_the_request_names(tmp_path: Path) -> None:
    lake = Lake(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "2", "main")
    style = CommitStyle(KEY.control_topic, KEY.group, KEY.log_id, "x-0", Branches(), lambda _: None, 0)
    committer = IcebergCommitter(lake.catalog, "c", style, Attempts(1, 60))
    entries = (lake.publish(0, 100),)
    request = CommitTables(uuid4(), {("db", "t"): entries}, {0: 9}, SourceProgress({}, {}), None, form=LATER)
    list(committer.commit(request))
    assert named(lake) == str(LATER)
