"""``calving maintain --task expire`` as a user runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from calving.backend.memory import MemoryBackend, MemorySession, MemoryStore
from calving.errors import CommandFailedError, UnavailableError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.locations import OWN_LOCATIONS
from calving.iceberg.parking import CatalogStorage, ParkedCommit, Parking
from calving.maintenance.orphans import owners
from calving.model.events import Attachment, CommitComplete, DataWritten, Envelope, Parked, Publication, TableReference
from calving.model.files import DataFile, one_name
from calving.model.offsets import Advance, Span, TopicPartition
from calving.model.sink import Claim
from calving.protocol.ledger import SourceProgress
from calving.runtime.maintenance.expire import files_of_log
from calving.settings.load import Sink
from tests.cli import maintaining
from tests.cli.maintaining import lines
from tests.cli.test_compact import sink_of
from tests.iceberg.histories import MutationTable
from tests.maintenance.compacting import append, compact
from tests.maintenance.expiring import NOW, check_files, expiring, listed, named, stored

HOUR = 3_600_000
SIZE = r"\d+(\.\d)? KiB"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
SOURCE = TopicPartition("t", 0)
OWN = {"iceberg.control.topic": "control", "iceberg.control.backend": "memory"}
"""The sink whose ledger the tables have."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStore]:
    made = MemoryStore(1)
    monkeypatch.setitem(MemoryBackend._stores, "connect-x", made)
    yield made


@pytest.fixture
def table(tmp_path: Path) -> MutationTable:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})
    made = expiring(catalog, 2)
    for number in range(4):
        append(made, number)
    compact(made)
    append(made, 10)
    append(made, 11)
    return made


@pytest.fixture
def sink(tmp_path: Path, table: MutationTable, store: MemoryStore) -> Sink:
    return sink_of(tmp_path, table.name, **OWN)


def said(sink: Sink, now_ms: int, *, dry_run: bool = False) -> list[str]:
    return [line.partition(": ")[2] for line in lines(sink, (), ["expire"], now_ms=now_ms, dry_run=dry_run)]


def publication(table: MutationTable, *paths: str, spans: bool = True) -> Publication:
    reference = TableReference("c", tuple(table.name.split(".")[:1]), table.name.split(".")[1], None)
    files = tuple(DataFile(path, "PARQUET", 1, 1) for path in paths)
    event = DataWritten(uuid4(), reference, files, ())
    return Publication((event,), {SOURCE: Advance(None, 1)}, {SOURCE: (Span(0, 1),)} if spans else {})


def test_a_dry_run_reads_as_a_plan_and_changes_nothing(table: MutationTable, sink: Sink) -> None:
    before, location = stored(table.table), table.table.metadata_location
    plan, *rest = said(sink, NOW, dry_run=True)
    assert re.fullmatch(
        rf"5 snapshots up to {TIME} would expire, 2 others stay; 17 files \({SIZE}\) that only they name would be deleted"
        rf" after {TIME}",
        plan,
    )
    assert not rest and (stored(table.table), table.table.metadata_location) == (before, location)


def test_snapshots_expire_and_an_hour_later_their_files_are_deleted(table: MutationTable, sink: Sink) -> None:
    expired, waiting = said(sink, NOW)
    assert re.fullmatch(
        rf"5 snapshots up to {TIME} expired, 2 others stay; 17 files \({SIZE}\) that only they name will be deleted after"
        rf" 2033-05-18 04:33:20 UTC",
        expired,
    )
    assert waiting == "17 files of expired snapshots wait until 2033-05-18 04:33:20 UTC or later"
    nothing, plan = said(sink, NOW + HOUR, dry_run=True)
    assert nothing == "no snapshots to expire"
    assert re.fullmatch(rf"17 files \({SIZE}\) of expired snapshots would be deleted", plan)
    assert len(stored(table.table) - named(table.table)) == 17
    nothing, deleted = said(sink, NOW + HOUR)
    assert re.fullmatch(rf"17 files \({SIZE}\) of expired snapshots deleted", deleted)
    assert stored(table.table) == named(table.table)
    assert said(sink, NOW + HOUR) == ["no snapshots to expire"]


def test_a_table_has_a_grace_of_its_own(table: MutationTable, tmp_path: Path, store: MemoryStore) -> None:
    own = {"iceberg.maintenance.grace-ms": "5000", f"iceberg.table.{table.name}.maintenance.grace-ms": "0"}
    _, deleted = said(sink_of(tmp_path, table.name, **OWN, **own), NOW)
    assert "deleted" in deleted and stored(table.table) == named(table.table)


