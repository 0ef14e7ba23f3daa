"""Tables with types, transforms and keys of other engines: they are carried through, and the rows that fit are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest

from calving.errors import ConfigError, TableTroubleError
from calving.iceberg.maintenance import Maintenance
from calving.model.record_path import Evolution
from calving.model.tables import RowMutations
from tests.mutations.changing import KEY, NAME, Changing

Json = dict[str, Any]
FOREIGN: list[Json] = [
    {"id": 100, "name": "v", "required": False, "type": "variant"},
    {"id": 101, "name": "geo", "required": False, "type": "raster(EPSG:4326)"},
    {"id": 102, "name": "area", "required": False, "type": "solid(EPSG:4326, karney)", "doc": "where"},
    {"id": 103, "name": "plain", "required": False, "type": "raster"},
    {"id": 104, "name": "nothing", "required": False, "type": "unknown"},
    {
        "id": 105,
        "name": "l",
        "required": False,
        "type": {"type": "list", "element-id": 106, "element": "raster", "element-required": False},
    },
    {
        "id": 107,
        "name": "m",
        "required": False,
        "type": {
            "type": "map",
            "key-id": 108,
            "key": "string",
            "value-id": 109,
            "value": "raster(OGC:CRS84)",
            "value-required": False,
        },
    },
    {
        "id": 110,
        "name": "s",
        "required": False,
        "type": {
            "type": "struct",
            "fields": [
                {"id": 111, "name": "v", "required": False, "type": "solid"},
                {"id": 112, "name": "n", "required": False, "type": "long"},
            ],
        },
    },
    {
        "id": 113,
        "name": "only",
        "required": False,
        "type": {"type": "struct", "fields": [{"id": 114, "name": "v", "required": False, "type": "raster"}]},
    },
]
"""Columns as Iceberg's Java library writes them."""


def change_metadata(sink: Changing, change: Callable[[Json], None]) -> None:
    """Change the metadata file of the table, as another engine would write it."""
    place = Path(sink.table.metadata_location.removeprefix("file://"))
    found = json.loads(place.read_text())
    change(found)
    place.write_text(json.dumps(found))


def metadata(sink: Changing) -> Json:
    found: Json = json.loads(Path(sink.table.metadata_location.removeprefix("file://")).read_text())
    return found


def add_columns(found: Json, *columns: Json) -> None:
    found["schemas"][-1]["fields"] += columns or FOREIGN
    found["last-column-id"] = 200


def sink_of(folder: Path, **settings: Any) -> Changing:
    """A sink whose table has one row, and then columns of another engine."""
    defaults = {"mutations": None, "id_columns": (), "evolution": Evolution(create=True, evolve=True)}
    made = Changing(folder, **defaults | settings)
    made.take((None, {"id": 1, "op": "u"}))
    change_metadata(made, add_columns)
    return made


def foreign_columns(schema: Json) -> list[Json]:
    return [field for field in schema["fields"] if 100 <= field["id"] < 200]


@pytest.fixture
def sink(tmp_path: Path) -> Changing:
    return sink_of(tmp_path)


def test_rows_without_a_value_for_such_columns_are_written(sink: Changing) -> None:
    nulls = dict.fromkeys(("geo", "area", "plain", "nothing", "l", "m", "only"))
    outcome = sink.take((None, {"id": 2}), (None, {"id": 3, **nulls}), (None, {"id": 4, "s": {"n": 5, "v": None}}))
    assert sink.reasons(outcome) == []
    (files,) = [files for steps in outcome.written.values() for files in steps]
    rows = [
        row for file in files.data_files for row in pq.read_table(file.file_path.removeprefix("file://")).to_pylist()
    ]
    assert rows == [
        {"id": 2, "op": None, "v": None, "s": None},
        {"id": 3, "op": None, "v": None, "s": None},
        {"id": 4, "op": None, "v": None, "s": {"n": 5}},
    ]


