"""What Protobuf's parser makes of a few bytes is counted before it is made."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from calving.converters.interface import converter
from calving.converters.native import SWITCH
from calving.model.record_path import Limits
from harness.registry import SchemaRegistry, framed, serialized
from tests.converters.decoding import decode
from tests.converters.hostile import F

COLUMNS, MOST = 500, 100_000
TURNS = MOST // COLUMNS // 2 + 1
REFUSED = f"iceberg.limits.cells = {MOST}"


@pytest.fixture(params=["1", "0"], ids=["with Rust", "without"], autouse=True)
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, request.param)


def file(syntax: str = "proto3", package: str = "c") -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(name="c.proto", package=package, syntax=syntax)


def wide(within: Any, name: str) -> None:
    message = within.add(name=name)
    for i in range(COLUMNS):
        message.field.add(name=f"f{i}", number=i + 1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)


def choice(message: Any, kind: Any, prefix: str) -> None:
    """A oneof of the messages A and B, with the numbers 1 and 2."""
    message.oneof_decl.add(name="x")
    for number, name in enumerate("AB", 1):
        type_name = f"{prefix}.{name}"
        message.field.add(
            name=name.lower(), number=number, type=kind, label=F.LABEL_OPTIONAL, type_name=type_name, oneof_index=0
        )


def in_turns() -> tuple[Any, bytes]:
    made = file()
    choice(made.message_type.add(name="R"), F.TYPE_MESSAGE, ".c")
    for name in "AB":
        wide(made.message_type, name)
    return made, b"\x0a\0\x12\0"


def groups_in_turns() -> tuple[Any, bytes]:
    made = file("proto2")
    root = made.message_type.add(name="R")
    choice(root, F.TYPE_GROUP, ".c.R")
    for name in "AB":
        wide(root.nested_type, name)
    return made, b"\x0b\x0c\x13\x14"


def in_turns_within_a_message() -> tuple[Any, bytes]:
    """Each message has one of the two. Protobuf merges the messages."""
    made, _ = in_turns()
    made.message_type[0].name = "M"
    made.message_type.add(name="R").field.add(
        name="m", number=1, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL, type_name=".c.M"
    )
    made.message_type.insert(0, made.message_type.pop())
    return made, b"\x0a\x02\x0a\0\x0a\x02\x12\0"


@pytest.mark.parametrize("make", [in_turns, groups_in_turns, in_turns_within_a_message])
def test_a_message_that_is_made_again_and_again_counts_each_time(registry: SchemaRegistry, make: Any) -> None:
    made, turn = make()
    number = registry.register("s", serialized(made), "PROTOBUF")
    options = {"schema.registry.url": registry.url}
    reader = converter("protobuf", options, is_key=False, limits=Limits(cells=MOST))
    found = decode(reader, [framed(number, b"\0" + turn * count) for count in (1, TURNS)])
    assert found.bad.keys() == {1}
    assert REFUSED in found.bad[1]


@pytest.mark.parametrize("where", ["file", "message"])
def test_the_parser_does_not_know_extensions(registry: SchemaRegistry, where: str) -> None:
    """They have no columns, and their messages would take memory."""
    made = file("proto2")
    root = made.message_type.add(name="R")
    root.field.add(name="a", number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    root.extension_range.add(start=100, end=200)
    wide(made.message_type, "A")
    (made if where == "file" else made.message_type[1]).extension.add(
        name="e", number=100, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=".c.A", extendee=".c.R"
    )
    number = registry.register("s", serialized(made), "PROTOBUF")
    reader = converter("protobuf", {"schema.registry.url": registry.url}, is_key=False)
    no_message = b"\xa2\x06\x01\xff"
    found = decode(reader, [framed(number, b"\0\x08\x05" + no_message)])
    assert found.values == {0: {"a": 5}}


def test_a_message_with_the_name_of_a_single_value_has_no_more_fields(registry: SchemaRegistry) -> None:
    made = file("proto3", "google.type")
    made.message_type.add(name="R").field.add(
        name="a", number=1, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=".google.type.Date"
    )
    made.message_type.add(name="Date").field.add(
        name="year", number=1, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL, type_name=".google.type.A"
    )
    wide(made.message_type, "A")
    number = registry.register("s", serialized(made), "PROTOBUF")
    reader = converter("protobuf", {"schema.registry.url": registry.url}, is_key=False)
    assert "google.type.Date has more fields" in decode(reader, [framed(number, b"\0\x0a\x02\x0a\0")]).bad[0]
