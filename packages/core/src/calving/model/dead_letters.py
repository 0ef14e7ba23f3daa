"""Rejected records on their way to the dead-letter topic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

Headers = Sequence[tuple[str, bytes | None]]
"""The headers of one record."""
PREFIX = "__connect.errors."
"""The prefix of Kafka Connect's error headers."""
LEFT_OUT = "calving-left-out"
"""The header that says which parts of its record a dead letter lacks, because its topic takes no record so large."""
_PARTS = ("value", "key", "headers")
_LONGEST = 1024
"""The most bytes of the header ``LEFT_OUT`` that is believed. The longest one that calving writes has some 400."""


class Stage(StrEnum):
    """The step that rejected a record, as dead letters and metrics name it. A step of Kafka Connect has Kafka Connect's
    name.
    """

    KEY_CONVERTER = "KEY_CONVERTER"
    HEADER_CONVERTER = "HEADER_CONVERTER"
    VALUE_CONVERTER = "VALUE_CONVERTER"
    TRANSFORMATION = "TRANSFORMATION"
    ROUTING = "ROUTING"
    CONVERSION = "conversion"
    """The value does not fit its table."""
    WRITING = "WRITING"
    # A step of the task failed on the record with an error that the step does not know.
    FETCH = "FETCH"
    DECODE = "DECODE"
    TRANSFORM = "TRANSFORM"
    CONVERT = "CONVERT"
    WRITE = "WRITE"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A source record as it was read, and why it was rejected. ``timestamp_ms`` is None if the record has no
    timestamp. ``left_out``: the bytes of each part that the letter lacks, as of ``left_out``.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    stage: Stage
    error: str
    reason: str
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes of key, value and headers."""
        return len(self.key or b"") + len(self.value or b"") + _size_of(self.headers)

    def smaller(self) -> DeadLetter | None:
        """The letter without its value; if it has none, without its key, and at last without the headers of its record.
        None if nothing can be left out. The header ``LEFT_OUT`` has the bytes of each part that is left out, and the
        place of the record. It replaces any header of this name that the record has.
        """
        if self.value:
            part, size, rest = "value", len(self.value), replace(self, value=None)
        elif self.key:
            part, size, rest = "key", len(self.key), replace(self, key=None)
        elif own := [each for each in self.headers if not self.left_out or each != self._note]:
            part, size, rest = "headers", _size_of(own), replace(self, headers=())
        else:
            return None
        rest = replace(rest, left_out={part: size, **self.left_out})
        kept = tuple((name, value) for name, value in rest.headers if name != LEFT_OUT)
        return replace(rest, headers=(*kept, rest._note))

    @property
    def _note(self) -> tuple[str, bytes]:
        """The header ``LEFT_OUT``."""
        sizes = {part: self.left_out[part] for part in _PARTS if part in self.left_out}
        place = {"topic": self.topic, "partition": self.partition, "offset": self.offset}
        return LEFT_OUT, json.dumps({**place, **sizes}).encode()

    def error_headers(self, sink: str) -> Sequence[tuple[str, bytes | None]]:
        """The record's own headers, then Connect's error headers (DeadLetterQueueReporter). They replace the error
        headers of an earlier rejection.
        """
        own = [(name, value) for name, value in self.headers if not name.startswith(PREFIX)]
        said = {
            "topic": self.topic,
            "partition": str(self.partition),
            "offset": str(self.offset),
            "connector.name": sink,
            "task.id": "0",
            "stage": self.stage,
            "class.name": "calving",
            "exception.class.name": self.error,
            "exception.message": self.reason,
        }
        return [*own, *((PREFIX + name, value.encode()) for name, value in said.items())]


def _size_of(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def left_out(headers: Headers) -> dict[str, int]:
    """The bytes of each part that a dead letter lacks, from its headers; nothing if they say nothing of calving's.

    Only the headers of a dead letter can be believed: whoever writes a record chooses its headers.
    """
    text = dict(headers).get(LEFT_OUT) or b""
    try:
        said = json.loads(text) if len(text) <= _LONGEST else None
    except (ValueError, RecursionError):
        return {}
    sizes = {part: said.get(part) for part in _PARTS} if isinstance(said, dict) else {}
    return {part: size for part, size in sizes.items() if type(size) is int and 0 <= size < 2**63}


def origin(headers: Sequence[tuple[str, bytes | None]]) -> tuple[str, int, int] | None:
    """Topic, partition and offset of the source record from the headers; None if the headers do not have them, or have
    what no broker has.
    """
    by_name = {name.removeprefix(PREFIX): value for name, value in headers if name.startswith(PREFIX) and value}
    try:
        topic, partition, offset = by_name["topic"].decode(), int(by_name["partition"]), int(by_name["offset"])
    except (KeyError, ValueError):
        return None
    return (topic, partition, offset) if 0 <= partition < 2**31 and 0 <= offset < 2**63 else None
