"""Opens the catalog that the settings name. Java's property names are translated if pyiceberg's names differ."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    BadRequestError,
    NoSuchTableError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.table import Table

from calving.catalogs import foreign
from calving.catalogs.jdbc import sql_properties, with_driver
from calving.catalogs.logins import denial, with_objects
from calving.catalogs.storage import by_settings_alone
from calving.errors import (
    UNTRUSTED,
    AccessDeniedError,
    CalvingError,
    ConfigError,
    UnavailableError,
    UnexpectedError,
    first_line,
)
from calving.importing import IMPORTING, reason
from calving.model.events import TableId
from calving.secrets import masked, without_secrets
from calving.storage_errors import described, store_error
from calving.threads import LateError, within

LOOK_SECONDS = 30.0
"""The time limit for loading a table. Not all catalogs have timeouts, and no timeout of a catalog includes reading the
metadata from storage.
"""

LISTING_SECONDS = 300.0
"""The time limit for listing tables, which takes one request for each namespace."""

_OPEN_TRIES = 3
_MISSING = ("NoSuchTable", "NoSuchIcebergTable", "NoSuchNamespace", "TableNotFound")
"""Error types of REST catalogs for a missing table."""

_AWAY = {
    "sqlalchemy.exc.InterfaceError",
    "sqlalchemy.exc.OperationalError",
    "sqlalchemy.exc.TimeoutError",
    "thrift.transport.TTransport.TTransportException",
}
"""Errors of a database or a metastore that is away, by name: nobody has to install their libraries."""
_FINAL = (BadRequestError, ValidationError, ValidationException, NotImplementedError, TypeError, ValueError)

_JAVA_TYPES = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.jdbc.JdbcCatalog": "jdbc",
}
_WAREHOUSE = "iceberg.catalog.warehouse"
_FILE_URI = re.compile(r"file:(//localhost(?=/)|//)?")
_JAVA_ONLY = ("io-impl", "clients", "lock-impl", "metrics-reporter-impl", "client.factory")


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """The catalog of ``iceberg.catalog.*``; ``type = embedded`` is SQLite beside a local warehouse.

    :raises ConfigError: the catalog cannot be opened, or cannot serve exactly-once.
    :raises UnavailableError: a REST catalog does not answer the first request, for its settings; or the database of a
        SQL catalog is away.
    """
    translated = translate(properties)
    for tries in range(_OPEN_TRIES):
        try:
            catalog = _loaded(name, translated)
            break
        except Exception as error:  # catalogs raise exceptions of their own
            if _passes(error):
                raise UnavailableError(
                    f"iceberg.catalog.uri = {masked(translated.get('uri', ''))}: the catalog '{name}' does not answer:"
                    f" start it, or correct the address ({_brief(error)})"
                ) from error
            # Two processes that open a new SQL catalog at once both create its tables, and one of them fails.
            if tries + 1 == _OPEN_TRIES or "already exists" not in str(error):
                why = denial(error, name, translated)
                if why is None:
                    why = masked(reason(error, "glue" if translated.get("type") == "glue" else None))
                remedy = next((remedy for words, remedy in _REMEDIES.items() if words in why), None)
                why = why if remedy is None else f"{remedy} ({_CLASS.sub('', why)})"
                raise ConfigError(f"iceberg.catalog.*: the catalog '{name}' cannot be opened: {why}") from error
    foreign.install()
    by_settings_alone(catalog)
    session = getattr(catalog, "_session", None)
    if session is not None:
        # Imported here, because other catalogs make no requests.
        from calving.catalogs.requests import limit

        limit(session)
    if translated.get("type") == "hive":
        from calving.catalogs.hive import MetastoreConnections

        catalog._client = MetastoreConnections(catalog.properties)  # type: ignore[attr-defined]
    return catalog


_CLASS = re.compile(r"^\(\w+\.\w+\) ")
"""The name of a driver's exception, before its text."""
_NO_CATALOG = "no REST catalog is at the address in iceberg.catalog.uri: correct it, and leave out /v1 at its end"
_TRUST = "have this machine trust the authority of the server's certificate, or replace the certificate"
_REMEDIES = {
    "RESTError 404": _NO_CATALOG,
    "validation error for ConfigResponse": _NO_CATALOG,
    "specify a region": "set iceberg.catalog.client.region, or AWS_REGION",
    "unable to open database file": "the folder of iceberg.catalog.uri must exist, and this user must write there",
    "sqlalchemy.dialects": "the driver of the database in iceberg.catalog.uri is not installed",
    "SSLCertVerificationError": "set iceberg.catalog.ssl.cabundle to a file with the certificate of who signed its own",
    UNTRUSTED: _TRUST,
    "SQLAlchemy support not installed": "the driver of the database in iceberg.catalog.uri is not installed",
}
"""What to do, by words of the libraries' errors."""


