"""The options of each converter, including the options of Kafka Connect's converters of the same formats.

An option belongs to one of four groups: it is used; it is accepted without effect; it is accepted with only one value;
or it is refused by name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from calving.errors import ConfigError
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


def full(name: str, is_key: bool) -> str:
    """An option's whole key."""
    return f"{'key' if is_key else 'value'}.converter.{name}"


def flag(options: Mapping[str, str], name: str, default: bool, *, is_key: bool) -> bool:
    """A boolean option.

    :raises ConfigError: the option is neither true nor false.
    """
    text = options.get(name, str(default)).lower()
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
