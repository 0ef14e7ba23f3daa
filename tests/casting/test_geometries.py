"""Values become geometries in ISO's well-known binary, or their record is bad."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calving.casting.geometries import geometry_of
from calving.casting.table import TableConverter
from calving.model.record_path import Evolution
from calving.records.declared import declaration, read_columns
from calving.records.foreign import GeoType, geo_type, schema_of_json
from calving.records.values import Values
from calving.records.wkb import read_wkb, write_wkb
from calving.writing.formats.footers import geo_node, with_nodes

CRS84, WEB = GeoType("OGC:CRS84"), GeoType("srid:3857")
GLOBE = GeoType("OGC:CRS84", "spherical")


def iso(kind: int, *parts: bytes | int | tuple[float, ...]) -> bytes:
    """ISO's well-known binary, in little-endian order: a whole number is a count, a tuple has coordinates."""
    made = [struct.pack("<BI", 1, kind)]
    for part in parts:
        if isinstance(part, tuple):
            part = struct.pack(f"<{len(part)}d", *part)
        made.append(struct.pack("<I", part) if isinstance(part, int) else part)
    return b"".join(made)


NAN = math.nan
ONE_TWO = iso(1, (1.0, 2.0))
RING = (0.0, 0.0, 4.0, 0.0, 4.0, 4.0, 0.0, 0.0)
HOLE = (2.0, 1.0, 3.0, 1.0, 3.0, 2.0, 2.0, 1.0)
TEXTS = {
    "POINT (1 2)": ONE_TWO,
    "point(1 2)": ONE_TWO,
    " POINT ( 1.0  2e0 ) ": ONE_TWO,
    "POINT EMPTY": iso(1, (NAN, NAN)),
    "POINT Z (1 2 3)": iso(1001, (1.0, 2.0, 3.0)),
    "POINTZ(1 2 3)": iso(1001, (1.0, 2.0, 3.0)),
    "POINT (1 2 3)": iso(1001, (1.0, 2.0, 3.0)),
    "POINT M (1 2 4)": iso(2001, (1.0, 2.0, 4.0)),
    "POINTM (1 2 4)": iso(2001, (1.0, 2.0, 4.0)),
    "POINT ZM (1 2 3 4)": iso(3001, (1.0, 2.0, 3.0, 4.0)),
    "POINT ZM EMPTY": iso(3001, (NAN, NAN, NAN, NAN)),
    "POINT (-1.5e-3 .25)": iso(1, (-0.0015, 0.25)),
    "LINESTRING EMPTY": iso(2, 0),
    "LINESTRING (1 2, 3 4)": iso(2, 2, (1.0, 2.0, 3.0, 4.0)),
    "LINESTRING Z (1 2 3, 4 5 6)": iso(1002, 2, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),
    "POLYGON EMPTY": iso(3, 0),
    "POLYGON ((0 0, 4 0, 4 4, 0 0), (2 1, 3 1, 3 2, 2 1))": iso(3, 2, 4, RING, 4, HOLE),
    "MULTIPOINT (1 2, 3 4)": iso(4, 2, ONE_TWO, iso(1, (3.0, 4.0))),
    "MULTIPOINT ((1 2), EMPTY)": iso(4, 2, ONE_TWO, iso(1, (NAN, NAN))),
    "MULTILINESTRING ((1 2, 3 4), EMPTY)": iso(5, 2, iso(2, 2, (1.0, 2.0, 3.0, 4.0)), iso(2, 0)),
    "MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)))": iso(6, 1, iso(3, 1, 4, RING)),
    "GEOMETRYCOLLECTION EMPTY": iso(7, 0),
    "GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION (LINESTRING (1 2, 3 4)))": iso(
        7, 2, ONE_TWO, iso(7, 1, iso(2, 2, (1.0, 2.0, 3.0, 4.0)))
    ),
    "GEOMETRYCOLLECTION M (POINT M (1 2 4))": iso(2007, 1, iso(2001, (1.0, 2.0, 4.0))),
}
GEOJSON: list[tuple[dict[str, Any], bytes]] = [
    ({"type": "Point", "coordinates": [1, 2.0]}, ONE_TWO),
    ({"type": "Point", "coordinates": [1, 2, 3]}, iso(1001, (1.0, 2.0, 3.0))),
    ({"type": "Point", "coordinates": []}, iso(1, (NAN, NAN))),
    ({"type": "LineString", "coordinates": [[1, 2], [3, 4]], "bbox": [1, 2, 3, 4]}, TEXTS["LINESTRING (1 2, 3 4)"]),
    ({"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 4], [0, 0]]]}, iso(3, 1, 4, RING)),
    ({"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]}, TEXTS["MULTIPOINT (1 2, 3 4)"]),
    ({"type": "MultiLineString", "coordinates": [[[1, 2], [3, 4]], []]}, TEXTS["MULTILINESTRING ((1 2, 3 4), EMPTY)"]),
    (
        {"type": "MultiPolygon", "coordinates": [[[[0, 0], [4, 0], [4, 4], [0, 0]]]]},
        TEXTS["MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)))"],
    ),
    ({"type": "GeometryCollection", "geometries": []}, iso(7, 0)),
    ({"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1, 2]}]}, iso(7, 1, ONE_TWO)),
]


@pytest.mark.parametrize("text", TEXTS)
def test_well_known_text_becomes_binary(text: str) -> None:
    assert geometry_of(text, CRS84) == TEXTS[text]


@pytest.mark.parametrize("text", TEXTS)
def test_isos_binary_stays_as_it_is(text: str) -> None:
    given = TEXTS[text]
    for form in (given, given.hex(), given.hex().upper(), base64.b64encode(given).decode()):
        assert geometry_of(form, CRS84) == given


def big_endian(given: bytes) -> bytes:
    """A point or a collection of points in the other order."""
    kind, *_ = struct.unpack_from("<I", given, 1)
    numbers = struct.unpack(f"<{(len(given) - 5) // 8}d", given[5:])
    return struct.pack(f">BI{len(numbers)}d", 0, kind, *numbers)


@pytest.mark.parametrize("text", ["POINT (1 2)", "POINT Z (1 2 3)", "POINT ZM (1 2 3 4)"])
def test_big_endian_binary_is_written_in_little_endian_order(text: str) -> None:
    assert geometry_of(big_endian(TEXTS[text]), CRS84) == TEXTS[text]


@pytest.mark.parametrize(
    ("flags", "numbers", "wanted"),
    [
        (0, (1.0, 2.0), "POINT (1 2)"),
        (0x80000000, (1.0, 2.0, 3.0), "POINT Z (1 2 3)"),
        (0x40000000, (1.0, 2.0, 4.0), "POINT M (1 2 4)"),
        (0xC0000000, (1.0, 2.0, 3.0, 4.0), "POINT ZM (1 2 3 4)"),
    ],
)
@pytest.mark.parametrize("order", "<>")
def test_the_extended_binary_of_postgis_becomes_isos(
    order: str, flags: int, numbers: tuple[float, ...], wanted: str
) -> None:
    plain = struct.pack(f"{order}BI{len(numbers)}d", order == "<", 1 | flags, *numbers)
    with_srid = struct.pack(f"{order}BII{len(numbers)}d", order == "<", 1 | flags | 0x20000000, 4326, *numbers)
    assert geometry_of(plain, CRS84) == geometry_of(with_srid, CRS84) == TEXTS[wanted]


@pytest.mark.parametrize(("value", "wanted"), GEOJSON)
def test_geojson_becomes_binary(value: dict[str, Any], wanted: bytes) -> None:
    assert geometry_of(value, CRS84) == geometry_of(json.dumps(value), CRS84) == wanted


@pytest.mark.parametrize(
    "value",
    [
        {"wkb": ONE_TWO, "srid": 4326},
        {"wkb": ONE_TWO, "srid": None},
        {"wkb": ONE_TWO, "srid": 0},
        {"wkb": base64.b64encode(ONE_TWO).decode(), "srid": 4326},
        {"wkb": ONE_TWO.hex()},
        {"x": 1.0, "y": 2.0, "wkb": ONE_TWO, "srid": None},
        {"x": 1.0, "y": 2.0, "wkb": None, "srid": None},
    ],
)
def test_structs_of_debezium_become_binary(value: dict[str, Any]) -> None:
    assert geometry_of(value, CRS84) == ONE_TWO


@pytest.mark.parametrize(
    ("crs", "srid", "fits"),
    [
        ("OGC:CRS84", 4326, True),
        ("ogc:crs84", 4326, True),
        ("OGC:CRS84", 3857, False),
        ("srid:3857", 3857, True),
        ("EPSG:3857", 3857, True),
        ("srid:3857", 4326, False),
        ("srid:4326", 0, True),
        ("projjson:mine", 4326, False),
        ("projjson:mine", 0, True),
    ],
)
def test_an_srid_is_that_of_the_column_or_the_record_is_bad(crs: str, srid: int, fits: bool) -> None:
    for value in (f"SRID={srid};POINT(1 2)", {"wkb": ONE_TWO, "srid": srid}):
        if fits:
            assert geometry_of(value, GeoType(crs)) == ONE_TWO
        else:
            with pytest.raises(
                ValueError, match=f"its SRID {srid} is not the coordinate reference system of the column"
            ):
                geometry_of(value, GeoType(crs))


def test_geojson_has_the_coordinates_of_wgs_84_unless_it_names_others() -> None:
    point: dict[str, Any] = {"type": "Point", "coordinates": [1, 2]}
    with pytest.raises(ValueError, match="its SRID 4326 is not"):
        geometry_of(point, WEB)
    for name in ("EPSG:3857", "urn:ogc:def:crs:EPSG::3857", "urn:ogc:def:crs:EPSG:6.9:3857"):
        named = {**point, "crs": {"type": "name", "properties": {"name": name}}}
        assert geometry_of(named, WEB) == ONE_TWO
    named = {**point, "crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}}
    assert geometry_of(named, CRS84) == ONE_TWO


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (5, "a geometry comes as WKB, WKT, GeoJSON"),
        ([1, 2], "a geometry comes as WKB, WKT, GeoJSON"),
        ({}, "has the fields type and coordinates, or wkb and srid"),
        ({"wkb": None}, "has the fields type and coordinates, or wkb and srid"),
        ({"wkb": ONE_TWO, "srid": "x"}, "srid is not a whole number"),
        ({"wkb": "SRID=1;POINT(1 2)", "srid": 2}, "srid is 2, and the geometry in wkb has 1"),
        ("", "it ends within the geometry"),
        ("abc", "it begins with 105 instead of a byte order"),
        ("a%c", "not base64"),
        ("CIRCULARSTRING (1 2, 3 4, 5 6)", "'CIRCULARSTRING' is none of POINT"),
        ("POINT (1)", "does not have 2 numbers"),
        ("POINT (1 2 3 4 5)", "does not have 4 numbers"),
        ("POINT Z (1 2)", "does not have 3 numbers"),
        ("POINT (1 2, 3 4)", "a point has one position"),
        ("POINT ((1 2))", "does not have 2 numbers"),
        ("POINT (1 2", "it ends within the geometry"),
        ("POINT (1 2) x", "'X' follows after the geometry"),
        ("POINT 1 2", "stands in place of an opening bracket"),
        ("POINT (1 2; 3 4)", "this is no well-known text: '; 3 4"),
        ("LINESTRING (1 2)", "a line string has one position"),
        ("LINESTRING (1 2, 3 4 5)", "does not have 2 numbers"),
        ("POLYGON ((0 0, 4 0, 4 4))", "a ring of a polygon has four positions or more"),
        ("POLYGON ((0 0, 4 0, 4 4, 0 1))", "and the last is the first"),
        ("GEOMETRYCOLLECTION (POINT (1 2), POINT Z (1 2 3))", "its parts have other coordinates"),
        ("POINT (1e999 2)", "a coordinate is not a finite number"),
        ({"type": "Feature", "geometry": None}, "the type of a geometry in GeoJSON is one of Point"),
        ({"type": "Point"}, "arrays of numbers, as deep as its type says"),
        ({"type": "Point", "coordinates": [1]}, "a position has two or three numbers"),
        ({"type": "Point", "coordinates": [1, "2"]}, "a position has two or three numbers"),
        ({"type": "Point", "coordinates": [1, True]}, "a position has two or three numbers"),
        ({"type": "LineString", "coordinates": [1, 2]}, "arrays of numbers, as deep as its type says"),
        ({"type": "LineString", "coordinates": [[1, 2], [1, 2, 3]]}, "does not have 2 numbers"),
        ({"type": "Point", "coordinates": [1, 2], "crs": {"type": "link"}}, "names an EPSG code or OGC:CRS84"),
        (ONE_TWO[:-1], "it ends within the geometry"),
        (ONE_TWO + b"\0", "1 bytes follow after the geometry"),
        (iso(8, 0), "there is no geometry of type 8"),
        (iso(4001, (1.0, 2.0)), "there is no geometry of type 4001"),
        (iso(2, 2, (1.0, 2.0, NAN, 4.0)), "a coordinate is not a finite number"),
        (iso(4, 1, iso(2, 0)), "a multi-geometry has a part of another kind"),
        (iso(1007, 1, ONE_TWO), "its parts have other coordinates"),
        (iso(2, 2**32 - 1), "it ends within the geometry"),
        (iso(7, 2**32 - 1), "it ends within the geometry"),
    ],
)
def test_what_is_no_geometry_is_refused_for_a_reason(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("(", r"\(")):
        geometry_of(value, CRS84)


@pytest.mark.parametrize("text", ["POINT (181 0)", "POINT (0 91)", "LINESTRING (0 0, -180.1 0)"])
def test_a_geography_lies_on_the_globe(text: str) -> None:
    assert geometry_of(text, CRS84)
    with pytest.raises(ValueError, match="a longitude from -180 to 180, and then a latitude"):
        geometry_of(text, GLOBE)
    assert geometry_of("POINT (180 -90)", GLOBE) and geometry_of("POINT EMPTY", GLOBE)


def nested(levels: int) -> list[Any]:
    """Collections within each other, in each form."""
    binary = ONE_TWO
    for _ in range(levels):
        binary = iso(7, 1, binary)
    text = "GEOMETRYCOLLECTION (" * levels + "POINT (1 2)" + ")" * levels
    document: dict[str, Any] = {"type": "Point", "coordinates": [1, 2]}
    for _ in range(levels):
        document = {"type": "GeometryCollection", "geometries": [document]}
    return [binary, text, document]


def test_collections_lie_within_each_other_up_to_a_limit() -> None:
    assert len({geometry_of(value, CRS84) for value in nested(31)}) == 1
    for levels in (32, 300):
        for value in nested(levels):
            with pytest.raises(ValueError, match="more than 32 geometries lie within each other"):
                geometry_of(value, CRS84)
    deepest: list[Any] = [nested(100_000)[0], "GEOMETRYCOLLECTION(" * 100_000, "POINT" + "(" * 100_000]
    for value in deepest:
        with pytest.raises(ValueError):
            geometry_of(value, CRS84)


def test_a_long_geometry_takes_time_linear_in_its_length() -> None:
    def seconds(count: int) -> float:
        text = "LINESTRING (" + ", ".join(f"{n} {n}" for n in range(count)) + ")"
        start = time.process_time()
        geometry_of(geometry_of(text, CRS84), CRS84)
        return time.process_time() - start

    seconds(1_000)
    assert seconds(80_000) < 40 * max(seconds(8_000), 0.01)


def test_a_geometry_that_is_read_again_is_the_same() -> None:
    for given in TEXTS.values():
        assert write_wkb(read_wkb(given)[0]) == given


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("geometry", GeoType("OGC:CRS84")),
        ("geometry(srid:3857)", GeoType("srid:3857")),
        ("geometry( EPSG:3857 )", GeoType("EPSG:3857")),
        ("geometry('srid:3857')", GeoType("srid:3857")),
        ("geography", GLOBE),
        ("geography(srid:4326)", GeoType("srid:4326", "spherical")),
        ("geography(srid:4326, Karney)", GeoType("srid:4326", "karney")),
        ("geography('srid:4326', 'thomas')", GeoType("srid:4326", "thomas")),
        ("geography(srid:4326, planar)", None),
        ("geometry(a, b)", None),
        ("binary", None),
    ],
)
@pytest.mark.parametrize("beside", ["variant", "long"])  # pyiceberg does not know the first
def test_a_schema_says_what_its_geometries_are(name: str, wanted: GeoType | None, beside: str) -> None:
    fields = [{"id": i, "name": f"c{i}", "required": False, "type": kind} for i, kind in enumerate((name, beside), 1)]
    found = schema_of_json(json.dumps({"type": "struct", "fields": fields}))
    assert geo_type(found.find_type(1)) == wanted


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("geometry", "geometry"),
        ("Geometry (ogc:crs84)", "geometry"),
        ("geometry(srid:3857)", "geometry(srid:3857)"),
        ("geometry( EPSG:3857 )", "geometry(EPSG:3857)"),
        ("geometry(projjson:my.property)", "geometry(projjson:my.property)"),
        ("geography", "geography"),
        ("geography(OGC:CRS84, SPHERICAL)", "geography"),
        ("geography(OGC:CRS84, karney)", "geography(OGC:CRS84, karney)"),
        ("geography(srid:4326)", "geography(srid:4326, spherical)"),
        ("list<geometry(srid:3857)>", {"list": "geometry(srid:3857)"}),
    ],
)
def test_a_declaration_is_written_as_schemas_have_it(declared: str, kind: Any) -> None:
    assert read_columns(f"g {declared}, n long") == {"g": kind, "n": "long"}
    assert read_columns(f"g {declaration(kind)}") == {"g": kind}


@pytest.mark.parametrize("kind", [CRS84, WEB, GLOBE, GeoType("srid:4326", "karney"), GeoType(f"projjson:{'x' * 300}")])
def test_only_the_schema_of_a_footer_changes(kind: GeoType) -> None:
    table = pa.table(
        [pa.array([ONE_TWO, None])], pa.schema([pa.field("g", pa.binary(), metadata={"PARQUET:field_id": "1"})])
    )
    out = io.BytesIO()
    pq.write_table(table, out)
    marked = with_nodes(out.getvalue(), {1: geo_node(kind)})
    assert pq.read_table(io.BytesIO(marked)) == table
    crs = "" if kind.crs == "OGC:CRS84" else kind.crs
    said = f"Geometry(crs={crs})" if kind.edges is None else f"Geography(crs={crs}, algorithm={kind.edges})"
    assert f"optional binary field_id=1 g ({said})" in str(pq.ParquetFile(io.BytesIO(marked)).schema)


SCHEMA = schema_of_json(
    '{"type":"struct","fields":[{"id":1,"name":"g","required":false,"type":"geometry(srid:4326)"}]}'
)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([ONE_TWO, None]),
        pa.array(["POINT (1 2)", None]),
        pa.array([{"wkb": ONE_TWO, "srid": 4326}, None]),
        pa.array([{"x": 1.0, "y": 2.0, "wkb": None, "srid": None}, None]),
        pa.array([[("wkb", ONE_TWO)], None], pa.map_(pa.string(), pa.binary())),
        pa.array([{"type": "Point", "coordinates": [1.0, 2.0]}, None]),
    ],
)
def test_typed_values_become_geometries(column: pa.Array) -> None:
    converter = TableConverter("db.t", SCHEMA, Evolution(evolve=True), {})
    converted = converter.convert(Values(pa.StructArray.from_arrays([column], ["g"]), True))
    assert converted.changes == [] and converted.rows is not None
    assert converted.rows.to_pylist() == [{"g": ONE_TWO}, {"g": None}]


def test_a_value_that_does_not_fit_makes_its_record_bad_and_no_other() -> None:
    converter = TableConverter("db.t", SCHEMA, Evolution(evolve=True), {})
    converted = converter.convert(Values([{"g": "POINT (1 2)"}, {"g": "SRID=3857;POINT (1 2)"}, {"g": 1}], False))
    assert [bad.index for bad in converted.bad] == [1, 2]
    assert "is not a geometry(srid:4326): its SRID 3857 is not" in converted.bad[0].reason
    assert converted.rows is not None and converted.rows.to_pylist() == [{"g": ONE_TWO}]
