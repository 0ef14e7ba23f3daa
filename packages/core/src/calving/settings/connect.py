"""Settings from configurations of Kafka Connect: those that connectors inherit from their worker, and those of
Tabular's Iceberg sink, the predecessor of Apache's.

Tabular's sink stores source positions in a separate consumer group, the control group, and names its events and the
offsets in tables after that group. The connector's consumer group has a copy of the positions, which may be behind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from calving.errors import ConfigError

_TABULAR_CLASS = "io.tabular.iceberg.connect.IcebergSinkConnector"
_GROUP, _CONTROL_GROUP = "iceberg.connect.group-id", "iceberg.control.group-id"
_GROUP_OVERRIDE = "consumer.override.group.id"
_WRITE, _WRITE_HERE = "iceberg.table.write-props.", "iceberg.tables.write-props."


def is_tabular(raw: Mapping[str, str]) -> bool:
    """Whether the configuration is that of Tabular's connector."""
    return raw.get("connector.class") == _TABULAR_CLASS


def connector_group(raw: Mapping[str, str]) -> str | None:
    """The consumer group of the tasks of a Tabular connector; None for any other configuration."""
    if not is_tabular(raw):
        return None
    return raw.get(_GROUP_OVERRIDE) or raw.get(_GROUP) or f"connect-{raw.get('name', '')}"


def from_tabular(raw: Mapping[str, str]) -> dict[str, str]:
    """The keys of a Tabular connector under calving's names; any other configuration unchanged.

    The control group becomes the sink's group: positions, uncommitted files and offsets in tables are stored under it.
    """
    if not is_tabular(raw):
        return dict(raw)
    kept = {key: text for key, text in raw.items() if key not in (_GROUP, _CONTROL_GROUP, _GROUP_OVERRIDE)}
    keys = {_WRITE_HERE + k.removeprefix(_WRITE) if k.startswith(_WRITE) else k: v for k, v in kept.items()}
    return keys | {_GROUP: raw.get(_CONTROL_GROUP) or f"cg-control-{raw.get('name', '')}"}


_CLIENT = re.compile(r"bootstrap\.servers|security\.protocol|sasl\..*|ssl\..*|client\.dns\.lookup")
_PROVIDERS = {
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
}
_SOURCE, _CONTROL, _OVERRIDE = "kafka.", "iceberg.kafka.", "consumer.override."
_RESET = "iceberg.source.start"


def with_worker(connector: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    """The connector's keys, and the keys that it inherits from its worker. The connector's keys take precedence.

    As in the Java sink, clients that read records use the worker's ``consumer.`` properties, and clients of the control
    topic use the worker's properties without a prefix.

    :raises ConfigError: the worker names no brokers, or the connector uses an unknown provider of secrets.
    """
    if "bootstrap.servers" not in worker:
        raise ConfigError(
            "the worker's properties have no bootstrap.servers: are they those of a Kafka Connect worker?"
        )
    found = {**_clients(worker), **_converters(connector, worker)}
    # The connector's consumer overrides take precedence over the worker's.
    overridden = {name.removeprefix(_OVERRIDE) for name in connector if name.startswith(_OVERRIDE)}
    for name in overridden:
        found.pop(_RESET if name == "auto.offset.reset" else f"{_SOURCE}{name}", None)
    return _renamed({**found, **connector}, worker)


def _clients(worker: Mapping[str, str]) -> dict[str, str]:
    """Brokers and security of the clients that read records, and of the control topic's clients."""
    own = {name: text for name, text in worker.items() if _CLIENT.fullmatch(name)}
    consumer = {name.removeprefix("consumer."): text for name, text in worker.items() if name.startswith("consumer.")}
    reset = consumer.pop("auto.offset.reset", None)
    consumer.pop("group.id", None)
    source = {**own, **consumer}
    found = {f"{_SOURCE}{name}": text for name, text in source.items()}
    found |= {f"{_CONTROL}{name}": text for name, text in own.items() if source[name] != text}
    return found if reset is None else found | {_RESET: reset}


def _converters(connector: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    """The worker's converters with their options, if the connector names no converter."""
    missing = [name for name in ("key.converter", "value.converter") if name not in connector]
    return {key: text for key, text in worker.items() for name in missing if key == name or key.startswith(f"{name}.")}


def _renamed(keys: Mapping[str, str], worker: Mapping[str, str]) -> dict[str, str]:
    """The keys with ``${name:...}`` renamed from the worker's provider to calving's, ``env`` or ``file``."""
    names = [name.strip() for name in worker.get("config.providers", "").split(",") if name.strip()]
    kinds = {name: _PROVIDERS.get(worker.get(f"config.providers.{name}.class", "")) for name in names}
    if not kinds:
        return dict(keys)
    pattern = re.compile(rf"\$\{{({'|'.join(map(re.escape, kinds))}):([^}}]*)\}}")

    def renamed(key: str, text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            kind = kinds[match[1]]
            if kind is None:
                raise ConfigError(
                    f"{key}: the worker's config.providers.{match[1]} is a Java class that has no counterpart here; use"
                    " ${env:NAME} or ${file:PATH:KEY}"
                )
            # The provider of environment variables ignores the path.
            return f"${{{kind}:{match[2].rpartition(':')[2] if kind == 'env' else match[2]}}}"

        return pattern.sub(replace, text)

    return {key: renamed(key, text) for key, text in keys.items()}
