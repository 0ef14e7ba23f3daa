"""Members of several versions and settings: an upgrade that goes to and fro, and settings that are not the same everywhere.

In the newer form a worker's entry lists the data files of an event in a file, and names that. A reader that does not
know the form takes the list for a data file, and finds no rows in it: what it commits is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from calving.backend.memory import MemoryStore
from calving.model.events import Attachment, DataWritten, Envelope, Publication
from calving.model.files import DataFile
from calving.model.forms import OLDEST, StoredForm
from calving.model.members import Member as Description
from calving.model.tables import Branches
from calving.protocol.commit import Admitted
from calving.protocol.members import Members

if TYPE_CHECKING:
    from tests.simulation.members import Member
    from tests.simulation.world import World


class Version(NamedTuple):
    """``form``: the newest that it knows. ``tells``: whether its members describe themselves; those that do not neither
    name forms nor heed them.
    """

    form: StoredForm
    tells: bool = True


class Settings(NamedTuple):
    """``appends``: whether rows of the mutation table are appended. ``branch``: to which the member commits. Both
    branches share one line here: for which branch the files of a commit were written is looked at as it happens.
    """

    appends: bool = False
    branch: str = "main"


AUDIT, CHANGED = "audit", "db.t1"
SILENT = Version(OLDEST, tells=False)
"""Version 0.1.0, and the Java sink."""
OLDER = Version(StoredForm(1, "0.2.0"))
NEWER = Version(StoredForm(2, "0.3.0"))
ANY_FORM = StoredForm(9, "")


class NoForm:
    """The form that a leader of a silent version names: none."""

    form = OLDEST

    def hear(self, envelope: Envelope) -> None:
        pass

    def complete(self, commit_id: UUID) -> None:
        pass


class Versions:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._are_several = world.odds.replacements > 0
        self.turns = world.inserts_append
        """Whether the sink begins with settings that append, and its members are all of versions that tell theirs. Nothing
        is parked then: what was parked with these settings may wait for a leader that has them.
        """
        self.usual = Settings(appends=self.turns)
        """The settings of those that nobody has given others."""
        self._is_in_use = False
        """Whether a leader has named the newer form."""
        self._lists: dict[str, tuple[DataFile, ...]] = {}
        self._newest = OLDEST
        """The newest form that a leader has named."""
        self._form_of: dict[str, StoredForm] = {}
        """By sender, the newest that it knows."""
        self._settings_of: dict[str, Settings] = {}
        """By sender, for those that tell it."""
        self._written_for: dict[str, str | None] = {}
        """By file the branch, if its member has told it."""
        self.mend_in: int | None = None
        """After so many steps an operator gives all members the same settings."""

    # Operators

    def first(self) -> Version:
        """The version of a member when the world begins."""
        if self.turns:
            return self._world.rng.choice((OLDER, NEWER))
        return self._world.rng.choice((SILENT, SILENT, OLDER, NEWER)) if self._are_several else SILENT

    def replace(self) -> None:
        """A member of another version takes the place of one, or one with other settings of the mutation table. Nobody
        starts a silent version any more once the newer form is in use: it would not notice.
        """
        world = self._world
        member = world.members[world.rng.choice(sorted(world.members))]
        others = {OLDER, NEWER} if self._is_in_use or self.turns else {SILENT, OLDER, NEWER}
        version = world.rng.choice(sorted(others - {member.version} | {NEWER}))
        settings = self.usual
        if version.tells and world.chance(0.5):
            is_branch = world.chance(0.02 if self.turns else 0.4) or not world.mutation_tables
            settings = self.usual._replace(branch=AUDIT) if is_branch else Settings(appends=not self.usual.appends)
        self._succeed(member, version, settings)
        world.stats["replaced"] += 1
        if world.chance(0.3):
            member.die()

    @staticmethod
    def _succeed(member: Member, version: Version, settings: Settings) -> None:
        member.successor = version, settings

    def install(self, member: Member) -> None:
        """A member has refused to go on, and its error names the version to install."""
        self._succeed(member, NEWER, self.usual)

    def mend(self) -> None:
        """An operator looks at what members say of each other's settings."""
        members = self._telling()
        if len({settings for _, settings in members.values()}) < 2:
            self.mend_in = None
            return
        if self.mend_in is None:
            told = (
                each for m in self._world.members.values() if m.others is not None for each in m.others.disagreements
            )
            if any(each.keys for each in told):
                self.mend_in = self._world.rng.randint(0, 150 if self.turns else 40)
                self._world.stats["other settings noticed"] += 1
            return
        self.mend_in -= 1
        if self.mend_in < 0:
            self.mend_in = None
            settings = Settings(branch=self._world.rng.choice(("main", AUDIT)))
            if self.turns:  # there are more worlds with changes that nobody takes back
                self.usual = settings = Settings(appends=self._world.chance(0.6))
            for member, (version, former) in members.items():
                if former != settings:
                    self._succeed(member, version, settings)

    def _telling(self) -> dict[Member, tuple[Version, Settings]]:
        """The members that describe themselves, as they are or soon will be."""
        members = {each: each.successor or (each.version, each.settings) for each in self._world.members.values()}
        return {member: both for member, both in members.items() if both[0].tells}

    @property
    def is_settled(self) -> bool:
        """Whether all members have the same settings, and none is about to be replaced."""
        telling = self._telling()
        is_replaced = any(member.successor for member in telling)
        return not is_replaced and len({settings for _, settings in telling.values()}) < 2

    def end(self) -> None:
        """The upgrade ends. Silent members go: nobody notices which settings they have. So do those whose settings append,
        for they leave what others' settings have changed to these.
        """
        self.turns, self.usual = False, Settings()
        for member in self._world.members.values() if self._are_several else ():
            if not member.version.tells or (member.successor or (member.version, member.settings))[1].appends:
                self.install(member)

    # What members say and write

    def described(self, name: str, sender: str, version: Version, settings: Settings) -> Members | None:
        """The other members, as a member of this version hears of them. ``sender``: as the control log names it."""
        if not version.tells:
            return None
        table, branch = (
            self._world.digest(text) for text in ("append" if settings.appends else "upsert", settings.branch)
        )
        keys = {f"iceberg.table.{CHANGED}.upsert-mode-enabled": table, "iceberg.tables.default-commit-branch": branch}
        own = Description(version.form.version, f"{table} {branch}", version.form, name, "", keys, id=sender)
        return Members(own)

    def joined(self, sender: str, version: Version, settings: Settings) -> Branches | None:
        """The branches to which a new member commits, as it tells them."""
        self._form_of[sender] = version.form
        if not version.tells:
            return None
        self._settings_of[sender] = settings
        return Branches(settings.branch)

    def branches_of(self, admitted: Admitted) -> set[str]:
        """The branches for which the files of a commit were written, as far as their members tell."""
        told = (self._written_for.get(file.file_path) for file in admitted.data_files)
        return {branch for branch in told if branch is not None}

    def told_by(self, senders: Collection[str]) -> set[Settings]:
        """The settings of these members, as far as they tell."""
        return {self._settings_of[sender] for sender in self._settings_of.keys() & senders}

    def unaware(self, form: StoredForm, heard: Collection[str]) -> list[str]:
        """Those of the senders who do not know a form that a leader is the first to name."""
        if form <= self._newest:
            return []
        self._newest = form
        return sorted(sender for sender in heard if self._form_of[sender] < form)

    def named(self, form: StoredForm, heard: Collection[str]) -> None:
        """A leader names the form in use, and has ``heard`` answers of these senders in its cycle. A silent member that
        gave none is not seen. That is what the rule is for that all of them are stopped before: an operator does now.
        """
        if self._is_in_use or form < NEWER.form:
            return
        self._is_in_use = True
        self._world.stats["newer form in use"] += 1
        for member in self._world.members.values():
            if not member.version.tells and member.sender not in heard:
                self._succeed(member, NEWER, self.usual)
                member.die()

    def publish(self, store: MemoryStore, publication: Publication, sender: str, form: StoredForm) -> None:
        """Append a publication in this form."""
        for event in publication.events:
            if isinstance(event, DataWritten):
                self._written_for.update({file.file_path: publication.branch_of(event) for file in event.data_files})
        if form < NEWER.form:
            store.publish(publication, sender)
            return
        log = store.log[store.shard(sender)]
        begin = len(log)
        events = [self._listed(e) if isinstance(e, DataWritten) else e for e in publication.events]
        store.publish(replace(publication, events=tuple(events)), sender)
        log[begin:] = [entry and entry._replace(attached=Attachment(form=form)) for entry in log[begin:]]

    def _listed(self, event: DataWritten) -> DataWritten:
        if event.table.identifier in self._world.mutation_tables:
            return event
        path, written_for = f"l{self._world.next_id()}", self._world.people.written_for
        self._lists[path] = event.data_files
        self._written_for[path] = self._written_for[event.data_files[0].file_path]
        self._world.files[path] = ()
        written_for[path] = written_for[event.data_files[0].file_path]
        rows = sum(file.record_count for file in event.data_files)
        return replace(event, data_files=(DataFile(path, "PARQUET", rows, 100),))

    def read(self, admitted: Admitted, version: Version) -> Admitted:
        """What a leader of this version commits."""
        if version.form < NEWER.form or not self._lists:
            return admitted
        files = (one for file in admitted.data_files for one in self._lists.get(file.file_path, (file,)))
        return replace(admitted, data_files=tuple(files))
