"""Kafka Connect's transforms change records as Connect does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Any

import pyarrow as pa
import pytest

from calving.errors import ConfigError
from calving.model.record_path import PredicateSpec, TransformSpec
from calving.records.arrays import arrow
from calving.records.values import Records, objects
from calving.transforms.chain import Chain
from calving.transforms.dates import JavaDateFormat
from calving.transforms.fields import Filter
from tests.transforms.applying import NOON, apply, chain, records, values

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


@pytest.mark.parametrize(
    ("millis", "reason"),
    [
        (None, "transform 'x': the record has no timestamp"),
        (
            1_700_000_000_000_000,
            "transform 'x': the record's timestamp 1700000000000000 is no number of milliseconds in the years 1970 to"
            " 9999",
        ),
    ],
)
def test_a_record_without_a_moment_has_no_topic_of_a_date(millis: int | None, reason: str) -> None:
    given = replace(records({"a": 1}, {"a": 2}), timestamp=pa.array([NOON, millis], pa.timestamp("ms", "UTC")))
    done = chain("TimestampRouter", {}).apply(given)
    assert [(bad.index, bad.reason) for bad in done.bad] == [(1, reason)]
    assert [part.topic.to_pylist() for part in done.records] == [["db.orders-20240102"]]


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


def test_a_transform_drops_only_records_that_it_says_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Filter, "drops", "")
    done = chain("Filter").apply(records({"a": 1}, {"a": 2}))
    assert [error.index for error in done.bad] == [0, 1]
    assert "a transform that drops records says so in 'drops'" in done.bad[0].reason


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
    with pytest.raises(ConfigError, match="external_field = 'topic,x': the transform itself writes 'topic'"):
        chain(kind, {"external_field": "topic,x"})


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
