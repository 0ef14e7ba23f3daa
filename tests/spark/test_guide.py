"""The guide to Spark and the tutorial, followed: every block, in order, and what comes out."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
import pytest

from harness.jvm import write_defaults
from tests.cli.pages import follow

pytestmark = [pytest.mark.services, pytest.mark.long, pytest.mark.usefixtures("no_session")]

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:"
KAFKA = {"4.3.0": "4.2.0", "4.2.1": "4.2.0"}
"""Spark's source of Kafka on Maven Central is of an older version than some of PySpark; the pages name the same one."""
NO_KAFKA = "4.1.4"
"""For it Maven Central has no source of Kafka: 4.1.2 and 4.1.3 lack a part, and a later batch of 4.1.1 fails there."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    write_defaults(tmp_path / "spark-conf")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "spark-conf"))


def test_the_guide_gives_what_it_says(tmp_path: Path) -> None:
    assert follow("how-to/spark.md", tmp_path, {}) == 5


@pytest.mark.skipif(pyspark.__version__ == NO_KAFKA, reason="Maven Central has no source of Kafka for this Spark")
def test_the_tutorial_of_kafka_gives_what_it_says(servers: str, tmp_path: Path) -> None:
    connector = KAFKA.get(pyspark.__version__, pyspark.__version__)
    addresses = {"localhost:9092": servers, f"{CONNECTOR}4.3.0": CONNECTOR + connector}
    assert follow("tutorial/kafka-with-spark.md", tmp_path, addresses) == 4
