"""A table with every type that Spark can make: the sink appends to it, changes its rows, adds a column, and compacts it;
Spark, DuckDB and pyiceberg read the same rows, but for the columns that one of them cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from calving.iceberg.catalog import open_catalog
from calving.model.record_path import Evolution
from calving.model.tables import RowMutations
from harness.duckdb_extensions import duckdb_rows
from harness.spark_reader import spark_on
from tests.casting.test_geometries import ONE_TWO
from tests.iceberg.test_variants import compact
from tests.mutations.changing import NAME, Changing

pytestmark = pytest.mark.services
TABLE = f"iceberg.{NAME}"
ENABLED = "set spark.sql.geospatial.enabled = true"
POINT = f"st_geomfromwkb(X'{ONE_TWO.hex()}')"
COLUMNS: Mapping[str, tuple[str, str, Any]] = {
    "b": ("boolean", "true", True),
    "i": ("int", "-7", -7),
    "l": ("bigint", "9223372036854775807", 9223372036854775807),
    "f": ("float", "1.5", 1.5),
    "d": ("double", "0.1", 0.1),
    "n": ("decimal(12, 2)", "1234567890.25", "1234567890.25"),
    "s": ("string", "'é'", "é"),
    "raw": ("binary", "X'00ff'", "AP8="),
    "day": ("date", "date '1969-12-31'", "1969-12-31"),
    "at": ("timestamp", "timestamp '2026-01-31 01:02:03.000004Z'", "2026-01-31T01:02:03.000004Z"),
    "local": ("timestamp_ntz", "timestamp_ntz '2026-01-31 01:02:03'", "2026-01-31T01:02:03"),
    "o": ("struct<a: int, z: string>", "named_struct('a', 1, 'z', null)", {"a": 1}),
    "many": ("array<int>", "array(1, null)", [1, None]),
    "m": ("map<string, int>", "map('k', 1)", {"k": 1}),
    "nothing": ("void", "null", None),
    "v": ("variant", """parse_json('{"a": [1, "x"]}')""", {"a": [1, "x"]}),
    "geom": ("geometry(4326)", f"st_setsrid({POINT}, 4326)", "SRID=4326;POINT (1 2)"),
    "area": ("geography(4326)", f"st_geogfromwkb(X'{ONE_TWO.hex()}')", {"type": "Point", "coordinates": [1, 2]}),
}
"""By name: Spark's type, a value in its SQL, and a record's spelling of it."""
REFUSED: Mapping[str, Sequence[str]] = {"spark": (), "duckdb": ("nothing", "area"), "pyiceberg": ("v",)}
"""The columns with which a reader refuses the table, or its files."""
HIDDEN = {"pyiceberg": ("geom", "area")}
"""The columns of which a reader reads no values."""


def record(number: int, **others: Any) -> tuple[None, dict[str, Any]]:
    return None, {"id": number, "op": "u", **{name: spelt for name, (_, _, spelt) in COLUMNS.items()}, **others}


def plain(value: Any) -> Any:
    """The same text or number, whichever reader has found it."""
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ")
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return dict(value) if value and isinstance(value[0], tuple) else [*map(plain, value)]
    return value if isinstance(value, int | float | str | None) else str(value)


def seen(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    found = [dict(zip(names, map(plain, row), strict=True)) for row in rows]
    for row in found:
        row |= {"v": json.loads(row["v"])} if isinstance(row.get("v"), str) else {}
    return sorted(found, key=lambda row: int(row["id"]))


def read_by(reader: str, sink: Changing, names: Sequence[str]) -> list[dict[str, Any]]:
    names = [name for name in names if name not in HIDDEN.get(reader, ())]
    if reader == "pyiceberg":
        table = sink.table.scan(selected_fields=tuple(names)).to_arrow()
        return seen(names, [[row[name] for name in names] for row in table.to_pylist()])
    if reader == "duckdb":
        texts = {"geom": "hex(st_asbinary(geom))"}
        return seen(names, duckdb_rows(sink.table, ", ".join(texts.get(name, f'"{name}"') for name in names)))
    texts = {"raw": "hex(raw)", "v": "to_json(v)", "geom": "hex(st_asbinary(geom))", "area": "hex(st_asbinary(area))"}
    chosen = ", ".join(f"{texts.get(name, name)} as {name}" for name in names)
    _, rows = spark_on(str(sink.folder), ENABLED, f"select {chosen} from {TABLE}")
    return seen(names, [[*row.values()] for row in rows])


def sink_of(folder: Path, left_out: Sequence[str]) -> tuple[Changing, list[str]]:
    """A sink, and the columns of its table, which Spark has made with a row of each value and one of nulls."""
    open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)}).create_namespace("db")
    names = [name for name in COLUMNS if name not in left_out]
    declared = ", ".join(f"{name} {COLUMNS[name][0]}" for name in names)
    values = ", ".join(COLUMNS[name][1] for name in names)
    spark_on(
        str(folder),
        ENABLED,
        f"create table {TABLE} (id bigint not null, op string, {declared}) using iceberg"
        " tblproperties ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')",
        f"insert into {TABLE} select 1, null, {values}",
        f"insert into {TABLE} (id) values (2)",
    )
    return Changing(folder, mutations=RowMutations("op"), evolution=Evolution(evolve=True)), ["id", *names]


@pytest.mark.parametrize("reader", ["spark", "duckdb", "pyiceberg"])
def test_every_reader_sees_the_rows_of_spark_and_of_the_sink(tmp_path: Path, reader: str) -> None:
    sink, names = sink_of(tmp_path, REFUSED[reader])
    (first, nulls) = read_by(reader, sink, names)
    assert {value for name, value in nulls.items() if name != "id"} == {None}
    sink.take(record(3), record(2), record(4))
    sink.take(record(4, b=None, s=None, v=None, geom=None), (None, {"id": 1, "op": "d"}))
    outcome = sink.take(record(5, more=1.5))
    assert sink.reasons(outcome) == []
    names = [*names, "more"]
    cleared = dict.fromkeys({"b", "s", "v", "geom"} & {*first})
    wanted = [{**first, "id": number, "more": None} for number in (2, 3)]
    wanted += [{**first, **cleared, "id": 4, "more": None}, {**first, "id": 5, "more": 1.5}]
    assert read_by(reader, sink, names) == wanted
    compact(sink)
    assert read_by(reader, sink, names) == wanted
