"""Workers learn from each other's answers whether their settings differ."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from calving.model.events import NO_COMMIT, CommitComplete, DataComplete, Envelope, TableId
from calving.model.forms import NEWEST
from calving.model.members import MOST_TOLD, Member, told_key
from calving.protocol.members import REMEMBERED, Disagreement, Members
from calving.settings.deciding import deciding_keys

CYCLE = UUID(int=1)
OWN = Member("0.2.0", "aa", NEWEST, "host-a", "a.toml", {"topics": "1", "iceberg.tables": "2"})
OTHER = Member("0.2.0", "bb", NEWEST, "host-b", "b.toml", {"topics": "1", "iceberg.tables": "3"})


def answer(member: Member | None, sender: str, cycle: UUID = CYCLE) -> Envelope:
    return Envelope(0, 0, DataComplete(cycle), parts=0, member=member, sender=sender)


def heard(*envelopes: Envelope) -> Members:
    members = Members(OWN)
    for envelope in envelopes:
        members.hear(envelope)
    return members


def test_workers_with_the_same_settings_agree() -> None:
    members = heard(answer(OWN.short, "a"), answer(Member("0.2.1", "aa"), "b"))
    assert members.disagreements == ()


def test_a_worker_with_other_settings_is_known_before_its_keys_are() -> None:
    assert heard(answer(OTHER.short, "b")).disagreements == (Disagreement(OTHER.short, ()),)


def test_the_keys_that_differ_are_named() -> None:
    members = heard(answer(OTHER.short, "b"), answer(OTHER, "b"))
    assert members.disagreements == (Disagreement(OTHER, ("iceberg.tables",)),)


def test_a_key_that_only_one_of_them_has_differs() -> None:
    assert Member("", "", keys={"a": "1"}).differing(Member("", "", keys={"b": "1"})) == ("a", "b")


@pytest.mark.parametrize("level", [4, 9])
def test_keys_that_a_later_version_has_put_together_in_its_own_way_differ(level: int) -> None:
    later = replace(OTHER, keys={"all": "4"}, level=level)
    for one, two in ((OWN, later), (later, OWN)):
        assert one.differing(two) == ("all", "iceberg", "topics")


def test_workers_that_do_not_describe_themselves_are_left_out() -> None:
    assert heard(answer(None, "java")).disagreements == ()


def test_files_that_are_handed_over_outside_of_a_cycle_describe_nobody() -> None:
    assert heard(answer(OTHER, "b", NO_COMMIT)).disagreements == ()


def test_a_worker_that_no_longer_answers_is_forgotten() -> None:
    members = heard(answer(OTHER, "b"))
    for cycle in range(REMEMBERED):
        assert members.disagreements, cycle
        members.hear(Envelope(0, 0, CommitComplete(CYCLE)))
    assert members.disagreements == ()


def test_most_workers_tell_what_is_usual() -> None:
    members = heard(answer(OTHER, "b"), answer(OWN, "a"), answer(OWN.short, "c"))
    assert members.usual == OWN
    assert Members().usual is None


def test_workers_that_somebody_has_made_up_take_little_memory() -> None:
    members = Members(OWN)
    for number in range(5_000):
        members.hear(answer(Member("0.2.0", str(number), NEWEST, f"h{number}", "f", {"topics": "9"}), str(number)))
    assert len(members.disagreements) <= 2_000


def test_processes_of_one_host_and_file_are_told_apart() -> None:
    others = [replace(OTHER, id="b"), replace(OTHER, id="c"), replace(OTHER, id="d", settings="dd")]
    members = heard(*(answer(each, each.id) for each in others))
    assert [each.member.id for each in members.disagreements] == ["b", "c", "d"]


def test_processes_that_do_not_tell_who_they_are_are_named_once() -> None:
    assert len(heard(answer(OTHER, "b"), answer(OTHER, "c")).disagreements) == 1


def observed(*envelopes: Envelope) -> Members:
    """What a process hears that is no worker."""
    members = Members()
    for envelope in envelopes:
        members.hear(envelope)
    return members


def test_a_coordinator_tells_of_the_usual_settings_first_and_of_nobody_while_all_agree() -> None:
    two, short, other = [answer(OWN, "a"), answer(OWN, "c")], answer(OTHER.short, "b"), answer(OTHER, "b")
    assert observed(*two).differing == ()
    assert observed(*two, short).differing == ()  # which settings differ is not known yet
    assert observed(*two, short, other).differing == (OWN, OTHER)


def test_an_observer_believes_the_last_coordinator_whose_answers_the_log_may_have_lost() -> None:
    members = Members()
    members.tell((OWN, OTHER))
    assert [each.member for each in members.disagreements] == [OTHER]
    members.tell(())
    assert not members.disagreements


def test_a_coordinator_tells_of_a_few_workers_only() -> None:
    members = Members()
    for number in range(50):
        members.hear(answer(replace(OTHER, settings=str(number), file=f"{number}.toml"), str(number)))
        members.hear(answer(OWN, f"a{number}"))
    assert len(members.differing) == MOST_TOLD


def test_an_observer_knows_the_versions_of_the_workers() -> None:
    assert observed(answer(OWN, "a"), answer(replace(OWN, version="0.2.1"), "b"), answer(None, "java")).versions == (
        "0.2.0",
        "0.2.1",
    )


BRANCH, OF_TABLE = "iceberg.tables.default-commit-branch", "iceberg.table.db.t.commit-branch"
TABLE, ANOTHER = ("db", "t"), ("db", "u")


@pytest.mark.parametrize(
    ("other", "disputed"),
    [
        (OWN.short, ()),
        (OTHER, ()),
        (OTHER.short, (TABLE, ANOTHER)),
        (replace(OTHER, keys={**OTHER.keys, BRANCH: "4"}), (TABLE, ANOTHER)),
        (replace(OTHER, keys={**OTHER.keys, OF_TABLE: "4"}), (TABLE,)),
        (replace(OTHER, keys={**OWN.keys, OF_TABLE: "4"})._coarser(), (TABLE,)),
        (replace(OTHER, keys={"iceberg": "4", "topics": "1"}, level=3), (TABLE, ANOTHER)),
        (replace(OTHER, keys={"all": "4"}, level=4), (TABLE, ANOTHER)),
    ],
    ids=["same", "other tables", "not told yet", "default", "table", "table, in short", "all, in short", "unknown"],
)
def test_a_table_is_disputed_if_a_worker_tells_another_branch_or_may_have_one(
    other: Member, disputed: tuple[TableId, ...]
) -> None:
    members = heard(answer(OWN.short, "a"), answer(other, "b"))
    assert members.disputed(OWN, [TABLE, ANOTHER], deciding_keys) == {*disputed}


@pytest.mark.parametrize(
    "default", ["upsert-mode-enabled", "cdc-field", "inserts", "order-field", "default-id-columns"]
)
def test_a_table_is_disputed_if_a_worker_changes_its_rows_in_another_way_or_may(default: str) -> None:
    own = default.removeprefix("default-")
    for key, disputed in ((f"iceberg.tables.{default}", {TABLE, ANOTHER}), (f"iceberg.table.db.t.{own}", {TABLE})):
        other = replace(OTHER, keys={**OWN.keys, key: "4"})
        assert heard(answer(other, "b")).disputed(OWN, [TABLE, ANOTHER], deciding_keys) == disputed


def test_a_table_with_a_long_name_is_disputed_by_what_workers_tell_of_it() -> None:
    long = ("db", "t" * 300)
    key = told_key(f"iceberg.table.{'.'.join(long)}.cdc-field")
    assert heard(answer(replace(OTHER, keys={**OWN.keys, key: "4"}), "b")).disputed(
        OWN, [TABLE, long], deciding_keys
    ) == {long}


def test_who_has_answered_the_open_cycle_is_not_forgotten_at_the_ends_of_earlier_ones() -> None:
    """They stand in another partition of the control log, which is read late."""
    members, earlier = heard(answer(OTHER, "b")), UUID(int=9)
    for _ in range(2 * REMEMBERED):
        members.hear(Envelope(0, 0, CommitComplete(earlier)), CYCLE)
    assert members.disagreements
    members.hear(Envelope(0, 0, CommitComplete(CYCLE)), CYCLE)
    assert members.disagreements


def test_each_worker_is_compared_once_however_many_tables_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Member] = []
    differing = Member.differing

    def counted(one: Member, two: Member) -> tuple[str, ...]:
        compared.append(two)
        return differing(one, two)

    monkeypatch.setattr(Member, "differing", counted)
    assert not heard(answer(OTHER, "b")).disputed(OWN, [("db", f"t{number}") for number in range(1_000)], deciding_keys)
    assert compared == [OTHER]


def test_workers_that_tell_nothing_dispute_no_branch() -> None:
    assert not heard(answer(None, "java")).disputed(OWN, [TABLE], deciding_keys)
