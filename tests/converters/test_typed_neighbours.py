"""The result for a typed value does not depend on other values, nor on the decoder that is used."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from calving.converters.avro import AvroConverter
from calving.converters.interface import Converter, converter
from harness.registry import SchemaRegistry, avro
from tests.converters.decoding import decode

CONNECT = "org.apache.kafka.connect.data."
LEAVES: list[dict[str, Any]] = [
    {"type": "boolean"},
    *({"type": kind} for kind in ("int8", "int16", "int32", "int64", "float", "double", "string", "bytes")),
    {"type": "int32", "name": CONNECT + "Date"},
    {"type": "int32", "name": CONNECT + "Time"},
    {"type": "int64", "name": CONNECT + "Timestamp"},
    {"type": "bytes", "name": CONNECT + "Decimal", "parameters": {"scale": "2"}},
]
TEXTS = [
    *("null", "true", "false", "0", "-0", "-0.0", "1", "-1", "1.0", "1.5", "1e2", "127", "128", "-32769", "86400000"),
    *("2147483648", "9007199254740993", "9223372036854775807", "9223372036854775808", "0.1", "1e39", "3.4028236e38"),
    *("1e400", "1e-400", "1e-99999999999999999999", "NaN", "Infinity", "01", "1.", "+1", "1" * 400, "5" * 5_000),
    *('"x"', '"NaN"', '"-Infinity"', '"aGk="', '"é"', r'"\ud83d\ude00"', r'"\ud800"', r'"\u0000"', '"a\tb"', '"\\x"'),
    *('""', '"1"', "[]", "[1]", "[null]", '["a"]', '{"x":1}', "{}", '{"x":1,"x":2}', '{"y":1}', "", "1 2", "// c"),
]


def a_schema(chance: random.Random, depth: int = 2) -> dict[str, Any]:
    made: dict[str, Any]
    kind = chance.randrange(6) if depth else 0
    if kind == 4:
        made = {"type": "array", "items": a_schema(chance, depth - 1)}
    elif kind == 5:
        fields = [{"field": name, **a_schema(chance, depth - 1)} for name in ("x", "y")[: chance.randint(1, 2)]]
        made = {"type": "struct", "fields": fields}
    else:
        made = dict(chance.choice(LEAVES))
    if chance.random() < 0.6:
        made["optional"] = True
    if made["type"] == "int64" and chance.random() < 0.5:
        made["default"] = 7
    return made


def a_text(chance: random.Random, schema: dict[str, Any]) -> str:
    """JSON that fits more often than not."""
    if chance.random() < 0.1:
        return chance.choice(TEXTS)
    match schema["type"]:
        case "array":
            return f"[{','.join(a_text(chance, schema['items']) for _ in range(chance.randrange(3)))}]"
        case "struct":
            return "{" + ",".join(f'"{f["field"]}":{a_text(chance, f)}' for f in schema["fields"]) + "}"
        case "boolean":
            return "true"
        case "string":
            return '"x"'
        case "bytes":
            return '"aGk="'
    return chance.choice(["1", "0", "-1", "17", "100"])


def outcome(made: Converter, values: list[bytes]) -> list[str]:
    """Each value's column, of one row, or its reason, as text: there -0.0 is not 0.0, and NaN is NaN."""
    decoded = made.decode(values, None)
    found = {b.index: b.reason for b in decoded.bad}
    for part in decoded.values:
        places = part.index if part.index is not None else range(len(values))
        for row, place in enumerate(places):
            cell = part.data[row : row + 1]
            found[place] = str(cell) if isinstance(cell, list) else f"{cell.type} {_text(cell)}"
    return [found[i] for i in range(len(values))]


def _text(cell: pa.Array) -> str:
    try:
        return repr(cell.to_pylist())
    except (OverflowError, ValueError):  # Python has no date beyond the year 9999
        return str(cell)


@pytest.mark.parametrize("seed", range(15))
def test_an_envelope_gives_the_same_alone_and_among_many(seed: int) -> None:
    chance = random.Random(seed)
    fields = [{"field": f"f{i}", **a_schema(chance)} for i in range(chance.randint(1, 4))]
    schema = {"type": "struct", "fields": fields}
    around = json.dumps(schema, separators=chance.choice([(",", ":"), (", ", ": ")]))
    values = []
    for _ in range(60):
        payload = a_text(chance, schema) if chance.random() < 0.95 else chance.choice(TEXTS)
        values.append(f'{{"schema":{around},"payload":{payload}}}'.encode(errors="surrogatepass"))
    name = "org.apache.kafka.connect.json.JsonConverter"
    alone = {value: outcome(converter(name, {}, is_key=False), [value])[0] for value in values}
    kept = converter(name, {}, is_key=False)
    good = [value for value in values if alone[value].startswith("struct")]
    for block in (values, good, good, *([value] * 2 for value in values)):
        assert outcome(kept, block) == [alone[value] for value in block]


def test_what_is_read_at_once_is_read_in_one_column() -> None:
    """Or else the test above would compare one way with itself."""
    schema = '{"type":"struct","fields":[{"field":"v","type":"int64"}]}'
    values = [f'{{"schema":{schema},"payload":{{"v":{i}}}}}'.encode() for i in range(3_000)]
    made = converter("org.apache.kafka.connect.json.JsonConverter", {}, is_key=False)
    decode(made, values[:1])
    assert len(made.decode(values, None).values) == 1
    assert list(decode(made, values).values.values())[-1] == {"v": 2_999}


def test_a_union_s_type_does_not_depend_on_the_values(registry: SchemaRegistry) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": ["null", "int", "string"]}]}
    made = AvroConverter({"schema": json.dumps(schema)}, is_key=False)
    types = [decode(made, [avro(1, schema, {"v": v})[5:]]).types for v in (None, 1, "x")]
    assert types[0] == types[1] == types[2]
