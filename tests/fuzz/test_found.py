"""The fuzzer's findings, each as small as it gets."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from calving.model.offsets import TopicPartition
from calving.model.record_path import Evolution, RouteRule, Routing, TransformSpec
from tests.fuzz.chain import CONNECT
from tests.fuzz.encoding import schema_id
from tests.fuzz.sink import Run, Sink, Target

BOTH = Routing((RouteRule("db.t"), RouteRule("db.u")))


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    made = Sink(tmp_path / "warehouse")
    yield made
    made.close()


def table(name: str, **columns: IcebergType) -> Target:
    fields = [NestedField(i, n, kind, required=False) for i, (n, kind) in enumerate(columns.items(), 1)]
    return Target(name, Schema(*fields))


def test_a_record_reaches_both_tables_where_another_asked_one_for_a_column_and_was_refused_by_the_other(
    sink: Sink,
) -> None:
    names = MapType(
        10, StringType(), 11, StringType(), False
    )  # keys are not known beforehand: Arrow does not read them
    tables = [table("db.t", id=LongType(), m=names), table("db.u", id=LongType(), m=names, new=LongType())]
    records = [b'{"id":1,"m":{"a":"b"},"new":"no number"}', b'{"id":2,"m":{"a":"b"}}']
    found = sink.take(Run(BOTH, Evolution(evolve=True)), tables, records)
    assert found.error is None
    assert found.dead == {0: "conversion"}
    assert {name: sum(rows.values()) for name, rows in found.rows.items()} == {"db.t": 1, "db.u": 1}


def test_a_partition_by_a_required_field_of_a_struct_that_is_null_is_committed(sink: Sink) -> None:
    inner = StructType(NestedField(3, "a", LongType(), required=True))
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", inner, required=False))
    spec = PartitionSpec(PartitionField(3, 1000, BucketTransform(4), "part"))
    found = sink.take(Run(Routing((RouteRule("db.t"),))), [Target("db.t", schema, spec)], [b'{"id":1}'])
    sink.commit(found)
    assert sink.table("db.t").scan().to_arrow().to_pylist() == [{"id": 1, "s": None}]


def test_an_empty_list_reaches_the_column_that_a_record_of_another_task_asks_for(sink: Sink) -> None:
    records = [b'{"id":1,"new":[]}', b'{"id":2,"new":["x"]}']
    run = Run(Routing((RouteRule("db.t"),)), Evolution(evolve=True), slots=2)
    found = sink.take(run, [table("db.t", id=LongType())], records)
    assert sorted(found.rows["db.t"]) == [("id: 1", "new: []"), ("id: 2", "new: ['x']")]


def test_a_fraction_keeps_its_digits_if_a_record_of_another_task_widens_its_column(sink: Sink) -> None:
    records = [b'{"x":0.1}', b'{"x":1e300}']
    run = Run(Routing((RouteRule("db.t"),)), Evolution(evolve=True), slots=2)
    found = sink.take(run, [table("db.t", x=FloatType())], records)
    assert sorted(found.rows["db.t"]) == [("x: 0.1",), ("x: 1e+300",)]


def test_a_record_without_fields_is_a_row_if_a_record_of_another_task_brings_the_first_column(sink: Sink) -> None:
    run = Run(Routing((RouteRule("db.t"),)), Evolution(evolve=True), slots=2)
    found = sink.take(run, [table("db.t")], [b"{}", b'{"x":1}'])
    assert found.dead == {}
    assert sorted(found.rows["db.t"]) == [("x: 1",), ("x: None",)]


def test_a_key_of_bytes_that_becomes_a_field_gets_a_column_of_bytes(sink: Sink) -> None:
    steps = (
        TransformSpec("hoist", f"{CONNECT}HoistField$Key", {"field": "k"}),
        TransformSpec("u", "DebeziumTransform", {}),
    )
    event = b'{"op":"c","after":{"id":1},"ts_ms":5,"source":{"db":"shop","table":"t"}}'
    found = sink.take(Run(Routing((RouteRule("db.t"),)), Evolution(create=True), transforms=steps), [], [event])
    cdc = "{key: {k: b'key'}, offset: 100, op: 'I', source: 'shop.t', target: 'shop.t', ts: 5}"
    assert [*found.rows["db.t"]] == [(f"_cdc: {cdc}", "id: 1")]


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("kind", ["DebeziumTransform", "DmsTransform"])
def test_a_column_of_the_source_whose_name_differs_only_by_case_is_not_lost(sink: Sink, kind: str, fold: bool) -> None:
    events = {
        "DebeziumTransform": b'{"op":"c","after":{"_CDC":7},"ts_ms":5,"source":{"db":"shop","table":"t"}}',
        "DmsTransform": b'{"data":{"_CDC":7},"metadata":{"operation":"load","schema-name":"s","table-name":"t"}}',
    }
    run = Run(Routing((RouteRule("db.t"),)), Evolution(create=True, case_insensitive=fold))
    run = replace(run, transforms=(TransformSpec("unwrap", kind, {}),))
    found = sink.take(run, [], [events[kind]])
    assert found.dead == ({0: "TRANSFORMATION"} if fold else {})
    if fold:
        assert "a column '_CDC' of its own" in found.reasons[0]
    else:
        assert "_CDC: 7" in next(iter(found.rows["db.t"]))


@pytest.mark.parametrize("odd_first", [True, False])
def test_a_table_is_not_created_from_the_schema_of_values_that_are_all_bad(sink: Sink, odd_first: bool) -> None:
    """Without evolution such a table had no columns, and the good record's row was lost."""
    record, text = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}', '"string"'
    converters = sink.use("avro", [record, text])
    good, odd = (
        bytes(1) + schema_id(schema).to_bytes(4, "big") + datum for schema, datum in ((record, b"\2"), (text, b"\2x"))
    )
    run = Run(Routing((RouteRule("db.t"),)), Evolution(create=True), converters)
    found = sink.take(run, [], [odd, good] if odd_first else [good, odd])
    assert found.error is None
    assert found.dead == {int(not odd_first): "conversion"}
    assert {name: sum(rows.values()) for name, rows in found.rows.items()} == {"db.t": 1}


