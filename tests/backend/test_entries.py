"""Headers of control events, as bytes: those of version 0.1.0 are read, and new ones are the same."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest

from calving.backend.entries import MOST_GROUPS, Encoded, Entries, beside_text, covered_text, payloads, settled_text
from calving.backend.headers import Headers
from calving.errors import DataLossError, NewerVersionError
from calving.model.events import (
    NO_COMMIT,
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    Event,
    Leader,
    Parked,
    Publication,
    StartCommit,
    TableReference,
    TargetState,
    WorkerEnd,
)
from calving.model.forms import NEWEST, StoredForm
from calving.model.marks import TableMark
from calving.model.members import Member
from calving.model.offsets import Coverage, Span, TopicPartition, decode_coverage, within
from calving.model.tables import Branches
from calving.protocol.coordinator import Coordinator, Intervals
from calving.protocol.forms import check_form
from calving.runtime.log_view import ControlLogView
from calving.serving.metrics import exposition
from calving.serving.views import overview
from calving.status.table_states import TableStates
from calving.status.values import SinkFacts, Status
from calving.testing.odd_entries import extreme, newer, own_with_files, strange
from calving.version import __version__

COMMIT = UUID(int=1)
WRITTEN = DataWritten(COMMIT, TableReference("c", ("db",), "t"))
PLAIN = TopicPartition("orders", 2)
KNOWN = within(TopicPartition("orders", 10), "JfUaVlT2R5e")
OTHERS = (within(TopicPartition("orders-x", 0), "1"), TopicPartition("orders.eu", 0))
ATTACHED = Attachment(
    {KNOWN: (Span(0, 5), Span(7, 9)), PLAIN: (Span(0, 4),)},
    {("db", "a.b", "t"): TableMark("u-1", 7, {0: 5, 1: 3}), ("db", "u"): TableMark("u-2", 1)},
    {("db", "t"): Parked("s3://b/last", 3, {KNOWN: (Span(0, 10), Span(15, 20)), PLAIN: (Span(3, 4),)})},
    frozenset({(1, 3), (0, 7)}),
    Leader("m-1", "k1", "https://k1:8083/"),
    restarts={KNOWN: (1, 0)},
    read={0: 12, 1: 4},
    unanswered=2,
)
SETTLED = b'{"orders":{"2":[[0,4]]},"orders@JfUaVlT2R5e":{"10":[[0,5],[7,9]]}}'
BESIDE = (
    b'{"group":"g","tables":[["db","a.b","t","u-1",7],["db","u","u-2",1]],"controls":[[[0,5],[1,3]],null],"parked":[["db","t","s3://b/last",3,'
    b'"{\\"orders\\":{\\"2\\":[[3,4]]},\\"orders@JfUaVlT2R5e\\":{\\"10\\":[[0,10],[15,20]]}}"]],'
    b'"restarts":"{\\"orders@JfUaVlT2R5e\\":{\\"10\\":[[1,0]]}}","leader":["m-1","k1","https://k1:8083/"],"released":[[0,7],[1,3]],'
    b'"read":[[0,12],[1,4]],"unanswered":2}'
)


@pytest.mark.parametrize(
    ("said", "state"),
    [(b'"STOPPED"', TargetState.STOPPED), (b'"RUNNING"', TargetState.RUNNING), (b'"PAUSED"', None), (b"[1]", None)],
)
def test_a_state_that_is_none_of_a_sink_is_left_out(said: bytes, state: TargetState | None) -> None:
    found = Headers.of(None, b'{"group":"g","state":' + said + b"}").envelope((0, 1), CommitComplete(COMMIT))
    assert found.attached.state is state
    if state is not None:
        assert said in beside_text("g", [CommitComplete(COMMIT)], [b"x"], Attachment(state=state))


def test_what_a_coordinator_attaches_is_written_byte_for_byte() -> None:
    assert settled_text(ATTACHED) == SETTLED
    assert beside_text("g", [CommitComplete(COMMIT)], [b"x"], ATTACHED) == BESIDE


def test_a_publication_says_whose_it_is_which_version_wrote_it_and_how_many_parts_it_has() -> None:
    text = beside_text("g", [WRITTEN, DataComplete(COMMIT)], [b"1", b"2", b"3"])
    assert text == f'{{"group":"g","version":"{__version__}","parts":2}}'.encode()


@pytest.mark.parametrize(
    ("said", "known"), [(None, None), ("1700000000000", 1_700_000_000_000), ('"1"', None), ("-1", None)]
)
def test_an_answer_tells_since_when_its_worker_is_paused(said: str | None, known: int | None) -> None:
    publication = Publication((DataComplete(COMMIT),), {}, {}, paused_ms=known)
    text = Encoded.of_worker("g", publication, 100_000).beside
    if said is not None and known is None:
        text = f'{{"group":"g","parts":0,"paused":{said}}}'.encode()
    assert heard(DataComplete(COMMIT), b"", text) == Envelope(0, 7, DataComplete(COMMIT), parts=0, paused_ms=known)


MEMBER = Member("0.2.0", "d6ea4d0045632165", NEWEST, "host-1", "lake.toml", {"topics": "0f31b476"}, id="m-1")


@pytest.mark.parametrize(
    ("member", "text"),
    [
        (MEMBER.short, '{"version":"0.2.0","settings":"d6ea4d0045632165","form":[1,"0.2.0"]}'),
        (
            MEMBER,
            '{"version":"0.2.0","settings":"d6ea4d0045632165","form":[1,"0.2.0"],"host":"host-1","file":"lake.toml",'
            '"keys":{"topics":"0f31b476"},"id":"m-1"}',
        ),
    ],
)
def test_an_answer_tells_what_its_worker_is(member: Member, text: str) -> None:
    publication = Publication((DataComplete(COMMIT),), {}, {}, member=member)
    beside = Encoded.of_worker("g", publication, 100_000).beside
    assert beside == f'{{"group":"g","member":{text},"parts":0}}'.encode()
    assert heard(DataComplete(COMMIT), b"", beside) == Envelope(0, 7, DataComplete(COMMIT), parts=0, member=member)


def test_a_coordinator_tells_which_workers_have_other_settings_whatever_the_store_has_removed() -> None:
    told = Attachment(members=(MEMBER, replace(MEMBER, settings="1", host="host-2", keys={"topics": "1"})))
    beside = beside_text("g", [CommitComplete(COMMIT)], [b"x"], told)
    entry = heard(CommitComplete(COMMIT), b"", beside)
    assert entry is not None
    assert entry.attached == told
    log = ControlLogView("id", {})
    log.hear(entry)
    (sentence,) = log.differing
    assert sentence.startswith(
        "worker m-1 on host-2 (lake.toml) of version 0.2.0 has other settings than the others: topics"
    )


@pytest.mark.parametrize("odd", ['"a"', "7", "{}", "[7]", '[{"version":1}]'])
def test_odd_workers_of_a_coordinator_are_left_out(odd: str) -> None:
    entry = heard(CommitComplete(COMMIT), b"", f'{{"group":"g","members":{odd}}}'.encode())
    assert entry is not None
    assert entry.attached.members == ()


@pytest.mark.parametrize(
    "odd",
    [
        '"0.2.0"',
        "[]",
        '{"version":1}',
        '{"version":"two\\nlines"}',
        f'{{"host":"{"x" * 501}"}}',
        '{"keys":["topics"]}',
        '{"keys":{"topics":1}}',
        '{"keys":{"top\\u001bics":"1"}}',
        '{"file":null}',
        '{"id":"\\u001b"}',
        '{"form":1}',
        '{"form":[1]}',
        '{"form":[-1,"0.2.0"]}',
        '{"form":[1,null]}',
        '{"form":[1,"0.2.0 x"]}',
    ],
)
def test_what_a_worker_tells_of_itself_is_dropped_unless_it_is_safe_to_show(odd: str) -> None:
    text = f'{{"group":"g","parts":0,"member":{odd}}}'.encode()
    assert heard(DataComplete(COMMIT), b"", text) == Envelope(0, 7, DataComplete(COMMIT), parts=0)


@pytest.mark.parametrize("event", [WRITTEN, DataComplete(COMMIT)])
def test_an_event_that_a_later_version_has_written_names_its_form(event: DataWritten | DataComplete) -> None:
    later = StoredForm(NEWEST.number + 1, "0.3.0")
    beside = f'{{"group":"g","form":[{later.number},"0.3.0"]}}'.encode()
    envelope = heard(event, b"", beside)
    assert envelope is not None
    with pytest.raises(NewerVersionError, match=r"install version 0\.3\.0 or later"):
        check_form(envelope, NEWEST)


OTHER = DataWritten(COMMIT, TableReference("c", ("db", "a.b"), "t"))


@pytest.mark.parametrize(
    ("branches", "told"),
    [
        (Branches(), '"branch":"main"'),
        (Branches("audit"), '"branch":"audit"'),
        (
            Branches("main", {("db", "a.b", "t"): "audit", ("db", "x"): "b"}),
            '"branch":"main","branches":[["db","a.b","t","audit"]]',
        ),
    ],
)
def test_files_tell_for_which_branch_they_are_written(branches: Branches, told: str) -> None:
    publication = Publication((WRITTEN, OTHER, DataComplete(COMMIT)), {}, {}, branches=branches)
    beside = Encoded.of_worker("g", publication, 100_000).beside
    assert beside == f'{{"group":"g",{told},"version":"{__version__}","parts":2}}'.encode()
    for event in (WRITTEN, OTHER):
        entry = heard(event, b"", beside)
        assert entry is not None and entry.branch == branches.of(event.table.identifier) == publication.branch_of(event)


def test_files_tell_whether_the_settings_of_their_worker_change_rows() -> None:
    tables = frozenset({OTHER.table.identifier})
    publication = Publication((WRITTEN, OTHER, DataComplete(COMMIT)), {}, {}, ordered=tables)
    beside = Encoded.of_worker("g", publication, 100_000).beside
    assert b'"ordered":[["db","a.b","t"]]' in beside
    for event, is_ordered in ((WRITTEN, False), (OTHER, True)):
        entry = heard(event, b"", beside)
        assert entry is not None and entry.ordered is is_ordered


def test_files_of_an_earlier_version_and_an_answer_without_files_tell_no_branch() -> None:
    entry = heard(WRITTEN, b"", b'{"group":"g"}')
    assert entry is not None and entry.branch is None
    beside = Encoded.of_worker("g", Publication((DataComplete(COMMIT),), {}, {}, branches=Branches("b")), 9_999).beside
    assert beside == b'{"group":"g","parts":0}'


@pytest.mark.parametrize(
    "odd", ['"branch":1', '"branch":"a","branches":[[]]', '"branch":"a","branches":[["db","t",1]]', '"ordered":[[1]]']
)
def test_files_of_which_nobody_knows_the_branch_are_not_passed_over(odd: str) -> None:
    (value,), beside = payloads("g", [WRITTEN], 100_000), f'{{"group":"g",{odd}}}'.encode()
    with pytest.raises(DataLossError, match="cannot be decoded"):
        Entries("g", "log", strict=True).envelope(0, 7, b"m", value, SETTLED, beside)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", newer("g", "0.3.0"))
def test_an_entry_that_cannot_be_decoded_names_the_version_that_can(name: str, strict: bool) -> None:
    with pytest.raises(NewerVersionError, match=r"form 2 .* install version 0\.3\.0 or later"):
        Entries("g", "log", strict=strict).envelope(0, 7, b"m", *newer("g", "0.3.0")[name])


@pytest.mark.parametrize("name", newer("g", "0.3.0"))
def test_another_group_may_use_a_form_that_this_version_does_not_know(name: str) -> None:
    assert Entries("h", "log", strict=True).envelope(0, 7, b"m", *newer("g", "0.3.0")[name]) is None


@pytest.mark.parametrize("odd", ['[1,"0.2.0"]', "[2]", '[2,"two\\nlines"]', '"2"', "null"])
def test_a_form_that_is_known_or_none_is_no_reason_to_install_another_version(odd: str) -> None:
    beside = f'{{"group":"g","form":{odd}}}'.encode()
    with pytest.raises(DataLossError, match="cannot be decoded"):
        Entries("g", "log", strict=True).envelope(0, 7, b"m", b"zz", b'{"source":{"0":[[0,10]]}}', beside)


def test_groups_that_somebody_has_made_up_take_little_memory() -> None:
    entries = Entries("g", "log")
    for number in range(2 * MOST_GROUPS):
        value = payloads(f"{number}{'x' * 400}", [StartCommit(COMMIT)], 100_000)[0]
        assert entries.envelope(0, number, b"", value, None) is None
    assert len(entries.others) == MOST_GROUPS
    assert max(map(len, entries.others)) <= 300


END = WorkerEnd("0.2.0", 1_700_000_000_000, "m-1", "kafka-1", "topic 'orders' was deleted")


def test_the_end_of_a_worker_is_an_answer_without_partitions() -> None:
    found = Encoded.of_end("g", END, 100_000)
    assert found.beside == (
        b'{"group":"g","parts":0,"end":["0.2.0",1700000000000,"m-1","kafka-1","topic \'orders\' was deleted"]}'
    )
    (value,) = found.events
    envelope = Entries("g", "log", strict=True).envelope(0, 7, b"m-1", value, found.coverage, found.beside)
    assert envelope == Envelope(0, 7, DataComplete(NO_COMMIT), parts=0, end=END)


@pytest.mark.parametrize(
    "odd",
    [
        '"why"',
        "[]",
        '["0.2.0",1,"m","h"]',
        '["0.2.0",1,"m","h","e","x"]',
        '["0.2.0","1","m","h","e"]',
        '["0.2.0",1e999,"m","h","e"]',
        '["0.2.0",-1,"m","h","e"]',
        '["0.2.0",1,"m","h","two\\nlines"]',
        f'["0.2.0",1,"m","h","{"x" * 501}"]',
        '["0.2.0",1,"m",null,"e"]',
    ],
)
def test_an_end_in_another_form_is_not_shown(odd: str) -> None:
    (value,), beside = payloads("g", [DataComplete(COMMIT)], 100_000), f'{{"group":"g","parts":0,"end":{odd}}}'
    envelope = Entries("g", "log", strict=True).envelope(0, 7, b"m-1", value, b"", beside.encode())
    assert envelope == Envelope(0, 7, DataComplete(COMMIT), parts=0)


def test_what_is_covered_is_written_in_the_order_of_the_names_as_written() -> None:
    spans: Coverage = dict.fromkeys([KNOWN, PLAIN, *OTHERS], (Span(0, 1),))
    assert covered_text(Publication((), {}, spans)) == (
        b'{"orders":{"2":[[0,1]]},"orders-x@1":{"0":[[0,1]]},"orders.eu":{"0":[[0,1]]},'
        b'"orders@JfUaVlT2R5e":{"10":[[0,1]]}}'
    )


RESTARTED = b'{"orders":{"2":[[0,4]]},"orders@JfUaVlT2R5e":{"10":[[10,9]]}}'
RESTARTED_AND_SETTLED = b'{"orders":{"2":[[1,0]]},"orders@JfUaVlT2R5e":{"10":[[1,0],[2,9]]}}'
DONE_BEFORE = b'{"orders@JfUaVlT2R5e":{"10":[[0,10],[10,9]]}}'


def test_offsets_that_restart_are_written_as_a_span_that_ends_before_it_starts() -> None:
    covered: Coverage = {KNOWN: (Span(0, 9),), PLAIN: (Span(0, 4),)}
    assert covered_text(Publication((), {}, covered, restarted=frozenset([KNOWN]))) == RESTARTED
    settled: Coverage = {KNOWN: (Span(2, 9),), PLAIN: ()}
    assert settled_text(Attachment(settled, restarted=frozenset([KNOWN, PLAIN]))) == RESTARTED_AND_SETTLED


def test_offsets_that_restart_are_heard_as_a_flag() -> None:
    complete, done = (
        heard(DataComplete(COMMIT), RESTARTED, b"{}"),
        heard(CommitComplete(COMMIT), RESTARTED_AND_SETTLED, b"{}"),
    )
    assert complete is not None and done is not None
    assert complete.restarted == {KNOWN}
    assert complete.spans == {KNOWN: (Span(0, 9),), PLAIN: (Span(0, 4),)}
    assert done.attached.restarted == {KNOWN, PLAIN}
    assert done.attached.settled == {KNOWN: (Span(2, 9),), PLAIN: ()}


def test_what_earlier_versions_put_before_a_restart_is_left_out() -> None:
    complete = heard(DataComplete(COMMIT), DONE_BEFORE, b"{}")
    assert complete is not None
    assert complete.restarted == {KNOWN}
    assert complete.spans == {KNOWN: (Span(0, 9),)}


@pytest.mark.parametrize(("start", "end"), [(1, 0), (-1, 5)])
def test_a_span_that_is_none_cannot_be_made(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="no offsets from"):
        Span(start, end)


def heard(event: Event, spans: bytes, beside: bytes) -> Envelope | None:
    (value,) = payloads("g", [event], 900_000)
    return Entries("g", "the log").envelope(0, 7, b"m", value, spans, beside)


def test_what_is_attached_is_heard_with_the_event() -> None:
    assert heard(CommitComplete(COMMIT), SETTLED, BESIDE) == Envelope(0, 7, CommitComplete(COMMIT), attached=ATTACHED)


def test_what_a_publication_covers_is_heard_with_each_of_its_events() -> None:
    spans = decode_coverage(SETTLED.decode())
    assert heard(WRITTEN, SETTLED, b'{"group":"g","parts":2}') == Envelope(0, 7, WRITTEN, spans)
    by_this = b'{"group":"g","version":"0.2.0","parts":2}'
    assert heard(WRITTEN, SETTLED, by_this) == Envelope(0, 7, WRITTEN, spans, writer="0.2.0")
    complete = DataComplete(COMMIT)
    assert heard(complete, SETTLED, b'{"group":"g","parts":2}') == Envelope(0, 7, complete, spans, 2)


@pytest.mark.parametrize("name", strange("g"))
@pytest.mark.parametrize("strict", [True, False])
def test_an_entry_of_another_group_or_of_nobody_is_skipped(name: str, strict: bool) -> None:
    entries = Entries("g", "the log", strict=strict)
    assert entries.envelope(0, 7, b"m", *strange("g")[name]) is None
    assert not entries.unreadable
    assert entries.undecodable.total() == (not entries.others)


@pytest.mark.parametrize("name", own_with_files("g"))
def test_an_entry_of_the_group_that_may_have_files_is_refused_with_its_place(name: str) -> None:
    entry = own_with_files("g")[name]
    with pytest.raises(DataLossError, match="the log, partition 0, offset 7: an entry of this sink cannot be decoded"):
        Entries("g", "the log", strict=True).envelope(0, 7, b"m", *entry)


@pytest.mark.parametrize("name", own_with_files("g"))
def test_a_watcher_skips_an_entry_that_a_coordinator_refuses_and_keeps_its_place(name: str) -> None:
    entries = Entries("g", "the log", progress=True)
    assert entries.envelope(0, 7, b"m", *own_with_files("g")[name]) is None
    assert "partition 0, offset 7" in entries.unreadable[0, 7]
    assert entries.undecodable == {"m": 1}


@pytest.mark.parametrize("name", extreme("g"))
def test_a_coordinator_reads_values_that_no_sink_writes_and_goes_on(name: str) -> None:
    """So do a worker's status, and a command that reads the log from outside."""
    envelope = Entries("g", "the log", strict=True).envelope(0, 1, b"m", *extreme("g")[name])
    assert envelope is not None
    coordinator, source = Coordinator(Intervals(10, 30, 5), {}, 0), frozenset([TopicPartition("source", 0)])
    coordinator.tick(0, COMMIT, source)
    coordinator.heard(Envelope(0, 0, StartCommit(COMMIT)))
    coordinator.heard(envelope)
    coordinator.tick(31, UUID(int=2), source)
    table_states, heard = TableStates(), ControlLogView("id", {})
    table_states.hear(envelope, 0.0)
    heard.hear(envelope)
    status, facts = table_states.status(0.0), SinkFacts("s", "g", "m", "1", "kafka", "local", 0.0, 10.0, 30.0)
    assert json.dumps(overview(Status(facts, log=status), 1.0, with_values=False))
    assert exposition(lambda: Status(facts, log=status))("text/plain")[0]
    assert str(envelope.event)


