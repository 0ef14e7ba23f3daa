"""Spark and DuckDB read the variants that the sink has made of JSON records, in a table of Spark's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from calving.iceberg.catalog import open_catalog
from calving.model.record_path import Evolution
from harness.spark_reader import spark_on
from tests.mutations.changing import NAME, Changing

pytestmark = pytest.mark.services
TABLE = f"iceberg.{NAME}"
NUMBERS = ["0", "-1", "127", "-128", "128", "32768", "-2147483649", "9223372036854775807", "-9223372036854775808"]
LONGER = ["9223372036854775808", "-12345678901234567890123456789012345678", "1" * 39]
FRACTIONS = [
    "1.5",
    "0.1",
    "-12.10",
    "1.0",
    "1e3",
    "2.5e-3",
    "12345678901234567890.123456789012345678",
    "1e-10",
    "0.0986539102104485798",
    "1e-40",
    "1.7e308",
]
TEXTS = ['""', '"a"', '"é😀"', '"\\u0000"', f'"{"x" * 63}"', f'"{"x" * 64}"', f'"{"é" * 40_000}"']
NESTED = [
    "[]",
    "{}",
    "[null, true, false]",
    '{"b": {"c": [1, {"d": null}]}, "a": [], "é": "ü", "a.b": 1, "A": 2}',
    '{"": 0}',
    json.dumps([*range(300)]),
    json.dumps({f"k{number}": number for number in range(3_000)}),
    "[" * 31 + "]" * 31,
]
DOCUMENTS = [*NUMBERS, *LONGER, *FRACTIONS, *TEXTS, *NESTED, "true", "false"]


def sink_of(folder: Path, columns: str = "id bigint, v variant", properties: str = "", **settings: Any) -> Changing:
    """A sink, and the table that Spark has made for it."""
    open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)}).create_namespace("db")
    version = "'format-version' = '3', 'write.delete.mode' = 'merge-on-read'"
    spark_on(str(folder), f"create table {TABLE} ({columns}) using iceberg tblproperties ({version}{properties})")
    defaults = {"mutations": None, "id_columns": (), "evolution": Evolution(evolve=True)}
    return Changing(folder, **defaults | settings)


def record(number: int, document: str) -> bytes:
    return f'{{"id": {number}, "v": {document}}}'.encode()


def plain(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def as_decimals(value: Any) -> Any:
    """What DuckDB returns, with all numbers as decimals."""
    if isinstance(value, dict):
        return {name: as_decimals(item) for name, item in value.items()}
    if isinstance(value, tuple):  # a struct with a field without a name
        return {"": as_decimals(value[0])}
    if isinstance(value, list):
        return [*map(as_decimals, value)]
    return Decimal(repr(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def files(sink: Changing) -> Sequence[str]:
    return [task.file.file_path.removeprefix("file://") for task in sink.table.scan().plan_files()]


def test_spark_reads_json_values_back(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    outcome = sink.take(*((None, record(n, document)) for n, document in enumerate(DOCUMENTS)))
    assert sink.reasons(outcome) == []
    (rows,) = spark_on(str(tmp_path), f"select id, to_json(v) v from {TABLE} order by id")
    read = {row["id"]: plain(row["v"]) for row in rows}
    wrong = {DOCUMENTS[n][:80] for n, each in read.items() if each != plain(DOCUMENTS[n])}
    assert len(read) == len(DOCUMENTS) and wrong == {"1" * 39}  # which a double holds only nearly


def test_duckdb_reads_json_values_back(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(*((None, record(n, document)) for n, document in enumerate(DOCUMENTS)))
    rows = duckdb.sql(f"select id, v from read_parquet({files(sink)})").fetchall()
    wrong = {DOCUMENTS[n][:80] for n, value in rows if as_decimals(value) != plain(DOCUMENTS[n])}
    assert len(rows) == len(DOCUMENTS) and wrong == {"1" * 39}


def test_a_null_column_is_no_variant_and_a_null_field_is_a_variant(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    given: list[dict[str, Any]] = [{}, {"v": None}, {"v": {"a": None}}, {"v": {}}, {"v": [None]}]
    sink.take(*((None, {"id": 1} | each) for each in given))
    (rows,) = spark_on(
        str(tmp_path),
        f"select v is null as gone, to_json(v) v, is_variant_null(variant_get(v, '$.a')) as n from {TABLE}",
    )
    read = sorted((row["gone"], row["v"], row["n"]) for row in rows)
    assert read == [
        (False, "[null]", False),
        (False, '{"a":null}', True),
        (False, "{}", False),
        (True, None, False),
        (True, None, False),
    ]


def test_of_a_key_that_comes_twice_the_last_value_counts(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take((None, b'{"id": 1, "v": {"a": 1, "b": 2, "a": [3]}}'))
    (rows,) = spark_on(str(tmp_path), f"select to_json(v) v from {TABLE}")
    assert rows == [{"v": '{"a":[3],"b":2}'}]
