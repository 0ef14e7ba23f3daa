"""Protobuf messages become columns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, timestamp_pb2, wrappers_pb2

from calving.converters.avro import AvroConverter
from calving.converters.protobuf import ProtobufConverter
from calving.converters.protobuf_files import known_file
from calving.errors import ConfigError
from harness.registry import SchemaRegistry, framed, serialized
from tests.converters.decoding import decode

F = descriptor_pb2.FieldDescriptorProto
Message = Callable[..., Any]


def file_of(build: Callable[[Any], None], *imports: str, name: str = "t.proto") -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=name, package="t", syntax="proto3", dependency=imports)
    build(file)
    return file


def class_of(file: Any, message: str, *others: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2, struct_pb2):
        known = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(known)
        pool.Add(known)
    for other in (*others, file):
        pool.Add(other)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))


def rich(file: Any) -> None:
    e = file.message_type.add(name="E")

    def add(name: str, kind: int, label: int = F.LABEL_OPTIONAL, **more: Any) -> None:
        e.field.add(name=name, number=len(e.field) + 1, type=kind, label=label, **more)

    add("id", F.TYPE_INT64)
    add("text", F.TYPE_STRING)
    add("raw", F.TYPE_BYTES)
    add("big", F.TYPE_UINT64)
    add("at", F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    add("count", F.TYPE_MESSAGE, type_name=".google.protobuf.Int64Value")
    add("any", F.TYPE_MESSAGE, type_name=".google.protobuf.Struct")
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    add("color", F.TYPE_ENUM, type_name=".t.Color")
    add("tags", F.TYPE_STRING, F.LABEL_REPEATED)
    e.oneof_decl.add(name="choice")
    add("a", F.TYPE_INT32, oneof_index=0)
    add("b", F.TYPE_STRING, oneof_index=0)
    entry = e.nested_type.add(name="AttrsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    add("attrs", F.TYPE_MESSAGE, F.LABEL_REPEATED, type_name=".t.E.AttrsEntry")
    inner = e.nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=F.TYPE_DOUBLE, label=F.LABEL_OPTIONAL)
    add("inner", F.TYPE_MESSAGE, type_name=".t.E.Inner")


IMPORTS = ("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "google/protobuf/struct.proto")


def converter(registry: SchemaRegistry) -> ProtobufConverter:
    return ProtobufConverter({"schema.registry.url": registry.url}, is_key=False)


def test_every_type_is_decoded(registry: SchemaRegistry) -> None:
    file = file_of(rich, *IMPORTS)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    message = class_of(file, "t.E")(
        id=7, text="é", raw=b"\xff", big=2**64 - 1, color=1, tags=["x"], b="chosen", attrs={"k": 5}
    )
    message.at.FromDatetime(datetime(2024, 1, 2, 3, 4, 5, 678901))
    message.count.value = 3
    message.any.update({"q": [1, None]})
    message.inner.x = 1.5
    found = decode(converter(registry), [framed(number, b"\x00" + message.SerializeToString())])
    assert found.values[0] == {
        "id": 7,
        "text": "é",
        "raw": b"\xff",
        "big": 2**64 - 1,
        "at": datetime(2024, 1, 2, 3, 4, 5, 678901, UTC),
        "count": 3,
        "any": {"q": [1, None]},
        "color": "BLUE",
        "tags": ["x"],
        "a": None,
        "b": "chosen",
        "attrs": [("k", 5)],
        "inner": {"x": 1.5},
    }


@pytest.mark.parametrize(("text", "kind"), [('"long"', "AVRO"), ('{"type": "object"}', "JSON")])
def test_a_value_that_names_a_schema_of_another_kind_is_bad(registry: SchemaRegistry, text: str, kind: str) -> None:
    found = decode(converter(registry), [framed(registry.register("t-value", text, kind), b"\x00")])
    assert f"the schema registry has an {kind} schema there, not a Protobuf one" in found.bad[0]


def test_a_value_of_another_converter_that_names_a_protobuf_schema_is_bad_and_no_other(
    registry: SchemaRegistry,
) -> None:
    file = file_of(rich, *IMPORTS)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    avro = AvroConverter({"schema.registry.url": registry.url}, is_key=False)
    assert decode(avro, [framed(number, b"\x00")]).bad
    assert decode(converter(registry), [framed(number, b"\x00")]).values


def test_what_has_presence_and_is_absent_is_null(registry: SchemaRegistry) -> None:
    file = file_of(rich, *IMPORTS)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    found = decode(converter(registry), [framed(number, b"\x00")]).values[0]
    assert [n for n, v in found.items() if v is None] == ["at", "count", "any", "a", "b", "inner"]
    assert (found["id"], found["color"], found["tags"]) == (0, "RED", [])


def test_the_message_is_chosen_by_its_indexes(registry: SchemaRegistry) -> None:
    file = file_of(rich, *IMPORTS)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    inner = class_of(file, "t.E.Inner")(x=2.5)
    # Two indexes, 0 and 1, as zigzag varints: the second nested type of the first message.
    found = decode(converter(registry), [framed(number, b"\x04\x00\x02" + inner.SerializeToString())])
    assert found.values == {0: {"x": 2.5}}


def test_a_registry_that_answers_with_text_stops_the_sink(registry: SchemaRegistry) -> None:
    """It is not the records' fault, so they are no dead letters."""
    number = registry.register("t-value", serialized(file_of(rich)), "PROTOBUF")
    registry.serializes = False
    with pytest.raises(ConfigError, match=r"gives the text of a Protobuf schema .*: use Confluent's Schema Registry"):
        decode(converter(registry), [framed(number, b"\x00")])