@pytest.mark.parametrize(
    ("record", "column", "kind"),
    [
        ({"geo": "POINT (1 2)"}, "geo", r"raster\(EPSG:4326\)"),
        ({"area": "x"}, "area", r"solid\(EPSG:4326, karney\)"),
        ({"plain": "x"}, "plain", "raster"),
        ({"l": [1]}, "l.element", "raster"),
        ({"l": []}, "l", "list<raster>"),
        ({"l": [None]}, "l", "list<raster>"),
        ({"m": {"a": "x"}}, "m.value", r"raster\(OGC:CRS84\)"),
        ({"m": {}}, "m", r"map<string, raster\(OGC:CRS84\)>"),
        ({"s": {"v": "x", "n": 1}}, "s.v", "solid"),
        ({"only": {"v": 1}}, "only.v", "raster"),
        ({"only": {}}, "only", "struct<114: v: optional raster>"),
    ],
)
@pytest.mark.parametrize("evolve", [True, False])
def test_a_record_with_a_value_is_bad_and_the_others_are_written(
    sink: Changing, record: Mapping[str, Any], column: str, kind: str, evolve: bool
) -> None:
    made = sink.with_(evolution=Evolution(evolve=evolve))
    ((offset, reason),) = made.reasons(made.take((None, {"id": 2, **record}), (None, {"id": 3})))
    assert offset == 1
    assert f"'{column}'" in reason and f"columns of type {kind}".replace("\\", "") + " cannot be written" in reason


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_files_of_every_format_lack_such_columns(tmp_path: Path, file_format: str) -> None:
    sink = sink_of(tmp_path, properties={"write.format.default": file_format})
    outcome = sink.take((None, {"id": 2, "s": {"n": 1}}))
    (file,) = [file for steps in outcome.written.values() for files in steps for file in files.data_files]
    path = file.file_path.removeprefix("file://")
    if file_format == "orc":
        rows = po.ORCFile(path).read().to_pylist()
    else:
        with Path(path).open("rb") as source:
            rows = [*fastavro.reader(source)]
    assert rows == [{"id": 2, "op": None, "s": {"n": 1}}]


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_variants_are_written_to_parquet_files_only(tmp_path: Path, file_format: str) -> None:
    sink = sink_of(tmp_path, properties={"write.format.default": file_format})
    ((offset, reason),) = sink.reasons(sink.take((None, {"id": 2, "v": 1}), (None, {"id": 3})))
    assert offset == 1
    assert f"column 'v': columns of type variant cannot be written to {file_format} files" in reason


def test_new_columns_beside_them_leave_them_as_they_are(sink: Changing) -> None:
    sink.take((None, {"id": 2, "more": 1, "s": {"more": 1}}))
    schema = next(s for s in metadata(sink)["schemas"] if s["schema-id"] == metadata(sink)["current-schema-id"])
    assert [field["name"] for field in schema["fields"]] == ["id", "op", *(f["name"] for f in FOREIGN), "more"]
    kept = foreign_columns(schema)
    struct = next(field for field in kept if field["name"] == "s")
    assert [field["name"] for field in struct["type"]["fields"]] == ["v", "n", "more"]
    struct["type"]["fields"].pop()
    assert kept == FOREIGN


def test_a_required_column_without_values_stays_required_and_makes_records_bad(sink: Changing) -> None:
    change_metadata(sink, lambda m: add_columns(m, {"id": 150, "name": "must", "required": True, "type": "raster"}))
    outcome = sink.take((None, {"id": 2}))
    ((_, reason),) = sink.reasons(outcome)
    assert "field 'must': the column is required, but columns of type raster cannot be written" in reason


def test_rows_of_a_table_with_such_columns_change(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("op"), id_columns=("id",))
    outcome = sink.take((None, {"id": 1, "op": "u", "s": {"n": 7}}), (None, {"id": 2, "op": "u", "geo": "x"}))
    assert [offset for offset, _ in sink.reasons(outcome)] == [2]
    sink.take((None, {"id": 3, "op": "c"}), (None, {"id": 3, "op": "d"}))
    summary = sink.table.metadata.snapshot_by_name("main").summary  # type: ignore[union-attr]
    assert summary is not None
    records, deletes = (int(summary[f"total-{name}"] or 0) for name in ("records", "position-deletes"))
    assert records - deletes == 1


