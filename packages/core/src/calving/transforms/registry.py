"""Transforms and predicates by name: calving's own, Kafka Connect's classes, those that packages register, and
``module:name``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calving.errors import ConfigError
from calving.model.record_path import PredicateSpec
from calving.plugins import Registry
from calving.records.values import Records
from calving.transforms.columns import Sided
from calving.transforms.interface import Predicate, Transform

_PACKAGES = (
    "org.apache.kafka.connect.transforms.predicates.",
    "org.apache.kafka.connect.transforms.",
    "org.apache.iceberg.connect.transforms.",
    "io.tabular.iceberg.connect.transforms.",
    "io.confluent.connect.transforms.",
)

_HERE = "calving.transforms."
TRANSFORMS = Registry(
    "transform",
    {
        "Cast": _HERE + "cast:Cast",
        "CopyValue": _HERE + "cdc:CopyValue",
        "DebeziumTransform": _HERE + "cdc:DebeziumTransform",
        "DmsTransform": _HERE + "cdc:DmsTransform",
        "Drop": _HERE + "fields:Drop",
        "DropHeaders": _HERE + "topics:DropHeaders",
        "ExtractField": _HERE + "fields:ExtractField",
        "FieldNames": _HERE + "names:FieldNames",
        "Filter": _HERE + "fields:Filter",
        "Flatten": _HERE + "fields:Flatten",
        "HeaderFrom": _HERE + "topics:HeaderFrom",
        "HoistField": _HERE + "fields:HoistField",
        "InsertField": _HERE + "fields:InsertField",
        "InsertHeader": _HERE + "topics:InsertHeader",
        "JsonToMapTransform": _HERE + "json:JsonToMapTransform",
        "KafkaMetadataTransform": _HERE + "topics:KafkaMetadataTransform",
        "MaskField": _HERE + "fields:MaskField",
        "MongoDebeziumTransform": _HERE + "mongo:MongoDebeziumTransform",
        "RegexRouter": _HERE + "topics:RegexRouter",
        "ReplaceField": _HERE + "fields:ReplaceField",
        "SetSchemaMetadata": _HERE + "fields:SetSchemaMetadata",
        "Sql": _HERE + "sql:Sql",
        "TimestampConverter": _HERE + "cast:TimestampConverter",
        "TimestampRouter": _HERE + "topics:TimestampRouter",
        "ValueToKey": _HERE + "fields:ValueToKey",
    },
    theirs={"ExtractNewRecordState": "DebeziumTransform", "ExtractNewDocumentState": "MongoDebeziumTransform"},
    direct=True,
)
"""Each is a ``Transform``, or a function of records and options."""
PREDICATES = Registry(
    "predicate",
    {
        "TopicNameMatches": _HERE + "topics:TopicNameMatches",
        "HasHeaderKey": _HERE + "topics:HasHeaderKey",
        "RecordIsTombstone": _HERE + "topics:RecordIsTombstone",
    },
    direct=True,
)


def transform(name: str, kind: str, options: Mapping[str, str]) -> Transform:
    """Make a transform.

    :raises ConfigError: there is no such transform, or an option is wrong.
    """
    try:
        return _transform(kind, options)
    except ConfigError as error:
        raise ConfigError(f"transforms.{name}: {error}") from error


def _transform(kind: str, options: Mapping[str, str]) -> Transform:
    plain, _, side = _short(kind).partition("$")
    if plain not in TRANSFORMS.own:
        return _foreign(kind, TRANSFORMS.find(kind), options)
    transform_class: type[Transform] = TRANSFORMS.find(plain)
    if issubclass(transform_class, Sided) and side in ("", "Key", "Value"):
        return _on_side(transform_class, side)(options)
    if side or issubclass(transform_class, Sided):
        raise TRANSFORMS.unknown(kind)
    return transform_class(options)


def is_foreign(kind: str) -> bool:
    """Whether other code than calving's makes the arrays of this transform."""
    plain = _short(kind).partition("$")[0]
    return plain == "Sql" or plain not in TRANSFORMS.own


def predicate(name: str, spec: PredicateSpec) -> Predicate:
    """Make a predicate.

    :raises ConfigError: there is no such predicate, or an option is wrong.
    """
    short = _short(spec.type)
    try:
        predicate_class: type[Predicate] = PREDICATES.find(short if short in PREDICATES.own else spec.type, Predicate)
        return predicate_class(spec.options)
    except ConfigError as error:
        raise ConfigError(f"transforms.{name}.predicate: {error}") from error


def _short(kind: str) -> str:
    package = next((p for p in _PACKAGES if kind.startswith(p)), "")
    return kind.removeprefix(package)


def _on_side(kind: type[Sided], side: str) -> type[Sided]:
    if side != "Key":
        return kind
    return type(
        f"{kind.__name__}Key",
        (kind,),
        {"side": "key", "needs": kind.needs | {"key"}, "tombstones": True, "keeps_paths": True},
    )


class _Function(Transform):
    """A plain function of records and options. It gets all columns, because the columns that it reads are unknown."""

    needs = frozenset({"key", "offset", "timestamp", "headers"})
    drops = "records that the function leaves out"
    function: Callable[[Records, Mapping[str, str]], Records]

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def apply(self, records: Records) -> Records:
        return self.function(records, self._options)


def _foreign(kind: str, found: object, options: Mapping[str, str]) -> Transform:
    if isinstance(found, type) and issubclass(found, Transform):
        return found(options)
    if not callable(found):
        raise ConfigError(f"'{kind}' is neither a Transform nor a function")
    made = _Function(options)
    made.function = found
    return made