def test_imports_are_followed(registry: SchemaRegistry) -> None:
    def money(file: Any) -> None:
        file.message_type.add(name="Money").field.add(name="cents", number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)

    def order(file: Any) -> None:
        file.message_type.add(name="Order").field.add(
            name="price", number=1, type=F.TYPE_MESSAGE, type_name=".t.Money", label=F.LABEL_OPTIONAL
        )

    inner, outer = file_of(money, name="money.proto"), file_of(order, "money.proto", name="order.proto")
    registry.register("money", serialized(inner), "PROTOBUF")
    reference = {"name": "money.proto", "subject": "money", "version": 1}
    number = registry.register("t-value", serialized(outer), "PROTOBUF", [reference])
    message = class_of(outer, "t.Order", inner)()
    message.price.cents = 5
    found = decode(converter(registry), [framed(number, b"\x00" + message.SerializeToString())])
    assert found.values == {0: {"price": {"cents": 5}}}


@pytest.mark.parametrize("poison", [b"", b"xyz", framed(9, b"\x00"), framed(1, b""), framed(1, b"\x00\xff\xff")])
def test_a_poison_value_is_told_from_the_others(registry: SchemaRegistry, poison: bytes) -> None:
    file = file_of(rich, *IMPORTS)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    good = framed(number, b"\x00" + class_of(file, "t.E")(id=1).SerializeToString())
    found = decode(converter(registry), [good, poison, good])
    assert list(found.bad) == [1]
    assert [v["id"] for v in found.values.values()] == [1, 1]


def test_a_message_that_contains_itself_is_bad(registry: SchemaRegistry) -> None:
    def node(file: Any) -> None:
        file.message_type.add(name="Node").field.add(
            name="next", number=1, type=F.TYPE_MESSAGE, type_name=".t.Node", label=F.LABEL_OPTIONAL
        )

    number = registry.register("t-value", serialized(file_of(node)), "PROTOBUF")
    assert "contains itself" in decode(converter(registry), [framed(number, b"\x00")]).bad[0]


def payment(file: Any) -> None:
    message = file.message_type.add(name="Payment")
    for number, (name, kind) in enumerate(
        (
            ("amount", ".confluent.type.Decimal"),
            ("fee", ".confluent.type.Decimal"),
            ("day", ".google.type.Date"),
            ("at", ".google.type.TimeOfDay"),
            ("price", ".google.type.Money"),
            ("place", ".google.type.LatLng"),
            ("span", ".google.type.Interval"),
        ),
        1,
    ):
        message.field.add(name=name, number=number, type=F.TYPE_MESSAGE, type_name=kind, label=F.LABEL_OPTIONAL)
    # The option (confluent.field_meta) = {params: [{key: "precision", value: "10"}, {key: "scale", value: "2"}]}.
    entries = b"".join(b"\x12" + bytes([len(e)]) + e for e in (b"\n\tprecision\x12\x0210", b"\n\x05scale\x12\x012"))
    message.field[0].options.MergeFromString(b"\x82\x44" + bytes([len(entries)]) + entries)


BUILT_IN = [
    f"{name}.proto"
    for name in (
        "confluent/meta",
        "confluent/type/decimal",
        "google/type/date",
        "google/type/timeofday",
        "google/type/money",
        "google/type/latlng",
        "google/type/interval",
    )
]


