"""A sink in whose settings every value that may be a secret is a canary. Nothing that others may read shows one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from harness.nursery import Forked
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli
from tests.serving.sinks import Client
from tests.serving.test_http import READS

pytestmark = pytest.mark.services

CANARY = "CaNaRy"
"""The beginning of each secret."""
INLINE = (
    "iceberg.catalog.token",
    "iceberg.catalog.adls.connection-string",
    "iceberg.catalog.header.X-Auth",
    "iceberg.catalog.auth.basic.pass",
    "iceberg.catalog.new-option",
    "iceberg.http.token",
    "iceberg.tables.write-props.own",
    "kafka.sasl.password",
    "spark.hadoop.fs.azure.account.key.account",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.any.option",
    "spark.ssl.keyPassword",
)
PROVIDED = (
    "iceberg.catalog.s3.secret-access-key",
    "iceberg.catalog.credential",
    "iceberg.notify.webhook-url",
    "kafka.ssl.key.password",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
)


def canary(key: str) -> str:
    secret = f"{CANARY}-{re.sub('[^a-z0-9]', '-', key.lower())} /#?@"
    return f"http://127.0.0.1:1/{secret}" if key.endswith("url") else secret


def assert_silent(what: str, text: str) -> None:
    for form in (CANARY, "Q2FOYVJ5"):  # the second in base64
        at = text.find(form)
        assert at < 0, f"{what}: {text[max(0, at - 300) : at + 100]}"


def with_canaries(cli: Cli) -> dict[str, str]:
    """Put them into the settings. Returns the variables that the settings name."""
    names = {key: f"VARIABLE_{number}" for number, key in enumerate(PROVIDED)}
    cli.keys |= {key: canary(key) for key in INLINE} | {key: f"${{env:{name}}}" for key, name in names.items()}
    return {name: canary(key) for key, name in names.items()}


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory, servers: str) -> Cli:
    name = f"canaries-{os.getpid()}"
    return Cli(tmp_path_factory.mktemp("canaries"), Topic(servers, name, 1, None), name)


@pytest.fixture(scope="module")
def texts(cli: Cli) -> dict[str, str]:
    """What others may read of a sink on Spark, by the place where they do."""
    events = cli.folder / "events"
    events.mkdir()
    cli.keys |= {
        "iceberg.engine": "spark",
        "iceberg.http.port": 0,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"dead-{cli.name}",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "spark.master": "local[1]",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    env = with_canaries(cli)
    cli.send(0, 10)
    cli.topic.send(b"no JSON")
    log = cli.folder / "run.log"
    process = Forked("harness.command", ["run", str(cli.config)], log, {**env, "CALVING_LOG_LEVEL": "DEBUG"})
    try:
        wait_for(lambda: process.returncode is not None or "status page: " in log.read_text(), 60)
        (url,) = re.findall(r"status page: (\S+)", log.read_text())
        client = Client(url)
        wait_for(
            lambda: process.returncode is not None or client.get("/api/status").json["committed_records"] == 10, 120
        )
        found = {path: client.get(path).text for path in READS}
        listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True)
    finally:
        process.stop(60)
    found |= {"log": log.read_text(), "processes": listed.stdout}
    found["event log"] = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    found |= {topic: read(cli.topic.servers, topic) for topic in (f"control-{cli.name}", f"dead-{cli.name}")}
    metadata = cli.folder / "warehouse"
    found["table"] = "".join(path.read_bytes().decode("latin-1") for path in metadata.rglob("*") if path.is_file())
    return found


def read(servers: str, topic: str) -> str:
    """All keys, values and headers of a topic."""
    client = Consumer({"bootstrap.servers": servers, "group.id": "any", "enable.partition.eof": True})
    client.assign([KafkaPartition(topic, 0, 0)])
    parts: list[object] = []
    while (message := client.poll(30)) is not None and not message.error():
        parts += [message.key(), message.value(), message.headers()]
    client.close()
    return str(parts)


@pytest.mark.parametrize("where", [*READS, "log", "processes", "event log", "control", "dead", "table"])
def test_nobody_reads_a_secret(where: str, texts: dict[str, str]) -> None:
    (text,) = [text for place, text in texts.items() if place == where or place.startswith(f"{where}-")]
    assert_silent(where, text)
    expected = {"log": "DEBUG", "processes": "SparkSubmit", "event log": "SparkListenerEnvironmentUpdate"}
    assert expected.get(where, "") in text
    if where in ("control", "dead"):
        assert len(text) > 100


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"iceberg.catalog.type": "rest", "iceberg.catalog.uri": f"http://u:{CANARY}/#x@127.0.0.1:1"}, "catalog"),
        ({"iceberg.catalog.type": "sql", "iceberg.catalog.uri": f"postgresql://u:{CANARY}@127.0.0.1:1/d"}, "catalog"),
        (
            {"iceberg.control.backend": "redis", "iceberg.control.redis.url": f"redis://u:{CANARY}/x@127.0.0.1:1"},
            "iceberg.control.redis.url",
        ),
        (
            {
                "value.converter": "avro",
                "value.converter.schema.registry.url": f"http://u:{CANARY}@127.0.0.1:1",
                "value.converter.basic.auth.user.info": f"u:{CANARY}",
            },
            "ok configuration",
        ),
        ({"kafka.sasl.mechanism": "PLAIN", "kafka.no.such.option": CANARY}, "kafka"),
        ({"iceberg.http.token": CANARY}, "iceberg.http.token"),
    ],
    ids=["rest", "sql", "redis", "registry", "kafka", "key"],
)
def test_no_error_shows_a_secret(keys: dict[str, str], said: str, cli: Cli, tmp_path: Path) -> None:
    failing = Cli(tmp_path, cli.topic, f"{cli.name}-{tmp_path.name}")
    env = with_canaries(failing)
    failing.keys |= keys
    log = tmp_path / "validate.log"
    process = Forked("harness.command", ["validate", str(failing.config)], log, {**env, "CALVING_LOG_LEVEL": "DEBUG"})
    process.wait(60)
    assert said in log.read_text()
    assert_silent("the error", log.read_text())
