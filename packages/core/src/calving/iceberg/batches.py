"""Commits the files of one batch of a Spark job to a table, once (S5, S9, S10).

As for a sink (C6): load the table, leave if it holds the batch, attempt once on exactly that state, and look whether
the attempt has landed. The process may die at any time: whoever repeats the batch finds in the table whether it is
there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from calving.errors import CommitRefusedError, CommitUncertainError, ConfigError, TableTroubleError
from calving.iceberg.expiry import Expired, expired, remove_files
from calving.iceberg.history import LoadedTable, place_added, summary_of
from calving.iceberg.layers import Prepared
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.locations import delete_orphans, has_spec
from calving.iceberg.maintenance import check_forms
from calving.iceberg.manifests import read_entries, read_manifest_list
from calving.iceberg.resolution import RowChangeResolver
from calving.iceberg.summary import engine
from calving.iceberg.target import MAX_TRIES, IcebergTarget, changing_snapshot
from calving.model.events import TableId
from calving.model.files import DataFile
from calving.model.tables import MAIN
from calving.model.text import counted, natural
from calving.mutations.candidates import id_columns
from calving.mutations.columns import ColumnReader, columns_of
from calving.mutations.keys import parts
from calving.protocol.batch_ledger import BatchEntry, noted, outdated
from calving.protocol.commit import Step
from calving.protocol.ledger_key import GONE_OFFSETS, LedgerKey
from calving.writing.key_runs import are_last

log = logging.getLogger(__name__)
REFUSALS = 300
"""How often a batch is tried, which takes ten minutes of pauses. Its query ends with it, and four writers that commit
each second may be faster twenty times in a row.
"""


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """The files of a batch. ``uuid``: of the table for which they were written. ``what`` names the batch in sentences.
    ``steps``: the files of each task, if they change rows.
    """

    uuid: str
    files: Sequence[DataFile]
    what: str
    others: Sequence[str] = field(default_factory=tuple)
    """The paths of files that describe them, and that no table names."""
    steps: tuple[Step, ...] = ()

    @property
    def key_files(self) -> list[DataFile]:
        """The files with the keys of the rows that are changed."""
        return [file for step in self.steps for file in step.delete_files]


class BatchCommitter:
    """Commits batches to one branch of one table."""

    def __init__(
        self,
        catalog: Catalog,
        table: TableId,
        branch: str = MAIN,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
        resolver: RowChangeResolver | None = None,
    ) -> None:
        """``resolver``: for batches that change rows. Without an order field of it, a key may come once in a batch."""
        self._catalog, self._table, self._branch, self._sleep, self._clock = catalog, table, branch, sleep, clock
        self._resolver = resolver

    def commit(self, batch: BatchFiles, entry: BatchEntry | None) -> int | None:
        """Commit the files; returns the snapshot's id, or None if the table holds the batch. ``entry``: None for a
        write that nobody repeats.

        :raises ConfigError: the table does not tell whether the commit would double rows; or a key comes twice.
        :raises TableTroubleError: the table cannot be loaded or written, or is another one.
        :raises CommitRefusedError: others committed faster each time, for ten minutes; repeat the batch.
        :raises CommitUncertainError: ``MAX_TRIES`` had no answer. It is unknown whether the batch landed; repeat it.
        """
        target = self._target(batch.what)
        state, unanswered = self._loaded(target, batch), 0
        for number in range(1, REFUSALS + 1):
            if entry is not None and entry.is_held(state.line, state.properties):
                self._drop_repeated(state.table, batch, entry)
                return None
            try:
                landed: int | None = self._attempt(target, state, batch, entry)
            except (CommitRefusedError, CommitUncertainError) as error:
                unanswered += isinstance(error, CommitUncertainError)
                is_last = number == REFUSALS or unanswered == MAX_TRIES
                if not is_last:  # before the load: the next try must not build on a table from before the pause
                    target.pause(number)
                state = self._loaded(target, batch)
                landed = target.landed(state)
                if landed is None and isinstance(error, CommitRefusedError) and target.moved(state):
                    target.discard()
                if landed is None and is_last:
                    raise
            if landed is not None:
                delete_orphans(state.table.io, (*target.unused.get(landed, ()), *batch.others))
                return landed
        raise AssertionError("unreachable")

    def check(self, entry: BatchEntry) -> None:
        """Check that a batch without rows may follow the last batch of the table. The table does not change.

        :raises ConfigError: the table does not tell whether the next commit would double rows.
        :raises TableTroubleError: the table cannot be loaded.
        """
        state = self._target(entry.name).load(creates=False)
        entry.is_held(state.line, state.properties)

    def _target(self, what: str) -> IcebergTarget:
        return IcebergTarget(
            catalog=self._catalog,
            table=self._table,
            branch=self._branch,
            key=LedgerKey("calving-spark", what, "", self._branch),
            summary={},
            sleep=self._sleep,
            resolver=self._resolver,
        )

    def _loaded(self, target: IcebergTarget, batch: BatchFiles) -> LoadedTable:
        state = target.load()
        name = ".".join(self._table)
        check_forms(name, state.properties)
        if str(state.table.metadata.table_uuid) != batch.uuid:
            raise TableTroubleError(
                f"table {name} was recreated since {batch.what} was planned: nothing was committed; start again"
            )
        specs = state.table.metadata.specs()
        if unknown := next((file for file in batch.files if not has_spec(file, specs)), None):
            raise TableTroubleError(
                f"table {name} no longer has partition spec {unknown.spec_id}, with which {batch.what} was written, or"
                " has it with other fields: nothing was committed; start again"
            )
        return state

    def _attempt(self, target: IcebergTarget, state: LoadedTable, batch: BatchFiles, entry: BatchEntry | None) -> int:
        properties = state.properties
        dropped = outdated(entry, properties) if entry is not None else []
        own = {entry.name: entry.text} if entry is not None else {}
        prepared = self._prepared(state.table, {**own, **engine()}, batch, dropped)
        changes: list[TableUpdate] = []
        if entry is not None:
            at_ms = round(self._clock() * 1000)
            changes.append(SetPropertiesUpdate(updates=noted(entry, place_added(prepared.updates), at_ms)))
        if dropped:
            changes.append(RemovePropertiesUpdate(removals=dropped))
        # What another sink's `restore` needs stays until somebody has answered.
        gone = Expired() if _is_unanswered(properties) else expired(state.table.metadata, self._branch)
        made = target.commit(state, prepared, (*changes, *gone.updates))
        remove_files(state.table.io, gone)
        return made

    def _prepared(
        self, table: Table, summary: Mapping[str, str], batch: BatchFiles, dropped: Collection[str]
    ) -> Prepared:
        """``dropped``: the entries of queries that the snapshot does not repeat."""
        if self._resolver is None:
            snapshot = new_snapshot(table, summary, self._branch, dropped)
            snapshot.add(batch.files)
            return Prepared((snapshot,), *snapshot.prepare())
        changes = self._resolver.resolve(table, self._branch, batch.steps)
        if (key := self._repeated(table, batch, changes.counts.keys)) is not None:
            delete_orphans(table.io, changes.written)
            raise repeated_key(".".join(table.name()), key, batch.what)
        snapshot = changing_snapshot(table, summary, self._branch, changes, dropped)
        unused = changes.unused | {file.file_path for file in batch.key_files}
        return Prepared((snapshot,), *snapshot.prepare(), unused)

    def _repeated(self, table: Table, batch: BatchFiles, keys: int) -> str | None:
        """A key that comes twice in a batch without an order field; None if there is none. ``keys``: the number of
        distinct keys that the search has found. A key that it has read in two parts counts twice.
        """
        if self._resolver is None or self._resolver.order_field is not None or not batch.key_files:
            return None
        if self._resolver.parts < 2 and keys == sum(file.record_count for file in batch.key_files):
            return None
        return twice(table, batch.key_files, self._resolver.at_once)

    def _drop_repeated(self, table: Table, batch: BatchFiles, entry: BatchEntry) -> None:
        """Delete the files of a batch that was repeated: those that the snapshot of the first time does not name.
        Without that snapshot they stay as orphan files.
        """
        place = entry.place(table.metadata.properties)
        snapshot = table.metadata.snapshot_by_id(place.id) if place is not None else None
        name = ".".join(self._table)
        _warn_of_others(name, snapshot, batch)
        if snapshot is None:
            log.info("table %s holds %s already; its repeated files stay as orphan files", name, batch.what)
            return
        named = {
            added.data_file.file_path
            for manifest in read_manifest_list(table.io, snapshot.manifest_list)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for added in read_entries(table.io, manifest)
        }
        unused = [file.file_path for file in batch.files if file.file_path not in named]
        delete_orphans(table.io, (*unused, *batch.others))
        log.info("table %s holds %s already; %s deleted", name, batch.what, counted(len(unused), "repeated file"))


def _warn_of_others(table: str, snapshot: Snapshot | None, batch: BatchFiles) -> None:
    """Warn if the repeated batch has another number of rows than the first time. ``snapshot``: of the first time."""
    before = natural(summary_of(snapshot).get("added-records")) if snapshot is not None and not batch.steps else None
    now = sum(file.record_count for file in batch.files)
    if before is not None and before != now:
        log.warning(
            "table %s holds %s already, with %s; it comes again with %s, of which none is added. Either the query does"
            " not give the same rows again, or rows are missing: its checkpoint was restored from one that is a batch"
            " older, or write_batch is called twice in a batch",
            table,
            batch.what,
            counted(before, "row"),
            counted(now, "row"),
        )


def twice(table: Table, key_files: Sequence[DataFile], at_once: int) -> str | None:
    """A key that comes twice in these files, as a sentence names it; None if there is none. ``at_once``: about how many
    keys are held in memory.
    """
    (ids, *_) = {id_columns(file) for file in key_files}
    columns = columns_of(table.metadata.schema(), ids)
    files = [(file.file_path, file.file_format) for file in key_files]
    reading = ColumnReader(table.io, columns)
    for part in parts(reading, len(columns), [files], at_once):
        numbers = part.keys.found_in(reading.all_of(files)).keys
        again = numbers.filter(pc.invert(are_last(numbers)))
        if len(again):
            key = again[0].as_py()
            return ", ".join(f"{c.name} = {of[key]}" for c, of in zip(columns, part.keys.columns, strict=True))
    return None


def repeated_key(table: str, key: str, what: str) -> ConfigError:
    """The error for a key that comes twice, where rows have no order."""
    return ConfigError(
        f"table {table}: key {key} comes twice in {what}, and there is no order-field: name the column that says which"
        " row is the later one, or leave one row of each key in the DataFrame"
    )


def _is_unanswered(properties: Mapping[str, str]) -> bool:
    """Whether a sink has noted that the table was rolled back."""
    return any(text not in ("", "{}") for name, text in properties.items() if name.startswith(f"{GONE_OFFSETS}."))
