"""The interface of converters: each decodes the bytes of keys or values in one format into columns. And the converters
by name: calving's own, Kafka Connect's classes, converters that packages register, and ``module:name``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from calving.converters.options import OPTIONS, Options, flag
from calving.errors import ConfigError
from calving.model.dead_letters import Stage
from calving.model.record_path import Limits
from calving.plugins import Registry
from calving.records.fields import Projection
from calving.records.values import Decoded
from calving.wording import meant

__all__ = ["Converter", "Decoded", "stage"]


class Converter(ABC):
    """Decodes one format. Made for the keys or the values of one topic, with the converter's own options.

    One converter is used for a whole task, so it may cache what it learns about the structure of values. Values are
    never None: a null is a tombstone, and is not passed to converters.

    :raises ConfigError: from the constructor, if an option is wrong.
    """

    projects: ClassVar[bool] = False
    """Whether a projection makes decoding cheaper, so that reading the route field first pays off."""

    @abstractmethod
    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None: ...

    @abstractmethod
    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        """Decode all values. A value that decodes to null is null in its column.

        :raises UnavailableError: a service of the format (a schema registry) does not answer. The values are not the
            cause.
        :raises ConfigError: the service refuses the request.
        :raises FullBlockError: the values take too much memory together: decode fewer of them at once. It is never
            raised for a single value.
        """


def stage(is_key: bool) -> Stage:
    """The stage that rejects keys or values that cannot be decoded."""
    return Stage.KEY_CONVERTER if is_key else Stage.VALUE_CONVERTER


_HERE = "calving.converters."
_ENVELOPE = _HERE + "envelope:EnvelopeConverter"
CONVERTERS = Registry(
    "converter",
    {
        "json": _HERE + "json:JsonConverter",
        "avro": _HERE + "avro:AvroConverter",
        "protobuf": _HERE + "protobuf:ProtobufConverter",
        "json-schema": _HERE + "json_schema:JsonSchemaConverter",
        "string": _HERE + "plain:StringConverter",
        "bytes": _HERE + "plain:BytesConverter",
        "short": _HERE + "plain:ShortConverter",
        "integer": _HERE + "plain:IntegerConverter",
        "long": _HERE + "plain:LongConverter",
        "float": _HERE + "plain:FloatConverter",
        "double": _HERE + "plain:DoubleConverter",
        "boolean": _HERE + "plain:BooleanConverter",
    },
    direct=True,
    also=("their Kafka Connect classes",),
)
_LIMITED = ("json", "avro", "protobuf", "json-schema")
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
"""calving's converter for each class of Kafka Connect."""


def converter(name: str, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> Converter:
    """Make the converter of this name.

    :raises ConfigError: there is no such converter, or an option is unknown or wrong.
    """
    own = CLASSES.get(name, name)
    if own in CONVERTERS.own:
        OPTIONS.get(own, Options()).check(options, is_key=is_key)
    # Connect's class reads the envelope unless schemas.enable is false.
    if own == "json" and flag(options, "schemas.enable", name in CLASSES, is_key=is_key):
        own = _ENVELOPE
    try:
        made: Callable[..., Converter] = CONVERTERS.find(own, Converter)
    except ConfigError as error:
        hint = meant(own, CLASSES, 0.9)
        why = f"there is no converter '{own}'{hint}" if hint else str(error)
        raise ConfigError(f"{'key' if is_key else 'value'}.converter: {why}") from error
    # Values of all other converters have one simple type.
    limited = own in (*_LIMITED, _ENVELOPE)
    return made(options, is_key=is_key, limits=limits) if limited else made(options, is_key=is_key)
