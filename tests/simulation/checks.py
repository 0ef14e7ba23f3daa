"""The invariants, checked during a history and at its end.

I1  every record below a stored position is counted once: in a published file, or filtered, or reported as lost
I2  every published file is in exactly one snapshot, once its table commits
I3  a table's ledger never goes back
I4  stored positions and published files change together
I6  with all components back, everything is committed within two cycles
I7  for each key of a mutation table, the order of effects is the order of source offsets
plus: what a ledger says of the source is true, and its settled offset reaches the end; the valid-through timestamp is the
minimum of the partitions' maxima, and true; one StartCommit is repeated until it is answered; a graceful handover drops
nothing; the coordinator waits for all partitions; a position found by reset is stored; tables stay readable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from calving.model.events import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Envelope,
    Place,
    Publication,
    StartCommit,
    TableId,
)
from calving.model.forms import OLDEST
from calving.model.offsets import ControlOffsets, Coverage, Span, TopicPartition, named, without
from calving.protocol.commit import Admitted
from calving.protocol.effects import CommitTables
from calving.protocol.ledger import NOWHERE, Ledger, SourceProgress
from calving.protocol.ledger_key import LedgerKey
from tests.simulation.broker import Record
from tests.simulation.mutations import Rows, replayed
from tests.simulation.tables import Loaded, SimCommitter, Snapshot
from tests.simulation.versions import Settings

if TYPE_CHECKING:
    from tests.simulation.world import World


_AGAIN = 200
"""Entries, where one table fails: what is parked, what its next commits bring until then, and a long cycle."""


class Violation(AssertionError):
    """A rule is broken. Starts with its name."""


class Judge:
    """Listens to one coordinator: what it is told, and what it says of it."""

    committer: SimCommitter

    def __init__(self, world: World) -> None:
        self._world = world
        self._answers: dict[UUID, list[DataComplete]] = {}
        self.answered: dict[UUID, set[str]] = {}
        """Who has, by cycle."""
        self.surely: dict[UUID, frozenset[str]] = {}
        """Who had, before the last reading."""
        self._known: Counter[UUID] = Counter()
        """How many of the answers came before the last reading."""
        self._expected: frozenset[TopicPartition] = frozenset()
        self._ticked = self._announced = 0.0
        self._began: dict[UUID, float] = {}
        """When the cycle in work began."""
        self._worked = float("-inf")
        """When the last cycle began that had something to commit."""
        self._decided: dict[UUID, int | None] = {}

    def is_complete(self, cycle: UUID) -> bool:
        """Whether all partitions have answered in a cycle."""
        return self._through(self._answers.get(cycle, []))[0]

    def seen(self, partitions: Callable[[], frozenset[TopicPartition]]) -> Callable[[], frozenset[TopicPartition]]:
        """``partitions``, listened to: asked for at the beginning of every step."""

        def asked() -> frozenset[TopicPartition]:
            self._expected, self._ticked = partitions(), self._world.now
            return self._expected

        return asked

    def heard(self, envelopes: Iterable[Envelope]) -> None:
        self._known = Counter({cycle: len(found) for cycle, found in self._answers.items()})
        self.surely = {cycle: frozenset(senders) for cycle, senders in self.answered.items()}
        for envelope in envelopes:
            if isinstance(envelope.event, DataComplete):
                self._answers.setdefault(envelope.event.commit_id, []).append(envelope.event)
                self.answered.setdefault(envelope.event.commit_id, set()).add(envelope.sender)

    def announced(self, event: StartCommit, interval: float) -> None:
        self._announced = self._world.now
        if event.commit_id not in self._began:
            if self._ticked - self._worked < interval:
                raise Violation(f"T4: a cycle begins {self._ticked - self._worked} s after one that had files")
            self._began = {event.commit_id: self._ticked}

    def stepped(self, missing: Collection[TopicPartition], patience: float) -> None:
        if missing and self._ticked - self._announced >= patience:
            raise Violation(f"W3: {sorted(missing)} have not answered, and are not asked again")

    def committing(self, request: CommitTables) -> None:
        self._decided[request.commit_id] = request.valid_through_us
        self._worked = self._began[request.commit_id]
        self._check("a table", request.commit_id, request.valid_through_us)
        written = max((entry.attached.form for entries in request.tables.values() for entry in entries), default=OLDEST)
        if written > request.form:
            raise Violation(f"F1: files in form {written.number} are committed in form {request.form.number}")

    def committed(self, event: CommitToTable) -> None:
        if event.valid_through_us != self._decided[event.commit_id]:
            raise Violation(f"VTTS: {event.table} was told {event.valid_through_us}, the commit another")

    def complete(self, event: CommitComplete) -> None:
        if self.committer.failing:
            if event.valid_through_us is not None:
                raise Violation(f"VTTS: {event.valid_through_us} was told although {self.committer.failing} failed")
        elif event.commit_id in self._decided:
            if event.valid_through_us != self._decided[event.commit_id]:
                raise Violation("VTTS: tables and log were told different ones")
        else:
            self._check("the log", event.commit_id, event.valid_through_us)
        self._world.checks.complete(event)

    def saved(self, position: ControlOffsets) -> None:
        """The number of entries that a successor has to hear again is bounded, also while a table fails."""
        world = self._world
        again = sum(len(entries) - position.get(p, 0) for p, entries in enumerate(world.store.log))
        # Entries of a mutation table wait for earlier ones, and with them the position, as long as a transaction hides these.
        waits = world.mutation_tables and world.stats["open transactions"]
        # It waits for a late partition of the control log, too.
        if world.odds.breakage and not world.odds.slowness and again > _AGAIN and not waits:
            raise Violation(f"C5: a successor would have to hear {again} entries again")

    def _check(self, whom: str, cycle: UUID, told: int | None) -> None:
        answers = self._answers.get(cycle, [])
        # It may have decided after any of the answers that it read last.
        possible = [self._through(answers[:n]) for n in range(self._known[cycle], len(answers) + 1)]
        covering = [through for complete, through in possible if complete]
        if told not in (covering or [None]):
            raise Violation(f"VTTS: {whom} was told {told}, true is {covering or None}")

    def _through(self, answers: Sequence[DataComplete]) -> tuple[bool, int | None]:
        """Whether all partitions have answered, and the minimum of their maxima."""
        latest: dict[TopicPartition, int | None] = {}
        for answer in answers:
            for progress in answer.assignments:
                known = [t for t in (latest.get(progress.source), progress.timestamp_us) if t is not None]
                latest[progress.source] = max(known, default=None)
        if not self._expected or self._expected - latest.keys():
            return False, None
        maxima = [latest[tp] for tp in self._expected]
        return True, None if None in maxima else min(t for t in maxima if t is not None)


class Checks:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.files_of: dict[str, TableId] = {}
        """Published files that are, or will be, in a snapshot of this table."""
        self.gone: set[Record] = set()
        """Whose loss is to be reported: the broker no longer had them when they were wanted."""
        self.forgiven: set[Record] = set()
        """Whose rows a user has thrown away."""
        self._reached: dict[tuple[int, str], dict[int, int]] = {}
        """Of each table and control log the furthest ledger."""
        self._answered: dict[UUID, set[TopicPartition]] = {}
        self._restarted: dict[TopicPartition, Place] = {}
        """Where in a control log of one partition the publication begins with which offsets have restarted last."""

    def keep_landed(self) -> None:
        """Nothing else that was published will ever be in a table: it is read again."""
        landed = {path for t in self._world.tables.values() for s in t.snapshots for path in s.files}
        self.files_of = {path: at for path, at in self.files_of.items() if path in landed}

    def discard(self, paths: Iterable[str]) -> None:
        """Somebody has decided that these files are in no table."""
        for path in paths:
            self.files_of.pop(path, None)
            self.forgiven.update(self._world.files[path])

    # As it happens

    def published(self, publication: Publication) -> None:
        world = self._world
        begin = len(world.store.log[0]) - len(publication.events)
        self._restarted |= {named(tp): (0, begin) for tp in publication.restarted}
        files = {
            f.file_path: e.table.identifier
            for e in publication.events
            if isinstance(e, DataWritten)
            for f in e.data_files
        }
        broker = world.broker
        # What has been lost from the topic meanwhile is not to be compared any more.
        spans = {named(tp): s[-1] for tp, s in publication.spans.items() if tp == world.known_as(named(tp))}
        spans = {tp: span for tp, span in spans.items() if tp not in broker.reused}
        held = {r for path in files for r in world.files[path] if r.topic == broker.incarnation and r.tp in spans}
        covered: set[Record] = set()
        left_out = {name: world.left_out(name) for name in world.tables}
        for tp, span in spans.items():
            for record in broker.content[tp][slice(*span)]:
                out = left_out[world.names[record.table]].get(tp, ())
                if not record.is_filtered and not covers(out, record.offset):
                    covered.add(record)
        if not covered - self.gone - world.passed_by <= held <= covered:
            raise Violation(f"I4: published files hold {len(held)} records, the advance covers {len(covered)}")
        self.files_of.update(files)
        known = set()
        for event in publication.events:
            if isinstance(event, DataComplete):
                answered = {a.source for a in event.assignments}
                self._answered.setdefault(event.commit_id, set()).update(answered)
                known |= answered
                for told in event.assignments:
                    read = spans.get(told.source)
                    there = broker.content[told.source][slice(*read)] if read is not None else ()
                    if told.timestamp_us is None and not self.gone.issuperset(there):
                        raise Violation(f"VTTS: records of {told.source} were read, and no timestamp was told")
        for tp in known - world.store.positions.keys() if not world.is_upset else ():
            raise Violation(f"W1: {tp} was answered for, but the position found by reset was not stored")

    def table_commit(
        self,
        name: TableId,
        key: LedgerKey,
        snapshot_id: int,
        admitted: Admitted,
        state: Loaded,
        live: Rows | None,
    ) -> None:
        world = self._world
        table = world.tables[name]
        self._check_stop(name, admitted)
        now = admitted.ledger.control
        before = self._reached.get((table.uuid, key.log_id), {})
        if any(now.get(p, 0) < offset for p, offset in before.items()):
            raise Violation(f"I3: the ledger goes from {before} back to {now}")
        self._reached[table.uuid, key.log_id] = dict(now)
        for file in admitted.data_files:
            if world.people.written_for[file.file_path] != table.uuid:
                raise Violation(f"C4: {file.file_path} was written for the table that {name} was before")
        if snapshot_id in table.discarded:
            raise Violation("C6: a snapshot was committed whose manifests had been deleted")
        files = tuple(f.file_path for f in admitted.data_files)
        outdated = key.outdated(state.properties, admitted.progress)
        table.append(Snapshot(snapshot_id, files, key.summary(admitted.ledger), world.now, live), world.files)
        if name in world.mutation_tables:
            self._check_rows(name, admitted)
        place = table.snapshots[-1].place
        table.properties |= world.committed(key, state.line, state.properties, admitted.ledger, place)
        if outdated:
            self._check_read_again(name, key.left_out(table.properties))
            table.properties.pop(key.holding, None)
            world.stats["caught up after a loss"] += 1
        world.stats["commits"] += 1
        ledger = world.ledger_of(table.state()) if world.people.former else admitted.ledger
        self._check_ledger(name, ledger, admitted.progress)

    def _check_stop(self, name: TableId, admitted: Admitted) -> None:
        world = self._world
        lost = world.people.unanswered.get(name)
        if lost and name in world.stopping and admitted.ledger.doubt is None:
            raise Violation(
                f"R6: {name} takes changes, and nobody has answered for {len(lost)} records, as {min(lost)}"
            )

    def has_told(self, name: TableId, ledger: Ledger) -> None:
        """An operator hears that there is nothing to answer only if the table lacks nothing."""
        lost = self._world.people.unanswered.get(name)
        if lost and not ledger.unanswered and ledger.doubt is None:
            raise Violation(f"R5: {name} has nothing to answer for, and lacks {len(lost)} records, as {min(lost)}")

    def answered(self, name: TableId, key: LedgerKey) -> None:
        """Somebody has answered for a rollback. Were the snapshots of the table to expire now, its properties would
        still say what it holds.
        """
        table = self._world.tables[name]
        state = table.state()
        others = Snapshot(-1, (), {}, self._world.now, number=table.sequence + 1)
        later = replace(state, snapshots=(others,), expired=(*state.expired, *state.snapshots))
        ledger = key.read(later.line, state.properties)
        if ledger.doubt is not None:
            raise Violation(f"R8: the properties of {name} do not tell of its head, {state.head}")
        self._check_ledger(name, ledger, NOWHERE)

    def settings(
        self, name: TableId, admitted: Admitted, own: Settings, heard: Collection[str], *, is_complete: bool
    ) -> None:
        """A leader commits with its ``own`` settings, and has ``heard`` answers of these senders in its cycle.
        ``is_complete``: whether they are all.
        """
        versions, branch = self._world.versions, own.branch
        others, told = versions.branches_of(admitted) - {branch}, versions.told_by(heard)
        if (branches := {each.branch for each in told}) - {branch}:
            raise Violation(f"S2: files go to {branch}, and workers commit to {branches}")
        if name in self._world.mutation_tables and {each.appends for each in told} - {own.appends}:
            raise Violation(f"S2: {name} is committed, and workers have different settings of its changes")
        if others and not is_complete:
            raise Violation(f"S2: files for {others} go to {branch}, and not all workers have told theirs")
        self._world.stats["files for another branch"] += bool(others)

    def _check_rows(self, name: TableId, admitted: Admitted) -> None:
        """After every commit a mutation table shows the result of its records, one after the other."""
        world, table = self._world, self._world.tables[name]
        landed = {path for snapshot in table.snapshots for path in snapshot.files}
        plain = {record for path in landed & world.plain for record in world.files[path]}
        done = replayed(table.rows, plain, inserts_append=world.inserts_append)
        if wrong := sorted({row.record for row in table.live} ^ done):
            raise Violation(f"I7: {name} has {len(wrong)} rows too many or too few, such as {wrong[0]}")
        # Where offsets have started over, a ledger does not know that it holds what a successor hears once more.
        gone = admitted.ledger.gone
        missing = {tp: without(spans, gone.get(tp, ())) for tp, spans in admitted.ledger.missing.items()}
        if any(missing.values()) and not plain:
            raise Violation(f"G2: {name} does not hold {missing}")

    def _check_read_again(self, name: TableId, left_out: Coverage) -> None:
        """Offsets that are left out while they are read again stay left out until they have been read."""
        world = self._world
        for tp in world.broker.content if not world.is_upset else ():
            held, stored = left_out.get(world.known_as(tp), ()), world.store.positions.get(tp, 0)
            if held and stored < held[-1].end and tp not in world.broker.reused:
                raise Violation(f"C6: {name} forgets that it holds {tp} to {held[-1].end}, it is read to {stored}")

    def went_back(self, name: TableId) -> None:
        """A table's ledger did, and was allowed to."""
        uuid = self._world.tables[name].uuid
        self._reached = {at: control for at, control in self._reached.items() if at[0] != uuid}

    def _check_ledger(self, name: TableId, ledger: Ledger, progress: SourceProgress) -> None:
        """The ledger's offsets are true: recovery is built on them."""
        world = self._world
        if world.accidents.catalog_went_back:
            return  # what it says of other tables was true
        if ledger.doubt is not None:
            world.stats["commits in doubt"] += 1
            return  # it says so itself
        held: dict[TopicPartition, tuple[Span, ...]] = {}

        def is_held(record: Record) -> bool:
            if record.tp not in held:
                held[record.tp] = ledger.held(world.known_as(record.tp))
            return covers(held[record.tp], record.offset)

        for record in world.tables[name].rows:
            if self._is_told_apart(record, progress) and not is_held(record):
                raise Violation(f"C6: the table holds {record}, its ledger does not know")
        for path, owner in self.files_of.items():
            rows = world.tables[owner].rows
            for record in world.files[path]:
                if record in rows or record in self.forgiven or not self._is_told_apart(record, progress):
                    continue
                if owner == name and is_held(record):
                    raise Violation(f"C6: the ledger claims {record}, which is in no snapshot of the table")
                if record in world.people.again or record in world.people.discarded.get(owner, ()):
                    continue
                if record.offset < ledger.settled.get(world.known_as(record.tp), 0):
                    raise Violation(f"C6: {record} is called settled, and is in no snapshot")

        for record in world.people.taken.get(name, ()):
            if is_held(record) and self._is_told_apart(record, progress):
                raise Violation(f"C6: the ledger claims {record}, which a rollback has taken away")

    def _is_told_apart(self, record: Record, progress: SourceProgress) -> bool:
        """Whether a ledger that speaks of its offset means this record, and not another one before or after it. Where
        offsets have restarted, it does if its coordinator has heard so in a control log of one partition.
        """
        world, broker = self._world, self._world.broker
        if record.topic != broker.incarnation or record.tp not in broker.reused:
            return record.topic == broker.incarnation
        known = progress.restarted.get(world.known_as(record.tp))
        is_known = known is not None and known == self._restarted.get(record.tp) and world.store.partitions == 1
        return is_known and broker.is_there(record)

    def complete(self, event: CommitComplete) -> None:
        world = self._world
        unheard = world.expected_at[event.commit_id] - self._answered.get(event.commit_id, set())
        early = world.now - world.started_at[event.commit_id] < world.intervals.timeout
        if unheard and not world.is_upset and (event.valid_through_us is not None or early):
            raise Violation(f"C2: cycle {event.commit_id} was called complete without {sorted(unheard)}")
        world.completed.append(event.commit_id)

    def was_partial(self, cycle: UUID) -> bool:
        """Whether it had to do without an answer."""
        return bool(frozenset(self._world.broker.content) - self._answered.get(cycle, set()))

    # At the end

    def settled_to(self) -> dict[TopicPartition, int]:
        """Below, as the tables together say, every record is where it belongs."""
        world = self._world
        found: dict[TopicPartition, int] = {}
        key = LedgerKey(world.control_topic, world.group, world.store.identity)
        for table in world.tables.values():
            state = table.state()
            ledger = key.read(state.line, state.properties).present(world.broker.topic_ids())
            for tp, offset in ledger.settled.items():
                found[tp] = max(offset, found.get(tp, 0))
        return found

    def lacks_records(self) -> bool:
        """Whether each table lacks what a rollback has removed, so that no ledger calls later records settled."""
        world = self._world
        ledgers = [world.key(world.store.identity).read(t.state().line, t.properties) for t in world.tables.values()]
        return all(ledger.gone or ledger.doubt is not None for ledger in ledgers)

    def audit(self) -> None:
        world = self._world
        content = [record for entries in world.broker.content.values() for record in entries]
        landed = Counter(path for t in world.tables.values() for s in t.snapshots for path in s.files)
        for path, count in landed.items():
            if count > 1:
                raise Violation(f"I2: {path} is in {count} snapshots")
        if missing := self.files_of.keys() - landed.keys():
            raise Violation(f"I2: {len(missing)} published files are in no snapshot")
        rows = sum((t.rows for t in world.tables.values()), start=Counter[Record]())
        if twice := [r for r, n in rows.items() if n > 1]:
            raise Violation(f"I1: {len(twice)} records are in the tables twice, such as {twice[0]}")
        for name, taken in world.people.taken.items():
            if back := taken & rows.keys():
                raise Violation(f"I2: {len(back)} records are back that a rollback of {name} had taken away")
        lost = {r for r in content if not r.is_filtered} - rows.keys() - self.forgiven
        if unexplained := lost - self.gone:
            raise Violation(f"I1: {len(unexplained)} records are lost, such as {min(unexplained)}")
        skipped = sum((Counter(m.loop.skipped) for m in world.members.values() if m.loop), start=world.skipped)
        for tp, count in Counter(record.tp for record in lost).items():
            if skipped[tp] < count:
                raise Violation(f"W7: records of {tp} were skipped silently")
        for tp in world.broker.content:
            if world.store.positions.get(tp) != world.broker.end(tp):
                raise Violation(
                    f"I6: {tp} is stored at {world.store.positions.get(tp)}, its end is {world.broker.end(tp)}"
                )
        for table in world.tables.values():
            if broken := table.discarded & {s.id for s in table.snapshots}:
                raise Violation(f"C6: the manifests of landed snapshots {broken} were deleted; the table is unreadable")


def covers(spans: Iterable[Span], offset: int) -> bool:
    return any(span.start <= offset < span.end for span in spans)
