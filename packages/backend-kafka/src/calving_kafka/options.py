"""Keys of the Kafka backend."""

from __future__ import annotations

from pydantic import Field

from calving.backend.entries import LogOptions


class KafkaOptions(LogOptions):
    """Keys of the Kafka backend."""

    partitions: int = Field(
        1,
        ge=1,
        alias="iceberg.control.topic.partitions",
        description="Partitions of the control topic if it is created.",
    )
    replication_factor: int = Field(
        -1,
        alias="iceberg.control.topic.replication-factor",
        description="Replication factor of the control topic if it is created; -1 is the broker's default.",
    )
    audit_entries: int = Field(
        10_000,
        ge=0,
        alias="iceberg.control.topic.audit-entries",
        description="So many entries of each partition of the control topic are kept below the saved position.",
    )
    transaction_timeout_ms: int = Field(
        10_000,
        ge=1_000,
        alias="iceberg.control.transaction-timeout-ms",
        description="How long a dead member's open transaction can hide newer events from the readers.",
    )
