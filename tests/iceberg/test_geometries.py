"""Tables with geometries and geographies: declared ones and those of other engines, in files of every format."""

from __future__ import annotations

import base64
import struct
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from calving.errors import CalvingError, ConfigError
from calving.iceberg.mending import right_bounds
from calving.model.record_path import Evolution
from calving.model.tables import RowMutations
from calving.records.declared import read_columns
from tests.casting.test_geometries import HOLE, NAN, ONE_TWO, RING, TEXTS, iso
from tests.iceberg.test_foreign_types import add_columns, change_metadata, metadata
from tests.iceberg.test_schema_defaults import ENVELOPE, ID, record
from tests.iceberg.test_variants import compact
from tests.mutations.changing import Changing

V3 = {"format-version": "3"}
COLUMNS = "geom geometry, area geography(srid:4326, karney), s.g geometry(srid:3857), l list<geometry>"
SQUARE = "POLYGON ((0 0, 4 0, 4 4, 0 0), (2 1, 3 1, 3 2, 2 1))"


def sink_of(folder: Path, columns: str = COLUMNS, file_format: str = "parquet", **settings: Any) -> Changing:
    evolution = Evolution(create=True, evolve=True)
    defaults: dict[str, Any] = {"mutations": None, "id_columns": (), "evolution": evolution}
    properties = {**V3, "write.format.default": file_format, **settings.pop("properties", {})}
    return Changing(folder, types=read_columns(columns), properties=properties, **defaults | settings)


def kinds(sink: Changing) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in metadata(sink)["schemas"][-1]["fields"]}


def paths(sink: Changing) -> list[str]:
    return [task.file.file_path.removeprefix("file://") for task in sink.table.scan().plan_files()]


def rows(sink: Changing) -> list[dict[str, Any]]:
    """Of all files, as they have them, by their ids."""
    found: list[dict[str, Any]] = []
    for path in paths(sink):
        if path.endswith(".parquet"):
            found += pq.read_table(path).to_pylist()
        elif path.endswith(".orc"):
            found += po.ORCFile(path).read().to_pylist()
        else:
            with Path(path).open("rb") as source:
                found += fastavro.reader(source)  # type: ignore[arg-type]
    return sorted(found, key=lambda row: int(row["id"]))


RECORD = {"id": 1, "geom": "POINT (1 2)", "area": {"type": "Point", "coordinates": [1, 2]}}
NESTED = {"id": 2, "s": {"g": "SRID=3857;POINT(1 2)"}, "l": [ONE_TWO.hex(), None]}


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_new_table_has_geometries_where_its_settings_say_so(tmp_path: Path, file_format: str) -> None:
    sink = sink_of(tmp_path, file_format=file_format)
    assert sink.reasons(sink.take((None, RECORD), (None, NESTED))) == []
    found = kinds(sink)
    assert found["geom"] == "geometry" and found["area"] == "geography(srid:4326, karney)"
    assert found["s"]["fields"][0]["type"] == "geometry(srid:3857)" and found["l"]["element"] == "geometry"
    first, second = rows(sink)
    assert (first["geom"], first["area"]) == (ONE_TWO, ONE_TWO)
    assert (second["geom"], second["s"], second["l"]) == (None, {"g": ONE_TWO}, [ONE_TWO, None])


def test_parquet_files_say_that_columns_are_geometries(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, f"{COLUMNS}, globe geography")
    sink.take((None, {**RECORD, **NESTED, "globe": "POINT (1 2)"}))
    schema = str(pq.ParquetFile(paths(sink)[0]).schema)
    for node in (
        "geom (Geometry(crs=))",
        "area (Geography(crs=srid:4326, algorithm=karney))",
        "globe (Geography(crs=, algorithm=spherical))",
        "g (Geometry(crs=srid:3857))",
        "element (Geometry(crs=))",
    ):
        assert node in schema
    metadata = pq.ParquetFile(paths(sink)[0]).metadata.row_group(0)
    chunks = {metadata.column(i).path_in_schema: metadata.column(i) for i in range(metadata.num_columns)}
    assert [path for path, chunk in chunks.items() if chunk.statistics is not None] == ["id"]