def test_a_map_with_a_schema_fills_the_fields_of_a_struct_and_asks_for_no_others(sink: Sink) -> None:
    inner = StructType(NestedField(10, "a", StringType(), required=False))
    parse = TransformSpec("json", "JsonToMapTransform", {})
    run = Run(Routing((RouteRule("db.t"),)), Evolution(evolve=True), sink.use("string", ()), (parse,))
    found = sink.take(run, [table("db.t", s=inner)], [b'{"s":{"a":1,"b":2}}', b'{"s":{"b":2}}'])
    assert found.dead == {}
    assert sorted(found.rows["db.t"]) == [("s: {a: '1'}",), ("s: {a: None}",)]


def test_a_table_created_from_events_of_debezium_has_the_columns_of_the_transform(sink: Sink) -> None:
    unwrap = TransformSpec("unwrap", "DebeziumTransform", {})
    run = Run(Routing((RouteRule("db.t"),)), Evolution(create=True), transforms=(unwrap,))
    event = b'{"op":"u","before":null,"after":{"id":1},"ts_ms":5,"source":{"db":"shop","table":"t"}}'
    found = sink.take(run, [], [event, event.replace(b'"u"', b'"t"').replace(b'{"id":1}', b"null")])
    assert dict(found.filtered) == {"truncate event": 1}
    cdc = "{offset: 100, op: 'U', source: 'shop.t', target: 'shop.t', ts: 5}"
    assert [*found.rows["db.t"]] == [(f"_cdc: {cdc}", "id: 1")]


