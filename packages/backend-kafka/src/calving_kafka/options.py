"""Keys of the Kafka backend."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class KafkaOptions(BaseModel):
    """Keys of the Kafka backend."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

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
    on_truncation: Literal["fail", "continue"] = Field(
        "fail",
        alias="iceberg.control.on-truncation",
        description="What a coordinator does when the control topic no longer has the saved position.",
    )
    max_message_bytes: int = Field(
        900_000,
        ge=20_000,
        alias="iceberg.control.max-message-bytes",
        description="Largest control event, bytes; the lists of files are divided to fit. Keep it below the topic's"
        " max.message.bytes.",
    )
    transaction_timeout_ms: int = Field(
        10_000,
        ge=1_000,
        alias="iceberg.control.transaction-timeout-ms",
        description="How long a dead member's open transaction can hide newer events from the readers.",
    )
