"""Data files: what is written is in them, in every format, with ids and statistics, as the table's properties say."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.errors import BadRecordError, ConfigError
from calving.model.files import DataFile
from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.records.fields import arrow_schema
from calving.writing.layout import Layout
from calving.writing.properties import WriteProperties
from calving.writing.table import TableWriter
from tests.writing import written

FORMATS = ("parquet", "orc", "avro")
_F = NestedField
SCHEMA = Schema(
    _F(1, "id", LongType(), required=True),
    _F(2, "i", IntegerType(), required=False),
    _F(3, "b", BooleanType(), required=False),
    _F(4, "f", FloatType(), required=False),
    _F(5, "x", DoubleType(), required=False),
    _F(6, "n", DecimalType(9, 2), required=False),
    _F(7, "s", StringType(), required=False),
    _F(8, "raw", BinaryType(), required=False),
    _F(9, "four", FixedType(4), required=False),
    _F(10, "u", UUIDType(), required=False),
    _F(11, "d", DateType(), required=False),
    _F(12, "t", TimeType(), required=False),
    _F(13, "ts", TimestampType(), required=False),
    _F(14, "tz", TimestamptzType(), required=False),
    _F(
        15,
        "o",
        StructType(_F(16, "y", LongType(), required=False), _F(17, "at", TimestampType(), required=False)),
        required=False,
    ),
    _F(18, "l", ListType(19, UUIDType(), element_required=False), required=False),
    _F(20, "m", MapType(21, StringType(), 22, DateType(), value_required=False), required=False),
)
ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)
COLUMNS: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "i": [7, None, -7],
    "b": [True, False, None],
    "f": [1.5, float("nan"), -2.0],
    "x": [0.0, None, 1e300],
    "n": [Decimal("1.25"), Decimal("-9999999.99"), None],
    "s": ["a", "ü" * 20, None],
    "raw": [b"\x00\xff", None, b""],
    "four": [b"abcd", None, b"\x00\x00\x00\x01"],
    "u": [ONE.bytes, None, TWO.bytes],
    "d": [0, -1, None],
    "t": [1, None, 86_399_999_999],
    "ts": [-1_000_000, 1_704_164_645_678_901, None],
    "tz": [-2_000_000, None, 1_704_164_645_678_901],
    "o": [{"y": 1, "at": -1_000_000}, None, {"y": None, "at": 5}],
    "l": [[ONE.bytes, None], None, []],
    "m": [[("k", -1), ("j", None)], [], None],
}


def rows(schema: Schema = SCHEMA, columns: Mapping[str, list[Any]] = COLUMNS) -> pa.RecordBatch:
    arrow = arrow_schema(schema)
    return pa.RecordBatch.from_arrays([_array(columns[f.name], f.type) for f in arrow], schema=arrow)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(kind) and kind.value_type == pa.uuid():
        return pa.array(values, pa.list_(pa.binary(16))).cast(kind)
    return pa.array(values, kind)


Write = Callable[..., list[DataFile]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def run(properties: Mapping[str, str], *batches: pa.RecordBatch, schema: Schema = SCHEMA) -> list[DataFile]:
        spec = TableSpec(
            "db.t",
            schema.model_dump_json(),
            UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
            f"file://{tmp_path}",
            properties,
            {},
        )
        writer = TableWriter(spec, 0, Limits())
        for batch in batches or (rows(),):
            writer.write(batch)
        return writer.close()

    return run


def local(file: DataFile) -> str:
    return file.file_path.removeprefix("file://")


def read(file: DataFile) -> list[dict[str, Any]]:
    """The rows of a file, numbers for dates and times, as a reader of the plain format sees them."""
    if file.file_format == "AVRO":
        with Path(local(file)).open("rb") as source:
            records: Iterable[Any] = fastavro.reader(source)
            return list(records)
    table = pq.read_table(local(file)) if file.file_format == "PARQUET" else po.ORCFile(local(file)).read()
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def numbers(values: list[Any], kind: pa.DataType) -> list[Any]:
    found: list[Any] = pa.array(values, kind).cast(pa.int64()).to_pylist()
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_every_type_is_in_the_file_as_it_was_handed_over(name: str, write: Write) -> None:
    (file,) = write({"write.format.default": name})
    found = read(file)
    assert [r["id"] for r in found] == [1, 2, 3]
    assert [r["n"] for r in found] == COLUMNS["n"]
    assert [r["s"] for r in found] == COLUMNS["s"]
    assert [bytes(r["raw"]) if r["raw"] is not None else None for r in found] == COLUMNS["raw"]
    assert [r["four"] for r in found] == COLUMNS["four"]
    plain = [r["u"].bytes if isinstance(r["u"], uuid.UUID) else r["u"] for r in found]
    assert plain == COLUMNS["u"]
    assert [r["o"] is None for r in found] == [False, True, False]
    assert [None if r["o"] is None else r["o"]["y"] for r in found] == [1, None, None]
    assert [None if r["l"] is None else len(r["l"]) for r in found] == [2, None, 0]


@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_instants_keep_their_microseconds(name: str, write: Write) -> None:
    (file,) = write({"write.format.default": name})
    table = pq.read_table(local(file)) if name == "parquet" else po.ORCFile(local(file)).read()
    assert table["ts"].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist() == COLUMNS["ts"]
    assert table["tz"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() == COLUMNS["tz"]


def test_an_instant_that_java_would_read_wrong_from_orc_is_refused(write: Write) -> None:
    early = rows(columns={**COLUMNS, "o": [{"y": 1, "at": -500_000}, None, None]})
    with pytest.raises(BadRecordError, match="column 'o': ORC files cannot hold a timestamp before 1970"):
        write({"write.format.default": "orc"}, early)


def test_avro_holds_instants_as_microseconds(write: Write) -> None:
    (file,) = write({"write.format.default": "avro"})
    with Path(local(file)).open("rb") as source:
        blocks = fastavro.reader(source, return_record_name=False)
        assert isinstance(blocks.writer_schema, dict)
        kinds = {f["name"]: f["type"] for f in blocks.writer_schema["fields"]}
    assert {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False} in kinds["ts"]
    moments = [r["tz"] for r in read(file)]
    assert [None if m is None else round(m.timestamp() * 1_000_000) for m in moments] == COLUMNS["tz"]


def test_parquet_columns_carry_their_field_ids(write: Write) -> None:
    (file,) = write({})
    arrow = pq.read_schema(local(file))
    found = [int((arrow.field(f.name).metadata or {})[b"PARQUET:field_id"]) for f in SCHEMA.fields]
    assert found == [f.field_id for f in SCHEMA.fields]


def test_orc_types_carry_their_field_ids_and_what_orc_has_no_type_for(write: Write) -> None:
    (file,) = write({"write.format.default": "orc"})
    arrow = po.ORCFile(local(file)).schema
    told = {f.name: f.metadata or {} for f in arrow}
    assert [int(told[f.name][b"iceberg.id"]) for f in SCHEMA.fields] == [f.field_id for f in SCHEMA.fields]
    assert told["u"][b"iceberg.binary-type"] == b"UUID"
    assert told["four"][b"iceberg.length"] == b"4"
    assert told["t"][b"iceberg.long-type"] == b"TIME"
    assert told["id"][b"iceberg.required"] == b"true"
    kind = arrow.field("l").type
    assert pa.types.is_list(kind)
    element = kind.value_field.metadata or {}
    assert (element[b"iceberg.id"], element[b"iceberg.binary-type"]) == (b"19", b"UUID")


def test_avro_fields_carry_their_field_ids(write: Write) -> None:
    (file,) = write({"write.format.default": "avro"})
    with Path(local(file)).open("rb") as source:
        schema = fastavro.reader(source).writer_schema
    assert isinstance(schema, dict)
    assert [f["field-id"] for f in schema["fields"]] == [f.field_id for f in SCHEMA.fields]


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
        rows = written.rows(schema, {"s": texts, "raw": [text and text.encode() for text in texts]})
        writer.write(rows)
        metrics.add(rows)
    metrics.end(writer.close())
    low, high = {"a": (b"aa", b"bb"), "c": (b"b", b"cd")}[longest]
    assert (metrics.lower_bounds(), metrics.upper_bounds()) == ({1: low, 2: low}, {1: high, 2: high})


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


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"write.parquet.page-size-bytes": "big"}, "write.parquet.page-size-bytes = big"),
        ({"write.parquet.compression-level": "99"}, "write.parquet.compression-level = 99"),
        ({"write.avro.compression-level": "99"}, "write.avro.compression-level = 99"),
        ({"write.metadata.metrics.column.s": "most"}, "write.metadata.metrics.column.s = most"),
    ],
)
def test_a_property_that_makes_no_sense_is_named_with_its_table(properties: Mapping[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"table db.t: property {named}")):
        WriteProperties.of(properties, "db.t")


def test_a_format_that_is_not_there_is_named_with_its_table_and_with_those_that_are(write: Write) -> None:
    expected = (
        "table db.t: property write.format.default = csv: there is no format 'csv'; there are: parquet, orc, avro"
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}"):
        write({"write.format.default": "CSV"})


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "lz4", "brotli", "uncompressed"])
def test_parquet_is_compressed_as_the_table_says(codec: str, write: Write) -> None:
    (file,) = write({"write.parquet.compression-codec": codec})
    assert pq.read_metadata(local(file)).row_group(0).column(0).compression.lower() == codec


@pytest.mark.parametrize("codec", ["zlib", "zstd", "snappy", "lz4", "none"])
def test_orc_is_compressed_as_the_table_says(codec: str, write: Write) -> None:
    (file,) = write({"write.format.default": "orc", "write.orc.compression-codec": codec})
    assert po.ORCFile(local(file)).compression.lower() == codec.replace("none", "uncompressed")


@pytest.mark.parametrize(("codec", "known_as"), [("gzip", "deflate"), ("uncompressed", "null")])
def test_avro_is_compressed_as_the_table_says(codec: str, known_as: str, write: Write) -> None:
    (file,) = write({"write.format.default": "avro", "write.avro.compression-codec": codec})
    with Path(local(file)).open("rb") as source:
        assert fastavro.reader(source).codec == known_as


NUMBERS = Schema(_F(1, "id", LongType(), required=False), _F(2, "s", StringType(), required=False))


def many(count: int, start: int = 0) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "id": list(range(start, start + count)),
        "s": [f"text {i * 7919}" for i in range(count)],
    }
    return rows(NUMBERS, columns)


def test_row_groups_are_bounded_by_rows(write: Write) -> None:
    (file,) = write({"write.parquet.row-group-limit": "1000"}, many(2500), schema=NUMBERS)
    metadata = pq.read_metadata(local(file))
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [1000, 1000, 500]
    assert len(file.split_offsets or ()) == 3


def test_row_groups_are_bounded_by_bytes(write: Write) -> None:
    (file,) = write({"write.parquet.row-group-size-bytes": "100000"}, many(20_000), schema=NUMBERS)
    assert pq.read_metadata(local(file)).num_row_groups > 3


def test_pages_are_bounded_by_rows(write: Write) -> None:
    (file,) = write({"write.parquet.page-row-limit": "100"}, many(10_000), schema=NUMBERS)
    (usual,) = write({}, many(10_000), schema=NUMBERS)
    assert file.file_size_in_bytes > usual.file_size_in_bytes + 90 * 20  # a header for each of the pages


def test_a_bloom_filter_tells_what_is_not_in_a_parquet_file(write: Write) -> None:
    properties = {
        "write.parquet.bloom-filter-enabled.column.s": "true",
        "write.parquet.bloom-filter-max-bytes": "65536",
    }
    (file,) = write(properties, many(1000), schema=NUMBERS)
    query = "select bloom_filter_excludes from parquet_bloom_probe(?, 's', ?)"
    absent = [duckdb.execute(query, [local(file), f"absent {i}"]).fetchone() for i in range(20)]
    present = duckdb.execute(query, [local(file), "text 7919"]).fetchone()
    assert present == (False,)
    assert absent.count((True,)) >= 15
    assert file.file_size_in_bytes < 65536 + 40_000


def test_an_orc_bloom_filter_makes_room_for_itself(write: Write) -> None:
    plain, filtered = (
        write({"write.format.default": "orc", "write.orc.bloom.filter.columns": columns}, many(5000), schema=NUMBERS)
        for columns in ("", "s")
    )
    assert filtered[0].file_size_in_bytes > plain[0].file_size_in_bytes
