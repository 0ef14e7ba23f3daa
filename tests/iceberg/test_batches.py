"""A batch of Spark's lands once: whatever the catalog does or answers, and whoever commits beside it."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

from calving.errors import CalvingError, CommitRefusedError, ConfigError, TableTroubleError
from calving.iceberg.batches import BatchCommitter, BatchFiles
from calving.iceberg.maintenance import Maintenance
from calving.iceberg.target import MAX_TRIES, IcebergTarget
from calving.model.files import file_name
from calving.protocol.batch_ledger import OneWrite, StreamBatch
from calving.protocol.ledger_key import LedgerKey
from tests.iceberg.lake import SCHEMA, Lake

ENTRY = StreamBatch("db.t", "orders", "q1", 0)
PROPERTY = "calving.spark-batch.orders"


@pytest.fixture
def lake(catalog: Catalog) -> Lake:
    return Lake(catalog, "2", "main")


def files(lake: Lake, *rows: int) -> BatchFiles:
    """A batch's files, as tasks write them: of other names each time."""
    made = [lake.file(range(row, row + 1), file_name(0, uuid4(), 1, "", "parquet")) for row in rows]
    return BatchFiles(str(lake.table.metadata.table_uuid), made, "batch 0")


def commit(lake: Lake, entry: Any, *rows: int, catalog: Any = None) -> int | None:
    committer = BatchCommitter(catalog or lake.catalog, ("db", "t"), sleep=lambda _: None)
    return committer.commit(files(lake, *rows), entry)


def data_files(lake: Lake) -> set[str]:
    return {path.name for path in Path(lake.table.location().removeprefix("file://"), "data").glob("*.parquet")}


def live_files(lake: Lake) -> set[str]:
    return {Path(task.file.file_path).name for task in lake.table.scan().plan_files()}


def said_by_the_head(lake: Lake) -> object:
    """The entry of the query in the newest snapshot."""
    head = lake.table.current_snapshot()
    assert head is not None and head.summary is not None
    return json.loads(head.summary.additional_properties[PROPERTY])


