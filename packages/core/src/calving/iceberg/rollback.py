"""Rolls one branch of a table back, and answers the rollback, in one commit of the catalog (R7, R8).

Like every commit, it is attempted on exactly one state of the table. If somebody else has committed meanwhile, the plan
is made again on the new state. The process may die at any time: the commit lands whole or not at all.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import assert_never

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)

from calving.errors import (
    CommitRefusedError,
    CommitUncertainError,
    ConfigError,
    NothingToAnswerError,
    TableTroubleError,
)
from calving.iceberg.catalog import find_table, reaching
from calving.iceberg.history import ancestors, line_of, place_added, summary_of
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.locations import OWN_LOCATIONS, FileRules
from calving.iceberg.maintenance import check_forms
from calving.iceberg.picks import mind_picks
from calving.iceberg.restoration import Abandoned, Restoration
from calving.iceberg.snapshot import SinkSnapshot
from calving.iceberg.summary import engine
from calving.model.events import TableId
from calving.model.offsets import Coverage, less, text_of
from calving.model.tables import RollbackAnswer
from calving.model.text import counted
from calving.protocol.answers import (
    AsItIs,
    BeforeTime,
    RollbackTarget,
    ToSnapshot,
    WithoutRecord,
    from_here,
    newest_without,
)
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LOG_ID, ROLLBACK_ANSWERED, LedgerKey
from calving.protocol.ledger_updates import committed, rolled_back
from calving.protocol.recovery import mind_order
from calving.protocol.replacement import left_by_forget
from calving.protocol.rollback import Line, RollbackNote
from calving.retries import Backoff, tries
from calving.storage_errors import described

_MAX_TRIES, _BACKOFF = 20, Backoff(0.04, 2.0)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What the command does with a branch. ``target``: the head after the rollback, the ``head`` itself if it stays.
    ``leaving``: the snapshots between them, newest first. ``ledger``: what the branch holds at ``target``. ``left``:
    unanswered offsets that stay so, because a replacement of the table has discarded their snapshots.
    """

    table: Table
    head: Snapshot | None
    target: Snapshot | None
    leaving: tuple[Snapshot, ...]
    ledger: Ledger
    answer: RollbackAnswer
    restoration: Restoration | None = None
    left: Coverage = field(default_factory=dict)

    @property
    def unanswered(self) -> Coverage:
        """The offsets for which this is the answer."""
        return less(self.ledger.unanswered, self.left)

    @property
    def note(self) -> RollbackNote:
        """What the table says of the command afterwards."""
        gone = less(self.ledger.gone, self.left)
        forgotten = gone if self.answer is RollbackAnswer.FORGET else self.ledger.forgotten
        return RollbackNote(_id(self.head), _id(self.target), forgotten)


