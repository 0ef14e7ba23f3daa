"""Values that somebody should not have sent, from every converter to the rows of a table.

Wherever one stands, and however many there are, it is bad or it is taken as it is; the others are rows as if it were not
there.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from calving.casting.table import TableConverter
from calving.converters.avro import AvroConverter
from calving.converters.interface import Converter, converter
from calving.converters.json import JsonConverter
from calving.converters.plain import BytesConverter, StringConverter
from calving.converters.protobuf import ProtobufConverter
from calving.converters.typed_json import json_value
from calving.model.record_path import Evolution, Limits
from calving.records.fields import Projection
from calving.records.jsontext import parse
from calving.transforms.mongo_changes import parse as parse_document
from harness.registry import SchemaRegistry, avro, framed, serialized
from tests.converters.test_envelope import envelope
from tests.converters.test_protobuf import class_of, file_of

F = descriptor_pb2.FieldDescriptorProto
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "d", DoubleType(), required=False),
)
FIELDS = [
    {"field": "id", "type": "int64", "optional": True},
    {"field": "text", "type": "string", "optional": True},
    {"field": "d", "type": "double", "optional": True},
]
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": n, "type": ["null", t], "default": None}
        for n, t in (("id", "long"), ("text", "string"), ("d", "double"))
    ],
}
GOOD = {"id": 5, "text": "x", "d": 1.5}
LARGE = "x" * 3_000_000
BAD = "bad"


@dataclass
class Sender:
    """How one converter's values are made; ``raw`` makes one of JSON text, where the format is JSON."""

    converter: Callable[[], Converter]
    value: Callable[[dict[str, Any]], bytes]
    raw: Callable[[bytes], bytes] | None = None


@pytest.fixture(params=["json", "envelope", "avro", "protobuf"])
def sender(request: pytest.FixtureRequest, registry: SchemaRegistry) -> Sender:
    url = {"schema.registry.url": registry.url}
    match request.param:
        case "json":
            return Sender(lambda: JsonConverter({}, is_key=False), lambda v: json.dumps(v).encode(), lambda raw: raw)
        case "envelope":
            kind = "org.apache.kafka.connect.json.JsonConverter"
            prefix = json.dumps({"schema": {"type": "struct", "fields": FIELDS}})[:-1].encode() + b', "payload": '
            return Sender(
                lambda: converter(kind, {}, is_key=False),
                lambda v: envelope(FIELDS, v),
                lambda raw: prefix + raw + b"}",
            )
        case "avro":
            number = registry.register("t-value", json.dumps(AVRO))
            return Sender(lambda: AvroConverter(url, is_key=False), lambda v: avro(number, AVRO, v))
    file = file_of(_message)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    made = class_of(file, "t.R")
    return Sender(
        lambda: ProtobufConverter(url, is_key=False), lambda v: framed(number, b"\0" + made(**v).SerializeToString())
    )


def _message(file: Any) -> None:
    r = file.message_type.add(name="R")
    for i, (name, kind) in enumerate((("id", F.TYPE_INT64), ("text", F.TYPE_STRING), ("d", F.TYPE_DOUBLE)), 1):
        r.field.add(name=name, number=i, type=kind, label=F.LABEL_OPTIONAL)


def rows_of(sender: Sender, values: list[bytes]) -> list[dict[str, Any] | str]:
    """For each value its row, or ``BAD``."""
    decoded = sender.converter().decode(values, None)
    found: dict[int, dict[str, Any] | str] = {bad.index: BAD for bad in decoded.bad}
    table = TableConverter("db.t", SCHEMA, Evolution(), {})
    for part in decoded.values:
        places = part.index if part.index is not None else range(len(values))
        converted = table.convert(part)
        found |= {places[bad.index]: BAD for bad in converted.bad}
        if converted.rows is not None:
            kept = converted.index
            found |= {places[i]: row for i, row in zip(kept, converted.rows.to_pylist(), strict=True)}
    assert sorted(found) == list(range(len(values)))
    return [found[i] for i in range(len(values))]


