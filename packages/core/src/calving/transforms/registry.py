"""Transforms and predicates by name: ours, Kafka Connect's classes, entry points, and ``module:name``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from calving.errors import ConfigError
from calving.model.record_path import PredicateSpec
from calving.records.values import Records
from calving.transforms import cast, cdc, fields, json, mask, metadata, mongo, sql, times, topics
from calving.transforms.interface import Predicate, Transform
from calving.transforms.sided import Sided

GROUP = "calving.transforms"
"""Entry points: a name, and a ``Transform`` or a function of records and options."""

_PACKAGES = (
    "org.apache.kafka.connect.transforms.predicates.",
    "org.apache.kafka.connect.transforms.",
    "org.apache.iceberg.connect.transforms.",
    "io.tabular.iceberg.connect.transforms.",
    "io.confluent.connect.transforms.",
)

_SIDED: Mapping[str, type[Sided]] = {
    kind.__name__: kind
    for kind in (
        cast.Cast,
        fields.Drop,
        fields.ExtractField,
        fields.Flatten,
        fields.HoistField,
        fields.InsertField,
        mask.MaskField,
        fields.ReplaceField,
        fields.SetSchemaMetadata,
        times.TimestampConverter,
        topics.HeaderFrom,
    )
}
_PLAIN: Mapping[str, type[Transform]] = {
    kind.__name__: kind
    for kind in (
        fields.Filter,
        fields.ValueToKey,
        topics.RegexRouter,
        topics.TimestampRouter,
        topics.InsertHeader,
        topics.DropHeaders,
        cdc.DebeziumTransform,
        cdc.DmsTransform,
        cdc.CopyValue,
        json.JsonToMapTransform,
        metadata.KafkaMetadataTransform,
        mongo.MongoDebeziumTransform,
        sql.Sql,
    )
}
_PREDICATES: Mapping[str, type[Predicate]] = {
    kind.__name__: kind for kind in (topics.TopicNameMatches, topics.HasHeaderKey, topics.RecordIsTombstone)
}


def transform(name: str, kind: str, options: Mapping[str, str]) -> Transform:
    """:raises ConfigError: there is no such transform, or an option is wrong."""
    where = f"transforms.{name}"
    plain, _, side = _short(kind).partition("$")
    try:
        if plain in _SIDED and side in ("", "Key", "Value"):
            made: Transform = _on_side(_SIDED[plain], side)(options)
        elif plain in _PLAIN and not side:
            made = _PLAIN[plain](options)
        else:
            made = _foreign(kind, options, where)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return made


def predicate(name: str, spec: PredicateSpec) -> Predicate:
    """:raises ConfigError: there is no such predicate, or an option is wrong."""
    found = _PREDICATES.get(_short(spec.type))
    if found is None:
        raise ConfigError(
            f"transforms.{name}.predicate: there is no type '{spec.type}'; there are: {', '.join(_PREDICATES)}"
        )
    return found(spec.options)


def _short(kind: str) -> str:
    package = next((p for p in _PACKAGES if kind.startswith(p)), "")
    return kind.removeprefix(package)


def _on_side(kind: type[Sided], side: str) -> type[Sided]:
    if side != "Key":
        return kind
    return type(f"{kind.__name__}Key", (kind,), {"side": "key", "needs": kind.needs | {"key"}, "tombstones": True})


class _Function(Transform):
    """A plain function of records and options. What it looks at is not known, so it gets everything."""

    needs = frozenset({"key", "offset", "timestamp", "headers"})
    function: Callable[[Records, Mapping[str, str]], Records]

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def apply(self, records: Records) -> Records:
        return self.function(records, self._options)


def _foreign(kind: str, options: Mapping[str, str], where: str) -> Transform:
    found = _load(kind, where)
    if isinstance(found, type) and issubclass(found, Transform):
        return found(options)
    if not callable(found):
        raise ConfigError(f"'{kind}' is neither a Transform nor a function")
    made = _Function(options)
    made.function = found
    return made


def _load(kind: str, where: str) -> Any:
    for point in entry_points(group=GROUP):
        if point.name == kind:
            return point.load()
    module, separator, name = kind.partition(":")
    if not separator:
        ours = ", ".join(sorted([*_SIDED, *_PLAIN]))
        raise ConfigError(f"there is no transform '{kind}'; there are: {ours}, entry points, and module:name")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"'{kind}' cannot be loaded: {error}") from error
