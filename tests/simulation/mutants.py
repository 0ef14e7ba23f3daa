"""Broken variants of the product, one rule each. The simulation must catch every one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from calving.errors import Fenced, Unavailable
from calving.model.events import DataWritten, Envelope, Publication
from calving.model.membership import Claim
from calving.model.offsets import Advance, ControlOffsets, SourceOffsets, TopicPartition
from calving.protocol import commit as commit_module
from calving.protocol.buffer import Buffer
from calving.protocol.commit import CommitLoop, CommitRefused, CommitUncertain, Settled
from calving.protocol.coordinator import Coordinator, Failed
from calving.protocol.effects import CoordinatorEffect, WorkerEffect
from calving.protocol.ledger import NOWHERE, Admitted, Ledger, LedgerKey, Reach, admit
from calving.protocol.positions import Position
from calving.protocol.recovery import Recovery, recovery
from calving.protocol.worker import Worker
from calving.runtime.coordinator import CoordinatorLoop
from calving.runtime.worker import WorkerLoop
from tests.simulation.world import Loaded, SimSession, SimTarget, Violation, World, simulate

MUTANTS: dict[str, type[World]] = {}


def mutant(rule: str) -> Callable[[type[World]], type[World]]:
    def register(world: type[World]) -> type[World]:
        MUTANTS[rule] = world
        return world

    return register


def verdicts(world: type[World], seeds: Iterable[int]) -> Counter[str]:
    """How often which rule was found broken; "survived" where none was."""
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            simulate(seed, world)
        except Violation as violation:
            found[str(violation).split(":")[0]] += 1
        except Exception as error:  # a mutant may also break down, which is as good as being caught
            found[type(error).__name__] += 1
        else:
            found["survived"] += 1
    return found


def with_machine(machine: type[Worker]) -> type[WorkerLoop]:
    class Loop(WorkerLoop):
        def __init__(self, group, session, cursor, runner, limits, policy, clock) -> None:  # type: ignore[no-untyped-def]
            super().__init__(group, session, cursor, runner, limits, policy, clock)
            self.machine = machine(limits)

    return Loop


def with_coordinator(machine: type[Coordinator]) -> type[CoordinatorLoop]:
    class Loop(CoordinatorLoop):
        def __init__(self, cursor, committer, partitions, pace, clock, fresh_id) -> None:  # type: ignore[no-untyped-def]
            super().__init__(cursor, committer, partitions, pace, clock, fresh_id)
            self.machine = machine(pace, cursor.log.start, clock())

    return Loop


def with_buffer(buffer: type[Buffer]) -> type[CoordinatorLoop]:
    class Machine(Coordinator):
        def __init__(self, pace, position, now) -> None:  # type: ignore[no-untyped-def]
            super().__init__(pace, position, now)
            self._buffer = buffer(position)

    return with_coordinator(Machine)


@mutant("W1 a partition that appears later starts at its end")
class StartsAtEnd(World):
    class worker_loop(WorkerLoop):
        def assigned(self, partitions: Collection[TopicPartition]) -> None:
            stored = dict(self._session.committed(partitions))
            bounds = self._group.bounds(partitions)
            self.machine.assigned(
                {
                    tp: Position(
                        stored.get(tp), stored.get(tp, bounds.begins[tp] if tp.partition < 4 else bounds.ends[tp])
                    )
                    for tp in partitions
                }
            )


@mutant("W1 a position found by reset is not stored until something is read")
class ResetNotStored(World):
    class _Machine(Worker):
        def _publish(self) -> list[WorkerEffect]:
            (effect,) = super()._publish()
            p = effect.publication  # type: ignore[union-attr]
            return [
                type(effect)(Publication(p.events, {tp: a for tp, a in p.advances.items() if tp in p.spans}, p.spans))
            ]  # type: ignore[arg-type]

    worker_loop = with_machine(_Machine)


@mutant("W3 a worker with nothing to report does not answer")
class SilentWhenIdle(World):
    class _Machine(Worker):
        def tick(self, ends: SourceOffsets) -> list[WorkerEffect]:
            effects = super().tick(ends)
            return [e for e in effects if not (hasattr(e, "publication") and not e.publication.spans)]

    worker_loop = with_machine(_Machine)


@mutant("W4 files are published first, source offsets afterwards")
class InTwoSteps(World):
    class session(SimSession):
        def write(self, publication: Publication, claim: Claim) -> None:
            self._store.append(self._member, publication.events, publication.spans)
            self._store.topic_ids.update(publication.identities)
            for event in publication.events:
                if isinstance(event, DataWritten):
                    self._world.published.update((f.file_path, event.table.identifier) for f in event.data_files)
            self._world.fail(Unavailable("between the two"))
            if not self._store.is_current(claim):
                raise Fenced(claim.member_id)
            self._store.positions.update({tp: advance.end for tp, advance in publication.advances.items()})


@mutant("W5 results are kept although their partition was lost and came back")
class KeepsLostResults(World):
    class _Machine(Worker):
        def released(self, gone: Iterable[TopicPartition]) -> None:
            for tp in set(gone) & self._next.keys():
                del self._stored[tp], self._next[tp]

        def finished(self, number, outcome) -> None:  # type: ignore[no-untyped-def]
            running, self._running = self._running, None
            assert running is not None
            held = {tp: s for tp, s in running.spans.items() if tp in self._next}
            self._next.update({tp: span.end for tp, span in held.items()})
            self._finished.append((running.spans, outcome))

        def _publish(self) -> list[WorkerEffect]:
            (effect,) = super()._publish()
            p = effect.publication  # type: ignore[union-attr]
            return [
                type(effect)(
                    Publication(
                        p.events, {tp: Advance(self._stored[tp], a.end) for tp, a in p.advances.items()}, p.spans
                    )
                )
            ]  # type: ignore[arg-type]

    worker_loop = with_machine(_Machine)


@mutant("W6 a graceful handover drops finished batches")
class DropsOnHandover(World):
    class _Machine(Worker):
        def handover(self, leaving: Iterable[TopicPartition]) -> list[WorkerEffect]:
            return []

    worker_loop = with_machine(_Machine)


@mutant("W7 records that are gone are skipped silently")
class SkipsSilently(World):
    class worker_loop(WorkerLoop):
        def _mind_gaps(self, bounds) -> None:  # type: ignore[no-untyped-def]
            for tp, gap in self.machine.gaps(bounds.begins, bounds.ends).items():
                self.machine.skip(tp, gap.end)


@mutant("C1 a coordinator without a saved position opens at the latest entry")
class OpensAtLatest(World):
    class session(SimSession):
        def follow(self, *, replay: bool):  # type: ignore[no-untyped-def]
            cursor = super().follow(replay=replay)
            if replay and not self._store.saved:
                cursor._inner._at = self._store.ends()
            return cursor


@mutant("C1 a coordinator opens at the latest entry although a position is saved")
class ReplaysNothing(World):
    class session(SimSession):
        def follow(self, *, replay: bool):  # type: ignore[no-untyped-def]
            cursor = super().follow(replay=replay)
            if replay:
                cursor._inner._at = self._store.ends()
            return cursor


@mutant("C2 the expected partitions are frozen at election")
class FrozenExpectation(World):
    class _Machine(Coordinator):
        def tick(self, now, fresh_id, expected):  # type: ignore[no-untyped-def]
            self._first = getattr(self, "_first", expected)
            return super().tick(now, fresh_id, self._first)

    coordinator = with_coordinator(_Machine)
    restarts = 0.0


@mutant("C3 only files of the current cycle are buffered")
class ForgetsLateFiles(World):
    class _Machine(Coordinator):
        def heard(self, envelope: Envelope) -> list[CoordinatorEffect]:
            event = envelope.event
            if isinstance(event, DataWritten) and event.commit_id != self._commit_id:
                self._buffer.read[envelope.partition] = envelope.offset + 1
                return []
            return super().heard(envelope)

    coordinator = with_coordinator(_Machine)


@mutant("C4 a table that fails loses its buffered entries")
class DropsFailedTable(World):
    class _Machine(Coordinator):
        def settled(self, table, outcome):  # type: ignore[no-untyped-def]
            if isinstance(outcome, Failed):
                self._buffer.settle(table, self._committing)
            return super().settled(table, outcome)

    coordinator = with_coordinator(_Machine)


@mutant("C5 the read position is saved although entries are still buffered")
class AcknowledgesTooMuch(World):
    class _Machine(Coordinator):
        def _complete_cycle(self) -> list[CoordinatorEffect]:
            (effect,) = super()._complete_cycle()
            return [replace(effect, position=dict(self._buffer.read))]  # type: ignore[type-var]

    coordinator = with_coordinator(_Machine)


@mutant("C5 the position is saved before the tables commit")
class AcknowledgesFirst(World):
    class coordinator(CoordinatorLoop):
        def _act(self, effects):  # type: ignore[no-untyped-def]
            for effect in effects:
                if hasattr(effect, "tables"):
                    self._cursor.acknowledge(dict(effect.read), ())
            super()._act(effects)


@mutant("C6.1 the ledger is read once per process, not before every attempt")
class RemembersLedger(World):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        outer = self

        class Target(SimTarget):
            def load(self) -> Loaded:
                fresh = super().load()
                known = outer._known.setdefault((id(outer._stepping), id(self.table)), fresh)
                ancestry = tuple(known.snapshots) + tuple(
                    type(s)(s.id, s.files, {}) for s in fresh.snapshots[len(known.snapshots) :]
                )
                return Loaded(ancestry, fresh.properties)

        self._known: dict[tuple[int, int], Loaded] = {}
        self.target = Target  # type: ignore[assignment]


@mutant("C6.2 entries below the ledger are not left out")
class NoFilter(World):
    class _Key(LedgerKey):
        def read(self, ancestry: Iterable[Mapping[str, str]], properties: Mapping[str, str]) -> Ledger:
            return Ledger({})

    ledger_key = _Key


class _CustomLoop(World):
    """A world whose commit loop admits by another rule."""

    @staticmethod
    def admit(heard: list[Envelope], read: ControlOffsets, reach: Reach, ledger: Ledger) -> Admitted:
        return admit(heard, read, reach, ledger)

    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        rule, key = type(self).admit, self.key

        class Loop(CommitLoop[Loaded]):
            def settle(self, heard: Iterable[Envelope], read: ControlOffsets, reach: Reach = NOWHERE) -> Settled:
                commit_module.admit = rule  # type: ignore[attr-defined]
                try:
                    return super().settle(heard, read, reach)
                finally:
                    commit_module.admit = admit  # type: ignore[attr-defined]

        return Loop(target, key, 3)


@mutant("C6.3 the new ledger is what this coordinator has read, not the furthest of both")
class LedgerGoesBack(_CustomLoop):
    @staticmethod
    def admit(heard: list[Envelope], read: ControlOffsets, reach: Reach, ledger: Ledger) -> Admitted:
        found = admit(heard, read, reach, ledger)
        return Admitted(found.data_files, found.delete_files, replace(found.ledger, control=read))


@mutant("C6.3 the new ledger is not moved at all")
class LedgerStays(_CustomLoop):
    @staticmethod
    def admit(heard: list[Envelope], read: ControlOffsets, reach: Reach, ledger: Ledger) -> Admitted:
        found = admit(heard, read, reach, ledger)
        return Admitted(found.data_files, found.delete_files, ledger)


@mutant("C6.4 an attempt is rebased onto a moved head without looking again")
class Rebases(World):
    class target(SimTarget):
        def attempt(self, state: Loaded, admitted: Admitted) -> int:
            if self.world.chance(self.world.contention * 4):
                self.world.disturb()
            return super().attempt(self.load(), admitted)


@mutant("C6.4 a reported conflict deletes manifests without looking whether it landed")
class DeletesUnseen(World):
    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        attempt = target.attempt

        def deleting(state: Loaded, admitted: Admitted) -> int:
            try:
                return attempt(state, admitted)
            except CommitRefused:
                target.discard()
                raise

        target.attempt = deleting  # type: ignore[method-assign]
        return super().commit_loop(target)


@mutant("C6.4 an unknown outcome is taken for a failure and its manifests are deleted")
class DeletesUncertain(World):
    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        attempt = target.attempt

        def deleting(state: Loaded, admitted: Admitted) -> int:
            try:
                return attempt(state, admitted)
            except CommitUncertain:
                target.discard()
                raise

        target.attempt = deleting  # type: ignore[method-assign]
        return super().commit_loop(target)


@mutant("C6 references to one table that differ in UUID are committed one after the other")
class TwoGroups(World):
    class _Machine(Coordinator):
        class _Split(Buffer):
            def settle(self, table, read) -> None:  # type: ignore[no-untyped-def]
                left = self._heard.get(table, [])[1::2]
                super().settle(table, read)
                if left:
                    self._heard[table] = left

        def __init__(self, pace, position, now) -> None:  # type: ignore[no-untyped-def]
            super().__init__(pace, position, now)
            self._buffer = self._Split(position)

        def _commit(self, *, partial: bool) -> list[CoordinatorEffect]:
            effects = super()._commit(partial=partial)
            for effect in effects:
                if hasattr(effect, "tables"):
                    tables = {t: e[::2] for t, e in effect.tables.items()}
                    return [replace(effect, tables=tables)]
            return effects

    coordinator = with_coordinator(_Machine)


@mutant("B1 the store tears a publication apart")
class Torn(World):
    class session(SimSession):
        def write(self, publication: Publication, claim: Claim) -> None:
            if self._world.chance(0.05):
                self._store.positions.update({tp: advance.end for tp, advance in publication.advances.items()})
                raise Unavailable("torn")
            super().write(publication, claim)


@mutant("B2 the claim is not checked")
class NoClaim(World):
    class session(SimSession):
        def write(self, publication: Publication, claim: Claim) -> None:
            anyone = next(iter(self._world.broker.members), claim.member_id)
            super().write(publication, Claim(anyone, None))


@mutant("B2 stored positions are not compared")
class NoCompare(World):
    class session(SimSession):
        def compare(self, publication: Publication) -> None:
            pass


@mutant("B3 after a failover that forgot writes, control offsets are given out again")
class ReusesOffsets(World):
    def _weather(self) -> None:
        super()._weather()
        if self.chance(0.01):
            log = self.store.log[0]
            if len(log) > 3:
                del log[-2:]


@mutant("C6 a commit ends in the middle of a publication")
class EndsInTheMiddle(World):
    class _Torn(Buffer):
        def whole(self) -> dict[int, int]:
            return dict(self.read)

    coordinator = with_buffer(_Torn)


@mutant("C5 a publication counts of which a part was not heard")
class CountsParts(World):
    class _Lax(Buffer):
        def _check(self, end: Envelope, parts: int) -> None:
            pass

    coordinator = with_buffer(_Lax)


@mutant("C6 records are called settled that wait for a table")
class SettlesTooEarly(World):
    class _Hasty(Buffer):
        def reach(self) -> Reach:
            found = super().reach()
            return replace(found, settled=found.covered)

    coordinator = with_buffer(_Hasty)


@mutant("C6 the ledger claims everything below the furthest record")
class ClaimsHoles(World):
    class ledger_key(LedgerKey):
        def read(self, ancestry: Iterable[Mapping[str, str]], properties: Mapping[str, str]) -> Ledger:
            return replace(super().read(ancestry, properties), missing={})


@mutant("recovery goes back to what the furthest table has read")
class RewindsTooLittle(World):
    @staticmethod
    def recover(ledgers: Mapping[str, Ledger], *, complete: bool) -> Recovery:
        found = recovery(ledgers, complete=complete)
        return Recovery(
            {tp: max(ledger.source.get(tp, 0) for ledger in ledgers.values()) for tp in found.positions}, found.held
        )


@mutant("recovery leaves nothing out for any table")
class DoublesOnRecovery(World):
    @staticmethod
    def recover(ledgers: Mapping[str, Ledger], *, complete: bool) -> Recovery:
        return Recovery(recovery(ledgers, complete=complete).positions, {key: {} for key in ledgers})


@mutant("C6 records that the table holds already are committed once more")
class CommitsTwice(World):
    def commit_loop(self, target: SimTarget) -> CommitLoop[Loaded]:
        class Loop(CommitLoop[Loaded]):
            def settle(self, heard: Iterable[Envelope], read: ControlOffsets, reach: Reach = NOWHERE) -> Settled:
                known, commit_module.twice = commit_module.twice, lambda *_: {}  # type: ignore[attr-defined]
                try:
                    return super().settle(heard, read, reach)
                finally:
                    commit_module.twice = known  # type: ignore[attr-defined]

        return Loop(target, self.key, 3)
