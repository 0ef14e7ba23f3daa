"""Opens the source of a sink, and its reader. No other module chooses the implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from calving.model.record_path import Limits
from calving.source.interface import Source
from calving.source.kafka import Topics

if TYPE_CHECKING:
    from calving.source.reading import Reader


def open_source(kafka: Mapping[str, str], topics: Sequence[str], regex: str | None) -> Source:
    """The source of these topics, or of the topics that the regular expression matches in full. It connects at its
    first use.
    """
    return Topics(kafka, topics, regex)


def open_reader(kafka: Mapping[str, str], limits: Limits, *, headers: bool = True) -> Reader:
    """The reader for one task. ``headers``: whether the headers of records will be read. Without them, reading costs
    less.

    :raises ConfigError: a property is wrong.
    """
    # Imported here, because importing Arrow takes most of a start, and only tasks read.
    from calving.source.kafka_reader import KafkaReader

    return KafkaReader(kafka, limits, headers=headers)


def no_native_reader() -> str | None:
    """The reason why records are not read by Rust; None if they are."""
    from calving.source import kafka_columns

    return kafka_columns.absence()
