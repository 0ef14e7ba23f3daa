"""Data files: what is written is in them, in every format, with ids, as the table's properties say."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestamptzNanoType,
)

from calving.errors import BadRecordError, ConfigError
from calving.model.files import DataFile
from calving.writing.properties import WriteProperties
from tests.writing import written
from tests.writing.every_type import COLUMNS, FORMATS, SCHEMA
from tests.writing.written import Write, local

_F = NestedField


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
    early = written.rows(SCHEMA, {**COLUMNS, "o": [{"y": 1, "at": -500_000}, None, None]})
    with pytest.raises(BadRecordError, match="column 'o': ORC files cannot hold a timestamp before 1970"):
        write({"write.format.default": "orc"}, early)


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType()])
def test_orc_refuses_each_nanosecond_that_java_would_read_wrong(kind: PrimitiveType, write: Write) -> None:
    schema, orc = Schema(_F(1, "at", kind, required=False)), {"write.format.default": "orc"}
    for moment in (-1, -999, -1_000_000_001, -999_999_999):
        with pytest.raises(BadRecordError, match="column 'at': ORC files cannot hold a timestamp before 1970"):
            write(orc, written.rows(schema, {"at": [None, 1, moment]}), schema=schema)
    (file,) = write(
        orc, written.rows(schema, {"at": [-(10**9), 1, None, -(2**63) // 10**9 * 10**9 + 10**9]}), schema=schema
    )
    assert file.record_count == 4


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


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"write.parquet.page-size-bytes": "big"}, "write.parquet.page-size-bytes: must be"),
        ({"write.parquet.compression-level": "99"}, "write.parquet.compression-level = 99"),
        ({"write.avro.compression-level": "99"}, "write.avro.compression-level = 99"),
        ({"write.metadata.metrics.column.s": "most"}, "write.metadata.metrics.column.s: must be"),
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
    return written.rows(NUMBERS, columns)


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
