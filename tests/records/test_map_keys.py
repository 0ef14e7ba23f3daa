"""The keys of maps: Iceberg lets no type in them change, and no two keys of a map are equal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from calving.model.record_path import Evolution, RouteRule, Routing
from tests.fuzz.sink import Found, Run, Sink, Target

ONE, FIXED, EVOLVE = Routing((RouteRule("db.t"),)), Evolution(), Evolution(evolve=True)
CONNECT = "org.apache.kafka.connect.data."
POINT = StructType(NestedField(12, "a", IntegerType(), required=True))
DECIMAL = {
    "type": "bytes",
    "name": f"{CONNECT}Decimal",
    "parameters": {"scale": "3", "connect.decimal.precision": "9"},
}


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    made = Sink(tmp_path_factory.mktemp("sink") / "warehouse")
    yield made
    made.close()


def field(name: str, kind: str, *, optional: bool = False) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": optional}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": False}


def envelope(key: dict[str, Any], *pairs: list[Any]) -> bytes:
    kind = {"type": "map", "keys": key, "values": {"type": "int32", "optional": True}}
    schema = struct({"field": "m", "optional": True, **kind})
    return json.dumps({"schema": schema, "payload": {"m": pairs}}).encode()


def take(sink: Sink, key: IcebergType, evolution: Evolution, *records: bytes) -> Found:
    columns = MapType(10, key, 11, LongType(), False)
    target = Target("db.t", Schema(NestedField(1, "m", columns, required=False)))
    converters = sink.use("json" if b"schema" not in records[0] else "envelope", [])
    found = sink.take(Run(ONE, evolution, converters), [target], records)
    assert found.error is None
    return found


GOOD = [{"a": 1}, 1]


@pytest.mark.parametrize(
    ("key", "pair"),
    [
        (struct(field("b", "int32")), [{"b": 1}, 2]),
        (struct(field("a", "int32", optional=True)), [{"a": None}, 2]),
        (struct(field("a", "int64")), [{"a": 2**40}, 2]),
        (struct(field("a", "int32"), field("b", "string")), [{"a": 2, "b": "x"}, 2]),
    ],
    ids=["missing", "null", "too large", "another field"],
)
def test_a_record_whose_map_needs_other_keys_than_the_column_is_bad(
    sink: Sink, key: dict[str, Any], pair: list[Any]
) -> None:
    records = [envelope(struct(field("a", "int32")), GOOD), envelope(key, pair)]
    found = take(sink, POINT, EVOLVE, *records)
    assert list(found.dead) == [1] and "m.key" in found.reasons[1]
    assert found.rows["db.t"].total() == 1


@pytest.mark.parametrize(("kind", "key"), [(IntegerType(), "3000000000"), (FloatType(), "1e300")])
def test_a_key_that_is_too_large_is_bad_for_that_reason(sink: Sink, kind: IcebergType, key: str) -> None:
    found = take(sink, kind, EVOLVE, b'{"m": {"1": 2}}', json.dumps({"m": {key: 2}}).encode())
    assert list(found.dead) == [1] and "fit" in found.reasons[1]


@pytest.mark.parametrize(
    ("kind", "key", "pairs"),
    [
        (DecimalType(9, 2), DECIMAL, [[1.001, 3], [1.002, 4]]),
        (FloatType(), {"type": "double"}, [[0.1, 3], [0.10000000001, 4]]),
        (POINT, struct(field("a", "int32"), field("b", "string")), [[{"a": 5, "b": "x"}, 3], [{"a": 5, "b": "y"}, 4]]),
    ],
    ids=["decimal", "float", "struct"],
)
def test_a_map_in_which_two_keys_become_one_is_bad(
    sink: Sink, kind: IcebergType, key: dict[str, Any], pairs: list[Any]
) -> None:
    found = take(sink, kind, FIXED, envelope(key, *pairs), envelope(key, pairs[0]))
    assert found.reasons.keys() == {0} and "comes twice" in found.reasons[0]
    assert found.rows["db.t"].total() == 1


def test_keys_of_a_wider_type_that_fit_are_written(sink: Sink) -> None:
    found = take(sink, IntegerType(), EVOLVE, envelope({"type": "int64"}, [1, 2], [2, 3]))
    assert list(found.rows["db.t"]) == [("m: <1: 2, 2: 3>",)]


def test_equal_keys_of_two_records_are_no_matter(sink: Sink) -> None:
    one = envelope({"type": "int32"}, [1, 2])
    assert take(sink, StringType(), FIXED, one, one).rows["db.t"].total() == 2
