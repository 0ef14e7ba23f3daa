"""Maintains one branch of a table beside the sinks that write to it: changes files, but no row (E3).

Like a sink's commit, each commit is attempted on exactly one head. A refused attempt is prepared again on the newer
head. Each commit copies the ledger of its head. The process may die at any time: an attempt lands whole or not at all,
and the next run loads the table again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, Protocol, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from calving.catalogs.foreign import refusal
from calving.errors import CommitRefusedError, CommitUncertainError
from calving.iceberg.catalog import find_table
from calving.iceberg.conversion import DeleteConversion, DeleteReplacement
from calving.iceberg.delete_merge import DeleteMerge
from calving.iceberg.history import LoadedTable, line_of, place_added
from calving.iceberg.layers import Prepared
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.locations import delete_orphans
from calving.iceberg.mending import Corrections, Mending
from calving.iceberg.snapshot import SinkSnapshot
from calving.iceberg.target import IcebergTarget
from calving.model.events import TableId
from calving.model.tables import SnapshotPlace
from calving.mutations.cache import KeyCache
from calving.mutations.keys import KEYS_AT_ONCE
from calving.mutations.lookup import Tasks
from calving.protocol.forms import check_table_forms
from calving.protocol.ledger import errors_naming
from calving.protocol.ledger_key import (
    LEDGER_SNAPSHOT,
    LOG_ID,
    MISSING_OFFSETS,
    OFFSETS,
    SETTLED_OFFSETS,
    SOURCE_OFFSETS,
    VALID_THROUGH,
    LedgerKey,
)
from calving.protocol.rollback import RolledBack

MAX_TRIES = 50
_CARRIED = {VALID_THROUGH, LOG_ID, SOURCE_OFFSETS, SETTLED_OFFSETS, MISSING_OFFSETS}


Turn = Callable[[], AbstractContextManager[bool]]
"""A context in which one commit is made. It tells whether other commits may have come before it began."""


def without_turns() -> AbstractContextManager[bool]:
    """The turn of a process that makes no other commits."""
    return nullcontext(False)


class Change(Protocol):
    """What one commit changes. ``added``: the paths of the files that it adds."""

    @property
    def added(self) -> frozenset[str]: ...

    def put_into(self, snapshot: SinkSnapshot) -> None: ...


C = TypeVar("C", bound=Change)
C_co = TypeVar("C_co", bound=Change, covariant=True)


class Task(Protocol[C_co]):
    """Makes the change of one commit, again for each head on which the commit is attempted."""

    def of(self, table: Table, branch: str) -> C_co | None:
        """The change of this head; None if there is nothing to change."""

    def unused(self, used: Collection[str]) -> list[str]:
        """The paths of the files that were written and are not among the ``used`` ones."""


class Maintenance:
    """The maintenance of one branch of one table."""

    def __init__(
        self,
        catalog: Catalog,
        table: TableId,
        key: LedgerKey,
        about: Mapping[str, str],
        cache: KeyCache | None = None,
        sleep: Callable[[float], None] = time.sleep,
        at_once: int = KEYS_AT_ONCE,
        tasks: Callable[[], Tasks | None] = lambda: None,
        turn: Turn = without_turns,
    ) -> None:
        """``key``: names the branch. ``about``: entries for the summaries of the snapshots. ``tasks``: the engine on
        which very large files are searched. ``turn``: of each attempt.
        """
        self._catalog, self._table, self._key, self._about = catalog, table, key, about
        self._cache, self._sleep, self._at_once, self._tasks = cache, sleep, at_once, tasks
        self._turn = turn

    def convert(self) -> Iterator[DeleteReplacement]:
        """Turn the equality deletes that the table has now into positions; yields each commit. Those that come
        meanwhile stay: a sink that goes on to write them must not keep the other tasks waiting for ever.

        :raises TableTroubleError: the table cannot be loaded or read.
        :raises NewerVersionError: a later version has written the table.
        :raises CommitRefusedError, CommitUncertainError: not done within ``MAX_TRIES``; nothing is lost, run it again.
        """
        if (newest := self._newest()) is None:
            return

        def conversion() -> DeleteConversion:
            return DeleteConversion(self._cache, self._at_once, self._tasks, newest)

        while (done := self.commit(_UnlessRolledBack(conversion(), self._key))) is not None:
            yield done

    def merge(self) -> Iterator[DeleteReplacement]:
        """Merge the position deletes that the table has now into few files; yields each commit. Errors are those of
        ``convert``.
        """
        if (newest := self._newest()) is None:
            return
        while (done := self.commit(_UnlessRolledBack(DeleteMerge(newest, self._at_once), self._key))) is not None:
            yield done

    def _newest(self) -> int | None:
        """The sequence number of the branch's head; None if there is none."""
        table = find_table(self._catalog, self._table)
        head = table.metadata.snapshot_by_name(self._key.branch) if table is not None else None
        return (head.sequence_number or 0) if head is not None else None

    def mend(self, mending: Mending) -> Corrections | None:
        """Correct wrong bounds in one commit; None if there are none.

        :raises TableTroubleError: the table cannot be loaded or read.
        :raises NewerVersionError: a later version has written the table.
        :raises CommitRefusedError, CommitUncertainError: not done within ``MAX_TRIES``; run it again.
        """
        return self.commit(mending) if self._has_branch() else None

    def _has_branch(self) -> bool:
        table = find_table(self._catalog, self._table)
        return table is not None and self._key.branch in table.metadata.refs

    def commit(self, task: Task[C]) -> C | None:
        """Commit what the task makes of the head, once; None if it makes nothing of it.

        :raises TableTroubleError: the table cannot be loaded or read.
        :raises NewerVersionError: a later version has written the table.
        :raises CommitRefusedError, CommitUncertainError: not done within ``MAX_TRIES``; nothing is lost, run it again.
        """
        attempts = _Attempts(self._catalog, self._table, self._key, task, self._sleep)
        try:
            for number in range(1, MAX_TRIES + 1):
                change = task.of(attempts.state.table, self._key.branch)
                if change is None:
                    break
                with self._turn() as others_came:
                    if others_came:
                        # What took long is done: only what they have changed is looked at again.
                        if (landed := attempts.look()) is not None:
                            return landed
                        change = task.of(attempts.state.table, self._key.branch)
                    if change is None:
                        break
                    landed = attempts.make(change, self._prepared(attempts.state, change), is_last=number == MAX_TRIES)
                if landed is not None:
                    return landed
        except Exception:  # a storage may raise anything
            attempts.end()
            raise
        attempts.end()
        return None

    def _prepared(self, state: LoadedTable, change: Change) -> Prepared:
        head = next(iter(state.ancestry), {})
        snapshot = new_snapshot(state.table, {**carried(head), **self._about}, self._key.branch)
        change.put_into(snapshot)
        try:
            return Prepared((snapshot,), *snapshot.prepare())
        except Exception:  # a storage may raise anything
            snapshot.discard()
            raise


