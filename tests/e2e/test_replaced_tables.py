"""One of a sink's tables is replaced while the sink commits, in a catalog that swaps the whole metadata: that table is
rolled back, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from calving.cli.status import status
from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs
from calving.settings.load import load
from harness.replacing import replace_table
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli
from tests.e2e.test_catalog import assert_replayed, change, routed, send_to
from tests.e2e.test_rollback import answered, table_of

pytestmark = pytest.mark.services
FORGET, RESTORE, REREAD = RollbackAnswer.FORGET, RollbackAnswer.RESTORE, RollbackAnswer.REREAD


def replaced(sink: Cli, commit: Callable[[], None], table: str) -> None:
    """Somebody replaces a table by one without rows, and the sink commits meanwhile."""
    begun = table_of(sink, table)
    rows = pa.Table.from_pylist([], schema=begun.schema().as_arrow())
    commit()
    assert replace_table(open_catalog("iceberg", sink.catalog_keys), begun, rows)


def lost(sink: Cli) -> dict[str, int]:
    """By table, the number of offsets that it lacks, as `calving status` says."""
    tables = status(load(sink.config)).tables
    return {each.name: each.rolled_back.offsets for each in tables if each.rolled_back is not None}


def takes_nothing(sink: Cli, table: str) -> bool:
    return any(f"table {table} was rolled back" in reason for reason in status(load(sink.config)).reasons)


def is_noted(sink: Cli, table: str) -> bool:
    """Whether the table's properties say what was discarded."""
    return any(name.startswith("calving.discarded-offsets.") for name in table_of(sink, table).properties)


def until(sink: Cli, done: Callable[[], bool]) -> None:
    """A worker runs until then."""
    worker = sink.started()
    try:
        wait_for(done, 60)
    finally:
        worker.kill()
    sink._wait_until_forgotten()


@pytest.fixture
def sink(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Cli:
    """20 records for each of two tables, twice; the second ones of db.a are discarded."""
    made, _ = routed(tmp_path, topic(), unique, keys)

    def commit(start: int = 40) -> None:
        send_to(made, "db.a", start, start + 20)
        send_to(made, "db.b", start + 20, start + 40)
        made.run_here()

    commit(0)
    replaced(made, commit, "db.a")
    return made


def test_the_table_gets_later_records_and_so_do_the_others(sink: Cli) -> None:
    send_to(sink, "db.a", 80, 90)
    send_to(sink, "db.b", 90, 100)
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(80, 90)]
    assert sorted(sink.ids("db.b")) == [*range(20, 40), *range(60, 80), *range(90, 100)]
    assert lost(sink) == {"db.a": 80}


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_the_next_leader_notices_it_without_new_records_for_the_table(sink: Cli) -> None:
    send_to(sink, "db.b", 80, 90)
    sink.run_here()
    assert lost(sink) == {"db.a": 90}
    assert sorted(sink.ids("db.b")) == [*range(20, 40), *range(60, 90)]


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_another_table_goes_on_while_one_takes_nothing(sink: Cli) -> None:
    sink.keys["iceberg.table.db.a.on-rollback"] = "stop"
    send_to(sink, "db.b", 80, 90)
    send_to(sink, "db.a", 90, 100)
    until(sink, lambda: len(sink.ids("db.b")) == 50 and takes_nothing(sink, "db.a"))
    assert sorted(sink.ids("db.b")) == [*range(20, 40), *range(60, 90)]
    assert sink.ids("db.a") == []
    answered(sink, AsItIs(), REREAD, "db.a")
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(20), *range(40, 60), *range(90, 100)]
    assert sorted(sink.ids("db.b")) == [*range(20, 40), *range(60, 90)]


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
@pytest.mark.parametrize("answer", [FORGET, REREAD])
def test_the_answer_keeps_its_promise_for_that_table_alone(sink: Cli, answer: RollbackAnswer) -> None:
    send_to(sink, "db.a", 80, 90)
    sink.run_here()
    answered(sink, AsItIs(), answer, "db.a", again=answer is FORGET)
    sink.run_here()
    again = [*range(20), *range(40, 60)] if answer is REREAD else []
    assert sorted(sink.ids("db.a")) == [*again, *range(80, 90)]
    assert sorted(sink.ids("db.b")) == [*range(20, 40), *range(60, 80)]
    assert lost(sink) == {}


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_what_has_files_is_restored_and_the_rest_is_read_again(sink: Cli) -> None:
    send_to(sink, "db.a", 80, 90)
    sink.run_here()
    said = answered(sink, AsItIs(), RESTORE, "db.a")
    assert "their snapshots are discarded: give the answer `reread` or `forget` for them afterwards" in said[1]
    assert sorted(sink.ids("db.a")) == [*range(20), *range(80, 90)]
    with pytest.raises(ConfigError, match=r"nobody knows their files; what is left is `reread` or `forget`"):
        answered(sink, AsItIs(), RESTORE, "db.a")
    answered(sink, AsItIs(), REREAD, "db.a")
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(20), *range(40, 60), *range(80, 90)]
    assert lost(sink) == {}


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_what_the_statement_saw_is_forgotten_and_the_rest_is_read_again(sink: Cli) -> None:
    send_to(sink, "db.a", 80, 90)
    sink.run_here()
    said = answered(sink, AsItIs(), FORGET, "db.a")
    assert "give the answer `reread` or `forget` with --again for them afterwards" in said[1]
    with pytest.raises(ConfigError, match=r"give `reread` for them, or `forget` with --again"):
        answered(sink, AsItIs(), FORGET, "db.a")
    answered(sink, AsItIs(), REREAD, "db.a")
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(40, 60), *range(80, 90)]
    assert lost(sink) == {}


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
@pytest.mark.parametrize("answer", [FORGET, RESTORE])
def test_nothing_is_answered_that_nobody_has_noted(sink: Cli, answer: RollbackAnswer) -> None:
    before = table_of(sink, "db.a").metadata_location
    with pytest.raises(ConfigError, match=r"nobody has noted yet what the catalog has discarded"):
        answered(sink, AsItIs(), answer, "db.a")
    assert table_of(sink, "db.a").metadata_location == before


