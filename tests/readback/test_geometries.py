"""Spark and DuckDB read the geometries that the sink has written, and the sink those of Spark."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from calving.iceberg.catalog import open_catalog
from calving.model.record_path import Evolution
from calving.model.tables import RowMutations
from harness.duckdb_extensions import connected, duckdb_rows
from harness.spark_reader import spark_on
from tests.casting.test_geometries import ONE_TWO, TEXTS
from tests.iceberg.test_geometries import paths, sink_of
from tests.iceberg.test_variants import compact
from tests.mutations.changing import NAME, Changing

pytestmark = pytest.mark.services
TABLE = f"iceberg.{NAME}"
ENABLED = "set spark.sql.geospatial.enabled = true"
READ = f"select id, hex(st_asbinary(geom)) geom, hex(st_asbinary(area)) area from {TABLE} order by id"


def hexadecimal(given: bytes) -> str:
    return given.hex().upper()


def test_spark_reads_geometries_of_a_table_of_the_sink(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "geom geometry, area geography")
    outcome = sink.take(
        *((None, {"id": n, "geom": text, "area": text}) for n, text in enumerate(TEXTS)), (None, {"id": 99})
    )
    assert sink.reasons(outcome) == []
    _, found = spark_on(str(tmp_path), ENABLED, READ)
    wanted = [{"id": n, "geom": hexadecimal(w), "area": hexadecimal(w)} for n, w in enumerate(TEXTS.values())]
    assert found == [*wanted, {"id": 99, "geom": None, "area": None}]


def test_spark_and_the_sink_write_one_table(tmp_path: Path) -> None:
    open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)}).create_namespace("db")
    point = f"st_geomfromwkb(X'{hexadecimal(ONE_TWO)}')"
    spark_on(
        str(tmp_path),
        ENABLED,
        f"create table {TABLE} (id bigint not null, op string, geom geometry(4326), area geography(4326)) using iceberg"
        " tblproperties ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')",
        f"insert into {TABLE} values (1, null, st_setsrid({point}, 4326), null), (2, null, null, null)",
    )
    settings = {"mutations": RowMutations("op"), "id_columns": ("id",), "evolution": Evolution(evolve=True)}
    sink = Changing(tmp_path, **settings)  # type: ignore[arg-type]
    sink.take((None, {"id": 2, "op": "u", "geom": "POINT (3 4)", "area": "SRID=4326;POINT (1 2)"}))
    sink.take((None, {"id": 3, "op": "u", "geom": {"wkb": ONE_TWO.hex(), "srid": 4326}}))
    wanted = [
        {"id": 1, "geom": hexadecimal(ONE_TWO), "area": None},
        {"id": 2, "geom": "010100000000000000000008400000000000001040", "area": hexadecimal(ONE_TWO)},
        {"id": 3, "geom": hexadecimal(ONE_TWO), "area": None},
    ]
    assert spark_on(str(tmp_path), ENABLED, READ)[1] == wanted
    compact(sink)
    assert spark_on(str(tmp_path), ENABLED, READ)[1] == wanted


def test_spark_reads_the_systems_that_it_knows_and_refuses_a_table_with_another(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "geom geometry(EPSG:3857), plain geometry(SRID:0)")
    sink.take((None, {"id": 1, "geom": "SRID=3857;POINT (1 2)", "plain": "POINT (1 2)"}))
    select = f"select st_srid(geom) a, st_srid(plain) b, hex(st_asbinary(geom)) geom from {TABLE}"
    _, rows = spark_on(str(tmp_path), ENABLED, select)
    assert rows == [{"a": 3857, "b": 0, "geom": hexadecimal(ONE_TWO)}]
    other = sink_of(tmp_path / "other", "geom geometry(srid:3857)")
    other.take((None, {"id": 1, "geom": "POINT (1 2)"}))
    with pytest.raises(AssertionError, match="srid:3857"):
        spark_on(str(other.folder), ENABLED, f"select id from {TABLE}")


def test_duckdb_reads_the_geometries_of_a_table(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "geom geometry(srid:3857), area geometry")
    sink.take(*((None, {"id": n, "geom": text, "area": text}) for n, text in enumerate(TEXTS)))
    wanted = [(n, wkb, wkb) for n, wkb in enumerate(TEXTS.values())]
    found = duckdb_rows(sink.table, "id, st_asbinary(geom), st_asbinary(area)")
    assert sorted(found) == wanted


def test_duckdb_reads_the_files_of_geographies_and_refuses_the_table(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "area geography")
    sink.take((None, {"id": 1, "area": "POINT (1 2)"}))
    sql = f"select st_asbinary(area) from read_parquet({paths(sink)})"
    assert connected().execute(sql).fetchall() == [(ONE_TWO,)]
    with pytest.raises(duckdb.Error, match="Geography support"):
        duckdb_rows(sink.table)


def test_duckdb_finds_rows_by_the_bounds_of_files(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "geom geometry")
    for number in range(4):
        sink.take((None, {"id": number, "geom": f"LINESTRING ({number} 0, {number + 0.5} 0)"}))
    place = sink.table.metadata_location.removeprefix("file://")
    where = "st_intersects_extent(geom, 'POINT (2.25 0)'::geometry)"
    assert connected().execute(f"select id from iceberg_scan('{place}') where {where}").fetchall() == [(2,)]


def test_pyiceberg_reads_the_other_columns_of_a_table_with_a_geometry(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "geom geometry, plot geometry(srid:3857)")
    sink.take((None, {"id": 1, "geom": "POINT (1 2)", "plot": "POINT (1 2)"}))
    assert sink.table.scan(selected_fields=("id",)).to_arrow().to_pylist() == [{"id": 1}]
