"""One commit at a time: what it writes, what it refuses, what it repairs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.manifest import ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from calving.errors import CommitRefusedError, ConfigError, SupersededError, TableTroubleError
from calving.iceberg.attempts import Attempts
from calving.iceberg.catalog import open_catalog, translate
from calving.iceberg.commit import CommitStyle, IcebergCommitter
from calving.iceberg.expiry import expired
from calving.iceberg.locations import FileRules
from calving.iceberg.parking import CatalogStorage, ParkedCommit, Parking
from calving.iceberg.summary import java_date_time
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, Parked, TableId, TableReference
from calving.model.files import DataFile, FileContent, PartitionField, PartitionTuple
from calving.model.marks import TableMark
from calving.model.offsets import Span, TopicPartition, merged
from calving.model.tables import Branches
from calving.protocol.commit import CommitLoop, Settled, admit
from calving.protocol.coordinator import Committed, Failed
from calving.protocol.effects import CommitTables
from calving.protocol.held_back import Gate
from calving.protocol.ledger import NO_LEDGER, NOWHERE, SourceProgress
from calving.protocol.ledger_key import LedgerKey

KEY = LedgerKey("control", "connect-x", "log-1")
REFERENCE = TableReference("iceberg", ("db",), "t")
MAIN = {"ref_name": "main", "type": "branch"}
FILES = FileRules(("file:///",))
"""Most of these files do not exist."""
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "kind", StringType(), required=False))


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    found = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    found.create_namespace("db")
    found.create_table("db.t", SCHEMA, properties={"write.metadata.delete-after-commit.enabled": "true"})
    return found


def file(path: str, **more: Any) -> DataFile:
    return DataFile(f"file:///x/{path}", "PARQUET", 3, 100, value_counts={1: 3, 2: 3}, **more)


def entry(offset: int, *files: DataFile, reference: TableReference = REFERENCE) -> Envelope:
    data = tuple(f for f in files if f.content is FileContent.DATA)
    deletes = tuple(f for f in files if f.content is not FileContent.DATA)
    event = DataWritten(uuid4(), reference, data, deletes)
    return Envelope(0, offset, event, {TopicPartition("s", 0): (Span(offset * 10, offset * 10 + 10),)})


def settle(catalog: Catalog, *entries: Envelope, branch: str = "main", **summary: str) -> Settled:
    key = dataclasses.replace(KEY, branch=branch)
    target = IcebergTarget(catalog, ("db", "t"), branch, key, summary, sleep=lambda _: None, files=FILES)
    covered = {TopicPartition("s", 0): merged(span for e in entries for spans in e.spans.values() for span in spans)}
    return CommitLoop(target, key, 5).settle(
        entries, {0: max(e.offset for e in entries) + 1}, SourceProgress(covered, {})
    )


def paths(catalog: Catalog, branch: str = "main") -> list[str]:
    table = catalog.load_table("db.t")
    snapshot = table.metadata.snapshot_by_name(branch)
    assert snapshot is not None
    tasks = table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    return sorted(task.file.file_path.removeprefix("file:///x/") for task in tasks)


def head(catalog: Catalog) -> dict[str, str]:
    snapshot = catalog.load_table("db.t").current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    return dict(snapshot.summary.additional_properties)


def test_the_summary_has_javas_names_and_only_text(catalog: Catalog) -> None:
    settle(catalog, entry(4, file("a")), **{"kafka.connect.commit-id": "c"})
    summary = head(catalog)
    assert summary["kafka.connect.offsets.control.connect-x"] == '{"0":5}'
    assert summary["calving.control-log-id"] == "log-1"
    assert json.loads(summary["calving.source-offsets"]) == {"s": [50]}
    assert summary["added-records"] == "3"
    metadata = json.loads(Path(catalog.load_table("db.t").metadata_location.removeprefix("file://")).read_text())
    assert all(isinstance(v, str) for s in metadata["snapshots"] for v in s["summary"].values())


@pytest.mark.parametrize("total", ["9" * 5000, "many", "-3"])
def test_a_total_of_somebody_else_that_is_no_number_is_not_counted_on(catalog: Catalog, total: str) -> None:
    settle(catalog, entry(4, file("a")))
    table = catalog.load_table("db.t")
    (append,) = table.metadata.snapshots
    summary = Summary(Operation.APPEND, **{**head(catalog), "total-records": total})
    changed = {"snapshot_id": 7, "sequence_number": 2, "parent_snapshot_id": append.snapshot_id, "summary": summary}
    damaged = append.model_copy(update=changed)
    table._do_commit((AddSnapshotUpdate(snapshot=damaged), SetSnapshotRefUpdate(**MAIN, snapshot_id=7)), ())
    settle(catalog, entry(5, file("b")))
    assert paths(catalog) == ["a", "b"]
    assert "total-records" not in head(catalog) and head(catalog)["total-data-files"] == "2"


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_commit_keeps_what_the_table_holds(catalog: Catalog, version: str) -> None:
    catalog.drop_table("db.t")
    catalog.create_table("db.t", SCHEMA, properties={"format-version": version})
    for offset, name in enumerate("abc"):
        settle(catalog, entry(offset, file(name)))
    assert paths(catalog) == ["a", "b", "c"]


def test_the_ledger_is_also_a_table_property(catalog: Catalog) -> None:
    settle(catalog, entry(4, file("a")))
    assert catalog.load_table("db.t").properties["kafka.connect.offsets.control.connect-x"] == '{"0":5}'


def test_a_replay_commits_nothing_and_makes_no_snapshot(catalog: Catalog) -> None:
    settle(catalog, entry(0, file("a")), entry(1, file("b")))
    before = len(catalog.load_table("db.t").metadata.snapshots)
    assert settle(catalog, entry(0, file("a")), entry(1, file("b"))).snapshot_id is None
    assert len(catalog.load_table("db.t").metadata.snapshots) == before


def test_the_property_holds_after_all_snapshots_with_the_ledger_are_gone(catalog: Catalog) -> None:
    settle(catalog, entry(0, file("a")))
    table = catalog.load_table("db.t")
    old = table.current_snapshot()
    assert old is not None
    table.append(pa.table({"id": [1], "kind": ["x"]}))
    catalog.load_table("db.t").maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
    assert settle(catalog, entry(0, file("a"))).snapshot_id is None


def test_the_next_attempt_builds_on_the_table_after_the_pause(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a sink beside others that commit faster than it pauses would be refused each time."""
    commit, conflicts = Table._do_commit, [CommitFailedException("somebody was faster")]

    def contended(table: Table, *args: Any, **named: Any) -> None:
        if conflicts:
            raise conflicts.pop()
        commit(table, *args, **named)

    monkeypatch.setattr(Table, "_do_commit", contended)
    others = iter("xyz")

    def pause(_: float) -> None:
        catalog.load_table("db.t").append(pa.table({"id": [1], "kind": [next(others)]}))

    target = IcebergTarget(catalog, ("db", "t"), "main", KEY, {}, sleep=pause, files=FILES)
    settled = CommitLoop(target, KEY, 5).settle([entry(0, file("a"))], {0: 1}, NOWHERE)
    assert (settled.tries, next(others)) == (2, "y")