def test_sql_rounds_the_text_of_a_fraction_and_refuses_other_text(sink: Sink) -> None:
    cast = TransformSpec("sql", "Sql", {"query": "SELECT CAST(t AS INTEGER) AS i FROM records"})
    records = [b'{"t":"1.5"}', b'{"t":"-0.5"}', b'{"t":"+5"}', b'{"t":"x"}', b'{"t":"2147483648"}']
    found = sink.take(Run(Routing((RouteRule("db.t"),)), transforms=(cast,)), [table("db.t", i=LongType())], records)
    assert found.dead == {3: "TRANSFORMATION", 4: "TRANSFORMATION"}
    assert sorted(found.rows["db.t"]) == [("i: -1",), ("i: 2",), ("i: 5",)]


def test_an_own_transform_leaves_a_null_alone_whatever_the_values_beside_it_are(sink: Sink) -> None:
    steps = (
        TransformSpec("extract", "ExtractField", {"field": "a"}),
        TransformSpec("seen", "tests.fuzz.own:Seen", {"field": "seen"}),
    )
    records = [b'{"a":"x"}', b'{"a":null}', b'{"a":5}']
    found = sink.take(Run(Routing((RouteRule("db.t"),)), transforms=steps), [table("db.t", seen=StringType())], records)
    assert (found.dead, dict(found.filtered)) == ({0: "TRANSFORMATION", 2: "TRANSFORMATION"}, {"tombstone": 1})


def test_sql_takes_the_fields_and_the_length_of_what_a_record_lacks_for_null(sink: Sink) -> None:
    query = TransformSpec("sql", "Sql", {"query": "SELECT id, s.a AS a, len(l) AS n FROM records"})
    columns = table("db.t", id=LongType(), a=LongType(), n=LongType())
    records = [b'{"id":1}', b'{"id":2,"s":{"a":5},"l":[7]}']
    found = sink.take(Run(Routing((RouteRule("db.t"),)), transforms=(query,)), [columns], records)
    assert found.dead == {}
    assert sorted(found.rows["db.t"]) == [("a: 5", "id: 2", "n: 1"), ("a: None", "id: 1", "n: None")]


def test_a_key_of_a_map_that_comes_twice_has_the_same_fate_beside_any_record(sink: Sink) -> None:
    fields = '{"name":"key","type":"double"},{"name":"value","type":"long"}'
    entry = f'{{"type":"record","name":"io.confluent.connect.avro.MapEntry","fields":[{fields}]}}'
    text = f'{{"type":"record","name":"r","fields":[{{"name":"m","type":{{"type":"array","items":{entry}}}}}]}}'
    head, nan = bytes(1) + schema_id(text).to_bytes(4, "big"), struct.pack("<d", math.nan)
    twice = head + b"\x04" + nan + b"\2" + nan + b"\4" + b"\0"
    large = head + b"\x02" + bytes(8) + b"\xfe" * 9 + b"\1" + b"\0"
    target = table("db.t", m=MapType(10, DoubleType(), 11, IntegerType(), False))
    run = Run(Routing((RouteRule("db.t"),)), converters=sink.use("avro", [text]))
    both = [sink.take(run, [target], raws) for raws in ([twice], [twice, large])]
    assert [[*found.rows["db.t"]] for found in both] == [[("m: <nan: 2>",)]] * 2


def test_a_tombstone_of_a_topic_that_names_no_table_is_left_out(sink: Sink) -> None:
    routing = Routing(topic_pattern="{topic}", unrouted="dead-letter", missing_table="dead-letter")
    run = Run(routing, partitions=(TopicPartition("plain", 0), TopicPartition("db.t", 0)))
    found = sink.take(run, [table("db.t", id=LongType())], [None, b'{"id":1}', b'{"id":2}', None])
    assert found.error is None
    assert (found.dead, dict(found.filtered)) == ({1: "ROUTING"}, {"tombstone": 2})
    assert [*found.rows["db.t"]] == [("id: 2",)]