def test_orc_types_say_that_columns_are_geometries(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, file_format="orc")
    sink.take((None, {**RECORD, **NESTED}))
    schema = po.ORCFile(paths(sink)[0]).schema
    inside = [schema.field(name).type.field(0) for name in ("s", "l")]
    said = [(field.metadata or {})[b"iceberg.binary-type"] for field in (*map(schema.field, ("geom", "area")), *inside)]
    assert said == [b"GEOMETRY", b"GEOGRAPHY", b"GEOMETRY", b"GEOMETRY"]


def test_a_table_that_is_there_gets_a_geometry_of_objects(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "geom geometry(srid:3857)")
    sink.take((None, {"id": 0}))
    assert sink.reasons(sink.take((None, {"id": 1, "geom": {"wkb": ONE_TWO.hex(), "srid": 3857}}))) == []
    assert kinds(sink) == {"id": "long", "geom": "geometry(srid:3857)"}
    assert [row.get("geom") for row in rows(sink)] == [None, ONE_TWO]


def debezium(name: str, *more: str) -> dict[str, Any]:
    """The field ``g`` of a schema of Debezium's."""
    fields: list[dict[str, Any]] = [{"field": each, "type": "double"} for each in more]
    fields += [
        {"field": "wkb", "type": "bytes", "optional": True},
        {"field": "srid", "type": "int32", "optional": True},
    ]
    return {"field": "g", "type": "struct", "optional": True, "name": f"io.debezium.data.{name}", "fields": fields}


@pytest.mark.parametrize("schema", [debezium("geometry.Geometry"), debezium("geometry.Point", "x", "y")])
@pytest.mark.parametrize("is_new", [True, False])
def test_debeziums_structs_fill_a_declared_geometry(tmp_path: Path, schema: dict[str, Any], is_new: bool) -> None:
    sink = sink_of(tmp_path, "g geometry(srid:4326)", converters=ENVELOPE)
    if not is_new:
        sink.take(record([ID], id=1))
    value = {"x": 1.0, "y": 2.0, "wkb": base64.b64encode(ONE_TWO).decode(), "srid": 4326}
    outcome = sink.take(record([ID, schema], id=2, g=value), record([ID, schema], id=3, g={**value, "srid": 3857}))
    assert [reason.partition("its ")[2][:9] for _, reason in sink.reasons(outcome)] == ["SRID 3857"]
    assert kinds(sink)["g"] == "geometry(srid:4326)"
    assert [row["g"] for row in rows(sink) if row["id"] == 2] == [ONE_TWO]


def test_a_struct_of_debezium_stays_one_in_a_column_that_is_not_declared(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "id long", converters=ENVELOPE)
    value = {"wkb": base64.b64encode(ONE_TWO).decode(), "srid": 4326}
    sink.take(record([ID, debezium("geometry.Geometry")], id=2, g=value))
    assert [row["g"] for row in rows(sink)] == [{"wkb": ONE_TWO, "srid": 4326}]


@pytest.mark.parametrize("kind", ["geometry", "geometry(OGC:CRS84)", "geography(OGC:CRS84, spherical)"])
def test_a_column_of_another_engine_takes_geometries(tmp_path: Path, kind: str) -> None:
    sink = sink_of(tmp_path, "id long")
    sink.take((None, {"id": 1}))
    change_metadata(sink, lambda m: add_columns(m, {"id": 100, "name": "g", "required": False, "type": kind}))
    outcome = sink.take((None, {"id": 2, "g": "POINT (1 2)"}), (None, {"id": 3, "g": "x"}), (None, {"id": 4}))
    ((offset, reason),) = sink.reasons(outcome)
    assert offset == 2 and f"field 'g': \"x\" is not a {kind}: " in reason.replace("'x'", '"x"')
    assert [row.get("g") for row in rows(sink)] == [None, ONE_TWO, None]
    assert kinds(sink)["g"] == kind


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_of_an_earlier_version_has_no_geometry(tmp_path: Path, version: str) -> None:
    sink = sink_of(tmp_path, "geom geometry", properties={"format-version": version})
    sink.take((None, {"id": 1}))
    ((_, reason),) = sink.reasons(sink.take((None, {"id": 2, "geom": "POINT (1 2)"})))
    assert f"a table of format version {version} has no type geometry: upgrade it to 3" in reason
    new = sink_of(tmp_path / "new", "geom geometry", properties={"format-version": version})
    with pytest.raises(CalvingError, match="geometry is only supported in 3 or higher"):
        new.take((None, {"id": 1, "geom": "POINT (1 2)"}))


