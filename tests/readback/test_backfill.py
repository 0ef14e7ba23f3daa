"""Spark reads a published backfill, and knows its cherry-picks as its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calving.iceberg.catalog import open_catalog
from harness.forms import forms
from harness.spark_reader import spark_on
from harness.topic import Topic
from tests.e2e.test_backfill import BackfilledSink, fill_a_branch

pytestmark = pytest.mark.services


@pytest.mark.parametrize("version", forms([2, 3], [2]))
def test_spark_reads_each_record_of_a_published_branch_once_and_picks_none_again(
    version: int, request: pytest.FixtureRequest, tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    """Format version 3 through a REST catalog."""
    sink, name = BackfilledSink(tmp_path, topic(), unique), f"db.{unique}"
    where = str(tmp_path) if version == 2 else str(request.getfixturevalue("rest_uri"))
    sink.catalog_keys = {"type": "embedded", "warehouse": where} if version == 2 else {"type": "rest", "uri": where}
    sink.keys = {key: value for key, value in sink.keys.items() if not key.startswith("iceberg.catalog.")}
    sink.keys |= {f"iceberg.catalog.{key}": value for key, value in sink.catalog_keys.items()} | {
        "iceberg.tables": name,
        "iceberg.tables.auto-create-props.format-version": version,
        "iceberg.batch.max-records": 40,
    }
    fill_a_branch(sink)
    assert "cherry-pick" in sink.fill("earliest", sink.at(100), branch="past", publish=True)[-1]
    tip = open_catalog("iceberg", sink.catalog_keys).load_table(name).metadata.refs["past"].snapshot_id
    row_ids = ", count(distinct _row_id) as row_ids" if version == 3 else ""
    counts = f"select count(*) as rows, count(distinct id) as ids{row_ids} from iceberg.{name}"
    ((found,),) = spark_on(where, counts)
    assert set(found.values()) == {200}
    with pytest.raises(Exception, match=r"[Cc]annot cherry-?pick|already picked"):
        spark_on(where, f"call iceberg.system.cherrypick_snapshot('{name}', {tip})")
