"""Reads tables with Spark and Iceberg's own runtime: ``python -m tests.readback.readers WAREHOUSE TABLE ...``."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from calving.services.maven import Artifact, jars

RUNTIME = Artifact("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0", transitive=False)
SQLITE = Artifact("org.xerial", "sqlite-jdbc", "3.50.3.0", transitive=False)


def main() -> None:
    warehouse, *statements = sys.argv[1:]
    classpath = ":".join(map(str, sorted(jars("iceberg-spark", [RUNTIME, SQLITE]).glob("*.jar"))))
    catalog = "spark.sql.catalog.iceberg"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraClassPath", classpath)
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog")
        .config(f"{catalog}.uri", f"jdbc:sqlite:{warehouse}/catalog.db")
        .config(f"{catalog}.jdbc.schema-version", "V1")
        .config(f"{catalog}.warehouse", f"file://{warehouse}")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    try:
        for statement in statements:
            rows = [row.asDict(recursive=True) for row in spark.sql(statement).collect()]
            print("ROWS " + json.dumps(rows, default=str))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
