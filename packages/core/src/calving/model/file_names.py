"""The names of the files that a sink writes: Iceberg's names, with the writer's id."""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

DATA = ""
KEYS = "-keys"
"""The ending of a key file, which never becomes a part of its table."""
DELETES = "-deletes"
"""The ending of a key file of a sink that keeps equality deletes: the table may get the file as it is."""

_ID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME = re.compile(rf"(?:[01]+-)?\d{{5,}}-\d+-({_ID})-\d{{5,}}(|{KEYS}|{DELETES})\.[a-z]+")


class FileName(NamedTuple):
    """What the name of a file says: the id of its writer, and its kind (``DATA``, ``KEYS`` or ``DELETES``)."""

    writer: str
    kind: str


def file_name(task: int, writer: UUID, number: int, kind: str, file_format: str) -> str:
    """The name of a writer's file with this number."""
    return f"{abs(task):05d}-0-{writer}-{number:05d}{kind}.{file_format}"


def written(path: str) -> FileName | None:
    """What the name of this file says; None if no sink gives such a name. Storage layouts put bits before the name."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return FileName(match[1], match[2]) if match else None
