"""The names of a catalog's properties: those that pyiceberg reads, and those that only Java's Iceberg reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from calving.errors import ConfigError
from calving.wording import meant_key

_PREFIX = "iceberg.catalog."
_LOGIN = ("profile-name", "region", "access-key-id", "secret-access-key", "session-token")
_OF_ALL = frozenset(
    (
        *("type", "uri", "warehouse", "catalog-impl", "io-impl", "py-catalog-impl", "py-io-impl", "buffer-size"),
        *("DEFAULT_SCHEME", "DEFAULT_NETLOC", "hf.endpoint", "hf.token", "hdfs.kerberos_ticket"),
        *(f"client.{name}" for name in (*_LOGIN, "role-arn", "role-session-name")),
        *(f"s3.{name}" for name in (*_LOGIN, "role-arn", "role-session-name", "anonymous", "endpoint", "proxy-uri")),
        *(f"s3.{name}" for name in ("connect-timeout", "request-timeout", "resolve-region", "retry-strategy-impl")),
        *(f"s3.{name}" for name in ("signer", "signer.uri", "signer.endpoint", "force-virtual-addressing")),
        *(f"s3.{name}" for name in ("server-side-encryption", "sse-kms-key-id")),
        *(f"adls.{name}" for name in ("account-name", "account-key", "account-host", "sas-token", "token", "anon")),
        *(f"adls.{name}" for name in ("connection-string", "credential", "tenant-id", "client-id", "client-secret")),
        *(f"adls.{store}-storage-{part}" for store in ("blob", "dfs") for part in ("authority", "scheme")),
        *(f"gcs.{name}" for name in ("project-id", "oauth2.token", "oauth2.token-expires-at", "access", "consistency")),
        *(f"gcs.{name}" for name in ("cache-timeout", "requester-pays", "session-kwargs", "service.host")),
        *(f"gcs.{name}" for name in ("default-bucket-location", "version-aware")),
        *(f"hdfs.{name}" for name in ("host", "port", "user")),
    )
)
_OF: Mapping[str, frozenset[str]] = {
    "rest": frozenset(
        (
            *("prefix", "token", "credential", "scope", "audience", "resource", "oauth2-server-uri"),
            *("rest.sigv4-enabled", "rest.signing-region", "rest.signing-name", "rest.sigv4.max-retries"),
            *("rest-page-size", "namespace-separator", "view-endpoints-supported", "snapshot-loading-mode"),
            *("scan-planning-mode", "ssl.cabundle", "ssl.client.cert", "ssl.client.key", "auth.type", "auth.impl"),
            *("auth.basic.username", "auth.basic.password", "auth.google.credentials_path", "auth.google.scopes"),
            *(f"auth.oauth2.{name}" for name in ("client_id", "client_secret", "token_url", "scope", "expires_in")),
            "auth.oauth2.refresh_margin",
        )
    ),
    "sql": frozenset(("echo", "pool_pre_ping", "schema_version", "init_catalog_tables")),
    "hive": frozenset(
        (
            *("hive.hive2-compatible", "hive.kerberos-authentication", "hive.kerberos-service-name", "ugi"),
            *("lock-check-min-wait-time", "lock-check-max-wait-time", "lock-check-retries"),
        )
    ),
    "glue": frozenset(
        f"glue.{name}" for name in (*_LOGIN, "id", "endpoint", "skip-archive", "max-retries", "retry-mode")
    ),
    "jdbc": frozenset(("jdbc.user", "jdbc.password", "jdbc.schema-version", "jdbc.init-catalog-tables")),
}
"""What each kind of catalog reads besides."""
_FREE = {"": ("adls.sas-token.",), "rest": ("header.", "auth.custom.", "auth.entra."), "jdbc": ("jdbc.",)}
"""Beginnings of names that a user chooses."""
READ = frozenset().union(_OF_ALL, *_OF.values())

_JAVA = re.compile(
    r"app-(id|name)|auth\.session-timeout-ms|cache[.-].+|clients|client-pool-cache-keys|client\.(assume-role|pool)\..+"
    r"|client\.(credentials-provider(\..+)?|factory|factory-impl|legacy-md5-plugin-enabled|refresh-credentials-.+)"
    r"|(azure\.keyvault|dynamodb|ecs|encryption|http-client|iceberg|io\.manifest|kms|lakeformation|lock|oss)\..+"
    r"|hive\.metastore\..+|list-all-tables|lock-impl|metastore\.catalog\.default|metrics-reporter.+|unique-table-location"
    r"|rest-.+|rest\.(auth|client|remote-signing)\..+|rest\.(access-key-id|secret-access-key|session-token)"
    r"|token-(exchange|refresh)-enabled|token-expires-in-ms|(table|view)-(default|override)\..+"
    r"|adls\.(auth|connection-string|read|write|sas-token-expires-at-ms|token-credential-provider)\..+"
    r"|adls\.(refresh-credentials-.+|token-credential-provider)|glue\.(account-id|lakeformation-enabled|skip-name-.+)"
    r"|gcs\.(analytics-core|channel|delete|impersonate)\..+|gcs\.(oauth2\.refresh-credentials-.+|no-auth|user-project)"
    r"|gcs\.(client-lib-token|decryption-key|encryption-key)"
    r"|s3\.(access-grants|access-points|analytics-accelerator|crt|delete|directory-bucket|multipart|retry|sse|write)\..+"
    r"|s3\.(acceleration|checksum|chunked-encoding|cross-region-access|delete|dualstack|preload-client|remote-signing)-enabled"
    r"|s3\.(acl|client-factory-impl|path-style-access|session-token-expires-at-ms|staging-dir|use-arn-region-enabled)"
)
"""What only Java's Iceberg reads: a connector that is moved over may have it."""
_COUNTERPARTS = {
    "s3.sse.type": "s3.server-side-encryption",
    "s3.sse.key": "s3.sse-kms-key-id",
    "s3.remote-signing-enabled": "s3.signer",
    "client.assume-role.arn": "client.role-arn",
    "client.assume-role.session-name": "client.role-session-name",
    "client.assume-role.region": "client.region",
    "adls.auth.shared-key.account.name": "adls.account-name",
    "adls.auth.shared-key.account.key": "adls.account-key",
    "rest.auth.type": f"auth.type, or {_PREFIX}rest.sigv4-enabled = true",
    "rest.auth.basic.username": "auth.basic.username",
    "rest.auth.basic.password": "auth.basic.password",
    "rest.access-key-id": "client.access-key-id",
    "rest.secret-access-key": "client.secret-access-key",
    "rest.session-token": "client.session-token",
}
"""Names of Java's whose meaning has another name in pyiceberg."""
_WITHOUT_URI = {
    "embedded": f"whose database is in its warehouse: set {_PREFIX}type = sql, or leave the uri out",
    "glue": f"whose address is {_PREFIX}glue.endpoint, if it is not that of the region: leave the uri out",
}
_DEFAULTS = (("rest.auth.type", "oauth2"), ("rest.auth.type", "none"))
"""What is so without the property, too."""


