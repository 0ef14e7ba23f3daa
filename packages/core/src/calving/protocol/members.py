"""The workers of a sink, from their answers in the control log: pure, for every worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from calving.model.events import NO_COMMIT, CommitComplete, DataComplete, Envelope, TableId
from calving.model.members import MOST_TOLD, Member

REMEMBERED = 3
"""Commit cycles after which a worker that has not answered is forgotten."""
_MOST = 2_000
"""Of how many workers the descriptions are kept: anybody who may write into the log can make up more."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A worker with other settings than this one. ``keys``: those that differ; empty if they are not known yet."""

    member: Member
    keys: tuple[str, ...]


class _Heard(NamedTuple):
    """A worker, how many cycles had ended at its last answer, and which one it has answered."""

    member: Member
    cycles: int
    answered: UUID


class Members:
    """The workers that have answered in one of the last commit cycles, by sender.

    Workers of versions before 0.2.0, and of the Java sink, do not describe themselves, and are not here.
    """

    def __init__(self, own: Member | None = None) -> None:
        """``own``: the worker that hears, with all that it tells of itself; None for an observer."""
        self.own = own
        self._told: tuple[Member, ...] = ()
        self._members: dict[str, _Heard] = {}
        self._cycles = 0

    def hear(self, envelope: Envelope, open_cycle: UUID = NO_COMMIT) -> None:
        """Take in an entry of the control log. ``open_cycle``: of this coordinator. Those who have answered it are not
        forgotten: the ends of earlier cycles may be heard after their answers, from another partition of the log.
        """
        match envelope.event:
            case DataComplete(commit_id) if commit_id != NO_COMMIT and envelope.member is not None:
                if envelope.sender in self._members or len(self._members) < _MOST:
                    self._members[envelope.sender] = _Heard(envelope.member, self._cycles, commit_id)
            case CommitComplete(commit_id):
                self._cycles += 1
                for sender, heard in [*self._members.items()]:
                    if heard.answered == open_cycle not in (NO_COMMIT, commit_id):
                        self._members[sender] = heard._replace(cycles=self._cycles)
                    elif self._cycles - heard.cycles >= REMEMBERED:
                        del self._members[sender]

    def recall(self, members: Iterable[Member]) -> None:
        """Take in the workers that a former coordinator tells of (``differing``): the answers of some may stand before
        the position at which its successor reads. They count as if they had answered in the last cycle.
        """
        for member in members:
            if member.id and len(self._members) < _MOST:
                self._members.setdefault(member.id, _Heard(member, self._cycles, NO_COMMIT))

    def tell(self, members: Sequence[Member]) -> None:
        """What the last coordinator tells (``differing``), for an observer: the log may no longer have the answers of
        these workers. Empty if the coordinator knows of none.
        """
        self._told = tuple(members)

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of these workers, sorted."""
        return tuple(sorted({member.version for member, *_ in self._members.values()}))

    @property
    def differing(self) -> tuple[Member, ...]:
        """A worker with the usual settings, and those with others, if they tell which settings differ; empty if there
        are none.
        """
        others = [each.member for each in self.disagreements if each.keys]
        usual = self.usual
        return (usual, *others)[:MOST_TOLD] if others and usual is not None else ()

    @property
    def usual(self) -> Member | None:
        """A worker with the settings that most of them have; None if none has described itself."""
        if self._told:
            return self._told[0]
        members = [member for member, *_ in self._members.values()]
        count = Counter(member.settings for member in members)
        return max(
            members, key=lambda member: (count[member.settings], bool(member.keys), _order(member)), default=None
        )

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """The workers whose settings differ from this worker's, or from the usual ones for an observer; as long as they
        do not tell who they are, one for all of them.
        """
        own = self.own or self.usual
        if own is None:
            return ()
        every = self._told or [member for member, *_ in self._members.values()]
        others = {_order(member): member for member in every if member.settings != own.settings}
        return tuple(Disagreement(member, own.differing(member)) for member in sorted(others.values(), key=_order))

    def disputed(
        self, own: Member, tables: Iterable[TableId], deciding: Callable[[TableId], Collection[str]]
    ) -> frozenset[TableId]:
        """Those of the tables for which one of these workers has other settings than ``own``, or may have: a worker
        does not tell at once which of its settings differ. ``deciding``: the keys that count for a table.
        """
        others = {member for member, *_ in self._members.values() if member.settings != own.settings}
        # Many workers tell the same, and a sink may have thousands of tables.
        told = {(frozenset(own.differing(other)), max(own.level, other.level) > 0) for other in others}
        return frozenset(
            table
            for table, own_keys in ((table, deciding(table)) for table in tables if told)
            if any(_disputes(keys, own_keys, are_groups=are) for keys, are in told)
        )

    @property
    def described(self) -> Member | None:
        """What this worker tells of itself now: while workers disagree, its keys, too."""
        return self.own if self.own is None or self.disagreements else self.own.short


def _disputes(keys: frozenset[str], deciding: Collection[str], *, are_groups: bool) -> bool:
    """Whether a worker that differs in these keys, or groups of keys, may differ in a deciding one."""
    if not keys or not keys.isdisjoint(deciding):
        return True
    return are_groups and any(key.startswith(f"{group}.") for key in deciding for group in keys)


def _order(member: Member) -> tuple[str, str, str, str]:
    return member.host, member.file, member.settings, member.id
