"""Recovers a sink that has lost its control log or positions, from the ledgers of its tables and from the topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import reduce
from uuid import uuid4

from pyiceberg.catalog import Catalog

from calving.backend.interface import Backend, ControlLog, Cursor, Session
from calving.backend.sessions import read_to_end
from calving.errors import ConfigError, DataLossError
from calving.iceberg.catalog import table_id
from calving.iceberg.marks import mark_of
from calving.iceberg.picks import mind_picks
from calving.model.events import Envelope
from calving.model.offsets import (
    Coverage,
    SourceOffsets,
    TopicPartition,
    decode_coverage,
    lowest_uncovered,
    merged,
    present,
    size,
    union,
)
from calving.model.text import counted
from calving.protocol.buffer import Buffer
from calving.protocol.ledger import Ledger, entry_of
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.recovery import AWAITED_OFFSETS, Recovery, mind_order, recovery, still_awaited
from calving.protocol.rollback import Marks
from calving.protocol.target_state import TargetStateInUse
from calving.runtime import components
from calving.runtime.group_members import mind_members
from calving.runtime.log_view import keep
from calving.runtime.preflight import (
    TableRecord,
    former_names,
    held,
    ledger_key,
    owner_of,
    refuse_reused_offsets,
)
from calving.runtime.recovered_tables import (
    both_keys,
    gets_records,
    leave_out,
    ledger_of_both,
    mark_recovered,
    mind_moves,
    mind_other_names,
    mind_successors,
    mind_two_sinks,
    said_by_tables,
    strangers,
    supersede,
)
from calving.settings.load import Sink


def recover(
    sink: Sink, rolled_back: Collection[str], former: str | None = None, *, forgotten: bool = True, dry_run: bool
) -> Iterator[str]:
    """Rewind to the settled offset. Each table skips the records above the settled offset that it holds.

    Tables in ``rolled_back`` get all records again that they do not hold now, those that were forgotten only if
    ``forgotten``. Other records also come again to tables for which the catalog shows an older state than the control
    log: they may lack offsets that another table's ledger calls settled. ``former`` is the sink's former name,
    ``<control topic>.<group>``: ledgers under this name count, too. The recovery is idempotent: rerun it after an
    interruption.

    :raises CalvingError: workers are running, or no table has a ledger of this sink.
    """
    mind_members(topics := components.source(sink), (sink.group, *_groups(former)))
    begins = topics.bounds(topics.partitions()).begins
    catalog, backend = components.catalog(sink), _provisioned(sink)
    with _opened(backend, replay=True) as (session, cursor):  # fences any running coordinator
        identities = topics.identities({tp.topic for tp in begins})
        stored, wanted = session.committed(begins.keys()), frozenset(rolled_back if forgotten else ())
        entries, marks, state = _entries(cursor)
        start = _Start(
            sink, catalog, former, begins, identities, stored=stored, wanted=wanted, marks=marks, control=cursor.log
        )
        said, ledgers = start.look()
        _mind_strangers(sink, rolled_back, ledgers)
        older = _older(catalog, sink, marks, ledgers, cursor.log.identity, former)
        again = {*rolled_back, *older}
        waiting = start.waiting(ledgers, entries).keys() - again
        start.check(said, ledgers, again, waiting)
        if not dry_run:
            supersede(catalog, sink, ledgers, cursor.log, former, again)
            _, ledgers = start.look()
        plan = start.plan(ledgers, again, waiting)
        unmoved = [line for name in sorted(rolled_back) for line in start.left_as_it_is(name, ledgers[name])]
        yield from _reasons(older, waiting)
        positions = start.positions(plan)
        yield from _lines(plan, positions, start.stored)
        yield from unmoved
        if dry_run:
            return
        leave_out(catalog, sink, plan, identities)
        cursor.rewind(positions)
    with _opened(backend, replay=state.stopped) as (_, cursor):
        keep(state, cursor)
        for name in sorted(ledgers, key=rolled_back.__contains__):
            control = replace(start.control, identity=cursor.log.identity)
            mark_recovered(catalog, sink, name, control, former, again=name in again, forgotten=name in wanted)
        refuse_reused_offsets(sink, cursor.log, dict(held(catalog, sink, cursor.log.identity, ledgers)))
    if not rolled_back or len(unmoved) < len(rolled_back):
        yield "done: the next run resumes there"


def _provisioned(sink: Sink) -> Backend:
    """The sink's backend. A log that has lost entries does not prevent a recovery."""
    settings = sink.backend_settings.model_copy(update={"on_truncation": "continue"})
    backend = components.backend(replace(sink, backend_settings=settings))
    backend.provision()
    return backend