class TableRollback:
    """The rollback of one branch of one table."""

    def __init__(
        self,
        catalog: Catalog,
        table: TableId,
        key: LedgerKey,
        target: RollbackTarget,
        answer: RollbackAnswer,
        *,
        changes_rows: bool,
        again: bool = False,
        rules: FileRules = OWN_LOCATIONS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``key``: of the sink; it names the branch. ``changes_rows``: the sink updates or deletes
        rows of the table. ``again``: the branch may go back once more to where it went before; and what was forgotten
        is wanted again. ``rules``: where files of the table may be.
        """
        self._catalog, self._id, self._key = catalog, table, key
        self._target, self._answer, self._changes_rows = target, answer, changes_rows
        self._again, self._rules, self._sleep = again, rules, sleep
        self.name, self.branch = ".".join(table), key.branch

    def plan(self) -> RollbackPlan:
        """What the command does with the table as it is now.

        :raises NothingToAnswerError: the table lacks nothing.
        :raises ConfigError: it cannot be done; the text says why, and what is left to do.
        :raises UnavailableError: the catalog gives no clear answer, or a file of the table cannot be read.
        :raises NewerVersionError: a later version has written the table.
        """
        table = find_table(self._catalog, self._id)
        if table is None:
            raise ConfigError(f"table {self.name} does not exist")
        check_forms(self.name, table.metadata.properties)
        try:
            with reaching(self._catalog, f"table {self.name} cannot be read"):
                return self._planned(table, self._key_of(table))
        except TableTroubleError as error:
            raise ConfigError(f"table {self.name}: {error}") from error

    def _planned(self, table: Table, key: LedgerKey) -> RollbackPlan:
        properties = table.metadata.properties
        head, line = table.metadata.snapshot_by_name(key.branch), line_of(table, key.branch)
        target = self._target_in(table, key, line)
        leaving = _above(table, key.branch, target)
        if leaving and self._is_done(key, properties, leaving, target):
            target, leaving = head, ()
        line = from_here(line, _id(target))
        ledger = key.read(line, properties)
        if self._again:
            ledger = replace(ledger, forgotten={})
        if not leaving:
            self._mind_need(ledger, head)
        restoration: Restoration | None = None
        in_part = self._answer is RollbackAnswer.FORGET and not self._again
        left = left_by_forget(self.name, key, line, properties, ledger, moves=bool(leaving)) if in_part else {}
        if self._answer is RollbackAnswer.RESTORE:
            if ledger.doubt is not None:
                raise ConfigError(
                    f"table {self.name}: the snapshots that would tell what is missing have expired, so nobody knows"
                    " what to restore; compare the rows with the topics: what is left is `reread` or `forget`"
                )
            apart = Abandoned(table, key, line, target, self._rules)
            restoration = apart.restoration(ledger, changes_rows=self._changes_rows)
            left = restoration.discarded
        if self._answer is RollbackAnswer.REREAD:
            if self._changes_rows:
                mind_order([self.name], {self.name: ledger})
            mind_picks(self.name, self._at(table, target), key)
        return RollbackPlan(
            table=table,
            head=head,
            target=target,
            leaving=leaving,
            ledger=ledger,
            answer=self._answer,
            restoration=restoration,
            left=left,
        )

    def _mind_need(self, ledger: Ledger, head: Snapshot | None) -> None:
        """:raises NothingToAnswerError: the branch lacks nothing for which this can be the answer."""
        if not ledger.gone and ledger.doubt is None:
            stays = "" if isinstance(self._target, AsItIs) else f" stays at its head, snapshot {_id(head)}, and"
            raise NothingToAnswerError(
                f"table {self.name}: branch {self._key.branch}{stays} holds all that this sink has committed to it:"
                " there is nothing to answer; after a restored catalog, run `calving recover FILE`"
            )
        if not ledger.unanswered and ledger.doubt is None and self._answer is not RollbackAnswer.FORGET:
            raise NothingToAnswerError(
                f"table {self.name}: what branch {self._key.branch} lacks was forgotten ({text_of(ledger.gone)}), so"
                " there is nothing to answer: to have it again, add --again"
            )

    def commit(self) -> RollbackPlan:
        """Do it, in one commit; returns what was done.

        :raises ConfigError, UnavailableError, NewerVersionError: as of ``plan``.
        :raises CommitRefusedError, CommitUncertainError: others committed faster each time, or there was no answer: run
            it again.
        """
        for is_last in tries(_MAX_TRIES, lambda number: self._sleep(_BACKOFF.pause(number))):
            plan = self.plan()
            snapshot, updates = self._updates(plan)
            guards = (
                AssertRefSnapshotId(ref=self._key.branch, snapshot_id=_id(plan.head)),
                AssertTableUUID(uuid=plan.table.metadata.table_uuid),
            )
            try:
                plan.table._do_commit(updates, guards)
            except CommitFailedException as error:
                if snapshot is not None:
                    snapshot.discard()
                if is_last:
                    raise CommitRefusedError(f"table {self.name}: {error}") from error
                continue
            except Exception as error:  # a catalog or its transport may raise anything: the table shows the result
                if not self._has_landed(updates):
                    raise CommitUncertainError(f"table {self.name}: {described(error)}") from error
            return plan
        raise AssertionError("unreachable")

    def _key_of(self, table: Table) -> LedgerKey:
        """The key with the identity of the control log that the table names."""
        log_id = table.metadata.properties.get(self._key.of_table(LOG_ID))
        if log_id is None:
            raise ConfigError(f"table {self.name}: branch {self._key.branch} holds nothing of sink {self._key.owner}")
        return replace(self._key, log_id=log_id).with_former(table.metadata.properties)

    def _target_in(self, table: Table, key: LedgerKey, line: Line) -> Snapshot | None:
        metadata = table.metadata
        shown = list(ancestors(metadata, key.branch))
        target: Snapshot | None
        match self._target:
            case AsItIs():
                return metadata.snapshot_by_name(key.branch)
            case ToSnapshot(wanted):
                target = next((each for each in shown if each.snapshot_id == wanted), None)
                is_there = metadata.snapshot_by_id(wanted) is not None
                why = f"is no ancestor of branch {key.branch}" if is_there else "has expired, or never was"
                text = f"snapshot {wanted} of table {self.name} {why}"
            case BeforeTime(before_ms):
                # A snapshot whose writer's clock was behind may be above one from after that time.
                older = takewhile(lambda each: each.timestamp_ms < before_ms, reversed(shown))
                target = next(iter(deque(older, maxlen=1)), None)
                text = f"table {self.name}: branch {key.branch} has no snapshot from before that time"
            case WithoutRecord(tp, offset):
                snapshot = newest_without(key, line, metadata.properties, tp, offset)
                target = metadata.snapshot_by_id(snapshot.place.id) if snapshot is not None else None
                record = f"offset {offset} of {tp.topic}-{tp.partition}"
                text = f"table {self.name}: branch {key.branch} has no snapshot that surely lacks {record}"
            case unknown:
                assert_never(unknown)
        if target is None:
            oldest = f"the oldest one is {shown[-1].snapshot_id}" if shown else "it has none"
            raise ConfigError(f"{text}; {oldest}")
        return target

    def _is_done(
        self, key: LedgerKey, properties: Mapping[str, str], leaving: Sequence[Snapshot], target: Snapshot | None
    ) -> bool:
        """Whether the command has gone there before (R9). A recovery may have added snapshots without rows since.

        :raises ConfigError: others have committed rows since.
        """
        note = key.rollback_note(properties)
        was_moved_forward = any(each.snapshot_id == note.before for each in leaving)
        if note.before in (None, note.after) or note.after != _id(target) or was_moved_forward or self._again:
            return False
        if all(_has_no_change(each) for each in leaving):
            return True
        raise ConfigError(
            f"table {self.name}: the branch went back to snapshot {note.after} before, and has"
            f" {counted(len(leaving), 'newer snapshot')} now, up to {leaving[0].snapshot_id}: keep them with --as-is;"
            " or remove them, too, with --again"
        )

    def _updates(self, plan: RollbackPlan) -> tuple[SinkSnapshot | None, tuple[TableUpdate, ...]]:
        """The updates of the commit; and the snapshot that it adds, if it does."""
        table, key, target = plan.table, self._key_of(plan.table), plan.target
        properties, restoration = table.metadata.properties, plan.restoration
        if restoration is not None and restoration.forward is not None:
            target = table.metadata.snapshot_by_id(restoration.forward.place.id)
        state = self._at(table, target)
        line = line_of(state, key.branch)
        if restoration is None or restoration.forward is not None:
            moved = (self._to(table, target),) if target is not None and target is not plan.head else ()
            noted = rolled_back(key, line, properties, plan.note, waits=plan.answer is RollbackAnswer.REREAD)
            return None, (*moved, SetPropertiesUpdate(updates=noted))
        ledger = plan.ledger.regained(restoration.commits.offsets)
        snapshot = new_snapshot(state, {**engine(), **key.summary(ledger), **restoration.summary}, key.branch)
        for file in restoration.files:
            snapshot.append_data_file(file)
        added, _ = snapshot.prepare()
        noted = committed(key, line, properties, ledger, place_added(added))
        noted |= {key.of_table(ROLLBACK_ANSWERED): str(plan.note)}
        return snapshot, (*added, SetPropertiesUpdate(updates=noted), *restoration.updates)

    def _at(self, table: Table, target: Snapshot | None) -> Table:
        """The table as it is with this head of the branch, before anything is committed."""
        if target is None or target is table.metadata.snapshot_by_name(self._key.branch):
            return table
        state = copy.copy(table)
        state.metadata = update_table_metadata(table.metadata, (self._to(table, target),))
        return state

    def _to(self, table: Table, target: Snapshot) -> SetSnapshotRefUpdate:
        ref = table.metadata.refs.get(self._key.branch)
        return SetSnapshotRefUpdate(
            ref_name=self._key.branch,
            type=SnapshotRefType.BRANCH,
            snapshot_id=target.snapshot_id,
            max_ref_age_ms=ref.max_ref_age_ms if ref is not None else None,
            max_snapshot_age_ms=ref.max_snapshot_age_ms if ref is not None else None,
            min_snapshots_to_keep=ref.min_snapshots_to_keep if ref is not None else None,
        )

    def _has_landed(self, updates: Sequence[TableUpdate]) -> bool:
        """Whether the table shows the commit. One that was made before may have left the same properties, but another
        head.
        """
        now = find_table(self._catalog, self._id)
        if now is None:
            return False
        wanted = next(each.updates for each in updates if isinstance(each, SetPropertiesUpdate))
        ref = now.metadata.refs.get(self._key.branch)
        heads = [each.snapshot_id for each in updates if isinstance(each, SetSnapshotRefUpdate)]
        has_head = not heads or (ref is not None and ref.snapshot_id == heads[-1])
        return has_head and all(now.metadata.properties.get(name) == value for name, value in wanted.items())


def _id(snapshot: Snapshot | None) -> int | None:
    return snapshot.snapshot_id if snapshot is not None else None


def _has_no_change(snapshot: Snapshot) -> bool:
    """Whether the summary of a snapshot says that it has added no file, and removed none."""
    summary = snapshot.summary
    return (
        summary is not None
        and summary.operation is Operation.APPEND
        and summary_of(snapshot).get("added-data-files", "0") == "0"
    )


def _above(table: Table, branch: str, target: Snapshot | None) -> tuple[Snapshot, ...]:
    return tuple(takewhile(lambda each: each.snapshot_id != _id(target), ancestors(table.metadata, branch)))
