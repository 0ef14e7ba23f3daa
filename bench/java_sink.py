"""The Apache Iceberg sink for Kafka Connect over the same topic, into the same kind of table: the measure of ours.

One standalone worker with two tasks and the options that Kafka's own script gives it. A sink of Connect never ends by
itself: it is stopped once all records are in the table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench import meter
from calving.host import java
from calving.services.process import LOOPBACK, free_port
from calving.source.client import client_config
from harness.java_sink import classpath

_TASKS = 2
COMMIT_MS = 10_000
_OPTIONS = ("-server", "-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


def drain(
    servers: str, name: str, topic: str, folder: Path, warehouse: Path, done: Callable[[], bool], log: Path
) -> meter.Usage:
    """Until ``done``. The table is one of the embedded catalog's in ``warehouse``. ``name`` is the connector's."""
    control = f"control-{name}"
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.create_topics([NewTopic(control, 1, 1)])[control].result()  # nobody else does
    worker = _write(
        folder / f"{name}-worker.properties",
        {
            "bootstrap.servers": servers,
            "listeners": f"http://{LOOPBACK}:{free_port()}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            # 60 s otherwise: the sink announces its files when Connect flushes offsets.
            "offset.flush.interval.ms": "500",
            "offset.storage.file.filename": str(folder / f"{name}.offsets"),
        },
    )
    sink = _write(
        folder / f"{name}-sink.properties",
        {
            "name": name,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": str(_TASKS),
            "topics": topic,
            "iceberg.tables": "bench.events",
            "iceberg.control.topic": control,
            "iceberg.control.commit.interval-ms": str(COMMIT_MS),
            "iceberg.kafka.bootstrap.servers": servers,
            "iceberg.catalog.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "iceberg.catalog.uri": f"jdbc:sqlite:{warehouse / 'catalog.db'}",
            "iceberg.catalog.jdbc.schema-version": "V1",
            "iceberg.catalog.warehouse": f"file://{warehouse}",
            "iceberg.catalog.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        },
    )
    command = [java(), *_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath()]
    command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(worker), str(sink)]
    return meter.run(command, log, {}, done)


def _write(path: Path, properties: dict[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path
