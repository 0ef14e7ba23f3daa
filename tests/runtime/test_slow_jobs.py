"""Batches that take longer than a job may."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from calving.engine.interface import LocalEngine
from calving.errors import CalvingError, JobTooLongError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.model.offsets import Span, TopicPartition
from calving.model.record_path import RecordPath, Routing
from calving.retries import passes
from calving.runtime.batch import BatchRunner, ErrorLimits
from calving.tasks.spec import TaskResult, TaskSpec


class Slow(LocalEngine):
    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        raise JobTooLongError("the Spark job took longer than 60 s")


@pytest.fixture
def runner(tmp_path: Path) -> BatchRunner:
    tables = Tables(open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}), "iceberg", TableRules())
    return BatchRunner(Slow(), tables, RecordPath({}, Routing(())), ErrorLimits(0, 0.0))


def failure(runner: BatchRunner, records: int) -> CalvingError:
    with pytest.raises(CalvingError, match="took longer than 60 s") as raised:
        runner.run({TopicPartition("t", 0): Span(0, records)})
    return raised.value


def test_a_batch_that_takes_longer_than_a_job_may_is_followed_by_one_of_half_its_records(runner: BatchRunner) -> None:
    error = failure(runner, 1_000_000)
    assert str(error).endswith("The batch had 1000000 records, the next has 500000 at most")
    assert runner.fewer == 500_000
    assert passes(error)


def test_a_batch_that_cannot_be_smaller_and_takes_too_long_is_not_retried_for_ever(runner: BatchRunner) -> None:
    assert not passes(failure(runner, 1_000))
