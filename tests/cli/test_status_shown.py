"""``calving status`` without services: a sink with a broken table, what its leader says of it, and how it is shown."""

from __future__ import annotations

import io
import socket
import time
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from rich.console import Console

from calving.cli import main
from calving.cli.health import TableHealth, health
from calving.cli.inspect import Position
from calving.cli.leader import reasons_of
from calving.cli.status import Status, as_json, as_text
from calving.iceberg.catalog import open_catalog
from calving.model.events import Leader
from calving.model.offsets import TopicPartition
from calving.runtime.heard import Heard
from tests.serving.sinks import Worker, serving, sink, status

TABLES = tuple(TableHealth(f"db.t{n:02}", "ok", "1000", 90.0) for n in range(20))
BROKEN = (*TABLES[:-1], TableHealth("db.t19", "DEGRADED", why="table db.t19 cannot be loaded: [Errno 2] no file"))


def seen(tables: tuple[TableHealth, ...] = TABLES, told: tuple[tuple[str, str], ...] | None = None) -> Status:
    partitions = tuple(Position(TopicPartition("orders", p), 10, 0, 10 + p, 10, answered=True) for p in range(6))
    return Status(sink(), partitions, tables, 1, None, told)


def shown(found: Status, lines: int | None = None, width: int = 80) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(*as_text(found, 100.0, lines), sep="\n", highlight=False)
    return console.export_text().splitlines()


def test_a_table_that_cannot_be_loaded_is_degraded_and_the_others_are_as_they_are(tmp_path: Path) -> None:
    keys = {"type": "embedded", "warehouse": str(tmp_path)}
    catalog = open_catalog("iceberg", keys)
    catalog.create_namespace("db")
    for name in ("db.broken", "db.well"):
        catalog.create_table(name, Schema(NestedField(1, "id", LongType(), required=False)))
    (tmp_path / "db" / "broken" / "metadata").rename(tmp_path / "away")
    configured = sink(**{"iceberg.tables": "db.broken,db.well", "iceberg.tables.route-field": "r"})
    broken, well = health(configured, catalog, Heard("log", {0: 0}), ["orders"])
    assert (broken.name, broken.state, well.state) == ("db.broken", "DEGRADED", "ok")
    assert broken.why.startswith("table db.broken cannot be loaded: ")


def test_the_broken_one_of_twenty_tables_is_named_with_its_reason() -> None:
    found = seen(BROKEN)
    assert not found.well
    assert found.reasons == ["table db.t19 cannot be loaded: [Errno 2] no file"]
    text = shown(found)
    assert "DEGRADED: table db.t19 cannot be loaded: [Errno 2] no file" in text
    assert max(map(len, text)) <= 80


def test_a_screen_shows_the_broken_table_first_and_has_room_for_the_reason() -> None:
    text = shown(seen(BROKEN), lines=24)
    assert len(text) <= 24
    (cut,) = (line for line in text if line.startswith("and "))
    assert cut.endswith("tables more")
    rows = [line for line in text if "db.t" in line and "│" in line]
    assert "db.t19" in rows[0] and "DEGRADED" in rows[0]
    assert any("[Errno 2] no file" in line for line in text)


def test_the_leaders_words_are_those_of_status() -> None:
    page = status(time.time(), tables=20, broken=1)
    with serving(Worker(page)) as client:
        leader = Leader("m-1", socket.gethostname(), client.url)
        told = reasons_of(leader, "orders")
        other = reasons_of(Leader("m-1", "elsewhere", client.url), "orders")
        (reason,) = client.get("/connectors/orders/status").json["calving"]["reasons"]
    assert told == [("db.t000", reason["text"])]
    assert other is None  # a loopback address is another machine's there
    assert reasons_of(leader, "orders") is None  # it is gone
    found = seen((TableHealth("db.t000", "DEGRADED", files=1, cycles=4),), tuple(told))
    assert found.reasons == as_json(found, 100.0)["reasons"] == [reason["text"]]


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "ftp://k2/"])
def test_only_addresses_of_the_web_are_asked(url: str) -> None:
    assert reasons_of(Leader("m-1", "k2", url), "orders") is None


def test_a_sink_is_not_well_where_its_leader_says_so() -> None:
    assert seen().well and seen(told=()).well
    assert not seen(told=(("", "2.0% of the records of the last batches are dead letters"),)).well


def test_an_error_is_shown_as_it_is_also_if_it_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    main._tell_error("table db.t: [Errno 2] no file [/red]")
    assert capsys.readouterr().err == "error: table db.t: [Errno 2] no file [/red]\n"
