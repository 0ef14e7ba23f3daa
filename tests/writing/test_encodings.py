"""Encodings of data files: dictionaries for columns whose values repeat, deltas in the second version of pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from calving.model.files import DataFile
from tests.writing.written import rows, table, write

COUNT = 6_000
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "name", StringType(), required=False),
    NestedField(4, "price", DoubleType(), required=False),
    NestedField(5, "key", UUIDType(), required=False),
    NestedField(6, "four", FixedType(4), required=False),
    NestedField(
        7,
        "o",
        StructType(
            NestedField(8, "new", LongType(), required=False), NestedField(9, "old", LongType(), required=False)
        ),
        required=False,
    ),
    NestedField(10, "l", ListType(11, LongType(), element_required=False), required=False),
    NestedField(12, "m", MapType(13, StringType(), 14, LongType(), value_required=False), required=False),
    NestedField(15, "none", StringType(), required=False),
)
COLUMNS: dict[str, list[Any]] = {
    "id": list(range(COUNT)),
    "kind": [None if i % 3 == 0 else f"kind {i % 4}" for i in range(COUNT)],
    "name": [f"name {i}" for i in range(COUNT)],
    "price": [i % 8 / 4 for i in range(COUNT)],
    "key": [i.to_bytes(16) for i in range(COUNT)],
    "four": [b"same"] * COUNT,
    "o": [{"new": i, "old": i % 5} if i % 2 else None for i in range(COUNT)],
    "l": [[i] for i in range(COUNT)],
    "m": [[("a", i), ("b", i + COUNT)] for i in range(COUNT)],
    "none": [None] * COUNT,
}
REPEATING = {"kind", "price", "four", "o.old", "m.key_value.key", "none"}


V2 = {"write.parquet.page-version": "v2"}


def written(folder: Path, properties: Mapping[str, str] | None = None) -> DataFile:
    (file,) = write(table(folder, SCHEMA, properties=dict(properties or {})), rows(SCHEMA, COLUMNS))
    return file


def columns_of(file: DataFile) -> list[Any]:
    """What the file's first row group says of each column."""
    group = pq.read_metadata(file.file_path.removeprefix("file://")).row_group(0)
    return [group.column(i) for i in range(group.num_columns)]


def with_dictionary(file: DataFile) -> set[str]:
    return {column.path_in_schema for column in columns_of(file) if column.has_dictionary_page}


def encoded(file: DataFile, encoding: str) -> set[str]:
    return {column.path_in_schema for column in columns_of(file) if encoding in column.encodings}


def test_columns_have_a_dictionary_where_their_values_repeat(tmp_path: Path) -> None:
    assert with_dictionary(written(tmp_path)) == REPEATING


def test_a_file_is_smaller_than_with_a_dictionary_for_every_column(tmp_path: Path) -> None:
    chosen, every = written(tmp_path), written(tmp_path, {"parquet.enable.dictionary": "true"})
    assert chosen.file_size_in_bytes < 0.9 * every.file_size_in_bytes


@pytest.mark.parametrize(("wanted", "found"), [("true", 12), ("false", 0)])
def test_the_tables_property_decides_of_all_columns(wanted: str, found: int, tmp_path: Path) -> None:
    assert len(with_dictionary(written(tmp_path, {"parquet.enable.dictionary": wanted}))) == found


def test_long_values_may_repeat_less_than_short_ones(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "short", StringType(), required=False), NestedField(2, "long", StringType(), required=False)
    )
    texts = [str(10_000 + i * 5 // 6) for i in range(4_000)]
    (file,) = write(table(tmp_path, schema), rows(schema, {"short": texts, "long": [text * 6 for text in texts]}))
    assert with_dictionary(file) == {"long"}


def test_the_second_version_has_deltas_of_numbers_that_hardly_repeat(tmp_path: Path) -> None:
    file = written(tmp_path, V2)
    assert encoded(file, "DELTA_BINARY_PACKED") == {"id", "o.new", "l.list.element", "m.key_value.value"}
    assert with_dictionary(file) == REPEATING


def test_the_second_version_has_the_lengths_of_long_text_before_the_text(tmp_path: Path) -> None:
    schema = Schema(*(NestedField(i, n, StringType(), required=False) for i, n in enumerate(("short", "long"), 1)))
    texts = [f"{i * 2654435761 % 2**32:08x}" for i in range(COUNT)]
    columns = {"short": texts, "long": [text * 4 for text in texts]}
    (file,) = write(table(tmp_path, schema, properties=V2), rows(schema, columns))
    assert encoded(file, "DELTA_LENGTH_BYTE_ARRAY") == {"long"}


def test_the_second_version_is_smaller(tmp_path: Path) -> None:
    first, second = written(tmp_path), written(tmp_path, V2)
    assert second.file_size_in_bytes < 0.8 * first.file_size_in_bytes


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_every_value_comes_back(version: str, tmp_path: Path) -> None:
    path = written(tmp_path, {"write.parquet.page-version": version}).file_path.removeprefix("file://")
    found = pq.read_table(path)
    assert all(found[name].to_pylist() == COLUMNS[name] for name in ("id", "kind", "name", "price", "four", "o", "l"))
    query = "select count(*), sum(id), count(kind), count(distinct name), sum(o.new), sum(l[1]) from read_parquet(?)"
    odd = [i for i in range(COUNT) if i % 2]
    total = sum(range(COUNT))
    assert duckdb.execute(query, [path]).fetchone() == (COUNT, total, COUNT * 2 // 3, COUNT, sum(odd), total)


def test_text_that_repeats_makes_an_orc_file_much_smaller(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "text", StringType(), required=False))
    texts = [f"{i * 2654435761 % 50:064b}" for i in range(COUNT)]
    properties = {"write.format.default": "orc", "write.orc.compression-codec": "none"}
    sizes = [
        write(table(tmp_path, schema, properties=found), rows(schema, {"text": texts}))[0].file_size_in_bytes
        for found in (properties, {**properties, "orc.dictionary.key.threshold": "0"})
    ]
    assert sizes[0] * 10 < sizes[1]