class _UnlessRolledBack(Generic[C]):
    """A task that changes nothing of a table whose rollback nobody has answered (K14): a commit on the head of then
    would make ``restore`` impossible.
    """

    def __init__(self, task: Task[C], key: LedgerKey) -> None:
        self._task, self._key = task, key

    def of(self, table: Table, branch: str) -> C | None:
        return None if rolled_back(table, self._key) is not None else self._task.of(table, branch)

    def unused(self, used: Collection[str]) -> list[str]:
        return self._task.unused(used)


class _Attempts(Generic[C]):
    """The attempts of one commit."""

    def __init__(
        self, catalog: Catalog, table: TableId, key: LedgerKey, task: Task[C], sleep: Callable[[float], None]
    ) -> None:
        self._name, self._branch, self._task = ".".join(table), key.branch, task
        self.target = IcebergTarget(catalog, table, key.branch, key, {}, sleep=sleep)
        self._made: dict[int, C] = {}
        self._may_land = False
        """Whether an attempt that has not landed yet may land later."""
        self.state = self._loaded()

    def look(self) -> C | None:
        """Look at the table as it is now; returns the change that has landed."""
        self.state = self._loaded()
        landed = self.target.landed(self.state)
        return None if landed is None else self._landed(landed)

    def make(self, change: C, prepared: Prepared, *, is_last: bool) -> C | None:
        """One attempt; returns the change that has landed."""
        target, state = self.target, self.state
        self._made[prepared.snapshots[-1].snapshot_id] = change
        might_land, self._may_land = self._may_land, True
        try:
            landed: int | None = target.commit(state, prepared, self._noted(state, prepared))
        except (CommitRefusedError, CommitUncertainError) as error:
            if not is_last:  # before the load: the next attempt must not build on a table from before the pause
                target.pause(1)
            self.state = self._loaded()
            landed = target.landed(self.state)
            self._may_land = might_land or not isinstance(error, CommitRefusedError) or not target.moved(self.state)
            if landed is None and not self._may_land:
                target.discard()
            if landed is None and is_last:
                raise
        return None if landed is None else self._landed(landed)

    def _landed(self, snapshot: int) -> C:
        # No other attempt can land any more, because all others require an earlier head.
        delete_orphans(self.state.table.io, self._task.unused(self._made[snapshot].added))
        return self._made[snapshot]

    def end(self) -> None:
        """Delete what was written, if no attempt has landed, and none may land later."""
        if not self._may_land:
            delete_orphans(self.state.table.io, self._task.unused(()))

    def _loaded(self) -> LoadedTable:
        state = self.target.load()
        check_forms(self._name, state.properties)
        return state

    def _noted(self, state: LoadedTable, prepared: Prepared) -> tuple[SetPropertiesUpdate, ...]:
        """The ledgers of the head describe the new snapshot, too."""
        refs = state.table.metadata.refs
        head = refs[self._branch].snapshot_id
        properties = carried_on(state.properties, refs, self._branch, head, place_added(prepared.updates))
        return (SetPropertiesUpdate(updates=properties),) if properties else ()


