"""A table grows by what its records need, at any depth, and takes them afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UnknownType,
)

from calving.casting.converted import Converted
from calving.casting.table import TableConverter
from calving.casting.type_counts import decide
from calving.iceberg import creation
from calving.iceberg.catalog import open_catalog
from calving.iceberg.rules import TableRules
from calving.iceberg.schemas import change_schema
from calving.iceberg.tables import Tables
from calving.model.record_path import Evolution, Limits
from calving.model.tables import SchemaChange
from calving.records.fields import name_mapping
from calving.records.foreign import ForeignType
from calving.records.inferred import of_type
from calving.records.values import Values

_F = NestedField
X = StructType(_F(101, "x", LongType(), required=False))
BASE = Schema(
    _F(1, "id", LongType(), required=False),
    _F(2, "i", IntegerType(), required=False),
    _F(3, "f", FloatType(), required=False),
    _F(4, "must", StringType(), required=True),
    _F(5, "o", X, required=False),
    _F(6, "l", ListType(61, StructType(_F(62, "x", LongType(), required=False)), False), required=False),
    _F(
        7,
        "m",
        MapType(71, StringType(), 72, StructType(_F(73, "x", LongType(), required=False)), False),
        required=False,
    ),
    _F(8, "deep", StructType(_F(81, "o", StructType(_F(82, "must", LongType(), required=True)))), required=False),
)


class Grown:
    """A real table, and what the records made of it."""

    def __init__(self, folder: Path) -> None:
        self.catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)})
        self.catalog.create_namespace("db")
        self.catalog.create_table("db.t", BASE)
        self.tables = Tables(self.catalog, "iceberg", TableRules())
        self.tables.refresh(["db.t"])

    @property
    def schema(self) -> Schema:
        return self.catalog.load_table("db.t").schema()

    def convert(self, values: Values, *, evolve: bool = True) -> Converted:
        return TableConverter("db.t", self.schema, Evolution(evolve=evolve), {}).convert(values)

    def take(self, values: Values) -> list[dict[str, Any]]:
        """The rows after one update of the table."""
        changes = self.convert(values).changes
        self.tables.apply(changes)
        after = self.convert(values)
        assert after.changes == []
        assert after.bad == []
        assert after.rows is not None
        return list(after.rows.to_pylist())


@pytest.fixture
def grown(tmp_path: Path) -> Grown:
    return Grown(tmp_path)


def schemaless(*records: dict[str, Any]) -> Values:
    return Values([{"must": "", **r} for r in records], typed=False)


def typed(kind: pa.DataType, *values: Any) -> Values:
    """Records with one field ``new`` of a type that a schema gives."""
    fields = [pa.field("must", pa.string(), nullable=False), pa.field("new", kind)]
    return Values(pa.array([{"must": "", "new": v} for v in values], pa.struct(fields)), typed=True)


STRUCT = pa.struct([("a", pa.int64())])


@pytest.mark.parametrize(
    ("kind", "value", "column"),
    [
        (pa.map_(pa.string(), pa.int32()), [("k", 1)], "map<string, int>"),
        (pa.map_(pa.string(), pa.map_(pa.string(), pa.int64())), [("k", [("j", 1)])], "map<string, map<string, long>>"),
        (pa.list_(pa.map_(pa.string(), pa.int64())), [[("k", 1)]], "list<map<string, long>>"),
        (STRUCT, {"a": 1}, "struct<a: long>"),
        (pa.struct([("b", STRUCT)]), {"b": {"a": 1}}, "struct<b: struct<a: long>>"),
        (pa.list_(STRUCT), [{"a": 1}], "list<struct<a: long>>"),
        (pa.map_(pa.string(), STRUCT), [("k", {"a": 1})], "map<string, struct<a: long>>"),
    ],
)
def test_a_missing_column_of_a_nested_type_is_added(kind: pa.DataType, value: Any, column: str, grown: Grown) -> None:
    (row,) = grown.take(typed(kind, value))
    assert row["new"] == value
    plain = str(grown.schema.find_type("new"))
    assert _without_ids(plain) == column


@pytest.mark.parametrize(
    ("kind", "value", "column", "taken"),
    [
        (pa.decimal128(38, 3), Decimal("0.001"), "decimal(38, 3)", Decimal("0.001")),
        (pa.decimal128(5, 2), Decimal("123.45"), "decimal(5, 2)", Decimal("123.45")),
        (pa.decimal128(4, -3), Decimal("1E+3"), "decimal(7, 0)", Decimal(1000)),
    ],
)
def test_a_decimal_of_any_scale_is_added(
    kind: pa.DataType, value: Decimal, column: str, taken: Decimal, grown: Grown
) -> None:
    (row,) = grown.take(typed(kind, value))
    assert (row["new"], str(grown.schema.find_type("new"))) == (taken, column)


def _without_ids(text: str) -> str:
    import re

    return re.sub(r"\d+: (\w+: )?(optional|required) ", lambda m: m.group(1) or "", text)


@pytest.mark.parametrize(
    ("record", "path"),
    [
        ({"new": 1}, "new"),
        ({"o": {"y": 1}}, "o.y"),
        ({"l": [{"x": 1}, {"y": 2}]}, "l.element.y"),
        ({"m": {"k": {"y": 1}}}, "m.value.y"),
        ({"deep": {"o": {"must": 1, "y": "text"}}}, "deep.o.y"),
    ],
)
def test_a_field_is_added_where_it_is_missing(record: dict[str, Any], path: str, grown: Grown) -> None:
    grown.take(schemaless(record))
    assert grown.schema.find_field(path).optional


@pytest.mark.parametrize(
    "record",
    [
        {"new": None},
        {"o": {"y": None}},
        {"o": None},
        {"l": [{"y": None}, None]},
        {"l": None},
        {"m": {"k": {"y": None}}},
        {"new": {}},
        {"new": []},
        {"new": [[], []]},
    ],
)
def test_what_says_nothing_needs_nothing(record: dict[str, Any], grown: Grown) -> None:
    assert grown.convert(schemaless(record)).changes == []


def test_fields_of_several_records_come_together_in_one_update(grown: Grown) -> None:
    before = len(grown.catalog.load_table("db.t").metadata.schemas)
    grown.take(schemaless({"a": 1}, {"b": "x", "o": {"y": 1}}, {"a": 2, "o": {"z": True}}))
    assert len(grown.catalog.load_table("db.t").metadata.schemas) == before + 1
    assert {str(grown.schema.find_type(p)) for p in ("a", "o.y")} == {"long"}
    assert str(grown.schema.find_type("o.z")) == "boolean"


def test_whole_numbers_and_fractions_of_a_new_field_become_doubles(grown: Grown) -> None:
    rows = grown.take(schemaless({"a": 1}, {"a": 1.5}))
    assert [r["a"] for r in rows] == [1.0, 1.5]


def test_numbers_are_widened(grown: Grown) -> None:
    rows = grown.take(schemaless({"i": 2**40, "f": 1e300}))
    assert (rows[0]["i"], rows[0]["f"]) == (2**40, 1e300)
    assert [str(grown.schema.find_type(n)) for n in ("i", "f")] == ["long", "double"]


def test_a_schema_widens_before_a_value_needs_it(grown: Grown) -> None:
    fields = [pa.field("must", pa.string(), nullable=False), pa.field("i", pa.int64())]
    grown.take(Values(pa.array([{"must": "", "i": 1}], pa.struct(fields)), typed=True))
    assert str(grown.schema.find_type("i")) == "long"


@pytest.mark.parametrize(("record", "path"), [({"must": None}, "must"), ({"deep": {"o": {}}}, "deep.o.must")])
def test_a_required_column_without_a_value_becomes_optional(record: dict[str, Any], path: str, grown: Grown) -> None:
    grown.take(schemaless(record))
    assert grown.schema.find_field(path).optional


def test_a_null_struct_does_not_make_its_required_fields_optional(grown: Grown) -> None:
    assert grown.convert(schemaless({"deep": None}, {"deep": {"o": None}})).changes == []


def test_a_type_that_cannot_be_widened_makes_the_record_bad_and_not_the_batch(grown: Grown) -> None:
    converted = grown.convert(schemaless({"i": "text"}, {"i": 1}, {"o": 3}))
    assert [bad.index for bad in converted.bad] == [0, 2]
    assert converted.rows is not None
    assert converted.rows["i"].to_pylist() == [1]


def test_without_evolution_nothing_is_needed_and_a_missing_value_is_bad(grown: Grown) -> None:
    converted = grown.convert(schemaless({"new": 1}, {"must": None}), evolve=False)
    assert (converted.changes, [bad.index for bad in converted.bad]) == ([], [1])


def test_a_bad_record_needs_nothing_of_the_table(grown: Grown) -> None:
    assert grown.convert(schemaless({"i": "text", "new": 1})).changes == []


def test_a_change_that_others_have_made_already_is_not_made_again(grown: Grown) -> None:
    changes = grown.convert(schemaless({"a": 1})).changes
    grown.tables.apply(changes)
    before = len(grown.catalog.load_table("db.t").metadata.schemas)
    grown.tables.apply(changes)
    assert len(grown.catalog.load_table("db.t").metadata.schemas) == before


def test_two_workers_that_evolve_a_table_at_the_same_time_both_get_what_they_need(
    grown: Grown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one's update lands between loading the table and committing the change to it, each time."""
    other = Tables(grown.catalog, "iceberg", TableRules())
    theirs = [schemaless({"theirs": 1}), schemaless({"both": 1})]

    def late(update: Any, need: Any, *, defaults: bool) -> None:
        if theirs:
            changes = grown.convert(theirs.pop(0)).changes
            other.apply(changes)
        change_schema(update, need, defaults=defaults)

    monkeypatch.setattr(creation, "change_schema", late)
    rows = grown.take(schemaless({"ours": 1}, {"both": 2}))
    assert [r["both"] for r in rows] == [None, 2]
    assert {"theirs", "ours", "both"} <= set(grown.schema.column_names)


