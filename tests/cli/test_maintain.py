"""``calving maintain`` needs the sink's file, the catalog and the storage."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from calving.engine.interface import Engine
from calving.errors import CommandFailedError, ConfigError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.lookups import Lookups
from calving.runtime import components
from calving.runtime.maintenance.step import MaintenanceStep
from calving.runtime.preflight import owner_of
from calving.settings.load import load
from tests.cli.maintaining import lines, steps
from tests.cli.test_compact import sink_of, table_with
from tests.iceberg.histories import MutationTable, create, pyiceberg_rows


def test_an_error_of_a_table_is_a_step_and_the_other_tables_are_maintained(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})
    broken, other = table_with(catalog, 12), table_with(catalog, 12)
    with broken.table.transaction() as change:
        change.set_properties({"calving.form.c.connect-x": "["})
    made = steps(sink_of(tmp_path, f"{broken.name},{other.name}"), tasks=["compact"])
    first, second = next(made), next(made)
    assert (first.table, first.outcome, first.text[:20]) == (broken.name, "failed", "maintenance failed: ")
    assert (second.table, second.outcome) == (other.name, "done")
    with pytest.raises(CommandFailedError, match="1 step failed, as said above"):
        next(made)


def test_where_spark_does_not_start_all_files_are_searched_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = {"type": "embedded", "warehouse": str(tmp_path / "warehouse")}
    table = create(open_catalog("iceberg", catalog), "flat", 2)
    table.equality = True
    for name, count in (("a", 5), ("b", 3)):
        table.commit(table.step([{"id": key, "name": name, "g": 0} for key in range(count)]))
    config = tmp_path / "sink.json"
    keys = {
        "name": "x",
        "topics": "t",
        "iceberg.tables": table.name,
        "iceberg.tables.upsert-mode-enabled": True,
        "iceberg.tables.row-deletes": "equality",
        f"iceberg.table.{table.name}.id-columns": "id",
        "kafka.bootstrap.servers": "localhost:1",
        **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
    }
    config.write_text(json.dumps(keys))

    def no_java(*_: object) -> Engine:
        raise ConfigError("spark.*: Spark does not start: no Java")

    monkeypatch.setattr(components, "engine", no_java)
    monkeypatch.setattr(Lookups, "rows_here", 0)
    with caplog.at_level(logging.WARNING):
        said = lines(load(config), [], ["deletes"])
    assert said == [f"table {table.name}: 1 equality-delete file with 3 keys became 3 positions in 1 delete file"]
    assert (
        "searched in this process, because the engine does not start: spark.*: Spark does not start: no Java"
        in caplog.text
    )
    assert pyiceberg_rows(table.table) == table.rows()


def lost(table: MutationTable) -> None:
    """The catalog names its metadata, and nobody has it."""
    Path(table.table.metadata_location.removeprefix("file://")).unlink()


def test_a_routed_table_that_cannot_be_loaded_is_a_failed_step_and_the_others_are_maintained(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})
    routing = {"iceberg.tables.dynamic-enabled": True, "iceberg.tables.route-field": "to"}
    sink, (first, gone, last) = sink_of(tmp_path, "", **routing), [table_with(catalog, 12) for _ in range(3)]
    for table in (first, last):
        with table.table.transaction() as change:
            change.set_properties({f"kafka.connect.offsets.{owner_of(sink)}": "{}"})
    lost(gone)
    made, done = steps(sink, tasks=["compact"]), list[MaintenanceStep]()
    with pytest.raises(CommandFailedError, match="1 step failed, as said above"):
        done.extend(made)
    assert [(step.table, step.outcome) for step in done][:1] == [(gone.name, "failed")]
    assert {(step.table, step.outcome) for step in done[1:]} == {(first.name, "done"), (last.name, "done")}
    assert done[0].line().startswith(f"table {gone.name}: maintenance failed: ")


def test_a_named_table_that_cannot_be_loaded_is_a_failed_step_and_the_others_are_maintained(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})
    gone, other = table_with(catalog, 12), table_with(catalog, 12)
    lost(gone)
    made = steps(sink_of(tmp_path, f"{gone.name},{other.name}"), [gone.name, other.name], ["compact"])
    assert [(step.table, step.outcome) for step in (next(made), next(made))] == [
        (gone.name, "failed"),
        (other.name, "done"),
    ]
    with pytest.raises(CommandFailedError, match="1 step failed, as said above"):
        next(made)
