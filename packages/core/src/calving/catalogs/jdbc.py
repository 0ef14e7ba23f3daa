"""Translates JDBC addresses of catalogs, as the Java sink's configuration has them, to SQLAlchemy's addresses."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from urllib.parse import parse_qsl, quote, unquote, urlencode

from calving.errors import ConfigError

log = logging.getLogger(__name__)

_URI = "iceberg.catalog.uri"
_SERVER = re.compile(r"(?://(?P<hosts>[^/?]*))?/?(?P<database>[^?]*)(?:\?(?P<query>.*))?")
_CATALOGS_OWN = ("schema-version", "strict-mode", "init-catalog-tables")
"""Keys under ``jdbc.`` that belong to Java's catalog, not to the driver."""
Translation = Callable[[str], Mapping[str, str]]


def sql_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a JDBC catalog as those of a SQL catalog.

    :raises ConfigError: the address is not understood, or has an option without a counterpart.
    """
    given = {key.removeprefix("jdbc."): value for key, value in properties.items() if key.startswith("jdbc.")}
    options = {key: value for key, value in given.items() if key not in _CATALOGS_OWN}
    out = {key: value for key, value in properties.items() if not key.startswith("jdbc.")}
    out |= {"type": "sql", "uri": sql_uri(properties.get("uri", ""), options)}
    if "init-catalog-tables" in given:
        out["init_catalog_tables"] = given["init-catalog-tables"]
    if not out["uri"].startswith("sqlite"):
        # After a restart of the server, the connections of the pool are closed.
        out.setdefault("pool_pre_ping", "true")
    return out


def with_driver(uri: str) -> str:
    """The address with the driver that ``calving[postgres]`` or ``calving[mysql]`` installs, if it names none, and
    SQLAlchemy's own one is not there alone.
    """
    for scheme, driver, other in (("postgresql", "psycopg2", "psycopg2"), ("mysql", "pymysql", "MySQLdb")):
        if uri.startswith(f"{scheme}://") and (find_spec(driver) is not None or find_spec(other) is None):
            return uri.replace(scheme, f"{scheme}+{driver}", 1)
    return uri


def sql_uri(uri: str, options: Mapping[str, str]) -> str:
    """``jdbc:...`` with the driver's ``options`` as an address for SQLAlchemy. Any other address stays as it is."""
    if not uri.startswith("jdbc:") and not options:
        return uri
    kind, _, rest = uri.removeprefix("jdbc:").partition(":")
    if kind == "sqlite":
        return _sqlite(rest, options)
    if kind not in _SERVERS:
        raise ConfigError(
            f"{_URI} = jdbc:{kind}:...: only jdbc:sqlite, jdbc:postgresql and jdbc:mysql are known;"
            " write another database as SQLAlchemy does, such as oracle+oracledb://host/database"
        )
    return _server(_SERVERS[kind], rest, options)


def _sqlite(rest: str, options: Mapping[str, str]) -> str:
    path, _, query = rest.removeprefix("file:").partition("?")
    if path in ("", ":memory:") or "mode=memory" in query:
        raise ConfigError(f"{_URI}: a SQLite catalog in memory is gone with its process: name a file")
    asked = {**dict(parse_qsl(query)), **options}
    millis = asked.pop("busy_timeout", "30000")
    if not millis.isdecimal():
        raise ConfigError(f"{_URI}: busy_timeout = {millis}: write a number of milliseconds, such as 30000")
    _leave_out("SQLite", asked)
    return f"sqlite:///{path}?timeout={int(millis) / 1000:g}"


@dataclass(frozen=True, slots=True)
class _Server:
    """A kind of database: its scheme for SQLAlchemy, its port, and its driver's options by the names of the JDBC
    options.
    """

    name: str
    scheme: str
    port: str
    options: Mapping[str, Translation]
    is_security: re.Pattern[str]
    """Options that must not be left out."""
    outranked: Mapping[str, str]
    """Options that have no effect where another one is given, as in the JDBC driver."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """The options that an option's value needs, by that value in upper case."""
    many_hosts: bool = False


def _as(name: str) -> Translation:
    return lambda value: {name: value}


