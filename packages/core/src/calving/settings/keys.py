"""Every key of a sink, declared once: name, type, default, sentence. The manual's table is made from this file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from calving.model.record_path import Limits, Routing, Tolerance
from calving.model.record_path import Policy as RecordPolicy

_ROUTING, _LIMITS, _TOLERANCE = Routing(), Limits(), Tolerance()
"""The defaults of task settings stand there."""
_COMMAS_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")


def _split(value: object) -> object:
    if isinstance(value, str):
        return [item.strip() for item in _COMMAS_OUTSIDE_PARENTHESES.split(value) if item.strip()]
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""A list; in text, items are separated by commas, those inside parentheses do not count."""


def _columns(value: object) -> object:
    if not isinstance(value, str):
        return value
    from calving.records.declared import read_columns  # it imports Arrow, which a start has no time for

    return tuple(read_columns(value).items())


Columns = Annotated[tuple[tuple[str, Any], ...], BeforeValidator(_columns)]
"""Names and types of columns."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names of loopback addresses, which only this machine reaches."""

Policy = Literal["fail", "skip"]
RowDeletes = Literal["positions", "equality"]
Inserts = Literal["upsert", "append"]
DeleteMode = Literal["hard", "soft"]
Tombstones = Literal["skip", "delete"]

MUTATIONS = (
    "cdc_field",
    "upsert",
    "row_deletes",
    "inserts",
    "order_field",
    "delete_mode",
    "soft_delete_field",
    "tombstones",
    "on_truncate",
)
"""Keys of row mutations, which the sink has for all tables and each table for itself."""


