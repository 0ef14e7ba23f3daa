"""Files and manifests as other writers make them: what is sound there is no finding, and what is wrong is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from calving.audit.content import FileJudge
from calving.audit.entries import DATA, AuditedEntry
from calving.audit.metadata import TableMetadataFile
from calving.audit.rows import PlainRows
from calving.audit.storage import AuditedStore
from tests.audit.conftest import audited, found
from tests.audit.sabotage import Record, Sabotage
from tests.audit.test_sabotage import rows

ID = "PARQUET:field_id"


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={ID: str(number), "iceberg.id": str(number)})


def written(folder: Path, table: pa.Table, file_format: str = "parquet", **options: Any) -> Path:
    path = folder / f"one.{file_format}"
    (orc if file_format == "orc" else pq).write_table(table, path, **options)
    return path


def judged(path: Path, columns: Sequence[Record], rows: int, spec: Sequence[Record] = (), **said: Any) -> list[str]:
    """What is wrong with a file of these columns, whose entry says this of it."""
    none: dict[str, Any] = dict.fromkeys(each.name for each in fields(AuditedEntry))
    counts: dict[str, Any] = {name: {} for name in ("value_counts", "null_counts", "nan_counts", "lower", "upper")}
    of_file = {"path": str(path), "file_format": path.suffix[1:].upper(), "size": path.stat().st_size}
    given = {"content": DATA, "records": rows, "spec_id": 0, "partition": (), "equality_ids": ()}
    schema = {"type": "struct", "schema-id": 0, "fields": columns}
    raw = {"format-version": 2, "schemas": [schema], "partition-specs": [{"spec-id": 0, "fields": spec}]}
    judge = FileJudge(AuditedStore(PyArrowFileIO()), TableMetadataFile("golden", raw))
    entry = AuditedEntry(**none | counts | of_file | given | said)
    return [each.text for each in judge.judge(entry, content=True)]


LONG = Decimal("12345678901234567890123456789012345678")
"""All its 38 digits count: as a double, or in Python's own context of 28 digits, it is another number."""


def test_a_long_decimal_within_its_bounds_is_sound(tmp_path: Path) -> None:
    kind = "decimal(38, 0)"
    path = written(tmp_path, pa.table([pa.array([LONG])], schema=pa.schema([field("d", pa.decimal128(38, 0), 1)])))
    bounds = {1: int(LONG).to_bytes(16, "big")}
    assert judged(path, [{"id": 1, "name": "d", "type": kind}], 1, lower=bounds, upper=bounds) == []


def test_a_long_decimal_below_its_bound_by_one_is_found(tmp_path: Path) -> None:
    kind = "decimal(38, 0)"
    path = written(tmp_path, pa.table([pa.array([LONG])], schema=pa.schema([field("d", pa.decimal128(38, 0), 1)])))
    bound = {1: (int(LONG) + 1).to_bytes(16, "big")}
    (text,) = judged(path, [{"id": 1, "name": "d", "type": kind}], 1, lower=bound)
    assert "below the lower bound" in text


def test_long_decimals_that_differ_in_their_last_digit_are_different_rows() -> None:
    kind = field("d", pa.decimal128(38, 0), 1)
    assert len(set(PlainRows({}, {1}).of_arrow([pa.array([LONG, LONG + 1], kind.type)], [kind]))) == 2


@pytest.mark.parametrize("form", ["dictionary", "string_view", "large_string"])
def test_texts_are_compared_in_whatever_form_their_writer_had_them(tmp_path: Path, form: str) -> None:
    """Writers on Arrow note their own form in the file, and Arrow reads the column so."""
    texts = pa.array(["b", None, "a"])
    array: Any = texts.dictionary_encode() if form == "dictionary" else texts.cast(form)
    path = written(tmp_path, pa.table([array], schema=pa.schema([field("t", array.type, 1)])))
    said: dict[str, Any] = {"null_counts": {1: 1}, "lower": {1: b"a"}, "upper": {1: b"b"}}
    assert judged(path, [{"id": 1, "name": "t", "type": "string"}], 3, **said) == []
    (text,) = judged(path, [{"id": 1, "name": "t", "type": "string"}], 3, upper={1: b"ab"})
    assert "above the upper bound" in text


def test_a_day_that_nanoseconds_do_not_reach_is_in_its_partition(tmp_path: Path) -> None:
    """Spark's files of before Iceberg, which a migrated table keeps, have moments as INT96."""
    moments = pa.array([datetime(9999, 12, 31)], pa.timestamp("us"))
    table = pa.table([moments], schema=pa.schema([field("at", pa.timestamp("us"), 1)]))
    path = written(tmp_path, table, use_deprecated_int96_timestamps=True)
    spec = [{"name": "at_day", "source-id": 1, "field-id": 1000, "transform": "day"}]
    day = (datetime(9999, 12, 31) - datetime(1970, 1, 1)).days
    assert judged(path, [{"id": 1, "name": "at", "type": "timestamp"}], 1, spec, partition=(day,)) == []


NESTED = [
    {"id": 1, "name": "s", "type": {"type": "struct", "fields": [{"id": 2, "name": "d", "type": "double"}]}},
]


def nested(folder: Path, file_format: str) -> Path:
    """Three rows: a struct with a value, one with a null, and none."""
    values: list[Record] = [{"s": {"d": 1.0}}, {"s": {"d": None}}, {"s": None}]
    if file_format == "avro":
        inner = {"type": "record", "name": "r2", "fields": [{"name": "d", "type": ["null", "double"], "field-id": 2}]}
        schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": ["null", inner], "field-id": 1}]}
        path = folder / "one.avro"
        with path.open("wb") as out:
            fastavro.writer(out, fastavro.parse_schema(schema), values)
        return path
    kind = pa.struct([field("d", pa.float64(), 2)])
    return written(folder, pa.Table.from_pylist(values, pa.schema([field("s", kind, 1)])), file_format)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(("values", "nulls", "is_sound"), [(3, 2, True), (2, 1, True), (3, 0, False), (1, 2, False)])
def test_a_column_may_or_may_not_count_the_nulls_of_the_struct_around_it(
    tmp_path: Path, file_format: str, values: int, nulls: int, is_sound: bool
) -> None:
    """ORC's statistics and Iceberg's own of doubles leave them out; those of Parquet's footer count them."""
    path = nested(tmp_path, file_format)
    texts = judged(path, NESTED, 3, value_counts={2: values}, null_counts={2: nulls})
    assert (texts == []) is is_sound


def test_of_files_without_field_ids_a_note_says_that_their_columns_are_not_judged(
    catalog: Catalog, tmp_path: Path
) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", rows.schema)
    table.add_files([str(written(tmp_path, rows))])
    audit = audited(table)
    assert audit.findings == []
    assert audit.notes == ["columns not judged, of files without field ids: 1"]


def test_an_entry_of_before_file_sequence_numbers_is_sound(catalog: Catalog) -> None:
    """Iceberg before 1.1 wrote none, and they cannot be inherited once the entry is not new."""
    table = rows(catalog)
    sabotage = Sabotage(table)
    manifest, place, _ = sabotage.files()[0]

    def age(entry: Record) -> None:
        entry.update(status=0, sequence_number=1, file_sequence_number=None)

    assert found(table) == []
    sabotage.change_entry(manifest, age, place)
    assert not [each for each in found(table) if "sequence numbers" in each.text]