@pytest.mark.long
@pytest.mark.parametrize("keys", ["redis", "zookeeper"], indirect=True)
def test_a_recovery_of_another_table_does_not_delay_the_answer(sink: Cli) -> None:
    """It begins another control log, of which the table with the discarded commits has got none yet."""
    sink.keys["iceberg.table.db.a.on-rollback"] = "stop"
    send_to(sink, "db.a", 80, 90)
    until(sink, lambda: takes_nothing(sink, "db.a") and is_noted(sink, "db.a"))
    table = table_of(sink, "db.b")
    table.manage_snapshots().rollback_to_snapshot(table.history()[-2].snapshot_id).commit()
    answered(sink, AsItIs(), REREAD, "db.b")
    answered(sink, AsItIs(), FORGET, "db.a", again=True)
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(80, 90)]
    assert sorted(sink.ids("db.b")) == [*range(20, 40), *range(60, 80)]


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_an_answer_before_the_sink_has_noticed_reads_all_of_it_again(sink: Cli) -> None:
    answered(sink, AsItIs(), REREAD, "db.a")
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(20), *range(40, 60)]
    assert lost(sink) == {}


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_table_of_changes_takes_nothing_until_all_are_read_again(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    made = Cli(tmp_path, topic(), unique)
    made.keys |= keys | {"iceberg.tables.cdc-field": "op", "iceberg.table.db.t.id-columns": "id"}
    change(made, 0, 120)
    made.run_here()

    def commit() -> None:
        change(made, 120, 140)
        made.run_here()

    replaced(made, commit, "db.t")
    change(made, 140, 160)
    until(made, lambda: takes_nothing(made, "db.t") and lost(made) == {"db.t": 140})
    assert len(table_of(made).scan().to_arrow()) == 0
    assert lost(made) == {"db.t": 140}
    with pytest.raises(ConfigError, match=r"what is left is `reread` or `forget`"):
        answered(made, AsItIs(), RESTORE)
    answered(made, AsItIs(), REREAD)
    made.run_here()
    assert_replayed(made, 160)
