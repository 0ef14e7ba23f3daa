"""Writes the first configuration of a sink, with comments that say what to change."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import typer

from calving.errors import ConfigError

CATALOGS = ("embedded", "rest", "sql", "glue", "hive")
STORES = ("local", "s3", "gcs", "azure")


@dataclass(frozen=True, slots=True)
class Answers:
    """The facts about a sink that a configuration needs."""

    topic: str
    table: str
    bootstrap_servers: str
    catalog: str
    uri: str
    warehouse: str

    @property
    def name(self) -> str:
        return self.topic


_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gcs", "abfs": "azure", "abfss": "azure"}
_LOCATIONS = {
    "local": "warehouse",
    "s3": "s3://BUCKET/warehouse",
    "gcs": "gs://BUCKET/warehouse",
    "azure": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/warehouse",
}
_URIS = {
    "rest": "https://catalog.example.com",
    "sql": "postgresql+psycopg2://USER:${env:CATALOG_PASSWORD}@HOST/DATABASE",
    "hive": "thrift://HOST:9083",
}
_EXTRAS = {"glue": "glue", "hive": "hive", "azure": "azure", "postgresql": "postgres"}


def answers(
    topic: str, table: str | None, servers: str, catalog: str, store: str, uri: str | None, warehouse: str | None
) -> Answers:
    """The given answers, with likely answers in place of missing ones.

    :raises ConfigError: the catalog or the store is not known, or they cannot be combined.
    """
    for what, given, known in (("catalog", catalog, CATALOGS), ("store", store, STORES)):
        if given not in known:
            raise ConfigError(f"there is no {what} '{given}'; there are {', '.join(known)}")
    if catalog == "embedded" and store != "local":
        raise ConfigError(f"the embedded catalog is for the local disk: choose another one for store {store}")
    table = table or f"db.{topic.replace('.', '_').replace('-', '_').lower()}"
    if "." not in table:
        raise ConfigError(f"table '{table}' has no namespace: write it as db.{table}")
    return Answers(topic, table, servers, catalog, uri or _URIS.get(catalog, ""), warehouse or _LOCATIONS[store])


def asked(given: str | None, option: str, question: str, default: str | None = None) -> str:
    """What the user gives as an option, or answers.

    :raises ConfigError: nobody answers, and there is neither the option nor a default.
    """
    if given is not None:
        return given
    try:
        return str(typer.prompt(question, default=default, err=True))
    except typer.Abort:
        if sys.stdin.isatty():
            raise  # the user has stopped it
        typer.echo(err=True)
        if default is None:
            raise ConfigError(f"nobody answers: {option} is needed") from None
        return default


def text_of(found: Answers) -> str:
    """The file, in TOML."""
    return "\n".join([*_head(found), *_tables(found), *_catalog(found), *_clients(found)]) + "\n"


def _head(found: Answers) -> list[str]:
    return [
        "# A sink of calving. All keys: docs/reference/configuration.md",
        *[f'# Needs: pip install "calving[{",".join(["kafka", *_extras(found)])}]"'],
        "#",
        "# calving validate FILE   checks it, and everything that it points at",
        "# calving preview FILE    shows what would become of the newest records, and writes nothing",
        "# calving run FILE        runs it",
        "",
        "# The name makes the consumer group: connect-<name>. It stays, or the sink loses its place.",
        f"name = {_quoted(found.name)}",
        f"topics = [{_quoted(found.topic)}]",
        "",
        "# How values are decoded: json, avro, protobuf, json-schema (a registry: calving[registry]), string, ...",
        '"value.converter" = "json"',
        '# "value.converter.schema.registry.url" = "http://registry:8081"',
        "",
    ]


def _tables(found: Answers) -> list[str]:
    return [
        "[iceberg]",
        f"tables = {_quoted(found.table)}",
        "# The table is created if it is missing, and gets the columns that records need.",
        '"tables.auto-create-enabled" = true',
        '"tables.evolve-schema-enabled" = true',
        "# Partitions of a table that is created; a column that is cut by time becomes a timestamp.",
        '# "tables.default-partition-by" = "day(ts), bucket(customer, 16)"',
        "# Columns whose types are not left to the records.",
        f'# "table.{found.table}.columns" = "ts timestamptz, amount decimal(12, 2)"',
        "# Time from one commit to the next.",
        '"control.commit.interval-ms" = 60000',
        "# A page, metrics and health on this machine.",
        '# "http.port" = 8083',
        "",
        "# A bad record stops the sink. With these it becomes a dead letter.",
        "# [errors]",
        '# tolerance = "all"',
        f'# "deadletterqueue.topic.name" = {_quoted(f"{found.topic}-dead-letters")}',
        "",
    ]


def _catalog(found: Answers) -> list[str]:
    lines = ["[iceberg.catalog]", f"type = {_quoted(found.catalog)}"]
    if found.uri:
        lines.append(f"uri = {_quoted(found.uri)}")
    lines.append(f"warehouse = {_quoted(found.warehouse)}")
    if found.catalog == "rest":
        lines += ["# Of these the catalog wants one, or none.", '# token = "${env:CATALOG_TOKEN}"']
        lines += ['# credential = "${env:CATALOG_CREDENTIAL}"']
    match _SCHEMES.get(found.warehouse.partition(":")[0]):
        case "s3":
            lines += [
                "# Without keys they are found as AWS clients find them, or vended by a REST catalog.",
                '# "s3.region" = "eu-central-1"',
                '# "s3.endpoint" = "https://minio.example.com:9000"',
                '# "s3.access-key-id" = "..."',
                '# "s3.secret-access-key" = "${env:S3_SECRET}"',
            ]
        case "gcs":
            lines += ['# "gcs.oauth2.token" = "${env:GCS_TOKEN}"']
        case "azure":
            lines += ['# "adls.account-name" = "ACCOUNT"', '# "adls.account-key" = "${env:ADLS_KEY}"']
    return [*lines, ""]


def _clients(found: Answers) -> list[str]:
    return [
        "# Properties of librdkafka.",
        "[kafka]",
        f'"bootstrap.servers" = {_quoted(found.bootstrap_servers)}',
        '# "security.protocol" = "SASL_SSL"',
        '# "sasl.mechanism" = "SCRAM-SHA-512"',
        '# "sasl.username" = "calving"',
        '# "sasl.password" = "${env:KAFKA_PASSWORD}"',
        "",
        "[spark]",
        "# Or yarn, spark://host:7077, k8s://...",
        'master = "local[*]"',
    ]


def _extras(found: Answers) -> list[str]:
    """The software that a catalog and a store need besides calving."""
    needs = (
        found.catalog,
        found.uri.partition(":")[0].partition("+")[0],
        _SCHEMES.get(found.warehouse.partition(":")[0]),
    )
    return list(dict.fromkeys(_EXTRAS[need] for need in needs if need in _EXTRAS))


def _quoted(text: str) -> str:
    """The text as a TOML string. TOML has the same escapes as JSON."""
    return json.dumps(text, ensure_ascii=False)
