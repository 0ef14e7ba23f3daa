"""Finds the data files that may have rows of given keys, from the entries in their manifests."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    FixedType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    UUIDType,
)

from calving.model.files import CHANGES, PARTIAL, DataFile
from calving.mutations.columns import Column
from calving.mutations.keys import ChangedKeys
from calving.protocol.commit import Step
from calving.writing.keys import scaled
from calving.writing.partitioning import Partitioner, divide, to_record

_FEW = 100_000
"""Up to this many values are compared with bounds one by one. Of more values, only the least and the greatest are
compared.
"""
_DAYS_BYTES = 4
"""The length of a date's bound."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A data file. ``step``: the number of the commit's step that adds the file; None if the table has the file
    already.
    """

    path: str
    file_format: str
    records: int
    size: int
    spec_id: int
    partition: tuple[Any, ...]
    lower: Mapping[int, bytes] = field(default_factory=dict)
    upper: Mapping[int, bytes] = field(default_factory=dict)
    step: int | None = None


def by_id_columns(steps: Iterable[Step]) -> dict[tuple[int, ...], list[list[DataFile]]]:
    """For each set of id columns, the key files of each step. There may be several sets, because a table's id columns
    may change.
    """
    files_of_steps: dict[tuple[int, ...], list[list[DataFile]]] = {}
    steps = list(steps)
    for number, step in enumerate(steps):
        for file in step.delete_files:
            ids = id_columns(file)
            if ids not in files_of_steps:
                files_of_steps[ids] = [[] for _ in steps]
            files_of_steps[ids][number].append(file)
    return files_of_steps


def id_columns(file: DataFile) -> tuple[int, ...]:
    """The field ids of a key file's id columns."""
    return tuple(sorted(each for each in file.equality_ids or () if each not in (PARTIAL, CHANGES)))


def new_files(
    steps: Iterable[Iterable[DataFile]], specs: Mapping[int, PartitionSpec], sources: Schema
) -> dict[str, Candidate]:
    """The data files that each step of a commit adds, by path. ``sources``: has the source columns of all specs."""
    by_path = {}
    for number, files in enumerate(steps):
        for file in files:
            spec = specs[file.spec_id]
            record = to_record(file.partition, spec, sources)
            by_path[file.file_path] = Candidate(
                path=file.file_path,
                file_format=file.file_format,
                records=file.record_count,
                size=file.file_size_in_bytes,
                spec_id=file.spec_id,
                partition=tuple(record[i] for i in range(len(spec.fields))),
                lower=file.lower_bounds or {},
                upper=file.upper_bounds or {},
                step=number,
            )
    return by_path


def tells_partition(spec: PartitionSpec, ids: Iterable[int]) -> bool:
    """Whether the spec has partitions, and the columns of these ids determine the partition of a row."""
    known = set(ids)
    own = [each for each in spec.fields if each.source_id in known and not isinstance(each.transform, VoidTransform)]
    return bool(spec.fields) and len(own) == len(spec.fields)


def identities(spec: PartitionSpec, ids: Collection[int]) -> dict[int, int]:
    """The columns of these ids that have one value in a partition, because the spec has them as they are; and the place
    of this value in the partition.
    """
    return {
        field.source_id: place
        for place, field in enumerate(spec.fields)
        if field.source_id in ids and isinstance(field.transform, IdentityTransform)
    }


class Pruning:
    """Tells which files cannot have rows of given keys."""

    def __init__(self, keys: ChangedKeys, columns: Iterable[Column], specs: Mapping[int, PartitionSpec]) -> None:
        self._keys, self._columns, self._specs = keys, tuple(columns), specs
        self._partitions: dict[int, Mapping[tuple[Any, ...], ChangedKeys] | None] = {}

    def keys_of(self, file: Candidate) -> ChangedKeys | None:
        """The keys of which the file may have rows; None if it can have no such row."""
        keys = self._of_partition(file)
        return keys if keys is not None and all(bounds.meet(file) for bounds in self._bounds) else None

    def _of_partition(self, file: Candidate) -> ChangedKeys | None:
        """The keys of the file's partition; None if there are none. L1: if the key does not determine the partition, a
        row of the key may be in any partition.
        """
        if file.spec_id not in self._partitions:
            self._partitions[file.spec_id] = self._partitions_of(self._specs[file.spec_id])
        keys_of = self._partitions[file.spec_id]
        return self._keys if keys_of is None else keys_of.get(file.partition)

    def _partitions_of(self, spec: PartitionSpec) -> Mapping[tuple[Any, ...], ChangedKeys] | None:
        if not tells_partition(spec, (column.field_id for column in self._columns)):
            return None
        schema = Schema(*(NestedField(c.field_id, f"c{c.field_id}", c.kind, required=False) for c in self._columns))
        partitioner = Partitioner(schema, spec)
        keys_of = {}
        all_of = pa.RecordBatch.from_arrays([pa.array(range(len(self._keys)), pa.int32())], ["key"])
        for number, keys in divide(all_of, partitioner.numbers(self._keys.rows)):
            record = to_record(partitioner.partition(number).values, spec, schema)
            keys_of[tuple(record[i] for i in range(len(spec.fields)))] = self._keys.part(keys.column(0))
        return keys_of

    @cached_property
    def _bounds(self) -> list[_Bounds]:
        columns = zip(self._columns, self._keys.columns, strict=True)
        is_one = len(self._columns) == 1  # then its values differ, as keys do
        # Not for UUIDs, because engines do not agree on their order; not for booleans, because most files have both
        # values; and not for null, which is within no bounds.
        return [
            _Bounds(column, values if is_one else values.unique())
            for column, values in columns
            if not isinstance(column.kind, UUIDType | BooleanType) and not values.null_count
        ]


class _Bounds:
    """The different values of one column, to compare with the bounds of files."""

    def __init__(self, column: Column, values: pa.Array) -> None:
        self._id = column.field_id
        self._bound: Callable[[bytes], Any] = _bound_of(column)
        self._values = sorted(values.to_pylist()) if len(values) <= _FEW else None
        ends = pc.min_max(values)
        self._ends = ends["min"].as_py(), ends["max"].as_py()

    def meet(self, file: Candidate) -> bool:
        """Whether one of the values is within the file's bounds. An unknown bound excludes no value."""
        low, high = (self._known(bounds.get(self._id)) for bounds in (file.lower, file.upper))
        if low is not None and self._ends[1] < low:
            return False
        first = self._ends[0]
        if low is not None and self._values is not None:
            first = self._values[bisect_left(self._values, low)]
        return bool(high is None or first <= high)

    def _known(self, bound: bytes | None) -> Any:
        """The value of a bound; None if the bound is unknown. Some writers cut text within a character."""
        try:
            return None if bound is None else self._bound(bound)
        except UnicodeDecodeError:
            return None


def _bound_of(column: Column) -> Callable[[bytes], Any]:
    kind = column.kind
    match kind:
        case StringType():
            return lambda bound: bound.decode("utf-8", "surrogatepass")
        case BinaryType() | FixedType():
            return bytes
        case DecimalType():
            scale = kind.scale
            return lambda bound: scaled(int.from_bytes(bound, "big", signed=True), scale)
        case TimestampType() | TimestampNanoType():
            # If the column was a date when the file was written, its bounds are days.
            return lambda bound: None if len(bound) == _DAYS_BYTES else int.from_bytes(bound, "little", signed=True)
    # This also decodes bounds of a column that was narrower when the file was written.
    return lambda bound: int.from_bytes(bound, "little", signed=True)
