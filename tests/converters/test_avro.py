"""Avro values become columns, whatever their schema ids."""

from __future__ import annotations

import json
import struct
import time as time_
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from calving.converters.avro import AvroConverter
from calving.errors import ConfigError, UnavailableError
from harness.registry import SchemaRegistry, avro, framed
from tests.converters.decoding import decode

PLAIN = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def with_registry(registry: SchemaRegistry) -> AvroConverter:
    return AvroConverter({"schema.registry.url": registry.url}, is_key=False)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -7, -7),
        ("long", 2**40, 2**40),
        ("float", 1.5, 1.5),
        ("double", 1e300, 1e300),
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("string", "é", "é"),
        (["null", "string"], None, None),
        (["null", "string"], "x", "x"),
        (["string", "null"], "x", "x"),
        (["null", "int", "string"], 7, {"int": 7, "string": None}),
        (["null", "int", "string"], "x", {"int": None, "string": "x"}),
        (["null", "int", "string"], None, None),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", b"abc"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": ["null", "long"]}, {"a": 1, "b": None}, [("a", 1), ("b", None)]),
        ({"type": "int", "logicalType": "date"}, 19000, date(2022, 1, 8)),
        ({"type": "int", "logicalType": "time-millis"}, 3_723_500, time(1, 2, 3, 500_000)),
        ({"type": "long", "logicalType": "time-micros"}, 3_723_500_001, time(1, 2, 3, 500_001)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            1704164645678,
            datetime(2024, 1, 2, 3, 4, 5, 678000, UTC),
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            1704164645678901,
            datetime(2024, 1, 2, 3, 4, 5, 678901, UTC),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            1704164645678,
            datetime(2024, 1, 2, 3, 4, 5, 678000),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-12.34"),
            Decimal("-12.34"),
        ),
        (
            {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("12.34"),
            Decimal("12.34"),
        ),
        (
            {"type": "string", "logicalType": "uuid"},
            UUID("00112233-4455-6677-8899-aabbccddeeff"),
            UUID("00112233-4455-6677-8899-aabbccddeeff"),
        ),
        (
            {"type": "array", "items": {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}},
            [{"x": 1}],
            [{"x": 1}],
        ),
    ],
)
def test_every_type_is_decoded(registry: SchemaRegistry, kind: Any, value: Any, expected: Any) -> None:
    schema = record(v=kind)
    number = registry.register("t-value", json.dumps(schema))
    assert decode(with_registry(registry), [avro(number, schema, {"v": value})]).values == {0: {"v": expected}}


def test_schemas_of_different_ids_in_one_batch_keep_their_own_columns(registry: SchemaRegistry) -> None:
    wider = record(id="long", name=["null", "string"])
    a, b = registry.register("t-value", json.dumps(PLAIN)), registry.register("t-value", json.dumps(wider))
    values = [avro(a, PLAIN, {"id": 1}), avro(b, wider, {"id": 2, "name": "x"}), avro(a, PLAIN, {"id": 3})]
    assert decode(with_registry(registry), values).values == {
        0: {"id": 1},
        1: {"id": 2, "name": "x"},
        2: {"id": 3},
    }


def test_references_are_followed(registry: SchemaRegistry) -> None:
    inner = {"type": "record", "name": "Money", "namespace": "bank", "fields": [{"name": "cents", "type": "long"}]}
    registry.register("money", json.dumps(inner))
    outer = record(price="bank.Money", fee=["null", "bank.Money"])
    reference = {"name": "bank.Money", "subject": "money", "version": 1}
    number = registry.register("t-value", json.dumps(outer), references=[reference])
    named: dict[str, Any] = {}
    import fastavro

    fastavro.parse_schema(inner, named_schemas=named)
    value = avro(number, outer, {"price": {"cents": 7}, "fee": None}, named)
    assert decode(with_registry(registry), [value]).values == {0: {"price": {"cents": 7}, "fee": None}}


def test_a_schema_is_asked_for_once(registry: SchemaRegistry) -> None:
    number = registry.register("t-value", json.dumps(PLAIN))
    decode(with_registry(registry), [avro(number, PLAIN, {"id": i}) for i in range(100)])
    decode(with_registry(registry), [avro(number, PLAIN, {"id": i}) for i in range(100)])
    assert len(registry.requests) == 1


