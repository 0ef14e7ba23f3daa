"""Checks at the start which writes the store may lose, and waits until a write is durable (B4)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import redis

from calving.errors import ConfigError, OutcomeUnknownError
from calving_redis.connection import RedisClient, reaching, where, writing
from calving_redis.options import RedisOptions

log = logging.getLogger(__name__)

_OLDEST = (7, 0)
_OLDEST_WAITAOF = (7, 2)


@dataclass(frozen=True, slots=True)
class Durability:
    """Waits after each write for an fsync of the node, and for ``replicas`` replicas."""

    fsync: bool
    replicas: int

    def wait(self, client: RedisClient, options: RedisOptions) -> None:
        """Wait until this connection's writes are durable.

        :raises OutcomeUnknownError: they are not durable in time.
        """
        if not self.fsync and not self.replicas:
            return
        with writing(options):
            # If the node syncs every write before it answers, this waits for the replicas only.
            wait_ms = options.timeout_ms * 3 // 4  # less than the client waits for an answer
            local, others = client.execute_command("WAITAOF", int(self.fsync), self.replicas, wait_ms)
        if local < self.fsync or others < self.replicas:
            raise OutcomeUnknownError(
                f"{where(options)}: after {wait_ms} ms a write was on the disk of {others} of {self.replicas} replicas"
            )


def inspect(client: RedisClient, options: RedisOptions) -> Durability:
    """Inspect the store.

    :raises ConfigError: the store may lose acknowledged writes, and the settings do not accept that.
    """
    with reaching(options):
        server = client.info("server")
        persistence = client.info("persistence")
        replication = client.info("replication")
        config = _config(client)
    version = _version(server)
    _check_server(options, version, replication, config)
    if not _keeps_writes(options, persistence, config) or options.accept_loss:
        return Durability(False, 0)
    replicas = options.replicas
    if replicas is None:
        replicas = 1 if int(replication.get("connected_slaves", 0)) or options.sentinels else 0
    syncs = config.get("appendfsync", "everysec") == "always"
    if (not syncs or replicas) and version < _OLDEST_WAITAOF:
        _complain(
            options,
            "it cannot tell when a write is safe (WAITAOF, since 7.2); upgrade, or appendfsync always without replicas",
        )
    return Durability(not syncs, replicas)


def _check_server(
    options: RedisOptions, version: tuple[int, ...], replication: Mapping[str, object], config: Mapping[str, str]
) -> None:
    """:raises ConfigError: it is no server for a control log, or evicts keys."""
    if version < _OLDEST:
        raise ConfigError(f"{where(options)}: version {'.'.join(map(str, version))} is too old: 7.0 or newer is needed")
    if replication.get("role") not in (None, "master"):
        raise ConfigError(f"{where(options)} is a replica: name its primary, or its Sentinels")
    policy = config.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        _complain(options, f"maxmemory-policy is {policy}: it may evict positions and events; set noeviction")


def _keeps_writes(options: RedisOptions, persistence: Mapping[str, object], config: Mapping[str, str]) -> bool:
    """Whether the disk has every acknowledged write at some time."""
    if not persistence.get("aof_enabled"):
        _complain(options, "appendonly is off: a crash loses acknowledged writes; set appendonly yes")
        return False
    if config.get("appendfsync") == "no":
        _complain(options, "appendfsync is no: a crash loses acknowledged writes; set always or everysec")
        return False
    return True


def _complain(options: RedisOptions, problem: str) -> None:
    text = f"{where(options)}: {problem}"
    if not options.accept_loss:
        raise ConfigError(f"{text}, or set iceberg.control.redis.accept-loss = true and accept doubled records")
    log.warning("%s; continuing, because iceberg.control.redis.accept-loss = true", text)


def _config(client: RedisClient) -> Mapping[str, str]:
    """The store's configuration; empty if CONFIG is not allowed, as in managed services."""
    try:
        settings: dict[object, object] = {}
        for name in ("appendfsync", "maxmemory-policy"):
            settings.update(client.config_get(name))
    except redis.ResponseError:
        return {}
    return {_text(name): _text(setting) for name, setting in settings.items()}


def _version(server: Mapping[str, object]) -> tuple[int, ...]:
    text = str(server.get("valkey_version") or server.get("redis_version") or "0")
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
