"""The checks before a start, where one table cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.errors import UnavailableError
from calving.iceberg.catalog import open_catalog
from calving.runtime.preflight import held
from tests.serving.sinks import sink


def test_a_worker_that_starts_over_does_without_one_table_that_it_has_loaded_before(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    names = ["db.broken", "db.well"]
    known = {
        name: catalog.create_table(name, Schema(NestedField(1, "id", LongType(), required=False))) for name in names
    }
    (tmp_path / "db" / "broken" / "metadata").rename(tmp_path / "away")
    found = dict(held(catalog, sink(), "log", names, known))
    assert found.keys() == set(names)
    # A coordinator takes only what it sees for the table's present state, and loads the other one with its next commit.
    assert found["db.broken"].mark is None and found["db.well"].mark is not None
    with pytest.raises(UnavailableError, match=r"table db\.broken cannot be loaded"):
        dict(held(catalog, sink(), "log", names))
