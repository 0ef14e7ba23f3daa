"""Every key of a sink, declared once: name, type, default, sentence. The manual's table is made from this file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from calving.addresses import port_and_path
from calving.engine.registry import Patience
from calving.maintenance.plan import Triggers
from calving.maintenance.strategy import Strategy
from calving.model.backfills import is_backfill
from calving.model.record_path import TYPE_SHARE, Limits, Routing, Tolerance, TopicConverters
from calving.model.record_path import Policy as RecordPolicy
from calving.model.table_names import is_table_name
from calving.model.tables import (
    NO_COLUMN_BESIDE,
    PARTITIONED,
    DeleteMode,
    History,
    Inserts,
    Landing,
    OnMissingKey,
    OnMissingRow,
    OnRollback,
    OnTruncate,
    OnTypeChange,
    OnUnavailableValue,
    OrderType,
    RowDeletes,
    RowMutations,
    Tombstones,
    UnsetFields,
)
from calving.source.start import EARLIEST, Start

_ROUTING, _CONVERTERS, _MUTATIONS = Routing(), TopicConverters(), RowMutations()
_TOLERANCE, _LIMITS, _PATIENCE, _TRIGGERS = Tolerance(), Limits(), Patience(), Triggers()
"""The objects that settings become. A default that is in one of these objects is not repeated here."""
_MARKS = re.compile("[,()]")


def _items(text: str) -> list[str]:
    """The text, split at commas; not at one whose next parenthesis is a closing one."""
    items: list[str] = []
    end, is_inside = len(text), False
    for mark in reversed([*_MARKS.finditer(text)]):
        if mark[0] != ",":
            is_inside = mark[0] == ")"
        elif not is_inside:
            items.append(text[mark.end() : end])
            end = mark.start()
    return [text[:end], *reversed(items)]


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    names = [item.strip() for item in _items(value) if item.strip()]
    if any(name[0] in "[\"'`" or ";" in name for name in names):
        raise ValueError("has brackets, quotes or semicolons in its text: leave them out, and write commas instead")
    return names


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""A list. In text, commas separate items, except commas inside parentheses."""


def _columns(value: object) -> object:
    if not isinstance(value, str):
        return value
    from calving.records.declared import read_declarations  # it imports Arrow, which would delay a start

    return tuple(read_declarations(value).items())


Columns = Annotated[tuple[tuple[str, Any], ...], BeforeValidator(_columns)]
"""Columns by name, each with its ``records.declared.Declaration``."""


def _regex(value: str) -> str:
    from calving.records.regex import Regex  # it imports Arrow, which would delay a start

    Regex(value)
    return value


def _start(value: object) -> object:
    return Start.of(value) if isinstance(value, str) else value


FirstStart = Annotated[Start, BeforeValidator(_start)]

RegularExpression = Annotated[str, AfterValidator(_regex)]


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty: give a value, or leave the key out")
    if not value.isprintable():
        raise ValueError("has a line break or another character that nothing shows: leave it out")
    return value


Text = Annotated[str, AfterValidator(_text)]


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"'{twice}' is there twice: leave one out")
    return names


DistinctNames = Annotated[Names, AfterValidator(_once)]


def _url(value: str) -> str:
    port_and_path(value)
    return value


def _url_without_login(value: str) -> str:
    if "@" in _url(value).split("/")[2]:
        raise ValueError("must be a URL without a login: others see it")
    return value


def _collector(value: str) -> str:
    port, path = port_and_path(value)
    if port == 4317:
        raise ValueError(
            "4317 is the port of a collector for gRPC, and metrics are sent over HTTP: write its port for HTTP, mostly"
            " 4318"
        )
    if match := re.search(r"/v1/(traces|logs)/?$", path):
        raise ValueError(f"/v1/{match[1]} takes {match[1]}: write /v1/metrics")
    return value


def whole_location(value: str) -> str:
    """:raises ValueError: it is no location of an object store, and no path from the root."""
    if not re.match(r"/|[a-z][a-z0-9+.-]*:/", value):
        raise ValueError("must be a whole location, such as s3://bucket/folder or /folder")
    return value


def _whole_locations(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(whole_location, values))


def _without_blanks(value: str) -> str:
    if value != value.strip():
        raise ValueError("has a blank at its start or end: leave it out")
    return value


Location = Annotated[str, AfterValidator(whole_location)]
Locations = Annotated[Names, AfterValidator(_whole_locations)]
_HOST = re.compile(r"[A-Za-z0-9]([\w.-]*[\w.])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", re.ASCII)


def _host(value: str) -> str:
    # A port after an IPv6 address cannot be told from its last part.
    if not _HOST.fullmatch(value) or value.count(":") == 1:
        raise ValueError("must be a host's name or address, without http:// and without a port")
    return value


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value if value == "*" else _host(value.strip("[]")) for value in values)


Branch = Annotated[Text, AfterValidator(_without_blanks)]
Host = Annotated[str, AfterValidator(_host)]
Hosts = Annotated[Names, AfterValidator(_hosts)]
HttpUrl = Annotated[str, AfterValidator(_url)]
CollectorUrl = Annotated[str, AfterValidator(_collector)]
PublicUrl = Annotated[str, AfterValidator(_url_without_login)]

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_WEEK_MS = 7 * 24 * 3600 * 1000
_MOST_BYTES = 1024**4
"""A limit above it is a mistake in the unit."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names of loopback addresses, which only this machine reaches."""

Policy = Literal["fail", "skip"]
Files = Annotated[int, Field(ge=2, le=1_000_000)]
LandedFiles = Annotated[int, Field(ge=1, le=1_000_000)]
DeletedShare = Annotated[float, Field(gt=0, le=1)]
_DAY_MS = 24 * 3_600_000
GroupBytes = Annotated[int, Field(ge=1024**2, le=_MOST_BYTES)]
OrphanAge = Annotated[int, Field(ge=_DAY_MS, le=3_650 * _DAY_MS)]
PauseMs = Annotated[int, Field(ge=100, le=86_400_000)]


def _strategy(value: object) -> object:
    return Strategy.parse(value) if isinstance(value, str) else value


RowStrategy = Annotated[Strategy, BeforeValidator(_strategy)]


def _word(value: object) -> object:
    return str(value).lower() if isinstance(value, bool | str) else value


Maintained = Literal["auto", "true", "false"]
"""Whether a leader maintains a table; ``auto``: if the sink has created it."""
_SHORTEST_LOOK_MS = 50


def _at_least_or_off(value: int) -> int:
    if 0 < value < _SHORTEST_LOOK_MS:
        raise ValueError(f"must be 0, or at least {_SHORTEST_LOOK_MS} (given: {value})")
    return value


GraceMs = Annotated[int, Field(ge=0, le=366 * 86_400_000)]

