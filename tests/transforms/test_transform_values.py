"""Single values through single transforms: what Kafka Connect makes of them."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from calving.errors import ConfigError
from calving.model.record_path import TransformSpec
from calving.records.values import HEADERS, Records, objects
from calving.transforms.chain import Chain


def one(
    kind: str, options: dict[str, str], value: pa.Array, *, typed: bool = False, key: pa.Array | None = None
) -> Records | str:
    """The record after the transform, or why it is bad."""
    given = Records(
        pa.array([0], pa.int32()),
        pa.array(["db.orders"]),
        0,
        pa.array([7], pa.int64()),
        pa.array([1_704_196_800_123], pa.timestamp("ms", "UTC")),
        pa.nulls(1) if key is None else key,
        value,
        pa.nulls(1, HEADERS),
        typed,
    )
    done = Chain([TransformSpec("x", kind, options)]).apply(given)
    return done.bad[0].reason if done.bad else done.records[0]


def value_of(found: Records | str) -> Any:
    assert isinstance(found, Records), found
    return objects(found.value)[0]


def test_the_timestamp_of_a_schemaless_value_is_a_number_and_fits_a_long_column() -> None:
    found = value_of(one("InsertField", {"timestamp.field": "t"}, pa.array([{"a": 1}])))
    assert found == {"a": 1, "t": 1_704_196_800_123}


def test_a_schemaless_object_is_masked_by_an_empty_one() -> None:
    assert value_of(one("MaskField", {"fields": "a"}, pa.array([{"a": {"b": 1}}]))) == {"a": {}}


def test_a_field_that_a_schema_has_already_is_not_replaced() -> None:
    found = one("InsertField", {"offset.field": "a"}, pa.array([{"a": 1}]), typed=True)
    assert found == "transform 'x': the schema has a field 'a' already"


def test_a_missing_field_of_the_key_is_null_without_a_schema() -> None:
    found = one("ValueToKey", {"fields": "b"}, pa.array([{"a": 1}]))
    assert isinstance(found, Records)
    assert objects(found.key) == [{"b": None}]


def test_a_missing_field_of_the_key_is_bad_with_a_schema() -> None:
    assert (
        one("ValueToKey", {"fields": "b"}, pa.array([{"a": 1}]), typed=True) == "transform 'x': there is no field 'b'"
    )


def test_renaming_onto_another_field_is_bad() -> None:
    assert "two fields have one name" in str(one("ReplaceField", {"renames": "a:b"}, pa.array([{"a": 1, "b": 2}])))


def test_flat_names_that_collide_are_bad() -> None:
    assert "two fields are named 'a.b'" in str(one("Flatten", {}, pa.array([{"a": {"b": 1}, "a.b": 2}])))


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a.b", 1), ("`a.b`", 2), ("a.`c.d`", 3), ("`a`.b", 1), ("a.`e``f`", 4), ("missing.b", None)],
)
def test_paths_may_hold_backticks(path: str, expected: Any) -> None:
    value = pa.array([{"a": {"b": 1, "c.d": 3, "e``f": 4}, "a.b": 2}])
    assert value_of(one("ExtractField", {"field": path, "field.syntax.version": "V2"}, value)) == expected


def test_a_backtick_that_is_not_closed_is_refused() -> None:
    with pytest.raises(ConfigError, match="a backtick in the path '`a' is not closed"):
        one("ExtractField", {"field": "`a", "field.syntax.version": "V2"}, pa.array([{"a": 1}]))


@pytest.mark.parametrize(
    ("spec", "given", "expected"),
    [
        ("string", pa.array([{"a": 0.1}], pa.struct([("a", pa.float32())])), "0.1"),
        ("string", pa.array([{"a": 9007199254740993}]), "9007199254740993"),
        ("float64", pa.array([{"a": 9007199254740993}]), 9007199254740992.0),
        ("boolean", pa.array([{"a": 0.5}]), False),
        ("int64", pa.array([{"a": " 5"}]), None),
        ("int64", pa.array([{"a": "1_0"}]), None),
        ("float32", pa.array([{"a": 1e39}]), None),
        ("float64", pa.array([{"a": "1.5d"}]), 1.5),
    ],
)
def test_cast_converts_as_java_or_not_at_all(spec: str, given: pa.Array, expected: Any) -> None:
    found = one("Cast", {"spec": f"a:{spec}"}, given)
    assert (None if isinstance(found, str) else value_of(found)["a"]) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "millis"),
    [
        ("dd.MM.yy", "31.12.99", 946_598_400_000),
        ("yyyyMMdd", "20240102", 1_704_153_600_000),
        ("d MMMM yyyy", "2 January 2024", 1_704_153_600_000),
        ("d MMM yyyy", "2 JANUARY 2024", 1_704_153_600_000),
        ("yyyy-MM-dd", "2024-01-32 and more", 1_706_745_600_000),
        ("yyyy-DDD", "2024-002", 1_704_153_600_000),
        ("yyyy-MM-dd", "1582-10-04", -12_219_379_200_000),
        ("y G", "1 BC", -62_167_392_000_000),
    ],
)
def test_text_is_read_as_java_reads_it(pattern: str, text: str, millis: int) -> None:
    assert value_of(one("TimestampConverter", {"target.type": "unix", "format": pattern}, pa.array([text]))) == millis


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("EEEE, d MMMM yyyy", "Tuesday, 2 January 2024"),
        ("EEE u", "Tue 2"),
        ("kk:mm 'o''clock' a", "12:00 o'clock PM"),
        ("DDD yy G", "002 24 AD"),
        ("SSSSSS z", "000123 UTC"),
    ],
)
def test_moments_are_written_as_java_writes_them(pattern: str, expected: str) -> None:
    options = {"target.type": "string", "format": pattern}
    assert value_of(one("TimestampConverter", options, pa.array([1_704_196_800_123]))) == expected


@pytest.mark.parametrize("pattern", ["ss.SSS", "ss.SSSSSS", "ss,S"])
def test_a_part_of_a_second_that_java_takes_for_milliseconds_is_bad(pattern: str) -> None:
    options = {"target.type": "unix", "format": pattern}
    for digits in ("844195", "8", "84"):
        assert "three digits" in str(one("TimestampConverter", options, pa.array([f"12{pattern[2]}{digits}"])))
    assert value_of(one("TimestampConverter", options, pa.array([f"12{pattern[2]}844"]))) == 12_844


@pytest.mark.parametrize("pattern", ["ss.SSSSSS", "ss.S", "ss,SSSSSSSSS"])
def test_a_pattern_that_would_write_another_part_of_a_second_is_refused(pattern: str) -> None:
    for kind, options in (
        ("TimestampConverter", {"target.type": "string", "format": pattern}),
        ("TimestampRouter", {"timestamp.format": pattern}),
    ):
        with pytest.raises(ConfigError, match="write SSS"):
            one(kind, options, pa.array([0]))


@pytest.mark.parametrize("pattern", ["yyyy-'W'ww", "YYYY", "yyyy-MM-F", "XXXX", "yyyy 'open"])
def test_a_pattern_that_cannot_be_exact_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="date pattern"):
        one("TimestampConverter", {"target.type": "string", "format": pattern}, pa.array([0]))


@pytest.mark.parametrize("pattern", ["HH:mm a hh", "yyyy-DDD MM", "EEE HH:mm"])
def test_a_pattern_that_cannot_be_read_exactly_is_refused_for_reading(pattern: str) -> None:
    with pytest.raises(ConfigError, match="to read text"):
        one("TimestampConverter", {"target.type": "unix", "format": pattern}, pa.array(["x"]))


def test_the_last_millisecond_of_mongodb_is_exact() -> None:
    document = json.dumps({"d": {"$date": {"$numberLong": "253402300799999"}}})
    found = one("MongoDebeziumTransform", {}, pa.array([{"after": document}]), key=pa.array([{"id": "1"}]))
    assert isinstance(found, Records)
    after = pc.struct_field(found.value, ["after", "d"])
    assert after.cast(pa.int64()).to_pylist() == [253_402_300_799_999]


def test_a_null_schema_of_a_debezium_event_leaves_its_database() -> None:
    event = {"op": "c", "after": {"id": 1}, "source": {"schema": None, "db": "shop", "table": "t"}}
    assert value_of(one("DebeziumTransform", {}, pa.array([event])))["_cdc"]["source"] == "shop.t"


def test_text_within_json_is_as_java_writes_it() -> None:
    text = pa.array(['{"o":{"a":1e10,"b":null,"c":"x"}}'])
    assert value_of(one("JsonToMapTransform", {"json.root": "true"}, text))["payload"] == [
        ("o", '{"a":1.0E10,"b":null,"c":"x"}')
    ]


def test_the_replacement_of_a_topic_takes_java_references() -> None:
    options = {"regex": r"(?<db>\w+)\.(o)(.*)", "replacement": r"${db}$12$3\$"}
    found = one("RegexRouter", options, pa.array([{"a": 1}]))
    assert isinstance(found, Records)
    assert found.topic.to_pylist() == ["dbdb2rders$"]


def test_a_reference_to_no_group_is_refused() -> None:
    with pytest.raises(ConfigError, match="no group"):
        one("RegexRouter", {"regex": "a", "replacement": "$1"}, pa.array([{"a": 1}]))


@pytest.mark.parametrize(
    "text", ["1" * 1_000_000 + "x", "1" * 500_000 + "." + "1" * 500_000 + "e", "." + "0" * 1_000_000]
)
@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
def test_a_long_text_is_cast_in_time_linear_in_its_length(kind: str, text: str) -> None:
    started = time.process_time()
    one("Cast", {"spec": f"a:{kind}"}, pa.array([{"a": text}]))
    assert time.process_time() - started < 1


@pytest.mark.parametrize(("text", "number"), [("0" * 200 + "7", 7), ("-" + "0" * 200 + "7", -7), ("+0", 0), ("-0", 0)])
def test_leading_zeros_do_not_make_a_whole_number_too_large(text: str, number: int) -> None:
    assert value_of(one("Cast", {"spec": "a:int32"}, pa.array([{"a": text}]))) == {"a": number}
