"""Mistakes in a configuration: one sentence of ours with the key or the file, the value, and what to write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from calving.errors import ConfigError
from calving.settings.load import load

GOOD = """name = "s"
topics = "t"
"iceberg.tables" = "db.t"
"kafka.bootstrap.servers" = "k:9092"
"""
INTERVAL = "iceberg.control.commit.interval-ms"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f'"{INTERVAL}" = "10s"', f"{INTERVAL}: must be a whole number of milliseconds (given: '10s')"),
        (f'"{INTERVAL}" = "10 ms"', f"{INTERVAL}: must be a whole number of milliseconds (given: '10 ms')"),
        (f'"{INTERVAL}" = 1.5', f"{INTERVAL}: must be a whole number of milliseconds (given: '1.5')"),
        (f'"{INTERVAL}" = -5', f"{INTERVAL}: must be at least 100 milliseconds (given: '-5')"),
        (f'"{INTERVAL}" = 94608000000', f"{INTERVAL}: must be at most 604800000 milliseconds (given: '94608000000')"),
        ('"iceberg.limits.sql-bytes" = "512MB"', "iceberg.limits.sql-bytes: must be a whole number of bytes"),
        ('"iceberg.tables.auto-create-enabled" = "maybe"', "auto-create-enabled: must be true or false"),
        ('"iceberg.source.on-data-loss" = "ignore"', "iceberg.source.on-data-loss: must be 'fail' or 'skip'"),
        ('"iceberg.http.port" = 99999', "iceberg.http.port: must be at most 65535 (given: '99999')"),
        ('"spark.master" = "locl[2]"', "spark.master: 'locl[2]' is none of local, local[4], local[*], spark://"),
        (
            '"iceberg.catalog.tpye" = "sql"',
            "iceberg.catalog.type is missing; is 'iceberg.catalog.tpye' meant for it?",
        ),
        ('iceberg.tables.evolve = "true"', 'quote such keys, as in "iceberg.tables" = "db.t"'),
    ],
)
def test_a_wrong_line_is_answered_with_what_the_key_takes(tmp_path: Path, line: str, sentence: str) -> None:
    file = tmp_path / "sink.toml"
    start = GOOD.replace('"iceberg.tables"', "iceberg.tables") if line.startswith("iceberg") else GOOD
    file.write_text(start + line)
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        load(file)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("sink.yaml", b"name: s", "YAML is not read: write TOML, Kafka Connect's JSON (.json) or .properties"),
        ("sink.toml", b'name = "\xff"', "it is not UTF-8 at byte 8"),
        ("sink.json", b"{", "Expecting property name"),
        ("sink.toml", b"", "kafka.bootstrap.servers is missing: where is Kafka?"),
        (
            "sink.toml",
            GOOD.replace("servers", "server").encode(),
            "where is Kafka? is 'kafka.bootstrap.server' meant for it?",
        ),
    ],
)
def test_a_file_that_is_no_configuration_is_named_with_the_reason(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        load(tmp_path / name)


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[2]",
        "local[*]",
        "local[*, 3]",
        "local-cluster[2,1,1024]",
        "yarn",
        "spark://h:7077",
        "k8s://https://h",
    ],
)
def test_every_master_of_spark_is_accepted(tmp_path: Path, master: str) -> None:
    (tmp_path / "sink.toml").write_text(f'{GOOD}"spark.master" = "{master}"')
    assert load(tmp_path / "sink.toml").spark["spark.master"] == master
