"""The engines by name: calving's own, and engines that packages register."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calving.engine.interface import Engine, Patience
from calving.errors import ConfigError
from calving.importing import IMPORTING
from calving.plugins import Registry

Opener = Callable[[str, Mapping[str, str], Patience], Engine]
"""An engine's class, or a function that makes an engine. The arguments are the sink's name, its ``spark.*`` properties,
and the engine's patience with a job.
"""
ENGINES = Registry(
    "engine", {"spark": "calving.engine.spark_kinds:open_spark", "local": "calving.engine.local:open_local"}
)
_KEY = "iceberg.engine"


def check_engine(kind: str) -> None:
    """:raises ConfigError: there is no such engine."""
    try:
        ENGINES.check(kind)
    except ConfigError as error:
        raise ConfigError(f"{_KEY}: {error}") from error


def open_engine(
    kind: str,
    name: str,
    properties: Mapping[str, str],
    patience: Patience = Patience(),  # noqa: B008
) -> Engine:
    """``kind``: ``local``, ``spark``, or a registered name; ``properties``: Spark's.

    :raises ConfigError: there is no such engine, or it does not start.
    """
    try:
        # Imported here, because only one engine is needed, and each imports everything that it runs.
        with IMPORTING:
            opener: Opener = ENGINES.find(kind)
    except ConfigError as error:
        raise ConfigError(f"{_KEY}: {error}") from error
    return opener(name, properties, patience)
