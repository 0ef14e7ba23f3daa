"""Spark rolls tables of a sink back with Iceberg's own procedures, and the sink notices and recovers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from calving.cli.rollback import rollback
from calving.cli.status import status
from calving.iceberg.catalog import open_catalog
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs
from calving.settings.load import load
from harness.forms import forms
from harness.spark_reader import spark_on
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.cli.maintaining import lines
from tests.e2e.test_catalog import assert_replayed, change

pytestmark = pytest.mark.services


def sink_in(where: str, folder: Path, topic: Topic, name: str) -> Cli:
    """A sink with a table of its own name, in the catalog at an address (format version 3) or in a folder (2)."""
    made = Cli(folder, topic, name)
    is_rest = where.startswith("http")
    made.catalog_keys = {"type": "rest", "uri": where} if is_rest else {"type": "embedded", "warehouse": where}
    made.keys = {key: value for key, value in made.keys.items() if not key.startswith("iceberg.catalog.")}
    made.keys |= {f"iceberg.catalog.{key}": value for key, value in made.catalog_keys.items()}
    return made


def offsets_gone(sink: Cli) -> int:
    """The number of offsets that `calving status` calls removed by a rollback."""
    (found,) = status(load(sink.config)).tables
    return found.rolled_back.offsets if found.rolled_back is not None else 0


@pytest.mark.parametrize(("version", "deletes"), [(2, "equality"), (3, "positions")])
def test_spark_rolls_a_table_of_changes_back_and_every_change_comes_again(
    version: int,
    deletes: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    topic: Callable[..., Topic],
    unique: str,
) -> None:
    where = str(tmp_path) if version == 2 else str(request.getfixturevalue("rest_uri"))
    sink, name = sink_in(where, tmp_path, topic(), unique), f"db.{unique}"
    sink.keys |= {
        "iceberg.tables": name,
        "iceberg.tables.cdc-field": "op",
        "iceberg.tables.row-deletes": deletes,
        "iceberg.tables.auto-create-props.format-version": str(version),
        f"iceberg.table.{name}.id-columns": "id",
        "iceberg.batch.max-records": "25",
    }
    catalog = open_catalog("iceberg", sink.catalog_keys)

    def assert_rows(end: int) -> None:
        lines(load(sink.config), [name], ["deletes", "bounds"])  # pyiceberg reads positions only
        assert_replayed(sink, end, name)

    change(sink, 0, 120)
    sink.run_here()
    assert_rows(120)
    first = head_of(catalog, name)
    change(sink, 120, 200)
    sink.run_here()
    last = head_of(catalog, name)
    spark_on(where, f"call iceberg.system.rollback_to_snapshot('{name}', {first})")
    assert offsets_gone(sink) == 80
    assert_rows(120)
    assert offsets_gone(sink) == 80
    sink.recover_here(rolled_back=[name])
    sink.run_here()
    assert offsets_gone(sink) == 0
    assert_rows(200)
    spark = f"select id, n from iceberg.{name} order by id"
    rows, marks = spark_on(where, spark, f"select file_format from iceberg.{name}.delete_files")
    assert [(row["id"], row["n"]) for row in rows] == pyiceberg_rows(catalog, name)
    assert version == 2 or {mark["file_format"] for mark in marks} == {"PUFFIN"}
    # The abandoned head holds the same changes, so a head that is set to it has lost none.
    _, again = spark_on(where, f"call iceberg.system.set_current_snapshot('{name}', {last})", spark)
    assert again == rows
    assert offsets_gone(sink) == 0
    change(sink, 200, 210)
    sink.run_here()
    assert_rows(210)


def test_records_that_spark_cherry_picks_after_a_rollback_are_not_read_again(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    sink, heads = sink_in(str(tmp_path), tmp_path, topic(), unique), []
    catalog = open_catalog("iceberg", sink.catalog_keys)
    for first in range(0, 400, 100):
        sink.send(first, first + 100)
        sink.run_here()
        heads.append(head_of(catalog, "db.t"))
    spark_on(
        str(tmp_path),
        f"call iceberg.system.rollback_to_snapshot('db.t', {heads[0]})",
        f"call iceberg.system.cherrypick_snapshot('db.t', {heads[2]})",
    )
    assert offsets_gone(sink) == 200
    sink.send(400, 410)
    sink.run_here()
    assert offsets_gone(sink) == 200
    sink.recover_here(rolled_back=["db.t"])
    sink.run_here()
    sink.assert_exactly_once(410)


def head_of(catalog: Catalog, name: str) -> int:
    head = catalog.load_table(name).metadata.current_snapshot_id
    assert head is not None
    return head


def pyiceberg_rows(catalog: Catalog, name: str) -> list[tuple[Any, ...]]:
    rows = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["n"]) for row in rows)


@pytest.mark.parametrize(("version", "procedure"), [(2, "rollback_to_snapshot"), (3, "set_current_snapshot")])
def test_spark_reads_what_was_restored_beneath_later_commits(
    version: int,
    procedure: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    topic: Callable[..., Topic],
    unique: str,
) -> None:
    where = str(tmp_path) if version == 2 else str(request.getfixturevalue("rest_uri"))
    sink, name, heads = sink_in(where, tmp_path, topic(), unique), f"db.{unique}", []
    sink.keys |= {"iceberg.tables": name, "iceberg.tables.auto-create-props.format-version": str(version)}
    catalog = open_catalog("iceberg", sink.catalog_keys)
    for first in range(0, 300, 100):
        sink.send(first, first + 100)
        sink.run_here()
        heads.append(head_of(catalog, name))
    spark_on(where, f"call iceberg.system.{procedure}('{name}', {heads[0]})")
    sink.send(300, 310)
    sink.run_here()
    assert offsets_gone(sink) == 200
    [*rollback(load(sink.config), [name], AsItIs(), RollbackAnswer.RESTORE)]
    assert offsets_gone(sink) == 0
    row_ids = "count(distinct _row_id)" if version == 3 else "count(distinct id)"
    ((row,),) = spark_on(where, f"select count(*) n, count(distinct id) ids, {row_ids} row_ids from iceberg.{name}")
    assert (row["n"], row["ids"], row["row_ids"]) == (310, 310, 310)


def test_a_table_that_spark_replaces_is_answered(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> None:
    """CREATE OR REPLACE TABLE AS: a beginning without a snapshot of the sink."""
    sink = sink_in(str(tmp_path), tmp_path, topic(), unique)
    sink.send(0, 100)
    sink.run_here()
    spark_on(
        str(tmp_path),
        "create or replace table iceberg.db.t using iceberg as select cast(-1 as bigint) id",
        "select count(*) n from iceberg.db.t",
    )
    assert offsets_gone(sink) == 100
    [*rollback(load(sink.config), ["db.t"], AsItIs(), RollbackAnswer.FORGET)]
    assert offsets_gone(sink) == 0
    sink.send(100, 110)
    sink.run_here()
    assert sorted(sink.ids()) == [-1, *range(100, 110)]


def _by_snapshot(name: str, snapshot: int, at: str) -> list[str]:
    return [f"call iceberg.system.rollback_to_snapshot('{name}', {snapshot})"]


def _by_time(name: str, snapshot: int, at: str) -> list[str]:
    return [f"call iceberg.system.rollback_to_timestamp('{name}', timestamp '{at}')"]


def _by_current(name: str, snapshot: int, at: str) -> list[str]:
    return [f"call iceberg.system.set_current_snapshot('{name}', {snapshot})"]


def _by_branch(name: str, snapshot: int, at: str) -> list[str]:
    return [f"alter table iceberg.{name} create or replace branch main as of version {snapshot}"]


def _by_replacement(name: str, snapshot: int, at: str) -> list[str]:
    """A table without rows, and with the same schema."""
    return [f"create or replace table iceberg.{name} using iceberg as select * from iceberg.{name} where false"]


MOVES = {
    "rollback_to_snapshot": _by_snapshot,
    "rollback_to_timestamp": _by_time,
    "set_current_snapshot": _by_current,
    "create or replace branch": _by_branch,
    "create or replace table": _by_replacement,
}
SHORT = ("rollback_to_snapshot", "create or replace table")
KINDS = {"appended": (2, False), "changes, version 2": (2, True), "changes, version 3": (3, True)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("move", forms(MOVES, SHORT))
def test_a_table_that_spark_moves_back_in_any_way_holds_what_the_answer_promises(
    move: str, kind: str, request: pytest.FixtureRequest, tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    """Read again. The other answers do not depend on the way back."""
    version, is_changed = KINDS[kind]
    where = str(tmp_path) if version == 2 else str(request.getfixturevalue("rest_uri"))
    sink, name = sink_in(where, tmp_path, topic(), unique), f"db.{unique}"
    sink.keys |= {"iceberg.tables": name, "iceberg.tables.auto-create-props.format-version": str(version)}
    if is_changed:
        sink.keys |= {"iceberg.tables.cdc-field": "op", f"iceberg.table.{name}.id-columns": "id"}
    more = (lambda first, end: change(sink, first, end)) if is_changed else sink.send
    catalog = open_catalog("iceberg", sink.catalog_keys)
    more(0, 60)
    sink.run_here()
    first = catalog.load_table(name).current_snapshot()
    assert first is not None
    more(60, 100)
    sink.run_here()
    at = datetime.fromtimestamp((first.timestamp_ms + 1) / 1000, UTC).isoformat(sep=" ")
    spark_on(where, *MOVES[move](name, first.snapshot_id, at))
    assert offsets_gone(sink) == (100 if move == "create or replace table" else 40)
    if not is_changed:
        more(100, 110)
        sink.run_here()
    [*rollback(load(sink.config), [name], AsItIs(), RollbackAnswer.REREAD)]
    more(110 if not is_changed else 100, 120)
    sink.run_here()
    assert offsets_gone(sink) == 0
    ((found,),) = spark_on(where, f"select count(*) n, count(distinct id) ids from iceberg.{name}")
    if is_changed:
        assert_replayed(sink, 120, name)
        assert found["n"] == found["ids"]
    else:
        assert (found["n"], found["ids"]) == (120, 120)


def test_a_branch_that_spark_moves_forward_again_needs_no_answer(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    sink, heads = sink_in(str(tmp_path), tmp_path, topic(), unique), []
    sink.keys["iceberg.table.db.t.commit-branch"] = "audit"
    catalog = open_catalog("iceberg", sink.catalog_keys)
    for first in (0, 100):
        sink.send(first, first + 100)
        sink.run_here()
        heads.append(catalog.load_table("db.t").metadata.refs["audit"].snapshot_id)
    spark_on(
        str(tmp_path),
        f"alter table iceberg.db.t create branch kept as of version {heads[1]}",
        f"alter table iceberg.db.t create or replace branch audit as of version {heads[0]}",
    )
    assert offsets_gone(sink) == 100
    spark_on(str(tmp_path), "call iceberg.system.fast_forward('db.t', 'audit', 'kept')")
    assert offsets_gone(sink) == 0
    sink.send(200, 210)
    sink.run_here()
    ((found,),) = spark_on(
        str(tmp_path), "select count(*) n, count(distinct id) ids from iceberg.db.t version as of 'audit'"
    )
    assert (found["n"], found["ids"]) == (210, 210)