def payments(registry: SchemaRegistry, *messages: dict[str, Any]) -> Any:
    file = file_of(payment, *BUILT_IN)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    pool = descriptor_pool.DescriptorPool()
    done: set[str] = set()

    def add(name: str) -> None:
        if name not in done:
            done.add(name)
            known = known_file(name)
            assert known is not None
            for inner in known.dependency:
                add(inner)
            pool.Add(known)

    for name in BUILT_IN:
        add(name)
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Payment"))
    return decode(converter(registry), [framed(number, b"\x00" + made(**m).SerializeToString()) for m in messages])


def unscaled(number: int, scale: int) -> dict[str, Any]:
    return {"value": number.to_bytes(8, "big", signed=True), "scale": scale}


def test_files_that_the_serializer_has_built_in_need_no_reference(registry: SchemaRegistry) -> None:
    found = payments(registry, {"price": {"currency_code": "EUR", "units": 5}, "place": {"latitude": 1.5}})
    assert found.values[0]["price"] == {"currency_code": "EUR", "units": 5, "nanos": 0}
    assert found.values[0]["place"] == {"latitude": 1.5, "longitude": 0.0}


def test_a_decimal_has_the_precision_and_scale_of_its_field(registry: SchemaRegistry) -> None:
    found = payments(registry, {"amount": unscaled(-1234, 2)}, {"amount": unscaled(15, 1)})
    assert [found.values[i]["amount"] for i in (0, 1)] == [Decimal("-12.34"), Decimal("1.50")]
    assert "amount: decimal128(10, 2)" in found.types[0]


@pytest.mark.parametrize("value", [unscaled(12345, 3), unscaled(10**10, 0), unscaled(1, 2**31 - 1)])
def test_a_decimal_beyond_its_field_is_bad(registry: SchemaRegistry, value: dict[str, Any]) -> None:
    assert list(payments(registry, {"amount": value}).bad) == [0]


def test_a_decimal_whose_field_gives_no_scale_is_its_digits(registry: SchemaRegistry) -> None:
    found = payments(registry, {"fee": unscaled(-123456, 4)}, {"fee": unscaled(5, -3)})
    assert [found.values[i]["fee"] for i in (0, 1)] == ["-12.3456", "5000"]


def test_dates_and_times_of_day_are_dates_and_times(registry: SchemaRegistry) -> None:
    found = payments(
        registry,
        {
            "day": {"year": 2024, "month": 2, "day": 29},
            "at": {"hours": 23, "minutes": 59, "seconds": 58, "nanos": 123456789},
        },
    )
    assert (found.values[0]["day"], found.values[0]["at"]) == (date(2024, 2, 29), time(23, 59, 58, 123456))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"day": {"year": 2023, "month": 2, "day": 29}}, "field 'day': year 2023, month 2, day 29 is not a date"),
        ({"day": {"year": 2024, "month": 2}}, "field 'day': year 2024, month 2, day 0 is not a date"),
        ({"at": {"hours": 24}}, "field 'at': 24 h, 0 min, 0 s and 0 ns are not within a google.type.TimeOfDay"),
        ({"at": {"nanos": -1}}, "field 'at': 0 h, 0 min, 0 s and -1 ns are not within a google.type.TimeOfDay"),
        (
            {"span": {"start_time": {"seconds": 253_402_300_800}}},
            "field 'span.start_time': 253402300800 s and 0 ns are not a google.protobuf.Timestamp",
        ),
    ],
)
def test_what_is_no_day_and_no_time_is_bad_and_its_field_is_named(
    registry: SchemaRegistry, message: dict[str, Any], reason: str
) -> None:
    assert payments(registry, message, {}).bad == {0: reason}


def test_enums_may_be_numbers(registry: SchemaRegistry) -> None:
    file = file_of(rich, *IMPORTS)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    made = ProtobufConverter({"schema.registry.url": registry.url, "int.for.enums": "true"}, is_key=False)
    found = decode(made, [framed(number, b"\x00" + class_of(file, "t.E")(color=1).SerializeToString())])
    assert found.values[0]["color"] == 1


def test_a_negative_message_index_is_bad(registry: SchemaRegistry) -> None:
    number = registry.register("t-value", serialized(file_of(rich, *IMPORTS)), "PROTOBUF")
    assert "message index -1" in decode(converter(registry), [framed(number, b"\x02\x01")]).bad[0]


