"""The Apache Iceberg sink for Kafka Connect, from Maven."""

from __future__ import annotations

from calving.services.maven import Artifact, jars

_ICEBERG, _KAFKA = "1.12.0", "4.1.0"
_ARTIFACTS = (
    Artifact("org.apache.iceberg", "iceberg-kafka-connect", _ICEBERG),
    Artifact("org.apache.iceberg", "iceberg-parquet", _ICEBERG),
    Artifact("org.apache.iceberg", "iceberg-orc", _ICEBERG),
    Artifact("org.apache.iceberg", "iceberg-data", _ICEBERG),
    Artifact("org.apache.kafka", "connect-runtime", _KAFKA),
    Artifact("org.apache.kafka", "connect-json", _KAFKA),
    Artifact("org.apache.hadoop", "hadoop-client-api", "3.4.1"),
    Artifact("org.apache.hadoop", "hadoop-client-runtime", "3.4.1"),
    Artifact("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    Artifact("org.slf4j", "slf4j-simple", "2.0.16"),
)


def classpath() -> str:
    """Kafka Connect with the sink."""
    return f"{jars('java-sink', _ARTIFACTS)}/*"
