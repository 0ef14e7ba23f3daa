"""Publishes the branch of a backfill: the target branch goes forward to it, or gets its appends by cherry-picks.

As in Iceberg, a branch goes forward only to a snapshot that is built on its head, and only appends are picked, each
once. It does not go forward over what it was rolled back from: then the backfill's own appends are picked. All picks of
a table are in one commit. They carry the ledger of the backfill, so that everybody knows whose
records they are, and the target keeps the sink's ledger below them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from calving.errors import CommitRefusedError, CommitUncertainError, ConfigError
from calving.iceberg.history import ancestors, line_of, summary_of
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.manifests import FIRST_ROW_ID, read_all_entries, read_manifest_list
from calving.iceberg.snapshot import SinkSnapshot
from calving.iceberg.summary import engine
from calving.model.backfills import published_property, sink_of
from calving.model.events import TableId
from calving.model.text import counted
from calving.protocol.ledger_key import LOG_ID, MISSING_OFFSETS, OFFSETS, SETTLED_OFFSETS, SOURCE_OFFSETS
from calving.protocol.rollback import PUBLISHED_BY, SOURCE_SNAPSHOT_ID
from calving.retries import Backoff, tries
from calving.storage_errors import described

_TRIES, _BACKOFF = 20, Backoff(0.1, 1.6)
_LEDGER = {LOG_ID, SOURCE_OFFSETS, SETTLED_OFFSETS, MISSING_OFFSETS}


@dataclass(frozen=True, slots=True)
class BranchPublication:
    """What brings a branch, whose head is ``tip``, into the target: it goes ``forward`` to the tip, or gets ``picks``,
    the snapshots that added something, oldest first, with their files. Neither: it has all of them already.
    """

    tip: int
    forward: bool = False
    picks: tuple[tuple[Snapshot, tuple[DataFile, ...]], ...] = ()

    def text(self, branch: str, target: str) -> str:
        """What was done."""
        if self.forward:
            return f"{target} went forward to snapshot {self.tip}, the head of branch {branch}"
        if not self.picks:
            return f"{target} has all of branch {branch} already"
        files = counted(sum(len(each) for _, each in self.picks), "file")
        return f"{target} got {files} of branch {branch} by {counted(len(self.picks), 'cherry-pick')}"


class Publisher:
    """Publishes one branch of one table for its ``owner``, a backfill."""

    def __init__(self, catalog: Catalog, table: TableId, branch: str, target: str, owner: str) -> None:
        self._catalog, self._table, self._branch, self._target = catalog, table, branch, target
        self._owner, self._name = owner, ".".join(table)

    def publish(self) -> BranchPublication:
        """Commit what the target lacks, in one commit. Others may commit meanwhile.

        :raises ConfigError: Iceberg does not allow it; the text says why.
        :raises CommitRefusedError, CommitUncertainError: others commit too fast, or there was no answer: run it again.
        """
        for is_last in tries(_TRIES, lambda failed: time.sleep(_BACKOFF.pause(failed))):
            table = self._catalog.load_table(self._table)
            plan = self.plan(table)
            if not plan.forward and not plan.picks:
                return plan
            snapshots, updates = self._updates(table, plan)
            noted = SetPropertiesUpdate(updates={published_property(self._owner): str(plan.tip)})
            guards: tuple[TableRequirement, ...] = (
                *(AssertRefSnapshotId(ref=ref, snapshot_id=_head(table, ref)) for ref in (self._target, self._branch)),
                AssertTableUUID(uuid=table.metadata.table_uuid),
            )
            try:
                table._do_commit((*updates, noted), guards)
            except CommitFailedException as error:
                if self._has_landed(plan, snapshots):  # a proxy may repeat a request that has landed
                    return plan
                for snapshot in snapshots:
                    snapshot.discard()
                if is_last:
                    raise CommitRefusedError(f"table {self._name}: {error}") from error
                continue
            except Exception as error:  # a catalog or its transport may raise anything: the table shows the result
                if not self._has_landed(plan, snapshots):
                    raise CommitUncertainError(f"table {self._name}: {described(error)}; run it again") from error
            return plan
        raise AssertionError("unreachable")

    def _has_landed(self, plan: BranchPublication, snapshots: list[SinkSnapshot]) -> bool:
        metadata = self._catalog.load_table(self._table).metadata
        if plan.forward:
            return any(each.snapshot_id == plan.tip for each in ancestors(metadata, self._target))
        return snapshots[-1].snapshot_id in {each.snapshot_id for each in metadata.snapshots}

    def plan(self, table: Table) -> BranchPublication:
        """What the target lacks of the branch now.

        :raises ConfigError: Iceberg does not allow to publish it.
        """
        metadata = table.metadata
        found, noted = metadata.snapshot_by_name(self._branch), self._noted(table)
        if found is None and noted is not None:
            return BranchPublication(noted)
        if found is None:
            raise ConfigError(f"table {self._name} has no branch {self._branch}: there is nothing to publish")
        tip, head = found.snapshot_id, _head(table, self._target)
        if tip == noted or any(each.snapshot_id == tip for each in ancestors(metadata, self._target)):
            return BranchPublication(tip)
        if head is None or self._may_go_forward(table, head):
            return BranchPublication(tip, forward=True)
        above = list(self._above(table, noted))
        picked = {summary_of(each).get(SOURCE_SNAPSHOT_ID) for each in ancestors(metadata, self._target)}
        left = [each for each in reversed(above) if str(each.snapshot_id) not in picked]
        picks = [(each, files) for each in left if (files := tuple(self._added(table, each)))]
        return BranchPublication(tip, picks=tuple(picks))

    def _may_go_forward(self, table: Table, head: int) -> bool:
        """Whether the branch is built on the head of the target, and nothing between the two has been in the target
        before: a rollback has removed that, and it stays away. Only main has a log of its heads; elsewhere the sink,
        which commits to no other branch, has left its ledger.
        """
        line = list(ancestors(table.metadata, self._branch))
        above = list(takewhile(lambda each: each.snapshot_id != head, line))
        heads = {each.place.id for each in line_of(table, self._target).heads()}
        own, sink = f"{OFFSETS}{self._owner}", f"{OFFSETS}{sink_of(self._owner)}"
        others = [each for each in above if own not in summary_of(each)]
        return len(above) < len(line) and not any(
            each.snapshot_id in heads or sink in summary_of(each) for each in others
        )

    def _above(self, table: Table, noted: int | None) -> Iterator[Snapshot]:
        """The snapshots that the backfill has made in the branch, head first. Below them is the snapshot of the target
        on which the branch was made: the target may not have it any more.

        :raises ConfigError: there are others between, or the oldest have expired.
        """
        line = list(ancestors(table.metadata, self._branch))
        own = [f"{OFFSETS}{self._owner}" in summary_of(each) for each in line]
        last = len(line) - 1 - own[::-1].index(True) if True in own else -1
        for place, snapshot in enumerate(line[: last + 1]):
            if snapshot.snapshot_id == noted:
                return
            if not own[place]:
                raise ConfigError(
                    f"table {self._name}: snapshot {snapshot.snapshot_id} of branch {self._branch} is not one of this"
                    f" backfill, and {self._target} has moved on: pick by hand what {self._target} is to have"
                )
            yield snapshot
        if last == len(line) - 1 and line_of(table, self._branch).below() is not None:
            raise ConfigError(
                f"table {self._name}: snapshots of branch {self._branch} have expired, so nobody knows what it has"
                f" added to {self._target}: it cannot be published. Drop it, and begin another backfill with another"
                " --id"
            )

    def _added(self, table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
        """The files that a snapshot has added.

        :raises ConfigError: it did something else, too.
        """
        is_append = snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND
        for manifest in read_manifest_list(table.io, snapshot.manifest_list):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            is_append = is_append and manifest.content == ManifestContent.DATA
            for entry in read_all_entries(table.io, manifest) if is_append else ():
                is_append = is_append and entry.status is not ManifestEntryStatus.DELETED
                if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                    yield _anew(entry.data_file)
        if not is_append:
            raise ConfigError(
                f"table {self._name}: snapshot {snapshot.snapshot_id} of branch {self._branch} did more than append,"
                f" and {self._target} has moved on: Iceberg cherry-picks only appends"
            )

    def _updates(self, table: Table, plan: BranchPublication) -> tuple[list[SinkSnapshot], list[TableUpdate]]:
        if plan.forward:
            ref = table.metadata.refs.get(self._target)
            forward = SetSnapshotRefUpdate(
                ref_name=self._target,
                type=SnapshotRefType.BRANCH,
                snapshot_id=plan.tip,
                max_ref_age_ms=ref.max_ref_age_ms if ref is not None else None,
                max_snapshot_age_ms=ref.max_snapshot_age_ms if ref is not None else None,
                min_snapshots_to_keep=ref.min_snapshots_to_keep if ref is not None else None,
            )
            return [], [forward]
        snapshots: list[SinkSnapshot] = []
        updates: list[TableUpdate] = []
        view = copy.copy(table)
        for source, files in plan.picks:
            snapshot = new_snapshot(view, self._summary(source), self._target)
            for file in files:
                snapshot.append_data_file(file)
            snapshots.append(snapshot)
            changes, _ = snapshot.prepare()
            updates += changes
            view = copy.copy(table)
            view.metadata = update_table_metadata(table.metadata, tuple(updates))
        return snapshots, updates

    def _summary(self, source: Snapshot) -> dict[str, str]:
        said = summary_of(source).items()
        ledger = {name: text for name, text in said if name in _LEDGER or name.startswith(OFFSETS)}
        return {
            **engine(),
            **ledger,
            SOURCE_SNAPSHOT_ID: str(source.snapshot_id),
            PUBLISHED_BY: self._owner,
        }

    def _noted(self, table: Table) -> int | None:
        """The snapshot up to which the branch was published; None if it was not, or the target was rolled back since.
        Where the target's snapshots have expired, it counts as not rolled back: rows are rather missing than there
        twice.
        """
        text = table.metadata.properties.get(published_property(self._owner), "")
        if not text.isdecimal():
            return None
        line = line_of(table, self._target)
        shown = any(s.place.id == int(text) or s.summary.get(PUBLISHED_BY) == self._owner for s in line.snapshots)
        return int(text) if shown or line.below() is not None else None


def _head(table: Table, branch: str) -> int | None:
    ref = table.metadata.refs.get(branch)
    return ref.snapshot_id if ref is not None else None


def _anew(file: DataFile) -> DataFile:
    """The file as a new one: in format version 3 its rows get new ids."""
    added = copy.deepcopy(file)
    if len(added._data) > FIRST_ROW_ID:
        added._data[FIRST_ROW_ID] = None
    return added