def test_a_table_that_keeps_changing_is_tried_again_later(grown: Grown, monkeypatch: pytest.MonkeyPatch) -> None:
    from calving.errors import UnavailableError

    rounds = iter(range(100))

    def raced(update: Any, need: Any, *, defaults: bool) -> None:
        with grown.catalog.load_table("db.t").update_schema() as theirs:
            theirs.add_column(f"c{next(rounds)}", LongType())
        change_schema(update, need, defaults=defaults)

    monkeypatch.setattr(creation, "change_schema", raced)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(UnavailableError, match=r"db\.t: its schema could not be changed"):
        grown.take(schemaless({"a": 1}))


Names = Callable[[Sequence[str]], Converted]


def test_a_name_mapping_finds_columns_by_its_names_only() -> None:
    schema = Schema(_F(1, "id", LongType(), required=False), _F(2, "s", StringType(), required=False))
    mapping = name_mapping(
        {"schema.name-mapping.default": '[{"field-id": 1, "names": ["id", "ID_OLD"]}, {"field-id": 2, "names": ["t"]}]'}
    )
    converter = TableConverter("db.t", schema, Evolution(), mapping)
    found = converter.convert(Values([{"ID_OLD": 1, "t": "a"}, {"ID": 2, "s": "b"}], typed=False))
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"id": 1, "s": "a"}, {"id": None, "s": None}]


