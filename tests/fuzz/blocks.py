"""Cases of large blocks: tables, and blocks from one row to several thousand, with texts and bytes of up to 1 MB."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
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
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_SIZES = ((1, 7, 300, 4100), (4100, 4100, 8200))
"""Small blocks are joined before they are written, several large ones are a row group."""
_MOST_ROWS = 18_000
_LONG = (4095, 4096, 4097, 5000, 70_000, 1_000_000)
_LETTERS = ("a", "m", "z", "\0", "~", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff")
_FIXED = 3
_BYTES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
BLOOM = "write.parquet.bloom-filter-"
BLOOMING = (StringType, LongType, IntegerType, BinaryType, DoubleType)
"""Columns that may have Bloom filters."""
Make = Callable[[Random], Any]


def _text(random: Random) -> str:
    letters = random.choice((_LETTERS, "ab", ("\U0010ffff",), ("\ud7ff",)))
    return "".join(random.choices(letters, k=random.choice((0, 1, 3, 15, 16, 17, 40))))


def _octets(random: Random) -> bytes:
    return bytes(random.choices(random.choice((_BYTES, (0xFF,), range(256))), k=random.choice((0, 1, 15, 16, 17, 40))))


def _float(random: Random) -> float:
    return random.choice((0.0, -0.0, math.nan, math.inf, -math.inf, random.uniform(-9, 9), 1e-40))


def _single(random: Random) -> float:
    value: float = pa.array([_float(random)], pa.float32())[0].as_py()
    return value


def _seconds(random: Random) -> int:
    """Whole seconds, which ORC can hold before 1970, too."""
    return random.randint(-(10**10), 10**10) * 1_000_000


_KINDS: tuple[tuple[IcebergType, Make], ...] = (
    (StringType(), _text),
    (StringType(), _text),
    (BinaryType(), _octets),
    (LongType(), lambda r: r.choice((-(2**63), 2**63 - 1, r.randint(-99, 99)))),
    (IntegerType(), lambda r: r.choice((-(2**31), 2**31 - 1, r.randint(-99, 99)))),
    (DoubleType(), _float),
    (FloatType(), _single),
    (BooleanType(), lambda r: r.random() < 0.5),
    (DecimalType(9, 2), lambda r: Decimal(r.randint(-(10**9) + 1, 10**9 - 1)).scaleb(-2)),
    (DecimalType(38, 0), lambda r: Decimal(r.choice((10**37, -(10**37), r.randint(-300, 300))))),
    (FixedType(_FIXED), lambda r: bytes(r.choices(_BYTES, k=_FIXED))),
    (UUIDType(), lambda r: uuid.UUID(int=r.getrandbits(128))),
    (DateType(), lambda r: r.randint(-700_000, 2_000_000)),
    (TimeType(), lambda r: r.randrange(86_400 * 10**6)),
    (TimestampType(), _seconds),
    (TimestamptzType(), _seconds),
    (TimestampNanoType(), lambda r: r.randint(-(9 * 10**9), 9 * 10**9) * 10**9),
)
_NESTED: tuple[tuple[IcebergType, Make], ...] = (
    (
        StructType(
            NestedField(50, "t", StringType(), required=False), NestedField(51, "n", LongType(), required=False)
        ),
        lambda r: {"t": r.choice((None, _text(r))), "n": r.choice((None, r.randint(-9, 9)))},
    ),
    (
        ListType(60, StringType(), element_required=False),
        lambda r: [r.choice((None, _text(r))) for _ in range(r.randrange(3))],
    ),
    (
        MapType(70, StringType(), 71, LongType(), value_required=False),
        lambda r: [(f"k{n}", r.randrange(9)) for n in range(r.randrange(3))],
    ),
)


_UNKEYED = (FloatType, DoubleType)


@dataclass(frozen=True)
class Case:
    """A table, and the blocks of rows that are written into it. The column ``id`` is the number of a row."""

    number: int
    schema: Schema
    properties: Mapping[str, str]
    spec: PartitionSpec
    order: SortOrder
    blocks: tuple[Sequence[dict[str, Any]], ...]
    keys: tuple[int, ...] = ()
    """Ids of the columns that identify rows in key files; empty: no key files are written."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for block in self.blocks for row in block]

    def __str__(self) -> str:
        sizes = [len(block) for block in self.blocks]
        return f"{self.schema} {dict(self.properties)} {self.spec} {self.order} blocks {sizes}"


def make(seed: int, number: int) -> Case:
    random = Random(f"{seed}/{number}/blocks")
    chosen = [random.choice(_KINDS[:3]), *(random.choice(_KINDS) for _ in range(random.randint(0, 3)))]
    chosen += [random.choice(_NESTED)] if random.random() < 0.5 else []
    fields = [NestedField(1, "id", LongType(), required=True)]
    makers: list[Make] = []
    for place, (kind, value) in enumerate(chosen, 2):
        fields.append(NestedField(place, f"c{place}", kind, required=False))
        makers.append(value)
    schema = Schema(*fields)
    parts = [PartitionField(1, 1000, BucketTransform(2), "b")] if random.random() < 0.2 else []
    sortable = [f.field_id for f in fields[1:] if isinstance(f.field_type, StringType | LongType | BinaryType)]
    by = [SortField(random.choice(sortable), IdentityTransform())] if sortable and random.random() < 0.2 else []
    return Case(
        number,
        schema,
        _properties(random, schema) | _blooming(seed, number, schema),
        PartitionSpec(*parts),
        SortOrder(*by) if by else UNSORTED_SORT_ORDER,
        tuple(_blocks(random, schema, makers)),
        _keys(seed, number, schema),
    )


