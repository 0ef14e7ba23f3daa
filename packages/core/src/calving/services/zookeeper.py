"""One ZooKeeper for the tests, on loopback. A ZooKeeper process runs from the jars that PySpark ships."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from calving.errors import ConfigError
from calving.host import java
from calving.services.process import LOOPBACK, Server, docker_answers, free_port, launch

_IMAGE = "zookeeper:3.9.4"
_SETTINGS = {
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
        lines = {**_SETTINGS, "dataDir": str(folder / "data"), "clientPort": str(self.port), **(settings or {})}
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
        self.process = launch(command, self.folder / "zookeeper.log", _IMAGE)
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
        return ["java", "-cp", f"/apache-{_IMAGE.replace(':', '-')}-bin/lib/*"]
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("ZooKeeper comes from PySpark's jars, and PySpark is not installed: pip install pyspark")
    return [java(), "-cp", str(Path(spec.origin).parent / "jars" / "*")]
