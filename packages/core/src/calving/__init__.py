"""calving moves Kafka topics into Apache Iceberg tables, exactly once, on Spark."""

__version__ = "0.1.0"
