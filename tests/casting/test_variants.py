"""Values become variants by the specification, which a decoder of its own checks; and the footers of their files."""

from __future__ import annotations

import io
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calving.casting.table import TableConverter
from calving.casting.variants import encode
from calving.model.record_path import Evolution
from calving.records.fields import arrow_schema
from calving.records.foreign import schema_of_json
from calving.records.jsontext import parse
from calving.records.values import Values
from calving.writing.formats.footers import VARIANT_NODE, with_nodes
from tests.casting.variant_decoder import Single, decode

SCHEMA = schema_of_json('{"type":"struct","fields":[{"id":1,"name":"v","required":false,"type":"variant"}]}')


def of_json(text: str) -> Any:
    return decode(*encode(parse(text.encode(), 100)))


def of_column(column: pa.Array) -> list[Any]:
    """The variants that a typed column becomes."""
    converter = TableConverter("db.t", SCHEMA, Evolution(), {})
    converted = converter.convert(Values(pa.StructArray.from_arrays([column], ["v"]), True))
    assert converted.rows is not None, converted
    return [row["v"] and decode(**row["v"]) for row in converted.rows.to_pylist()]


@pytest.mark.parametrize(
    "text",
    ["null", "true", '"x"', '"é"', "[]", "{}", '{"b": [1, {"a": null}], "a": {"b": "", "": 2}}', "[[[]], {}]"],
)
def test_json_stays_as_it_is(text: str) -> None:
    assert of_json(text) == parse(text.encode(), 100)


@pytest.mark.parametrize("bits", [7, 8, 15, 16, 31, 32, 63, 64, 100])
def test_whole_numbers_of_every_width_keep_their_digits(bits: int) -> None:
    numbers = [sign * (2**bits + more) for sign in (1, -1) for more in (-1, 0, 1)]
    assert [decode(*encode(number)) for number in numbers] == numbers


def test_a_whole_number_takes_the_fewest_bytes() -> None:
    sizes = [len(encode(number)[1]) for number in (127, -128, 128, 2**15, 2**31, 2**63)]
    assert sizes == [2, 2, 3, 5, 9, 18]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1.50", Decimal("1.5")),
        ("1e3", Decimal(1000)),
        ("-0.1", Decimal("-0.1")),
        ("0.0", Decimal(0)),
        ("1e-38", Decimal("1e-38")),
        ("1e-39", 1e-39),
        ("9" * 38 + ".0", Decimal("9" * 38)),
        ("9" * 39, 1e39),
        ("1e300", 1e300),
        ("0.1234567890123456789012345678901234567", Decimal("0.1234567890123456789012345678901234567")),
    ],
)
def test_a_fraction_is_a_decimal_if_one_holds_it(text: str, wanted: object) -> None:
    found = of_json(text)
    assert found == wanted and type(found) is type(wanted)


def test_a_negative_zero_keeps_its_sign() -> None:
    assert math.copysign(1, of_json("-0.0")) == -1


def test_a_fraction_that_a_transform_has_read_is_the_same_as_in_the_record() -> None:
    assert encode(12.5) == encode(parse(b"12.50", 9))


@pytest.mark.parametrize("size", [0, 63, 64, 255, 256, 65_536])
def test_texts_of_every_length_stay(size: int) -> None:
    assert decode(*encode("é" * size)) == "é" * size


@pytest.mark.parametrize("size", [255, 256, 257, 70_000])
def test_objects_and_arrays_of_every_size_stay(size: int) -> None:
    document = {"a": {f"key {number}": number for number in range(size)}, "b": [*range(size)]}
    assert decode(*encode(document)) == document


def test_typed_values_keep_their_types() -> None:
    moment = datetime(2026, 1, 31, 23, 59, 59, 123456)
    key = UUID(int=5)
    columns = {
        "float": (pa.array([1.5], pa.float32()), Single(1.5)),
        "double": (pa.array([0.1], pa.float64()), 0.1),
        "decimal": (pa.array([Decimal("1.20")], pa.decimal128(9, 2)), Decimal("1.2")),
        "bytes": (pa.array([b"\0\1"]), b"\0\1"),
        "uuid": (pa.array([key.bytes], pa.uuid()), key),
        "date": (pa.array([date(1969, 12, 31)]), date(1969, 12, 31)),
        "timestamp": (pa.array([moment]), moment),
        "instant": (pa.array([moment], pa.timestamp("us", "UTC")), moment.replace(tzinfo=UTC)),
        "cut": (pa.array([1_000_000_999], pa.timestamp("ns")), datetime(1970, 1, 1, 0, 0, 1)),
        "cut instant": (pa.array([1_999], pa.timestamp("ns", "UTC")), datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        "time": (pa.array([time(23, 59, 59, 500000)]), "23:59:59.500000"),
        "fine time": (pa.array([1_999], pa.time64("ns")), "00:00:00.000001"),
        "map": (pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32())), {"1": 2}),
        "struct": (pa.array([{"b": None, "a": [1]}]), {"a": [1], "b": None}),
    }
    found = {name: of_column(column) for name, (column, _) in columns.items()}
    assert found == {name: [wanted] for name, (_, wanted) in columns.items()}


def test_a_typed_decimal_with_too_many_digits_makes_its_record_bad() -> None:
    converter = TableConverter("db.t", SCHEMA, Evolution(), {})
    column = pa.array([Decimal("1" * 39), Decimal(1)], pa.decimal256(50, 0))
    converted = converter.convert(Values(pa.StructArray.from_arrays([column], ["v"]), True))
    ((index, reason),) = [(bad.index, bad.reason) for bad in converted.bad]
    assert index == 0 and "a decimal of a variant has at most 38 digits" in reason


def test_only_the_schema_of_a_footer_changes() -> None:
    kind = arrow_schema(SCHEMA)
    table = pa.Table.from_pylist([{"v": dict(zip(("metadata", "value"), encode(7), strict=True))}, {"v": None}], kind)
    out = io.BytesIO()
    pq.write_table(table, out)
    marked = with_nodes(out.getvalue(), {1: VARIANT_NODE})
    assert pq.read_table(io.BytesIO(marked)) == table
    assert "group field_id=1 v (Variant(1))" in str(pq.ParquetFile(io.BytesIO(marked)).schema)
    with pytest.raises(ValueError, match="has a logical type already"):
        with_nodes(marked, {1: VARIANT_NODE})
    with pytest.raises(ValueError, match=r"no nodes of the fields \[9\]"):
        with_nodes(out.getvalue(), {9: VARIANT_NODE})
    with pytest.raises(ValueError, match="no Parquet footer"):
        with_nodes(out.getvalue()[:-1], {1: VARIANT_NODE})


@pytest.mark.parametrize(("text", "size"), [("1e-9", 4), ("1e-10", 8), ("1e-18", 8), ("1e-19", 16), ("1e-38", 16)])
def test_a_decimal_has_room_for_as_many_digits_as_its_scale(text: str, size: int) -> None:
    assert len(encode(parse(text.encode(), 1)).value) == 2 + size
