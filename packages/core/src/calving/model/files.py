"""Data and delete files as they travel from a task to the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


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
