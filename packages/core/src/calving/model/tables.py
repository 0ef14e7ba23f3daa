"""Target tables as tasks see them, the settings and counts of those in which records replace and delete rows, the
schema changes that records need, and places in a table's history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

RowDeletes = Literal["positions", "equality"]
Inserts = Literal["upsert", "append"]
DeleteMode = Literal["hard", "soft"]
Tombstones = Literal["skip", "delete"]
OnTruncate = Literal["fail", "skip", "delete"]
OnUnavailableValue = Literal["fail", "write", "keep"]
UnsetFields = Literal["null", "keep"]
OnMissingRow = Literal["insert", "skip"]
History = Literal["off", "on"]
OnMissingKey = Literal["fail", "dead-letter", "append"]
OnTypeChange = Literal["fail", "text", "column"]
NO_COLUMN_BESIDE: OnTypeChange = "fail"
"""A value that does not fit its column makes a bad record."""
OnRollback = Literal["continue", "stop", "stop-on-doubt"]
OrderType = Literal["parsed", "text"]
Landing = Literal["partitioned", "unpartitioned"]
PARTITIONED: Landing = "partitioned"
BY_KEY = "@key"
"""Instead of id columns: those that the keys of the records name."""
KeyFields = tuple[str, ...]
"""The names of the fields of a record's key, sorted; none of a key that is no object."""
SOFT_DELETE_FIELD, FORMER_SOFT_DELETE_FIELD = "_cdc_deleted", "_deleted"
"""The default column that marks deleted rows, and the default of version 0.1.0, a name that Iceberg reserves."""

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
VERSION_COLUMNS = (VALID_FROM, VALID_TO, IS_CURRENT)
"""The columns of a table that keeps versions of its rows (``history = on``): from when on and until when a version
counts, and whether nothing has ended it.
"""


class SnapshotPlace(NamedTuple):
    """A snapshot and its sequence number; 0 in tables of format version 1, which have none."""

    id: int
    number: int

    def __str__(self) -> str:
        """``<id>:<number>``, as a table property holds it."""
        return f"{self.id}:{self.number}"

    @staticmethod
    def parse(text: str) -> SnapshotPlace | None:
        """The place in a table property; None if the property is empty."""
        snapshot_id, _, number = text.partition(":")
        return SnapshotPlace(int(snapshot_id), int(number)) if text else None


class RollbackAnswer(StrEnum):
    """What becomes of the records that a rollback removes."""

    REREAD = "reread"
    """The sink reads them again, with its settings of now."""
    FORGET = "forget"
    """They stay away."""
    RESTORE = "restore"
    """Their files come back."""


