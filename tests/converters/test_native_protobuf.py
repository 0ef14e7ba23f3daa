"""Protobuf by the decoder in Rust: each message becomes what it becomes without it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from calving.converters import native
from calving.converters.interface import Decoded
from calving.converters.protobuf import ProtobufConverter
from calving.converters.protobuf_files import known_file
from harness.registry import SchemaRegistry, framed, serialized
from tests.converters.test_native_typed import plainly

pytest.importorskip("calving_native")
F = descriptor_pb2.FieldDescriptorProto
COUNT = 600
SCALARS = [kind for kind in F.Type.values() if kind not in (F.TYPE_GROUP, F.TYPE_MESSAGE, F.TYPE_ENUM)]
KNOWN = (
    "google.protobuf.Timestamp", "google.protobuf.Duration", "google.type.Date", "google.type.TimeOfDay",
    "google.protobuf.Int64Value", "google.protobuf.StringValue", "google.protobuf.UInt64Value", "google.protobuf.BytesValue",
)  # fmt: skip
IMPORTS = (
    "google/protobuf/timestamp.proto", "google/protobuf/duration.proto", "google/protobuf/wrappers.proto",
    "google/type/date.proto", "google/type/timeofday.proto",
)  # fmt: skip
ONE, MANY = F.LABEL_OPTIONAL, F.LABEL_REPEATED


def file(syntax: str = "proto3") -> Any:
    """A message with fields of every type, once, with presence, repeated and in maps."""
    made = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax=syntax, dependency=IMPORTS)
    color = made.enum_type.add(name="Color")
    for number, name in ((0, "RED"), (7, "BLUE"), (-1, "DARK")):
        color.value.add(name=name, number=number)
    message, inner = (made.message_type.add(name=name) for name in ("R", "Inner"))
    inner.field.add(name="x", number=1, type=F.TYPE_INT32, label=ONE)
    inner.field.add(name="y", number=3, type=F.TYPE_STRING, label=MANY)
    message.oneof_decl.add(name="choice")

    def add(name: str, kind: int, label: Any = ONE, type_name: str = "", **more: Any) -> None:
        field = message.field.add(name=name, number=len(message.field) + 1, type=kind, label=label, **more)
        named(field, type_name)

    for kind in SCALARS:
        add(f"s{kind}", kind)
        add(f"r{kind}", kind, MANY)
    add("e", F.TYPE_ENUM, type_name=".t.Color")
    add("es", F.TYPE_ENUM, MANY, ".t.Color")
    add("o", F.TYPE_MESSAGE, type_name=".t.Inner")
    add("os", F.TYPE_MESSAGE, MANY, ".t.Inner")
    add("a", F.TYPE_INT64, oneof_index=0)
    add("b", F.TYPE_STRING, oneof_index=0)
    add("c", F.TYPE_MESSAGE, type_name=".t.Inner", oneof_index=0)
    for place, name in enumerate(KNOWN):
        add(f"k{place}", F.TYPE_MESSAGE, type_name=f".{name}")
        add(f"ks{place}", F.TYPE_MESSAGE, MANY, f".{name}")
    for name, key, value, of in (
        ("m", F.TYPE_STRING, F.TYPE_INT64, ""),
        ("n", F.TYPE_SINT32, F.TYPE_MESSAGE, ".t.Inner"),
        ("p", F.TYPE_BOOL, F.TYPE_ENUM, ".t.Color"),
        ("q", F.TYPE_UINT64, F.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
    ):
        entry = message.nested_type.add(name=f"{name.upper()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=key, label=ONE)
        named(entry.field.add(name="value", number=2, type=value, label=ONE), of)
        add(name, F.TYPE_MESSAGE, MANY, f".t.R.{name.upper()}Entry")
    if syntax == "proto3":
        add("maybe", F.TYPE_INT32, oneof_index=1, proto3_optional=True)
        message.oneof_decl.add(name="_maybe")
    return made


def named(field: Any, type_name: str) -> None:
    if type_name:
        field.type_name = type_name


def class_of(made: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for name in IMPORTS:
        imported = known_file(name)
        assert imported is not None
        pool.Add(imported)
    pool.Add(made)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.R"))


NUMBERS = (0, 1, -1, 127, 128, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63), 2**64 - 1)


def scalar(random: Random, kind: int) -> Any:
    if kind in (F.TYPE_STRING, F.TYPE_BYTES):
        text = random.choice(("", "a", "é", "x" * 200))
        return text if kind == F.TYPE_STRING else text.encode() + b"\xff"
    if kind == F.TYPE_BOOL:
        return random.random() < 0.5
    if kind in (F.TYPE_FLOAT, F.TYPE_DOUBLE):
        return random.choice((0.0, -0.0, 1.5, 0.1, float("inf"), float("nan") if random.random() < 0.1 else 2.0))
    bits = 32 if kind in (F.TYPE_INT32, F.TYPE_UINT32, F.TYPE_SINT32, F.TYPE_FIXED32, F.TYPE_SFIXED32) else 64
    unsigned = kind in (F.TYPE_UINT32, F.TYPE_UINT64, F.TYPE_FIXED32, F.TYPE_FIXED64)
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return random.choice([number for number in NUMBERS if least <= number <= most])


def known(random: Random, message: Any) -> None:
    """A value of a message that means one; now and then it means none."""
    for field in message.DESCRIPTOR.fields:
        some = (1, 5) if random.random() < 0.98 else (0, -7, 2**30)
        if field.name == "value":
            message.value = scalar(random, field.type)
        else:
            setattr(message, field.name, random.choice(some) + (2000 if field.name == "year" else 0))
    message.SetInParent()


def written(random: Random, made: Any, *, damage: float) -> bytes:
    message = made()
    for field in made.DESCRIPTOR.fields:
        name, many = field.name, field.is_repeated
        if random.random() < 0.5:
            continue
        of, there = field.message_type, getattr(message, name)
        if of is not None and of.GetOptions().map_entry:
            filled(random, there, name)
        elif of is not None:
            for one in [there.add() for _ in range(random.randrange(3))] if many else [there]:
                inner(random, one) if of.name == "Inner" else known(random, one)
        else:
            pick = (
                (lambda: random.choice((0, 7, -1)))
                if field.enum_type
                else (lambda kind=field.type: scalar(random, kind))
            )
            if many:
                there.extend([pick() for _ in range(random.randrange(4))])
            else:
                setattr(message, name, pick())
    raw: bytes = message.SerializeToString()
    if random.random() < damage:
        raw = damaged(random, raw)
    if random.random() < 0.1:
        raw = random.choice((raw + raw, raw + b"\xf8\x3f\x05", raw + b"\xfa\x3f\x02hi", raw + b"\xfb\x3f\xfc\x3f"))
    return raw


def inner(random: Random, message: Any) -> None:
    message.SetInParent()
    message.x = random.choice((0, 7))
    message.y.extend(["a", "é"][: random.randrange(3)])


def filled(random: Random, there: Any, name: str) -> None:
    """One entry: of more the library's order is its own."""
    match name:
        case "m":
            there["k"] = 5
        case "n":
            inner(random, there[-3])
        case "p":
            there[True] = random.choice((0, 7))
        case _:
            known(random, there[2**64 - 1])


