"""Reads tables with Spark and Iceberg's own runtime: ``python -m harness.spark_reader CATALOG STATEMENT ...``.

CATALOG is the folder of an embedded one, or the address of a REST server.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from calving.services.maven import Artifact, jars

RUNTIME = Artifact("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0", transitive=False)
SQLITE = Artifact("org.xerial", "sqlite-jdbc", "3.50.3.0", transitive=False)


def main() -> None:
    where, *statements = sys.argv[1:]
    with session(where) as spark:
        for statement in statements:
            rows = [row.asDict(recursive=True) for row in spark.sql(statement).collect()]
            print("ROWS " + json.dumps(rows, default=str))


def spark_on(catalog: str, *statements: str) -> list[list[dict[str, Any]]]:
    """The rows of each statement, from a Spark in a process of its own; timestamps and decimals as text.

    :raises AssertionError: a statement fails.
    """
    command = [sys.executable, "-m", "harness.spark_reader", catalog, *statements]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=170, check=False)
    said = [line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ")]
    assert done.returncode == 0, "\n".join(said)[-3000:]
    return [json.loads(line[5:]) for line in done.stdout.splitlines() if line.startswith("ROWS ")]


@contextmanager
def session(where: str) -> Iterator[SparkSession]:
    """With the catalog `iceberg`, which is there: a folder or an address."""
    classpath = ":".join(map(str, sorted(jars("iceberg-spark", [RUNTIME, SQLITE]).glob("*.jar"))))
    catalog = "spark.sql.catalog.iceberg"
    rest = {"type": "rest", "uri": where, "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
    embedded = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{where}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"file://{where}",
    }
    settings = rest if where.startswith("http") else embedded
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraClassPath", classpath)
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(map={f"{catalog}.{key}": value for key, value in settings.items()})
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
