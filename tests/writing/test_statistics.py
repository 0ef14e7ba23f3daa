"""Statistics of data files: counts and bounds, the same in every format."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from math import isfinite
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

from calving.writing.formats.interface import Bounds, Ending, Part
from calving.writing.layout import Layout
from tests.writing import written
from tests.writing.every_type import COLUMNS, FORMATS, SCHEMA
from tests.writing.written import Write, local

_F = NestedField


@pytest.mark.parametrize("name", FORMATS)
def test_statistics_are_the_same_in_every_format(name: str, write: Write) -> None:
    (file,) = write({"write.format.default": name})
    assert file.record_count == 3
    assert file.file_size_in_bytes == Path(local(file)).stat().st_size
    nulls = {f.name: (file.null_value_counts or {}).get(f.field_id) for f in SCHEMA.fields}
    assert nulls == {
        f.name: None if f.field_id in (15, 18, 20) else sum(v is None for v in COLUMNS[f.name]) for f in SCHEMA.fields
    }
    assert (file.value_counts or {})[1] == 3
    assert ((file.value_counts or {})[16], (file.null_value_counts or {})[16]) == (3, 2)
    assert ((file.value_counts or {})[19], (file.null_value_counts or {})[19]) == (2, 1)
    assert ((file.value_counts or {})[21], (file.null_value_counts or {})[22]) == (2, 1)
    assert file.nan_value_counts == {4: 1, 5: 0}


def long(value: int) -> bytes:
    return struct.pack("<q", value)


@pytest.mark.parametrize("name", FORMATS)
def test_bounds_are_the_same_in_every_format(name: str, write: Write) -> None:
    (file,) = write({"write.format.default": name})
    low, high = dict(file.lower_bounds or {}), dict(file.upper_bounds or {})
    assert set(low) == set(high) == {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 16, 17}
    assert (low[1], high[1]) == (long(1), long(3))
    assert (low[4], high[4]) == (struct.pack("<f", -2.0), struct.pack("<f", 1.5))
    assert low[5] == struct.pack("<d", -0.0)
    assert (low[6], high[6]) == ((-999999999).to_bytes(4, "big", signed=True), b"\x7d")
    assert (low[7], high[7]) == (b"a", ("ü" * 15 + "ý").encode())
    assert (low[8], high[8]) == (b"", b"\x00\xff")
    assert (low[9], high[9]) == (b"\x00\x00\x00\x01", b"abcd")
    assert (low[11], high[11]) == (struct.pack("<i", -1), struct.pack("<i", 0))
    assert (low[12], high[12]) == (long(1), long(86_399_999_999))
    assert (low[14], high[14]) == (long(-2_000_000), long(1_704_164_645_678_901))
    assert (low[17], high[17]) == (long(-1_000_000), long(5))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("longest", ["a", "c"])
def test_texts_have_bounds_whatever_their_length(name: str, longest: str, tmp_path: Path) -> None:
    schema = Schema(_F(1, "s", StringType(), required=False), _F(2, "raw", BinaryType(), required=False))
    properties = {"write.format.default": name, "write.metadata.metrics.default": "truncate(2)"}
    layout = Layout(written.table(tmp_path, schema, properties=properties))
    metrics, writer = layout.metrics(), layout.format.open(BytesIO())
    for texts in (["b", None], [longest * 5000, "bb"], [None, None]):
        batch = written.rows(schema, {"s": texts, "raw": [text and text.encode() for text in texts]})
        rows = pa.Table.from_batches([batch])
        writer.write(rows)
        metrics.add(rows)
    statistics = metrics.end(writer.close())
    low, high = {"a": (b"aa", b"bb"), "c": (b"b", b"cd")}[longest]
    assert (statistics.lower_bounds, statistics.upper_bounds) == ({1: low, 2: low}, {1: high, 2: high})


@pytest.mark.parametrize("name", FORMATS)
def test_bounds_of_fixed_bytes_are_cut(name: str, tmp_path: Path) -> None:
    schema = Schema(_F(1, "f", FixedType(5000), required=False))
    properties = {"write.format.default": name}
    batch = written.rows(schema, {"f": [b"\x01" * 5000, None, b"\x02" * 5000]})
    (file,) = written.write(written.table(tmp_path, schema, properties=properties), batch)
    assert (file.lower_bounds, file.upper_bounds) == ({1: b"\x01" * 16}, {1: b"\x02" * 15 + b"\x03"})


def test_bounds_that_are_large_together_are_cut_whatever_the_mode(tmp_path: Path) -> None:
    kinds = {"s": StringType(), "raw": BinaryType(), "f": FixedType(50_000)}
    schema = Schema(*(_F(i, column, kind, required=False) for i, (column, kind) in enumerate(kinds.items(), 1)))
    batch = written.rows(schema, {"s": ["s" * 50_000], "raw": [b"r" * 50_000], "f": [b"f" * 50_000]})
    properties = {"write.metadata.metrics.default": "full"}
    (file,) = written.write(written.table(tmp_path, schema, properties=properties), batch)
    assert file.lower_bounds == {1: b"s" * 16, 2: b"r" * 16, 3: b"f" * 16}
    assert file.upper_bounds == {1: b"s" * 15 + b"t", 2: b"r" * 15 + b"s", 3: b"f" * 15 + b"g"}


def bounds_of(folder: Path, *writes: Sequence[Sequence[str | None]], mode: str = "full") -> tuple[str, str]:
    """The bounds of a text column of a Parquet file. Each write has several batches, and becomes a row group."""
    schema = Schema(_F(1, "s", StringType(), required=False))
    layout = Layout(written.table(folder, schema, properties={"write.metadata.metrics.default": mode}))
    metrics, writer = layout.metrics(), layout.format.open(BytesIO())
    for batches in writes:
        rows = pa.Table.from_batches([written.rows(schema, {"s": texts}) for texts in batches])
        writer.write(rows)
        metrics.add(rows)
    statistics = metrics.end(writer.close())
    return statistics.lower_bounds[1].decode(), statistics.upper_bounds[1].decode()


@pytest.mark.parametrize("batches", [(["aaa", "mmm"], ["z" * 6000, "yyy"]), (["z" * 6000, "yyy"], [None], ["aaa"])])
def test_a_long_text_does_not_hide_the_texts_of_other_batches_of_its_row_group(
    batches: Sequence[Sequence[str | None]], tmp_path: Path
) -> None:
    assert bounds_of(tmp_path, batches) == ("aaa", "z" * 6000)
    assert bounds_of(tmp_path, batches, mode="truncate(2)") == ("aa", "z{")


def test_a_long_least_text_does_not_hide_the_greatest_one(tmp_path: Path) -> None:
    assert bounds_of(tmp_path, (["zzz", "mmm"], ["A" * 5000, "b"]), mode="truncate(1)") == ("A", "{")


def test_each_row_group_adds_its_own_bounds(tmp_path: Path) -> None:
    found = bounds_of(tmp_path, (["m"], ["n"]), (["b" * 5000], ["c"], ["a"]), ([None],), (["y"], ["p" * 5000]))
    assert found == ("a", "y")


def test_a_column_has_no_bounds_if_the_format_does_not_know_those_of_some_rows(tmp_path: Path) -> None:
    schema = Schema(_F(1, "s", StringType(), required=False), _F(2, "n", LongType(), required=False))
    layout = Layout(written.table(tmp_path, schema))
    known: dict[int, Bounds | None] = {1: ("a", "b"), 2: (1, 2)}
    for parts in ([Part(2, known), Part(2, {**known, 1: None})], [Part(2, known), Part(1, {2: (1, 2)})], []):
        metrics = layout.metrics()
        for _ in range(2):
            metrics.add(pa.Table.from_batches([written.rows(schema, {"s": ["a", "b"], "n": [1, 2]})]))
        statistics = metrics.end(Ending(100, parts=parts))
        expected = {2} if len(parts) == 2 and sum(part.rows for part in parts) == 4 else set()
        assert set(statistics.lower_bounds) == set(statistics.upper_bounds) == expected


NAN = float("nan")
NUMBERS = {
    "numbers and NaN": [[None, 1.5, NAN], [NAN, -2.5], [0.25]],
    "only NaN and null in a batch": [[NAN, None], [None], [3.0, 1.0]],
    "only NaN and null": [[NAN, None], [None]],
    "zeros": [[0.0, -0.0], [-0.0]],
    "infinities": [[float("inf")], [float("-inf"), NAN]],
    "infinity": [[float("inf")]],
    "negative infinity": [[NAN, float("-inf")]],
}


@pytest.mark.parametrize("batches", NUMBERS.values(), ids=NUMBERS)
def test_numbers_have_the_same_bounds_whoever_finds_them(batches: list[list[float | None]], tmp_path: Path) -> None:
    kinds = {"f": FloatType(), "d": DoubleType(), "i": IntegerType(), "l": LongType()}
    schema = Schema(*(_F(i, column, kind, required=False) for i, (column, kind) in enumerate(kinds.items(), 1)))
    found = []
    for name in FORMATS:
        layout = Layout(written.table(tmp_path, schema, properties={"write.format.default": name}))
        metrics, writer = layout.metrics(), layout.format.open(BytesIO())
        for batch in batches:
            whole = [None if value is None or not isfinite(value) else int(value) for value in batch]
            columns: dict[str, Sequence[float | None]] = {"f": batch, "d": batch, "i": whole, "l": whole}
            rows = pa.Table.from_batches([written.rows(schema, columns)])
            writer.write(rows)
            metrics.add(rows)
        ended = metrics.end(writer.close())
        found.append((ended.lower_bounds, ended.upper_bounds, ended.nan_value_counts))
    assert found == [found[0]] * len(FORMATS)
    finite = any(isfinite(value) for batch in batches for value in batch if value is not None)
    known = any(value == value for batch in batches for value in batch if value is not None)
    assert set(found[0][0]) == set(found[0][1]) == ({1, 2} if known else set()) | ({3, 4} if finite else set())


def test_metrics_modes_are_honoured_by_column(write: Write) -> None:
    (file,) = write(
        {
            "write.metadata.metrics.default": "none",
            "write.metadata.metrics.column.s": "full",
            "write.metadata.metrics.column.raw": "truncate(1)",
            "write.metadata.metrics.column.i": "counts",
        }
    )
    assert set(file.value_counts or {}) == {2, 7, 8}
    assert set(file.lower_bounds or {}) == {7, 8}
    assert (file.upper_bounds or {})[7] == ("ü" * 20).encode()
    assert (file.upper_bounds or {})[8] == b"\x01"


def test_without_a_default_mode_only_so_many_columns_have_statistics(write: Write) -> None:
    (file,) = write({"write.metadata.metrics.max-inferred-column-defaults": "3"})
    assert set(file.value_counts or {}) == {1, 2, 3}
