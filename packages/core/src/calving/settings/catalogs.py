"""Checks of the catalog's properties that need no catalog: those of other libraries are late, and name no key."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from calving.addresses import port_and_path
from calving.errors import ConfigError
from calving.secrets import shown
from calving.settings.catalog_names import check_names
from calving.settings.keys import whole_location
from calving.wording import meant

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
_LOCAL = re.compile(r"(file:/.*|[^:]*)", re.DOTALL)
_DRIVE = re.compile(r"[A-Za-z]:(\\|/(?!/))")
_STORES = ("file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "hdfs", "viewfs", "oss", "hf")
_HTTP = {
    *("s3.endpoint", "s3.proxy-uri", "s3.signer.uri", "glue.endpoint", "gcs.service.host", "hf.endpoint"),
    *("oauth2-server-uri", "auth.oauth2.token_url"),
}
"""Addresses of HTTP services. Without http://, one store takes https, and others fail with the first file."""
_FLAGS = {
    *("s3.force-virtual-addressing", "s3.anonymous", "s3.resolve-region", "gcs.requester-pays", "gcs.version-aware"),
    *("rest.sigv4-enabled", "view-endpoints-supported", "glue.skip-archive", "hive.hive2-compatible"),
    *("hive.kerberos-authentication", "pool_pre_ping", "init_catalog_tables"),
}
_NUMBERS = {"rest-page-size", "rest.sigv4.max-retries", "glue.max-retries", "hdfs.port", "lock-check-retries"}
_FLAG = re.compile(r"|true|false|t|f|yes|no|y|n|on|off|1|0", re.IGNORECASE)
_PAIRS = (
    ("access-key-id", "secret-access-key"),
    ("secret-access-key", "access-key-id"),
    ("session-token", "access-key-id"),
)


def check_catalog(catalog: Mapping[str, str]) -> None:
    """:raises ConfigError: a property is misspelt, is missing, or has a value that no catalog takes."""
    check_names(kind_of(catalog), catalog)
    for of in ("s3", "client", "glue"):
        for one, other in _PAIRS:
            if catalog.get(f"{of}.{one}") and not catalog.get(f"{of}.{other}"):
                raise ConfigError(f"iceberg.catalog.{of}.{one} needs iceberg.catalog.{of}.{other}, too")
    kind = catalog.get("type", "").lower()
    if kind and kind not in (*_KINDS, *_REFUSED):
        hint = meant(kind, _KINDS, 0.6) or "; write embedded, rest, sql, hive or glue"
        raise ConfigError(f"iceberg.catalog.type: there is no catalog '{kind}'{hint}")
    for name in ("s3.connect-timeout", "s3.request-timeout"):
        if not re.fullmatch(r"\d+(\.\d+)?", catalog.get(name, "0")):
            raise ConfigError(f"iceberg.catalog.{name}: must be a number of seconds (given: '{catalog[name]}')")
    if (signer := catalog.get("s3.signer", "S3V4RestSigner")) != "S3V4RestSigner":
        raise ConfigError(f"iceberg.catalog.s3.signer: must be S3V4RestSigner (given: '{signer}')")
    _check_login(catalog)


def check_case(routed: str, catalog: Mapping[str, str]) -> None:
    """``routed``: the case of the names of tables that come from records.

    :raises ConfigError: the catalog would have one table for names that differ by case, and the sink two.
    """
    if routed == "as-is" and (kind := kind_of(catalog)) in ("hive", "glue"):
        raise ConfigError(
            f"iceberg.tables.routed-case = as-is: a catalog of the type {kind} has names in lower case only, so tables"
            " whose names differ by case would be one: set it to lower"
        )


def kind_of(catalog: Mapping[str, str]) -> str:
    """The type of a catalog, also of one that is named as in Java or has only an address; empty if nothing tells it."""
    uri = catalog.get("uri", "")
    impl = re.search(r"(\w*)Catalog$", catalog.get("catalog-impl", ""))
    kind = (catalog.get("type") or (impl[1] if impl else catalog.get("catalog-impl", ""))).lower()
    if kind in ("", "sql"):
        return next((of for start, of in _SCHEMES.items() if uri.startswith(start)), kind)
    return kind


