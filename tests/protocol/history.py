"""Histories of the protocol, told step by step: real machines, ledgers and commit loop; broker and tables in memory.

A transcript is a text file of steps (``> worker A ticks``), each with what happened. Steps:

    topic orders-0 gets 3 records            worker A takes orders-0        worker A loses orders-0
    worker A hears                           worker A ticks                 worker A ends its batch
    worker A hands over orders-0             worker A dies
    coordinator K opens                      coordinator K ticks at 10 s    coordinator K hears
    coordinator K dies                       catalog is down for db.t       catalog is back
    the store is lost                        an operator recovers           show

A step may end with ``, and dies before <Effect>`` or ``after``: the member is gone then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from calving.backend.interface import Cursor
from calving.backend.memory import MemoryCursor, MemorySession, MemoryStore
from calving.errors import CalvingError, CommitRefusedError, CommitUncertainError
from calving.model.events import DataWritten, TableFiles, TableId, TableReference
from calving.model.files import DataFile
from calving.model.offsets import TopicPartition, encode_coverage
from calving.model.sink import Claim
from calving.model.text import counted, listed, offsets_text
from calving.protocol.commit import Admitted, CommitLoop
from calving.protocol.coordinator import Committed, Coordinator, Failed, Intervals
from calving.protocol.effects import Acknowledge, Announce, CommitTables, Publish, RunBatch
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.positions import starting
from calving.protocol.recovery import recovery
from calving.protocol.rollback import Line
from calving.protocol.worker import BatchLimits, BatchOutcome, WorkerMachine
from tests.protocol.lines import line_of

TABLE = TableReference("iceberg", ("db",), "t")
INTERVALS = Intervals(interval=10, timeout=30, repeat=5)


class Died(Exception):
    """The acting process is gone."""


@dataclass
class MemoryTable:
    """One branch of one table. Every attempt lands, if the table is where it was."""

    files: list[str] = field(default_factory=list)
    summaries: list[Mapping[str, str]] = field(default_factory=list)
    """Of the snapshots, newest first."""
    properties: dict[str, str] = field(default_factory=dict)
    down: bool = False
    key: LedgerKey | None = None

    @property
    def line(self) -> Line:
        return line_of(*self.summaries)

    def load(self) -> MemoryTable:
        if self.down:
            raise CommitUncertainError("the catalog does not answer")
        return self

    def attempt(self, state: MemoryTable, admitted: Admitted) -> int:
        assert self.key is not None
        self.files += [file.file_path for file in admitted.data_files]
        self.summaries.insert(0, self.key.summary(admitted.ledger))
        self.properties |= self.key.properties(admitted.ledger)
        return len(self.summaries)

    def landed(self, state: MemoryTable) -> int | None:
        return None

    def moved(self, state: MemoryTable) -> bool:
        return False

    def discard(self) -> None:
        raise AssertionError("nothing is refused here")

    def pause(self, tries: int) -> None:
        raise AssertionError("nothing is tried twice here")


@dataclass
class Member:
    """A worker and what it has to do."""

    machine: WorkerMachine
    session: MemorySession
    cursor: Cursor
    batch: int = 0
    """The number of the one that runs."""


@dataclass
class Lead:
    """A coordinator."""

    machine: Coordinator
    cursor: Cursor
    key: LedgerKey


class History:
    """One sink with one table. ``play`` takes a step, and yields a line for each thing that happened."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._store = self._new_store("log-1")
        self._table = MemoryTable()
        self._workers: dict[str, Member] = {}
        self._coordinators: dict[str, Lead] = {}
        self._files = self._cycles = 0
        self._printed = 0
        self._death: tuple[str, str] | None = None

    def _new_store(self, identity: str) -> MemoryStore:
        return MemoryStore(identity=identity)

    def play(self, step: str) -> Iterator[str]:
        """:raises ValueError: there is no such step."""
        step, _, death = step.partition(", and dies ")
        self._death = (death.split()[0], death.split()[1]) if death else None
        for pattern, act in (
            (r"topic (\S+) gets (\d+) records", self._produce),
            (r"worker (\w+) (takes|loses|hands over) (.+)", self._assign),
            (r"worker (\w+) (hears|ticks|ends its batch|dies)", self._worker),
            (r"coordinator (\w+) (opens|hears|dies)", self._coordinator),
            (r"coordinator (\w+) ticks at (\d+) s", self._tick),
            (r"catalog is (down|back)", self._catalog),
            (r"the store is lost", self._lose),
            (r"an operator recovers", self._recover),
            (r"show", self._show),
        ):
            if (match := re.fullmatch(pattern, step)) is not None:
                try:
                    yield from act(*match.groups())
                    if death:
                        raise ValueError(f"nobody died in '{step}'")
                except Died:
                    yield f"{match.group(1)} is dead"
                    self._bury(match.group(1))
                yield from self._news()
                return
        raise ValueError(f"there is no step '{step}'")

    def _bury(self, name: str) -> None:
        self._workers.pop(name, None)
        self._coordinators.pop(name, None)

    def _produce(self, name: str, count: str) -> Iterator[str]:
        tp = _partition(name)
        self._ends[tp] = self._ends.get(tp, 0) + int(count)
        yield from ()

    # Workers

    def _assign(self, name: str, how: str, partitions: str) -> Iterator[str]:
        tps = {_partition(p) for p in partitions.split()}
        if name not in self._workers:
            session = MemorySession(self._store, name)
            self._workers[name] = Member(
                WorkerMachine(BatchLimits(1000, 1 << 30)), session, MemoryCursor(self._store, name, replay=False)
            )
        member = self._workers[name]
        match how:
            case "takes":
                self._owners.update(dict.fromkeys(tps, name))
                stored = member.session.committed(tps)
                begins = dict.fromkeys(tps, 0)
                member.machine.assigned(starting(tps, stored, begins))
                yield f"{name} starts at {listed([f'{tp}: {at}' for tp, at in sorted(member.machine.positions.items())])}"
            case "hands over":
                yield from self._act(name, member, member.machine.handover(tps))
                member.machine.released(tps)
            case "loses":
                member.machine.released(tps)

    def _worker(self, name: str, what: str) -> Iterator[str]:
        member = self._workers[name]
        match what:
            case "hears":
                for envelope in member.cursor.read(0):
                    member.machine.heard(envelope)
                    yield f"{name} hears {envelope.event}"
            case "ticks":
                ends = {tp: end for tp, end in self._ends.items() if tp in member.machine.held}
                yield from self._act(name, member, member.machine.tick(ends))
            case "ends its batch":
                yield from self._end_batch(name, member)
            case "dies":
                self._bury(name)

    def _end_batch(self, name: str, member: Member) -> Iterator[str]:
        self._files += 1
        file = DataFile(f"file-{self._files}", "PARQUET", 1, 1)
        latest = {tp: end * 1000 for tp, end in self._ends.items() if tp in member.machine.held}
        member.machine.finished(member.batch, BatchOutcome({TABLE: [TableFiles((file,))]}, latest, 1, 1))
        yield f"{name} has written {file.file_path}"

    def _act(self, name: str, member: Member, effects: Iterable[object]) -> Iterator[str]:
        for effect in effects:
            yield f"{name}: {effect}"
            match effect:
                case RunBatch(number, _):
                    member.batch = number
                case Publish(publication):
                    self._mind_death("before", effect)
                    owned = all(self._owners.get(tp) == name for tp in publication.advances)
                    try:
                        member.session.publish(publication, Claim(name if owned else "", None))
                    except CalvingError as error:
                        yield f"{name} is refused: {error}"
                        raise Died from error
                    self._mind_death("after", effect)
                    member.machine.published()

    # Coordinators

    def _coordinator(self, name: str, what: str) -> Iterator[str]:
        if what == "opens":
            cursor = MemoryCursor(self._store, name, replay=True)
            key = LedgerKey("control", "group", cursor.log.identity)
            self._coordinators[name] = Lead(Coordinator(INTERVALS, cursor.log.start, 0), cursor, key)
            yield f"{name} opens the control log at {offsets_text(cursor.log.start)}"
            return
        lead = self._coordinators[name]
        if what == "dies":
            self._bury(name)
            return
        for envelope in lead.cursor.read(0):
            yield f"{name} hears {envelope.event}"
            yield from self._decide(name, lead, lead.machine.heard(envelope))

    def _tick(self, name: str, seconds: str) -> Iterator[str]:
        lead = self._coordinators[name]
        fresh = UUID(int=(self._cycles + 1) << 96)
        effects = lead.machine.tick(float(seconds), fresh, frozenset(self._ends))
        yield from self._decide(name, lead, effects)

    def _decide(self, name: str, lead: Lead, effects: Iterable[object]) -> Iterator[str]:
        for effect in effects:
            yield f"{name}: {effect}"
            self._mind_death("before", effect)
            try:
                match effect:
                    case Announce(events):
                        lead.cursor.acknowledge({}, events)
                        self._cycles = max(self._cycles, events[0].commit_id.int >> 96)
                    case Acknowledge(position, events, attached):
                        lead.cursor.acknowledge(position, events, attached)
                    case CommitTables():
                        yield from self._commit(name, lead, effect)
            except CalvingError as error:
                yield f"{name} is refused: {error}"
                raise Died from error
            self._mind_death("after", effect)

    def _commit(self, name: str, lead: Lead, request: CommitTables) -> Iterator[str]:
        for table, entries in request.tables.items():
            before = len(self._table.files)
            self._table.key = lead.key
            outcome = self._settle(lead, table, request)
            if isinstance(outcome, Failed):
                yield f"table {'.'.join(table)} is not committed: {outcome.reason}"
            elif outcome.snapshot_id is None:
                yield f"table {'.'.join(table)} holds {counted(len(entries), 'entry', 'entries')} already"
            else:
                added = ", ".join(self._table.files[before:]) or "no file"
                yield f"table {'.'.join(table)} gets snapshot {outcome.snapshot_id} with {added}"
            self._mind_death("after", "Commit")
            yield from self._decide(name, lead, lead.machine.settled(table, outcome))

    def _settle(self, lead: Lead, table: TableId, request: CommitTables) -> Committed | Failed:
        entries = request.tables[table]
        assert all(isinstance(entry.event, DataWritten) for entry in entries)
        try:
            loop = CommitLoop[MemoryTable](self._table, lead.key, 1)
            done = loop.settle(entries, request.read, request.progress)
        except (CommitRefusedError, CommitUncertainError) as error:
            return Failed(str(error))
        return Committed(TABLE, done.snapshot_id)

    def _mind_death(self, when: str, effect: object) -> None:
        name = effect if isinstance(effect, str) else type(effect).__name__
        if self._death == (when, name):
            raise Died

    # Others

    def _catalog(self, how: str) -> Iterator[str]:
        self._table.down = how == "down"
        yield from ()

    def _lose(self) -> Iterator[str]:
        self._store = self._new_store("log-2")
        self._printed = 0
        self._workers.clear()
        self._coordinators.clear()
        yield "positions and control log are gone, and so are all members"

    def _recover(self) -> Iterator[str]:
        key = LedgerKey("control", "group", self._store.identity)
        plan = recovery({"db.t": key.read(self._table.line, self._table.properties)}, complete=True)
        for held in plan.held.values():
            self._table.properties[key.holding] = encode_coverage(held)
        cursor = MemoryCursor(self._store, "operator", replay=True)
        positions = {tp: plan.positions.get(tp, 0) for tp in self._ends}
        cursor.rewind(positions)
        self._store.identity = f"{key.log_id}-rewound"
        yield f"positions are {listed([f'{tp}: {at}' for tp, at in sorted(positions.items())])}"

    def _show(self) -> Iterator[str]:
        positions = listed([f"{tp}: {at}" for tp, at in sorted(self._store.positions.items())])
        yield f"stored positions: {positions or 'none'}; saved position: {offsets_text(self._store.saved)}"
        yield f"table db.t: {', '.join(self._table.files) or 'empty'}"
        for name, value in sorted((self._table.summaries or [{}])[0].items()):
            yield f"  {name} = {value}"

    def _news(self) -> Iterator[str]:
        """The entries that were appended to the control log since it was printed last."""
        (entries,) = self._store.log
        for offset, entry in enumerate(entries[self._printed :], self._printed):
            if entry is not None:
                yield f"control log, offset {offset}: {entry[0]}"
        self._printed = len(entries)


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def replayed(transcript: str) -> str:
    """The transcript as its steps give it now. Comments and empty lines stay."""
    history, lines = History(), []
    for line in transcript.splitlines():
        if line.startswith("> "):
            lines += [line, *(f"    {said}" for said in history.play(line[2:]))]
        elif not line.startswith("    "):
            lines.append(line)
    return "\n".join(lines) + "\n"
