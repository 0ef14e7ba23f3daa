"""A sink in whose settings every value that may be a secret is a canary. Nothing that others may read shows one."""

from __future__ import annotations

import os
import re
import subprocess
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from calving.services.stores import RedisServer
from harness.nursery import Forked
from harness.registry import SchemaRegistry
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli
from tests.e2e.conftest import STORES
from tests.serving.sinks import Client
from tests.serving.test_http import READS
from tests.settings.test_secrets import HIDDEN

pytestmark = pytest.mark.services

CANARY = "CaNaRy"
"""The beginning of each secret."""
READ_TOKEN = f"{CANARY}-a-token-to-read"
FORMS = (CANARY, "Q2FOYVJ5", "NhTmFSe", "DYU5hUn")
"""How it may stand in a text: as it is, or in base64 after any number of bytes."""
INLINE = (
    "iceberg.catalog.token",
    "iceberg.catalog.adls.connection-string",
    "iceberg.catalog.header.X-Auth",
    "iceberg.http.token",
    "iceberg.tables.write-props.own",
    "kafka.sasl.password",
    "spark.hadoop.fs.azure.account.key.account",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.any.option",
    "spark.ssl.keyPassword",
)
PASSWORDS = ("iceberg.control.redis.url", "iceberg.control.zookeeper.password")
PROVIDED = (
    "iceberg.catalog.s3.access-key-id",
    "iceberg.catalog.s3.secret-access-key",
    "iceberg.catalog.credential",
    "iceberg.notify.webhook-url",
    "kafka.ssl.key.password",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
)


def canary(key: str) -> str:
    secret = f"{CANARY}-{re.sub('[^a-z0-9]', '-', key.lower())} /#?@"
    return f"http://127.0.0.1:1/{secret.replace(' ', '')}" if key.endswith("url") else secret


def assert_silent(what: str, text: str) -> None:
    for form in FORMS:
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
        "iceberg.http.read-token": READ_TOKEN,
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
        wait_for(lambda: process.returncode is not None or "status page: " in log.read_text())
        (url,) = re.findall(r"status page: (\S+)", log.read_text())
        client, header = Client(url), {"authorization": f"Bearer {READ_TOKEN}"}

        def committed() -> int:
            return int(client.get("/api/status", **header).json["committed_records"])

        wait_for(lambda: process.returncode is not None or committed() == 10, 120)
        found = {path: client.get(path, **header).text for path in READS}
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


def test_every_key_of_the_sink_that_is_a_secret_is_a_canary_somewhere_here() -> None:
    text = Path(__file__).read_text()
    assert [key for key in sorted(HIDDEN) if f'"{key}"' not in text] == []


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
        (
            {
                "iceberg.control.backend": "redis",
                "iceberg.control.redis.sentinels": "127.0.0.1:1",
                "iceberg.control.redis.username": "u",
                "iceberg.control.redis.password": f"{CANARY}-password",
                "iceberg.control.redis.sentinel-username": "u",
                "iceberg.control.redis.sentinel-password": f"{CANARY}-sentinel",
            },
            "127.0.0.1",
        ),
        (
            {
                "kafka.security.protocol": "ssl",
                "kafka.ssl.key.pem": f"-----BEGIN PRIVATE KEY-----\n{CANARY * 5}\n-----END PRIVATE KEY-----\n",
            },
            "kafka",
        ),
        (
            {
                "transforms": "t",
                "transforms.t.type": "org.apache.kafka.connect.transforms.InsertField$Value",
                "transforms.t.static.value": CANARY,
            },
            "transforms.t",
        ),
        ({"iceberg.http.token": CANARY}, "iceberg.http.token"),
    ],
    ids=["rest", "sql", "redis", "registry", "kafka", "sentinels", "pem", "transform", "key"],
)
def test_no_error_shows_a_secret(keys: dict[str, str], said: str, cli: Cli, tmp_path: Path) -> None:
    failing = Cli(tmp_path, cli.topic, f"{cli.name}-{tmp_path.name}")
    env = with_canaries(failing)
    failing.keys |= keys
    log = tmp_path / "validate.log"
    process = Forked("harness.command", ["validate", str(failing.config)], log, {**env, "CALVING_LOG_LEVEL": "DEBUG"})
    process.wait(180)
    assert said in log.read_text()
    assert_silent("the error", log.read_text())


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"iceberg.engine": "spark", "spark.master": "local[1]"}, "partition 0, offset 0"),
        ({"transforms": "t", "transforms.t.type": "Sql", "transforms.t.query": "select 1"}, "one SELECT"),
    ],
    ids=["a task on Spark", "a transform"],
)
def test_no_failure_of_a_running_sink_shows_a_secret(keys: dict[str, str], said: str, cli: Cli, tmp_path: Path) -> None:
    failing = Cli(tmp_path, Topic(cli.topic.servers, f"{cli.name}-{tmp_path.name}", 1, None), tmp_path.name)
    env = with_canaries(failing)
    failing.keys |= keys
    failing.topic.send(b"no JSON")
    log = tmp_path / "run.log"
    command = ["run", "--until-caught-up", str(failing.config)]
    process = Forked("harness.command", command, log, {**env, "CALVING_LOG_LEVEL": "DEBUG", "CALVING_TRACEBACK": "1"})
    process.wait(180)
    assert process.returncode
    assert said in log.read_text()
    assert_silent("the failure", log.read_text())


