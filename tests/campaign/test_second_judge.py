"""The audit as the second judge of a campaign."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import open_catalog
from campaign.second_judge import findings
from tests.audit.sabotage import Sabotage
from tests.iceberg.lake import Lake


def lake(folder: Path) -> tuple[Catalog, Lake]:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(folder)})
    made = Lake(catalog, "2", "main")
    made.commit(0, 100)
    made.commit(100, 200)
    return catalog, made


def test_sound_tables_have_no_finding_and_missing_ones_are_passed_over(tmp_path: Path) -> None:
    catalog, _ = lake(tmp_path)
    assert findings(catalog, ["db.t", "db.dropped"]) == []


def test_a_changed_row_is_a_finding_that_names_its_table(tmp_path: Path) -> None:
    catalog, made = lake(tmp_path)
    Sabotage(made.table).change_rows(lambda rows: [{"id": -1}, *rows])
    found, *_ = findings(catalog, ["db.t"])
    assert found.startswith("db.t: file: ")
