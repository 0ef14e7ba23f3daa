"""A record that breaks writing after its row was taken is found: the batch runs again, with care."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.model.record_path import RouteRule, Routing, Tolerance
from calving.writing.formats.metrics import Metrics
from tests.fuzz.sink import Run, Sink, Target

RECORDS = [json.dumps({"id": i}).encode() for i in range(1_000)]
TABLE = [Target("db.t", Schema(NestedField(1, "id", LongType(), required=False)))]
ONE = Routing((RouteRule("db.t"),))


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    made = Sink(tmp_path / "warehouse")
    yield made
    made.close()


def breaks(monkeypatch: pytest.MonkeyPatch, test: Any) -> None:
    """Statistics, which are made when a file is written, break on some rows."""
    add = Metrics.add

    def broken(self: Metrics, rows: pa.Table) -> None:
        if test(rows.column(0).to_pylist()):
            raise KeyError("no statistics")
        add(self, rows)

    monkeypatch.setattr(Metrics, "add", broken)


def test_a_record_that_breaks_a_file_is_a_dead_letter_and_the_others_are_rows(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, lambda ids: 13 in ids or 500 in ids)
    found = sink.take(Run(ONE), TABLE, RECORDS)
    assert found.error is None
    assert found.dead == {13: "WRITING", 500: "WRITING"}
    assert sum(found.rows["db.t"].values()) == 998


def test_without_tolerance_it_stops_the_sink_with_its_place(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, lambda ids: 13 in ids)
    found = sink.take(Run(ONE, tolerance=Tolerance()), TABLE, RECORDS)
    assert "partition 0, offset 113" in (found.error or "")


def test_a_batch_that_breaks_whichever_record_is_left_out_stops_the_sink(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, lambda ids: len(ids) > 900)
    monkeypatch.setattr("calving.writing.layout.Layout.trial", lambda self, rows: None)
    found = sink.take(Run(ONE), TABLE, RECORDS)
    assert "whichever record is left out: KeyError" in (found.error or "")