def check_names(kind: str, catalog: Mapping[str, str]) -> None:
    """``kind``: of the catalog; empty if unknown.

    :raises ConfigError: nobody reads a property.
    """
    if _is_open(catalog):
        return
    for name in catalog:
        if name in READ or _JAVA.fullmatch(name) or name.startswith(tuple(sum(_FREE.values(), ()))):
            continue
        hint = _of_address(kind, name) or _hint(name, sorted(_read(kind)))
        raise ConfigError(f"unknown key '{_PREFIX}{name}'{hint or '; no catalog and no store reads it: remove it'}")
    if kind in _WITHOUT_URI and "uri" in catalog:
        raise ConfigError(f"{_PREFIX}uri has no effect with {_PREFIX}type = {kind}, {_WITHOUT_URI[kind]}")


def without_effect(kind: str, catalog: Mapping[str, str]) -> Iterator[str]:
    """A sentence on each property that this kind of catalog does not read, though others do."""
    for name in sorted(catalog.keys() - _read(kind)):
        readers = [other for other in _OF if name in _OF[other] or name.startswith(_FREE.get(other, "\n"))]
        if _is_open(catalog) or kind in ("", *readers) or (name, catalog[name]) in _DEFAULTS:
            continue
        if name in _COUNTERPARTS:
            yield f"{_PREFIX}{name} has no effect here: write {_PREFIX}{_COUNTERPARTS[name]}"
        elif readers:
            of = " and ".join(readers)
            yield f"{_PREFIX}{name} has no effect with {_PREFIX}type = {kind}: only catalogs of type {of} read it"


def _is_open(catalog: Mapping[str, str]) -> bool:
    """Whether code of the user's own may read any property."""
    return "py-catalog-impl" in catalog or not catalog.get("py-io-impl", "pyiceberg.").startswith("pyiceberg.")


def _read(kind: str) -> Collection[str]:
    if kind not in (*_OF, "embedded"):
        return READ
    return _OF_ALL | _OF.get(kind, frozenset()) | (_OF["sql"] if kind == "jdbc" else frozenset())


def _hint(name: str, known: Sequence[str]) -> str:
    """The property that may be meant, of the same group if there is one."""
    group = name[: name.find(".") + 1]
    return meant_key(name, [each for each in known if group and each.startswith(group)] or known, _PREFIX)


def _of_address(kind: str, name: str) -> str:
    """What to do about a name for a part of the address, which other programs take by itself."""
    if name in ("endpoint", "address", "host") and kind not in _WITHOUT_URI:
        return f"; did you mean '{_PREFIX}uri'?"
    if name in ("user", "username", "password") and kind in ("sql", "jdbc"):
        return f"; write the login into {_PREFIX}uri, before the host"
    return ""
