"""The audit reads files with geometries, and compares them with the corners of their boxes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from calving.audit.extents import Extents
from calving.model.tables import RowMutations
from calving.writing.formats.boxes import Box
from tests.audit.conftest import audited
from tests.casting.test_geometries import ONE_TWO, TEXTS, iso
from tests.iceberg.test_geometries import sink_of


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_table_with_changed_geometries_is_sound(tmp_path: Path, file_format: str) -> None:
    sink = sink_of(tmp_path, file_format=file_format, mutations=RowMutations("op"), id_columns=("id",))
    sink.take(*((None, {"id": n, "op": "u", "geom": text, "l": ["POINT EMPTY"]}) for n, text in enumerate(TEXTS)))
    sink.take((None, {"id": 1, "op": "u", "geom": "LINESTRING (0 0, 9 9)"}), (None, {"id": 2, "op": "d"}))
    assert audited(sink.table, sample=100).findings == []


def corner(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}d", *numbers)


@pytest.mark.parametrize(
    ("values", "lower", "upper", "wanted"),
    [
        ([ONE_TWO], corner(1, 2), corner(1, 2), []),
        ([ONE_TWO], corner(1, 3), corner(2, 9), ["Y from 2.0 to 2.0 is outside of its bounds, 3.0 to 9.0"]),
        ([ONE_TWO, TEXTS["POINT EMPTY"]], corner(1, 2), corner(1, 2), []),
        (
            [TEXTS["POINT ZM (1 2 3 4)"]],
            corner(0, 0, 0, 0),
            corner(9, 9, 2, 9),
            ["Z from 3.0 to 3.0 is outside of its bounds, 0.0 to 2.0"],
        ),
        (
            [TEXTS["POINT M (1 2 4)"]],
            corner(1, 2, float("nan"), 5),
            corner(1, 2, float("nan"), 6),
            ["M from 4.0 to 4.0 is outside of its bounds, 5.0 to 6.0"],
        ),
        (
            [TEXTS["GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION (LINESTRING (1 2, 3 4)))"]],
            corner(1, 2),
            corner(2, 9),
            ["X from 1.0 to 3.0 is outside of its bounds, 1.0 to 2.0"],
        ),
        (
            [TEXTS["POLYGON ((0 0, 4 0, 4 4, 0 0), (2 1, 3 1, 3 2, 2 1))"]],
            corner(0, 0),
            corner(3, 4),
            ["X from 0.0 to 4.0 is outside of its bounds, 0.0 to 3.0"],
        ),
        ([ONE_TWO], corner(170, 2), corner(-170, 2), []),  # over the 180th meridian
        ([b"", b"x", iso(7, 2**32 - 1), iso(3, 2**32 - 1)], corner(0, 0), corner(0, 0), []),
    ],
)
def test_coordinates_outside_of_the_box_are_found(
    values: list[bytes], lower: bytes, upper: bytes, wanted: list[str]
) -> None:
    extents = Extents()
    extents.add(values)
    assert [*extents.outside(lower, upper)] == wanted


def test_a_file_whose_box_hides_its_rows_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_of(tmp_path, "geom geometry")
    with monkeypatch.context() as patched:
        patched.setattr(Box, "corners", lambda self: (corner(5, 0), corner(6, 9)))
        sink.take((None, {"id": 1, "geom": "POINT (1 2)"}))
    (finding,) = audited(sink.table, sample=100).findings
    assert finding.text == "column geom: X from 1.0 to 1.0 is outside of its bounds, 5.0 to 6.0"