def check_forms(name: str, properties: Mapping[str, str]) -> None:
    """Refuse a table with a ledger, of any sink, that this version may not copy.

    :raises ConfigError: a form is not what calving writes.
    :raises NewerVersionError: a later version has written it in a form that this one does not know.
    """
    with errors_naming(name):
        check_table_forms(properties)


def rolled_back(table: Table, key: LedgerKey) -> str | None:
    """Why a table that was rolled back is left alone; None if it was not, or somebody has answered (K14)."""
    ledger = key.read(line_of(table, key.branch), table.metadata.properties)
    if RolledBack.of(ledger.unanswered, ledger.doubt) is None:
        return None
    return (
        f"it was rolled back, and nobody has answered: `calving rollback FILE --table {'.'.join(table.name())} --as-is"
        " --then restore`, or `reread`, or `forget`"
    )


def carried(summary: Mapping[str, str]) -> dict[str, str]:
    """The summary entries that stay true in a next snapshot that changes no row: every sink's ledger, and the
    valid-through time. The entries that name the commit are left out; those of Spark's queries every snapshot repeats.
    """
    return {name: value for name, value in summary.items() if name in _CARRIED or name.startswith(OFFSETS)}


def carried_on(
    properties: Mapping[str, str], branches: Collection[str], branch: str, head: int | None, place: SnapshotPlace
) -> dict[str, str]:
    """The table properties to set in a commit that changes no row on the ``head`` of a branch, and adds the snapshot
    ``place``: ledgers of every sink that describe the head describe that snapshot, too (E3).
    """
    return {
        name: str(place)
        for name, value in properties.items()
        if name.startswith(f"{LEDGER_SNAPSHOT}.")
        and (known := SnapshotPlace.parse(value)) is not None
        and known.id == head
        and _branch_of(name, branches) == branch
    }


def _branch_of(name: str, branches: Collection[str]) -> str:
    _, at, branch = name.rpartition("@")
    return branch if at and branch in branches else "main"


def commit_refusal(table: Table, key: LedgerKey) -> str | None:
    """Why nothing of a table is rewritten; None if its files or manifests may be (K14, K21)."""
    if (why := refusal(table.metadata, rewrites=True)) is not None:
        return why
    return rolled_back(table, key)
