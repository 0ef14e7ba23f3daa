"""Workers that break a rule."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from calving.model.offsets import Advance, SourceOffsets, TopicPartition
from calving.protocol.effects import Publish, WorkerEffect
from calving.protocol.phases import Batch, Turn
from calving.protocol.positions import Position
from calving.protocol.worker import BatchOutcome, WorkerMachine
from calving.runtime.worker import WorkerLoop
from calving.source.interface import Bounds
from tests.simulation.mutants.registry import mutant
from tests.simulation.world import World


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
    class worker(WorkerMachine):
        def _publish(self) -> list[WorkerEffect]:
            (effect,) = super()._publish()
            assert isinstance(effect, Publish)
            p = effect.publication
            return [Publish(replace(p, advances={tp: a for tp, a in p.advances.items() if tp in p.spans}))]


@mutant("W3 a worker with nothing to report does not answer")
class SilentWhenIdle(World):
    class worker(WorkerMachine):
        def tick(self, ends: SourceOffsets) -> list[WorkerEffect]:
            effects = super().tick(ends)
            return [e for e in effects if not (hasattr(e, "publication") and not e.publication.spans)]


@mutant("W5 results are kept although their partition was lost and came back")
class KeepsLostResults(World):
    class worker(WorkerMachine):
        def released(self, gone: Iterable[TopicPartition]) -> None:
            for tp in set(gone) & self._next.keys():
                del self._stored[tp], self._next[tp]

        def finished(self, number: int, outcome: BatchOutcome) -> None:
            self._phases.take(Turn.VOID_ENDS if self._phases.batch is Batch.VOID else Turn.BATCH_ENDS)
            held = {tp: s for tp, s in self._reads.items() if tp in self._next}
            self._next.update({tp: span.end for tp, span in held.items()})
            self._finished.append((self._reads, outcome))

        def _publish(self) -> list[WorkerEffect]:
            (effect,) = super()._publish()
            assert isinstance(effect, Publish)
            p = effect.publication
            advances = {tp: Advance(self._stored[tp], a.end) for tp, a in p.advances.items()}
            return [Publish(replace(p, advances=advances))]


@mutant("W6 a graceful handover drops finished batches")
class DropsOnHandover(World):
    class worker(WorkerMachine):
        def handover(self, leaving: Iterable[TopicPartition]) -> list[WorkerEffect]:
            return []


@mutant("W7 records that are gone are skipped silently", "retention")
class SkipsSilently(World):
    class worker_loop(WorkerLoop):
        def _watch_gaps(self, bounds: Bounds) -> None:
            for tp, gap in self.machine.gaps(bounds.begins, bounds.ends).items():
                self.machine.skip(tp, gap.resumes)


@mutant("W7 a topic that was recreated is taken for the one that was read", "topic recreated")
class IgnoresTopicIds(World):
    class worker_loop(WorkerLoop):
        def _recognise(self, topics: Collection[str]) -> None:
            pass


@mutant("W7 a partition that starts over and comes just as far again does not say so", "topic recreated")
class ComesBackUnseen(World):
    class worker(WorkerMachine):
        def _publish(self) -> list[WorkerEffect]:
            self._restarted = {tp for tp in self._restarted if self._next[tp] < (self._stored[tp] or 0)}
            return super()._publish()


@mutant("VTTS timestamps are dropped")
class DropsTimestamps(World):
    class worker(WorkerMachine):
        def finished(self, number: int, outcome: BatchOutcome) -> None:
            super().finished(number, replace(outcome, timestamps_us={}))
