"""Keys of the Redis backend."""

from __future__ import annotations

from pydantic import Field, SecretStr

from calving.backend.entries import LogOptions


class RedisOptions(LogOptions):
    """Keys of the Redis backend."""

    url: str = Field(
        "redis://127.0.0.1:6379/0",
        alias="iceberg.control.redis.url",
        description="The address of Redis: `redis://` or, for TLS, `rediss://`, host, port and database; TLS files as"
        " parameters, such as `?ssl_ca_certs=/ca.pem`.",
    )
    username: str | None = Field(None, alias="iceberg.control.redis.username", description="The ACL user.")
    password: SecretStr | None = Field(None, alias="iceberg.control.redis.password", description="Its password.")
    sentinels: str = Field(
        "",
        alias="iceberg.control.redis.sentinels",
        description="`host:port` of Sentinels, separated by commas; the URL then only says how to connect.",
    )
    sentinel_service: str = Field(
        "mymaster", alias="iceberg.control.redis.sentinel-service", description="The primary's name in Sentinel."
    )
    sentinel_username: str | None = Field(
        None, alias="iceberg.control.redis.sentinel-username", description="The ACL user of the Sentinels."
    )
    sentinel_password: SecretStr | None = Field(
        None, alias="iceberg.control.redis.sentinel-password", description="The password of the Sentinels."
    )
    cluster: bool = Field(
        False, alias="iceberg.control.redis.cluster", description="Redis is a cluster; the URL names one of its nodes."
    )
    prefix: str = Field("calving:", alias="iceberg.control.redis.prefix", description="The prefix of all keys.")
    lease_ms: int = Field(
        6_000,
        ge=500,
        alias="iceberg.control.redis.lease-ms",
        description="A dead leader is replaced after this time.",
    )
    replicas: int | None = Field(
        None,
        ge=0,
        alias="iceberg.control.redis.replicas",
        description="Replicas that must have a publication before it counts; default 1 if there are any, else 0.",
    )
    accept_loss: bool = Field(
        False,
        alias="iceberg.control.redis.accept-loss",
        description="Start although Redis may lose acknowledged writes: records may then be doubled.",
    )
    audit_ms: int = Field(
        600_000, ge=0, alias="iceberg.control.redis.audit-ms", description="Committed events are kept for this time."
    )
    timeout_ms: int = Field(
        3_000, ge=100, alias="iceberg.control.redis.timeout-ms", description="How long one request may take."
    )
