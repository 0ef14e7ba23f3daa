"""The sink that a backfill is: the settings of another sink, but for its names, its branch and its tables."""

from __future__ import annotations

import pytest

from calving.errors import ConfigError
from calving.model.offsets import Span, TopicPartition
from calving.settings.backfills import backfill_of, backfills_among, check_publication, within_range
from calving.settings.load import Sink, parse
from calving.settings.records import branches
from calving.source.backfill import BackfillOrder
from calving.source.start import EARLIEST, Start

PLAIN = {"name": "s", "topics": "orders", "iceberg.tables": "db.t, db.u", "kafka.bootstrap.servers": "localhost:9092"}
UPSERT = {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}
FREE = {
    **{name: text for name, text in PLAIN.items() if name != "iceberg.tables"},
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "route",
    "iceberg.tables.auto-create-enabled": "true",
}


def asked(branch: str | None = None, *tables: str) -> BackfillOrder:
    return BackfillOrder(EARLIEST, Start("latest"), branch, tables, "x")


def filled(keys: dict[str, str], order: BackfillOrder) -> Sink:
    return backfill_of(parse(keys), order)


def test_a_backfill_has_a_group_of_its_own_and_knows_its_sink() -> None:
    made = filled({**PLAIN, "iceberg.control.other-sinks": "c.g"}, asked())
    assert (made.group, made.keys.name) == ("connect-s.backfill.x", "s-backfill-x")
    assert made.keys.other_sinks == ("c.g", "control-iceberg.connect-s")


@pytest.mark.parametrize("key", ["name", "iceberg.connect.group-id", "iceberg.control.topic"])
def test_no_other_sink_has_the_name_of_a_backfill(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: '(connect-)?s\.backfill\.x' has '\.backfill\.'"):
        parse({**PLAIN, key: "s.backfill.x"})


def test_a_backfill_neither_serves_nor_maintains_nor_skips() -> None:
    keys = {
        "iceberg.http.port": "8080",
        "iceberg.notify.webhook-url": "http://localhost/x",
        "iceberg.maintenance.enabled": "true",
        "iceberg.table.db.t.maintenance.enabled": "true",
        "iceberg.source.on-data-loss": "skip",
    }
    made = filled(PLAIN | keys, asked())
    assert (made.keys.http_port, made.keys.webhook_url, made.maintains_any) == (None, None, False)
    assert made.keys.on_data_loss == "fail"


def test_a_branch_is_that_of_all_tables() -> None:
    keys = PLAIN | {"iceberg.table.db.t.commit-branch": "own"}
    of_sink, of_backfill = (branches(each.keys, each.tables) for each in (parse(keys), filled(keys, asked("b"))))
    assert [of_sink.of(("db", name)) for name in "tu"] == ["own", "main"]
    assert [of_backfill.of(("db", name)) for name in "tu"] == ["b", "b"]


@pytest.mark.parametrize("branch", ["", " ", " past", "pa\nst"])
def test_a_branch_that_nothing_can_name_is_refused(branch: str) -> None:
    """An empty one, as of a variable that a script has not set, would stand for main."""
    with pytest.raises(ConfigError, match=f"--branch '{branch}': (must not be empty|has a)"):
        filled(PLAIN, asked(branch))


def test_named_tables_are_the_only_ones_and_other_records_are_filtered() -> None:
    made = filled(PLAIN, asked(None, "db.u"))
    assert (made.keys.tables, made.keys.on_unrouted) == (("db.u",), "skip")
    with pytest.raises(ConfigError, match=r"--table db\.v: the sink does not write it; its tables are db\.t, db\.u"):
        filled(PLAIN, asked(None, "db.v"))


def test_of_tables_that_records_name_any_can_be_named() -> None:
    made = filled(FREE, asked(None, "db.U"))
    assert made.scope is not None
    assert made.scope.tables == {"db.u"}
    with pytest.raises(ConfigError, match="--table u: that is no table's name"):
        filled(FREE, asked(None, "u"))


@pytest.mark.parametrize("keys", [PLAIN, FREE])
def test_old_changes_of_rows_go_to_another_branch_and_are_not_published(keys: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="come after the later ones that the sink has made in branch main"):
        filled(keys | UPSERT, asked())
    filled(keys | UPSERT, asked("b"))
    with pytest.raises(ConfigError, match="come beneath the later ones"):
        check_publication(parse(keys | UPSERT), asked("b"))


def test_a_table_beside_one_with_changes_can_be_filled() -> None:
    keys = PLAIN | {"iceberg.table.db.t.upsert-mode-enabled": "true", "iceberg.table.db.t.id-columns": "id"}
    with pytest.raises(ConfigError, match=r"table db\.t: its rows change by key"):
        filled(keys, asked())
    assert filled(keys, asked(None, "db.u")).keys.tables == ("db.u",)


def test_only_a_branch_is_published() -> None:
    with pytest.raises(ConfigError, match="name it with --branch"):
        check_publication(parse(PLAIN), asked())


def test_a_range_is_where_reading_begins_and_ends() -> None:
    tp = TopicPartition("orders", 0)
    made = within_range(filled(PLAIN, asked()), {tp: Span(5, 9)})
    assert made.keys.start == Start(offsets=((tp, 5),))
    assert made.scope is not None
    assert made.scope.ends == {tp: 9}


def test_the_backfills_of_a_sink_are_known_by_their_names() -> None:
    sink, owner = parse(PLAIN), "control-iceberg.connect-s"
    found = backfills_among([sink], [owner, f"{owner}.backfill.x", f"{owner}2.backfill.y"])
    assert [each.group for each in found] == ["connect-s.backfill.x"]
