"""Workers of several versions and settings that break a rule."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from calving.iceberg.locations import refuse_disputed
from calving.model.events import NO_COMMIT, DataComplete, Envelope, StartCommit, TableId
from calving.model.files import DataFile
from calving.model.forms import OLDEST, StoredForm
from calving.protocol.effects import CommitTables
from calving.protocol.forms import FormInUse
from calving.protocol.members import Members
from calving.runtime.coordinator import CoordinatorLoop
from tests.simulation.mutants.registry import mutant
from tests.simulation.odds import TURNS
from tests.simulation.versions import ANY_FORM, Version
from tests.simulation.world import World

THEME = "several versions"


@mutant("F1 a leader names a form that not all workers know", THEME)
class NamesTheHighest(World):
    class coordinator_loop(CoordinatorLoop):
        class _Highest(FormInUse):
            def hear(self, envelope: Envelope) -> None:
                before = dict(self._lowest)
                super().hear(envelope)
                if isinstance(envelope.event, DataComplete) and envelope.event.commit_id in self._lowest:
                    own = OLDEST if envelope.member is None else envelope.member.form
                    cycle = envelope.event.commit_id
                    self._lowest[cycle] = max(before.get(cycle, OLDEST), own)

        def step(self, timeout: float) -> None:
            if type(self._form) is FormInUse:
                self._form = self._Highest(self._form._own)
            super().step(timeout)


@mutant("F1 a leader passes over answers that it hears before the start of their cycle", TURNS, seed=22)
class PassesOverEarlyAnswers(World):
    class coordinator_loop(CoordinatorLoop):
        class _AfterStart(FormInUse):
            _begun: UUID | None = None

            def hear(self, envelope: Envelope) -> None:
                match envelope.event:
                    case StartCommit(commit_id):
                        self._begun = commit_id
                    case DataComplete(commit_id) if commit_id != self._begun:
                        return
                super().hear(envelope)

        def step(self, timeout: float) -> None:
            if type(self._form) is FormInUse:
                self._form = self._AfterStart(self._form._own)
            super().step(timeout)


@mutant("F1 a leader commits in a lower form than that of the files", THEME)
class ForgetsTheForm(World):
    class coordinator_loop(CoordinatorLoop):
        class _OfAnswers(FormInUse):
            def hear(self, envelope: Envelope) -> None:
                super().hear(replace(envelope, attached=replace(envelope.attached, form=OLDEST)))

        def step(self, timeout: float) -> None:
            if type(self._form) is FormInUse:
                self._form = self._OfAnswers(self._form._own)
            super().step(timeout)


@mutant("F2 a member goes on although others use a form that it does not know", TURNS)
class ReadsAnyForm(World):
    def minds(self, version: Version) -> StoredForm:
        return ANY_FORM


@mutant("S1 a leader appends what others' settings have changed rows", THEME)
class AppendsChanges(World):
    """Two guards keep it from that: what workers tell of their settings, and the files themselves."""

    @staticmethod
    def refuse_other_settings(table: TableId, group: str, deletes: Collection[DataFile], *, changes_rows: bool) -> None:
        pass

    @staticmethod
    def refuse_disputed(
        request: CommitTables, table: TableId, group: str, entries: Collection[Envelope], branch: str
    ) -> None:
        refuse_disputed(replace(request, disputed=frozenset()), table, group, entries, branch)


@mutant("S1 workers do not notice that their settings differ", THEME)
class SameDigests(World):
    @staticmethod
    def digest(settings: str) -> str:
        return "the same"


@mutant("S2 a leader commits while workers commit to different branches", THEME)
class CommitsWhileBranchesDiffer(World):
    @staticmethod
    def refuse_disputed(
        request: CommitTables, table: TableId, group: str, entries: Collection[Envelope], branch: str
    ) -> None:
        refuse_disputed(replace(request, disputed=frozenset()), table, group, entries, branch)


@mutant("S2 a leader commits files for another branch before it has heard all workers", THEME, seed=4)
class CommitsToAnyBranch(World):
    @staticmethod
    def refuse_disputed(
        request: CommitTables, table: TableId, group: str, entries: Collection[Envelope], branch: str
    ) -> None:
        refuse_disputed(replace(request, heard_all=True), table, group, entries, branch)


@mutant("S2 a leader commits while workers differ in how rows change", TURNS)
class CommitsWhileChangesDiffer(World):
    class coordinator_loop(CoordinatorLoop):
        def _request(self, effect: CommitTables) -> CommitTables:
            request = super()._request(effect)
            branch = ("iceberg.tables.default-commit-branch",)
            disputed = self._own and self._members.disputed(self._own, effect.tables, lambda table: branch)
            return replace(request, disputed=disputed or frozenset())


@mutant("S2 the ends of earlier cycles let a leader forget who has answered its own", TURNS, seed=32)
class ForgetsAnswers(World):
    class coordinator_loop(CoordinatorLoop):
        class _Aging(Members):
            def hear(self, envelope: Envelope, open_cycle: UUID = NO_COMMIT) -> None:
                super().hear(envelope)

        def step(self, timeout: float) -> None:
            if type(self._members) is Members:
                self._members = self._Aging(self._members.own)
            super().step(timeout)


@mutant("S1 a new leader appends over offsets that it has not read", TURNS, seed=31)
class AppendsOverUnread(World):
    def has_read(self, request: CommitTables) -> bool:
        return True
