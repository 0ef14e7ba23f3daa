"""The order gate of mutation tables: what comes too early waits, and nothing waits for ever."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from calving.model.events import DataComplete, DataWritten, Envelope, TableReference
from calving.model.files import PARTIAL, DataFile, FileContent
from calving.model.offsets import Span, TopicPartition
from calving.protocol.buffer import Buffer
from calving.protocol.commit import Admitted, Step, admit
from calving.protocol.held_back import Gate, waiting
from calving.protocol.ledger import NO_LEDGER, NOWHERE, Ledger, SourceProgress
from calving.protocol.order import disordered

TABLE = TableReference("c", ("db",), "t")
COMMIT = UUID(int=1)
A, B = TopicPartition("s", 0), TopicPartition("s", 1)


def entry(partition: int, offset: int, name: str, **spans: tuple[int, int]) -> Envelope:
    """``a``, ``b``: what its publication covers of these partitions."""
    covers = {{"a": A, "b": B}[tp]: (Span(*span),) for tp, span in spans.items()}
    return Envelope(partition, offset, DataWritten(COMMIT, TABLE, (DataFile(name, "PARQUET", 1, 10),)), covers)


def admitted(entries: Iterable[Envelope], ledger: Ledger = NO_LEDGER, also: Iterable[Envelope] = ()) -> Admitted:
    """All that a coordinator has heard are ``entries``, and that ``also`` there are no files in these."""
    buffer = Buffer()
    for heard in [*also, *entries]:
        if heard not in also:
            buffer.hear(heard)
        buffer.hear(Envelope(heard.partition, heard.offset + 1, DataComplete(COMMIT), heard.spans, None))
    return admit(entries, buffer.whole(), buffer.progress(), ledger, in_order=True)


def named(name: str) -> DataFile:
    return DataFile(name, "PARQUET", 1, 10)


def names_of(files: Iterable[DataFile]) -> list[str]:
    return [file.file_path for file in files]


def names(found: Admitted) -> list[str]:
    return [name for step in found.steps for name in names_of(step.data_files)]


def test_a_publication_waits_for_the_one_before_it() -> None:
    found = admitted([entry(0, 0, "late", a=(100, 200))])
    assert (names(found), [e.offset for e in found.held_back]) == ([], [0])
    assert (found.ledger.source, found.ledger.control) == ({}, {0: 0})


def test_what_the_table_holds_is_waited_for_no_more() -> None:
    found = admitted([entry(0, 6, "late", a=(100, 200))], Ledger({0: 5}, {A: 100}, {A: 100}))
    assert (names(found), found.ledger.source, found.ledger.control) == (["late"], {A: 200}, {0: 8})


def test_records_that_brought_nothing_for_the_table_are_no_hole() -> None:
    nothing = entry(1, 0, "-", a=(0, 100))
    assert names(admitted([entry(0, 0, "late", a=(100, 200))], also=[nothing])) == ["late"]


def test_publications_of_a_partition_come_in_the_order_of_its_offsets_wherever_they_were_heard() -> None:
    heard = [entry(0, 0, "third", a=(20, 30)), entry(1, 0, "first", a=(0, 10)), entry(2, 0, "second", a=(10, 20))]
    found = admitted(heard)
    assert names(found) == ["first", "second", "third"]
    assert found.steps[0] == Step((DataFile("first", "PARQUET", 1, 10),), (), frozenset({A}))


def test_what_comes_behind_one_that_waits_waits_too() -> None:
    """Else one control offset could not say what the table holds."""
    found = admitted([entry(0, 0, "late", a=(100, 200)), entry(0, 2, "other", b=(0, 10)), entry(1, 0, "c", b=(10, 20))])
    assert (names(found), {e.offset for e in found.held_back}) == ([], {0, 2})
    assert found.ledger.control == {0: 0, 1: 0}


def test_a_publication_of_two_partitions_waits_for_both() -> None:
    found = admitted([entry(0, 0, "both", a=(0, 10), b=(5, 10)), entry(1, 0, "next", a=(10, 20))])
    assert not found.steps
    found = admitted(
        [entry(0, 0, "both", a=(0, 10), b=(5, 10)), entry(1, 0, "next", a=(10, 20)), entry(2, 0, "b", b=(0, 5))]
    )
    assert names(found) == ["b", "both", "next"]


def test_the_ledger_never_has_a_hole() -> None:
    """Rule G2; a publication without files for the table came too early here."""
    early = entry(1, 0, "-", b=(50, 60))
    found = admitted([entry(0, 0, "a", a=(0, 10))], also=[early])
    assert (found.ledger.source, found.ledger.missing) == ({A: 10}, {})


def test_publications_that_no_order_fits_are_all_there_and_are_named() -> None:
    """Where somebody has moved a position back, one partition begins with one of them, and another with the other."""
    overlapping = [entry(0, 0, "x", a=(2, 4), b=(0, 5)), entry(0, 2, "y", a=(0, 12), b=(5, 8))]
    crossed = [entry(0, 4, "x", a=(0, 2), b=(3, 5)), entry(0, 6, "y", a=(2, 4), b=(0, 3))]
    for entries, where in ((overlapping, {A: Span(0, 12)}), (crossed, {B: Span(0, 3)})):
        found = admitted(entries)
        assert names(found) == ["x", "y"]
        assert disordered(found.publications, NOWHERE) == where


def test_a_partition_that_started_over_keeps_nobody_waiting() -> None:
    progress = SourceProgress({A: (Span(0, 5),)}, {}, {A: (0, 0)})
    found = admit([entry(0, 0, "before", a=(30, 40))], {0: 2}, progress, NO_LEDGER, in_order=True)
    assert names(found) == ["before"]


def test_the_delete_files_and_data_files_of_a_batch_are_one_step_also_where_they_come_in_several_entries() -> None:
    events = [
        DataWritten(COMMIT, TABLE, (), (named("keys 1a"),)),
        DataWritten(COMMIT, TABLE, (), (named("keys 1b"),)),
        DataWritten(COMMIT, TABLE, (named("rows 1a"),)),
        DataWritten(COMMIT, TABLE, (named("rows 1b"),)),
        DataWritten(COMMIT, TABLE, (), (named("keys 2"),)),
        DataWritten(COMMIT, TABLE, (named("rows 2"),)),
    ]
    covers = {A: (Span(0, 10),)}
    heard = [Envelope(0, offset, event, covers) for offset, event in enumerate(events)]
    found = admit(heard, {0: 6}, SourceProgress(covers, {}), NO_LEDGER, in_order=True)
    assert [(names_of(step.delete_files), names_of(step.data_files)) for step in found.steps] == [
        (["keys 1a", "keys 1b"], ["rows 1a", "rows 1b"]),
        (["keys 2"], ["rows 2"]),
    ]


def test_partial_rows_are_never_in_one_step_with_other_changes_of_keys() -> None:
    """Several batches of a publication: the row that completes a partial one may come from the batch before it."""
    lacking = replace(named("partial"), content=FileContent.EQUALITY_DELETES, equality_ids=(1, PARTIAL))
    events = [
        DataWritten(COMMIT, TABLE, (), (named("keys 1"),)),
        DataWritten(COMMIT, TABLE, (), (lacking,)),
        DataWritten(COMMIT, TABLE, (), (named("keys 3"),)),
        DataWritten(COMMIT, TABLE, (named("rows 3"),)),
    ]
    covers = {A: (Span(0, 10),)}
    heard = [Envelope(0, offset, event, covers) for offset, event in enumerate(events)]
    found = admit(heard, {0: 5}, SourceProgress(covers, {}), NO_LEDGER, in_order=True)
    assert [(names_of(step.delete_files), names_of(step.data_files)) for step in found.steps] == [
        (["keys 1"], []),
        (["partial"], []),
        (["keys 3"], ["rows 3"]),
    ]


def test_files_of_different_publications_are_different_steps() -> None:
    found = admitted([entry(0, 0, "first", a=(0, 10)), entry(0, 2, "second", a=(10, 20))])
    assert [names_of(step.data_files) for step in found.steps] == [["first"], ["second"]]


def test_tables_that_are_appended_to_wait_for_nothing() -> None:
    late = entry(0, 0, "late", a=(100, 200))
    found = admit([late], {0: 2}, SourceProgress({A: (Span(100, 200),)}, {}), NO_LEDGER)
    assert ([file.file_path for file in found.data_files], found.steps) == (["late"], ())


def test_in_whatever_order_partitions_of_the_log_are_heard_all_comes_in_and_in_order() -> None:
    """Publications as workers make them: each after those before it in its source partitions."""
    for seed in range(200):
        rng = random.Random(seed)
        at, ends, log = {A: 0, B: 0}, [0, 0, 0], list[Envelope]()
        for number in range(12):
            spans = {}
            for tp in rng.sample([A, B], rng.randint(1, 2)):
                spans["ab"[tp.partition]] = (at[tp], at[tp] + 10)
                at[tp] += 10
            partition = rng.randrange(3)
            log.append(entry(partition, ends[partition], str(number), **spans))
            ends[partition] += 2
        assert _committed(rng, log) == at


def _committed(rng: random.Random, log: list[Envelope]) -> dict[TopicPartition, int]:
    """How far the table got of each partition, whose publications came in order."""
    unheard = [[e for e in log if e.partition == p] for p in range(3)]
    buffer, ledger, at = Buffer({0: 0, 1: 0, 2: 0}), NO_LEDGER, {A: 0, B: 0}
    while any(unheard) or buffer.tables():
        for found in rng.choice([p for p in unheard if p] or [[]])[:1]:
            unheard[found.partition].pop(0)
            buffer.hear(found)
            buffer.hear(Envelope(found.partition, found.offset + 1, DataComplete(COMMIT), found.spans, 1))
        before = sum(map(len, buffer.tables().values()))
        for table, entries in buffer.tables().items():
            read = buffer.whole()
            got = admit(entries, read, buffer.progress(), ledger, in_order=True)
            places = {file.file_path for file in got.data_files}
            for step, each in itertools.product(got.steps, log):
                if isinstance(each.event, DataWritten) and step.data_files == each.event.data_files:
                    for tp, (span,) in each.spans.items():
                        assert span.start == at[tp]
                        at[tp] = span.end
            assert places.isdisjoint(f.file_path for e in got.held_back for f in e.event.data_files)  # type: ignore[union-attr]
            assert not got.held_back or "offsets" in waiting(got)
            if got:
                assert got.ledger.missing == {}
                ledger = got.ledger
            buffer.settle(table, read, got.held_back)
        assert any(unheard) or not before or sum(map(len, buffer.tables().values())) < before
    return at


def test_the_gate_says_what_a_table_waits_for_once_three_commits_held_the_same_entry_back() -> None:
    gate, late = Gate(), admitted([entry(0, 0, "late", a=(100, 200))])
    for _ in range(2):
        gate.settled(("db", "t"), late)
        assert gate.waits == {}
    gate.settled(("db", "t"), late)
    waits = "1 entry is not committed after 3 commit cycles: offsets 0 to 100 of s-0 are missing"
    assert gate.waits == {("db", "t"): waits}
    gate.settled(("db", "t"), admitted([entry(1, 0, "early", a=(0, 100)), entry(0, 0, "late", a=(100, 200))]))
    assert gate.waits == {}


def test_what_waits_is_counted_and_the_offsets_that_it_waits_for_are_named() -> None:
    late = entry(0, 0, "late", a=(100, 200))
    assert waiting(admitted([late])) == "1 entry waits for earlier records: offsets 0 to 100 of s-0"
    two = admitted([late, entry(1, 0, "other", b=(7, 9))], Ledger({}, {B: 5}, {B: 5}))
    assert waiting(two) == ("2 entries wait for earlier records: offsets 0 to 100 of s-0, offsets 5 to 7 of s-1")


def test_a_partition_of_which_nothing_is_missing_is_not_named_though_its_records_wait() -> None:
    both = entry(0, 0, "both", a=(100, 200), b=(5, 9))
    held = Ledger({}, {B: 5}, {B: 5})
    assert waiting(admitted([both], held)) == "1 entry waits for earlier records: offsets 0 to 100 of s-0"
    then = entry(0, 2, "then", b=(9, 12))
    assert waiting(admitted([both, then], held)) == "2 entries wait for earlier records: offsets 0 to 100 of s-0"


def test_missing_records_are_named_also_if_earlier_ones_of_their_partition_wait_behind() -> None:
    found = admitted([entry(0, 0, "late", a=(100, 200)), entry(0, 2, "early", a=(0, 50))])
    assert waiting(found) == "2 entries wait for earlier records: offsets 50 to 100 of s-0"


def test_a_partition_whose_offsets_have_restarted_is_not_waited_for() -> None:
    both = entry(0, 0, "both", a=(100, 200), b=(5, 9))
    progress = SourceProgress({A: (Span(100, 200),), B: (Span(5, 9),)}, {}, {B: (0, 0)})
    found = admit([both], {0: 2}, progress, NO_LEDGER, in_order=True)
    assert waiting(found) == "1 entry waits for earlier records: offsets 0 to 100 of s-0"


def test_another_entry_in_each_commit_is_no_wait() -> None:
    gate = Gate()
    for offset in range(5):
        gate.settled(("db", "t"), admitted([entry(0, offset, "late", a=(100, 200))]))
    assert gate.waits == {}
