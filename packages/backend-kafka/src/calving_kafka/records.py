"""Events as records of the control topic."""

from __future__ import annotations

import zlib

from calving.backend import Encoded
from calving.source.producing import OutRecord

SPANS_HEADER = "calving-spans"
BESIDE_HEADER = "calving-beside"


def partition_of(sender: str, count: int) -> int:
    """The partition for all entries of a sender, in a topic of ``count`` partitions.

    The client's own choice changes when partitions are added, even within a publication. Then the parts of the
    publication could arrive in any order.
    """
    return zlib.crc32(sender.encode()) % count


def records_of(topic: str, encoded: Encoded, sender: str, partition: int) -> list[OutRecord]:
    """The records of encoded events."""
    headers = [(SPANS_HEADER, encoded.coverage)] if encoded.coverage else []
    headers.append((BESIDE_HEADER, encoded.beside))
    return [OutRecord(topic, sender, value, headers, partition=partition) for value in encoded.events]
