"""The converters by name; Connect class names of a configuration that was taken over map to ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from calving.converters.interface import Converter
from calving.converters.options import OPTIONS, Options, flag
from calving.errors import ConfigError
from calving.model.record_path import Limits

# Imported when used: a worker process loads the decoders that its sink needs.
CONVERTERS: Mapping[str, tuple[str, str]] = {
    "json": ("json", "JsonConverter"),
    "avro": ("avro", "AvroConverter"),
    "protobuf": ("protobuf", "ProtobufConverter"),
    "json-schema": ("json_schema", "JsonSchemaConverter"),
    "string": ("plain", "StringConverter"),
    "bytes": ("plain", "BytesConverter"),
    "short": ("plain", "ShortConverter"),
    "integer": ("plain", "IntegerConverter"),
    "long": ("plain", "LongConverter"),
    "float": ("plain", "FloatConverter"),
    "double": ("plain", "DoubleConverter"),
    "boolean": ("plain", "BooleanConverter"),
}
"""Module and class of each converter."""
_CONNECT = "org.apache.kafka.connect."
CLASSES: Mapping[str, str] = {
    _CONNECT + "json.JsonConverter": "json",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
    "io.confluent.connect.json.JsonSchemaConverter": "json-schema",
    _CONNECT + "storage.StringConverter": "string",
    _CONNECT + "converters.ByteArrayConverter": "bytes",
    _CONNECT + "converters.ShortConverter": "short",
    _CONNECT + "converters.IntegerConverter": "integer",
    _CONNECT + "converters.LongConverter": "long",
    _CONNECT + "converters.FloatConverter": "float",
    _CONNECT + "converters.DoubleConverter": "double",
    _CONNECT + "converters.BooleanConverter": "boolean",
}
"""Kafka Connect's classes, by ours."""


def converter(name: str, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> Converter:
    """:raises ConfigError: there is no such converter, or an option is unknown or wrong."""
    own = CLASSES.get(name, name)
    if own not in CONVERTERS:
        key = "key.converter" if is_key else "value.converter"
        ours = ", ".join(CONVERTERS)
        raise ConfigError(f"{key}: there is no converter '{name}'; there are: {ours}, and their Kafka Connect classes")
    OPTIONS.get(own, Options()).check(options, is_key=is_key)
    module, kind = CONVERTERS[own]
    # Connect's class reads the envelope unless it is told not to.
    if own == "json" and flag(options, "schemas.enable", name in CLASSES, is_key=is_key):
        module, kind = "envelope", "EnvelopeConverter"
    made: Callable[..., Converter] = getattr(import_module(f"calving.converters.{module}"), kind)
    # Only JSON without a schema can be of any shape.
    return made(options, is_key=is_key, limits=limits) if own == "json" else made(options, is_key=is_key)