@pytest.mark.parametrize(
    ("poison", "reason"),
    [
        (b"", "shorter than its header"),
        (b'{"id":1}', "starts with byte 123"),
        (framed(99, b"\x02"), "has no schema 99"),
        (framed(1, b""), ""),
        (framed(1, b"\xff" * 20), ""),
    ],
)
def test_a_poison_value_is_told_from_the_others(registry: SchemaRegistry, poison: bytes, reason: str) -> None:
    number = registry.register("t-value", json.dumps(PLAIN))
    good = avro(number, PLAIN, {"id": 5})
    found = decode(with_registry(registry), [good, poison, good])
    assert found.values == {0: {"id": 5}, 2: {"id": 5}}
    assert reason in found.bad[1]


def test_text_that_is_not_utf8_is_bad(registry: SchemaRegistry) -> None:
    schema = record(s="string")
    number = registry.register("t-value", json.dumps(schema))
    found = decode(with_registry(registry), [avro(number, schema, {"s": "x"}), framed(number, b"\x04\xff\xff")])
    assert list(found.bad) == [1]


def test_a_schema_that_contains_itself_is_bad(registry: SchemaRegistry) -> None:
    schema = record(next=["null", "R"])
    number = registry.register("t-value", json.dumps(schema))
    found = decode(with_registry(registry), [avro(number, schema, {"next": None})])
    assert "contains itself" in found.bad[0]


def test_a_registry_that_does_not_answer_is_no_fault_of_the_records(registry: SchemaRegistry) -> None:
    registry.broken = True
    converter = AvroConverter({"schema.registry.url": registry.url, "schema.registry.max.retries": "0"}, is_key=False)
    with pytest.raises(UnavailableError, match="schema registry"):
        converter.decode([framed(1, b"\x02")], None)


def test_a_fixed_schema_needs_no_registry() -> None:
    converter = AvroConverter({"schema": json.dumps(PLAIN)}, is_key=False)
    value = avro(1, PLAIN, {"id": 9})[5:]
    found = decode(converter, [value, b""])
    assert found.values == {0: {"id": 9}}
    assert list(found.bad) == [1]


def test_a_missing_registry_is_named() -> None:
    with pytest.raises(ConfigError, match=r"value.converter.schema.registry.url is missing"):
        AvroConverter({}, is_key=False)


def one(kind: Any, *values: Any, **options: str) -> Any:
    """Values of a field of this type, written and read."""
    schema = record(v=kind)
    made = AvroConverter({"schema": json.dumps(schema), **options}, is_key=False)
    return decode(made, [avro(1, schema, {"v": value})[5:] for value in values])


CREATED, DELETED = (
    {"type": "record", "name": f"bank.{name}", "fields": [{"name": "id", "type": "long"}]}
    for name in ("Created", "Deleted")
)
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
UUID_TEXT = {"type": "string", "logicalType": "uuid"}
FIXED = {"type": "fixed", "name": "F", "size": 8}
SOME = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("union", "raw", "expected"),
    [
        ([CREATED, DELETED], b"\x02\x0e", {"Created": None, "Deleted": {"id": 7}}),
        (["null", CREATED, DELETED], b"\x02\x0e", {"Created": {"id": 7}, "Deleted": None}),
        (["int", "long"], b"\x02\x0e", {"int": None, "long": 7}),
        (["int", "long"], b"\x00\x0e", {"int": 7, "long": None}),
        (["float", "double"], b"\x02" + struct.pack("<d", 1.5), {"float": None, "double": 1.5}),
        (["string", ENUM], b"\x02\x02", {"string": None, "E": "B"}),
        (
            [{"type": "array", "items": ["int", "long"]}, "int"],
            b"\x00\x02\x02\x0e\x00",
            {"array": [{"int": None, "long": 7}], "int": None},
        ),
    ],
)
def test_a_value_of_a_union_lands_in_the_branch_that_was_written(union: Any, raw: bytes, expected: Any) -> None:
    made = AvroConverter({"schema": json.dumps(record(v=union))}, is_key=False)
    assert decode(made, [raw]).values == {0: {"v": expected}}


