"""A ledger in summaries of snapshots and in table properties: the names of its entries, reading and writing.

The table properties repeat the newest ledger, so that it stays true when its snapshots expire or a branch is rolled
back (R1, R2a, R3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile

from calving.errors import TableTroubleError
from calving.model.forms import NEWEST, StoredForm
from calving.model.offsets import (
    ControlOffsets,
    Coverage,
    decode_coverage,
    encode_coverage,
    furthest,
    intersection,
    less,
    merged,
    union,
    without,
)
from calving.model.tables import SnapshotPlace
from calving.protocol.forms import check_owner_forms
from calving.protocol.ledger import (
    Ledger,
    SourceProgress,
    decode_control,
    decode_ledgers,
    decode_names,
    decode_recovered,
    decode_source,
    encode_control,
    encode_source,
    entry_of,
    settled_but,
    unsettled,
)
from calving.protocol.rollback import Ancestor, Line, RollbackNote, Verdict, picked, verdict

COMMIT_ID = "kafka.connect.commit-id"
TASK_ID = "kafka.connect.task-id"
VALID_THROUGH = "kafka.connect.valid-through-ts"
LOG_ID = "calving.control-log-id"
SOURCE_OFFSETS = "calving.source-offsets"
SETTLED_OFFSETS = "calving.settled-offsets"
MISSING_OFFSETS = "calving.missing-offsets"
HELD_OFFSETS = "calving.held-offsets"
GONE_OFFSETS = "calving.gone-offsets"
DISCARDED_OFFSETS = "calving.discarded-offsets"
LEDGER_SNAPSHOT = "calving.ledger-snapshot"
LEDGER_DOUBT = "calving.ledger-doubt"
LEDGERS_AT = "calving.ledgers-at"
ROLLBACK_ANSWERED = "calving.rollback-answered"
RECOVERED_AT = "calving.recovered-at"
FORMER_NAMES = "calving.former-names"
OFFSETS = "kafka.connect.offsets."
"""Prefix of a summary entry with control offsets; the owner's name follows."""


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """The owner of a ledger: one sink (its group), one control log, one incarnation of that log."""

    control_topic: str
    group: str
    log_id: str
    branch: str = "main"
    newest: StoredForm = NEWEST
    """The newest form that this process knows."""
    former: tuple[tuple[str, int], ...] = ()
    """The sink's former names, ``<control topic>.<group>``, each with the table's last sequence number under that name:
    source offsets in snapshots up to there count as its own. Later ones are another sink's, which has got the name.
    """

    @property
    def offsets(self) -> str:
        """The name of the summary entry with this owner's control offsets. The Java sink reads and writes the same
        name.
        """
        return f"{OFFSETS}{self.owner}"

    def of_table(self, name: str) -> str:
        """The name of this owner's table property ``name``."""
        # Several sinks may write one table, and one sink several branches of it. So the name of a table property must
        # contain its owner, unlike that of a summary entry.
        name = name if name == self.offsets else f"{name}.{self.owner}"
        return name if self.branch == "main" else f"{name}@{self.branch}"

    def named(self, owner: str) -> LedgerKey:
        """The key of a sink of another name, ``<control topic>.<group>``, in the same branch."""
        control_topic, _, group = owner.partition(".")
        return replace(self, control_topic=control_topic, group=group)

    def with_former(self, properties: Mapping[str, str]) -> LedgerKey:
        """The key with the former names of which ``calving recover --from`` has taken a table over."""
        former = entry_of(properties, self.of_table(FORMER_NAMES), decode_names)
        return self if self.former == former else replace(self, former=former)

    def took_over(self, owner: str) -> bool:
        """Whether the table was taken over from this name. Then this one knows all that the other one has written."""
        return owner in dict(self.former)

    @property
    def owner(self) -> str:
        """``<control topic>.<group>``."""
        return f"{self.control_topic}.{self.group}"

    def read(self, line: Line, properties: Mapping[str, str]) -> Ledger:
        """The ledger of a branch, from its snapshots and from the table's properties.

        ``control`` comes from the newest summary of this sink and this log. A summary without a log id was written by
        the Java sink, and counts as one of this log. The table property counts, too: it stays after all these snapshots
        have expired, and after a rollback a replay must not bring the removed rows back. The source offsets come from
        the newest summary of this sink that has source offsets, whichever log the entries went through. The Java sink
        writes no source offsets. If no summary has any, they come from the table properties, unless the branch was
        rolled back (R2, R3).

        :raises NewerVersionError: the table is written in a form that this process does not know.
        """
        if (key := self.with_former(properties)) is not self:
            return key.read(line, properties)
        check_owner_forms(properties, self.owner, self.newest)
        control: ControlOffsets = {}
        if properties.get(self.of_table(LOG_ID), self.log_id) == self.log_id:
            control = entry_of(properties, self.of_table(self.offsets), decode_control)
        for _, _, summary in line.snapshots:
            if self.offsets in summary and summary.get(LOG_ID, self.log_id) == self.log_id:
                control = furthest(control, entry_of(summary, self.offsets, decode_control))
                break
        ledger, doubt = self._source_part(line, properties)
        ledger = self._less_what_is_gone(ledger, properties)
        if ledger.gone:
            ledger = ledger.regained(picked(line, self.held_at))
        forgotten = intersection(ledger.gone, self.rollback_note(properties).forgotten)
        elsewhere = self._elsewhere(properties)
        return replace(ledger, control=control, doubt=doubt, forgotten=forgotten, elsewhere=elsewhere)

    def _elsewhere(self, properties: Mapping[str, str]) -> ControlOffsets:
        """The control offsets of this owner's ledgers of other branches, also of those that were dropped."""
        others = (control for branch, control in self._stored(properties) if branch != self.branch)
        return reduce(furthest, others, dict[int, int]())

    def stored_control(self, properties: Mapping[str, str]) -> ControlOffsets | None:
        """The control offsets of this owner in the table properties, over all branches: no commit lowers them. None if
        those that are there belong to another control log.
        """
        found = [control for _, control in self._stored(properties)]
        if not found and any(name == self.offsets or name.startswith(f"{self.offsets}@") for name in properties):
            return None
        return reduce(furthest, found, dict[int, int]())

    def told_control(self, summary: Mapping[str, str]) -> ControlOffsets:
        """The control offsets of this owner and this log in a snapshot's summary, also of another branch; empty if
        there are none that can be read.
        """
        with suppress(TableTroubleError):  # the snapshot may have been rolled back, because it is damaged
            return entry_of(summary, self.offsets, decode_control) if summary.get(LOG_ID) == self.log_id else {}
        return {}

    def _stored(self, properties: Mapping[str, str]) -> Iterator[tuple[str, ControlOffsets]]:
        """By branch, the control offsets of this owner and this log."""
        for name in properties:
            branch = "main" if name == self.offsets else name.removeprefix(f"{self.offsets}@")
            if branch != name and properties.get(replace(self, branch=branch).of_table(LOG_ID)) == self.log_id:
                yield branch, entry_of(properties, name, decode_control)

    def own(self, snapshots: Iterable[Ancestor]) -> Ancestor | None:
        """The first of the snapshots whose summary has source offsets of this sink, also under a former name."""
        return next((s for s in snapshots if SOURCE_OFFSETS in s.summary and self.is_own(s)), None)

    def is_own(self, snapshot: Ancestor) -> bool:
        """Whether this sink has committed the snapshot, or the Java sink under its name, also under a former one."""
        former = (f"{OFFSETS}{name}" for name, last in self.former if snapshot.place.number <= last)
        return self.offsets in snapshot.summary or any(name in snapshot.summary for name in former)

    def _source_part(self, line: Line, properties: Mapping[str, str]) -> tuple[Ledger, SnapshotPlace | None]:
        """The source offsets that the branch holds; and the commit of which that is in doubt."""
        doubt = self.doubt(properties)
        if doubt is not None and line.has(doubt):
            doubt = None
        if (own := self.own(line.snapshots)) is not None:
            is_from_before = doubt is not None and line.is_earlier(own.place, doubt)
            above = takewhile(lambda snapshot: snapshot is not own, line.snapshots)
            ledger = self.known_at(above, properties) or self._of_source(own.summary, str)
            return ledger, None if is_from_before else doubt
        stored = self._of_source(properties, self.of_table)
        # A table of an earlier version has no such property. Its snapshot log may still name the commit (R4).
        last = self.last_commit(properties) or (known.place if (known := self.own(line.heads())) is not None else None)
        if last is None or verdict(line, last) is Verdict.INTACT:
            return self._above(line, last, stored), doubt
        shown = self._shown(line, properties)
        return (shown, None) if shown is not None else (stored, doubt or last)

    def _above(self, line: Line, last: SnapshotPlace | None, stored: Ledger) -> Ledger:
        """``stored``, which is of ``last``; or the source offsets of an expired commit of this sink above that: the
        branch was moved back, and then forward to a snapshot of others that is built on both.
        """
        past = line.past() if last is not None and not line.has(last) else ()
        own = self.own(takewhile(lambda snapshot: snapshot.place != last, past))
        return self._of_source(own.summary, str) if own is not None else stored

    def _shown(self, line: Line, properties: Mapping[str, str]) -> Ledger | None:
        """The source offsets that a branch without a summary of this sink holds for sure, after a rollback."""
        if (shown := self.known_at(line.snapshots, properties)) is not None:
            return shown
        if (own := self.own(line.past())) is not None:
            return self._of_source(own.summary, str)
        return Ledger({}) if line.below() is None else None

    def known_at(self, snapshots: Iterable[Ancestor], properties: Mapping[str, str]) -> Ledger | None:
        """The source offsets at the first of these snapshots for which the table properties have them."""
        shown = [each.place.id for each in snapshots]
        known = {i: entries for ids, entries in self.ledgers_at(properties) for i in ids} if shown else {}
        return next((self._of_source(known[i], str) for i in shown if i in known), None)

    def held_at(self, snapshot: Ancestor) -> Coverage | None:
        """The source offsets that the ledger in a snapshot's summary holds; None if it has no ledger of this sink."""
        return self.any_held_at(snapshot) if self.own((snapshot,)) is not None else None

    def any_held_at(self, snapshot: Ancestor) -> Coverage | None:
        """The same of a ledger of any sink."""
        ledger = self._of_source(snapshot.summary, str)
        return {tp: ledger.held(tp) for tp in ledger.source} if SOURCE_OFFSETS in snapshot.summary else None

    def _less_what_is_gone(self, found: Ledger, properties: Mapping[str, str]) -> Ledger:
        """``found`` with ``gone``: a rollback removes snapshots, but the table properties still hold the ledger from
        before it.
        """
        before = self._of_source(properties, self.of_table)
        known = self.known_to_be_gone(properties)
        if not known and (before.source, before.missing) == (found.source, found.missing):
            return found
        told = {tp: merged((*before.held(tp), *known.get(tp, ()))) for tp in {*before.source, *known}}
        return replace(found, gone=less(told, {tp: found.held(tp) for tp in told}))

    def _of_source(self, entries: Mapping[str, str], name: Callable[[str], str]) -> Ledger:
        source = entry_of(entries, name(SOURCE_OFFSETS), decode_source)
        is_this_log = entries.get(name(LOG_ID)) == self.log_id
        return Ledger(
            {},
            source,
            settled_but(source, entry_of(entries, name(SETTLED_OFFSETS), decode_source)),
            entry_of(entries, name(MISSING_OFFSETS), decode_coverage),
            source_control=entry_of(entries, name(self.offsets), decode_control) if is_this_log else {},
        )

    def known_to_be_gone(self, properties: Mapping[str, str]) -> Coverage:
        """The offsets that the table properties call gone."""
        return union(entry_of(properties, self.of_table(GONE_OFFSETS), decode_coverage), self.discarded(properties))

    def discarded(self, properties: Mapping[str, str]) -> Coverage:
        """The offsets of commits that a replacement of the table has discarded, with their snapshots. They are gone."""
        return entry_of(properties, self.of_table(DISCARDED_OFFSETS), decode_coverage)

    def last_commit(self, properties: Mapping[str, str]) -> SnapshotPlace | None:
        """The snapshot that the ledger in the table properties describes (R1)."""
        return entry_of(properties, self.of_table(LEDGER_SNAPSHOT), SnapshotPlace.parse, "")

    def doubt(self, properties: Mapping[str, str]) -> SnapshotPlace | None:
        """The commit of which the table properties say that a rollback may have removed it."""
        return entry_of(properties, self.of_table(LEDGER_DOUBT), SnapshotPlace.parse, "")

    def rollback_note(self, properties: Mapping[str, str]) -> RollbackNote:
        """What ``calving rollback`` has done last with this branch."""
        return entry_of(properties, self.of_table(ROLLBACK_ANSWERED), RollbackNote.parse)

    def ledgers_at(self, properties: Mapping[str, str]) -> Iterator[tuple[list[int], dict[str, str]]]:
        """The ids of snapshots of others, and the source offsets that the table held there, as in a summary."""
        yield from entry_of(properties, self.of_table(LEDGERS_AT), decode_ledgers, "[]")

    def summary(self, ledger: Ledger) -> dict[str, str]:
        """The ledger as snapshot summary entries. Every value is a string, because Java refuses any other type."""
        return {
            self.offsets: encode_control(ledger.control),
            LOG_ID: self.log_id,
            **source_entries(ledger),
        }

    def properties(self, ledger: Ledger, place: SnapshotPlace | None = None) -> dict[str, str]:
        """The ledger as table properties, which stay when the ledger's snapshot expires. ``place``: that snapshot."""
        of_summary = {self.of_table(name): value for name, value in self.summary(ledger).items()}
        return of_summary | self.rollback_properties(ledger, place)

    def rollback_properties(self, ledger: Ledger, place: SnapshotPlace | None) -> dict[str, str]:
        """The table properties that tell of rollbacks."""
        texts = {
            self.of_table(GONE_OFFSETS): encode_coverage(ledger.gone) if ledger.gone else "",
            self.of_table(LEDGER_SNAPSHOT): str(place or ""),
            self.of_table(LEDGER_DOUBT): str(ledger.doubt or ""),
        }
        return {name: value for name, value in texts.items() if value}

    @property
    def holding(self) -> str:
        """The name of the property with the offsets to skip while records are read again after a recovery."""
        return self.of_table(HELD_OFFSETS)

    def left_out(self, properties: Mapping[str, str]) -> Coverage:
        """The offsets in the property ``holding``."""
        return entry_of(properties, self.holding, decode_coverage)

    def outdated(self, properties: Mapping[str, str], progress: SourceProgress) -> bool:
        """Whether ``holding`` is no longer needed: all its offsets have been read again, and are settled.

        A ledger cannot answer this, because it held these offsets before they were read again.
        """
        held = self.left_out(properties)
        return self.holding in properties and not any(
            without(spans, progress.settled.get(tp, ()))
            for tp, spans in held.items()
            if tp.whole not in progress.departed
        )

    def recovered_at(self, log_id: str, end: ControlOffsets, *, again: bool = False) -> dict[str, str]:
        """The table property with the end offsets that a control log had when the sink was recovered. ``again``: a
        recovery has begun that reads everything again that the table does not hold.
        """
        said: dict[str, object] = {"log": log_id, "control": {str(p): end[p] for p in sorted(end)}}
        if again:
            said["again"] = True
        return {self.of_table(RECOVERED_AT): json.dumps(said, separators=(",", ":"))}

    def gets_all_again(self, properties: Mapping[str, str]) -> bool:
        """Whether a recovery that reads everything again for the table has begun and not ended."""
        return "again" in entry_of(properties, self.of_table(RECOVERED_AT), lambda text: dict(json.loads(text)))

    def is_superseded(self, properties: Mapping[str, str], progress: SourceProgress) -> bool:
        """Whether ``progress`` may include entries from before a recovery. The recovery has discarded such entries."""
        if self.of_table(RECOVERED_AT) not in properties:
            return False
        log_id, control = entry_of(properties, self.of_table(RECOVERED_AT), decode_recovered)
        return log_id != self.log_id or any(progress.since.get(p, 0) < at for p, at in control.items())


def source_entries(ledger: Ledger) -> dict[str, str]:
    """The source offsets of a ledger as snapshot summary entries."""
    return {
        SOURCE_OFFSETS: encode_source(ledger.source),
        # Only where they differ from the source offsets: they are usually equal, and every snapshot has this entry.
        SETTLED_OFFSETS: encode_source(unsettled(ledger.source, ledger.settled)),
        MISSING_OFFSETS: encode_coverage(ledger.missing),
    }