class Faulty:
    """A catalog that fails at one of its calls: before it has done what is asked, or after."""

    def __init__(self, catalog: Catalog, call: int, *, after: bool, error: Exception) -> None:
        self._catalog, self._call, self._after, self._error = catalog, call, after, error
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def load_table(self, name: Any) -> Any:
        table = self._made(lambda: self._catalog.load_table(name))
        table.catalog = self
        return table

    def commit_table(self, *arguments: Any) -> Any:
        return self._made(lambda: self._catalog.commit_table(*arguments))

    def _made(self, act: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls == self._call and not self._after:
            raise self._error
        done = act()
        if self.calls == self._call:
            raise self._error
        return done


ERRORS = [OSError("away"), CommitFailedException("reported as a conflict")]


FAULTS = list(itertools.product(range(1, 5), (False, True), ERRORS))


@pytest.mark.parametrize(("call", "after", "error"), FAULTS)
def test_a_batch_lands_once_if_a_call_of_the_catalog_fails(
    lake: Lake, call: int, after: bool, error: Exception
) -> None:
    with_fault = Faulty(lake.catalog, call, after=after, error=error)
    with contextlib.suppress(CalvingError):  # Spark repeats the batch
        commit(lake, ENTRY, 1, 2, catalog=with_fault)
    assert lake.table.current_snapshot() is None or lake.rows == [1, 2]
    commit(lake, ENTRY, 1, 2)
    assert lake.rows == [1, 2]
    assert with_fault.calls >= 2


class Deaf(Faulty):
    """A catalog that makes each commit, and whose answer is always lost, also that of the load that follows."""

    def _made(self, act: Callable[[], Any]) -> Any:
        self.calls += 1
        done = act()
        if self.calls > 1:
            raise self._error
        return done


def test_a_batch_that_landed_before_its_commit_failed_is_skipped_and_leaves_no_orphans(lake: Lake) -> None:
    with pytest.raises(CalvingError):
        commit(lake, ENTRY, 1, 2, catalog=Deaf(lake.catalog, 0, after=True, error=OSError("away")))
    assert lake.rows == [1, 2]
    assert commit(lake, ENTRY, 1, 2) is None
    assert lake.rows == [1, 2]
    assert data_files(lake) == live_files(lake)


def test_the_ledger_is_in_the_snapshot_and_in_the_property_of_one_commit(lake: Lake) -> None:
    before = len(lake.table.metadata.metadata_log)
    made = commit(lake, ENTRY, 1)
    table = lake.table
    assert len(table.metadata.metadata_log) == before + 1
    assert said_by_the_head(lake) == {"query": "q1", "batch": 0}
    assert (
        json.loads(table.properties[PROPERTY]).items() >= {"query": "q1", "batch": 0, "snapshot": f"{made}:1"}.items()
    )


def test_a_batch_without_rows_is_refused_too_if_its_checkpoint_is_older(lake: Lake) -> None:
    committer = BatchCommitter(lake.catalog, ("db", "t"))
    commit(lake, replace(ENTRY, batch=7), 1)
    committer.check(replace(ENTRY, batch=8))
    with pytest.raises(ConfigError, match="the checkpoint is older than the table"):
        committer.check(replace(ENTRY, batch=6))


def test_a_batch_whose_snapshot_has_expired_is_held(lake: Lake) -> None:
    commit(lake, ENTRY, 1)
    lake.append(2)
    lake.append(3)
    lake.expire()
    assert commit(lake, ENTRY, 1) is None
    assert lake.rows == [1, 2, 3]


def test_a_sink_of_kafka_beside_it_repeats_its_entry(lake: Lake) -> None:
    commit(lake, ENTRY, 100)
    lake.commit(0, 3)
    assert said_by_the_head(lake) == {"query": "q1", "batch": 0}
    lake.expire()
    assert commit(lake, ENTRY, 100) is None
    assert commit(lake, replace(ENTRY, batch=1), 101) is not None
    lake.commit(3, 5)
    assert lake.rows == [0, 1, 2, 3, 4, 100, 101]
    assert lake.ledger.gone == {} and lake.ledger.doubt is None


class NoFiles:
    """A change of maintenance, and its task."""

    added = frozenset[str]()

    def of(self, table: object, branch: str) -> NoFiles:
        return self

    def put_into(self, snapshot: object) -> None: ...

    def unused(self, used: object) -> list[str]:
        return []


def test_maintenance_repeats_its_entry(lake: Lake) -> None:
    commit(lake, ENTRY, 1)
    Maintenance(lake.catalog, ("db", "t"), LedgerKey("control", "connect-x", "log-1"), {}).commit(NoFiles())
    assert said_by_the_head(lake) == {"query": "q1", "batch": 0}


def test_a_snapshot_without_rows_repeats_its_entry_so_that_a_rollback_is_noticed_after_expiry(lake: Lake) -> None:
    first = commit(lake, ENTRY, 1)
    commit(lake, replace(ENTRY, batch=1), 2)
    lake.roll_back(first or 0)
    IcebergTarget(lake.catalog, ("db", "t"), "main", LedgerKey("control", "connect-x", "log-1"), {}).supersede(
        lambda properties: {}
    )
    assert said_by_the_head(lake) == {"query": "q1", "batch": 0}
    lake.expire()
    with pytest.raises(ConfigError, match="was rolled back: it does not hold batch 1"):
        commit(lake, replace(ENTRY, batch=2), 3)


def test_two_queries_into_one_table_have_ledgers_of_their_own(lake: Lake) -> None:
    other = replace(ENTRY, sink="returns", query="q2")
    for batch in range(3):
        commit(lake, replace(ENTRY, batch=batch), batch)
        commit(lake, replace(other, batch=batch), 10 + batch)
        assert commit(lake, replace(ENTRY, batch=batch), batch) is None
    assert lake.rows == [0, 1, 2, 10, 11, 12]


def test_a_table_that_was_rolled_back_takes_no_batch_until_somebody_has_answered(lake: Lake) -> None:
    first = commit(lake, ENTRY, 1)
    commit(lake, replace(ENTRY, batch=1), 2)
    lake.roll_back(first or 0)
    with pytest.raises(ConfigError, match="was rolled back: it does not hold batch 1"):
        commit(lake, replace(ENTRY, batch=2), 3)
    lake.commit(10, 12)  # it carries the entry to which the table went back
    lake.expire()
    with pytest.raises(ConfigError, match="was rolled back: it does not hold batch 1"):
        commit(lake, replace(ENTRY, batch=2), 3)
    commit(lake, replace(ENTRY, batch=2, continues=True), 3)
    commit(lake, replace(ENTRY, batch=3), 4)
    assert lake.rows == [1, 3, 4, 10, 11]


def test_a_table_that_was_recreated_takes_no_files_of_the_former_one(lake: Lake) -> None:
    written = files(lake, 1)
    lake.catalog.drop_table("db.t")
    lake.catalog.create_table("db.t", SCHEMA)
    with pytest.raises(TableTroubleError, match=r"table db\.t was recreated since batch 0 was planned"):
        BatchCommitter(lake.catalog, ("db", "t")).commit(written, ENTRY)


def test_a_write_with_an_id_is_made_once_and_one_without_each_time(lake: Lake) -> None:
    commit(lake, OneWrite("2026-11-26"), 1)
    assert commit(lake, OneWrite("2026-11-26"), 1) is None
    assert lake.rows == [1] and data_files(lake) == live_files(lake)
    commit(lake, None, 2)
    commit(lake, None, 2)
    assert lake.rows == [1, 2, 2]


class Busy(Faulty):
    """A catalog in which another writer commits before each of the first commits."""

    def __init__(self, lake: Lake, times: int) -> None:
        super().__init__(lake.catalog, 0, after=False, error=OSError())
        self._lake, self._times = lake, times

    def commit_table(self, *arguments: Any) -> Any:
        if self._times:
            self._times -= 1
            self._lake.append(1_000 + self._times)
        return super().commit_table(*arguments)


def test_a_batch_builds_on_the_table_after_its_pause(lake: Lake) -> None:
    pauses: list[float] = []

    def others_commit(seconds: float) -> None:
        pauses.append(seconds)
        lake.append(2_000)

    busy: Any = Busy(lake, 1)
    BatchCommitter(busy, ("db", "t"), sleep=others_commit).commit(files(lake, 1), ENTRY)
    assert (lake.rows, len(pauses)) == ([1, 1_000, 2_000], 1)


class Refusing(Faulty):
    """A catalog that refuses each commit."""

    def commit_table(self, *arguments: Any) -> Any:
        raise CommitFailedException("others were faster")


def test_a_batch_lands_beside_other_writers_that_are_faster_many_times(lake: Lake) -> None:
    commit(lake, ENTRY, 1, catalog=Busy(lake, MAX_TRIES + 1))
    assert lake.rows == [1, *range(1_000, 1_000 + MAX_TRIES + 1)]


def test_a_batch_that_is_refused_every_time_fails_and_is_not_there(lake: Lake) -> None:
    with pytest.raises(CommitRefusedError):
        commit(lake, ENTRY, 1, catalog=Refusing(lake.catalog, 0, after=False, error=OSError()))
    assert lake.table.current_snapshot() is None
