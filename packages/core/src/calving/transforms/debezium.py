"""Records of Debezium's connectors that are no changes of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

HEARTBEAT, TRANSACTION, SCHEMA_CHANGE, MESSAGE = "heartbeat", "transaction", "schema change", "message"
_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})
_FIELDS: Mapping[str, frozenset[str]] = {
    TRANSACTION: frozenset({"status", "id", "event_count", "data_collections"}),
    SCHEMA_CHANGE: frozenset({"source", "databaseName", "ddl", "tableChanges"}),
}
"""The fields by which a record is recognised, where it has no operation: those of the beginning or the end of a
transaction, and those of a statement that changes tables.
"""


def kind_of(fields: Iterable[str]) -> str | None:
    """What a record with these fields is; None if it may be the change of a row, or is not Debezium's."""
    names = frozenset(fields)
    if "ts_ms" in names and names <= _TIMES:
        return HEARTBEAT
    if "op" in names:
        return None
    return next((kind for kind, wanted in _FIELDS.items() if wanted <= names), None)
