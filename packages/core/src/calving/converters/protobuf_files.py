"""The Protobuf files that Confluent's serializer does not put into a registry, because it contains them, and what they
mean.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

_PACKAGES = ("google/protobuf/", "google/type/")
_DECIMAL, _META, _OPTIONS = "confluent/type/decimal.proto", "confluent/meta.proto", "calving/options.proto"
_META_NUMBER = 1088


def known_file(name: str) -> FileDescriptorProto | None:
    """The description of a file that needs no reference; None if there is no such file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name == _DECIMAL:
        return _decimal_file()
    if name == _META:
        return _meta_file()
    if not name.startswith(_PACKAGES):
        return None
    try:
        module = import_module(name.replace("/", ".").removesuffix(".proto") + "_pb2")
    except ImportError:
        return None
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


def without_extensions(file: FileDescriptorProto) -> None:
    """Remove the extensions that a file or its messages declare: they have no columns, and the parser would make
    messages of them that nothing counts. It keeps their bytes as those of fields that it does not know.

    :raises ValueError: the file has too many messages.
    """
    within: list[Any] = [file]
    messages = 0
    while within:
        place = within.pop()
        place.ClearField("extension")
        messages += len(place.message_type if place is file else place.nested_type)
        if messages > _MOST_MESSAGES:
            raise ValueError(f"its file has more than {_MOST_MESSAGES} messages")
        within += place.message_type if place is file else place.nested_type


_MOST_MESSAGES = 10_000
"""Twice the columns that a table may have by default: each message takes memory and time, whether a record has it."""


def check_fields(message: Descriptor) -> None:
    """:raises ValueError: a message whose name means a single value has more fields than the true one: so few bytes
    would take much memory.
    """
    known, rest, fields = {message.full_name}, [message], 0
    while rest:
        at = rest.pop()
        fields += len(at.fields)
        if fields > _MOST_FIELDS:
            raise ValueError(f"message {message.full_name} has more fields than Protobuf's own message of this name")
        inner = [f.message_type for f in at.fields if f.message_type is not None]
        rest += [held for held in inner if held.full_name not in known]
        known |= {held.full_name for held in inner}


_MOST_FIELDS = 10
"""Of google.protobuf.Struct and the messages in it. All others have fewer."""


def json_of(message: Any) -> str:
    """The message as Protobuf's JSON. An Any of a type that is not Protobuf's own keeps its bytes, in base64: nothing
    counts what they would take.
    """
    from google.protobuf import json_format

    try:
        text: str = json_format.MessageToJson(message, indent=None, descriptor_pool=_well_known())
    except TypeError:  # no such type
        return json.dumps({"@type": message.type_url, "value": base64.b64encode(message.value).decode()})
    return text


@cache
def _well_known() -> DescriptorPool:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers"):
        file = known_file(f"google/protobuf/{name}.proto")
        pool.Add(cast("FileDescriptorProto", file))
    return pool


def field_parameters(descriptor: FieldDescriptor) -> dict[str, str]:
    """The parameters of ``(confluent.field_meta)``, the option with which Connect adds details to a field."""
    raw = descriptor.GetOptions().SerializeToString()
    return dict(_options().FromString(raw).field_meta.params) if raw else {}


@cache
def _options() -> Any:
    """The class that reads field options."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    own = descriptor_pb2.FileDescriptorProto()
    descriptor_pb2.DESCRIPTOR.CopyToProto(own)
    for file in (own, _meta_file(), _options_file()):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("calving.Options"))


def _decimal_file() -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name=_DECIMAL, package="confluent.type", syntax="proto3")
    decimal = file.message_type.add(name="Decimal")
    for number, (name, kind) in enumerate(
        (("value", Field.TYPE_BYTES), ("precision", Field.TYPE_UINT32), ("scale", Field.TYPE_INT32)), 1
    ):
        decimal.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    return file


def _meta_file() -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    one, many, text, message = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED, Field.TYPE_STRING, Field.TYPE_MESSAGE
    file = FileDescriptorProto(
        name=_META, package="confluent", syntax="proto3", dependency=["google/protobuf/descriptor.proto"]
    )
    meta = file.message_type.add(name="Meta")
    meta.field.add(name="doc", number=1, type=text, label=one)
    meta.field.add(name="params", number=2, type=message, label=many, type_name=".confluent.Meta.ParamsEntry")
    meta.field.add(name="tags", number=3, type=text, label=many)
    meta.field.add(name="rules", number=4, type=message, label=many, type_name=".confluent.Rule")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=text, label=one)
    entry.field.add(name="value", number=2, type=text, label=one)
    rule = file.message_type.add(name="Rule")
    for number, name in enumerate(("name", "doc", "expr", "sql"), 1):
        rule.field.add(name=name, number=number, type=text, label=one)
    for name, options in (
        ("file_meta", "FileOptions"),
        ("message_meta", "MessageOptions"),
        ("field_meta", "FieldOptions"),
        ("enum_meta", "EnumOptions"),
        ("enum_value_meta", "EnumValueOptions"),
    ):
        file.extension.add(
            name=name,
            number=_META_NUMBER,
            type=message,
            label=one,
            type_name=".confluent.Meta",
            extendee=f".google.protobuf.{options}",
        )
    return file


def _options_file() -> FileDescriptorProto:
    """The file of a message that reads the bytes of field options. It declares only Confluent's options."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name=_OPTIONS, package="calving", syntax="proto3", dependency=[_META])
    file.message_type.add(name="Options").field.add(
        name="field_meta",
        number=_META_NUMBER,
        type=Field.TYPE_MESSAGE,
        label=Field.LABEL_OPTIONAL,
        type_name=".confluent.Meta",
    )
    return file