class TableKeys(BaseModel):
    """Keys under ``iceberg.table.<table name>.``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    route_regex: str | None = Field(
        None, alias="route-regex", description="Records whose route field matches this in full go to the table."
    )
    id_columns: Names | None = Field(
        None, alias="id-columns", description="Columns that identify a row; its identifier fields when it is created."
    )
    partition_by: Names | None = Field(None, alias="partition-by", description="Partition terms when it is created.")
    columns: Columns = Field(
        (),
        alias="columns",
        description="Columns with their types, such as `ts timestamptz, amount decimal(12, 2)`: the table is created"
        " with them, whatever its records hold; the others are inferred.",
    )
    location: str | None = Field(
        None, alias="location", description="The table's location when it is created; default: the catalog's choice."
    )
    commit_branch: str | None = Field(None, alias="commit-branch", description="The branch that is committed to.")
    cdc_field: str | None = Field(None, alias="cdc-field", description="As `iceberg.tables.cdc-field`; empty: none.")
    upsert: bool | None = Field(
        None, alias="upsert-mode-enabled", description="As `iceberg.tables.upsert-mode-enabled`."
    )
    row_deletes: RowDeletes | None = Field(None, alias="row-deletes", description="As `iceberg.tables.row-deletes`.")
    inserts: Inserts | None = Field(None, alias="inserts", description="As `iceberg.tables.inserts`.")
    order_field: str | None = Field(
        None, alias="order-field", description="As `iceberg.tables.order-field`; empty: none."
    )
    delete_mode: DeleteMode | None = Field(None, alias="delete-mode", description="As `iceberg.tables.delete-mode`.")
    soft_delete_field: str | None = Field(
        None, alias="soft-delete-field", description="As `iceberg.tables.soft-delete-field`."
    )
    tombstones: Tombstones | None = Field(None, alias="tombstones", description="As `iceberg.tables.tombstones`.")
    on_truncate: Policy | None = Field(None, alias="on-truncate", description="As `iceberg.tables.on-truncate`.")


class SinkKeys(BaseModel):
    """Keys of a sink. ``J`` in the manual marks those of the Java sink."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(alias="name", description="The sink's name; its consumer group is `connect-<name>`.")
    topics: Names = Field((), alias="topics", description="Topics to read.")
    topics_regex: str | None = Field(
        None, alias="topics.regex", description="Read all topics whose whole name matches, those to come included."
    )

    tables: Names = Field((), alias="iceberg.tables", description="Target tables, such as `db.events`.")
    dynamic: bool = Field(
        False, alias="iceberg.tables.dynamic-enabled", description="Each record names its table in the route field."
    )
    route_field: str | None = Field(
        None, alias="iceberg.tables.route-field", description="The (dotted) field that records are routed by."
    )
    default_branch: str | None = Field(
        None, alias="iceberg.tables.default-commit-branch", description="Branch to commit to; default main."
    )
    default_id_columns: Names = Field(
        (),
        alias="iceberg.tables.default-id-columns",
        description="Columns that identify a row; the identifier fields of tables that are created.",
    )
    default_partition_by: Names = Field(
        (),
        alias="iceberg.tables.default-partition-by",
        description="Partition terms of tables that are created: year, month, day, hour(column), bucket(column, N),"
        " truncate(column, W), or a column.",
    )
    default_columns: Columns = Field(
        (),
        alias="iceberg.tables.default-columns",
        description="Types of columns by name, such as `ts timestamptz, amount decimal(12, 2)`: where such a column is"
        " created or added, it has this type, whatever the records hold. Types in the table's own key take precedence.",
    )
    type_share: float = Field(
        0.01,
        ge=0,
        lt=0.5,
        alias="iceberg.tables.type-share",
        description="A type that at most this share of a new column's values needs does not decide the column's type;"
        " records with such values are bad, unless they fit. 0: every value counts, and numbers with a text among them"
        " are text.",
    )
    auto_create: bool = Field(
        False, alias="iceberg.tables.auto-create-enabled", description="Create tables that are missing."
    )
    evolve: bool = Field(
        False,
        alias="iceberg.tables.evolve-schema-enabled",
        description="Add columns, widen types and drop NOT NULL as records need it; else unknown fields are ignored.",
    )
    case_insensitive: bool = Field(
        False, alias="iceberg.tables.schema-case-insensitive", description="Match fields to columns ignoring case."
    )
    topic_pattern: str | None = Field(
        None,
        alias="iceberg.tables.topic-pattern",
        description="Each record goes to the table that this pattern makes of its topic, such as"
        " `lake.{topic}`; groups of the topic regex stand by number or name, such as `lake.{1}`. Lower case.",
    )
    topic_regex: str | None = Field(
        None,
        alias="iceberg.tables.topic-regex",
        description="With the topic pattern: a topic has to match this in full, or its records are unrouted.",
    )
    force_optional: bool = Field(
        False,
        alias="iceberg.tables.schema-force-optional",
        description="Create columns as optional even where the records' schema says that they are required.",
    )
    on_missing_table: RecordPolicy = Field(
        _ROUTING.missing_table,
        alias="iceberg.tables.on-missing-table",
        description="Records for a table that does not exist.",
    )
    on_unrouted: RecordPolicy = Field(
        _ROUTING.unrouted,
        alias="iceberg.tables.on-unrouted",
        description="Records that no route takes; skipped ones are counted.",
    )

    cdc_field: str | None = Field(
        None,
        alias="iceberg.tables.cdc-field",
        description="The (dotted) field with a record's operation on the row of its id-columns: u... updates it,"
        " d... deletes it, anything else inserts it, in upper or lower case.",
    )
    upsert: bool = Field(
        False,
        alias="iceberg.tables.upsert-mode-enabled",
        description="Without a cdc-field: every record replaces the row of its id-columns.",
    )
    row_deletes: RowDeletes = Field(
        "positions",
        alias="iceberg.tables.row-deletes",
        description="How rows are deleted: by position (deletion vectors in tables of format version 3), or by"
        " equality, as the Java sink does, which is for version 2, and slow to read.",
    )
    inserts: Inserts | None = Field(
        None,
        alias="iceberg.tables.inserts",
        description="Whether an insert replaces a row of its key, or adds one; default upsert, with equality append.",
    )
    order_field: str | None = Field(
        None,
        alias="iceberg.tables.order-field",
        description="The (dotted) column whose greatest value wins where a key is changed more than once, such as a log"
        " sequence number; default the order of the topic's partition.",
    )
    delete_mode: DeleteMode = Field(
        "hard",
        alias="iceberg.tables.delete-mode",
        description="hard: a deleted row goes. soft: it stays, and its soft-delete-field is true.",
    )
    soft_delete_field: str = Field(
        "_deleted", alias="iceberg.tables.soft-delete-field", description="The boolean column that marks deleted rows."
    )
    tombstones: Tombstones = Field(
        "skip",
        alias="iceberg.tables.tombstones",
        description="delete: a record without a value deletes the row that its key identifies.",
    )
    on_truncate: Policy = Field(
        "fail",
        alias="iceberg.tables.on-truncate",
        description="An event that empties its source, as Debezium's `t`: a bad record, or skipped and counted.",
    )

    catalog_name: str = Field("iceberg", alias="iceberg.catalog", description="Name of the catalog in control events.")
    backend: str = Field("kafka", alias="iceberg.control.backend", description="The coordination backend.")
    control_topic: str = Field("control-iceberg", alias="iceberg.control.topic", description="The control topic.")
    group: str | None = Field(
        None, alias="iceberg.connect.group-id", description="The consumer group; default `connect-<name>`."
    )
    other_sinks: Names = Field(
        (),
        alias="iceberg.control.other-sinks",
        description="Sinks, each `<control topic>.<group>`, that write records of the same topics into the same tables"
        " on purpose. Any other is taken for a former name of this one, and a first start is refused.",
    )
    commit_interval_ms: int = Field(
        300_000,
        ge=100,
        alias="iceberg.control.commit.interval-ms",
        description="Time from one commit to the next, ms.",
    )
    commit_timeout_ms: int = Field(
        30_000,
        ge=100,
        alias="iceberg.control.commit.timeout-ms",
        description="How long a commit waits for the answers of all workers, ms.",
    )
    commit_threads: int = Field(
        8, ge=1, alias="iceberg.control.commit.threads", description="Tables that are committed at the same time."
    )
    key_cache_bytes: int = Field(
        1024**3,
        ge=0,
        alias="iceberg.key-cache.max-bytes",
        description="How much of the key columns of mutation tables the coordinator keeps on its local disk, bytes.",
    )
    table_timeout_ms: int = Field(
        30_000,
        ge=1_000,
        alias="iceberg.control.commit.table-timeout-ms",
        description="A table's commit that takes longer counts as failed, and the cycle ends without it; it runs"
        " on, and no other one is begun until it has ended, ms.",
    )
    full_cycle_ms: int | None = Field(
        None,
        ge=1_000,
        alias="iceberg.control.commit.full-cycle-within-ms",
        description="End the process that leads when no commit cycle had the answers of all partitions and all tables"
        " for this time, ms; default never.",
    )
    stalled_ms: int = Field(
        900_000,
        ge=1_000,
        alias="iceberg.stalled-after-ms",
        description="A worker that stands still for this time, or whose batch takes longer, says where it hangs and"
        " ends itself, with exit code 75, ms.",
    )
    stop_timeout_ms: int = Field(
        20_000,
        ge=0,
        alias="iceberg.stop-timeout-ms",
        description="How long a clean stop waits for the batch that runs, and for the commit that runs, ms.",
    )
    max_failures: int | None = Field(
        None,
        ge=1,
        alias="iceberg.control.commit.max-consecutive-failures",
        description="Fail the sink when a table's commit has failed this often in a row; default never, it only"
        " reports DEGRADED.",
    )
    transactional_prefix: str = Field(
        "",
        alias="iceberg.coordinator.transactional.prefix",
        description="Put before every transactional id, for clusters that authorise ids by prefix.",
    )

    reset: Literal["earliest", "latest"] = Field(
        "earliest",
        alias="iceberg.source.auto-offset-reset",
        description="Where the first start begins; partitions that appear later are read from their beginning.",
    )
    on_data_loss: Policy = Field(
        "fail",
        alias="iceberg.source.on-data-loss",
        description="What to do when the broker no longer has records that were not read.",
    )
    engine: str = Field(
        "spark",
        alias="iceberg.engine",
        description="Where tasks run: `spark`, `local` (inside this process), or the name of an engine that a package"
        " registers.",
    )
    resources_timeout_ms: int = Field(
        120_000,
        ge=1000,
        alias="iceberg.engine.resources-timeout-ms",
        description="How long a Spark job may wait until the first of its tasks runs, ms; then it is cancelled, and a"
        " sink of which no job ever ran stops.",
    )
    job_timeout_ms: int = Field(
        600_000,
        ge=1000,
        alias="iceberg.engine.job-timeout-ms",
        description="How long a Spark job may take, ms; then it is cancelled, and its records are read again.",
    )
    batch_records: int = Field(
        2_000_000, ge=1, alias="iceberg.batch.max-records", description="Most records one batch reads."
    )
    batch_bytes: int = Field(
        1024 * 1024 * 1024, ge=1024, alias="iceberg.batch.max-bytes", description="Most bytes one batch reads, about."
    )
    value_converter: str = Field(
        "json",
        alias="value.converter",
        description="How record values are decoded: json, avro, protobuf, json-schema, string, bytes, short, integer,"
        " long, float, double, boolean, the Kafka Connect class, `module:name`, or the name of one that a package"
        " registers.",
    )
    key_converter: str = Field(
        "bytes",
        alias="key.converter",
        description="How record keys are decoded, where a transform looks at them.",
    )
    transforms: Names = Field((), alias="transforms", description="Names of the transforms, in order.")
    predicates: Names = Field((), alias="predicates", description="Names of the predicates that transforms use.")

    errors_tolerance: Literal["none", "all"] = Field(
        "none",
        alias="errors.tolerance",
        description="none: a record that cannot be taken stops the sink. all: it becomes a dead letter.",
    )
    dead_letter_topic: str | None = Field(
        None,
        alias="errors.deadletterqueue.topic.name",
        description="The topic that dead letters go to, in the transaction of the batch's events.",
    )
    dead_letter_replication: int | None = Field(
        None,
        ge=1,
        alias="errors.deadletterqueue.topic.replication.factor",
        description="Replication of the dead-letter topic if it has to be created; default the broker's.",
    )
    dead_letter_headers: bool = Field(
        True,
        alias="errors.deadletterqueue.context.headers.enable",
        description="Write headers that say where a dead letter came from and why; `calving replay` needs them.",
    )
    dead_letter_table: str | None = Field(
        None,
        alias="errors.deadletterqueue.table",
        description="Instead of a topic: the Iceberg table that dead letters go to, created if it is missing.",
    )
    errors_per_batch: int = Field(
        _TOLERANCE.at_most,
        ge=1,
        alias="errors.max-per-batch",
        description="Bad records of one batch (each of its tasks) that stop the sink instead.",
    )
    errors_share: float = Field(
        1.0,
        gt=0,
        le=1,
        alias="errors.max-share",
        description="Share of bad records in a batch that stops the sink instead, once there are more than 100.",
    )

    http_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        alias="iceberg.http.port",
        description="Serve the status page, metrics, health and the REST of Kafka Connect on this port; 0 takes any"
        " free one. Default: no server.",
    )
    http_host: str = Field(
        "127.0.0.1",
        alias="iceberg.http.host",
        description="The address to listen on; one beyond this machine needs iceberg.http.token.",
    )
    http_advertised: str | None = Field(
        None,
        pattern=r"^https?://[^/@\s]+(/[^@\s]*)?$",
        alias="iceberg.http.advertised-url",
        description="The server's URL as the other workers and their users reach it; by default made of host and port,"
        " with the machine's name if the host is every address.",
    )
    http_token: str | None = Field(
        None,
        min_length=16,
        alias="iceberg.http.token",
        description="The bearer token of calls that change something; without it they are refused.",
    )
    http_certificate: str | None = Field(
        None, alias="iceberg.http.tls-certificate-file", description="Serve HTTPS with this certificate (PEM)."
    )
    http_key: str | None = Field(
        None, alias="iceberg.http.tls-key-file", description="The certificate's private key (PEM)."
    )
    otel_endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^\s?#]+$",
        alias="iceberg.otel.endpoint",
        description="Send all metrics to this URL of an OpenTelemetry collector, such as"
        " http://collector:4318/v1/metrics. Needs calving[otel]. Default: none are sent.",
    )
    webhook_url: str | None = Field(
        None,
        pattern="^https?://",
        alias="iceberg.notify.webhook-url",
        description="Gets a POST of JSON when the sink becomes DEGRADED, and when it has recovered.",
    )

    record_bytes: int = Field(
        _LIMITS.record_bytes,
        ge=1024,
        alias="iceberg.limits.record-bytes",
        description="A larger value is a bad record.",
    )
    nesting: int = Field(
        _LIMITS.nesting,
        ge=1,
        le=50,
        alias="iceberg.limits.nesting",
        description="Levels of objects and arrays that a value may have, and columns that are added; one with more is"
        " a bad record.",
    )
    learned_names: int = Field(
        _LIMITS.learned_names,
        ge=1,
        alias="iceberg.limits.learned-names",
        description="Distinct field names that a task learns to read JSON faster; with more it reads each record for"
        " itself, slower and with the same results.",
    )
    new_columns: int = Field(
        _LIMITS.new_columns,
        ge=1,
        alias="iceberg.limits.new-columns",
        description="Columns, nested ones included, that one batch may add to a table: a record that alone needs more"
        " is bad, and records that together need more stop the sink.",
    )
    columns: int = Field(
        _LIMITS.columns,
        ge=1,
        alias="iceberg.limits.columns",
        description="Columns, nested ones included, up to which records may make a table grow.",
    )

    # Keys of a Kafka Connect file that is used as it is. Each is checked, none is a silent option.
    connector_class: (
        Literal["org.apache.iceberg.connect.IcebergSinkConnector", "io.tabular.iceberg.connect.IcebergSinkConnector"]
        | None
    ) = Field(None, alias="connector.class", description="Accepted if it is one of the Iceberg sinks.")
    tasks_max: int | None = Field(
        None, alias="tasks.max", description="Accepted for a taken-over file; parallelism is Spark's (spark.master)."
    )

    @model_validator(mode="after")
    def _consistent(self) -> SinkKeys:
        if bool(self.topics) == bool(self.topics_regex):
            raise ValueError("set one of topics and topics.regex")
        ways = {
            "iceberg.tables": bool(self.tables),
            "iceberg.tables.dynamic-enabled": self.dynamic,
            "iceberg.tables.topic-pattern": self.topic_pattern is not None,
        }
        chosen = [key for key, given in ways.items() if given]
        if len(chosen) > 1:
            raise ValueError(f"{' and '.join(chosen)} exclude each other")
        if not chosen:
            raise ValueError("set iceberg.tables, iceberg.tables.topic-pattern, or iceberg.tables.dynamic-enabled")
        if self.dynamic and not self.route_field:
            raise ValueError("iceberg.tables.dynamic-enabled needs iceberg.tables.route-field")
        if self.topic_regex is not None and self.topic_pattern is None:
            raise ValueError("iceberg.tables.topic-regex needs iceberg.tables.topic-pattern")
        if self.route_field is not None and self.topic_pattern is not None:
            raise ValueError("iceberg.tables.route-field and iceberg.tables.topic-pattern exclude each other")
        self._check_dead_letters()
        self._check_http()
        cycle_ms = self.commit_interval_ms + self.commit_timeout_ms
        if self.full_cycle_ms is not None and self.full_cycle_ms <= cycle_ms:
            raise ValueError(
                "iceberg.control.commit.full-cycle-within-ms has to be more than an interval and a timeout of commits"
            )
        return self

    def _check_http(self) -> None:
        if self.http_host not in LOOPBACK and self.http_token is None:
            raise ValueError(
                f"iceberg.http.host = {self.http_host} listens beyond this machine: set iceberg.http.token, too"
            )
        if (self.http_certificate is None) != (self.http_key is None):
            raise ValueError("iceberg.http.tls-certificate-file and iceberg.http.tls-key-file go together")
        if self.http_advertised is not None and self.http_port is None:
            raise ValueError("iceberg.http.advertised-url needs iceberg.http.port")

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
            raise ValueError("a dead-letter topic or table needs errors.tolerance = all")
        if self.errors_tolerance == "none" and "dead-letter" in (self.on_unrouted, self.on_missing_table):
            raise ValueError("the policy dead-letter needs errors.tolerance = all")


