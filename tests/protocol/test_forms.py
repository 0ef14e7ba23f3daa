"""Workers of several versions use the newest form that all of them know."""

from __future__ import annotations

from uuid import UUID

import pytest

from calving.errors import NewerVersionError, TableTroubleError
from calving.model.events import (
    Attachment,
    CommitComplete,
    DataComplete,
    DataWritten,
    Envelope,
    StartCommit,
    TableReference,
)
from calving.model.forms import NEWEST, OLDEST, UNMARKED, StoredForm
from calving.model.members import Member
from calving.protocol.forms import FORM, FormInUse, check_table_forms, mark, newer_sinks, table_form
from calving.protocol.worker import BatchLimits, WorkerMachine

FIRST, SECOND = StoredForm(1, "0.2.0"), StoredForm(2, "0.3.0")


def start(cycle: int, form: StoredForm = OLDEST) -> Envelope:
    return Envelope(0, 0, StartCommit(UUID(int=cycle)), attached=Attachment(form=form))


def answer(cycle: int, form: StoredForm | None) -> Envelope:
    member = None if form is None else Member("", "", form)
    return Envelope(0, 0, DataComplete(UUID(int=cycle)), parts=0, member=member)


def end(cycle: int, form: StoredForm = OLDEST) -> Envelope:
    return Envelope(0, 0, CommitComplete(UUID(int=cycle)), attached=Attachment(form=form))


def in_use(own: StoredForm, *envelopes: Envelope, complete: bool = True) -> StoredForm:
    forms = FormInUse(own)
    for envelope in envelopes:
        forms.hear(envelope)
    if complete:
        forms.complete(max(e.event.commit_id for e in envelopes if isinstance(e.event, StartCommit)))
    return forms.form


def test_a_form_that_all_workers_know_comes_into_use() -> None:
    assert in_use(SECOND, start(1), answer(1, SECOND), answer(1, SECOND)) == SECOND


def test_the_lowest_form_of_all_workers_counts() -> None:
    assert in_use(SECOND, start(1), answer(1, SECOND), answer(1, FIRST)) == FIRST


@pytest.mark.parametrize("complete", [True, False])
def test_a_worker_of_the_java_sink_or_of_0_1_0_knows_only_the_oldest_form(complete: bool) -> None:
    assert in_use(SECOND, start(1), answer(1, SECOND), answer(1, None), complete=complete) == OLDEST


def test_a_cycle_without_all_answers_brings_no_form_into_use() -> None:
    assert in_use(SECOND, start(1), answer(1, SECOND), complete=False) == OLDEST


def test_no_form_comes_into_use_before_anybody_has_answered() -> None:
    assert in_use(SECOND, start(1)) == OLDEST


def test_answers_of_earlier_cycles_no_longer_count() -> None:
    assert in_use(SECOND, start(1), answer(1, None), end(1), start(2), answer(2, SECOND), answer(1, None)) == SECOND


def test_an_answer_counts_that_is_heard_before_the_start_of_its_cycle() -> None:
    """The start stands in another partition of the control log."""
    early = answer(2, None)
    assert in_use(SECOND, start(1), answer(1, None), early, end(1), start(2), answer(2, SECOND)) == OLDEST


def test_answers_that_come_too_late_or_are_made_up_take_little_memory() -> None:
    forms = FormInUse(SECOND)
    forms.hear(answer(1, FIRST))
    for cycle in range(2, 5_000):
        forms.hear(answer(cycle, SECOND))
        forms.hear(answer(1, SECOND))
    assert len(forms._lowest) <= 1_000
    forms.complete(UUID(int=1))
    assert forms.form == FIRST


def test_a_form_that_was_in_use_stays_whoever_joins() -> None:
    assert in_use(SECOND, end(1, SECOND), start(2), answer(2, FIRST), answer(2, None)) == SECOND


def written(form: StoredForm) -> Envelope:
    table = TableReference("catalog", ("db",), "orders")
    return Envelope(1, 0, DataWritten(UUID(int=1), table, (), ()), attached=Attachment(form=form))


@pytest.mark.parametrize("envelope", [written(SECOND), start(1, SECOND)])
def test_a_leader_commits_in_the_form_of_what_it_has_heard_before_a_former_leader_names_it(envelope: Envelope) -> None:
    """The former leader's CommitComplete stands in another partition of the control log."""
    assert in_use(SECOND, envelope, start(2), answer(2, FIRST), complete=False) == SECOND