def _loaded(name: str, translated: Mapping[str, str]) -> Catalog:
    properties = with_objects(translated)
    if properties.get("type") == "sql":
        with IMPORTING:
            import pyiceberg.catalog.sql  # noqa: F401 - pyiceberg would import it without the lock
    if not properties.get("uri", "").startswith("http"):
        return load_catalog(name, **properties)
    return within(LOOK_SECONDS, "calving-look", lambda: load_catalog(name, **properties))


def _is_away(error: Exception) -> bool:
    if isinstance(error, LateError | ServerError | ServiceUnavailableError):
        return True
    requests = sys.modules.get("requests")  # if the error is from this library, it is already imported
    return requests is not None and isinstance(error, requests.ConnectionError | requests.Timeout)


_MISTAKEN = re.compile(
    r"unable to open database file|readonly database|no such table|already exists|password authentication failed"
    r"|no password supplied|Could not start SASL|Bad SASL"
    r"|Access denied|(role|database) \"[^\"]*\" does not exist|Unknown database|no pg_hba\.conf entry"
    rf"|{UNTRUSTED}|does not match host name|does not support SSL"
)
"""Words of databases and metastores that answer, and refuse. Their errors have the class of one that is away."""


def _passes(error: Exception) -> bool:
    """Whether the error says that the catalog's server or database is away, or has too much to do."""
    if _is_away(error) or isinstance(error, ConnectionError | TimeoutError | TooManyRequestsError):
        return UNTRUSTED not in str(error)
    is_away = any(f"{kind.__module__}.{kind.__qualname__}" in _AWAY for kind in type(error).__mro__)
    return is_away and _MISTAKEN.search(str(error)) is None


def is_final(error: Exception) -> bool:
    """Whether the catalog, or its client, refuses a request because of what is in it: no later answer differs."""
    # Some libraries have answers that are no JSON as ValueError and OSError at once.
    return isinstance(error, _FINAL) and not isinstance(error, OSError)


def is_refusal(error: Exception, catalog: Catalog) -> bool:
    """Whether the catalog refuses a commit, or denies it: another try at once would not differ. Errors of pyiceberg
    itself do not count: it applies the updates to what others have committed meanwhile before it compares.
    """
    return isinstance(error, BadRequestError) or denial(error, catalog.name, catalog.properties) is not None


def _brief(error: Exception) -> str:
    """The error's innermost cause. Connection errors wrap other errors, and their texts repeat the address."""
    match = re.search(r"\[Errno [-\d]+\] [^\"')]+", str(error))
    return match[0] if match is not None else masked(_CLASS.sub("", first_line(error)))


def translate(properties: Mapping[str, str]) -> dict[str, str]:
    """Java's catalog properties as pyiceberg's."""
    out = {key: value for key, value in properties.items() if key not in _JAVA_ONLY}
    impl = out.pop("catalog-impl", None)
    kind = (out.get("type") or _JAVA_TYPES.get(impl or "", impl or "")).lower()
    if not kind and not out.keys() & {"uri", "py-catalog-impl"}:
        raise ConfigError("iceberg.catalog.type is missing: write embedded, rest, sql, hive or glue")
    if kind == "embedded":
        return {**out, **_embedded(out)}
    if kind == "jdbc" or (kind == "sql" and out.get("uri", "").startswith("jdbc:")):
        return sql_properties(out)
    _check_kind(kind, impl)
    if kind == "sql":
        out["uri"] = with_driver(out.get("uri", ""))
    return {**out, "type": kind} if kind else out


def _check_kind(kind: str, impl: str | None) -> None:
    if kind in ("dynamodb", "hadoop", "nessie", "in-memory"):
        raise ConfigError(
            f"iceberg.catalog.type = {kind} cannot serve exactly-once from Python: use rest, sql, hive or glue"
        )
    if "." in kind:
        raise ConfigError(f"iceberg.catalog.catalog-impl = {impl} is a Java class that has no counterpart here")


