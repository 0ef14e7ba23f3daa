"""New columns get the defaults that the schemas of records declare, where the settings say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from calving.model.record_path import ConverterSpec, Evolution, TopicConverters, TransformSpec
from tests.iceberg.reader import rows_of
from tests.mutations.changing import JSON_KEYS, Changing

ENVELOPE = TopicConverters(ConverterSpec("json"), ConverterSpec("json", {"schemas.enable": "true"}))
ID: dict[str, Any] = {"field": "id", "type": "int64"}
N = {"field": "n", "type": "int64", "default": 5}
TAGS = {"field": "tags", "type": "array", "items": {"type": "string"}, "default": []}
POINT: dict[str, Any] = {
    "field": "p",
    "type": "struct",
    "optional": True,
    "fields": [{"field": "x", "type": "int32", "default": 1}, {"field": "y", "type": "int32", "optional": True}],
}


def record(fields: list[dict[str, Any]], **values: Any) -> tuple[None, dict[str, Any]]:
    """A record of Connect's envelope."""
    return None, {"schema": {"type": "struct", "optional": False, "fields": fields}, "payload": values}


def sink_of(
    folder: Path, *, version: int = 3, schema_defaults: bool = True, converters: Any = ENVELOPE, **more: Any
) -> Changing:
    return Changing(
        folder,
        mutations=None,
        id_columns=(),
        evolution=Evolution(create=True, evolve=True),
        converters=converters or JSON_KEYS,
        properties={"format-version": str(version)},
        schema_defaults=schema_defaults,
        **more,
    )


def columns(sink: Changing) -> dict[str, tuple[Any, ...]]:
    """Of each column at the top: whether it is required, its initial default and its write default."""
    fields = sink.table.schema().fields
    return {field.name: (field.required, field.initial_default, field.write_default) for field in fields}


def written(sink: Changing) -> list[Any]:
    """The rows of all files in the order of their ids, as the files have them."""
    paths = [task.file.file_path.removeprefix("file://") for task in sink.table.scan().plan_files()]
    return sorted((row for path in paths for row in pq.read_table(path).to_pylist()), key=lambda row: int(row["id"]))


def test_a_new_table_writes_the_default_where_an_earlier_schema_lacks_the_field(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    assert sink.reasons(sink.take(record([ID, N], id=1, n=1))) == []
    assert sink.reasons(sink.take(record([ID], id=2))) == []
    assert columns(sink) == {"id": (True, None, None), "n": (True, None, 5)}
    assert written(sink) == [{"id": 1, "n": 1}, {"id": 2, "n": 5}]


def test_rows_that_are_older_than_the_column_have_the_default(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(record([ID], id=1))
    sink.take(record([ID, N], id=2, n=7))
    sink.take(record([ID], id=3))
    assert columns(sink)["n"] == (False, 5, 5)
    assert rows_of(sink.table) == [(1, 5), (2, 7), (3, 5)]


def test_fields_inside_a_new_struct_have_their_defaults(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(record([ID], id=1))
    without = {**POINT, "fields": POINT["fields"][1:]}
    sink.take(record([ID, POINT], id=2, p={"x": 3, "y": 4}), record([ID, without], id=3, p={"y": 5}))
    column = sink.table.schema().find_field("p")
    assert (column.write_default, sink.table.schema().find_field("p.x").write_default) == (None, 1)
    assert [row["p"] for row in written(sink)[1:]] == [{"x": 3, "y": 4}, {"x": 1, "y": 5}]


def test_a_field_inside_a_struct_that_is_there_has_its_default(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    without = {**POINT, "fields": POINT["fields"][1:]}
    sink.take(record([ID, without], id=1, p={"y": 5}))
    sink.take(record([ID, POINT], id=2, p={"x": 3, "y": 4}))
    field = sink.table.schema().find_field("p.x")
    assert (field.initial_default, field.write_default) == (1, 1)


def test_a_default_that_no_column_can_have_is_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = sink_of(tmp_path)
    sink.take(record([ID, TAGS], id=1, tags=[]))
    assert columns(sink)["tags"] == (True, None, None)
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "table db.t: column 'tags' has no default value: the one that the records' schema declares is not used: columns"
        " of structs, lists and maps have no default but null"
    ]


def test_schemas_of_one_batch_with_different_defaults_give_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = sink_of(tmp_path)
    sink.take(record([ID, N], id=1, n=1), record([ID, {**N, "default": 6}], id=2, n=2))
    assert columns(sink)["n"] == (True, None, None)
    assert "different defaults, 5 and 6" in caplog.text


@pytest.mark.parametrize("is_there", [False, True])
def test_a_table_of_version_2_gets_no_default_and_says_so(
    is_there: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = sink_of(tmp_path, version=2)
    if is_there:
        sink.take(record([ID], id=1))
    sink.take(record([ID, N], id=2, n=1))
    assert columns(sink)["n"] == (not is_there, None, None)
    advice = (
        "calving maintain --task upgrade makes it of version 3"
        if is_there
        else "iceberg.tables.auto-create-props.format-version = 3 creates tables that have them"
    )
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "table db.t: the records' schema declares default values, for which format version 2 has no place: its columns"
        f" have none; {advice}"
    ]


def test_without_the_setting_new_columns_have_no_default(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, schema_defaults=False)
    sink.take(record([ID, N], id=1, n=1))
    sink.take(record([ID, N, POINT], id=2, n=1, p=None))
    assert columns(sink)["n"] == (True, None, None)
    assert sink.table.schema().find_field("p.x").write_default is None


def test_a_default_passes_through_transforms(tmp_path: Path) -> None:
    renamed = TransformSpec("rename", "ReplaceField$Value", {"renames": "n:m"})
    sink = sink_of(tmp_path, transforms=(renamed,))
    sink.take(record([ID, N], id=1, n=1))
    assert columns(sink)["m"] == (True, None, 5)


def test_flatten_drops_only_the_defaults_of_fields_inside_structs(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, transforms=(TransformSpec("flat", "Flatten$Value", {}),))
    sink.take(record([ID, N, POINT], id=1, n=1, p={"x": 3}))
    assert columns(sink) == {
        "id": (True, None, None),
        "n": (True, None, 5),
        "p.x": (False, None, None),
        "p.y": (False, None, None),
    }


def test_names_that_differ_by_case_keep_the_default(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.evolution = Evolution(create=True, evolve=True, case_insensitive=True)
    sink.columns = {"N": "int"}
    sink.take(record([ID, N], id=1, n=1))
    assert columns(sink)["N"][2] == 5