@dataclass(frozen=True, slots=True)
class RowMutations:
    """The settings of one mutation table: one with ``cdc_field`` or ``upsert``.

    ``cdc_field`` is the dotted path of the field that names a record's operation; without this field every record is an
    update. ``row_deletes``: how rows are deleted. ``inserts``: whether an insert replaces the row of its key.
    ``order_field``: the dotted path of the column that orders the changes of a key; without it, their order in the
    topic counts. ``order_type``: how texts of that column compare: as numbers and as positions in a log, or letter by
    letter. ``delete_mode``: whether a deleted row is removed, or stays with ``soft_delete_field`` true.
    ``tombstones``: the operation of a record without a value. ``on_truncate``: the response to a truncate event,
    which says that the source table was emptied. ``by_key``: the id columns are the fields of the records' keys, with
    which the table was created. ``on_missing_key``: the response to a record whose key names no column then.
    ``metadata_columns``: the fields that tell of a change and become columns, by their dotted names; ``*`` for all.
    ``truncate_field``: the dotted path of the column whose value a truncate event names: it deletes the rows with this
    value; without it, all rows.
    ``on_unavailable_value``: the response to a row that has ``unavailable_value_placeholder`` for a value that its
    source has left out. ``unset_fields``: the value of a column for which an update has no field. ``on_missing_row``:
    what becomes of an update that keeps values of a row which the table does not have. ``history``: whether the table
    keeps the former versions of a row.
    """

    cdc_field: str | None = None
    upsert: bool = False
    row_deletes: RowDeletes = "positions"
    inserts: Inserts = "upsert"
    order_field: str | None = None
    order_type: OrderType = "parsed"
    delete_mode: DeleteMode = "hard"
    soft_delete_field: str = SOFT_DELETE_FIELD
    tombstones: Tombstones = "skip"
    on_truncate: OnTruncate = "fail"
    truncate_field: str | None = None
    by_key: bool = False
    on_missing_key: OnMissingKey = "fail"
    metadata_columns: tuple[str, ...] = ()
    on_unavailable_value: OnUnavailableValue = "fail"
    unavailable_value_placeholder: str = "__debezium_unavailable_value"
    unset_fields: UnsetFields = "null"
    on_missing_row: OnMissingRow = "insert"
    history: History = "off"

    @property
    def has_versions(self) -> bool:
        """Whether each row of the table is a version, and a change ends versions instead of deleting rows (M16)."""
        return self.history == "on"

    @property
    def has_one_row(self) -> bool:
        """Whether a key has at most one row."""
        return not self.has_versions and not (self.cdc_field is not None and self.inserts == "append")

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that the sink fills itself, and adds to a table that lacks them."""
        if self.has_versions:
            return VERSION_COLUMNS
        return (self.soft_delete_field,) if self.delete_mode == "soft" else ()

    @property
    def keeps(self) -> bool:
        """Whether an update may keep values of the stored row."""
        return self.keeps_unavailable or self.keeps_unset

    @property
    def keeps_unavailable(self) -> bool:
        """Whether an update from which its source has left out values keeps those of the stored row."""
        return self.on_unavailable_value == "keep"

    @property
    def keeps_unset(self) -> bool:
        """Whether an update without a field keeps the column's value of the stored row."""
        return self.unset_fields == "keep"

    @property
    def in_steps(self) -> bool:
        """Whether the changes of a batch may be committed in several steps, in the order of their offsets. Each step
        deletes rows of the steps before it, at the cost of searching their files; its partial rows build on the
        steps before it. Tables with an order field need one step, because order values are compared within one step. So
        do tables with equality deletes, because each of their steps is a snapshot.
        """
        return self.row_deletes == "positions" and self.order_field is None

    @property
    def contradiction(self) -> str | None:
        """Why a truncate event cannot empty a table with these settings; None if it can, or is not to."""
        if self.on_truncate != "delete":
            return None
        if self.truncate_field is not None and self.keeps:
            keeping = "unset-fields" if self.keeps_unset else "on-unavailable-value"
            return (
                f"truncate-field and {keeping} = keep exclude each other: an update could keep values of a row that the"
                " event has deleted; leave one of them out"
            )
        if self.row_deletes == "equality":
            return "on-truncate = delete needs row-deletes = positions"
        if self.order_field is not None:
            return (
                "on-truncate = delete and order-field exclude each other: a truncate event has no order value; set"
                " on-truncate = skip or fail"
            )
        if self.delete_mode == "soft":
            return (
                "on-truncate = delete and delete-mode = soft exclude each other: no row of the event would be there to"
                " mark; set on-truncate = skip or fail"
            )
        return None

    def refusal(self, version: int) -> str | None:
        """The reason why records cannot change the rows of tables of this format version; None if records can change
        them.
        """
        if version < 2:
            return "row mutations need 2 or 3"
        if version > 2 and self.row_deletes == "equality":
            return "row-deletes = equality is for version 2"
        return None


MAIN = "main"


@dataclass(frozen=True, slots=True)
class Branches:
    """The branches to which a sink commits: ``default``, and others by table, as namespace and name."""

    default: str = MAIN
    by_table: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def of(self, table: tuple[str, ...]) -> str:
        return self.by_table.get(table, self.default)


Distribution = Literal["none", "hash", "range", "keys"]

RESERVED_COLUMNS = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    }
)
"""Names of Iceberg's metadata columns and of the columns of its changelogs (``MetadataColumns`` of Iceberg's Java
library). Spark refuses to read a table with a top-level column of one of the first names, and the changelog of a table
with one of the last three.
"""


