"""A connector's configuration as Kafka Connect gives it, with what its worker adds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calving.errors import ConfigError
from calving.settings.clients import translate
from calving.settings.connect import with_worker
from calving.settings.load import Sink, load
from calving.source.start import EARLIEST, Start

CONFIG = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "name": "orders",
    "tasks.max": "2",
    "topics": "orders",
    "iceberg.tables": "db.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://catalog:8181",
}
WORKER = {
    "bootstrap.servers": "kafka:9093",
    "group.id": "connect-cluster",
    "config.storage.topic": "connect-configs",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="w" password="p;\\"q";',
    "ssl.truststore.location": "/etc/ca.pem",
    "consumer.security.protocol": "SASL_SSL",
    "consumer.sasl.mechanism": "PLAIN",
    "consumer.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username=c password=d;",
    "consumer.max.poll.records": "100",
    "consumer.fetch.max.bytes": "1000",
    "consumer.auto.offset.reset": "latest",
}


def taken(folder: Path, config: dict[str, Any], worker: dict[str, str] | None = WORKER) -> Sink:
    """A sink of what Connect's REST returns, and of its worker's file."""
    answer = {"name": "orders", "config": config, "tasks": [{"connector": "orders", "task": 0}], "type": "sink"}
    (folder / "connector.json").write_text(json.dumps(answer))
    lines = [f"{key}={value}".replace("\\", "\\\\") for key, value in (worker or {}).items()]
    (folder / "connect-distributed.properties").write_text("\n".join(lines))
    return load(folder / "connector.json", folder / "connect-distributed.properties" if worker is not None else None)


def test_what_connects_rest_returns_is_a_configuration(tmp_path: Path) -> None:
    sink = taken(tmp_path, {**CONFIG, "kafka.bootstrap.servers": "kafka:9092"}, None)
    assert (sink.keys.name, sink.keys.topics, sink.group) == ("orders", ("orders",), "connect-orders")
    assert sink.catalog == {"type": "rest", "uri": "http://catalog:8181"}


def test_records_are_read_as_the_workers_consumers_do_and_events_as_the_worker_itself(tmp_path: Path) -> None:
    sink = taken(tmp_path, CONFIG)
    assert sink.kafka == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "c",
        "sasl.password": "d",
        "ssl.ca.location": "/etc/ca.pem",
        "fetch.max.bytes": "1000",
    }
    own = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "w", "sasl.password": 'p;"q'}
    assert sink.control_kafka == {**sink.kafka, **own}
    assert sink.keys.start == Start("latest")


def test_converters_are_the_workers_unless_the_connector_has_its_own(tmp_path: Path) -> None:
    found = taken(tmp_path, CONFIG).converters[""]
    assert (found.key.name, found.value.options) == (WORKER["key.converter"], {"schemas.enable": "false"})
    own = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    assert taken(tmp_path, {**CONFIG, **own}).converters[""].value.options == {}


def test_what_the_connector_overrides_goes_before_what_the_worker_says(tmp_path: Path) -> None:
    overrides = {
        "consumer.override.fetch.max.bytes": "5",
        "consumer.override.group.id": "mine",
        "consumer.override.auto.offset.reset": "earliest",
        "iceberg.kafka.sasl.mechanism": "PLAIN",
    }
    sink = taken(tmp_path, {**CONFIG, **overrides})
    assert (sink.kafka["fetch.max.bytes"], sink.group, sink.keys.start) == ("5", "mine", EARLIEST)
    assert sink.control_kafka["sasl.mechanism"] == "PLAIN"


def test_secrets_are_found_by_the_workers_names_of_their_providers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets").write_text("token=t0ken\n")
    monkeypatch.setenv("CATALOG_SCOPE", "all")
    provider = "org.apache.kafka.common.config.provider"
    worker = {
        **WORKER,
        "config.providers": "vault, vars",
        "config.providers.vault.class": f"{provider}.FileConfigProvider",
        "config.providers.vars.class": f"{provider}.EnvVarConfigProvider",
    }
    secrets = {
        "iceberg.catalog.token": f"${{vault:{tmp_path / 'secrets'}:token}}",
        "iceberg.catalog.scope": "${vars::CATALOG_SCOPE}",
    }
    sink = taken(tmp_path, {**CONFIG, **secrets}, worker)
    assert (sink.catalog["token"], sink.catalog["scope"]) == ("t0ken", "all")


def test_a_provider_of_secrets_that_is_not_known_is_named() -> None:
    worker = {**WORKER, "config.providers": "aws", "config.providers.aws.class": "com.example.Secrets"}
    with pytest.raises(
        ConfigError, match=r"iceberg\.catalog\.token: the worker's config\.providers\.aws is a Java class"
    ):
        with_worker({**CONFIG, "iceberg.catalog.token": "${aws:x:y}"}, worker)


def test_a_file_that_is_none_of_a_worker_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"have no bootstrap\.servers"):
        with_worker(CONFIG, {"a": "b"})


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ({"linger.ms": "5", "client.id": "x", "isolation.level": "read_committed"}, None),
        ({"receive.buffer.bytes": "65536"}, {"socket.receive.buffer.bytes": "65536"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({"ssl.truststore.location": "/ca", "ssl.truststore.type": "PEM"}, {"ssl.ca.location": "/ca"}),
        (
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x", "ssl.key.password": "y"},
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x", "ssl.key.password": "y"},
        ),
        (
            {"ssl.keystore.location": "/me.pem"},
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem"},
        ),
        (
            {
                "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
                " keyTab='/k.keytab' principal=\"me@X\";"
            },
            {"sasl.kerberos.keytab": "/k.keytab", "sasl.kerberos.principal": "me@X"},
        ),
        (
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
            {},
        ),
    ],
)  # fmt: skip
def test_properties_of_java_clients_are_those_of_librdkafka(java: dict[str, str], ours: dict[str, str] | None) -> None:
    assert translate(java, "kafka.") == (java if ours is None else ours)


@pytest.mark.parametrize(
    ("java", "text"),
    [
        (
            {"ssl.truststore.location": "/trust.jks"},
            r"kafka\.ssl\.truststore\.location = /trust\.jks: a store that only",
        ),
        ({"ssl.keystore.location": "/key.jks"}, r"convert it to PKCS12"),
        ({"sasl.jaas.config": "com.example.Login required;"}, "Login has no counterpart here"),
        ({"sasl.jaas.config": "nonsense"}, "sasl.jaas.config is not understood"),
        ({"sasl.login.callback.handler.class": "com.example.X"}, "a Java class; give sasl.oauthbearer"),
    ],
)
def test_a_property_without_which_the_connection_would_be_another_is_refused(java: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        translate(java, "kafka.")


def test_blanks_around_booleans_and_classes_do_not_count(tmp_path: Path) -> None:
    given = {
        "connector.class": " org.apache.iceberg.connect.IcebergSinkConnector",
        "iceberg.tables.auto-create-enabled": "true ",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter ",
        "value.converter.schemas.enable": " FALSE ",
        "kafka.client.id": " orders ",
        "kafka.bootstrap.servers": "kafka:9092",
    }
    sink = taken(tmp_path, {**CONFIG, **given}, None)
    assert sink.keys.auto_create
    assert sink.keys.value_converter == "org.apache.kafka.connect.storage.StringConverter"
    assert sink.kafka["client.id"] == " orders "


def test_librdkafkas_older_name_for_the_brokers_is_read(tmp_path: Path) -> None:
    sink = taken(tmp_path, {**CONFIG, "kafka.metadata.broker.list": "kafka:9092"}, None)
    assert sink.kafka["bootstrap.servers"] == "kafka:9092"
