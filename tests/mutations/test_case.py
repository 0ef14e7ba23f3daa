"""``schema-case-insensitive`` and the settings that name fields and columns of changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, LongType, NestedField, StringType, StructType

from calving.model.record_path import Evolution
from calving.model.tables import RowMutations
from calving.records.values import Values
from calving.tasks.operations import operations
from calving.writing.changes import DELETE, UPDATE
from tests.iceberg.reader import rows_of
from tests.mutations.changing import Changing
from tests.mutations.test_changes import change

FOLDED = Evolution(create=True, evolve=True, case_insensitive=True)


def made(folder: Path, mutations: RowMutations, *columns: NestedField) -> Changing:
    sink = Changing(folder, mutations, evolution=FOLDED)
    if columns:
        sink.catalog.create_namespace("db")
        known = NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType(), required=False)
        sink.catalog.create_table("db.t", Schema(*known, *columns))
    return sink


def test_the_cdc_field_is_found_in_any_case(tmp_path: Path) -> None:
    sink = made(tmp_path, RowMutations("OP"))
    sink.take(change("c", 1, "a"), change("c", 2, "a"))
    sink.take(change("d", 1), change("u", 2, "b"))
    assert sink.rows("id", "v") == [(2, "b")]


@pytest.mark.parametrize("objects", [True, False])
def test_each_value_has_the_operation_of_its_own_spelling(objects: bool) -> None:
    given: list[Any] = [{"A": {"OP": "d"}}, {"a": {"op": "u"}}, {"a": {"Op": "d"}, "A": None}, {"b": 1}]
    values = Values(given if objects else pa.array(given), typed=False)
    found = operations(values, RowMutations("a.op"), fold=True).to_pylist()
    assert found == [DELETE, UPDATE, DELETE, None]
    assert operations(values, RowMutations("a.op")).to_pylist() == [None, UPDATE, None, None]


@pytest.mark.parametrize("field", ["op", "OP", "oP"])
@pytest.mark.parametrize("objects", [True, False])
def test_the_last_spelling_of_the_cdc_field_in_a_record_counts(objects: bool, field: str) -> None:
    given: list[Any] = [{"OP": "d", "op": "u"}]
    values = Values(given if objects else pa.array(given), typed=False)
    assert operations(values, RowMutations(field), fold=True).to_pylist() == [UPDATE]


def test_the_operation_of_a_record_does_not_depend_on_the_records_before_it() -> None:
    record = {"id": 1, "Op": "D", "OP": "U"}
    for before in ([], [{"OP": "U"}], [{"Op": "U"}], [{"op": "U"}]):
        found = operations(Values([*before, record], typed=False), RowMutations("op"), fold=True)
        assert found.to_pylist()[-1] == UPDATE


def test_the_soft_delete_field_is_a_column_in_any_case(tmp_path: Path) -> None:
    column = NestedField(3, "_CDC_DELETED", BooleanType(), required=False)
    sink = made(tmp_path, RowMutations("op", delete_mode="soft"), column)
    sink.take(change("c", 1, "a"))
    sink.take(change("d", 1, "b"))
    assert sink.rows("id", "v", "_CDC_DELETED") == [(1, "b", True)]
    assert [name for name in sink.table.schema().column_names if name.lower() == "_cdc_deleted"] == ["_CDC_DELETED"]


def test_the_order_field_is_a_column_in_any_case(tmp_path: Path) -> None:
    inner = StructType(NestedField(4, "lsn", LongType(), required=False))
    sink = made(tmp_path, RowMutations("op", order_field="M.LSN"), NestedField(3, "m", inner, required=False))
    sink.take(change("c", 1, "a", m={"lsn": 5}))
    sink.take(change("u", 1, "late", m={"lsn": 3}))
    assert [row[1] for row in rows_of(sink.table)] == ["a"]
    sink.take(change("u", 1, "b", m={"lsn": 7}))
    assert [row[1] for row in rows_of(sink.table)] == ["b"]