def test_a_leader_uses_no_form_that_it_does_not_know() -> None:
    assert in_use(FIRST, start(1), answer(1, SECOND)) == FIRST


@pytest.mark.parametrize("envelope", [start(1, SECOND), end(1, SECOND)])
def test_a_process_that_does_not_know_the_form_in_use_stops_and_names_the_version_to_install(
    envelope: Envelope,
) -> None:
    sentence = "use form 2 .* install version 0.3.0 or later"
    with pytest.raises(NewerVersionError, match=sentence):
        FormInUse(FIRST).hear(envelope)
    with pytest.raises(NewerVersionError, match=sentence):
        WorkerMachine(BatchLimits(1, 1), FIRST).heard(envelope)
    WorkerMachine(BatchLimits(1, 1), SECOND).heard(envelope)


def test_the_newest_form_is_newer_than_the_oldest() -> None:
    assert OLDEST < NEWEST


# Tables

NAME = f"{FORM}.control.connect-a"
LATER = StoredForm(UNMARKED.number + 1, "0.9.0")
LATEST = StoredForm(UNMARKED.number + 2, "0.10.0")


@pytest.mark.parametrize(
    ("named", "form", "written"),
    [
        (None, OLDEST, {}),
        (None, UNMARKED, {}),
        (None, LATER, {NAME: "2:0.9.0"}),
        (LATER, LATER, {}),
        (LATER, LATEST, {NAME: "3:0.10.0"}),
        (LATEST, LATER, {}),
        (LATEST, OLDEST, {}),
    ],
)
def test_a_commit_names_its_form_if_the_tables_of_that_form_differ_and_never_goes_back(
    named: StoredForm | None, form: StoredForm, written: dict[str, str]
) -> None:
    assert mark({} if named is None else {NAME: str(named)}, NAME, form) == written


def test_a_table_tells_the_form_that_was_written() -> None:
    assert table_form(mark({}, NAME, LATER), NAME) == LATER
    assert table_form({}, NAME) == OLDEST


@pytest.mark.parametrize(
    "text", ["", "2", "two:0.9.0", "2:", "-2:0.9.0", "2:0.9\x1b[2J", f"2:{'9' * 51}", f"{'9' * 19}:0.9.0", "2:0.9.0 x"]
)
def test_a_form_that_somebody_has_changed_is_named(text: str) -> None:
    with pytest.raises(TableTroubleError, match=r"'calving\.form\.control\.connect-a' .* is not what calving writes"):
        table_form({NAME: text}, NAME)


def test_what_somebody_else_has_written_into_a_table_is_shown_short_and_without_control_characters() -> None:
    name, text = f"{FORM}.{'x' * 10_000}\x1b[2J", "\x1b[2J" * 1_000_000
    sentences: list[str] = []
    for error, properties in ((TableTroubleError, {name: text}), (NewerVersionError, {name: str(LATER)})):
        with pytest.raises(error) as caught:
            check_table_forms(properties)
        sentences.append(str(caught.value))
    sentences.append(newer_sinks({name: str(LATER)}, []))
    assert max(map(len, sentences)) < 1_000
    assert all(map(str.isprintable, sentences))


def test_the_newer_form_of_any_sink_of_a_table_is_refused() -> None:
    check_table_forms({NAME: str(LATER)}, LATER)
    with pytest.raises(NewerVersionError, match=r"written in form 3, .* install version 0\.10\.0 or later"):
        check_table_forms({NAME: str(LATER), f"{FORM}.control.other@audit": str(LATEST)}, LATER)


@pytest.mark.parametrize("branch", ["", "@audit"])
def test_another_sink_that_writes_a_newer_form_is_told_unless_it_is_known(branch: str) -> None:
    properties = {f"{NAME}{branch}": str(LATER)}
    sentence = newer_sinks(properties, ["control.connect-b"])
    assert f"sink control.connect-a{branch} writes it in form 2" in sentence
    assert "install version 0.9.0 or later" in sentence
    assert newer_sinks(properties, ["control.connect-a"]) == ""
    assert newer_sinks(properties, [], LATER) == ""
