"""The campaign finds a worker whose counters do not add up."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from calving.status.values import RecordCounts, Status
from campaign.books import asked, wrong
from tests.serving.sinks import Worker, serving, status


def with_records(counts: RecordCounts) -> Status:
    found = status(time.time())
    return replace(found, worker=replace(found.worker, batches=replace(found.worker.batches, records=counts)))


def test_a_worker_whose_counters_do_not_add_up_is_found(tmp_path: Path) -> None:
    right = RecordCounts({"t": 10}, {"a": 6, "b": 6}, {"TASK_PUT": 1}, {"tombstone": 1}, 1, 1, 6)
    less = replace(right, filtered={})
    with serving(Worker(with_records(right))) as one, serving(Worker(with_records(less))) as two:
        logs = [tmp_path / name for name in ("one", "two", "gone", "without")]
        for log, url in zip(logs, (one.url, two.url, "http://127.0.0.1:1/", None), strict=True):
            log.write_text("started\n" if url is None else f"INFO status page: {url}\n")
        assert [wrong(found) for found in asked(logs).values()] == [False, True]
