"""``calving maintain --task orphans`` as a user runs it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog

from calving.backend.memory import MemoryBackend, MemoryStore
from calving.errors import CommandFailedError, ConfigError
from calving.iceberg.catalog import open_catalog
from calving.maintenance import orphan_search
from calving.model.offsets import Span, TopicPartition, encode_coverage
from calving.runtime.maintenance.step import MaintenanceStep
from calving.settings.load import Sink, load
from harness.topic import Topic
from tests.cli import maintaining
from tests.cli.commands import Cli
from tests.cli.test_compact import sink_of, table_with
from tests.iceberg.histories import MutationTable
from tests.maintenance.searching import path_of, publish
from tests.tasks.conftest import encode

DAY = 86_400


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path / "warehouse")})


@pytest.fixture(autouse=True)
def stores(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryStore]:
    """The control log of the sink that writes the tables, by its group."""
    stores = {"connect-x": MemoryStore(identity="log-1")}
    monkeypatch.setattr(MemoryBackend, "_stores", stores)
    return stores


def sink(tmp_path: Path, table: MutationTable, *, group: str = "connect-x", **more: Any) -> Sink:
    keys = {"iceberg.control.backend": "memory", "iceberg.connect.group-id": group, "iceberg.control.topic": "control"}
    return sink_of(tmp_path, table.name, **keys, **more)


def left_over(table: MutationTable, days: float = 4) -> Path:
    path = path_of(table.table.location()) / "data" / f"{uuid4()}.parquet"
    path.write_bytes(b"left")
    at = time.time() - days * DAY
    os.utime(path, (at, at))
    return path


def steps(sink: Sink, *others: Sink, dry_run: bool = False) -> list[MaintenanceStep]:
    now_ms = int(time.time() * 1000)
    return list(maintaining.steps(sink, (), ["orphans"], now_ms=now_ms, dry_run=dry_run, other_sinks=others))


def test_orphan_files_are_deleted_and_only_once(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 2)
    orphan, young, own = left_over(table), left_over(table, 2), sink(tmp_path, table)
    (step,) = steps(own)
    assert re.fullmatch(
        rf"table {table.name}: 1 orphan file \(4 B: 1 data file; the oldest of \d{{4}}-\d\d-\d\d \d\d:\d\d UTC\) deleted,"
        r" \d+ files looked at",
        step.line(),
    )
    assert not orphan.exists() and young.exists() and len(table.table.scan().to_arrow()) == 2
    (step,) = steps(own)
    assert step.outcome == "nothing" and step.text.startswith("no orphan files, ")


def test_a_dry_run_names_the_files_and_changes_nothing(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 1)
    orphan = left_over(table)
    before = set(tmp_path.rglob("*"))
    (step,) = steps(sink(tmp_path, table), dry_run=True)
    assert step.outcome == "planned" and step.text.endswith(
        f"would be deleted, {step.numbers['looked_at']} files looked at, because nothing names them:\n  file://{orphan}"
    )
    assert step.numbers["paths"] == [f"file://{orphan}"] and step.numbers["bytes"] == 4
    assert set(tmp_path.rglob("*")) - before <= {tmp_path / "sink.json"}


def test_the_age_is_a_setting_of_the_sink_and_of_a_table(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 1)
    left_over(table, 4)
    older: dict[str, Any] = {"iceberg.maintenance.orphans-older-than-ms": 5 * DAY * 1000}
    assert steps(sink(tmp_path, table, **older))[0].outcome == "nothing"
    own = {**older, f"iceberg.table.{table.name}.maintenance.orphans-older-than-ms": DAY * 1000}
    assert steps(sink(tmp_path, table, **own))[0].outcome == "done"
    with pytest.raises(ConfigError, match=r"orphans-older-than-ms"):
        sink(tmp_path, table, **dict[str, Any]({"iceberg.maintenance.orphans-older-than-ms": DAY * 1000 - 1}))


def test_the_table_may_forbid_it(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 1)
    orphan = left_over(table)
    with table.table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    (step,) = steps(sink(tmp_path, table))
    assert (step.outcome, step.text) == ("left alone", "orphan files stay: its property gc.enabled is false")
    assert orphan.exists()


def test_a_location_of_two_tables_is_left_alone(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 1)
    orphan = left_over(table)
    catalog.create_table("mutations.inner", table.table.schema(), location=f"{table.table.location()}/data/inner")
    (step,) = steps(sink(tmp_path, table))
    assert step.text == "orphan files stay: its location contains files of table mutations.inner"
    assert orphan.exists()


def test_a_table_whose_name_has_a_dot_within_a_level_may_lie_anywhere(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_with(catalog, 1)
    orphan = left_over(table)
    monkeypatch.setattr("calving.runtime.maintenance.orphans.tables_of", lambda _: [("mutations", "a.b")])
    (step,) = steps(sink(tmp_path, table))
    assert step.text == (
        "orphan files stay: it is unknown whether another table lies in its folders: table mutations.a.b cannot be"
        " loaded: a level of its name has a dot"
    )
    assert orphan.exists()


def test_another_sink_of_the_table_is_given_with_its_file(
    catalog: Catalog, tmp_path: Path, stores: dict[str, MemoryStore]
) -> None:
    table = table_with(catalog, 1)
    waiting, other = left_over(table), "connect-y"
    with table.table.transaction() as change:
        change.set_properties({f"kafka.connect.offsets.control.{other}": '{"0":1}'})
    own = sink(tmp_path, table)
    with pytest.raises(CommandFailedError, match="1 step failed, as said above"):
        steps(own)
    publish(stores.setdefault(other, MemoryStore(identity="other")), table.table, waiting)
    (step,) = steps(own, sink(tmp_path, table, group=other))
    assert step.outcome == "nothing" and waiting.exists()


def test_a_table_that_was_rolled_back_waits_for_an_answer(catalog: Catalog, tmp_path: Path) -> None:
    table = table_with(catalog, 1)
    orphan, gone = left_over(table), encode_coverage({TopicPartition("t", 0): (Span(0, 5),)})
    with table.table.transaction() as change:
        change.set_properties({"calving.gone-offsets.control.connect-x": gone})
    (step,) = steps(sink(tmp_path, table))
    assert step.outcome == "left alone" and "it was rolled back, and nobody has answered" in step.text
    assert orphan.exists()


def test_nothing_is_deleted_while_the_clocks_differ(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_with(catalog, 1)
    orphan = left_over(table)
    monkeypatch.setattr(orphan_search, "modified_ms", lambda *given: 0)
    with pytest.raises(CommandFailedError, match="1 step failed, as said above"):
        steps(sink(tmp_path, table))
    assert orphan.exists()


def test_a_log_that_has_lost_entries_is_not_read_on(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever iceberg.control.on-truncation says: the lost entries may have named files."""
    settings: list[Any] = []
    opened = MemoryBackend.__init__

    def and_note(backend: MemoryBackend, identity: Any, given: Any) -> None:
        settings.append(given)
        opened(backend, identity, given)

    monkeypatch.setattr(MemoryBackend, "__init__", and_note)
    table = table_with(catalog, 1)
    steps(sink(tmp_path, table))
    assert [each.on_truncation for each in settings] == ["fail"]


@pytest.mark.services
def test_control_logs_of_several_sinks_are_read_in_kafka(
    tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    sinks = []
    for number in (1, 2):
        (tmp_path / f"{number}").mkdir()
        cli = Cli(tmp_path / f"{number}", topic(), f"{unique}-{number}")
        cli.keys["iceberg.catalog.warehouse"] = str(tmp_path / "warehouse")
        cli.topic.send(*encode({"id": number}))
        cli.run_here()
        sinks.append(load(cli.config))
    keys = {"type": "embedded", "warehouse": str(tmp_path / "warehouse")}
    table = MutationTable(open_catalog("iceberg", keys), "db.t")
    orphan = left_over(table)
    with pytest.raises(CommandFailedError):
        steps(sinks[0])
    (step,) = steps(*sinks)
    assert step.outcome == "done" and step.numbers["paths"] == [f"file://{orphan}"]
    assert len(table.table.scan().to_arrow()) == 2