MUTATIONS = (
    "cdc_field",
    "upsert",
    "row_deletes",
    "inserts",
    "order_field",
    "order_type",
    "delete_mode",
    "soft_delete_field",
    "tombstones",
    "on_truncate",
    "truncate_field",
    "on_missing_key",
    "metadata_columns",
    "on_unavailable_value",
    "unavailable_value_placeholder",
    "unset_fields",
    "on_missing_row",
    "history",
)
"""Keys of row mutations. The sink has them for all tables, and each table has its own."""

TRIGGERS = ("small_files", "medium_files", "landed_files", "deleted_share", "group_bytes")
"""Keys of maintenance. The sink has them for all tables, and each table has its own."""


class TableKeys(BaseModel):
    """Keys under ``iceberg.table.<table name>.``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    route_regex: RegularExpression | None = Field(
        None,
        alias="route-regex",
        description="The table gets the records whose route field matches this regular expression in full.",
    )
    id_columns: DistinctNames | None = Field(
        None,
        alias="id-columns",
        description="Columns that identify a row. They become the identifier fields of a table that the sink creates."
        " `@key`: as in `iceberg.tables.default-id-columns`, which is the default.",
    )
    partition_by: Names | None = Field(
        None,
        alias="partition-by",
        description="Partition terms with which the sink creates the table. Default:"
        " `iceberg.tables.default-partition-by`.",
    )
    landing: Landing | None = Field(None, alias="landing", description="As `iceberg.tables.landing`.")
    columns: Columns = Field(
        (),
        alias="columns",
        description="Columns with their types, such as `ts timestamptz from us, amount decimal(12, 2)`. The sink"
        " creates the table with these columns, whatever its records hold, and infers the types of all other columns."
        " `from s`, `ms`, `us` or `ns` says how whole numbers without a schema count a time or a timestamp (default:"
        " `ms`), in a table that exists, too.",
    )
    location: Location | None = Field(
        None,
        alias="location",
        description="The location at which the sink creates the table. Default: the catalog chooses it.",
    )
    commit_branch: Branch | None = Field(
        None,
        alias="commit-branch",
        description="The branch to which the sink commits. Files that it has committed to another branch stay there."
        " Default: `iceberg.tables.default-commit-branch`.",
    )
    cdc_field: str | None = Field(None, alias="cdc-field", description="As `iceberg.tables.cdc-field`; empty: none.")
    upsert: bool | None = Field(
        None, alias="upsert-mode-enabled", description="As `iceberg.tables.upsert-mode-enabled`."
    )
    row_deletes: RowDeletes | None = Field(None, alias="row-deletes", description="As `iceberg.tables.row-deletes`.")
    inserts: Inserts | None = Field(None, alias="inserts", description="As `iceberg.tables.inserts`.")
    order_field: str | None = Field(
        None, alias="order-field", description="As `iceberg.tables.order-field`; empty: none."
    )
    order_type: OrderType | None = Field(None, alias="order-type", description="As `iceberg.tables.order-type`.")
    delete_mode: DeleteMode | None = Field(None, alias="delete-mode", description="As `iceberg.tables.delete-mode`.")
    soft_delete_field: str | None = Field(
        None, alias="soft-delete-field", description="As `iceberg.tables.soft-delete-field`."
    )
    tombstones: Tombstones | None = Field(None, alias="tombstones", description="As `iceberg.tables.tombstones`.")
    on_truncate: OnTruncate | None = Field(None, alias="on-truncate", description="As `iceberg.tables.on-truncate`.")
    truncate_field: str | None = Field(
        None, alias="truncate-field", description="As `iceberg.tables.truncate-field`; empty: none."
    )
    on_missing_key: OnMissingKey | None = Field(
        None, alias="on-missing-key", description="As `iceberg.tables.on-missing-key`."
    )
    metadata_columns: DistinctNames | None = Field(
        None, alias="metadata-columns", description="As `iceberg.tables.metadata-columns`; empty: none."
    )
    on_unavailable_value: OnUnavailableValue | None = Field(
        None, alias="on-unavailable-value", description="As `iceberg.tables.on-unavailable-value`."
    )
    unavailable_value_placeholder: Text | None = Field(
        None, alias="unavailable-value-placeholder", description="As `iceberg.tables.unavailable-value-placeholder`."
    )
    unset_fields: UnsetFields | None = Field(
        None, alias="unset-fields", description="As `iceberg.tables.unset-fields`."
    )
    on_missing_row: OnMissingRow | None = Field(
        None, alias="on-missing-row", description="As `iceberg.tables.on-missing-row`."
    )
    on_type_change: OnTypeChange | None = Field(
        None, alias="on-type-change", description="As `iceberg.tables.on-type-change`."
    )
    history: History | None = Field(None, alias="history", description="As `iceberg.tables.history`.")
    on_rollback: OnRollback | None = Field(None, alias="on-rollback", description="As `iceberg.tables.on-rollback`.")
    maintenance_enabled: Annotated[Maintained | None, BeforeValidator(_word)] = Field(
        None, alias="maintenance.enabled", description="As `iceberg.maintenance.enabled`."
    )
    small_files: Files | None = Field(
        None, alias="maintenance.small-files", description="As `iceberg.maintenance.small-files`."
    )
    medium_files: Files | None = Field(
        None, alias="maintenance.medium-files", description="As `iceberg.maintenance.medium-files`."
    )
    landed_files: LandedFiles | None = Field(
        None, alias="maintenance.landed-files", description="As `iceberg.maintenance.landed-files`."
    )
    strategy: RowStrategy | None = Field(
        None, alias="maintenance.strategy", description="As `iceberg.maintenance.strategy`."
    )
    deleted_share: DeletedShare | None = Field(
        None, alias="maintenance.deleted-share", description="As `iceberg.maintenance.deleted-share`."
    )
    group_bytes: GroupBytes | None = Field(
        None, alias="maintenance.group-bytes", description="As `iceberg.maintenance.group-bytes`."
    )
    manifests: Files | None = Field(
        None, alias="maintenance.manifests", description="As `iceberg.maintenance.manifests`."
    )
    pause_ms: PauseMs | None = Field(
        None, alias="maintenance.pause-ms", description="As `iceberg.maintenance.pause-ms`."
    )
    grace_ms: GraceMs | None = Field(
        None, alias="maintenance.grace-ms", description="As `iceberg.maintenance.grace-ms`."
    )
    orphans_older_than_ms: OrphanAge | None = Field(
        None,
        alias="maintenance.orphans-older-than-ms",
        description="As `iceberg.maintenance.orphans-older-than-ms`.",
    )


class SinkKeys(BaseModel):
    """Keys of a sink. ``J`` in the manual marks keys of the Java sink."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Text = Field(alias="name", description="The sink's name; its consumer group is `connect-<name>`.")
    topics: DistinctNames = Field((), alias="topics", description="Topics that the sink reads.")
    topics_regex: RegularExpression | None = Field(
        None,
        alias="topics.regex",
        description="The sink reads every topic whose whole name matches this regular expression, also topics that"
        " appear later.",
    )

    tables: DistinctNames = Field((), alias="iceberg.tables", description="Target tables, such as `db.events`.")
    dynamic: bool = Field(
        False,
        alias="iceberg.tables.dynamic-enabled",
        description="Each record names its table in the route field.",
    )
    route_field: Text | None = Field(
        None,
        alias="iceberg.tables.route-field",
        description="The field that decides to which tables a record goes; a dot leads into a nested field.",
    )
    default_branch: Branch | None = Field(
        None,
        alias="iceberg.tables.default-commit-branch",
        description="The branch to which the sink commits. Default: `main`.",
    )
    default_id_columns: DistinctNames = Field(
        (),
        alias="iceberg.tables.default-id-columns",
        description="Columns that identify a row. They become the identifier fields of tables that the sink creates."
        " `@key`: the fields of the records' keys; a table that exists has its identifier fields.",
    )
    default_partition_by: Names = Field(
        (),
        alias="iceberg.tables.default-partition-by",
        description="Partition terms of tables that the sink creates: year, month, day, hour(column), bucket(column,"
        " N), truncate(column, W), or a column.",
    )
    landing: Landing = Field(
        PARTITIONED,
        alias="iceberg.tables.landing",
        description="Where a batch's rows of a partitioned table go. `partitioned`: into a file for each partition that"
        " the batch touches. `unpartitioned`: into few files that are in no partition, and in no sort order;"
        " [maintenance](../how-to/many-partitions.md) moves the rows into the partitions later. Without effect in a"
        " table without partitions.",
    )
    default_columns: Columns = Field(
        (),
        alias="iceberg.tables.default-columns",
        description="Types of columns by name, such as `ts timestamptz, amount decimal(12, 2)`. A column of this name"
        " gets this type when the sink creates or adds it, whatever the records hold. A unit, such as in `ts"
        " timestamptz from us`, holds in every table. The table's own key takes precedence.",
    )
    timestamp_range: Literal["years-1-9999", "any"] = Field(
        "years-1-9999",
        alias="iceberg.tables.timestamp-range",
        description="`years-1-9999`: a date or timestamp outside these years is a bad record. Most readers in Python"
        " cannot read it, and mostly its number has another unit. `any`: all moments that the column's type holds.",
    )
    nanoseconds: Literal["cut", "keep"] = Field(
        "cut",
        alias="iceberg.tables.nanoseconds",
        description="`keep`: a column that is made for timestamps whose schema counts nanoseconds is a `timestamp_ns`"
        " or `timestamptz_ns`, in tables of format version 3. DuckDB reads these; Spark 4.1 cannot read such a table."
        " `cut`: it counts microseconds.",
    )
    type_share: float = Field(
        TYPE_SHARE,
        ge=0,
        lt=0.5,
        alias="iceberg.tables.type-share",
        description="If at most this share of a new column's values needs a wider type, these values do not decide the"
        " type of the column. A record with such a value is a bad record, unless the value fits. 0: every value counts,"
        " so a column of numbers with one text among them becomes text.",
    )
    on_type_change: OnTypeChange = Field(
        NO_COLUMN_BESIDE,
        alias="iceberg.tables.on-type-change",
        description="The sink's response to a value that does not fit its column's type, for example because the source"
        " has changed the type. `fail`: the record is a bad record. `column`: the sink writes the value to [another"
        " column](evolution.md#a-type-that-changes), such as `amount_string` or `amount_double`. `text`: the sink"
        " writes it as text to `amount_string`. Both need `iceberg.tables.evolve-schema-enabled`.",
    )
    auto_create: bool = Field(
        False, alias="iceberg.tables.auto-create-enabled", description="The sink creates missing tables."
    )
    evolve: bool = Field(
        False,
        alias="iceberg.tables.evolve-schema-enabled",
        description="The sink adds columns, widens types and drops NOT NULL when records need it. If false, it ignores"
        " unknown fields.",
    )
    schema_changes: Literal["ignore", "apply"] = Field(
        "ignore",
        alias="iceberg.tables.schema-changes",
        description="The sink's response to Debezium's records about schema changes (`include.schema.changes`)."
        " `ignore`: it counts them. `apply`: [it adds, widens and renames"
        " columns](evolution.md#schema-changes-of-the-source) as they say. This needs"
        " `iceberg.tables.evolve-schema-enabled` and the transform `DebeziumTransform`.",
    )
    case_insensitive: bool = Field(
        False,
        alias="iceberg.tables.schema-case-insensitive",
        description="A field matches the column of its name in upper or lower case.",
    )
    topic_pattern: Text | None = Field(
        None,
        alias="iceberg.tables.topic-pattern",
        description="The pattern that makes the name of a record's table from its topic, such as `lake.{topic}`. `{1}`"
        " or `{name}` stands for a group of the topic regex. The table's name is in lower case.",
    )
    routed_case: Literal["lower", "as-is"] = Field(
        _ROUTING.case,
        alias="iceberg.tables.routed-case",
        description="Whether the name of a table that comes from a record, or from its topic, is written in lower case,"
        " as the Java sink does, or `as-is`. Hive and Glue have no names with capitals.",
    )
    topic_regex: RegularExpression | None = Field(
        None,
        alias="iceberg.tables.topic-regex",
        description="With the topic pattern: the regular expression that a topic matches in full. Records of other"
        " topics are unrouted.",
    )
    allowed_locations: Locations = Field(
        (),
        alias="iceberg.tables.allowed-locations",
        description="Locations, such as `s3://bucket/former`, below which files of the sink's tables may be, besides"
        " each table's own location, its `write.data.path`, and those of its last 20 states. The sink refuses to commit"
        " other files, because whoever can write to the control topic can name any file.",
    )
    force_optional: bool = Field(
        False,
        alias="iceberg.tables.schema-force-optional",
        description="The sink creates every column as optional, even if the records' schema says that it is required.",
    )
    schema_defaults: Literal["none", "from-schema"] = Field(
        "none",
        alias="iceberg.tables.defaults",
        description="`from-schema`: a column that is made for records whose schema (Avro, JSON Schema, Connect)"
        " declares a default for the field gets this [default value](types.md#default-values), in tables of format"
        " version 3. `none`: new columns have none.",
    )
    on_missing_table: RecordPolicy = Field(
        _ROUTING.missing_table,
        alias="iceberg.tables.on-missing-table",
        description="The sink's response to a record for a table that does not exist.",
    )
    on_unrouted: RecordPolicy = Field(
        _ROUTING.unrouted,
        alias="iceberg.tables.on-unrouted",
        description="The sink's response to a record that no route takes. The sink counts skipped records.",
    )

    cdc_field: str | None = Field(
        None,
        alias="iceberg.tables.cdc-field",
        description="The field that holds a record's operation on the row of its id-columns; a dot leads into a nested"
        " field. `u...` updates the row, `d...` deletes it, and anything else inserts it, in upper or lower case.",
    )
    upsert: bool = Field(
        False,
        alias="iceberg.tables.upsert-mode-enabled",
        description="Without a cdc-field: every record replaces the row of its id-columns.",
    )
    row_deletes: RowDeletes = Field(
        _MUTATIONS.row_deletes,
        alias="iceberg.tables.row-deletes",
        description="How the sink deletes rows. `positions`: by position, in tables of format version 3 with deletion"
        " vectors. `equality`: by equality, as the Java sink does; only for format version 2, and slow to read.",
    )
    inserts: Inserts | None = Field(
        None,
        alias="iceberg.tables.inserts",
        description="Whether an insert replaces the row of its key (`upsert`) or adds a row (`append`). Default:"
        " `upsert`; with `row-deletes = equality`, `append`.",
    )
    order_field: str | None = Field(
        None,
        alias="iceberg.tables.order-field",
        description="The column whose greatest value wins if a key changes more than once, such as a log sequence"
        " number; a dot leads into a nested column. Default: the last record of the topic's partition wins.",
    )
    order_type: OrderType = Field(
        _MUTATIONS.order_type,
        alias="iceberg.tables.order-type",
        description="How texts of the order-field compare. `parsed`: as numbers and as positions in a log, such as"
        " `0/16B3748`; a record with another text is bad. `text`: letter by letter.",
    )
    delete_mode: DeleteMode = Field(
        _MUTATIONS.delete_mode,
        alias="iceberg.tables.delete-mode",
        description="`hard`: the sink removes a deleted row. `soft`: the row stays, and its soft-delete-field is true.",
    )
    soft_delete_field: str = Field(
        _MUTATIONS.soft_delete_field,
        alias="iceberg.tables.soft-delete-field",
        description="The boolean column that marks a deleted row.",
    )
    tombstones: Tombstones = Field(
        _MUTATIONS.tombstones,
        alias="iceberg.tables.tombstones",
        description="`delete`: a record without a value deletes the row that its key identifies.",
    )
    on_truncate: OnTruncate = Field(
        _MUTATIONS.on_truncate,
        alias="iceberg.tables.on-truncate",
        description="The sink's response to a truncate event (the source table was emptied), such as Debezium's `t`."
        " `fail`: it is a bad record. `skip`: the sink skips and counts it. `delete`: it deletes all rows of the table"
        " that came before it.",
    )
    truncate_field: str | None = Field(
        None,
        alias="iceberg.tables.truncate-field",
        description="With `on-truncate = delete`, for a table of several sources: the column that says from which"
        " source a row is, such as `tenant` or `_cdc.source`; a dot leads into a nested column. A truncate event"
        " deletes only the rows that have its own value there. Default: it deletes all rows.",
    )
    on_missing_key: OnMissingKey = Field(
        _MUTATIONS.on_missing_key,
        alias="iceberg.tables.on-missing-key",
        description="With `id-columns = @key`: the sink's response to a record whose key names no columns, such as one"
        " of a source table without a primary key. `fail`: the sink stops. `dead-letter`: the record is bad. `append`:"
        " the sink creates such a table without identifier fields, and only adds rows to it.",
    )
    metadata_columns: DistinctNames = Field(
        _MUTATIONS.metadata_columns,
        alias="iceberg.tables.metadata-columns",
        description="The fields that tell of a change (`_cdc`, and those that begin with two underscores, such as"
        " `__op`) and become columns of a table whose rows records change, such as `_cdc.op, _cdc.ts`; `*`: all of"
        " them. Columns that a table has are written anyway.",
    )
    on_unavailable_value: OnUnavailableValue = Field(
        _MUTATIONS.on_unavailable_value,
        alias="iceberg.tables.on-unavailable-value",
        description="The sink's response to an update from which the source has left out a value that did not change,"
        " so that Debezium has written its placeholder, and to an update of MongoDB with only the changed fields."
        " `fail`: it is a bad record. `keep`: the row keeps the value that the table has. `write`: the placeholder"
        " replaces the value.",
    )
    unavailable_value_placeholder: Text = Field(
        _MUTATIONS.unavailable_value_placeholder,
        alias="iceberg.tables.unavailable-value-placeholder",
        description="Debezium's `unavailable.value.placeholder`, if it is not the default one. It is found as text, as"
        " bytes, and in arrays.",
    )
    unset_fields: UnsetFields = Field(
        _MUTATIONS.unset_fields,
        alias="iceberg.tables.unset-fields",
        description="What an update says of a column for which it has no field. `null`: the column becomes null, or the"
        " column's `write-default`. `keep`: the row keeps the value that the table has; a field that is there and is"
        " null makes the column null.",
    )
    on_missing_row: OnMissingRow = Field(
        _MUTATIONS.on_missing_row,
        alias="iceberg.tables.on-missing-row",
        description="With `on-unavailable-value = keep` or `unset-fields = keep`: what becomes of an update that keeps"
        " values, if the table has no row of its key. `insert`: the row is added, without these values. `skip`: the"
        " table does not get it. Both are logged.",
    )
    history: History = Field(
        _MUTATIONS.history,
        alias="iceberg.tables.history",
        description="Whether a table whose rows records change keeps the former versions of its rows. `on`: each row is"
        " a version, with the columns `valid_from`, `valid_to` and `is_current`, which the sink adds; a change ends the"
        " version of its key, and begins another one. `off`: a change replaces or deletes the row.",
    )
    on_rollback: OnRollback | None = Field(
        None,
        alias="iceberg.tables.on-rollback",
        description="What the sink does with a table that somebody has rolled back, until `calving rollback` answers."
        " `continue`: it commits later records; the removed ones stay away. `stop`: the table takes nothing, and its"
        " files stay buffered. `stop-on-doubt`: so too if the snapshots that would tell of a rollback have expired."
        " Default: `stop` if the sink changes rows of the table, else `continue`.",
    )

    maintenance_enabled: Annotated[Maintained, BeforeValidator(_word)] = Field(
        "false",
        alias="iceberg.maintenance.enabled",
        description="Whether the worker that leads maintains the tables while the sink runs, as `calving maintain"
        " --watch` does: tasks deletes, compact, manifests and expire. The keys below say when. `auto`: the tables that"
        " this sink has created, a pause after it has begun to lead.",
    )
    small_files: Files = Field(
        _TRIGGERS.small_files,
        alias="iceberg.maintenance.small-files",
        description="`calving maintain` compacts a partition with so many files below an eighth of the table's"
        " `write.target-file-size-bytes`. Two such files that are an hour old are enough.",
    )
    medium_files: Files = Field(
        _TRIGGERS.medium_files,
        alias="iceberg.maintenance.medium-files",
        description="`calving maintain` compacts a partition with so many files between an eighth and three quarters of"
        " the table's `write.target-file-size-bytes`, and its smaller files with them.",
    )
    landed_files: LandedFiles | None = Field(
        _TRIGGERS.landed_files,
        alias="iceberg.maintenance.landed-files",
        description="In a table with partitions, `calving maintain` moves files that have none into their partitions as"
        " soon as there are so many, or one of them is a minute old. Default: 1 where `iceberg.tables.landing` is"
        " `unpartitioned`, and elsewhere only when they are due for other reasons, as files of a former spec are.",
    )
    strategy: RowStrategy | None = Field(
        None,
        alias="iceberg.maintenance.strategy",
        description="The order of the rows in the files that `calving maintain` writes. `bin-pack`: as they were."
        " `sort`: the table's sort order. `z-order(a, b)`: rows with similar values of all these 2 to 4 columns are"
        " neighbours. Default: `sort` if the table has a sort order, else `bin-pack`.",
    )
    deleted_share: DeletedShare = Field(
        _TRIGGERS.deleted_share,
        alias="iceberg.maintenance.deleted-share",
        description="`calving maintain` writes a data file again, without its deleted rows, if at least this share of"
        " them is deleted by position.",
    )
    group_bytes: GroupBytes = Field(
        _TRIGGERS.group_bytes,
        alias="iceberg.maintenance.group-bytes",
        description="How many bytes of data files `calving maintain` rewrites for one commit, at most; a larger file is"
        " rewritten alone.",
    )
    manifests: Files = Field(
        100,
        alias="iceberg.maintenance.manifests",
        description="`calving maintain` merges the manifests of a table that has so many with less than three quarters"
        " of its `commit.manifest.target-size-bytes`. Twenty such manifests of delete files are enough.",
    )
    pause_ms: PauseMs = Field(
        60_000,
        alias="iceberg.maintenance.pause-ms",
        description="How long the leader, or `calving maintain --watch`, waits after each commit of maintenance to a"
        " table, and how often it looks what is due.",
    )
    grace_ms: GraceMs = Field(
        3_600_000,
        alias="iceberg.maintenance.grace-ms",
        description="How long `calving maintain` keeps the files that only expired snapshots named. It must be longer"
        " than any query of the table.",
    )
    orphans_older_than_ms: OrphanAge = Field(
        3 * _DAY_MS,
        alias="iceberg.maintenance.orphans-older-than-ms",
        description="How old files are, at least, that `calving maintain --task orphans` deletes because nothing names"
        " them. A file is written before anything names it.",
    )

    catalog_name: Text = Field("iceberg", alias="iceberg.catalog", description="The catalog's name in control events.")
    backend: str = Field("kafka", alias="iceberg.control.backend", description="The coordination backend.")
    control_topic: Text = Field(
        "control-iceberg",
        alias="iceberg.control.topic",
        description="The control topic. Other backends name their keys and nodes after it. Sinks that share one trust"
        " each other: whoever writes there can forge entries of any of them, so give those who do not a topic each.",
    )
    group: Text | None = Field(
        None,
        alias="iceberg.connect.group-id",
        description="The consumer group. Default: `connect-<name>`. Tables keep the sink's offsets under it. It has no"
        " `@`, and with Kafka as the backend it is ASCII.",
    )
    other_sinks: Names = Field(
        (),
        alias="iceberg.control.other-sinks",
        description="Other sinks, each as `<control topic>.<group>`, that write records of the same topics into the"
        " same tables on purpose. The sink takes any other sink for its own former name, and then refuses its first"
        " start.",
    )
    commit_interval_ms: int = Field(
        300_000,
        ge=100,
        le=_WEEK_MS,
        alias="iceberg.control.commit.interval-ms",
        description="Time from one commit to the next, in milliseconds. The default is that of the Java sink.",
    )
    when_idle_ms: Annotated[int, AfterValidator(_at_least_or_off)] = Field(
        0,
        ge=0,
        le=_WEEK_MS,
        alias="iceberg.control.commit.when-idle-ms",
        description="After a commit cycle without records, a worker looks for new ones so often, in milliseconds, and"
        " asks for a cycle as soon as there are some. It begins at once, but not within one interval of the last one"
        " that committed something. At least 50; 0: records wait for the interval.",
    )
    commit_timeout_ms: int = Field(
        30_000,
        ge=100,
        le=_WEEK_MS,
        alias="iceberg.control.commit.timeout-ms",
        description="How long a commit waits for the answers of all workers, in milliseconds. Then the coordinator"
        " commits without the missing answers. The default is that of the Java sink.",
    )
    commit_threads: int = Field(
        8,
        ge=1,
        le=1_000,
        alias="iceberg.control.commit.threads",
        description="Number of tables that the coordinator commits at the same time.",
    )
    key_cache_bytes: int = Field(
        1024**3,
        ge=0,
        le=_MOST_BYTES,
        alias="iceberg.key-cache.max-bytes",
        description="Size limit of the key cache, in bytes: the key columns of mutation tables that the coordinator"
        " keeps on its local disk.",
    )
    table_timeout_ms: int = Field(
        30_000,
        ge=1_000,
        le=_WEEK_MS,
        alias="iceberg.control.commit.table-timeout-ms",
        description="How long a cycle waits for the commit of one table, in milliseconds. A slower commit counts as"
        " failed but runs on, and the table's next commit starts when it has ended.",
    )
    look_ms: int = Field(
        600_000,
        ge=1_000,
        le=_WEEK_MS,
        alias="iceberg.tables.look-ms",
        description="How often the leader looks at tables that it does not commit to, in milliseconds, to notice that"
        " they were rolled back. It also looks at its start.",
    )
    full_cycle_ms: int | None = Field(
        None,
        ge=1_000,
        le=_WEEK_MS,
        alias="iceberg.control.commit.full-cycle-within-ms",
        description="The leading process ends if no commit cycle within this time, in milliseconds, had the answers of"
        " all partitions and committed all tables. Default: never.",
    )
    stalled_ms: int = Field(
        900_000,
        ge=1_000,
        le=_WEEK_MS,
        alias="iceberg.stalled-after-ms",
        description="Time in milliseconds. A worker that makes no progress for so long, or whose batch takes longer,"
        " logs where it hangs and exits with code 75.",
    )
    stop_timeout_ms: int = Field(
        20_000,
        ge=0,
        le=_WEEK_MS,
        alias="iceberg.stop-timeout-ms",
        description="How long a clean stop waits for the running batch and for the running commit, in milliseconds.",
    )
    max_failures: int | None = Field(
        None,
        ge=1,
        alias="iceberg.control.commit.max-consecutive-failures",
        description="The sink fails when the commits of one table have failed this often in a row. Default: never; the"
        " sink only reports DEGRADED.",
    )
    transactional_prefix: str = Field(
        "",
        alias="iceberg.coordinator.transactional.prefix",
        description="A prefix of every transactional id, for clusters that authorise ids by prefix.",
    )

    start: FirstStart = Field(
        EARLIEST,
        alias="iceberg.source.start",
        description="Where the first start begins to read: `earliest`, `latest`, the first record of a time such as"
        " `2026-11-28T09:30:00Z` (by the records' timestamps), or offsets, as in `orders:0=1200, orders:1=900`; other"
        " partitions then begin at their beginning, as do partitions that appear later. Where a position is stored, it"
        " counts. `iceberg.source.auto-offset-reset` is another name of this key.",
    )
    on_data_loss: Policy = Field(
        "fail",
        alias="iceberg.source.on-data-loss",
        description="The sink's response when the broker no longer has records that the sink has not read.",
    )
    engine: str = Field(
        "spark",
        alias="iceberg.engine",
        description="Where tasks run: `spark`, `local` (inside this process), or the name of an engine that a package"
        " registers.",
    )
    resources_timeout_ms: int = Field(
        int(_PATIENCE.resources * 1000),
        ge=1000,
        le=_WEEK_MS,
        alias="iceberg.engine.resources-timeout-ms",
        description="How long a Spark job may wait for its first task to run, in milliseconds. Then the sink cancels"
        " the job, and starts Spark again. The sink stops if no job has ever run. A start of Spark that takes longer is"
        " an error that returns in this interval; the start goes on.",
    )
    job_timeout_ms: int = Field(
        int(_PATIENCE.job * 1000),
        ge=1000,
        le=_WEEK_MS,
        alias="iceberg.engine.job-timeout-ms",
        description="How long a Spark job may take, in milliseconds. Then the sink cancels the job and reads its"
        " records again, half as many at once.",
    )
    batch_records: int = Field(
        2_000_000,
        ge=1,
        le=1_000_000_000,
        alias="iceberg.batch.max-records",
        description="The most records that one batch reads.",
    )
    batch_bytes: int = Field(
        1024 * 1024 * 1024,
        ge=1024,
        le=_MOST_BYTES,
        alias="iceberg.batch.max-bytes",
        description="The most bytes that one batch reads, approximately.",
    )
    value_converter: str = Field(
        _CONVERTERS.value.name,
        alias="value.converter",
        description="How the sink decodes record values: json, avro, protobuf, json-schema, string, bytes, short,"
        " integer, long, float, double, boolean, the class of Kafka Connect, `module:name`, or a name that a package"
        " registers.",
    )
    key_converter: str = Field(
        _CONVERTERS.key.name,
        alias="key.converter",
        description="How the sink decodes record keys. It decodes keys only if a transform or `tombstones = delete`"
        " needs them.",
    )
    transforms: DistinctNames = Field(
        (), alias="transforms", description="Names of the transforms, in the order in which they apply."
    )
    predicates: DistinctNames = Field(
        (), alias="predicates", description="Names of the predicates that transforms use."
    )

    errors_tolerance: Literal["none", "all"] = Field(
        "none",
        alias="errors.tolerance",
        description="`none`: a bad record stops the sink. `all`: it becomes a dead letter.",
    )
    dead_letter_topic: str | None = Field(
        None,
        alias="errors.deadletterqueue.topic.name",
        description="The topic of the dead letters. With the Kafka backend they are written in the transaction of"
        " their batch's events.",
    )
    dead_letter_replication: int | None = Field(
        None,
        ge=1,
        le=10_000,  # far more than any cluster has brokers
        alias="errors.deadletterqueue.topic.replication.factor",
        description="Replication factor with which the sink creates a missing dead-letter topic. Default: the"
        " broker's.",
    )
    dead_letter_headers: bool = Field(
        True,
        alias="errors.deadletterqueue.context.headers.enable",
        description="A dead letter carries headers that say where it came from and why it was rejected; `calving"
        " replay` needs them.",
    )
    dead_letter_table: str | None = Field(
        None,
        alias="errors.deadletterqueue.table",
        description="The Iceberg table of the dead letters, instead of a topic. The sink creates it if it is missing.",
    )
    errors_per_batch: int = Field(
        _TOLERANCE.at_most,
        ge=1,
        alias="errors.max-per-batch",
        description="The sink stops if a batch, or one of its tasks, has more bad records than this.",
    )
    errors_share: float = Field(
        1.0,
        gt=0,
        le=1,
        alias="errors.max-share",
        description="The sink stops if more than this share of a batch's records is bad, and the batch has more than"
        " 100 bad records.",
    )

    retry_timeout_ms: int = Field(
        600_000,
        ge=-1,
        le=2**63 - 1,  # as in Kafka Connect
        alias="errors.retry.timeout",
        description="How long the sink retries what fails with an error that it does not know, in milliseconds, until"
        " it stops; -1 means for ever. It waits for a service that is away as long as it takes, and a table whose"
        " commits fail keeps its files while the others go on.",
    )

    http_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        alias="iceberg.http.port",
        description="Port of the server for the status page, metrics, health and Kafka Connect's REST interface; 0"
        " takes any free one. Default: no server.",
    )
    http_host: Host = Field(
        "127.0.0.1",
        alias="iceberg.http.host",
        description="The address on which the server listens. An address beyond this machine needs"
        " `iceberg.http.token`.",
    )
    http_advertised: PublicUrl | None = Field(
        None,
        alias="iceberg.http.advertised-url",
        description="The server's URL for the other workers and for users. Default: made of host and port, with the"
        " machine's name if the host stands for every address.",
    )
    http_token: str | None = Field(
        None,
        min_length=16,
        alias="iceberg.http.token",
        description="The bearer token of calls that change something, of at least 16 characters. Without this key the"
        " server refuses such calls.",
    )
    http_read_token: str | None = Field(
        None,
        min_length=16,
        alias="iceberg.http.read-token",
        description="The bearer token of calls that read, except `/healthz` and `/readyz`. Who has `iceberg.http.token`"
        " may read, too. Default: everybody who reaches the server may read.",
    )
    http_allowed_hosts: Hosts = Field(
        (),
        alias="iceberg.http.allowed-hosts",
        description="Host names by which clients reach the server, without ports; `*`: any. It is always reached by an"
        " address, and by a name of this machine's loopback address. Default: the host of"
        " `iceberg.http.advertised-url`.",
    )
    http_show_values: bool = Field(
        False,
        alias="iceberg.http.show-values",
        description="`/api/status` and the status page show why sample records became dead letters, which may show"
        " values of these records. By default they show only their topic, partition and offset.",
    )
    http_certificate: str | None = Field(
        None,
        alias="iceberg.http.tls-certificate-file",
        description="The certificate (PEM) with which the server serves HTTPS.",
    )
    http_key: str | None = Field(
        None, alias="iceberg.http.tls-key-file", description="The certificate's private key (PEM)."
    )
    otel_endpoint: CollectorUrl | None = Field(
        None,
        alias="iceberg.otel.endpoint",
        description="The URL of an OpenTelemetry collector that gets all metrics, such as"
        " http://collector:4318. Without a path it is /v1/metrics. Needs calving[otel]. Default: the sink sends none.",
    )
    webhook_url: HttpUrl | None = Field(
        None,
        alias="iceberg.notify.webhook-url",
        description="The URL that gets a POST of JSON when the sink becomes DEGRADED, and when it has recovered.",
    )

    record_bytes: int = Field(
        _LIMITS.record_bytes,
        ge=1024,
        le=2**31 - 1,  # no record of Kafka has more
        alias="iceberg.limits.record-bytes",
        description="Size limit of a record's value, and of its key where that is decoded, in bytes. A record with a"
        " larger one is a bad record.",
    )
    nesting: int = Field(
        _LIMITS.nesting,
        ge=1,
        le=50,
        alias="iceberg.limits.nesting",
        description="Levels of objects and arrays that a value, its schema, or a column that the sink adds, may have. A"
        " record with more is a bad record.",
    )
    learned_names: int = Field(
        _LIMITS.learned_names,
        ge=1,
        alias="iceberg.limits.learned-names",
        description="Number of distinct field names up to which a task reads JSON records together. With more names it"
        " reads each record alone, more slowly, with the same results.",
    )
    new_columns: int = Field(
        _LIMITS.new_columns,
        ge=1,
        alias="iceberg.limits.new-columns",
        description="The most columns that one record may add to a table, nested columns included. A record that needs"
        " more is a bad record.",
    )
    columns: int = Field(
        _LIMITS.columns,
        ge=1,
        alias="iceberg.limits.columns",
        description="The most columns that a record's schema may have, and that a table may reach because of its"
        " records; nested columns included. A record whose schema has more is a bad record, and so is one that needs a"
        " further column of a table that has so many.",
    )

    schema_bytes: int = Field(
        _LIMITS.schema_bytes,
        ge=1024,
        le=2**31 - 1,  # as a record's
        alias="iceberg.limits.schema-bytes",
        description="Size limit of a schema's text in a record or from a registry, together with the texts of the"
        " schemas to which it refers, in bytes. A record with a larger one is a bad record. The default is what a"
        " registry that keeps its schemas in Kafka takes.",
    )
    cells: int = Field(
        _LIMITS.cells,
        ge=10_000,
        le=2**31,
        alias="iceberg.limits.cells",
        description="The most places of 8 bytes that one record may take in columns. Each element of a list or a map"
        " takes one in every column of its type, also where it has no value; the first one of each element does not"
        " count. The JSON of objects and arrays in text columns may have 8 characters for each. A record with more is"
        " a bad record.",
    )
    sql_ms: int = Field(
        _LIMITS.sql_ms,
        ge=100,
        le=_WEEK_MS,
        alias="iceberg.limits.sql-ms",
        description="The most time of a processor that one query of a transform `Sql` may take, in milliseconds. If a"
        " block of records takes more, it is divided. A record that takes more by itself is a bad record. A query that"
        " is not answered within ten times this time and a minute, by the clock, makes no record bad: the batch is"
        " tried again.",
    )
    sql_bytes: int = Field(
        _LIMITS.sql_bytes,
        ge=16 * 1024 * 1024,
        le=_MOST_BYTES,
        alias="iceberg.limits.sql-bytes",
        description="The most memory that DuckDB may count for one query of a transform `Sql`, in bytes, and the most"
        " bytes of its rows; on Linux, what it does not count may take as much again. If a block of records takes more,"
        " it is divided. A record that takes more by itself is a bad record.",
    )

    # Keys of a Kafka Connect file that is used as it is. Each is checked; none is silently ignored.
    connector_class: (
        Literal["org.apache.iceberg.connect.IcebergSinkConnector", "io.tabular.iceberg.connect.IcebergSinkConnector"]
        | None
    ) = Field(None, alias="connector.class", description="Accepted if it names one of the Iceberg sinks.")
    tasks_max: int | None = Field(
        None,
        ge=1,
        alias="tasks.max",
        description="Accepted, so that a file for Kafka Connect works as it is. Spark sets the parallelism"
        " (`spark.master`).",
    )

    @model_validator(mode="after")
    def _consistent(self) -> SinkKeys:
        self._check_topics()
        ways = {
            "iceberg.tables": bool(self.tables),
            "iceberg.tables.dynamic-enabled": self.dynamic,
            "iceberg.tables.topic-pattern": self.topic_pattern is not None,
        }
        chosen = [key for key, given in ways.items() if given]
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)} exclude each other: leave one out")
        if not chosen:
            raise ValueError(
                "iceberg.tables is missing: name the tables, or set iceberg.tables.topic-pattern, or"
                " iceberg.tables.dynamic-enabled = true"
            )
        if self.dynamic and not self.route_field:
            raise ValueError("iceberg.tables.dynamic-enabled needs iceberg.tables.route-field")
        if self.topic_regex is not None and self.topic_pattern is None:
            raise ValueError("iceberg.tables.topic-regex needs iceberg.tables.topic-pattern")
        if self.route_field is not None and self.topic_pattern is not None:
            raise ValueError(
                "iceberg.tables.route-field and iceberg.tables.topic-pattern exclude each other: leave one out"
            )
        self._check_names()
        self._check_topic_pattern()
        self._check_dead_letters()
        self._check_http()
        cycle_ms = self.commit_interval_ms + self.commit_timeout_ms
        if self.full_cycle_ms is not None and self.full_cycle_ms <= cycle_ms:
            raise ValueError(
                f"iceberg.control.commit.full-cycle-within-ms: must be more than {cycle_ms} milliseconds, which are"
                f" iceberg.control.commit.interval-ms and .timeout-ms (given: {self.full_cycle_ms})"
            )
        return self

    @property
    def retry_seconds(self) -> float:
        """How long errors are retried that do not pass by themselves."""
        return float("inf") if self.retry_timeout_ms < 0 else self.retry_timeout_ms / 1000

    @property
    def routes_freely(self) -> bool:
        """Whether routing is dynamic: records may go to tables that are not in the settings."""
        return self.dynamic or self.topic_pattern is not None

    def _check_names(self) -> None:
        self._check_table_names()
        self._check_group()
        topics = [*(("topics", topic) for topic in self.topics)]
        topics += [("errors.deadletterqueue.topic.name", topic) for topic in filter(None, [self.dead_letter_topic])]
        topics += [("iceberg.control.topic", self.control_topic)] if self.backend == "kafka" else []
        for key, topic in topics:
            if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
                raise ValueError(
                    f"{key}: '{topic}' is no topic's name: it has at most 249 ASCII letters, digits, '.', '_' and '-'"
                )

    def _check_group(self) -> None:
        key = "name" if self.group is None else "iceberg.connect.group-id"
        group = self.group or f"connect-{self.name}"
        if "@" in group:  # sinks x and x@y would take each other's offsets for those of a branch of their own
            raise ValueError(
                f"{key}: group '{group}' has an '@', which begins the name of a branch in the properties of tables:"
                " leave it out; a sink that has run under this name goes on with `calving recover FILE --from`"
            )
        for named, name in ((key, group), ("iceberg.control.topic", self.control_topic)):
            if is_backfill(name):
                raise ValueError(f"{named}: '{name}' has '.backfill.', as only the names of backfills do: leave it out")
        if self.backend == "kafka" and not group.isascii():
            raise ValueError(f"{key}: Kafka's client takes no group '{group}': use ASCII letters, digits and signs")

    def _check_table_names(self) -> None:
        named = [*(("iceberg.tables", table) for table in self.tables)]
        named += [("errors.deadletterqueue.table", table) for table in filter(None, [self.dead_letter_table])]
        for key, table in named:
            if not is_table_name(table):
                raise ValueError(f"{key}: '{table}' is no table's name with its namespace, such as db.events")
        if self.dead_letter_table in self.tables:
            raise ValueError(
                f"errors.deadletterqueue.table: {self.dead_letter_table} is among iceberg.tables: give the dead letters"
                " a table of their own"
            )

    def _check_topic_pattern(self) -> None:
        if self.topic_pattern is None:
            return
        from calving.records.regex import Regex, template

        try:
            template(self.topic_pattern, Regex(self.topic_regex or ""))
        except ValueError as error:
            raise ValueError(f"iceberg.tables.topic-pattern: {error}") from error

    def _check_http(self) -> None:
        if self.http_host not in LOOPBACK and self.http_token is None:
            raise ValueError(
                f"iceberg.http.host = {self.http_host} listens beyond this machine: set iceberg.http.token, too"
            )
        if self.http_read_token is not None and self.http_read_token == self.http_token:
            raise ValueError("iceberg.http.read-token and iceberg.http.token have to differ: who reads may not change")
        if (self.http_certificate is None) != (self.http_key is None):
            raise ValueError("iceberg.http.tls-certificate-file and iceberg.http.tls-key-file go together")
        if self.http_advertised is not None and self.http_port is None:
            raise ValueError("iceberg.http.advertised-url needs iceberg.http.port")

    def _check_topics(self) -> None:
        """The sink must not read what it writes itself: each record would make another one, for ever."""
        if bool(self.topics) == bool(self.topics_regex):
            raise ValueError(
                "topics and topics.regex exclude each other: leave one out"
                if self.topics
                else "topics is missing: name the topics to read, or set topics.regex"
            )
        key = "topics" if self.topics else f"topics.regex = {self.topics_regex}"
        written = {"errors.deadletterqueue.topic.name": self.dead_letter_topic, "iceberg.control.topic": None}
        if self.backend == "kafka":
            written["iceberg.control.topic"] = self.control_topic
        for other, name in written.items():
            if name is not None and (name in self.topics or self._is_matched(name)):
                raise ValueError(
                    f"{key}: the sink would read topic '{name}', into which it writes ({other}), for ever: take the"
                    f" topic out of {key.partition(' ')[0]}, or give {other} another name"
                )

    def _is_matched(self, topic: str) -> bool:
        if self.topics_regex is None:
            return False
        from calving.records.regex import Regex  # it imports Arrow, which would delay a start

        return bool(Regex(self.topics_regex).matching([topic]))

    def _check_dead_letters(self) -> None:
        places = [self.dead_letter_topic, self.dead_letter_table]
        if None not in places:
            raise ValueError("errors.deadletterqueue.topic.name and errors.deadletterqueue.table exclude each other")
        if self.errors_tolerance == "all" and places == [None, None]:
            raise ValueError(
                "errors.tolerance = all needs errors.deadletterqueue.topic.name or errors.deadletterqueue.table:"
                " nothing is dropped silently"
            )
        if self.errors_tolerance == "none" and places != [None, None]:
            key = "topic.name" if self.dead_letter_topic is not None else "table"
            raise ValueError(f"errors.deadletterqueue.{key} needs errors.tolerance = all")
        if self.backend == "kafka" and self.dead_letter_topic == self.control_topic:
            raise ValueError(
                f"errors.deadletterqueue.topic.name: '{self.dead_letter_topic}' is iceberg.control.topic, whose records"
                " the sink deletes: give the dead letters a topic of their own"
            )
        if self.errors_tolerance == "none" and "dead-letter" in (self.on_unrouted, self.on_missing_table):
            key = "on-unrouted" if self.on_unrouted == "dead-letter" else "on-missing-table"
            raise ValueError(f"iceberg.tables.{key} = dead-letter needs errors.tolerance = all")


