"""The campaign's checker reads tables as they are."""

from __future__ import annotations

from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from calving.iceberg.catalog import open_catalog
from campaign.audit import Audit, Row
from campaign.files import rows
from campaign.tables import Tables
from harness.locations import locations

RECORDS = 6


class Fixture:
    """One table, of a topic with the records 0 to 5 in one partition."""

    def __init__(self, table: Table, audit: Audit, tables: Tables, database: Path) -> None:
        self.table, self.audit, self.tables, self.database = table, audit, tables, database

    def append(self, *numbers: int) -> None:
        rows = [{"id": n, "route": "db.t", "proof": str(n)} for n in numbers]
        self.table.append(pa.Table.from_pylist(rows))

    def duplicates(self) -> int:
        self.tables.look(locations(self.database))
        return int(self.audit.report()["DUPLICATE"][0])


@pytest.fixture
def seen(tmp_path: Path) -> Fixture:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("db")
    schema = pa.schema([("id", pa.int64()), ("route", pa.string()), ("proof", pa.string())])
    table = catalog.create_table("db.t", schema, properties={"commit.manifest-merge.enabled": "true"})
    audit = Audit(["db.t"], 1, lambda number: ("db.t", str(number)))
    for number in range(RECORDS):
        audit.produced(0, number, number)
    tables = Tables(["db.t"], "source", "kafka.connect.offsets.control.group", audit)
    return Fixture(table, audit, tables, tmp_path / "catalog.db")


def test_all_rows_of_all_files_are_seen(seen: Fixture) -> None:
    seen.append(0, 1, 2)
    assert seen.duplicates() == 0
    seen.append(3, 4, 5)
    assert seen.duplicates() == 0
    assert seen.tables.complete(RECORDS)


def test_what_is_only_read_is_not_judged(seen: Fixture) -> None:
    seen.append(0, 1, 2, 3, 4, 5, 5)
    seen.tables.read(locations(seen.database))
    assert seen.tables.complete(RECORDS)
    assert seen.audit.report()["DUPLICATE"] == [0]
    assert seen.duplicates() == 1


def test_a_row_in_two_files_is_a_duplicate(seen: Fixture) -> None:
    seen.append(0, 1)
    seen.append(1, 2)
    assert seen.duplicates() == 1


def test_a_file_that_is_added_again_doubles_its_rows(seen: Fixture) -> None:
    seen.append(0, 1, 2)
    assert seen.duplicates() == 0
    (task,) = seen.table.scan().plan_files()
    seen.table.add_files([task.file.file_path], check_duplicate_files=False)
    assert seen.duplicates() == 3
    assert seen.audit.report()["I2"] == 1


def test_a_compaction_doubles_nothing(seen: Fixture) -> None:
    seen.append(0, 1, 2)
    seen.append(3, 4)
    assert seen.duplicates() == 0
    seen.table.overwrite(seen.table.scan().to_arrow())
    assert seen.duplicates() == 0
    assert not seen.tables.complete(RECORDS)


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("marks", "deleted"), [({}, ""), ({"_cdc_deleted": False}, ""), ({"_cdc_deleted": True}, "deleted by ")]
)
def test_data_files_are_read_in_every_format_with_the_marks_of_deleted_rows(
    tmp_path: Path, kind: str, marks: dict[str, bool], deleted: str
) -> None:
    values = [{"id": n, "route": "db.t", "proof": f"proof of {n}", "pad": "x", **marks} for n in range(3)]
    path = tmp_path / f"a.{kind}"
    match kind:
        case "parquet":
            pq.write_table(pa.Table.from_pylist(values), path)
        case "orc":
            orc.write_table(pa.Table.from_pylist(values), path)
        case "avro":
            types = {"id": "long", "_cdc_deleted": "boolean"}
            fields = [{"name": name, "type": types.get(name, "string")} for name in values[0]]
            with path.open("wb") as file:
                fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, values)
    assert rows(f"file://{path}") == [Row(n, "db.t", f"{deleted}proof of {n}") for n in range(3)]