JSON_POISON: dict[str, tuple[bytes, dict[str, Any] | str]] = {
    "empty": (b"", BAD),
    "cut off": (b'{"id":1', BAD),
    "two values": (b'{"id":1}{"id":2}', BAD),
    "invalid UTF-8": (b'{"id":1,"text":"\xff"}', BAD),
    "half a surrogate pair": (b'{"id":1,"text":"\\ud800"}', BAD),
    "half a surrogate pair in a name": (b'{"id":1,"\\uDC00":1}', BAD),
    "nested deeper than any reader goes": (b'{"id":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", BAD),
    "a whole number beyond 64 bits": (b'{"id":99999999999999999999}', BAD),
    "a whole number of 6,000 digits": (b'{"id":' + b"9" * 6_000 + b"}", BAD),
    "a whole number of 6,000 digits that nobody wants": (b'{"id":1,"x":' + b"9" * 6_000 + b"}", BAD),
    "a fraction beyond a double": (b'{"d":1e400}', BAD),
    "a fraction too small for any double": (b'{"d":1e-99999999999999999999}', {"id": None, "text": None, "d": 0.0}),
    "zero with a large exponent": (b'{"d":0e99999999999999999999}', {"id": None, "text": None, "d": 0.0}),
    "NaN": (b'{"d":NaN}', BAD),
    "infinity": (b'{"d":-Infinity}', BAD),
    "a field twice": (b'{"id":1,"id":2}', {"id": 2, "text": None, "d": None}),
    "oversized": (b'{"id":1,"text":"' + LARGE.encode() + b'"}', {"id": 1, "text": LARGE, "d": None}),
}


@pytest.mark.parametrize("sender", ["json", "envelope"], indirect=True)
@pytest.mark.parametrize("name", JSON_POISON)
@pytest.mark.parametrize("place", [0, 7, 15])
def test_a_json_value_is_bad_or_taken_whatever_stands_beside_it(sender: Sender, name: str, place: int) -> None:
    assert sender.raw is not None
    raw, expected = JSON_POISON[name]
    values = [sender.value(GOOD)] * 16
    values[place] = sender.raw(raw)
    assert rows_of(sender, values) == [expected if i == place else GOOD for i in range(16)]


@pytest.mark.parametrize(
    ("sender", "row"), [("json", BAD), ("envelope", {"id": 1, "text": None, "d": None})], indirect=["sender"]
)
@pytest.mark.parametrize("place", [0, 7, 15])
def test_a_fraction_beyond_a_double_that_nobody_wants_is_bad_without_a_schema(
    sender: Sender, row: object, place: int
) -> None:
    assert sender.raw is not None
    values = [sender.value(GOOD)] * 16
    values[place] = sender.raw(b'{"id":1,"x":[1e400]}')
    assert rows_of(sender, values) == [row if i == place else GOOD for i in range(16)]


@pytest.mark.parametrize("place", [0, 7, 15])
@pytest.mark.parametrize("poison", [b"", b"\0", b"\xff" * 40, b'{"id":1', b"\0\0\0\0\1\xff\xff\xff\xff"])
def test_garbage_is_bad_whatever_the_format(sender: Sender, poison: bytes, place: int) -> None:
    values = [sender.value(GOOD)] * 16
    values[place] = poison
    assert rows_of(sender, values) == [BAD if i == place else GOOD for i in range(16)]


def test_one_in_a_hundred_costs_the_others_nothing(sender: Sender) -> None:
    values = [sender.value({**GOOD, "id": i}) if i % 100 != 37 else b"\0poison" for i in range(2_000)]
    assert rows_of(sender, values) == [{**GOOD, "id": i} if i % 100 != 37 else BAD for i in range(2_000)]


def test_a_batch_of_nothing_but_poison_is_bad_to_the_last(sender: Sender) -> None:
    assert rows_of(sender, [b"\0poison"] * 500) == [BAD] * 500


def test_an_oversized_value_is_taken(sender: Sender) -> None:
    large = {**GOOD, "text": LARGE}
    assert rows_of(sender, [sender.value(GOOD), sender.value(large), sender.value(GOOD)]) == [GOOD, large, GOOD]


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_numbers_that_json_has_not_are_taken_from_formats_that_have_them(registry: SchemaRegistry, kind: str) -> None:
    number = registry.register("t-value", json.dumps(AVRO))
    made = Sender(
        lambda: AvroConverter({"schema.registry.url": registry.url}, is_key=False), lambda v: avro(number, AVRO, v)
    )
    if kind == "protobuf":
        file = file_of(_message)
        other, message = registry.register("p-value", serialized(file), "PROTOBUF"), class_of(file, "t.R")
        made = Sender(
            lambda: ProtobufConverter({"schema.registry.url": registry.url}, is_key=False),
            lambda v: framed(other, b"\0" + message(**v).SerializeToString()),
        )
    (row,) = rows_of(made, [made.value({**GOOD, "d": float("nan")})])
    assert isinstance(row, dict) and row["d"] != row["d"]


@pytest.mark.parametrize(("made", "bad"), [(StringConverter, True), (BytesConverter, False)])
def test_text_that_is_not_utf8_is_bad_as_text_and_good_as_bytes(made: type[Converter], bad: bool) -> None:
    decoded = made({}, is_key=False).decode([b"x", b"\xff", b"x" * 3_000_000], None)
    assert [b.index for b in decoded.bad] == ([1] if bad else [])


def test_keys_that_are_always_new_are_not_remembered() -> None:
    decoder = JsonConverter({}, is_key=False, limits=Limits(learned_names=200))
    projection = Projection()

    def decode(blocks: range) -> None:
        for block in blocks:
            values = [b'{"m":{"known":1}}'] * 10 + [b'{"m":{"new %d":1}}' % block]
            assert not decoder.decode(values, projection).bad

    decode(range(500))
    tracemalloc.start()
    try:
        decode(range(500, 1_500))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 20_000  # a key that is remembered takes more than 100 bytes, and these are a thousand


@pytest.mark.parametrize("read", [lambda text: parse(text.encode(), 100), json_value, parse_document])
def test_an_integer_that_is_too_long_to_read_is_named(read: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match=r"^it has an integer of more than 4,300 digits$"):
        read('{"x":' + "9" * 4_301 + "}")
    assert read('{"x":' + "9" * 4_300 + "}") == {"x": int("9" * 4_300)}
