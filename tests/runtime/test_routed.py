"""Looking for the tables of a sink that routes freely, in a catalog that others write, too."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField

from calving.errors import AccessDeniedError, ConfigError, NewerVersionError, UnavailableError
from calving.iceberg.catalog import open_catalog
from calving.model.forms import NEWEST
from calving.protocol.forms import FORM
from calving.protocol.ledger_key import LEDGER_SNAPSHOT, LOG_ID, ROLLBACK_ANSWERED, SOURCE_OFFSETS
from calving.protocol.recovery import AWAITED_OFFSETS
from calving.runtime.preflight import held, owner_of
from calving.runtime.routed import RoutedTables, routed_tables
from tests.iceberg.refusing import deny
from tests.serving.sinks import sink

FREE = sink(**{"iceberg.tables": "", "iceberg.tables.route-field": "to", "iceberg.tables.dynamic-enabled": "true"})
OWN = owner_of(FREE)
OFFSETS = f"kafka.connect.offsets.{OWN}"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """With a table of this sink, in ``db.mine``."""
    made = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    made.create_namespace("db")
    add(made, "mine", {OFFSETS: "{}"})
    return made


def add(catalog: Catalog, name: str, properties: Mapping[str, str]) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    catalog.create_table(f"db.{name}", schema, properties=dict(properties))


def routed(catalog: Catalog) -> RoutedTables:
    return routed_tables(catalog, FREE, {"orders"})


@pytest.mark.parametrize("name", [f"{SOURCE_OFFSETS}.zzz", f"{FORM}.zzz"])
def test_a_damaged_property_of_another_sink_in_a_table_never_written_is_passed_over(
    catalog: Catalog, name: str
) -> None:
    add(catalog, "theirs", {name: "["})
    assert routed(catalog) == RoutedTables(["db.mine"], {}, witness="db.mine")


def test_a_damaged_property_of_another_sink_hides_no_record_of_this_one(catalog: Catalog) -> None:
    add(catalog, "both", {OFFSETS: "{}", f"{SOURCE_OFFSETS}.{OWN}": '{"orders":[7]}', f"{SOURCE_OFFSETS}.zzz": "["})
    assert sorted(routed(catalog).sound(FREE)) == ["db.both", "db.mine"]
    (record,) = dict(held(catalog, FREE, "log", ["db.both"])).values()
    assert [*record.ledger.source.values()] == [7]


def test_a_damaged_property_hides_no_other_sink_that_wrote_the_topics(catalog: Catalog) -> None:
    add(catalog, "theirs", {f"{SOURCE_OFFSETS}.zzz": "[", f"{SOURCE_OFFSETS}.former": '{"orders":[7]}'})
    assert sorted(routed(catalog).sound(FREE)) == ["db.mine", "db.theirs"]


@pytest.mark.parametrize("kind", [FORM, SOURCE_OFFSETS, AWAITED_OFFSETS, ROLLBACK_ANSWERED, "kafka.connect.offsets"])
def test_a_table_whose_record_of_the_sink_is_damaged_is_told_and_left_out(
    catalog: Catalog, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    add(catalog, "damaged", {f"{LOG_ID}.{OWN}": "log", f"{kind}.{OWN}": "["})
    tables = routed(catalog)
    with caplog.at_level(logging.WARNING):
        assert tables.sound(FREE) == ["db.mine"]
    assert f"table db.damaged: '{kind}.{OWN}'" in caplog.text
    with pytest.raises(ConfigError, match=r"table db\.damaged"):
        tables.all()


@pytest.mark.parametrize("content", [None, b"no manifest list"])
def test_a_table_of_the_sink_whose_files_are_damaged_is_told(catalog: Catalog, content: bytes | None) -> None:
    """Whether it was rolled back, only its files tell: the sink's last commit has expired."""
    said = {f"{SOURCE_OFFSETS}.{OWN}": '{"orders":[7]}', f"{LEDGER_SNAPSHOT}.{OWN}": "5:5"}
    add(catalog, "damaged", {f"{LOG_ID}.{OWN}": "log", OFFSETS: "{}", **said})
    table = catalog.load_table("db.damaged")
    path = Path(table.location().removeprefix("file://"), "metadata", "x.avro")
    if content is not None:
        path.write_bytes(content)
    head = Snapshot(
        snapshot_id=9,
        parent_snapshot_id=8,
        sequence_number=9,
        timestamp_ms=table.metadata.last_updated_ms,
        manifest_list=f"file://{path}",
        summary=Summary(Operation.APPEND),
    )
    to_it = SetSnapshotRefUpdate.model_validate(
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 9}
    )
    table._do_commit((AddSnapshotUpdate(snapshot=head), to_it), ())
    tables = routed(catalog)
    assert tables.names == ["db.mine"] and [*tables.unreadable] == ["db.damaged"]
    with pytest.raises(UnavailableError, match=r"table db\.damaged: it is unknown what it holds"):
        tables.sound(FREE)


def test_a_table_that_is_damaged_while_the_sink_runs_is_left_out_unless_the_settings_name_it(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    add(catalog, "damaged", {f"{SOURCE_OFFSETS}.{OWN}": "["})
    with caplog.at_level(logging.WARNING):
        assert [*dict(held(catalog, FREE, "log", ["db.damaged", "db.mine"]))] == ["db.mine"]
    assert f"table db.damaged: '{SOURCE_OFFSETS}.{OWN}'" in caplog.text
    with pytest.raises(ConfigError, match=r"table db\.damaged"):
        dict(held(catalog, sink(**{"iceberg.tables": "db.damaged"}), "log", ["db.damaged"]))


def test_a_table_that_the_catalog_denies_is_told_and_left_out(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    add(catalog, "secret", {})
    deny(monkeypatch, catalog, "load_table", "db.secret")
    tables = routed(catalog)
    with caplog.at_level(logging.WARNING):
        assert tables.sound(FREE) == ["db.mine"]
        assert [*dict(held(catalog, FREE, "log", ["db.mine", "db.secret"]))] == ["db.mine"]
    assert caplog.text.count("table db.secret cannot be loaded") == 2
    assert tables.witness == "db.mine"


def test_a_denied_table_of_the_settings_stops_a_start(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    add(catalog, "secret", {})
    deny(monkeypatch, catalog, "load_table", "db.secret")
    named = sink(**{"iceberg.tables": "db.mine,db.secret"})
    with pytest.raises(AccessDeniedError, match=r"table db\.secret cannot be loaded"):
        list(held(catalog, named, "log", ["db.mine", "db.secret"]))


def test_a_table_of_a_later_version_of_the_sink_stops_it(catalog: Catalog) -> None:
    add(catalog, "later", {f"{FORM}.{OWN}": str(NEWEST._replace(number=999, version="9.9.9"))})
    with pytest.raises(NewerVersionError, match=r"table db\.later: .* form 999"):
        routed(catalog)
