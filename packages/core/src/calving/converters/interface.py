"""The interface of converters: each decodes the bytes of keys or values in one format into columns. The converters by
name: calving's own, Kafka Connect's classes, those that packages register, and ``module:name``. And their options,
including those of Kafka Connect's converters of the same formats.

An option belongs to one of four groups: it is used; it is accepted without effect; it is accepted with only one value;
or it is refused by name.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from calving.errors import ConfigError
from calving.model.dead_letters import Stage
from calving.model.record_path import ConverterSpec, Limits
from calving.plugins import Registry
from calving.records.fields import Projection
from calving.records.values import Decoded
from calving.wording import meant

log = logging.getLogger(__name__)

REGISTRY = "schema.registry."
CLIENT = (
    "url",
    "basic.auth.credentials.source",
    "basic.auth.user.info",
    "bearer.auth.credentials.source",
    "bearer.auth.token",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
    "bearer.auth.client.id",
    "bearer.auth.client.secret",
    "bearer.auth.scope",
    "bearer.auth.issuer.endpoint.url",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "proxy",
    "timeout",
    "max.retries",
    "retries.wait.ms",
    "retries.max.wait.ms",
    "cache.capacity",
    "cache.latest.ttl.sec",
)
"""Options of the schema registry's client, with or without the prefix ``REGISTRY`` (``url`` only with it)."""
_OF_JAVA = {"ssl.truststore": "ssl.ca.location", "ssl.keystore": "ssl.certificate.location"}
"""PEM options that replace Java's key stores and trust stores."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one converter. ``harmless``: without effect on decoding. ``only``: accepted with this
    value only.
    """

    used: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()
    only: Mapping[str, str] = field(default_factory=dict)

    def check(self, options: Mapping[str, str], *, is_key: bool) -> None:
        """Check the options.

        :raises ConfigError: an option is unknown, or has a value that is not supported.
        """
        known = (*self.used, *self.harmless, *self.only, "converter.type")
        for name, text in options.items():
            if name == "schemas.enable" and name not in known:
                # Connect's other converters ignore it, too, and many files have it beside each of them.
                log.info("%s has no effect with this converter and is ignored", full(name, is_key))
            elif name not in known:
                java = [REGISTRY + ours for theirs, ours in _OF_JAVA.items() if theirs in name]
                hint = meant(name, java or known, 0 if java else 0.6, full("", is_key))
                hint = hint or f"; it takes {', '.join(self.used) or 'none'}"
                raise ConfigError(f"unknown option '{full(name, is_key)}' of the converter{hint}")
            elif name in self.only and text.lower() != self.only[name]:
                raise ConfigError(f"{full(name, is_key)} = {text} is not supported: {self.only[name]} is")


DEFAULTS: Mapping[str, str] = {
    "schemas.enable": "false",
    "replace.null.with.default": "true",
    "enhanced.avro.schema.support": "false",
    "generalized.sum.type.support": "false",
    "int.for.enums": "false",
    "converter.encoding": "UTF-8",
}
"""Defaults of options."""


def full(name: str, is_key: bool) -> str:
    """An option's whole key."""
    return f"{'key' if is_key else 'value'}.converter.{name}"


def flag(options: Mapping[str, str], name: str, *, is_key: bool) -> bool:
    """A boolean option, by its name in ``DEFAULTS``.

    :raises ConfigError: the option is neither true nor false.
    """
    text = options.get(name, DEFAULTS[name]).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{full(name, is_key)}: must be true or false (given: '{text}')")
    return text == "true"


_SERIALIZING = (
    "auto.register.schemas",
    "connect.meta.data",
    "context.name.strategy",
    "id.compatibility.strict",
    "ignore.default.for.nullables",
    "key.subject.name.strategy",
    "latest.cache.size",
    "latest.cache.ttl.sec",
    "latest.compatibility.strict",
    "max.schemas.per.subject",
    "normalize.schemas",
    "reference.subject.name.strategy",
    "schemas.cache.config",
    "schemas.cache.size",
    "scrub.invalid.names",
    "use.latest.version",
    "value.subject.name.strategy",
)
"""Options of all Confluent converters that concern writing or a cache. Each value is read with the schema that it
names.
"""
_CLIENT = (*(REGISTRY + name for name in CLIENT), *CLIENT[1:])

