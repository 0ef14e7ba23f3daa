"""Digests of the settings that decide what is committed, by which workers notice that theirs differ.

A digest tells nothing of a value: texts are digested as an error may show them, so without secrets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from calving.model.forms import NEWEST
from calving.model.members import Member
from calving.settings.load import Sink

COMMITTED = (
    "topics",
    "iceberg.table.",
    "iceberg.tables",
    "iceberg.topic.",
    "iceberg.catalog",
    "iceberg.limits.",
    "key.converter",
    "value.converter",
    "transforms",
    "predicates",
    "errors.tolerance",
    "errors.deadletterqueue.",
)
"""Prefixes of the keys that decide which rows are committed, to which tables, and as what."""
_HANDED_ON = (
    "iceberg.topic.",
    "iceberg.catalog.",
    "iceberg.tables.auto-create-props.",
    "iceberg.tables.write-props.",
    "key.converter.",
    "value.converter.",
    "transforms.",
    "predicates.",
)
"""Prefixes of those keys that the sink hands on to other parts as they are."""
_MOST_TABLE_KEYS = 300
"""With more keys of tables than this, all keys of a table have one digest, and with more tables than this, all tables
together: a header of the control log stays small.
"""


def described(sink: Sink, version: str, host: str, file: str) -> Member:
    """This worker with all that it tells of itself if workers disagree."""
    keys = digests(sink)
    return Member(version, _digest(sorted(keys.items()), 16), NEWEST, host, file, keys)


def digests(sink: Sink) -> dict[str, str]:
    """A digest of each setting with another value than its default, by its key."""
    values: dict[str, object] = {key: value for key, value in sink.given.items() if key.startswith(_HANDED_ON)}
    own = sink.keys.model_dump(by_alias=True, exclude_defaults=True, mode="json", fallback=repr)
    values |= {key: value for key, value in own.items() if key.startswith(COMMITTED)}
    of_tables = {
        name: table.model_dump(by_alias=True, exclude_defaults=True, mode="json", fallback=repr)
        for name, table in sink.tables.items()
    }
    ways: tuple[dict[str, object], ...] = (
        {f"iceberg.table.{name}.{key}": value for name, table in of_tables.items() for key, value in table.items()},
        {f"iceberg.table.{name}": table for name, table in of_tables.items()},
    )
    together: dict[str, object] = {"iceberg.table": of_tables}
    tables = next((way for way in ways if len(way) <= _MOST_TABLE_KEYS), together)
    return _digests(values | tables)


def _digests(values: Mapping[str, object]) -> dict[str, str]:
    return {key: _digest([key, value], 8) for key, value in sorted(values.items())}


def _digest(value: object, letters: int) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:letters]