_SCHEMES = {"jdbc:": "jdbc", "http": "rest", "thrift": "hive", "sqlite": "sql", "postgresql": "sql"}
_LOGINS: Mapping[str, Collection[str]] = {
    "noop": (),
    "basic": ("username", "password"),
    "oauth2": ("client_id", "client_secret", "token_url"),
    "google": (),
    "entra": (),
    "custom": (),
}
"""The kinds of logins of REST catalogs, with what they need."""


def _check_login(catalog: Mapping[str, str]) -> None:
    given = sorted(name for name in catalog if name.startswith("auth.") and name != "auth.session-timeout-ms")
    if not given:
        return
    kind = catalog.get("auth.type", "")
    if not kind:
        raise ConfigError(f"iceberg.catalog.{given[0]} needs iceberg.catalog.auth.type: one of {', '.join(_LOGINS)}")
    if kind not in _LOGINS:
        hint = meant(kind, _LOGINS, 0.6) or f"; there are {', '.join(_LOGINS)}"
        raise ConfigError(f"iceberg.catalog.auth.type = {kind}: there is no such login{hint}")
    for name in _LOGINS[kind]:
        if not catalog.get(f"auth.{kind}.{name}"):
            raise ConfigError(f"iceberg.catalog.auth.type = {kind} needs iceberg.catalog.auth.{kind}.{name}")
    for name in ("auth.oauth2.refresh_margin", "auth.oauth2.expires_in"):
        if not re.fullmatch(r"\d{1,9}", catalog.get(name, "0")):
            raise ConfigError(f"iceberg.catalog.{name}: must be a whole number of seconds (given: '{catalog[name]}')")
    if ("auth.impl" in catalog) != (kind == "custom"):
        raise ConfigError("iceberg.catalog.auth.impl, a class, and iceberg.catalog.auth.type = custom go together")


def check_address(catalog: Mapping[str, str]) -> None:
    """:raises ConfigError: the URI or the warehouse is missing, or none of this kind of catalog; or an address of
    another service, or a flag, is none.
    """
    for name in _HTTP & {name for name, address in catalog.items() if address}:
        _check_http(f"iceberg.catalog.{name}", catalog[name])
    for name in _NUMBERS & catalog.keys():
        if not re.fullmatch(r"[0-9]{1,9}", catalog[name]):
            raise ConfigError(f"iceberg.catalog.{name}: must be a whole number (given: '{catalog[name]}')")
    for name in _FLAGS & catalog.keys():
        if not _FLAG.fullmatch(catalog[name]):
            raise ConfigError(f"iceberg.catalog.{name}: must be true or false (given: '{catalog[name]}')")
    kind = catalog.get("type", "").lower()
    needed = _URIS.get("sql" if kind == "jdbc" else kind)
    if needed is not None:
        _check_uri(catalog, *needed)
    if kind != "rest" and "warehouse" in catalog:  # a REST catalog's warehouse is a name
        _check_warehouse(catalog["warehouse"], kind)


def _check_http(key: str, address: str) -> None:
    try:
        port_and_path(address)
    except ValueError as error:
        raise ConfigError(f"{key}: {error} (given: {shown(key, address)})") from error


def _check_uri(catalog: Mapping[str, str], form: re.Pattern[str], example: str, what: str) -> None:
    uri = catalog.get("uri", "")
    if not uri:
        raise ConfigError(f"iceberg.catalog.uri is missing: where is the {what}?")
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


def _check_warehouse(warehouse: str, kind: str) -> None:
    if not warehouse:
        raise ConfigError(
            "iceberg.catalog.warehouse: must not be empty: give a value, or leave the key out (given: '')"
        )
    if _DRIVE.match(warehouse):
        raise ConfigError(
            f"iceberg.catalog.warehouse: '{warehouse[:2]}' is a drive of Windows: name a folder of this machine, such"
            f" as /lake (given: {shown('iceberg.catalog.warehouse', warehouse)})"
        )
    if warehouse.startswith(("~", "$")):
        raise ConfigError(
            f"iceberg.catalog.warehouse: '{warehouse[0]}' is a shell's form: write the whole path, or ${{env:NAME}}"
            f" (given: {shown('iceberg.catalog.warehouse', warehouse)})"
        )
    if kind in ("sql", "jdbc", "hive", "glue"):  # readers elsewhere cannot know what a location is relative to
        try:
            whole_location(warehouse)
        except ValueError as error:
            raise ConfigError(
                f"iceberg.catalog.warehouse: {error} (given: {shown('iceberg.catalog.warehouse', warehouse)})"
            ) from error
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
