"""Mutants of the rule that nothing is skipped in silence where a stranger has moved a position."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from calving.backend.interface import Session
from calving.model.offsets import Coverage, SourceOffsets, TopicPartition
from calving.protocol.ledger import Ledger
from calving.protocol.positions import Unread
from calving.protocol.recovery import Recovery
from calving.protocol.recovery import recovery as real_recovery
from calving.runtime.worker import WorkerLoop
from tests.simulation.mutants.registry import mutant
from tests.simulation.strangers import Strangers
from tests.simulation.world import World

_THEME = "positions moved"


@mutant("W7 a position that a stranger has moved is taken for the sink's own", _THEME)
class BelievesStrangers(World):
    class worker_loop(WorkerLoop):
        def _look_for_moves(self, stored: SourceOffsets) -> None:
            pass


@mutant("W7 a position that a stranger moves after a recovery is taken for the sink's own", _THEME)
class BelievesStrangersAfterRecovery(World):
    class worker_loop(WorkerLoop):
        def _look_for_moves(self, stored: SourceOffsets) -> None:
            self._resumed = lambda log: {}
            super()._look_for_moves(stored)


@mutant("W7 the first publication after a recovery does not say what was read before", _THEME)
class TellsNothingOfBefore(World):
    class worker_loop(WorkerLoop):
        def _look_for_moves(self, stored: SourceOffsets) -> None:
            super()._look_for_moves(stored)
            self._unread = {tp: each._replace(in_log=True) for tp, each in self._unread.items()}


@mutant("W7 a moved position is accepted as soon as it is logged", _THEME)
class AcceptsAtOnce(World):
    class worker_loop(WorkerLoop):
        def assigned(self, partitions: Collection[TopicPartition]) -> None:
            super().assigned(partitions)
            for tp, unread in self._unread.items():
                self.passed_over[tp] = self.passed_over.get(tp, 0) + unread.span.end - unread.span.start
            self._unread.clear()


@mutant("W7 coordinators do not hear what an operator has accepted", _THEME)
class DeafToAcceptance(World):
    class strangers_of(Strangers):
        @staticmethod
        def accepted(session: Session, unread: Mapping[TopicPartition, Unread]) -> Coverage:
            return {tp: (each.span,) for tp, each in unread.items()}


@mutant("W7 a recovery resumes behind the offsets that somebody has passed over", _THEME)
class RecoversBehind(World):
    @staticmethod
    def recovery(
        ledgers: Mapping[str, Ledger],
        rolled_back: Collection[str] = (),
        waiting: Collection[str] = (),
        *,
        complete: bool,
    ) -> Recovery:
        plan = real_recovery(ledgers, rolled_back, waiting, complete=complete)
        ends = {tp: max(ledger.source.get(tp, 0) for ledger in ledgers.values()) for tp in plan.positions}
        return replace(plan, positions=ends)