def bounds(sink: Changing, column: str = "geom") -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Those of a column of the only file, as numbers."""
    (task,) = sink.table.scan().plan_files()
    number = sink.table.schema().find_field(column).field_id
    low, high = (task.file.lower_bounds or {}).get(number), (task.file.upper_bounds or {}).get(number)
    if low is None or high is None:
        assert low is None and high is None
        return None
    return struct.unpack(f"<{len(low) // 8}d", low), struct.unpack(f"<{len(high) // 8}d", high)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["POINT (1 2)"], ((1, 2), (1, 2))),
        (["POINT (1 2)", "POINT (-3 7)", "POINT EMPTY"], ((-3, 2), (1, 7))),
        ([SQUARE], ((0, 0), (4, 4))),
        (["GEOMETRYCOLLECTION (MULTIPOINT (9 1, 1 9), LINESTRING (0 5, 5 -5))"], ((0, -5), (9, 9))),
        (["POINT Z (1 2 3)", "POINT (0 0)"], ((0, 0, 3), (1, 2, 3))),
        (["POINT M (1 2 4)"], ((1, 2, NAN, 4), (1, 2, NAN, 4))),
        (["POINT ZM (1 2 3 4)", "LINESTRING ZM (0 9 9 9, 5 0 0 0)"], ((0, 0, 0, 0), (5, 9, 9, 9))),
        (["POINT EMPTY", "POLYGON EMPTY"], None),
    ],
)
def test_the_bounds_of_a_geometry_are_the_corners_of_its_box(
    tmp_path: Path, texts: list[str], wanted: Any, file_format: str
) -> None:
    sink = sink_of(tmp_path, "geom geometry", file_format)
    sink.take(*((None, {"id": number, "geom": text}) for number, text in enumerate(texts)))
    if len(paths(sink)) > 1:
        compact(sink)
    assert repr(bounds(sink)) == repr(wanted and tuple(tuple(map(float, corner)) for corner in wanted))


def test_corners_of_a_box_are_not_taken_for_wrong_bounds_of_bytes(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "geom geometry, area geography")
    sink.take((None, {"id": 1, "geom": "POINT (1 2)", "area": "POINT (1 2)"}))
    (task,) = sink.table.scan().plan_files()
    lower, upper = task.file.lower_bounds or {}, task.file.upper_bounds or {}
    assert len(lower) == 3 and right_bounds(sink.table.io, task.file.file_path, lower, upper) is None


def test_a_geography_has_bounds_of_points_alone(tmp_path: Path) -> None:
    """An edge on a sphere leaves the box of its ends."""
    sink = sink_of(tmp_path, "points geography, lines geography")
    sink.take((None, {"id": 1, "points": "MULTIPOINT (170 1, -170 2)", "lines": "LINESTRING (170 1, -170 2)"}))
    assert bounds(sink, "points") == ((-170, 1), (170, 2))
    assert bounds(sink, "lines") is None


@pytest.mark.parametrize("mode", ["none", "counts"])
def test_a_geometry_has_no_bounds_where_the_table_wants_none(tmp_path: Path, mode: str) -> None:
    sink = sink_of(tmp_path, "geom geometry", properties={"write.metadata.metrics.default": mode})
    sink.take((None, {"id": 1, "geom": "POINT (1 2)"}))
    assert bounds(sink) is None


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_compaction_carries_geometries_through(tmp_path: Path, file_format: str) -> None:
    sink = sink_of(tmp_path, file_format=file_format)
    for number, text in enumerate(TEXTS):
        sink.take((None, {"id": number, "geom": text, "area": None, "s": {"g": text}, "l": [text]}))
    compact(sink)
    assert len(paths(sink)) == 1
    assert [row["geom"] for row in rows(sink)] == [*TEXTS.values()]
    assert [(row["s"]["g"], *row["l"]) for row in rows(sink)] == [(wkb, wkb) for wkb in TEXTS.values()]


def test_a_compacted_geometry_is_marked_and_has_bounds(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    for number in range(3):
        sink.take((None, {"id": number, "geom": f"POINT ({number} 0)"}))
    compact(sink)
    assert bounds(sink) == ((0, 0), (2, 0))
    assert "geom (Geometry(crs=))" in str(pq.ParquetFile(paths(sink)[0]).schema)


def test_compaction_keeps_bytes_that_are_no_geometry_and_gives_no_bounds(tmp_path: Path) -> None:
    """Another engine has written them."""
    sink = sink_of(tmp_path, "geom binary")
    for number in range(2):
        sink.take((None, {"id": number, "geom": "AAAA"}))
    change_metadata(sink, lambda m: m["schemas"][-1]["fields"][-1].update(type="geometry"))
    compact(sink)
    assert [row["geom"] for row in rows(sink)] == [b"\0\0\0", b"\0\0\0"]
    assert bounds(sink) is None


def test_rows_change_with_their_geometries(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("op"), id_columns=("id",))
    sink.take(*((None, {"id": number, "op": "c", "geom": f"POINT ({number} 0)"}) for number in range(4)))
    sink.take((None, {"id": 1, "op": "u", "geom": SQUARE}), (None, {"id": 2, "op": "d"}))
    sink.take((None, {"id": 3, "op": "u"}))
    compact(sink)
    assert [(row["id"], row["geom"]) for row in rows(sink)] == [
        (0, iso(1, (0.0, 0.0))),
        (1, iso(3, 2, 4, RING, 4, HOLE)),
        (3, None),
    ]


@pytest.mark.parametrize("kind", ["geometry", "geography", "geometry(srid:3857)"])
def test_a_geometry_identifies_no_row(tmp_path: Path, kind: str) -> None:
    sink = sink_of(tmp_path, f"geom {kind}").with_(mutations=RowMutations("op"), id_columns=("geom",))
    with pytest.raises(CalvingError, match="geom"):
        sink.take((None, {"id": 1, "geom": "POINT (1 2)", "op": "c"}))


@pytest.mark.parametrize("kind", ["geometry", "geography", "geometry(srid:3857)", "variant"])
@pytest.mark.parametrize("term", ["geom", "bucket(geom, 4)", "truncate(geom, 4)"])
def test_a_geometry_partitions_no_table(tmp_path: Path, kind: str, term: str) -> None:
    sink = sink_of(tmp_path, f"geom {kind}", partition_by=(term,))
    with pytest.raises(CalvingError, match=r"partition-by .* cannot be applied to a"):
        sink.take((None, {"id": 1, "geom": "POINT (1 2)"}))


def test_a_table_that_is_sorted_by_a_geometry_takes_no_rows(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, "geom geometry")
    sink.take((None, {"id": 1, "geom": "POINT (1 2)"}))
    number = sink.table.schema().find_field("geom").field_id
    order = {"source-id": number, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}

    def sort(found: dict[str, Any]) -> None:
        found["sort-orders"].append({"order-id": 3, "fields": [order]})
        found["default-sort-order-id"] = 3

    change_metadata(sink, sort)
    with pytest.raises(ConfigError, match="column 'geom' of type geometry cannot be partitioned or sorted by identity"):
        sink.take((None, {"id": 2}))
