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


def _tells(log: Path) -> bool:
    return " DEGRADED: settings-differ" in log.read_text()