def test_a_file_that_an_entry_of_the_control_log_names_stays(
    table: MutationTable, sink: Sink, store: MemoryStore
) -> None:
    said(sink, NOW)
    file = min(path for path in listed(table.table) if path.endswith(".parquet"))
    MemorySession(store, "w").publish(publication(table, file), Claim("w", 1))
    _, deleted, kept = said(sink, NOW + HOUR)
    assert deleted.startswith("16 files") and kept == "1 file of expired snapshots kept: the control log names it"
    assert file in stored(table.table)
    check_files(table.table)


def test_the_log_names_files_of_publications_without_their_end_and_of_parked_commits(
    table: MutationTable, store: MemoryStore
) -> None:
    folder = f"{table.table.location()}/data"
    open_ended = publication(table, f"{folder}/open.parquet")
    MemorySession(store, "w").publish(open_ended, Claim("w", 1))
    parking = Parking(CatalogStorage(table.catalog, OWN_LOCATIONS))
    (event,) = publication(table, f"{folder}/parked.parquet").events
    commit = ParkedCommit((Envelope(0, 0, event, {SOURCE: (Span(0, 1),)}),), {0: 1}, SourceProgress({}, {}))
    name = event.table.identifier  # type: ignore[union-attr]
    last = parking.park(name, commit, None, folder)
    leader = MemorySession(store, "l").follow(replay=True)
    leader.acknowledge({}, (CommitComplete(uuid4()),), Attachment(parked={name: Parked(last, 1, {})}))
    files = files_of_log(MemorySession(store, "o"), parking)
    assert files == {one_name(path) for path in (f"{folder}/open.parquet", f"{folder}/parked.parquet", last)}


def test_files_stay_while_another_sink_writes_the_table_unless_its_file_is_given(
    table: MutationTable, sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = new_snapshot(table.table, {"kafka.connect.offsets.other.connect-y": '{"0":5}'}, "main")
    table.table._do_commit(java.prepare()[0], ())
    said(sink, NOW)
    before = stored(table.table)
    steps = maintaining.steps(sink, (), ["expire"], now_ms=NOW + HOUR, dry_run=False)
    assert next(steps).text == "no snapshots to expire"
    step = next(steps)
    assert step.outcome == "failed" and step.text.endswith(
        "the table is also written by sink other.connect-y, whose buffered files only its control log names: give its"
        " file with --other-sink"
    )
    with pytest.raises(CommandFailedError, match="1 step failed"):
        next(steps)
    assert stored(table.table) == before

    (tmp_path / "y").mkdir()
    other = sink_of(tmp_path / "y", table.name, **{**OWN, "name": "y", "iceberg.control.topic": "other"})
    monkeypatch.setitem(MemoryBackend._stores, "connect-y", store_y := MemoryStore(1))
    file = min(path for path in listed(table.table) if path.endswith(".parquet"))
    MemorySession(store_y, "w").publish(publication(table, file), Claim("w", 1))
    [*maintaining.steps(sink, (), ["expire"], now_ms=NOW + HOUR, dry_run=False, other_sinks=[other])]
    assert stored(table.table) - named(table.table) == {file}


def test_a_sink_is_known_by_the_table_and_by_every_snapshot(table: MutationTable) -> None:
    with table.table.transaction() as change:
        change.set_properties({"kafka.connect.offsets.c.g": "{}", "kafka.connect.offsets.d.h@main": "{}"})
    assert owners(table.table.metadata) == {"control.connect-x", "c.g", "d.h"}


def test_files_stay_while_the_control_log_cannot_be_read(
    table: MutationTable, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(sink, NOW)
    before = stored(table.table)

    def away(*_: object) -> None:
        raise UnavailableError("the store does not answer")

    monkeypatch.setattr(MemorySession, "watch", away)
    steps = maintaining.steps(sink, (), ["expire"], now_ms=NOW + HOUR, dry_run=False)
    next(steps)
    failed = next(steps)
    assert failed.outcome == "failed"
    assert failed.text == "no file of an expired snapshot is deleted: the store does not answer"
    assert stored(table.table) == before


def test_why_nothing_expires_is_said(table: MutationTable, sink: Sink) -> None:
    with table.table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    assert said(sink, NOW) == ["no snapshot expires: its property gc.enabled is false"]
