"""One table in one commit by rule C6: an attempt on exactly the loaded metadata, and the check whether the attempt
landed.

pyiceberg's own commit path is not used, because its retries rebase without reading the ledger again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException, NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from calving.catalogs.foreign import refusal
from calving.catalogs.logins import denial
from calving.errors import CommitRefusedError, CommitUncertainError, TableTroubleError
from calving.iceberg.attempts import Stopwatch
from calving.iceberg.expiry import Expired, expired, remove_files
from calving.iceberg.history import (
    LoadedTable,
    log_new_branch,
    mind_rollback,
    place_added,
)
from calving.iceberg.landing import add_unpartitioned, unpartitioned
from calving.iceberg.layers import Prepared, layered
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.locations import OWN_LOCATIONS, FileRules, refuse_other_order, refuse_other_settings
from calving.iceberg.marks import mark_of, note_replacement
from calving.iceberg.mending import corrected
from calving.iceberg.resolution import RowChangeResolver, RowChanges
from calving.iceberg.snapshot import SinkSnapshot
from calving.iceberg.summary import mutation_summary
from calving.model.backfills import BEGIN_ANOTHER, is_backfill
from calving.model.events import Envelope, TableId
from calving.model.forms import OLDEST, StoredForm
from calving.model.marks import TableMark
from calving.model.mutation_counts import MutationCounts
from calving.model.tables import OnRollback
from calving.protocol.commit import Admitted
from calving.protocol.forms import FORM, mark
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.ledger_updates import committed
from calving.protocol.replacement import NO_LOG, LogExtent
from calving.retries import Backoff, tries
from calving.storage_errors import described

log = logging.getLogger(__name__)

MAX_TRIES, LOAD_TRIES, _BACKOFF = 20, 8, Backoff(0.04, 2.0)


class IcebergTarget:
    """One branch of one table, for ``CommitLoop``."""

    def __init__(
        self,
        catalog: Catalog,
        table: TableId,
        branch: str,
        key: LedgerKey,
        summary: Mapping[str, str],
        expected_uuids: frozenset[str] = frozenset(),
        mark: TableMark | None = None,
        sleep: Callable[[float], None] = time.sleep,
        watch: Stopwatch | None = None,
        resolver: RowChangeResolver | None = None,
        *,
        equality: bool = False,
        doubtful: frozenset[str] = frozenset(),
        files: FileRules = OWN_LOCATIONS,
        entries: Sequence[Envelope] = (),
        form: StoredForm = OLDEST,
        on_rollback: OnRollback = "continue",
        extent: LogExtent = NO_LOG,
    ) -> None:
        """``resolver``: deletes of a mutation table become positions; ``equality``: they stay equality deletes.
        ``doubtful``: the paths of files whose bounds are checked before they are committed. ``files``: where files may
        be. ``entries``: they name the files. ``form``: that of the commit. ``extent``: what was read of the log.
        """
        self._files, self._entries, self._form, self._on_rollback = files, entries, form, on_rollback
        self._catalog, self._table, self._branch, self._key = catalog, table, branch, key
        self._extra, self._expected_uuids, self._sleep = summary, expected_uuids, sleep
        self._resolver, self._equality, self._doubtful, self._extent = resolver, equality, doubtful, extent
        self._snapshots: tuple[SinkSnapshot, ...] = ()
        self.counts: MutationCounts | None = None
        """Row mutations of the last attempt."""
        self.io: FileIO | None = None
        """The FileIO of the loaded table."""
        self.folder: str | None = None
        """A folder for further files of the loaded table."""
        self.mark = mark
        """The table's mark when it was last loaded."""
        self._watch = watch or Stopwatch()
        self.head: Mapping[str, str] = {}
        """The summary of the branch's head after the last attempt that the catalog accepted."""
        self._required: tuple[object, ...] = ()
        self._tried: list[int] = []
        """The snapshot ids of all attempts. The snapshot of an earlier attempt may become visible only after a later
        attempt.
        """
        self.unused: dict[int, frozenset[str]] = {}
        """By an attempt's snapshot id, the files of a mutation table that may be deleted, because the snapshot does not
        need them.
        """

    def load(self, *, creates: bool = True) -> LoadedTable:
        """The table. ``creates``: whether a missing branch is created."""
        for _ in tries(LOAD_TRIES + 1, self.pause):  # a replica of the catalog may be stale for a moment
            table = self._load()
            if not mark_of(table, self._key).is_older_than(self.mark):
                break
        else:
            try:
                note_replacement(table, self._key, self.mark, self._extent)
            except CommitFailedException as error:
                raise CommitRefusedError(f"table {'.'.join(self._table)} was replaced: {error}") from error
        if self.mark is not None and self.mark.uuid != str(table.metadata.table_uuid):
            log.warning(
                "table %s is not the table that was committed before: it was dropped and recreated, or a restored"
                " catalog did not have it; records that were committed to the former table are not read again",
                ".".join(self._table),
            )
        self._see(table)
        self.folder = self._files.folder(table.metadata)
        why = refusal(table.metadata, rewrites=self._resolver is not None or self._equality, branch=self._branch)
        if why is not None:
            raise TableTroubleError(f"table {'.'.join(self._table)} takes no rows: {why}")
        self.io = table.io
        uuids = self._expected_uuids - {str(table.metadata.table_uuid)}
        if uuids:
            raise TableTroubleError(self._of_another_table(table, uuids))
        if creates and self._branch != "main" and self._branch not in table.metadata.refs:
            table = self._create_branch(table)
        if self._equality and unpartitioned(table.specs().values()) is None:
            add_unpartitioned(self._catalog, table)
            table = self._load()
        return LoadedTable(table, self._branch)

    def _of_another_table(self, table: Table, uuids: Collection[str]) -> str:
        """A sentence on files of a former table, and on what to do."""
        name, uuid, former = ".".join(self._table), table.metadata.table_uuid, ", ".join(sorted(uuids))
        if is_backfill(self._key.group):
            return f"table {name} has UUID {uuid}, but files were written for {former}: {BEGIN_ANOTHER}"
        return (
            f"table {name} has UUID {uuid}, but files were written for {former}: it was dropped and recreated, or"
            " renamed and created again. To have their records, stop all workers and run `calving recover FILE`; to"
            f" discard them, run `calving release FILE --table {name} --record OUT`"
        )

    def attempt(self, state: LoadedTable, admitted: Admitted) -> int:
        table = state.table
        changes_rows = self._resolver is not None or self._equality
        refuse_other_settings(self._table, self._key.group, admitted.delete_files, changes_rows=changes_rows)
        order = self._resolver.order_ids(table) if self._resolver is not None and admitted.delete_files else []
        refuse_other_order(self._table, self._key.group, admitted.delete_files, order)
        self._files.check(table, admitted, self._entries)
        before = replace(admitted.ledger, gone=admitted.gone)
        mind_rollback(self._table, self._key, before, state.properties, self._on_rollback)
        prepared = self._prepared(state, admitted)
        # What `restore` needs stays until somebody has answered: also the snapshot from which the removed ones begin.
        # The commits of a backfill expire nothing: its branch may not be published yet.
        stays = bool(before.unanswered) or is_backfill(self._key.group)
        gone = Expired() if stays else expired(table.metadata, self._branch)
        noted = committed(self._key, state.line, state.properties, admitted.ledger, place_added(prepared.updates))
        noted |= mark(state.properties, self._key.of_table(FORM), self._form)
        changes = (SetPropertiesUpdate(updates=noted), *gone.updates)
        if self._key.outdated(state.properties, admitted.progress):
            changes = (*changes, RemovePropertiesUpdate(removals=[self._key.holding]))
        made = self.commit(state, prepared, changes)
        remove_files(table.io, gone)
        return made

    def commit(self, state: LoadedTable, prepared: Prepared, changes: tuple[TableUpdate, ...] = ()) -> int:
        """Commit once, on exactly ``state``. Returns the id of the last snapshot.

        :raises CommitRefusedError, CommitUncertainError: call ``landed`` to find out whether the commit made a
            snapshot.
        :raises TableTroubleError: the catalog denies access, or refuses what the commit asks for.
        """
        table = state.table
        self._snapshots = prepared.snapshots
        self._tried.append(prepared.snapshots[-1].snapshot_id)
        self.unused[self._tried[-1]] = prepared.unused
        self._required = _guarded(state)
        guards = (*prepared.requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
        try:
            with self._watch.step("commit"):
                # the catalog's commit, then the clean-up of old metadata files
                table._do_commit((*prepared.updates, *changes), guards)
        except CommitFailedException as error:
            raise CommitRefusedError(f"table {'.'.join(self._table)}: {error}") from error
        except BadRequestError as error:
            if self.landed(self.load()) is None:
                self.discard()
                raise TableTroubleError(
                    f"table {'.'.join(self._table)}: the catalog refuses the commit as malformed ({error}): correct"
                    " what it names, or ask the catalog's operators; the files stay buffered"
                ) from error
            raise CommitUncertainError(f"table {'.'.join(self._table)}: {error}") from error
        except Exception as error:  # a catalog or its transport may raise anything: the table itself shows the result
            # After a denial do not try again at once. If the commit has landed nevertheless, the next cycle finds it.
            self._raise_denial("was not committed", error)
            raise CommitUncertainError(f"table {'.'.join(self._table)}: {described(error)}") from error
        self._see(table)
        self.head = next(LoadedTable(table, self._branch).ancestry, {})
        return self._tried[-1]

    def _prepared(self, state: LoadedTable, admitted: Admitted) -> Prepared:
        """The commit of the admitted files; for a mutation table, resolved against the head of the branch."""
        table, summary = state.table, {**self._extra, **self._key.summary(admitted.ledger)}
        admitted = corrected(table, admitted, self._doubtful) if self._doubtful else admitted
        if self._equality and admitted.steps:
            with self._watch.step("write"):
                made = layered(table, summary, self._branch, admitted.steps)
                return replace(made, unused=self._deletable(table, admitted, made.unused, ()))
        unused: frozenset[str] = frozenset()
        if self._resolver is not None and admitted.steps:
            snapshot, unused = self._resolved(self._resolver, table, summary, admitted)
        else:
            snapshot = new_snapshot(table, summary, self._branch)
            snapshot.add((*admitted.data_files, *admitted.delete_files))
        with self._watch.step("write"):
            return Prepared((snapshot,), *snapshot.prepare(), unused)

    def _resolved(
        self, resolver: RowChangeResolver, table: Table, summary: Mapping[str, str], admitted: Admitted
    ) -> tuple[SinkSnapshot, frozenset[str]]:
        """The snapshot, and the admitted files that it does not name."""
        changes = resolver.resolve(table, self._branch, admitted.steps, self._files.write_properties)
        self.counts = changes.counts
        for name, seconds in changes.seconds.items():
            self._watch.add(name, seconds)
        snapshot = changing_snapshot(table, summary, self._branch, changes)
        unused = changes.unused | {file.file_path for file in admitted.delete_files}
        return snapshot, self._deletable(table, admitted, unused, changes.live)

    def _deletable(
        self, table: Table, admitted: Admitted, unused: Collection[str], live: Collection[str]
    ) -> frozenset[str]:
        return self._files.deletable(table, admitted.steps, unused, live)

    def supersede(self, noted: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Set table properties, and move the head of the branch, so that attempts on an earlier state are refused.
        ``noted`` returns them for those that are there, and may refuse.
        """
        for is_last in tries(MAX_TRIES, self.pause):
            table = self.load().table
            updates, requirements = new_snapshot(table, self._extra, self._branch).prepare()
            changes = (*updates, SetPropertiesUpdate(updates=dict(noted(table.properties))))
            try:
                table._do_commit(changes, (*requirements, AssertTableUUID(uuid=table.metadata.table_uuid)))
                return
            except CommitFailedException as error:
                if is_last:
                    raise CommitRefusedError(f"table {'.'.join(self._table)}: {error}") from error

    def landed(self, state: LoadedTable) -> int | None:
        there = {s.snapshot_id for s in state.table.metadata.snapshots}
        return next((tried for tried in reversed(self._tried) if tried in there), None)

    def moved(self, state: LoadedTable) -> bool:
        return _guarded(state) != self._required

    def discard(self) -> None:
        for snapshot in self._snapshots:
            snapshot.discard()

    def pause(self, tries: int) -> None:
        self._sleep(_BACKOFF.pause(tries, random.random() - 0.5))  # noqa: S311 - jitter

    def _see(self, table: Table) -> None:
        self.mark = mark_of(table, self._key)

    def _load(self) -> Table:
        for is_last in tries(LOAD_TRIES, self.pause):
            try:
                with self._watch.step("load"):
                    return self._catalog.load_table(self._table)
            except NoSuchTableError as error:
                raise TableTroubleError(f"table {'.'.join(self._table)} does not exist") from error
            except Exception as error:  # the catalog may be unreachable for a moment
                self._raise_denial("cannot be loaded", error)
                if is_last:
                    text = f"table {'.'.join(self._table)} cannot be loaded: {described(error)}"
                    raise TableTroubleError(text) from error
        raise AssertionError("unreachable")

    def _raise_denial(self, what: str, error: Exception) -> None:
        """:raises TableTroubleError: the catalog denies access, so another try would fail, too."""
        denied = denial(error, self._catalog.name, self._catalog.properties)
        if denied is not None:
            raise TableTroubleError(f"table {'.'.join(self._table)} {what}: {denied}") from error

    def _create_branch(self, table: Table) -> Table:
        """Create the branch from main, as Java does. pyiceberg would create an empty branch."""
        log_new_branch(self._table, self._key, table.metadata.properties)
        for _ in tries(LOAD_TRIES, self.pause):
            try:
                if table.metadata.current_snapshot_id is None:
                    updates, requirements = new_snapshot(table, {}, "main").prepare()
                    table._do_commit(updates, (*requirements, AssertTableUUID(uuid=table.metadata.table_uuid)))
                if (head := table.metadata.current_snapshot_id) is not None:
                    table.manage_snapshots().create_branch(head, self._branch).commit()
            except CommitFailedException:
                log.info("table %s: someone else changed it while branch %s was made", self._table, self._branch)
            table = self._load()
            if self._branch in table.metadata.refs:
                return table
        raise TableTroubleError(
            f"table {'.'.join(self._table)}: branch {self._branch} could not be created, because others kept changing"
            " the table; the sink tries again, or create the branch yourself"
        )


def changing_snapshot(
    table: Table, summary: Mapping[str, str], branch: str, changes: RowChanges, dropped: Collection[str] = ()
) -> SinkSnapshot:
    """The snapshot that changes rows. ``dropped``: as of ``new_snapshot``."""
    about = {**summary, **mutation_summary(changes.counts, changes.seconds)}
    snapshot = new_snapshot(table, about, branch, dropped)
    snapshot.add(changes.data_files)
    snapshot.add_deletes(changes.deletes, changes.written)
    snapshot.remove(changes.removed, changes.manifests, changes.delete_entries)
    return snapshot


def _guarded(state: LoadedTable) -> tuple[object, ...]:
    """The parts of the metadata that an attempt requires to be unchanged."""
    metadata = state.table.metadata
    head = metadata.refs.get(state.branch)
    return metadata.table_uuid, head.snapshot_id if head is not None else None
