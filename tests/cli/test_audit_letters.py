"""``calving audit --full`` over bad records, which are in no table: each has to be a dead letter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from calving.cli.audit import AuditAnswer, AuditOrder, shown
from calving.iceberg.catalog import open_catalog
from calving.settings.load import load
from harness.topic import Topic
from tests.cli.commands import Cli

PLACES = {"topic": "errors.deadletterqueue.topic.name", "table": "errors.deadletterqueue.table"}


@pytest.fixture
def cli(tmp_path: Path, topic: Callable[..., Topic], unique: str) -> Cli:
    made = Cli(tmp_path, topic(partitions=2), unique)
    made.keys["errors.tolerance"] = "all"
    return made


def run(cli: Cli, place: str) -> None:
    """Two good records, and two bad ones."""
    cli.keys[PLACES[place]] = f"dead_{cli.name}" if place == "topic" else "db.dead"
    cli.topic.send(b'{"id": 1}', b"{", partition=0)
    cli.topic.send(b'{"id": 2}', b'{"id": {}}', partition=1)
    cli.run_here()


def of_sink(cli: Cli) -> AuditAnswer:
    """What is said after all tables."""
    *tables, last = shown(load(cli.config), AuditOrder(full=True))
    assert all(each.is_well for each in tables), [each.found for each in tables]
    return last


def lost(found: Mapping[str, Any]) -> list[tuple[int, list[int]]]:
    return [(each["partition"], each["offsets"]) for each in found["lost"]]


@pytest.mark.parametrize("place", PLACES)
def test_bad_records_that_are_dead_letters_are_not_lost(cli: Cli, place: str) -> None:
    run(cli, place)
    said = of_sink(cli)
    assert said.is_well and said.found["bad"] == 2 and lost(said.found) == []
    assert [*said.lines] == [f"sink {cli.name}: 2 bad records, 0 lost"]


@pytest.mark.parametrize("place", PLACES)
def test_bad_records_without_a_dead_letter_are_lost(cli: Cli, place: str) -> None:
    run(cli, place)
    cli.keys[PLACES[place]] = f"other_{cli.name}" if place == "topic" else "db.other"
    said = json.loads(cli.run("audit", "--full", "--json", code=1).splitlines()[-1])
    assert lost(said) == [(0, [1]), (1, [1])]


def test_bad_records_are_not_judged_where_letters_do_not_name_them(cli: Cli) -> None:
    cli.keys["errors.deadletterqueue.context.headers.enable"] = False
    run(cli, "topic")
    said = of_sink(cli)
    assert said.is_well and said.found["lost"] is None and "context.headers.enable is false" in "".join(said.lines)


def test_offsets_that_no_table_holds_are_named(cli: Cli) -> None:
    run(cli, "topic")
    table = open_catalog("iceberg", cli.catalog_keys).load_table("db.t")
    owner = f"control-{cli.name}.{load(cli.config).group}"
    source = json.loads(table.properties[f"calving.source-offsets.{owner}"])
    (topic,) = source
    name = f"calving.missing-offsets.{owner}"
    raw = json.loads(local_metadata(table).read_text())
    settled = {f"calving.settled-offsets.{owner}": json.dumps({topic: [0, 0]})}
    hole = {name: json.dumps({topic: {"0": [[1, 2]]}})} | settled
    raw["properties"] |= hole
    for snapshot in raw["snapshots"]:
        snapshot["summary"] |= {each.removesuffix(f".{owner}"): value for each, value in hole.items()}
    local_metadata(table).write_text(json.dumps(raw))
    said = of_sink(cli)
    assert [(each["partition"], each["offsets"]) for each in said.found["nowhere"]] == [(0, [[1, 2]])]


def local_metadata(table: Any) -> Path:
    return Path(table.metadata_location.removeprefix("file://"))
