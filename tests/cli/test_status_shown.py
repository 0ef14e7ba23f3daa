"""``calving status`` without services: a sink with a broken table, what its leader says of it, and how it is shown."""

from __future__ import annotations

import io
import itertools
import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from rich.console import Console

from calving.backend.interface import Session
from calving.cli import main, preview
from calving.cli.health import (
    Maintained,
    TableHealth,
    commit_seconds_of,
    health,
    last_cycle_of,
    maintained_of,
    reasons_of,
)
from calving.cli.inspect import PartitionState, positions_of
from calving.cli.status import SinkStatus, as_json
from calving.cli.status_text import as_text
from calving.iceberg.catalog import open_catalog
from calving.model.events import (
    NO_COMMIT,
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    Leader,
    PartitionProgress,
    StartCommit,
    TableReference,
    WorkerEnd,
)
from calving.model.files import DataFile
from calving.model.offsets import TopicPartition
from calving.model.sink import strangers
from calving.runtime import components
from calving.runtime.log_view import ControlLogView
from calving.runtime.preflight import ledger_key
from calving.source.interface import Bounds
from calving.status.maintenance import after_look
from tests.serving.sinks import Worker, serving, sink, status

TABLES = tuple(TableHealth(f"db.t{n:02}", "ok", 1_000, 90.0) for n in range(20))
BROKEN = (*TABLES[:-1], TableHealth("db.t19", "DEGRADED", why="table db.t19 cannot be loaded: [Errno 2] no file"))


def seen(tables: tuple[TableHealth, ...] = TABLES, told: tuple[tuple[str, str, str], ...] | None = None) -> SinkStatus:
    partitions = tuple(PartitionState(TopicPartition("orders", p), 10, 0, 10 + p, 10, answered=True) for p in range(6))
    return SinkStatus(sink(), partitions, tables, 1, None, told)


def shown(found: SinkStatus, lines: int | None = None, width: int = 80) -> list[str]:
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
    regexes = {f"iceberg.table.{name}.route-regex": name for name in ("db.broken", "db.well")}
    configured = sink(**{"iceberg.tables": "db.broken,db.well", "iceberg.tables.route-field": "r", **regexes})
    broken, well = health(configured, catalog, ControlLogView("log", {0: 0}), ["orders"])
    assert (broken.name, broken.state, well.state) == ("db.broken", "DEGRADED", "ok")
    assert broken.why.startswith(f"table db.broken cannot be loaded: its file {tmp_path}/db/broken/metadata/")
    assert "does not exist, so somebody has deleted or moved it: bring it back" in broken.why
    assert "Errno" not in broken.why


def test_an_entry_at_which_every_coordinator_stops_is_a_reason() -> None:
    sentence = "control topic 'c', partition 2, offset 17: an entry of this sink cannot be decoded"
    found = replace(seen(), unreadable=(sentence,))
    assert found.reasons == [sentence]
    assert as_json(found, 100.0)["health"] == "DEGRADED"


