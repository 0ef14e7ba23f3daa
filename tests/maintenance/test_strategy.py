"""The strategies that the settings name, and the tables that they do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, UnknownTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from calving.errors import ConfigError
from calving.maintenance.outputs import output_spec
from calving.maintenance.plan import Triggers
from calving.maintenance.strategy import Strategy
from calving.settings.load import load
from tests.cli.test_compact import file_of, sink_of
from tests.iceberg.histories import MutationTable, create
from tests.maintenance.compacting import compactor_of

NESTED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "s", StructType(NestedField(4, "a", LongType(), required=False)), required=False),
    NestedField(5, "l", ListType(6, LongType(), element_required=False), required=False),
)


@pytest.fixture
def table(catalog: Catalog) -> MutationTable:
    return create(catalog, "flat", 2, schema=NESTED)


def sort_by_name(table: MutationTable) -> None:
    with table.table.update_sort_order() as order:
        order.asc("name", IdentityTransform())


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("bin-pack", Strategy("bin-pack")),
        (" Sort ", Strategy("sort")),
        ("z-order(a,b)", Strategy("z-order", ("a", "b"))),
        ("Z-ORDER ( a , s.b, c, D )", Strategy("z-order", ("a", "s.b", "c", "D"))),
    ],
)
def test_a_strategy_is_a_name_or_a_z_order_of_columns(text: str, strategy: Strategy) -> None:
    assert Strategy.parse(text) == strategy


@pytest.mark.parametrize("text", ["", "binpack", "z-order", "sort(a)", "z-order(a, b"])
def test_another_text_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be bin-pack, sort, or z-order\(column, column\)"):
        Strategy.parse(text)


@pytest.mark.parametrize("text", ["z-order()", "z-order(a)", "z-order(a, b, c, d, e)", "z-order(a, a)", "z-order(a,)"])
def test_a_z_order_has_two_to_four_columns(text: str) -> None:
    with pytest.raises(ValueError, match="strategy z-order needs 2 to 4 columns of a primitive type"):
        Strategy.parse(text)


def test_the_settings_have_a_strategy_for_all_tables_and_one_for_each(tmp_path: Path) -> None:
    sink = sink_of(
        tmp_path,
        "db.t",
        **{
            "iceberg.maintenance.strategy": "z-order(a, b)",
            "iceberg.table.db.t.maintenance.strategy": "sort",
            "iceberg.maintenance.landed-files": 3,
        },
    )
    assert sink.maintenance("db.t", "strategy") == Strategy("sort")
    assert sink.maintenance("db.other", "strategy") == Strategy("z-order", ("a", "b"))
    assert sink.triggers("db.t") == Triggers(landed_files=3)


def test_a_wrong_strategy_names_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.maintenance\.strategy.*needs 2 to 4 columns of a primitive type"):
        load(file_of(tmp_path, "db.t", **{"iceberg.maintenance.strategy": "z-order(a)"}))


def test_a_table_with_a_sort_order_is_sorted_unless_told_otherwise(table: MutationTable) -> None:
    assert output_spec(table.table, {}).order == ""
    sort_by_name(table)
    assert output_spec(table.table, {}).order == "sorted"
    assert output_spec(table.table, {}, Strategy("bin-pack")).order == ""
    z_order = output_spec(table.table, {}, Strategy("z-order", ("id", "s.a")))
    assert (z_order.order, z_order.table.sort_order_json) == ("in z-order of id, s.a", None)


def test_sort_without_a_sort_order_leaves_the_table_alone(table: MutationTable) -> None:
    why = compactor_of(table, strategy=Strategy("sort")).refusal(table.table)
    assert why is not None and why.startswith("strategy sort needs a sort order of the table that calving knows")


def test_a_table_with_an_unknown_sort_order_is_not_sorted(table: MutationTable) -> None:
    sort_by_name(table)
    now = table.table
    (field,) = now.sort_order().fields
    curve = field.model_copy(update={"transform": UnknownTransform("curve")})
    orders = [now.sort_order().model_copy(update={"fields": [curve]})]
    now.metadata = now.metadata.model_copy(update={"sort_orders": orders})
    assert output_spec(now, {}).order == ""
    with pytest.raises(ConfigError, match="strategy sort needs a sort order of the table that calving knows"):
        output_spec(now, {}, Strategy("sort"))


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("nothing", "there is no column nothing"),
        ("s", "column s is struct"),
        ("l", "column l is list"),
        ("l.element", ""),
    ],
)
def test_a_z_order_of_other_columns_leaves_the_table_alone(table: MutationTable, column: str, why: str) -> None:
    found = compactor_of(table, strategy=Strategy("z-order", ("id", column))).refusal(table.table)
    assert found is not None and found.startswith(f"strategy z-order needs 2 to 4 columns of a primitive type: {why}")
