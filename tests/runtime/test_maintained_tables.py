"""With ``auto`` the leader maintains the tables that its sink has created, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ServiceUnavailableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.iceberg.catalog import open_catalog
from calving.runtime.maintenance.maintained import MaintainedTables
from calving.settings.backfills import backfill_named
from calving.settings.load import Sink, parse

SETTINGS = {
    "name": "x",
    "topics": "t",
    "kafka.bootstrap.servers": "localhost:1",
    "iceberg.tables": "db.t",
    "iceberg.maintenance.enabled": "auto",
}
OWNER = "control-iceberg.connect-x"
PAUSE = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    made = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})
    made.create_namespace("db")
    return made


def create(catalog: Catalog, creator: str | None, **more: str) -> None:
    properties = more | ({} if creator is None else {"calving.created-by": creator})
    catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())), properties=properties)


def sink(**keys: str) -> Sink:
    return parse({**SETTINGS, **keys})


def after_a_pause(catalog: Catalog, one: Sink | None = None) -> tuple[MaintainedTables, Clock]:
    clock = Clock()
    found = MaintainedTables(one or sink(), catalog, clock)
    clock.now += PAUSE
    return found, clock


@pytest.mark.parametrize(
    ("creator", "is_maintained"),
    [(OWNER, True), ("control-iceberg.connect-other", False), (None, False)],
    ids=["its own", "of another sink", "of somebody else"],
)
def test_only_tables_that_the_sink_has_created_are_maintained(
    catalog: Catalog, creator: str | None, is_maintained: bool
) -> None:
    create(catalog, creator)
    maintained, _ = after_a_pause(catalog)
    assert maintained.among(["db.t"]) == ((["db.t"], []) if is_maintained else ([], ["db.t"]))


def test_tables_that_a_former_name_of_the_sink_has_created_are_its_own(catalog: Catalog) -> None:
    create(
        catalog, "control-iceberg.connect-old", **{f"calving.former-names.{OWNER}": '{"control-iceberg.connect-old":7}'}
    )
    maintained, _ = after_a_pause(catalog)
    assert maintained.among(["db.t"]) == (["db.t"], [])


def test_a_leader_that_has_just_begun_maintains_none(catalog: Catalog) -> None:
    create(catalog, OWNER)
    clock = Clock()
    maintained = MaintainedTables(sink(), catalog, clock)
    clock.now += PAUSE - 1
    assert maintained.among(["db.t"]) == ([], [])
    clock.now += 1
    assert maintained.among(["db.t"]) == (["db.t"], [])


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_what_the_settings_say_of_a_table_holds_at_once_whoever_has_created_it(catalog: Catalog, enabled: str) -> None:
    create(catalog, OWNER)
    one = sink(**{"iceberg.table.db.t.maintenance.enabled": enabled})
    maintained = MaintainedTables(one, catalog, Clock())
    assert maintained.among(["db.t"]) == ((["db.t"], []) if enabled == "true" else ([], ["db.t"]))


def test_a_table_that_is_created_again_by_others_is_theirs_after_ten_minutes(catalog: Catalog) -> None:
    create(catalog, OWNER)
    maintained, clock = after_a_pause(catalog)
    maintained.among(["db.t"])
    catalog.drop_table("db.t")
    create(catalog, None)
    clock.now += 600
    assert maintained.among(["db.t"]) == ([], ["db.t"])


def test_a_catalog_is_asked_once_in_ten_minutes_and_its_last_answer_holds(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(catalog, OWNER)
    maintained, clock = after_a_pause(catalog)
    maintained.among(["db.t"])
    asked: list[str] = []

    def away(*given: Any) -> Any:
        asked.append("")
        raise ServiceUnavailableError("away")

    monkeypatch.setattr(type(catalog), "load_table", away)
    clock.now += 599
    assert maintained.among(["db.t"]) == (["db.t"], []) and not asked
    clock.now += 1
    assert maintained.among(["db.t"]) == (["db.t"], []) and asked


def test_of_a_table_that_does_not_exist_nothing_is_known(catalog: Catalog) -> None:
    maintained, _ = after_a_pause(catalog)
    assert maintained.among(["db.t"]) == ([], [])
    create(catalog, OWNER)
    assert maintained.among(["db.t"]) == (["db.t"], [])


def test_what_replays_and_backfills_of_a_sink_create_counts_as_its_own() -> None:
    letters = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    replay, backfill = sink(**letters).replay(), backfill_named(sink(), "may")
    assert len({replay.group, backfill.group, sink().group}) == 3
    assert replay.creator == backfill.creator == OWNER
