"""Keys of the Kafka backend."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from calving.backend import LogOptions

_WEEK_MS = 7 * 24 * 3600 * 1000


def _replication(value: int) -> int:
    if value != -1 and not 1 <= value <= 10_000:
        raise ValueError("must be -1 or from 1 to 10000")
    return value


class KafkaOptions(LogOptions):
    """Keys of the Kafka backend."""

    partitions: int = Field(
        1,
        ge=1,
        le=100_000,
        alias="iceberg.control.topic.partitions",
        description="Number of partitions with which the sink creates the control topic.",
    )
    replication_factor: Annotated[int, AfterValidator(_replication)] = Field(
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
        le=_WEEK_MS,
        alias="iceberg.control.transaction-timeout-ms",
        description="How long a dead member's open transaction may hide newer events from readers, in milliseconds.",
    )