@contextmanager
def _opened(backend: Backend, *, replay: bool) -> Iterator[tuple[Session, Cursor]]:
    with closing(backend.open(str(uuid4()))) as session, closing(session.follow(replay=replay)) as cursor:
        yield session, cursor


@dataclass(frozen=True, slots=True)
class _Start:
    """The state from which a recovery starts."""

    sink: Sink
    catalog: Catalog
    former: str | None
    begins: SourceOffsets
    identities: Mapping[str, str]
    stored: SourceOffsets
    wanted: Set[str]
    """The tables that also get what was forgotten."""
    marks: Marks
    control: ControlLog

    def look(self) -> tuple[Mapping[str, TableRecord], Mapping[str, Ledger]]:
        """What the tables hold of the sink now, and the ledgers that count."""
        topics = {tp.topic for tp in self.begins}
        said = dict(said_by_tables(self.catalog, self.sink, self.control.identity, topics, self.marks))
        found = _ledgers(self.catalog, self.sink, said, self.former, self.identities, self.marks)
        return said, {
            name: replace(each, forgotten={}) if name in self.wanted else each for name, each in found.items()
        }

    def waiting(self, ledgers: Mapping[str, Ledger], entries: Sequence[Envelope]) -> dict[str, Coverage]:
        """The offsets that an earlier recovery was to read again for a table, and that have not been read yet."""
        buffer = Buffer(self.control.start)
        for entry in entries:
            buffer.hear(entry)
        settled = present(buffer.progress().settled, self.identities)
        awaited_of = {}
        for name, ledger in ledgers.items():
            awaited = present(self._awaited(name), self.identities)
            awaited_of[name] = still_awaited(awaited, ledger, settled, self.begins)
        return {name: left for name, left in awaited_of.items() if left}

    def _awaited(self, name: str) -> Coverage:
        """What a recovery under either name was to read again for a table."""
        properties = self.catalog.load_table(table_id(name)).properties
        each = (entry_of(properties, key.of_table(AWAITED_OFFSETS), decode_coverage) for key in self._keys(name))
        return reduce(union, each)

    def _keys(self, name: str) -> list[LedgerKey]:
        """The keys of both names in a table."""
        return both_keys(ledger_key(self.sink, "", name), self.former)

    def check(
        self,
        said: Mapping[str, TableRecord],
        ledgers: Mapping[str, Ledger],
        again: Collection[str],
        waiting: Collection[str],
    ) -> None:
        """:raises ConfigError: a recovery would mix up rows or double records, or there is nothing to recover."""
        mind_moves(self.catalog, self.sink, ledgers, self.identities)
        mind_successors(self.catalog, self.sink, ledgers, self.former)
        mind_order([name for name in again if self.sink.mutations(name) is not None], ledgers)
        for name in again:
            for key in self._keys(name) if ledgers[name].gone else ():
                mind_picks(name, self.catalog.load_table(table_id(name)), key)
        positions = self.positions(self.plan(ledgers, again, waiting))
        others = former_names(said, self.begins.keys(), self.identities)
        again_there = ((name, owner) for name, owner, tp, end in others if positions[tp] < end)
        mind_other_names(self.sink, strangers(self.catalog, self.sink, again_there) - {self.former})
        if self.stored or self.former is not None:
            return
        if not any(table.ledger.source or table.log_id for table in said.values()):
            raise ConfigError(
                f"no table holds anything of group {self.sink.group}: there is nothing to recover, run the sink"
            )

    def plan(self, ledgers: Mapping[str, Ledger], again: Collection[str], waiting: Collection[str]) -> Recovery:
        return recovery(ledgers, again, waiting, complete=not self.sink.keys.routes_freely)

    def left_as_it_is(self, name: str, ledger: Ledger) -> Iterator[str]:
        """A sentence on a table for which no record is read again: what its ledger says, and what is left to do."""
        away = ledger.forgotten
        reached = {tp: lowest_uncovered(merged((*ledger.held(tp), *away.get(tp, ())))) for tp in self.stored}
        if any(offset < self.stored[tp] for tp, offset in reached.items()) or not self.stored:
            return
        if ledger.doubt is not None:
            yield (
                f"nothing is read again for table {name}: snapshot {ledger.doubt.id}, this sink's last commit there,"
                " and those that would tell of a rollback have expired, so the table's ledger counts as it is;"
                " if rows are missing, replace the table by one without rows (CREATE OR REPLACE TABLE), and run this"
                " command again: then all records that the topics still have are read again"
            )
        else:
            yield (
                f"nothing is read again for table {name}: it lacks no record below the stored positions that this sink"
                " has committed; if it was rolled back on another branch, or rows were deleted, this command does not"
                " bring them back"
            )

    def positions(self, plan: Recovery) -> SourceOffsets:
        """The planned position of each partition; where no table knows one, the partition's beginning."""
        return {tp: plan.positions.get(tp, begin) for tp, begin in self.begins.items()}