def damaged(random: Random, raw: bytes) -> bytes:
    place = random.randrange(len(raw) or 1)
    other = random.choice((0, 1, 2, 3, 8, 127, 128, 255, random.randrange(256)))
    return random.choice((raw[:place], raw + b"\x08", raw[:place] + bytes([other]) + raw[place + 1 :]))


def fates(found: Decoded, count: int) -> list[tuple[str, str]]:
    """Type and value of each message, or error and reason."""
    fate = {bad.index: (bad.error, bad.reason) for bad in found.bad}
    for values in found.values:
        assert isinstance(values.data, pa.StructArray)
        values.data.validate(full=True)
        kind = str([(field, field.nullable) for field in values.data.type])
        fate |= {place: (kind, repr(row)) for place, row in zip(values.index, plainly(values.data), strict=True)}
    return [fate[i] for i in range(count)]


def both(
    values: Sequence[bytes], registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, **options: str
) -> tuple[list[Any], list[Any], int]:
    """With the decoder and without it, and how many it has taken."""
    taken, read = 0, native.Decoder.read

    def counting(self: native.Decoder, *given: Any) -> Any:
        nonlocal taken
        found = read(self, *given)
        taken += len(found[0])
        return found

    given = {"schema.registry.url": registry.url, **options}
    with monkeypatch.context() as patch:
        patch.setattr(native.Decoder, "read", counting)
        fast = fates(ProtobufConverter(given, is_key=False).decode(values, None), len(values))
        patch.setenv(native.SWITCH, "0")
        exact = fates(ProtobufConverter(given, is_key=False).decode(values, None), len(values))
    return fast, exact, taken


def differing(values: Sequence[bytes], fast: list[Any], exact: list[Any]) -> list[Any]:
    return [each for each in zip(values, fast, exact, strict=True) if each[1] != each[2]]