def test_branches_of_one_name_are_told_apart_by_their_full_names() -> None:
    other = {**CREATED, "name": "shop.Created"}
    with pytest.raises(ConfigError, match="two branches of one name"):
        one([CREATED, other])
    found = one([CREATED, other], ("shop.Created", {"id": 1}), **{"enhanced.avro.schema.support": "true"})
    assert found.values == {0: {"v": {"bank.Created": None, "shop.Created": {"id": 1}}}}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ({"type": "map", "values": UUID_TEXT}, {"a": SOME}, [("a", SOME)]),
        (["null", {"type": "map", "values": UUID_TEXT}], {"a": SOME}, [("a", SOME)]),
        ({"type": "map", "values": {"type": "map", "values": UUID_TEXT}}, {"a": {"b": SOME}}, [("a", [("b", SOME)])]),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, SOME.bytes, SOME),
        (["null", CREATED], None, None),
    ],
)
def test_nested_and_optional_types_are_decoded(kind: Any, value: Any, expected: Any) -> None:
    assert one(kind, value).values == {0: {"v": expected}}


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ({"type": "long", "logicalType": "time-micros"}, b"\x80\xe0\x86\xff\xc3\x05"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x06\x01\x86\xa0"),
        ("int", b"\x80\x80\x80\x80\x20"),
        ("string", b"\x80\x80\x80\x80\x80\x80\x80\x80\x01a"),
        ({"type": "array", "items": "int"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ({"type": "array", "items": "double"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(8)),
        (
            {"type": "array", "items": {**record(a="float", b=FIXED), "name": "I"}},
            b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
        ),
        (UUID_TEXT, b"\x02x"),
        (ENUM, b"\x08"),
        (ENUM, b"\x01"),
        (["null", "long"], b"\x01\x08"),
        (["null", "long", "string"], b"\x03\x08"),
        (["null", "long"], b"\x04\x08"),
        ("long", b"\x82" + b"\x80" * 9 + b"\x01"),
        ("long", b"\xff" * 9 + b"\x02"),
        ("string", b"\x01abc"),
        ({"type": "array", "items": "long"}, b"\x01" + b"\xff" * 10 + b"\x01\x0a\x00"),
        ({"type": "map", "values": "boolean"}, b"\x02\x02k\x02\x00"),
        ("boolean", b"\xff"),
    ],
)
@pytest.mark.parametrize("native", ["1", "0"])
def test_what_a_type_cannot_hold_is_bad(kind: Any, raw: bytes, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVING_NATIVE", native)
    made = AvroConverter({"schema": json.dumps(record(v=kind))}, is_key=False)
    assert list(decode(made, [raw]).bad) == [0]


@pytest.mark.parametrize("native", ["1", "0"])
def test_bytes_that_are_odd_and_not_damaged_are_read_as_java_reads_them(
    native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVING_NATIVE", native)
    made = AvroConverter({"schema": json.dumps(record(v={"type": "array", "items": "long"}))}, is_key=False)
    padded, size_is_wrong, least = b"\x02\x82\x80\x00\x00", b"\x01\x7f\x0a\x00", b"\x02" + b"\xff" * 9 + b"\x01\x00"
    found = decode(made, [padded, size_is_wrong, least])
    assert found.values == {0: {"v": [1]}, 1: {"v": [5]}, 2: {"v": [-(2**63)]}}


@pytest.mark.parametrize("kind", [record(v="long"), "long"])
@pytest.mark.parametrize("is_key", [False, True])
@pytest.mark.parametrize("native", ["1", "0"])
def test_a_value_with_bytes_behind_it_is_bad(
    registry: SchemaRegistry, kind: Any, is_key: bool, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were lost, with whatever they meant."""
    monkeypatch.setenv("CALVING_NATIVE", native)
    made = AvroConverter({"schema.registry.url": registry.url}, is_key=is_key)
    number = registry.register("t-value", json.dumps(kind))
    bad = decode(made, [framed(number, raw) for raw in (b"\x02", b"\x02\x04", b"\x02" * 9)]).bad
    assert [*bad] == [1, 2]
    assert "1 of its 2 bytes stand behind the value" in bad[1]
    assert "8 of its 9 bytes" in bad[2]


def test_a_value_in_a_registrys_format_says_so_if_the_schema_is_fixed() -> None:
    made = AvroConverter({"schema": json.dumps(record(v=["null", "long"]))}, is_key=False)
    bad = decode(made, [framed(7, b"\x02\x08"), b"\x02\x08", b"\x02\x08\x08", b"\x00\x08"]).bad
    assert [*bad] == [0, 2, 3]
    assert "schema.registry.url instead of schema" in bad[0]
    assert "schema.registry.url" not in bad[2] + bad[3]


def test_a_length_that_is_damaged_takes_no_memory() -> None:
    """Two to the 40 elements without a byte each would be read for days."""
    with pytest.raises(ConfigError, match="an array of elements that take no bytes"):
        AvroConverter({"schema": json.dumps(record(v={"type": "array", "items": "null"}))}, is_key=False)


def test_a_list_of_nullable_records_with_many_nullable_fields_is_read(registry: SchemaRegistry) -> None:
    fields = [{"name": f"f{i}", "type": ["null", "int"]} for i in range(20)]
    items = ["null", {"type": "record", "name": "E", "fields": fields}]
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    element = {f"f{i}": i if i % 2 else None for i in range(20)}
    number = registry.register("t-value", json.dumps(schema))
    decoded = decode(with_registry(registry), [avro(number, schema, {"a": [element, None]})])
    assert decoded.values == {0: {"a": [element, None]}}


ENTRY = {"type": "record", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "string"}]}


@pytest.mark.parametrize(
    "named",
    [
        {"namespace": "io.confluent.connect.avro", "name": "MapEntry"},  # a map without a name
        {"name": "io.confluent.connect.avro.MapEntry"},
        {"namespace": "shop", "name": "Prices", "connect.internal.type": "MapEntry"},
    ],
)
def test_a_map_that_connect_wrote_as_an_array_is_a_map(named: dict[str, str]) -> None:
    kind = {"type": "array", "items": {**ENTRY, **named}}
    assert one(kind, [{"key": 1, "value": "x"}]).values == {0: {"v": [(1, "x")]}}


@pytest.mark.parametrize(
    ("kind", "entries", "expected"),
    [
        ("int", [(1, "a"), (2, "b"), (1, "c")], "[(1, 'c'), (2, 'b')]"),
        ("double", [(float("nan"), "a"), (float("nan"), "b")], "[(nan, 'b')]"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, [(Decimal(1), "a")] * 2, None),
        ({"type": "record", "name": "K", "fields": [{"name": "k", "type": "int"}]}, [({"k": 1}, "a")] * 2, None),
    ],
    ids=str,
)
def test_the_last_entry_of_a_key_counts_in_a_map_that_connect_wrote_as_an_array(
    kind: Any, entries: list[tuple[Any, str]], expected: str | None
) -> None:
    """A column had both, unless a neighbour sent it to the exact path, where the record was bad."""
    fields = [{"name": "key", "type": kind}, {"name": "value", "type": "string"}]
    entry = {"type": "record", "namespace": "io.confluent.connect.avro", "name": "MapEntry", "fields": fields}
    value = one({"type": "array", "items": entry}, [{"key": k, "value": v} for k, v in entries]).values[0]["v"]
    assert len(value) == 1 if expected is None else repr([*value]) == expected


def test_a_map_that_connect_wrote_as_an_array_has_no_null_key() -> None:
    fields = [{"name": "key", "type": ["null", "int"]}, {"name": "value", "type": "string"}]
    entry = {"type": "record", "namespace": "io.confluent.connect.avro", "name": "MapEntry", "fields": fields}
    bad = one({"type": "array", "items": entry}, [{"key": None, "value": "x"}]).bad
    assert bad == {0: "field 'v': a map with a null for a key"}


@pytest.mark.parametrize("name", ["shop.MapEntry", "MapEntry"])
def test_a_record_that_is_only_called_like_an_entry_of_a_map_stays_one(name: str) -> None:
    kind = {"type": "array", "items": {**ENTRY, "name": name}}
    assert one(kind, [{"key": 1, "value": "x"}]).values == {0: {"v": [{"key": 1, "value": "x"}]}}


@pytest.mark.parametrize("kind", ["long", {"type": "array", "items": "long"}, ["null", "long", "string"]])
def test_a_value_need_not_be_a_record(registry: SchemaRegistry, kind: Any) -> None:
    number = registry.register("t-value", json.dumps(kind))
    value = [3] if isinstance(kind, dict) else 3
    found = decode(with_registry(registry), [avro(number, kind, value)])
    assert found.values == {0: {"long": 3, "string": None} if isinstance(kind, list) else value}


def test_a_union_of_types_that_other_subjects_define_is_read(registry: SchemaRegistry) -> None:
    registry.register("created", json.dumps(CREATED))
    registry.register("deleted", json.dumps(DELETED))
    outer = json.dumps(["bank.Created", "bank.Deleted"])
    references = [{"name": f"bank.{name}", "subject": name.lower(), "version": 1} for name in ("Created", "Deleted")]
    number = registry.register("t-value", outer, references=references)
    found = decode(with_registry(registry), [framed(number, b"\x02\x0e")])
    assert found.values == {0: {"Created": None, "Deleted": {"id": 7}}}


def test_a_schema_whose_types_are_unknown_makes_bad_records(registry: SchemaRegistry) -> None:
    number = registry.register("t-value", json.dumps(record(v="bank.Lost")))
    assert f"Avro schema {number}: " in decode(with_registry(registry), [framed(number, b"\x02")]).bad[0]


def test_8_000_bad_values_are_found_in_a_second() -> None:
    made = AvroConverter({"schema": json.dumps(record(v="int"))}, is_key=False)
    started = time_.thread_time()
    found = decode(made, [b"\x80\x80\x80\x80\x20", b"\x02"] * 4_000 + [b"\x80\x80\x80\x80\x20"] * 4_000)
    assert time_.thread_time() - started < 2
    assert list(found.values) == list(range(1, 8_000, 2))
    assert len(found.types) == 1


@pytest.mark.parametrize("native", ["1", "0"])
def test_no_bytes_are_no_decimal(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVING_NATIVE", native)
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    found = decode(AvroConverter({"schema": json.dumps(record(v=kind))}, is_key=False), [b"\x00", b"\x02\x05"])
    assert list(found.bad) == [0] and "no bytes are no decimal" in found.bad[0]
    assert found.values[1] == {"v": Decimal("0.05")}


@pytest.mark.parametrize("native", ["1", "0"])
def test_a_decimal_of_more_places_than_digits_has_as_many_digits(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVING_NATIVE", native)
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 6}
    found = decode(AvroConverter({"schema": json.dumps(record(v=kind))}, is_key=False), [b"\x02\x00", b"\x02\x05"])
    assert found.types == ["struct<v: decimal128(6, 6) not null>"]
    assert found.values == {0: {"v": Decimal("0.000000")}, 1: {"v": Decimal("0.000005")}}


@pytest.mark.parametrize("native", ["1", "0"])
@pytest.mark.parametrize("precision", [{"precision": 64}, {}])
def test_a_decimal_of_more_digits_than_a_table_has_takes_those_that_fit(
    precision: dict[str, int], native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVING_NATIVE", native)
    kind = {"type": "bytes", "logicalType": "decimal", "scale": 2, **precision}
    values = [b"\x02\x05", b"\x28" + b"\x7f" * 20]
    found = decode(AvroConverter({"schema": json.dumps(record(v=kind))}, is_key=False), values)
    assert found.types == ["struct<v: decimal128(38, 2) not null>"]
    assert found.values == {0: {"v": Decimal("0.05")}}
    assert "more than 38 digits" in found.bad[1]


@pytest.mark.parametrize(
    ("kind", "raw", "field"),
    [("time-millis", b"\x01", "v"), ("list", b"\x02\x01\x00", "v.at")],
    ids=["field", "inner field"],
)
def test_the_reason_for_a_value_that_does_not_fit_names_its_field(kind: str, raw: bytes, field: str) -> None:
    time_of_day = {"type": "int", "logicalType": "time-millis"}
    inner = {"type": "record", "name": "I", "fields": [{"name": "at", "type": time_of_day}]}
    schema = record(v=time_of_day if kind == "time-millis" else {"type": "array", "items": inner})
    found = decode(AvroConverter({"schema": json.dumps(schema)}, is_key=False), [raw])
    assert f"field '{field}': -1 is not a time of day" in str(found.bad[0])
