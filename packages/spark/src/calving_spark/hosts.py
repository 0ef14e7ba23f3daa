"""The hosts of tasks: all need the version of calving that the driver has."""

from __future__ import annotations

import socket
import sys

from calving.errors import ConfigError
from calving_spark import __version__


def check_version(of_driver: str) -> None:
    """:raises ConfigError: this host has another version of calving-spark than the driver (S18)."""
    if of_driver != __version__:
        raise ConfigError(
            f"host {socket.gethostname()} has calving-spark {__version__} in {sys.executable}, and the driver"
            f" {of_driver}: install one version on every host"
        )
