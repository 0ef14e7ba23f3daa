"""Mistakes that only a service tells: each is answered with its key or name, and a remedy, as those of
`tests/settings/mistakes.txt` are."""

from __future__ import annotations

import pytest

from calving.api import validate
from calving.errors import CalvingError, ConfigError, UnavailableError
from calving.settings.load import load
from harness.topic import Topic
from tests.cli.commands import Cli

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def cli(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A sink that is right."""
    return Cli(tmp_path_factory.mktemp("mistakes"), Topic(servers, "mistakes", 1, None), "mistakes")


@pytest.mark.parametrize(
    ("change", "kind", "sentence"),
    [
        (
            {"topics": "nowhere"},
            ConfigError,
            "topic 'nowhere' does not exist: create it, or correct the key 'topics'",
        ),
        (
            {"topics": None, "topics.regex": "nowhere-.*"},
            ConfigError,
            "topics.regex = nowhere-.* matches no topic: correct it, or create a topic",
        ),
        (
            {"kafka.bootstrap.servers": "localhost:1"},
            UnavailableError,
            "kafka.bootstrap.servers = localhost:1: no broker answers: start Kafka, or correct the address",
        ),
        (
            {"kafka.bootstrap.servers": "nowhere.invalid:9092"},
            UnavailableError,
            "kafka.bootstrap.servers = nowhere.invalid:9092: no broker answers: start Kafka, or correct the address",
        ),
        (
            {
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.username": "sink",
                "kafka.sasl.password": "no password",
            },
            ConfigError,
            "asking for the topics' partitions: the broker does not let the sink in: correct kafka.security.protocol, or"
            " kafka.sasl.mechanism and its credentials",
        ),
        (
            {"iceberg.tables.auto-create-enabled": False},
            ConfigError,
            "table db.t does not exist: create it, or set iceberg.tables.auto-create-enabled = true",
        ),
        (
            {"iceberg.tables.upsert-mode-enabled": True},
            ConfigError,
            "table db.t has no id columns: set iceberg.table.db.t.id-columns or iceberg.tables.default-id-columns",
        ),
        (
            {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://localhost:1"},
            UnavailableError,
            "iceberg.catalog.uri = http://localhost:1: the catalog 'iceberg' does not answer: start it, or correct",
        ),
        (
            {"iceberg.engine": "spark", "spark.master": "spark://localhost:1"},
            UnavailableError,
            "spark.master = spark://localhost:1: nothing answers there (Connection refused): start Spark, or correct",
        ),
        (
            {"iceberg.engine": "spark", "spark.remote": "sc://nowhere.invalid"},
            UnavailableError,
            "spark.remote = sc://nowhere.invalid: nothing answers there (Name or service not known): start Spark",
        ),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, dict) else "",
)
def test_a_mistake_is_answered_with_its_key_and_a_remedy(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], kind: type[CalvingError], sentence: str
) -> None:
    monkeypatch.setattr("calving.source.kafka.TIMEOUT", 5.0)
    keys = {name: value for name, value in {**cli.keys, **change}.items() if value is not None}
    monkeypatch.setattr(cli, "keys", keys)
    with pytest.raises(kind) as caught:
        validate(load(cli.config))
    assert str(caught.value).startswith(sentence)


def test_what_is_right_passes(cli: Cli) -> None:
    assert validate(load(cli.config))[0] == "configuration"
