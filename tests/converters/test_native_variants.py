"""Variants that Rust encodes have the values of the exact path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from calving.casting.table import TableConverter
from calving.casting.variants import encode
from calving.converters.json import JsonConverter
from calving.model.record_path import Evolution, Limits
from calving.records.fields import Projection
from calving.records.foreign import schema_of_json
from calving.records.jsontext import parse
from tests.casting.variant_decoder import decode

pytest.importorskip("calving_native")
NESTING = 20


def schema(**kinds: Any) -> Any:
    fields = [
        {"id": n, "name": name, "required": False, "type": kind} for n, (name, kind) in enumerate(kinds.items(), 1)
    ]
    return schema_of_json(json.dumps({"type": "struct", "fields": fields}))


VARIANT = schema(v="variant")


def through(records: Sequence[str], table: Any = VARIANT) -> tuple[list[Any], list[int]]:
    """The rows of a block, and the places of the records that were not decoded in Rust."""
    limits = Limits(nesting=NESTING)
    made = TableConverter("db.t", table, Evolution(), {}, limits)
    decoded = JsonConverter({}, is_key=False, limits=limits).decode(
        [record.encode() for record in records], Projection((made.target,))
    )
    rows: list[Any] = [None] * len(records)
    slow: list[int] = []
    for values in decoded.values:
        converted = made.convert(values)
        assert converted.rows is not None, converted
        for place, row in zip(values.index, converted.rows.to_pylist(), strict=True):
            rows[place] = row
        slow += values.index if isinstance(values.data, list) else []
    return rows, slow


def variants(*documents: str) -> list[Any]:
    """The variants of documents, all of which Rust has to encode."""
    rows, slow = through([f'{{"v": {each}}}' for each in documents])
    assert slow == []
    return [row["v"] and decode(**row["v"]) for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        '"x"',
        '"é\\u00e9\\n\\ud83d\\ude00"',
        "true",
        "[]",
        "{}",
        '{"b": [1, {"a": null}, []], "a": {"b": "", "": 2}, "\\u0063": "\\""}',
        "[-128, -129, 32767, 32768, 2147483647, 2147483648, 9223372036854775807, 9223372036854775808, -0]",
        "[1.50, -0.0, 0.0, 0e5, 1e3, 2.5E-3, 123456789.0, 1234567890.5, 0.12345678901234567890123456789, -1e-38, 1e37]",
        json.dumps(["x" * size for size in (0, 63, 64, 65, 255, 256, 70_000)]),
        json.dumps([*range(300)]),
        json.dumps({f"f{n}": n for n in range(300)}),
        json.dumps({f"a long name {n}" * 9: {"x": n} for n in range(20)}),
    ],
)
def test_a_value_is_what_the_exact_path_makes_of_it(text: str) -> None:
    (found,) = variants(text)
    wanted = decode(*encode(parse(text.encode(), NESTING)))
    assert repr(found) == repr(wanted)


@pytest.mark.parametrize(
    "text", ["0.10", "7.0", "12e1", "-0", "-0.0", "99999999999999999999", "0.000", "1e-9", "1e-10", "1e-18", "1e-19"]
)
def test_a_number_has_the_bytes_of_the_exact_path(text: str) -> None:
    rows, slow = through([f'{{"v": {text}}}'])
    assert slow == []
    assert rows[0]["v"] == encode(parse(text.encode(), NESTING))._asdict()


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        "1e300",
        "9" * 39,
        "0." + "1" * 39,
        "1e-39",
        "[" * 19 + "]" * 19,
        json.dumps({f"{n}": 1 for n in range(5000)}),
    ],
)
def test_what_is_refused_is_the_same_on_the_exact_path(text: str) -> None:
    rows, _ = through([f'{{"v": {text}}}', '{"v": 1}'])
    assert decode(**rows[0]["v"]) == decode(*encode(parse(text.encode(), NESTING)))
    assert decode(**rows[1]["v"]) == 1


def test_objects_of_other_fields_have_dictionaries_of_their_own() -> None:
    documents = ['{"a": 1}', '{"b": {"a": 2}}', "3", '{"a": 4}', '{"c": 5, "a": 6, "b": 7}', '{"b": 8}']
    assert variants(*documents) == [json.loads(each) for each in documents]


def test_an_object_may_have_fewer_and_more_fields_than_the_one_before() -> None:
    documents = [
        json.dumps({"o": [{f"{n}": n for n in range(count)} for count in counts]})
        for counts in ([3], [1, 9], [0, 260, 2])
    ]
    assert variants(*documents) == [json.loads(each) for each in documents]


def test_ever_new_names_are_encoded_in_rust() -> None:
    documents = [json.dumps({f"{row}-{n}": n for n in range(7)}) for row in range(1500)]
    assert variants(*documents) == [json.loads(each) for each in documents]


def test_a_null_is_no_variant_and_one_inside_is() -> None:
    rows, slow = through(['{"v": null}', "{}", '{"v": [null]}'])
    assert slow == [] and [row["v"] and decode(**row["v"]) for row in rows] == [None, None, [None]]


NESTED = schema(
    s={"type": "struct", "fields": [{"id": 11, "name": "v", "required": True, "type": "variant"}]},
    l={"type": "list", "element-id": 12, "element": "variant", "element-required": False},
    m={"type": "map", "key-id": 13, "key": "string", "value-id": 14, "value": "variant", "value-required": False},
    n="int",
)


def test_variants_inside_other_columns_are_encoded_too() -> None:
    good = '{"s": {"v": {"a": 1}}, "l": ["x", null, {"b": [2]}], "m": {"k": {"a": 3}, "n": null}, "n": 1}'
    rows, slow = through([good, '{"l": [], "n": 2}'], NESTED)
    assert slow == []
    assert decode(**rows[0]["s"]["v"]) == {"a": 1}
    assert [each and decode(**each) for each in rows[0]["l"]] == ["x", None, {"b": [2]}]
    assert [(key, each and decode(**each)) for key, each in rows[0]["m"]] == [("k", {"a": 3}), ("n", None)]
    assert rows[1] == {"s": None, "l": [], "m": None, "n": 2}


def test_a_column_that_arrow_cannot_convert_keeps_the_variants_in_it() -> None:
    table = schema(
        s={
            "type": "struct",
            "fields": [
                {"id": 11, "name": "v", "required": False, "type": "variant"},
                {"id": 12, "name": "n", "required": False, "type": "int"},
            ],
        }
    )
    limits = Limits(nesting=NESTING)
    made = TableConverter("db.t", table, Evolution(), {}, limits)
    records = [b'{"s": {"v": {"a": 1}, "n": 1}}', b'{"s": {"v": [2], "n": 9999999999}}']
    decoded = JsonConverter({}, is_key=False, limits=limits).decode(records, Projection((made.target,)))
    (values,) = decoded.values
    converted = made.convert(values)
    assert [bad.index for bad in converted.bad] == [1]
    assert converted.rows is not None and decode(**converted.rows.to_pylist()[0]["s"]["v"]) == {"a": 1}
