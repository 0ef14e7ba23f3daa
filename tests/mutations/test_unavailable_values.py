"""Updates from which Debezium's source has left out a value (Postgres's TOAST, Oracle's LOBs)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calving.model.record_path import ConverterSpec, Evolution, TopicConverters, TransformSpec
from calving.model.tables import RowMutations
from harness.registry import SchemaRegistry, avro, serving
from tests.mutations.changing import NAME, Changing, Message

TEXT = "__debezium_unavailable_value"
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""What ``UUID.nameUUIDFromBytes`` of Java 17 makes of the text."""
DEBEZIUM = TransformSpec("unwrap", "DebeziumTransform")
SOURCE = {"db": "shop", "schema": "public", "table": "t"}
FORMS: dict[str, Any] = {
    "text": TEXT,
    "bytes": base64.b64encode(TEXT.encode()).decode(),
    "hexadecimal bytes": TEXT.encode().hex(),
    "array of texts": [TEXT],
    "array of UUIDs": [UUID],
    "array of bytes": [base64.b64encode(TEXT.encode()).decode()],
    "array of numbers": [*TEXT.encode()],
    "hstore as a map": {TEXT: TEXT},
    "hstore as JSON": json.dumps({TEXT: TEXT}, separators=(",", ":")),
}


def event(op: str, row: dict[str, Any]) -> Message:
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {"id": row["id"]}, {"op": op, "ts_ms": 1, "source": SOURCE, **sides}


def reason(field: str, text: str = TEXT) -> str:
    return (
        f"table {NAME}: field '{field}' has the placeholder {text}: the source has left out a value that did not"
        " change, and the placeholder would replace it: let the source write whole rows (in Postgres REPLICA IDENTITY"
        " FULL), or choose on-unavailable-value = keep or write"
    )


def mirror(folder: Path, **settings: Any) -> Changing:
    return Changing(
        folder,
        RowMutations("_cdc.op", **settings),
        evolution=Evolution(create=True, evolve=True),
        transforms=(DEBEZIUM,),
    )


@pytest.mark.parametrize("beside", [1, 2**70], ids=["columns", "objects"])
@pytest.mark.parametrize("form", FORMS)
def test_an_update_without_a_value_is_bad_in_every_form(tmp_path: Path, form: str, beside: int) -> None:
    sink = mirror(tmp_path)
    sink.take(event("c", {"id": 1, "v": 1}), event("c", {"id": 2, "v": 1}))
    outcome = sink.take(
        event("u", {"id": 1, "v": 2, "big": FORMS[form], "n": beside}), event("u", {"id": 2, "v": 3, "n": beside})
    )
    assert sink.reasons(outcome) == [(2, reason("big"))]
    assert sink.rows("id", "v") == [(1, 1), (2, 3)]


def test_a_value_inside_an_object_counts(tmp_path: Path) -> None:
    outcome = mirror(tmp_path).take(event("c", {"id": 2}), event("u", {"id": 1, "a": {"b": {"c": TEXT}}}))
    assert [why for _, why in mirror(tmp_path).reasons(outcome)] == [reason("a.b.c")]


@pytest.mark.parametrize("value", ["", TEXT + " ", f"a {TEXT}", [TEXT, TEXT], [], [95, 95], {TEXT: TEXT, "a": "b"}])
def test_a_value_that_is_only_alike_is_written(tmp_path: Path, value: Any) -> None:
    sink = mirror(tmp_path)
    outcome = sink.take(event("c", {"id": 1, "v": value}))
    assert (outcome.dead_letters, sink.rows("id")) == ((), [(1,)])


@pytest.mark.parametrize("text", ["(left out)", "nicht verfügbar"])
def test_a_source_may_have_another_placeholder(tmp_path: Path, text: str) -> None:
    sink = mirror(tmp_path, unavailable_value_placeholder=text)
    outcome = sink.take(
        event("c", {"id": 1, "v": TEXT}),
        event("u", {"id": 2, "v": text}),
        event("u", {"id": 3, "v": [*text.encode()]}),
    )
    assert sink.reasons(outcome) == [(1, reason("v", text)), (2, reason("v", text))]


def test_a_placeholder_may_be_written(tmp_path: Path) -> None:
    sink = mirror(tmp_path, on_unavailable_value="write")
    sink.take(event("c", {"id": 1, "v": "a"}))
    assert sink.take(event("u", {"id": 1, "v": TEXT})).dead_letters == ()
    assert sink.rows("id", "v") == [(1, TEXT)]


def test_a_delete_needs_only_its_key(tmp_path: Path) -> None:
    sink = mirror(tmp_path)
    sink.take(event("c", {"id": 1, "v": "a"}))
    assert sink.take(event("d", {"id": 1, "v": TEXT})).dead_letters == ()
    assert sink.rows("id") == []


def test_a_table_to_which_rows_are_added_keeps_what_the_source_wrote(tmp_path: Path) -> None:
    sink = Changing(tmp_path, None, transforms=(DEBEZIUM,))
    sink.take(event("u", {"id": 1, "v": TEXT}))
    assert sink.rows("id", "v") == [(1, TEXT)]


def test_avro_says_what_is_bytes_and_what_is_an_array(tmp_path: Path) -> None:
    fields: dict[str, tuple[Any, Any, Any]] = {
        "b": ("bytes", TEXT.encode(), b"x"),
        "n": ({"type": "array", "items": "int"}, [*TEXT.encode()], [1, 2]),
        "l": ({"type": "array", "items": "long"}, [*TEXT.encode()], [1, 2]),
        "t": ({"type": "array", "items": "string"}, [TEXT], ["x"]),
        "h": ({"type": "map", "values": "string"}, {TEXT: TEXT}, {"a": "x"}),
    }
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "id", "type": "long"}, {"name": "op", "type": "string"}]
        + [{"name": name, "type": kind} for name, (kind, _, _) in fields.items()],
    }
    whole = {name: value for name, (_, _, value) in fields.items()}
    with serving() as registry:
        encode = avro_of(registry, schema)
        spec = ConverterSpec("avro", {"schema.registry.url": registry.url})
        sink = Changing(tmp_path, RowMutations("op"), converters=TopicConverters(ConverterSpec("json"), spec))
        rows = [{"id": 9, "op": "c", **whole}]
        rows += [{"id": n, "op": "u", **whole, name: fields[name][1]} for n, name in enumerate(fields)]
        outcome = sink.take(*((None, encode(row)) for row in rows))
    assert sink.reasons(outcome) == [(n, reason(name)) for n, name in enumerate(fields, 1)]
    assert sink.rows("id") == [(9,)]


def test_a_number_that_debezium_writes_as_an_object_is_no_placeholder(tmp_path: Path) -> None:
    scaled = [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]
    price = {"field": "p", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": scaled}
    plain = [{"field": "id", "type": "int64"}, {"field": "op", "type": "string"}]
    schema = {"type": "struct", "fields": [*plain, price]}
    spec = ConverterSpec("json", {"schemas.enable": "true"})
    sink = Changing(tmp_path, RowMutations("op"), converters=TopicConverters(ConverterSpec("json"), spec))
    payload = {"id": 1, "op": "u", "p": {"scale": 1, "value": base64.b64encode(b"\x0f").decode()}}
    assert sink.take((None, {"schema": schema, "payload": payload})).dead_letters == ()
    assert sink.rows("id") == [(1,)]


def avro_of(registry: SchemaRegistry, schema: dict[str, Any]) -> Callable[[dict[str, Any]], bytes]:
    number = registry.register("s", json.dumps(schema))
    return lambda row: avro(number, schema, row)
