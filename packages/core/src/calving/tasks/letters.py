"""Rows of the dead-letter table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from calving.model.dead_letters import DeadLetter
from calving.model.timestamps import is_moment
from calving.records.values import HEADERS

LETTERS = pa.struct(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("stage", pa.string(), nullable=False),
        pa.field("error", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""A row of the dead-letter table."""


def rows_of(letters: Sequence[DeadLetter]) -> pa.StructArray:
    """A row for each dead letter."""
    rows = [
        {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp": _moment(letter.timestamp_ms),
            "key": letter.key,
            "value": letter.value,
            "headers": [{"key": name, "value": value} for name, value in letter.headers],
            "stage": letter.stage,
            "error": letter.error,
            "reason": letter.reason,
        }
        for letter in letters
    ]
    return pa.array(rows, LETTERS)


def _moment(timestamp_ms: int | None) -> int | None:
    """The timestamp, or None if it is no moment: many readers cannot read the years after 9999, and a dead letter is
    never bad itself.
    """
    return timestamp_ms if timestamp_ms is not None and is_moment(timestamp_ms) else None
