"""Data and delete files as they travel from a task to the coordinator; their places and names.

Names are Iceberg's, with the writer's id. Places have to be compared with care: anybody may write entries to the
control log, so an entry may name a file anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

DATA = ""
KEYS = "-keys"
"""The ending of a key file, which never becomes a part of its table."""
DELETES = "-deletes"
"""The ending of a key file of a sink that keeps equality deletes: the table may get the file as it is."""

EVERY_ROW = (2_147_483_646,)
"""The equality ids of a key file that deletes all rows of its table. It is Iceberg's id for the file of a row, which no
column has: a coordinator of a version before 0.2.0 commits no file with it.
"""
PARTIAL = 2_147_483_544
"""One of the equality ids of a key file with rows that lack columns, beside the ids of the id columns; and the id of
the file's column that names those columns. It is Iceberg's id for the row in a delete file, which no column of a table
has: a coordinator of a version before 0.2.0 commits no file with it.
"""
CHANGES, CHANGED_AT = 2_147_483_543, 2_147_483_542
"""The first is one of the equality ids of a key file with the changes of a table that keeps versions of its rows,
beside the ids of the id columns. They are the ids of the file's other columns: whether a change deletes, and where it
is in the order. They are Iceberg's ids for the type of a change and its place in a changelog, which no column of a
table has: a coordinator of a version before 0.2.0 commits no such file.
"""
_ID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAME = re.compile(rf"(?:[01]+-)?\d{{5,}}-\d+-({_ID})-\d{{5,}}(|{KEYS}|{DELETES})\.[a-z]+")
_SAME = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb", "gcs": "gs"}
"""Schemes that are other names of one storage."""
_LOCATION = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(.*)", re.DOTALL)
_STEPS = re.compile(r"[/\\]")
_CUT = re.compile(r"[\x00-\x1f\x7f?#]")
"""Characters at which a storage library may cut a path off, or which it may leave out: then it takes another file."""
_SLASHES = re.compile(r"/{2,}")


class FileContent(IntEnum):
    """Iceberg's content codes (spec, field 134)."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partition tuple: its name, its id (1000 and up) and its Avro type as JSON text."""

    name: str
    field_id: int
    avro_type: str


@dataclass(frozen=True, slots=True)
class PartitionTuple:
    """A partition: fields in the order of the spec, values in Iceberg's internal form (days, micros, 16 bytes, ...)."""

    fields: tuple[PartitionField, ...] = ()
    values: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data or delete file. The fields have the names, order and meaning of Iceberg's ``data_file`` struct.

    Maps go from column id to a number, or to a bound in Iceberg's single-value serialization.
    """

    file_path: str
    file_format: str
    record_count: int
    file_size_in_bytes: int
    content: FileContent = FileContent.DATA
    spec_id: int = 0
    partition: PartitionTuple = PartitionTuple()
    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_value_counts: Mapping[int, int] | None = None
    nan_value_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None

    @property
    def is_partial(self) -> bool:
        """Whether it is a key file with partial rows: the commit makes whole ones of them."""
        return PARTIAL in (self.equality_ids or ())

    @property
    def has_changes(self) -> bool:
        """Whether it is a key file with the changes of a table that keeps versions of its rows."""
        return CHANGES in (self.equality_ids or ())

    @property
    def rows(self) -> int:
        """How many rows of the table it brings."""
        return self.record_count if self.content is FileContent.DATA or self.is_partial else 0


class _Place(NamedTuple):
    scheme: str
    authority: str
    path: str

    @staticmethod
    def of(text: str) -> _Place:
        scheme, authority, path = _LOCATION.fullmatch(text).groups()  # type: ignore[union-attr]  # it matches any text
        scheme = (scheme or "file").lower()
        return _Place(_SAME.get(scheme, scheme), authority or "", path)


@lru_cache(maxsize=1_000)
def _root(location: str) -> _Place:
    """A location that many files are compared with, its path with a slash at the end."""
    place = _Place.of(location)
    return place._replace(path=place.path.rstrip("/") + "/")


def is_below(path: str, location: str) -> bool:
    """Whether the file ``path`` is below ``location``. A path with a step such as ``..`` is never below, because a
    storage may take this step for the way out; nor is one with ``?`` or ``#`` after the location, because PyArrow would
    read and delete the file before this character. Only names of one storage, such as ``s3`` and ``s3a``, are the same:
    a bucket and a path are compared letter by letter.
    """
    place, root = _Place.of(path), _root(location)
    folder = root.path
    if place[:2] != root[:2] or not place.path.startswith(folder):
        return False
    below = place.path[len(folder) :]
    inside = _STEPS.split(below)
    return _CUT.search(below) is None and inside[-1] != "" and not any(step in (".", "..") for step in inside)


def is_below_any(path: str, locations: Iterable[str]) -> bool:
    """Whether the file ``path`` is below one of these locations."""
    return any(is_below(path, location) for location in locations)


def one_name(path: str) -> str:
    """The same text for all names that a storage may have for one file."""
    place = _Place.of(path)
    return f"{place.scheme}://{place.authority}{_SLASHES.sub('/', place.path)}"


class FileName(NamedTuple):
    """What the name of a file says: the id of its writer, and its kind (``DATA``, ``KEYS`` or ``DELETES``)."""

    writer: str
    kind: str


def file_name(task: int, writer: UUID, number: int, kind: str, file_format: str) -> str:
    """The name of a writer's file with this number."""
    return f"{abs(task):05d}-0-{writer}-{number:05d}{kind}.{file_format}"


def sink_name(path: str) -> FileName | None:
    """What the name of this file says; None if no sink gives such a name. Storage layouts put bits before the name."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return FileName(match[1], match[2]) if match else None
