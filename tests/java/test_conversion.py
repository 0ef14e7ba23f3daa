"""JsonConverter and the sink's RecordConverter: what a JSON value is, and what a column takes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from tests.java import generate
from tests.java.differences import CONVERSION, CONVERTERS
from tests.java.generate import Raw, dumps, envelope
from tests.java.ours import converted, differences, lean, written
from tests.java.reference import Java, Message, running

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    with running() as found:
        yield found


def _without_schemas(random: Random) -> list[Message]:
    strange = [
        "",
        " ",
        "null",
        "NaN",
        "[1,]",
        "{} {}",
        '{"a":1,"a":2}',
        "'x'",
        "01",
        "1e400",
        '"\\ud800"',
        "// x\n1",
        "{",
    ]
    return [Message(text) for text in strange] + [Message(dumps(generate.schemaless(random))) for _ in range(400)]


def _with_schemas(random: Random) -> list[Message]:
    found = generate.messages(random, 600)[300:] + generate.bare(random, 300)[150:]
    return [m for m in found if m.typed] + _unfit(random)


def _unfit(random: Random) -> list[Message]:
    """Payloads of another kind than the schema says, missing ones, defaults."""
    found = []
    for _ in range(300):
        schema, _make = generate.primitive(random)
        schema["optional"] = random.random() < 0.5
        payload = random.choice([generate.leaf(random), Raw("1.0"), Raw("1e2"), [1], {"a": 1}])
        if random.random() < 0.2:
            payload = None
        whole = random.random() < 0.5
        described = schema if whole else {"type": "struct", "fields": [{"field": "a", **schema}]}
        found.append(Message(envelope(described, payload if whole else {"a": payload}), True))
    for kind, default in (("int32", 5), ("string", "d"), ("boolean", True), ("double", 1.5)):
        for optional in (True, False):
            fields = [{"field": "a", "type": kind, "default": default, "optional": optional}]
            schema = {"type": "struct", "fields": fields}
            found += [Message(envelope(schema, p), True) for p in ({}, {"a": None}, {"a": default})]
    return found


@pytest.mark.parametrize("make", [_without_schemas, _with_schemas])
def test_a_converter_gives_what_java_gives(java: Java, make: Callable[[Random], list[Message]]) -> None:
    messages = make(Random(7))
    assert not _differing("JsonConverter", CONVERTERS, messages, converted(messages), java.convert(messages))


_TYPES: list[Any] = [
    *("boolean", "int", "long", "float", "double", "decimal(9, 2)", "decimal(38, 10)", "string", "uuid"),
    *("binary", "fixed[2]", "date", "time", "timestamp", "timestamptz"),
    {"type": "list", "element-id": 2, "element": "long", "element-required": False},
    {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "double", "value-required": False},
    {"type": "struct", "fields": [{"id": 2, "name": "a", "required": False, "type": "string"}]},
]
_TEXTS = (
    *("2024-01-02", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05.678901", "2024-01-02T03:04:05.678+01:00", "03:04"),
    *("03:04:05.6", "24:00:00", "2024-02-30", "aGk=", "aGk", "a", "00112233-4455-6677-8899-aabbccddeeff", "1-2-3-4-5"),
    *("1.5d", "0x10", "-Infinity", "1e5", "99999999999", "1234567.895", "+5", "12:00:00Z", "2024-01-02T03:04:05+0100"),
)


def _values(random: Random) -> list[Message]:
    found = [Message(dumps({"v": generate.schemaless(random, 1)})) for _ in range(120)]
    found += [Message(dumps({"v": text})) for text in _TEXTS]
    for _ in range(120):
        schema, make = generate.described(random, 1)
        described = {"type": "struct", "fields": [{"field": "v", **schema}]}
        found.append(Message(envelope(described, {"v": make()}), True))
    return found


@pytest.mark.parametrize("kind", _TYPES, ids=str)
def test_a_column_takes_what_java_takes(java: Java, kind: Any) -> None:
    fields = [{"id": 1, "name": "v", "required": False, "type": kind}]
    table = {"type": "struct", "schema-id": 0, "fields": fields}
    column = NestedField.model_validate(fields[0])
    messages = _values(Random(f"{kind}"))
    where = kind if isinstance(kind, str) else kind["type"]
    ours = written(Schema(column), messages)
    assert not _differing(where, CONVERSION, messages, ours, java.write(table, messages))


def _differing(where: str, allowed: Any, messages: list[Message], ours: list[Any], theirs: list[Any]) -> list[str]:
    return [
        f"{path}: Java {a}, we {b}, of {message.value}"
        for message, our, their in zip(messages, ours, theirs, strict=True)
        for path, a, b in differences(lean(our), lean(their))
        if not any(d.allows(where, path, a, b, str(message.value)) for d in allowed)
    ]