def test_ignoring_case_a_mapped_name_leads_to_its_column_in_any_case() -> None:
    schema = Schema(_F(1, "ii", LongType(), required=False), _F(2, "Name", StringType(), required=False))
    mapping = {1: ("ii", "Old"), 2: ("Name",)}
    converter = TableConverter("db.t", schema, Evolution(case_insensitive=True, evolve=True), mapping)
    found = converter.convert(Values([{"II": 1, "NAME": "a"}, {"old": 2, "name": "b"}], typed=False))
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"ii": 1, "Name": "a"}, {"ii": 2, "Name": "b"}]


def test_names_of_two_columns_in_a_mapping_that_differ_by_case_stay_apart() -> None:
    schema = Schema(_F(1, "a", LongType(), required=False), _F(2, "b", LongType(), required=False))
    mapping = {1: ("x",), 2: ("X",)}
    converter = TableConverter("db.t", schema, Evolution(case_insensitive=True), mapping)
    found = converter.convert(Values([{"x": 1, "X": 2}], typed=False))
    assert found.rows is not None
    assert found.rows.to_pylist() == [{"a": 1, "b": 2}]


def test_ignoring_case_a_new_column_holds_one_field_for_all_whose_names_become_one_at_any_depth(grown: Grown) -> None:
    evolution = Evolution(evolve=True, case_insensitive=True)
    converter = TableConverter("db.t", grown.schema, evolution, {})
    found = converter.convert(schemaless({"new": {"a": "x", "A": 1}}))
    assert found.bad == []
    assert [(need.path, decide(need.seen, 0).kind) for need in found.changes] == [
        (("new",), {"struct": {"A": "string"}})
    ]


@pytest.mark.parametrize("kind", [UnknownType(), ForeignType("raster(EPSG:4326)")], ids=str)
def test_a_value_for_a_column_of_a_type_that_cannot_be_written_is_bad(kind: IcebergType) -> None:
    schema = Schema(_F(1, "id", LongType(), required=False), _F(2, "x", kind, required=False))
    converter = TableConverter("db.t", schema, Evolution(), {})
    values = [{"id": 1}, {"id": 2, "x": "POINT (1 2)"}, {"id": 3, "x": None}]
    for values_ in (Values(values, typed=False), Values(pa.array(values), typed=True)):
        found = converter.convert(values_)
        assert [bad.index for bad in found.bad] == [1]
        assert "cannot be written" in found.bad[0].reason


