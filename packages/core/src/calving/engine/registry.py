"""The engines by name, calving's own and those that packages register; the time limits of their jobs; and whether Spark
can start at all, found out without starting it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import NamedTuple

from calving.errors import ConfigError, UnavailableError
from calving.host import check_java
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


_ADDRESS = re.compile(r"(?:spark|sc)://(?P<host>\[[^\]]+\]|[^:/,]+)(?::(?P<port>\d+))?")
_CONNECT_PORT = 15002
_SECONDS = 5.0


def check_reach(properties: Mapping[str, str]) -> None:
    """``properties``: Spark's.

    :raises NotInstalledError: Java is missing or too old.
    :raises UnavailableError: Spark's master or its server does not answer.
    """
    key = "spark.remote" if "spark.remote" in properties else "spark.master"
    place = properties.get(key, "")
    if not place.startswith("sc://"):
        check_java()
    if (match := _ADDRESS.match(place)) is None or "," in place:  # of several masters, one leads
        return
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"] or _CONNECT_PORT)), _SECONDS).close()
    except OSError as error:
        raise UnavailableError(
            f"{key} = {place}: nothing answers there ({error.strerror or error}): start Spark, or correct the address"
        ) from error
