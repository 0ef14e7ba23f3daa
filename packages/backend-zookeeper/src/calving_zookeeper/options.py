"""Keys of the ZooKeeper backend."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from calving.backend import LogOptions

_WEEK_MS = 7 * 24 * 3600 * 1000
_HOSTS = re.compile(r"\s*[^\s,:/]+(:\d{1,5})?(\s*,\s*[^\s,:/]+(:\d{1,5})?)*\s*(/\S*)?")


def _hosts(value: str) -> str:
    if not _HOSTS.fullmatch(value):
        raise ValueError("must be host:port, with commas between several")
    return value


class ZooKeeperOptions(LogOptions):
    """Keys of the ZooKeeper backend."""

    hosts: Annotated[str, AfterValidator(_hosts)] = Field(
        "127.0.0.1:2181",
        alias="iceberg.control.zookeeper.hosts",
        description="The ensemble: `host:port`, separated by commas. A path at the end is the root of all nodes.",
    )
    root: str = Field("/calving", alias="iceberg.control.zookeeper.root", description="The parent of all nodes.")
    session_ms: int = Field(
        6_000,
        ge=1_000,
        le=_WEEK_MS,
        alias="iceberg.control.zookeeper.session-timeout-ms",
        description="How long a silent leader keeps the lead, in milliseconds; then another worker takes it. The"
        " ensemble has bounds of its own.",
    )
    timeout_ms: int = Field(
        5_000,
        ge=100,
        le=_WEEK_MS,
        alias="iceberg.control.zookeeper.timeout-ms",
        description="How long one request may take, in milliseconds.",
    )
    username: str | None = Field(
        None, alias="iceberg.control.zookeeper.username", description="The user, by digest or SASL."
    )
    password: SecretStr | None = Field(
        None, alias="iceberg.control.zookeeper.password", description="The user's password."
    )
    authentication: Literal["none", "digest", "sasl-digest"] = Field(
        "none",
        alias="iceberg.control.zookeeper.authentication",
        description="`digest`: only the user has access to the nodes; `sasl-digest`: the same by SASL DIGEST-MD5.",
    )
    tls_ca: str | None = Field(
        None,
        alias="iceberg.control.zookeeper.tls-ca",
        description="The certificates that the client trusts (PEM). This key switches TLS on.",
    )
    tls_certificate: str | None = Field(
        None, alias="iceberg.control.zookeeper.tls-certificate", description="The client's certificate (PEM)."
    )
    tls_key: str | None = Field(
        None,
        alias="iceberg.control.zookeeper.tls-key",
        description="The private key of the client's certificate (PEM).",
    )
    audit_entries: int = Field(
        200,
        ge=0,
        alias="iceberg.control.zookeeper.audit-entries",
        description="Number of committed publications that the sink keeps.",
    )

    @model_validator(mode="after")
    def _has_login(self) -> ZooKeeperOptions:
        if self.authentication != "none" and (self.username is None or self.password is None):
            raise ValueError(
                f"iceberg.control.zookeeper.authentication = {self.authentication} needs"
                " iceberg.control.zookeeper.username and .password"
            )
        return self
