"""Keys of the Redis backend."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from calving.backend import LogOptions

_WEEK_MS = 7 * 24 * 3600 * 1000
_URL = re.compile(r"rediss?://([^@\s]*@)?[^@/\s:]*(:\d{1,5})?(/\d*)?(\?\S*)?|unix://\S+")
_SENTINELS = re.compile(r"(\s*[^\s,:]+:\d{1,5}\s*(,|$))*")


def _url(value: str) -> str:
    if not _URL.fullmatch(value):
        raise ValueError("must be such as redis://host:6379/0, or rediss:// for TLS")
    return value


def _sentinels(value: str) -> str:
    if not _SENTINELS.fullmatch(value):
        raise ValueError("must be host:port, with commas between several")
    return value


class RedisOptions(LogOptions):
    """Keys of the Redis backend."""

    url: Annotated[str, AfterValidator(_url)] = Field(
        "redis://127.0.0.1:6379/0",
        alias="iceberg.control.redis.url",
        description="The address of Redis: `redis://` or, for TLS, `rediss://`, with host, port and database. TLS"
        " files are parameters, such as `?ssl_ca_certs=/ca.pem`.",
    )
    username: str | None = Field(None, alias="iceberg.control.redis.username", description="The ACL user.")
    password: SecretStr | None = Field(
        None, alias="iceberg.control.redis.password", description="The ACL user's password."
    )
    sentinels: Annotated[str, AfterValidator(_sentinels)] = Field(
        "",
        alias="iceberg.control.redis.sentinels",
        description="`host:port` of the Sentinels, separated by commas. The URL then only says how to connect.",
    )
    sentinel_service: str = Field(
        "mymaster", alias="iceberg.control.redis.sentinel-service", description="The primary's name in Sentinel."
    )
    sentinel_username: str | None = Field(
        None, alias="iceberg.control.redis.sentinel-username", description="The ACL user of the Sentinels."
    )
    sentinel_password: SecretStr | None = Field(
        None, alias="iceberg.control.redis.sentinel-password", description="The password of the Sentinels' ACL user."
    )
    cluster: bool = Field(
        False, alias="iceberg.control.redis.cluster", description="Redis is a cluster; the URL names one of its nodes."
    )
    prefix: str = Field("calving:", alias="iceberg.control.redis.prefix", description="The prefix of all keys.")
    lease_ms: int = Field(
        6_000,
        ge=500,
        le=_WEEK_MS,
        alias="iceberg.control.redis.lease-ms",
        description="How long a silent leader keeps the lead, in milliseconds; then another worker takes it.",
    )
    replicas: int | None = Field(
        None,
        ge=0,
        le=1_000,
        alias="iceberg.control.redis.replicas",
        description="Number of replicas that must have a publication before it counts. Default: 1 if Redis has any or"
        " Sentinels are set, else 0.",
    )
    accept_loss: bool = Field(
        False,
        alias="iceberg.control.redis.accept-loss",
        description="The sink starts although Redis may lose acknowledged writes; records may then be doubled.",
    )
    audit_ms: int = Field(
        600_000,
        ge=0,
        le=_WEEK_MS,
        alias="iceberg.control.redis.audit-ms",
        description="How long the sink keeps committed events, in milliseconds.",
    )
    timeout_ms: int = Field(
        3_000,
        ge=100,
        le=_WEEK_MS,
        alias="iceberg.control.redis.timeout-ms",
        description="How long one request may take, in milliseconds.",
    )
