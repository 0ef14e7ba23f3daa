"""Random tables: every type that pyiceberg writes in format version 2, nested as deep as asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_PLAIN: tuple[PrimitiveType, ...] = (
    BooleanType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    StringType(),
    BinaryType(),
    UUIDType(),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
)
_DECIMALS = (
    (1, 0),
    (5, 2),
    (9, 9),
    (18, 4),
    (19, 0),
    (28, 10),
    (29, 3),
    (38, 0),
    (38, 10),
    (38, 24),
    (38, 27),
    (38, 38),
)
NAMES = ("a", "b", "c", "d", "ts", "value", "Mixed", "ünï", "with space", "x_1", "key", "element", "HasField", "class")


def primitive(random: Random) -> PrimitiveType:
    choice = random.random()
    if choice < 0.15:
        return DecimalType(*random.choice(_DECIMALS))
    if choice < 0.2:
        return FixedType(random.choice((1, 4, 16, 17)))
    if choice < 0.4:
        return random.choice((LongType(), StringType(), DoubleType()))
    if choice < 0.6:
        return random.choice((DateType(), TimeType(), TimestampType(), TimestamptzType()))
    return random.choice(_PLAIN)


def kind(random: Random, depth: int, ids: Iterator[int]) -> IcebergType:
    """Any type, nested at most so deep."""
    choice = random.random()
    if depth == 0 or choice < 0.6:
        return primitive(random)
    if choice < 0.75:
        return StructType(*fields(random, random.randint(1, 3), depth - 1, ids))
    if choice < 0.88:
        return ListType(next(ids), kind(random, depth - 1, ids), element_required=random.random() < 0.2)
    key = StringType() if random.random() < 0.5 else primitive(random)
    return MapType(next(ids), key, next(ids), kind(random, depth - 1, ids), value_required=random.random() < 0.2)


def fields(random: Random, count: int, depth: int, ids: Iterator[int]) -> list[NestedField]:
    names = random.sample(NAMES, count)
    return [NestedField(next(ids), n, kind(random, depth, ids), required=random.random() < 0.15) for n in names]


def schema(random: Random) -> Schema:
    """A table's schema; usually the column ``id`` comes first."""
    ids = itertools.count(1)
    depth = random.choice((0, 1, 1, 2, 2, 3))
    first = [NestedField(next(ids), "id", LongType(), required=random.random() < 0.1)] if random.random() < 0.85 else []
    return Schema(*first, *fields(random, random.randint(1, 5), depth, ids))


def changed(random: Random, schema: Schema) -> Schema:
    """Another table for the same records: some columns are there, some are others, some of another type."""
    ids = itertools.count(1000)
    columns = []
    for column in schema.fields:
        choice = random.random()
        if choice < 0.5:
            columns.append(column)
        elif choice < 0.8:
            columns.append(NestedField(next(ids), column.name, kind(random, 1, ids), required=False))
    columns += [c for c in fields(random, 1, 1, ids) if c.name not in {k.name for k in columns}]
    return Schema(*columns)


def _leaves(struct: StructType) -> Iterator[NestedField]:
    """Columns that a table may be partitioned and sorted by."""
    for field in struct.fields:
        if isinstance(field.field_type, StructType):
            yield from _leaves(field.field_type)
        elif isinstance(field.field_type, PrimitiveType):
            yield field


def _transform(random: Random, kind: IcebergType) -> Transform[Any, Any] | None:
    width = random.choice((1, 2, 3, 10, 16))
    every: tuple[Transform[Any, Any], ...] = (
        IdentityTransform(),
        BucketTransform(random.choice((1, 4, 16, 1000))),
        TruncateTransform(width),
        YearTransform(),
        MonthTransform(),
        DayTransform(),
        HourTransform(),
    )
    # The identity of a fixed column is refused: Java cannot read it.
    fitting = [
        t for t in every if t.can_transform(kind) and not (isinstance(kind, FixedType) and t == IdentityTransform())
    ]
    return random.choice(fitting) if fitting else None


def partitions(random: Random, schema: Schema, *, few: bool = False) -> PartitionSpec:
    """By no, one or two columns. Many records want ``few`` partitions: each is a file."""
    fields = []
    leaves = list(_leaves(schema.as_struct()))
    if random.random() < 0.6 or not leaves:
        return UNPARTITIONED_PARTITION_SPEC
    for number, column in enumerate(random.sample(leaves, min(len(leaves), random.choice((1, 1, 2))))):
        transform = _transform(random, column.field_type)
        if few and not isinstance(column.field_type, BooleanType):
            transform = BucketTransform(random.choice((1, 4, 16)))
        if transform is not None and transform.can_transform(column.field_type):
            fields.append(PartitionField(column.field_id, 1000 + number, transform, f"part_{number}"))
    return PartitionSpec(*fields)


def order(random: Random, schema: Schema) -> SortOrder:
    """Mostly none."""
    leaves = list(_leaves(schema.as_struct()))
    if random.random() < 0.85 or not leaves:
        return UNSORTED_SORT_ORDER
    fields = []
    for column in random.sample(leaves, min(len(leaves), random.choice((1, 2)))):
        transform = (random.random() < 0.3 and _transform(random, column.field_type)) or IdentityTransform()
        fields.append(
            SortField(
                column.field_id,
                transform=transform,
                direction=random.choice(list(SortDirection)),
                null_order=random.choice(list(NullOrder)),
            )
        )
    return SortOrder(*fields)


def properties(random: Random) -> dict[str, str]:
    """Of the table: its format, its statistics, its distribution."""
    found = {"write.format.default": random.choice(("parquet", "parquet", "parquet", "orc", "avro"))}
    if random.random() < 0.2:
        found["write.metadata.metrics.default"] = random.choice(
            ("none", "counts", "full", "truncate(1)", "truncate(5)")
        )
    if random.random() < 0.3:
        found["write.distribution-mode"] = random.choice(("hash", "range"))
    return found
