"""Expires the snapshots of one branch of a table, and deletes the files that only they named (K15, K17).

There are two clocks. Snapshots leave the metadata by count or age. The commit that removes them notes the files that no
other snapshot names. These are deleted at least ``grace`` later, after another look at what names them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from calving.errors import CommitRefusedError, CommitUncertainError, UnavailableError
from calving.iceberg.catalog import find_table, is_refusal
from calving.iceberg.expiry import due, may_delete
from calving.iceberg.locations import OWN_LOCATIONS, FileRules, delete_orphans
from calving.iceberg.maintenance import MAX_TRIES, Turn, check_forms, rolled_back, without_turns
from calving.maintenance.expired_files import EXPIRED_FILES, ExpiredFiles, lists, made_lists
from calving.maintenance.named import UnnamedFiles, files_of
from calving.maintenance.orphans import folders
from calving.model.events import TableId
from calving.model.files import is_below_any, one_name
from calving.protocol.ledger_key import LedgerKey
from calving.retries import Backoff, tries
from calving.storage_errors import described

_BACKOFF = Backoff(0.04, 2.0)
_TOGETHER = 8
"""How many files are deleted at the same time: a storage may answer slowly."""


@dataclass(frozen=True, slots=True)
class Expiration:
    """Snapshots to expire, and the files that only they name."""

    uuid: str
    snapshots: tuple[Snapshot, ...]
    unnamed: UnnamedFiles

    def left(self, metadata: TableMetadata) -> list[int]:
        """The ids of those of the snapshots that are still there."""
        there = {snapshot.snapshot_id for snapshot in metadata.snapshots}
        return [snapshot.snapshot_id for snapshot in self.snapshots if snapshot.snapshot_id in there]

    def is_of(self, metadata: TableMetadata, due_now: Iterable[Snapshot]) -> bool:
        """Whether it can be committed on a later state of the table, where these snapshots are ``due_now``."""
        left = self.left(metadata)
        same = str(metadata.table_uuid) == self.uuid
        return same and bool(left) and {*left} <= {snapshot.snapshot_id for snapshot in due_now}


@dataclass(frozen=True, slots=True)
class ExpiredSnapshots:
    """What one commit has expired. ``files``: the sizes of the files to delete, by path."""

    snapshots: tuple[Snapshot, ...]
    kept: int
    files: dict[str, int]


@dataclass(frozen=True, slots=True)
class FileDeletion:
    """What became of files that expired snapshots named, and whose ``grace`` is over. Sizes in bytes by path.

    ``held``: those that the control log names; they are looked at again. ``outside``: those that are not in the table's
    folders, as the search for orphan files knows them; a table within this one has its own. ``failed``: those that the
    storage did not delete, and why; they are tried again. ``waiting``: how many files wait for their grace, and
    ``next_ms`` when that ends for the first.
    """

    deleted: dict[str, int]
    held: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    waiting: int = 0
    next_ms: int | None = None


class Expirer:
    """The expiry of one branch of one table."""

    def __init__(
        self,
        catalog: Catalog,
        table: TableId,
        key: LedgerKey,
        grace_ms: int,
        rules: FileRules = OWN_LOCATIONS,
        sleep: Callable[[float], None] = time.sleep,
        turn: Turn = without_turns,
    ) -> None:
        """``key``: of the sink that writes the table; it names the branch. ``turn``: of each attempt."""
        self._catalog, self._table, self._key, self._turn = catalog, table, key, turn
        self._grace_ms, self._rules, self._sleep = grace_ms, rules, sleep
        self._property = key.of_table(EXPIRED_FILES)

    def load(self) -> Table | None:
        """The table; None if it or its branch does not exist.

        :raises UnavailableError: the catalog gives no clear answer.
        :raises NewerVersionError: a later version has written the table.
        """
        table = find_table(self._catalog, self._table)
        if table is None or self._key.branch not in table.metadata.refs:
            return None
        check_forms(".".join(self._table), table.metadata.properties)
        return table

    def refusal(self, table: Table) -> str | None:
        """Why nothing of a table expires; None if snapshots and files may (K14, K17)."""
        if not may_delete(table.metadata):
            return "its property gc.enabled is false"
        return rolled_back(table, self._key)

    def plan(self, table: Table, now_ms: int) -> Expiration | None:
        """The snapshots that are due, and the files that only they name; None if none are due.

        :raises FileNotFoundError: a snapshot has expired meanwhile: load the table again.
        :raises TableTroubleError: a property is no number.
        """
        metadata = table.metadata
        gone = due(metadata, self._key.branch, now_ms)
        if not gone:
            return None
        unnamed = UnnamedFiles(table.io, files_of(table.io, metadata, gone), [each.snapshot_id for each in gone])
        unnamed.strike(metadata)
        return Expiration(str(metadata.table_uuid), gone, unnamed)

    def expire(self, now_ms: int) -> ExpiredSnapshots | None:
        """Expire the snapshots that are due, in one commit; None if none are.

        :raises UnavailableError: the catalog gives no clear answer.
        :raises CommitRefusedError, CommitUncertainError: others committed faster each time, or there was no answer;
            nothing is lost, run it again.
        """
        plan: Expiration | None = None
        for is_last in tries(MAX_TRIES, lambda number: self._sleep(_BACKOFF.pause(number))):
            try:
                if (planned := self._planned(plan, now_ms)) is None:
                    return None
                table, plan = planned
                with self._turn() as others_came:
                    if others_came:
                        if (planned := self._planned(plan, now_ms)) is None:
                            return None
                        table, plan = planned
                    expired = self._commit(table, plan, now_ms, is_last=is_last)
            except FileNotFoundError as error:
                plan = None
                if is_last:
                    raise UnavailableError(f"table {'.'.join(self._table)}: {described(error)}") from error
                continue
            if expired is not None:
                return expired
        return None

    def _planned(self, plan: Expiration | None, now_ms: int) -> tuple[Table, Expiration] | None:
        """The table as it is now, and the plan for it, by the former ``plan`` if that still holds; None if nothing is
        due.

        :raises FileNotFoundError: a snapshot has expired meanwhile.
        """
        if (table := self.load()) is None or self.refusal(table) is not None:
            return None
        metadata = table.metadata
        if plan is None or not plan.is_of(metadata, due(metadata, self._key.branch, now_ms)):
            plan = self.plan(table, now_ms)
        if plan is None:
            return None
        plan.unnamed.strike(metadata)
        return table, plan

    def _commit(self, table: Table, plan: Expiration, now_ms: int, *, is_last: bool) -> ExpiredSnapshots | None:
        """One attempt; None if it did not land."""
        metadata, left = table.metadata, plan.left(table.metadata)
        before = metadata.properties.get(self._property)
        files = dict(plan.unnamed.left)
        made = made_lists(table, lambda: uuid4().hex, before, now_ms, files)
        updates: tuple[TableUpdate, ...] = (RemoveSnapshotsUpdate(snapshot_ids=left),)
        for each in made:
            each.write(table)
        if made:
            updates = (*updates, SetPropertiesUpdate(updates={self._property: made[-1].location}))
        try:
            table._do_commit(updates, _unchanged(metadata))
        except CommitFailedException as error:
            delete_orphans(table.io, [each.location for each in made])
            if is_last:
                raise CommitRefusedError(f"table {'.'.join(self._table)}: {error}") from error
            return None
        except Exception as error:  # a catalog or its transport may raise anything: the table itself shows the result
            # An attempt that has not landed may land later, with its list: it has the files of the next one, too.
            if not self._has_landed(plan, made):
                if is_last or is_refusal(error, self._catalog):
                    raise CommitUncertainError(f"table {'.'.join(self._table)}: {described(error)}") from error
                return None
        gone = tuple(each for each in plan.snapshots if each.snapshot_id in left)
        return ExpiredSnapshots(gone, len(metadata.snapshots) - len(gone), files)

    def _has_landed(self, plan: Expiration, made: Sequence[ExpiredFiles]) -> bool:
        if (now := self.load()) is None or plan.left(now.metadata):
            return False
        return not made or now.metadata.properties.get(self._property) == made[-1].location

    def delete(
        self, now_ms: int, held_by_log: Callable[[TableMetadata], Collection[str]], *, dry_run: bool = False
    ) -> FileDeletion | None:
        """Delete the files of expired snapshots whose grace is over; None if there are no such files.

        ``held_by_log``: the files, as ``one_name``, that the control logs of all sinks name that write the table. It is
        called once before the table is loaded: an entry that is committed in between is seen in one of them.

        :raises UnavailableError: the catalog gives no clear answer.
        :raises TableTroubleError: a list of files cannot be read.
        """
        if (table := self.load()) is None:
            return None
        over, later = self._due_lists(table, now_ms)
        if not over:
            return self._waiting({}, later) if later else None
        held = held_by_log(table.metadata)
        if (table := self.load()) is None or self.refusal(table) is not None:
            return None
        over, later = self._due_lists(table, now_ms)
        return self._deletion(table, over, later, held, dry_run=dry_run)

    def _deletion(
        self,
        table: Table,
        over: Sequence[ExpiredFiles],
        later: Sequence[ExpiredFiles],
        held: Collection[str],
        *,
        dry_run: bool,
    ) -> FileDeletion:
        unnamed = UnnamedFiles(table.io, {path: size for each in over for path, size in each.files.items()})
        unnamed.strike(table.metadata)
        unnamed.strike_files([table.metadata_location, *(each.metadata_file for each in table.metadata.metadata_log)])
        places = folders(table.metadata, self._rules)
        kept = {path for path in unnamed.left if one_name(path) in held}
        outside = {path for path in unnamed.left if not is_below_any(path, places)} - kept
        left = kept | outside
        files = {path: size for path, size in unnamed.left.items() if path not in left}
        failed: dict[str, str] = {}
        if not dry_run:
            failed = _deleted(table.io, files)
            delete_orphans(table.io, [each.location for each in _done(over, kept | failed.keys())])
        deleted = {path: size for path, size in files.items() if path not in failed}
        done = self._waiting(deleted, later)
        return replace(
            done, held=tuple(sorted(kept)), outside=tuple(sorted(outside)), failed=tuple(sorted(failed.items()))
        )

    def _due_lists(self, table: Table, now_ms: int) -> tuple[list[ExpiredFiles], list[ExpiredFiles]]:
        """The lists whose grace is over, and the others; each the oldest first."""
        every = lists(table, self._property, self._rules)
        over = [each for each in every if each.expired_ms + self._grace_ms <= now_ms]
        return over, [each for each in every if each.expired_ms + self._grace_ms > now_ms]

    def _waiting(self, deleted: dict[str, int], later: Iterable[ExpiredFiles]) -> FileDeletion:
        next_ms = min((each.expired_ms + self._grace_ms for each in later), default=None)
        return FileDeletion(deleted, waiting=sum(len(each.files) for each in later), next_ms=next_ms)


def _unchanged(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """No branch or tag has moved: one of them may have come to need a snapshot."""
    heads = (AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in metadata.refs.items())
    return (*heads, AssertTableUUID(uuid=metadata.table_uuid))


def _deleted(io: FileIO, paths: Iterable[str]) -> dict[str, str]:
    """Delete files; returns why some were not deleted. A file that is not there counts as deleted."""
    with ThreadPoolExecutor(_TOGETHER) as pool:
        return {path: why for path, why in pool.map(partial(_try_to_delete, io), paths) if why}


def _try_to_delete(io: FileIO, path: str) -> tuple[str, str]:
    try:
        io.delete(path)
    except FileNotFoundError:
        return path, ""
    except Exception as error:  # a storage may raise anything
        return path, described(error)
    return path, ""


def _done(over: Iterable[ExpiredFiles], left: Set[str]) -> list[ExpiredFiles]:
    """The lists without files that are ``left``: the oldest ones, because each list leads to those before it."""
    return list(takewhile(lambda each: left.isdisjoint(each.files), over))
