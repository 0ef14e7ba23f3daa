"""The results for a record are the same alone and among others, with and without transforms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from calving.iceberg.rules import TableRules, TableSettings
from calving.model.offsets import TopicPartition
from calving.model.record_path import Evolution, RouteRule, Routing, Tolerance, TransformSpec
from tests.fuzz import sink as fuzzed
from tests.fuzz.sink import Found, Run, Sink, Target

ONE, BOTH = Routing((RouteRule("db.t"),)), Routing((RouteRule("db.t"), RouteRule("db.u")))
EVOLVE, CREATE = Evolution(evolve=True), Evolution(create=True, evolve=True)
NOTHING = (TransformSpec("t", "SetSchemaMetadata", {"schema.name": "x"}),)


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    made = Sink(tmp_path_factory.mktemp("sink") / "warehouse")
    yield made
    made.close()


def table(name: str = "db.t", /, **columns: IcebergType) -> Target:
    return Target(name, Schema(*(NestedField(i, n, k, required=False) for i, (n, k) in enumerate(columns.items(), 1))))


def lines(*records: object) -> list[bytes]:
    return [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]


def alone(sink: Sink, run: Run, tables: Sequence[Target] | None, records: Sequence[bytes]) -> list[Found]:
    return [sink.take(run, tables, [record]) for record in records]


def check(sink: Sink, run: Run, tables: Sequence[Target], records: Sequence[bytes]) -> Found:
    """The batch, which must be what its records are alone, behind a transform that does nothing, and without Rust."""
    together = sink.take(run, tables, records)
    assert together.error is None
    singles = alone(sink, run, tables, records)
    for name in together.rows:
        expected = sum(
            (single.rows.get(name, type(together.rows[name])()) for single in singles), type(together.rows[name])()
        )
        assert together.rows[name] == expected
    assert together.dead == {i: single.dead[0] for i, single in enumerate(singles) if single.dead}
    others = [replace(run, native=False)] + ([] if run.transforms else [replace(run, transforms=NOTHING)])
    for other in others:
        again = sink.take(other, tables, records)
        assert (again.rows, again.dead, again.filtered) == (together.rows, together.dead, together.filtered)
    return together


def rows(found: Found, name: str = "db.t") -> list[str]:
    return sorted("; ".join(row) for row in found.rows[name].elements())


def test_objects_in_a_text_column_keep_all_their_fields_and_numbers(sink: Sink) -> None:
    records = lines(*[{"payload": {"a": i}} for i in range(40)], {"payload": {"a": 7, "z": "x"}})
    records += lines(
        {"payload": {"a": 2**53 + 1}}, {"payload": {"a": 1.5, "b": "x"}}, {"payload": [{"a": 1}, {"b": 2}]}
    )
    found = rows(check(sink, Run(ONE), [table(payload=StringType())], records))
    for text in ('{"a":7,"z":"x"}', '{"a":9007199254740993}', '{"a":1.5,"b":"x"}', '[{"a":1},{"b":2}]'):
        assert any(text in row for row in found)


def test_the_order_of_the_fields_of_an_object_in_a_text_column_is_its_own(sink: Sink) -> None:
    records = lines({"payload": {"a": 1, "b": 2}}, {"payload": {"b": 1, "a": 2}})
    found = rows(check(sink, Run(ONE), [table(payload=StringType())], records))
    assert '{"a":1,"b":2}' in found[0] and '{"b":1,"a":2}' in found[1]


@pytest.mark.parametrize("ordered", [False, True])
def test_the_last_of_several_fields_of_a_column_counts_whatever_order_other_records_have(
    sink: Sink, ordered: bool
) -> None:
    records = lines(*({"a": "first", "A": f"last {i}"} for i in range(40)), {"A": "first", "a": "last"})
    mapped = NameMapping([MappedField(**{"field-id": 1, "names": ["a", "A"]})]).model_dump_json()
    target = replace(table(a=StringType()), properties={"schema.name-mapping.default": mapped})
    chain = NOTHING if ordered else (TransformSpec("t", "RegexRouter", {"regex": "x", "replacement": "y"}),)
    for run, given in (
        (Run(ONE, Evolution(case_insensitive=True), transforms=chain), table(a=StringType())),
        (Run(ONE, transforms=chain), target),
    ):
        assert all("last" in row for row in rows(check(sink, run, [given], records)))


def test_two_tables_get_a_field_each_as_its_own_type(sink: Sink) -> None:
    tables = [table("db.t", v=LongType()), table("db.u", v=StringType())]
    found = check(sink, Run(BOTH), tables, lines({"v": 1}, {"v": 2}, {"v": "3"}))
    assert len(rows(found, "db.t")) == len(rows(found, "db.u")) == 3
    assert not any("None" in row for name in ("db.t", "db.u") for row in rows(found, name))


def test_two_tables_get_a_list_each_whatever_its_element_ids(sink: Sink) -> None:
    tables = [  # the ids of a new table count its columns
        table("db.t", tags=ListType(7, StringType(), False)),
        table("db.u", id=LongType(), tags=ListType(7, StringType(), False)),
    ]
    found = check(sink, Run(BOTH), tables, lines({"id": 1, "tags": ["a"]}, {"id": 2, "tags": ["b"]}))
    assert rows(found, "db.t") == ["tags: ['a']", "tags: ['b']"]
    assert rows(found, "db.u") == ["id: 1; tags: ['a']", "id: 2; tags: ['b']"]


def test_a_map_of_one_table_has_only_the_keys_of_its_record_though_another_lacks_the_column(sink: Sink) -> None:
    maps = ListType(7, MapType(8, StringType(), 9, StringType(), False), False)
    tables = [table("db.t", id=LongType()), table("db.u", id=LongType(), d=maps)]
    records = lines(*({"id": i, "d": [{f"k{i % 3}": None}]} for i in range(50)))
    found = check(sink, Run(BOTH, EVOLVE), tables, records)
    assert rows(found, "db.u")[0] == "d: [<'k0': None>]; id: 0"


def test_integers_beside_fractions_stay_integers_behind_a_transform(sink: Sink) -> None:
    records = lines({"id": 2**53 + 1, "s": 1}, {"id": 1.0, "s": 2.5}, {"id": 3, "s": 1.0})
    found = rows(check(sink, Run(ONE), [table(id=LongType(), s=StringType())], records))
    assert any("9007199254740993" in row for row in found)
    assert sorted(row.split("s: ")[1] for row in found) == ["'1'", "'1.0'", "'2.5'"]


@pytest.mark.parametrize("shape", ['{"s":%s,"t":%s}', '{"s":%s,"o":{"x":%s}}'])
def test_a_number_among_fractions_is_what_its_digits_say_behind_a_transform(sink: Sink, shape: str) -> None:
    tokens = ("1", "-0", "-0.0", "1.0", "5.0000000000000000001", "123456789.0", "1e2", "12.50", "99999999999999999.0")
    odd = [shape % (token, other) for token in tokens for other in ("0.5", "3", "3.0")]
    odd += [(shape % (7, 0.5)).replace('"s"', r'"\u0073"'), shape.replace(":", " : ") % (7, 7)]
    texts = [shape % (0.5, 0.25)] * 90
    for i, text in enumerate(odd):
        texts.insert(3 * i, text)
    columns = dict.fromkeys(("s", "t", "o"), StringType())
    check(sink, Run(ONE, transforms=NOTHING), [table(**columns)], [text.encode() for text in texts])


HOIST = (TransformSpec("t", "HoistField", {"field": "a"}),)


@pytest.mark.parametrize(
    ("evolution", "columns"),
    [
        (Evolution(), {"a": StringType()}),
        (Evolution(), {"a": MapType(2, StringType(), 3, LongType(), False)}),
        (Evolution(), {"a": StructType(NestedField(2, "x", LongType(), required=False))}),
        (EVOLVE, {"id": LongType()}),
    ],
)
def test_what_a_hoisted_record_becomes_depends_on_the_order_of_its_own_fields_only(
    sink: Sink, evolution: Evolution, columns: dict[str, IcebergType]
) -> None:
    records = lines(*[{"x": i, "y": i} for i in range(40)], *[{"y": i, "x": i} for i in range(40, 43)])
    check(sink, Run(ONE, evolution, transforms=HOIST), [table(**columns)], records)


def test_the_order_of_fields_inside_is_its_own_behind_transforms_that_take_objects_apart(sink: Sink) -> None:
    extract = (TransformSpec("e", "ExtractField", {"field": "a"}),)
    one, other = b'{"a":{"n":{"x":1,"y":2}}}', b'{"a":{"n":{"y":1,"x":2}}}'
    found = check(sink, Run(ONE, transforms=extract), [table(n=StringType())], [one] * 50 + [other] * 50)
    assert found.rows["db.t"] == {("""n: '{"x":1,"y":2}'""",): 50, ("""n: '{"y":1,"x":2}'""",): 50}


def test_a_cast_to_text_writes_each_number_as_it_came(sink: Sink) -> None:
    cast = (TransformSpec("c", "Cast", {"spec": "n:string"}),)
    found = sink.take(Run(ONE, transforms=cast), [table(n=StringType())], lines({"n": 1}, {"n": 2.5}))
    assert rows(found) == ["n: '1'", "n: '2.5'"]


def test_decimals_keep_all_their_digits_behind_a_transform(sink: Sink) -> None:
    records = [b'{"d":0.12345678901234567890}', b'{"d":1}', b'{"d":1.5}', b'{"d":"2.00000000000000000001"}']
    found = rows(check(sink, Run(ONE), [table(d=DecimalType(38, 20))], records))
    assert any("0.12345678901234567890" in row for row in found)


def test_a_map_has_only_the_keys_of_its_own_record(sink: Sink) -> None:
    kind = MapType(5, StringType(), 6, LongType(), False)
    found = rows(check(sink, Run(ONE), [table(m=kind)], lines({"m": {"a": 1}}, {"m": {"b": 2}}, {"m": {"c": None}})))
    assert not any("a" in row.split("m: ")[1] and "b" in row.split("m: ")[1] for row in found)


def test_one_value_that_is_no_object_is_one_dead_letter_behind_a_transform(sink: Sink) -> None:
    records = lines(*[{"s": i if i % 2 else str(i)} for i in range(60)], 5)
    found = check(sink, Run(ONE), [table(s=StringType())], records)
    assert list(found.dead) == [60]


def test_fields_that_differ_by_case_reach_one_column(sink: Sink) -> None:
    run = Run(ONE, Evolution(case_insensitive=True))
    found = rows(check(sink, run, [table(id=LongType())], lines({"ID": 5}, {"id": 6}, {"Id": 2**53 + 1})))
    assert [row for row in found if "None" in row] == []


def test_names_that_differ_by_case_make_one_column(sink: Sink) -> None:
    run = Run(ONE, Evolution(evolve=True, case_insensitive=True))
    found = sink.take(run, [table(id=LongType())], lines({"id": 1, "Name": 1}, {"id": 2, "name": 2**53 + 1}))
    assert found.error is None
    assert sorted(name.lower() for name in sink.table("db.t").schema().column_names) == ["id", "name"]
    assert any(str(2**53 + 1) in row for row in rows(found))


def test_both_names_of_a_mapped_column_bring_values(sink: Sink) -> None:
    mapping = NameMapping([MappedField(**{"field-id": 1, "names": ["id", "old_id"]})]).model_dump_json()
    target = replace(table(id=LongType()), properties={"schema.name-mapping.default": mapping})
    found = rows(check(sink, Run(ONE), [target], lines({"id": 5}, {"old_id": 6})))
    assert [row for row in found if "None" in row] == []


def test_a_name_that_the_mapping_of_its_column_does_not_have_is_bad_where_it_asks_for_a_column(sink: Sink) -> None:
    mapping = NameMapping([MappedField(**{"field-id": 1, "names": ["old_id"]})]).model_dump_json()
    target = replace(table(id=LongType()), properties={"schema.name-mapping.default": mapping})
    found = sink.take(Run(ONE, EVOLVE), [target], lines({"old_id": 1}, {"id": 2}))
    assert found.error is None and sorted(found.dead) == [1]
    assert rows(found) == ["id: 1"]


def test_a_column_that_changes_is_found_by_the_names_that_it_had(sink: Sink) -> None:
    mapping = NameMapping([MappedField(**{"field-id": 1, "names": ["old_id"]})]).model_dump_json()
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    target = Target("db.t", schema, properties={"schema.name-mapping.default": mapping})
    found = sink.take(Run(ONE, EVOLVE), [target], lines({"old_id": 1}, {"id": 2, "old_id": 2}, {"id": 3}, {"new": 4}))
    assert sorted(found.dead) == [1, 2]
    assert rows(found) == ["id: 1; new: None", "id: None; new: 4"]
    again = sink.take(Run(ONE, EVOLVE), None, lines({"new": 5, "old_id": 5}, {"id": 6}))
    assert sorted(again.dead) == [1]
    assert rows(again) == ["id: 5; new: 5"]


def test_an_array_is_no_map_even_an_empty_one(sink: Sink) -> None:
    target = table(id=LongType(), m=MapType(9, StringType(), 10, LongType(), False))
    assert sorted(check(sink, Run(ONE), [target], lines({"id": 1, "m": {}}, {"id": 2, "m": []})).dead) == [1]


def test_transforms_see_where_a_replayed_record_came_from(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = {"topic": b"orders", "partition": b"3", "offset": b"77777"}
    monkeypatch.setattr(fuzzed, "HEADERS", [(f"__connect.errors.{name}", value) for name, value in origin.items()])
    fields = {"topic.field": "t", "partition.field": "p", "offset.field": "o"}
    run = Run(
        ONE,
        transforms=(TransformSpec("x", "InsertField", fields),),
        tolerance=Tolerance("topic", replayed=True),
        partitions=(TopicPartition("dead", 0),),
    )
    found = sink.take(run, [table(t=StringType(), p=IntegerType(), o=LongType())], lines({"o": 0}))
    assert rows(found) == ["o: 77777; p: 3; t: 'orders'"]


def test_a_first_batch_with_values_that_are_no_objects_creates_the_table_of_the_others(sink: Sink) -> None:
    found = sink.take(Run(ONE, Evolution(create=True)), [], lines({"id": 1}, 5, [1]))
    assert found.error is None and sorted(found.dead) == [1, 2]
    assert rows(found) == ["id: 1"]


def test_records_without_any_field_are_dead_letters_where_the_table_cannot_be_created_of_them(sink: Sink) -> None:
    found = sink.take(Run(ONE, CREATE), [], lines({}, {"a": None}))
    assert found.error is None and sorted(found.dead) == [0, 1]


def test_a_record_without_any_field_is_a_row_once_there_is_a_table(sink: Sink) -> None:
    found = sink.take(Run(ONE, CREATE), [], lines({}, {"id": 1}))
    assert rows(found) == ["id: 1", "id: None"]


def test_a_number_too_large_for_its_decimal_is_bad_and_never_another_number(sink: Sink) -> None:
    target = table(a=DecimalType(38, 24), b=DecimalType(38, 27))
    records = [b'{"a":9223372036854775807}', b'{"b":92233720368547.76562}', b'{"a":1.5,"b":1.5}']
    assert sorted(check(sink, Run(ONE), [target], records).dead) == [0, 1]


def test_the_route_of_a_record_is_its_own(sink: Sink) -> None:
    routing = Routing((RouteRule("db.t", "1"), RouteRule("db.u", r"1\.5|x")), field="meta.type", unrouted="dead-letter")
    records = lines(*[{"id": i} for i in range(40)], {"id": 40, "meta": {"type": "x"}}, {"id": 41, "meta": {"type": 1}})
    records += lines({"id": 42, "meta": {"type": 1.5}}, {"id": 43, "meta": 7})
    found = check(sink, Run(routing), [table("db.t", id=LongType()), table("db.u", id=LongType())], records)
    assert rows(found, "db.t") == ["id: 41"] and rows(found, "db.u") == ["id: 40", "id: 42"]


@pytest.mark.parametrize("route", ["", "x", 5, "a..b", "db.", ".t", " .t"])
def test_a_route_field_that_names_no_table_is_a_dead_letter(sink: Sink, route: object) -> None:
    routing = Routing(field="to", dynamic=True)
    found = sink.take(Run(routing, CREATE), None, lines({"to": route, "a": 1}, {"to": "db.t", "a": 1}))
    assert found.error is None and found.dead == {0: "ROUTING"}


def test_a_record_that_names_a_new_table_brings_all_its_columns_though_others_name_tables_that_exist(
    sink: Sink,
) -> None:
    routing = Routing(field="to", dynamic=True)
    known = lines({"to": "db.t", "id": 1, "name": "a"}, {"to": "db.u", "id": 2, "n": 3})
    found = sink.take(
        Run(routing, Evolution(create=True)),
        [table("db.t", id=LongType()), table("db.u", n=LongType())],
        [*known, *lines({"to": "db.new", "id": 4, "name": "b"})],
    )
    assert (rows(found, "db.t"), rows(found, "db.u")) == (["id: 1"], ["n: 3"])
    assert rows(found, "db.new") == ["id: 4; name: 'b'; to: 'db.new'"]


def test_an_array_of_nulls_is_an_array_of_nulls(sink: Sink) -> None:
    target = table(id=LongType(), l=ListType(9, LongType(), False))
    found = check(sink, Run(ONE, EVOLVE), [target], lines({"id": 1, "l": [None, None]}, {"id": 2, "new": [None, None]}))
    assert len(rows(found)) == 2


def test_an_empty_array_needs_no_column_though_others_ask_for_one_that_the_table_cannot_get(sink: Sink) -> None:
    found = check(sink, Run(ONE, EVOLVE), [table(id=LongType())], lines({"id": 1, "": []}, {"id": 2, "": [7]}))
    assert sorted(found.dead) == [1]


@pytest.mark.parametrize("levels", [40, 5_000])
@pytest.mark.parametrize("transforms", [(), NOTHING])
@pytest.mark.parametrize("evolution", [Evolution(), EVOLVE])
def test_a_value_that_is_nested_too_deeply_is_bad(
    sink: Sink, levels: int, transforms: tuple[TransformSpec, ...], evolution: Evolution
) -> None:
    deep = b'{"id":1,"d":' + b'{"a":' * levels + b"1" + b"}" * (levels + 1)
    run = Run(ONE, evolution, transforms=transforms)
    found = sink.take(run, [table(id=LongType(), s=StringType())], [deep, b'{"id":2}'])
    assert found.error is None and list(found.dead) == [0] and len(rows(found)) == 1


def test_a_value_as_deep_as_is_allowed_makes_a_table_that_can_be_loaded(sink: Sink) -> None:
    deep = b'{"id":1,"d":' + b'{"a":' * 31 + b"1" + b"}" * 32
    found = sink.take(Run(ONE, EVOLVE), [table(id=LongType())], [deep])
    assert found.error is None and not found.dead
    assert sink.table("db.t").schema().find_field("d").field_id > 0


def test_a_new_column_with_the_name_of_a_nested_one_is_refused_with_its_record(sink: Sink) -> None:
    target = table(a=StructType(NestedField(5, "b", LongType(), required=False)))
    found = sink.take(Run(ONE, EVOLVE), [target], lines({"a.b": 2}, {"a": {"b": 1}}))
    assert found.error is None and list(found.dead) == [0]


@pytest.mark.parametrize(
    ("transform", "options", "one", "other"),
    [
        ("Flatten$Value", {}, {"a": {"id": 1}}, {"a.id": 2}),
        ("ReplaceField$Value", {"renames": "x:id"}, {"x": 1}, {"id": 2}),
    ],
)
def test_a_field_that_a_record_lacks_is_no_null_behind_a_transform(
    sink: Sink, transform: str, options: dict[str, str], one: object, other: object
) -> None:
    run = Run(ONE, transforms=(TransformSpec("t", transform, options),))
    records = lines(*[one, other] * 100)
    there = [
        Target("db.t", Schema(*(NestedField(i, n, LongType(), required=False) for i, n in ((1, "id"), (2, "a.id")))))
    ]
    found, exactly = sink.take(run, there, records), sink.take(replace(run, exactly=True), there, records)
    assert (found.error, found.dead, found.rows) == (None, exactly.dead, exactly.rows)


CLASHES = [
    ({"a.b": 2}, {"a": {"b": 1}}),
    ({"s": {"a.b": 2}}, {"s": {"a": {"b": 1}}}),
    ({"a.b": {"c": 2}}, {"a": {"b.c": 1}}),
    ({"l": [{"a.b": 2}]}, {"l": [{"a": {"b": 1}}]}),
    ({"l.element": 2}, {"l": [{"x": 1}]}),
]


@pytest.mark.parametrize("evolution", [EVOLVE, CREATE], ids=["added", "created"])
@pytest.mark.parametrize(("dotted", "nested"), CLASHES)
def test_of_columns_with_one_full_name_the_nested_one_is_there_in_any_order(
    sink: Sink, dotted: object, nested: object, evolution: Evolution
) -> None:
    for given in (lines(dotted, nested), lines(nested, dotted)):
        found = sink.take(Run(ONE, evolution), [] if evolution.create else [table(id=LongType())], given)
        assert found.error is None and [given[i] for i in found.dead] == lines(dotted)


def test_names_that_clash_in_two_records_create_a_table_that_both_fit_where_it_is_not_evolved(sink: Sink) -> None:
    found = sink.take(Run(ONE, Evolution(create=True)), [], lines({"a.b": 2}, {"a": {"b": 1}}))
    assert (found.error, found.dead, rows(found)) == (None, {}, ["a: None", "a: {b: 1}"])


def test_of_two_new_columns_with_one_name_the_same_one_is_added_in_any_order(sink: Sink) -> None:
    records = lines({"a.b": 2}, {"a": {"b": 1}})
    for given in (records, records[::-1]):
        found = sink.take(Run(ONE, EVOLVE), [table(id=LongType())], given)
        assert found.error is None and len(found.dead) == 1
        assert "a.b" in found.reasons[next(iter(found.dead))]


def test_a_record_without_its_identifier_is_bad_and_the_column_stays_required(sink: Sink) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), identifier_field_ids=[1])
    found = sink.take(Run(ONE, EVOLVE), [Target("db.t", schema)], lines({"id": 1}, {"x": 2}))
    assert found.error is None and list(found.dead) == [1]
    assert sink.table("db.t").schema().find_field("id").required


def test_a_record_without_the_id_column_creates_no_table(sink: Sink) -> None:
    run = Run(ONE, CREATE, rules=TableRules(defaults=TableSettings((), ("id",))))
    found = sink.take(run, [], lines({"id": 1, "v": 1}, {"v": 2}))
    assert found.error is None and list(found.dead) == [1]


@pytest.mark.parametrize("slots", [1, 2])
def test_a_record_from_which_no_table_can_be_created_fits_the_one_that_others_create(sink: Sink, slots: int) -> None:
    records = lines({"id": 1, "v": {"": 1}}, {"id": 2})
    found = sink.take(Run(ONE, Evolution(create=True), slots=slots), [], records)
    assert found.dead == {} and rows(found) == ["id: 1", "id: 2"]


def test_a_record_from_which_no_table_can_be_created_is_bad_where_no_other_creates_it(sink: Sink) -> None:
    found = sink.take(Run(ONE, CREATE), [], lines({"id": 1, "v": {"": 1}}, {}))
    assert list(found.dead) == [0, 1] and found.rows == {}
    assert "a column needs a name" in found.reasons[0] and "no field with a value" in found.reasons[1]


def test_a_table_is_created_from_a_record_behind_many_from_which_it_cannot_be(sink: Sink) -> None:
    run = Run(ONE, CREATE)
    found = sink.take(run, [], lines({}, {}, {}, {"id": 1}, {"id": 2}, {"id": 3}))
    assert found.error is None and found.dead == {}
    assert rows(found) == ["id: 1", "id: 2", "id: 3", "id: None", "id: None", "id: None"]


def test_a_record_that_creates_one_table_and_is_refused_by_another_asks_that_one_for_nothing(sink: Sink) -> None:
    rules = TableRules(tables={"db.t": TableSettings(id_columns=("id",))})
    there = table("db.u", x=LongType())
    found = sink.take(Run(BOTH, CREATE, rules=rules), [there], lines({"x": 1, "new": 1}, {"x": 1}))
    assert list(found.dead) == [0, 1] and found.tables["db.u"].paths(False) == {"x"}


def test_a_record_without_any_field_is_the_first_bad_one_where_a_table_with_an_id_column_is_missing(sink: Sink) -> None:
    rules = TableRules(defaults=TableSettings(id_columns=("id",)))
    run = Run(ONE, CREATE, rules=rules, tolerance=Tolerance("error"))
    found = sink.take(run, [], lines({"id": 1}, {}, {"id": 1.5}))
    assert found.error_kind == "bad record" and "offset 101: table db.t: field 'id': " in str(found.error)


def test_a_fraction_in_the_id_column_is_bad_and_the_others_create_the_table(sink: Sink) -> None:
    run = Run(ONE, CREATE, rules=TableRules(defaults=TableSettings((), ("id",))))
    found = sink.take(run, [], lines({"id": 1, "v": 1}, {"id": 1.5, "v": 2}, {"id": {"a": 1}}))
    assert found.error is None and sorted(found.dead) == [1, 2]


def test_an_id_column_takes_all_that_a_record_has_under_its_name_in_any_case(sink: Sink) -> None:
    evolution = Evolution(create=True, case_insensitive=True)
    run = Run(ONE, evolution, rules=TableRules(defaults=TableSettings(id_columns=("id",))))
    assert rows(sink.take(run, [], lines({"id": 1, "ID": {"a": 1}}))) == ["id: '{\"a\":1}'"]
    assert list(sink.take(run, [], lines({"id": 1.5, "ID": 2})).dead) == [0]


def test_values_that_are_wider_than_those_of_a_map_do_not_make_them_optional(sink: Sink) -> None:
    kind = MapType(5, StringType(), 6, IntegerType(), True)
    found = sink.take(Run(ONE, EVOLVE), [table(m=kind)], lines({"m": {"a": 2**40}}))
    assert found.error is None
    value = sink.table("db.t").schema().find_field("m.value")
    assert value.required and value.field_type == LongType()


def test_a_bad_record_adds_no_column(sink: Sink) -> None:
    sink.take(Run(ONE, EVOLVE), [table(id=LongType())], lines({"id": "x", "new": 1}, {"id": 1}))
    assert sink.table("db.t").schema().column_names == ["id"]


def test_a_record_that_one_table_refuses_makes_no_other_table_grow(sink: Sink) -> None:
    tables = [table("db.t", id=LongType()), table("db.u", id=StringType())]
    sink.take(Run(BOTH, EVOLVE), tables, lines({"id": "x", "new": 1}, {"id": 1}))
    assert sink.table("db.u").schema().column_names == ["id"]


def test_keys_that_become_one_key_of_a_map_are_bad(sink: Sink) -> None:
    kind = MapType(5, LongType(), 6, LongType(), False)
    found = check(sink, Run(ONE), [table(m=kind)], lines({"m": {"1": 1, "01": 2}}, {"m": {"1": 1, "2": 2}}, {"m": []}))
    assert sorted(found.dead) == [0, 2]


def test_a_decimal_has_one_zero_as_the_key_of_a_map(sink: Sink) -> None:
    kind = MapType(5, DecimalType(3, 1), 6, LongType(), False)
    records = lines({"m": {"0": 1, "-0": 2}}, {"m": {"0.0": 1, "-0.01": 2}}, {"m": {"-0": 1}})
    assert sorted(check(sink, Run(ONE), [table(m=kind)], records).dead) == [0, 1]


@pytest.mark.parametrize("text", ['"1_000"', '"\u0661"', '"1e400"'])
def test_text_that_is_no_number_elsewhere_is_none_here(sink: Sink, text: str) -> None:
    records = [f'{{"d":{text}}}'.encode(), b'{"d":1.5}']
    assert list(check(sink, Run(ONE), [table(d=DoubleType())], records).dead) == [0]


def test_a_record_that_alone_needs_too_many_columns_is_bad(sink: Sink) -> None:
    many = {"new": {f"c{i}": i for i in range(600)}}
    found = sink.take(Run(ONE, EVOLVE), [table(id=LongType())], lines({"id": 1}, {"id": 2, **many}))
    assert list(found.dead) == [1] and "iceberg.limits.new-columns = 500" in found.reasons[1]


def test_records_that_together_need_many_columns_get_them_all(sink: Sink) -> None:
    """`iceberg.limits.new-columns`, 500, bounds those of one record."""
    found = sink.take(Run(ONE, EVOLVE), [table(id=LongType())], lines(*[{f"c{i}": i} for i in range(600)]))
    assert (found.error, found.dead) == (None, {})
    assert sum(found.rows["db.t"].values()) == 600


@pytest.mark.parametrize(
    "name",
    ["db.t/data", "db.t/../u", "db.t\\data", "db.t?x", "db.t#x", "db.t%2fdata", "db." + "x" * 256, "d." * 500 + "t"],
)
def test_a_record_cannot_name_a_place_within_another_table(sink: Sink, name: str) -> None:
    found = sink.take(Run(Routing((), "to", dynamic=True), CREATE), [], lines({"to": name}, {"to": "db.other"}))
    assert list(found.dead) == [0]
    assert found.reasons[0].startswith(f"its route field names no table: '{name[:100]}' is not a name")


@pytest.mark.parametrize("name", ["db.t.x", "db.t.x.y"])
def test_a_record_cannot_make_a_table_whose_name_leads_through_another(sink: Sink, name: str) -> None:
    run, records = Run(Routing((), "to", dynamic=True), CREATE), lines({"to": name}, {"to": "db.t"})
    found = sink.take(run, [table("db.t", to=StringType())], records)
    assert found.reasons == {
        0: f"table {name}: its name leads through the table db.t, and a table cannot be within another"
    }
    assert rows(found) == ["to: 'db.t'"]
    assert not sink.catalog.table_exists(name)


@pytest.mark.parametrize("letters", ["db.dead", "db.Dead"])
@pytest.mark.parametrize(
    ("routing", "by"),
    [(Routing(field="to", dynamic=True), "route field"), (Routing(topic_pattern="db.{topic}"), "topic")],
)
def test_a_record_that_names_the_table_of_the_dead_letters_is_bad(
    sink: Sink, routing: Routing, by: str, letters: str
) -> None:
    chain = (TransformSpec("r", "RegexRouter", {"regex": ".*", "replacement": "dead"}),) if by == "topic" else ()
    run = Run(routing, CREATE, transforms=chain, tolerance=Tolerance("table", letters, at_most=10**9))
    found = sink.take(run, [], lines({"to": "db.DEAD"}))
    (letter,) = found.rows[letters]
    assert f"its {by} names the table of the dead letters, {letters} (errors.deadletterqueue.table)" in str(letter)


@pytest.mark.parametrize("name", ["db.{x}", "db.x}", "db.a..b", "db.", ".t", "t", "db.\x07", "db. t"])
@pytest.mark.parametrize("by_topic", [False, True])
def test_a_name_from_a_record_that_no_table_can_have_makes_the_record_bad(
    sink: Sink, name: str, by_topic: bool
) -> None:
    chain: tuple[TransformSpec, ...] = ()
    if by_topic:
        chain = (TransformSpec("r", "TimestampRouter", {"topic.format": name, "timestamp.format": "yyyy"}),)
        routing, by = Routing(topic_pattern="{topic}"), "topic"
        if "{" in name or "}" in name:
            chain = (TransformSpec("r", "RegexRouter", {"regex": ".*", "replacement": name}),)
    else:
        routing, by = Routing((), "to", dynamic=True), "route field"
    found = sink.take(Run(routing, CREATE, transforms=chain), [], lines({"to": name}))
    assert (
        found.reasons.get(0) == f"its {by} names no table: '{name}' is not a name with its namespace, such as db.events"
    )
