"""Configuration files, and the sentences that say what is wrong with them."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from calving.backend.interface import find
from calving.backend.memory import MemoryBackend
from calving.errors import ConfigError
from calving.settings.files import read_properties
from calving.settings.load import load, parse

BASE = {
    "name": "orders",
    "topics": "a, b",
    "iceberg.tables": "db.orders",
    "kafka.bootstrap.servers": "localhost:9092",
}


def test_defaults_are_the_java_sinks() -> None:
    sink = parse(BASE)
    assert sink.group == "connect-orders"
    assert sink.keys.control_topic == "control-iceberg"
    assert sink.keys.commit_interval_ms == 300_000
    assert sink.keys.topics == ("a", "b")
    assert sink.catalog == {"type": "embedded"}


def test_the_three_kinds_of_file_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        'name = "orders"\ntopics = ["a", "b"]\n"iceberg.tables" = "db.orders"\n[kafka]\n"bootstrap.servers" = "localhost:9092"\n'
        "[iceberg.control.commit]\ninterval-ms = 500\n"
    )
    config = {k: v for k, v in BASE.items() if k != "name"} | {"iceberg.control.commit.interval-ms": 500}
    (tmp_path / "a.json").write_text(json.dumps({"name": "orders", "config": config}))
    lines = [f"{k}={v}" for k, v in BASE.items()] + ["# a comment", "iceberg.control.commit.interval-ms : 500"]
    (tmp_path / "a.properties").write_text("\n".join(lines))
    found = [load(tmp_path / name) for name in ("a.toml", "a.json", "a.properties")]
    assert found[0].keys == found[1].keys == found[2].keys
    assert found[0].keys.commit_interval_ms == 500
    assert found[0].kafka == found[1].kafka == found[2].kafka


def test_a_kafka_connect_file_is_taken_as_it_is() -> None:
    sink = parse(
        {
            **BASE,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": "2",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "consumer.override.fetch.max.bytes": "1000",
            "iceberg.kafka.acks": "all",
            "iceberg.catalog": "prod",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://x",
            "iceberg.table.db.orders.partition-by": "day(ts), bucket(id, 4)",
        }
    )
    assert sink.tables["db.orders"].partition_by == ("day(ts)", "bucket(id, 4)")
    assert sink.kafka["fetch.max.bytes"] == "1000"
    assert sink.control_kafka["acks"] == "all"
    assert sink.keys.catalog_name == "prod"
    assert sink.converters[""].value.options == {"schemas.enable": "false"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iceberg.tabels": "x"}, "unknown key 'iceberg.tabels'; did you mean 'iceberg.tables'?"),
        ({"iceberg.control.topic.partition": "3"}, "did you mean 'iceberg.control.topic.partitions'?"),
        ({"iceberg.table.db.orders.route-regx": "x"}, "unknown key 'iceberg.table.db.orders.route-regx'"),
        ({"iceberg.control.commit.interval-ms": "soon"}, "iceberg.control.commit.interval-ms: .*'soon'"),
        ({"iceberg.control.commit.when-idle-ms": "10"}, r"when-idle-ms: must be 0, or at least 50 \(given: 10\)"),
        ({"topics.regex": "x.*"}, "topics and topics.regex exclude each other"),
        ({"iceberg.tables.dynamic-enabled": "true"}, "exclude each other"),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "b"},
            r"topics: the sink would read topic 'b', into which it writes \(errors.deadletterqueue.topic.name\), for ever",
        ),
        (
            {
                "topics": "",
                "topics.regex": "a.*",
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": "a-x",
            },
            "topics.regex = a.*: the sink would read topic 'a-x'",
        ),
        ({"topics": "", "topics.regex": ".*"}, "would read topic 'control-iceberg', into which it writes"),
        ({"topics": "control-iceberg"}, "would read topic 'control-iceberg', into which it writes"),
        ({"iceberg.tables": ""}, "set iceberg.tables"),
        ({"iceberg.tables": "lake.{topic}"}, r"iceberg.tables: 'lake.\{topic\}' is no table's name"),
        ({"iceberg.tables": "clicks"}, "iceberg.tables: 'clicks' is no table's name with its namespace"),
        (
            {"iceberg.tables": "", "iceberg.tables.topic-pattern": "lake.{2}", "iceberg.tables.topic-regex": "cl(.*)"},
            r"iceberg.tables.topic-pattern: 'lake.\{2\}' has '\{2\}', which stands for nothing; there are: \{topic\}, \{1\}",
        ),
        (
            {"iceberg.tables": "", "iceberg.tables.topic-pattern": "lake.{topic}", "iceberg.tables.topic-regex": "(x"},
            r"iceberg.tables.topic-regex: '\(x' is not a regular expression that is supported",
        ),
        ({"topics": "", "topics.regex": "[x"}, r"topics.regex: '\[x' is not a regular expression"),
        ({"iceberg.table.db.orders.route-regex": "[x"}, r"iceberg.table.db.orders.route-regex: '\[x' is not a regular"),
        (
            {"iceberg.table.db.orders.route-regex": "(?!x)(a+)+b"},
            "iceberg.table.db.orders.route-regex: .*could keep a task busy",
        ),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead-{topic}"},
            r"errors.deadletterqueue.topic.name: 'dead-\{topic\}' is no topic's name",
        ),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.table": "dead.{topic}"},
            r"errors.deadletterqueue.table: 'dead.\{topic\}' is no table's name",
        ),
        *(
            (
                {"iceberg.tables.routed-case": "as-is", **catalog},
                f"iceberg.tables.routed-case = as-is: a catalog of the type {kind} has names in lower case only",
            )
            for kind, catalog in {
                "hive": {"iceberg.catalog.type": "hive", "iceberg.catalog.uri": "thrift://h:9083"},
                "glue": {"iceberg.catalog.type": "glue"},
            }.items()
        ),
        ({"errors.tolerance": "all"}, "errors.tolerance"),
        ({"connector.class": "com.example.Other"}, "connector.class"),
        ({"transforms": "x"}, "transforms.x.type is missing"),
        ({"iceberg.hadoop-conf-dir": "/x"}, "unknown key 'iceberg.hadoop-conf-dir'"),
        ({"kafka.sasl.password": "${env:NOT_SET_ANYWHERE}"}, "kafka.sasl.password: .*NOT_SET_ANYWHERE is not set"),
        (
            {"iceberg.control.backend": "etcd"},
            "there is no backend 'etcd'; there are: kafka, memory, redis, zookeeper",
        ),
    ],
)
def test_a_wrong_key_is_named_in_one_sentence(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse({**BASE, **change})
    assert "\n" not in str(caught.value)


def test_keys_of_kafka_connect_that_mean_nothing_here_are_named_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    parse({**BASE, "errors.log.enable": "true", "iceberg.control.group-id-prefix": "x"})
    assert "key errors.log.enable has no effect here" in caplog.text
    assert "key iceberg.control.group-id-prefix has no effect here" in caplog.text


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing"):
        parse({k: v for k, v in BASE.items() if not k.startswith("kafka")})
    with pytest.raises(ConfigError, match="name is missing"):
        parse({k: v for k, v in BASE.items() if k != "name"})


def test_secrets_come_from_the_environment_and_from_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    (tmp_path / "secrets").write_text("token = t0ken\n")
    sink = parse(
        {
            **BASE,
            "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.token": f"${{file:{tmp_path / 'secrets'}:token}}",
        }
    )
    assert sink.kafka["sasl.password"] == "s3cret"
    assert sink.catalog["token"] == "t0ken"


def test_a_file_of_secrets_that_is_a_device_too_large_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"a=" + b"x" * 2**20)
    (tmp_path / "binary").write_bytes(b"a=\xff")
    for file, why in (
        ("/dev/zero", "it is no file"),
        (f"{tmp_path}/large", "more than 1,048,576 bytes"),
        (f"{tmp_path}/binary", "can't decode"),
        (f"{tmp_path}/none", "there is no such file"),
    ):
        with pytest.raises(ConfigError, match=rf"kafka\.sasl\.password: {file}: .*{why}"):
            parse({**BASE, "kafka.sasl.password": f"${{file:{file}:a}}"})


def test_a_backend_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: EntryPoints())
    with pytest.raises(ConfigError, match=r'not installed: pip install "calving\[redis\]"'):
        parse({**BASE, "iceberg.control.backend": "redis"})


def test_the_memory_backend_comes_through_the_same_door() -> None:
    assert find("memory") is MemoryBackend


def test_a_backend_that_is_not_used_is_not_imported() -> None:
    code = "import sys; from calving.backend.interface import find; find('memory'); assert 'redis' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load(tmp_path / "nothing.toml")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("name = ")
    with pytest.raises(ConfigError, match=r"x\.toml"):
        load(tmp_path / "x.toml")


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("a=\\\\d+", "a", "\\d+"),
        ("a=\\d+", "a", "d+"),
        ("a = b ", "a", "b "),
        ("a:b", "a", "b"),
        ("a b=c", "a", "b=c"),
        ("a\\ b\\==c", "a b=", "c"),
        ("a=\\u00e9\\ud83d\\ude00", "a", "é😀"),
        ("a=1\\t2\\n3", "a", "1\t2\n3"),
        ("a=1,\\\n   2", "a", "1,2"),
        ("a=1\\\r\n\t2", "a", "12"),
        ("a=1\\\n#2", "a", "1#2"),
        ("a=1\\\\\n# a comment", "a", "1\\"),
        ("! a comment\n  # another\n\n\ta", "a", ""),
        ("a=1\na=2", "a", "2"),
        ("a=1\u2028b=2", "a", "1\u2028b=2"),
        ("a=1\\", "a", "1"),
    ],
)
def test_properties_are_read_as_java_reads_them(line: str, key: str, value: str) -> None:
    assert read_properties(line) == {key: value}


@pytest.mark.parametrize("line", ["a=\\u12", "a=\\ud83d"])
def test_a_broken_unicode_escape_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="properties file has"):
        read_properties(line)


@pytest.mark.parametrize(
    ("kind", "options", "remedy"),
    [
        ("MaskField$Value", {"fields": "id, user.ssn"}, "put the transform Flatten before it"),
        ("Cast$Key", {"spec": "id:int32,user.ssn:string"}, "put the transform Flatten before it"),
        ("org.apache.kafka.connect.transforms.ReplaceField$Value", {"renames": "a:b.c,user.ssn:x"}, "Flatten"),
        ("TimestampConverter", {"field": "user.ssn", "target.type": "unix"}, "put the transform Flatten before it"),
        ("ExtractField$Value", {"field": "user.ssn"}, "set transforms.x.field.syntax.version = V2"),
    ],
)
def test_a_name_with_a_dot_is_warned_about_because_it_is_no_path(
    caplog: pytest.LogCaptureFixture, kind: str, options: dict[str, str], remedy: str
) -> None:
    step = {"transforms.x.type": kind, **{f"transforms.x.{name}": text for name, text in options.items()}}
    parse({**BASE, "transforms": "x", **step})
    (line,) = [line for line in caplog.messages if "with a dot in it" in line]
    assert "'user.ssn' is the name of one field" in line and remedy in line


@pytest.mark.parametrize(
    "chain",
    [
        {"transforms": "flat, x", "transforms.flat.type": "Flatten$Value"},
        {"transforms": "x", "transforms.x.field.syntax.version": "V2"},
    ],
)
def test_a_name_with_a_dot_that_may_be_meant_is_not_warned_about(
    caplog: pytest.LogCaptureFixture, chain: dict[str, str]
) -> None:
    parse({**BASE, "transforms.x.type": "ExtractField$Value", "transforms.x.field": "user.ssn", **chain})
    assert not [line for line in caplog.messages if "with a dot in it" in line]
