"""Stores that do not keep their contract."""

from __future__ import annotations

from calving.errors import FencedError, UnavailableError
from calving.model.events import DataWritten, Publication
from calving.model.sink import Claim
from tests.simulation.members import SimSession
from tests.simulation.mutants.registry import mutant
from tests.simulation.world import World


@mutant("W4 files are published first, source offsets afterwards")
class InTwoSteps(World):
    class session(SimSession):
        def write(self, publication: Publication, claim: Claim) -> None:
            self._store.publish(publication, self._member)
            self._store.topic_ids.update(publication.identities)
            for event in publication.events:
                if isinstance(event, DataWritten):
                    self._world.checks.files_of.update((f.file_path, event.table.identifier) for f in event.data_files)
            self._world.fail("between", UnavailableError("between the two"))
            if not self._store.is_current(claim):
                raise FencedError(claim.member_id)
            self._store.positions.update({tp: advance.end for tp, advance in publication.advances.items()})


@mutant("B1 the store tears a publication apart")
class Torn(World):
    class session(SimSession):
        def write(self, publication: Publication, claim: Claim) -> None:
            if self._world.chance(0.05):
                self._store.positions.update({tp: advance.end for tp, advance in publication.advances.items()})
                raise UnavailableError("torn")
            super().write(publication, claim)


@mutant("B2 the claim is not checked", "crowd", seed=1)
class NoClaim(World):
    class session(SimSession):
        def write(self, publication: Publication, claim: Claim) -> None:
            anyone = next(iter(self._world.broker.members), claim.member_id)
            super().write(publication, Claim(anyone, None))


@mutant("B2 stored positions are not compared", "crowd", seed=4)
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
