"""What reads the source of a sink."""

from __future__ import annotations

from collections.abc import Mapping

from calving.model.record_path import Limits
from calving.source.kafka_reader import KafkaReader
from calving.source.reading import Reader


def open_reader(kafka: Mapping[str, str], limits: Limits) -> Reader:
    """For one task. :raises ConfigError: a property is wrong."""
    return KafkaReader(kafka, limits)