def test_rows_come_in_the_tables_order() -> None:
    schema = Schema(_F(2, "b", LongType(), required=False), _F(1, "a", LongType(), required=False))
    found = TableConverter("db.t", schema, Evolution(), {}).convert(Values([{"a": 1, "b": 2}], typed=False))
    assert found.rows is not None
    assert found.rows.schema.names == ["b", "a"]


@pytest.mark.parametrize(("force", "required"), [(False, True), (True, False)])
def test_columns_that_a_schema_requires_are_required_unless_forced_optional(
    force: bool, required: bool, tmp_path: Path
) -> None:
    grown = Grown(tmp_path)
    tables = Tables(grown.catalog, "iceberg", TableRules(force_optional=force))
    tables.refresh(["db.new"])
    kind = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    tables.apply([SchemaChange("db.new", "create", type=of_type(kind))])
    assert grown.catalog.load_table("db.new").schema().find_field("a").required is required


def test_fields_of_an_added_struct_are_optional_where_that_is_forced(grown: Grown) -> None:
    tables = Tables(grown.catalog, "iceberg", TableRules(force_optional=True))
    tables.apply([SchemaChange("db.t", "add", ("new",), {"struct": {"a": "long"}, "required": ["a"]})])
    assert not grown.schema.find_field("new.a").required


def test_records_without_any_field_create_no_table(grown: Grown) -> None:
    grown.tables.refresh(["db.none"])
    grown.tables.apply([SchemaChange("db.none", "create")])
    assert grown.tables.missing.keys() == grown.tables.refused.keys() == {"db.none"}


def test_a_required_column_with_a_default_value_stays_required() -> None:
    schema = Schema(NestedField(1, "a", LongType(), required=True, write_default=7), NestedField(2, "b", LongType()))
    found = TableConverter("db.t", schema, Evolution(), {}).convert(Values([{"a": None}, {"a": 1}], typed=False))
    assert found.changes == [] and list(found.index) == [1]
    assert "default value stands only where a record has no such field" in found.bad[0].reason


def _null_field(limits: Limits | None = None, name: str = "new", kind: pa.DataType | None = None) -> Converted:
    schema = Schema(NestedField(1, "a", LongType(), required=False))
    values = pa.array([{"a": 1, name: None}], pa.struct([("a", pa.int64()), (name, kind or pa.string())]))
    return TableConverter("db.t", schema, Evolution(evolve=True), {}, limits).convert(Values(values, typed=True))


def test_a_null_of_a_field_that_a_schema_declares_brings_its_column() -> None:
    assert _null_field().changes == [SchemaChange("db.t", "add", ("new",), "string")]


def test_a_null_without_a_schema_brings_no_column() -> None:
    schema = Schema(NestedField(1, "a", LongType(), required=False))
    values = Values(
        pa.array([{"a": 1, "new": None}], pa.struct([("a", pa.int64()), ("new", pa.string())])), typed=False
    )
    assert TableConverter("db.t", schema, Evolution(evolve=True), {}).convert(values).changes == []


@pytest.mark.parametrize(
    ("limits", "name", "kind"),
    [
        (None, "_file", pa.string()),
        (Limits(new_columns=1), "new", pa.struct([("x", pa.int64()), ("y", pa.int64())])),
        (Limits(columns=1), "new", pa.string()),
    ],
)
def test_a_record_is_written_without_the_column_of_a_null_that_the_table_cannot_have(
    limits: Limits | None, name: str, kind: pa.DataType
) -> None:
    found = _null_field(limits, name, kind)
    assert (found.changes, found.bad) == ([], [])
    assert found.rows is not None and found.rows.to_pylist() == [{"a": 1}]


def test_nulls_that_would_bring_too_many_columns_together_bring_none() -> None:
    schema = Schema(NestedField(1, "a", LongType(), required=False))
    kind = pa.struct([(name, pa.int64()) for name in "abcd"])
    values = pa.array([{"a": 1, "b": 2}], kind)
    converter = TableConverter("db.t", schema, Evolution(evolve=True), {}, Limits(new_columns=2))
    assert [change.path for change in converter.convert(Values(values, typed=True)).changes] == [("b",)]


def test_the_fields_of_a_struct_that_is_null_bring_no_columns() -> None:
    schema = Schema(NestedField(1, "s", StructType(NestedField(2, "x", LongType(), required=False)), required=False))
    kind = pa.struct([("s", pa.struct([("x", pa.int64()), ("y", pa.int64())]))])
    found = [
        TableConverter("db.t", schema, Evolution(evolve=True), {}).convert(
            Values(pa.array([{"s": s}], kind), typed=True)
        )
        for s in (None, {"x": 1})
    ]
    assert [[change.path for change in each.changes] for each in found] == [[], [("s", "y")]]
