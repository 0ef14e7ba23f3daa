"""A broker that speaks TLS alone, wants to know who is there, and lets each user do what the access lists say."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from calving.backend import SinkIdentity
from calving.errors import AccessDeniedError, ConfigError
from calving.services.kafka import KafkaServer
from calving.services.process import LOOPBACK, free_port
from calving.source.kafka import Topics
from calving_kafka.cursor import KafkaCursor
from calving_kafka.options import KafkaOptions
from harness.run import Run
from harness.topic import Topic
from tests.kafka.sinks import Listener, wait
from tests.tls import Authority

pytestmark = pytest.mark.services

MANUAL = Path(__file__).parents[2] / "docs/reference/backends.md"
SECRET, USER = "not-for-logs-7f3a", "calving"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[tuple[KafkaServer, str]]:
    """A broker, and its listener that takes SASL over TLS only."""
    port = free_port()
    settings = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,ASIDE:SASL_SSL",
        "listener.name.aside.ssl.keystore.type": "PEM",
        "listener.name.aside.ssl.keystore.location": str(authority.issue("broker").both),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.aside.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' user_calving="{SECRET}" user_stranger="{SECRET}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # the broker itself, and the tests
    }
    broker = KafkaServer(tmp_path_factory.mktemp("kafka"), settings, aside=(port, port))
    broker.start()
    yield broker, f"{LOOPBACK}:{port}"
    broker.stop()


def _clear(servers: str, authority: Authority) -> dict[str, str]:
    """The settings of a client of somebody else."""
    found = {k.removeprefix("kafka."): v for k, v in _settings(servers, SECRET, authority).items()}
    return found | {"sasl.username": "stranger"}


def refusal(settings: dict[str, str], topic: str) -> str:
    """The error of somebody who writes to a topic."""
    errors: list[str] = []
    producer = Producer(settings)
    try:
        if "transactional.id" in settings:
            producer.init_transactions(20)
        producer.produce(topic, b"forged", on_delivery=lambda error, _: errors.append(str(error)))
        producer.flush(20)
    except KafkaException as error:
        errors.append(str(error))
    return " ".join(errors)


def _settings(servers: str, password: str, authority: Authority) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.ca.location": str(authority.certificate),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": password,
    }


def grant(servers: str, name: str) -> None:
    """The rights of the manual, for the user, the topics and the group of a test."""
    manual = MANUAL.read_text().replace("\\\n", "")
    ours = {"control-orders": f"control-{name}", "orders": f"source-{name}", "orders-calving-": f"{name}-calving-"}
    ours |= {"connect-orders": f"connect-{name}", "connect-orders-coord": f"connect-{name}-coord"}
    parser, bindings = ArgumentParser(), list[AclBinding]()
    for option in ("--topic", "--group", "--transactional-id", "--operation"):
        parser.add_argument(option, action="append", default=[])
    parser.add_argument("--resource-pattern-type", default="literal")
    for line in re.findall(r"^\$acl (.*)$", manual, re.MULTILINE):
        said = parser.parse_args(shlex.split(line))
        named = [(ResourceType.TOPIC, each) for each in said.topic] + [
            (ResourceType.GROUP, each) for each in said.group
        ]
        named += [(ResourceType.TRANSACTIONAL_ID, each) for each in said.transactional_id]
        pattern = ResourcePatternType[said.resource_pattern_type.upper()]
        for (kind, resource), operation in product(named, said.operation):
            may = AclOperation[re.sub("(?<=.)(?=[A-Z])", "_", operation).upper()]
            who = (f"User:{USER}", "*", may, AclPermissionType.ALLOW)
            bindings.append(AclBinding(kind, ours[resource], pattern, *who))
    assert len(bindings) == 14
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.create_acls(bindings).values():
        done.result(60)


def test_a_sink_with_the_rights_of_the_manual_authenticates_everywhere_and_its_password_is_in_no_log(
    guarded: tuple[KafkaServer, str],
    authority: Authority,
    tmp_path: Path,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, servers = guarded
    monkeypatch.setenv("SINK_PASSWORD", SECRET)
    monkeypatch.setenv("CALVING_LOG_LEVEL", "DEBUG")
    settings = _settings(servers, "${env:SINK_PASSWORD}", authority)
    settings |= {"iceberg.coordinator.transactional.prefix": f"{unique}-"}
    run = Run(tmp_path, broker.bootstrap_servers, unique, settings={**settings})
    grant(broker.bootstrap_servers, unique)
    worker = run.start()
    run.produce(500)
    run.wait_until_committed()
    own = AdminClient({**_clear(servers, authority), "sasl.username": USER})
    for trimmed in own.delete_records([KafkaPartition(f"control-{unique}", 0, 1)]).values():
        trimmed.result(60)
    for stranger, what in (
        ({}, "Topic"),
        ({"transactional.id": f"{unique}-calving-coordinator-x"}, "Transactional Id"),
    ):
        assert f"{what} authorization failed" in refusal(_clear(servers, authority) | stranger, f"control-{unique}")
    run.stop()
    run.assert_exactly_once()
    text = worker.log.read_text()
    assert SECRET not in text and "authorization failed" not in text


def test_a_wrong_password_is_said_in_one_sentence(
    guarded: tuple[KafkaServer, str], authority: Authority, tmp_path: Path, unique: str
) -> None:
    broker, servers = guarded
    run = Run(tmp_path, broker.bootstrap_servers, unique, settings=_settings(servers, "wrong", authority))
    worker = run.start()
    code = worker.wait(180)
    text = worker.log.read_text()
    run.stop()
    assert code != 0
    assert "uthentication" in text
    assert "Traceback" not in text


def test_a_broker_of_another_authority_is_refused_in_one_sentence(
    guarded: tuple[KafkaServer, str], tmp_path: Path, unique: str
) -> None:
    broker, servers = guarded
    other = _settings(servers, SECRET, Authority(tmp_path / "other"))
    run = Run(tmp_path, broker.bootstrap_servers, unique, settings=other)
    worker = run.start()
    code = worker.wait(180)
    text = worker.log.read_text()
    run.stop()
    assert code != 0
    assert "certificate" in text
    assert "Traceback" not in text


def allow_stranger(broker: KafkaServer, topic: str, *operations: AclOperation) -> None:
    may = [("User:stranger", "*", operation, AclPermissionType.ALLOW) for operation in operations]
    bindings = [AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, *each) for each in may]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.create_acls(bindings).values():
        done.result(60)


def test_a_member_that_may_not_read_the_group_is_refused_with_what_to_do(
    guarded: tuple[KafkaServer, str], authority: Authority, unique: str
) -> None:
    broker, servers = guarded
    topic = Topic(broker.bootstrap_servers, f"source-{unique}")
    allow_stranger(broker, topic.name, AclOperation.DESCRIBE, AclOperation.READ)
    listener = Listener()
    with (
        closing(Topics(_clear(servers, authority), [topic.name], None).join(unique)) as group,
        pytest.raises(ConfigError, match=f"group '{unique}': .*let the sink's user read the group"),
    ):
        wait(lambda: bool(listener.held), lambda: group.poll(0.1, listener), 60)


def test_a_control_topic_that_may_not_be_read_is_a_denial(
    guarded: tuple[KafkaServer, str], authority: Authority, unique: str
) -> None:
    broker, servers = guarded
    topic = Topic(broker.bootstrap_servers, f"control-{unique}")
    topic.send(b"an entry")
    allow_stranger(broker, topic.name, AclOperation.DESCRIBE)
    sink = SinkIdentity(unique, f"connect-{unique}", topic.name, _clear(servers, authority))
    with (
        closing(KafkaCursor(sink, KafkaOptions(), "", replay=False)) as cursor,
        pytest.raises(AccessDeniedError, match=f"control topic '{topic.name}': .*let the sink's user read"),
    ):
        wait(lambda: False, lambda: cursor.read(0.1), 60)
