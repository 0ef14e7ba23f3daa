"""Tables whose settings declare variants: new ones, and new columns of those that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from calving.maintenance.compactor import Compactor
from calving.model.record_path import Evolution
from calving.model.tables import RowMutations
from calving.records.declared import read_columns
from tests.casting.variant_decoder import decode
from tests.maintenance.compacting import EAGER
from tests.mutations.changing import KEY, Changing

V3 = {"format-version": "3"}


def sink_of(folder: Path, columns: str = "payload variant", **more: Any) -> Changing:
    evolution = Evolution(create=True, evolve=True)
    types = read_columns(columns)
    return Changing(folder, mutations=None, id_columns=(), evolution=evolution, types=types, properties=V3, **more)


def variants(sink: Changing, column: str = "payload") -> list[Any]:
    """The values of all rows by their ids, as files have them."""
    rows = sorted(rows_of(sink), key=lambda row: int(row["id"]))
    return [None if (each := row.get(column)) is None else decode(**each) for row in rows]


def rows_of(sink: Changing) -> list[dict[str, Any]]:
    paths = [task.file.file_path.removeprefix("file://") for task in sink.table.scan().plan_files()]
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def columns(sink: Changing) -> list[tuple[str, str]]:
    return [(field.name, str(field.field_type)) for field in sink.table.schema().fields]


def test_a_new_table_gets_a_variant_where_its_settings_say_so(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    outcome = sink.take((None, {"id": 1, "payload": {"a": 1}}), (None, {"id": 2, "payload": "x"}), (None, {"id": 3}))
    assert sink.reasons(outcome) == []
    assert sorted(columns(sink)) == [("id", "long"), ("payload", "variant")]
    assert variants(sink) == [{"a": 1}, "x", None]


def test_a_field_whose_type_changes_from_record_to_record_becomes_a_variant_of_a_table_that_is_there(
    tmp_path: Path,
) -> None:
    sink = sink_of(tmp_path)
    sink.take((None, {"id": 0}))
    values = [{"a": 1}, [1, "x"], 5, {"a": {"b": True}}]
    outcome = sink.take(*((None, {"id": n, "payload": value}) for n, value in enumerate(values, 1)))
    assert sink.reasons(outcome) == []
    assert columns(sink) == [("id", "long"), ("payload", "variant")]
    assert variants(sink) == [None, *values]


def test_no_field_inside_a_variant_becomes_a_column(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take((None, {"id": 1, "payload": {"a": 1}}))
    sink.take((None, {"id": 1, "payload": {"b": {"c": 1}}}))
    assert len(columns(sink)) == 2


def test_a_variant_may_be_inside_a_struct_or_a_list(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "s.v variant, l list<variant>")
    outcome = sink.take((None, {"id": 1, "s": {"v": {"a": 1}}, "l": [1, None, {"b": 2}]}))
    assert sink.reasons(outcome) == []
    assert dict(columns(sink)).keys() == {"id", "s", "l"}
    (row,) = rows_of(sink)
    assert decode(**row["s"]["v"]) == {"a": 1}
    assert [each and decode(**each) for each in row["l"]] == [1, None, {"b": 2}]


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_of_an_earlier_version_gets_no_variant(tmp_path: Path, version: str) -> None:
    sink = sink_of(tmp_path).with_(properties={"format-version": version})
    with pytest.raises(Exception, match="variant is only supported in 3 or higher"):
        sink.take((None, {"id": 1, "payload": 1}))


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_of_an_earlier_version_that_is_there_gets_no_variant(tmp_path: Path, version: str) -> None:
    sink = sink_of(tmp_path).with_(properties={"format-version": version})
    sink.take((None, {"id": 1}))
    outcome = sink.take((None, {"id": 2, "payload": 1}), (None, {"id": 3}))
    ((_, reason),) = sink.reasons(outcome)
    assert f"a table of format version {version} has no type variant: upgrade it to 3" in reason
    assert columns(sink) == [("id", "long")]


def compact(sink: Changing) -> None:
    """Make one file of all."""
    compactor = Compactor(sink.catalog, ("db", "t"), KEY, {}, EAGER, sleep=lambda seconds: None)
    assert compactor.refusal(sink.table) is None
    (group,) = compactor.plan(sink.table, 0).groups
    done = compactor.compact(group)
    assert (done.failed, done.dropped) == (None, None)


def test_compaction_carries_variants_through(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    values: list[Any] = [{"a": [1, None]}, "x", None, 1.5, [], {}]
    for number, value in enumerate(values):
        sink.take((None, {"id": number, "payload": value}))
    compact(sink)
    (task,) = sink.table.scan().plan_files()
    assert variants(sink) == values
    assert "payload (Variant(1))" in str(pq.ParquetFile(task.file.file_path.removeprefix("file://")).schema)


def test_rows_change_with_their_variants(tmp_path: Path) -> None:
    sink = sink_of(tmp_path).with_(mutations=RowMutations("op"), id_columns=("id",))
    sink.take(*((None, {"id": number, "op": "c", "payload": {"a": number}}) for number in range(4)))
    sink.take((None, {"id": 1, "op": "u", "payload": "new"}), (None, {"id": 2, "op": "d"}))
    sink.take((None, {"id": 3, "op": "u"}))
    compact(sink)
    assert [row["id"] for row in sorted(rows_of(sink), key=lambda row: int(row["id"]))] == [0, 1, 3]
    assert variants(sink) == [{"a": 0}, "new", None]
