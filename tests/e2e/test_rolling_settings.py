"""A change of settings is rolled out worker by worker, and some workers die on the way."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyiceberg.manifest import DataFileContent

from harness.run import Run
from harness.waiting import wait_for

pytestmark = pytest.mark.services

UPSERT = {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}


def test_appends_become_upserts_worker_by_worker_and_no_file_is_committed_as_something_else(
    tmp_path: Path, servers: str, unique: str
) -> None:
    sink = Run(tmp_path, servers, unique, partitions=6)  # a worker without partitions tells nothing of itself
    sink.put_aside(UPSERT)
    try:
        workers = [sink.start(aside=False) for _ in range(3)]
        sink.produce(300)
        wait_for(lambda: sink.committed() == 300)
        for number, former in enumerate(workers):
            sink.start(aside=True)
            sink.produce(200)
            wait_for(partial(_tells, former.log))
            if number == 1:
                former.stop()
            else:
                former.kill()
            sink.replaced.add(former)
            sink.produce(200)
        sink.wait_until_committed(120)
        newest = sink.workers[-1]
        wait_for(lambda: "no longer DEGRADED: settings-differ" in newest.log.read_text() or not _tells(newest.log))
    finally:
        sink.close()
    sink.assert_exactly_once()
    for name in sink.tables:
        table = sink.catalog.load_table(name)
        contents = {file["content"] for file in table.inspect.all_files().to_pylist()}
        assert DataFileContent.EQUALITY_DELETES.value not in contents, (
            "changes of rows were committed as deletes by key"
        )


BRANCH = {"iceberg.tables.default-commit-branch": "audit"}


def test_another_branch_that_is_rolled_out_and_taken_back_leaves_no_hole_in_the_first(
    tmp_path: Path, servers: str, unique: str
) -> None:
    sink = Run(tmp_path, servers, unique, partitions=6)
    sink.put_aside(BRANCH)
    try:
        former = [sink.start(aside=False) for _ in range(3)]
        sink.produce(200)
        wait_for(lambda: sink.committed() == 200)
        changed = [sink.start(aside=True) for _ in range(2)]
        wait_for(lambda: all(_tells(each.log) for each in changed))
        leaders = [each for each in former if "coordinating group" in each.log.read_text()]
        for leader in leaders[:2]:
            leader.kill()
            sink.replaced.add(leader)
        sink.produce(200)
        wait_for(lambda: any("Its files wait until all workers" in each.log.read_text() for each in sink.workers))
        sink.produce(200)
        for each in changed:
            sink.start(aside=False)
            each.kill()
            sink.replaced.add(each)
        sink.produce(100)
        sink.wait_until_committed(120)
    finally:
        sink.close()
    sink.assert_exactly_once()


def _tells(log: Path) -> bool:
    return " DEGRADED: settings-differ" in log.read_text()
