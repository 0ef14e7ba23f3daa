"""Tables that others change: a restored catalog, a rollback, recreated tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import Catalog
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from calving.cli import recover
from calving.cli.release import release
from calving.cli.rollback import rollback
from calving.cli.status import status
from calving.errors import CalvingError, ConfigError, DataLossError
from calving.iceberg.catalog import open_catalog
from calving.model.tables import RollbackAnswer
from calving.protocol.answers import AsItIs
from calving.settings.load import load
from calving.source.client import client_config
from harness.forms import forms
from harness.replacing import swap_metadata
from harness.run import Run, died
from harness.sent import TABLES
from harness.topic import Topic
from harness.waiting import wait_for
from tests.cli.commands import Cli
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services


def test_a_catalog_that_went_back_is_noticed_and_recovered(sink: Cli) -> None:
    catalog = sink.folder / "warehouse" / "catalog.db"
    shutil.copy(catalog, sink.folder / "backup.db")
    sink.send(300, 600)
    sink.run_here()
    shutil.copy(sink.folder / "backup.db", catalog)
    sink.send(600, 650)
    with pytest.raises(DataLossError, match=r"the catalog shows an older state.*calving recover FILE"):
        sink.run_here()
    assert len(sink.ids()) == 300
    sink.recover_here()
    sink.run_here()
    sink.assert_exactly_once(650)


@pytest.mark.parametrize(
    "is_cut_off", forms([False, True], [True]), ids=["at once", "after a recovery that was cut off"]
)
def test_what_one_table_lost_is_noticed_without_records_for_it_and_comes_back_although_another_is_committed(
    tmp_path: Path,
    topic: Callable[..., Topic],
    unique: str,
    keys: dict[str, str],
    is_cut_off: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The restored catalog shows an older state of one table only; the other's ledger calls all of it settled."""
    sink, _ = routed(tmp_path, topic(), unique, keys)
    catalog = tmp_path / "warehouse" / "catalog.db"
    send_to(sink, "db.a", 0, 10)
    send_to(sink, "db.b", 10, 20)
    sink.run_here()
    shutil.copy(catalog, tmp_path / "backup.db")
    send_to(sink, "db.b", 20, 30)
    sink.run_here()
    shutil.copy(tmp_path / "backup.db", catalog)
    send_to(sink, "db.a", 30, 40)
    with pytest.raises(DataLossError, match=r"db\.b.*the catalog shows an older state.*calving recover FILE"):
        sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(10), *range(30, 40)]
    send_to(sink, "db.b", 40, 50)
    if is_cut_off:
        with monkeypatch.context() as cut, pytest.raises(ZeroDivisionError):
            cut.setattr(recover, "leave_out", lambda *_: 1 / 0)
            sink.recover_here()
    told = sink.recover_here()
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(10), *range(30, 40)]
    assert sorted(sink.ids("db.b")) == [*range(10, 30), *range(40, 50)]
    assert any(line.startswith("table db.b shows an older state") for line in told)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_table_that_the_backup_does_not_have_is_read_again_by_a_recovery_before_the_next_start(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    sink, _ = routed(tmp_path, topic(), unique, keys)
    catalog = tmp_path / "warehouse" / "catalog.db"
    send_to(sink, "db.a", 0, 10)
    sink.run_here()
    shutil.copy(catalog, tmp_path / "backup.db")
    send_to(sink, "db.b", 10, 20)
    send_to(sink, "db.a", 20, 30)
    sink.run_here()
    shutil.copy(tmp_path / "backup.db", catalog)
    sink.recover_here()
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(10), *range(20, 30)]
    assert sorted(sink.ids("db.b")) == [*range(10, 20)]


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
@pytest.mark.parametrize(
    "is_cut_off", forms([False, True], [True]), ids=["at once", "after a recovery that was cut off"]
)
def test_a_table_that_held_nothing_when_the_backup_was_made_gets_all_its_records_again(
    tmp_path: Path,
    topic: Callable[..., Topic],
    unique: str,
    keys: dict[str, str],
    is_cut_off: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No property of the table names the sink, so only the control log knows that it had records."""
    sink, catalog = routed(tmp_path, topic(), unique, keys)
    send_to(sink, "db.a", 0, 10)
    sink.run_here()
    catalog.create_table("db.b", catalog.load_table("db.a").schema())
    begun = catalog.load_table("db.b").metadata_location
    send_to(sink, "db.b", 10, 20)
    sink.run_here()
    send_to(sink, "db.a", 20, 30)
    sink.run_here()  # now the other table calls the records settled
    assert swap_metadata(catalog, ("db", "b"), begun)
    send_to(sink, "db.b", 30, 40)
    with pytest.raises(DataLossError, match=r"db\.b.*calving recover FILE"):
        sink.run_here()
    if is_cut_off:
        with monkeypatch.context() as cut, pytest.raises(ZeroDivisionError):
            cut.setattr(recover, "mark_recovered", lambda *_, **__: 1 / 0)
            sink.recover_here()
    sink.recover_here()
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(10), *range(20, 30)]
    assert sorted(sink.ids("db.b")) == [*range(10, 20), *range(30, 40)]


def send_to(sink: Cli, table: str, first: int, end: int) -> None:
    sink.topic.send(*encode(*({"id": i, "to": table} for i in range(first, end))))


def test_a_table_that_was_rolled_back_is_no_catalog_that_went_back(sink: Cli, caplog: pytest.LogCaptureFixture) -> None:
    before = roll_back_to(sink, 300, after=600)
    assert before == 600
    sink.send(600, 650)
    sink.run_here()
    assert sorted(sink.ids()) == [*range(300), *range(600, 650)]
    assert "table db.t was rolled back" in caplog.text
    assert "calving rollback FILE --table db.t --as-is --then restore" in caplog.text


@pytest.mark.parametrize("committed_since", [False, True], ids=["at once", "after the next commit"])
def test_a_rolled_back_table_gets_its_records_again(sink: Cli, committed_since: bool) -> None:
    roll_back_to(sink, 300, after=600)
    if committed_since:
        sink.send(600, 650)
        sink.run_here()
    sink.recover_here(rolled_back=["db.t"])
    if not committed_since:
        sink.send(600, 650)
    sink.run_here()
    sink.assert_exactly_once(650)


def test_a_table_that_begins_again_gets_its_records_again(sink: Cli) -> None:
    """As after CREATE OR REPLACE TABLE AS."""
    catalog = open_catalog("iceberg", sink.catalog_keys)
    table = catalog.load_table("db.t")
    table._do_commit((RemoveSnapshotRefUpdate(ref_name="main"),), ())
    catalog.load_table("db.t").append(pa.table({"id": [-1]}, schema=pa.schema([("id", pa.int64())])))
    (found,) = status(load(sink.config)).tables
    assert found.state == "DEGRADED" and found.rolled_back is not None and found.rolled_back.offsets == 300
    sink.send(300, 350)
    sink.run_here()
    assert sorted(sink.ids()) == [-1, *range(300, 350)]
    assert any("no longer holds 300 offsets" in reason for reason in status(load(sink.config)).reasons)
    assert sink.recover_here(rolled_back=["db.t"])[-1].startswith("done")
    sink.run_here()
    assert sorted(sink.ids()) == [-1, *range(350)]
    (found,) = status(load(sink.config)).tables
    assert found.rolled_back is None


def test_a_second_recovery_does_not_lose_what_the_first_one_had_yet_to_read_again(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    sink, catalog = routed(tmp_path, topic(), unique, keys)
    send_to(sink, "db.a", 0, 10)
    send_to(sink, "db.b", 10, 20)
    sink.run_here()
    first = catalog.load_table("db.a").metadata.current_snapshot_id
    assert first is not None
    send_to(sink, "db.a", 20, 30)
    send_to(sink, "db.b", 30, 40)
    sink.run_here()
    with catalog.load_table("db.a").manage_snapshots() as change:
        change.rollback_to_snapshot(first)
    sink.recover_here(rolled_back=["db.a"])
    told = sink.recover_here(rolled_back=["db.b"])
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(10), *range(20, 30)]
    assert sorted(sink.ids("db.b")) == [*range(10, 20), *range(30, 40)]
    assert "table db.a still waits for records of an earlier recovery: they are read again, too" in told


def test_a_recovery_of_a_table_that_lacks_nothing_says_so_instead_of_done(sink: Cli) -> None:
    sink.send(0, 10)
    sink.run_here()
    told = sink.recover_here(rolled_back=["db.t"])
    assert told[-1].startswith("nothing is read again for table db.t: it lacks no record")
    assert not any(line.startswith("done") for line in told)


def change(sink: Cli, first: int, end: int) -> None:
    """Changes of seven rows, one after the other."""
    sink.topic.send(*encode(*({"id": n % 7, "n": n, "op": "d" if n % 5 == 4 else "u"} for n in range(first, end))))


def upsert(sink: Cli, first: int, end: int) -> None:
    """The same changes; a row is deleted by a tombstone of its key."""
    for n in range(first, end):
        value = None if n % 5 == 4 else json.dumps({"id": n % 7, "n": n}).encode()
        sink.topic.producer.produce(sink.topic.name, value, str(n % 7).encode())
    assert sink.topic.producer.flush(20) == 0


def assert_replayed(sink: Cli, end: int, name: str = "db.t") -> None:
    expected: dict[int, int] = {}
    for n in range(end):
        expected.pop(n % 7, None)
        if n % 5 != 4:
            expected[n % 7] = n
    table = open_catalog("iceberg", sink.catalog_keys).load_table(name)
    assert sorted((row["id"], row["n"]) for row in table.scan().to_arrow().to_pylist()) == sorted(expected.items())


@pytest.fixture
def changing(tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]) -> Cli:
    """120 changes, all of them committed."""
    made = Cli(tmp_path, topic(), unique)
    cdc = {"iceberg.tables.cdc-field": "op", "iceberg.table.db.t.id-columns": "id", "iceberg.batch.max-records": "25"}
    made.keys |= keys | cdc
    change(made, 0, 120)
    made.run_here()
    return made


def test_changes_that_nobody_has_committed_are_read_again_in_their_order(changing: Cli) -> None:
    """Rule G2: a recovery finds no offset missing below one that the table has."""
    change(changing, 120, 240)
    changing.publish_without_commit()
    former = f"control-{changing.name}.connect-{changing.name}"
    changing.keys["iceberg.control.topic"] = f"renamed-{changing.name}"
    changing.recover_here(former)
    change(changing, 240, 250)
    changing.run_here()
    assert_replayed(changing, 250)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_rolled_back_table_gets_its_changes_again_and_none_beneath_later_ones(changing: Cli) -> None:
    changing.keys["iceberg.tables.on-rollback"] = "continue"
    catalog = open_catalog("iceberg", changing.catalog_keys)
    snapshot = catalog.load_table("db.t").metadata.current_snapshot_id
    assert snapshot is not None

    def roll_back() -> None:
        with catalog.load_table("db.t").manage_snapshots() as rollback:
            rollback.rollback_to_snapshot(snapshot)

    change(changing, 120, 200)
    changing.run_here()
    roll_back()
    change(changing, 200, 230)
    changing.run_here()
    with pytest.raises(ConfigError, match="older changes cannot be put beneath them; roll it back to that snapshot"):
        changing.recover_here(rolled_back=["db.t"])
    roll_back()
    changing.recover_here(rolled_back=["db.t"])
    changing.run_here()
    assert_replayed(changing, 230)


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_upserts_that_are_read_again_for_one_table_leave_another_as_it_is(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    """What was deleted stays deleted in both."""
    sink = Cli(tmp_path, topic(), unique)
    sink.keys |= keys | {
        "iceberg.tables": "db.t,db.u",
        "iceberg.tables.default-id-columns": "id",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.tables.tombstones": "delete",
        "iceberg.batch.max-records": "25",
        "key.converter": "json",
        "key.converter.schemas.enable": "false",
    }
    upsert(sink, 0, 60)
    sink.run_here()
    catalog = open_catalog("iceberg", sink.catalog_keys)
    snapshot = catalog.load_table("db.t").metadata.current_snapshot_id
    assert snapshot is not None
    upsert(sink, 60, 160)
    sink.run_here()
    with catalog.load_table("db.t").manage_snapshots() as rollback:
        rollback.rollback_to_snapshot(snapshot)
    assert_replayed(sink, 60)
    assert "table db.u skips 100 offsets that it already holds" in sink.recover_here(rolled_back=["db.t"])
    upsert(sink, 160, 170)
    sink.run_here()
    for name in ("db.t", "db.u"):
        assert_replayed(sink, 170, name)


def roll_back_to(sink: Cli, rows: int, after: int) -> int:
    """``rollback_to_snapshot``, after more was committed; the rows that there were."""
    catalog = open_catalog("iceberg", sink.catalog_keys)
    snapshot = catalog.load_table("db.t").metadata.current_snapshot_id
    assert snapshot is not None
    sink.send(rows, after)
    sink.run_here()
    found = len(sink.ids())
    table = catalog.load_table("db.t")
    with table.manage_snapshots() as change:
        change.rollback_to_snapshot(snapshot)
    assert len(sink.ids()) == rows
    return found


@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_an_entry_of_the_sink_that_cannot_be_decoded_is_not_passed_over(sink: Cli) -> None:
    """As one of a later version, or one that is damaged."""
    producer = Producer(client_config({"bootstrap.servers": sink.topic.servers}))
    spans = json.dumps({sink.topic.name: {"0": [[300, 400]]}})
    producer.produce(f"control-{sink.name}", b"\xc2\x01 of another time", headers=[("calving-spans", spans)])
    producer.flush(10)
    sink.send(300, 310)
    for _ in range(2):
        with pytest.raises(DataLossError, match="an entry of this sink cannot be decoded"):
            sink.run_here()
    sink.recover_here()
    sink.run_here()
    sink.assert_exactly_once(310)


def test_only_what_tables_can_never_take_is_discarded_and_the_rest_is_committed(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    sink, catalog = routed(tmp_path, topic(), unique, keys)
    sink.topic.send(*encode(*({"id": i, "to": f"db.{'abc'[i % 3]}"} for i in range(30))))
    sink.publish_without_commit()
    recreate(catalog, "db.a")
    catalog.drop_table("db.b")
    sink.topic.send(*encode(*({"id": i, "to": "db.a"} for i in range(30, 35))))
    sink.publish_without_commit()
    record = tmp_path / "released.json"
    with pytest.raises(CalvingError, match=r"table db.c can take all that is buffered for it"):
        list(release(load(sink.config), ["db.a", "db.c"], record))
    list(release(load(sink.config), ["db.a"], record))
    assert json.loads(record.read_text())["rows"] == 10
    other = tmp_path / "released-b.json"
    list(release(load(sink.config), ["db.b"], other))
    assert json.loads(other.read_text())["rows"] == 10
    sink.topic.send(*encode({"id": 35, "to": "db.a"}))
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(30, 36)]
    assert sorted(sink.ids("db.c")) == [*range(2, 30, 3)]


def test_what_was_not_released_after_all_is_read_again_by_a_recovery(
    tmp_path: Path, topic: Callable[..., Topic], unique: str, keys: dict[str, str]
) -> None:
    sink, catalog = routed(tmp_path, topic(), unique, keys)
    sink.topic.send(*encode(*({"id": i, "to": f"db.{'ab'[i % 2]}"} for i in range(20))))
    sink.publish_without_commit()
    recreate(catalog, "db.a")
    with pytest.raises(FileNotFoundError):
        list(release(load(sink.config), ["db.a"], tmp_path / "no such folder" / "released.json"))
    sink.recover_here()
    sink.run_here()
    assert sorted(sink.ids("db.a")) == [*range(0, 20, 2)]
    assert sorted(sink.ids("db.b")) == [*range(1, 20, 2)]


@pytest.mark.parametrize("takes_effect", [True, False])
@pytest.mark.parametrize("keys", ["kafka"], indirect=True)
def test_a_release_whose_answer_was_lost_finds_out_whether_it_took_effect(
    tmp_path: Path,
    topic: Callable[..., Topic],
    unique: str,
    keys: dict[str, str],
    takes_effect: bool,
    lose_answer: Callable[..., None],
) -> None:
    sink, catalog = routed(tmp_path, topic(), unique, keys)
    sink.topic.send(*encode(*({"id": i, "to": f"db.{'ab'[i % 2]}"} for i in range(20))))
    sink.publish_without_commit()
    recreate(catalog, "db.a")
    record = tmp_path / "released.json"
    lose_answer(takes_effect=takes_effect)
    assert len(list(release(load(sink.config), ["db.a"], record))) == 1
    assert json.loads(record.read_text())["rows"] == 10
    sink.run_here()
    assert sink.ids("db.a") == []
    assert sorted(sink.ids("db.b")) == [*range(1, 20, 2)]


def test_files_are_let_go_while_the_sink_runs_and_commits_every_second(
    servers: str, tmp_path: Path, unique: str, keys: dict[str, str]
) -> None:
    """Its coordinators come back in the middle of it; several tables were recreated."""
    run = Run(tmp_path, servers, unique, settings=keys)
    try:
        run.produce(300)
        run.start()
        run.wait_until_committed()
        run.stop()
        run.produce(300)
        assert died(run.start("publish:after:1"))
        catalog = open_catalog("iceberg", run.catalog_keys)
        for table in TABLES:
            recreate(catalog, table)
        for _ in range(2):
            run.start()
        run.produce(600)
        wait_for(lambda: "DEGRADED" in "".join(w.log.read_text() for w in run.workers))
        record = tmp_path / "released.json"
        told = list(release(load(run.config), TABLES, record))
        assert json.loads(record.read_text())["rows"] == 300
        assert len(told) == len(TABLES)
        run.produce(200)
        wait_for(lambda: run.committed() == 800)
        assert sorted(run.rows()["id"].to_pylist()) == [*range(600, 1400)]
    finally:
        run.close()


def routed(tmp_path: Path, topic: Topic, unique: str, keys: dict[str, str]) -> tuple[Cli, Catalog]:
    """A sink whose records name their table in the field ``to``."""
    sink = Cli(tmp_path, topic, unique)
    del sink.keys["iceberg.tables"]
    sink.keys |= {"iceberg.tables.dynamic-enabled": True, "iceberg.tables.route-field": "to"} | keys
    return sink, open_catalog("iceberg", sink.catalog_keys)


def recreate(catalog: Catalog, table: str) -> None:
    """Drop a table, and create it empty with its schema."""
    schema = catalog.load_table(table).schema()
    catalog.drop_table(table)
    catalog.create_table(table, schema)


def replaced_while_the_sink_commits(sink: Cli) -> None:
    """As Spark's CREATE OR REPLACE TABLE AS in a catalog that swaps the whole metadata: what the sink commits since the
    statement began, 10 records in one commit, is in no version of the metadata, and its sequence number is used again.
    """
    catalog = sink.folder / "warehouse" / "catalog.db"
    shutil.copy(catalog, sink.folder / "begun.db")
    sink.send(300, 310)
    sink.run_here()
    shutil.copy(sink.folder / "begun.db", catalog)
    table = open_catalog("iceberg", sink.catalog_keys).load_table("db.t")
    table._do_commit((RemoveSnapshotRefUpdate(ref_name="main"),), ())
    table.refresh().append(pa.table({"id": [-1]}, schema=table.schema().as_arrow()))


@pytest.mark.parametrize("answer", [RollbackAnswer.REREAD, RollbackAnswer.FORGET])
def test_a_commit_that_a_replacement_of_the_table_has_discarded_is_noticed_and_answered(
    sink: Cli, answer: RollbackAnswer
) -> None:
    replaced_while_the_sink_commits(sink)
    sink.send(310, 320)
    sink.run_here()
    assert any("no longer holds 310 offsets" in reason for reason in status(load(sink.config)).reasons)
    [*rollback(load(sink.config), ["db.t"], AsItIs(), answer, again=answer is RollbackAnswer.FORGET)]
    sink.run_here()
    assert sorted(sink.ids()) == [-1, *range(0 if answer is RollbackAnswer.REREAD else 310, 320)]
    assert status(load(sink.config)).health == "OK"
