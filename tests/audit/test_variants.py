"""The audit sees the values of variants, in whatever form a file has them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calving.audit.rows import PlainRows
from calving.audit.storage import DamagedFileError
from calving.audit.variants import variants
from calving.casting.variants import encode
from calving.model.tables import RowMutations
from tests.audit.conftest import audited
from tests.iceberg.test_foreign_types import sink_of

KIND = pa.struct([pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())])


def whole(*values: Any) -> pa.Array:
    return pa.array([dict(zip(("metadata", "value"), encode(value), strict=True)) for value in values], KIND)


def test_values_that_differ_are_different_rows() -> None:
    values = [{"a": 1}, {"a": 2}, {"a": None}, {"b": 1}, {}, [1], "1", 1.5, {"a": [{"b": "x"}]}]
    field = pa.field("v", KIND, metadata={"PARQUET:field_id": "1"})
    rows = PlainRows({}, {1}).of_arrow([whole(*values)], [field])
    assert len(set(rows)) == len(values)


def test_equal_numbers_of_several_forms_are_one_value() -> None:
    one, other = variants(whole(1.0, Decimal("1.0")))
    assert one == other == variants(whole(1))[0]


@pytest.mark.parametrize(
    "sql",
    [
        "[{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}, {'a': 3}]",
        "[{'a': [1, 2], 'b': {'c': true}}, {'a': [3], 'b': {'c': false}}]",
        "[1.5::decimal(9, 2), 2.5::decimal(9, 2)]",
        "['x', 'y']",
        "[date '2026-01-31', date '1969-12-31']",
        "[timestamp '2026-01-31 01:02:03.456789', timestamp '1969-12-31 00:00:00']",
    ],
)
def test_a_shredded_variant_is_the_same_as_a_whole_one(sql: str, tmp_path: Path) -> None:
    paths = {kind: tmp_path / f"{kind}.parquet" for kind in ("shredded", "whole")}
    rows = f"select unnest({sql})::variant v"
    duckdb.sql(f"copy (select v from ({rows})) to '{paths['shredded']}' (format parquet)")
    mixed = f"select v from ({rows}) union all select 1::variant union all select [true]::variant"
    duckdb.sql(f"copy ({mixed}) to '{paths['whole']}' (format parquet)")
    read = {kind: pq.read_table(path)["v"].combine_chunks() for kind, path in paths.items()}
    assert "typed_value" in str(read["shredded"].type)
    count = len(read["shredded"])
    assert variants(read["shredded"]) == variants(read["whole"])[:count]
    assert None not in variants(read["shredded"])


def test_bytes_that_are_no_variant_are_damage() -> None:
    broken = pa.array([{"metadata": b"\x01\x05", "value": b"\x00"}], KIND)
    with pytest.raises(DamagedFileError, match="a variant breaks the specification"):
        variants(broken)


def test_a_table_with_changed_variants_is_sound(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("op"), id_columns=("id",))
    sink.take((None, {"id": 1, "op": "u", "v": {"a": [1, "x"]}}), (None, {"id": 2, "op": "u", "v": "x"}))
    sink.take((None, {"id": 2, "op": "u", "v": [1.5, None]}), (None, {"id": 3, "op": "u"}))
    texts = [finding.text for finding in audited(sink.table, sample=100).findings]
    assert [text for text in texts if "schema 0 is another one" not in text] == []  # the test has changed it in place
