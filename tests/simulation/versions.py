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
        self._is_in_use = False
        """Whether a leader has named the newer form."""
        self._lists: dict[str, tuple[DataFile, ...]] = {}
        self.mend_in: int | None = None
        """After so many steps an operator gives all members the same settings."""

    # Operators

    def first(self) -> Version:
        """The version of a member when the world begins."""
        return self._world.rng.choice((SILENT, SILENT, OLDER, NEWER)) if self._are_several else SILENT

    def replace(self) -> None:
        """A member of another version takes the place of one, or one with other settings of the mutation table. Nobody
        starts a silent version any more once the newer form is in use: it would not notice.
        """
        world = self._world
        member = world.members[world.rng.choice(sorted(world.members))]
        others = {OLDER, NEWER} if self._is_in_use else {SILENT, OLDER, NEWER}
        version = world.rng.choice(sorted(others - {member.version} | {NEWER}))
        self._succeed(member, version, otherwise=version.tells and world.chance(0.3))
        world.stats["replaced"] += 1
        if world.chance(0.3):
            member.die()

    def _succeed(self, member: Member, version: Version, *, otherwise: bool = False) -> None:
        member.successor = version, otherwise and bool(self._world.mutation_tables)

    def install(self, member: Member) -> None:
        """A member has refused to go on, and its error names the version to install."""
        self._succeed(member, NEWER)

    def mend(self) -> None:
        """An operator looks at what members say of each other's settings."""
        members = self._world.members.values()
        if self.mend_in is None:
            told = (each for m in members if m.others is not None for each in m.others.disagreements)
            if any(each.keys for each in told):
                self.mend_in = self._world.rng.randint(0, 40)
                self._world.stats["other settings noticed"] += 1
            return
        self.mend_in -= 1
        if self.mend_in < 0:
            self.mend_in = None
            for member in members:
                if member.otherwise:
                    self._succeed(member, member.version)

    def end(self) -> None:
        """The upgrade ends. Silent members go: nobody notices which settings they have."""
        for member in self._world.members.values() if self._are_several else ():
            if not member.version.tells:
                self.install(member)

    # What members say and write

    def described(self, name: str, version: Version, *, otherwise: bool) -> Members | None:
        """The other members, as a member of this version hears of them."""
        if not version.tells:
            return None
        settings = self._world.digest("append" if otherwise else "upsert")
        return Members(Description(version.form.version, settings, version.form, name, "", {"table": settings}))

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
                self._succeed(member, NEWER)
                member.die()

    def publish(self, store: MemoryStore, publication: Publication, sender: str, form: StoredForm) -> None:
        """Append a publication in this form."""
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
