"""The key that says whether schema changes of source tables change the target tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from calving.errors import ConfigError
from calving.model.record_path import ReadTopics, TransformSpec
from calving.settings.keys import SinkKeys

_OF_TABLES = re.compile(r"_cdc.*(target|source)")
"""The route fields, perhaps flattened, that depend on the source table alone."""


def followed(keys: SinkKeys) -> ReadTopics | None:
    """The topics of the source tables whose schema changes count; None: none do."""
    return None if keys.schema_changes == "ignore" else ReadTopics(frozenset(keys.topics), keys.topics_regex)


def check_schema_changes(keys: SinkKeys, chain: Sequence[TransformSpec]) -> None:
    """:raises ConfigError: schema changes would have no effect, or it is unknown which tables they are for."""
    if keys.schema_changes == "ignore":
        return
    given = f"iceberg.tables.schema-changes = {keys.schema_changes}"
    if not keys.evolve:
        raise ConfigError(f"{given} needs iceberg.tables.evolve-schema-enabled = true: it adds and changes columns")
    if not any(step.type.rpartition(".")[2] in ("DebeziumTransform", "ExtractNewRecordState") for step in chain):
        raise ConfigError(f"{given} needs the transform DebeziumTransform, which recognises schema changes")
    if keys.route_field is not None and not _OF_TABLES.fullmatch(keys.route_field):
        raise ConfigError(
            f"{given} and iceberg.tables.route-field = {keys.route_field} exclude each other: a schema change has no"
            " such field, so its table is unknown; route by _cdc.target, or by the topic"
        )
