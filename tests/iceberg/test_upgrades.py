"""``calving maintain --task upgrade``: a table gets format version 3 while sinks write to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from calving.errors import CommandFailedError
from calving.iceberg.catalog import open_catalog
from calving.settings.load import Sink, load
from harness.structure import check
from tests.cli.maintaining import lines
from tests.iceberg.histories import SCHEMA, MutationTable
from tests.iceberg.reader import rows_of

DONE = "table db.t: it was upgraded from format version 2 to 3"


@pytest.fixture
def table(tmp_path: Path) -> MutationTable:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "w")})
    catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA, properties={"format-version": "2"})
    return MutationTable(catalog, "db.t")


def sink(tmp_path: Path, **more: str) -> Sink:
    config = tmp_path / "sink.json"
    keys = {
        "name": "x",
        "topics": "s",
        "kafka.bootstrap.servers": "nowhere:1",
        "iceberg.tables": "db.t",
        "iceberg.catalog.type": "embedded",
        "iceberg.catalog.warehouse": str(tmp_path / "w"),
    }
    config.write_text(json.dumps(keys | more))
    return load(config)


def test_files_that_were_written_before_the_upgrade_are_committed_after_it(
    table: MutationTable, tmp_path: Path
) -> None:
    table.commit(table.step([{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]))
    waiting = table.step([{"id": 2, "name": "b"}, {"id": 3, "name": "b"}])
    assert lines(sink(tmp_path), [], ["upgrade"], dry_run=False) == [DONE]
    table.commit(waiting)
    table.commit(table.step([{"id": 3, "name": "c"}]))
    loaded = table.catalog.load_table("db.t")
    assert (loaded.metadata.format_version, [row[:2] for row in rows_of(loaded)]) == (3, table.rows())
    check(loaded)


def test_a_dry_run_changes_nothing_and_a_second_run_finds_nothing_to_do(table: MutationTable, tmp_path: Path) -> None:
    assert lines(sink(tmp_path), [], ["upgrade"], dry_run=True) == [DONE.replace("was", "would be")]
    assert table.catalog.load_table("db.t").metadata.format_version == 2
    lines(sink(tmp_path), [], ["upgrade"], dry_run=False)
    assert lines(sink(tmp_path), [], ["upgrade"], dry_run=False) == ["table db.t: it is of format version 3 already"]


def test_a_commit_that_comes_in_between_does_not_stop_the_upgrade(
    table: MutationTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = Table._do_commit, list[bool]()

    def commit(self: Table, *change: object) -> None:
        if not refused:
            refused.append(True)
            raise CommitFailedException("someone else was faster")
        real(self, *change)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "_do_commit", commit)
    assert lines(sink(tmp_path), [], ["upgrade"], dry_run=False) == [DONE]


def test_a_table_whose_rows_this_sink_could_not_change_any_more_is_not_upgraded(
    table: MutationTable, tmp_path: Path
) -> None:
    equality = {
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.default-id-columns": "id",
        "iceberg.tables.row-deletes": "equality",
    }
    with pytest.raises(CommandFailedError):
        lines(sink(tmp_path, **equality), [], ["upgrade"], dry_run=False)
    assert table.catalog.load_table("db.t").metadata.format_version == 2