def test_a_recovery_refuses_what_is_on_its_way_and_what_was_heard_before_it(catalog: Catalog) -> None:
    settle(catalog, entry(0, file("a")))
    target = IcebergTarget(catalog, ("db", "t"), "main", KEY, {}, sleep=lambda _: None, files=FILES)
    on_its_way, files = target.load(), admit([entry(1, file("b"))], {0: 2}, NOWHERE, NO_LEDGER)
    other = IcebergTarget(catalog, ("db", "t"), "main", KEY, {}, sleep=lambda _: None, files=FILES)
    other.supersede(lambda _: KEY.recovered_at(KEY.log_id, {0: 2}))
    with pytest.raises(CommitRefusedError):
        target.attempt(on_its_way, files)
    with pytest.raises(SupersededError, match="recovered"):
        settle(catalog, entry(1, file("b")))
    assert paths(catalog) == ["a"]
    again = CommitLoop(target, KEY, 5).settle([entry(2, file("c"))], {0: 3}, SourceProgress({}, {}, since={0: 2}))
    assert again.snapshot_id is not None


def test_a_commit_that_the_catalog_refuses_as_malformed_is_asked_for_once_and_leaves_no_file(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def refusing(*args: Any) -> None:
        calls.append(args)
        raise BadRequestError("no such snapshot format")

    before = {*tmp_path.rglob("*.avro")}
    monkeypatch.setattr(Table, "_do_commit", refusing)
    with pytest.raises(
        TableTroubleError, match=r"table db\.t: the catalog refuses the commit .*no such snapshot format"
    ):
        settle(catalog, entry(0, file("a")))
    assert len(calls) == 1
    assert {*tmp_path.rglob("*.avro")} == before


@pytest.mark.parametrize(
    "when", ["lost request", "lost answer", "false conflict", "true conflict", "false bad request"]
)
def test_whatever_is_reported_the_table_is_asked(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    original, calls = Table._do_commit, []

    def lying(self: Table, *args: Any) -> None:
        calls.append(when)
        if len(calls) > 1:
            return original(self, *args)
        if when == "lost request":
            raise OSError(when)
        if when == "true conflict":
            settle(catalog, entry(7, file("other")))
        original(self, *args)
        if when == "lost answer":
            raise OSError(when)
        if when == "false conflict":
            raise CommitFailedException(when)
        if when == "false bad request":
            raise BadRequestError(when)
        return None

    monkeypatch.setattr(Table, "_do_commit", lying)
    if when == "true conflict":
        settle(catalog, entry(8, file("a")))
        assert paths(catalog) == ["a", "other"]
    else:
        settle(catalog, entry(0, file("a")))
        assert paths(catalog) == ["a"]


def test_a_landed_commit_that_is_refused_and_then_not_seen_is_left_whole(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated request is refused because the first one landed, and a replica that is behind bears the refusal out."""
    settle(catalog, entry(0, file("before")))
    stale = catalog.load_table("db.t")
    original, load = Table._do_commit, type(catalog).load_table
    refused: list[bool] = []

    def lying(self: Table, *args: Any) -> None:
        original(self, *args)
        if not refused:
            refused.append(True)
            raise CommitFailedException("false conflict")

    def behind(self: Catalog, name: Any) -> Table:
        if refused == [True]:
            refused.append(False)
            return stale
        return load(self, name)

    monkeypatch.setattr(Table, "_do_commit", lying)
    monkeypatch.setattr(type(catalog), "load_table", behind)
    settle(catalog, entry(1, file("a")))
    assert paths(catalog) == ["a", "before"]


def test_a_competitor_that_commits_the_same_entries_first_leaves_nothing_to_do(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Table._do_commit, []

    def overtaken(self: Table, *args: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            settle(catalog, entry(0, file("a")))
        original(self, *args)

    monkeypatch.setattr(Table, "_do_commit", overtaken)
    assert settle(catalog, entry(0, file("a"))).snapshot_id is None
    assert paths(catalog) == ["a"]


def test_files_of_two_specs_share_one_snapshot(catalog: Catalog) -> None:
    with catalog.load_table("db.t").update_spec() as update:
        update.add_field("kind", IdentityTransform(), "kind")
    partition = PartitionTuple((PartitionField("kind", 1000, '"string"'),), ("x",))
    settle(catalog, entry(0, file("old"), file("new", spec_id=1, partition=partition)))
    table = catalog.load_table("db.t")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    assert sorted((m.partition_spec_id, m.content) for m in manifests) == [
        (0, ManifestContent.DATA),
        (1, ManifestContent.DATA),
    ]


def test_a_missing_branch_is_made_from_main(catalog: Catalog) -> None:
    settle(catalog, entry(0, file("a")))
    settle(catalog, entry(1, file("b")), branch="audit")
    assert paths(catalog) == ["a"]
    assert paths(catalog, "audit") == ["a", "b"]


def test_a_branch_that_was_dropped_is_made_anew_with_a_warning(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    settle(catalog, entry(0, file("a")))
    settle(catalog, entry(1, file("b")), branch="audit")
    assert "was dropped" not in caplog.text
    catalog.load_table("db.t").manage_snapshots().remove_branch("audit").commit()
    settle(catalog, entry(2, file("c")), branch="audit")
    assert "table db.t: branch audit was dropped, and is made anew from main" in caplog.text


def test_a_branch_that_meets_a_conflict_is_made_from_main_still(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(catalog, entry(0, file("a")))
    original, conflicts = Table._do_commit, iter([CommitFailedException("somebody else was faster")])

    def busy(self: Table, *changes: Any, **named: Any) -> None:
        for conflict in conflicts:
            raise conflict
        original(self, *changes, **named)

    monkeypatch.setattr(Table, "_do_commit", busy)
    settle(catalog, entry(1, file("b")), branch="audit")
    assert paths(catalog, "audit") == ["a", "b"]


def test_a_missing_branch_of_an_empty_table_is_made_too(catalog: Catalog) -> None:
    settle(catalog, entry(1, file("b")), branch="audit")
    assert paths(catalog, "audit") == ["b"]
    assert paths(catalog) == []


def test_a_tag_in_the_place_of_a_branch_stays_where_it_is(catalog: Catalog) -> None:
    settle(catalog, entry(0, file("a")))
    table = catalog.load_table("db.t")
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_tag(head, "audit").commit()
    with pytest.raises(TableTroubleError, match=r"table db\.t takes no rows: audit is a tag of it, not a branch"):
        settle(catalog, entry(1, file("b")), branch="audit")
    assert catalog.load_table("db.t").metadata.refs["audit"].snapshot_id == head


def test_a_snapshot_is_never_older_than_the_last_one(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(catalog, entry(0, file("a")))
    monkeypatch.setattr("pyiceberg.table.snapshots.time.time_ns", lambda: 10**18)
    settle(catalog, entry(1, file("b")))
    first, second = catalog.load_table("db.t").metadata.snapshots
    assert second.timestamp_ms > first.timestamp_ms


def test_a_recreated_table_is_a_failure_not_a_skip(catalog: Catalog) -> None:
    stranger = dataclasses.replace(REFERENCE, table_uuid=UUID(int=9))
    with pytest.raises(TableTroubleError, match=r"dropped and recreated.* `calving recover FILE`; .* `calving release"):
        target = IcebergTarget(catalog, ("db", "t"), "main", KEY, {}, frozenset({str(stranger.table_uuid)}))
        CommitLoop(target, KEY, 5).settle([entry(0, file("a"), reference=stranger)], {0: 1})


def test_a_table_that_is_not_the_one_of_before_is_named_in_the_log(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator who dropped the table knows it; one who restored a catalog without it may not."""
    now = str(catalog.load_table("db.t").metadata.table_uuid)
    for uuid in (now, "another"):
        target = IcebergTarget(catalog, ("db", "t"), "main", KEY, {}, mark=TableMark(uuid, 0))
        target.load()
        target.load()
        assert caplog.text.count("is not the table that was committed before") == (uuid != now)


def test_old_snapshots_expire_by_count_but_never_one_that_a_tag_holds(catalog: Catalog) -> None:
    with catalog.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"calving.expire.max-snapshots": "5"})
    settle(catalog, entry(0, file("f0")))
    table = catalog.load_table("db.t")
    tagged = table.metadata.current_snapshot_id
    assert tagged is not None
    table.manage_snapshots().create_tag(tagged, "kept").commit()
    for offset in range(1, 40):
        settle(catalog, entry(offset, file(f"f{offset}")))
    metadata = catalog.load_table("db.t").metadata
    assert len(metadata.snapshots) <= 17
    assert tagged in {s.snapshot_id for s in metadata.snapshots}
    assert len(paths(catalog)) == 40


def expiring(catalog: Catalog, **properties: str) -> None:
    with catalog.load_table("db.t").transaction() as transaction:
        transaction.set_properties(
            {
                "calving.expire.max-snapshots": "5",
                "commit.manifest-merge.enabled": "true",
                "commit.manifest.min-count-to-merge": "4",
                **properties,
            }
        )


def manifests(catalog: Catalog) -> tuple[set[str], set[str]]:
    """Those that there are, and those that a snapshot lists; manifest lists too."""
    table = catalog.load_table("db.t")
    listed = {s.manifest_list for s in table.metadata.snapshots}
    listed |= {m.manifest_path for s in table.metadata.snapshots for m in s.manifests(table.io)}
    folder = Path(table.location().removeprefix("file://"), "metadata")
    return {f"file://{path}" for path in folder.glob("*.avro")}, listed


def test_what_a_branch_retains_counts_before_the_properties(catalog: Catalog) -> None:
    for offset in range(20):
        settle(catalog, entry(offset, file(f"f{offset}")))
    table = catalog.load_table("db.t")
    with table.transaction() as transaction:
        transaction.set_properties({"calving.expire.max-snapshots": "5", "history.expire.max-snapshot-age-ms": "0"})
    metadata = catalog.load_table("db.t").metadata
    main = metadata.refs["main"]
    for least, gone in ((None, 15), (8, 12), (1000, 0)):
        metadata.refs["main"] = main.model_copy(update={"min_snapshots_to_keep": least, "max_snapshot_age_ms": 10**9})
        assert len(expired(metadata, "main").gone) == gone


def test_a_retention_that_is_no_number_is_named(catalog: Catalog) -> None:
    table = catalog.load_table("db.t")
    with table.transaction() as transaction:
        transaction.set_properties({"calving.expire.max-snapshots": "all"})
    with pytest.raises(TableTroubleError, match=r"property calving\.expire\.max-snapshots = all is not a whole number"):
        expired(catalog.load_table("db.t").metadata, "main")


def test_a_limit_of_partition_summaries_that_is_no_number_is_named(catalog: Catalog) -> None:
    with catalog.load_table("db.t").transaction() as transaction:
        transaction.set_properties({"write.summary.partition-limit": "many"})
    with pytest.raises(TableTroubleError, match=r"write\.summary\.partition-limit = many is not a whole number"):
        settle(catalog, entry(0, file("a")))


def test_expired_snapshots_take_their_manifests_along(catalog: Catalog) -> None:
    expiring(catalog)
    for offset in range(60):
        settle(catalog, entry(offset, file(f"f{offset}")))
    there, listed = manifests(catalog)
    assert there == listed
    assert len(paths(catalog)) == 60


def test_manifests_stay_where_another_line_of_snapshots_may_list_them(catalog: Catalog) -> None:
    expiring(catalog)
    for offset in range(3):
        settle(catalog, entry(offset, file(f"f{offset}")))
    table = catalog.load_table("db.t")
    assert table.metadata.current_snapshot_id is not None
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "audit").commit()
    settle(catalog, entry(3, file("audited")), branch="audit")
    for offset in range(3, 60):
        settle(catalog, entry(offset, file(f"f{offset}")))
    there, listed = manifests(catalog)
    assert listed <= there
    assert paths(catalog, "audit") == ["audited", "f0", "f1", "f2"]


