"""The converters by name; Connect class names of a configuration that was taken over map to ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calving.data.converters.interface import Converter
from calving.errors import ConfigError


def _json(options: Mapping[str, str], *, is_key: bool) -> Converter:
    if options.get("schemas.enable", "false").lower() == "true":
        from calving.data.converters.envelope import EnvelopeConverter

        return EnvelopeConverter(options, is_key=is_key)
    from calving.data.converters.json import JsonConverter

    return JsonConverter(options, is_key=is_key)


def _connect_json(options: Mapping[str, str], *, is_key: bool) -> Converter:
    return _json({"schemas.enable": "true", **options}, is_key=is_key)


def _avro(options: Mapping[str, str], *, is_key: bool) -> Converter:
    from calving.data.converters.avro import AvroConverter

    return AvroConverter(options, is_key=is_key)


def _protobuf(options: Mapping[str, str], *, is_key: bool) -> Converter:
    from calving.data.converters.protobuf import ProtobufConverter

    return ProtobufConverter(options, is_key=is_key)


def _string(options: Mapping[str, str], *, is_key: bool) -> Converter:
    from calving.data.converters.plain import StringConverter

    return StringConverter(options, is_key=is_key)


def _bytes(options: Mapping[str, str], *, is_key: bool) -> Converter:
    from calving.data.converters.plain import BytesConverter

    return BytesConverter(options, is_key=is_key)


# Imported when used: a worker process loads the decoders that its sink needs.
CONVERTERS: Mapping[str, Callable[..., Converter]] = {
    "json": _json,
    "avro": _avro,
    "protobuf": _protobuf,
    "string": _string,
    "bytes": _bytes,
    "org.apache.kafka.connect.json.JsonConverter": _connect_json,
    "io.confluent.connect.avro.AvroConverter": _avro,
    "io.confluent.connect.protobuf.ProtobufConverter": _protobuf,
    "org.apache.kafka.connect.storage.StringConverter": _string,
    "org.apache.kafka.connect.converters.ByteArrayConverter": _bytes,
}


def converter(name: str, options: Mapping[str, str], *, is_key: bool) -> Converter:
    """:raises ConfigError: there is no such converter, or an option is wrong."""
    found = CONVERTERS.get(name)
    if found is None:
        key = "key.converter" if is_key else "value.converter"
        ours = ", ".join(n for n in CONVERTERS if "." not in n)
        raise ConfigError(f"{key}: there is no converter '{name}'; there are: {ours}, and their Kafka Connect classes")
    return found(options, is_key=is_key)
