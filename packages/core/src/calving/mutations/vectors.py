"""Deletion vectors: the positions of a data file that are deleted, as blobs of one Puffin file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from pyroaring import BitMap64

from calving.errors import TableTroubleError

_MAGIC = bytes.fromhex("d1d33964")
_PUFFIN = b"PFA1"
_FIELDS = [2147483645]
"""The id of the field that Java names in the footer: the position of a row (``_pos``)."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a data file's blob within its Puffin file."""

    offset: int
    size: int
    cardinality: int


def to_blob(positions: BitMap64) -> bytes:
    """The blob ``deletion-vector-v1``: its length, magic bytes, 64-bit Roaring bitmap, and CRC-32 of the last two."""
    packed = positions.copy()
    packed.run_optimize()
    body = _MAGIC + packed.serialize()
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def from_blob(blob: bytes, where: str) -> BitMap64:
    """The positions in a blob. ``where`` names the blob's place in errors.

    :raises TableTroubleError: the blob is damaged.
    """
    body, checksum = blob[4:-4], blob[-4:]
    if (
        int.from_bytes(blob[:4], "big") != len(body)
        or body[:4] != _MAGIC
        or zlib.crc32(body) != int.from_bytes(checksum, "big")
    ):
        raise TableTroubleError(
            f"the deletion vector in {where} is damaged: restore this file, or roll the table back to a snapshot before"
            " it; the files of the sink stay buffered until then"
        )
    positions: BitMap64 = BitMap64.deserialize(body[4:])
    return positions


def puffin(vectors: Mapping[str, BitMap64], created_by: str) -> tuple[bytes, dict[str, Placed]]:
    """A Puffin file with one deletion vector for each data file, and the place of each vector in the file."""
    content = bytearray(_PUFFIN)
    places: dict[str, Placed] = {}
    blobs = []
    for path, positions in vectors.items():
        blob, offset = to_blob(positions), len(content)
        content += blob
        places[path] = Placed(offset, len(blob), len(positions))
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": _FIELDS,
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": offset,
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
            }
        )
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": created_by}}, separators=(",", ":")).encode()
    content += _PUFFIN + footer + len(footer).to_bytes(4, "little") + bytes(4) + _PUFFIN
    return bytes(content), places
