"""Files that are rewritten in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import table_id
from calving.maintenance.compactor import CompactedGroup, Compactor
from calving.maintenance.rewrite import RewrittenRows
from calving.maintenance.rewriting_process import RewritingProcess
from calving.maintenance.strategy import Strategy
from harness.structure import check
from tests.iceberg.histories import KEY, MutationTable, create, pyiceberg_rows
from tests.maintenance.compacting import EAGER


def filled(catalog: Catalog, version: int = 2, layout: str = "moving") -> MutationTable:
    """A table with several files of a partition, of which some have deleted rows."""
    table = create(catalog, layout, version)
    for number in range(4):
        table.commit(table.step([], inserts=[{"id": number * 10 + each, "name": "a", "g": 0} for each in range(5)]))
    table.commit(table.step([], [{"id": 3}, {"id": 11}]))
    return table


def compacted(table: MutationTable, rewriting: RewritingProcess) -> list[CompactedGroup]:
    compactor = Compactor(table.catalog, table_id(table.name), KEY, {}, EAGER, rewriting=rewriting)
    return [compactor.compact(group) for group in compactor.plan(table.table, 0).groups]


def stored(table: MutationTable) -> set[str]:
    location = Path(table.table.metadata.location.removeprefix("file://"))
    return {path.name for path in location.rglob("*.parquet")}


@pytest.mark.parametrize("version", [2, 3])
def test_it_writes_the_rows_that_are_not_deleted(catalog: Catalog, version: int) -> None:
    table = filled(catalog, version)
    (done,) = compacted(table, RewritingProcess(small_bytes=0))
    assert done.replacement is not None and len(done.replacement.outputs) == 1
    assert pyiceberg_rows(table.table) == table.rows()
    check(table.table)


def test_it_sorts_rows_and_tells_where_each_has_gone(catalog: Catalog) -> None:
    table, rewriting = filled(catalog, layout="flat"), RewritingProcess(small_bytes=0)

    def late(*given: Any) -> RewrittenRows:
        rewritten = rewriting(*given)
        table.commit(table.step([{"id": 12, "name": "b", "g": 1}], [{"id": 31}]))
        return rewritten

    strategy = Strategy("z-order", ("id", "name"))
    compactor = Compactor(table.catalog, table_id(table.name), KEY, {}, EAGER, rewriting=late, strategy=strategy)
    (done,) = [compactor.compact(group) for group in compactor.plan(table.table, 0).groups]
    assert done.replacement is not None and done.replacement.translated == 2
    assert pyiceberg_rows(table.table) == table.rows()
    check(table.table)


def test_what_fails_there_is_told_here_and_nothing_is_left(catalog: Catalog) -> None:
    table = filled(catalog)
    lost = Path(next(iter(table.table.scan().plan_files())).file.file_path).name
    for path in Path(table.table.metadata.location.removeprefix("file://")).rglob(lost):
        path.unlink()
    before = stored(table)
    (done,) = compacted(table, RewritingProcess(small_bytes=0))
    assert done.replacement is None and done.failed is not None and lost in done.failed
    assert stored(table) == before


def test_a_rewriting_that_is_given_up_leaves_nothing_and_none_begins_after_it(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, rewriting = filled(catalog), RewritingProcess(small_bytes=0)
    before, started = stored(table), RewritingProcess._started

    def and_stop(self: RewritingProcess) -> subprocess.Popen[bytes]:
        process = started(self)
        threading.Timer(0.2, self.stop).start()
        return process

    monkeypatch.setattr(RewritingProcess, "_started", and_stop)
    (done,) = compacted(table, rewriting)
    assert done.failed is not None and "has ended with code" in done.failed
    (done,) = compacted(table, rewriting)
    assert done.failed is not None and "ends its maintenance" in done.failed
    assert stored(table) == before


def test_a_small_group_is_rewritten_without_a_process(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table, rewriting = filled(catalog), RewritingProcess()
    monkeypatch.delattr(RewritingProcess, "_started")
    (done,) = compacted(table, rewriting)
    assert done.replacement is not None and len(done.replacement.outputs) == 1
    assert pyiceberg_rows(table.table) == table.rows()


def test_a_small_group_stays_once_rewriting_is_given_up(catalog: Catalog) -> None:
    table, rewriting = filled(catalog), RewritingProcess()
    before = stored(table)
    rewriting.stop()
    (done,) = compacted(table, rewriting)
    assert done.failed is not None and "ends its maintenance" in done.failed
    assert stored(table) == before


def test_it_ends_with_the_process_that_asked() -> None:
    code = "from calving.maintenance.rewriting_process import end_with; end_with(0)"
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdin=read)
    os.close(read)
    assert process.poll() is None
    os.close(write)
    assert process.wait(60) == -signal.SIGTERM
