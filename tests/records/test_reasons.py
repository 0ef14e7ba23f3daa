"""The reasons of bad records name the values that the records have, and are short."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestamptzType,
)

from calving.casting.exact import primitive
from calving.casting.numbers import short
from calving.casting.temporal import nanos, timestamp_text
from calving.model.record_path import RouteRule, Routing, TransformSpec
from calving.records.arrays import Single
from tests.fuzz.sink import Run, Sink, Target

CONVERTER, CAST = (f"org.apache.kafka.connect.transforms.{name}$Value" for name in ("TimestampConverter", "Cast"))
TO_TIMESTAMP = CONVERTER, {"field": "a", "format": "yyyy-MM-dd", "target.type": "Timestamp"}
TO_DATE = CONVERTER, {"field": "a", "format": "yyyy-MM-dd", "target.type": "Date"}
AS_NUMBER = CONVERTER, {"field": "a", "unix.precision": "seconds", "target.type": "Timestamp"}
LONG = "x" * 100_000

Step = tuple[str, dict[str, str]] | None


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    made = Sink(tmp_path_factory.mktemp("sink") / "warehouse")
    yield made
    made.close()


def reason(sink: Sink, kind: IcebergType, value: Any, step: Step) -> str:
    steps = () if step is None else (TransformSpec("x", *step),)
    table = Target("db.t", Schema(NestedField(1, "a", kind, required=False)))
    run = Run(Routing((RouteRule("db.t"),)), transforms=steps)
    found = sink.take(run, [table], [json.dumps({"a": value}).encode()])
    assert [*found.reasons] == [0]
    return found.reasons[0]


@pytest.mark.parametrize(
    ("kind", "value", "step", "said"),
    [
        (TimestamptzType(), "0000-00-00", TO_TIMESTAMP, "'a': the moment -0001-11-28T00:00:00 is outside the years"),
        (DateType(), "0000-00-00", TO_DATE, "'a': the date -0001-11-28 is outside the years 1 to 9999"),
        (TimestamptzType(), "292278995-01-01", TO_TIMESTAMP, "'292278995-01-01' is out of range for Timestamp"),
        (TimestamptzType(), 2**62, AS_NUMBER, "4611686018427387904 is out of range for Timestamp"),
        (TimestamptzType(), LONG, TO_TIMESTAMP, "xxx... does not match 'yyyy-MM-dd'"),
        (DoubleType(), "1e400", (CAST, {"spec": "a:float64"}), "'1e400' does not fit"),
        (IntegerType(), LONG, (CAST, {"spec": "a:int32"}), "xxx... is not a whole number"),
        (FloatType(), "3.50e38", None, "'3.50e38' does not fit a float"),
        (FloatType(), "0x1F", None, "'0x1F' is not a float: not a number"),
        (DecimalType(9, 2), "1,5", None, "'1,5' is not a decimal(9, 2): not a number"),
        (StringType(), [1], (CAST, {"spec": "a:int32"}), "an array or object is not a number"),
    ],
)
def test_the_reason_has_the_value_of_the_record(
    sink: Sink, kind: IcebergType, value: Any, step: Step, said: str
) -> None:
    text = reason(sink, kind, value, step)
    assert said in text
    assert len(text) < 250


def test_a_text_outside_the_years_is_told_nothing_about_units(sink: Sink) -> None:
    said = reason(sink, TimestamptzType(), "0000-12-31T23:59:59.1234567Z", None)
    assert "'0000-12-31T23:59:59.1234567Z' is the moment 0000-12-31T23:59:59.123456, outside the years" in said
    assert "unit" not in said


def test_a_text_that_nanoseconds_do_not_reach_is_out_of_range() -> None:
    with pytest.raises(OverflowError, match="'2300-01-01T00:00:00' does not fit a timestamp in nanoseconds"):
        primitive("2300-01-01T00:00:00", TimestampNanoType())
    assert nanos("2200-01-01T00:00:00", timestamp_text) > 0


def test_a_float_of_32_bits_is_named_by_its_own_digits() -> None:
    (number,) = struct.unpack("f", struct.pack("f", 0.1))
    assert short(Single(number)) == "0.1"
