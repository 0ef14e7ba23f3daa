"""One ZooKeeper for the tests, on loopback, from the jars that PySpark ships."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from calving.errors import ConfigError
from calving.services.maven import java
from calving.services.process import LOOPBACK, Process, free_port

_SETTINGS = {
    "tickTime": "500",
    "admin.enableServer": "false",
    "maxClientCnxns": "0",
    "4lw.commands.whitelist": "*",
    "clientPortAddress": LOOPBACK,
}


class LocalZooKeeper:
    """A server as a local process. Its data stays in ``folder`` over ``kill`` and ``start``."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        lines = {**_SETTINGS, "dataDir": str(folder / "data"), "clientPort": str(self.port), **(settings or {})}
        self._config = folder / "zoo.cfg"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self.process: Process | None = None

    @property
    def hosts(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """:raises ConfigError: it did not come up; the text ends with its log."""
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise ConfigError("PySpark is not installed, whose jars hold ZooKeeper")
        classpath = str(Path(spec.origin).parent / "jars" / "*")
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [java(), *options, "-cp", classpath, main, str(self._config)]
        self.process = Process(command, self.folder / "zookeeper.log")
        self.process.wait_for_port(self.port, 30)
        self._wait_until_it_serves()

    def kill(self) -> None:
        """As if the process had been shot; what it handed to the operating system stays."""
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            client = KazooClient(self.hosts)
            try:
                client.start(timeout=5)
                return
            except KazooTimeoutError:
                if time.monotonic() > deadline:
                    raise ConfigError(f"ZooKeeper at {self.hosts} does not serve, see {self.folder}") from None
            finally:
                client.stop()
                client.close()