def test_a_table_that_cannot_be_loaded_hides_no_other_where_records_choose_their_table(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    catalog.create_namespace("lake")
    configured = sink(**{"iceberg.tables": "", "iceberg.tables.topic-pattern": "lake.{topic}"})
    ours = {ledger_key(configured, "", "").offsets: '{"0":5}'}
    for name in ("lake.broken", "lake.well"):
        catalog.create_table(name, Schema(NestedField(1, "id", LongType(), required=False)), properties=ours)
    (tmp_path / "lake" / "broken" / "metadata").rename(tmp_path / "away")
    states = {t.name: t.state for t in health(configured, catalog, ControlLogView("log", {0: 0}), ["orders"])}
    assert states == {"lake.well": "ok", "lake.broken": "DEGRADED"}


def test_a_sink_whose_last_worker_ended_with_an_error_is_not_well_although_nothing_waits() -> None:
    heard = ControlLogView("log", {0: 0})
    heard.hear(
        Envelope(0, 0, DataComplete(NO_COMMIT), parts=0, end=WorkerEnd("0.2.0", 1_000, "m", "kafka-1", "no disk"))
    )
    idle = replace(seen(), workers=0, positions=())
    found = replace(idle, end=heard.end)
    sentence = "a worker on kafka-1 ended at 1970-01-01T00:00:01+00:00 with an error, and no commit cycle has ended since: no disk"
    assert (found.health, found.reasons) == ("DEGRADED", [sentence])
    heard.hear(Envelope(0, 1, StartCommit(UUID(int=1))))
    assert heard.end is not None
    heard.hear(Envelope(0, 2, CommitComplete(UUID(int=1))))
    assert replace(idle, end=heard.end).health == "OK"


def test_a_sink_without_workers_is_not_well_while_records_wait_for_one() -> None:
    found = replace(seen(), workers=0)
    assert found.not_visible == 15
    assert (found.health, found.reasons) == ("DEGRADED", ["no worker runs, and 15 records wait"])


def test_members_of_the_group_that_are_no_workers_do_not_make_a_sink_well() -> None:
    members = {"1": "calving-7", "2": "connector-consumer-lake-0", "3": "rdkafka", "4": "console-consumer"}
    assert strangers(members) == ["console-consumer", "rdkafka"]
    found = replace(seen(), workers=0, strangers=("console-consumer",))
    (reason,) = found.reasons
    assert reason == (
        f"no worker runs, and 15 records wait; consumer group {found.sink.group} has other members, with the client ids"
        " console-consumer"
    )
    assert replace(found, workers=1).health == "OK"


def test_records_that_wait_for_a_paused_worker_are_named() -> None:
    found = replace(seen(), paused={TopicPartition("orders", p): 60.0 for p in (1, 2)})
    assert found.reasons == [
        "a worker has been paused since 1970-01-01T00:01:00+00:00, and 3 records of its partitions wait"
    ]
    assert replace(found, paused={TopicPartition("orders", 0): 60.0}).health == "OK"  # nothing waits there
    assert "paused" not in replace(found, workers=0).reasons[0]


def test_since_when_a_partition_is_paused_is_what_its_last_answer_says() -> None:
    heard, tp = ControlLogView("log", {0: 0}), TopicPartition("orders", 0)
    answer = DataComplete(UUID(int=1), (PartitionProgress(tp),))
    heard.hear(Envelope(0, 1, answer, parts=0, paused_ms=60_000))
    assert heard.paused == {tp: 60.0}
    heard.hear(Envelope(0, 2, answer, parts=0))
    assert heard.paused == {}


def test_members_that_begin_and_end_no_cycle_hang() -> None:
    keys = seen().sink.keys
    limit = 3 * keys.commit_interval_ms / 1000 + 2 * keys.commit_timeout_ms / 1000
    assert replace(seen(), silent=limit).health == "OK"
    (reason,) = replace(seen(), silent=limit + 1).reasons
    assert reason == f"1 worker is in the group, but for {limit + 1:.0f} s no commit cycle has begun or ended"
    assert replace(seen(told=()), silent=limit + 1).health == "OK"  # the leader answers


def test_a_cycle_is_as_old_as_its_end_or_as_its_first_announcement() -> None:
    heard, leader = ControlLogView("log", {0: 0}), Attachment(leader=Leader("m", "h", ""))
    said = [(StartCommit, 1), (StartCommit, 8), (CommitComplete, 20), (StartCommit, 30), (StartCommit, 37)]
    ages = []
    for offset, (event, at) in enumerate(said):
        heard.hear(Envelope(0, offset, event(UUID(int=at // 25)), attached=leader, at_us=at * 1_000_000))
        ages.append(heard.cycle_at)
    assert ages == [1, 1, 20, 30, 30]
    accepted = Envelope(0, 9, CommitComplete(UUID(int=7)), at_us=50_000_000)  # an operator's, as of `offsets --accept`
    heard.hear(accepted)
    assert heard.cycle_at == 30


def test_a_sink_without_workers_is_not_well_while_files_wait_for_their_table() -> None:
    found = replace(seen((replace(TABLES[0], files=2),)), workers=0, positions=())
    assert found.reasons == ["no worker runs, and files of 1 table wait"]


def test_a_sink_that_has_stopped_with_everything_committed_is_well() -> None:
    assert replace(seen(), workers=0, positions=()).health == "OK"


def test_a_sink_is_starting_until_a_commit_cycle_has_ended() -> None:
    found = seen()
    unheard = tuple(replace(p, answered=None) for p in found.positions)
    assert replace(found, positions=unheard).health == "STARTING"


def test_one_number_says_how_many_records_are_not_visible_and_how_old_the_oldest_is() -> None:
    found = replace(seen(), oldest_at=40.0)
    assert "15 records are not visible yet; the oldest was produced 60 s ago" in shown(found)
    assert (as_json(found, 100.0)["not_visible"], as_json(found, 100.0)["oldest_not_visible_at"]) == (15, 40.0)


def test_records_behind_an_open_transaction_are_part_of_the_lag() -> None:
    position = PartitionState(TopicPartition("orders", 0), 10, 0, 60, 10, answered=True, hidden=50)
    assert position.lag == 50
    assert "hidden" in " ".join(shown(replace(seen(), positions=(position,))))


@pytest.mark.parametrize("said", ["+58375-12-15T20:28:43.456Z", "-", "", "0001-01-01T00:00Z"])
def test_a_valid_through_time_that_is_no_moment_hides_no_table(said: str) -> None:
    odd = seen((replace(TABLES[0], valid_through=said), TABLES[1]))
    assert [table["table"] for table in as_json(odd, 100.0)["tables"]] == ["db.t00", "db.t01"]
    assert any("db.t01" in line for line in shown(odd))


def test_the_broken_one_of_twenty_tables_is_named_with_its_reason() -> None:
    found = seen(BROKEN)
    assert found.health == "DEGRADED"
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
    assert told == [("table-failing", "db.t000", reason["text"])]
    assert other is None  # a loopback address is another machine's there
    assert reasons_of(leader, "orders") is None  # it is gone
    found = seen((TableHealth("db.t000", "DEGRADED", files=1, cycles=4),), tuple(told))
    assert found.reasons == as_json(found, 100.0)["reasons"] == [reason["text"]]


CHANGED = {"keys": 3, "superseded": 2, "load-ms": 4, "resolve-ms": 5, "write-ms": 6}
CHANGES = (
    TableHealth("db.t", "ok", 9, 90.0, mutations=CHANGED, changed_by="c-7"),
    TableHealth("db.u", "ok", 9, 90.0),
)
ONLY = "the time of commit is not known for db.t: only the leader's status server tells it, and"


def timed(seconds: Mapping[tuple[str, str], float] | None, workers: int = 1) -> tuple[list[str], str, object]:
    """The row of the table's times, what follows on the time of commit, and that time as JSON."""
    found = replace(seen(CHANGES), commit_seconds=seconds, workers=workers)
    text = [line.strip() for line in shown(found, width=200)]
    (row,) = (line for line in text[text.index("Time of that commit") :] if "db.t " in line and "│" in line)
    said = next((line for line in text if line.startswith("the time of commit")), "")
    return (
        row.strip("│").replace(" ", "").split("│"),
        said,
        as_json(found, 100.0)["tables"][0]["mutations"]["commit-ms"],
    )


def test_the_time_of_a_commit_is_shown_as_the_leader_tells_it() -> None:
    row, said, json = timed({("db.t", "c-7"): 0.0123})
    assert row == ["db.t", "4ms", "5ms", "6ms", "12ms"]
    assert (said, json) == ("", 12)


@pytest.mark.parametrize(
    ("seconds", "workers", "said"),
    [
        (None, 0, f"{ONLY} no worker runs"),
        (None, 1, f"{ONLY} it did not"),
        (
            {("db.t", "c-6"): 0.5, ("db.u", "c-7"): 0.5},
            1,
            "the time of commit is not known for db.t: the worker that leads did not make this commit, or has restarted since",
        ),
    ],
)
def test_a_time_of_commit_that_nobody_tells_is_none_and_the_output_says_so(
    seconds: Mapping[tuple[str, str], float] | None, workers: int, said: str
) -> None:
    row, text, json = timed(seconds, workers)
    assert (row[-1], text, json) == ("-", said, None)


def test_a_narrow_screen_has_room_for_all_counts_and_times() -> None:
    counts = {
        "keys": 10_000,
        "superseded": 9_800,
        "unmatched": 12,
        "positions": 10_500,
        "files": 2_000,
        "cached": 1_998,
    }
    times = {"load-ms": 1_412, "resolve-ms": 15_123, "write-ms": 1_634}
    table = TableHealth("sales.orders", "ok", 9, 90.0, mutations={**counts, **times}, changed_by="c-7")
    text = " ".join(shown(replace(seen((table,)), commit_seconds={("sales.orders", "c-7"): 1.3})))
    assert all(str(number) in text for number in counts.values())
    assert all(f"{number} ms" in text for number in (*times.values(), 1_300))


def test_a_table_without_changed_rows_has_no_time_of_commit() -> None:
    found = seen(CHANGES[1:])
    assert as_json(found, 100.0)["tables"][0]["mutations"] is None
    assert not any("time of commit" in line for line in shown(found))


def test_the_leader_tells_how_long_the_last_commit_of_each_changed_table_took() -> None:
    page = status(time.time(), tables=60)
    with serving(Worker(page)) as client:
        leader = Leader("m-1", socket.gethostname(), client.url)
        told = commit_seconds_of(leader)
    assert told is not None and len(told) == 30
    assert told["db.t059", "c-19"] == pytest.approx(0.29)
    assert commit_seconds_of(leader) is None  # it is gone
    assert commit_seconds_of(None) is None


def test_the_leader_tells_the_steps_of_its_last_cycle() -> None:
    steps = {"waited": 0.01, "batch": 0.2}
    page = status(time.time())
    cycle = replace(page.coordinator.recent[0], steps=steps)
    with serving(Worker(replace(page, coordinator=replace(page.coordinator, recent=(cycle,))))) as client:
        leader = Leader("m-1", socket.gethostname(), client.url)
        told = last_cycle_of(leader)
    assert told == {"outcome": cycle.outcome, "seconds": cycle.seconds, "steps": steps}
    assert as_json(replace(seen(()), last_cycle=told), 100.0)["last_cycle"] == told
    assert last_cycle_of(leader) is None  # it is gone


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (TableHealth("db.t", "DEGRADED", parked=1), "1 parked entry waits"),
        (TableHealth("db.t", "DEGRADED", parked=2), "2 parked entries wait"),
        (TableHealth("db.t", "DEGRADED", files=1, cycles=1), "1 file for 1 cycle waits"),
        (TableHealth("db.t", "DEGRADED", files=1, cycles=3, parked=1), "1 file for 3 cycles, 1 parked entry wait"),
    ],
)
def test_what_waits_for_a_table_is_counted(table: TableHealth, said: str) -> None:
    assert seen((table,)).reasons == [f"table db.t: {said}"]


@pytest.mark.parametrize(
    ("read", "said"), [(1, "read 1 record, the newest one"), (2, "read 2 records, the newest ones")]
)
def test_a_preview_counts_the_records_that_it_has_read(read: int, said: str) -> None:
    found = preview.as_text(preview.Preview(read, (), {}, ()), tolerates=False)
    assert next(found) == f"{said}; nothing was written"


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "ftp://k2/"])
def test_only_addresses_of_the_web_are_asked(url: str) -> None:
    assert reasons_of(Leader("m-1", "k2", url), "orders") is None


def test_a_sink_is_not_well_where_its_leader_says_so() -> None:
    assert seen().health == seen(told=()).health == "OK"
    assert (
        seen(told=(("dead-letter-share", "", "2.0% of the records of the last batches are dead letters"),)).health
        == "DEGRADED"
    )


def test_an_error_is_shown_as_it_is_also_if_it_looks_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    main._tell_error("table db.t: [Errno 2] no file [/red]")
    assert capsys.readouterr().err == "error: table db.t: [Errno 2] no file [/red]\n"


def test_a_sink_that_is_behind_shows_how_fast_it_reads_and_how_long_that_takes() -> None:
    found = replace(seen(), measured_rate=5.0)
    assert "80%  15 records to read, 5.0 records/s, about 3.0 s left if no more come" in "\n".join(
        shown(found, width=120)
    )
    assert as_json(found, 100.0)["progress"] == {"remaining": 15, "share": 0.8, "rate": 5.0, "seconds_left": 3.0}


def test_a_speed_that_the_control_log_does_not_tell_is_unknown_and_no_zero() -> None:
    assert "15 records to read, at an unknown speed" in "\n".join(shown(seen()))
    progress = as_json(seen(), 100.0)["progress"]
    assert (progress["rate"], progress["seconds_left"]) == (None, None)
    assert "nobody reads" in "\n".join(shown(replace(seen(), workers=0, measured_rate=5.0)))


def test_the_last_maintenance_of_a_table_is_shown_and_is_in_the_json() -> None:
    done = Maintained(90.0, "compact", "done", "14 files became 1 file", 40.0)
    found = replace(seen(TABLES), maintained={TABLES[0].name: done, "db.quiet": Maintained(None)})
    text = " ".join(" ".join(shown(found)).split())
    assert "Maintenance by the worker that leads" in text
    assert "done: 14 files became 1 file; one runs now" in text and "nothing was due" in text
    told = {table["table"]: table["maintenance"] for table in as_json(found, 100.0)["tables"]}
    assert told[TABLES[0].name]["task"] == "compact" and told[TABLES[1].name] is None
    assert "Maintenance" not in " ".join(shown(seen(TABLES)))


def test_what_is_due_at_a_table_is_shown_with_its_files_and_for_how_long() -> None:
    due = Maintained(None, due_since=70.0, due_files=14, due_bytes=2 * 1024**2)
    found = replace(seen(TABLES), maintained={TABLES[0].name: due, TABLES[1].name: Maintained(None)})
    assert "14 files (2 MiB), for 30 s" in " ".join(" ".join(shown(found, width=160)).split())
    told = {table["table"]: table["maintenance"] for table in as_json(found, 100.0)["tables"]}
    assert (told[TABLES[0].name]["due_files"], told[TABLES[1].name]["due_since"]) == (14, None)


def test_the_leader_tells_what_its_maintenance_did_last_at_each_table() -> None:
    on, off = (sink(**{"iceberg.maintenance.enabled": value}) for value in ("true", "false"))
    of = status(1_000.0, tables=3)
    due = after_look(of.maintenance, "db.t001", "compact", {"day=1": (5, 4_096)}, 970.0)
    with serving(Worker(replace(of, maintenance=due))) as client:
        leader = Leader("m-1", socket.gethostname(), client.url)
        told = maintained_of(on, leader)
        assert maintained_of(off, leader) is None
    assert told is not None and len(told) == 3
    assert told["db.t002"] == Maintained(None, "compact", "done", "14 files became 1 file", 940.0)
    assert (told["db.t001"].due_since, told["db.t001"].due_files, told["db.t001"].due_bytes) == (970.0, 5, 4_096)
    assert maintained_of(on, leader) is None  # it is gone


def test_a_file_is_buffered_since_its_entry_was_made(tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(tmp_path)})
    heard = ControlLogView("log", {0: 0})
    for offset, at_us in enumerate((70_000_000, 20_000_000, None)):
        written = DataWritten(NO_COMMIT, TableReference("c", ("db",), "t"), (DataFile("f", "PARQUET", 1, 1),))
        heard.hear(Envelope(0, offset, written, at_us=at_us))
    (table,) = health(sink(**{"iceberg.tables": "db.t"}), catalog, heard, ["orders"])
    assert (table.files, table.buffered_since) == (3, 20.0)