OPTIONS: Mapping[str, Options] = {
    "json": Options(
        ("schemas.enable", "replace.null.with.default", "schema.content"), ("decimal.format", "schemas.cache.size")
    ),
    "avro": Options(
        (*_CLIENT, "schema", "enhanced.avro.schema.support", "generalized.sum.type.support"),
        (*_SERIALIZING, "allow.optional.map.keys", "discard.type.doc.default", "avro.use.logical.type.converters"),
        {"flatten.singleton.unions": "true"},
    ),
    "protobuf": Options(
        (*_CLIENT, "int.for.enums"),
        (
            *_SERIALIZING,
            "enhanced.protobuf.schema.support",
            "generate.index.for.unions",
            "generate.struct.for.nulls",
            "optional.for.nullables",
            "optional.for.proto2",
            "reference.lookup.only",
            "skip.known.types",
            "wrapper.for.nullables",
            "wrapper.for.raw.primitives",
        ),
        {"flatten.unions": "true", "generalized.sum.type.support": "false"},
    ),
    "json-schema": Options(
        (*_CLIENT, "generalized.sum.type.support"),
        (
            *_SERIALIZING,
            "decimal.format",
            "ignore.modern.dialects",
            "json.default.property.inclusion",
            "json.indent.output",
            "json.oneof.for.nullables",
            "json.schema.spec.version",
            "json.write.dates.iso8601",
            "object.additional.properties",
            "use.optional.for.nonrequired",
        ),
        {
            "flatten.singleton.unions": "true",
            "json.fail.invalid.schema": "false",
            "json.fail.unknown.properties": "false",
            "preserve.additional.properties": "false",
        },
    ),
    "string": Options(("converter.encoding",)),
}
"""The options by converter name. A converter without an entry takes no options."""


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


SCHEMA_ID_HEADERS = "__value_schema_id", "__key_schema_id"
"""The headers in which Confluent's HeaderSchemaIdSerializer writes the schema id of a value and of a key. The payload
does not begin with an id then, and without the header nobody can see that.
"""


def reads_schema_ids(spec: ConverterSpec) -> bool:
    """Whether the converter takes the bytes at the start of a payload for the id of its schema in a registry."""
    return CLASSES.get(spec.name, spec.name) in ("avro", "protobuf", "json-schema") and "schema" not in spec.options


def converter(name: str, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> Converter:
    """Make the converter of this name.

    :raises ConfigError: there is no such converter, or an option is unknown or wrong.
    """
    own = CLASSES.get(name, name)
    if own in CONVERTERS.own:
        OPTIONS.get(own, Options()).check(options, is_key=is_key)
    if own == "json" and flag({**_with_class(name), **options}, "schemas.enable", is_key=is_key):
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


def effective(spec: ConverterSpec) -> ConverterSpec:
    """The same converter by calving's name for it, without options that have no effect, or their defaults. Two
    converters are the same if these are.
    """
    own = CLASSES.get(spec.name, spec.name)
    options = {name: _as_flag(text) for name, text in {**_with_class(spec.name), **spec.options}.items()}
    if own in CONVERTERS.own:
        used = OPTIONS.get(own, Options()).used
        options = {name: text for name, text in options.items() if name in used and text != DEFAULTS.get(name)}
    return ConverterSpec(own, options)


def _with_class(name: str) -> dict[str, str]:
    """The options that a converter of this name has unless the settings say otherwise: Connect's class for JSON reads
    an envelope.
    """
    return {"schemas.enable": "true"} if name == _CONNECT + "json.JsonConverter" else {}


def _as_flag(text: str) -> str:
    return text.lower() if text.lower() in ("true", "false") else text
