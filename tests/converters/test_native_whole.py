"""Schemaless JSON for transforms, by the decoder in Rust: each value is what it is on the exact path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, NestedField, StringType, StructType

from calving.converters.interface import Decoded
from calving.converters.json import JsonConverter
from calving.converters.native_whole import NativeWhole
from calving.model.record_path import Limits
from calving.records.fields import Projection, Target
from calving.records.shapes import by_shape
from calving.records.values import Payloads, objects

pytest.importorskip("calving_native")
LIMITS = Limits(nesting=8)
SHOWN = Projection(decimals=False)
HIDDEN = Projection(decimals=False, hides_order=lambda kind: True)
ODD = (
    "5", "5.0", "-0", "-0.0", "0.1", "1e2", "1E-7", "1e400", "12345678901234567890", "0.12345678901234567", "null", "true",
    '"5"', '"\\u00e9"', '"\\ud800"', '"null"', "{}", '{"x":1}', '{"x":1,"y":2}', '{"x":null}', "[]", "[1]", "05", "", "nul",
    "5.00000000000000000001", "0.30000000000000004", "[null]", "[[]]", "[1,2.5]", '[{"x":1},{"x":null}]', '[{"x":1},null]',
    '[{"x":1},{}]', '[{"x":1,"t":[]},{"x":2,"t":["a"]}]', '[{"t":[],"x":1}]', "[[[[[[[[[1]]]]]]]]]", '{"x":{"x":{"x":1}}}',
)  # fmt: skip
PLAIN = {
    "id": ("1", "77", "-3"),
    "amount": ("1.25", "99.5", "0.30000000000000004"),
    "name": ('"n"', '"é"', '"\\n"', '""'),
    "flag": ("true", "false"),
    "o": ('{"x": 7, "t":"u"}', '{"x":1,"t":null}', "null", '{"x":2}', '{"t":"v","x":3}', "{}"),
    "tags": ('["a","b"]', "[]", '["c",null]', "null"),
    "items": ('[{"x":1,"t":["p"]},{"x":2,"t":["q"]}]', '[{"x":1,"t":null}]', "[]", '[{"x":5}]', "null"),
    "digits": ("1.5", "0.30000000000000004", "123456.7890123456e-3", "2.5"),
    "rows": ('[[{"x":1}],[{"x":2}]]', "[[]]", "[]"),
    "nothing": ("null",),
}


def value(random: Random, *, odd: float) -> bytes:
    """Fields in one order or another, some of them missing or null; now and then one is odd."""
    names = [name for name in PLAIN if random.random() < 0.9]
    if random.random() < 0.3:
        random.shuffle(names)
    fields = {name: "null" if random.random() < 0.05 else random.choice(PLAIN[name]) for name in names}
    if random.random() < odd:
        fields[random.choice([*fields, "new"])] = random.choice(ODD)
    parts = [f'"{name}":{random.choice(("", " "))}{text}' for name, text in fields.items()]
    if random.random() < 0.01 and parts:
        parts.append(random.choice(parts))
    return ("{" + ",".join(parts) + "}").encode()


def decoded(converter: JsonConverter, values: Sequence[bytes], projection: Projection, *, columns: bool = False) -> Any:
    """What transforms get of each value, and the reasons of the bad ones."""
    given = Payloads(pa.array([b"", *values], pa.binary())[1:] if columns else values)
    found = converter.decode(given, projection)
    fates: dict[int, Any] = {bad.index: bad.reason for bad in found.bad}
    for part in found.values:
        data, decimals = part.data, projection.decimals
        shaped = by_shape(data, decimals=decimals) if isinstance(data, list) else [(range(len(part)), data)]
        for rows, column in shaped:
            column.validate(full=True)
            fates |= {part.index[row]: _told(each, projection) for row, each in zip(rows, objects(column), strict=True)}
    return fates


def _told(found: Any, projection: Projection) -> str:
    """As text, with fields in the order of their names where that is hidden."""
    return repr(_sorted(found) if projection.hides_order(pa.null()) else found)


def _sorted(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _sorted(found[name]) for name in sorted(found)}
    return [_sorted(item) for item in found] if isinstance(found, list) else found


class _Exact(JsonConverter):
    """The exact path alone."""

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        return super().decode(values, None)


def exact() -> JsonConverter:
    return _Exact({}, is_key=False, limits=LIMITS)


@pytest.mark.parametrize("columns", [False, True], ids=["objects", "columns"])
@pytest.mark.parametrize("projection", [SHOWN, HIDDEN, Projection()], ids=["in order", "in any order", "every digit"])
def test_values_with_nulls_and_missing_fields_and_arrays_are_those_of_the_exact_path(
    monkeypatch: pytest.MonkeyPatch, projection: Projection, columns: bool
) -> None:
    taken: list[int] = []
    read = NativeWhole.read

    def counted(self: NativeWhole, values: Payloads) -> Any:
        found = read(self, values)
        taken.append(sum(len(rows) for rows, _ in found[0]))
        return found

    monkeypatch.setattr(NativeWhole, "read", counted)
    random, converter = Random(7), JsonConverter({}, is_key=False, limits=LIMITS)
    for _ in range(3):
        values = [value(random, odd=0.05) for _ in range(200)]
        assert decoded(converter, values, projection, columns=columns) == decoded(exact(), values, projection)
    assert sum(taken) > 400


def test_each_odd_value_is_that_of_the_exact_path() -> None:
    usual = "{" + ",".join(f'"{name}":{texts[0]}' for name, texts in PLAIN.items()) + "}"
    for name in PLAIN:
        for text in ODD:
            odd = f'{{"{name}":{text}}}'.encode()
            converter = JsonConverter({}, is_key=False, limits=LIMITS)
            converter.decode([usual.encode()], SHOWN)
            found = decoded(converter, [odd] * 40, SHOWN)
            assert found == decoded(exact(), [odd] * 40, SHOWN), (name, text)


def kinds(values: Sequence[bytes], projection: Projection = SHOWN) -> list[str]:
    """Of what each part consists: the exact path leaves objects."""
    parts = JsonConverter({}, is_key=False, limits=LIMITS).decode(values, projection).values
    return ["objects" if isinstance(part.data, list) else str(part.data.type) for part in parts]


def test_what_several_tables_take_is_decoded_whole_if_they_differ() -> None:
    one, other = (
        Target(StructType(NestedField(1, "v", kind, required=False)), {}, case_insensitive=False)
        for kind in (LongType(), StringType())
    )
    values = [b'{"v":7,"new":"x"}'] * 20
    for projection in (Projection((one, other)), Projection((one, one), "add")):
        assert kinds(values, projection) == ["struct<v: int64, new: string>"]
        converter = JsonConverter({}, is_key=False, limits=LIMITS)
        assert decoded(converter, values, projection) == decoded(exact(), values, projection)


def test_a_null_is_one_in_its_column_and_a_missing_field_makes_another_column() -> None:
    values = [b'{"a":1,"b":"x"}', b'{"a":null,"b":"y"}', b'{"b":"z"}'] * 20
    assert kinds(values) == ["struct<a: int64, b: string>", "struct<b: string>"]


def test_objects_with_fields_in_another_order_are_another_column_unless_that_is_hidden() -> None:
    values = [b'{"a":1,"b":"x"}', b'{"b":"y","a":2}'] * 20
    assert kinds(values) == ["struct<a: int64, b: string>", "struct<b: string, a: int64>"]
    assert kinds(values, HIDDEN) == ["struct<a: int64, b: string>"]


def test_an_array_of_objects_of_one_shape_is_a_list_of_them() -> None:
    values = [b'{"l":[{"x":1},{"x":null}]}', b'{"l":[]}', b'{"l":[{"x":1},{}]}', b'{"l":[{"x":2}]}'] * 10
    assert kinds(values, SHOWN)[-1] == "objects"
    assert kinds(values * 9, SHOWN) != kinds([values[0]] * 99)
    assert kinds([values[0]] * 99) == ["struct<l: list<item: struct<x: int64>>>"]
    assert kinds([values[0], values[1]] * 50) == [
        "struct<l: list<item: struct<x: int64>>>", "struct<l: list<item: null>>",
    ]  # fmt: skip


def test_a_name_that_stands_in_text_with_escapes_is_left_to_the_exact_path() -> None:
    values = [json.dumps({'a"b': 1, "a\\b": 2}).encode()] * 40 + [b'{"a"b":1}', b'{"a\\b":2}']
    converter = JsonConverter({}, is_key=False, limits=LIMITS)
    assert decoded(converter, values, SHOWN) == decoded(exact(), values, SHOWN)


def test_a_name_with_a_zero_is_left_to_the_exact_path_with_its_records() -> None:
    values = [b'{"a":1}'] * 60 + [rb'{"a":1,"\u0000":2}', rb'{"a":1,"o":{"x\u0000":2}}']
    assert kinds(values) == ["struct<a: int64>", "objects"]
    converter = JsonConverter({}, is_key=False, limits=LIMITS)
    converter.decode(values[60:], SHOWN)
    assert decoded(converter, values, SHOWN) == decoded(exact(), values, SHOWN)


def test_rust_reads_the_first_block_and_those_with_new_fields() -> None:
    converter = JsonConverter({}, is_key=False)
    for name in ("d", "e"):
        values = [json.dumps({"id": i, name: i + 0.5}).encode() for i in range(100)]
        found = converter.decode([*values, b'{"id":1.0}'], SHOWN)
        typed, odd = found.values
        assert not isinstance(typed.data, list)
        assert typed.data.to_pylist() == [json.loads(each) for each in values]
        assert odd.data == [{"id": 1.0}]


def test_a_block_of_too_many_shapes_goes_the_exact_path() -> None:
    names = [f"f{i}" for i in range(12)]
    values = [json.dumps({name: 1 for n, name in enumerate(names) if i >> n & 1}).encode() for i in range(1, 3_000)]
    converter = JsonConverter({}, is_key=False)
    converter.decode([json.dumps(dict.fromkeys(names, 1)).encode()] * 40, SHOWN)
    assert decoded(converter, values, SHOWN) == decoded(exact(), values, SHOWN)
