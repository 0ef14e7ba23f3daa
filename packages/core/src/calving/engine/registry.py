"""The engines by name, calving's own and those that packages register; and the time limits of their jobs."""

from __future__ import annotations

from typing import NamedTuple

from calving.errors import ConfigError
from calving.plugins import Registry

ENGINES = Registry(
    "engine", {"spark": "calving.engine.opening:open_spark", "local": "calving.engine.interface:open_local"}
)
KEY = "iceberg.engine"


class Patience(NamedTuple):
    """The seconds that a job may wait for its first task, and the seconds that it may take in total."""

    resources: float = 120.0
    job: float = 600.0


def check_engine(kind: str) -> None:
    """:raises ConfigError: there is no such engine."""
    try:
        ENGINES.check(kind)
    except ConfigError as error:
        raise ConfigError(f"{KEY}: {error}") from error
