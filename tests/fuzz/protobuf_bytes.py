"""The parts of which Protobuf's encoding is made."""

from __future__ import annotations

VARINT, EIGHT, SIZED, START, END, FOUR = range(6)
"""Wire types."""


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def tag(number: int, wire: int) -> bytes:
    """Of a field: its number and its wire type."""
    return varint(number << 3 | wire)


def sized(number: int, raw: bytes) -> bytes:
    """A field of bytes, with its tag and its length."""
    return tag(number, SIZED) + varint(len(raw)) + raw