def test_a_snapshot_that_took_files_away_stays_for_those_who_look_for_them(catalog: Catalog) -> None:
    expiring(catalog)
    settle(catalog, entry(0, file("f0")))
    table = catalog.load_table("db.t")
    (task,) = table.scan().plan_files()
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
        change.delete_data_file(task.file)
    removed = catalog.load_table("db.t").metadata.current_snapshot_id
    for offset in range(1, 60):
        settle(catalog, entry(offset, file(f"f{offset}")))
    table = catalog.load_table("db.t")
    (kept,) = [s for s in table.metadata.snapshots if s.snapshot_id == removed]
    gone = [e for m in kept.manifests(table.io) for e in m.fetch_manifest_entry(table.io, discard_deleted=False)]
    assert [e.data_file.file_path for e in gone] == ["file:///x/f0"]
    assert len(table.metadata.snapshots) <= 17


def test_nothing_expires_where_garbage_collection_is_off(catalog: Catalog) -> None:
    expiring(catalog, **{"gc.enabled": "false"})
    for offset in range(20):
        settle(catalog, entry(offset, file(f"f{offset}")))
    assert len(catalog.load_table("db.t").metadata.snapshots) == 20


def committer(catalog: Catalog) -> IcebergCommitter:
    style = CommitStyle("control", "connect-x", "log-1", "x-0", Branches(), lambda _: None, 0, FILES)
    return IcebergCommitter(catalog, "iceberg", style, Attempts(4, 60))


