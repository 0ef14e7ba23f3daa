"""Spark replaces a table while the sink commits to it: that is a rollback, and nothing is lost unnoticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from calving.iceberg.catalog import open_catalog
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs
from harness.forms import forms
from harness.spark_reader import spark_on
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.e2e.test_rollback import answered
from tests.readback.test_rollbacks import offsets_gone, sink_in

pytestmark = pytest.mark.services

_BEGINS, _TAKES = 5, 15
"""Seconds until Spark has surely loaded the table, and until it commits."""


def replaced(sink: Cli, where: str, name: str, commits: int) -> bool:
    """Whether Spark has replaced the table by one with one row, while the sink committed 10 records at a time. The
    statement loads the table first, and commits after its query.
    """
    slow = f"reflect('java.lang.Thread', 'sleep', {_TAKES * 1000}L) is not null"
    statement = f"create or replace table iceberg.{name} using iceberg as select cast(-1 as bigint) id where {slow}"
    refused: list[str] = []

    def replace() -> None:
        try:
            spark_on(where, statement)
        except AssertionError as error:
            refused.append(str(error))

    spark_on(where, f"select count(*) n from iceberg.{name}")  # it has started
    beside = threading.Thread(target=replace)
    beside.start()
    time.sleep(_BEGINS)
    for first in range(100, 100 + 10 * commits, 10):
        sink.send(first, first + 10)
        sink.run_here()
    assert beside.is_alive(), "the sink has not committed in time"
    beside.join()
    assert all("Invalid snapshot with sequence number" in each for each in refused), refused
    return not refused


@pytest.mark.parametrize("answer", forms(RollbackAnswer, [RollbackAnswer.REREAD]))
@pytest.mark.parametrize("commits", forms([1, 2], [2]))
def test_commits_that_a_swap_of_the_metadata_discards_are_noticed_and_answered(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, commits: int, answer: RollbackAnswer
) -> None:
    where = str(tmp_path)
    sink, end = sink_in(where, tmp_path, topic(), unique), 100 + 10 * commits
    sink.send(0, 100)
    sink.run_here()
    assert replaced(sink, where, "db.t", commits)
    sink.send(end, end + 10)
    sink.run_here()
    later = [*range(end, end + 10)]
    assert sorted(sink.ids()) == [-1, *later]
    assert offsets_gone(sink) == end
    answered(sink, AsItIs(), answer)
    sink.run_here()
    again = {"forget": [], "restore": [*range(100)], "reread": [*range(end)]}[answer]
    assert sorted(sink.ids()) == [-1, *again, *later]
    assert offsets_gone(sink) == (0 if answer is RollbackAnswer.REREAD else end - 100)


@pytest.mark.parametrize("commits", [1, 2])
def test_a_rest_catalog_keeps_the_commits_or_refuses_the_replacement(
    rest_uri: str, tmp_path: Path, topic: Callable[..., Topic], unique: str, commits: int
) -> None:
    sink, name = sink_in(rest_uri, tmp_path, topic(), unique), f"db.{unique}"
    sink.keys["iceberg.tables"] = name
    sink.send(0, 100)
    sink.run_here()
    was_replaced = replaced(sink, rest_uri, name, commits)
    assert was_replaced is (commits == 1)
    assert offsets_gone(sink) == (110 if was_replaced else 0)
    sink.send(120, 130)
    sink.run_here()
    if was_replaced:
        answered(sink, AsItIs(), RollbackAnswer.RESTORE, name)
    kept = [*range(110 if was_replaced else 120)]
    assert sorted(sink.ids(name)) == [*([-1] if was_replaced else []), *kept, *range(120, 130)]
    assert len(open_catalog("iceberg", sink.catalog_keys).load_table(name).metadata.refs) == 1
