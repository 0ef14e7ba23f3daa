"""The real Iceberg sink for Kafka Connect, from Maven, in the place of a run's sink."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from calving.host import java
from calving.iceberg.catalog import open_catalog
from calving.services.process import LOOPBACK, Process, free_port
from calving.source.client import client_config
from harness.java_sink import classpath
from harness.run import Run

_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")


def shared_run(folder: Path, servers: str, name: str) -> Run:
    """A run whose configuration is a connector's, which Connect and calving take as it is."""
    run = Run(folder, servers, name, settings={"iceberg.catalog.type": None, "iceberg.catalog.warehouse": None})
    open_catalog("iceberg", run.catalog_keys).create_namespace("db")
    keys = json.loads(run.config.read_text()) | {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        # Long enough for both sinks on a busy machine.
        "iceberg.control.commit.timeout-ms": "20000",
        "iceberg.kafka.transaction.timeout.ms": "5000",
        "consumer.override.session.timeout.ms": "3000",
        "consumer.override.heartbeat.interval.ms": "500",
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": f"jdbc:sqlite:{folder / 'warehouse' / 'catalog.db'}?busy_timeout=20000",
        "iceberg.catalog.jdbc.schema-version": "V1",
        "iceberg.catalog.warehouse": f"file://{folder / 'warehouse'}",
        "iceberg.catalog.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    run.config.write_text(json.dumps(keys))
    control = f"control-{name}"
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.create_topics([NewTopic(control, 1, 1)])[control].result()  # brokers of tests create none by themselves
    return run


class ConnectWorker:
    """A standalone worker of Kafka Connect that runs the sink of ``run``. Several of them are one fleet."""

    def __init__(self, run: Run, number: int = 0) -> None:
        port = free_port()
        self._connector = f"http://{LOOPBACK}:{port}/connectors/{run.name}"
        self.properties = _write(
            run.folder / f"connect-{number}.properties",
            {
                "bootstrap.servers": run.servers,
                "listeners": f"http://{LOOPBACK}:{port}",
                "plugin.discovery": "service_load",
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "offset.storage.file.filename": str(run.folder / f"connect-{number}.offsets"),
            },
        )
        sink = _write(run.folder / f"connector-{number}.properties", json.loads(run.config.read_text()))
        command = [java(), *_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-cp", classpath()]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(self.properties), str(sink)]
        self.process = Process(command, run.folder / f"connect-{number}.log")
        self.process.wait_for_port(port)

    def answer(self) -> dict[str, object]:
        """The connector as Connect's REST returns it."""
        found: dict[str, object] = json.loads(self._ask("GET", ""))
        return found

    def stop_connector(self) -> None:
        """Its tasks leave the group; the worker stays."""
        self._ask("PUT", "/stop")
        while json.loads(self._ask("GET", "/status"))["tasks"]:
            time.sleep(0.1)

    def resume(self) -> None:
        self._ask("PUT", "/resume")

    def _ask(self, method: str, path: str, seconds: float = 30) -> bytes:
        deadline = time.monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(
                    urllib.request.Request(self._connector + path, method=method), timeout=20
                ) as answer:
                    found: bytes = answer.read()
                    return found
            except urllib.error.HTTPError as error:  # while it starts, or rebalances
                if error.code not in (404, 409) or time.monotonic() > deadline:
                    raise
            time.sleep(0.2)


def _write(path: Path, properties: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