TAKEN_OVER: Mapping[str, str] = {
    "config.action.reload": "a configuration is read when the sink starts",
    "errors.log.enable": "the first bad record of a batch is always in the log",
    "errors.log.include.messages": "records are not logged; dead letters hold them",
    "errors.retry.delay.max.ms": "temporary failures are retried until they pass",
    "errors.retry.timeout": "temporary failures are retried until they pass",
    "header.converter": "headers stay bytes",
    "iceberg.control.group-id-prefix": "the control log is read without a group",
    "iceberg.coordinator-executor-keep-alive-timeout-ms": "there are no such threads",
}
"""Keys of a Kafka Connect file that have no effect here, and why. They are named in the log and ignored."""

REFUSED: Mapping[str, str] = {
    "iceberg.hadoop": "there is no Hadoop here; give storage settings under iceberg.catalog.",
    "iceberg.control.group-id": "it is a key of Tabular's sink, and connector.class is not Tabular's; the group is"
    " iceberg.connect.group-id",
    "producer.override.": "clients of the control topic are set under iceberg.kafka.",
    "admin.override.": "clients of the control topic are set under iceberg.kafka.",
    "config.providers": "secrets come in by ${env:NAME} and ${file:PATH:KEY}",
    "exactly.once.support": "it is Connect's own; leave it out",
    "tasks.max.enforce": "it is Connect's own; leave it out",
    "connector.plugin.version": "it is Connect's own; leave it out",
}
"""Keys of a Kafka Connect file that are refused, by their beginnings, and what to do."""

PREFIXES: Mapping[str, str] = {
    "kafka.": "librdkafka properties, such as `kafka.bootstrap.servers`",
    "consumer.override.": "the same, for a taken-over Kafka Connect file",
    "iceberg.kafka.": "librdkafka properties of the backend's clients, on top of `kafka.`",
    "iceberg.catalog.": "catalog properties, such as `iceberg.catalog.type`",
    "iceberg.tables.auto-create-props.": "properties of tables that are created",
    "iceberg.tables.write-props.": "override the tables' properties for writing",
    "spark.": "Spark properties, such as `spark.master`; `spark.calving.slots`: tasks at a time on Spark Connect",
    "value.converter.": "options of the value converter",
    "key.converter.": "options of the key converter",
    "iceberg.topic.": "per topic, such as `iceberg.topic.orders.value.converter` and its options",
    "transforms.": "of a transform: `transforms.<name>.type`, `.predicate`, `.negate` and its options",
    "predicates.": "of a predicate: `predicates.<name>.type` and its options",
}
"""Keys that are handed on, their prefix removed (kept for Spark)."""