def test_an_import_that_nobody_has_makes_bad_records(registry: SchemaRegistry) -> None:
    number = registry.register("t-value", serialized(file_of(rich, *IMPORTS, "lost.proto")), "PROTOBUF")
    assert "lost.proto" in decode(converter(registry), [framed(number, b"\x00")]).bad[0]


def test_a_number_with_several_names_has_the_first(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(file: Any) -> None:
        enum = file.enum_type.add(name="Step")
        enum.options.allow_alias = True
        for name, number in (("NONE", 0), ("ONE", 1), ("ALSO_ONE", 1), ("NIL", 0)):
            enum.value.add(name=name, number=number)
        message = file.message_type.add(name="M")
        message.field.add(name="step", number=1, type=F.TYPE_ENUM, type_name=".t.Step", label=F.LABEL_OPTIONAL)

    number = registry.register("t-value", serialized(file_of(build)), "PROTOBUF")
    values = [framed(number, b"\x00\x08\x01"), framed(number, b"\x00")]
    for native in ("1", "0"):
        monkeypatch.setenv("CALVING_NATIVE", native)
        found = decode(converter(registry), values)
        assert (found.bad, found.values) == ({}, {0: {"step": "ONE"}, 1: {"step": "NONE"}})


def test_a_field_may_have_the_name_of_a_method_of_messages(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [*dir(struct_pb2.Struct()), "Extensions", "mro"]

    def build(file: Any) -> None:
        file.syntax = "proto2"
        message = file.message_type.add(name="M")
        for number, name in enumerate(names, 1):
            message.field.add(name=name, number=number, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)

    file = file_of(build)
    number = registry.register("t-value", serialized(file), "PROTOBUF")
    made = class_of(file, "t.M").FromString(
        b"".join(
            bytes([i << 3, i]) if i < 16 else bytes([i << 3 & 0x7F | 0x80, i >> 4, i]) for i in range(2, len(names))
        )
    )
    body = type(made).SerializeToString(made)
    for native in ("1", "0"):
        monkeypatch.setenv("CALVING_NATIVE", native)
        found = decode(converter(registry), [framed(number, b"\x00" + body)])
        assert found.bad == {}
        assert found.values[0] == {n: i if 2 <= i < len(names) else None for i, n in enumerate(names, 1)}


def test_a_message_index_that_the_schema_lacks_is_named(registry: SchemaRegistry) -> None:
    number = registry.register("t-value", serialized(file_of(rich, *IMPORTS)), "PROTOBUF")
    found = decode(converter(registry), [framed(number, b"\x02\x0e"), framed(number, b"\x04\x00\x0e")])
    assert [reason.partition(": ")[2] for reason in found.bad.values()] == [
        "message index 7: the schema has only 1 messages there",
        "message index 7: the schema has only 2 messages there",
    ]


def test_a_message_without_a_required_field_is_bad_at_any_depth(registry: SchemaRegistry) -> None:
    def build(file: Any) -> None:
        file.syntax = "proto2"
        message, inner = file.message_type.add(name="M"), file.message_type.add(name="I")
        for each in (message, inner):
            each.field.add(name="must", number=1, type=F.TYPE_INT64, label=F.LABEL_REQUIRED)
        for number, label in ((2, F.LABEL_OPTIONAL), (3, F.LABEL_REPEATED)):
            name = f"inner{number}"
            message.field.add(name=name, number=number, type=F.TYPE_MESSAGE, type_name=".t.I", label=label)

    number = registry.register("t-value", serialized(file_of(build)), "PROTOBUF")
    bodies = (b"", b"\x08\1\x12\0", b"\x08\1\x1a\2\x08\1\x1a\0", b"\x08\1", b"\x08\1\x12\2\x08\5")
    found = decode(converter(registry), [framed(number, b"\0" + body) for body in bodies])
    reasons = [f"required fields are missing: {name}" for name in ("must", "inner2.must", "inner3[1].must")]
    assert list(found.bad.values()) == reasons
    assert [row["must"] for row in found.values.values()] == [1, 1]


def test_a_message_index_that_names_the_entry_of_a_map_is_bad(registry: SchemaRegistry) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="e", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=1)
    message.field.add(name="m", number=1, type=kinds.TYPE_MESSAGE, label=3, type_name=".e.M.MEntry")
    number = registry.register("e-value", serialized(file), "PROTOBUF")
    bad = decode(converter(registry), [framed(number, b"\x04\x00\x00\x0a\x01k\x10\x05")]).bad
    assert "e.M.MEntry is the entry of a map, and no message that a record can be" in bad[0]