@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
@pytest.mark.parametrize("as_int", ["false", "true"])
def test_every_message_is_what_it_is_without_rust_among_others(
    syntax: str, as_int: str, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = file(syntax)
    number, kind = registry.register("t-value", serialized(made), "PROTOBUF"), class_of(made)
    random = Random(syntax + as_int)
    values = [framed(number, b"\0" + written(random, kind, damage=0.3)) for _ in range(COUNT)]
    values += [b"", b"\0", framed(number, b""), framed(number, b"\x02\0"), framed(number, b"\x02\x02"), b"x" * 9]
    fast, exact, taken = both(values, registry, monkeypatch, **{"int.for.enums": as_int})
    assert differing(values, fast, exact) == []
    # In proto2 an enum is closed: other numbers are no values of it.
    assert taken * 3 > COUNT or (syntax, as_int) == ("proto2", "true")


def odd(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, *bodies: bytes) -> int:
    """How many of these Rust takes; all of them are the same without it."""
    made = file()
    number = registry.register("t-value", serialized(made), "PROTOBUF")
    values = [framed(number, b"\0" + body) for body in bodies]
    fast, exact, taken = both(values, registry, monkeypatch)
    assert differing(values, fast, exact) == []
    return taken


def tag(name: str, wire: int) -> bytes:
    number = class_of(file()).DESCRIPTOR.fields_by_name[name].number << 3 | wire
    return bytes([number & 127 | 128, number >> 7]) if number > 127 else bytes([number])


def test_numbers_of_more_bits_than_their_type_and_odd_flags_are_left_to_the_exact_way(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = b"\xff" * 9 + b"\x01"
    wide = [tag(f"s{kind}", 0) + long for kind in (F.TYPE_UINT32, F.TYPE_SINT32, F.TYPE_BOOL)]
    assert (
        odd(registry, monkeypatch, *wide, tag("e", 0) + b"\xff\xff\xff\xff\x1f", tag("s3", 0) + b"\xff" * 9 + b"\x7f")
        == 0
    )
    assert odd(registry, monkeypatch, tag("s3", 0) + long, tag("s5", 0) + long, tag("s4", 0) + long) == 3


def test_an_enum_without_a_name_is_its_number(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert odd(registry, monkeypatch, tag("e", 0) + b"\x09", tag("es", 2) + b"\x02\x07\x09") == 0


def test_packed_numbers_are_those_that_are_not(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    r = tag("r5", 0)
    assert odd(registry, monkeypatch, r + b"\x01" + r + b"\x02", tag("r5", 2) + b"\x02\x01\x02" + r + b"\x03") == 2


def test_a_field_that_comes_twice_is_left_to_the_exact_way(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, o = tag("s5", 0) + b"\x01", tag("o", 2) + b"\x02\x08\x01"
    assert odd(registry, monkeypatch, one * 2, o * 2, tag("a", 0) + b"\x01" + tag("b", 2) + b"\x01x") == 0
    key = tag("m", 2) + b"\x05\x0a\x01k\x10\x05"
    assert odd(registry, monkeypatch, key * 2, key, tag("m", 2) + b"\0", tag("n", 2) + b"\0", tag("q", 2) + b"\0") == 4


def test_entries_of_a_map_stand_as_they_were_written(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    made = file()
    number, kind = registry.register("t-value", serialized(made), "PROTOBUF"), class_of(made)
    entries = b"".join(tag("m", 2) + b"\x05\x0a\x01" + key + b"\x10\x05" for key in (b"c", b"a", b"b"))
    found = ProtobufConverter({"schema.registry.url": registry.url}, is_key=False)
    (part,) = found.decode([framed(number, b"\0" + entries)], None).values
    assert part.data[0].as_py()["m"] == [("c", 5), ("a", 5), ("b", 5)]
    assert dict(kind.FromString(entries).m) == dict(part.data[0].as_py()["m"])


def test_a_length_that_is_too_large_for_its_bytes_takes_no_memory(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge = b"\xff\xff\xff\xff\x07"
    assert odd(registry, monkeypatch, tag("s9", 2) + huge, tag("os", 2) + huge, tag("r5", 2) + huge) == 0


def test_messages_that_are_written_with_several_headers_are_all_read_by_rust(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = file()
    number = registry.register("t-value", serialized(made), "PROTOBUF")
    first, other = tag("o", 2), b"\x02\x08\x01"
    bodies = ((b"\0", first + other), (b"\x02\0", first + other), (b"\x02\x02", b"\x08\x01"))
    values = [framed(number, head + body) for head, body in bodies] * 9
    fast, exact, taken = both(values, registry, monkeypatch)
    assert differing(values, fast, exact) == []
    assert taken == 27