@pytest.mark.parametrize(("column", "kind"), [("v", "variant"), ("plain", "raster")])
def test_such_a_column_identifies_no_row(tmp_path: Path, column: str, kind: str) -> None:
    sink = sink_of(tmp_path).with_(mutations=RowMutations("op"), id_columns=(column,))
    with pytest.raises(ConfigError, match=f"table {NAME}: id column {column} is {kind}, which cannot be compared"):
        sink.take((None, {"id": 1, column: 1, "op": "u"}))


def add_spec(found: Json, *fields: Json, default: bool) -> None:
    found["partition-specs"].append({"spec-id": 5, "fields": list(fields)})
    if default:
        found["default-spec-id"] = 5


LATER = {"source-id": 1, "field-id": 1000, "transform": "hilbert[8]", "name": "h"}
LIKE_KNOWN = {"source-id": 1, "field-id": 1000, "transform": "bucketv2[8]", "name": "h"}


@pytest.mark.parametrize("field", [LATER, LIKE_KNOWN], ids=["new", "like a known one"])
def test_a_table_that_is_partitioned_by_an_unknown_transform_takes_no_rows(sink: Changing, field: Json) -> None:
    change_metadata(sink, lambda m: add_spec(m, field, default=True))
    text = (
        f"table {NAME} takes no rows: calving does not know the transform {field['transform']} of its partition field h"
    )
    with pytest.raises(ConfigError, match=text.replace("[", r"\[")):
        sink.take((None, {"id": 2}))


def test_an_unknown_transform_of_another_spec_is_carried_through(sink: Changing) -> None:
    change_metadata(sink, lambda m: add_spec(m, LATER, default=False))
    sink.take((None, {"id": 2, "more": 1}))
    assert metadata(sink)["partition-specs"][-1]["fields"] == [LATER]


def test_deletes_of_such_a_table_are_refused(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations("op"), id_columns=("id",))
    change_metadata(sink, lambda m: add_spec(m, LATER, default=False))
    with pytest.raises(ConfigError, match=r"takes no rows: calving does not know the transform hilbert\[8\]"):
        sink.take((None, {"id": 1, "op": "u"}))


def test_rows_are_not_sorted_by_an_unknown_transform_which_is_carried_through(sink: Changing) -> None:
    order = {"source-id": 1, "transform": "hilbert[8]", "direction": "asc", "null-order": "nulls-first"}

    def sort(found: Json) -> None:
        found["sort-orders"].append({"order-id": 3, "fields": [order]})
        found["default-sort-order-id"] = 3

    change_metadata(sink, sort)
    outcome = sink.take((None, {"id": 2}))
    written = [file for steps in outcome.written.values() for files in steps for file in files.data_files]
    assert [file.sort_order_id for file in written] == [0]  # unsorted
    assert metadata(sink)["sort-orders"][-1]["fields"] == [order]


def encrypt(found: Json) -> None:
    found["encryption-keys"] = [{"key-id": "k1", "encrypted-key-metadata": "AA=="}]


def test_an_encrypted_table_takes_no_rows(sink: Changing) -> None:
    change_metadata(sink, encrypt)
    with pytest.raises(ConfigError, match=f"table {NAME} takes no rows: it is encrypted"):
        sink.take((None, {"id": 2}))


def test_files_of_a_table_that_was_encrypted_meanwhile_are_not_committed(sink: Changing) -> None:
    outcome = sink.read({0: [(None, {"id": 2})]})
    change_metadata(sink, encrypt)
    before = metadata(sink)
    with pytest.raises(TableTroubleError, match=f"table {NAME} takes no rows: it is encrypted"):
        sink.commit(outcome)
    assert metadata(sink) == before


def test_maintenance_leaves_an_encrypted_table_alone(sink: Changing) -> None:
    change_metadata(sink, encrypt)
    before = metadata(sink)
    with pytest.raises(TableTroubleError, match="it is encrypted"):
        list(Maintenance(sink.catalog, tuple(NAME.split(".")), KEY, {}).convert())
    assert metadata(sink) == before
