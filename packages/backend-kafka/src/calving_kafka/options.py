"""Keys of the Kafka backend."""

from __future__ import annotations

from pydantic import Field

from calving.backend import LogOptions


class KafkaOptions(LogOptions):
    """Keys of the Kafka backend."""

    partitions: int = Field(
        1,
        ge=1,
        alias="iceberg.control.topic.partitions",
        description="Number of partitions with which the sink creates the control topic.",
    )
    replication_factor: int = Field(
        -1,
        alias="iceberg.control.topic.replication-factor",
        description="Replication factor with which the sink creates the control topic; -1 is the broker's default.",
    )
    audit_entries: int = Field(
        10_000,
        ge=0,
        alias="iceberg.control.topic.audit-entries",
        description="Number of entries below the saved position that the sink keeps in each partition of the control"
        " topic.",
    )
    transaction_timeout_ms: int = Field(
        10_000,
        ge=1_000,
        alias="iceberg.control.transaction-timeout-ms",
        description="How long a dead member's open transaction may hide newer events from readers, in milliseconds.",
    )