def _keys(seed: int, number: int, schema: Schema) -> tuple[int, ...]:
    random = Random(f"{seed}/{number}/keys")
    fit = [
        field.field_id
        for field in schema.fields
        if isinstance(field.field_type, PrimitiveType) and not isinstance(field.field_type, _UNKEYED)
    ]
    return tuple(sorted(random.sample(fit, min(len(fit), random.choice((0, 1, 2))))))


def _blooming(seed: int, number: int, schema: Schema) -> dict[str, str]:
    random = Random(f"{seed}/{number}/bloom")
    said = {f"{BLOOM}max-bytes": random.choice(("1000", "100000"))} if random.random() < 0.15 else {}
    for field in schema.fields[1:]:
        if isinstance(field.field_type, BLOOMING) and random.random() < 0.25:
            said[f"{BLOOM}enabled.column.{field.name}"] = "true"
            said[f"{BLOOM}fpp.column.{field.name}"] = random.choice(("0.001", "0.01", "0.1", "0.5"))
    return said


def arrow(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Plain values as Arrow holds them."""
    if pa.types.is_struct(kind):
        inner = [arrow([None if v is None else v[f.name] for v in values], f.type) for f in kind.fields]
        return pa.StructArray.from_arrays(inner, fields=kind.fields, mask=pa.array([v is None for v in values]))
    if kind == pa.uuid():
        return pa.array([v and v.bytes for v in values], pa.binary(16)).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def batch(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as Arrow holds them."""
    columns = [arrow([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _properties(random: Random, schema: Schema) -> dict[str, str]:
    modes = ("none", "counts", "full", "truncate(1)", "truncate(2)", "truncate(16)", "truncate(5000)")
    said = {"write.format.default": random.choice(("parquet", "parquet", "parquet", "orc", "avro"))}
    if random.random() < 0.6:
        said["write.metadata.metrics.default"] = random.choice(modes[2:])
    for field in schema.fields[1:]:
        if isinstance(field.field_type, PrimitiveType) and random.random() < 0.15:
            said[f"write.metadata.metrics.column.{field.name}"] = random.choice(modes)
        if isinstance(field.field_type, StringType | LongType) and random.random() < 0.1:
            said[f"{BLOOM}enabled.column.{field.name}"] = "true"
    for name, values in {
        "write.parquet.page-version": ("v2",),
        "write.parquet.row-group-limit": ("1000", "5000", "10000"),
        "write.parquet.row-group-size-bytes": ("100000", "3000000"),
        "write.parquet.page-size-bytes": ("1000", "100000"),
        "write.parquet.compression-codec": ("snappy", "gzip", "lz4", "brotli", "uncompressed"),
        "write.parquet.dict-size-bytes": ("1000",),
        "parquet.enable.dictionary": ("true", "false"),
        "write.target-file-size-bytes": ("100000",),
        "write.orc.stripe-size-bytes": ("100000",),
    }.items():
        if random.random() < 0.15:
            said[name] = random.choice(values)
    return said


def _blocks(random: Random, schema: Schema, makers: Sequence[Make]) -> Iterator[list[dict[str, Any]]]:
    start, sizes = 0, random.choice(_SIZES)
    for _ in range(random.randint(1, 6)):
        size = random.choice(sizes)
        if start + size > _MOST_ROWS:
            return
        block = [{"id": start + i} for i in range(size)]
        first = random.choice(("", "0", "b", "m", "y"))
        for field, value in zip(schema.fields[1:], makers, strict=True):
            pool = [_above(first, value(random)) for _ in range(random.choice((1, 5, 40)))]
            pool += [None] * random.choice((0, 0, 1, len(pool)))
            column = random.choices(pool if random.random() > 0.05 else [None], k=size)
            _lengthen(random, field.field_type, column)
            for row, cell in zip(block, column, strict=True):
                row[field.name] = cell
        yield block
        start += size


def _above(first: str, value: Any) -> Any:
    """The value; a text or bytes begin as others of their block."""
    match value:
        case str():
            return first + value
        case bytes() if len(value) != _FIXED:
            return first.encode() + value
    return value


def _lengthen(random: Random, kind: IcebergType, column: list[Any]) -> None:
    """Make a few values long: those that Parquet leaves out of its statistics, and some that it just does not."""
    if random.random() < 0.5 or not isinstance(kind, StringType | BinaryType | StructType):
        return
    for _ in range(random.randint(1, 2)):
        length = random.choice(_LONG)
        letter = random.choice(("\0", "A", "~", *_LETTERS))
        text = letter * -(-length // len(letter.encode()))
        place = random.randrange(len(column))
        if isinstance(kind, StructType):
            column[place] = {"t": text, "n": None}
        else:
            column[place] = text if isinstance(kind, StringType) else bytes([random.choice(_BYTES)]) * length
