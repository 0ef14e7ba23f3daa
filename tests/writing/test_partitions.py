"""Partition values: those of the spec, for every value of every type, and as good in the table as in the file's event."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
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
    LongType,
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

from calving.errors import BadRecordError, ConfigError
from calving.model.record_path import Limits
from calving.tasks.shuffle import ShuffleBlock, ShuffleWriter, unpack
from calving.writing.partitioning import Numbers, partitioner
from calving.writing.table import TableWriter
from tests.writing.written import commit, partitions, rows, table, write

MOST = 2**31 - 1
MOMENT = 1_510_871_468_000_000
"""2017-11-16T22:31:08"""
SECOND = 1_000_000


def spec(transform: Transform[Any, Any], source: int = 1) -> PartitionSpec:
    return PartitionSpec(PartitionField(source_id=source, field_id=1000, transform=transform, name="p"))


def column(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "v", kind, required=False))


def listed(numbers: Numbers, count: int) -> list[int]:
    return [numbers] * count if isinstance(numbers, int) else numbers.to_pylist()


def values(kind: IcebergType, transform: Transform[Any, Any], *given: Any, source: int = 1) -> list[Any]:
    """The partition value of each row alone, and of all of them together."""
    schema, by = column(kind), spec(transform, source)
    find = partitioner(table(Path("/nowhere"), schema, by))
    together = listed(find.numbers(rows(schema, {"v": given})), len(given))
    found = [find.partition(n).values.values[0] for n in together]
    alone = [listed(find.numbers(rows(schema, {"v": [value]})), 1)[0] for value in given]
    assert alone == together
    return found


@pytest.mark.parametrize(
    ("kind", "value", "hashed"),
    [
        (IntegerType(), 34, 2017239379),
        (LongType(), 34, 2017239379),
        (DecimalType(4, 2), Decimal("14.20"), -500754589),
        (DecimalType(38, 2), Decimal("14.20"), -500754589),
        (DateType(), date(2017, 11, 16), -653330422),
        (TimeType(), 81_068 * SECOND, -662762989),
        (TimestampType(), MOMENT, -2047944441),
        (TimestamptzType(), MOMENT, -2047944441),
        (TimestampType(), MOMENT + 1, -1207196810),
        (TimestampNanoType(), MOMENT * 1000, -2047944441),
        (TimestampNanoType(), MOMENT * 1000 + 1999, -1207196810),
        (StringType(), "iceberg", 1210000089),
        (UUIDType(), UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
        (FixedType(4), b"\x00\x01\x02\x03", -188683207),
        (BinaryType(), b"\x00\x01\x02\x03", -188683207),
    ],
)
def test_buckets_hash_as_the_spec_says(kind: IcebergType, value: Any, hashed: int) -> None:
    for count in (16, 1000, MOST):
        assert values(kind, BucketTransform(count), value, None) == [(hashed & MOST) % count, None]


@pytest.mark.parametrize(
    ("kind", "width", "pairs"),
    [
        (IntegerType(), 10, {1: 0, -1: -10, 9: 0, -10: -10, MOST: MOST // 10 * 10}),
        (LongType(), 10, {1: 0, -1: -10, 2**63 - 1: (2**63 - 1) // 10 * 10}),
        (StringType(), 3, {"iceberg": "ice", "": "", "𝄞ü𝄞ü": "𝄞ü𝄞", "ab": "ab"}),
        (BinaryType(), 3, {b"\x01\x02\x03\x04": b"\x01\x02\x03", b"": b""}),
    ],
)
def test_values_are_truncated_as_the_spec_says(kind: IcebergType, width: int, pairs: dict[Any, Any]) -> None:
    assert values(kind, TruncateTransform(width), *pairs) == list(pairs.values())


def tens(number: int, size: int) -> bytes:
    return number.to_bytes(size, "big", signed=True)


def test_decimals_are_truncated_whatever_their_length() -> None:
    assert values(DecimalType(9, 2), TruncateTransform(50), Decimal("10.65"), Decimal("-0.01")) == [
        tens(1050, 4),
        tens(-50, 4),
    ]
    long = Decimal("1234567890123456789012345678.1234567891")
    expected = 12345678901234567890123456781234567891 // 7 * 7
    assert values(DecimalType(38, 10), TruncateTransform(7), long) == [tens(expected, 16)]


def test_the_identity_of_a_long_decimal_is_exact() -> None:
    digits = 12345678901234567890123456789012345678
    assert values(DecimalType(38, 0), IdentityTransform(), Decimal(digits), Decimal(-digits)) == [
        tens(digits, 16),
        tens(-digits, 16),
    ]


BEFORE_YEAR_0 = -62_167_219_200 * SECOND - 1
YEAR_10000, BEFORE_YEAR_1, MILLIS_FOR_MICROS = 253_402_300_800 * SECOND, -62_135_596_800 * SECOND - 1, MOMENT * 1000


@pytest.mark.parametrize("kind", [TimestampType(), TimestamptzType()])
def test_moments_beyond_pythons_years_have_partitions(kind: IcebergType) -> None:
    far = (YEAR_10000, BEFORE_YEAR_1, MILLIS_FOR_MICROS, -1, 2**63 - 1, None)
    assert values(kind, IdentityTransform(), *far) == list(far)
    assert values(kind, YearTransform(), *far) == [8030, -1970, 47_877, -1, 292_277, None]
    assert values(kind, MonthTransform(), *far[:2]) == [8030 * 12, -1970 * 12 + 11]
    days = [m // (86_400 * SECOND) for m in far if m is not None]
    assert values(kind, DayTransform(), *far) == [*days, None]
    assert values(kind, HourTransform(), *far[:3]) == [m // (3_600 * SECOND) for m in far[:3] if m is not None]


def test_days_beyond_pythons_years_have_partitions() -> None:
    far = (2_932_897, -719_163, MOST, -MOST)
    assert values(DateType(), IdentityTransform(), *far) == list(far)
    assert values(DateType(), DayTransform(), *far) == list(far)
    assert values(DateType(), YearTransform(), *far) == [8030, -1970, 5_879_610, -5_879_611]


@given(st.dates(), st.times())
def test_years_and_months_are_those_of_the_calendar(day: date, time: Any) -> None:
    moment = datetime.combine(day, time)
    micros = pa.scalar(moment, pa.timestamp("us")).cast(pa.int64()).as_py()
    assert values(TimestampType(), YearTransform(), micros) == [day.year - 1970]
    assert values(TimestampType(), MonthTransform(), micros) == [(day.year - 1970) * 12 + day.month - 1]


@pytest.mark.parametrize(
    ("kind", "transform", "value"),
    [
        (TimestampType(), HourTransform(), 2**63 - 1),
        (IntegerType(), TruncateTransform(10), -(2**31)),
        (LongType(), TruncateTransform(10), -(2**63)),
        (DecimalType(2, 0), TruncateTransform(60), Decimal(-99)),
    ],
)
def test_a_value_without_a_partition_is_bad_and_nothing_is_taken(
    kind: IcebergType, transform: Transform[Any, Any], value: Any, tmp_path: Path
) -> None:
    schema = column(kind)
    writer = TableWriter(table(tmp_path, schema, spec(transform)), 0, Limits())
    with pytest.raises(BadRecordError, match=re.escape(f"column 'v': Iceberg cannot hold the {transform} of a value")):
        writer.write(rows(schema, {"v": [None, value]}))
    assert (writer.rows, writer.close()) == (0, [])


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()])
def test_there_is_one_nan_and_zero_has_a_sign(kind: IcebergType) -> None:
    found = values(kind, IdentityTransform(), 0.0, -0.0, float("nan"), -float("nan"), -1.5, float("-inf"), None)
    assert list(map(str, found)) == ["0.0", "-0.0", "nan", "nan", "-1.5", "-inf", "None"]


def test_nan_is_one_partition_in_all_blocks(tmp_path: Path) -> None:
    schema = column(DoubleType())
    batch = rows(schema, {"v": [float("nan"), 0.0, -0.0]})
    files = write(table(tmp_path, schema, spec(IdentityTransform())), batch, batch, batch)
    assert sorted(file.record_count for file in files) == [3, 3, 3]


def test_null_and_empty_text_are_two_partitions() -> None:
    assert values(StringType(), IdentityTransform(), "", None, "null") == ["", None, "null"]
    assert values(BinaryType(), IdentityTransform(), b"", None) == [b"", None]
    assert values(DoubleType(), VoidTransform(), 1.0, None) == [None, None]


def test_the_identity_of_a_uuid_is_its_bytes() -> None:
    one = UUID(int=2**128 - 5).bytes
    assert values(UUIDType(), IdentityTransform(), one, None) == [one, None]
    assert values(TimeType(), IdentityTransform(), 86_399_999_999, None) == [86_399_999_999, None]
    assert values(BooleanType(), IdentityTransform(), True, False, None) == [True, False, None]


NESTED = Schema(
    NestedField(1, "a", StructType(NestedField(2, "c", LongType(), required=False)), required=False),
    NestedField(3, "a.b", LongType(), required=False),
)


@pytest.mark.parametrize(("source", "expected"), [(2, [7, None]), (3, [1, 2])])
def test_a_dot_in_a_name_is_not_a_way_into_a_struct(source: int, expected: list[int | None], tmp_path: Path) -> None:
    batch = rows(NESTED, {"a": [{"c": 7}, None], "a.b": [1, 2]})
    files = write(table(tmp_path, NESTED, spec(IdentityTransform(), source)), batch)
    assert partitions(files) == expected


def test_a_field_of_a_null_struct_is_in_the_partition_of_nulls(tmp_path: Path) -> None:
    # The field itself has a value there, which no reader sees.
    structs = pa.StructArray.from_arrays([pa.array([1, 2])], names=["c"], mask=pa.array([False, True]))
    batch = pa.RecordBatch.from_arrays([structs, pa.array([1, 2])], schema=rows(NESTED, {"a": [], "a.b": []}).schema)
    assert partitions(write(table(tmp_path, NESTED, spec(IdentityTransform(), 2)), batch)) == [1, None]


def test_a_removed_field_has_no_value_though_its_column_was_dropped() -> None:
    """Version 1 keeps a removed field, as one that is always null."""
    assert values(LongType(), VoidTransform(), 7, source=2) == [None]


def test_a_transform_that_does_not_take_the_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("table db.t: column 'v' of type double cannot be")):
        TableWriter(table(tmp_path, column(DoubleType()), spec(BucketTransform(4))), 0, Limits())


@pytest.mark.parametrize("others", range(4))
@pytest.mark.parametrize("transform", [BucketTransform(4), TruncateTransform(3), IdentityTransform()])
def test_partitions_are_the_same_after_a_shuffle(transform: Transform[Any, Any], others: int, tmp_path: Path) -> None:
    # Arrow's streams align values by 8 bytes, where a decimal has 16: it depends on what else is in the stream.
    more = {f"b{i}": [i] * 81 for i in range(others)}
    fields = [NestedField(i, name, LongType(), required=False) for i, name in enumerate(more, 2)]
    schema = Schema(NestedField(1, "v", DecimalType(38, 3), required=False), *fields)
    target = table(tmp_path, schema, spec(transform))
    batch = rows(schema, {"v": [Decimal(i) / 8 for i in range(-40, 41)], **more})
    outbox = ShuffleWriter(target)
    outbox.write(batch)
    outbox.finish()
    blocks = [block for block in outbox.take() if isinstance(block, ShuffleBlock)]
    received = write(target, *(part for block in blocks for part in unpack(block.rows)))
    expected = write(target, batch)
    assert {f.partition.values: f.record_count for f in received} == {
        f.partition.values: f.record_count for f in expected
    }


@pytest.mark.parametrize(
    ("kind", "transform", "value", "folder"),
    [
        (TimestampType(), DayTransform(), YEAR_10000, "p=10000-01-01"),
        (TimestampType(), DayTransform(), BEFORE_YEAR_0, "p=-001-12-31"),
        (TimestampType(), HourTransform(), BEFORE_YEAR_0, "p=-001-12-31-23"),
        (TimestampType(), IdentityTransform(), YEAR_10000, "p=%2B10000-01-01T00%3A00%3A00"),
        (TimestampType(), IdentityTransform(), BEFORE_YEAR_0, "p=-0001-12-31T23%3A59%3A59.999999"),
        (TimestampType(), HourTransform(), MOMENT, "p=2017-11-16-22"),
        (TimestampType(), IdentityTransform(), MOMENT + 5, "p=2017-11-16T22%3A31%3A08.000005"),
        (TimestamptzType(), IdentityTransform(), BEFORE_YEAR_1, "p=0000-12-31T23%3A59%3A59.999999%2B00%3A00"),
        (TimestampType(), MonthTransform(), -1, "p=1969-12"),
        (DateType(), YearTransform(), MOST, "p=5881580"),
        (TimeType(), IdentityTransform(), 61 * SECOND, "p=00%3A01%3A01"),
        (DecimalType(9, 2), IdentityTransform(), Decimal("-0.50"), "p=-0.50"),
        (UUIDType(), IdentityTransform(), UUID(int=7).bytes, "p=00000000-0000-0000-0000-000000000007"),
        (BinaryType(), IdentityTransform(), b"abc", "p=YWJj"),
        (StringType(), IdentityTransform(), "a/b ü", "p=a%2Fb+%C3%BC"),
        (BooleanType(), IdentityTransform(), True, "p=true"),
        (StringType(), IdentityTransform(), None, "p=null"),
    ],
)
def test_files_lie_where_iceberg_puts_them(
    kind: IcebergType, transform: Transform[Any, Any], value: Any, folder: str, tmp_path: Path
) -> None:
    schema = column(kind)
    (file,) = write(table(tmp_path, schema, spec(transform)), rows(schema, {"v": [value]}))
    assert Path(file.file_path).parent.name == folder


def test_a_long_value_does_not_make_a_path_that_no_file_system_takes(tmp_path: Path) -> None:
    schema = column(StringType())
    long = rows(schema, {"v": ["x" * 1000 + "1", "x" * 1000 + "2"]})
    one, two = write(table(tmp_path, schema, spec(IdentityTransform())), long)
    assert partitions([one, two]) == ["x" * 1000 + "1", "x" * 1000 + "2"]
    folders = [Path(file.file_path).parent for file in (one, two)]
    assert folders[0] != folders[1]


COMMITTED: list[tuple[PrimitiveType, Transform[Any, Any], list[Any]]] = [
    (DecimalType(38, 0), IdentityTransform(), [Decimal(10**38 - 1), Decimal(1 - 10**38), None]),
    (TimestampType(), DayTransform(), [YEAR_10000, BEFORE_YEAR_1, MILLIS_FOR_MICROS, None]),
    (TimestamptzType(), HourTransform(), [YEAR_10000, BEFORE_YEAR_1, MILLIS_FOR_MICROS]),
    (TimestampType(), IdentityTransform(), [YEAR_10000, BEFORE_YEAR_1, 2**63 - 1]),
    (DateType(), IdentityTransform(), [MOST, -MOST, None]),
    (UUIDType(), IdentityTransform(), [UUID(int=2**127).bytes, UUID(int=1).bytes, None]),
    (TimeType(), IdentityTransform(), [0, 86_399_999_999]),
    (BinaryType(), TruncateTransform(2), [b"", b"\xff\xff\xff", None]),
    (DoubleType(), IdentityTransform(), [0.0, -0.0, float("nan"), None]),
]


@pytest.mark.parametrize(("kind", "transform", "given"), COMMITTED, ids=lambda v: str(v)[:20])
def test_files_of_every_partition_are_committed(
    kind: IcebergType, transform: Transform[Any, Any], given: list[Any], tmp_path: Path
) -> None:
    made = commit(tmp_path, column(kind), spec(transform), {"v": given})
    files = [task.file for task in made.scan().plan_files()]
    assert sum(file.record_count for file in files) == len(given)
    expected = [None if v is None else to_bytes_of(v, kind, transform) for v in given]
    result = transform.result_type(kind)
    assert isinstance(result, PrimitiveType)
    found = [None if file.partition[0] is None else to_bytes(result, file.partition[0]) for file in files]
    assert sorted(map(str, found)) == sorted(map(str, expected))


def to_bytes_of(value: Any, kind: IcebergType, transform: Transform[Any, Any]) -> bytes:
    """By pyiceberg's own scalar transforms."""
    plain = UUID(bytes=value) if isinstance(kind, UUIDType) else value
    result, transformed = transform.result_type(kind), transform.transform(kind)(plain)
    assert isinstance(result, PrimitiveType) and transformed is not None
    return to_bytes(result, transformed)


def test_rows_of_a_long_decimal_partition_are_found_by_it(tmp_path: Path) -> None:
    digits = Decimal(12345678901234567890123456789012345678)
    made = commit(tmp_path, column(DecimalType(38, 0)), spec(IdentityTransform()), {"v": [digits, digits - 1]})
    assert made.scan(EqualTo(term="v", value=digits)).to_arrow().to_pydict() == {"v": [digits]}