def _embedded(properties: Mapping[str, str]) -> dict[str, str]:
    folder = Path(_FILE_URI.sub("", properties.get("warehouse", "warehouse"))).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if folder.is_file() else f"the folder cannot be made ({error.strerror})"
        raise ConfigError(f"{_WAREHOUSE} = {folder}: {why}: name a folder in which this user may write") from error
    if not os.access(folder, os.W_OK):
        raise ConfigError(
            f"{_WAREHOUSE} = {folder}: this user may not write there: name another folder, or give the right"
        )
    # By default SQLite gives up waiting for a lock after five seconds.
    return {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}?timeout=30", "warehouse": f"file://{folder}"}


def is_rest(catalog: Catalog) -> bool:
    """Whether it is a REST catalog. Does not import the class of REST catalogs, because that import is slow."""
    module = sys.modules.get("pyiceberg.catalog.rest")
    return module is not None and isinstance(catalog, module.RestCatalog)


def table_id(name: str) -> TableId:
    """``db.events`` as an identifier: split on dots, the last part is the name."""
    return tuple(name.split("."))


def find_table(catalog: Catalog, table: TableId) -> Table | None:
    """The table, or None if it does not exist.

    :raises UnavailableError: the catalog gives no clear answer, or none in time.
    """
    with reaching(catalog, f"table {'.'.join(table)} cannot be loaded"):
        try:
            return within(LOOK_SECONDS, "calving-look", lambda: catalog.load_table(table))
        except NoSuchTableError as error:
            if _is_missing(catalog, table, error):
                return None
            raise UnexpectedError(
                f"table {'.'.join(table)}: the catalog answers 404 without saying that there is no such table; a proxy"
                f" in between, or iceberg.catalog.uri or .prefix, may be wrong: {masked(str(error))}"
            ) from error


@contextlib.contextmanager
def reaching(catalog: Catalog, what: str) -> Iterator[None]:
    """Translate the errors of a catalog and of its store. Each catalog has exceptions of its own, and no base class of
    exceptions is common to all. ``what`` says what did not happen. calving's own errors stay as they are.

    :raises AccessDeniedError: access is denied; an operator has to act.
    :raises ConfigError: the server's certificate is not trusted.
    :raises UnavailableError: the catalog or its store is away, or does not answer in time; try again.
    :raises UnexpectedError: any other error; try again, but not for ever.
    """
    try:
        yield
    except CalvingError:
        raise
    except LateError as error:
        raise UnavailableError(f"{what}: {error}") from error
    except Exception as error:
        of_store = store_error(error)
        denied = str(of_store) if isinstance(of_store, AccessDeniedError) else None
        denied = denied or denial(error, catalog.name, catalog.properties)
        if denied is not None:
            raise AccessDeniedError(f"{what}: {denied}") from error
        text = without_secrets(described(error), catalog.properties)
        if UNTRUSTED in text:
            raise ConfigError(f"{what}: {_TRUST} ({text})") from error
        kind = UnavailableError if of_store is not None or _passes(error) else UnexpectedError
        raise kind(f"{what}: {text}") from error


def _is_missing(catalog: Catalog, table: TableId, error: NoSuchTableError) -> bool:
    """Whether the table is missing. pyiceberg takes every 404 for a missing table, also the 404 of a proxy or of a
    wrong path.
    """
    said, requests = error.__cause__, sys.modules.get("requests")
    if requests is None or not isinstance(said, requests.HTTPError) or said.response is None:
        return True  # other catalogs are not ambiguous
    try:
        kind = str(said.response.json()["error"]["type"])
    except (ValueError, KeyError, TypeError):
        kind = ""
    if any(name in kind for name in _MISSING):
        return True
    try:
        return table not in catalog.list_tables(table[:-1])
    except Exception:  # then the answer is unclear
        return False


def tables_of(catalog: Catalog, namespace: TableId = ()) -> list[TableId]:
    """All tables in a namespace and below it. Without a namespace, all tables in the catalog.

    :raises UnavailableError: the catalog gives no clear answer.
    """
    with reaching(catalog, "the catalog's tables cannot be listed"):
        return within(LISTING_SECONDS, "calving-look", lambda: _listed(catalog, namespace))


def _listed(catalog: Catalog, namespace: TableId) -> list[TableId]:
    tables: list[TableId] = []
    seen: set[TableId] = set()
    waiting = [namespace] if namespace else [tuple(name) for name in catalog.list_namespaces()]
    while waiting:
        here = waiting.pop()
        if here in seen or not catalog.namespace_exists(here):
            continue
        seen.add(here)
        tables += map(tuple, catalog.list_tables(here))
        waiting += [tuple(name) for name in catalog.list_namespaces(here)]
    return tables
