"""Transforms change records as Kafka Connect's and the Iceberg sink's do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from time import process_time
from typing import Any

import pyarrow as pa
import pytest

from calving.errors import ConfigError, UnavailableError
from calving.model.record_path import Limits, PredicateSpec, TransformSpec
from calving.records.arrays import arrow
from calving.records.values import HEADERS, Records, objects
from calving.transforms.chain import Chain
from calving.transforms.dates import JavaDateFormat
from calving.transforms.fields import Filter
from tests.converters.decoding import columns

NOON = 1704196800000  # 2024-01-02T12:00:00Z


def records(
    *values: Any, keys: list[Any] | None = None, topic: str = "db.orders", headers: Any = None, typed: bool = False
) -> Records:
    count = len(values)
    value = values[0] if count == 1 and isinstance(values[0], pa.Array) else columns(list(values))
    count = len(value)
    return Records(
        pa.array(range(count), pa.int32()),
        pa.repeat(pa.scalar(topic), count),
        3,
        pa.array(range(100, 100 + count), pa.int64()),
        pa.array([NOON] * count, pa.timestamp("ms", "UTC")),
        pa.nulls(count) if keys is None else columns(keys),
        value,
        pa.array(headers or [[]] * count, HEADERS),
        typed,
    )


def chain(kind: str, options: Mapping[str, str] | None = None, **more: Any) -> Chain:
    return Chain([TransformSpec("x", kind, options or {}, **more)])


def apply(kind: str, options: Mapping[str, str], found: Records) -> Records:
    """All of them, in one part, none refused."""
    done = chain(kind, options).apply(found)
    assert not done.bad
    (part,) = done.records
    return part


def values(kind: str, options: Mapping[str, str], *given: Any) -> list[Any]:
    return objects(apply(kind, options, records(*given)).value)


CONNECT = "org.apache.kafka.connect.transforms."


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        ("a:int32", {"a": "7"}, {"a": 7}),
        ("a:int64", {"a": 1.9}, {"a": 1}),
        ("a:string", {"a": 1.0}, {"a": "1.0"}),
        ("a:string", {"a": True}, {"a": "true"}),
        ("a:boolean", {"a": "TRUE"}, {"a": True}),
        ("a:boolean", {"a": 2}, {"a": True}),
        ("a:float64", {"a": "2.5"}, {"a": 2.5}),
        ("a:int8", {"a": None, "b": 1}, {"a": None, "b": 1}),
        ("missing:int8", {"a": 1}, {"a": 1}),
    ],
)
def test_cast(spec: str, given: Any, expected: Any) -> None:
    assert values(CONNECT + "Cast$Value", {"spec": spec}, given) == [expected]


@pytest.mark.parametrize(("spec", "given"), [("a:int8", {"a": 300}), ("a:int32", {"a": "x"})])
def test_a_cast_that_does_not_fit_is_bad_and_never_wraps_around(spec: str, given: Any) -> None:
    done = chain("Cast", {"spec": spec}).apply(records(given, given))
    assert [b.index for b in done.bad] == [0, 1]


def test_a_whole_value_is_cast() -> None:
    assert values("Cast", {"spec": "string"}, 5, 6) == ["5", "6"]


def test_drop_makes_a_value_null() -> None:
    assert values("io.confluent.connect.transforms.Drop$Value", {}, {"a": 1}) == [None]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"field": "a"}, {"b": 1}),
        ({"field": "a.b", "field.syntax.version": "V2"}, 1),
        ({"field": "missing"}, None),
    ],
)
def test_extract_field(options: dict[str, str], expected: Any) -> None:
    assert values("ExtractField", options, {"a": {"b": 1}}) == [expected]


def test_flatten_joins_names_and_leaves_arrays_alone() -> None:
    given = {"a": {"b": {"c": 1}, "d": [1]}, "e": "x"}
    assert values("Flatten$Value", {"delimiter": "_"}, given) == [{"a_b_c": 1, "a_d": [1], "e": "x"}]


def test_flatten_of_a_null_struct_gives_nulls() -> None:
    assert values("Flatten", {}, {"a": {"b": 1}}, {"a": None}) == [{"a.b": 1}, {"a.b": None}]


def test_hoist_field_wraps_the_whole() -> None:
    assert values("HoistField", {"field": "line"}, "x") == [{"line": "x"}]


def test_insert_field_adds_where_a_record_came_from() -> None:
    options = {
        "topic.field": "t!",
        "partition.field": "p",
        "offset.field": "o?",
        "timestamp.field": "at",
        "static.field": "s",
        "static.value": "v",
    }
    assert values("InsertField$Value", options, {"a": 1}) == [
        {"a": 1, "t": "db.orders", "p": 3, "o": 100, "at": NOON, "s": "v"}
    ]


@pytest.mark.parametrize(
    ("given", "replacement", "expected"),
    [
        ("x", None, ""),
        (5, None, 0),
        (1.5, None, 0.0),
        (True, None, False),
        ([1], None, []),
        ("x", "***", "***"),
        (5, "9", 9),
        (None, "9", None),
    ],
)
def test_mask_field(given: Any, replacement: str | None, expected: Any) -> None:
    options = {"fields": "a"} | ({"replacement": replacement} if replacement else {})
    assert values("MaskField", options, {"a": given, "b": 1}) == [{"a": expected, "b": 1}]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"exclude": "a"}, {"b": 2, "c": 3}),
        ({"blacklist": "a,b"}, {"c": 3}),
        ({"include": "a,c"}, {"a": 1, "c": 3}),
        ({"renames": "a:x,b:y"}, {"x": 1, "y": 2, "c": 3}),
        ({"include": "a", "renames": "a:x"}, {"x": 1}),
    ],
)
def test_replace_field(options: dict[str, str], expected: Any) -> None:
    assert values("ReplaceField", options, {"a": 1, "b": 2, "c": 3}) == [expected]


def test_set_schema_metadata_changes_nothing() -> None:
    assert values("SetSchemaMetadata$Value", {"schema.name": "x"}, {"a": 1}) == [{"a": 1}]


def test_value_to_key_and_extract_field_from_the_key() -> None:
    specs = [
        TransformSpec("a", "ValueToKey", {"fields": "id"}),
        TransformSpec("b", "ExtractField$Key", {"field": "id"}),
    ]
    (part,) = Chain(specs).apply(records({"id": 7, "x": 1})).records
    assert objects(part.key) == [7]


@pytest.mark.parametrize(
    ("options", "given", "expected"),
    [
        ({"target.type": "Timestamp"}, NOON, datetime(2024, 1, 2, 12, tzinfo=UTC)),
        ({"target.type": "Date"}, NOON, date(2024, 1, 2)),
        ({"target.type": "Time"}, NOON + 1, time(12, 0, 0, 1000)),
        ({"target.type": "unix"}, NOON, NOON),
        ({"target.type": "Timestamp", "unix.precision": "seconds"}, NOON // 1000, datetime(2024, 1, 2, 12, tzinfo=UTC)),
        ({"target.type": "string", "format": "yyyy-MM-dd'T'HH:mm:ss.SSSX"}, NOON, "2024-01-02T12:00:00.000Z"),
        ({"target.type": "unix", "format": "dd/MM/yyyy HH:mm:ss Z"}, "02/01/2024 13:00:00 +0100", NOON),
        ({"target.type": "unix", "format": "dd MMM yyyy hh:mm a"}, "02 Jan 2024 12:00 PM", NOON),
    ],
)
def test_timestamp_converter(options: dict[str, str], given: Any, expected: Any) -> None:
    assert values("TimestampConverter$Value", {"field": "a", **options}, {"a": given}) == [{"a": expected}]
    assert values("TimestampConverter", options, given) == [expected]


def test_a_date_pattern_that_is_not_supported_is_named() -> None:
    with pytest.raises(ConfigError, match="'ww' is not supported"):
        JavaDateFormat("yyyy-ww", NOON)


def test_regex_router_renames_the_topic_but_no_offset() -> None:
    found = apply("RegexRouter", {"regex": r"db\.(.*)", "replacement": "lake_$1"}, records({"a": 1}))
    assert (found.topic.to_pylist(), found.offset.to_pylist()) == (["lake_orders"], [100])


def test_a_topic_that_does_not_match_in_full_keeps_its_name() -> None:
    found = apply("RegexRouter", {"regex": "orders", "replacement": "x"}, records({"a": 1}))
    assert found.topic.to_pylist() == ["db.orders"]


def test_timestamp_router() -> None:
    options = {"topic.format": "${topic}_${timestamp}", "timestamp.format": "yyyyMM"}
    assert apply("TimestampRouter", options, records({"a": 1})).topic.to_pylist() == ["db.orders_202401"]


def test_headers_are_inserted_taken_from_fields_and_dropped() -> None:
    specs = [
        TransformSpec("a", "InsertHeader", {"header": "h", "value.literal": "v"}),
        TransformSpec("b", "HeaderFrom$Value", {"fields": "id", "headers": "hid", "operation": "move"}),
        TransformSpec("c", "DropHeaders", {"headers": "h"}),
    ]
    (part,) = Chain(specs).apply(records({"id": 7, "x": 1})).records
    assert objects(part.headers) == [[{"key": "hid", "value": b"7"}]]
    assert objects(part.value) == [{"x": 1}]


def predicate(kind: str, negate: bool = False, **options: str) -> dict[str, Any]:
    return {"predicate": PredicateSpec(kind, options), "negate": negate}


def kept(found: Records, more: dict[str, Any]) -> list[int]:
    done = chain("Filter", {}, **more).apply(found)
    return sorted(i for part in done.records for i in part.index.to_pylist())


def test_predicates_choose_and_negate() -> None:
    found = records({"a": 1}, {"a": 2}, headers=[[{"key": "h", "value": b""}], []])
    assert kept(found, predicate("HasHeaderKey", name="h")) == [1]
    assert kept(found, predicate("HasHeaderKey", True, name="h")) == [0]
    assert kept(found, predicate("TopicNameMatches", pattern=r"db\..*")) == []
    assert kept(found, predicate("TopicNameMatches", pattern="orders")) == [0, 1]


def test_tombstones_are_told_by_their_predicate() -> None:
    more = predicate("org.apache.kafka.connect.transforms.predicates.RecordIsTombstone")
    assert kept(records({"a": 1}, None), more) == [0]


def test_what_a_filter_drops_is_counted_by_its_name() -> None:
    assert chain("Filter").apply(records({"a": 1}, {"a": 2})).dropped == {"transform x": 2}


def test_copy_value() -> None:
    assert values("CopyValue", {"source.field": "a", "target.field": "b"}, {"a": 1}) == [{"a": 1, "b": 1}]
    assert values("CopyValue", {"source.field": "q", "target.field": "b"}, {"a": 1}) == [{"a": 1, "b": None}]


SOURCE = {"db": "shop", "schema": "public", "table": "orders"}


def debezium(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {"op": op, "ts_ms": NOON, "source": SOURCE, "before": before, "after": after}


def test_debezium_events_become_rows() -> None:
    found = records(
        debezium("c", None, {"id": 1, "n": "x"}),
        debezium("u", {"id": 1, "n": "x"}, {"id": 1, "n": "y"}),
        debezium("d", {"id": 1, "n": "y"}, None),
        keys=[{"id": 1}] * 3,
    )
    done = chain("DebeziumTransform", {"cdc.target.pattern": "lake.{db}_{table}"}).apply(found)
    rows = {i: row for part in done.records for i, row in zip(part.index.to_pylist(), objects(part.value), strict=True)}
    assert {i: (r["id"], r["n"], r["_cdc"]["op"]) for i, r in rows.items()} == {
        0: (1, "x", "I"),
        1: (1, "y", "U"),
        2: (1, "y", "D"),
    }
    assert rows[0]["_cdc"] == {
        "op": "I",
        "ts": NOON,
        "offset": 100,
        "source": "public.orders",
        "target": "lake.public_orders",
        "key": {"id": 1},
    }


def test_the_time_of_a_debezium_event_with_a_schema_is_a_timestamp() -> None:
    found = records(debezium("c", None, {"id": 1}), typed=True)
    row = objects(apply("DebeziumTransform", {}, found).value)[0]
    assert row["_cdc"]["ts"] == datetime(2024, 1, 2, 12, tzinfo=UTC)


def test_a_debezium_event_without_a_row_is_dropped_and_counted() -> None:
    done = chain("DebeziumTransform").apply(records(debezium("c", None, {"id": 1}), debezium("m", None, None)))
    assert (done.dropped, len(done.records[0])) == ({"transform x": 1}, 1)


def test_dms_events_become_rows() -> None:
    def event(operation: str) -> dict[str, Any]:
        about = {"operation": operation, "timestamp": "2024", "schema-name": "s", "table-name": "t"}
        return {"data": {"id": 1}, "metadata": about}

    rows = values("DmsTransform", {}, event("load"), event("update"), event("delete"))
    assert [r["_cdc"]["op"] for r in rows] == ["I", "U", "D"]
    assert rows[0] == {"id": 1, "_cdc": {"op": "I", "ts": "2024", "source": "s.t"}}
    about = {"record-type": "control", "operation": "drop-table"}
    control = {"data": None, "metadata": about}
    assert chain("DmsTransform").apply(records(control)).dropped == {"transform x": 1}


def test_a_transform_drops_only_records_that_it_says_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Filter, "drops", "")
    done = chain("Filter").apply(records({"a": 1}, {"a": 2}))
    assert [error.index for error in done.bad] == [0, 1]
    assert "a transform that drops records says so in 'drops'" in done.bad[0].reason


def test_json_text_becomes_a_map_under_the_root() -> None:
    text = '{"a":1,"b":{"c":[1]},"d":"x"}'
    assert values("JsonToMapTransform", {"json.root": "true"}, text) == [
        {"payload": [("a", "1"), ("b", '{"c":[1]}'), ("d", "x")]}
    ]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("x", "x"),
        (True, True),
        (7, 7),
        (2**40, 2**40),
        (2**70, Decimal(2**70)),
        (1.5, 1.5),
        ({"b": 1}, [("b", "1")]),
        ([1, 2], [1, 2]),
        ([{"a": 1}], [[("a", "1")]]),
        ([1, "x", None], ["1", "x", "null"]),
        ([[1], [2]], [[1], [2]]),
        ([[1], ["x"]], [["1"], ["x"]]),
    ],
)
def test_json_text_becomes_fields(item: Any, expected: Any) -> None:
    found = values("JsonToMapTransform", {}, json.dumps({"a": item, "k": 1}))[0]["a"]
    assert found == expected


@pytest.mark.parametrize("item", [None, {}, [], [[], []]])
def test_json_that_says_nothing_is_no_field(item: Any) -> None:
    assert values("JsonToMapTransform", {}, json.dumps({"a": item, "k": 1})) == [{"k": 1}]


@pytest.mark.parametrize("text", ["[1]", "{", "5"])
def test_text_that_is_no_json_object_is_bad(text: str) -> None:
    assert [b.index for b in chain("JsonToMapTransform").apply(records('{"a":1}', text)).bad] == [1]


def test_kafka_metadata_flat_and_nested_and_external() -> None:
    kind = "org.apache.iceberg.connect.transforms.KafkaMetadataTransform"
    flat = values(kind, {"field_name": "_m", "external_field": "env,prod"}, {"a": 1})
    assert flat == [
        {"a": 1, "_m_topic": "db.orders", "_m_partition": 3, "_m_offset": 100, "_m_timestamp": NOON, "_m_env": "prod"}
    ]
    nested = values(kind, {"nested": "true"}, {"a": 1})
    about = {"topic": "db.orders", "partition": 3, "offset": 100, "timestamp": NOON}
    assert nested == [{"a": 1, "_kafka_metadata": about}]
    with pytest.raises(ConfigError, match="external_field is key,value"):
        chain(kind, {"external_field": "x"})


def mongo(**event: Any) -> Records:
    return records({"op": "u", **event}, keys=[{"id": '{"$oid": "65"}'}])


def test_a_mongo_insert_becomes_a_struct() -> None:
    document = {
        "_id": {"$oid": "65"},
        "n": {"$numberLong": "5"},
        "d": {"$date": 1704196800000},
        "list": [{"$numberInt": "1"}, {"$numberInt": "2"}],
        "b": {"$binary": {"base64": "aGk=", "subType": "00"}},
        "min": {"$minKey": 1},
        "symbol": {"$symbol": "s"},
        "pointer": {"$dbPointer": {"$ref": "c", "$id": {"$oid": "66"}}},
        "undefined": {"$undefined": True},
    }
    found = objects(apply("MongoDebeziumTransform", {}, mongo(after=json.dumps(document))).value)[0]
    assert found["after"] == {
        "_id": "65",
        "n": 5,
        "d": datetime(2024, 1, 2, 12, tzinfo=UTC),
        "list": [1, 2],
        "b": b"hi",
        "min": "MinKey",
        "symbol": "s",
        "pointer": {"ref": "c", "id": "66"},
        "undefined": None,
    }
    assert "before" not in found


def test_a_mongo_update_without_after_is_made_of_its_changes() -> None:
    changes = {"updatedFields": '{"a": 2}', "removedFields": ["b"]}
    found = objects(apply("MongoDebeziumTransform", {}, mongo(before='{"a":1,"b":1}', updateDescription=changes)).value)
    assert found[0]["after"] == {"a": 2, "_id": "65"}


def test_an_array_that_a_mongo_update_cuts_off_has_only_its_first_elements() -> None:
    cut: dict[str, Any] = {"updatedFields": '{"n": 2}', "truncatedArrays": [{"field": "l", "size": 1}]}
    before = '{"l": ["a", "b", "c"], "n": 1}'
    found = objects(apply("MongoDebeziumTransform", {}, mongo(before=before, updateDescription=cut)).value)
    assert found[0]["after"] == {"l": ["a"], "n": 2, "_id": "65"}


@pytest.mark.parametrize("cut", [{"field": "l"}, {"field": "l", "size": -1}, {"field": "n", "size": 1}, {"size": 1}])
def test_a_mongo_update_that_cuts_off_what_is_no_array_is_bad(cut: dict[str, Any]) -> None:
    changes = {"updatedFields": None, "truncatedArrays": [cut]}
    done = chain("MongoDebeziumTransform").apply(mongo(before='{"l": [1, 2], "n": 1}', updateDescription=changes))
    assert "truncatedArrays" in done.bad[0].reason


def test_mongo_arrays_of_several_kinds_are_bad_unless_taken_as_documents() -> None:
    event = mongo(after='{"_id": 1, "l": [1, "x"]}')
    assert "array_handling_mode" in chain("MongoDebeziumTransform").apply(event).bad[0].reason
    found = apply("MongoDebeziumTransform", {"array_handling_mode": "document"}, event)
    assert objects(found.value)[0]["after"]["l"] == {"_0": 1, "_1": "x"}


def test_what_is_no_mongo_event_is_bad() -> None:
    assert "not a MongoDB event" in chain("MongoDebeziumTransform").apply(records({"a": 1})).bad[0].reason


def test_sql_computes_filters_and_keeps_each_record_in_its_place() -> None:
    query = "SELECT a * 2 AS b, upper(s) AS s FROM records WHERE a > 1"
    done = chain("Sql", {"query": query}).apply(records({"a": 1, "s": "x"}, {"a": 2, "s": "y"}, {"a": 3, "s": "z"}))
    (part,) = done.records
    assert objects(part.value) == [{"b": 4, "s": "Y"}, {"b": 6, "s": "Z"}]
    assert part.index.to_pylist() == [1, 2]
    assert done.dropped == {"transform x": 1}


def test_sql_takes_a_star() -> None:
    assert values("Sql", {"query": "SELECT *, 1 AS one FROM records"}, {"a": 5}) == [{"a": 5, "one": 1}]


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM records",
        "SELECT 1; SELECT 2",
        "SELECT DISTINCT a FROM records",
        "SELECT a FROM records ORDER BY a LIMIT 1",
        "SELECT sum(a) AS a FROM records",
        "SELECT a, row_number() OVER () AS n FROM records",
        "SELECT a FROM records WHERE a > (SELECT 1)",
        "SELECT unnest(a) AS a FROM records",
        "SELECT r.a FROM records r, records s",
        "SELECT * FROM 'secret.csv'",
        "SELECT * FROM read_csv('secret.csv')",
    ],
)
def test_sql_that_looks_at_more_than_one_record_is_refused(query: str) -> None:
    with pytest.raises(ConfigError, match=r"transforms\.x: transform Sql"):
        chain("Sql", {"query": query})


def test_sql_of_an_empty_object() -> None:
    assert values("Sql", {"query": "SELECT 1 AS n, a FROM records"}, {}) == [{"n": 1, "a": None}]


def test_sql_reads_objects_inside_of_objects_from_a_part_of_a_block() -> None:
    given = [{"id": i, "more": {"o": {"p": {"a": i, "s": str(i)}}}} for i in range(6)]
    part = apply("Sql", {"query": "SELECT * FROM records"}, records(*given).slice(3, 5))
    assert objects(part.value) == given[3:5]


def test_sql_refuses_objects_without_fields_by_the_field_that_has_them() -> None:
    done = chain("Sql", {"query": "SELECT CAST(a AS INTEGER) AS a, * FROM records"}).apply(
        records({"a": "1", "b": {"c": {}}}, {"a": "x", "b": {"c": {}}})
    )
    assert [b.reason for b in done.bad] == ["transform 'x': field 'b': SQL knows no objects without fields"] * 2


def test_sql_takes_a_missing_field_for_null_but_knows_its_own_names() -> None:
    query = "SELECT upper(a) AS a, b AS c FROM records WHERE c IS NULL"
    assert values("Sql", {"query": query}, {"x": 1}) == [{"a": None, "c": None}]


def test_sql_gives_the_text_of_an_enum() -> None:
    assert values("Sql", {"query": "SELECT s::ENUM('x', 'y') AS e FROM records"}, {"s": "x"}) == [{"e": "x"}]


def test_sql_hands_on_what_it_does_not_look_at() -> None:
    given = {"n": 2**70, "l": [1, "x"], "o": {"a": [None]}}
    assert values("Sql", {"query": "SELECT * FROM records"}, given) == [given]


def test_a_record_that_sql_cannot_compute_is_told_from_the_others() -> None:
    query = "SELECT CAST(s AS INTEGER) AS n FROM records"
    done = chain("Sql", {"query": query}).apply(records({"s": "1"}, {"s": "x"}, {"s": "3"}))
    assert [b.index for b in done.bad] == [1]


@pytest.mark.parametrize(
    ("query", "hostile"),
    [
        ("SELECT repeat(s, n) AS s FROM records", {"s": "ab", "n": 10**9}),
        ("SELECT replace(s, 'y', repeat(s, n)) AS s FROM records", {"s": "y" * 50_000, "n": 1}),
        ("SELECT list_resize([s], n)[1] AS s FROM records", {"s": "ab", "n": 10**9}),
        ("SELECT s FROM records WHERE length(repeat(s, n)) > 0", {"s": "ab", "n": 10**9}),
    ],
    ids=["counted", "not counted", "a list", "a condition"],
)
def test_a_record_for_which_sql_needs_too_much_memory_is_bad_alone(query: str, hostile: dict[str, object]) -> None:
    spec = TransformSpec("x", "Sql", {"query": query})
    done = Chain([spec], limits=Limits(sql_bytes=64 * 2**20)).apply(
        records({"s": "a", "n": 1}, hostile, {"s": "c", "n": 1})
    )
    assert [b.index for b in done.bad] == [1] and "iceberg.limits.sql-bytes" in done.bad[0].reason
    assert [row for part in done.records for row in objects(part.value)] == [{"s": "a"}, {"s": "c"}]


def test_a_record_for_which_sql_needs_too_much_time_is_bad_alone() -> None:
    slow = [f"levenshtein(left(s, {length}), left(t, 10000))" for length in range(9_993, 10_001)]
    spec = TransformSpec("x", "Sql", {"query": f"SELECT {' + '.join(slow)} AS n FROM records"})
    rows = records({"s": "a", "t": "a"}, {"s": "ab" * 5_000, "t": "ba" * 5_000}, {"s": "c", "t": "c"})
    done = Chain([spec], limits=Limits(sql_ms=600)).apply(rows)
    assert [b.index for b in done.bad] == [1] and "iceberg.limits.sql-ms = 600" in done.bad[0].reason
    assert [row for part in done.records for row in objects(part.value)] == [{"n": 0}, {"n": 0}]


@pytest.mark.parametrize("call", ["levenshtein(s, 'x')", "damerau_levenshtein(left(s, n), 'x')", "editdist3(s, s)"])
def test_sql_compares_no_texts_of_any_length(call: str) -> None:
    with pytest.raises(ConfigError, match=r"of a text of any length: write"):
        chain("Sql", {"query": f"SELECT {call} AS a FROM records"})


def test_a_text_with_brackets_that_is_no_deep_json_is_good() -> None:
    log = "\x1b[31mERR\x1b[0m line\n" * 600
    rows = records({"id": "1", "log": log, "s": "[" + '{"x":[]},' * 1_001 + "1]"}, {"id": "2", "log": "[" * 2_000})
    done = chain("Sql", {"query": "SELECT id::BIGINT AS id, log, json_valid(log) AS j, s->>1 AS s FROM records"})
    assert not done.apply(rows).bad


@pytest.mark.parametrize(
    ("call", "hostile", "count", "reason"),
    [
        ("json_structure(trim(s, '\"'))", '"' + '{"a":' * 100_000 + "1" + "}" * 100_000, 100, "(SIGSEGV)"),
        ("repeat(s, 50000) ILIKE '%[%b%{'", "[" * 40, 20, "iceberg.limits.sql-ms = 700"),
        ("regexp_extract_all(repeat(s, 20000), '[[](.*b)?')", "[" * 40, 20, "iceberg.limits.sql-ms = 700"),
    ],
    ids=["ends", "pattern", "regex"],
)
def test_a_record_that_keeps_or_ends_duckdb_is_bad_alone(call: str, hostile: str, count: int, reason: str) -> None:
    values = [{"s": "{}"}] * count
    values[7] = values[12] = {"s": hostile}
    spec = TransformSpec("x", "Sql", {"query": f"SELECT {call} AS a, s FROM records"})
    done = Chain([spec], limits=Limits(sql_ms=700)).apply(records(*values))
    assert sorted(b.index for b in done.bad) == [7, 12] and all(reason in b.reason for b in done.bad)
    assert sum(len(part.value) for part in done.records) == count - 2


def test_nobody_else_s_end_of_duckdb_makes_a_record_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calving.transforms.query_process._SERVE", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(UnavailableError, match=r"the process of DuckDB does not start"):
        Chain([TransformSpec("x", "Sql", {"query": "SELECT a FROM records"})], limits=Limits(sql_ms=701)).apply(
            records({"a": 1})
        )


def test_sql_descends_into_parts_of_json_and_objects_of_them() -> None:
    query = "SELECT json_merge_patch(s->'a', json_object('b', s->>'c'))->>'b' AS b FROM records"
    done = chain("Sql", {"query": query}).apply(records({"s": '{"a":{},"c":"x"}'}))
    assert objects(done.records[0].value) == [{"b": "x"}]


@pytest.mark.parametrize("before", ["", '{"x":"]]]]"} ', '{"x":"' + "]" * 2_000 + '","a":'])
def test_closing_brackets_in_strings_hide_no_levels(before: str) -> None:
    deep = before + '{"]":' * 100_000 + "1" + "}" * (100_000 + before.count("{") - before.count("}"))
    done = chain("Sql", {"query": "SELECT TRY(json_structure(s)) AS a FROM records"}).apply(records({"s": deep}))
    assert "1000 levels" in done.bad[0].reason


def test_texts_with_many_quotes_and_brackets_are_looked_at_in_time() -> None:
    rows = records({"s": '"\\' * 300_000 + "[" * 2_000}, {"s": '\\"' * 300_000 + "{" * 2_000}, {"s": '["[' * 200_000})
    began = process_time()
    chain("Sql", {"query": "SELECT json_valid(s) AS a FROM records"}).apply(rows)
    assert process_time() - began < 10


def test_json_of_many_levels_in_bytes_makes_its_record_bad() -> None:
    value = pa.array([{"s": b"[" * 100_000 + b"]" * 100_000}, {"s": b"[]"}], pa.struct([("s", pa.binary())]))
    done = chain("Sql", {"query": "SELECT json_structure(decode(s)) AS a FROM records"}).apply(
        records(value, typed=True)
    )
    assert [b.index for b in done.bad] == [0]


def escaped(text: str) -> object:
    """JSON whose string is the text."""
    return {"s": '"' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"'}


@pytest.mark.parametrize(
    "call",
    [
        "json_structure(s)",
        "json_merge_patch(s, s)",
        "json_contains(s, '1')",
        "json_pretty(s)",
        "s::JSON::VARIANT::VARCHAR",
    ],
)
@pytest.mark.parametrize("inside", [lambda s: {"s": s}, lambda s: {"s": [s], "t": 1}, escaped])
def test_json_of_many_levels_within_a_text_makes_its_record_bad_and_ends_no_process(
    call: str, inside: Callable[[str], object]
) -> None:
    deep = '{"]":' * 100_000 + "1" + "}" * 100_000
    done = chain("Sql", {"query": f"SELECT {call} AS a FROM records"}).apply(
        records(inside("{}"), inside(deep), inside("[" * 900 + "]" * 900), inside('{"x":[]}' * 1_001))
    )
    refused = [b for b in done.bad if b.index == 1]
    assert "JSON of more than 1000 levels within a text" in refused[0].reason
    assert {b.index for b in done.bad} <= {1, 3}  # the last one is no JSON


@pytest.mark.parametrize(
    "call",
    [
        "sleep_ms(1)",
        "write_log('x')",
        "getenv('HOME')",
        "GetEnv(a)",
        "glob('/*')",
        "vector_type(a)",
    ],
)
def test_sql_has_no_functions_with_effects(call: str) -> None:
    with pytest.raises(ConfigError):
        chain("Sql", {"query": f"SELECT {call} AS a FROM records"})


def double(found: Records, options: Mapping[str, str]) -> Records:
    by = int(options["by"])
    rows = [{**row, "a": row["a"] * by} for row in objects(found.value)]
    return found.with_value(arrow(rows, found.value.type))


def test_a_function_of_the_users_own_is_a_transform() -> None:
    assert values("tests.transforms.test_transforms:double", {"by": "3"}, {"a": 2}) == [{"a": 6}]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("Nope", {}, "there is no transform 'Nope'"),
        ("no.module:name", {}, "cannot be loaded"),
        ("Cast", {"spec": "a:int9"}, "there is no type 'int9'"),
        ("Cast", {}, "the option 'spec' is missing"),
        ("MaskField", {"feilds": "a"}, "unknown option 'feilds'"),
        ("RegexRouter", {"regex": "(", "replacement": "x"}, "not a regular expression"),
        ("TimestampConverter", {"target.type": "x"}, "target.type is one of"),
    ],
)
def test_a_wrong_transform_is_named(kind: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        chain(kind, options)
    assert str(caught.value).startswith("transforms.x")


def test_nulls_pass_through_transforms_of_fields() -> None:
    assert values("ReplaceField", {"exclude": "a"}, None) == [None]
    done = chain("ReplaceField", {"exclude": "a"}).apply(records({"a": 1, "b": 2}, None))
    assert [objects(part.value) for part in done.records] == [[{"b": 2}], [None]]
