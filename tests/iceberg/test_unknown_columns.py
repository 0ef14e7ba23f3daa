"""Columns that have no type yet become that of their first value, also in tables of other engines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from calving.errors import ConfigError
from calving.maintenance.compactor import Compactor
from calving.model.record_path import Evolution
from calving.model.tables import RowMutations
from calving.records.declared import read_columns, with_declared
from tests.iceberg.test_foreign_types import add_columns, change_metadata
from tests.iceberg.test_schema_defaults import ENVELOPE, ID, record
from tests.iceberg.test_variants import compact
from tests.maintenance.compacting import EAGER
from tests.mutations.changing import JSON_KEYS, KEY, Changing

LATER = {"id": 100, "name": "later", "required": False, "type": "unknown"}
INSIDE = {
    "id": 101,
    "name": "s",
    "required": False,
    "type": {
        "type": "struct",
        "fields": [
            {"id": 102, "name": "later", "required": False, "type": "unknown"},
            {"id": 103, "name": "n", "required": False, "type": "long"},
        ],
    },
}
EVOLVES = Evolution(create=True, evolve=True)


def sink_of(folder: Path, *columns: dict[str, Any], **settings: Any) -> Changing:
    """A sink whose table has one row, and then columns of another engine."""
    defaults = {"mutations": None, "id_columns": (), "evolution": EVOLVES, "properties": {"format-version": "3"}}
    made = Changing(folder, **defaults | settings)
    made.take((None, {"id": 1}))
    change_metadata(made, lambda found: add_columns(found, *(columns or (LATER,))))
    return made


def kinds(sink: Changing) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in sink.table.schema().fields}


def rows(sink: Changing) -> list[dict[str, Any]]:
    return sorted(sink.table.scan().to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def test_a_table_with_such_a_column_takes_nulls_and_stays_as_it_is(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    assert sink.reasons(sink.take((None, {"id": 2}), (None, {"id": 3, "later": None}))) == []
    assert kinds(sink) == {"id": "long", "later": "unknown"}


@pytest.mark.parametrize(
    ("value", "kind", "number"),
    [
        (5, "long", 100),
        ("x", "string", 100),
        (1.5, "double", 100),
        ([1], "list<long>", 201),
        ({"a": {"b": True}}, "struct<203: a: optional struct<204: b: optional boolean>>", 202),
    ],
)
def test_the_first_value_decides_the_type(value: Any, kind: str, number: int, tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    assert sink.reasons(sink.take((None, {"id": 2}), (None, {"id": 3, "later": value}))) == []
    assert kinds(sink)["later"].startswith(kind.split("<")[0])
    assert [row["later"] for row in rows(sink)] == [None, None, value]
    if isinstance(value, str | int | float):
        assert sink.table.schema().find_field("later").field_id == 100


def test_values_of_one_batch_decide_together(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take((None, {"id": 2, "later": 5}), (None, {"id": 3, "later": 1.5}))
    assert kinds(sink)["later"] == "double"
    assert [row["later"] for row in rows(sink)] == [None, 5.0, 1.5]


def test_a_field_inside_a_struct_gets_its_type(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, INSIDE)
    outcome = sink.take((None, {"id": 2, "s": {"n": 1}}), (None, {"id": 3, "s": {"later": "x", "n": 2}}))
    assert sink.reasons(outcome) == []
    assert str(sink.table.schema().find_field("s.later").field_type) == "string"
    assert [row["s"] for row in rows(sink)] == [None, {"later": None, "n": 1}, {"later": "x", "n": 2}]


def test_a_schema_decides_the_type_also_by_a_null(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.converters = ENVELOPE
    sink.take(record([ID, {"field": "later", "type": "int32", "optional": True}], id=2, later=None))
    assert kinds(sink)["later"] == "int"


def test_a_declared_type_decides(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, types=read_columns("later decimal(9, 2)"))
    sink.take((None, {"id": 2, "later": "1.5"}))
    assert kinds(sink)["later"] == "decimal(9, 2)"


def test_ignoring_case_the_column_keeps_its_name(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, evolution=Evolution(create=True, evolve=True, case_insensitive=True))
    assert sink.reasons(sink.take((None, {"id": 2, "LATER": 5}))) == []
    assert kinds(sink) == {"id": "long", "later": "long"}
    assert [row["later"] for row in rows(sink)] == [None, 5]


def test_without_evolution_a_value_is_bad(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, evolution=Evolution(create=True))
    ((_, reason),) = sink.reasons(sink.take((None, {"id": 2, "later": 5})))
    assert "columns of type unknown cannot be written" in reason


def test_a_value_for_unknown_elements_is_bad(tmp_path: Path) -> None:
    elements = {"type": "list", "element-id": 106, "element": "unknown", "element-required": False}
    sink = sink_of(tmp_path, {"id": 105, "name": "l", "required": False, "type": elements})
    ((_, reason),) = sink.reasons(sink.take((None, {"id": 2, "l": [5]})))
    assert "field 'l" in reason


def test_rows_are_replaced_and_files_rewritten_before_and_after_the_promotion(tmp_path: Path) -> None:
    properties = {"format-version": "3", "write.delete.mode": "merge-on-read"}
    sink = sink_of(tmp_path, mutations=RowMutations(upsert=True), id_columns=("id",), properties=properties)
    for number in range(2, 6):
        sink.take((None, {"id": number}))
    sink.take((None, {"id": 2}))
    compact(sink)
    sink.take((None, {"id": 1, "later": "x"}))
    assert kinds(sink)["later"] == "string"
    for number in range(2, 5):
        sink.take((None, {"id": number, "later": f"{number}"}))
    before = rows(sink)
    assert [row["later"] for row in before] == ["x", "2", "3", "4", None]
    compact(sink)
    assert rows(sink) == before


def test_files_with_lists_of_unknown_elements_are_left_alone(tmp_path: Path) -> None:
    elements = {"type": "list", "element-id": 106, "element": "unknown", "element-required": False}
    sink = sink_of(tmp_path, {"id": 105, "name": "l", "required": False, "type": elements})
    compactor = Compactor(sink.catalog, ("db", "t"), KEY, {}, EAGER)
    assert compactor.refusal(sink.table) == "calving cannot write its column l of type list<unknown>"


def test_a_declared_column_stands_as_unknown_until_a_value_comes(tmp_path: Path) -> None:
    sink = Changing(
        tmp_path,
        mutations=None,
        id_columns=(),
        evolution=EVOLVES,
        columns=read_columns("later unknown, s.later unknown"),
        properties={"format-version": "3"},
        converters=JSON_KEYS,
    )
    assert sink.reasons(sink.take((None, {"id": 1}))) == []
    assert kinds(sink)["later"] == "unknown"
    assert sink.reasons(sink.take((None, {"id": 2, "later": True, "s": {"later": 7}}))) == []
    assert (kinds(sink)["later"], rows(sink)[1]) == ("boolean", {"id": 2, "later": True, "s": {"later": 7}})


def test_a_declared_column_gets_the_type_of_values_that_are_there_at_once(tmp_path: Path) -> None:
    columns = read_columns("later unknown")
    properties = {"format-version": "3"}
    sink = Changing(tmp_path, mutations=None, id_columns=(), evolution=EVOLVES, columns=columns, properties=properties)
    sink.take((None, {"id": 1, "later": 5}))
    assert kinds(sink)["later"] == "long"


@pytest.mark.parametrize("names", [["later"], ["x"]], ids=["its own name", "another name"])
@pytest.mark.parametrize("typed", [False, True])
def test_a_column_of_a_name_mapping_gets_its_type_in_place(names: list[str], typed: bool, tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    mapping = [{"field-id": 1, "names": ["id"]}, {"field-id": 100, "names": names}]
    with sink.table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": json.dumps(mapping)})
    if typed:
        sink.converters = ENVELOPE
        taken = record([ID, {"field": names[0], "type": "int64"}], **{"id": 2, names[0]: 5})
    else:
        taken = (None, {"id": 2, names[0]: 5})
    assert sink.reasons(sink.take(taken)) == []
    assert kinds(sink) == {"id": "long", "later": "long"}
    assert sink.table.schema().find_field("later").field_id == 100
    assert [row["later"] for row in rows(sink)] == [None, 5]


def test_a_column_of_a_name_mapping_becomes_a_list(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    mapping = [{"field-id": 1, "names": ["id"]}, {"field-id": 100, "names": ["later"]}]
    with sink.table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": json.dumps(mapping)})
    assert sink.reasons(sink.take((None, {"id": 2, "later": [5]}))) == []
    assert [row["later"] for row in rows(sink)] == [None, [5]]


def test_a_promoted_column_has_the_default_of_the_schema_for_new_rows_alone(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, schema_defaults=True)
    sink.converters = ENVELOPE
    sink.take(record([ID, {"field": "later", "type": "int64", "default": 5}], id=2, later=7))
    sink.take(record([ID], id=3))
    column = sink.table.schema().find_field("later")
    assert (column.field_id, column.initial_default, column.write_default) == (100, None, 5)
    assert [row["later"] for row in rows(sink)] == [None, 7, 5]


@pytest.mark.parametrize("declared", ["s struct<later: unknown, n: long>", "S struct<LATER: unknown, N: long>"])
def test_a_field_declared_unknown_keeps_the_type_of_its_values(declared: str) -> None:
    batch = {"struct": {"s": {"struct": {"later": "string", "n": "double"}}}}
    found: Any = with_declared(batch, read_columns(declared), everywhere=("s", "S"), fold=True)
    ((fields,),) = [list(found["struct"].values())]
    assert [*fields["struct"].values()] == ["string", "long"]


def test_fields_declared_unknown_inside_lists_and_maps_keep_the_type_of_their_values() -> None:
    declared = read_columns("l list<struct<a: unknown>>, m map<string, struct<a: unknown, b: unknown>>")
    batch = {"struct": {"l": {"list": {"struct": {"a": "long"}}}, "m": {"map": ["string", {"struct": {"a": "date"}}]}}}
    assert with_declared(batch, declared, everywhere=("l", "m")) == {
        "struct": {
            "l": {"list": {"struct": {"a": "long"}}},
            "m": {"map": ["string", {"struct": {"a": "date", "b": "unknown"}}]},
        }
    }


def test_a_struct_that_has_only_such_fields_does_not_keep_files_from_compaction(tmp_path: Path) -> None:
    later = {"type": "struct", "fields": [{"id": 102, "name": "later", "required": False, "type": "unknown"}]}
    sink = sink_of(tmp_path, {"id": 101, "name": "s", "required": False, "type": later})
    for number in range(2, 6):
        sink.take((None, {"id": number}))
    before = rows(sink)
    assert Compactor(sink.catalog, ("db", "t"), KEY, {}, EAGER).refusal(sink.table) is None
    compact(sink)
    assert rows(sink) == before


@pytest.mark.parametrize("term", ["later", "bucket(later, 4)"])
def test_no_new_table_is_partitioned_by_such_a_column(term: str, tmp_path: Path) -> None:
    columns, properties = read_columns("later unknown"), {"format-version": "3"}
    sink = Changing(
        tmp_path,
        mutations=None,
        id_columns=(),
        evolution=EVOLVES,
        columns=columns,
        properties=properties,
        partition_by=(term,),
    )
    with pytest.raises(ConfigError, match=rf"partition-by '{re.escape(term)}' cannot be applied to a unknown: declare"):
        sink.take((None, {"id": 1}))


def test_elements_cannot_be_declared_unknown() -> None:
    with pytest.raises(ValueError, match="only a field can be unknown"):
        read_columns("l list<unknown>")