def _seconds(name: str) -> Translation:
    """Translates milliseconds to seconds. 0 means for ever on both sides."""
    return lambda value: {name: str(max(1, int(value) // 1000))} if value.isdecimal() and int(value) else {}


def _keep_alive(value: str) -> Mapping[str, str]:
    return {"keepalives": "1" if value == "true" else "0"}


def _search_path(value: str) -> Mapping[str, str]:
    escaped = value.replace("\\", "\\\\").replace(" ", "\\ ")
    return {"options": f"-csearch_path={escaped}"}


def _mysql_ssl(value: str) -> Mapping[str, str]:
    """The TLS options of pymysql. It verifies only with a CA. Without any of these options it uses TLS where the server
    offers it, as Java's driver does, and does not verify.
    """
    match value.upper():
        case "PREFERRED":
            return {}
        case "DISABLED" | "FALSE" | "NO":
            return {"ssl_disabled": "true"}
        case "REQUIRED" | "TRUE" | "YES" | "VERIFY_CA":
            return {"ssl_check_hostname": "false"}
        case "VERIFY_IDENTITY":
            return {"ssl_check_hostname": "true"}
    raise ConfigError(
        f"{_URI}: {value} is no value of sslMode or useSSL: write sslMode = DISABLED, PREFERRED, REQUIRED, VERIFY_CA or"
        " VERIFY_IDENTITY"
    )


_SERVERS = {
    "postgresql": _Server(
        "PostgreSQL",
        "postgresql+psycopg2",
        "5432",
        {
            "sslmode": lambda value: {"sslmode": value.lower()},
            **{name: _as(name) for name in ("sslrootcert", "sslcert", "sslkey", "options")},
            "ApplicationName": _as("application_name"),
            "connectTimeout": _as("connect_timeout"),
            "loginTimeout": _as("connect_timeout"),
            "tcpKeepAlive": _keep_alive,
            "currentSchema": _search_path,
            "targetServerType": lambda value: {"target_session_attrs": "any" if value == "any" else "read-write"},
            "ssl": lambda value: {"sslmode": "verify-full"} if value.lower() in ("", "true") else {},
        },
        re.compile("ssl.*|gss.*|channelBinding|requireAuth", re.IGNORECASE),
        {"ssl": "sslmode", "loginTimeout": "connectTimeout"},
        many_hosts=True,
    ),
    "mysql": _Server(
        name="MySQL",
        scheme="mysql+pymysql",
        port="3306",
        options={
            "sslMode": _mysql_ssl,
            "useSSL": _mysql_ssl,
            "serverSslCert": _as("ssl_ca"),
            "connectTimeout": _seconds("connect_timeout"),
            "socketTimeout": _seconds("read_timeout"),
        },
        is_security=re.compile(".*(ssl|tls|certificate|keystore).*", re.IGNORECASE),
        outranked={"useSSL": "sslMode"},
        needs={"VERIFY_CA": "serverSslCert", "VERIFY_IDENTITY": "serverSslCert"},
    ),
}


def _server(server: _Server, rest: str, given: Mapping[str, str]) -> str:
    match = _SERVER.fullmatch(rest)
    if match is None or not match["database"] or "/" in match["database"]:
        raise ConfigError(f"{_URI}: write it as jdbc:{server.scheme.partition('+')[0]}://host:port/database")
    asked = {**dict(parse_qsl(match["query"] or "", keep_blank_values=True)), **given}
    user, password = asked.pop("user", None), asked.pop("password", None)
    login = f"{quote(user, safe='')}:{quote(password or '', safe='')}@" if user else ""
    options = list(_translated(server, asked).items())
    _leave_out(server.name, asked)
    host, more = _hosts(server, match["hosts"] or "localhost")
    options += more
    query = f"?{urlencode(options)}" if options else ""
    return f"{server.scheme}://{login}{host}/{quote(unquote(match['database']), safe='')}{query}"


def _hosts(server: _Server, given: str) -> tuple[str, list[tuple[str, str]]]:
    """The host; or no host, and an option for each of several."""
    hosts = given.split(",")
    if len(hosts) == 1:
        return given, []
    if not server.many_hosts:
        raise ConfigError(f"{_URI}: it names several hosts, but {server.name}'s driver here takes one: name that one")
    return "", [("host", host if ":" in host else f"{host}:{server.port}") for host in hosts]


def _translated(server: _Server, asked: dict[str, str]) -> dict[str, str]:
    """The options that have a counterpart. They are removed from ``asked``."""
    for value in asked.values():
        other = server.needs.get(value.upper())
        if other is not None and not asked.get(other):
            raise ConfigError(f"{_URI}: {value} needs {other}, a file with the certificates (PEM)")
    for less, more in server.outranked.items():
        if more in asked:
            asked.pop(less, None)
    parameters: dict[str, str] = {}
    for name in [name for name in server.options if name in asked]:
        for option, value in server.options[name](asked.pop(name)).items():
            # Only PostgreSQL's command-line options come from two JDBC options.
            parameters[option] = f"{parameters[option]} {value}" if option in parameters else value
    wrong = next(filter(server.is_security.fullmatch, asked), None)
    if wrong is not None:
        names = ", ".join(filter(server.is_security.fullmatch, server.options))
        raise ConfigError(
            f"{_URI}: {wrong} of {server.name}'s JDBC driver has no counterpart here: take it out, or use one of"
            f" {names}"
        )
    return parameters


def _leave_out(database: str, options: Mapping[str, str]) -> None:
    if options:
        log.warning("options of %s's JDBC driver have no effect here and are ignored: %s", database, ", ".join(options))
