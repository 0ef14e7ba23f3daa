"""One Kafka broker (KRaft) for the demo and the tests, on loopback."""

from __future__ import annotations

import base64
import contextlib
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from calving.host import ClassArchive, java
from calving.services.maven import Artifact, jars
from calving.services.process import LOOPBACK, Server, docker_answers, free_port, launch

_VERSION = "4.3.1"
_IMAGE = f"apache/kafka:{_VERSION}"
_LOG4J = Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
"""Without this artifact the broker writes no log, because Kafka depends only on the logging interface."""

_JAVA = ("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
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
_PATIENT = {"broker.session.timeout.ms": "60000"}
"""For a broker that nobody kills: on a busy machine it is not taken for lost. After a kill, a restart would wait so
long."""
_LOGGING = """
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""


class KafkaServer(Server):
    """A broker, in a container or as a local process. Its data stays in ``folder`` over ``kill`` and ``start``."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        aside: tuple[int, int] | None = None,
        port: int | None = None,
    ) -> None:
        """``aside``: the port of a second listener, and the port that this listener advertises, where a proxy may
        listen. ``port``: by default a free one.
        """
        self._folder = folder
        folder = folder.absolute()  # as a container sees it
        folder.mkdir(parents=True, exist_ok=True)
        self._port, controller = port or free_port(), free_port()
        self._config, self._data = folder / "server.properties", folder / "data"
        lines = {
            **_SETTINGS,
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self._port},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{self._port}",
            "log.dirs": str(self._data),
            **(settings or {}),
        }
        if aside is not None:
            lines["listeners"] += f",ASIDE://{LOOPBACK}:{aside[0]}"
            lines["advertised.listeners"] += f",ASIDE://{LOOPBACK}:{aside[1]}"
            if "ASIDE:" not in lines["listener.security.protocol.map"]:
                lines["listener.security.protocol.map"] += ",ASIDE:PLAINTEXT"
        self._config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        (folder / "log4j2.properties").write_text(_LOGGING)

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Start the broker.

        :raises ConfigError: the broker did not start; the text ends with its log.
        """
        if not docker_answers():
            self.archive = ClassArchive("kafka", _home(), _home().glob("*.jar"), _JAVA)
        archive = self.archive.options if self.archive is not None else []
        serve = self._command(archive, "kafka.Kafka", str(self._config))
        if not self._data.exists():
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            # As one word, because the identity may start with a dash.
            arguments = ["format", f"--cluster-id={cluster}", "-c", str(self._config)]
            if self.archive is not None and self.archive.will_be_written:
                archive = []  # the broker writes it
            format_first = shlex.join(self._command(archive, "kafka.tools.StorageTool", *arguments))
            serve = ["/bin/sh", "-c", f"{format_first} && exec {shlex.join(serve)}"]
        self.process = launch(serve, self._folder / "kafka.log", _IMAGE)
        self.process.wait_for_port(self._port)

    def _command(self, archive: Sequence[str], main: str, *arguments: str) -> list[str]:
        options = [*archive, *_JAVA, f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"]
        if docker_answers():
            return ["java", *options, "-cp", "/opt/kafka/libs/*", main, *arguments]
        return [java(), *options, "-cp", str(_home() / "*"), main, *arguments]


def _home() -> Path:
    return jars("kafka", [Artifact("org.apache.kafka", "kafka_2.13", _VERSION), _LOG4J])


@contextlib.contextmanager
def kafka(folder: Path, port: int | None = None) -> Iterator[str]:
    """The bootstrap servers of a running broker, which nobody kills. ``port``: by default a free one."""
    broker = KafkaServer(folder, _PATIENT, port=port)
    try:
        broker.start()
        yield broker.bootstrap_servers
    finally:
        broker.stop()
