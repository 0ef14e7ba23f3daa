"""JSON with a JSON Schema from a registry."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from time import process_time
from typing import Any

import pytest

from calving.converters.interface import converter
from harness.registry import SchemaRegistry, framed
from tests.converters.decoding import decode

DATA = "org.apache.kafka.connect.data."


def schema_of(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def read(registry: SchemaRegistry, schema: Any, *values: Any, **options: str) -> Any:
    number = registry.register("t-value", json.dumps(schema), "JSON")
    made = converter(
        "io.confluent.connect.json.JsonSchemaConverter", {"schema.registry.url": registry.url, **options}, is_key=False
    )
    return decode(made, [framed(number, v if isinstance(v, bytes) else json.dumps(v).encode()) for v in values])


def one_of(*branches: Any) -> dict[str, Any]:
    return {"oneOf": list(branches)}


NULL, INTEGER, STRING = {"type": "null"}, {"type": "integer"}, {"type": "string"}
DEFINITIONS: Any = {
    "b": {"type": "object", "properties": {"b": {"type": "object", "properties": {"c": {"type": "integer"}}}}},
    "nothing": {"type": "null"},
    "three": {"type": "integer", "default": 3},
}
UNION = "io.confluent.connect.json.OneOf.field."


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ({"type": "boolean"}, True, True),
        (INTEGER, 2**40, 2**40),
        ({"type": "integer", "connect.type": "int8"}, 5, 5),
        ({"type": "number"}, 0.1, 0.1),
        ({"type": "number"}, 3, 3.0),
        ({"type": "number", "connect.type": "float32"}, 1.5, 1.5),
        (STRING, "é", "é"),
        ({"type": "string", "connect.type": "bytes"}, "aGk=", b"hi"),
        ({"type": "string", "enum": ["A", "B"]}, "B", "B"),
        ({"enum": ["A", "B"]}, "B", "B"),
        ({"const": "A"}, "A", "A"),
        ({"type": "integer", "connect.type": "int32", "title": DATA + "Date"}, 19000, date(2022, 1, 8)),
        ({"type": "integer", "connect.type": "int32", "title": DATA + "Time"}, 1, time(0, 0, 0, 1000)),
        (
            {"type": "integer", "connect.type": "int64", "title": DATA + "Timestamp"},
            1704164645678,
            datetime(2024, 1, 2, 3, 4, 5, 678000, UTC),
        ),
        (
            {
                "type": "number",
                "connect.type": "bytes",
                "title": DATA + "Decimal",
                "connect.parameters": {"scale": "2"},
            },
            base64.b64encode(b"\x04\xd2").decode(),
            Decimal("12.34"),
        ),
        (
            {
                "type": "number",
                "connect.type": "bytes",
                "title": DATA + "Decimal",
                "connect.parameters": {"scale": "2"},
            },
            12.34,
            Decimal("12.34"),
        ),
        ({"type": "array", "items": INTEGER}, [1, 2], [1, 2]),
        ({"type": "object", "connect.type": "map", "additionalProperties": INTEGER}, {"a": 1}, [("a", 1)]),
        (
            {"type": "array", "connect.type": "map", "items": schema_of(key=INTEGER, value=STRING)},
            [{"key": 1, "value": "x"}],
            [(1, "x")],
        ),
        (schema_of(x=INTEGER), {"x": 1, "y": 2}, {"x": 1}),
        (one_of(NULL, INTEGER), None, None),
        ({"anyOf": [INTEGER, NULL]}, 7, 7),
        ({"type": ["null", "integer"]}, 7, 7),
        ({**one_of(NULL, INTEGER), "default": 9}, None, 9),
        ({"type": "integer", "default": 9}, None, 9),
        (one_of(STRING, INTEGER), 7, {UNION + "0": None, UNION + "1": 7}),
        (one_of(NULL, STRING, INTEGER), "x", {UNION + "0": "x", UNION + "1": None}),
        (
            one_of(schema_of(a=STRING), schema_of(a=STRING, b=STRING)),
            {"a": "x", "b": "y"},
            {UNION + "0": None, UNION + "1": {"a": "x", "b": "y"}},
        ),
        ({"allOf": [STRING, {"enum": ["A"]}]}, "A", "A"),
        ({"allOf": [schema_of(a=STRING), schema_of(b=INTEGER)]}, {"a": "x", "b": 1}, {"a": "x", "b": 1}),
        # Properties beside a union, or in a union beside properties, are columns, too.
        (
            {**schema_of(("id",), id=INTEGER), **one_of(schema_of(("card",), card=STRING), schema_of(iban=STRING))},
            {"id": 1, "iban": "DE"},
            {"id": 1, "card": None, "iban": "DE"},
        ),
        (
            {**schema_of(id=INTEGER, name=STRING), "anyOf": [{"required": ["id"]}, {"required": ["name"]}]},
            {"name": "x"},
            {"id": None, "name": "x"},
        ),
        (
            {"allOf": [schema_of(id=INTEGER), one_of(schema_of(a=STRING), schema_of(b=STRING))]},
            {"id": 1, "b": "x"},
            {"id": 1, "a": None, "b": "x"},
        ),
        (
            {**one_of(schema_of(a=STRING), NULL), "anyOf": [schema_of(b=STRING), schema_of(c=STRING)]},
            {"a": "x", "c": "y"},
            {"a": "x", "b": None, "c": "y"},
        ),
        (
            {**schema_of(kind=STRING), "if": {}, "then": schema_of(a=INTEGER), "else": {"$ref": "#/$defs/b"}},
            {"kind": "x", "b": {"c": 1}},
            {"kind": "x", "a": None, "b": {"c": 1}},
        ),
        (
            {
                **schema_of(id=INTEGER),
                **one_of(schema_of(v={"const": "a", "default": "a"}), schema_of(v={"const": "b"})),
            },
            {"id": 1},
            {"id": 1, "v": None},
        ),
        (
            {**schema_of(id=INTEGER), **one_of(schema_of(v=STRING), schema_of(v=INTEGER))},
            {"id": 1, "v": 2},
            {"id": 1, "v": {UNION + "0": None, UNION + "1": 2}},
        ),
        ({**schema_of(x=INTEGER), "$ref": "#/$defs/b"}, {"x": 1, "b": {"c": 2}}, {"x": 1, "b": {"c": 2}}),
        ({**STRING, "anyOf": [{"format": "date"}, {"maxLength": 3}]}, "x", "x"),
        # Several conditions, and the same property in several parts.
        (
            {
                **schema_of(kind=STRING),
                "then": schema_of(c=INTEGER),
                "allOf": [{"then": schema_of(a=STRING)}, {"if": {}, "else": schema_of(b=INTEGER)}],
                "dependentSchemas": {"kind": schema_of(d=STRING)},
            },
            {"kind": "x", "a": "v", "b": 1, "d": "w"},
            {"kind": "x", "c": None, "a": "v", "b": 1, "d": "w"},
        ),
        (
            {"allOf": [schema_of(a=schema_of(x=INTEGER)), schema_of(a=schema_of(y=INTEGER)), schema_of(a=True)]},
            {"a": {"x": 1, "y": 2}},
            {"a": {"x": 1, "y": 2}},
        ),
        (
            {
                **schema_of(type=STRING, data=schema_of(id=STRING)),
                **one_of(
                    schema_of(type={"const": "a"}, data=schema_of(x=INTEGER)), schema_of(data=schema_of(y=INTEGER))
                ),
            },
            {"type": "a", "data": {"id": "1", "x": 5}},
            {"type": "a", "data": {"id": "1", "x": 5, "y": None}},
        ),
        (
            {
                "allOf": [
                    {"type": "array", "items": schema_of(a=INTEGER)},
                    {"type": ["array", "null"], "items": schema_of(b=INTEGER)},
                ]
            },
            [{"a": 1, "b": 2}],
            [{"a": 1, "b": 2}],
        ),
        ({"allOf": [INTEGER, {"type": "number", "minimum": 1}]}, 2**60 + 1, 2**60 + 1),
        # Branches of a union that differ deep inside, or by constants.
        (
            one_of(
                schema_of(type={"const": "made"}, data=schema_of(id=INTEGER)),
                schema_of(type={"const": "named"}, data=schema_of(id=INTEGER, name=STRING)),
            ),
            {"type": "named", "data": {"id": 1}},
            {UNION + "0": None, UNION + "1": {"type": "named", "data": {"id": 1, "name": None}}},
        ),
        (
            one_of({"type": "array", "items": schema_of(a=INTEGER)}, {"type": "array", "items": schema_of(b=INTEGER)}),
            [{"b": 1}],
            {UNION + "0": None, UNION + "1": [{"b": 1}]},
        ),
        (
            one_of({"type": "array", "items": STRING}, {"type": "array", "items": INTEGER}),
            [1],
            {UNION + "0": None, UNION + "1": [1]},
        ),
        (
            one_of(one_of(schema_of(a=STRING), schema_of(b=STRING)), schema_of(c=STRING)),
            {"b": "x"},
            {UNION + "0": {UNION + "0": None, UNION + "1": {"b": "x"}}, UNION + "1": None},
        ),
        (
            one_of(INTEGER, {"type": "number"}),
            12345678901234567890,
            {UNION + "0": None, UNION + "1": 12345678901234567890.0},
        ),
        # Null, where only a reference or a constant says it.
        (one_of({"$ref": "#/$defs/nothing"}, STRING), None, None),
        ({"enum": ["a", None]}, None, None),
        ({"anyOf": [STRING, {"const": None}]}, None, None),
        (one_of({"type": ["string", "null"]}, INTEGER), None, None),
        # Constants of other types than text, and types that only narrow.
        ({"enum": [1, 2]}, 2, 2),
        ({"const": True}, True, True),
        ({**STRING, **one_of({"const": "A"}, {"const": "B"})}, "B", "B"),
        ({**INTEGER, "anyOf": [{"enum": [1]}, {"minimum": 10}]}, 11, 11),
        # What no column needs, and what is only a remark.
        ({**schema_of(a=STRING, b=False), "oneOf": [schema_of(c=False)]}, {"a": "x"}, {"a": "x"}),
        ({"type": "integer", "default": ""}, None, None),
        ({"type": "array", "items": True}, [1, "x"], [1, "x"]),
        ({"type": "array", "prefixItems": [INTEGER, STRING]}, [1, "x"], [1, "x"]),
        (
            {**schema_of(id=INTEGER), **one_of(schema_of(x={"$ref": "#/$defs/three"}), schema_of(y=STRING))},
            {"id": 1, "y": "q"},
            {"id": 1, "x": None, "y": "q"},
        ),
        (
            {**schema_of(id=INTEGER), **one_of(schema_of(v={"type": "object"}), schema_of(v={}))},
            {"id": 1, "v": 5},
            {"id": 1, "v": 5},
        ),
        (
            {"$ref": "#/$defs/b", "if": schema_of(y=INTEGER), "then": schema_of(z=INTEGER)},
            {"b": {"c": 1}, "z": 2},
            {"b": {"c": 1}, "y": None, "z": 2},
        ),
        (
            {**one_of(schema_of(a=STRING), schema_of(c=STRING)), "then": schema_of(b=INTEGER)},
            {"a": "x", "b": 1},
            {"a": "x", "c": None, "b": 1},
        ),
        ({**one_of(STRING, INTEGER), "then": {"minLength": 1}}, "x", {UNION + "0": "x", UNION + "1": None}),
        ({"type": "number", "default": 1.5}, None, 1.5),
        ({**one_of(STRING, {"type": "number"}), "default": 1.5}, None, {UNION + "0": None, UNION + "1": 1.5}),
        # A union with an object of any fields, and values without fields.
        (one_of({"type": "object"}, STRING), "x", {UNION + "0": None, UNION + "1": "x"}),
        (one_of(STRING, schema_of(a=INTEGER)), {}, {UNION + "0": None, UNION + "1": {"a": None}}),
        (
            one_of(schema_of(("a", "b"), a=INTEGER, b=INTEGER), schema_of(a=INTEGER)),
            {"a": 1},
            {UNION + "0": None, UNION + "1": {"a": 1}},
        ),
        ({"type": "object"}, {"a": [0.10, None]}, {"a": [Decimal("0.1"), None]}),
        ({}, [1], [1]),
    ],
)
def test_every_type_is_decoded(registry: SchemaRegistry, kind: Any, value: Any, expected: Any) -> None:
    schema = {**schema_of(v=kind), "$defs": DEFINITIONS}
    assert read(registry, schema, {"v": value}).values == {0: {"v": expected}}


ENTRY = {**schema_of(("key", "value"), key=INTEGER, value=STRING), "title": "an entry"}


@pytest.mark.parametrize("items", [{"$ref": "#/$defs/entry"}, {"allOf": [ENTRY, {"minProperties": 2}]}])
def test_the_entries_of_a_map_are_described_in_place_or_elsewhere(registry: SchemaRegistry, items: Any) -> None:
    a_map = {"type": "array", "connect.type": "map", "items": items}
    schema = {**schema_of(m=a_map), "$defs": {"entry": ENTRY}}
    assert read(registry, schema, {"m": [{"key": 1, "value": "x"}]}).values == {0: {"m": [(1, "x")]}}


def test_a_union_that_two_parts_name_is_one_union(registry: SchemaRegistry) -> None:
    inner = one_of(NULL, {**schema_of(("a",), a=INTEGER), "title": "x"})
    parts = [schema_of(("v",), v={"type": "array", "items": {**inner}}) for _ in range(2)]
    single, twice = (read(registry, {"type": "object", "allOf": parts[:n]}, {"v": [{"a": 1}]}) for n in (1, 2))
    assert twice.types == single.types
    assert twice.values == {0: {"v": [{"a": 1}]}}


def test_json_text_keeps_every_digit(registry: SchemaRegistry) -> None:
    found = read(registry, schema_of(v={}), b'{"v":{"a":1234567890.12345678901234567890}}')
    assert found.values == {0: {"v": {"a": Decimal("1234567890.12345678901234567890")}}}


def test_fields_stand_in_the_order_of_connect(registry: SchemaRegistry) -> None:
    schema = schema_of(b={**INTEGER, "connect.index": 1}, c=INTEGER, a={**INTEGER, "connect.index": 0})
    assert read(registry, schema, {}).types == ["struct<a: int64, b: int64, c: int64>"]


def test_a_required_property_is_a_required_column(registry: SchemaRegistry) -> None:
    schema = schema_of(("a", "b"), a=INTEGER, b=one_of(NULL, INTEGER), c=INTEGER)
    found = read(registry, schema, {"a": 1})
    assert found.types == ["struct<a: int64 not null, b: int64, c: int64>"]
    assert found.values == {0: {"a": 1, "b": None, "c": None}}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (INTEGER, 1.5),
        (INTEGER, "1"),
        (INTEGER, 2**63),
        (INTEGER, None),
        ({"type": "integer", "connect.type": "int8"}, 128),
        ({"type": "number", "connect.type": "float32"}, 1e39),
        ({"type": "number"}, True),
        (STRING, 1),
        ({"type": "boolean"}, 0),
        ({"type": "array", "items": STRING}, "ab"),
        (schema_of(x=INTEGER), []),
        ({"type": "object"}, [1]),
        (one_of(STRING, INTEGER), True),
        ({"type": "null"}, 1),
    ],
)
def test_a_value_that_is_not_of_its_type_is_bad_and_its_field_named(
    registry: SchemaRegistry, kind: Any, value: Any
) -> None:
    assert read(registry, schema_of(("v",), v=kind), {"v": value}).bad[0].startswith("field 'v'")


def test_references_inside_a_schema_are_followed(registry: SchemaRegistry) -> None:
    schema = {
        **schema_of(a={"$ref": "#/definitions/money"}, b={"$ref": "#/definitions/money"}),
        "definitions": {"money": schema_of(cents=INTEGER)},
    }
    assert read(registry, schema, {"a": {"cents": 1}, "b": {"cents": 2}}).values == {
        0: {"a": {"cents": 1}, "b": {"cents": 2}}
    }


def test_references_to_other_subjects_are_followed(registry: SchemaRegistry) -> None:
    inner = {**schema_of(x={"$ref": "#/$defs/n"}), "$defs": {"n": INTEGER}}
    registry.register("money", json.dumps(inner), "JSON")
    reference = {"name": "money.json", "subject": "money", "version": 1}
    outer = json.dumps(schema_of(price={"$ref": "money.json"}))
    number = registry.register("t-value", outer, "JSON", references=[reference])
    made = converter("json-schema", {"schema.registry.url": registry.url}, is_key=False)
    assert decode(made, [framed(number, b'{"price":{"x":5}}')]).values == {0: {"price": {"x": 5}}}


def test_parts_of_other_documents_keep_their_own_references(registry: SchemaRegistry) -> None:
    inner = {**schema_of(("x",), x={"$ref": "#/$defs/n"}), "$defs": {"n": INTEGER}}
    registry.register("base", json.dumps(inner), "JSON")
    reference = {"name": "base.json", "subject": "base", "version": 1}
    outer = {"allOf": [{"$ref": "base.json"}, schema_of(y={"$ref": "#/$defs/n"})], "$defs": {"n": STRING}}
    number = registry.register("whole-value", json.dumps(outer), "JSON", references=[reference])
    made = converter("json-schema", {"schema.registry.url": registry.url}, is_key=False)
    assert decode(made, [framed(number, b'{"x":5,"y":"a"}')]).values == {0: {"x": 5, "y": "a"}}


@pytest.mark.parametrize(
    "reference", ["#n", "#/$defs/n", "n.json", "https://example.com/schemas/n.json", "/schemas/n.json#", "all.json#n"]
)
def test_a_reference_may_name_an_anchor_or_an_id(registry: SchemaRegistry, reference: str) -> None:
    schema = {
        **schema_of(v={"$ref": reference}),
        "$id": "https://example.com/schemas/all.json",
        "$defs": {"n": {**schema_of(a={"$ref": "#/$defs/m"}), "$anchor": "n"}, "m": STRING, "other": True},
    }
    schema["$defs"]["other"] = {"$id": "n.json", **schema_of(a={"$ref": "#/$defs/m"}), "$defs": {"m": INTEGER}}
    expected = 5 if "n.json" in reference else "x"
    assert read(registry, schema, {"v": {"a": expected}}).values == {0: {"v": {"a": expected}}}


def test_an_anchor_of_a_document_within_another_does_not_replace_the_others(registry: SchemaRegistry) -> None:
    schema = {
        **schema_of(v={"$ref": "#n"}),
        "$defs": {
            "a": {"$anchor": "n", **schema_of(p=INTEGER)},
            "z": {"$id": "o.json", "$defs": {"k": {"$anchor": "n", **schema_of(q=INTEGER)}}},
        },
    }
    assert read(registry, schema, {"v": {"p": 1}}).values == {0: {"v": {"p": 1}}}


def test_draft_4_names_a_document_by_id(registry: SchemaRegistry) -> None:
    schema = {
        **schema_of(v={"$ref": "address.json"}),
        "$schema": "http://json-schema.org/draft-04/schema#",
        "definitions": {"a": {"id": "address.json", **schema_of(p=INTEGER)}},
    }
    assert read(registry, schema, {"v": {"p": 1}}).values == {0: {"v": {"p": 1}}}


def test_a_long_chain_to_which_many_properties_refer_is_followed_once(registry: SchemaRegistry) -> None:
    chain = {str(i): {"$ref": f"#/definitions/{i + 1}"} for i in range(490)} | {"490": {"type": "string"}}
    properties = {f"p{i}": {"$ref": "#/definitions/0"} for i in range(1000)}
    schema = {"definitions": chain, "type": "object", "properties": properties}
    began = process_time()
    assert read(registry, schema, {"p7": "x"}).values[0]["p7"] == "x"
    assert process_time() - began < 4  # a tenth of it on an idle core; 15 s if the chain is followed each time


def test_a_chain_of_many_references_is_refused_at_once(registry: SchemaRegistry) -> None:
    links = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(25_000)}
    schema = {"type": "object", "allOf": [{"$ref": "#/$defs/a0"}], "$defs": links}
    began = process_time()
    assert "lead through more than 500 others" in read(registry, schema, {}).bad[0]
    assert process_time() - began < 5


@pytest.mark.parametrize(
    "leaf",
    [
        {"type": ["a"] * 8_000, **{f"k{i}": 1 for i in range(8_000)}},
        {"type": "string", "anyOf": [{}] * 3_000},
        {"type": "array", "items": INTEGER, "default": [1] * 10_000},
        {"type": "string", "title": ["x"] * 10_000},
        {"type": "object", "properties": {}, "required": [f"r{i}" for i in range(3_000)]},
    ],
    ids=["types", "branches", "default", "title", "required"],
)
def test_what_is_long_and_used_often_takes_little(registry: SchemaRegistry, leaf: Any) -> None:
    definitions = {"d0": leaf}
    for i in range(1, 12):
        use = {"$ref": f"#/$defs/d{i - 1}"}
        definitions[f"d{i}"] = schema_of(a=use, b=use)
    began = process_time()
    read(registry, {**schema_of(v={"$ref": "#/$defs/d11"}), "$defs": definitions}, {})
    assert process_time() - began < 3


def test_unions_within_unions_are_read_in_time(registry: SchemaRegistry) -> None:
    schema: Any = STRING
    value: Any = "x"
    for _ in range(8):
        schema = one_of(schema_of(a=schema, b=INTEGER), schema_of(a=schema, c=INTEGER))
        value = {"a": value}
    began = process_time()
    found = read(registry, schema_of(v=schema), {"v": value}, {"v": {"a": 1}})
    assert (list(found.values), list(found.bad)) == ([0], [1])
    assert process_time() - began < 20


def test_the_text_of_a_number_is_text_where_a_branch_of_a_union_takes_texts(registry: SchemaRegistry) -> None:
    number: Any = {"type": "number"}
    of_texts = schema_of(x=one_of(number, STRING))
    of_objects = schema_of(x=one_of(schema_of(a=number), schema_of(a=STRING)))
    no_text = schema_of(x=one_of(number, {"type": "boolean"}))
    found = [
        read(registry, schema, {"x": value}).values[0]["x"][f"{UNION}{branch}"]
        for schema, value, branch in (
            (of_texts, "Infinity", 1),
            (of_objects, {"a": "Infinity"}, 1),
            (no_text, "Infinity", 0),
        )
    ]
    assert found == ["Infinity", {"a": "Infinity"}, float("inf")]


def test_a_union_may_be_named_as_connect_s_general_one(registry: SchemaRegistry) -> None:
    found = read(registry, schema_of(v=one_of(STRING, INTEGER)), {"v": 1}, **{"generalized.sum.type.support": "true"})
    assert found.values == {0: {"v": {"connect_union_field_0": None, "connect_union_field_1": 1}}}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({**schema_of(next={"$ref": "#"})}, "contains itself"),
        (schema_of(v={"$ref": "#/nowhere"}), "refers to nothing"),
        (schema_of(v={"$ref": "lost.json"}), "no reference of the name 'lost.json'"),
        (schema_of(v={"type": "colour"}), "'colour' is not a type"),
        (schema_of(v={"type": "array", "items": {"allOf": [5], "$ref": "#/nowhere"}}), "refers to nothing"),
        (False, "not a schema"),
    ],
)
def test_a_schema_that_is_no_table_makes_bad_records(registry: SchemaRegistry, schema: Any, reason: str) -> None:
    assert reason in read(registry, schema, {}).bad[0]


@pytest.mark.parametrize("poison", [b"", b"{", b"1", b"\xff", b'{"v":1}{"v":1}', b"null", b"[" * 50_000])
def test_a_poison_value_is_told_from_the_others(registry: SchemaRegistry, poison: bytes) -> None:
    found = read(registry, schema_of(v=INTEGER), {"v": 1}, poison, {"v": 2})
    assert found.values == {0: {"v": 1}, 2: {"v": 2}}
    assert list(found.bad) == [1]


def test_a_value_without_the_registry_s_header_is_bad(registry: SchemaRegistry) -> None:
    made = converter("json-schema", {"schema.registry.url": registry.url}, is_key=False)
    assert "it starts with byte 123" in decode(made, [b'{"v":1}']).bad[0]


@pytest.mark.parametrize("number", [b"1.0", b"1", b"1e0"])
def test_a_whole_number_of_a_union_may_be_written_as_a_fraction(registry: SchemaRegistry, number: bytes) -> None:
    found = read(registry, schema_of(v=one_of(STRING, INTEGER)), b'{"v":' + number + b"}")
    assert (found.bad, found.values) == ({}, {0: {"v": {f"{UNION}0": None, f"{UNION}1": 1}}})
