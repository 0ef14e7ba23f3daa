"""Translates the configuration of Tabular's Iceberg sink, the predecessor of Apache's.

Tabular's sink stores source positions in a separate consumer group, the control group, and names its events and the
offsets in tables after that group. The connector's consumer group has a copy of the positions, which may be behind.
"""

from __future__ import annotations

from collections.abc import Mapping

CLASS = "io.tabular.iceberg.connect.IcebergSinkConnector"
_GROUP, _CONTROL_GROUP = "iceberg.connect.group-id", "iceberg.control.group-id"
_OVERRIDE = "consumer.override.group.id"
_WRITE, _WRITE_HERE = "iceberg.table.write-props.", "iceberg.tables.write-props."


def is_tabular(raw: Mapping[str, str]) -> bool:
    """Whether the configuration is that of Tabular's connector."""
    return raw.get("connector.class") == CLASS


def connector_group(raw: Mapping[str, str]) -> str | None:
    """The consumer group of the tasks of a Tabular connector; None for any other configuration."""
    if not is_tabular(raw):
        return None
    return raw.get(_OVERRIDE) or raw.get(_GROUP) or f"connect-{raw.get('name', '')}"


def from_tabular(raw: Mapping[str, str]) -> dict[str, str]:
    """The keys of a Tabular connector under calving's names; any other configuration unchanged.

    The control group becomes the sink's group: positions, uncommitted files and offsets in tables are stored under it.
    """
    if not is_tabular(raw):
        return dict(raw)
    kept = {key: value for key, value in raw.items() if key not in (_GROUP, _CONTROL_GROUP, _OVERRIDE)}
    keys = {_WRITE_HERE + k.removeprefix(_WRITE) if k.startswith(_WRITE) else k: v for k, v in kept.items()}
    return keys | {_GROUP: raw.get(_CONTROL_GROUP) or f"cg-control-{raw.get('name', '')}"}
