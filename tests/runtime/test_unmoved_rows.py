"""Rows that land outside of the partitions are missed if nobody moves them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from calving.iceberg.catalog import open_catalog
from calving.runtime.checks import check_settings
from calving.runtime.maintenance.unmoved import UnmovedFiles
from calving.settings.load import parse
from calving.status.board import Board
from calving.status.health import reasons
from calving.status.values import SinkFacts, WorkerStatus
from harness.waiting import wait_for
from tests.cli.test_compact import sink_of
from tests.iceberg.histories import MutationTable
from tests.maintenance.compacting import appended, compact
from tests.maintenance.test_landed_files import LANDED, divided, land
from tests.runtime.test_leader_maintenance import leading

SETTINGS = {"name": "x", "topics": "t", "kafka.bootstrap.servers": "localhost:1", "iceberg.tables": "db.t"}
LANDS = {"iceberg.tables.landing": "unpartitioned"}
FACTS = SinkFacts("x", "connect-x", "m", "0", "kafka", "local", 0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (LANDS, "iceberg.tables.landing = unpartitioned: rows land in no partition, and this sink does not move them"),
        (LANDS, "set iceberg.maintenance.enabled = true, or let `calving maintain FILE --watch` run beside it"),
        ({"iceberg.table.db.t.landing": "unpartitioned"}, "set iceberg.table.db.t.maintenance.enabled = true"),
        (
            {**LANDS, "iceberg.maintenance.enabled": "true", "iceberg.table.db.t.maintenance.enabled": "false"},
            "iceberg.table.db.t.landing = unpartitioned",
        ),
    ],
)
def test_a_sink_that_does_not_move_what_it_lands_says_so(
    keys: dict[str, str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_settings(parse({**SETTINGS, **keys}))
    assert said in caplog.text


@pytest.mark.parametrize("keys", [{}, {**LANDS, "iceberg.maintenance.enabled": "true"}])
def test_a_sink_that_moves_what_it_lands_says_nothing(keys: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    check_settings(parse({**SETTINGS, **keys}))
    assert "land" not in caplog.text


class Looks:
    """A leader that looks at a table which it does not maintain."""

    def __init__(self, tmp_path: Path, table: MutationTable, **keys: Any) -> None:
        self._board, self._name = Board(FACTS), table.name
        self._unmoved = UnmovedFiles(sink_of(tmp_path, table.name, **(LANDS | keys)), table.catalog, self._board)

    def at(self, now: float) -> list[str]:
        """The reasons after a look."""
        self._unmoved.look([self._name], now)
        status = replace(self._board.status, worker=WorkerStatus(leads=True))
        return [reason.text for reason in reasons(status, now) if reason.subject == self._name]


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})


@pytest.fixture
def table(catalog: Catalog) -> MutationTable:
    """With two files that have landed."""
    return divided(appended(catalog, 2, 2))


def test_files_that_nobody_moves_for_ten_pauses_are_a_reason(table: MutationTable, tmp_path: Path) -> None:
    looks = Looks(tmp_path, table)
    assert looks.at(0.0) == [] and looks.at(590.0) == []
    land(table, [{"id": 50, "name": "landed", "g": 1}])
    (text,) = looks.at(610.0)
    assert text == f"table {table.name}: maintenance (compact) has been due since 1970-01-01T00:00:00+00:00, 3 files"


def test_files_that_somebody_moves_now_and_then_are_no_reason(table: MutationTable, tmp_path: Path) -> None:
    looks = Looks(tmp_path, table)
    for now in (0.0, 500.0, 1000.0, 1500.0):
        assert looks.at(now) == []
        land(table, [{"id": 100 + int(now), "name": "later", "g": 1}])
        looks.at(now + 50)
        compact(table, LANDED)
        land(table, [{"id": 101 + int(now), "name": "later still", "g": 1}])
    compact(table, LANDED)
    assert looks.at(3000.0) == []


def test_a_longer_pause_gives_others_more_time(table: MutationTable, tmp_path: Path) -> None:
    looks = Looks(tmp_path, table, **{"iceberg.maintenance.pause-ms": "900000"})
    assert looks.at(0.0) == [] and looks.at(8999.0) == []
    assert len(looks.at(9001.0)) == 1


def test_files_in_their_partitions_are_no_reason(table: MutationTable, tmp_path: Path) -> None:
    compact(table, LANDED)
    looks = Looks(tmp_path, table)
    assert looks.at(0.0) == looks.at(10_000.0) == []


def test_a_catalog_that_is_away_is_no_reason(
    table: MutationTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "calving.runtime.maintenance.unmoved")
    looks = Looks(tmp_path, table)

    def away(*given: object) -> None:
        raise OSError("away")

    monkeypatch.setattr("calving.runtime.maintenance.unmoved.find_table", away)
    assert looks.at(0.0) == looks.at(10_000.0) == []
    assert "away" in caplog.text


def test_a_leader_that_maintains_nothing_looks_and_changes_nothing(table: MutationTable, tmp_path: Path) -> None:
    board, before = Board(FACTS), table.table.metadata_location
    keys: dict[str, Any] = {**LANDS, "iceberg.maintenance.enabled": "false"}
    with leading(tmp_path, table, board=board, **keys):
        wait_for(lambda: table.name in board.status.maintenance.tables)
    assert board.status.maintenance.tables[table.name].due_files == 2
    assert table.table.metadata_location == before