def test_records_that_two_commits_have_passed_over_are_an_error_in_the_log(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """As after the control topic was renamed under a version that did not notice it."""
    made, tp = committer(catalog), TopicPartition("s", 0)
    for offset, names in ((45, ["a"]), (46, ["b"])):
        progress = SourceProgress({tp: (Span(450, offset * 10 + 10),)}, {})
        found = {REFERENCE.identifier: (entry(offset, *map(file, names)),)}
        assert "does not hold" not in caplog.text
        dict(made.commit(CommitTables(uuid4(), found, {0: offset + 1}, progress, None)))
    assert "table db.t does not hold offsets 0 to 450 of s-0" in caplog.text


def test_a_table_that_fails_does_not_keep_the_others_from_committing(catalog: Catalog) -> None:
    missing = dataclasses.replace(REFERENCE, name="missing")
    tables = {
        REFERENCE.identifier: (entry(0, file("a")),),
        missing.identifier: (entry(1, file("b"), reference=missing),),
    }
    outcomes = dict(committer(catalog).commit(CommitTables(uuid4(), tables, {0: 2}, NOWHERE, None)))
    assert isinstance(outcomes["db", "t"], Committed)
    failed = outcomes["db", "missing"]
    assert isinstance(failed, Failed) and "does not exist" in failed.reason


def test_an_error_after_a_commit_is_told_at_once_and_the_next_cycle_finds_the_commit(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, request = (
        committer(catalog),
        CommitTables(uuid4(), {("db", "t"): (entry(0, file("a")),)}, {0: 1}, NOWHERE, None),
    )
    with monkeypatch.context() as patch:
        patch.setattr(Gate, "settled", lambda *_: 1 / 0)
        (failed,) = dict(made.commit(request)).values()
    assert failed == Failed("ZeroDivisionError: division by zero")
    assert "table db.t: an error after its commit: ZeroDivisionError" in caplog.text
    assert [report.outcome for report in made.reports()][-1] == "failed"
    (done,) = dict(made.commit(request)).values()
    assert isinstance(done, Committed) and done.snapshot_id is None
    assert len(catalog.load_table("db.t").metadata.snapshots) == 1


def test_a_table_without_entries_is_compared_with_its_mark(catalog: Catalog) -> None:
    table, uuid = REFERENCE.identifier, str(catalog.load_table("db.t").metadata.table_uuid)
    before = {table: TableMark(uuid, 3)}
    made = committer(catalog)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IcebergTarget, "pause", lambda *_: None)
        outcomes = dict(made.commit(CommitTables(uuid4(), {table: ()}, {0: 2}, NOWHERE, None, before)))
    found = outcomes[table]
    assert isinstance(found, Failed) and found.lost and "run `calving recover FILE`" in found.reason


def test_a_table_without_entries_that_is_gone_is_named_and_fails_nothing(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have been dropped on purpose."""
    gone = ("db", "gone")
    request = CommitTables(uuid4(), {gone: ()}, {0: 2}, NOWHERE, None, {gone: TableMark("u", 3)})
    assert isinstance(dict(committer(catalog).commit(request))[gone], Committed)
    assert "table db.gone, which this sink has committed, does not exist" in caplog.text
    assert "`calving recover FILE`" in caplog.text


def test_the_commits_of_a_failing_table_are_parked_among_its_files_and_made_in_order(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, tp, parked = REFERENCE.identifier, TopicPartition("s", 0), dict[TableId, Parked]()

    def commit(offset: int) -> Committed | Failed:
        files = entry(offset, dataclasses.replace(file(""), file_path=f"file://{tmp_path}/data/f{offset}"))
        progress = SourceProgress({tp: (Span(0, offset * 10 + 10),)}, {})
        request = CommitTables(
            uuid4(), {table: (files,)}, {0: offset + 1}, progress, None, {}, parked, frozenset([table])
        )
        return dict(committer(catalog).commit(request))[table]  # as a successor: it knows nothing but the request

    with monkeypatch.context() as broken:
        broken.setattr(Table, "_do_commit", lambda *_: (_ for _ in ()).throw(OSError("broken")))
        broken.setattr("calving.iceberg.commit.MAX_TRIES", 1)
        for offset in (3, 5):
            failed = commit(offset)
            assert isinstance(failed, Failed) and failed.parked is not None
            parked[table] = Parked(failed.parked, 1, {})
    assert len(list((tmp_path / "db" / "t" / "data").glob("calving-parked-*"))) == 2
    assert isinstance(commit(7), Committed)
    assert [p.rpartition("/")[2] for p in paths(catalog)] == ["f3", "f5", "f7"]
    assert head(catalog)["kafka.connect.offsets.control.connect-x"] == '{"0":8}'
    assert json.loads(head(catalog)["calving.source-offsets"]) == {"s": [80]}


def test_files_of_parked_commits_are_deleted_with_the_next_commit_that_does_not_name_them(
    catalog: Catalog, tmp_path: Path
) -> None:
    made, table = committer(catalog), REFERENCE.identifier
    later = dataclasses.replace(file(""), file_path=f"file://{tmp_path}/data/f3")
    last = Parking(CatalogStorage(catalog, FILES)).park(table, ParkedCommit((entry(3, later),), {0: 4}, NOWHERE), None)
    parked = {table: Parked(last, 1, {})}
    assert isinstance(
        dict(made.commit(CommitTables(uuid4(), {table: ()}, {0: 5}, NOWHERE, None, {}, parked)))[table], Committed
    )
    assert Path(last.removeprefix("file://")).exists()
    dict(made.commit(CommitTables(uuid4(), {table: (entry(6, file("f6")),)}, {0: 7}, NOWHERE, None)))
    assert not Path(last.removeprefix("file://")).exists()


def test_a_parked_commit_is_judged_by_the_restarts_that_are_known_when_it_is_made(
    catalog: Catalog, tmp_path: Path
) -> None:
    """Its coordinator had read offsets from after a restart in one partition of the log, and the restart in none."""
    table, tp = REFERENCE.identifier, TopicPartition("s", 0)
    held = SourceProgress({tp: (Span(0, 20),)}, {})
    made = committer(catalog)
    list(made.commit(CommitTables(uuid4(), {table: (entry(0, file("a")), entry(1, file("b")))}, {0: 2}, held, None)))
    later = dataclasses.replace(file(""), file_path=f"file://{tmp_path}/data/f3")
    again = dataclasses.replace(entry(3, later), spans={tp: (Span(0, 10),)})
    last = Parking(CatalogStorage(catalog, FILES)).park(table, ParkedCommit((again,), {0: 4, 1: 0}, held), None)
    now = SourceProgress({}, {}, {tp: (1, 0)})
    request = CommitTables(uuid4(), {table: ()}, {0: 4, 1: 1}, now, None, {}, {table: Parked(last, 1, {})})
    assert isinstance(dict(made.commit(request))[table], Committed)
    assert [p.rpartition("/")[2] for p in paths(catalog)] == ["a", "b", "f3"]


def test_valid_through_is_written_as_java_writes_it(catalog: Catalog) -> None:
    request = CommitTables(uuid4(), {REFERENCE.identifier: (entry(0, file("a")),)}, {0: 1}, NOWHERE, 1704164645678901)
    list(committer(catalog).commit(request))
    assert head(catalog)["kafka.connect.valid-through-ts"] == "2024-01-02T03:04:05.678901Z"
    assert head(catalog)["kafka.connect.task-id"] == "x-0"


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (1704153600000000, "2024-01-02T00:00Z"),
        (1704164645000000, "2024-01-02T03:04:05Z"),
        (1704164645123000, "2024-01-02T03:04:05.123Z"),
        (1704164640100000, "2024-01-02T03:04:00.100Z"),
    ],
)
def test_a_date_time_is_javas(micros: int, text: str) -> None:
    assert java_date_time(micros) == text


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        (
            {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "uri": "http://x"},
            {"type": "rest", "uri": "http://x"},
        ),
        ({"type": "rest", "io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}, {"type": "rest"}),
        (
            {"type": "jdbc", "uri": "jdbc:postgresql://h/db", "jdbc.user": "u", "jdbc.password": "p@"},
            {"type": "sql", "uri": "postgresql+psycopg2://u:p%40@h/db"},
        ),
    ],
)
def test_javas_catalog_properties_are_translated(java: dict[str, str], ours: dict[str, str]) -> None:
    assert ours.items() <= translate(java).items()


@pytest.mark.parametrize("kind", ["dynamodb", "hadoop", "nessie"])
def test_a_catalog_that_cannot_serve_exactly_once_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="cannot serve exactly-once"):
        translate({"type": kind})