def test_the_oldest_buffered_file_of_all_tables_is_shown() -> None:
    waiting = (replace(TABLES[0], files=1, buffered_since=40.0), replace(TABLES[1], files=2, buffered_since=10.0))
    (line,) = (line for line in shown(seen(waiting)) if "buffered" in line)
    assert line.strip() == "the oldest buffered file, for table db.t01, was announced 90 s ago"
    assert [table["buffered_since"] for table in as_json(seen(waiting), 100.0)["tables"]] == [40.0, 10.0]
    assert not any("buffered" in line for line in shown(seen()))


def test_while_all_that_waits_is_paused_there_is_no_speed_and_no_time_left() -> None:
    paused = {TopicPartition("orders", p): 60.0 for p in range(1, 6)}
    found = replace(seen(), measured_rate=5.0, paused=paused)
    assert (found.rate, found.seconds_left) == (None, None)
    assert "15 records to read, paused" in "\n".join(shown(found))
    assert replace(found, paused={TopicPartition("orders", 1): 60.0}).rate == 5.0


def test_each_reason_comes_with_the_next_command_and_the_section_of_the_manual() -> None:
    text = " ".join(" ".join(shown(seen(BROKEN))).split())
    assert "next: calving validate FILE (see docs/how-to/on-call.md#table-failing)" in text
    (remedy,) = as_json(seen(BROKEN), 100.0)["remedies"]
    assert (remedy["cause"], remedy["command"]) == ("table-failing", "calving validate FILE")
    assert remedy["help"] == "docs/how-to/on-call.md#table-failing"


