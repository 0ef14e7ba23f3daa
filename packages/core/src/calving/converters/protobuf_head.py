"""Reads the head of a value in the schema registry's Protobuf format: the schema's id, and which message it is."""

from __future__ import annotations

from calving.converters.schemas import BODY, schema_id

Key = tuple[int, tuple[int, ...]]
"""The schema's id, and the indices of the message in its file."""


def head_of(value: bytes) -> tuple[Key, int]:
    """The key of a value's message, and the start of its body.

    :raises ValueError: the value is not in the format.
    """
    number = schema_id(value)
    path, start = _message_path(value, BODY)
    return (number, path), start


def _message_path(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The indices of the message in the schema's file, and the start of the body."""
    count, at = _zigzag(value, at)
    if count == 0:
        return (0,), at
    path = []
    if not 0 < count < 100:
        raise ValueError(f"not in the schema registry's Protobuf format: {count} message indexes")
    for _ in range(count):
        index, at = _zigzag(value, at)
        if index < 0:
            raise ValueError(f"not in the schema registry's Protobuf format: message index {index}")
        path.append(index)
    return tuple(path), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(value) or shift > 63:
            raise ValueError("not in the schema registry's Protobuf format: its message indexes end too soon")
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
