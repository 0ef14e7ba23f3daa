"""Reads what is needed of a Protobuf message before it is parsed: the head of the schema registry's format, which is
the schema's id and which message it is, and how many cells the message takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from calving.converters.schemas import BODY, schema_id
from calving.records.cells import Cells, cells_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor


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


_LEAST = 2
"""Bytes of a field, at least."""
_LAST_SHIFT = 63
"""Of the last of a number's ten bytes."""
_VARINT, _FIXED64, _COUNTED, _START, _END = range(5)


@dataclass(frozen=True, slots=True)
class FieldCells:
    """A field of messages: the cells of each one, and the fields in it that count. ``slot``: the place that the field
    shares with the others of its oneof; None for a list or a map. The first message of a place does not count: the
    columns around it have its cells.
    """

    cells: int
    parts: Mapping[int, FieldCells]
    slot: int | None = None

    @property
    def most(self) -> int:
        """The most cells of the field, or of a field in it."""
        return max([self.cells, *(part.most for part in self.parts.values())])


def parts_of(message: Descriptor, kind: pa.StructType) -> Mapping[int, FieldCells]:
    """The fields of a message that are messages of several cells, or hold some, by number. ``kind``: its column."""
    parts: dict[int, FieldCells] = {}
    for field in message.fields:
        inner, slot = kind.field(field.name).type, None
        if pa.types.is_map(inner):
            inner = pa.struct([("key", inner.key_type), ("value", inner.item_type)])
        elif pa.types.is_list(inner):
            inner = inner.value_type
        else:
            choice = field.containing_oneof
            slot = field.number if choice is None else -1 - choice.index
        held, cells = field.message_type, cells_of(inner)
        below = parts_of(held, inner) if held is not None and isinstance(inner, pa.StructType) else {}
        if held is not None and (cells > 1 or below):
            parts[field.number] = FieldCells(cells, below, slot)
    return parts


def count(body: bytes, parts: Mapping[int, FieldCells], cells: Cells) -> None:
    """Count the cells of the messages that the parser makes, beyond those of the message's own columns: the elements of
    lists and maps, and each message that replaces another of its oneof, or comes again in its field. What is no message
    is left to the parser.

    :raises TooManyCellsError: they are too many.
    """
    if len(body) // _LEAST * max((part.most for part in parts.values()), default=0) > cells.most - cells.used:
        with suppress(IndexError):
            _count(memoryview(body), parts, cells)


def _count(body: memoryview, parts: Mapping[int, FieldCells], cells: Cells) -> None:
    at, seen = 0, set[int]()
    around = list[tuple[Mapping[int, FieldCells], set[int]]]()
    while at < len(body):
        tag, at = _varint(body, at)
        part, wire = parts.get(tag >> 3), tag & 7
        if part is not None and wire in (_COUNTED, _START):
            if part.slot is None or part.slot in seen:
                cells.elements(1, part.cells)
            else:
                seen.add(part.slot)
        below = {} if part is None else part.parts
        if wire == _COUNTED:
            size, at = _varint(body, at)
            if below:
                _count(body[at : at + size], below, cells)
            at += size
        elif wire == _START:
            around.append((parts, seen))
            parts, seen = below, set()
        elif wire == _END:
            parts, seen = around.pop()
        elif wire == _VARINT:
            _, at = _varint(body, at)
        else:
            at += 8 if wire == _FIXED64 else 4


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    """:raises IndexError: the bytes end too soon."""
    number = shift = 0
    while (byte := body[at]) >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift > _LAST_SHIFT:
            raise IndexError
    return number | byte << shift, at + 1