def test_a_reason_of_a_later_version_has_the_page_of_the_manual_and_no_command() -> None:
    found = seen(told=(("something-new", "", "something is new"),))
    assert "see docs/how-to/on-call.md" in "\n".join(shown(found))
    assert as_json(found, 100.0)["remedies"][0]["command"] is None


def partition(number: int, stored: int, begin: int, end: int) -> PartitionState:
    return PartitionState(TopicPartition("orders", number), stored, begin, end, stored, answered=True)


def test_a_position_beyond_its_end_hides_no_records_of_other_partitions() -> None:
    found = replace(seen(), positions=(partition(0, 5_000, 0, 1_000), partition(1, 0, 0, 4_000)))
    assert (found.not_visible, found.to_read, found.share) == (4_000, 4_000, 0.0)
    first = as_json(found, 100.0)["partitions"][0]
    assert (first["source_lag"], first["commit_lag"], first["not_visible"]) == (0, 0, 0)


def test_a_position_beyond_its_end_is_not_well_and_has_a_sentence_and_a_next_command() -> None:
    found = replace(seen(), positions=(partition(0, 5_000, 0, 1_000),))
    sentence = (
        "topic 'orders', partition 0: the stored position 5000 is beyond the end 1000: the topic was recreated or"
        " truncated, and how many of its records wait is not known"
    )
    assert (found.health, found.causes) == ("DEGRADED", {sentence: "position-beyond-end"})
    assert as_json(found, 100.0)["remedies"][0]["command"] == "calving run FILE"
    assert "all records are visible, but for orders-0 it is not known" in shown(found)