Unit = Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Moments:
    """The moments of a table's columns. ``units``: how whole numbers without a schema count times and timestamps, by
    the dotted name of the column; milliseconds where there is none. ``any_year``: whether dates and timestamps outside
    the years 1 to 9999 are taken. ``nanos``: whether new columns for the nanoseconds of a schema count nanoseconds.
    """

    units: Mapping[str, Unit] = field(default_factory=dict)
    any_year: bool = False
    nanos: bool = False


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """A schema change of an existing table that its catalog refuses, and why. ``kind`` and ``path``: as
    ``SchemaChange`` has them.
    """

    kind: str
    path: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A target table when the batch was planned, with all that is needed to write its files without a catalog. The JSON
    fields have pyiceberg's form.
    """

    name: str
    schema_json: str
    spec_json: str
    location: str
    properties: Mapping[str, str]
    io_properties: Mapping[str, str]
    sort_order_json: str | None = None
    distribution: Distribution = "none"
    """The task that writes a row: the task that has read it, one task for each partition, one for each range of the
    sort order within a partition, or one for each key. For a mutation table ``none`` means: tasks read whole source
    partitions, and the files of the tasks are committed in the order of the tasks.
    """
    held_json: str = "{}"
    """The source offsets that the table already holds and that tasks skip: a coverage as JSON."""
    id_columns: tuple[str, ...] = ()
    """The id columns that the settings give a mutation table. If empty, the table's identifier fields are used."""
    mutations: RowMutations | None = None
    """None for a table that is only appended to."""
    partition_names: tuple[str, ...] = ()
    """The names of the partition fields of all specs. No new column can have one of them."""
    moments: Moments = Moments()
    on_type_change: OnTypeChange = NO_COLUMN_BESIDE
    """What becomes of a value that does not fit its column: a bad record, text in a column beside it, or a value of a
    column beside it that has the value's own type.
    """
    refused: tuple[RefusedChange, ...] = ()
    """The changes that the catalog has refused in this batch. Each record that needs one of them is bad."""
    declared: Mapping[str, Any] = field(default_factory=dict)
    """The types (Iceberg JSON) that the settings declare for columns, also for those that are not there yet."""
    has_sorted_rows: bool = False
    """Whether the rows come in the sort order. Otherwise the rows of each file are sorted before they are written."""
    moved_to_json: str | None = None
    """If files are landed: the table's own spec, into whose partitions maintenance moves their rows later, in the
    table's sort order. A row that has no partition there, or no place in the order, is bad. None: files are written by
    the table's own spec.
    """


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A schema change that a record needs in order to fit its table.

    ``create``: the table does not exist. ``add``: the column ``path`` of ``type`` (Iceberg JSON) is missing. ``widen``:
    ``path`` must become ``type``. ``optional``: ``path`` is required, but a record has no value for it. ``rename``: the
    top-level column of the first name in ``path`` has got the others in its source, one after the other.

    ``seen`` counts the types that values without a schema need (``casting.type_counts``). For values with a schema,
    ``type`` is the schema's type. ``keys``: the fields of the records' keys, if these name the id columns of a table to
    create. ``defaults``: those that schemas declare for the field of an added column (``records.schema_defaults``); of
    fields inside it, and of a table's fields, they are in the type.
    """

    table: str
    kind: Literal["create", "add", "widen", "optional", "rename", "load"]
    path: tuple[str, ...] = ()
    type: Any = None
    seen: Any = None
    keys: tuple[KeyFields, ...] = ()
    defaults: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The kind and the column, as ``add a.b``."""
        return f"{self.kind} {(' to ' if self.kind == 'rename' else '.').join(self.path)}"


@dataclass(frozen=True, slots=True)
class MissingTable:
    """A table that does not exist, with the settings by which records may create it. ``columns``: those with which it
    is created, whatever records have. ``declared``: the types (Iceberg JSON) of these, and of others that the settings
    declare. ``partition_by``: the partition terms. ``properties``: as far as the settings have them.
    """

    id_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    declared: Mapping[str, Any] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    mutations: RowMutations | None = None
    moments: Moments = Moments()
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_key(self) -> bool:
        """Whether the keys of the records that create the table name its id columns."""
        return self.mutations is not None and self.mutations.by_key

    @property
    def order_field(self) -> str | None:
        """The field that orders the changes of a mutation table."""
        return None if self.mutations is None else self.mutations.order_field

    @property
    def truncate_field(self) -> str | None:
        """The field of a mutation table whose value a truncate event names."""
        return None if self.mutations is None else self.mutations.truncate_field

    @property
    def told_fields(self) -> tuple[str, ...]:
        """The fields, beside the id columns, that the changes of a mutation table need as columns."""
        return tuple(filter(None, [self.order_field, self.truncate_field]))
