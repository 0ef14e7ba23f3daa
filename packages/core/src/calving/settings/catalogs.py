"""Checks of the catalog's properties that need no catalog: those of other libraries are late, and name no key."""

from __future__ import annotations

import re
from collections.abc import Mapping

from calving.errors import ConfigError
from calving.secrets import shown
from calving.wording import meant, missing

_KINDS = ("embedded", "rest", "sql", "hive", "glue", "jdbc")
_REFUSED = ("dynamodb", "hadoop", "nessie", "in-memory")
_URIS = {
    "rest": (re.compile(r"https?://[^/\s]+.*"), "http://host:8181 or https://host", "REST catalog"),
    "hive": (
        re.compile(r"thrift://[\w.-]+:\d{1,5}(,\s*thrift://[\w.-]+:\d{1,5})*/?"),
        "thrift://host:9083",
        "metastore",
    ),
    "sql": (
        re.compile(r"jdbc:.+|(?!postgres://)[a-z0-9]+(\+[a-z0-9]+)?://.*", re.IGNORECASE | re.DOTALL),
        "sqlite:////folder/catalog.db or postgresql+psycopg2://host:5432/database",
        "database",
    ),
}
"""The form of each kind's URI, an example, and what it leads to."""
_IN_MEMORY = re.compile(
    r"sqlite(\+\w+)?:(//)?/?(:memory:.*|\?.*)?|sqlite.*[?&]mode=memory.*", re.IGNORECASE | re.DOTALL
)
_LOCAL = re.compile(r"(file:/.*|[^:]*|[A-Za-z]:[\\/].*)", re.DOTALL)
_STORES = ("file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "hdfs", "viewfs", "oss", "hf")
_S3 = ("endpoint", "region", "access-key-id", "secret-access-key", "session-token", "path-style-access")
_NAMES = (
    *("type", "uri", "warehouse", "catalog-impl", "io-impl", "py-io-impl", "py-catalog-impl", "prefix", "token"),
    *("credential", "scope", "audience", "resource", "oauth2-server-uri", "rest.sigv4-enabled", "rest.signing-region"),
    *("rest.signing-name", "ssl.cabundle", "init_catalog_tables", "glue.id", "glue.endpoint", "glue.skip-archive"),
    *(f"s3.{name}" for name in (*_S3, "force-virtual-addressing", "anonymous", "role-arn", "signer", "signer.uri")),
    *("s3.signer.endpoint", "s3.connect-timeout", "s3.request-timeout", "s3.proxy-uri", "s3.profile-name"),
    *("s3.server-side-encryption", "s3.sse-kms-key-id", "s3.resolve-region", "s3.role-session-name"),
    *("s3.access-points", "s3.remote-signing-enabled", "s3.dualstack-enabled", "s3.sse.type", "s3.sse.key"),
    *(f"{of}.{name}" for of in ("client", "glue", "dynamodb") for name in _S3[:5]),
    *("client.profile-name", "client.role-arn", "client.role-session-name", "client.assume-role.arn"),
    *("adls.account-name", "adls.account-key", "adls.sas-token", "adls.connection-string", "adls.tenant-id"),
    *("adls.client-id", "adls.client-secret", "adls.credential", "adls.account-host", "adls.token", "adls.anon"),
    *(
        "gcs.project-id",
        "gcs.oauth2.token",
        "gcs.oauth2.token-expires-at",
        "gcs.service.host",
        "gcs.default-bucket-location",
    ),
    *("hive.hive2-compatible", "hive.kerberos-authentication", "hive.kerberos-service-name", "hdfs.host", "hdfs.port"),
    *("hdfs.user", "hdfs.kerberos_ticket", "jdbc.user", "jdbc.password", "jdbc.schema-version"),
)
"""Names that users write. Others may be the catalog's own, unless they look like one of these."""
_PAIRS = (
    ("access-key-id", "secret-access-key"),
    ("secret-access-key", "access-key-id"),
    ("session-token", "access-key-id"),
)


def check_catalog(catalog: Mapping[str, str]) -> None:
    """:raises ConfigError: a property is misspelt, is missing, or has a value that no catalog takes."""
    if "type" not in catalog and (hint := missing("type", catalog, "iceberg.catalog.")):
        raise ConfigError(f"iceberg.catalog.type is missing{hint}")
    for name in catalog.keys() - {*_NAMES}:
        if hint := meant(name, _NAMES, 0.9, "iceberg.catalog."):
            raise ConfigError(f"unknown key 'iceberg.catalog.{name}'{hint}")
    for of in ("s3", "client", "glue"):
        for one, other in _PAIRS:
            if catalog.get(f"{of}.{one}") and not catalog.get(f"{of}.{other}"):
                raise ConfigError(f"iceberg.catalog.{of}.{one} needs iceberg.catalog.{of}.{other}, too")
    kind = catalog.get("type", "").lower()
    if kind and kind not in (*_KINDS, *_REFUSED):
        hint = meant(kind, _KINDS, 0.6) or "; write embedded, rest, sql, hive or glue"
        raise ConfigError(f"iceberg.catalog.type = {kind}: there is no such catalog{hint}")


def check_address(catalog: Mapping[str, str]) -> None:
    """:raises ConfigError: the URI or the warehouse is missing, or none of this kind of catalog."""
    kind = catalog.get("type", "").lower()
    needed = _URIS.get("sql" if kind == "jdbc" else kind)
    if needed is not None:
        _check_uri(catalog, *needed)
    if kind != "rest" and "warehouse" in catalog:  # a REST catalog's warehouse is a name
        _check_warehouse(catalog["warehouse"], kind)


def _check_uri(catalog: Mapping[str, str], form: re.Pattern[str], example: str, what: str) -> None:
    uri = catalog.get("uri", "")
    if not uri:
        raise ConfigError(f"iceberg.catalog.uri is missing: where is the {what}?{_misspelt_uri(catalog)}")
    if not form.fullmatch(uri):
        raise ConfigError(
            f"iceberg.catalog.uri: must be such as {example} (given: {shown('iceberg.catalog.uri', uri)})"
        )
    if _IN_MEMORY.fullmatch(uri):
        raise ConfigError("iceberg.catalog.uri: a SQLite catalog in memory is gone with its process: name a file")
    host = uri.partition("://")[2].rpartition("@")[2]
    port = re.match(r"(?:\[[^\]]*\]|[^/:]*):([^/?#,]*)", host)
    if port is not None and not (port[1].isdecimal() and int(port[1]) < 65536):
        raise ConfigError(f"iceberg.catalog.uri: '{port[1]}' is no port (given: {shown('iceberg.catalog.uri', uri)})")


def _misspelt_uri(catalog: Mapping[str, str]) -> str:
    other = next((name for name in ("url", "ur", "endpoint", "address") if name in catalog), None)
    return "" if other is None else f" is 'iceberg.catalog.{other}' meant for it?"


def _check_warehouse(warehouse: str, kind: str) -> None:
    if warehouse.startswith(("~", "$")):
        raise ConfigError(
            f"iceberg.catalog.warehouse: '{warehouse[0]}' is a shell's form: write the whole path, or ${{env:NAME}}"
            f" (given: {shown('iceberg.catalog.warehouse', warehouse)})"
        )
    if kind == "embedded" and not _LOCAL.fullmatch(warehouse):
        raise ConfigError(
            f"iceberg.catalog.warehouse: the embedded catalog is a folder of this machine: name a folder, or set"
            f" iceberg.catalog.type = sql and its uri (given: {shown('iceberg.catalog.warehouse', warehouse)})"
        )
    scheme, colon, _ = warehouse.partition(":/")
    if colon and (scheme.lower() not in _STORES or (scheme != "file" and "://" not in warehouse)):
        hint = meant(scheme.lower(), _STORES, 0.6)
        raise ConfigError(
            f"iceberg.catalog.warehouse: must begin with s3://, gs://, abfss://, hdfs:// or file://{hint}"
            f" (given: {shown('iceberg.catalog.warehouse', warehouse)})"
        )