def test_the_share_counts_no_records_that_retention_has_removed() -> None:
    assert replace(seen(), positions=(partition(0, 100, 900, 1_000),)).share == 0.0


def test_positions_are_read_before_the_ends_that_a_running_sink_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    tp, ends = TopicPartition("orders", 0), itertools.count(10)

    class Growing:
        """A topic that has another record at each look, which the sink has read at once."""

        partitions = staticmethod(lambda: frozenset({tp}))
        bounds = staticmethod(lambda _: Bounds({tp: 0}, {tp: next(ends)}))
        highs = staticmethod(lambda _: {tp: 0})
        committed = staticmethod(lambda _: {tp: next(ends)})

    monkeypatch.setattr(components, "source", lambda _: Growing())
    (state,) = positions_of(sink(), cast(Session, Growing()))
    assert (state.is_beyond_end, state.lag) == (False, 1)


def test_texts_of_others_do_not_command_the_terminal() -> None:
    hostile = "x\x1b]0;title\x07\x1b[2J\u202e"
    table = TableHealth(f"db.{hostile}", "ok", 9, mutations={"keys": 1}, changed_by="c")
    found = replace(seen((table,)), leader=Leader(hostile, hostile, f"http://{hostile}"))
    screen = io.StringIO()
    Console(width=250, file=screen, force_terminal=True).print(*as_text(found, 100.0))
    text = screen.getvalue()
    assert text.count("db.x?]0;title") >= 2 and "x?]0;title??[2J? on x?]0;title??[2J?" in text
    assert not [code for code in ("\x1b]", "\x1b[2J", "\u202e") if code in text]


def test_a_sink_with_workers_of_two_versions_says_so() -> None:
    mixed = replace(seen(), workers=3, versions=("0.2.0", "0.2.1"))
    assert shown(mixed)[-1].startswith("3 workers (versions 0.2.0, 0.2.1) run; ")
    assert shown(replace(mixed, versions=("0.2.1",)))[-1].startswith("3 workers run; ")
    assert as_json(mixed, 100.0)["versions"] == ["0.2.0", "0.2.1"]