@pytest.mark.parametrize("kind", STORES)
def test_a_store_and_a_registry_with_passwords_are_used_and_nobody_reads_one(
    kind: str, servers: str, registry: SchemaRegistry, tmp_path: Path, unique: str
) -> None:
    password, login, token = canary("password"), f"u:{canary('login')}", f"{CANARY}-token"
    store, cli = STORES[kind](tmp_path / "store"), Cli(tmp_path, Topic(servers, unique), unique)
    cli.keys |= {
        "iceberg.control.backend": kind,
        "iceberg.control.secret": canary("control"),
        "iceberg.control.old-secret": canary("before"),
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"dead-{unique}",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "value.converter": "avro",
        "value.converter.schema.registry.url": registry.url,
    }
    store.start()
    try:
        if isinstance(store, RedisServer):
            with redis.Redis(port=store.port) as client:
                client.execute_command("ACL", "SETUSER", "sink", "on", f">{password}", "~*", "+@all")
            cli.keys["iceberg.control.redis.url"] = f"redis://sink:{quote(password, safe='')}@127.0.0.1:{store.port}/0"
            cli.keys |= {"value.converter.basic.auth.credentials.source": "USER_INFO"}
            cli.keys |= {"value.converter.basic.auth.user.info": login}
        else:
            who = {"hosts": store.hosts, "authentication": "digest", "username": "sink", "password": password}
            cli.keys |= {f"iceberg.control.zookeeper.{key}": value for key, value in who.items()}
            cli.keys |= {"value.converter.bearer.auth.credentials.source": "STATIC_TOKEN"}
            cli.keys |= {"value.converter.bearer.auth.token": token}
            cli.keys |= {f"value.converter.bearer.auth.{key}": "any" for key in ("logical.cluster", "identity.pool.id")}
        number = registry.register(f"{unique}-value", '"string"')
        schema = registry.register(
            f"{unique}-value", '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
        )
        good, odd = (bytes(1) + n.to_bytes(4, "big") + b"\x02x" for n in (schema, number))
        cli.topic.send(good[:-1], odd)
        texts = {"run": debugged(cli, "run", "--until-caught-up")}
        assert "batch: 2 records, 1 file" in texts["run"], texts["run"][-3_000:]
        registry.refused = 401, {"message": "no"}
        cli.topic.send(good[:-1])
        texts |= {"refused": debugged(cli, "validate"), "status": debugged(cli, "status")}
        cli.keys |= {
            key: str(value).replace("CaNaRy", f"{CANARY}-wrong") for key, value in cli.keys.items() if key in PASSWORDS
        }
        texts["wrong"] = debugged(cli, "status")
    finally:
        store.stop()
    assert set(registry.logins) & {f"Basic {b64encode(login.encode()).decode()}", f"Bearer {token}"}
    assert "DEBUG" in texts["run"] and ".password" in texts["wrong"]
    texts["dead"] = read(servers, f"dead-{unique}")
    for place in ("store", "warehouse"):
        files = [path for path in (tmp_path / place).rglob("*") if path.is_file()]
        texts[place] = "".join(path.read_bytes().decode("latin-1") for path in files)
        assert len(texts[place]) > 1000
    for what, text in texts.items():
        assert_silent(what, text)


def debugged(cli: Cli, *arguments: str) -> str:
    """What a command writes with the log at DEBUG, whatever its exit code."""
    _, said = cli._ended("harness.command", *arguments, seconds=300, CALVING_LOG_LEVEL="DEBUG", CALVING_TRACEBACK="1")
    return said
