"""The status of a process: built from the control log and its loops, summed up, and judged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from uuid import uuid4

import pytest

from calving.backend.entries import Entries
from calving.errors import UnavailableError
from calving.model.events import (
    Attachment,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    Leader,
    StartCommit,
    TableReference,
    WorkerEnd,
)
from calving.model.files import DataFile
from calving.model.forms import NEWEST
from calving.model.members import Member
from calving.model.mutation_counts import MutationCounts
from calving.model.offsets import Coverage, Range, Span, TopicPartition
from calving.protocol.members import Disagreement
from calving.protocol.rollback import RolledBack
from calving.runtime.publications import Publications
from calving.runtime.reporting import Reporter
from calving.runtime.tally import Tally
from calving.status.board import Board, after_cycle
from calving.status.health import HealthLog, Reason, disagreement_text, health, not_ready, reasons
from calving.status.histogram import Histogram
from calving.status.maintenance import DueWork, MaintenanceStatus, TableMaintenance
from calving.status.partitions import committed_up_to
from calving.status.remedies import Cause
from calving.status.table_states import TableStates
from calving.status.values import (
    Batches,
    CommitCycle,
    CoordinatorStatus,
    Failure,
    LogStatus,
    PartitionStatus,
    SinkFacts,
    Status,
    TableCommit,
    TableStatus,
    WorkerStatus,
)
from calving.tasks.spec import RangeResult, TaskResult
from calving.wire.codec import Message, encode

TP = TopicPartition("t", 0)
TABLE = TableReference("iceberg", ("db",), "t")
FILE = DataFile("f", "parquet", 7, 1_000)
FACTS = SinkFacts("s", "connect-s", "m", "0", "kafka", "local", started_at=1_000.0, interval=10.0, timeout=5.0)
WELL = Status(
    FACTS, WorkerStatus(joined=True, prepared=True, caught_up=True), LogStatus(cycle_at=1_000.0, had_all_answers=True)
)
DIFFERS = Disagreement(Member("0.2.0", "bb", NEWEST, "host-2", "lake.toml"), ("topics",))
LEADS = replace(WELL, worker=replace(WELL.worker, leads=True))


class Ear:
    """Says events to a ``TableStates``, one second after the other."""

    def __init__(self) -> None:
        self.table_states = TableStates()
        self.now = 0.0
        self.commit = uuid4()

    def say(
        self, event: Event, spans: Coverage | None = None, settled: Coverage | None = None, unanswered: int = 0
    ) -> None:
        self.now += 1.0
        attached = Attachment(settled or {}, unanswered=unanswered)
        self.table_states.hear(Envelope(0, int(self.now), event, spans or {}, attached=attached), self.now)

    def write(self, start: int, end: int) -> None:
        spans = {TP: (Span(start, end),)}
        self.say(DataWritten(self.commit, TABLE, (FILE,)), spans)
        self.say(DataComplete(self.commit), spans)

    @property
    def table(self) -> TableStatus:
        return self.table_states.status(100.0).tables["db.t"]


def test_files_that_are_published_wait_until_their_table_is_committed() -> None:
    ear = Ear()
    ear.say(StartCommit(ear.commit))
    ear.write(0, 7)
    assert (ear.table.buffered_files, ear.table.buffered_since, ear.table.committed_at) == (1, 102.0, None)
    ear.say(CommitToTable(ear.commit, TABLE, 42, 5_000_000))
    assert ear.table == TableStatus(104.0, 42, 5_000_000)


def test_what_is_published_after_the_answers_of_a_cycle_waits_for_the_next_one() -> None:
    ear = Ear()
    ear.say(StartCommit(ear.commit))
    ear.write(0, 7)
    ear.say(DataWritten(ear.commit, TABLE, (FILE, FILE)), {TP: (Span(7, 9),)})
    ear.say(CommitToTable(ear.commit, TABLE, 42, None))
    assert ear.table.buffered_files == 2


def test_what_a_commit_complete_calls_settled_waits_no_longer() -> None:
    ear = Ear()
    ear.write(0, 7)
    ear.write(7, 9)
    ear.say(CommitComplete(ear.commit), settled={TP: (Span(0, 7),)})
    assert ear.table.buffered_files == 1
    assert committed_up_to(ear.table_states.settled) == {TP: 7}


def test_a_valid_through_time_that_a_commit_does_not_know_stays_the_last_one() -> None:
    ear = Ear()
    ear.say(CommitToTable(ear.commit, TABLE, 1, 5))
    ear.say(CommitToTable(ear.commit, TABLE, 2, None))
    assert (ear.table.snapshot_id, ear.table.valid_through_us) == (2, 5)


def test_lag_is_told_of_reading_and_of_committing() -> None:
    partition = PartitionStatus(90, 100, committed=60, latest_us=5_000_000)
    assert (partition.source_lag, partition.commit_lag, partition.lag_seconds(8.0)) == (10, 40, 3.0)
    assert replace(partition, position=100).lag_seconds(8.0) == 0.0
    assert PartitionStatus(0, 5).commit_lag is None
    assert PartitionStatus(0, 5).lag_seconds(8.0) is None


def test_a_histogram_counts_a_value_under_the_first_bound_that_it_does_not_exceed() -> None:
    found = Histogram.of((1.0, 2.0)).observe([0.5, 1.0, 1.5, 9.0])
    assert (found.counts, found.sum, found.count) == ((2, 1, 1), 12.0, 4)


def test_changes_that_left_no_row_of_their_own_are_counted_apart() -> None:
    found = tally({}, rows_replaced=3).added_to(Batches(), 0.5).records
    assert (found.superseded, found.deleted, found.copied, found.filtered) == (2, 1, 0, {})
    assert sum(found.read.values()) == sum(found.written.values()) + found.superseded + found.deleted


def tally(filtered: Mapping[str, int], rejected: int = 0, copies: int = 1, rows_replaced: int = 0) -> Tally:
    """Of records of which seven were written, and more that were changes without a row of their own."""
    read = 7 + rows_replaced + sum(filtered.values()) + rejected
    found = Tally()
    ranges = [RangeResult(Range("t", 0, 0, read), read, 7 + rows_replaced, rejected, filtered, 100, 5)]
    files = {f"db.t{i}": [FILE] for i in range(copies)}
    refused = {"VALUE_CONVERTER": rejected} if rejected else {}
    result = TaskResult(0, files, ranges, bad_by_stage=refused, first_bad="bad" if rejected else None)
    result.superseded, result.deleted = rows_replaced - rows_replaced // 3, rows_replaced // 3
    found.add(result)
    found.check({TP: Span(0, read)})
    return found


@pytest.mark.parametrize("copies", [1, 3])
def test_the_counters_of_records_balance_over_all_batches(copies: int) -> None:
    total = Batches()
    for batch in (tally({"tombstone": 2}, copies=copies), tally({"unrouted": 1}, rejected=3, copies=copies)):
        total = batch.added_to(total, 0.5)
    records = total.records
    assert total.read == 20
    assert records.read == {"t": 20}
    assert records.filtered == {"tombstone": 2, "unrouted": 1}
    assert records.dead_lettered == {"VALUE_CONVERTER": 3}
    outcomes = (records.written, records.dead_lettered, records.filtered)
    assert total.read + records.copied == sum(sum(each.values()) for each in outcomes)
    assert (total.count, total.files, total.dead_letter_share) == (2, 2 * copies, 3 / 20)
    assert total.dead_letters == ("bad",)


def cycle(*tables: TableCommit, unanswered: tuple[str, ...] = (), outcome: str = "full") -> CommitCycle:
    return CommitCycle("c", 1.0, outcome, 2.0, 1.0, None, unanswered, tables=tables)


def test_a_coordinator_adds_up_its_cycles() -> None:
    done = TableCommit("db.t", "done", 0.5, {"load": 0.1, "commit": 0.4}, 2, 70, total_files=9)
    failed = TableCommit("db.u", "failed", 0.1, {"load": 0.1}, reason="no such table")
    found = after_cycle(CoordinatorStatus(), cycle(done, failed), {"db.u": 1}, {}, 4)
    found = after_cycle(found, cycle(outcome="empty"), {"db.u": 2}, {}, 4)
    assert found.cycles == {"full": 1, "empty": 1}
    assert found.commits == {("db.t", "done"): 1, ("db.u", "failed"): 1}
    assert found.failing == {"db.u": Failure(2, "no such table")}
    assert (found.files, found.records, found.buffered) == (2, 70, 4)
    assert found.step_seconds["load"].count == 2
    assert found.totals == {"db.t": done}


def test_a_sink_that_is_well_has_no_reasons() -> None:
    assert reasons(WELL, 1_001.0) == ()
    assert not_ready(WELL) == ()


OVERDUE = TableMaintenance(due={("compact", "day=1"): DueWork(400.0, 14, 2_000)})


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (Cause.TABLE_FAILING, replace(WELL, log=LogStatus({"db.t": TableStatus(buffered_files=1, cycles=3)}, 1_000.0))),
        (Cause.TABLE_FAILING, replace(LEADS, coordinator=CoordinatorStatus(failing={"db.t": Failure(3, "why")}))),
        (Cause.TABLE_FAILING, replace(LEADS, coordinator=CoordinatorStatus(missing={"db.t": "offsets 1 to 2 of t-0"}))),
        (
            Cause.CYCLE_INCOMPLETE,
            replace(
                WELL,
                worker=replace(WELL.worker, leads=True),
                coordinator=CoordinatorStatus(recent=(cycle(unanswered=("t-3",), outcome="partial"),)),
            ),
        ),
        (Cause.CONTROL_LOG_BEHIND, replace(WELL, log=LogStatus(cycle_at=900.0))),
        (Cause.UNSIGNED_ENTRY, replace(WELL, worker=replace(WELL.worker, unsigned=("why", 1_000.0)))),
        (Cause.WORKER_ENDED, replace(WELL, log=replace(WELL.log, end=WorkerEnd("0.2.0", 0, "m", "h", "why")))),
        (Cause.SETTINGS_DIFFER, replace(WELL, worker=replace(WELL.worker, disagreements=(DIFFERS,)))),
        (Cause.POSITION_MOVED, replace(WELL, worker=replace(WELL.worker, unread={TP: (Span(1, 2),)}))),
        (Cause.POSITION_MOVED, replace(LEADS, coordinator=CoordinatorStatus(unread={TP: (Span(1, 2),)}))),
        (Cause.MAINTENANCE_OVERDUE, replace(LEADS, maintenance=MaintenanceStatus(tables={"db.t": OVERDUE}))),
        (Cause.PAUSED, replace(WELL, worker=replace(WELL.worker, paused_at=900.0, hidden=1))),
        (Cause.DEAD_LETTER_SHARE, replace(WELL, worker=replace(WELL.worker, batches=Batches(recent=((100, 2),))))),
        (Cause.PUBLICATION_REFUSED, replace(WELL, worker=replace(WELL.worker, refused_in_a_row=3))),
    ],
)
def test_each_cause_of_degraded_is_told_alone(cause: Cause, status: Status) -> None:
    (reason,) = reasons(status, 1_001.0)
    assert reason.cause is cause


def test_a_worker_with_other_settings_is_named_with_its_host_its_file_and_the_keys() -> None:
    assert disagreement_text(DIFFERS, "this one") == (
        "a worker on host-2 (lake.toml) of version 0.2.0 has other settings than this one: topics; give all workers of"
        " the sink the same settings, and another name to a sink of its own"
    )


def test_of_many_workers_with_other_settings_five_are_named() -> None:
    member = DIFFERS.member
    many = tuple(replace(DIFFERS, member=replace(member, host=f"host-{number}")) for number in range(8))
    shown = reasons(replace(WELL, worker=replace(WELL.worker, disagreements=many)), 1_001.0)
    assert len(shown) == 6 and "3 more workers have" in shown[-1].text


def test_an_entry_that_is_not_signed_is_a_reason_for_an_hour() -> None:
    status = replace(WELL, worker=replace(WELL.worker, unsigned=("why", -2_600.0)))
    assert not reasons(status, 1_001.0)
    assert reasons(status, 999.0)


def test_a_partition_without_an_answer_and_a_failing_table_are_named() -> None:
    worker = replace(WELL.worker, leads=True)
    coordinator = CoordinatorStatus(failing={"db.t": Failure(3, "it is gone")}, recent=(cycle(unanswered=("t-3",)),))
    found = reasons(replace(WELL, worker=worker, coordinator=coordinator), 1_001.0)
    assert [(each.cause, each.subject) for each in found] == [("table-failing", "db.t"), ("cycle-incomplete", "")]
    assert "it is gone" in found[0].text and "t-3" in found[1].text


def test_a_worker_that_has_joined_is_not_well_before_it_has_seen_a_cycle_end() -> None:
    assert health(replace(WELL, log=LogStatus()), 1_001.0) == "STARTING"
    assert health(WELL, 1_001.0) == "OK"


def test_a_worker_is_not_well_before_a_cycle_has_ended_to_which_all_partitions_had_answered() -> None:
    ear, seen = Ear(), []
    for unanswered in (2, 1, 0, 1):
        ear.say(CommitComplete(uuid4()), unanswered=unanswered)
        seen.append(health(replace(WELL, log=ear.table_states.status(1_000.0)), 1_005.0))
    assert seen == ["STARTING", "STARTING", "OK", "OK"]


def test_a_worker_that_has_not_joined_is_not_ready() -> None:
    assert not_ready(Status(FACTS)) == (
        "it has not joined the consumer group",
        "the backend and the catalog have not answered yet",
    )


def test_a_worker_whose_coordinator_has_not_heard_the_control_log_is_not_ready() -> None:
    behind = replace(WELL, worker=replace(WELL.worker, leads=True, caught_up=False))
    assert not_ready(behind) == ("the control log has not been read to its end yet",)


def test_refusals_are_counted_until_a_publication_succeeds() -> None:
    publications = Publications()
    for outcome in ("fenced", "done", "stale", "fenced"):
        publications.add(outcome)
    assert publications.refused_in_a_row == 2
    assert publications.outcomes == {"fenced": 2, "done": 1, "stale": 1}


def test_publications_that_the_order_gate_holds_back_degrade_the_sink_and_name_their_table() -> None:
    log = LogStatus({"db.u": TableStatus(buffered_files=2, cycles=4)}, 1_000.0)
    held = CoordinatorStatus(
        held_back={"db.u": "1 entry is not committed after 3 commit cycles: offsets 0 to 9 of s-0 are missing"}
    )
    leads = replace(WELL, worker=replace(WELL.worker, leads=True), log=log, coordinator=held)
    (reason,) = reasons(leads, 1_001.0)
    assert (reason.cause, reason.subject) == (Cause.ORDER_GATE, "db.u")
    assert reason.text.startswith("table db.u: 1 entry is not committed after 3 commit cycles: offsets 0 to 9 of s-0")
    former = replace(leads, worker=replace(leads.worker, leads=False))
    assert [each.cause for each in reasons(former, 1_001.0)] == [Cause.TABLE_FAILING]


def test_a_table_that_was_rolled_back_degrades_the_sink_until_somebody_answers() -> None:
    found = CoordinatorStatus(rolled_back={"db.u": RolledBack({TopicPartition("s", 0): (Span(100, 300),)})})
    leads = replace(WELL, worker=replace(WELL.worker, leads=True), coordinator=found)
    (reason,) = reasons(leads, 1_001.0)
    assert (reason.cause, reason.subject) == ("rolled-back", "db.u")
    assert (
        "no longer holds 200 offsets" in reason.text
        and "`calving rollback FILE --table db.u --as-is --then restore`" in reason.text
    )
    assert reasons(replace(leads, coordinator=CoordinatorStatus()), 1_001.0) == ()


def test_what_commits_did_to_rows_is_added_up_by_table() -> None:
    done = TableCommit("db.t", "done", 0.1, mutations=MutationCounts(keys=3, superseded=2, unmatched=1))
    found = after_cycle(CoordinatorStatus(), cycle(done, TableCommit("db.u", "done", 0.1)), {}, {}, 0)
    found = after_cycle(found, cycle(done), {}, {}, 0)
    assert found.mutations == {"db.t": MutationCounts(keys=6, superseded=4, unmatched=2)}


def test_the_last_commit_that_changed_rows_stays_known_after_others() -> None:
    changed = TableCommit("db.t", "done", 0.1, mutations=MutationCounts(keys=3), commit_id="first")
    again, other = replace(changed, commit_id="second"), TableCommit("db.t", "done", 0.1, commit_id="third")
    found = CoordinatorStatus()
    for each in (changed, again, other):
        found = after_cycle(found, cycle(each), {}, {}, 0)
    assert found.changes == {"db.t": again}


def test_who_leads_is_whoever_sent_the_last_event_of_a_coordinator() -> None:
    ear, leader = Ear(), Leader("m-1", "k1", "http://k1:8083/")
    ear.table_states.hear(Envelope(0, 1, StartCommit(ear.commit), attached=Attachment(leader=leader)), 1.0)
    ear.write(0, 7)
    assert ear.table_states.status(0.0).leader == leader
    ear.say(CommitComplete(ear.commit))
    assert ear.table_states.status(0.0).leader is None  # an older version, which does not say it


@pytest.mark.parametrize(
    ("said", "leader"),
    [
        (["m", "k", "https://k:1/"], Leader("m", "k", "https://k:1/")),
        (["m", "k", "javascript:alert(1)"], Leader("m", "k", "")),
        (["m", "k\n", "https://k:1/"], None),
        (["m", "k", "https://" + "k" * 500], None),
        (["m", "k"], None),
        ({"member": "m"}, None),
    ],
)
def test_of_who_leads_nothing_is_taken_over_but_short_text_and_addresses_of_the_web(
    said: object, leader: Leader | None
) -> None:
    value = encode(Message(uuid4(), 0, "g", StartCommit(uuid4())))
    beside = json.dumps({"group": "g", "leader": said}).encode()
    envelope = Entries("g", "log").envelope(0, 0, b"s", value, None, beside)
    assert envelope is not None and envelope.attached.leader == leader


def test_what_a_former_leader_knew_of_failing_tables_degrades_nothing() -> None:
    failing = CoordinatorStatus(
        recent=(cycle(unanswered=("t-3",), outcome="partial"),),
        failing={"db.t": Failure(3, "why")},
        missing={"db.u": "offsets 1 to 2 of t-0"},
    )
    assert len(reasons(replace(LEADS, coordinator=failing), 1_001.0)) == 3
    assert reasons(replace(WELL, coordinator=failing), 1_001.0) == ()


def test_the_log_has_a_reason_once_when_it_comes_and_when_it_goes() -> None:
    told, page = HealthLog(), "docs/how-to/on-call.md"
    table, refused = Reason(Cause.TABLE_FAILING, "db.t", "table db.t: why"), Reason(Cause.PUBLICATION_REFUSED, "", "3")
    assert told.lines([table], WELL.worker) == [
        f"DEGRADED: table-failing: table db.t: why; next: calving validate FILE (see {page}#table-failing)"
    ]
    (line,) = told.lines([replace(table, text="table db.t: why, and for longer"), refused], WELL.worker)
    assert line.startswith("DEGRADED: publication-refused: 3; next: kafka-consumer-groups.sh ")
    assert told.lines([refused], WELL.worker) == ["no longer DEGRADED: table-failing db.t"]
    assert told.lines([], WELL.worker) == ["no longer DEGRADED: publication-refused"]


def test_a_worker_that_starts_over_says_of_no_reason_that_it_is_gone() -> None:
    told, table = HealthLog(), Reason(Cause.TABLE_FAILING, "db.t", "table db.t: why")
    told.lines([table], LEADS.worker)
    assert told.lines([], replace(LEADS.worker, joined=False)) == []
    assert told.lines([], LEADS.worker) == ["no longer DEGRADED: table-failing db.t"]


def test_a_worker_that_no_longer_leads_leaves_the_reasons_of_leaders_to_the_next_one() -> None:
    told, paused = HealthLog(), Reason(Cause.PAUSED, "", "it is paused")
    told.lines([Reason(Cause.TABLE_FAILING, "db.t", "table db.t: why"), paused], LEADS.worker)
    assert told.lines([], WELL.worker) == [
        "no longer DEGRADED: paused",
        "left to the next leader: table-failing db.t",
    ]


def test_an_error_after_which_a_worker_starts_over_ends_neither_its_pause_nor_its_reasons() -> None:
    board = Board(WELL.sink)
    reporter, tp = Reporter(board), TopicPartition("t", 0)
    unread, held = {tp: (Span(5, 9),)}, {tp: PartitionStatus(0, 10, 0)}
    before = WorkerStatus(True, True, True, 60.0, True, held, 10, unread=unread)
    board.worker(before, LogStatus(cycle_at=999.0))
    reporter.failed(UnavailableError("no broker answers"), Batches(count=3))
    after = board.status.worker
    assert (after.paused_at, after.leads, after.partitions, after.unread) == (60.0, True, held, unread)
    assert (after.joined, after.restarts, after.batches.count) == (False, 1, 3)
    assert {r.cause for r in reasons(board.status, 1_000.0)} == {Cause.PAUSED, Cause.POSITION_MOVED}


def test_a_worker_that_starts_over_says_why_no_cycle_ends() -> None:
    worker = replace(WELL.worker, joined=False, error="UnavailableError: table db.t cannot be loaded")
    (reason,) = reasons(replace(WELL, worker=worker, log=LogStatus(cycle_at=900.0)), 1_000.0)
    assert reason.text.endswith("for 100 s; it starts over: UnavailableError: table db.t cannot be loaded")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("table db.t does not exist", "table db.t: does not exist (3 commits failed in a row)"),
        ("table db.t: others were faster", "table db.t: others were faster (3 commits failed in a row)"),
        ("the catalog answers 500", "table db.t: the catalog answers 500 (3 commits failed in a row)"),
    ],
)
def test_the_reason_of_a_failing_table_names_it_once(reason: str, text: str) -> None:
    failing = {"db.t": Failure(3, reason)}
    (found,) = reasons(replace(LEADS, coordinator=CoordinatorStatus(failing=failing)), 1_001.0)
    assert found.text == text
