"""A value that does not fit its column goes into a column beside it, if the settings say so (``on-type-change``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from calving.iceberg.rules import TableRules, TableSettings
from calving.model.record_path import Evolution, Tolerance, TransformSpec
from calving.model.tables import OnTypeChange, RowMutations
from tests.fuzz.sink import Found, Run, Sink, Target
from tests.mutations.changing import NAME, Changing, Message
from tests.records.test_neighbours import CREATE, EVOLVE, NOTHING, ONE, lines, table


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    made = Sink(tmp_path_factory.mktemp("sink") / "warehouse")
    yield made
    made.close()


def run(how: OnTypeChange = "column", evolution: Evolution = EVOLVE, **more: Any) -> Run:
    return Run(ONE, evolution, rules=TableRules(defaults=TableSettings(on_type_change=how)), **more)


def rows(found: Found) -> list[str]:
    """The rows, without what is null."""
    assert found.error is None
    texts = ("; ".join(row) for row in found.rows["db.t"].elements())
    return sorted(re.sub(r"\w+: None(; |, |$)|[;,] \w+: None(?=\})", "", text).removesuffix("; ") for text in texts)


def check(sink: Sink, run: Run, tables: Sequence[Target], records: Sequence[bytes]) -> Found:
    """The batch, which must be what its records are alone, on the exact way, and behind a transform that does nothing."""
    singles = [sink.take(run, tables, [record]) for record in records]
    for other in (replace(run, exactly=True), replace(run, native=False), replace(run, transforms=NOTHING), run):
        together = sink.take(other, tables, records)
        assert rows(together) == sorted(row for single in singles for row in rows(single))
        assert together.dead == {i: single.dead[0] for i, single in enumerate(singles) if single.dead}
    return together


def types(sink: Sink) -> dict[str, str]:
    schema = sink.table("db.t").schema()
    return {name: str(schema.find_type(name)) for name in schema.column_names}


AMOUNT = table(id=LongType(), amount=LongType())
CHANGED = [
    {"id": 1, "amount": 7},
    {"id": 2, "amount": "much"},
    {"id": 3, "amount": 1.5},
    {"id": 4, "amount": True},
    {"id": 5, "amount": "8"},
    {"id": 6, "amount": 2**70},
    {"id": 7, "amount": {"value": 1}},
    {"id": 8, "amount": [1, 2]},
    {"id": 9, "amount": None},
]


def test_each_value_goes_into_the_column_of_its_type_and_what_fits_stays(sink: Sink) -> None:
    found = check(sink, run(), [AMOUNT], lines(*CHANGED))
    assert rows(found) == [
        "amount: 7; id: 1",
        "amount: 8; id: 5",
        "amount_boolean: True; id: 4",
        "amount_decimal: 1180591620717411303424m; id: 6",
        "amount_double: 1.5; id: 3",
        "amount_list: [1, 2]; id: 8",
        "amount_string: 'much'; id: 2",
        "amount_struct: {value: 1}; id: 7",
        "id: 9",
    ]
    assert not found.dead


def test_all_columns_come_in_one_change_of_the_schema(sink: Sink) -> None:
    sink.take(run(), [table(id=LongType(), amount=LongType(), at=TimestamptzType())], [])
    before = len(sink.table("db.t").metadata.schemas)
    found = sink.take(run(), None, lines({"id": 1, "amount": "much", "at": "soon"}, {"id": 2, "amount": 1.5}))
    assert (found.dead, len(sink.table("db.t").metadata.schemas)) == ({}, before + 1)
    assert types(sink).keys() == {"id", "amount", "at", "amount_string", "at_string", "amount_double"}


def test_all_values_go_as_text_into_one_column(sink: Sink) -> None:
    found = check(sink, run("text"), [AMOUNT], lines(*CHANGED))
    assert rows(found) == [
        "amount: 7; id: 1",
        "amount: 8; id: 5",
        "amount_string: '1.5'; id: 3",
        "amount_string: '1180591620717411303424'; id: 6",
        "amount_string: '[1,2]'; id: 8",
        "amount_string: 'much'; id: 2",
        "amount_string: 'true'; id: 4",
        "amount_string: '{\"value\":1}'; id: 7",
        "id: 9",
    ]


def test_without_the_setting_such_a_record_is_bad(sink: Sink) -> None:
    found = check(sink, run("fail"), [AMOUNT], lines(*CHANGED))
    assert sorted(found.dead) == [1, 2, 3, 5, 6, 7]


def test_no_record_stops_a_sink_that_tolerates_none(sink: Sink) -> None:
    found = sink.take(run(tolerance=Tolerance("error")), [AMOUNT], lines(*CHANGED))
    assert (found.error, found.rows["db.t"].total()) == (None, 9)


def test_a_later_batch_uses_the_columns_that_are_there(sink: Sink) -> None:
    sink.take(run(), [AMOUNT], lines({"amount": "much"}))
    found = sink.take(run(), None, lines({"amount": "more"}, {"amount": 3}))
    assert rows(found) == ["amount: 3", "amount_string: 'more'"]
    assert types(sink).keys() == {"id", "amount", "amount_string"}


def test_a_value_that_can_be_widened_is_not_moved(sink: Sink) -> None:
    found = check(sink, run(), [table(n=IntegerType())], lines({"n": 2**40}, {"n": 1}))
    assert (rows(found), types(sink)) == (["n: 1", "n: 1099511627776"], {"n": "long"})


def test_a_field_of_an_object_goes_beside_within_the_object(sink: Sink) -> None:
    inner = StructType(NestedField(7, "zip", LongType(), required=False), NestedField(8, "on", BooleanType(), False))
    records = lines({"o": {"zip": "D-1", "on": 2}}, {"o": {"zip": 5}}, {"o": "Rome"})
    found = check(sink, run(), [table(o=inner)], records)
    assert rows(found) == ["o: {on_long: 2, zip_string: 'D-1'}", "o: {zip: 5}", "o_string: 'Rome'"]


@pytest.mark.parametrize(
    ("kind", "value", "where"),
    [
        (ListType(7, LongType(), False), [1, "x"], "c.element"),
        (MapType(7, StringType(), 8, LongType(), False), {"k": "x"}, "c.value"),
        (ListType(7, StructType(NestedField(8, "n", LongType(), False)), False), [{"n": "x"}], "c.element.n"),
    ],
    ids=["element", "value", "in an element"],
)
def test_what_does_not_fit_inside_of_a_list_or_map_is_bad(sink: Sink, kind: Any, value: Any, where: str) -> None:
    found = check(sink, run(), [table(c=kind)], lines({"c": value}))
    assert f"field '{where}': 'x' is not a long" in found.reasons[0]


def test_a_required_column_gets_none_beside_it(sink: Sink) -> None:
    target = Target("db.t", Schema(NestedField(1, "n", LongType(), required=True)))
    found = check(sink, run(), [target], lines({"n": "x"}, {"n": 1}))
    assert (sorted(found.dead), types(sink)) == ([0], {"n": "long"})


def test_a_column_beside_it_of_another_type_takes_what_fits_it_and_nothing_else(sink: Sink) -> None:
    target = table(amount=LongType(), amount_string=LongType(), amount_double=StringType())
    found = check(sink, run(), [target], lines({"amount": "x"}, {"amount": 2.5}))
    assert rows(found) == ["amount_double: '2.5'"]
    assert "field 'amount_string': 'x' is not a long" in found.reasons[0]
    assert types(sink).keys() == {"amount", "amount_string", "amount_double"}


def test_a_record_that_has_a_value_for_the_column_beside_it_is_bad(sink: Sink) -> None:
    target = table(amount=LongType(), amount_string=StringType())
    records = lines({"amount": "x", "amount_string": "own"}, {"amount": "y", "amount_string": None}, {"amount": "z"})
    found = check(sink, run(), [target], records)
    assert (rows(found), list(found.dead)) == (["amount_string: 'y'", "amount_string: 'z'"], [0])
    assert "field 'amount': 'x' is not a long" in found.reasons[0]


def test_a_record_that_would_add_the_same_column_itself_is_bad(sink: Sink) -> None:
    found = check(sink, run(), [table(amount=LongType())], lines({"amount": "x", "amount_string": "own"}))
    assert list(found.dead) == [0]


def test_an_empty_object_or_array_has_no_type_and_is_bad(sink: Sink) -> None:
    found = check(sink, run(), [table(amount=LongType())], lines({"amount": {}}, {"amount": []}))
    assert list(found.dead) == [0, 1]


def test_the_default_value_stands_for_missing_fields_only(sink: Sink) -> None:
    column = NestedField(1, "n", LongType(), required=False, write_default=7)
    found = check(sink, run(), [Target("db.t", Schema(column))], lines({"n": "x"}, {}))
    assert rows(found) == ["n: 7", "n_string: 'x'"]


def test_names_may_differ_in_case(sink: Sink) -> None:
    evolution = Evolution(evolve=True, case_insensitive=True)
    records = lines({"amount": "x"}, {"AMOUNT": "y"}, {"Amount": "z", "AMOUNT_STRING": "own"})
    found = check(sink, run(evolution=evolution), [table(Amount=LongType())], records)
    assert (rows(found), list(found.dead)) == (["amount_string: 'x'", "amount_string: 'y'"], [2])
    assert types(sink).keys() == {"Amount", "Amount_string"}


def test_a_mapped_column_gets_one_beside_it_that_has_its_own_name(sink: Sink) -> None:
    mapped = NameMapping([MappedField(**{"field-id": 1, "names": ["sum"]})]).model_dump_json()
    target = replace(table(amount=LongType()), properties={"schema.name-mapping.default": mapped})
    found = check(sink, run(), [target], lines({"sum": "x"}, {"sum": 1}))
    assert rows(found) == ["amount: 1", "amount_string: 'x'"]


def test_other_new_fields_of_the_record_keep_the_types_that_a_transform_gives(sink: Sink) -> None:
    cast = TransformSpec("c", "org.apache.kafka.connect.transforms.Cast$Value", {"spec": "n:int32,amount:float32"})
    found = sink.take(run(transforms=(cast,)), [AMOUNT], lines({"amount": 1.5, "n": 3}, {"amount": 2, "n": 4}))
    assert rows(found) == ["amount: 2; n: 4", "amount_float: 1.5; n: 3"]
    assert (types(sink)["n"], types(sink)["amount_float"]) == ("int", "float")


@pytest.mark.parametrize("exactly", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("block_records", [1, 3, 8_000])
def test_the_result_does_not_depend_on_blocks_or_on_the_way(sink: Sink, exactly: bool, block_records: int) -> None:
    found = sink.take(run(exactly=exactly, block_records=block_records), [AMOUNT], lines(*CHANGED * 3))
    expected = sink.take(run(), [AMOUNT], lines(*CHANGED * 3))
    assert (found.rows, found.dead) == (expected.rows, {})


AVRO = '{"type": "record", "name": "r", "fields": [%s]}'


def typed(sink: Sink, fields: str, record: Mapping[str, Any], *tables: Target, how: OnTypeChange = "column") -> Found:
    text, out = AVRO % fields, BytesIO()
    schemaless_writer(out, parse_schema(json.loads(text)), record)
    found = sink.take(replace(run(how), converters=sink.use("avro-fixed", [text])), tables, [out.getvalue()] * 2)
    assert found.error is None
    return found


@pytest.mark.parametrize(
    ("kind", "value", "name", "column"),
    [
        ('"string"', "x", "amount_string", "string"),
        ('"double"', 0.5, "amount_double", "double"),
        ('"float"', 0.5, "amount_float", "float"),
        ('"bytes"', b"x", "amount_binary", "binary"),
        ('{"type": "fixed", "name": "f", "size": 2}', b"xy", "amount_fixed", "fixed[2]"),
        ('{"type": "long", "logicalType": "timestamp-micros"}', 5, "amount_timestamptz", "timestamptz"),
        ('{"type": "array", "items": "int"}', [1], "amount_list", "list<int>"),
        ('{"type": "map", "values": "int"}', {"k": 1}, "amount_map", "map<string, int>"),
        ('{"type": "record", "name": "i", "fields": [{"name": "a", "type": "int"}]}', {"a": 1}, "amount_struct", None),
    ],
)
def test_the_schema_of_a_record_says_the_type_of_the_column_beside_it(
    sink: Sink, kind: str, value: Any, name: str, column: str | None
) -> None:
    target = table(amount=BooleanType() if "timestamp" in kind else LongType())
    found = typed(sink, f'{{"name": "amount", "type": {kind}}}', {"amount": value}, target)
    assert found.dead == {} and types(sink)["amount"] in ("long", "boolean")
    assert column is None or types(sink)[name] == column
    assert all(row.startswith(f"{name}: ") for row in rows(found))


def test_values_with_a_schema_that_fit_stay(sink: Sink) -> None:
    found = typed(sink, '{"name": "amount", "type": "double"}', {"amount": 5.0}, table(amount=LongType()))
    assert (rows(found), types(sink)) == (["amount: 5", "amount: 5"], {"amount": "long"})


def test_a_record_with_a_schema_moves_fields_within_its_objects(sink: Sink) -> None:
    inner = StructType(NestedField(7, "zip", LongType(), False), NestedField(8, "city", StringType(), False))
    fields = (
        '{"name": "o", "type": {"type": "record", "name": "i", "fields":'
        ' [{"name": "zip", "type": "string"}, {"name": "city", "type": "string"}]}}'
    )
    found = typed(sink, fields, {"o": {"zip": "D-1", "city": "Rome"}}, table(o=inner))
    assert rows(found) == ["o: {city: 'Rome', zip_string: 'D-1'}"] * 2


def test_values_with_a_schema_become_text(sink: Sink) -> None:
    fields = '{"name": "amount", "type": {"type": "array", "items": "int"}}'
    found = typed(sink, fields, {"amount": [1, 2]}, table(amount=LongType()), how="text")
    assert rows(found) == ["amount_string: '[1,2]'"] * 2


def test_the_few_values_of_another_type_do_not_stop_the_creation_of_a_table(sink: Sink) -> None:
    records = lines(*({"v": i} for i in range(200)), {"v": "x"})
    found = sink.take(run(evolution=CREATE, tolerance=Tolerance("error")), [], records)
    assert (found.error, found.rows["db.t"].total(), types(sink)) == (None, 201, {"v": "long", "v_string": "string"})


def test_it_needs_no_evolution_where_the_columns_are_there_behind_a_transform(sink: Sink) -> None:
    target = table(amount=LongType(), amount_double=DoubleType())
    found = sink.take(run(evolution=Evolution(), transforms=NOTHING), [target], lines({"amount": 1.5}, {"amount": "x"}))
    assert (rows(found), list(found.dead)) == (["amount_double: 1.5"], [1])


def test_a_later_change_of_the_row_empties_the_column_beside_it(tmp_path: Path) -> None:
    settings = TableSettings((), ("id",), mutations=RowMutations("op"), on_type_change="column")
    sink = Changing(tmp_path, tables={NAME: settings}, evolution=CREATE)

    def put(key: Any, amount: Any, op: str = "u") -> Message:
        return None, {"id": key, "amount": amount, "op": op}

    sink.take(put(1, 5), put(2, 6), put(3, 7))
    sink.take(put(1, "much"), put(2, "more"), put(3, "most"), put(3, None, "d"))
    assert sink.rows("id", "amount", "amount_string") == [(1, None, "much"), (2, None, "more")]
    sink.take(put(1, 8), (None, {"id": 2.5, "amount": 1, "op": "u"}), put("x", "y"))
    assert sink.rows("id", "amount", "amount_string") == [(1, 8, None), (2, None, "more")]
    assert {"id_double", "id_string"}.isdisjoint(sink.table.schema().column_names)