TAKEN_OVER: Mapping[str, str] = {
    "config.action.reload": "the sink reads its configuration when it starts",
    "errors.log.enable": "the sink always logs the first bad record of a batch",
    "errors.log.include.messages": "the sink logs no records; dead letters hold them",
    "errors.retry.delay.max.ms": "the sink never pauses for more than 10 s between retries",
    "header.converter": "the sink leaves headers as bytes",
    "iceberg.control.group-id-prefix": "the sink reads the control log without a group",
    "iceberg.coordinator-executor-keep-alive-timeout-ms": "the sink has no such threads",
}
"""Keys of a Kafka Connect file that have no effect here, and why. They are named in the log and ignored."""

REFUSED: Mapping[str, str] = {
    "iceberg.hadoop": "calving does not use Hadoop; give storage settings under iceberg.catalog.",
    "iceberg.control.group-id": "only Tabular's sink has it, and connector.class names another; name the group in"
    " iceberg.connect.group-id",
    "producer.override.": "set the properties of the control topic's clients under iceberg.kafka.",
    "admin.override.": "set the properties of the control topic's clients under iceberg.kafka.",
    "config.providers": "name secrets as ${env:NAME} or ${file:PATH:KEY}",
    "exactly.once.support": "only Kafka Connect itself has a use for it; leave it out",
    "tasks.max.enforce": "only Kafka Connect itself has a use for it; leave it out",
    "connector.plugin.version": "only Kafka Connect itself has a use for it; leave it out",
}
"""Keys of a Kafka Connect file that are refused, by their beginnings, and what to do."""

PREFIXES: Mapping[str, str] = {
    "kafka.": "librdkafka properties, such as `kafka.bootstrap.servers`",
    "consumer.override.": "librdkafka properties as a Kafka Connect file has them",
    "iceberg.kafka.": "librdkafka properties of the backend's clients, on top of `kafka.`",
    "iceberg.catalog.": "catalog properties, such as `iceberg.catalog.type`",
    "iceberg.tables.auto-create-props.": "properties of tables that the sink creates",
    "iceberg.tables.write-props.": "properties that override those of the tables for writing",
    "spark.": "Spark properties, such as `spark.master`; `spark.calving.slots` is the number of tasks at a time"
    ", where Spark cannot tell",
    "value.converter.": "options of the value converter",
    "key.converter.": "options of the key converter",
    "iceberg.topic.": "settings of one topic, such as `iceberg.topic.orders.value.converter` and its options",
    "transforms.": "a transform's settings: `transforms.<name>.type`, `.predicate`, `.negate` and its options",
    "predicates.": "a predicate's settings: `predicates.<name>.type` and its options",
}
"""Keys that are passed on to other parts without their prefix (Spark's keys keep it)."""
