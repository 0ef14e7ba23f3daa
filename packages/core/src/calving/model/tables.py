"""Tables as tasks see them, and the schema changes that records ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from calving.model.mutations import RowMutations

Distribution = Literal["none", "hash", "range", "keys"]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A target table when the batch was planned: enough to write its files without a catalog. JSON is pyiceberg's."""

    name: str
    schema_json: str
    spec_json: str
    location: str
    properties: Mapping[str, str]
    io_properties: Mapping[str, str]
    sort_order_json: str | None = None
    distribution: Distribution = "none"
    """Which task writes a row: the task that has read it, one for each partition, one for each range of the sort order
    within a partition, or one for each key. Of a mutation table, ``none``: tasks read whole partitions of the source,
    and what each writes is committed in the order of the tasks."""
    held_json: str = "{}"
    """Source offsets that the table already holds, to be skipped: a coverage as JSON."""
    id_columns: tuple[str, ...] = ()
    """The id columns of a mutation table in the settings; empty: the table's identifier fields."""
    mutations: RowMutations | None = None
    """None for a table that is only appended to."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A schema change that a record needs in order to fit its table.

    ``create``: the table does not exist. ``add``: the column ``path`` of ``type`` (Iceberg JSON) is missing.
    ``widen``: ``path`` must become ``type``. ``optional``: ``path`` is required, but a record has no value for it.

    ``seen`` counts what values without a schema need (``casting.seen``); what a schema says is the ``type``.
    """

    table: str
    kind: Literal["create", "add", "widen", "optional", "load"]
    path: tuple[str, ...] = ()
    type: Any = None
    seen: Any = None
