"""One Kafka broker (KRaft) for the demo and the tests, on loopback."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from calving.errors import ConfigError
from calving.services.maven import Artifact, jars, java
from calving.services.process import LOOPBACK, Process, free_port

VERSION = "4.1.0"

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "auto.create.topics.enable": "false",
}
_LOGGING = """
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""


class LocalKafka:
    """A broker as a local process. Its data stays in ``folder`` over ``kill`` and ``start``."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, aside: tuple[int, int] | None = None
    ) -> None:
        """``aside``: the port of a second listener, and the one that its clients are sent to, with a proxy there."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._port, controller = free_port(), free_port()
        self._classpath = str(jars("kafka", [Artifact("org.apache.kafka", "kafka_2.13", VERSION)]) / "*")
        self._config = folder / "server.properties"
        lines = {
            **_SETTINGS,
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self._port},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self._port}",
            "log.dirs": str(folder / "data"),
            **(settings or {}),
        }
        if aside is not None:
            lines["listeners"] += f",ASIDE://{LOOPBACK}:{aside[0]}"
            lines["advertised.listeners"] += f",ASIDE://{LOOPBACK}:{aside[1]}"
            if "ASIDE:" not in lines["listener.security.protocol.map"]:
                lines["listener.security.protocol.map"] += ",ASIDE:PLAINTEXT"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        (folder / "log4j2.properties").write_text(_LOGGING)
        self.process: Process | None = None
        if not (folder / "data").exists():
            self._format()

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """:raises ConfigError: it did not come up; the text ends with its log."""
        self.process = Process(self._command("kafka.Kafka", str(self._config)), self._folder / "kafka.log")
        self.process.wait_for_port(self._port, 60)

    def kill(self) -> None:
        """As if the machine had lost power."""
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ["format", f"--cluster-id={cluster}", "-c", str(self._config)]  # it may start with a dash
        done = subprocess.run(
            self._command("kafka.tools.StorageTool", *arguments), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ConfigError(f"Kafka's storage could not be formatted: {(done.stderr or done.stdout).strip()}")

    def _command(self, main: str, *arguments: str) -> list[str]:
        options = ["-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
        options.append(f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}")
        return [java(), *options, "-cp", self._classpath, main, *arguments]


@contextlib.contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """A running broker's bootstrap servers: a container where a Docker daemon answers, else a local process."""
    if docker_answers():
        from testcontainers.community.kafka import KafkaContainer

        with KafkaContainer(f"apache/kafka:{VERSION}") as container:
            yield container.get_bootstrap_server()
        return
    broker = LocalKafka(folder)
    try:
        broker.start()
        yield broker.bootstrap_servers
    finally:
        broker.stop()


def docker_answers() -> bool:
    """Whether containers can be started: the client library is there and a daemon answers."""
    try:
        import docker  # type: ignore[import-untyped]
        import testcontainers.community.kafka  # noqa: F401
    except ImportError:
        return False
    try:
        docker.from_env(timeout=5).ping()
    except docker.errors.DockerException:
        return False
    return True