def _groups(former: str | None) -> list[str]:
    """All groups that ``<control topic>.<group>`` may name: topic and group may both contain dots."""
    if former is None:
        return []
    parts = former.split(".")
    if len(parts) < 2:
        raise ConfigError(f"--from {former}: it is <control topic>.<group>, as the refusal names it")
    return [".".join(parts[i:]) for i in range(1, len(parts))]


def _ledgers(
    catalog: Catalog,
    sink: Sink,
    said: Mapping[str, TableRecord],
    former: str | None,
    identities: Mapping[str, str],
    marks: Marks,
) -> dict[str, Ledger]:
    ledgers = {name: record.ledger for name, record in said.items() if gets_records(sink, name, record, marks)}
    if former is not None:
        written = [name for name, record in said.items() if former in record.others]
        if not written:
            raise ConfigError(f"--from {former}: no table holds anything that a sink of this name has written")
        for name in written:
            ledgers[name] = ledger_of_both(ledger_key(sink, "", name), catalog.load_table(table_id(name)), former)
            mind_two_sinks(sink, name, said[name], former, identities)
    return {name: ledger.present(identities) for name, ledger in ledgers.items()}


def _mind_strangers(sink: Sink, named: Iterable[str], ledgers: Mapping[str, Ledger]) -> None:
    """:raises ConfigError: a table that was named holds nothing of the sink."""
    if unknown := sorted(set(named) - ledgers.keys()):
        raise ConfigError(f"table {', '.join(unknown)} holds nothing of the sink {owner_of(sink)}")


def _reasons(older: Iterable[str], waiting: Iterable[str]) -> Iterator[str]:
    """Why records of tables that nobody has named are read again."""
    for name in sorted(older):
        yield f"table {name} shows an older state than before: the records that it lacks are read again"
    for name in sorted(waiting):
        yield f"table {name} still waits for records of an earlier recovery: they are read again, too"


def _lines(
    plan: Recovery, positions: Mapping[TopicPartition, int], stored: Mapping[TopicPartition, int]
) -> Iterator[str]:
    for tp, offset in sorted(positions.items()):
        known = "" if tp in plan.positions else ": no table has an offset for it, so it is read from its beginning"
        yield f"{tp}: {offset} (stored: {stored.get(tp, 'nothing')}){known}"
    for name, coverage in plan.held.items():
        if coverage:
            yield f"table {name} skips {counted(size(coverage), 'offset')} that it already holds"


def _entries(cursor: Cursor) -> tuple[list[Envelope], Marks, TargetStateInUse]:
    """The entries of the control log, and in them the marks of tables and the state of the sink."""
    entries: list[Envelope] = []
    with suppress(DataLossError):  # entries after one that cannot be decoded are lost with the log
        entries.extend(read_to_end(cursor))
    marks, state = Marks(), TargetStateInUse()
    for entry in entries:
        marks.hear(entry)
        state.hear(entry)
    return entries, marks, state


def _older(
    catalog: Catalog,
    sink: Sink,
    marks: Marks,
    names: Iterable[str],
    log_id: str,
    former: str | None,
) -> set[str]:
    """Tables for which the catalog shows an older state than the control log, or did so before an interrupted
    recovery, also one under the ``former`` name.
    """
    loaded = {name: catalog.load_table(table_id(name)) for name in names}
    keys = {name: ledger_key(sink, log_id, name) for name in loaded}
    older = marks.older({table_id(name): mark_of(table, keys[name]) for name, table in loaded.items()})

    def gets_all_again(name: str) -> bool:
        return any(key.gets_all_again(loaded[name].metadata.properties) for key in both_keys(keys[name], former))

    return {name for name in loaded if table_id(name) in older or gets_all_again(name)}
