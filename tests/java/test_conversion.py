"""JsonConverter and the sink's RecordConverter: what a JSON value is, and what a column takes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from random import Random
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from tests.java import generate
from tests.java.differences import EVERYWHERE, Found, stale, unlisted
from tests.java.generate import Raw, dumps, envelope
from tests.java.ours import converted, differences, lean, written
from tests.java.reference import Answer, Java, Message, running
from tests.java.value_differences import CONVERSION, CONVERTERS

pytestmark = [pytest.mark.java, pytest.mark.services]
Maker = Callable[[Random], list[Message]]


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def convert(java: Java) -> Callable[[Maker], list[Found]]:
    """Java's other answers; each question is asked once."""
    return cache(partial(_convert, java))


def _convert(java: Java, make: Maker) -> list[Found]:
    messages = make(Random(7))
    return _found("JsonConverter", messages, converted(messages), java.convert(messages))


def _found(where: str, messages: list[Message], ours: list[Answer], theirs: list[Answer]) -> list[Found]:
    return [
        Found(where, path, a, b, str(message.value))
        for message, our, their in zip(messages, ours, theirs, strict=True)
        for path, a, b in differences(lean(our), lean(their))
    ]


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


_MAKERS: list[Maker] = [_without_schemas, _with_schemas]


@pytest.mark.parametrize("make", _MAKERS)
def test_a_converter_gives_what_java_gives(convert: Callable[[Maker], list[Found]], make: Maker) -> None:
    assert not unlisted(convert(make), [*EVERYWHERE, *CONVERTERS])


def test_every_difference_of_converters_is_still_one(convert: Callable[[Maker], list[Found]]) -> None:
    assert not stale(CONVERTERS, [found for make in _MAKERS for found in convert(make)])


_PRIMITIVES = (
    *("boolean", "int", "long", "float", "double", "decimal(9, 2)", "decimal(38, 10)", "string", "uuid"),
    *("binary", "fixed[2]", "date", "time", "timestamp", "timestamptz"),
)
_TYPES: dict[str, Any] = {name: name for name in _PRIMITIVES} | {
    "list": {"type": "list", "element-id": 2, "element": "long", "element-required": False},
    "map": {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "double", "value-required": False},
    "struct": {"type": "struct", "fields": [{"id": 2, "name": "a", "required": False, "type": "string"}]},
}
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


@pytest.fixture(scope="module")
def write(java: Java) -> Callable[[str], list[Found]]:
    """Java's other values in a column of ``_TYPES``; each is asked once."""
    return cache(partial(_write, java))


def _write(java: Java, kind: str) -> list[Found]:
    fields = [{"id": 1, "name": "v", "required": False, "type": _TYPES[kind]}]
    table = {"type": "struct", "schema-id": 0, "fields": fields}
    messages = _values(Random(f"{_TYPES[kind]}"))
    ours = written(Schema(NestedField.model_validate(fields[0])), messages)
    return _found(kind, messages, ours, java.write(table, messages))


@pytest.mark.parametrize("kind", _TYPES)
def test_a_column_takes_what_java_takes(write: Callable[[str], list[Found]], kind: str) -> None:
    assert not unlisted(write(kind), [*EVERYWHERE, *CONVERSION])


def test_every_difference_of_columns_is_still_one(write: Callable[[str], list[Found]]) -> None:
    assert not stale(CONVERSION, [found for kind in _TYPES for found in write(kind)])
