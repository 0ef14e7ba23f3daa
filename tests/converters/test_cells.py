"""The cells of a record are bounded before its columns are made, in every format, with Rust and without."""

from __future__ import annotations

import json
import time
import tracemalloc
from io import BytesIO
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from calving.converters.interface import converter
from calving.converters.native import SWITCH
from calving.model.record_path import Limits
from calving.records.cells import FullBlockError
from harness.registry import SchemaRegistry, framed, serialized
from tests.converters.decoding import decode
from tests.converters.hostile import F

COLUMNS, MOST = 500, 100_000
LIMITS = Limits(cells=MOST)
REFUSED = "iceberg.limits.cells = 100000"
FORMATS = ("avro", "json-schema", "connect", "protobuf")


def _fields() -> range:
    return range(COLUMNS)


def _avro() -> Any:
    fields = [{"name": f"f{i}", "type": ["null", "int"]} for i in _fields()]
    element = {"type": "record", "name": "E", "fields": fields}
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": {"type": "array", "items": ["null", element]}}],
    }


def _json() -> Any:
    element = {"type": "object", "properties": {f"f{i}": {"type": "integer"} for i in _fields()}}
    return {"type": "object", "properties": {"a": {"type": "array", "items": element}}}


def _connect() -> Any:
    element = {"type": "struct", "fields": [{"field": f"f{i}", "type": "int32", "optional": True} for i in _fields()]}
    return {"type": "struct", "fields": [{"field": "a", "type": "array", "items": element}]}


def _protobuf() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="c.proto", package="c", syntax="proto3")
    root = file.message_type.add(name="R")
    root.field.add(name="a", number=1, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=".c.E")
    element = file.message_type.add(name="E")
    for i in _fields():
        element.field.add(name=f"f{i}", number=i + 1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    return file


def _value(kind: str, number: int, elements: int) -> bytes:
    """A record with so many elements without values."""
    match kind:
        case "avro":
            body = BytesIO()
            fastavro.schemaless_writer(body, fastavro.parse_schema(_avro()), {"a": [None] * elements})
            return framed(number, body.getvalue())
        case "protobuf":
            return framed(number, b"\0" + b"\x0a\0" * elements)
    payload = json.dumps({"a": [{}] * elements}).encode()
    if kind == "connect":
        return b'{"schema":%s,"payload":%s}' % (json.dumps(_connect()).encode(), payload)
    return framed(number, payload)


@pytest.fixture(params=["1", "0"], ids=["with Rust", "without"], autouse=True)
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, request.param)


@pytest.fixture(params=FORMATS)
def schemas(request: pytest.FixtureRequest, registry: SchemaRegistry) -> tuple[Any, Any]:
    """A function that makes a converter, and one that makes a record of another schema with so many elements."""
    kind = request.param
    name, options = ("json", {"schemas.enable": "true"}) if kind == "connect" else (kind, {})
    options = options or {"schema.registry.url": registry.url}
    texts = {"avro": lambda: json.dumps(_avro()), "json-schema": lambda: json.dumps(_json())}
    text = texts.get(kind, lambda: serialized(_protobuf()))()

    def value(elements: int) -> bytes:
        form = {"avro": "AVRO", "json-schema": "JSON"}.get(kind, "PROTOBUF")
        return _value(kind, registry.register("s", text, form), elements)

    return lambda: converter(name, options, is_key=False, limits=LIMITS), value


@pytest.fixture
def source(schemas: tuple[Any, Any]) -> tuple[Any, Any]:
    """A function that makes a converter, and one that makes a record of one schema with so many elements."""
    make, other = schemas
    first = other(1)
    return make, lambda elements: first[:5] + other(elements)[5:]


FITS = (MOST - 1) // (COLUMNS - 1)


def test_a_record_with_too_many_cells_is_bad_alone(source: tuple[Any, Any]) -> None:
    make, value = source
    assert not decode(make(), [value(1), value(FITS)]).bad
    found = decode(make(), [value(1), value(FITS + 1)])
    assert found.bad.keys() == {1}
    assert REFUSED in found.bad[1]


def test_a_short_record_of_many_elements_takes_little(source: tuple[Any, Any]) -> None:
    make, value = source
    reader, hostile = make(), value(20_000)  # 10 million cells, 80 MB
    decode(reader, [value(1)])
    tracemalloc.start()
    began = time.process_time()
    try:
        assert REFUSED in decode(reader, [hostile]).bad[0]
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 2


def test_records_with_too_many_cells_together_are_to_be_divided(source: tuple[Any, Any]) -> None:
    make, value = source
    with pytest.raises(FullBlockError):
        make().decode([value(FITS)] * 8, None)
    assert not decode(make(), [value(FITS)]).bad


def test_records_of_many_schemas_take_no_more_together_than_those_of_one(schemas: tuple[Any, Any]) -> None:
    make, value = schemas
    with pytest.raises(FullBlockError):
        make().decode([value(FITS) for _ in range(20)], None)
    assert not decode(make(), [value(FITS)]).bad
