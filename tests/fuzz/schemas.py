"""Random tables: every type that pyiceberg writes in format version 2, nested as deep as asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

from pyiceberg.schema import Schema
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
NAMES = ("a", "b", "c", "d", "ts", "value", "Mixed", "ünï", "with space", "x_1", "key", "element")


def primitive(random: Random) -> PrimitiveType:
    choice = random.random()
    if choice < 0.15:
        return DecimalType(*random.choice(_DECIMALS))
    if choice < 0.2:
        return FixedType(random.choice((1, 4, 16, 17)))
    if choice < 0.45:
        return random.choice((LongType(), StringType(), DoubleType()))
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
