"""Reads tables with Spark and Iceberg's own runtime: ``python -m harness.spark_reader CATALOG STATEMENT ...``.

CATALOG is the folder of an embedded one, or the address of a REST server. Without arguments the process answers requests
from its standard input, so that many tests share one Spark.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from calving.engine.spark import JAVA_OPTIONS, LOCAL_JAVA
from calving.services.maven import Artifact, jars

RUNTIME = Artifact("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0", transitive=False)
SQLITE = Artifact("org.xerial", "sqlite-jdbc", "3.50.3.0", transitive=False)
_SECONDS = 170
"""How long all statements of a request may take."""


def main() -> None:
    if len(sys.argv) > 1:
        where, *statements = sys.argv[1:]
        with session(where) as spark:
            for rows in _rows(spark, statements):
                print("ROWS " + json.dumps(rows, default=str))
    else:
        with started() as spark:
            for line in sys.stdin:
                print(_answer(spark, *json.loads(line)), flush=True)


def _answer(spark: SparkSession, where: str, statements: Sequence[str]) -> str:
    """A line with the rows of each statement, or with the error. Each request has a session, and so a catalog, of its
    own, which has cached nothing.
    """
    fresh = spark.newSession()
    for key, value in _catalog(where).items():
        fresh.conf.set(key, value)
    try:
        return "ROWS " + json.dumps(list(_rows(fresh, statements)), default=str)
    except Exception:
        lines = traceback.format_exc().splitlines()  # without Java's stack
        return "ERROR " + json.dumps("\n".join(line for line in lines if not line.lstrip("\t").startswith("at ")))


def _rows(spark: SparkSession, statements: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    for statement in statements:
        yield [row.asDict(recursive=True) for row in spark.sql(statement).collect()]


def spark_on(catalog: str, *statements: str) -> list[list[dict[str, Any]]]:
    """The rows of each statement, from a Spark in another process; timestamps and decimals as text.

    :raises AssertionError: a statement fails, or takes longer than 170 seconds.
    """
    process = _serving()
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Timer(_SECONDS, process.kill)
    late.start()
    try:
        process.stdin.write(json.dumps([catalog, statements]) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            kind, _, answer = line.partition(" ")
            if kind == "ROWS":
                found: list[list[dict[str, Any]]] = json.loads(answer)
                return found
            assert kind != "ERROR", json.loads(answer)[-3000:]
    finally:
        late.cancel()
    _serving.cache_clear()
    raise AssertionError(f"Spark ended, or took longer than {_SECONDS} s")


@cache
def _serving() -> subprocess.Popen[str]:
    """The process that answers; it ends with this one."""
    command = [sys.executable, "-m", "harness.spark_reader"]
    root = Path(__file__).parents[1]
    process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)
    return process


@contextmanager
def session(where: str, java: str = LOCAL_JAVA) -> Iterator[SparkSession]:
    """With the catalog `iceberg`, which is there: a folder or an address. ``java``: options of Java."""
    with started(java) as spark:
        for key, value in _catalog(where).items():
            spark.conf.set(key, value)
        yield spark


@contextmanager
def started(java: str = LOCAL_JAVA) -> Iterator[SparkSession]:
    """A Spark with Iceberg's runtime, and no catalog."""
    classpath = ":".join(map(str, sorted(jars("iceberg-spark", [RUNTIME, SQLITE]).glob("*.jar"))))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(JAVA_OPTIONS, java)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraClassPath", classpath)
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def _catalog(where: str) -> dict[str, str]:
    """The settings of the catalog `iceberg`."""
    name = "spark.sql.catalog.iceberg"
    rest = {"type": "rest", "uri": where, "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
    embedded = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{where}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"file://{where}",
    }
    settings = rest if where.startswith("http") else embedded
    return {name: "org.apache.iceberg.spark.SparkCatalog", **{f"{name}.{key}": each for key, each in settings.items()}}


if __name__ == "__main__":
    main()
