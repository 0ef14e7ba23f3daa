"""The audit reads files with geometries."""

from __future__ import annotations

from pathlib import Path

import pytest

from calving.model.tables import RowMutations
from tests.audit.conftest import audited
from tests.iceberg.test_geometries import sink_of


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_table_with_changed_geometries_is_sound(tmp_path: Path, file_format: str) -> None:
    sink = sink_of(tmp_path, file_format=file_format, mutations=RowMutations("op"), id_columns=("id",))
    sink.take(*((None, {"id": n, "op": "u", "geom": f"POINT ({n} 0)", "l": ["POINT EMPTY"]}) for n in range(3)))
    sink.take((None, {"id": 1, "op": "u", "geom": "LINESTRING (0 0, 9 9)"}), (None, {"id": 2, "op": "d"}))
    assert audited(sink.table, sample=100).findings == []