def test_senders_of_undecodable_entries_are_counted_each_up_to_a_hundred() -> None:
    entries = Entries("g", "the log")
    for i in range(150):
        entries.envelope(0, i, f"{i}-{'x' * 10_000}".encode(), b"zz", None)
    assert len(entries.undecodable) == 101
    assert max(map(len, entries.undecodable)) < 400
    assert entries.undecodable.total() == 150


def test_a_request_for_a_cycle_is_an_answer_to_no_cycle_that_tells_no_offsets() -> None:
    found = Encoded.of_worker("g", Publication((DataComplete(NO_COMMIT),), {}, {}, wanted=True), 100_000)
    assert (found.coverage, found.beside) == (b"", b'{"group":"g","wanted":true,"parts":0}')
    asked = heard(DataComplete(NO_COMMIT), found.coverage, found.beside)
    assert asked == Envelope(0, 7, DataComplete(NO_COMMIT), parts=0, wanted=True)


@pytest.mark.parametrize("odd", ["1", '"true"', "[]", "null", "false"])
def test_an_answer_asks_for_a_cycle_only_if_it_says_so(odd: str) -> None:
    answer = heard(DataComplete(COMMIT), b"", f'{{"group":"g","parts":0,"wanted":{odd}}}'.encode())
    assert answer is not None and not answer.wanted
